"""`dln demo`: a tour through every theory there is, with a report at its end."""

from typing import Any

from deeplinear.cli._interrupt import interrupts_raise, watched
from deeplinear.cli._options import SEED, read_value
from deeplinear.cli._shell import Code, folder, interrupted, numerics, output_kept_pure, print_json, print_table, say
from deeplinear.cli._written import Written

EXPERIMENTS = (
    "tour/plateaus",
    "completion/fig1",
    "completion/fig2",
    "exact/fig2",
    "network/plateaus",
    "geometry/fig4.1a",
    "rnn/ambiguity",
)
"""Experiments of the tour, in their quick size."""

CHECKS = (
    "completion/theorem-3.3",
    "exact/theorem-4.3",
    "network/proposition-18",
    "geometry/theorem-3.4.2",
    "rnn/theorem-8",
)
"""Checks of the tour."""

INSTANCES = 10
"""Random instances of each check of the tour."""

MOST = 12
"""Items a tour may have."""


def demo_command(out: str, seed: str | None, force: bool, as_json: bool) -> Code:
    """Run the tour, build its report and say where it is; gives the exit code."""
    number = SEED.default if seed is None else read_value(SEED, seed, "--seed")
    numerics()
    place = folder(out)
    written = Written("report", [place / "report.html"], force=force)
    from deeplinear.experiments import (
        CheckTask,
        Record,
        Store,
        Tick,
        experiment,
        override,
        run,
        run_checks,
        task_of,
    )
    from deeplinear.report import build_report, sweep_bar

    store = Store(place)
    tasks = []
    for name in EXPERIMENTS:
        one = experiment(name)
        tasks.append(task_of(name, override(one.preset("quick"), {"seed": str(number)} if one.has_seed else {}, name)))
    members, outcomes = [], []
    errors: list[tuple[str, str]] = []
    items = len(tasks) + len(CHECKS)
    interrupts_raise()
    try:
        with output_kept_pure(), sweep_bar("tour") as bar:
            run(
                tasks,
                store,
                progress=lambda t: watched(bar)(Tick(t.done, items, 0.0, float("nan"), t.text, t.fraction)),
                report=members.append,
            )
            for task, record in run_checks(
                [CheckTask(name, INSTANCES, number) for name in CHECKS],
                store,
                begin=lambda t: watched(bar)(Tick(len(tasks) + len(outcomes), items, 0.0, float("nan"), t.id)),
            ):
                if isinstance(record, Record):
                    outcomes.append(record)
                else:
                    errors.append((task.id, f"{type(record).__name__}: {record}"))
    except OSError as error:
        say(f"dln: the store cannot be written: {error}")
        return Code.numerical
    except KeyboardInterrupt:
        say(f"dln: interrupted; {len(members) + len(outcomes)} of {items} are stored, and dln demo goes on from there.")
        return interrupted()
    errors += [(m.task.id, m.reason) for m in members if m.status == "failed"]
    records = [m.record for m in members if m.record is not None]
    wrong = [r.id for r in records if any(c.holds is False for c in r.claims)]
    wrong += [r.id for r in outcomes if r.content["status"] == "fails"]
    (page,) = written.write(lambda to: [build_report(store, to / "report.html", title="deeplinear: a tour")])
    code = Code.numerical if errors else Code.check_failed if wrong else Code.fine
    if as_json:
        print_json(
            {
                "ok": code is Code.fine,
                "command": "demo",
                "exit_code": int(code),
                "report": str(page),
                "store": str(place),
                "experiments": [{"id": r.id, "folder": str(r.path), "claims": r.content["claims"]} for r in records],
                "checks": [{"id": r.id, "status": r.content["status"]} for r in outcomes],
                "errors": [{"id": name, "error": text} for name, text in errors],
            }
        )
    else:
        print_table(
            [*(_experiment_row(r) for r in records), *(_check_row(r) for r in outcomes)],
            title="A tour through deep linear networks",
            header=("item", "what it shows", "verdict"),
        )
        print_table([("report", str(page)), ("open it", page.resolve().as_uri())])
    for name, text in errors:
        say(f"dln: {name} could not be run: {text}")
    return code


def _experiment_row(record: Any) -> tuple[str, str, str]:
    held = [claim.holds for claim in record.claims]
    sign = "✗" if False in held else "✓"
    return record.id, record.content["shows"], f"{sign} {held.count(True)} of {len(held)} claims hold"


def _check_row(record: Any) -> tuple[str, str, str]:
    words = {"holds": "✓ holds", "erratum": "✎ erratum, shown as such", "fails": "✗ FAILS"}
    return record.id, record.content["statement"], words[record.content["status"]]
