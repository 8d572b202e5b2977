"""Sweeps on several workers: how they scale, what a member costs besides its numbers, and the memory of the parent.

    python benchmarks/cluster.py            all, 8 to 10 minutes, nearly all of it for the sweep of 100,000 members
    python benchmarks/cluster.py --quick    small sizes, a minute, nothing stored
    python benchmarks/cluster.py --show     tables from the stored numbers

Scaling: members of about half a second of one core, compiled once in each worker; seconds are those of a sweep that is
going, the second half of it, scaled to all members, and what a sweep takes longer (starting workers, imports,
compilation) stands under "compile". The error of a row is its efficiency: seconds of one worker over
workers times seconds. Peers do the same calls and store nothing.
Overhead: calls that do nothing, from the first answer to the last.
Memory: members of a millisecond, two processes, everything stored; then the same sweep once more, which takes all from
the store, and collecting it.
"""

import dataclasses
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import common
import jax

jax.config.update("jax_enable_x64", True)  # as the workers of the package have it

import jax.numpy as jnp
import numpy as np
import xarray

from deeplinear.experiments import Context, Experiment, Store, Task, Tick, _registry, collect, execute, run, task_of

HALF = 0.5
"""Seconds of one member of the scaling case."""


@dataclasses.dataclass(frozen=True)
class Cheap:
    """A member: so many products of matrices after another."""

    seed: int = 0
    steps: int = 0


@jax.jit
def _spin(seed: Any, steps: Any) -> Any:
    matrix = jax.random.normal(jax.random.key(seed), (64, 64)) / 8
    return jax.lax.fori_loop(0, steps, lambda _, m: jnp.tanh(m @ matrix + m), matrix)


def _run(spec: Cheap, context: Context) -> xarray.Dataset:
    values = np.random.default_rng(spec.seed).normal(size=8)
    if spec.steps:
        values = np.asarray(_spin(spec.seed, spec.steps))[0, :8]
    return xarray.Dataset({"value": ("entry", values)})


EXPERIMENT = Experiment(
    id="benchmark/cheap",
    source="",
    shows="Nothing.",
    presets={"quick": Cheap(), "paper": Cheap()},
    run=_run,
    plot=lambda dataset, spec: None,  # type: ignore[arg-type, return-value]
    claims=lambda dataset, spec: [],
)
# Workers run this file before their first task, so that they know the experiment too.
_registry._ALL[EXPERIMENT.id] = EXPERIMENT


def _tasks(count: int, steps: int = 0) -> list[Task]:
    return [task_of(EXPERIMENT.id, Cheap(seed, steps)) for seed in range(count)]


def _member(argument: tuple[int, int]) -> np.ndarray:
    return np.asarray(_spin(*argument))


def _nothing(argument: int) -> int:
    return argument


def _steps() -> int:
    """Steps that take half a second here."""
    _spin(0, 10).block_until_ready()
    begin = time.perf_counter()
    _spin(0, 2000).block_until_ready()
    return max(1, int(2000 * HALF / (time.perf_counter() - begin)))


def _steady(stamps: list[float], begin: float) -> common.Timing:
    """Seconds of all members at the pace of the second half, when all workers are there; first is the whole sweep."""
    half = len(stamps) // 2
    pace = (stamps[-1] - stamps[half - 1]) / (len(stamps) - half)
    return common.Timing((pace * len(stamps),), stamps[-1] - begin)


def _ours(executor: str, workers: int, count: int, steps: int) -> common.Timing:
    stamps: list[float] = []
    with tempfile.TemporaryDirectory(prefix="deeplinear-bench-") as folder:
        begin = time.perf_counter()
        settled = run(
            _tasks(count, steps),
            Store(folder),
            executor=executor,
            workers=workers,
            formats=(),
            report=lambda member: stamps.append(time.perf_counter()),
        )
        assert all(member.status == "completed" for member in settled)
    return _steady(stamps, begin)


def _pool(workers: int, count: int, steps: int) -> common.Timing:
    begin, stamps = time.perf_counter(), []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for _ in as_completed([pool.submit(_member, (seed, steps)) for seed in range(count)]):
            stamps.append(time.perf_counter())
    return _steady(stamps, begin)


def _plain_dask(workers: int, count: int, steps: int) -> common.Timing:
    from distributed import Client, LocalCluster, as_completed as completed

    begin, stamps = time.perf_counter(), []
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for future in completed(client.map(_member, [(seed, steps) for seed in range(count)], pure=False)):
            future.result()
            stamps.append(time.perf_counter())
    return _steady(stamps, begin)


def scaling(quick: bool) -> dict[str, Any]:
    """One and two workers."""
    count, steps = (8, 200) if quick else (40, _steps())
    contestants: dict[str, Callable[[int], common.Timing]] = {
        "deeplinear, processes": lambda workers: _ours("processes", workers, count, steps),
        "deeplinear, dask": lambda workers: _ours("dask", workers, count, steps),
        "ProcessPoolExecutor": lambda workers: _pool(workers, count, steps),
        "distributed, client.map": lambda workers: _plain_dask(workers, count, steps),
    }
    rows = []
    for name, measured in contestants.items():
        one, two = measured(1), measured(2)
        rows.append(common.row(f"{name}, 2 workers", two, error=one.median / (2 * two.median)))
        rows.append(common.row(f"{name}, 1 worker", one, error=1.0))
    about = f"{count} members of about {HALF} s of one core, stored by deeplinear, not by the others."
    return common.case("Scaling", about, "efficiency against one worker of the same; 1 is best.", rows)


def overhead(quick: bool) -> dict[str, Any]:
    """Calls that do nothing."""
    from distributed import Client, LocalCluster, as_completed as completed

    count = 500 if quick else 5000

    def paced(calls: Callable[[], Iterator[Any]]) -> common.Timing:
        """From the first answer to the last."""
        seconds = []
        for _ in range(3):
            answers = iter(calls())
            next(answers)
            begin = time.perf_counter()
            stamps = [time.perf_counter() for _ in answers]
            assert len(stamps) == count - 1
            seconds.append(stamps[-1] - begin)
        return common.Timing(tuple(seconds), None)

    calls = range(count)
    rows = [
        common.row("deeplinear, processes", paced(lambda: execute(_nothing, calls, executor="processes", workers=2)))
    ]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(_nothing, range(4)))
        timing = paced(lambda: as_completed([pool.submit(_nothing, k) for k in calls]))
        rows.append(common.row("ProcessPoolExecutor", timing, note="all futures at once"))
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        place: Any = cluster
        address = place.scheduler_address
        timing = paced(lambda: execute(_nothing, calls, executor="dask", address=address))
        rows.append(common.row("deeplinear, dask", timing, note="several calls in a task"))
        timing = paced(lambda: completed(client.map(_nothing, calls, pure=False), with_results=True))
        rows.append(common.row("distributed, client.map", timing, note="all futures at once"))
    about = f"{count} calls that do nothing, two workers that are there already."
    return common.case("Overhead", about, "none", rows)


def _memory() -> float:
    """Megabytes this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory(count: int) -> dict[str, Any]:
    """A sweep of so many members, the same again, and collecting it."""
    tasks = _tasks(count)
    before, most = _memory(), 0.0

    def watch(tick: Tick) -> None:
        nonlocal most
        if tick.done % 100 == 0 or tick.done == count:
            most = max(most, _memory())

    folder = tempfile.mkdtemp(prefix="deeplinear-bench-")
    try:
        store = Store(folder)
        _, swept = common.timed(
            lambda: run(tasks, store, executor="processes", workers=2, formats=(), progress=watch) and None,
            repeats=1,
            warm=False,
        )
        _, taken = common.timed(lambda: run(tasks, store, formats=()) and None, repeats=1, warm=False)
        (data, missing), collected = common.timed(lambda: collect(tasks, store, ("seed",)), repeats=1, warm=False)
        assert data.sizes["member"] == count and missing == 0
    finally:
        shutil.rmtree(folder)
    note = f"{before:.0f} MB with its {count:,} tasks before the sweep, {most:.0f} MB at most in it"
    rows = [
        common.row("sweep", swept, error=most - before, note=note),
        common.row("the same again, all stored", taken),
        common.row("collect", collected),
    ]
    about = f"{count:,} members of a millisecond, two processes."
    return common.case(f"Memory, {count:,}", about, "megabytes the parent grew by during the sweep.", rows)


def measure(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All cases."""
    cases: list[dict[str, Any]] = []
    data = {"title": "Sweeps on several workers", "cases": cases}
    counts = (100, 500) if quick else (1_000, 10_000, 100_000)
    for part in (lambda: scaling(quick), lambda: overhead(quick), *(lambda n=n: memory(n) for n in counts)):
        cases.append(part())
        keep(data)
        print(common.case_table(cases[-1]), file=sys.stderr)
    return data


def show(data: dict[str, Any]) -> None:
    """Print the tables."""
    print(f"# {data['title']}\n")
    for case in data["cases"]:
        print(f"{common.case_table(case)}\n\n{common.describe(case['machine'])}\n")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    common.command("cluster", __doc__, "small sizes", measure, show)
