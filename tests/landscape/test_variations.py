"""The loss on a line against plain sums, evaluated losses and other losses than the square distance."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.landscape import first_descent_order, line_polynomial, variations
from deeplinear.models import (
    Completion,
    DeepLinear,
    Energy,
    EntryCompletion,
    Problem,
    Regression,
    SampleRegression,
    Sensing,
    SquaredDistance,
)

WIDTHS = (4, 3, 3, 2)
ROUNDING = 1e-12
"""A few products of matrices with entries of order one."""


def _draw(seed: int, widths: tuple[int, ...] = WIDTHS) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(rng.standard_normal((out, inp))) for inp, out in itertools.pairwise(widths))


@pytest.mark.covers("network:F8")
def test_variations_are_sums_over_subsets(seed: int) -> None:
    params, direction = _draw(seed), _draw(seed + 100)
    found = variations(params, direction)
    assert len(found) == len(params) + 1
    for k, rho in enumerate(found):
        wanted = np.zeros((2, 4))
        for chosen in itertools.combinations(range(3), k):
            layers = [np.asarray(direction[i] if i in chosen else params[i]) for i in range(3)]
            wanted += layers[2] @ layers[1] @ layers[0]
        np.testing.assert_allclose(rho, wanted, rtol=0, atol=ROUNDING)


@pytest.mark.covers("network:F8")
def test_polynomial_is_the_loss_for_every_quadratic_loss(seed: int) -> None:
    """The loss itself, evaluated far from the point, is the oracle: nothing of the polynomial enters it."""
    rng = np.random.default_rng(seed)
    target, mask = rng.standard_normal((2, 4)), np.array([[1, 0, 1, 1], [0, 1, 1, 0]])
    rows, columns = np.nonzero(mask)
    x, y = rng.standard_normal((4, 6)), rng.standard_normal((2, 6))
    losses = [
        SquaredDistance(target),
        Regression.from_data(x, y),
        SampleRegression(x, y),
        Completion(target, mask),
        EntryCompletion(rows, columns, target[rows, columns], (2, 4)),
        Sensing(rng.standard_normal((5, 2, 4)), rng.standard_normal(5)),
    ]
    params, direction = _draw(seed), _draw(seed + 100)
    polynomial, value = eqx.filter_jit(line_polynomial), eqx.filter_jit(Problem.value)
    for loss in losses:
        problem = Problem(DeepLinear(WIDTHS), loss, 0.3)
        coefficients = np.asarray(polynomial(problem, params, direction))
        assert coefficients.shape == (7,)
        for step in (-1.0, 0.5, 2.0):
            moved = tuple(w + step * v for w, v in zip(params, direction, strict=True))
            wanted = float(value(problem, moved))
            found = np.polynomial.polynomial.polyval(step, coefficients)
            size = np.polynomial.polynomial.polyval(abs(step), np.abs(coefficients))
            assert abs(found - wanted) < ROUNDING * size, type(loss)


def test_first_order_tells_saddles_that_the_hessian_does_not(seed: int) -> None:
    problem = Problem(DeepLinear(WIDTHS), SquaredDistance(np.eye(2, 4)))
    direction = _draw(seed)
    origin = tuple(jnp.zeros_like(w) for w in direction)
    end = float(jnp.trace((direction[2] @ direction[1] @ direction[0])[:, :2]))
    found = first_descent_order(problem, origin, direction)
    assert found.order == 3 and found.descends and found.sign == -np.sign(end)
    assert abs(found.coefficient + end) < ROUNDING * max(1.0, abs(end))
    assert f"{found.coefficient:.6g} ε^3" in str(found) and found.to_json()["order"] == 3
    # A single layer moves nothing at the origin; away from a critical point the slope is first.
    alone = (direction[0], origin[1], origin[2])
    still = first_descent_order(problem, origin, alone)
    assert still.order is None and not still.descends and still.sign == 0 and "constant" in str(still)
    assert first_descent_order(problem, direction, _draw(seed + 1)).order == 1
    # At a minimum the loss rises in second order, or not at all along the fibre.
    balanced = (jnp.eye(3, 4), jnp.eye(3), jnp.eye(2, 3))
    rising = first_descent_order(problem, balanced, direction)
    assert rising.order == 2 and rising.sign == 1 and not rising.descends and "rises" in str(rising)
    # Rounding is not taken for a slope.
    turned = jnp.linalg.qr(jax.random.normal(jax.random.key(seed), (3, 3)))[0]
    gauged = (turned @ balanced[0], balanced[1] @ turned.T, balanced[2])
    assert first_descent_order(problem, gauged, direction).order == 2


def test_refusals(seed: int) -> None:
    params = _draw(seed)
    square = Problem(DeepLinear(WIDTHS), SquaredDistance(np.eye(2, 4)))
    with pytest.raises(TypeError, match=r"quadratic in the product .* but is Energy"):
        line_polynomial(Problem(DeepLinear(WIDTHS), Energy(jnp.sum)), params, params)
    with pytest.raises(ValueError, match="direction must have layer shapes"):
        line_polynomial(square, params, params[:2])
    with pytest.raises(ValueError, match=r"params\[1\] must have shape \(any, 3\)"):
        variations((params[0], params[0]), (params[0], params[0]))
    with pytest.raises(ValueError, match="direction must not be zero"):
        first_descent_order(square, params, tuple(0 * w for w in params))
    with pytest.raises(TypeError, match="problem must be a Problem"):
        unchecked(line_polynomial)(3, params, params)
