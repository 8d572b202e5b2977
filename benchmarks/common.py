"""What the benchmarks share: the machine in words, timing, stored results, tables.

Run the benchmarks as scripts from the repository root, `python benchmarks/NAME.py`. Numbers go into
`benchmarks/results/NAME-DEVICE.json` and tables are printed from there, so that no number is ever typed by hand.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

RESULTS = Path(__file__).parent / "results"
"""Where results are stored."""
PACKAGES = (
    *("jax", "jaxlib", "diffrax", "equinox", "nfoursid", "numpy", "scikit-sundae", "scipy", "torch", "torchdiffeq"),
    "torchode",
)
"""Packages whose versions are told, where they are installed."""


class Timing(NamedTuple):
    """Seconds of the timed calls, and of the first call, which compiles and then runs."""

    seconds: tuple[float, ...]
    first: float | None

    @property
    def median(self) -> float:
        """Median of the timed calls."""
        return float(np.median(self.seconds))

    @property
    def compile(self) -> float | None:
        """What the first call took longer than a warm one."""
        return None if self.first is None else max(0.0, self.first - self.median)

    def to_json(self) -> dict[str, Any]:
        """Median, spread (largest less smallest), number of repeats and compile time."""
        spread = max(self.seconds) - min(self.seconds)
        return {"seconds": self.median, "spread": spread, "repeats": len(self.seconds), "compile": self.compile}


def timed(
    function: Callable[[], Any], repeats: int = 3, *, warm: bool = True, long: float = 20.0
) -> tuple[Any, Timing]:
    """Time a call, each time until its arrays are ready.

    Args:
        function: What to time; takes nothing.
        repeats: Number of timed calls.
        warm: Whether to make a first call that compiles; it is told apart from the others. Pass `False` for what is
            compiled already or never compiles.
        long: If a timed call takes longer than so many seconds, it is the only one.

    Returns:
        What the last call returned, and the timing.
    """

    def once() -> tuple[Any, float]:
        begin = time.perf_counter()
        value = jax.block_until_ready(function())
        return value, time.perf_counter() - begin

    first = once()[1] if warm else None
    seconds: list[float] = []
    while True:
        value, last = once()
        seconds.append(last)
        if len(seconds) >= repeats or last > long:
            return value, Timing(tuple(seconds), first)


def device_name() -> str:
    """The device JAX computes on, fit for a file name: `cpu`, `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", jax.devices()[0].device_kind.lower()).strip("-")


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"model name\s*:\s*(.+)", text)
    return found.group(1).strip() if found else platform.machine()


def machine() -> dict[str, Any]:
    """The machine and the versions as plain values; of cores those that may be used and the mean of busy ones."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "device": device_name(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": versions,
        "precision": 8 * jax.numpy.zeros(()).dtype.itemsize,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def describe(machine: dict[str, Any]) -> str:
    """A line of text from what `machine` returned."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['date']}; device {machine['device']}; {machine['processor']}, {machine['cores']} cores, load "
        f"{machine['load']:.1f} at the start; Python {machine['python']}, {versions}; {machine['precision']} bit"
    )


def results_path(name: str) -> Path:
    """File of the results of a benchmark on this device."""
    return RESULTS / f"{name}-{device_name()}.json"


def save(path: Path, data: Any) -> None:
    """Write results, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(data, indent=1) + "\n")
    os.replace(part, path)


def load(path: Path) -> Any:
    """Read what `save` wrote; `None` if there is no such file."""
    return json.loads(path.read_text()) if path.exists() else None


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows as a Markdown table; numbers with three digits, `None` as a dash."""

    def cell(value: Any) -> str:
        if value is None:
            return "–"
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    texts = [[cell(value) for value in row] for row in (head, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(head))]
    lines = ["| " + " | ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)) + " |" for row in texts]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def row(
    contestant: str,
    timing: Timing | None,
    *,
    scaled: float = 1.0,
    evaluations: float | None = None,
    error: float | None = None,
    note: str = "",
    at_least: bool = False,
    estimated: bool = False,
    kind: str = "",
) -> dict[str, Any]:
    """One contestant of a case, as it is stored.

    Args:
        contestant: Who.
        timing: Of what it ran; `None` if it cannot run this case, for the reason in `note`.
        scaled: By what the seconds are multiplied, where only a part was run.
        evaluations: Gradients, where they are counted; a Hessian product counts as two.
        error: What it ended with, in the measure that the case names.
        note: Method, tolerance, what was left out.
        at_least: Whether it was stopped before its end, so that seconds and evaluations are lower bounds.
        estimated: Whether the evaluations are scaled too.
        kind: `"explicit"`, `"implicit"` or `"descent"`, where that matters to the comparison of gradients.
    """
    times: dict[str, Any] = {"seconds": None} if timing is None else timing.to_json()
    if timing is not None and scaled != 1.0:
        times |= {"seconds": scaled * timing.median, "spread": scaled * times["spread"], "scaled": scaled}
    found = {"contestant": contestant, **times, "evaluations": evaluations, "error": error, "note": note}
    more = {"at_least": at_least, "estimated": estimated, "kind": kind}
    return found | {key: value for key, value in more.items() if value}


def case(
    name: str,
    about: str,
    measure: str,
    rows: Sequence[dict[str, Any]],
    *,
    within: float | None = None,
    stiff: bool = False,
    why: str = "",
) -> dict[str, Any]:
    """A case with its contestants, ours first.

    Args:
        name: Of the case.
        about: What is computed.
        measure: What `error` is.
        rows: Contestants, by `row`.
        within: What `error` may be at the most; who ends above it is shown and not counted as a peer.
        stiff: Whether stability binds at the end, so that the aim on the number of gradients applies.
        why: The reason for an aim that is missed, if it is missed; words, no numbers.
    """
    more = {key: value for key, value in (("within", within), ("stiff", stiff), ("why", why)) if value}
    return {"name": name, "about": about, "measure": measure, "machine": machine(), **more, "rows": list(rows)}


def case_table(case: dict[str, Any]) -> str:
    """A case as text and a table, times as ratios to the first contestant."""
    ours = case["rows"][0]

    def ratio(value: float | None, of: float | None) -> float | None:
        return None if value is None or not of else value / of

    body = []
    for entry in case["rows"]:
        mark = "> " if "at_least" in entry else "~" if "scaled" in entry else ""
        against = ratio(entry["seconds"], ours["seconds"])
        count = entry["evaluations"]
        cells = [entry["contestant"], None if entry["seconds"] is None else f"{mark}{entry['seconds']:.3g}"]
        cells += [entry.get("spread"), entry.get("compile"), None if against is None else f"{mark}{against:.3g}"]
        more = ratio(count, ours["evaluations"])
        mark = "> " if "at_least" in entry else "~" if "estimated" in entry else ""
        cells += [None if count is None else f"{mark}{count:,.0f}", None if more is None else f"{mark}{more:.3g}"]
        body.append([*cells, entry["error"], entry["note"]])
    head = ["contestant", "seconds", "spread", "compile", "/ ours", "gradients", "/ ours", "error", "note"]
    marks = [("scaled", "~ scaled from a part."), ("at_least", "> stopped before its end: at least so much.")]
    below = " ".join(text for key, text in marks if any(key in entry for entry in case["rows"]))
    title = f"{case['name']}. {case['about']} Error: {case['measure']}"
    return "\n\n".join([title, table(head, body), *([below] if below else [])])


def print_cases(data: dict[str, Any]) -> None:
    """Print stored cases, `{"title": ..., "cases": [case, ...]}`: the `show` of most benchmarks."""
    if "title" not in data:
        print("What is stored was measured by an earlier form of this script; measure anew.")
        return
    print(data["title"], "\n")
    for one in data["cases"]:
        print(describe(one["machine"]), "\n")
        print(case_table(one), "\n", flush=True)


def command(
    name: str,
    about: str | None,
    quick: str,
    measure: Callable[[bool, Callable[[dict[str, Any]], None]], dict[str, Any]],
    show: Callable[[dict[str, Any]], None],
) -> None:
    """Command line of a benchmark: measure and store, `--quick` without storing, `--show` from the stored numbers.

    Args:
        name: Of its results.
        about: What `--help` says.
        quick: What `--quick` leaves out, in words.
        measure: Takes whether it is quick, and what stores the numbers so far; gives all of them.
        show: Prints them.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{quick}, nothing stored")
    parser.add_argument("--show", action="store_true", help="tables from the stored numbers")
    arguments = parser.parse_args()
    path = results_path(name)
    if arguments.show:
        data = load(path)
        if data is None:
            parser.error(f"there are no results in {path}")
    else:
        keep = (lambda data: None) if arguments.quick else (lambda data: save(path, data))
        data = measure(arguments.quick, keep)
        keep(data)
    show(data)
