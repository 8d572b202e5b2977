"""`dln check`: theorems that can be run."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

from deeplinear.cli._catalogue import describe_check, known, listed, recognised
from deeplinear.cli._interrupt import interrupts_raise, watched
from deeplinear.cli._limits import INSTANCES, check_memory
from deeplinear.cli._options import SEED, SIMULATE, WIDTHS, count, read_kind, read_value, resolve
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
)

COPIES = 15
"""States of the size of an instance's network that its flow keeps."""

SYMBOLS = {"holds": "✓ holds", "erratum": "✎ erratum", "fails": "✗ FAILS", "unmet": "– not met"}
"""How a status is shown: a sign and a word."""


def chosen(names: Sequence[str], everything: bool, paper: str | None) -> list[Any]:
    """The checks that are meant."""
    recognised("check", names, everything, paper)
    from deeplinear.theory import check, checks

    return choose("check", names, everything, paper, check, checks)


def list_command(paper: str | None, as_json: bool) -> Code:
    """What checks there are."""
    found = listed("checks", paper)
    if not found:
        chosen([], False, paper)
    if as_json:
        print_json({"ok": True, "command": "check list", "checks": found})
    else:
        rows = [
            (one["id"], one["source"], ("✎ " if one["printed_statement"] else "") + one["statement"]) for one in found
        ]
        print_table(rows, header=("id", "source", "statement (✎: the printed form is wrong)"))
        print_table([("", f"{len(found)} checks; dln check show ID, dln check run ID")])
    return Code.fine


def show_command(name: str, as_json: bool) -> Code:
    """One check in full."""
    one = known("checks", name) or describe_check(chosen([name], False, None)[0])
    if as_json:
        print_json({"ok": True, "command": "check show", "check": one})
        return Code.fine
    rows = [("id", one["id"]), ("source", one["source"]), ("statement", one["statement"])]
    rows += [("printed form", one["printed_statement"])] if one["printed_statement"] else []
    rows += [("hypothesis", f"{h['name']} (residual at most {h['tolerance']:g})") for h in one["hypotheses"]]
    rows += [("claim", f"{c['name']} (at most {c['tolerance']:g})") for c in one["claim"]]
    rows += [("violation", violation) for violation in one["violations"]]
    rows += [("any widths", "yes: --widths" if one["takes_widths"] else "no: its instances have widths of their own")]
    own = "yes: dln check examine tries it" if one["takes_own_problems"] else "no: it draws its own instances"
    print_table([*rows, ("own problems", own)])
    return Code.fine


def run_command(
    names: Sequence[str],
    everything: bool,
    paper: str | None,
    instances: str | None,
    seed: str | None,
    widths: str | None,
    store: str,
    executor: str,
    workers: str | None,
    address: str | None,
    resume: bool,
    as_json: bool,
) -> Code:
    """Run checks on random instances and planted violations; exit 1 if one fails."""
    from deeplinear.cli._experiment import executor_of

    number = SEED.default if seed is None else read_value(SEED, seed, "--seed")
    amount = 50 if instances is None else read_kind(count(at_most=INSTANCES), instances, "--instances")
    sizes = None if widths is None else read_kind(WIDTHS.kind, widths, "--widths")
    weights = sum(math.prod(pair) for pair in itertools.pairwise(sizes or ()))
    check_memory(COPIES * amount * weights, "smaller --widths, or fewer --instances")
    kind, helpers = executor_of(executor, workers, address)
    recognised("check", names, everything, paper)
    numerics()
    selected = chosen(names, everything, paper)
    if sizes is not None:
        selected = _sized(selected, names)
    place = folder(store, "--store")
    from deeplinear.experiments import CheckTask, Record, Store, Tick, run_checks
    from deeplinear.report import sweep_bar

    tasks = [CheckTask(one.id, amount, number, sizes) for one in selected]
    done: list[dict[str, Any]] = []
    errors: list[tuple[str, str]] = []
    interrupts_raise()
    stopped = False
    with output_kept_pure(), sweep_bar("checks") as bar:

        def tick(text: str) -> None:
            watched(bar)(Tick(len(done) + len(errors), len(tasks), 0.0, float("nan"), text))

        outcomes = run_checks(
            tasks,
            Store(place),
            executor=kind,
            workers=helpers,
            address=address,
            resume=resume,
            begin=lambda task: tick(task.id),
        )
        try:
            for task, record in outcomes:
                if isinstance(record, Record):
                    done.append(dict(record.content))
                else:
                    errors.append((task.id, f"{type(record).__name__}: {record}"))
                tick(task.id)
        except KeyboardInterrupt:
            stopped = True
        except (ImportError, ConnectionError) as error:
            raise UsageError(one_line(error)) from None
        except OSError as error:
            errors.append((store, f"the store cannot be written: {error}"))
    order = {task.id: position for position, task in enumerate(tasks)}
    done.sort(key=lambda content: order[content["id"]])
    failing = [content["id"] for content in done if content["status"] == "fails"]
    code = Code.numerical if errors else Code.check_failed if failing else Code.fine
    code = interrupted() if stopped else code
    if as_json:
        print_json(
            {
                "ok": code is Code.fine,
                "command": "check run",
                "exit_code": int(code),
                "store": str(place),
                "checks": done,
                "errors": [{"id": name, "error": text} for name, text in errors],
            }
        )
    else:
        _print_outcomes(done)
    for name, text in errors:
        say(f"dln: {name} could not be run: {text}")
    if stopped:
        say(f"dln: interrupted; {len(done)} of {len(tasks)} checks were run and stored.")
    return code


def _sized(selected: list[Any], names: Sequence[str]) -> list[Any]:
    """Those whose networks may have any widths; a check that was named must be one of them."""
    fixed = [one.id for one in selected if one.sized is None]
    if names and fixed:
        raise UsageError(
            f"--widths: {', '.join(fixed)} must be run without it, as its instances have widths of their own."
        )
    if fixed:
        say(f"dln: {len(fixed)} of {len(selected)} checks have instances of their own widths and are left out.")
    return [one for one in selected if one.sized is not None]


def examine_command(flags: dict[str, Any], config: str | None, as_json: bool) -> Code:
    """Which theorems apply to a given problem and start, and what they say of it."""
    settings = resolve(SIMULATE, flags, config)
    if settings["horizon"] is None and settings["until-loss"] is None:
        settings = resolve(SIMULATE, {**flags, "horizon": "1"}, config)  # Each statement brings its own end.
    numerics()
    from deeplinear.cli._build import build
    from deeplinear.theory import STATUS, checks, examine

    run = build(settings)
    with output_kept_pure():
        verdicts = examine(run.problem, run.starts[0], checks())
    code = Code.check_failed if any(v.status is STATUS.fails for v in verdicts) else Code.fine
    if as_json:
        print_json(
            {
                "ok": code is Code.fine,
                "command": "check examine",
                "exit_code": int(code),
                "verdicts": [verdict.to_json() for verdict in verdicts],
            }
        )
        return code
    applying = [v for v in verdicts if v.status is not STATUS.unmet]
    rest = [v for v in verdicts if v.status is STATUS.unmet]
    if applying:
        print_table(
            [(SYMBOLS[v.status.name], v.check, v.message, _facts(v.facts)) for v in applying],
            title="Statements that apply",
            header=("verdict", "check", "claim", "measured"),
        )
    if rest:
        print_table(
            [(v.check, v.message) for v in rest],
            title="Statements that do not apply",
            header=("check", "hypothesis not met"),
        )
    return code


def _print_outcomes(done: list[dict[str, Any]]) -> None:
    rows = []
    for content in done:
        caught = sum(v["caught"] for v in content["violations"])
        closest = content["message"] if content["status"] != "holds" else _closest(content["claim"])
        rows.append(
            (
                SYMBOLS[content["status"]],
                content["id"],
                content["source"],
                str(content["instances"]),
                f"{caught}/{len(content['violations'])}",
                closest,
                f"{content['seconds']:.1f}",
            )
        )
    if rows:
        header = ("verdict", "check", "source", "instances", "violations caught", "closest", "s")
        print_table(rows, header=header)
        amounts = {status: sum(c["status"] == status for c in done) for status in ("holds", "erratum", "fails")}
        text = f"{amounts['holds']} hold, {amounts['erratum']} errata shown as such, {amounts['fails']} fail"
        print_table([("", text)])


def _closest(claim: list[dict[str, Any]]) -> str:
    parts = [f"{r['name']}: {_number(r['residual'])} ≤ {r['tolerance']:.3g}" for r in claim]
    return "; ".join(parts)


def _number(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _facts(facts: Any) -> str:
    return "; ".join(f"{name} = {float(value):.6g}" for name, value in facts.items())
