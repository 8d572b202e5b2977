r"""What can be said of a trained student: which theorem applies, what it promises, and what the student does.

A balanced student of a balanced teacher with $n$ active eigenvalues is the teacher if it has its first $k \ge 2n + 1$
entries (uniqueness), and is near it if it nearly has them (certificate). The hypotheses are measured on the student as
it is. The tail error is read beside the training loss: a student that never moved has a small one if the teacher's tail
is small, and has learnt nothing.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, check_count, check_number, entry, xp
from deeplinear.models import System, checked_system
from deeplinear.recurrent._certificate import certificate
from deeplinear.recurrent._measure import NEGATIVE, SpectralMeasure, measure_from_moments, spectral_measure
from deeplinear.recurrent._response import (
    SYMMETRIC,
    Extrapolation,
    Response,
    checked_response,
    extrapolation,
    hankel_order,
    impulse_response,
)

Theorem = Literal["none", "uniqueness", "certificate"]

Outcome = Literal["not trained", "does not extrapolate", "extrapolates"]

ZERO = 1e-12
"""Residuals of the known entries, relative to the entries themselves, that are zero but for rounding."""

REPRODUCED = 1e-6
"""Largest misfit, relative to the largest entry, of the atoms that are read off a response."""

STABLE = 1e-12
"""How far beyond 1 an eigenvalue may be by rounding."""


class Condition(NamedTuple):
    """A hypothesis as it was measured.

    Attributes:
        statement: What should hold.
        residual: By how much it is missed.
        tolerance: What still counts as holding.
        needed: Whether the theorems need it; those that are not are for information.
    """

    statement: str
    residual: float
    tolerance: float
    needed: bool = True

    @property
    def holds(self) -> bool:
        """Whether the residual is within the tolerance."""
        return self.residual <= self.tolerance

    def __str__(self) -> str:
        beside = "" if self.needed else ", not needed"
        return (
            f"{'holds' if self.holds else 'fails'}  {self.statement}: residual {self.residual:.3g}, "
            f"tolerance {self.tolerance:.1g}{beside}"
        )


class ExtrapolationVerdict(NamedTuple):
    r"""What hypotheses hold for a student, what follows from them, and what it does.

    Attributes:
        conditions: The hypotheses, measured; those that make no sense without an earlier one are left out.
        order: $n$, active eigenvalues of the teacher, or the rank of its Hankel matrix.
        radius: Largest eigenvalue of student and teacher that takes part, in size.
        theorem: `"none"` if a hypothesis fails; `"uniqueness"` if the residuals are zero but for rounding, and the
            certified errors that rounding leaves are less than the yardstick; else `"certificate"`.
        observed: Training loss, tail error and its yardstick.
        zero_loss: Training loss of the zero student; half the largest squared entry of the teacher if that vanishes.
        converged: Share of it that a training loss may have.
        bounds: Certified errors $|h_j - w_j|$, $k \le j < H$, from the residuals; nothing without a theorem.
        prior_bounds: The same from the loss alone.
        leak: Mass of the student off the teacher's spectrum, $\sum_{i\le2n}P_ir_i$.
    """

    conditions: tuple[Condition, ...]
    order: int
    radius: float
    theorem: Theorem
    observed: Extrapolation
    zero_loss: float
    converged: float
    bounds: Float[Array, " tail"] | None
    prior_bounds: Float[Array, " tail"] | None
    leak: float | None

    @property
    def failed(self) -> tuple[Condition, ...]:
        """Hypotheses of the theorems that do not hold."""
        return tuple(c for c in self.conditions if c.needed and not c.holds)

    @property
    def trained(self) -> bool:
        """Whether the training loss is a small share of that of the zero student."""
        return self.observed.training_loss <= self.converged * self.zero_loss

    @property
    def outcome(self) -> Outcome:
        """What the student does: nothing is said of the tail of one that is not trained."""
        if not self.trained:
            return "not trained"
        return "extrapolates" if self.observed.error < self.observed.reference else "does not extrapolate"

    @property
    def extrapolates(self) -> bool:
        """Whether the student is trained and its tail is better than that of the zero student."""
        return self.outcome == "extrapolates"

    @property
    def certified_error(self) -> float | None:
        """Largest tail error that the residuals leave possible; `None` without a theorem."""
        return None if self.bounds is None else float(np.max(self.bounds))

    @property
    def prior_error(self) -> float | None:
        """Largest tail error that the loss leaves possible; `None` without a theorem."""
        return None if self.prior_bounds is None else float(np.max(self.prior_bounds))

    @property
    def certified(self) -> bool:
        """Whether it is proved, not only seen, that the student is better than the zero student."""
        return self.trained and self.certified_error is not None and self.certified_error < self.observed.reference

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [self._outcome_in_words(), self._theorem_in_words()]
        if self.observed.degenerate:
            lines.append(
                "The tail of the teacher vanishes, so the zero student continues it without error: the yardstick is "
                "the teacher's largest entry, and only a trained student counts."
            )
        return "\n".join([*lines, *(f"  {condition}" for condition in self.conditions)])

    def _outcome_in_words(self) -> str:
        seen = self.observed
        span = f"j = {seen.length}..{seen.horizon - 1}"
        losses = f"training loss {seen.training_loss:.3g}, that of the zero student {self.zero_loss:.3g}"
        if not self.trained:
            return (
                f"Not trained: {losses}, of which it is more than {self.converged:g}. The tail error {seen.error:.3g} "
                f"over {span} alone says nothing."
            )
        tail = f"tail error {seen.error:.3g} over {span}, yardstick {seen.reference:.3g} (that of the zero student)"
        verb = "Extrapolates" if self.extrapolates else "Does not extrapolate"
        return f"{verb}: {tail}; {losses}."

    def _theorem_in_words(self) -> str:
        if self.theorem == "none":
            missed = "; ".join(f"{c.statement} (residual {c.residual:.3g})" for c in self.failed)
            return f"No theorem applies, so what is seen holds for this horizon only. Missed: {missed}."
        known = f"k = {self.observed.length}, 2n + 1 = {2 * self.order + 1}"
        bound = (
            f"tail error at most {self.certified_error:.3g} by the residuals, {self.prior_error:.3g} by the loss alone"
        )
        if self.theorem == "uniqueness":
            return f"Zero loss but for rounding, so the response is the teacher's ({known}); with rounding, {bound}."
        useful = self.certified_error is not None and self.certified_error < self.observed.reference
        use = "better than the zero student" if useful else "which proves nothing here"
        return f"The certificate applies ({known}): {bound}, {use}."


class _Teacher(NamedTuple):
    """The teacher's response, order, and atoms where it is a positive measure."""

    response: np.ndarray
    order: int
    measure: SpectralMeasure | None
    conditions: tuple[Condition, ...]


@entry(instead="call it outside of jit, vmap and grad, or compare the values of impulse_response")
def extrapolation_verdict(
    student: Any,
    teacher: Any,
    length: int,
    *,
    horizon: int,
    converged: float = 1e-3,
    order_tolerance: float = 1e-8,
) -> ExtrapolationVerdict:
    r"""Hypotheses of the extrapolation theorems, measured on a student; what they promise, beside what it does.

    Needed are one input and output, a student with $A = A^\top$ and spectral weights $p_i \ge 0$ (so it is with
    $B = C^\top$), a teacher that is a positive measure of $n$ atoms, and $k \ge 2n + 1$. Then with residuals $r$ of the
    first $k$ entries $|h_j - w_j| \le K_j\|r\|$ for all $j$. Stability is not needed; it is reported. The bounds
    include the rounding of the residuals, weights that are negative by rounding, and the misfit of a teacher's atoms.

    Args:
        student: $A$, $B$, $C$.
        teacher: $A$, $B$, $C$, or the response $w_0, w_1, \dots$ up to the horizon or further. The order of a response,
            or of a system that is not symmetric, is the rank of its Hankel matrix, and its atoms are those of the
            measure with the first $2n$ moments.
        length: $k$, entries trained on.
        horizon: $H > k$, where the tail ends.
        converged: Training loss, as a share of that of the zero student, up to which a student counts as trained.
        order_tolerance: Singular value of that Hankel matrix, relative to the largest, that counts as none.

    Raises:
        HypothesisError: The teacher is zero up to the horizon.

    Example:
        >>> column = jnp.array([[0.8], [0.6], [1e-6]])
        >>> student = (jnp.diag(jnp.array([0.9, -0.5, 0.2])), column, column.T)
        >>> teacher = (jnp.diag(jnp.array([0.9, -0.5])), column[:2], column[:2].T)
        >>> found = extrapolation_verdict(student, teacher, 5, horizon=40)
        >>> found.theorem, found.outcome, found.certified
        ('uniqueness', 'extrapolates', True)
        >>> found = extrapolation_verdict(student, teacher, 4, horizon=40)
        >>> [condition.statement for condition in found.failed]
        ['length at least 2n + 1 = 5']
    """
    where = "extrapolation_verdict"
    pupil = checked_system(where, student)
    check_count(where, "length", length, at_least=1)
    check_count(where, "horizon", horizon, at_least=length + 1)
    check_number(where, "converged", converged, above=0, at_most=1)
    check_number(where, "order_tolerance", order_tolerance, above=0, at_most=1)
    example = _checked_teacher(where, teacher, horizon, order_tolerance)
    response = impulse_response(pupil, horizon)
    observed = extrapolation(response, example.response, length, horizon=horizon)

    target = example.response[:horizon].reshape(horizon, -1)
    zero_loss = 0.5 * float(np.sum(target[:length] ** 2)) or 0.5 * float(np.abs(target).max()) ** 2
    size = max(pupil.input.shape[1], len(pupil.output))
    transition = np.asarray(pupil.transition)
    asymmetry = float(np.abs(transition - transition.T).max()) / max(1.0, float(np.abs(transition).max()))
    conditions = [
        Condition("one input and one output", size - 1.0, 0.0),
        Condition("student: symmetric transition matrix", asymmetry, SYMMETRIC),
    ]
    measure = None
    if all(c.holds for c in conditions):
        measure = spectral_measure(pupil, signed=True, drop=0.0)
        conditions.append(_positive("student: no negative spectral weight", measure))
    elif pupil.input.shape[1] == len(pupil.output):
        conditions.append(_balanced(pupil))
    conditions.extend(example.conditions)
    least = 2 * example.order + 1
    conditions.append(Condition(f"length at least 2n + 1 = {least}", float(max(0, least - length)), 0.0))

    applies = all(c.holds for c in conditions)
    share = math.sqrt(observed.training_loss / zero_loss)
    conditions.append(Condition("residuals zero but for rounding", share, ZERO, needed=False))
    radius = _radius(pupil, measure, example)
    conditions.append(Condition("stable: eigenvalues within 1", max(0.0, radius - 1.0), STABLE, needed=False))
    bounds = prior_bounds = leak = None
    if applies and measure is not None and example.measure is not None:
        found = _certified(response, measure, example.measure, example.response, radius, length, horizon)
        bounds, prior_bounds, leak = found
    # Mass far out may have no place in the digits of the first entries: then zero residuals mean nothing.
    resolved = bounds is not None and float(np.max(bounds)) < observed.reference
    return ExtrapolationVerdict(
        conditions=tuple(conditions),
        order=example.order,
        radius=radius,
        theorem="none" if not applies else "uniqueness" if resolved and share <= ZERO else "certificate",
        observed=observed,
        zero_loss=zero_loss,
        converged=float(converged),
        bounds=bounds,
        prior_bounds=prior_bounds,
        leak=leak,
    )


def _checked_teacher(where: str, teacher: Any, horizon: int, tolerance: float) -> _Teacher:
    if isinstance(teacher, tuple | list) and len(teacher) == 3 and all(np.ndim(matrix) == 2 for matrix in teacher):
        system = checked_system(f"{where} (teacher)", teacher)
        response = impulse_response(system, horizon)
        if response.diverged_at is not None:
            raise ValueError(
                f"{where}: horizon must be at most {response.diverged_at}, where the teacher overflows, but is "
                f"{horizon}."
            )
        transition = np.asarray(system.transition)
        asymmetry = float(np.abs(transition - transition.T).max())
        single = system.input.shape[1] == len(system.output) == 1
        if single and asymmetry <= SYMMETRIC * max(1.0, float(np.abs(transition).max())):
            measure = spectral_measure(system, signed=True)
            condition = _positive("teacher: no negative spectral weight", measure)
            kept = _without_negative(measure) if condition.holds else None
            order = measure.order if kept is None else kept.order
            return _Teacher(np.asarray(response.values), order, kept, (condition,))
        values = np.asarray(response.values)
    else:
        values = checked_response(where, "teacher", teacher.values if isinstance(teacher, Response) else teacher)
    if len(values) < horizon:
        raise ValueError(f"{where}: teacher must reach the horizon, {horizon} entries, but has {len(values)}.")
    return _from_response(values, tolerance)


def _from_response(values: np.ndarray, tolerance: float) -> _Teacher:
    """Order by the Hankel matrix, and the positive measure with the first moments where there is one."""
    order = hankel_order(values, tolerance=tolerance)
    if values.ndim > 1:
        return _Teacher(values, order, None, ())
    rows = (len(values) + 1) // 2
    eigenvalues = np.linalg.eigvalsh(values[np.add.outer(np.arange(rows), np.arange(rows))])
    largest = float(np.abs(eigenvalues).max()) or 1.0
    positive = Condition(
        "teacher: Hankel matrix not negative", max(0.0, -float(eigenvalues[0])) / largest, float(tolerance)
    )
    if not positive.holds or order == 0 or 2 * order > len(values):
        return _Teacher(values, order, None, (positive,))
    try:
        measure = measure_from_moments(values[: 2 * order], order)
        with np.errstate(over="ignore", invalid="ignore"):
            misfit = float(np.abs(np.asarray(measure.moments(len(values))) - values).max())
    except HypothesisError:  # not positive definite at this order, if only by rounding
        measure, misfit = None, math.inf
    misfit = misfit / float(np.abs(values).max()) if math.isfinite(misfit) else math.inf
    atoms = Condition(f"teacher: response of {order} atoms", misfit, REPRODUCED)
    return _Teacher(values, order, measure if atoms.holds else None, (positive, atoms))


def _positive(statement: str, measure: SpectralMeasure) -> Condition:
    weights = np.asarray(measure.weights)
    total = float(np.abs(weights).sum()) or 1.0
    return Condition(statement, float(np.max(-weights, initial=0.0)) / total, NEGATIVE)


def _without_negative(measure: SpectralMeasure) -> SpectralMeasure:
    """Atoms whose weight is not negative by rounding."""
    kept = np.asarray(measure.weights) > 0
    return SpectralMeasure(*(xp.asarray(np.asarray(values)[kept], dtype=float) for values in measure))


def _balanced(system: System) -> Condition:
    first, output = np.asarray(system.input), np.asarray(system.output)
    largest = max(float(np.abs(first).max()), float(np.abs(output).max())) or 1.0
    return Condition("student: balanced, B = Cᵀ", float(np.abs(first - output.T).max()) / largest, NEGATIVE)


def _radius(student: System, measure: SpectralMeasure | None, teacher: _Teacher) -> float:
    """Largest size of an eigenvalue that takes part in a response, as far as the parts are known."""
    if measure is None:
        sizes = np.abs(np.linalg.eigvals(np.asarray(student.transition)))
    else:
        sizes = np.abs(np.asarray(measure.atoms)[np.asarray(measure.weights) != 0])
    atoms = np.abs(np.asarray(teacher.measure.atoms)) if teacher.measure is not None else np.zeros(0)
    return float(np.max(np.concatenate([sizes, atoms]), initial=0.0))


def _certified(
    response: Response,
    student: SpectralMeasure,
    teacher: SpectralMeasure,
    target: np.ndarray,
    radius: float,
    length: int,
    horizon: int,
) -> tuple[Float[Array, " tail"], Float[Array, " tail"], float]:
    """Bounds on the tail from the residuals and from the loss, and the leak; infinite where numbers overflow."""
    beyond = xp.asarray(np.full(horizon - length, math.inf), dtype=float)
    atoms, weights = np.asarray(student.atoms), np.asarray(student.weights)
    nodes, masses = np.asarray(teacher.atoms), np.asarray(teacher.weights)
    off = np.prod((atoms[:, None] - nodes) ** 2, axis=1)
    if response.diverged_at is not None:
        return beyond, beyond, float(weights @ off)
    try:
        found = certificate(nodes, length, horizon, radius=radius)
    except ValueError:  # the constants overflow
        return beyond, beyond, float(weights @ off)
    fitted = np.asarray(teacher.moments(horizon))
    residuals = np.asarray(response.values)[:length] - fitted[:length]
    powers = np.arange(horizon)
    sizes = np.abs(weights) @ np.abs(atoms)[:, None] ** powers + masses @ np.abs(nodes)[:, None] ** powers
    rounding = np.finfo(float).eps * (len(atoms) + len(nodes) + powers) * sizes
    negative = 2 * float(np.maximum(-weights, 0.0) @ off)  # the leak counts it with the wrong sign
    constants, remainders = np.asarray(found.constants), np.asarray(found.remainders)
    extra = constants * float(np.linalg.norm(rounding[: 2 * len(nodes) + 1])) + remainders * negative
    extra += rounding + np.abs(fitted - target[:horizon])
    bounds = np.asarray(found.bounds(residuals)) + extra
    prior = constants * float(np.linalg.norm(residuals)) + extra
    leak = float(residuals[: 2 * len(nodes) + 1] @ np.asarray(found.annihilator))
    return xp.asarray(bounds[length:], dtype=float), xp.asarray(prior[length:], dtype=float), leak
