"""Ground of every test: 64-bit numbers, annotations checked at run time, warnings as errors, seeds."""

import os

# Before JAX starts: no compiled code from earlier runs, and the processor unless another platform is asked for.
os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Tests compile much and run little of it, so programs are made quickly here. With another XLA_FLAGS, such as
# --xla_cpu_enable_fast_math=false, they are made as for users; tests/cross/test_optimised_programs.py does so always.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)

# Test processes are the parallel part: each keeps to one processor and starts no threads that compile. (XLA may end a
# process with a segmentation fault where one thread writes a program to the cache while another compiles.)
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("DEEPLINEAR_PROCESSORS", "1")

import gc
import importlib
import shutil
import signal
import tempfile
from collections.abc import Iterator

import jax
import jaxtyping
import pytest

jax.config.update("jax_enable_x64", True)

# A shell that runs the tests in the background lets them, and what they start, ignore interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Tracing makes many small objects and few cycles: the collector looks for these seldom, and not among what is imported
# (see `pytest_collection_finish`).
gc.set_threshold(50_000, 10, 10)

# The processes of one test run share what they compile; the first of them makes the folder, and removes it at the end.
SHARED = "DEEPLINEAR_TESTS_COMPILED"
FIRST = SHARED not in os.environ
if FIRST:
    os.environ[SHARED] = tempfile.mkdtemp(prefix="deeplinear-tests-")
jax.config.update("jax_compilation_cache_dir", os.environ[SHARED])
os.environ["DEEPLINEAR_COMPILED"] = os.path.join(os.environ[SHARED], "children")  # what programs started here compile
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

CHECKED = ("core", "models", "probes", "dynamics", "exact", "following", "geometry", "landscape", "nonlinear", "plots",
           "recurrent")  # fmt: skip
"""Layers whose annotations, shapes included, are checked at every call (but see `WHOLE`)."""

# Formulas go through these files at every operation, and they annotate no array: they are read without the check.
for name in ("_xp", "_integrate"):
    importlib.import_module(f"deeplinear.core.{name}")

# Before the first import of the rest. Reading theory and experiments with their annotations made into checks, which
# no test would use, takes every process ten seconds.
jaxtyping.install_import_hook([f"deeplinear.{name}" for name in CHECKED], "checking.annotations")

DEFAULT_SEEDS = 1
"""More of them are for people with time: `--seeds 8`. The whole run has to stay below twelve minutes on two cores."""

WHOLE = ("experiments", "cli", "architecture", "theory", "report", "following", "cross", "diagnosis", "estimators",
         "lab")  # fmt: skip
"""Folders whose tests go through all layers. What they call is called with checked annotations by the tests of the
layers; checking it again takes a seventh of the time."""

STEPS = ("test_balancing.py", "test_exponential.py", "test_flow.py", "test_logarithm.py", "test_upstairs.py")
"""Files whose integrations evaluate a formula ten thousand times, most of whose time would be checks; the tests of the
formulas check them."""

LONG = ("experiments", "cli", "architecture")
"""Folders whose files take longest."""

MOST_MEMORY = max(3e9, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 5)
"""Bytes, a fifth of the machine, above which a process forgets what it compiled; the shared folder has it still."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seeds", type=int, default=DEFAULT_SEEDS, metavar="N", help="run tests that take `seed` for seeds 0..N-1"
    )
    parser.addoption(
        "--load",
        type=int,
        default=2,
        metavar="N",
        help="answers for each client of the lab",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that takes `seed`, itself or through a fixture, once for each seed."""
    own = any("seed" in str(mark.args[0]) for mark in metafunc.definition.iter_markers("parametrize"))
    if "seed" in metafunc.fixturenames and not own:
        metafunc.parametrize("seed", range(metafunc.config.getoption("--seeds")), scope="module")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Folders of long files first, so that no process is left with one of them when the others are done."""
    folders = [item.path.parent.name for item in items]
    order = sorted(range(len(items)), key=lambda i: LONG.index(folders[i]) if folders[i] in LONG else len(LONG))
    items[:] = [items[i] for i in order]


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end, so the collector need not look at it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _annotations(request: pytest.FixtureRequest) -> Iterator[None]:
    unchecked = request.path.parent.name in WHOLE or request.path.name in STEPS
    jaxtyping.config.update("jaxtyping_disable", unchecked)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory() -> Iterator[None]:
    yield
    from deeplinear.core import drop_programs, resident_memory

    if resident_memory() > MOST_MEMORY:  # without the memory going back, every file would forget what it compiled
        drop_programs()


def pytest_unconfigure() -> None:
    """Nothing of what was compiled outlives the run."""
    if FIRST:
        shutil.rmtree(os.environ.pop(SHARED), ignore_errors=True)
