"""Conservation laws, their number, and the norm of the layers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import (
    LawCounts,
    equal_weights,
    generic_independent_laws,
    law_counts,
    law_differentials,
    minimal_norm,
    norm_rate,
)
from deeplinear.models import Balanced, Completion, DeepLinear, Problem, SquaredDistance

COUNTS = {
    (1, 1, 1): (1, 1),
    (1, 2, 1): (3, 3),
    (1, 3, 1): (6, 5),
    (1, 4, 1): (10, 7),
    (1, 6, 1): (21, 11),
    (3, 7, 2): (28, 25),
    (2, 4, 2): (10, 10),
    (11, 6, 6, 6, 6, 4): (84, 84),
}
"""Listed and independent laws, measured elsewhere by the rank of the differential."""


def layers_of(seed: int, widths: tuple[int, ...], scale: float = 1.0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(scale * rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))


@pytest.mark.covers("network:F7", "network:C8", "network:E20")
def test_numbers_of_laws() -> None:
    for widths, wanted in COUNTS.items():
        assert law_counts(layers_of(0, widths)) == LawCounts(*wanted), widths
        if len(widths) == 3:
            assert generic_independent_laws(widths) == wanted[1]
    assert law_counts((np.zeros((3, 1)), np.zeros((1, 3)))) == (6, 0)
    assert law_counts((np.ones((3, 2)),)) == (0, 0)
    # Whatever the scale of the layers.
    assert law_counts(layers_of(1, (3, 7, 2), 1e-6)) == (28, 25)


@pytest.mark.covers("network:E7", "network:N1")
def test_laws_of_two_hidden_nodes_depend_where_the_layers_are_parallel() -> None:
    first, second = np.array([[1.0], [2.0]]), np.array([[0.5, -1.0]])
    assert law_counts((first, second)).independent == 3
    assert law_counts((first, -0.3 * first.T)).independent == 2
    assert law_counts((first, 0 * second)).independent == 2
    assert law_counts((0 * first, second)).independent == 2
    assert law_counts((0 * first, 0 * second)).independent == 0
    assert law_counts((np.array([[1.0, 2, 0], [0, 1, 1]]), np.array([[1.0, -1], [0.5, 0]]))) == (3, 3)


@pytest.mark.covers("network:C47")
def test_differentials_are_those_of_the_laws(seed: int) -> None:
    """Central differences, and no speed of any loss of the product along them."""
    layers = layers_of(seed, (3, 2, 3, 2))
    params = tuple(map(jnp.asarray, layers))
    found = np.asarray(jax.jit(law_differentials)(params))
    flat = np.concatenate([w.ravel() for w in layers])
    cuts = np.cumsum([w.size for w in layers])[:-1]

    def laws(vector: np.ndarray) -> np.ndarray:
        w = [p.reshape(m.shape) for p, m in zip(np.split(vector, cuts), layers, strict=True)]
        both = [b.T @ b - a @ a.T for a, b in itertools.pairwise(w)]
        return np.concatenate([c[np.triu_indices(len(c))] for c in both])

    wanted = np.stack([(laws(flat + 1e-3 * e) - laws(flat - 1e-3 * e)) / 2e-3 for e in np.eye(len(flat))], axis=1)
    np.testing.assert_allclose(found, wanted, atol=1e-11)  # quadratic: differences are exact but for rounding
    model = DeepLinear((3, 2, 3, 2))
    rng = np.random.default_rng(seed)
    seen = Completion(rng.standard_normal((2, 3)), [[1, 0, 1], [0, 1, 0]])
    for loss in (SquaredDistance(rng.standard_normal((2, 3))), seen):
        gradient = jax.jit(Problem.gradient)(Problem(model, loss), params)
        speed = np.concatenate([np.asarray(g).ravel() for g in gradient])
        np.testing.assert_allclose(found @ speed, 0, atol=1e-12 * np.abs(found).max() * np.abs(speed).max() * len(flat))


@pytest.mark.covers("network:F13", "network:C12")
def test_rate_of_the_norm(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = layers_of(seed, (3, 2, 3, 2))
    target = rng.standard_normal((2, 3))
    model, params = DeepLinear((3, 2, 3, 2)), tuple(map(jnp.asarray, layers))
    product = np.linalg.multi_dot(layers[::-1])
    wanted = 2 * 3 * np.sum((target - product) * product)
    np.testing.assert_allclose(norm_rate(Problem(model, SquaredDistance(target)), params), wanted, rtol=1e-11)
    for problem in (
        Problem(model, SquaredDistance(target), 0.3),
        Problem(model, Completion(target, np.eye(2, 3)), 0.1),
    ):
        plain = -2 * sum(np.sum(w * np.asarray(g)) for w, g in zip(layers, problem.gradient(params), strict=True))
        np.testing.assert_allclose(norm_rate(problem, params), plain, rtol=1e-11)


@pytest.mark.covers("network:F13", "network:C12")
def test_norm_rests_where_the_flow_does_not() -> None:
    for sigma, widths in (([3.0, 1.0], (2, 3, 3, 2)), ([2.0, 2.0], (3, 3, 3, 2))):
        params = equal_weights(sigma, widths)
        weight = (sum(sigma) / np.prod(widths)) ** (1 / 3)
        np.testing.assert_allclose(params[1], np.full((3, 3), weight), rtol=1e-14)
        target = np.zeros((widths[-1], widths[0]))
        np.fill_diagonal(target, sigma)
        problem = Problem(DeepLinear(widths), SquaredDistance(target))
        assert abs(float(norm_rate(problem, params))) < 1e-11
        assert max(float(jnp.max(jnp.abs(g))) for g in problem.gradient(params)) > 0.1
    with pytest.raises(HypothesisError, match="the point is critical"):
        equal_weights([2.0, 2.0], (2, 3, 2))
    with pytest.raises(ValueError, match="positive sum"):
        equal_weights([1.0, -2.0], (2, 3, 2))
    with pytest.raises(ValueError, match=r"sigma must have shape \(2\)"):
        equal_weights([1.0, 2.0, 3.0], (3, 3, 2))


def test_least_norm_is_that_of_balanced_layers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    product = rng.standard_normal((2, 3))
    model = DeepLinear((3, 2, 3, 2))
    least = float(minimal_norm(jnp.asarray(product), 3))
    balanced = Balanced(product, rotate=True)(model, jax.random.key(seed))
    np.testing.assert_allclose(sum(np.sum(np.asarray(w) ** 2) for w in balanced), least, rtol=1e-12)
    first, second, third = (np.asarray(w) for w in balanced)
    gauge = np.eye(2) + 0.3 * rng.standard_normal((2, 2))
    other = (gauge @ first, second @ np.linalg.inv(gauge), third)
    np.testing.assert_allclose(np.linalg.multi_dot(other[::-1]), product, atol=1e-12)
    assert sum(np.sum(w**2) for w in other) > least + 1e-6


def test_what_has_no_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="must name two layers"):
        generic_independent_laws((2, 2, 2, 2))
    with pytest.raises(ValueError, match=r"params\[1\] must have shape"):
        law_counts((np.ones((2, 2)), np.ones((2, 3))))
    with pytest.raises(ValueError, match="tolerance must be greater than 0"):
        law_counts((np.ones((2, 2)),), tolerance=0.0)
    with pytest.raises(ValueError, match="depth must be at least 1"):
        minimal_norm(jnp.eye(2), 0)
    with pytest.raises(ValueError, match="layer shapes"):
        norm_rate(Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2))), (jnp.ones((2, 3)),))
