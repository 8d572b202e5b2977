"""A diagnosis as text of 80 columns and as a page."""

import html
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from deeplinear.diagnosis._finding import STANDING, Finding, Prediction, value_text

COLUMNS = 80
"""Width of the text."""

MOST_WIDE, LEAST_WIDE = 22, 16
"""Widest column beside that of the statements, and the narrowest of that."""

SHOWN = 4
"""Values of a line that tables show; JSON has all of them."""

MAIN = 1
"""The column of statements, which is folded; the first one has signs."""

SIGNS = {True: "✓", False: "✗", None: "–"}
AGREES = {True: "✓ agrees", False: "✗ DIFFERS", None: "– open"}
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
    return Section(topic, ("", "", "value", "residual"), rows, [finding.reason for finding in lines])


def _theorems(lines: Sequence[Finding]) -> Section:
    """Those that nearly hold, or whose claim was missed, one by one; of those that hold the ids."""
    held = [f for f in lines if f.standing is STANDING.holds]
    kept = [f for f in lines if f.standing is STANDING.nearly]
    kept += [f for f in lines if f.standing is STANDING.fails and f.reason.startswith("Missed")]
    rows = [(f.standing.sign, f.source, _residual(f.residual)) for f in kept]
    remarks = [f"{f.reason} {_short(f.statement)}" for f in kept]
    if held:
        count = f"{len(held)} of {len(lines)} theorems apply"
        rows.insert(0, (STANDING.holds.sign, count, ""))
        remarks.insert(0, ", ".join(f.source for f in held) + "; dln check show ID has the statement.")
    return Section("theorems by their hypotheses", ("", "", "residual"), rows, remarks)


def _predictions(predictions: Sequence[Prediction], ran: bool) -> Section:
    rows, remarks = [], []
    for one in predictions:
        row = (SIGNS[one.agrees], one.statement, RELATIONS[one.relation] + value_text(one.value, SHOWN))
        rows.append((*row, value_text(one.outcome, SHOWN)) if ran else row)
        remarks.append("THE RUN DIFFERS." if one.agrees is False else one.reason)
    header = ("", "", "predicted", "outcome") if ran else ("", "", "predicted")
    return Section("prediction against outcome" if ran else "predictions", header, rows, remarks)


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
    parts += ["", *textwrap.wrap(signs + ". Predictions are about gradient flow.", COLUMNS)]
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
        lines += textwrap.wrap(remark, COLUMNS, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [line for line in lines if line]


# ---- Page ------------------------------------------------------------------------------------------------------------

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem; font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.box { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .3rem .75rem .3rem 0; border-bottom: 1px solid #8886; }
td.number, td.sign { white-space: nowrap; font-variant-numeric: tabular-nums; }
small { display: block; color: #777; max-width: 40rem; }
.holds, .agrees { color: light-dark(#00558a, #8ccbff); } .nearly { color: light-dark(#7a5a00, #ffd479); }
.fails, .differs { color: light-dark(#8f3600, #ffb380); font-weight: 600; } .silent, .measured, .open { color: #777; }
code { font-size: .85em; }
"""


def as_html(
    title: str, findings: Sequence[Finding], predictions: Sequence[Prediction], notes: Sequence[str], ran: bool
) -> str:
    """A page that needs nothing beside itself; all text is escaped."""
    body = [f"<h1>{_safe(title)}</h1>", *(f"<p>{_safe(note)}</p>" for note in notes)]
    if predictions:
        body.append(f"<h2>{'Prediction against outcome' if ran else 'Predictions'}</h2>")
        body.append(_html_table(("", "predicted", "outcome", "", "source"), map(_html_prediction, predictions)))
    for topic in dict.fromkeys(finding.topic for finding in findings):
        body.append(f"<h2>{_safe(topic.capitalize())}</h2>")
        lines = [finding for finding in findings if finding.topic == topic]
        body.append(_html_table(("", "", "value", "residual", "source"), map(_html_finding, lines)))
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{_safe(title)}</title>'
    text = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{STYLE}</style></head>\n<body>\n{text}\n</body></html>\n'
    )


def _html_table(header: Sequence[str], rows: Iterable[str]) -> str:
    titles = "".join(f'<th scope="col">{_safe(text)}</th>' for text in header)
    return f'<div class="box"><table><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _html_finding(one: Finding) -> str:
    cells = [
        f'<td class="sign {one.standing.name}">{_safe(one.standing.sign)} {_safe(one.standing.value)}</td>',
        f"<td>{_safe(one.statement)}{_small(one.reason)}</td>",
        f'<td class="number">{_safe(value_text(one.value))}</td>',
        f'<td class="number">{_safe(_residual(one.residual))}</td>',
        f"<td><code>{_safe(one.source)}</code></td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _html_prediction(one: Prediction) -> str:
    kind = {True: "agrees", False: "differs", None: "open"}[one.agrees]
    cells = [
        f"<td>{_safe(one.statement)}{_small(one.reason)}</td>",
        f'<td class="number">{_safe(RELATIONS[one.relation] + value_text(one.value))}</td>',
        f'<td class="number">{_safe(value_text(one.outcome))}</td>',
        f'<td class="sign {kind}">{_safe(AGREES[one.agrees])}</td>',
        f"<td><code>{_safe(one.source)}</code></td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _small(text: str) -> str:
    return f"<small>{_safe(text)}</small>" if text else ""


def _safe(text: str) -> str:
    return html.escape(text, quote=True)
