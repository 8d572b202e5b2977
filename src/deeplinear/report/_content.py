"""What a page shows of a store: its records in order, and the commands that make them again."""

import collections
import dataclasses
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from deeplinear._about import written
from deeplinear.core import near_name
from deeplinear.experiments import (
    CorruptRecord,
    Experiment,
    Record,
    Store,
    experiment,
    experiments,
    fields,
    from_plain,
    override,
    split_assignments,
)
from deeplinear.theory import STATUS, checks


@dataclasses.dataclass(frozen=True)
class Content:
    """What the page shows, in the order in which it is shown."""

    path: Path
    runs: Mapping[str, Sequence[Record]]
    checks: Sequence[Record]
    damaged: Sequence[CorruptRecord]

    @property
    def all_runs(self) -> list[Record]:
        """The runs of all experiments."""
        return [record for records in self.runs.values() for record in records]

    @property
    def errata(self) -> list[Record]:
        """The checks whose printed form is wrong."""
        return [record for record in self.checks if status_of(record) == STATUS.erratum.name]


# ---------------------------------------------------------------------------------------------------- reading the store


def read_store(store: Store, only: Sequence[str] | None) -> Content:
    """What a store holds, or what of it is asked for; of several outcomes of one check the latest."""
    found = [*store.records("experiment"), *store.records("check")]
    damaged = [record for record in found if isinstance(record, CorruptRecord)]
    sound = [record for record in found if isinstance(record, Record)]
    if not found:
        raise ValueError(
            f"build_report: the store {store.path} must hold results, but holds none; "
            "make some with 'dln experiment run ID' or 'dln check run ID' first."
        )
    if only is not None:
        names = dict.fromkeys(name for record in sound for name in (record.id, paper_of(record.id)))
        for name in only:
            if name not in names:
                raise ValueError(f"build_report: only names '{name}', which is not stored. {near_name(name, names)}")
        sound = [record for record in sound if record.id in only or paper_of(record.id) in only]
        if not sound:
            raise ValueError("build_report: only must name an id or a paper of the store, but names none.")
    runs = _grouped((r for r in sound if r.kind == "experiment"), [one.id for one in experiments()])
    outcomes = _grouped((r for r in sound if r.kind == "check"), [one.id for one in checks()])
    return Content(
        store.path,
        {name: sorted(records, key=_place) for name, records in runs.items()},
        [max(records, key=started_of) for records in outcomes.values()],
        damaged,
    )


def _grouped(records: Iterable[Record], order: Sequence[str]) -> dict[str, list[Record]]:
    """Records by id: registered ids in their order, then the others; those of one paper together."""
    groups: dict[str, list[Record]] = collections.defaultdict(list)
    for record in records:
        groups[record.id].append(record)
    ids = [name for name in order if name in groups]
    ids += sorted(set(groups) - set(ids))
    papers = list(dict.fromkeys(map(paper_of, ids)))
    return {name: groups[name] for name in sorted(ids, key=lambda name: papers.index(paper_of(name)))}


def by_paper(ids: Iterable[str]) -> dict[str, list[str]]:
    """Ids by short name of the paper."""
    papers: dict[str, list[str]] = {}
    for name in ids:
        papers.setdefault(paper_of(name), []).append(name)
    return papers


def paper_of(name: str) -> str:
    """Short name of the paper of an id."""
    return name.split("/")[0]


def started_of(record: Record) -> str:
    """When a record was made, as text that sorts by time, whether it tells fractions of seconds or not."""
    return str(record.content.get("timing", {}).get("started", ""))


def seconds_of(record: Record) -> float:
    """How long a record took to make."""
    return float(record.content.get("timing", {}).get("seconds", 0.0))


def status_of(record: Record) -> str:
    """Name of the status of a check."""
    return str(record.content.get("status"))


def _place(record: Record) -> tuple[int, str, int]:
    """Where a run stands among those of its experiment: `paper`, `quick`, other presets, members of sweeps."""
    preset = record.content.get("preset")
    first = {"paper": 0, "quick": 1, None: 3}.get(preset, 2)
    return first, preset or "", -int(record.content.get("version", 0))


def split_runs(records: Sequence[Record]) -> tuple[list[Record], list[Record]]:
    """Runs that get a card, and swept members; without a preset, the latest run gets the card."""
    cards = [record for record in records if record.content.get("preset") is not None]
    cards = cards or [max(records, key=started_of)]
    return cards, [record for record in records if record not in cards]


# ------------------------------------------------------------------------------------------------- commands that re-run


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a run is made again: the nearest preset, the keys that differ from it, and what a reader should know."""

    command: str = ""
    preset: str = ""
    settings: Mapping[str, str] = dataclasses.field(default_factory=dict)
    remark: str = ""


def recipe_of(record: Record) -> Recipe:
    """How a run is made again, as far as this version of the program can tell."""
    try:
        chosen = experiment(record.id)
    except ValueError:
        return Recipe(remark="This experiment is no longer registered; no command makes it again.")
    try:
        spec = from_plain(chosen.kind, record.content["spec"])
    except (KeyError, TypeError, ValueError) as error:
        return Recipe(remark=f"The parameters of this experiment have changed since: {error}")
    name, settings = _nearest(chosen, spec)
    remark = ""
    stored = record.content.get("version")
    if stored != chosen.version:
        remark = f"Stored with version {stored}; the experiment is at version {chosen.version} and gives other numbers."
    words = [f"{key}={value}" for key, value in settings.items()]
    try:
        again = override(chosen.presets[name], split_assignments(words, record.id), record.id)
    except ValueError:
        again = None
    if again != spec:
        return Recipe("", name, settings, f"No command writes these parameters. {remark}".strip())
    command = shlex.join(["dln", "experiment", "run", record.id, "--preset", name, *words])
    return Recipe(command, name, settings, remark)


def _nearest(chosen: Experiment, spec: Any) -> tuple[str, dict[str, str]]:
    """The preset that differs in the fewest keys, and the settings that lead from it to the spec."""
    differences = {
        name: {key: written(getattr(spec, key)) for key in fields(spec) if getattr(spec, key) != getattr(preset, key)}
        for name, preset in chosen.presets.items()
    }
    return min(differences.items(), key=lambda item: len(item[1]))


def check_command(record: Record) -> str:
    """The command that runs a check again; what a command does unasked is not written."""
    words = ["dln", "check", "run", record.id]
    for name, usual in {"instances": 50, "seed": 0}.items():
        if record.content.get(name, usual) != usual:
            words += [f"--{name}", str(record.content[name])]
    if record.content.get("widths") is not None:
        words += ["--widths", written(record.content["widths"])]
    return shlex.join(words)
