"""The largest stable step at balanced minima: against dense Hessians and runs of descent, white inputs or not."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import descent_threshold
from deeplinear.models import DeepLinear, Problem, Regression, SampleRegression, SquaredDistance

AGREEMENT = 1e-9
"""Two eigenvalue problems of small matrices of moderate condition."""

SAMPLES = 40


def draw(seed: int, widths: tuple[int, ...], scales: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Inputs of given scales, and outputs of a noisy linear map."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((widths[0], SAMPLES)) * np.asarray(scales)[:, None]
    noise = 0.3 * rng.standard_normal((widths[-1], SAMPLES))
    return x, rng.standard_normal((widths[-1], widths[0])) @ x / max(scales) + noise


def balanced_minimum(widths: tuple[int, ...], x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """Balanced layers of the least-squares map of the rank that the widths carry, by plain NumPy."""
    rank, depth = min(widths), len(widths) - 1
    values, vectors = np.linalg.eigh(x @ x.T / SAMPLES)
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    left, strengths, right = np.linalg.svd(y @ x.T / SAMPLES @ inverse)
    best = (left[:, :rank] * strengths[:rank]) @ right[:rank] @ inverse
    left, strengths, right = np.linalg.svd(best)
    layers = [np.zeros((out, inp)) for inp, out in itertools.pairwise(widths)]
    for layer in layers:
        layer[range(rank), range(rank)] = strengths[:rank] ** (1 / depth)
    layers[0], layers[-1] = layers[0] @ right, left @ layers[-1]
    return layers


def steepest(layers: list[np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    """Largest eigenvalue of the dense Hessian of half the mean squared error, at a point without gradient."""

    def loss(weights: jax.Array) -> jax.Array:
        product, taken = jnp.asarray(x), 0
        for layer in layers:
            product = weights[taken : taken + layer.size].reshape(layer.shape) @ product
            taken += layer.size
        return 0.5 * jnp.sum((product - y) ** 2) / SAMPLES

    point = jnp.concatenate([jnp.asarray(layer).ravel() for layer in layers])
    assert float(jnp.max(jnp.abs(jax.grad(loss)(point)))) < 1e-9
    return float(np.linalg.eigvalsh(np.asarray(jax.hessian(loss)(point)))[-1])


@pytest.mark.parametrize(
    ("widths", "scales"), [((3, 4, 2), (10.0, 3.0, 1.0)), ((4, 3, 2, 3), (3.0, 2.0, 1.0, 1.0))], ids=["full", "narrow"]
)
def test_threshold_of_inputs_that_are_not_white(seed: int, widths: tuple[int, ...], scales: tuple[float, ...]) -> None:
    x, y = draw(seed, widths, scales)
    right = 2 / steepest(balanced_minimum(widths, x, y), x, y)
    for loss in (Regression.from_data(x, y), SampleRegression(x, y)):
        found = float(descent_threshold(Problem(DeepLinear(widths), loss)))
        assert abs(found - right) < AGREEMENT * right


def test_descent_settles_below_the_threshold_and_not_above(seed: int) -> None:
    """From just beside the balanced minimum of 3-4-2 on inputs of scales 10, 3, 1; plain NumPy."""
    widths = (3, 4, 2)
    x, y = draw(seed, widths, (10.0, 3.0, 1.0))
    problem = Problem(DeepLinear(widths), Regression.from_data(x, y))
    threshold = float(descent_threshold(problem))
    minimum = balanced_minimum(widths, x, y)
    least = 0.5 * np.sum((minimum[1] @ minimum[0] @ x - y) ** 2) / SAMPLES
    rng = np.random.default_rng(seed)
    beside = [w + 1e-5 * rng.standard_normal(w.shape) for w in minimum]
    ends = []
    for share in (0.98, 1.02):
        first, second = beside
        for _ in range(400):
            error = (second @ first @ x - y) @ x.T / SAMPLES
            first, second = (
                first - share * threshold * second.T @ error,
                second - share * threshold * error @ first.T,
            )
        ends.append(0.5 * np.sum((second @ first @ x - y) ** 2) / SAMPLES - least)
    start = 0.5 * np.sum((beside[1] @ beside[0] @ x - y) ** 2) / SAMPLES - least
    assert ends[0] < start < ends[1]


@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_a_bottleneck_under_white_inputs_keeps_the_formula(scale: float) -> None:
    """Covariance c = scale², target of singular values 3, 2, 1 and one hidden unit or two: c L s₁^(2-2/L)."""
    target = np.diag([3.0, 2.0, 1.0])
    for widths in ((3, 1, 3), (3, 2, 4, 3)):
        depth = len(widths) - 1
        loss = Regression(scale**2 * np.eye(3), scale**2 * target)
        found = float(descent_threshold(Problem(DeepLinear(widths), loss)))
        assert found == pytest.approx(2 / (scale**2 * depth * 3.0 ** (2 - 2 / depth)), rel=1e-12)


def test_refusals_of_a_threshold() -> None:
    flat = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.zeros((2, 2))))
    assert np.isinf(float(descent_threshold(flat)))
    # Equal strengths on both sides of the cut: σ = 2, 2 on whitened inputs.
    tied = Regression(np.diag([4.0, 1.0]), np.diag([4.0, 2.0]))
    with pytest.raises(HypothesisError, match="strengths 1 and 2 of the task differ"):
        descent_threshold(Problem(DeepLinear((2, 1, 2)), tied))
    with pytest.raises(HypothesisError, match="full row rank"):
        descent_threshold(Problem(DeepLinear((2, 2, 2)), SampleRegression(np.ones((2, 5)), np.ones((2, 5)))))
    with pytest.raises(ValueError, match="depth must be that of the network, 2"):
        descent_threshold(flat, 3)
