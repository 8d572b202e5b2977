"""Which order a system should have: by its error on rows held out, or by singular values."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from deeplinear.estimators._state_space_data import Design, Record
from deeplinear.estimators._state_space_network import coefficients
from deeplinear.estimators._state_space_systems import (
    Small,
    at_starts,
    entries,
    first_state,
    fitted_to_records,
    fitted_to_response,
    hankel_blocks,
    misfit,
    played,
    realised,
    resolved,
    settled,
)

NEGLIGIBLE = 1e-10
"""Share of the variance below which errors are all alike."""

ACTIVE = 1e-4
"""Singular values below this share of the largest are not tried as orders; nor are more than `MOST`."""

MOST = 12

PATIENCE, HALF = 2, 0.5
"""Orders that are tried beyond the best one; more of them while singular values are above this share of its own."""

STEPS, ROUGHLY = 12, 1e-3
"""Most Gauss–Newton steps for each order, and the share by which a step must lower the error for another one."""

TWO = 2
"""Systems from which the steps start, for each order; the best end is taken."""

FREE = 200
"""Numbers in the unknown states at all starts, up to which these are fitted."""


class Choice(NamedTuple):
    """A system of the order chosen, errors held out by order (NaN where it was not tried), and R² held out."""

    system: Small
    errors: np.ndarray
    score: float


def check_order(where: str, order: int | None, memory: int, inputs: int, outputs: int) -> None:
    """Refuse an order that is larger than the Hankel matrix of so many lags."""
    most = min((memory + 1) // 2 * outputs, memory // 2 * inputs)
    if order is not None and order > most:
        raise ValueError(
            f"{where}: order must be at most {most}, what {memory} lags can tell, but is {order}; give a larger memory."
        )


def chosen(
    response: np.ndarray,
    parts: Sequence[Record],
    fit: Design,
    held: Design,
    order: int | None,
    tolerance: float,
    refine: bool,
    rest: bool,
) -> Choice:
    """The system of the order asked for, or of the one that the data speak for.

    Args:
        response: First entries of the network's response.
        parts: The records.
        fit: Least squares of the rows to fit.
        held: That of the rows held out.
        order: Order that is asked for.
        tolerance: Singular value, relative to the largest, that counts where nothing is held out.
        refine: Whether to fit each system to the rows to fit.
        rest: Whether sequences start at rest.
    """
    values = np.linalg.svd(hankel_blocks(response)[0], compute_uv=False)
    if order is not None:
        tried = [order]
    elif held.rows:
        active = int(np.sum(values > ACTIVE * values[0])) if values[0] > 0 else 0
        tried = list(range(min(active, MOST) + 1))
    else:
        tried = [int(np.sum(values > tolerance * values[0])) if values[0] > 0 else 0]
    if not held.rows:
        return Choice(_system(response, tried[0], parts, fit, refine, rest), np.full(tried[0] + 1, np.nan), math.nan)
    systems, squares, least = {}, {}, tried[0]
    for n in tried:
        systems[n] = _system(response, n, parts, fit, refine, rest)
        squares[n] = _squares(systems[n], parts, rest)
        least = n if np.mean(squares[n]) < np.mean(squares[least]) else least
        # A delay needs all its states before any of them helps; its singular values do not fall.
        fallen = n < len(values) and values[n] < HALF * values[max(least - 1, 0)]
        if (n >= least + PATIENCE and fallen) or np.mean(squares[n]) <= NEGLIGIBLE:
            break
    errors = np.full(max(systems) + 1, np.nan)
    for n, one in squares.items():
        errors[n] = float(np.mean(one))
    best = next(n for n in systems if n == least or _alike(squares[n], squares[least]))
    outputs = np.concatenate([part.outputs[max(part.held, part.first) :] for part in parts])
    spread = np.mean((outputs - outputs.mean(axis=0)) ** 2)
    score = 1 - errors[best] / spread if spread > 0 and len(outputs) > 1 else math.nan
    return Choice(systems[best], errors, float(score))


def _alike(errors: np.ndarray, best: np.ndarray) -> bool:
    """Whether errors are above the best ones by no more than one standard error of the difference, row by row."""
    if not np.isfinite(errors).all():
        return False
    if np.mean(errors) <= NEGLIGIBLE:
        return True
    gap = errors - best
    return len(gap) > 1 and float(np.mean(gap)) <= float(np.std(gap, ddof=1)) / math.sqrt(len(gap))


def _system(response: np.ndarray, order: int, parts: Sequence[Record], fit: Design, refine: bool, rest: bool) -> Small:
    """System of an order with the best offset and feed-through, fitted to the rows to fit where that is wanted.

    The first lags say little about slow modes, so the steps start from the two best of several systems: that of the
    lags and that of the network, each as it is and with its modes made stable, with output maps fitted to the rows.
    """
    inner = realised(response, order)
    if not refine or not order:
        return _with_besides(inner, response, fit)
    of_lags = fitted_to_response(inner, fit, len(response), STEPS)
    seen = [
        Record(part.inputs[: part.held], part.outputs[: part.held], part.first, part.held)
        for part in parts
        if part.held > part.first
    ]
    intercept, feed = fit.intercept, fit.feed > 0
    tried = [_with_besides(of_lags, response, fit)]
    for transition, first, _ in (of_lags, inner):
        stable = settled(transition)
        both = (transition,) if stable is transition else (transition, stable)
        found = [resolved(a, first, seen, intercept=intercept, feed=feed) for a in both]
        tried += [one for one in found if one is not None]

    def error(system: Small) -> float:
        return misfit(system, seen, rest)

    ends = []
    for start in sorted(tried, key=error)[:TWO]:
        starts = at_starts(start, seen, rest)
        free = not rest and starts.size <= FREE
        moved = fitted_to_records(
            start, starts, seen, intercept=intercept, feed=feed, free=free, steps=STEPS, enough=ROUGHLY
        )
        ends.append(moved[0])
        if error(ends[-1]) <= NEGLIGIBLE * sum(part.outputs.size for part in seen):
            break
    return min(ends, key=error)


def _with_besides(inner: tuple[np.ndarray, np.ndarray, np.ndarray], response: np.ndarray, fit: Design) -> Small:
    """A system with the offset and feed-through that fit best beside its lags."""
    outputs, inputs = response.shape[1:]
    found = coefficients(entries(*inner, len(response)), fit)
    offset = found[0] if fit.intercept else np.zeros(outputs)
    direct = found[int(fit.intercept) : fit.beside].T if fit.feed else np.zeros((outputs, inputs))
    return Small(*inner, direct, offset)


def _squares(system: Small, parts: Sequence[Record], rest: bool) -> np.ndarray:
    """Squared error of every row that is held out, the mean over outputs; infinite where a simulation overflows."""
    found = []
    for part in parts:
        begin = max(part.held, part.first)
        if begin >= len(part.inputs):
            continue
        known = slice(None, begin)
        state = np.zeros(len(system.transition))
        if not rest and len(state):
            state = first_state(system, part.inputs[known], part.outputs[known])
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = played(system, part.inputs, state)[begin:] - part.outputs[begin:]
            found.append(np.mean(gaps**2, axis=1))
    flat = np.concatenate(found)
    return np.where(np.isfinite(flat), flat, np.inf)
