r"""Training the over-parameterised network on windows of inputs, with a record of where it was.

The loss depends on the data by second moments of the windows only, so a program is compiled for the numbers of states,
lags, inputs and outputs, and not for that of rows. Inputs and outputs are filled up with zeros. What is added has no
input, no target and no weight, its gradient vanishes, and it stays at zero; the rest moves as it would.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from deeplinear.core import RESULTS
from deeplinear.dynamics import Adam, GradientFlow, Progress, simulate
from deeplinear.estimators._base import filled_up
from deeplinear.estimators._state_space_data import Design
from deeplinear.estimators._state_space_systems import entries
from deeplinear.models import LinearRNN, Problem, Regression
from deeplinear.probes import weights

LEAST = 4
"""Smallest numbers of inputs and outputs that are worked with."""
POINTS = 40
"""Times at which the network is looked at, apart from the start."""


class Path(NamedTuple):
    r"""The network along its training.

    Attributes:
        times: Steps taken, or time of the flow.
        training: Mean squared error on the rows to fit, summed over the outputs, in units of their variances.
        held_out: The same on the rows held out; empty if there are none.
        best: Index of the least error held out, or the last index.
        response: $CA^jB$ of the network there, (lags, outputs, inputs).
        system: $A$, $B$, $C$ there.
        end: Those at the end of training, as a later training may go on from them.
    """

    times: np.ndarray
    training: np.ndarray
    held_out: np.ndarray
    best: int
    response: np.ndarray
    system: tuple[np.ndarray, np.ndarray, np.ndarray]
    end: tuple[np.ndarray, ...]


def network(states: int, memory: int, inputs: int, outputs: int, form: Any) -> LinearRNN:
    """The network with inputs and outputs filled up."""
    LinearRNN(states, memory, inputs=inputs, outputs=outputs, form=form)  # refuses numbers that do not fit the form
    return LinearRNN(states, memory, inputs=filled_up(inputs, LEAST), outputs=filled_up(outputs, LEAST), form=form)


def drawn(
    model: LinearRNN, inputs: int, outputs: int, scale: float, rng: np.random.RandomState
) -> tuple[np.ndarray, ...]:
    """Gaussian entries of the given size; balanced, $C = B^\\top$, in all forms but the general one where that fits."""
    size = model.states
    first = scale * rng.standard_normal((size, inputs))
    last = scale * rng.standard_normal((outputs, size))
    if model.form != "general" and inputs == outputs:
        last = first.T
    inner = scale * rng.standard_normal((size, size))
    inner = (inner + inner.T) / 2 if model.form != "general" else inner
    if model.form == "upper":
        inner = inner[np.triu_indices(size)][:, None]
    elif model.form in ("diagonal", "tied"):
        inner = np.diag(inner)[:, None].copy()
    wide, tall = np.zeros((size, model.inputs)), np.zeros((model.outputs, size))
    wide[:, :inputs], tall[:outputs] = first, last
    return (wide, inner) if model.form == "tied" else (wide, inner, tall)


def train(
    model: LinearRNN,
    start: tuple[np.ndarray, ...],
    fit: Design,
    held: Design,
    sizes: tuple[int, int],
    *,
    rate: float | None,
    end: float,
    progress: Callable[[Progress], None] | None,
) -> Path:
    """Train from a start by Adam, or by gradient flow without a rate, up to a step or time; see `Path`.

    Raises:
        NumericalError: The parameters became non-finite.
    """
    inputs, outputs = sizes
    problem = Problem(model, _loss(model, fit, inputs, outputs))
    times = np.unique(np.concatenate([[0.0], np.geomspace(end / 300, end, POINTS)]))
    if rate is not None:
        times = np.unique(np.round(times))
    method = GradientFlow(1e-5) if rate is None else Adam(rate)
    run = simulate(problem, start, method, times=times, probes=[weights], progress=progress, throw=True)
    if run.result == RESULTS.interrupted:
        raise KeyboardInterrupt
    rows = np.asarray(run["weights"])
    points = [_layers(row, model.shapes) for row in rows]
    systems = [_system(model, point, inputs, outputs) for point in points]
    responses = [entries(*system, model.length) for system in systems]
    errors = np.array([_errors(response, fit, held) for response in responses])
    best = int(np.argmin(errors[:, 1])) if held.rows else len(systems) - 1
    return Path(
        times=np.asarray(run.times),
        training=errors[:, 0],
        held_out=errors[:, 1] if held.rows else np.zeros(0),
        best=best,
        response=responses[best],
        system=systems[best],
        end=points[-1],
    )


def coefficients(response: np.ndarray, design: Design) -> np.ndarray:
    """A response as coefficients of all columns: the lags, and before them what fits best."""
    lags = response.swapaxes(1, 2).reshape(-1, response.shape[1])
    return np.vstack([design.besides(lags), lags])


def _layers(row: np.ndarray, shapes: tuple[tuple[int, int], ...]) -> tuple[np.ndarray, ...]:
    """Parameters from one row of their entries."""
    ends = np.cumsum([rows * columns for rows, columns in shapes])
    return tuple(part.reshape(shape) for part, shape in zip(np.split(row, ends[:-1]), shapes, strict=True))


def _errors(response: np.ndarray, fit: Design, held: Design) -> tuple[float, float]:
    found = coefficients(response, fit)
    return fit.error(found), held.error(found) if held.rows else 0.0


def _loss(model: LinearRNN, fit: Design, inputs: int, outputs: int) -> Regression:
    """Least squares of the lags, in the columns of the filled network."""
    matrix, target = fit.lags
    solution = np.linalg.lstsq(matrix, target, rcond=None)[0].T
    sxx, syx = matrix.T @ matrix / fit.rows, target.T @ matrix / fit.rows
    lags, wide = model.length, model.inputs
    full_xx = np.zeros((lags, wide, lags, wide))
    full_xx[:, :inputs, :, :inputs] = sxx.reshape(lags, inputs, lags, inputs)
    full_yx, full = np.zeros((model.outputs, lags, wide)), np.zeros((model.outputs, lags, wide))
    full_yx[:outputs, :, :inputs] = syx.reshape(outputs, lags, inputs)
    full[:outputs, :, :inputs] = solution.reshape(outputs, lags, inputs)
    flat = (full_xx.reshape(lags * wide, -1), full_yx.reshape(model.outputs, -1), full.reshape(model.outputs, -1))
    sxx, syx, solution = flat
    return Regression(sxx, syx, reduced=True, solution=solution)


def _system(
    model: LinearRNN, point: tuple[np.ndarray, ...], inputs: int, outputs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The matrices of a point, without what was filled up."""
    first, inner = point[0][:, :inputs], point[1]
    output = point[0].T if model.form == "tied" else point[2]
    if model.form == "symmetric":
        inner = (inner + inner.T) / 2
    elif model.form == "upper":
        upper = np.zeros((model.states, model.states))
        upper[np.triu_indices(model.states)] = inner[:, 0]
        inner = upper + np.triu(upper, 1).T
    elif model.form in ("diagonal", "tied"):
        inner = np.diag(inner[:, 0])
    return inner, first, output[:outputs]
