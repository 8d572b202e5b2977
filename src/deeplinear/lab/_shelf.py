"""What a store holds, as the page of results is told it. Importing this reads every experiment and check: seconds."""

import collections
import dataclasses
import json
import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from deeplinear.experiments import CorruptRecord, Record, Store
from deeplinear.lab._errors import LabError
from deeplinear.lab._store_models import (
    PICTURES,
    CheckRow,
    Claims,
    ClaimText,
    Counts,
    Errata,
    Erratum,
    Number,
    Picture,
    Run,
    RunDetail,
    StoreInfo,
    Verdict,
)
from deeplinear.report import (
    Content,
    check_command,
    paper_of,
    read_store,
    recipe_of,
    seconds_of,
    started_of,
    status_of,
)
from deeplinear.theory import STATUS, checks

MOST = 1000
"""Most runs, and most checks, in one listing."""

MOST_CLAIMS = 200
"""Most claims of one run."""

LARGEST_PICTURE = 8_000_000
"""Bytes of a picture that is sent."""

Row = TypeVar("Row", Run, CheckRow)


def _number(value: Any) -> Number:
    """A number of a record, where what is not finite is text."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None


def _verdict(holds: bool | None) -> Verdict:
    return "untold" if holds is None else "holds" if holds else "fails"


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    found = set(verdicts)
    return "fails" if "fails" in found else "holds" if "holds" in found else "untold"


def _picture(record: Record) -> Picture | None:
    files = record.content.get("files", {})
    return next((Picture(digest=files[name], type=kind) for name, kind in PICTURES.items() if name in files), None)


def _run(record: Record) -> Run:
    content = record.content
    verdicts: list[Verdict] = [_verdict(claim.holds) for claim in record.claims]
    return Run(
        key=record.key,
        id=record.id,
        paper=paper_of(record.id),
        source=str(content.get("source", "")),
        shows=str(content.get("shows", "")),
        preset=content.get("preset"),
        started=started_of(record),
        seconds=seconds_of(record),
        claims=Claims(**collections.Counter(verdicts)),
        status=_worst(verdicts),
        picture=_picture(record),
    )


def _detail(record: Record, store: Store) -> RunDetail:
    recipe = recipe_of(record)
    content = record.content
    environment = content.get("environment", {})
    return RunDetail(
        **_run(record).model_dump(),
        notes=str(content.get("notes", "")),
        statements=[
            ClaimText(
                statement=claim.statement,
                measured=_number(claim.measured),
                expected=claim.expected,
                verdict=_verdict(claim.holds),
                note=claim.note,
            )
            for claim in record.claims[:MOST_CLAIMS]
        ],
        parameters={name: json.dumps(value) for name, value in content.get("spec", {}).items()},
        command=recipe.command,
        remark=recipe.remark,
        folder=str(record.path.relative_to(store.path)),
        environment={name: str(value) for name, value in environment.items() if not isinstance(value, Mapping | list)},
    )


def _strain(reading: Mapping[str, Any]) -> float:
    """How far a residual uses up its tolerance; what is not a number is worst."""
    residual, tolerance = _number(reading.get("residual")), _number(reading.get("tolerance")) or 0.0
    if residual is None:
        return math.inf
    return residual / tolerance if tolerance > 0 else residual - tolerance


def _check(record: Record) -> CheckRow:
    content = record.content
    closest = max(content.get("claim", []), key=_strain, default={})
    violations = content.get("violations", [])
    status = STATUS[status_of(record)]
    return CheckRow(
        id=record.id,
        paper=paper_of(record.id),
        source=str(content.get("source", "")),
        statement=str(content.get("statement", "")),
        status=status.name,
        words=status.value,
        message=str(content.get("message", "")),
        instances=int(content.get("instances", 0)),
        seed=int(content.get("seed", 0)),
        part=str(closest.get("name", "")),
        residual=_number(closest.get("residual")),
        tolerance=_number(closest.get("tolerance")),
        caught=sum(bool(one.get("caught")) for one in violations),
        violations=len(violations),
        started=started_of(record),
        seconds=seconds_of(record),
        command=check_command(record),
    )


def _most(items: list[Row]) -> list[Row]:
    """As many as are listed, in their order; failing ones rather than others."""
    kept = sorted(range(len(items)), key=lambda k: (items[k].status != "fails", k))[:MOST]
    return [items[k] for k in sorted(kept)]


@dataclasses.dataclass(frozen=True)
class _Index:
    """A store as it was read: the answer, and what can be asked for further."""

    info: StoreInfo
    runs: Mapping[str, Record]
    pictures: Mapping[str, tuple[Record, str]]
    outcomes: Mapping[str, Record]


class Shelf:
    """The store, read again where its folders have changed."""

    def __init__(self, path: str) -> None:
        self.store = Store(path)
        self._lock = threading.Lock()
        self._stamp: Any = None
        self._index: _Index | None = None

    def _now(self) -> _Index:
        """What the store holds now."""
        with self._lock:
            stamp = self._look()
            if self._index is None or stamp != self._stamp:
                self._index, self._stamp = self._read(bool(stamp)), stamp
            return self._index

    def info(self) -> StoreInfo:
        """What the store holds."""
        return self._now().info

    def run(self, key: str) -> RunDetail:
        """A run in full."""
        record = self._now().runs.get(key)
        if record is None:
            raise LabError("missing", f"There is no run {key[:64]} in the store (any more).")
        try:
            return _detail(record, self.store)
        except CorruptRecord as error:
            raise LabError("missing", f"The run cannot be read: {error}") from error

    def picture(self, digest: str) -> tuple[bytes, str]:
        """A picture and its kind."""
        found = self._now().pictures.get(digest)
        if found is None:
            raise LabError("missing", "There is no such picture in the store (any more).")
        record, name = found
        try:
            data = record.file(name)
        except (CorruptRecord, FileNotFoundError) as error:
            raise LabError("missing", f"The picture cannot be read: {error}") from error
        if len(data) > LARGEST_PICTURE:
            most = f"at most {LARGEST_PICTURE:,} are sent"
            raise LabError("size", f"The picture has {len(data):,} bytes, {most}; it is in the store.")
        return data, PICTURES[name]

    def errata(self) -> Errata:
        """Statements that are printed wrongly, their right forms, and what was measured."""
        outcomes = self._now().outcomes
        found = [_erratum(check, outcomes.get(check.id)) for check in checks() if check.printed is not None][:MOST]
        return Errata(total=len(found), measured=sum(one.missed is not None for one in found), errata=found)

    def _look(self) -> tuple[tuple[str, int], ...]:
        """Names and times of what is there: all files are read and checked only where one has changed."""
        found = []
        for kind in ("experiment", "check"):
            for path in (self.store.path / f"{kind}s").glob("*/*/*"):
                try:
                    found.append((str(path), max(one.stat().st_mtime_ns for one in (path, *path.iterdir()))))
                except OSError:
                    found.append((str(path), 0))
        return tuple(sorted(found))

    def _read(self, filled: bool) -> _Index:
        if not filled:
            there = self.store.path.is_dir()
            message = (
                f"The folder '{self.store.path}' {'holds no results' if there else 'does not exist'} yet. "
                f"Make some with 'dln experiment run completion/fig2 --preset quick --store {self.store.path}' and "
                f"'dln check run exact/theorem-4.3 --store {self.store.path}', or start the lab with --store FOLDER."
            )
            empty = StoreInfo(
                path=str(self.store.path), message=message, counts=Counts(), runs=[], checks=[], damaged=[]
            )
            return _Index(empty, {}, {}, {})
        content = read_store(self.store, None)
        records = content.all_runs
        pictures = {
            record.content["files"][name]: (record, name)
            for record in records
            for name in PICTURES
            if name in record.content.get("files", {})
        }
        info = self._info(content, [_run(record) for record in records], [_check(record) for record in content.checks])
        runs = {record.key: record.light for record in records}
        outcomes = {record.id: record for record in content.checks}
        return _Index(info, runs, {key: (one.light, name) for key, (one, name) in pictures.items()}, outcomes)

    def _info(self, content: Content, runs: list[Run], rows: list[CheckRow]) -> StoreInfo:
        statuses = collections.Counter(row.status for row in rows)
        claims = Claims(
            holds=sum(run.claims.holds for run in runs),
            fails=sum(run.claims.fails for run in runs),
            untold=sum(run.claims.untold for run in runs),
        )
        counts = Counts(
            experiments=len(content.runs),
            runs=len(runs),
            claims=claims,
            checks=len(rows),
            errata=statuses["erratum"],
            failing=statuses["fails"],
            damaged=len(content.damaged),
        )
        short = [
            f"{MOST:,} of {number:,} {noun} are listed, failing ones first; dln report writes all of them."
            for number, noun in ((len(runs), "runs"), (len(rows), "checks"))
            if number > MOST
        ]
        return StoreInfo(
            path=str(self.store.path),
            message=" ".join(short),
            counts=counts,
            runs=_most(runs),
            checks=_most(rows),
            damaged=[str(error) for error in content.damaged[:MOST]],
        )


def _erratum(check: Any, outcome: Record | None) -> Erratum:
    printed = (outcome.content.get("printed") or {}) if outcome is not None else {}
    return Erratum(
        id=check.id,
        paper=check.paper,
        source=check.source,
        printed=check.printed,
        corrected=check.statement,
        missed=_number(printed.get("residual")),
        allowed=_number(printed.get("tolerance")),
        status="" if outcome is None else STATUS[status_of(outcome)].value,
        command=f"dln check run {check.id}" if outcome is None else check_command(outcome),
    )
