"""What docs/reproducibility.md promises: the same bits on one machine, the same digits with other processors."""

import dataclasses
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Trajectory
from deeplinear.dynamics import GradientDescent, GradientFlow, simulate
from deeplinear.experiments._spec import key_of
from deeplinear.models import DeepLinear, Gaussian, Problem, SquaredDistance

DIGITS = 1e-12
"""Share of the largest entry by which results of other threads and processors may differ, as the page says."""


def numbers() -> dict[str, np.ndarray]:
    """Ends of a flow and of discrete descent, singular values and a large product."""
    rng = np.random.default_rng(0)
    problem = Problem(DeepLinear((4, 6, 4)), SquaredDistance(rng.normal(size=(4, 4))))
    start = tuple(jnp.asarray(0.3 * rng.normal(size=shape)) for shape in ((6, 4), (4, 6)))
    flow = simulate(problem, start, GradientFlow(1e-8), times=[0.0, 3.0])
    descent = simulate(problem, start, GradientDescent(0.01), times=[0.0, 300.0])
    large = jnp.asarray(rng.normal(size=(300, 300)))
    return {
        "flow": np.concatenate([np.ravel(layer) for layer in flow.params]),
        "descent": np.concatenate([np.ravel(layer) for layer in descent.params]),
        "singular values": np.linalg.svd(np.asarray(large), compute_uv=False),
        "product": np.asarray(jax.jit(lambda a: a @ a.T)(large)),
        "draws": np.asarray(jax.random.normal(jax.random.fold_in(jax.random.key(7), 1), (5,))),
    }


CHILD = """
import os, sys
if sys.argv[3] == "one":
    os.sched_setaffinity(0, list(os.sched_getaffinity(0))[:1])
import jax
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, sys.argv[1])
import numpy as np
from test_reproducibility import numbers
np.savez(sys.argv[2], **numbers())
"""

NARROW = "--xla_cpu_max_isa=SSE4_2"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, np.ndarray]]:
    """Results of programs of their own: twice the same, on one processor, and without wide vector instructions."""
    folder = tmp_path_factory.mktemp("again")
    settings = ("JAX_", "XLA_", "OMP_", "OPENBLAS_")
    keep = {name: value for name, value in os.environ.items() if not name.startswith(settings)}
    results = {}
    programs = (("first", "all", ""), ("again", "all", ""), ("one", "one", ""), ("narrow", "all", NARROW))
    for name, threads, flags in programs:
        if threads == "one" and not hasattr(os, "sched_setaffinity"):
            continue
        environment = keep | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        if threads == "one":
            environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        file = str(folder / f"{name}.npz")
        command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), file, threads]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        with np.load(file) as stored:
            results[name] = dict(stored)
    return results


@pytest.mark.slow
def test_the_same_program_gives_the_same_bits(found: dict[str, dict[str, np.ndarray]]) -> None:
    for name, values in found["first"].items():
        assert values.tobytes() == found["again"][name].tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("other", ["one", "narrow"])
def test_threads_and_processors_change_only_the_last_digits(
    found: dict[str, dict[str, np.ndarray]], other: str
) -> None:
    if other not in found:
        pytest.skip("this system cannot bind a process to one processor")
    for name, values in found["first"].items():
        size = np.abs(values).max()
        np.testing.assert_allclose(found[other][name], values, rtol=0, atol=DIGITS * size, err_msg=name)


def threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with 20 rounds, in whole numbers (Salmon et al. 2011)."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = ((count + part) % 2**32 for count, part in zip(counter, key, strict=True))
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = (x + y) % 2**32
            y = (y << turn | y >> 32 - turn) % 2**32 ^ x
        x, y = (x + keys[(block + 1) % 3]) % 2**32, (y + keys[(block + 2) % 3] + block + 1) % 2**32
    return x, y


def test_draws_depend_on_the_seed_only() -> None:
    """Random bits are those of Threefry, whole numbers that no processor rounds; members have seeds of their own."""
    bits = jax.random.bits(jax.random.key(7), (3,), "uint32")
    expected = [first ^ second for first, second in (threefry((0, 7), (0, place)) for place in range(3))]
    assert [int(x) for x in bits] == expected
    model, key = DeepLinear((2, 2)), jax.random.key(3)
    few, many = (
        [np.asarray(Gaussian(0.1)(model, jax.random.fold_in(key, member))[0]) for member in range(count)]
        for count in (2, 4)
    )
    np.testing.assert_array_equal(few, many[:2])


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of an experiment."""

    width: int = 3
    rates: tuple[float, ...] = (0.1, 2.0)


def test_keys_are_the_same_everywhere() -> None:
    text = '{"id": "paper/fig1", "spec": {"rates": [0.1, 2.0], "width": 3}, "version": 2}'
    key = hashlib.sha256(text.encode()).hexdigest()[:20]
    assert key_of("paper/fig1", 2, Settings()) == key_of("paper/fig1", 2, Settings(rates=(0.1, 2), width=3)) == key


def test_saved_runs_are_the_same_bytes(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3))
    run = Trajectory(
        times=np.array([0.0, 0.1]),
        values={"loss": values[:, 0]},
        dims={"loss": ()},
        params=(values,),
        results=np.asarray(1),
        fired=np.asarray(0),
        rules=(),
        lengths=np.asarray(2),
        stats={},
        info={},
    )
    first, second = (run.save(tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second
    loaded = Trajectory.load(tmp_path / "a")
    assert loaded.params[0].tobytes() == values.tobytes() and loaded.times.tobytes() == run.times.tobytes()
