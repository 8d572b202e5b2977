"""A diagnosis as text of 80 columns and as a page."""

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from deeplinear.diagnosis._finding import STANDING, Finding, Matrix, Prediction, Value, is_matrix, value_text
from deeplinear.theory import checks

COLUMNS = 80
"""Width of the text."""

MOST_WIDE, LEAST_WIDE = 22, 16
"""Widest column beside that of the statements, and the narrowest of that."""

SHOWN = 4
"""Values of a line that tables show; JSON has all of them."""

MAIN = 1
"""The column of statements, which is folded; the first one has signs."""

MOST_SHOWN, MOST_CELLS = (8, 44), 400
"""Rows and width in letters of matrices that the text shows, and entries of those that the page shows."""

LARGE = "Its entries are in the JSON, and in Python the attribute limit."

FAINT = 1e-9
"""Entries of a matrix below this share of the largest are shown as zero."""

ABOUT = "Of predictions, which are about gradient flow: ✓ agrees, ✗ differs, – open."
"""How to read the predictions."""

SIGNS = {True: "✓", False: "✗", None: "–"}
AGREES = {True: "agrees", False: "DIFFERS", None: "open"}
RELATIONS = {"equal": "", "at least": "≥ ", "at most": "≤ "}


class Section(NamedTuple):
    """A table: title, header, rows of text, and for each row a remark."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    remarks: list[str]


def sections_of(findings: Sequence[Finding], predictions: Sequence[Prediction], ran: bool) -> list[Section]:
    """The tables of a diagnosis. Theorems that do not apply are counted, not listed."""
    tables = []
    for topic in dict.fromkeys(finding.topic for finding in findings):
        lines = [finding for finding in findings if finding.topic == topic]
        tables.append(_theorems(lines) if topic == "theorems" else _lines(topic, lines))
    if predictions:
        tables.append(_predictions(predictions, ran))
    return tables


def _lines(topic: str, lines: Sequence[Finding]) -> Section:
    rows = [(f.standing.sign, f.statement, value_text(f.value, SHOWN), _residual(f.residual)) for f in lines]
    remarks = ["\n".join(filter(None, (f.reason, _rows_text(f.value)))) for f in lines]
    return Section(topic, ("", "", "value", "residual"), rows, remarks)


def _theorems(lines: Sequence[Finding]) -> Section:
    """Those that nearly hold, or whose claim was missed, one by one; of those that hold the ids."""
    held = [f for f in lines if f.standing is STANDING.holds]
    kept = [f for f in lines if f.standing is STANDING.nearly]
    kept += [f for f in lines if _missed(f)]
    rows = [(f.standing.sign, f.source, _residual(f.residual)) for f in kept]
    remarks = [f"{f.reason} {_short(f.statement)}" for f in kept]
    if held:
        count = f"{len(held)} of {len(lines)} theorems apply"
        rows.insert(0, (STANDING.holds.sign, count, ""))
        remarks.insert(0, ", ".join(f.source for f in held) + "; dln check show ID has the statement.")
    return Section("theorems by their hypotheses", ("", "", "residual"), rows, remarks)


def _missed(one: Finding) -> bool:
    """Whether the hypotheses hold and the claim does not."""
    return one.standing is STANDING.fails and one.reason.startswith("Missed")


def _predictions(predictions: Sequence[Prediction], ran: bool) -> Section:
    rows, remarks = [], []
    for one in predictions:
        row = (SIGNS[one.agrees] if ran else "→", one.statement, RELATIONS[one.relation] + value_text(one.value, SHOWN))
        rows.append((*row, _outcome(one, SHOWN)) if ran else row)
        remarks.append("THE RUN DIFFERS." if one.agrees is False else one.remark)
    header = ("", "", "predicted", "outcome") if ran else ("", "", "predicted")
    return Section("prediction against outcome" if ran else "predictions", header, rows, remarks)


def _outcome(one: Prediction, most: int = 6) -> str:
    """What a run did; of a matrix how far it is from the predicted one."""
    if not is_matrix(one.outcome) or not is_matrix(one.value):
        return value_text(one.outcome, most)
    wanted, seen = np.array(one.value), np.array(one.outcome)
    return f"{np.linalg.norm(seen - wanted) / max(float(np.linalg.norm(wanted)), 1e-300):.1e} of it away"


def _cells(matrix: Matrix) -> list[list[str]]:
    """Entries as text; what is rounding is zero."""
    top = max(abs(number) for row in matrix for number in row)
    return [["0" if abs(x) <= FAINT * top else f"{x:.3g}" for x in row] for row in matrix]


def _rows_text(value: Value) -> str:
    """The rows of a small matrix below each other, where a large one is found; nothing for other values."""
    if not is_matrix(value):
        return ""
    if len(value) > MOST_SHOWN[0]:
        return LARGE
    cells = _cells(value)
    width = max(len(cell) for row in cells for cell in row)
    lines = ["  ".join(cell.rjust(width) for cell in row) for row in cells]
    return LARGE if len(lines[0]) > MOST_SHOWN[1] else "\n".join(lines)


def _residual(residual: float | None) -> str:
    return "" if residual is None else f"{residual:.1e}"


def _short(text: str, most: int = 120) -> str:
    return text if len(text) <= most else text[: most - 1].rsplit(" ", 1)[0] + " …"


# ---- Text ------------------------------------------------------------------------------------------------------------


def as_text(title: str, sections: Iterable[Section], notes: Sequence[str]) -> str:
    """Tables below each other; remarks stand under their rows."""
    parts = [title]
    for section in sections:
        parts += ["", section.title, *_table(section)]
    signs = ", ".join(f"{s.sign} {s.value}" for s in STANDING)
    parts += ["", *textwrap.wrap(f"{signs}. {ABOUT}", COLUMNS)]
    for note in notes:
        parts += textwrap.wrap(f"Note: {note}", COLUMNS, subsequent_indent="      ")
    return "\n".join(parts)


def _table(section: Section) -> list[str]:
    table = [section.header, *section.rows]
    longest = [max(len(row[k]) for row in table) for k in range(len(section.header))]
    widths = [min(size, MOST_WIDE) for size in longest]
    others = sum(w for k, w in enumerate(widths) if k != MAIN) + 2 * len(widths)
    widths[MAIN] = min(longest[MAIN], max(COLUMNS - others, LEAST_WIDE))
    lines = []
    for row, remark in zip(table, ["", *section.remarks], strict=True):
        cells = [textwrap.wrap(text, widths[k]) or [""] for k, text in enumerate(row)]
        for height in range(max(map(len, cells))):
            texts = [cell[height] if height < len(cell) else "" for cell in cells]
            line = "  " + "  ".join(text.ljust(width) for text, width in zip(texts, widths, strict=True))
            lines.append(line.rstrip())
        indent = " " * 6
        for part in remark.splitlines():
            lines += textwrap.wrap(
                part, COLUMNS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
            )
    return [line for line in lines if line]


# ---- Page ------------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 62rem; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; } summary { cursor: pointer; margin: .5rem 0; }
.box { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; width: 100%; overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid #8886; }
td.main { width: 99%; min-width: 11.5rem; } td.number, td.sign { white-space: nowrap; }
td.number { font-variant-numeric: tabular-nums; } td.list { white-space: normal; min-width: 7rem; }
table.matrix { width: auto; margin: .3rem 0; font-size: .85rem; font-variant-numeric: tabular-nums; }
table.matrix td { text-align: right; padding: .1rem .5rem; white-space: nowrap; border: 0; }
small { display: block; color: light-dark(#5c5c5c, #a8a8a8); max-width: 40rem; }
.holds, .agrees { color: light-dark(#00558a, #8ccbff); } .nearly { color: light-dark(#7a5a00, #ffd479); }
.fails, .differs { color: light-dark(#8f3600, #ffb380); font-weight: 600; }
.silent, .measured, .open { color: light-dark(#5c5c5c, #a8a8a8); }
@media (max-width: 40rem) {
  body { font-size: .9rem; } td.main { min-width: 9rem; } td.list { min-width: 4.5rem; } .word { display: none; }
  small, td.main { overflow-wrap: anywhere; }
}
"""

QUIET = (STANDING.silent, STANDING.fails)
"""Theorems that stand behind a fold: those that do not speak of the network."""


def as_html(
    title: str, findings: Sequence[Finding], predictions: Sequence[Prediction], notes: Sequence[str], ran: bool
) -> str:
    """A page that needs nothing beside itself; all text is escaped."""
    names = {check.id: f"{check.source} ({check.id})" for check in checks()}
    signs = ", ".join(f"{one.sign} {one.value}" for one in STANDING)
    about = f"{signs}. {ABOUT}"
    body = [f"<h1>{_safe(title)}</h1>", _small(about), *(f"<p>{_safe(note)}</p>" for note in notes)]
    if predictions:
        body.append(f"<h2>{'Prediction against outcome' if ran else 'Predictions'}</h2>")
        header = ("", "", "predicted", "outcome") if ran else ("", "predicted")
        body.append(_html_table(header, (_html_prediction(one, names, ran) for one in predictions)))
    for topic in dict.fromkeys(finding.topic for finding in findings):
        lines = [finding for finding in findings if finding.topic == topic]
        folded = [one for one in lines if topic == "theorems" and one.standing in QUIET and not _missed(one)]
        body.append(f"<h2>{_safe(topic.capitalize())}</h2>")
        shown = [one for one in lines if one not in folded]
        if shown:
            body += [_html_findings(shown, names), *(_html_matrix(one.value) for one in shown)]
        if folded:
            body.append(f"<details><summary>{len(folded)} that do not speak of this network, and why</summary>")
            body.append(f"{_html_findings(folded, names)}</details>")
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(title)}</title>"
    )
    text = "\n".join(filter(None, body))
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{text}\n</body></html>\n'
    )


def _html_findings(lines: Iterable[Finding], names: Mapping[str, str]) -> str:
    return _html_table(("", "", "value", "residual"), (_html_finding(one, names) for one in lines))


def _html_table(header: Sequence[str], rows: Iterable[str]) -> str:
    titles = "".join(f'<th scope="col">{_safe(text)}</th>' for text in header)
    return f'<div class="box"><table><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _html_finding(one: Finding, names: Mapping[str, str]) -> str:
    source = names.get(one.source, one.source)
    cells = [
        _html_sign(one.standing.name, one.standing.sign, one.standing.value),
        f'<td class="main">{_safe(one.statement)}{_small(one.reason)}{_small(source)}</td>',
        _html_value(one.value, value_text(one.value)),
        f'<td class="number">{_safe(_residual(one.residual))}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _html_prediction(one: Prediction, names: Mapping[str, str], ran: bool) -> str:
    kind = {True: "agrees", False: "differs", None: "open"}[one.agrees]
    source = names.get(one.source, one.source)
    cells = [
        f'<td class="main">{_safe(one.statement)}{_small(one.remark)}{_small(source)}</td>',
        _html_value(one.value, RELATIONS[one.relation] + value_text(one.value)),
    ]
    if ran:
        cells = [
            _html_sign(kind, SIGNS[one.agrees], AGREES[one.agrees]),
            *cells,
            _html_value(one.outcome, _outcome(one)),
        ]
    return f"<tr>{''.join(cells)}</tr>"


def _html_sign(kind: str, sign: str, word: str) -> str:
    """A sign and its word; narrow pages show the sign alone."""
    return f'<td class="sign {kind}" title="{_safe(word)}">{_safe(sign)} <span class="word">{_safe(word)}</span></td>'


def _html_value(value: Value, text: str) -> str:
    """A cell; several numbers may stand on several lines."""
    several = isinstance(value, tuple)
    return f'<td class="number{" list" * several}">{_safe(text)}</td>'


def _html_matrix(value: Value) -> str:
    if not is_matrix(value) or len(value) * len(value[0]) > MOST_CELLS:
        return ""
    rows = ("".join(f"<td>{_safe(cell)}</td>" for cell in row) for row in _cells(value))
    text = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="box"><table class="matrix">{text}</table></div>'


def _small(text: str) -> str:
    return f"<small>{_safe(text)}</small>" if text else ""


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
