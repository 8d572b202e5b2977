"""`dln experiment`: figures and tables that can be made again."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeplinear._about import near_name, written
from deeplinear.cli._catalogue import describe_experiment, known, listed, recognised
from deeplinear.cli._interrupt import interrupts_raise, watched
from deeplinear.cli._limits import WORKERS
from deeplinear.cli._options import SEED, choice, count, read_kind, read_value
from deeplinear.cli._shell import (
    Code,
    UsageError,
    choose,
    folder,
    interrupted,
    numerics,
    one_line,
    output_kept_pure,
    print_json,
    print_table,
    say,
    to_write,
)
from deeplinear.cli._written import Written

VERDICTS = {True: "✓ holds", False: "✗ FAILS", None: "– not told"}
"""How the verdict on a claim is shown: a sign and a word."""

SWEPT = 8
"""Members of a sweep whose numbers are shown one by one."""

LISTED = 1_000
"""Members that are told one by one in JSON and by `status`; more are counted, and only those that failed are told."""

DRAWN = 100
"""Members of a sweep that are drawn: a picture takes some tenths of a second, often more than its numbers."""

REASONS = 20
"""Reasons that are told at the end."""


def executor_of(executor: str, workers: str | None, address: str | None) -> tuple[str, int | None]:
    """Name of the executor and number of workers, or a usage error."""
    kind = "dask" if address is not None and executor == "serial" else executor
    read_kind(choice("serial", "processes", "dask"), kind, "--executor")
    if address is not None and kind != "dask":
        raise UsageError(f"--address is for --executor dask, but the executor is {executor}.")
    return kind, None if workers is None else read_kind(count(at_most=WORKERS), workers, "--workers")


def split(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Ids and settings `key=value` of a command line."""
    from deeplinear.experiments import split_assignments

    names = [text for text in arguments if "=" not in text]
    try:
        return names, split_assignments([text for text in arguments if "=" in text], "dln experiment")
    except ValueError as error:
        raise UsageError(str(error)) from None


def chosen(names: Sequence[str], everything: bool, paper: str | None) -> list[Any]:
    """The experiments that are meant."""
    recognised("experiment", names, everything, paper)
    from deeplinear.experiments import experiment, experiments

    return choose("experiment", names, everything, paper, experiment, experiments)


def foresee(
    arguments: Sequence[str], everything: bool, paper: str | None, preset: str | None, *, sweep: bool = False
) -> None:
    """Refuse at once, without loading anything, the ids, keys and presets that the catalogue does not know."""
    names = [text for text in arguments if "=" not in text]
    if sweep and len(names) != 1:
        raise UsageError(f"a sweep is of one experiment, but {len(names)} ids are given.")
    found = recognised("experiment", names, everything, paper)
    if found is None:
        return
    presets = list(dict.fromkeys(name for one in found for name in one["presets"]))
    if preset is not None and preset not in presets:
        where = found[0]["id"] if sweep else "--preset"
        raise UsageError(f"{where}: there is no preset '{preset}'. {near_name(preset, presets)}")
    for key in (text.partition("=")[0].strip() for text in arguments if "=" in text):
        if key and len(found) == 1 and key not in found[0]["types"]:
            raise UsageError(f"{found[0]['id']}: there is no key '{key}'. {near_name(key, found[0]['types'])}")


def list_command(paper: str | None, as_json: bool) -> Code:
    """What experiments there are."""
    found = listed("experiments", paper)
    if not found:
        chosen([], False, paper)
    if as_json:
        print_json({"ok": True, "command": "experiment list", "experiments": found})
        return Code.fine
    print_table(
        [(one["id"], one["source"], ", ".join(one["presets"]), one["shows"]) for one in found],
        header=("id", "source", "presets", "shows"),
    )
    return Code.fine


def show_command(name: str, preset: str | None, as_json: bool) -> Code:
    """One experiment in full."""
    one = known("experiments", name) or describe_experiment(chosen([name], False, None)[0])
    if preset is not None and preset not in one["presets"]:
        _preset(chosen([name], False, None)[0], preset)
    if as_json:
        print_json({"ok": True, "command": "experiment show", "experiment": one})
        return Code.fine
    rows = [("id", one["id"]), ("source", one["source"]), ("shows", one["shows"])]
    rows += [("notes", one["notes"])] if one["notes"] else []
    rows += [("run", f"dln experiment run {one['id']} --preset {preset or 'quick'}")]
    print_table(rows)
    shown = [preset] if preset else list(one["presets"])
    table = [(key, *(_text(one["presets"][p][key]) for p in shown), kind) for key, kind in one["types"].items()]
    print_table(table, title="Settings (key=value changes one)", header=("key", *shown, "type"))
    if any(kind.startswith("tuple") for kind in one["types"].values()):
        print_table([("lists", "key=1,2; lists of lists 'key=1,2;3,4'; the empty list, where it is shown, key=none")])
    return Code.fine


def run_command(
    arguments: Sequence[str],
    everything: bool,
    paper: str | None,
    preset: str,
    seed: str | None,
    store: str,
    executor: str,
    workers: str | None,
    address: str | None,
    again: bool,
    as_json: bool,
) -> Code:
    """Run experiments, one spec each."""
    executor_of(executor, workers, address)
    foresee(arguments, everything, paper, preset)
    numerics()
    from deeplinear.experiments import override, task_of

    names, settings = split(arguments)
    selected = chosen(names, everything, paper)
    if settings and len(selected) > 1:
        raise UsageError("settings key=value go with one experiment; run them one by one.")
    _known_preset(selected, preset)
    tasks, smaller = [], []
    for one in selected:
        values = _seeded(one, settings, seed, strict=len(selected) == 1)
        if preset not in one.presets and len(selected) > 1:
            smaller.append(one.id)
        spec = _preset(one, "paper" if one.id in smaller else preset)
        tasks.append(task_of(one.id, _usage(override, spec, values, one.id)))
    if smaller:
        say(f"dln: run in the size 'paper', as there is no '{preset}' of them: {', '.join(smaller)}")
    return _run("experiment run", tasks, store, executor, workers, address, again, as_json, strict=True)


def sweep_command(
    arguments: Sequence[str],
    preset: str,
    seed: str | None,
    store: str,
    executor: str,
    workers: str | None,
    address: str | None,
    again: bool,
    as_json: bool,
) -> Code:
    """Run one experiment for every combination of values."""
    executor_of(executor, workers, address)
    foresee(arguments, False, None, preset, sweep=True)
    numerics()
    from deeplinear.experiments import grid, task_of

    one, settings = _swept(arguments, seed)
    specs = _usage(grid, _preset(one, preset), settings, one.id)
    tasks = [task_of(one.id, spec) for spec in specs]
    return _run("experiment sweep", tasks, store, executor, workers, address, again, as_json, strict=False)


def status_command(arguments: Sequence[str], preset: str | None, store: str, as_json: bool) -> Code:
    """What of the experiments, or of a sweep, is stored."""
    foresee(arguments, all("=" in text for text in arguments), None, preset)
    from deeplinear.experiments import CorruptRecord, Store, experiments, grid, task_of

    names, settings = split(arguments)
    selected = chosen(names, False, None) if names else list(experiments())
    if settings and len(selected) > 1:
        raise UsageError("settings key=value go with one experiment.")
    if preset is not None:
        _known_preset(selected, preset)
    if Path(store).exists() and not Path(store).is_dir():
        raise UsageError(f"--store: {store} must be a folder, but is a file.")
    place = Store(store)
    rows: list[dict[str, Any]] = []
    amounts: list[dict[str, Any]] = []
    for one in selected:
        presets = [preset] if preset else list(one.presets)
        for name in presets:
            if preset and name not in one.presets and not names:
                continue
            specs = _usage(grid, _preset(one, name), settings, one.id)
            if len(specs) > LISTED:
                amounts.append({"id": one.id, "preset": name} | _amounts([task_of(one.id, s) for s in specs], place))
                continue
            for spec in specs:
                task = task_of(one.id, spec)
                reason, record = "", None
                try:
                    record = place.find("experiment", task.id, task.key)
                    state = "missing" if record is None else "completed"
                except CorruptRecord as error:
                    state, reason = "damaged", str(error)
                if state == "missing" and place.scratch(task.key).exists():
                    state = "begun"
                row = {"id": one.id, "preset": name, "key": task.key, "status": state, "reason": reason}
                if record is not None:
                    held = [claim.holds for claim in record.claims]
                    row |= {
                        "seconds": record.content["timing"]["seconds"],
                        "claims": {"hold": held.count(True), "fail": held.count(False), "untold": held.count(None)},
                        "folder": str(record.path),
                    }
                rows.append(row)
    if as_json:
        payload = {"ok": True, "command": "experiment status", "store": store, "runs": rows}
        print_json(payload | ({"sweeps": amounts} if amounts else {}))
        return Code.fine
    table = []
    for row in rows:
        claims = row.get("claims")
        told = "" if claims is None else f"{claims['hold']} hold, {claims['fail']} fail, {claims['untold']} not told"
        seconds = f"{row['seconds']:.1f}" if "seconds" in row else ""
        table.append((row["id"], row["preset"], row["status"], told, seconds, row["reason"] or row["key"]))
    if table or not amounts:
        print_table(table, title=f"Store {store}", header=("id", "preset", "status", "claims", "s", "key"))
    for sweep in amounts:
        print_table([(name, str(value)) for name, value in sweep.items()], title=f"Store {store}")
    return Code.fine


def _amounts(tasks: Sequence[Any], store: Any) -> dict[str, int]:
    """How many members of a large sweep are there, by the names of their folders; none is read."""
    there, begun = store.keys("experiment", tasks[0].id), store.begun()
    present = sum(task.key in there for task in tasks)
    started = sum(task.key in begun and task.key not in there for task in tasks)
    return {"members": len(tasks), "present": present, "begun": started, "missing": len(tasks) - present - started}


def collect_command(
    arguments: Sequence[str], preset: str, seed: str | None, store: str, out: str, force: bool, as_json: bool
) -> Code:
    """The stored members of a sweep as one NetCDF file with a member dimension."""
    foresee(arguments, False, None, preset, sweep=True)
    numerics()
    from deeplinear.core import netcdf_bytes
    from deeplinear.experiments import CorruptRecord, Store, collect, grid, task_of

    one, settings = _swept(arguments, seed)
    specs = _usage(grid, _preset(one, preset), settings, one.id)
    target = to_write(out, "--out", ".nc")
    written = Written("experiment collect", [target], force=force)
    try:
        dataset, missing = collect([task_of(one.id, spec) for spec in specs], Store(store), tuple(settings))
    except (CorruptRecord, ValueError) as error:
        raise UsageError(str(error)) from None

    def write(to: Path) -> list[Path]:
        (to / target.name).write_bytes(netcdf_bytes(dataset))
        return [to / target.name]

    written.write(write)
    members = dataset.sizes["member"]
    if as_json:
        payload = {"ok": True, "command": "experiment collect", "file": out, "members": members, "missing": missing}
        print_json(payload)
    else:
        print_table([("written", out), ("members", str(members)), ("not stored yet", str(missing))])
    return Code.fine


def _swept(arguments: Sequence[str], seed: str | None) -> tuple[Any, dict[str, str]]:
    names, settings = split(arguments)
    (one,) = chosen(names, False, None)
    return one, _seeded(one, settings, seed, strict=True)


def _seeded(one: Any, settings: dict[str, str], seed: str | None, *, strict: bool) -> dict[str, str]:
    """Settings with the seed of the flag, which only experiments with randomness have."""
    if seed is None:
        return settings
    number = read_value(SEED, seed, "--seed")
    if not one.has_seed:
        if strict:
            raise UsageError(f"--seed: nothing in {one.id} is random, so it takes no seed.")
        return settings
    if "seed" in settings:
        raise UsageError("the seed is given twice, as --seed and as seed=.")
    return {**settings, "seed": str(number)}


def _preset(one: Any, name: str) -> Any:
    try:
        return one.preset(name)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _known_preset(selected: Sequence[Any], name: str) -> None:
    """Refuse a preset that none of the experiments has."""
    known = list(dict.fromkeys(preset for one in selected for preset in one.presets))
    if name not in known:
        raise UsageError(f"--preset: there is no preset '{name}'. {near_name(name, known)}")


def _usage(function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None


def _run(
    command: str,
    tasks: Sequence[Any],
    store: str,
    executor: str,
    workers: str | None,
    address: str | None,
    again: bool,
    as_json: bool,
    *,
    strict: bool,
) -> Code:
    """Run tasks with a bar and say what came of them; claims that fail give exit 1 where `strict`."""
    from deeplinear.experiments import FORMATS, Store, run
    from deeplinear.report import sweep_bar

    kind, helpers = executor_of(executor, workers, address)
    place = folder(store, "--store")
    settled = _Settled(len(tasks) <= LISTED)
    stopped, broken = False, ""
    formats = FORMATS if strict else ("svg",) if len(tasks) <= DRAWN else ()
    interrupts_raise()
    with output_kept_pure(), sweep_bar(command.split()[-1]) as bar:
        try:
            run(
                tasks,
                Store(place),
                executor=kind,
                workers=helpers,
                address=address,
                again=again,
                formats=formats,
                progress=watched(bar),
                report=settled.add,
            )
        except KeyboardInterrupt:
            stopped = True
        except (ImportError, ConnectionError) as error:
            if not settled.amounts["completed"]:
                raise UsageError(one_line(error)) from None
            broken = one_line(error)
        except OSError as error:
            broken = f"the store cannot be written: {error}"
    order = {key: position for position, key in enumerate(t.key for t in tasks)} if settled.kept else {}
    settled.kept.sort(key=lambda member: order[member.task.key])
    failed, wrong = settled.amounts["failed"], settled.claims[False]
    code = Code.numerical if failed or broken else Code.check_failed if wrong and strict else Code.fine
    code = interrupted() if stopped else code
    if as_json:
        payload = {
            "ok": code is Code.fine,
            "command": command,
            "exit_code": int(code),
            "store": str(place),
            "asked": len(tasks),
            "amounts": settled.amounts,
            "members": [_plain(member) for member in settled.kept],
        }
        print_json(payload)
    else:
        _print_members(settled, detailed=len(tasks) <= SWEPT or strict)
    if not formats:
        say(f"dln: no pictures were drawn, as the sweep has more than {DRAWN} members.")
    told = [member for member in settled.kept if member.reason]
    for member in told[:REASONS]:
        say(f"dln: {member.task.id} {member.task.key}: {member.reason}")
    if len(told) > REASONS:
        say(f"dln: and {len(told) - REASONS} more; --json tells them.")
    done = settled.amounts["completed"] + settled.amounts["stored"]
    kept = f"{done} of {len(tasks)} are stored{_begun(tasks, Store(place))}, and the same command goes on from there."
    if stopped:
        say(f"dln: interrupted; {kept}")
    if broken:
        say(f"dln: {broken.rstrip('.')}; {kept}")
    return code


def _begun(tasks: Sequence[Any], store: Any) -> str:
    """Words for what is kept of runs that are not complete, if anything is."""
    begun = store.begun()
    kept = any(any(store.scratch(task.key).glob("[!.]*")) for task in tasks if task.key in begun)
    return ", what was begun is kept" if kept else ""


class _Settled:
    """What came of the members: counted, and told one by one where they are few or have failed."""

    def __init__(self, everyone: bool) -> None:
        self.everyone = everyone
        self.kept: list[Any] = []
        self.amounts = {"completed": 0, "stored": 0, "failed": 0}
        self.claims: dict[bool | None, int] = {True: 0, False: 0, None: 0}

    def add(self, member: Any) -> None:
        """Count a member; of a stored one that was not read the claims are not known."""
        self.amounts[member.status] += 1
        if member.record is not None and member.record.loaded is not None:
            for claim in member.record.claims:
                self.claims[claim.holds] += 1
        if self.everyone or (member.reason and len(self.kept) < LISTED):
            self.kept.append(member)


def _print_members(settled: _Settled, *, detailed: bool) -> None:
    for member in settled.kept if detailed else ():
        if member.record is None:
            continue
        record = member.record
        seconds = f"{record.content['timing']['seconds']:.1f} s" + (" (stored)" if member.status == "stored" else "")
        print_table(
            [(VERDICTS[c.holds], c.statement, _number(c.measured), c.expected) for c in record.claims],
            title=f"{record.id}  {seconds}  {record.path}",
            header=("verdict", "claim", "measured", "expected"),
        )
        for claim in record.claims:  # where there is no verdict, the words are what there is to say
            if claim.holds is None and claim.note and not claim.unjudged:
                print_table([("", f"{claim.statement}: {claim.note}")])
        unjudged = sum(claim.unjudged for claim in record.claims)
        if unjudged:
            text = f"{unjudged} of {len(record.claims)} claims have no verdict: their bounds were set for the presets, "
            print_table([("", text + "and these settings differ from all of them")])
    amounts, claims = settled.amounts, settled.claims
    text = (
        f"{amounts['completed']} run, {amounts['stored']} taken from the store, {amounts['failed']} failed; "
        f"claims: {claims[True]} hold, {claims[False]} fail, {claims[None]} not told"
    )
    print_table([("", text)])


def _plain(member: Any) -> dict[str, Any]:
    record = member.record
    head = {
        "id": member.task.id,
        "key": member.task.key,
        "status": member.status,
        "reason": member.reason,
        "spec": dict(member.task.spec),
    }
    if record is None:
        return head
    return head | {
        "folder": str(record.path),
        "claims": record.content["claims"],
        "timing": record.content["timing"],
        "files": sorted(record.content["files"]),
    }


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else "–"


def _text(value: Any) -> str:
    """A setting as it may be written, with spaces where a long list may be folded."""
    text = written(value)
    return text.replace(",", ", ").replace(";", "; ") if isinstance(value, list) else text
