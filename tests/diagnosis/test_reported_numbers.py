"""Every number of a diagnosis on inputs that are not white, bottlenecks and tasks of less than full rank, by hand."""

import itertools
import math

import numpy as np
import pytest

from deeplinear.diagnosis import STANDING, Diagnosis, Finding, diagnose
from deeplinear.models import DeepLinear, Problem, Regression, SquaredDistance

FLAT = 1e-6  # what finite differences of second order leave of curvatures of order 100


def line(found: Diagnosis, words: str) -> Finding:
    """The finding of this statement, or the only one that has these words in it."""
    exact = [finding for finding in found.findings if finding.statement == words]
    (one,) = exact or [finding for finding in found.findings if words in finding.statement]
    return one


def hessian(loss, point: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """Second derivatives of a polynomial by central differences."""
    directions = step * np.eye(len(point))
    signs = [(a, b) for a in (1, -1) for b in (1, -1)]
    rows = [
        [sum(a * b * loss(point + a * u + b * v) for a, b in signs) / (4 * step**2) for v in directions]
        for u in directions
    ]
    return np.array(rows)


@pytest.mark.parametrize("widths", [(3, 4, 2), (3, 1, 2)])
def test_numbers_on_inputs_that_are_not_white(widths: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((3, 50)) * np.array([[10.0], [3.0], [1.0]])
    Y = rng.standard_normal((2, 3)) @ X + rng.standard_normal((2, 50))
    layers = [0.3 * rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths)]
    found = diagnose(Problem(DeepLinear(widths), Regression.from_data(X, Y)), tuple(layers), theorems=False)

    def unpack(point: np.ndarray) -> list[np.ndarray]:
        first = layers[0].size
        return [point[:first].reshape(layers[0].shape), point[first:].reshape(layers[1].shape)]

    def loss(point: np.ndarray) -> float:
        first, last = unpack(point)
        return 0.5 * float(np.sum((last @ first @ X - Y) ** 2)) / X.shape[1]

    point = np.concatenate([layer.ravel() for layer in layers])
    residual = (layers[1] @ layers[0] @ X - Y) @ X.T / X.shape[1]
    slope = math.hypot(np.linalg.norm(layers[1].T @ residual), np.linalg.norm(residual @ layers[0].T))
    assert line(found, "loss").value == pytest.approx(loss(point), rel=1e-12)
    assert line(found, "norm of the gradient").value == pytest.approx(slope, rel=1e-12)
    # The best map and what is left of it; the modes of the task are those of what it writes.
    best = np.linalg.lstsq(X.T, Y.T)[0].T @ X / math.sqrt(X.shape[1])
    sigma = np.linalg.svd(best, compute_uv=False)[:2]
    rest = 0.5 * (np.sum(Y**2) / X.shape[1] - np.sum(sigma**2))
    strengths = line(found, "strengths of the modes").value
    np.testing.assert_allclose(strengths, sigma, rtol=1e-9)
    reach = min(widths)
    least = rest + 0.5 * np.sum(sigma[reach:] ** 2)
    assert line(found, "carry every mode").value == pytest.approx(least, rel=1e-9)
    saddles = [rest + 0.5 * np.sum(sigma[k:] ** 2) for k in range(reach)]
    ahead = tuple(level for level in saddles if level < loss(point))
    told = line(found, "losses of the saddles").value
    assert told == "none" if not ahead else told == pytest.approx(ahead, rel=1e-9)
    # Curvature, and the step that it allows.
    curvatures = np.linalg.eigvalsh(hessian(loss, point))
    room = FLAT * np.abs(curvatures).max()
    assert line(found, "largest eigenvalue of the Hessian").value == pytest.approx(curvatures[-1], abs=room)
    assert line(found, "smallest eigenvalue of the Hessian").value == pytest.approx(curvatures[0], abs=room)
    assert line(found, "below the step 2/λmax").value == pytest.approx(2 / curvatures[-1], rel=FLAT)
    # What is known for white inputs only is not told.
    for words in ("converges to the best", "limit of the product", "for all times", "lazy, rich or delayed"):
        assert line(found, words).standing is STANDING.silent and line(found, words).value is None


def orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((size, size)))[0]


def test_a_task_that_is_singular_to_rounding_is_singular(seed: int) -> None:
    """The sign of its determinant, rates and stiffness are made of rounding."""
    rng = np.random.default_rng(seed)
    left, right, hidden = (orthogonal(rng, 3) for _ in range(3))
    target = left @ np.diag([3.0, 1.0, 0.0]) @ right.T
    assert np.linalg.svd(target, compute_uv=False)[-1] < 1e-15
    start = orthogonal(rng, 3)
    layers = (0.3 * hidden @ start.T, 0.3 * start @ orthogonal(rng, 3) @ hidden.T)
    found = diagnose(Problem(DeepLinear((3, 3, 3)), SquaredDistance(target)), layers, theorems=False)
    assert line(found, "determinant of the product").standing is STANDING.holds
    assert line(found, "determinant of the target").standing is STANDING.silent
    assert found.prediction("loss_floor") is None
    assert line(found, "rate, stiffness").standing is STANDING.silent
    assert line(found, "for all times").standing is STANDING.silent  # the layers are balanced to rounding
    assert found.prediction("envelope") is None


def test_numbers_that_rounding_would_decide_are_not_told(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank_two = orthogonal(rng, 4)[:, :2] @ np.diag([2.0, 1.0]) @ orthogonal(rng, 3)[:2]
    found = diagnose(None, (rank_two, rng.standard_normal((2, 4))))
    conditions = line(found, "condition number of each layer").value
    assert isinstance(conditions, tuple)
    assert conditions[0] == math.inf and 1 < conditions[1] < math.inf
    assert line(found, "leading directions").value is not None
    tied = diagnose(None, (0.3 * orthogonal(rng, 3), rng.standard_normal((2, 3))))
    assert line(tied, "leading directions").value is None
    assert line(tied, "leading directions").reason.startswith("Layer 1 has no leading direction")
