"""What gradient flow of recurrent networks conserves, against flows integrated by SciPy with gradients of our own."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from deeplinear.core import HypothesisError
from deeplinear.models import LinearRNN
from deeplinear.recurrent import balance_gap, balance_ratio, conserved_matrix, mode_invariants, norm_difference

DRIFT = 1e-9
"""What an integrator of relative tolerance 1e-11 loses."""

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]


def response(a: np.ndarray, b: np.ndarray, c: np.ndarray, k: int) -> np.ndarray:
    return np.array([c @ np.linalg.matrix_power(a, j) @ b for j in range(k)])


def gradient(a: np.ndarray, b: np.ndarray, c: np.ndarray, w: np.ndarray) -> Matrices:
    """Of half the sum of squares, the plain double sum."""
    k = len(w)
    left, right = [c.T], [b]
    for _ in range(k - 1):
        left.append(a.T @ left[-1])
        right.append(a @ right[-1])
    r = [c @ right[j] - w[j] for j in range(k)]
    on_a, on_b, on_c = np.zeros_like(a), np.zeros_like(b), np.zeros_like(c)
    for q in range(k):
        on_b += left[q] @ r[q]
        on_c += r[q] @ right[q].T
        for s in range(k - 1 - q):
            on_a += left[q] @ r[q + s + 1] @ right[s].T
    return on_a, on_b, on_c


def constrained(form: str, g: np.ndarray) -> np.ndarray:
    return {
        "general": g,
        "symmetric": (g + g.T) / 2,
        "upper": g + g.T - np.diag(np.diag(g)),
        "diagonal": np.diag(np.diag(g)),
    }[form]


def flow(start: Matrices, w: np.ndarray, form: str, time: float) -> Matrices:
    shapes = [matrix.shape for matrix in start]
    cuts = np.cumsum([math.prod(shape) for shape in shapes])[:-1]

    def split(y: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(shape) for part, shape in zip(np.split(y, cuts), shapes, strict=True)]

    def field(_: float, y: np.ndarray) -> np.ndarray:
        on_a, on_b, on_c = gradient(*split(y), w)
        return -np.concatenate([constrained(form, on_a).ravel(), on_b.ravel(), on_c.ravel()])

    y = np.concatenate([matrix.ravel() for matrix in start])
    run = scipy.integrate.solve_ivp(field, (0, time), y, method="DOP853", rtol=1e-11, atol=1e-14)
    a, b, c = split(run.y[:, -1])
    return a, b, c


def draw(rng: np.random.Generator, form: str, d: int = 3, inputs: int = 1, outputs: int = 1) -> Matrices:
    a = rng.uniform(-0.6, 0.6, (d, d))
    a = np.diag(np.diag(a)) if form == "diagonal" else a if form == "general" else (a + a.T) / 2
    return a, rng.normal(0, 0.6, (d, inputs)), rng.normal(0, 0.6, (outputs, d))


TARGET = np.array([0.9 * 0.8**j + 0.3 * (-0.4) ** j for j in range(4)])[:, None, None]


@pytest.mark.covers("rnn:F10", "rnn:S8", "rnn:X2", "rnn:X3", "rnn:E4")
@pytest.mark.parametrize("form", ["general", "symmetric", "upper", "diagonal"])
def test_the_flow_conserves(form: str) -> None:
    start = draw(np.random.default_rng(3), form)
    end = flow(start, TARGET, form, 20.0)
    moved = float(np.abs(end[0] - start[0]).max())
    assert moved > 1e-2
    assert float(norm_difference(end)) == pytest.approx(float(norm_difference(start)), abs=DRIFT)
    plain = [np.linalg.norm(b) - np.linalg.norm(c) for _, b, c in (start, end)]
    assert abs(plain[1] - plain[0]) > 1e-3  # the norms themselves are not conserved, only their squares
    drift = np.abs(np.asarray(conserved_matrix(end)) - np.asarray(conserved_matrix(start))).max()
    assert drift < DRIFT if form == "general" else drift > 1e-3
    assert float(jnp.trace(conserved_matrix(end))) == pytest.approx(float(norm_difference(end)), abs=1e-13)
    if form == "diagonal":
        np.testing.assert_allclose(mode_invariants(end), mode_invariants(start), atol=DRIFT)


@pytest.mark.covers("rnn:X2", "rnn:F10")
def test_the_matrix_is_conserved_with_several_inputs_and_outputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    start = draw(rng, "general", inputs=2, outputs=3)
    end = flow(start, rng.normal(0, 0.4, (3, 3, 2)), "general", 1.0)
    np.testing.assert_allclose(conserved_matrix(end), conserved_matrix(start), atol=DRIFT)
    assert np.abs(end[0] - start[0]).max() > 1e-3


@pytest.mark.covers("rnn:S6", "rnn:F10")
@pytest.mark.parametrize("form", ["general", "symmetric", "upper", "diagonal"])
def test_the_flow_keeps_balance(form: str) -> None:
    a, b, _ = draw(np.random.default_rng(1), "symmetric" if form == "general" else form)
    end = flow((a, b, b.T), TARGET, form, 20.0)
    assert float(balance_gap(end)) < 1e-13
    assert float(balance_ratio(end)) < 1e-13
    assert float(jnp.linalg.norm(conserved_matrix(end))) < 1e-12


@pytest.mark.covers("rnn:S7", "rnn:X7", "rnn:F10")
def test_descent_keeps_balance_and_drifts_in_the_norms() -> None:
    def descend(start: Matrices, step: float, count: int) -> Matrices:
        a, b, c = start
        for _ in range(count):
            on_a, on_b, on_c = gradient(a, b, c, TARGET)
            old, (a, b, c) = (a, b, c), (a - step * on_a, b - step * on_b, c - step * on_c)
            if count <= 2:
                change = step**2 * (np.sum(on_b**2) - np.sum(on_c**2))
                assert float(norm_difference((a, b, c)) - norm_difference(old)) == pytest.approx(change, abs=1e-14)
        return a, b, c

    a, b, c = draw(np.random.default_rng(5), "symmetric")
    assert float(balance_gap(descend((a, b, b.T), 0.05, 200))) < 1e-14
    start = float(norm_difference((a, b, c)))
    descend((a, b, c), 0.1, 2)
    drifts = [float(norm_difference(descend((a, b, c), h, n))) - start for h, n in ((8e-3, 125), (4e-3, 250))]
    assert drifts[0] / drifts[1] == pytest.approx(2.0, abs=0.04)  # first order in the step at a fixed time


@pytest.mark.covers("rnn:S19", "rnn:S20", "rnn:E12")
def test_velocities_of_the_parts(seed: int) -> None:
    """Under half the sum of squares; under the sum of squares everything is twice this."""
    a, b, c = draw(np.random.default_rng(seed), "general", d=4)
    r = (response(a, b, c, len(TARGET)) - TARGET)[:, 0, 0]
    model = LinearRNN(4, len(TARGET))
    params = (jnp.asarray(b), jnp.asarray(a), jnp.asarray(c))
    on_b, on_a, on_c = model.pullback(params, model.forward(params)[1], jnp.asarray(r[None]))
    h = response(a, b, c, len(r))[:, 0, 0]
    assert np.sum(a * -np.asarray(on_a)) == pytest.approx(-np.sum(np.arange(len(r)) * r * h), abs=1e-12)
    powers = [np.linalg.matrix_power(a, i) for i in range(len(r))]
    even = sum(x * (p + p.T) / 2 for x, p in zip(r, powers, strict=True))
    odd = sum(x * (p - p.T) / 2 for x, p in zip(r, powers, strict=True))
    less, more = c.T - b, c.T + b
    np.testing.assert_allclose(-on_c.T + on_b, even @ less - odd @ more, atol=1e-12)
    np.testing.assert_allclose(-on_c.T - on_b, -(even @ more - odd @ less), atol=1e-12)


@pytest.mark.covers("rnn:F10")
def test_along_a_trajectory_and_at_the_edges() -> None:
    a, b = jnp.zeros((5, 2, 2)), jnp.ones((5, 2, 1))
    stacked = (a, b, 3 * jnp.swapaxes(b, 1, 2))
    np.testing.assert_allclose(jax.vmap(norm_difference)(stacked), -16.0)
    np.testing.assert_allclose(jax.vmap(mode_invariants)(stacked), -8.0)
    column = jnp.ones((2, 1))
    assert math.isinf(float(balance_ratio((jnp.eye(2), column, -column.T))))
    assert math.isnan(float(balance_ratio((jnp.eye(2), 0 * column, 0 * column.T))))


def test_refusals() -> None:
    column = jnp.ones((2, 1))
    with pytest.raises(HypothesisError, match="diagonal transition matrix"):
        mode_invariants((jnp.ones((2, 2)), column, column.T))
    with pytest.raises(ValueError, match="as many inputs as outputs"):
        balance_ratio((jnp.eye(2), jnp.ones((2, 3)), column.T))
    with pytest.raises(ValueError, match="B must be finite"):
        norm_difference((jnp.eye(2), math.nan * column, column.T))


def test_rounding_beside_a_large_diagonal_counts_as_none() -> None:
    """Relative to the largest entry where that is above one."""
    transition = np.diag([1e6, 2e6])
    transition[0, 1] = 1e-7
    found = mode_invariants((transition, np.array([[1.0], [2.0]]), np.array([[1.0, 1.0]])))
    np.testing.assert_allclose(found, [0.0, 3.0])
    transition[0, 1] = 1e-5
    with pytest.raises(HypothesisError, match="diagonal"):
        mode_invariants((transition, np.array([[1.0], [2.0]]), np.array([[1.0, 1.0]])))
