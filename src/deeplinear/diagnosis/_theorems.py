"""Theorems by their hypotheses: which hold for a network, which nearly do, and by how much they are missed."""

from collections.abc import Iterable

import numpy as np

from deeplinear.core import HypothesisError, NumericalError, Params
from deeplinear.diagnosis._finding import NEARLY, STANDING, Finding
from deeplinear.models import Problem
from deeplinear.theory import STATUS, Check, Reading


def theorem_findings(problem: Problem, params: Params, checks: Iterable[Check], claims: bool) -> list[Finding]:
    """One line for each statement that can be asked about a single problem; errata are left out."""
    with np.errstate(all="ignore"):  # what comes out as no number is told as such
        return [
            _examined(problem, params, check, claims)
            for check in checks
            if check.adopt is not None and "erratum" not in check.id
        ]


def _examined(problem: Problem, params: Params, check: Check, claims: bool) -> Finding:
    assert check.adopt is not None  # others are passed over
    try:
        instance = check.adopt(problem, params)
    except HypothesisError as error:
        reading = Reading(error.hypothesis, float(error.residual), float(error.tolerance))
        return _line(check, (reading,), spoken=False)
    except (ValueError, TypeError, ArithmeticError) as error:
        return _unasked(check, error)
    try:
        readings = tuple(Reading(h.name, float(h.residual(instance)), h.tolerance) for h in check.hypotheses)
        found = _line(check, readings, spoken=True)
        if not claims or found.standing is not STANDING.holds:
            return found
        (verdict,) = check.judge([instance])
    except (ValueError, TypeError, ArithmeticError, NumericalError) as error:
        return _unasked(check, error)
    standing = STANDING.fails if verdict.status is STATUS.fails else STANDING.holds
    return Finding(
        "theorems", check.statement, standing, None, found.residual, found.tolerance, verdict.message, check.id
    )


def _unasked(check: Check, error: Exception) -> Finding:
    """A statement that is made for other shapes than those of this network."""
    reason = f"It cannot be asked about this network: {' '.join(str(error).split())[:160]}"
    return Finding("theorems", check.statement, STANDING.silent, reason=reason, source=check.id)


def _line(check: Check, readings: tuple[Reading, ...], *, spoken: bool) -> Finding:
    """A statement with its worst hypothesis; `spoken` says whether it can be asked about this problem at all."""
    unmet = [reading for reading in readings if not reading.holds]
    if not unmet:
        worst = max(readings, key=lambda r: r.residual, default=None)
        residual = None if worst is None else worst.residual
        tolerance = None if worst is None else worst.tolerance
        return Finding("theorems", check.statement, STANDING.holds, None, residual, tolerance, "", check.id)
    lost = [reading for reading in unmet if np.isnan(reading.residual)]
    worst = lost[0] if lost else max(unmet, key=lambda r: r.residual)
    # Counts and yes-or-no hypotheses are missed by whole numbers, which nothing is near to.
    near = all(0 < r.residual <= NEARLY and r.tolerance < NEARLY for r in unmet)
    standing = STANDING.nearly if near else STANDING.fails if spoken else STANDING.silent
    return Finding(
        "theorems",
        check.statement,
        standing,
        None,
        worst.residual,
        worst.tolerance,
        f"It needs: {worst.name}.",
        check.id,
    )
