"""Balancing: the two flows against SciPy and their laws, direct balancing, flows of any energy, refusals."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from checking import unchecked
from deeplinear.core import RESULTS, HypothesisError
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.geometry import balance, balancing_flow, balancing_rate, balancing_velocity, relative_imbalance
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.probes import layer_balancedness, weights

SIZE, DEPTH = 3, 4
TIMES = np.array([0.0, 0.5, 2.0, *np.linspace(3.0, 16.0, 13)])
"""The ambient flow loses its imbalance by e⁻³² until the last; the group flow goes on longer. As many times as other
tests of balancing record, with which these share what is compiled."""

LONG = 300.0


def draw(seed: int) -> list[np.ndarray]:
    """Gaussian layers whose product is not close to singular, of which the rate of the group flow speaks."""
    rng = np.random.default_rng(seed)
    while True:
        layers = [rng.standard_normal((SIZE, SIZE)) for _ in range(DEPTH)]
        if np.linalg.svd(product(layers), compute_uv=False)[-1] > 0.1:
            return layers


def product(layers: object) -> np.ndarray:
    result = np.eye(SIZE)
    for layer in layers:  # type: ignore[attr-defined]
        result = np.asarray(layer) @ result
    return result


def imbalances(layers: list[np.ndarray]) -> list[np.ndarray]:
    """G_l, with zeros at both ends."""
    laws = [a @ a.T - b.T @ b for a, b in itertools.pairwise(layers)]
    return [np.zeros((SIZE, SIZE)), *laws, np.zeros((SIZE, SIZE))]


def group_velocity(layers: list[np.ndarray]) -> list[np.ndarray]:
    g = imbalances(layers)
    return [-g[k + 1] @ w + w @ g[k] for k, w in enumerate(layers)]


def ambient_velocity(layers: list[np.ndarray]) -> list[np.ndarray]:
    """By the normal equations of the projection onto a_l W_l − W_l a_{l−1}, as a least-squares problem."""
    columns = []
    for k in range(len(layers) - 1):
        width = len(layers[k])
        for unit in np.eye(width**2):
            a = unit.reshape(width, width)
            move = [np.zeros(layer.shape) for layer in layers]
            move[k], move[k + 1] = a @ layers[k], -layers[k + 1] @ a
            columns.append(np.concatenate([part.ravel() for part in move]))
    basis, flat = np.array(columns).T, np.concatenate([layer.ravel() for layer in layers])
    projected = basis @ np.linalg.lstsq(basis, flat, rcond=None)[0]
    parts = np.split(projected, np.cumsum([layer.size for layer in layers])[:-1])
    return [-part.reshape(layer.shape) for part, layer in zip(parts, layers, strict=True)]


@pytest.mark.covers("geometry:F7", "geometry:S8")
@pytest.mark.parametrize(("descent", "last"), [("group", LONG), ("ambient", TIMES[-1])])
def test_balancing_flows(descent: str, last: float, seed: int) -> None:
    """Velocity, path against SciPy, constant product, falling norm, balanced end of least norm."""
    start = draw(seed)
    plain = group_velocity if descent == "group" else ambient_velocity
    scale = max(np.max(np.abs(v)) for v in plain(start))
    for found, wanted in zip(balancing_velocity(start, descent), plain(start), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-10 * scale)
    flow = balancing_flow(start, [*TIMES[:-1], last], descent=descent)
    assert flow.result is RESULTS.completed and "drift of the product" in str(flow)

    def field(t: float, flat: np.ndarray) -> np.ndarray:
        return np.concatenate([v.ravel() for v in plain([p.reshape(SIZE, SIZE) for p in np.split(flat, DEPTH)])])

    flat = np.concatenate([layer.ravel() for layer in start])
    solved = scipy.integrate.solve_ivp(field, (0, TIMES[1]), flat, "DOP853", rtol=1e-11, atol=1e-13).y[:, -1]
    np.testing.assert_allclose(np.concatenate([np.asarray(w[1]).ravel() for w in flow.layers]), solved, atol=1e-8)
    assert float(jnp.max(flow.drift)) <= 1e-7
    np.testing.assert_allclose(product(flow.final), product(start), atol=1e-7)
    assert np.all(np.diff(np.asarray(flow.norms))[:3] < 0) and np.all(np.diff(np.asarray(flow.norms)) < 1e-11)
    shortest = DEPTH * np.sum(np.linalg.svd(product(start), compute_uv=False) ** (2 / DEPTH))
    assert float(flow.norms[-1]) == pytest.approx(shortest, abs=1e-6) == pytest.approx(float(flow.least), abs=1e-6)
    final = [np.asarray(w) for w in flow.final]
    assert max(np.linalg.norm(g) for g in imbalances(final)) <= 1e-6 and flow.imbalance <= 1e-6
    # The norm falls by twice the squared velocity in its own metric: for the group flow that of the imbalance.
    rate = 2 * sum(np.sum(w * v) for w, v in zip(start, plain(start), strict=True))
    squared = (
        sum(np.sum(g**2) for g in imbalances(start)) if descent == "group" else sum(np.sum(v**2) for v in plain(start))
    )
    assert rate == pytest.approx(-2 * squared, rel=1e-9)
    if descent == "ambient":  # every imbalance decays alike, and exactly
        first = np.asarray(flow.imbalances[0])
        np.testing.assert_allclose(np.asarray(flow.imbalances[1:3]), first * np.exp(-2 * TIMES[1:3, None]), rtol=1e-8)


def test_velocities_of_layers_of_any_widths(seed: int) -> None:
    """The projection needs a product of full rank and no more; a single layer has nowhere to go."""
    rng = np.random.default_rng(seed)
    layers = [rng.standard_normal(shape) for shape in ((4, 2), (5, 4), (3, 5))]
    laws = [None, *(a @ a.T - b.T @ b for a, b in itertools.pairwise(layers)), None]
    group = [
        (0 if after is None else -after @ layer) + (0 if before is None else layer @ before)
        for layer, (before, after) in zip(layers, itertools.pairwise(laws), strict=True)
    ]
    for descent, wanted in (("group", group), ("ambient", ambient_velocity(layers))):
        for found, plain in zip(unchecked(balancing_velocity)(layers, descent), wanted, strict=True):
            np.testing.assert_allclose(found, plain, atol=1e-10 * np.max(np.abs(wanted[0])))
        (alone,) = unchecked(balancing_velocity)([layers[0]], descent)
        np.testing.assert_allclose(alone, np.zeros((4, 2)), atol=1e-13)


@pytest.mark.covers("geometry:F7")
def test_direct_balancing_and_the_ends_of_flows(seed: int) -> None:
    """Any widths directly; the end of a flow has the same singular directions but for turns of the hidden layers."""
    rng = np.random.default_rng(seed)
    layers = [rng.standard_normal(shape) for shape in ((3, 4), (5, 3), (2, 5))]
    found = [np.asarray(w) for w in balance(layers)]
    x = layers[2] @ layers[1] @ layers[0]
    np.testing.assert_allclose(found[2] @ found[1] @ found[0], x, atol=1e-12 * np.max(np.abs(x)))
    assert [w.shape for w in found] == [w.shape for w in layers] and float(relative_imbalance(found)) < 1e-13
    shortest = 3 * np.sum(np.linalg.svd(x, compute_uv=False) ** (2 / 3))
    assert sum(np.sum(w**2) for w in found) == pytest.approx(shortest, rel=1e-12)
    assert balance([np.eye(2)])[0].shape == (2, 2)
    start = draw(seed)
    direct, ended = balance(start), balance(start, descent="ambient")
    assert float(relative_imbalance(ended)) <= 1e-9
    turn = np.eye(SIZE)
    for one, other in zip(direct[:-1], ended[:-1], strict=True):  # W'_l = R_l W_l R_{l−1}ᵀ
        turn = np.asarray(other) @ turn @ np.linalg.inv(np.asarray(one))
        np.testing.assert_allclose(turn @ turn.T, np.eye(SIZE), atol=1e-6)
    np.testing.assert_allclose(np.asarray(ended[-1]) @ turn, direct[-1], atol=1e-6)


def test_the_rate_at_the_end_of_the_group_flow() -> None:
    """Scalars in closed form: w₁² − w₂² decays as exp(−4st) near balance."""
    assert float(balancing_rate(np.array([[0.7]]), 2)) == pytest.approx(4 * 0.7, rel=1e-14)
    assert float(balancing_rate(np.eye(2), 3)) == pytest.approx(2.0, rel=1e-14)
    assert float(balancing_rate(np.eye(2), 3, "ambient")) == 2.0
    # By differences of the velocity at balanced layers: the smallest eigenvalue that does not belong to the fibre.
    s = np.array([1.5, 0.8, 0.6])
    start = [np.diag(s ** (1 / DEPTH))] * DEPTH
    flat, h = np.concatenate([w.ravel() for w in start]), 1e-5

    def field(vector: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [v.ravel() for v in group_velocity([p.reshape(SIZE, SIZE) for p in np.split(vector, DEPTH)])]
        )

    slope = np.array([(field(flat + h * e) - field(flat - h * e)) / (2 * h) for e in np.eye(len(flat))])
    values = np.sort(np.abs(np.linalg.eigvals(slope)))
    still = SIZE**2 + (DEPTH - 1) * SIZE * (SIZE - 1) // 2
    assert values[still - 1] < 1e-6
    assert values[still] == pytest.approx(float(balancing_rate(np.diag(s), DEPTH)), rel=1e-6)


@pytest.mark.covers("geometry:F3", "geometry:S2")
def test_imbalances_are_constant_along_the_flow_of_an_energy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model = DeepLinear((SIZE,) * (DEPTH + 1))
    target, mask = rng.standard_normal((SIZE, SIZE)), np.ones((SIZE, SIZE)) - np.eye(SIZE)
    problem = Problem(model, Completion(jnp.asarray(target), jnp.asarray(mask)))
    start = [0.6 * rng.standard_normal((SIZE, SIZE)) for _ in range(DEPTH)]
    run = simulate(
        problem,
        tuple(jnp.asarray(w) for w in start),
        GradientFlow(1e-11),
        times=[0.0, 1.0, 2.0],
        probes=[weights, layer_balancedness],
        throw=True,
    )
    before = imbalances(start)
    for record, norms in zip(run["weights"], run["layer_balancedness"], strict=True):
        now = imbalances([part.reshape(SIZE, SIZE) for part in np.split(np.asarray(record), DEPTH)])
        assert max(np.linalg.norm(a - b) for a, b in zip(now, before, strict=True)) <= 1e-9
        np.testing.assert_allclose(norms, [np.linalg.norm(g) for g in before[1:-1]], atol=1e-9)
    moved = np.asarray(run["weights"][-1]) - np.concatenate([w.ravel() for w in start])
    assert np.max(np.abs(moved)) > 1e-2


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    start = [np.eye(2), 2 * np.eye(2)]
    with pytest.raises(ValueError, match="times must increase"):
        balancing_flow(start, [1.0, 0.5])
    with pytest.raises(ValueError, match="descent must be one of group, ambient, but is 'steepest'"):
        unchecked(balancing_flow)(start, [1.0], descent="steepest")
    with pytest.raises(HypothesisError, match="a product of full rank"):
        balancing_flow([np.eye(2), np.diag([1.0, 0.0])], [1.0], descent="ambient")
    with pytest.raises(HypothesisError, match="a product of full rank"):
        balance([np.eye(2), np.diag([1.0, 0.0])], descent="group")
    with pytest.raises(ValueError, match="square layers of one width"):
        balance([np.ones((3, 1)), np.ones((1, 3))], descent="group")
    with pytest.raises(ValueError, match="params must have layer shapes"):
        balancing_velocity([np.eye(2), np.eye(3)])
    with pytest.raises(ValueError, match="depth must be at least 2"):
        balancing_rate(np.eye(2), 1)
    assert math.isfinite(float(balancing_velocity([np.zeros((2, 2))] * 2)[0][0, 0]))
