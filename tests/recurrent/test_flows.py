"""Gradient flow of recurrent networks in all forms: end points by SciPy, balance and tails over long times.

The clock of the library is that of half the sum of squares; the paper's, of the sum of squares, runs twice as fast:
$t = 10^8$ there is $2\\cdot10^8$ here, and its loss is twice ours.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

from deeplinear.core import Trajectory, dopri8
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.models import LinearRNN, Problem, Regression, SquaredDistance
from deeplinear.probes import loss, weights

ENDPOINT = 1e-9
"""Difference of two integrators of relative tolerance 1e-10 or less and 1e-12; 1e-8 is accepted."""

DRIFT = 1e-9
"""Of what the flow conserves, at a tolerance of 1e-11."""

KEPT = 1e-13
"""Balance is kept by symmetry: only rounding breaks it."""

SHORT, HORIZON, LENGTH = 3.0, 40, 5
CLOCK = 2.0
"""Our time over the paper's."""

ATOMS, MASSES = np.array([0.9, -0.5]), np.array([0.6, 0.4])
TEACHER = ATOMS ** np.arange(HORIZON)[:, None] @ MASSES

Layers = list[np.ndarray]


def system(form: str, layers: Layers) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B, C from parameters, written out anew."""
    b, inner = layers[:2]
    c = b.T if form == "tied" else layers[2]
    if form == "upper":
        a = np.zeros((len(b), len(b)))
        a[np.triu_indices(len(b))] = inner[:, 0]
        a = a + np.triu(a, 1).T
    else:
        a = inner if form in ("general", "symmetric") else np.diag(inner[:, 0])
    return a, b, c


def velocity(form: str, layers: Layers, second: np.ndarray) -> Layers:
    """Minus the gradient of ½ rᵀΣr, by the plain double sum."""
    a, b, c = system(form, layers)
    left, right = [c.T], [b]
    for _ in range(LENGTH - 1):
        left.append(a.T @ left[-1])
        right.append(a @ right[-1])
    g = second @ (np.array([(c @ x)[0, 0] for x in right]) - TEACHER[:LENGTH])
    on_b, on_c = np.tensordot(g, np.array(left), 1), np.tensordot(g, np.array(right), 1).T
    on_a = np.zeros_like(a)
    for q in range(LENGTH):
        for s in range(LENGTH - 1 - q):
            on_a += g[q + s + 1] * left[q] @ right[s].T
    if form == "symmetric":
        on_a = (on_a + on_a.T) / 2
    elif form == "upper":
        on_a = (on_a + on_a.T - np.diag(np.diag(on_a)))[np.triu_indices(len(a))][:, None]
    elif form != "general":
        on_a = np.diag(on_a)[:, None]
    return [-on_b - on_c.T, -on_a] if form == "tied" else [-on_b, -on_a, -on_c]


def end(form: str, layers: Layers, second: np.ndarray, time: float) -> Layers:
    """Where SciPy's explicit method of order 8 leads."""
    shapes = [layer.shape for layer in layers]
    cuts = np.cumsum([layer.size for layer in layers])[:-1]

    def split(y: np.ndarray) -> Layers:
        return [part.reshape(shape) for part, shape in zip(np.split(y, cuts), shapes, strict=True)]

    def field(_: float, y: np.ndarray) -> np.ndarray:
        return np.concatenate([part.ravel() for part in velocity(form, split(y), second)])

    y = np.concatenate([layer.ravel() for layer in layers])
    run = scipy.integrate.solve_ivp(field, (0, time), y, method="DOP853", rtol=1e-12, atol=1e-14)
    return split(run.y[:, -1])


def start(form: str, states: int) -> Layers:
    """A balanced start of order one; symmetric, but for its name, in the general form too."""
    rng = np.random.default_rng(7)
    square, b = rng.normal(0, 0.25, (states, states)), rng.normal(0, 0.35, (states, 1))
    square = (square + square.T) / 2
    inner = {
        "general": square,
        "symmetric": square,
        "upper": square[np.triu_indices(states)][:, None],
    }.get(form, rng.normal(0, 0.05, (states, 1)))
    return [b, inner] if form == "tied" else [b, inner, b.T.copy()]


def recorded(run: Trajectory, layers: Layers, position: int) -> Layers:
    cuts = np.cumsum([layer.size for layer in layers])[:-1]
    parts = np.split(np.asarray(run["weights"])[position], cuts)
    return [part.reshape(layer.shape) for part, layer in zip(parts, layers, strict=True)]


def tail(form: str, layers: Layers) -> float:
    a, b, c = system(form, layers)
    errors = [abs((c @ np.linalg.matrix_power(a, j) @ b)[0, 0] - TEACHER[j]) for j in range(LENGTH, HORIZON)]
    return float(max(errors))


def flow(problem: Problem, layers: Layers, times: list[float], method: GradientFlow) -> Trajectory:
    params = tuple(jnp.asarray(layer) for layer in layers)
    run = simulate(problem, params, method, times=times, probes=(loss, weights), throw=True)
    assert np.all(np.diff(run["loss"]) <= 0)
    return run


def compare(form: str, run: Trajectory, layers: Layers, second: np.ndarray) -> None:
    """The state at the second recorded time against SciPy's."""
    wanted = end(form, layers, second, SHORT)
    for found, reference in zip(recorded(run, layers, 1), wanted, strict=True):
        np.testing.assert_allclose(found, reference, atol=ENDPOINT)


def population(form: str, states: int) -> Problem:
    return Problem(LinearRNN(states, LENGTH, form=form), SquaredDistance(TEACHER[None, :LENGTH]))


@pytest.mark.covers("rnn:F6", "rnn:S6", "rnn:S8", "rnn:X2")
@pytest.mark.parametrize("form", ["general", "symmetric", "upper", "diagonal"])
def test_flow_of_matrices(form: str) -> None:
    """An explicit pair over a moderate time; a free transition matrix stays symmetric."""
    layers = start(form, 5)
    run = flow(population(form, 5), layers, [0.0, SHORT, 20.0], GradientFlow(1e-11, integrator=dopri8()))
    compare(form, run, layers, np.eye(LENGTH))
    a, b, c = system(form, recorded(run, layers, 2))
    np.testing.assert_allclose(b, c.T, rtol=0, atol=KEPT)
    np.testing.assert_allclose(a, a.T, rtol=0, atol=KEPT)
    # From another start the same program keeps ‖B‖² − ‖C‖², and in the general form all of the conserved matrix.
    rng = np.random.default_rng(8)
    layers = [rng.normal(0, 0.3, layer.shape) for layer in layers]
    if form == "symmetric":
        layers[1] = (layers[1] + layers[1].T) / 2
    run = flow(population(form, 5), layers, [0.0, SHORT, 20.0], GradientFlow(1e-11, integrator=dopri8()))
    kept = []
    for position in (0, 2):
        a, b, c = system(form, recorded(run, layers, position))
        whole = a @ a.T - a.T @ a + b @ b.T - c.T @ c
        kept.append(whole if form == "general" else np.trace(whole))
    np.testing.assert_allclose(kept[1], kept[0], rtol=0, atol=DRIFT)


@pytest.mark.covers("rnn:X5", "rnn:F6")
def test_flow_of_the_empirical_loss() -> None:
    """Second moments of 40 inputs in place of the identity: the same limit, and balance all the way."""
    inputs = np.random.default_rng(3).normal(size=(LENGTH, 40))
    layers = start("symmetric", 7)
    data = Regression.from_data(inputs, TEACHER[None, :LENGTH] @ inputs, reduced=True)
    problem = Problem(LinearRNN(7, LENGTH, form="symmetric"), data)
    run = flow(problem, layers, [0.0, SHORT, CLOCK * 1e3], GradientFlow(1e-10))
    compare("symmetric", run, layers, inputs @ inputs.T / 40)
    last = recorded(run, layers, 2)
    np.testing.assert_allclose(last[0], last[2].T, rtol=0, atol=KEPT)
    assert tail("symmetric", last) < 1e-3


@pytest.mark.covers("rnn:F6", "rnn:S11")
def test_flow_of_modes_over_long_times() -> None:
    """To 1e8 of the paper's clock: the loss falls like 1/t², and the tail with its root."""
    form = "tied"
    layers = start(form, 8)
    times = [0.0, SHORT, *(CLOCK * 10.0**e for e in (4, 5, 6, 7, 8))]
    run = flow(population(form, 8), layers, times, GradientFlow(1e-11))
    compare(form, run, layers, np.eye(LENGTH))
    last = recorded(run, layers, len(times) - 1)
    constants = 2 * np.asarray(run["loss"])[2:] * (np.array(times[2:]) / CLOCK) ** 2  # L t² in the paper's units
    assert np.all((constants > 0.1) & (constants < 100))
    assert constants[-1] == pytest.approx(constants[-2], rel=0.05)
    assert tail(form, last) < 1e-6  # recorded: 4.3e-8 from another start
    # The tail is in proportion to the root of the loss.
    tails = [tail(form, recorded(run, layers, i)) for i in (4, 6)]
    losses = np.asarray(run["loss"])[[4, 6]]
    assert tails[0] / tails[1] == pytest.approx(np.sqrt(losses[0] / losses[1]), rel=0.1)
