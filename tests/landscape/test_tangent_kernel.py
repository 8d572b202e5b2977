"""The smallest eigenvalue of the tangent kernel without its matrix: closed forms and iteration."""

import itertools
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Params
from deeplinear.landscape import _tangent_kernel as kernels, rate_report, sharp_rate

AGREEMENT = 1e-8
"""Iterated eigenvalues, whose error is the square of their residual over a gap."""

SMALL = 30e6
"""Bytes; the kernel of 784 inputs and 10 outputs takes 490 million."""


def draw(rng: np.random.Generator, widths: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    return tuple(rng.standard_normal((out, inp)) / np.sqrt(inp) for inp, out in itertools.pairwise(widths))


def given(layers: tuple[np.ndarray, ...]) -> Params:
    return tuple(jnp.asarray(layer, dtype=float) for layer in layers)


def dense(layers: tuple[np.ndarray, ...]) -> float:
    """Smallest eigenvalue of the whole kernel."""
    total = 0.0
    for j in range(len(layers)):
        left, right = np.eye(layers[-1].shape[0]), np.eye(layers[0].shape[1])
        for layer in reversed(layers[j + 1 :]):
            left = left @ layer
        for layer in layers[:j]:
            right = layer @ right
        total = total + np.kron(left @ left.T, right.T @ right)
    return float(np.linalg.eigvalsh(total)[0])


@pytest.mark.parametrize(
    "widths",
    [(3, 2), (3, 4, 2), (3, 2, 4), (2, 1, 3), (4, 2, 3, 2), (4, 2, 1, 2), (2, 3, 2, 4), (2, 3, 1, 4), (4, 2, 2, 4)],
    ids=lambda widths: "-".join(map(str, widths)),
)
def test_closed_forms(seed: int, widths: tuple[int, ...]) -> None:
    """One layer, two layers, a first layer that narrows, a last one that widens, bottlenecks inside."""
    layers = draw(np.random.default_rng(seed), widths)
    report = rate_report(given(layers))
    assert report.method == "by singular values of layers"
    assert report.sharp == pytest.approx(dense(layers), rel=1e-9, abs=1e-13)
    assert float(sharp_rate(given(layers))) == pytest.approx(dense(layers), rel=1e-9, abs=1e-13)


def test_iteration_agrees_with_the_matrix(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = draw(np.random.default_rng(seed), (12, 14, 13, 11))
    matrix = rate_report(given(layers))
    monkeypatch.setattr(kernels, "DENSE_ENTRIES", 1)
    iterated = rate_report(given(layers))
    assert matrix.method == "by its matrix" and iterated.method == "by iteration"
    assert matrix.sharp == pytest.approx(dense(layers), rel=1e-9)
    assert iterated.sharp == pytest.approx(dense(layers), rel=AGREEMENT)
    monkeypatch.setattr(kernels, "ITERATIONS", 1)
    failed = rate_report(given(layers))
    assert failed.sharp is None and "iterations leave a residual of" in failed.method
    assert failed.method in str(failed) and failed.to_json()["sharp"] is None


def test_large_layers_take_no_matrix(seed: int) -> None:
    """784-32-10; and six layers of 100 x 100 that are five copies of 20 x 20 ones, in other hidden coordinates."""
    rng = np.random.default_rng(seed)
    first = draw(rng, (784, 32, 10))
    small = tuple(np.eye(20) + layer / 2 for layer in draw(rng, (20,) * 7))
    turns = [np.eye(100), *(np.linalg.qr(rng.standard_normal((100, 100)))[0] for _ in range(5)), np.eye(100)]
    large = tuple(
        after @ np.kron(np.eye(5), layer) @ before.T
        for (before, after), layer in zip(itertools.pairwise(turns), small, strict=True)
    )
    tracemalloc.start()
    reports = [rate_report(given(first)), rate_report(given(large))]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < SMALL
    assert reports[0].sharp == pytest.approx(np.linalg.svd(first[1], compute_uv=False)[-1] ** 2, rel=1e-9)
    assert reports[1].sharp == pytest.approx(dense(small), rel=1e-6, abs=1e-9) and reports[1].method == "by iteration"
    with pytest.raises(ValueError, match=r"sharp_rate: .* at most 3000 entries .* 10000, which take 800 MB"):
        sharp_rate(given(large))


def test_beyond_the_limit_there_is_a_reason() -> None:
    report = rate_report(given((np.ones((300, 200)), np.ones((300, 300)), np.ones((300, 300)))))
    assert report.sharp is None and report.method == "not computed: the product has 60000 entries, more than 40000"
    assert "not computed" in str(report)


def test_an_eigenvalue_below_rounding_says_so() -> None:
    """Layers of rank one: the kernel is singular."""
    report = rate_report(given((np.ones((2, 2)),) * 3))
    assert report.sharp == pytest.approx(0.0, abs=1e-12) and "zero up to rounding" in report.method
