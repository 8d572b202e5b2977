"""The kernel for graphics cards, on a processor whose threads take turns, against the engine for processors."""

import ctypes
import functools
import itertools
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deeplinear.dynamics._native as native
import deeplinear.engine as engine
from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.dynamics._flow import default_pair
from deeplinear.dynamics._native_card import refused_by_kernel
from deeplinear.engine._build import SOURCES
from deeplinear.models import Completion, DeepLinear, Problem, Regression, SquaredDistance
from deeplinear.probes import loss, product

pytestmark = [
    pytest.mark.skipif(not engine.available(), reason="the engine is not compiled"),
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or shutil.which("g++") is None, reason="needs g++ on Linux"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels")


class Emulation:
    """What stands for a graphics card: two blocks, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.launches = folder, 0

    def holder(self) -> engine.Holder:
        return engine.Holder()

    def upload(self, address: int, array: np.ndarray) -> None:
        ctypes.memmove(address, array.ctypes.data, array.nbytes)

    def download(self, address: int, array: np.ndarray) -> None:
        ctypes.memmove(array.ctypes.data, address, array.nbytes)

    def launch(self, shape: engine.Shape, spec: engine.Spec, launch: engine.Launch) -> None:
        self.launches += 1
        library = compiled(self.folder, shape)
        assert library.sizes(0) == ctypes.sizeof(engine.Spec) and library.sizes(1) == ctypes.sizeof(engine.Launch)
        assert library.sizes(2) <= shape.control_bytes and library.sizes(3) <= shape.shared_bytes
        library.emulate(ctypes.byref(spec), ctypes.byref(launch), 2)


@functools.cache
def compiled(folder: Path, shape: engine.Shape) -> ctypes.CDLL:
    target = folder / f"{abs(hash(shape))}.so"
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC", "-w", f"-I{SOURCES}"]
    source = Path(__file__).with_name("emulation.cpp")
    subprocess.run(["g++", *flags, *shape.options, str(source), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def moved(machine: Emulation, monkeypatch: pytest.MonkeyPatch, *args: Any, **kwargs: Any) -> Trajectory:
    """An ensemble that the emulation moves."""
    with monkeypatch.context() as patch:
        patch.setattr(native, "takes_card", lambda members: True)
        patch.setattr(engine, "card", lambda: machine)
        patch.setattr(engine, "no_card", lambda: None)
        run = ensemble(*args, **kwargs)
    assert "graphics card" in run.info["engine"] and machine.launches
    return run


def starts(widths: tuple[int, ...], members: int, scale: float, rng: np.random.Generator) -> list[np.ndarray]:
    return [scale * rng.normal(size=(members, b, a)) for a, b in itertools.pairwise(widths)]


def distance(widths: tuple[int, ...], rng: np.random.Generator) -> SquaredDistance:
    return SquaredDistance(rng.normal(size=(widths[-1], widths[0])))


def regression(widths: tuple[int, ...], rng: np.random.Generator) -> Regression:
    x = np.geomspace(1, 3, widths[0])[:, None] * rng.normal(size=(widths[0], 40))
    return Regression.from_data(x, rng.normal(size=(widths[-1], 40)))


def completion(widths: tuple[int, ...], rng: np.random.Generator) -> Completion:
    shape = (widths[-1], widths[0])
    return Completion(rng.normal(size=shape), (rng.random(shape) < 0.6).astype(float))


CASES: dict[str, tuple[tuple[int, ...], Any, float, dict[str, Any]]] = {
    "three groups to a block, explicit and stabilised": ((3, 3, 3, 3), distance, 0.5, {}),
    "rectangular, with L2": ((4, 5, 3), distance, 0.5, {"l2": 0.01}),
    "widths that are filled up, coloured inputs": ((5, 7, 6, 3), regression, 0.4, {"l2": 0.1}),
    "tiles of four, a mask": ((6, 4, 6), completion, 0.4, {}),
    "more threads than a warp": ((14, 12, 14), distance, 0.3, {}),
    "one layer": ((3, 2), distance, 0.4, {}),
    "one layer, coloured inputs": ((3, 2), regression, 0.4, {}),
    "six layers": ((2,) * 7, distance, 0.6, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_kernel_takes_the_steps_of_the_engine(
    case: str, folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths, loss_of, scale, settings = CASES[case]
    rng, members = np.random.default_rng(seed), 7
    problems = [Problem(DeepLinear(widths), loss_of(widths, rng), **settings) for _ in range(members)]
    params = starts(widths, members, scale, rng)
    plan = {"times": [0.0, 1.0, 5.0, 40.0], "probes": [loss, product], "method": GradientFlow(1e-6)}
    own, found = ensemble(problems, params, **plan), moved(Emulation(folder), monkeypatch, problems, params, **plan)
    np.testing.assert_array_equal(found.results, own.results)
    np.testing.assert_allclose(found.stats["accepted_steps"], own.stats["accepted_steps"], atol=1)
    np.testing.assert_array_equal(found.lengths, own.lengths)
    for name in ("loss", "product"):
        np.testing.assert_allclose(found[name], own[name], rtol=1e-6, atol=1e-9)
    for mine, other in zip(found.params, own.params, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-8)


def test_rules_limits_and_ends(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule between two times, networks at rest, a limit on steps, and one on time before all have begun."""
    rng, widths, members = np.random.default_rng(seed), (3, 3, 3, 3), 9
    problem = Problem(DeepLinear(widths), distance(widths, rng))
    params = starts(widths, members, 0.5, rng)
    for layer in params:
        layer[4] = 0  # a critical point
    machine = Emulation(folder)
    plan = {"times": [0.0, 3.0, 1000.0], "until": until(loss, below=1e-10)}
    own, found = ensemble(problem, params, **plan), moved(machine, monkeypatch, problem, params, **plan)
    np.testing.assert_array_equal(found.results, own.results)
    assert found.results[4] == RESULTS.steady and set(np.delete(found.results, 4).tolist()) == {RESULTS.stopped}
    np.testing.assert_allclose(found.times, own.times, rtol=1e-4)  # a rule is met within a hundredth
    np.testing.assert_allclose(found["loss"][:, :2], own["loss"][:, :2], rtol=1e-6)
    assert np.all(np.delete(found["loss"][:, 2], 4) <= 1e-10)

    few = moved(machine, monkeypatch, problem, params, times=[1000.0], max_steps=5)
    assert set(np.delete(few.results, 4).tolist()) == {RESULTS.step_limit}
    assert set(np.delete(few.stats["accepted_steps"], 4).tolist()) == {5}

    none = moved(machine, monkeypatch, problem, params, times=[1000.0], wall_limit=1e-9)
    assert set(np.delete(none.results, 4).tolist()) == {RESULTS.wall_limit}
    np.testing.assert_array_equal(none.lengths, np.where(np.arange(members) == 4, none.lengths[4], 1))
    np.testing.assert_allclose(np.delete(none["loss"][:, 0], 4), np.delete(own["loss"][:, 0], 4), rtol=1e-12)


def test_who_is_beside_makes_no_difference(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit by bit, in another order and so in other company."""
    rng, widths, members = np.random.default_rng(seed), (3, 3, 3, 3), 11
    problems = [Problem(DeepLinear(widths), distance(widths, rng)) for _ in range(members)]
    params, order = starts(widths, members, 0.5, rng), rng.permutation(members)
    plan = {"times": [5.0, 50.0], "method": GradientFlow(1e-6)}
    one = moved(Emulation(folder), monkeypatch, problems, params, **plan)
    turned = [layer[order] for layer in params]
    other = moved(Emulation(folder), monkeypatch, [problems[i] for i in order], turned, **plan)
    for mine, theirs in zip(one.params, other.params, strict=True):
        np.testing.assert_array_equal(mine[order], theirs)


def test_launches_of_no_time_go_on_where_they_stopped(folder: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch whose time is up keeps networks, and the next one moves them on."""
    rng, widths, members = np.random.default_rng(seed), (3, 3, 3, 3), 5
    problems = [Problem(DeepLinear(widths), distance(widths, rng)) for _ in range(members)]
    params = starts(widths, members, 0.5, rng)
    plan = {"times": [5.0, 50.0], "method": GradientFlow(1e-6)}
    whole = moved(Emulation(folder), monkeypatch, problems, params, **plan)

    class Hurried(Emulation):
        def launch(self, shape: engine.Shape, spec: engine.Spec, launch: engine.Launch) -> None:
            launch.slice = 60  # looks at a clock that ticks when it is looked at
            super().launch(shape, spec, launch)

    machine = Hurried(folder)
    parts = moved(machine, monkeypatch, problems, params, **plan)
    assert machine.launches > 2
    for mine, other in zip(parts.params, whole.params, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_what_the_kernel_does_not_cover_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def reason(widths: tuple[int, ...], **settings: Any) -> str | None:
        seen: list[Any] = []
        with monkeypatch.context() as patch:
            patch.setattr(native, "takes_card", lambda members: True)
            patch.setattr(engine, "no_card", lambda: None)
            patch.setattr(native, "move", lambda run, *rest: seen.append(run))
            patch.setattr("deeplinear.dynamics._simulate.refusal", lambda run, members: seen.append(run) or "seen")
            problem = Problem(DeepLinear(widths), SquaredDistance(np.ones((widths[-1], widths[0]))))
            ensemble(problem, [np.ones((2, b, a)) for a, b in itertools.pairwise(widths)], **settings)
        return refused_by_kernel(seen[0])

    short: dict[str, Any] = {"times": [0.001], "max_steps": 1}
    assert reason((2, 2, 2), **short) is None
    assert reason((2, 2, 2), horizon=0.001, max_steps=1) == "every so many steps are recorded"
    assert reason((1,) * 8, **short) == "the network has more than 6 layers"
    assert reason((2, 2, 2), method=GradientFlow(1e-6, integrator=default_pair(1e-8)), **short) is None


def test_nvrtc_compiles_the_kernel() -> None:
    """On machines without a graphics card too, where the compiler is installed."""
    if engine.compiler() is None:
        pytest.skip("NVRTC is not installed")
    code = engine.compile_for(engine.shape_of((4, 5, 3), 1, 7), "compute_90")
    assert b".entry flows" in code
