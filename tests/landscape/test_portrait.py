"""The report on given weights: what it says, and that it says nothing that does not hold for the task."""

import itertools
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.landscape import KIND, HessianSpectrum, _portrait, hessian_spectrum, portrait
from deeplinear.models import Completion, DeepLinear, Problem, Regression, SquaredDistance, skip_network
from deeplinear.plots import plot_portrait

WIDTHS = (3, 3, 2)
TARGET = np.array([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


def layers(seed: int, widths: tuple[int, ...] = WIDTHS) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths)]


def test_everything_is_told_of_a_square_loss(seed: int) -> None:
    """Loss, gradient and spectrum by plain formulas; a critical point near by is one."""
    first, second = layers(seed)
    found = portrait([first, second], Problem(DeepLinear(WIDTHS), SquaredDistance(TARGET)))
    error = second @ first - TARGET
    assert found.loss == pytest.approx(0.5 * np.sum(error**2), rel=1e-12)
    gradient = np.sqrt(np.sum((second.T @ error) ** 2) + np.sum((error @ first.T) ** 2))
    assert found.gradient_norm == pytest.approx(gradient, rel=1e-12)
    assert found.place is not None and found.place.kind is KIND.regular
    assert found.nearest is not None and found.nearest.found and found.nearest_place is not None
    assert found.nearest_place.kind is not KIND.regular
    assert found.inertia is not None and found.inertia.index + found.inertia.nullity + found.inertia.positive == 15
    kernel = np.kron(np.eye(2), first.T @ first) + np.kron(second @ second.T, np.eye(3))
    assert found.rates is not None and found.rates.sharp == pytest.approx(np.linalg.eigvalsh(kernel)[0], rel=1e-9)
    np.testing.assert_allclose(found.layer_singular_values[0], np.linalg.svd(first, compute_uv=False), rtol=1e-12)
    json.dumps(found.to_json(), allow_nan=False)
    text = str(found)
    assert all(title in text for title in ("Network", "Task", "Place", "Curvature", "Rates of convergence"))


def test_what_does_not_hold_for_the_task_is_left_out_and_said() -> None:
    rng = np.random.default_rng(0)
    x = 0.1 * rng.standard_normal((3, 50))
    model = DeepLinear(WIDTHS)
    coloured = portrait(layers(0), Problem(model, Regression.from_data(x, TARGET @ x)))
    assert coloured.rates is None and coloured.place is not None
    assert any("white inputs" in note for note in coloured.notes)
    partly = portrait(layers(0), Problem(model, Completion(TARGET, np.ones((2, 3)) - np.eye(2, 3))))
    assert partly.rates is None and partly.place is None and partly.inertia is not None
    assert any("kind of point cannot be told" in note for note in partly.notes)
    skip = skip_network((2, 3, 2), 0, 2)
    zero = skip.embed((jnp.zeros((3, 2)), jnp.zeros((2, 3))))
    masked = portrait(zero, Problem(skip.model, SquaredDistance(np.diag([3.0, 2.0]))))
    assert masked.rates is None and masked.laws is None
    assert masked.inertia is not None and (masked.inertia.index, masked.inertia.nullity) == (6, 0)
    assert any("fixed" in note for note in masked.notes)
    alone = portrait(layers(0))
    assert alone.loss is None and alone.rates is not None and "No task" in alone.notes[0]


def test_large_networks_and_bad_weights(seed: int) -> None:
    """Above the limit only the ends of the spectrum are found; the origin of a deep network is flat."""
    problem = Problem(DeepLinear((3, 3, 3, 2)), SquaredDistance(TARGET))
    found = portrait([np.zeros(shape) for shape in problem.model.shapes], problem, largest=10)
    assert found.hessian is not None and not found.hessian.complete and found.inertia is None
    assert np.all(found.hessian.values == 0) and any("extreme eigenvalues" in note for note in found.notes)
    with pytest.raises(ValueError, match=r"portrait: params\[1\] must be finite"):
        portrait([np.eye(2), np.full((2, 2), np.nan)])
    with pytest.raises(ValueError, match=r"portrait: the largest number of params\[0\] must lie between"):
        portrait([1e200 * np.ones((2, 2))] * 2)


def test_numbers_of_a_task_on_inputs_that_are_not_white(seed: int) -> None:
    """3-4-2 on inputs of scales 10, 3, 1 with noise: step, constant and compared singular values by plain NumPy."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 60)) * np.array([[10.0], [3.0], [1.0]])
    y = TARGET @ x / 5 + 0.2 * rng.standard_normal((2, 60))
    first, second = layers(seed, (3, 4, 2))
    found = portrait([first, second], Problem(DeepLinear((3, 4, 2)), Regression.from_data(x, y)))
    least = np.linalg.lstsq(x.T, y.T, rcond=None)[0].T
    values, vectors = np.linalg.eigh(x @ x.T / 60)
    root = (vectors * np.sqrt(values)) @ vectors.T
    assert found.constant == pytest.approx(0.5 * np.sum((least @ x - y) ** 2) / 60, rel=1e-9)
    np.testing.assert_allclose(found.sigma, np.linalg.svd(least @ root, compute_uv=False), rtol=1e-9)
    seen = np.linalg.svd(second @ first @ root, compute_uv=False)
    np.testing.assert_allclose(found.whitened_singular_values, seen, rtol=1e-9)
    # Two balanced layers of the least-squares map: the Hessian on the weights, by Kronecker products.
    left, strengths, right = np.linalg.svd(least)
    below = np.sqrt(strengths)[:, None] * right[:2]
    above = left * np.sqrt(strengths)
    jacobian = np.hstack([np.kron(above, root), np.kron(np.eye(2), root @ below.T)])
    assert found.threshold == pytest.approx(2 / np.linalg.norm(jacobian, 2) ** 2, rel=1e-9)
    text = str(found)
    assert "on whitened inputs" in text and "fits no linear map" in text


def test_a_bottleneck_and_a_task_of_low_rank() -> None:
    """σ = 2, 1, 0 behind one unit: 2/(2σ₁) on white inputs; the rank of the data itself is asked for."""
    target = np.diag([2.0, 1.0, 0.0])
    found = portrait(layers(0, (3, 1, 3)), Problem(DeepLinear((3, 1, 3)), SquaredDistance(target)))
    assert found.threshold == pytest.approx(0.5, rel=1e-12) and found.white
    x = np.diag([1.0, 1.0, 0.0]) @ np.random.default_rng(0).standard_normal((3, 20))
    thin = portrait(layers(0, (3, 1, 3)), Problem(DeepLinear((3, 1, 3)), Regression.from_data(x, target @ x)))
    assert thin.threshold is None and thin.sigma is None and thin.loss is not None
    assert any("full row rank" in note for note in thin.notes)


def test_no_critical_point_is_searched_for_in_a_large_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_portrait, "SEARCHED", 14)
    found = portrait(layers(0), Problem(DeepLinear(WIDTHS), SquaredDistance(TARGET)))
    assert found.place is not None and found.place.kind is KIND.regular and found.nearest is None
    assert any("more than 14 weights; nearest_critical_point looks for one" in note for note in found.notes)


def test_where_the_lowest_eigenvalues_do_not_settle_the_highest_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the minimum of 30-2-2 with σ = 4, 1 the highest is 2σ₁; the search for both ends is made to fail."""

    def highest_only(problem: Problem, params: Any, count: int, which: Any, **settings: Any) -> HessianSpectrum:
        if which == "both":
            raise RuntimeError("hessian_spectrum: no.")
        return hessian_spectrum(problem, params, count, which, **settings)

    first = np.zeros((2, 30))
    first[0, 0], first[1, 1] = 2.0, 1.0
    problem = Problem(DeepLinear((30, 2, 2)), SquaredDistance(np.diag([2.0, 1.0]) @ first))
    both = portrait([first, np.diag([2.0, 1.0])], problem, largest=20)
    assert both.hessian is not None and both.hessian.which == "both" and abs(both.hessian.values[0]) < 1e-9
    monkeypatch.setattr(_portrait, "hessian_spectrum", highest_only)
    found = portrait([first, np.diag([2.0, 1.0])], problem, largest=20)
    assert found.hessian is not None and found.hessian.which == "largest" and len(found.hessian.values) == 6
    assert found.hessian.values[-1] == pytest.approx(8.0, rel=1e-9)
    assert any("lowest and highest eigenvalues of the Hessian were not found" in note for note in found.notes)
    assert plot_portrait(found).axes[-1].get_title() == "curvature, upper end"
