"""A store as one static page: every figure with what it shows, every check, every erratum, and how they were made.

The page stands alone: pictures, style and script are inside, nothing is fetched from anywhere.
"""

import base64
import collections
import datetime
import hashlib
import importlib.resources
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deeplinear._about import __version__, written
from deeplinear.core import replacing
from deeplinear.experiments import Record, Store
from deeplinear.report._content import (
    Content,
    Recipe,
    by_paper,
    check_command,
    paper_of,
    read_store,
    recipe_of,
    seconds_of,
    split_runs,
    started_of,
    status_of,
)
from deeplinear.report._elements import (
    Html,
    anchor,
    badge,
    command_line,
    definitions,
    duration,
    fold,
    join,
    number_text,
    paragraphs,
    plural,
    prose,
    row,
    safe,
    table,
    tag,
)
from deeplinear.theory import STATUS

LARGEST_PICTURE = 4_000_000
"""Bytes of a picture that is shown on the page; of a larger one the folder is named."""

LARGEST_LINK = 200_000
"""Bytes of a file that can be saved from the page; a larger one is found in the folder of its run."""

MOST_PICTURES = 24
"""Swept members of one experiment whose picture is on the page; every member names its folder."""

MOST_MEMBERS = 300
"""Swept members of one experiment that are listed; those with a failing claim come first."""

VERDICTS = {True: ("holds", "✓", "holds"), False: ("fails", "✗", "fails"), None: ("untold", "–", "not told")}
"""Class, symbol and words of the verdict of a claim."""

STATUSES = {
    STATUS.holds.name: ("holds", "✓", STATUS.holds.value),
    STATUS.erratum.name: ("erratum", "≠", "erratum"),
    STATUS.fails.name: ("fails", "✗", STATUS.fails.value),
    STATUS.unmet.name: ("untold", "–", STATUS.unmet.value),
}
"""Class, symbol and words of the status of a check."""

TYPES = {"svg": "image/svg+xml", "png": "image/png", "pdf": "application/pdf", "nc": "application/x-netcdf"}


def build_report(
    store: Store,
    out: str | os.PathLike[str],
    *,
    title: str = "deeplinear: results",
    only: Sequence[str] | None = None,
) -> Path:
    """Write what a store holds as one page that needs nothing else: no server, no network, no files beside it.

    It shows the experiments with figures and claims, the checks of theorems, the errata they found, the records that
    are damaged, and how all of it was made. The file is there as a whole or not at all.

    Args:
        store: Where the results are.
        out: The file to write; folders on the way are made.
        title: Heading of the page.
        only: Ids such as `completion/fig2`, or short names of papers, to which the page is limited; damaged records
            are named in any case.

    Returns:
        The file.

    Raises:
        ValueError: If there is nothing to show, `only` names nothing in the store, or `out` is a folder.
    """
    target = Path(out)
    if target.is_dir():
        raise ValueError(f"build_report: out must be a file, but {target} is a folder; add a name such as report.html.")
    _write(target, _page(read_store(store, only), title))
    return target


# ------------------------------------------------------------------------------------------------------------- the page


def _page(content: Content, title: str) -> str:
    """The page as text. The policy in its head forbids every request and every script but its own."""
    style, script = _resource("page.css"), _resource("page.js")
    parts = {
        "title": safe(title),
        "policy": Html(
            f"default-src 'none'; img-src data:; style-src '{_fingerprint(style)}'; script-src '{_fingerprint(script)}'"
        ),
        "style": Html(style),
        "script": Html(script),
        "summary": _summary(content),
        "contents": _contents(content),
        "main": join(part(content) for part in (_experiments, _checks, _errata, _damaged, _making)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _resource("page.html"))


def _resource(name: str) -> str:
    return (importlib.resources.files("deeplinear.report") / name).read_text(encoding="utf-8")


def _fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _write(target: Path, text: str) -> None:
    """Write the page; a reader never finds half of it."""
    with replacing(target) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def _summary(content: Content) -> Html:
    runs, outcomes = content.all_runs, content.checks
    claims = collections.Counter(claim.holds for record in runs for claim in record.claims)
    statuses = collections.Counter(map(status_of, outcomes))
    counts = {
        "Experiments": join([tag("b", str(len(content.runs))), f" in {plural(len(runs), 'run')}"]),
        "Claims": _counts({VERDICTS[holds]: claims[holds] for holds in VERDICTS}),
        "Checks": _counts({kind: statuses[name] for name, kind in STATUSES.items() if name != STATUS.erratum.name}),
        "Errata": _counts({STATUSES[STATUS.erratum.name]: statuses[STATUS.erratum.name]}, words=False),
        "Computing time": tag("b", duration(sum(map(seconds_of, [*runs, *outcomes])))),
    }
    if content.damaged:
        counts["Damaged"] = tag("a", plural(len(content.damaged), "record"), href="#damaged")
    now = datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    made = [now, f"page by deeplinear {__version__}", *_made_with(content)]
    return join([definitions(counts), tag("p", " · ".join(made), class_="made")])


def _made_with(content: Content) -> list[str]:
    """Versions the numbers were made with, in short."""
    found: dict[str, set[str]] = {"deeplinear": set(), "Python": set(), "jax": set()}
    for record in (*content.all_runs, *content.checks):
        environment = record.content.get("environment", {})
        found["deeplinear"].add(environment.get("deeplinear", ""))
        found["Python"].add(environment.get("python", ""))
        found["jax"].add(environment.get("versions", {}).get("jax", ""))
    texts = [f"{name} {', '.join(sorted(values - {''}))}" for name, values in found.items() if values - {""}]
    return [f"results by {', '.join(texts)}"] if texts else []


def _counts(numbers: Mapping[tuple[str, str, str], int], words: bool = True) -> Html:
    """Numbers of each verdict; those of which there are none are left out."""
    badges = []
    for (name, symbol, word), number in numbers.items():
        word = word.removesuffix("s") if number != 1 and word in ("holds", "fails") else word
        if number:
            badges.append(badge((name, symbol, f"{number:,} {word}" if words else f"{number:,}")))
    return join(badges or ["none"], " ")


def _contents(content: Content) -> Html:
    items = []
    for paper, names in by_paper(content.runs).items():
        links = [
            tag("li", _link(anchor("experiments", n), n.partition("/")[2], _worst(content.runs[n]))) for n in names
        ]
        items.append(tag("li", _link(anchor("experiments", paper), f"Experiments: {paper}"), tag("ul", *links)))
    for paper, names in by_paper(record.id for record in content.checks).items():
        failing = any(status_of(r) == STATUS.fails.name for r in content.checks if r.id in names)
        link = _link(anchor("checks", paper), f"Checks: {paper} ({len(names)})", VERDICTS[False] if failing else None)
        items.append(tag("li", link))
    if content.errata:
        items.append(tag("li", _link("errata", f"Errata ({len(content.errata)})")))
    if content.damaged:
        items.append(tag("li", _link("damaged", f"Damaged records ({len(content.damaged)})", VERDICTS[False])))
    items.append(tag("li", _link("making", "How this was made")))
    return tag("ul", *items)


def _link(anchor: str, text: str, mark: tuple[str, str, str] | None = None) -> Html:
    """A link within the page; a mark beside it is read out as its word."""
    signs = ()
    if mark is not None:
        signs = (" ", tag("span", mark[1], class_=f"mark {mark[0]}", role="img", aria_label=mark[2]))
    return tag("a", text, *signs, href=f"#{anchor}")


def _worst(records: Iterable[Record]) -> tuple[str, str, str] | None:
    """What a reader should see first of the claims of some runs."""
    verdicts = {claim.holds for record in records for claim in record.claims}
    return next((VERDICTS[holds] for holds in (False, True, None) if holds in verdicts), None)


# ---------------------------------------------------------------------------------------------------------- experiments


def _experiments(content: Content) -> Html:
    if not content.runs:
        return Html()
    parts = [tag("h2", "Experiments")]
    for paper, names in by_paper(content.runs).items():
        sections = (_experiment(name, content.runs[name]) for name in names)
        parts.append(tag("section", tag("h3", paper), *sections, id=anchor("experiments", paper)))
    return tag("section", *parts, id="experiments")


def _experiment(name: str, records: Sequence[Record]) -> Html:
    cards, members = split_runs(records)
    source = str(cards[0].content.get("source", ""))
    return tag(
        "section",
        tag("h4", *([source, " "] if source else []), tag("code", name)),
        _words(cards[0]),
        *(_card(record, cards[0]) for record in cards),
        _members(members, cards[0]),
        id=anchor("experiments", name),
        class_="experiment",
    )


def _words(record: Record, said: Record | None = None) -> Html:
    """What a run shows and its notes, unless both were said of another run already."""
    shows, notes = (str(record.content.get(name, "")) for name in ("shows", "notes"))
    if said is not None and all(record.content.get(name) == said.content.get(name) for name in ("shows", "notes")):
        return Html()
    about = tag("div", tag("b", "Notes"), paragraphs(notes), class_="notes") if notes.strip() else Html()
    return join([tag("p", prose(shows), class_="shows"), about])


def _card(record: Record, first: Record) -> Html:
    recipe = recipe_of(record)
    return tag(
        "article",
        tag("h5", _label(record, recipe), " ", _counts_of(record)),
        _figure(record),
        _run(record, recipe, first),
        _files(record),
        id=anchor("runs", record.id, record.key),
        class_="card",
    )


def _label(record: Record, recipe: Recipe, varied: Sequence[str] = ()) -> str:
    """What tells a run from the others of its experiment: its preset and what differs from it, or the varied keys."""
    preset = record.content.get("preset") or recipe.preset
    spec = record.content.get("spec", {})
    settings = recipe.settings or {name: written(spec[name]) for name in varied if name in spec and not preset}
    changes = ", ".join(f"{name} = {value}" for name, value in settings.items())
    if preset:
        return f"Preset {preset} with {changes}" if changes else f"Preset {preset}"
    return changes or f"Run {record.key}"


def _counts_of(record: Record) -> Html:
    claims = collections.Counter(claim.holds for claim in record.claims)
    return _counts({VERDICTS[holds]: claims[holds] for holds in VERDICTS}) if claims else Html()


def _members(members: Sequence[Record], first: Record) -> Html:
    """The members of sweeps, folded away, each named by what was varied."""
    if not members:
        return Html()
    varied = _varied(members)
    failing_first = sorted(members, key=lambda record: all(claim.holds is not False for claim in record.claims))
    shown = [(record, recipe_of(record)) for record in failing_first[:MOST_MEMBERS]]
    shown.sort(key=lambda pair: (_natural(_label(*pair, varied)), pair[0].key))
    items = []
    for position, (record, recipe) in enumerate(shown):
        time = tag("small", duration(seconds_of(record)))
        summary = join([_label(record, recipe, varied), " ", _counts_of(record), " ", time])
        picture = _figure(record) if position < MOST_PICTURES else Html()
        body = fold(summary, picture, _run(record, recipe, first))
        items.append(tag("li", body, id=anchor("runs", record.id, record.key)))
    left = len(members) - len(shown)
    rest = tag("p", f"{plural(left, 'further run')} in the store.") if left else Html()
    return fold(f"{plural(len(members), 'run')} with other parameters", tag("ul", *items), rest, class_="members")


def _varied(members: Sequence[Record]) -> list[str]:
    """Keys whose values differ among the members."""
    seen: dict[str, set[str]] = collections.defaultdict(set)
    for record in members:
        for name, value in record.content.get("spec", {}).items():
            seen[name].add(json.dumps(value))
    return [name for name, values in seen.items() if len(values) > 1]


def _natural(text: str) -> list[tuple[int, float, str]]:
    """Order of texts in which 2 comes before 10."""
    parts = re.split(r"((?<![\w.])-?\d+\.?\d*(?:e[-+]?\d+)?)", text)
    return [(1, 0.0, part) if i % 2 == 0 else (0, float(part), "") for i, part in enumerate(parts)]


def _run(record: Record, recipe: Recipe, first: Record) -> Html:
    """Everything about one run but its heading and its files."""
    return join(
        [
            _words(record, first),
            _claims(record),
            tag("p", "Run it again: ", command_line(recipe.command)) if recipe.command else Html(),
            tag("p", prose(recipe.remark), class_="remark") if recipe.remark else Html(),
            fold("Parameters", _parameters(record, recipe)),
            fold("Environment and timing", definitions(_facts(record)), class_="environment"),
        ]
    )


def _figure(record: Record) -> Html:
    """The picture, inside a button that opens it on the whole screen."""
    files = record.content.get("files", {})
    if record.content.get("no_figure"):
        return tag("p", "There is no picture: ", prose(str(record.content["no_figure"])), class_="remark")
    for name in ("figure.svg", "figure.png"):
        if name in files and _size(record, name) <= LARGEST_PICTURE:
            break
    else:
        reason = "The picture is too large for this page; see" if "figure.svg" in files else "There is no picture in"
        return tag("p", f"{reason} ", tag("code", str(record.path)), ".", class_="remark")
    about = f"{record.content.get('source', '')} ({record.id}): {record.content.get('shows', '')}"
    about = about.replace("$", "")
    image = tag("img", src=_data_uri(record, name), alt=about, decoding="async")
    return tag("figure", tag("button", image, type="button", class_="zoom", title="Open on the whole screen"))


def _claims(record: Record) -> Html:
    rows = []
    for claim in record.claims:
        note = [tag("small", prose(claim.note))] if claim.note else []
        statement = join([prose(claim.statement), *note])
        rows.append(row(badge(VERDICTS[claim.holds]), statement, number_text(claim.measured), prose(claim.expected)))
    head = ("Verdict", "Claim", "Measured", "Expected")
    return table(f"Claims of {record.id}", head, rows, "claims") if rows else Html()


def _parameters(record: Record, recipe: Recipe) -> Html:
    spec = record.content.get("spec", {})
    values = {}
    for name, value in spec.items():
        own = [tag("small", f" (not that of preset {recipe.preset})")] if name in recipe.settings else []
        values[name] = join([tag("code", written(value)), *own])
    return definitions(values) if values else tag("p", "None.")


def _facts(record: Record) -> dict[str, str]:
    """How a run was done, as pairs of words and values."""
    content = record.content
    timing = content.get("timing", {})
    facts = {"started": timing.get("started"), "version of the experiment": content.get("version")}
    facts |= {"seconds": timing.get("seconds"), "processor seconds": timing.get("processor_seconds")}
    named = {name: str(value) for name, value in facts.items() if value is not None}
    return named | _environment(record) | {"folder": tag("code", str(record.path))}


def _environment(record: Record) -> dict[str, str]:
    found = record.content.get("environment", {})
    texts = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
            texts[name] = ", ".join(f"{k} {v}" for k, v in value.items())
        else:
            texts[name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return texts


def _files(record: Record) -> Html:
    """Links that save the files of a run; large ones are named with their folder."""
    links, large = [], []
    for name in sorted(record.content.get("files", {})):
        ending = name.rpartition(".")[2]
        if _size(record, name) > LARGEST_LINK:
            large.append(name)
            continue
        saved = f"{record.id.replace('/', '-')}-{record.key[:8]}.{ending}"
        links.append(tag("a", ending.upper(), href=_data_uri(record, name), download=saved))
    parts = [join(["Save: ", join(links, " · ")])] if links else []
    if large:
        parts.append(join([f"{', '.join(large)}: in ", tag("code", str(record.path))]))
    return tag("p", join(parts, ". "), class_="files") if parts else Html()


def _size(record: Record, name: str) -> int:
    return (record.path / name).stat().st_size


def _data_uri(record: Record, name: str) -> str:
    kind = TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return f"data:{kind};base64,{base64.b64encode(record.file(name)).decode()}"


# -------------------------------------------------------------------------------------------------- checks and the rest


def _checks(content: Content) -> Html:
    if not content.checks:
        return Html()
    records = {record.id: record for record in content.checks}
    parts: list[Html] = [tag("h2", "Checks"), _filter(len(records))]
    for paper, names in by_paper(records).items():
        head = ("Status", "Statement", "Instances", "Closest residual", "Tolerance", "Violations caught", "Seconds")
        rows = table(f"Checks of {paper}", head, [_check(records[name]) for name in names], "checks")
        parts.append(tag("section", tag("h3", paper), rows, id=anchor("checks", paper), class_="paper"))
    return tag("section", *parts, id="checks")


def _filter(count: int) -> Html:
    """Choice of the rows shown; hidden until the script that acts on it is there."""
    options = []
    for value, text in (("all", "all"), (STATUS.fails.name, "failing"), (STATUS.erratum.name, "errata")):
        button = tag("input", type="radio", name="filter", value=value, checked=value == "all")
        options.append(tag("label", button, f" {text}"))
    status = tag("output", f"{count} of {count}", id="filter-count")
    return tag("fieldset", tag("legend", "Show"), *options, status, class_="filter", hidden=True)


def _check(record: Record) -> Html:
    content = record.content
    status = status_of(record)
    violations = content.get("violations", [])
    caught = sum(bool(violation["caught"]) for violation in violations)
    missed = [str(violation["name"]) for violation in violations if not violation["caught"]]
    closest = max(content.get("claim", []), key=_strain, default={})
    message = [tag("p", prose(str(content.get("message", ""))), class_="remark")] if status == STATUS.fails.name else []
    statement = join(
        [
            tag("b", str(content.get("source", ""))),
            " ",
            prose(str(content.get("statement", ""))),
            *message,
            tag("small", command_line(check_command(record))),
        ]
    )
    return row(
        badge(STATUSES.get(status, ("untold", "–", status))),
        statement,
        join([str(content.get("instances", "–")), tag("small", f"seed {content.get('seed', '–')}")]),
        join([number_text(closest.get("residual")), tag("small", str(closest.get("name", "")))]),
        number_text(closest.get("tolerance")),
        join([f"{caught} of {len(violations)}", *[tag("small", f"missed: {', '.join(missed)}")] * bool(missed)]),
        f"{seconds_of(record):.3g}",
        data_status=status,
        id=anchor("check", record.id),
    )


def _strain(reading: Mapping[str, Any]) -> float:
    """How far a residual uses up its tolerance; what is not a number is worst."""
    residual, tolerance = float(reading["residual"]), float(reading["tolerance"])
    if math.isnan(residual):
        return math.inf
    return (residual - tolerance) / tolerance if tolerance > 0 else residual - tolerance


def _errata(content: Content) -> Html:
    if not content.errata:
        return Html()
    return tag("section", tag("h2", "Errata"), *map(_erratum, content.errata), id="errata")


def _erratum(record: Record) -> Html:
    content = record.content
    printed = content.get("printed") or {}
    link = tag("a", tag("code", record.id), href=f"#{anchor('check', record.id)}")
    least = number_text(printed.get("tolerance"))
    missed = join([number_text(printed.get("residual")), ", where at most ", least, " would hold"])
    facts = {
        "Printed form": prose(str(content.get("printed_statement") or "–")),
        "What holds": prose(str(content.get("statement", ""))),
        "Printed form missed by": missed,
    }
    heading = tag("h3", f"{paper_of(record.id)}, {content.get('source', '')} ", link)
    return tag("article", heading, definitions(facts), class_="card erratum-card")


def _damaged(content: Content) -> Html:
    if not content.damaged:
        return Html()
    said = "These are in the store, but their files are not what was written, so that nothing of them is shown above. "
    advice = "Run them again: a damaged record is replaced."
    items = (tag("li", str(error)) for error in content.damaged)
    parts = (tag("h2", "Damaged records"), tag("p", said, advice), tag("ul", *items))
    return tag("section", *parts, id="damaged")


def _making(content: Content) -> Html:
    """Commands, versions and machines; records that share them share an entry."""
    groups: dict[str, list[Record]] = collections.defaultdict(list)
    for record in (*content.all_runs, *content.checks):
        groups[json.dumps(record.content.get("environment", {}), sort_keys=True)].append(record)
    entries = []
    for records in groups.values():
        runs = sum(record.kind == "experiment" for record in records)
        days = sorted(started_of(record)[:10] for record in records if started_of(record))
        when = f", {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
        numbers = {"run": runs, "check": len(records) - runs}
        made = " and ".join(plural(number, noun) for noun, number in numbers.items() if number) + when
        entries.append(tag("div", tag("h3", made), definitions(_environment(records[0])), class_="card"))
    commands = tag(
        "p",
        "Each figure and each check has its command above, for the store ",
        tag("code", "results"),
        "; another is named with ",
        command_line("--store"),
        ". All there are, in the papers' own sizes, are made with ",
        command_line("dln experiment run --all --preset paper"),
        " and ",
        command_line("dln check run --all"),
        ", this page with ",
        command_line("dln report"),
        ".",
    )
    store = tag("p", "The results are in ", tag("code", str(content.path.resolve())), ".")
    return tag("section", tag("h2", "How this was made"), commands, store, *entries, id="making")
