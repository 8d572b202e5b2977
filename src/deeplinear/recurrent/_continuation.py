r"""How a response goes on after its first numbers: the least system that has them, and what they leave open.

The Hankel matrix of $w_0, \dots, w_{k-1}$ has the rank of the least system as soon as $k \ge 2n$; that the system is no
larger is seen at $k = 2n + 1$, where the rank falls short of the number of rows. If the matrix is not negative, the
least system is balanced, and the responses of all balanced systems with these numbers fill an interval at every later
index, which is a point from $k = 2n + 1$ on.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, check_count, check_number, check_x64, entry, xp
from deeplinear.models import System
from deeplinear.recurrent._ambiguity import extrapolation_interval
from deeplinear.recurrent._measure import SpectralMeasure, ho_kalman, spectral_measure
from deeplinear.recurrent._response import checked_numbers, hankel_order, impulse_response

EXACT = 1e-8
"""Tolerances up to this are those of exact numbers: the bounds are asked for without one."""


class Continuation(NamedTuple):
    """The least system with given first numbers, its response, and what others may do.

    Attributes:
        known: Given numbers, $k$.
        order: States of the least system, $n$.
        shown: Whether the numbers show that there are no more states: $k \\ge 2n + 1$.
        misfit: Largest difference between its response and the given numbers.
        system: The least system.
        response: Its response, $h_0, \\dots, h_{H-1}$.
        measure: Its spectral measure if it is balanced, else `None`.
        lower: Least values of balanced systems with the given numbers, as `response`; `None` if it is not balanced.
            Where the numbers leave something open, the error of the search is taken off: none has less.
        upper: Largest values, with that error added.
        reach: $R$: the eigenvalues of the systems between these lie in $[-R, R]$.
        tolerance: By how much the given numbers were allowed to be off in finding them.
        missing: Why there are no bounds; empty if there are.
    """

    known: int
    order: int
    shown: bool
    misfit: float
    system: System
    response: Float[Array, " horizon"]
    measure: SpectralMeasure | None
    lower: Float[Array, " horizon"] | None
    upper: Float[Array, " horizon"] | None
    reach: float
    tolerance: float
    missing: str

    def __repr__(self) -> str:
        sure = "shown" if self.shown else "at least"
        return f"Continuation(known={self.known}, order={self.order} ({sure}), decided={self.decided})"

    @property
    def radius(self) -> float:
        """Largest eigenvalue of the system, in size."""
        return float(np.max(np.abs(np.linalg.eigvals(np.asarray(self.system.transition)))))

    @property
    def decided(self) -> bool:
        """Whether balanced systems with these numbers agree on what follows, to a thousandth of the largest number."""
        if self.lower is None or self.upper is None:
            return False
        spread = float(np.max(np.asarray(self.upper) - np.asarray(self.lower)))
        return spread <= 1e-3 * float(np.max(np.abs(np.asarray(self.response)[: self.known])))


@entry(instead="call it outside of jit, vmap and grad; the size of its result depends on the values of the response")
def continuation(
    response: Any, horizon: int, *, tolerance: float = 1e-8, reach: float | None = None, between: bool = True
) -> Continuation:
    r"""How a response goes on: by the least system that has its first numbers, and between which bounds.

    Args:
        response: $w_0, \dots, w_{k-1}$, at least two numbers.
        horizon: $H > k$, entries of the response wanted.
        tolerance: Singular value of the Hankel matrix, relative to the largest, that counts as none: the accuracy of
            the numbers.
        reach: Eigenvalues of other balanced systems lie in $[-R, R]$; by default $R = 1$ if those of the least system
            are less, else 1.2 times its largest.
        between: Whether to find the bounds, two linear programmes for each index.

    Raises:
        HypothesisError: All numbers vanish, or the least system does not have them: an odd number of numbers may be
            more than so many states can have, and too few to find one more.

    Example:
        >>> found = continuation([1.0, 0.75, 0.625, 0.5625, 0.53125], 8)  # (1 + 2^-j) / 2 has two states
        >>> found.order, found.shown, round(float(found.response[7]), 8)
        (2, True, 0.50390625)
    """
    where = "continuation"
    check_x64(where)
    values = checked_numbers(where, "response", response, 2)
    known = len(values)
    check_count(where, "horizon", horizon, at_least=known + 1)
    check_number(where, "tolerance", tolerance, above=0, at_most=1)
    rows = (known + 1) // 2
    order = hankel_order(values, tolerance=tolerance, size=rows)
    if order == 0:
        raise HypothesisError(f"{where}: a response that does not vanish", 0.0, 0.0, "Zero goes on as zero.")
    shown = order < rows
    used = min(order, known // 2)
    system = ho_kalman(values, used, rows=known // 2)
    found = impulse_response(system, horizon)
    if found.diverged_at is not None:
        raise ValueError(
            f"{where}: horizon must be at most {found.diverged_at}, where the response overflows, but is {horizon}."
        )
    misfit = float(np.abs(np.asarray(found.values)[:known] - values).max())
    allowed = 10 * max(tolerance, 1e-8) * float(np.abs(values).max())
    if not misfit <= allowed:
        raise HypothesisError(
            f"{where}: a system of {used} {'state' if used == 1 else 'states'} that has the numbers",
            misfit,
            allowed,
            f"{known} numbers are too few to find {order} states: give one more, or one less."
            if order > used
            else "Give a tolerance that is the accuracy of the numbers.",
        )
    measure = spectral_measure(system) if np.array_equal(system.input, system.output.T) else None
    lower, upper, off, missing = None, None, 0.0, "they were not asked for"
    largest = float(np.abs(np.linalg.eigvals(np.asarray(system.transition))).max())
    if reach is not None:
        check_number(where, "reach", reach, at_least=largest * (1 - 1e-9))
    wide = max(reach, largest) if reach is not None else 1.0 if largest < 1 - 1e-9 else 1.2 * largest
    if measure is None:
        missing = "the least system is not balanced"
    elif between:
        # With the size shown the first 2n + 1 numbers decide; more of them make the programmes harder and say no more.
        given = values[: 2 * used + 1] if shown else values
        try:
            lower, upper, off = _bounds(values, len(given), np.asarray(found.values), wide, measure, tolerance, shown)
            missing = ""
        except ValueError as error:
            missing = str(error)
    return Continuation(known, used, shown, misfit, system, found.values, measure, lower, upper, wide, off, missing)


def _bounds(
    values: np.ndarray,
    used: int,
    response: np.ndarray,
    reach: float,
    measure: SpectralMeasure,
    tolerance: float,
    shown: bool,
) -> tuple[Float[Array, " horizon"], Float[Array, " horizon"], float]:
    """Least and largest values at every index, around those of the least system; the given ones where they are."""
    slack = tolerance * float(np.abs(values).max()) if tolerance > EXACT else 0.0
    low, high, off, atoms = list(values), list(values), slack, np.asarray(measure.atoms)
    for index in range(len(values), len(response)):
        found = extrapolation_interval(values[:used], index, low=-reach, high=reach, atoms=atoms, tolerance=slack)
        beyond = 0.0 if shown and slack == 0 else found.error  # exact numbers that show the size leave nothing open
        low.append(min(float(found.lower) - beyond, response[index]))
        high.append(max(float(found.upper) + beyond, response[index]))
        off = max(off, found.tolerance)
    return xp.asarray(low, dtype=float), xp.asarray(high, dtype=float), off
