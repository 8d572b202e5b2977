"""Losses as the native engine reads them: numbers of a quadratic function of the product, and terms to draw from."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from deeplinear.models import (
    AbstractLoss,
    Completion,
    EntryCompletion,
    Problem,
    Regression,
    SampleRegression,
    SquaredDistance,
    WhiteInputs,
)

MOST_ENTRIES = 4_000_000
"""Entries of a matrix above which a list of observations is not made a mask, nor samples a covariance."""


class Numbers(NamedTuple):
    """Numbers of a loss: its kind for the engine, and its arrays by name, without or with a leading member axis."""

    kind: int
    arrays: dict[str, np.ndarray]


def _of_distance(loss: SquaredDistance, batched: bool) -> Numbers:
    return Numbers(0, {"target": np.asarray(loss.target)})


def _of_regression(loss: Regression, batched: bool) -> Numbers:
    sxx, syx, solution = (np.asarray(array) for array in (loss.sxx, loss.syx, loss.solution))
    offset = np.zeros_like(np.asarray(loss.offset)) if loss.reduced else np.asarray(loss.offset)
    return Numbers(1, {"target": syx, "sxx": sxx, "solution": solution, "offset": offset})


def _of_samples(loss: SampleRegression, batched: bool) -> Numbers:
    x, y = np.asarray(loss.inputs), np.asarray(loss.outputs)
    samples = x.shape[-1]
    solution = y @ np.linalg.pinv(x)
    rest = y - solution @ x
    offset = 0.5 * np.sum(rest**2, axis=(-2, -1)) / samples
    turned = np.swapaxes(x, -1, -2)
    return Numbers(
        1, {"target": y @ turned / samples, "sxx": x @ turned / samples, "solution": solution, "offset": offset}
    )


def _of_completion(loss: Completion, batched: bool) -> Numbers:
    return Numbers(2, {"target": np.asarray(loss.target), "mask": np.asarray(loss.mask)})


def _of_entries(loss: EntryCompletion, batched: bool) -> Numbers:
    rows, columns, values = (np.asarray(array) for array in (loss.rows, loss.columns, loss.values))
    target, mask = (np.zeros((*values.shape[:-1], *loss.extent)) for _ in range(2))
    place = (np.arange(len(values))[:, None], rows, columns) if batched else (rows, columns)
    target[place], mask[place] = values, 1.0
    return Numbers(2, {"target": target, "mask": mask})


def _of_white_inputs(loss: WhiteInputs, batched: bool) -> Numbers:
    target = np.asarray(loss.target)
    return Numbers(2, {"target": target, "mask": np.broadcast_to(np.asarray(loss.active)[..., None, :], target.shape)})


_NUMBERS: dict[type, Callable[[Any, bool], Numbers]] = {
    SquaredDistance: _of_distance,
    Regression: _of_regression,
    SampleRegression: _of_samples,
    Completion: _of_completion,
    EntryCompletion: _of_entries,
    WhiteInputs: _of_white_inputs,
}


def numbers_of(loss: AbstractLoss, batched: bool) -> Numbers:
    """Numbers of a loss, or of the losses of all members."""
    return _NUMBERS[type(loss)](loss, batched)


def refused_loss(problem: Problem) -> str | None:
    """Why the engine does not take the loss of a problem, in a few words; `None` where it does."""
    loss = problem.loss
    if type(loss) not in _NUMBERS:
        return f"the loss is {type(loss).__name__}"
    if isinstance(loss, EntryCompletion) and np.prod(loss.shape) > MOST_ENTRIES:
        return "the list of observations is of a matrix too large for a mask"
    if isinstance(loss, SampleRegression) and loss.shape[1] ** 2 > MOST_ENTRIES:
        return "the samples have too many inputs for a covariance"
    return None


def terms_of(loss: AbstractLoss) -> tuple[int, dict[str, np.ndarray]]:
    """How many terms batches are drawn from, and the terms; 0 and none where a mask says it."""
    if isinstance(loss, SampleRegression):
        return loss.inputs.shape[-1], {"inputs": np.asarray(loss.inputs), "outputs": np.asarray(loss.outputs)}
    if isinstance(loss, EntryCompletion):
        rows, columns, values = (np.asarray(array) for array in (loss.rows, loss.columns, loss.values))
        return values.shape[-1], {"places": rows.astype(np.int64) * loss.extent[1] + columns, "observed": values}
    return 0, {}


def refused_batch(loss: AbstractLoss, batch: int) -> str | None:
    """Why the engine does not draw batches of a loss, in a few words; `None` where it does."""
    if not isinstance(loss, Completion | EntryCompletion | SampleRegression):
        return f"batches are drawn from {type(loss).__name__}"
    terms = terms_of(loss)[0]
    return "a batch has more terms than the loss" if terms and batch > terms else None
