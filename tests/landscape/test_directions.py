"""Pivots and slopes against sums of products written out: a single mode, other units, certificates of no use."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.landscape import Slope, canonical_form, critical_point, is_tightened, pivot_direction
from deeplinear.models import DeepLinear, Problem, SquaredDistance

ROUNDING = 1e-9
"""Hessian forms of order one, relative: a few products and singular vectors."""


def chain(layers: list[np.ndarray]) -> np.ndarray:
    result = layers[0]
    for layer in layers[1:]:
        result = layer @ result
    return result


def curvature(layers: list[np.ndarray], direction: list[np.ndarray], target: np.ndarray) -> float:
    """Second derivative of the loss along a direction: all ways to put it at one layer, and at two."""
    depth = len(layers)
    once, twice = np.zeros_like(target), np.zeros_like(target)
    for i in range(depth):
        once += chain([direction[k] if k == i else layers[k] for k in range(depth)])
    for i, j in itertools.combinations(range(depth), 2):
        twice += chain([direction[k] if k in (i, j) else layers[k] for k in range(depth)])
    return float(np.sum(once**2) - 2 * np.sum(twice * (target - chain(layers))))


def test_a_task_of_one_mode() -> None:
    """Around the origin of two layers of one number the loss is (3 - w v)²/2, with curvature -3 along w = v."""
    pivot = pivot_direction(canonical_form(critical_point([3.0], (1, 1, 1), ()), [3.0]))
    assert pivot is not None
    assert pivot.rayleigh == pytest.approx(-3.0, rel=ROUNDING)
    assert not is_tightened(canonical_form(critical_point([3.0], (1, 1, 1), ()), [3.0]))


def blocks(depth: int, *entries: tuple[int, int, int]) -> list[np.ndarray]:
    """Blocks of a network of widths 4 that has learnt the first mode: ones at (layer, row, column)."""
    fills = [np.zeros((3, 4)), *(np.zeros((3, 3)) for _ in range(depth - 1))]
    for layer, row, column in entries:
        fills[layer - 1][row, column] = 1.0
    return fills


@pytest.mark.parametrize(
    "fills",
    [
        pytest.param(blocks(3, (2, 0, 0)), id="layers 3 and 1, a block between"),
        pytest.param(blocks(3, (1, 0, 3), (3, 0, 1)), id="layers 2 and 1, a block below"),
        pytest.param(blocks(3, (1, 1, 1), (3, 2, 0)), id="layers 3 and 2, a block above"),
        pytest.param(blocks(4, (1, 0, 1), (3, 0, 0), (4, 2, 0)), id="layers 4 and 2, with a price in the product"),
    ],
)
@pytest.mark.parametrize("unit", [1e-10, 1.0, 1e10])
def test_pivots_in_other_units(fills: list[np.ndarray], unit: float) -> None:
    """Layers c times as large have c^(2L - 2) times the curvature, and the direction has the curvature told."""
    depth, sigma = len(fills), np.array([4.0, 3.0, 2.0, 1.0])
    layers = [np.asarray(w) for w in critical_point(sigma, (4,) * (depth + 1), (1,), fills)]
    at_one = pivot_direction(canonical_form(layers, sigma))
    scaled = [unit * w for w in layers]
    pivot = pivot_direction(canonical_form(scaled, unit**depth * sigma))
    assert at_one is not None
    assert pivot is not None
    assert pivot.indices == at_one.indices
    power = unit ** (2 * depth - 2)
    assert pivot.rayleigh / power == pytest.approx(at_one.rayleigh, rel=ROUNDING)
    direction = [np.asarray(v) for v in pivot.layers]
    length = np.sqrt(sum(np.sum(v**2) for v in direction))
    direction = [v / length for v in direction]
    measured = curvature(scaled, direction, unit**depth * np.diag(sigma))
    assert measured / power == pytest.approx(at_one.rayleigh, rel=ROUNDING)
    assert measured < 0


def test_a_slope_that_rises_proves_nothing() -> None:
    """A direction along which the loss rises, with its true derivative, is no certificate of a fall."""
    problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.zeros((2, 2))))
    params = (jnp.full((2, 2), 0.25),)
    fall = Slope((jnp.full((2, 2), -0.5),), -0.5)
    assert fall.verify(problem, params).holds
    rise = Slope((jnp.full((2, 2), 0.5),), 0.5)
    found = rise.verify(problem, params)
    assert found.measured["slope"] == pytest.approx(0.5, rel=1e-14)
    assert not found.holds
