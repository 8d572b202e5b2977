"""Test sessions as forks of one process that has imported JAX already: what tools/mutants.py runs tests with."""

import base64
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

IMPORTED = (
    "jax",
    "jax.numpy",
    "jax.scipy",
    "scipy.integrate",
    "scipy.optimize",
    "scipy.linalg",
    "equinox",
    "diffrax",
    "optax",
    "optimistix",
    "lineax",
    "jaxtyping",
    "beartype",
    "pytest",
    "hypothesis",
    "mpmath",
    "h5py",
    "h5netcdf",
    "xarray",
    "_pytest.assertion.rewrite",
    "anyio.pytest_plugin",
    "xdist.plugin",
)


@dataclass
class Outcome:
    """What a session of tests came to; `ended` says how, if not by itself."""

    code: int = -1
    ended: str = ""
    failed: str = ""
    message: str = ""
    tests: dict[str, dict[str, Any]] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------- inside a session


class Recorder:
    """Notes for each test the statements it ran, its seconds and whether it failed."""

    def __init__(self, hits: set[int]):
        self.hits, self.tests, self.before = hits, {}, None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tests[nodeid] = {"seconds": time.monotonic(), "failed": False}
        if self.before is None:  # what was run while the file was read belongs to all its tests
            self.before = set(self.hits)
        self.hits.clear()

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.tests[report.nodeid]["failed"] |= bool(report.failed)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        test = self.tests[nodeid]
        test["seconds"] = round(time.monotonic() - test["seconds"], 3)
        test["hits"] = packed(self.hits | (self.before or set()))


class Chooser:
    """Runs the tests of `chosen`, in this order, and notes the first that fails."""

    def __init__(self, chosen: Iterable[str]):
        self.order = {name: i for i, name in enumerate(chosen)}
        self.failed, self.message = "", ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.order]

    def pytest_collection_finish(self, session: Any) -> None:
        session.items.sort(key=lambda item: self.order[item.nodeid])

    def pytest_collectreport(self, report: Any) -> None:
        self.note(report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.note(report)

    def note(self, report: Any) -> None:
        if report.failed and not self.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.failed = report.nodeid
            self.message = (crash.message if crash else str(report.longrepr))[:300]


def packed(numbers: Iterable[int]) -> str:
    bits = bytearray()
    for number in numbers:
        if number // 8 >= len(bits):
            bits.extend(bytes(number // 8 + 1 - len(bits)))
        bits[number // 8] |= 1 << number % 8
    return base64.b64encode(zlib.compress(bytes(bits), 9)).decode()


def unpacked(text: str) -> set[int]:
    bits = zlib.decompress(base64.b64decode(text))
    return {8 * i + k for i, byte in enumerate(bits) if byte for k in range(8) if byte >> k & 1}


def whole_files(cache: Any, key: str, value: bytes) -> None:
    """Write a compiled program in one step: sessions read what others write, and some are ended at any time."""
    path = cache.path / f"{key}{importlib.import_module('jax._src.lru_cache')._CACHE_SUFFIX}"
    if not path.exists():
        part = path.with_name(f"{path.name}.{os.getpid()}")
        part.write_bytes(value)
        part.replace(path)


def prepare(work: Path) -> None:
    """Import what no mutant changes, in the process that every session is forked from."""
    os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = os.environ["DEEPLINEAR_PROCESSORS"] = "1"
    os.environ["DEEPLINEAR_TESTS_COMPILED"] = str(work / "compiled")
    (work / "compiled").mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name in IMPORTED:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"not imported: {error}", flush=True)
    importlib.import_module("jax._src.lru_cache").LRUCache.put = whole_files


def session(root: Path, arguments: list[str], plugin: Any, memory: float) -> Outcome:
    """Run pytest on the tree `root`, in the process that was forked for it."""
    os.chdir(root)
    sys.path[:] = [str(root / "src"), *(p for p in sys.path if not (Path(p) / "deeplinear").is_dir() and p)]
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p and "python3" not in p)
    resource.setrlimit(resource.RLIMIT_AS, (int(memory * 2**30),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    pytest = importlib.import_module("pytest")
    if isinstance(plugin, str):
        plugin = Recorder(importlib.import_module("deeplinear_hits").HITS)
    options = [
        "-c",
        str(root / "pyproject.toml"),
        "--rootdir",
        str(root),
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]  # of what was imported before
    code = int(pytest.main([*options, *arguments], plugins=[plugin]))
    outcome = Outcome(code=code)
    if isinstance(plugin, Recorder):
        outcome.tests = plugin.tests
    else:
        outcome.failed, outcome.message = plugin.failed, plugin.message
    return outcome


# ------------------------------------------------------------------------------------------- sessions side by side


@dataclass
class Request:
    """A session that a piece of work asks for."""

    root: Path
    arguments: list[str]
    plugin: Any
    timeout: float


@dataclass
class Running:
    work: Generator[Request, Outcome, Any]
    slot: int
    request: Request
    log: Path
    end: float


def fork(request: Request, log: Path, memory: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        with open(log, "wb") as out:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
        with open(os.devnull) as empty:
            os.dup2(empty.fileno(), 0)
        outcome = session(request.root, request.arguments, request.plugin, memory)
        log.with_suffix(".json").write_text(json.dumps(outcome.__dict__))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
    os._exit(0)


def drive(
    works: Iterable[Callable[[int], Generator[Request, Outcome, Any]]], jobs: int, stop: float, folder: Path,
    memory: float,
) -> Iterator[Any]:  # fmt: skip
    """Carry on up to `jobs` pieces of work side by side; yield what each returns. Work not done at `stop` is dropped."""
    folder.mkdir(parents=True, exist_ok=True)
    waiting, running, slots = iter(works), {}, list(range(jobs))

    def begin(work: Any, slot: int, request: Request) -> None:
        log = folder / f"slot{slot}.log"
        log.with_suffix(".json").unlink(missing_ok=True)
        running[fork(request, log, memory)] = Running(work, slot, request, log, time.monotonic() + request.timeout)

    def end(pid: int) -> None:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def go_on(work: Any, slot: int, outcome: Outcome | None) -> Iterator[Any]:
        try:
            begin(work, slot, next(work) if outcome is None else work.send(outcome))
        except StopIteration as done:
            slots.append(slot)
            yield done.value

    try:
        while True:
            while slots and time.monotonic() < stop and (work := next(waiting, None)) is not None:
                slot = slots.pop(0)
                yield from go_on(work(slot), slot, None)
            if not running or time.monotonic() > stop:
                return
            for pid in list(running):
                ended, status = os.waitpid(pid, os.WNOHANG)
                late = time.monotonic() > running[pid].end
                if not ended and not late:
                    continue
                end(pid)  # with what the tests started, which may outlive them
                if not ended:
                    os.waitpid(pid, 0)
                task = running.pop(pid)
                found = task.log.with_suffix(".json")
                if late and not ended:
                    outcome = Outcome(ended="timed out")
                elif found.exists():
                    outcome = Outcome(**json.loads(found.read_text()))
                else:
                    outcome = Outcome(
                        ended=f"ended with status {status}: {task.log.read_text(errors='replace')[-300:]}"
                    )
                yield from go_on(task.work, task.slot, outcome)
            time.sleep(0.02)
    finally:
        for pid in running:
            end(pid)
            os.waitpid(pid, 0)
