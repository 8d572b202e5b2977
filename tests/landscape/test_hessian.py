"""The Hessian against automatic differentiation, recorded values, and what it must be at known points."""

import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError, Params, flatten, unflatten
from deeplinear.landscape import (
    balanced_spectrum,
    hessian_form,
    hessian_matrix,
    hessian_spectrum,
    inertia,
    layer_curvature,
    tangent_spaces,
)
from deeplinear.models import Completion, DeepLinear, Energy, Masked, Problem, SquaredDistance, skip_network

WIDTHS = (4, 3, 3, 2)
LARGE = (11, 6, 6, 6, 6, 4)
ROUNDING = 1e-12
"""Sums of products of numbers of order one."""
TWELVE = 1e-11
"""Values that are recorded to twelve digits."""

ALLOWED = 5e6
"""Floating-point operations for a dense Hessian of 198 weights, some milliseconds on one core. The compiler counts
them: seconds would depend on the machine and on who else uses it."""

EXAMPLE = (jnp.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]]), jnp.array([[1.0, -1.0], [0.5, 0.0]]))
TASK = Problem(DeepLinear((3, 2, 2)), SquaredDistance(np.diag([2.0, 1.0]) @ np.eye(2, 3)))


def _draw(seed: int, widths: tuple[int, ...] = WIDTHS, scale: float = 1.0) -> tuple[jax.Array, ...]:
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(scale * rng.standard_normal((out, inp))) for inp, out in itertools.pairwise(widths))


def _cosh(product: jax.Array) -> jax.Array:
    return jnp.sum(jnp.log(jnp.cosh(product - 0.3)))


@eqx.filter_jit
def _differentiated(problem: Problem, flat: jax.Array) -> jax.Array:
    return jax.hessian(lambda y: problem.value(unflatten(y, problem.model.shapes)))(flat)


@eqx.filter_jit
def _along(problem: Problem, params: Params, direction: Params) -> tuple[Params, jax.Array]:
    return problem.hessian_product(params, direction), hessian_form(problem, params, direction)


def operations(function: Callable[[Params], jax.Array], params: Params) -> float:
    """Floating-point operations of a function, as counted in the program that is handed to the compiler."""
    counted = jax.jit(function).lower(params).cost_analysis()
    assert isinstance(counted, dict)
    return counted["flops"]


@pytest.mark.covers("network:N1")
def test_recorded_values() -> None:
    found = hessian_spectrum(TASK, EXAMPLE)
    assert abs(found.values[0] + 1.13283479995) < TWELVE
    assert abs(found.values[-1] - 8.51005785547) < TWELVE
    assert found.method == "dense" and found.complete and found.residuals.max() < ROUNDING
    assert "-1.1328348" in str(found) and found.to_json()["size"] == 10
    kernel = [0.117217781463, 1.117217781463, 2.132782218537, 3.132782218537, 6.117217781463, 8.132782218537]
    np.testing.assert_allclose(np.linalg.eigvalsh(TASK.model.ntk(EXAMPLE)), kernel, rtol=0, atol=TWELVE)
    np.testing.assert_allclose(TASK.value(EXAMPLE), 1.625, rtol=ROUNDING)
    speeds = [[[0.75, -1, 1], [-1, 1, -1]], [[-1, 0], [-0.5, 0]]]
    for gradient, speed in zip(TASK.gradient(EXAMPLE), speeds, strict=True):
        np.testing.assert_allclose(-gradient, speed, rtol=0, atol=ROUNDING)


@pytest.mark.covers("network:F9", "network:F8")
def test_matrix_is_that_of_automatic_differentiation(seed: int) -> None:
    """For a square, a masked and a non-quadratic loss, with a penalty; products and form agree with it."""
    rng = np.random.default_rng(seed)
    target = rng.standard_normal((2, 4))
    losses = (SquaredDistance(target), Completion(target, target > 0), Energy(_cosh))
    params, direction = _draw(seed), _draw(seed + 100)
    flat = np.asarray(flatten(direction))
    for loss in losses:
        problem = Problem(DeepLinear(WIDTHS), loss, 0.2)
        wanted = _differentiated(problem, flatten(params))
        found = hessian_matrix(problem, params)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(found, np.asarray(found).T)
        moved, form = _along(problem, params, direction)
        np.testing.assert_allclose(flatten(moved), wanted @ flat, rtol=0, atol=1e-10)
        np.testing.assert_allclose(form, flat @ wanted @ flat, rtol=1e-10)


def test_fixed_weights_have_no_curvature(seed: int) -> None:
    """Of networks with fixed weights, also one within another, with a penalty."""
    rng = np.random.default_rng(seed)
    inside = DeepLinear(WIDTHS)
    values = [rng.standard_normal(shape) for shape in inside.shapes]
    first, second = ([rng.random(shape) < 0.7 for shape in inside.shapes] for _ in range(2))
    once = Masked(inside, first, values)
    for model in (once, Masked(once, second, values)):
        problem = Problem(model, SquaredDistance(rng.standard_normal((2, 4))), 0.2)
        params = model.complete(_draw(seed))
        found = hessian_matrix(problem, params)
        np.testing.assert_allclose(found, _differentiated(problem, flatten(params)), rtol=0, atol=1e-10)
        fixed = ~np.concatenate([np.ravel(mask) for mask in model.masks])
        np.testing.assert_array_equal(found[fixed], 0.2 * np.eye(len(fixed))[fixed])


@pytest.mark.covers("network:F9")
def test_large_networks(seed: int) -> None:
    """198 weights: fast and dense; extreme eigenvalues by products alone agree with all of them."""
    params = _draw(seed, LARGE, 0.5)
    problem = Problem(DeepLinear(LARGE), SquaredDistance(np.diag([10.0, 8.0, 6.0, 4.0]) @ np.eye(4, 11)))
    dense = np.asarray(hessian_matrix(problem, params))
    np.testing.assert_allclose(dense, eqx.filter_jit(Problem.hessian)(problem, params), rtol=0, atol=1e-10)
    assert operations(lambda layers: hessian_matrix(problem, layers), params) < ALLOWED
    values = np.linalg.eigvalsh(dense)
    whole = hessian_spectrum(problem, params)
    np.testing.assert_allclose(whole.values, values, rtol=0, atol=ROUNDING * values[-1])
    for which, kept in (("both", [0, 1, -2, -1]), ("smallest", [0, 1, 2, 3]), ("largest", [-4, -3, -2, -1])):
        few = hessian_spectrum(problem, params, 4, which, method="lanczos")
        assert few.method == "lanczos" and not few.complete
        np.testing.assert_allclose(few.values, values[kept], rtol=0, atol=1e-10 * values[-1])
        np.testing.assert_allclose(hessian_spectrum(problem, params, 4, which).values, values[kept], rtol=1e-9)
        assert few.residuals.max() < 1e-10 * values[-1]
        ends = {"both": ["lowest 2", "highest 2"], "smallest": ["lowest 4"], "largest": ["highest 4"]}[which]
        assert [label for label, _ in few.rows()][1:-1] == ends
    lowest = few.direction(-1)
    form = float(hessian_form(problem, params, lowest))
    assert abs(form - values[-1]) < 1e-10 * values[-1]
    with pytest.raises(RuntimeError, match=r"found \d+ of 6 eigenvalues in 1 restarts"):
        hessian_spectrum(problem, params, 6, "smallest", method="lanczos", max_iterations=1)
    # At the origin of five layers the Hessian is zero: there is nothing to iterate on.
    origin = tuple(jnp.zeros_like(layer) for layer in params)
    nothing = hessian_spectrum(problem, origin, 4, method="lanczos")
    assert not nothing.values.any() and not nothing.residuals.any()
    np.testing.assert_array_equal(nothing.vectors.T @ nothing.vectors, np.eye(4))
    assert nothing.rows()[1] == ("lowest 4", "from 0 to 0")


def test_breakdowns_are_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.sparse.linalg

    def breaks(*args, **kwargs):
        raise scipy.sparse.linalg.ArpackError(-9)

    monkeypatch.setattr(scipy.sparse.linalg, "eigsh", breaks)
    with pytest.raises(RuntimeError, match=r"Lanczos' method broke down \(ARPACK error -9.*raise largest"):
        hessian_spectrum(TASK, EXAMPLE, 2, method="lanczos")


def test_fixed_weights_are_no_directions() -> None:
    """A skip past two layers adds the identity: at zero the Hessian is that of the residual, ±(σ - 1), three times."""
    skip = skip_network((2, 3, 2), 0, 2)
    problem = Problem(skip.model, SquaredDistance(np.diag([3.0, 2.0])))
    params = skip.embed((jnp.zeros((3, 2)), jnp.zeros((2, 3))))
    wanted = np.repeat([-2.0, -1.0, 1.0, 2.0], 3)
    found = hessian_spectrum(problem, params)
    np.testing.assert_allclose(found.values, wanted, atol=ROUNDING)
    assert found.complete and found.size == 12 and found.vectors.shape == (20, 12)
    few = hessian_spectrum(problem, params, 4, method="lanczos")
    np.testing.assert_allclose(few.values, wanted[:4], atol=1e-9)
    fixed = ~np.concatenate([np.asarray(mask).ravel() for mask in skip.model.masks])
    assert fixed.sum() == 8 and not found.vectors[fixed].any() and not few.vectors[fixed].any()
    counts = inertia(problem, params)
    assert (counts.index, counts.nullity, counts.positive) == (6, 0, 6)
    assert counts.rows()[1] == ("zero", "0") and "no eigenvalue within it" in str(counts)
    spaces = tangent_spaces(problem, params)
    assert (spaces.stable.shape, spaces.centre.shape, spaces.unstable.shape) == ((20, 6), (20, 0), (20, 6))
    curved = layer_curvature(problem, params)
    assert curved.largest == (0.0, 0.0) and curved.shares is not None
    np.testing.assert_allclose(curved.shares, [0.5, 0.5], atol=ROUNDING)


def test_counts_and_spaces_at_a_minimum_and_at_the_origin() -> None:
    """Balanced minimum of 4-3-3-2, σ = (2, 1): N − d₀d_L = 19 zeros. Two layers at the origin: ±σ."""
    sigma, depth = np.array([2.0, 1.0]), 3
    root = np.diag(sigma ** (1 / depth))
    layers = (np.eye(3, 2) @ root @ np.eye(2, 4), np.pad(root, (0, 1)), root @ np.eye(2, 3))
    problem = Problem(DeepLinear(WIDTHS), SquaredDistance(np.diag(sigma) @ np.eye(2, 4)))
    params = tuple(jnp.asarray(layer) for layer in layers)
    counts = inertia(problem, params)
    assert (counts.index, counts.nullity, counts.positive) == (0, 27 - 8, 8)
    assert counts.gap > 1e12 and "19" in str(counts)
    assert counts.rows()[0] == ("negative", "0") and "inf" not in str(counts)
    formula = balanced_spectrum(sigma, 4, depth)
    assert abs(counts.largest - float(formula[-1])) < ROUNDING * counts.largest
    assert counts.above == pytest.approx(float(formula[0]), rel=1e-10)
    spaces = tangent_spaces(problem, params)
    assert spaces.stable.shape == (27, 8) and spaces.centre.shape == (27, 19) and spaces.unstable.shape == (27, 0)
    # The centre is tangent to the minima: the product does not move along it.
    for column in range(19):
        move = spaces.direction("centre", column)
        moved = layers[2] @ layers[1] @ move[0] + layers[2] @ move[1] @ layers[0] + move[2] @ layers[1] @ layers[0]
        np.testing.assert_allclose(moved, 0, atol=1e-10)

    square = Problem(DeepLinear((2, 3, 2)), SquaredDistance(np.diag(sigma)))
    origin = (jnp.zeros((3, 2)), jnp.zeros((2, 3)))
    saddle = tangent_spaces(square, origin)
    np.testing.assert_allclose(np.sort(saddle.rates), np.repeat([1.0, 2.0], 3), rtol=ROUNDING)
    assert saddle.inertia.nullity == 0 and saddle.to_json()["unstable"] == 6 and "rate 2" in str(saddle)
    curved = layer_curvature(square, origin)
    assert curved.smallest == (0.0, 0.0) and curved.largest == (0.0, 0.0)
    assert curved.shares is not None
    np.testing.assert_allclose(curved.shares, [0.5, 0.5], atol=ROUNDING)
    assert "50.0% of the way down" in str(curved)


def test_layers_alone_are_convex(seed: int) -> None:
    """The block of layer j is (LᵀL) ⊗ (RRᵀ): extremes are products of extremes of the two."""
    params = _draw(seed)
    problem = Problem(DeepLinear(WIDTHS), SquaredDistance(np.eye(2, 4)))
    found = layer_curvature(problem, params)
    first, second, third = (np.asarray(w) for w in params)
    pairs = [(third @ second, np.eye(4)), (third, first), (np.eye(2), second @ first)]
    for j, (left, right) in enumerate(pairs):
        outer, inner = np.linalg.eigvalsh(left.T @ left), np.linalg.eigvalsh(right @ right.T)
        assert abs(found.largest[j] - outer[-1] * inner[-1]) < ROUNDING * found.whole[1]
        assert abs(found.smallest[j] - max(outer[0], 0) * max(inner[0], 0)) < ROUNDING * found.whole[1]
    assert found.shares is None or abs(sum(found.shares) - 1) < ROUNDING
    minimum = layer_curvature(problem, (jnp.eye(3, 4), jnp.eye(3), jnp.eye(2, 3)))
    assert minimum.shares is None and "way down" not in str(minimum)


def test_refusals(seed: int) -> None:
    params = _draw(seed)
    problem = Problem(DeepLinear(WIDTHS), SquaredDistance(np.eye(2, 4)))
    with pytest.raises(ValueError, match=r"at most 26 weights .* but there are 27.*largest=27 to agree"):
        hessian_matrix(problem, params, largest=26)
    with pytest.raises(ValueError, match="Lanczos' method gives fewer than all"):
        hessian_spectrum(problem, params, largest=26)
    with pytest.raises(ValueError, match="inertia: there must be at most 26"):
        inertia(problem, params, largest=26)
    with pytest.raises(HypothesisError, match="critical point") as refused:
        tangent_spaces(problem, params)
    gradient = np.sqrt(sum(float(jnp.sum(g**2)) for g in problem.gradient(params)))
    assert abs(refused.value.residual - gradient) < ROUNDING * gradient
    with pytest.raises(ValueError, match="params must have layer shapes"):
        hessian_matrix(problem, params[:2])
    with pytest.raises(ValueError, match="must be finite"):
        hessian_matrix(problem, (params[0] * jnp.nan, *params[1:]))


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_iteration_finds_the_eigenvalue_zero_of_a_minimum(scale: float) -> None:
    """At the balanced minimum of 30-2-2 with σ = 4, 1: 0 four times, 1 and 4 with multiplicity, 2, 5, 5 and 8."""
    first = np.zeros((2, 30))
    first[0, 0], first[1, 1] = 2.0, 1.0
    layers = tuple(jnp.asarray(scale * w) for w in (first, np.diag([2.0, 1.0])))
    problem = Problem(DeepLinear((30, 2, 2)), SquaredDistance(layers[1] @ layers[0]))
    lowest = hessian_spectrum(problem, layers, 1, method="lanczos").values
    ends = hessian_spectrum(problem, layers, 12, "both", method="lanczos").values
    np.testing.assert_allclose(lowest / scale**2, [0.0], atol=1e-9)
    np.testing.assert_allclose(ends[[0, -3, -2, -1]] / scale**2, [0.0, 5.0, 5.0, 8.0], atol=1e-9)
