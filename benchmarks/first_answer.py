"""Processor time of first answers: fresh processes, no compiled programs kept, SciPy on the same task beside each.

Every program runs in a process of its own with empty caches (`first_programs.py` has those in Python), so that
imports, tracing and compilation count. Processor time is that of the process and all it starts, user and system; the
busier the machine, the larger it is, so that a task and its peer take turns. Parts of a program are measured by
itself. *Again* is a second process that finds the programs the first one kept. Commands are run without figures.

The peer solves the same kind of task with NumPy and SciPy, written as one would for this one question: LSODA or DOP853
at a relative tolerance of 1e-8 where a flow is asked for, shooting for the geodesic, differences for the Hessian,
L-BFGS-B for the table. It checks no hypotheses and gives no certificates.

    python benchmarks/first_answer.py                  # all but the test suite into benchmarks/results/
    python benchmarks/first_answer.py --only lab       # tasks whose names contain this; the others stay as stored
    python benchmarks/first_answer.py --suite          # the test suite too
    python benchmarks/first_answer.py --tree DIR --before   # another checkout, stored as the state to compare with
    python benchmarks/first_answer.py --show           # the stored numbers
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)  # as in the processes that are measured
from common import describe, load, machine, results_path, save, table
from first_programs import OURS, PEERS

ROOT = Path(__file__).parent.parent
DLN = ("-m", "deeplinear.cli")
SIZES = 200
"""Sizes that the lab is asked for."""


class Task(NamedTuple):
    """A row of the table.

    Attributes:
        name: What is asked.
        target: Seconds of processor time, or megabytes, to reach.
        program: Arguments of Python, or the name of a program in Python; `{name}` is a file made beforehand.
        peer: Name of the peer's program; empty without a peer.
        arguments: Of the program and of the peer, where it is not a command.
        part: Which part of the program counts; the whole process if empty.
        unit: Of the numbers.
    """

    name: str
    target: float
    program: str | tuple[str, ...]
    peer: str = ""
    arguments: tuple[str, ...] = ()
    part: str = ""
    unit: str = "s"


EXACT = (*DLN, "exact", "--widths", "4,2,2", "--horizon", "5", "--init", "lambda-balanced", "--no-plot", "--out", "out")
SIMULATE = (*DLN, "simulate", "--widths", "4,3,3,3", "--horizon", "60", "--no-plot", "--out", "out")
GEODESIC = (*DLN, "geodesic", "{a}", "{b}", "--depth", "2", "--no-plot", "--out", "out")
LANDSCAPE = (*DLN, "landscape", "{run}", "--no-plot", "--out", "out")
CHECK = (*DLN, "check", "run", "exact/theorem-4.3", "--instances", "10", "--store", "out")
TASKS = (
    Task("Python: import to the end of the first flow", 1.2, "flow", "flow"),
    Task("Python: first flow, after the import", 0.05, "flow", "flow", part="first"),
    Task("Python: second flow, of a new shape", 0.05, "flow", "flow", part="second"),
    Task("Python: closed form and its trajectory at a new shape", 0.05, "exact", "exact", part="second"),
    Task("dln exact", 1.5, EXACT, "dln exact"),
    Task("dln geodesic", 1.5, GEODESIC, "dln geodesic", ("{a}", "{b}")),
    Task("dln simulate", 1.5, SIMULATE, "dln simulate"),
    Task("dln landscape of a stored run", 2.0, LANDSCAPE, "dln landscape", ("{run}",)),
    Task("dln check run exact/theorem-4.3 --instances 10", 2.0, CHECK, "dln check"),
    Task("the README's data example", 3.0, "completion", "completion"),
    Task("lab: closed form at a new size", 0.2, "lab", "lab", ("{sizes}",), part="second"),
    Task("lab: closed form, mean over many sizes", 0.2, "lab", "", ("{sizes}",), part="several"),
    Task("lab: growth of memory over many sizes", 20.0, "lab", "", ("{sizes}",), part="megabytes", unit="MB"),
    Task("lab: first picture of a small simulation", 0.5, "picture", "picture", part="first"),
)
SUITE = Task("full test suite", 600.0, ("-m", "pytest", "-q", str(ROOT / "tests")))
BARE = ("version", "--version"), ("help", "--help"), ("list", "check", "list")
"""Commands that compute nothing; their times are stored beside the others."""


class Child(NamedTuple):
    """What a process took: processor seconds, seconds on the clock, and the numbers of its last line."""

    processor: float
    clock: float
    parts: dict[str, float]


def child(arguments: Sequence[str], tree: Path, caches: Path, folder: Path) -> Child:
    """Run Python with arguments in a folder, with the package of a tree and caches of its own."""
    before, own = os.times(), {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "DEEPLINEAR_"))}
    own |= {"PYTHONPATH": str(tree / "src"), "XDG_CACHE_HOME": str(caches), "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, *arguments], cwd=folder, env=own, capture_output=True, text=True, check=False)
    after = os.times()
    if run.returncode:
        raise RuntimeError(f"{arguments[:6]} ended with {run.returncode}: {run.stderr[-2000:]}")
    *_, last = run.stdout.strip().splitlines() or [""]
    parts = json.loads(last) if last.startswith("{") and last.endswith("}") and len(last) > 2 else {}
    used = after.children_user - before.children_user + after.children_system - before.children_system
    return Child(used, after.elapsed - before.elapsed, parts)


def numbers_of(values: Sequence[float]) -> dict[str, Any]:
    """Median, spread and count."""
    return {"value": statistics.median(values), "spread": max(values) - min(values), "repeats": len(values)}


class Bench:
    """Files, a tree, and what was measured of each program."""

    def __init__(self, tree: Path, sizes: int, repeats: int, folder: Path) -> None:
        """Make the files that programs read."""
        self.tree, self.repeats, self.folder = tree, repeats, folder
        self.files = {"a": str(folder / "a.csv"), "b": str(folder / "b.csv"), "run": str(folder / "given" / "run.nc")}
        self.files["sizes"] = str(sizes)
        self.seen: dict[tuple[str, ...], list[Child]] = {}
        self.again: dict[tuple[str, ...], Child] = {}
        Path(self.files["a"]).write_text("2.0,0.3\n0.1,1.0\n")
        Path(self.files["b"]).write_text("1.0,0.2\n-0.3,3.0\n")
        probes = ("--probes", "loss,product,gradient_norm")
        child((*SIMULATE[:-1], "given", *probes), tree, folder / "given-cache", folder)

    def run(self, arguments: tuple[str, ...], repeats: int, *, twice: bool) -> list[Child]:
        """Runs of a program with empty caches, measured once however many tasks read it; `twice` with kept ones too."""
        if arguments not in self.seen:
            found = []
            for _ in range(repeats):
                with tempfile.TemporaryDirectory() as caches:
                    found.append(child(arguments, self.tree, Path(caches), self.folder))
                    if twice and arguments not in self.again:
                        self.again[arguments] = child(arguments, self.tree, Path(caches), self.folder)
            self.seen[arguments] = found
        return self.seen[arguments]

    def measure(self, task: Task) -> dict[str, Any]:
        """One task and its peer."""
        more = [one.format(**self.files) for one in task.arguments]
        command = not isinstance(task.program, str)
        ours = task.program if command else ("-c", OURS[task.program], *more)
        ours = tuple(one.format(**self.files) for one in ours) if command else ours
        repeats = 1 if task in (SUITE,) or task.program == "lab" else self.repeats

        def told(runs: list[Child]) -> dict[str, Any]:
            return numbers_of([run.parts[task.part] if task.part else run.processor for run in runs])

        runs = self.run(ours, repeats, twice=command and task is not SUITE)
        row = {"task": task.name, "target": task.target, "unit": task.unit, "ours": told(runs)}
        if not task.part:
            row["clock"] = statistics.median(run.clock for run in runs)
        if ours in self.again:
            row["again"] = self.again[ours].processor
        if task.peer:
            row["peer"] = told(self.run(("-c", PEERS[task.peer], *more), repeats, twice=False))
        if task.program == "lab":
            row["sizes"] = int(self.files["sizes"])
        return row


def measure_all(tasks: Sequence[Task], bench: Bench, stored: dict[str, Any], keep: Callable[[], None]) -> None:
    """Measure tasks into what is stored, by name."""
    stored["machine"] = machine()
    for task in tasks:
        row = bench.measure(task)
        print(row, flush=True)
        stored["tasks"][task.name] = row
        keep()
    stored["bare"] = {name: bench.run((*DLN, *words), bench.repeats, twice=False)[0].processor for name, *words in BARE}
    keep()


ABOUT = """Processor seconds, user and system, of a fresh process with empty caches and all that it starts; "after the
import", "second" and the rows of the lab are parts of a process. *Before* is the state that the targets were set
against. *Again* is a second process that finds the programs the first one kept. SciPy answers the same question with
NumPy, LSODA or DOP853, without hypotheses or certificates. ± is half of the spread over the processes."""


def answers(data: dict[str, Any]) -> list[str]:
    """The stored numbers as paragraphs: machines, a table, targets that are met."""
    rows, before = data["now"]["tasks"], data.get("before", {}).get("tasks", {})
    machines = [f"{name.capitalize()}: {describe(stored['machine'])}." for name, stored in sorted(data.items())]
    met = sum(row["ours"]["value"] <= row["target"] for row in rows.values())
    body = []
    for name, row in rows.items():
        cells = [number(found) for found in (before.get(name, {}).get("ours"), row["ours"])]
        again = None if "again" not in row else f"{row['again']:.3g}"
        unit = "" if row["unit"] == "s" else f", {row['unit']}"
        many = f" ({row['sizes']})" if "many sizes" in name else ""
        body.append([f"{name}{many}{unit}", *cells, again, number(row.get("peer")), f"≤ {row['target']:g}"])
    head = ["task", "before", "now", "again", "SciPy", "target"]
    return [ABOUT, " ".join(machines), table(head, body), f"Targets met: {met} of {len(rows)}."]


def number(found: dict[str, Any] | None) -> str | None:
    """A measured number with half of its spread."""
    if found is None:
        return None
    half = 0.5 * found["spread"]
    return f"{found['value']:.3g}" + (f" ± {half:.2g}" if half else "")


def main() -> None:
    """Measure or show."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="tasks whose names contain this")
    parser.add_argument("--suite", action="store_true", help="the test suite too")
    parser.add_argument("--before", action="store_true", help="store as the state to compare with")
    parser.add_argument("--tree", type=Path, default=ROOT, metavar="DIR", help="checkout whose package is measured")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="processes of each program")
    parser.add_argument("--sizes", type=int, default=SIZES, metavar="N", help="sizes that the lab is asked for")
    parser.add_argument("--show", action="store_true", help="the stored numbers")
    arguments = parser.parse_args()
    path = results_path("first_answer")
    data = load(path) or {}
    if not arguments.show:
        stored = data.setdefault("before" if arguments.before else "now", {"tasks": {}})
        tasks = [task for task in (*TASKS, *((SUITE,) if arguments.suite else ())) if arguments.only in task.name]
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(arguments.tree.resolve(), arguments.sizes, arguments.repeats, Path(folder))
            measure_all(tasks, bench, stored, lambda: save(path, data))
    if "now" in data:
        print("\n\n".join(answers(data)))


if __name__ == "__main__":
    main()
