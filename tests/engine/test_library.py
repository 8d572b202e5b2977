"""The compiled libraries: memory and undefined behaviour, instruction sets, eigenvalues."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deeplinear.core import ROUNDING, dopri8, stabilised_table, tableau, tsit5
from deeplinear.dynamics import GradientFlow, _native_spec, simulate
from deeplinear.engine import _build, _library
from deeplinear.models import DeepLinear, Problem, Regression

SANITIZERS = ("-O1", "-g0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def tables(path: Path) -> None:
    """Write what the engine is handed by `dynamics`, for a program that does not load it."""
    rows = stabilised_table()
    columns = {name: getattr(rows, name) for name in ("stages", "first", "second", "offset", "interval", "mixing")}
    columns["weights"] = np.stack([rows.momentum, rows.slope, rows.solution, rows.error, *rows.force.T], axis=1)
    for name, pair in (("tsit5", tsit5()), ("dopri8", dopri8())):
        found = tableau(pair)
        columns |= {f"{name}_lower": found.lower, f"{name}_error": found.error}
        columns[f"{name}_numbers"] = np.array([pair.error_order, pair.stability])
    law = [getattr(_native_spec.law(), name) for name in _library.LAW]
    np.savez(path, rounding=ROUNDING, law=law, **columns)


@pytest.mark.slow
def test_random_runs_break_no_rule_of_memory(tmp_path: Path) -> None:
    """Built with AddressSanitizer and UndefinedBehaviorSanitizer, moved in a process of its own."""
    compiler = shutil.which("g++")
    preload = subprocess.run(
        [compiler or "false", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if not os.path.isabs(preload):
        pytest.skip("no g++ with AddressSanitizer")
    made = _build.build(tmp_path, extra=SANITIZERS, only=[2])
    assert made, "the engine compiles with sanitizers"
    tables(tmp_path / "tables.npz")
    settings = {
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0",
        "PYTHONPATH": str(Path(_build.__file__).parents[2]),
        "PATH": os.environ["PATH"],
        "OMP_NUM_THREADS": "1",
    }
    line = [sys.executable, str(Path(__file__).with_name("fuzz.py")), str(made[0]), str(tmp_path / "tables.npz"), "300"]
    done = subprocess.run(line, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout == "fine 300\n"


def runs_here(lanes: int) -> bool:
    return lanes <= _library.load(_build.library_path(min(_build.variants()))).engine_widest()


@pytest.mark.skipif(not _library.available(), reason="the engine is not compiled")
@pytest.mark.parametrize("widths", [(3, 4, 2), (30, 28, 30)], ids=["small", "wide"])
def test_instruction_sets_agree(widths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every library that this processor runs ends a flow, stiff at its end, in the same place."""
    rng = np.random.default_rng(0)
    x = np.geomspace(1, 30, widths[0])[:, None] * rng.standard_normal((widths[0], 40))
    problem = Problem(DeepLinear(widths), Regression.from_data(x, rng.standard_normal((widths[-1], 40))))
    params = [rng.standard_normal(shape) / np.sqrt(widths[0]) for shape in problem.model.shapes]
    ends = {}
    for lanes in filter(runs_here, _build.variants()):
        found = _library.load(_build.library_path(lanes))
        assert found.engine_lanes() == lanes
        monkeypatch.setattr(_library, "library", lambda found=found: found)
        run = simulate(problem, params, GradientFlow(1e-9), times=[0.0, 0.05, 0.3], engine="native")
        assert run.info["engine"] == f"native, lanes: {lanes if widths[0] == 3 else 1}"
        ends[lanes] = np.concatenate([run["loss"], *(np.ravel(layer) for layer in run.params)])
    assert 2 in ends
    for end in ends.values():
        np.testing.assert_allclose(end, ends[2], atol=1e-7)


def symmetric(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """A symmetric matrix of some kind."""
    full = rng.standard_normal((n, n))
    full = full + full.T
    if kind == "diagonal":
        return np.diag(np.diag(full))
    if kind == "zero":
        return np.zeros((n, n))
    if kind == "rank-deficient":
        half = full[:, : max(1, n // 3)]
        return half @ half.T
    if kind == "graded":
        scale = np.geomspace(1e-12, 1, n)
        return scale[:, None] * full * scale
    if kind == "clustered":
        basis = np.linalg.qr(full)[0]
        return (basis * np.repeat([1.0, 1.0 + 1e-14, -3.0], -(-n // 3))[:n]) @ basis.T
    return full * {"random": 1.0, "huge": 1e150, "small": 1e-150}[kind]


@pytest.mark.skipif(not _library.available(), reason="the engine is not compiled")
@pytest.mark.parametrize(
    "kind", ["random", "diagonal", "rank-deficient", "graded", "zero", "clustered", "huge", "small"]
)
def test_eigenvalues_are_those_of_lapack(kind: str) -> None:
    found = _library.library()
    assert found is not None
    for n in (1, 2, 3, 4, 5, 7, 10, 31, 64, 200):
        matrix = symmetric(kind, n, np.random.default_rng(n))
        matrix = 0.5 * (matrix + matrix.T)
        vectors, values = matrix.copy(), np.zeros(n)
        assert found.engine_decompose(n, vectors.ctypes.data, values.ctypes.data)
        norm = max(np.abs(matrix).max(), np.finfo(float).tiny)
        expected = np.linalg.eigvalsh(matrix / norm)
        np.testing.assert_allclose(np.sort(values) / norm, expected, atol=1e-14 * n)
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(n), atol=1e-14 * n)
        np.testing.assert_allclose((vectors.T * (values / norm)) @ vectors, matrix / norm, atol=3e-14 * n)


@pytest.mark.skipif(not _library.available(), reason="the engine is not compiled")
def test_what_is_not_finite_has_no_eigenvalues() -> None:
    found = _library.library()
    assert found is not None
    for value in (np.nan, np.inf):
        matrix, values = np.eye(4), np.zeros(4)
        matrix[3, 1] = matrix[1, 3] = value
        done = found.engine_decompose(4, matrix.ctypes.data, values.ctypes.data)
        assert not done or not np.isfinite(values).all()
