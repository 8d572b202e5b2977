"""Pages made from a store: the gallery of figures with their claims, and the table of theorems with their verdicts."""

import collections
import html
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from book.pictures import tag

LARGEST_DRAWING = 1_000_000
"""Bytes of a drawing above which the picture of pixels is shown instead."""

INSTANCES, SEED = 50, 0
"""How checks are run unless one asks otherwise; see `dln check run --help`."""

PAPERS = {
    "completion": ("Deep matrix completion", "guide/completion.md"),
    "exact": ("Exact learning dynamics", "guide/exact.md"),
    "network": ("The loss landscape", "guide/landscape.md"),
    "geometry": ("The geometry of end-to-end matrices", "guide/geometry.md"),
    "rnn": ("Extrapolation of recurrent networks", "guide/recurrent.md"),
}
"""Title and chapter of each paper; another one is shown under its short name."""

HOLDS = {True: ("yes", "holds"), False: ("no", "fails"), None: ("untold", "not told")}
STATUSES = {"holds": "yes", "erratum": "erratum", "fails": "no"}


def stored_runs(path: Path, preset: str) -> list[Any]:
    """Record of every experiment in one size.

    Raises:
        LookupError: If one is missing.
    """
    from deeplinear.experiments import Store, experiments

    store, found, missing = Store(path), [], []
    for one in experiments():
        spec = one.presets.get(preset) or one.presets["paper"]  # as `dln experiment run` does
        record = store.find("experiment", one.id, one.key(spec))
        found.append(record)
        missing += [one.id] if record is None else []
    _complain(path, missing, f"dln experiment run --all --preset {preset} --store {path}")
    return found


def stored_checks(path: Path) -> list[Any]:
    """Record of every check.

    Raises:
        LookupError: If one is missing.
    """
    from deeplinear.experiments import CheckTask, Store
    from deeplinear.theory import checks

    store, found, missing = Store(path), [], []
    for one in checks():
        record = store.find("check", one.id, CheckTask(one.id, INSTANCES, SEED).key)
        found.append(record)
        missing += [one.id] if record is None else []
    _complain(path, missing, f"dln check run --all --resume --store {path}")
    return found


def _complain(path: Path, missing: Sequence[str], command: str) -> None:
    if missing:
        names = ", ".join(missing[:5]) + (" and others" if len(missing) > 5 else "")
        raise LookupError(f"the store {path} must hold every result, but lacks {names}; run '{command}'.")


# ----------------------------------------------------------------------------------------------------------- gallery


def gallery_page(records: Iterable[Any]) -> tuple[str, dict[str, bytes]]:
    """The gallery, in Markdown, and its pictures by path."""
    groups = _by_paper(records)
    claims = [claim for group in groups.values() for record in group for claim in record.claims]
    counts = collections.Counter(HOLDS[claim.holds][1] for claim in claims)
    parts = [
        "# Gallery",
        f"Every figure and table that `dln experiment list` names, {sum(map(len, groups.values()))} of them, in the "
        f"size that was stored when this book was built, each with what the paper says of it as measured claims: "
        f"{_listed(counts)}. The command below a picture makes it again; `--preset paper` takes the paper's own size. "
        "[Settings of the figures](settings.md) lists what the papers print and where ours differ.",
        "\n".join(f"- [{_title(paper)}](#{paper}): {len(group)}" for paper, group in groups.items()),
    ]
    files: dict[str, bytes] = {}
    for paper, group in groups.items():
        parts += [_section(paper)]
        for record in group:
            text, own = _figure(record)
            parts.append(text)
            files |= own
    return "\n\n".join(parts) + "\n", files


def _figure(record: Any) -> tuple[str, dict[str, bytes]]:
    from deeplinear.report import recipe_of

    content = record.content
    parts = [f"### {content['source']} `{record.id}` {{ #{_anchor(record.id)} }}", _prose(content["shows"])]
    files = {}
    if content.get("no_figure"):
        parts.append(f"There is no picture: {_prose(content['no_figure'])}")
    else:
        name = "figure.svg" if len(record.file("figure.svg")) <= LARGEST_DRAWING else "figure.png"
        path = f"pictures/{_anchor(record.id)}{name[6:]}"
        files[path] = record.file(name)
        parts.append(tag(path, f"{content['source']}: {content['shows']}".replace("$", ""), files[path]))
    if record.claims:
        rows = [
            _row(
                _badge(*HOLDS[claim.holds]),
                _cell(claim.statement + (f" ({claim.note})" if claim.note else "")),
                _number(claim.measured),
                _cell(claim.expected),
            )
            for claim in record.claims
        ]
        parts.append(_table(("Verdict", "Claim", "Measured", "Expected"), rows, "claims"))
    if command := recipe_of(record).command:
        parts.append(f"```sh\n{command}\n```")
    if content.get("notes", "").strip():
        notes = "\n".join(f"    {line}".rstrip() for line in _prose(content["notes"].strip()).split("\n"))
        parts.append(f'??? note "Notes; where they tell sizes, those of the preset paper"\n\n{notes}')
    return "\n\n".join(parts), files


# ---------------------------------------------------------------------------------------------------------- theorems


def theorems_page(records: Iterable[Any]) -> str:
    """The table of theorems, in Markdown."""
    groups = _by_paper(records)
    everyone = [record for group in groups.values() for record in group]
    counts = collections.Counter(str(record.content["status"]) for record in everyone)
    parts = [
        "# Theorems",
        f"Every statement of the papers that can be run, {len(everyone)} of them, each on {INSTANCES} random "
        f"instances: {_listed(counts)}. *Erratum* means that the printed form fails, or of a caveat the form it may be "
        "read as, and the statement here, its corrected form, holds; [Errata](errata.md) says which. *Residual* is the "
        "one that uses up most of its tolerance. `dln check run ID` runs a check again, `dln check show ID` tells its "
        "hypotheses.",
        "\n".join(f"- [{_title(paper)}](#{paper}): {_tally(group)}" for paper, group in groups.items()),
    ]
    head = ("Verdict", "Statement", "Residual", "Tolerance")
    for paper, group in groups.items():
        parts += [_section(paper), _table(head, [_theorem(record) for record in group], "theorems")]
    return "\n\n".join(parts) + "\n"


def _theorem(record: Any) -> str:
    content = record.content
    status = str(content["status"])
    closest = max(content.get("claim", []), key=_strain, default={})
    source = f"<b>{html.escape(content['source'])}</b> <code>{record.id}</code><br>"
    return _row(
        _badge(STATUSES[status], status),
        source + _cell(content["statement"]),
        f"{_number(closest.get('residual'))}<br><small>{_cell(closest.get('name', ''))}</small>",
        _number(closest.get("tolerance")),
        anchor=_anchor(record.id),
    )


def _strain(reading: Mapping[str, Any]) -> float:
    """How far a residual uses up its tolerance; what is not a number is worst."""
    residual, tolerance = float(reading["residual"]), float(reading["tolerance"])
    if math.isnan(residual):
        return math.inf
    return (residual - tolerance) / tolerance if tolerance > 0 else residual - tolerance


def _tally(group: Sequence[Any]) -> str:
    return _listed(collections.Counter(str(record.content["status"]) for record in group))


# ------------------------------------------------------------------------------------------------------------ pieces


def _by_paper(records: Iterable[Any]) -> dict[str, list[Any]]:
    from deeplinear.report import paper_of

    groups: dict[str, list[Any]] = {}
    for record in records:
        groups.setdefault(paper_of(record.id), []).append(record)
    return groups


def _title(paper: str) -> str:
    return PAPERS[paper][0] if paper in PAPERS else paper.capitalize()


def _section(paper: str) -> str:
    heading = f"## {_title(paper)} {{ #{paper} }}"
    return f"{heading}\n\nThe chapter: [{_title(paper)}]({PAPERS[paper][1]})." if paper in PAPERS else heading


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items(), key=lambda item: -item[1]))


def _anchor(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name)


def _badge(kind: str, text: str) -> str:
    return f'<span class="verdict {kind}">{text}</span>'


def _table(head: Sequence[str], rows: Iterable[str], kind: str) -> str:
    titles = "".join(f'<th scope="col">{title}</th>' for title in head)
    return f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _row(*cells: str, anchor: str = "") -> str:
    name = f' id="{anchor}"' if anchor else ""
    return f"<tr{name}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _cell(text: str) -> str:
    """A sentence inside an HTML table, its formulas marked as `arithmatex` marks them, code as code."""

    def mark(found: re.Match[str]) -> str:
        if found[1] is not None:
            return rf'<span class="arithmatex">\({found[1]}\)</span>'
        return f"<code>{found[2]}</code>"

    parts = re.split(r"(\$[^$`\n]+\$|`[^`\n]+`)", html.escape(text))
    return "".join(
        re.sub(r"\$([^$`\n]+)\$|`([^`\n]+)`", mark, part) if place % 2 else _indexed(part)
        for place, part in enumerate(parts)
    )


def _indexed(text: str) -> str:
    """Indices and exponents of plain formulas, such as `W_{l+1}`, `e^{-t}` and `s_i`, set as such; names are left."""
    found, place, index_before = [], 0, False
    while place < len(text):
        sign, before = text[place], text[max(0, place - 2) : place]
        name = sign == "_" and not index_before and re.fullmatch(r"[A-Za-z_][a-z]", before)
        end = 0 if sign not in "_^" or not before.strip() or name else _end_of_index(text, place + 1)
        if end:
            kind = {"_": "sub", "^": "sup"}[sign]
            inside = text[place + 1 : end]
            inside = inside[1:-1] if inside[0] in "{(" else inside
            found.append(f"<{kind}>{_indexed(inside)}</{kind}>")
            place, index_before = end, True
        else:
            found.append(sign)
            place, index_before = place + 1, False
    return "".join(found)


def _end_of_index(text: str, start: int) -> int:
    """Where an index or exponent from there ends: a bracket, a known pair or word, a letter; 0 if there is none."""
    if text[start : start + 1] in ("{", "("):
        depth = 0
        for place in range(start, len(text)):
            depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(text[place], 0)
            if depth == 0:
                return place + 1
        return 0
    word = re.match(r"(min|max|rich|lazy|ij|pq|kl)\b|[^\W_]|[∞½±]", text[start:])
    return start + word.end() if word else 0


def _prose(text: str) -> str:
    """A sentence of a record as Markdown; what Markdown would take for marks, outside formulas and code, is escaped."""
    parts = re.split(r"(\$[^$`\n]+\$|`[^`\n]+`)", text)
    escaped = (re.sub(r"([*_\[\]<\\])", r"\\\1", part) if i % 2 == 0 else part for i, part in enumerate(parts))
    return "".join(escaped)


def _number(value: float | int | str | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return html.escape(value)
    return "–" if math.isnan(value) else f"{value:.3g}"
