"""A theorem as data: hypotheses with residuals, a claim with a tolerance, random instances and planted violations."""

import dataclasses
import enum
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from deeplinear.core import HypothesisError, Params, check_count, check_x64
from deeplinear.models import Problem

I = TypeVar("I")  # noqa: E741
"""What a check is about: one problem with its start, or whatever the statement speaks of."""


class STATUS(enum.Enum):
    """What came of a check. The value is the word a person reads."""

    holds = "holds"
    erratum = "as printed or read it is wrong"
    unmet = "hypotheses not met"
    fails = "fails"

    @property
    def bad(self) -> bool:
        """Whether the statement, in the form we stand for, was contradicted."""
        return self is STATUS.fails


@dataclasses.dataclass(frozen=True)
class Hypothesis(Generic[I]):
    """A condition of a theorem as a residual: it holds where the residual is at most the tolerance.

    A condition that is true or false has the residual 0 or 1; an inequality $a \\le b$ the residual $a - b$.
    """

    name: str
    residual: Callable[[I], float]
    tolerance: float = 0.0


@dataclasses.dataclass(frozen=True)
class Measured:
    """What was measured on one instance.

    Attributes:
        residuals: For each part of the claim by how much it is missed; it holds where this is at most its tolerance.
        printed: By how much the statement as printed is missed, where it differs from the one we stand for.
        facts: Numbers worth showing: both sides of an inequality, the slack.
    """

    residuals: Mapping[str, float]
    printed: float | None = None
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Violation(Generic[I]):
    """A way to break the statement: instances on which the claim must be missed by more than its tolerance.

    What the library refuses to measure, naming a hypothesis that does not hold, is noticed too.
    """

    name: str
    draw: Callable[[np.random.Generator], I]


@dataclasses.dataclass(frozen=True)
class Reading:
    """One measured number beside its tolerance."""

    name: str
    residual: float
    tolerance: float

    @property
    def holds(self) -> bool:
        """Whether the number is within its tolerance; one that is not a number is not."""
        return bool(self.residual <= self.tolerance)

    def to_json(self) -> dict[str, Any]:
        """The reading as plain values; a residual that is not finite is text."""
        number = self.residual if math.isfinite(self.residual) else str(self.residual)
        return {"name": self.name, "residual": number, "tolerance": self.tolerance, "holds": self.holds}

    def __str__(self) -> str:
        return f"{self.name}: {self.residual:.3g} ({'≤' if self.holds else 'not ≤'} {self.tolerance:.3g})"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What a check says of one instance.

    Attributes:
        check: Id of the check.
        status: The outcome.
        hypotheses: Residuals of the hypotheses.
        claim: Residuals of the parts of the claim; empty where the hypotheses are not met.
        printed: Residual of the statement as printed, where it is another.
        facts: Numbers worth showing.
        message: The outcome in one sentence.
    """

    check: str
    status: STATUS
    hypotheses: tuple[Reading, ...]
    claim: tuple[Reading, ...] = ()
    printed: Reading | None = None
    facts: Mapping[str, float] = dataclasses.field(default_factory=dict)
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; numbers that are not finite are text."""
        return {
            "check": self.check,
            "status": self.status.name,
            "message": self.message,
            "hypotheses": [r.to_json() for r in self.hypotheses],
            "claim": [r.to_json() for r in self.claim],
            "printed": None if self.printed is None else self.printed.to_json(),
            "facts": {k: float(v) if math.isfinite(v) else str(v) for k, v in self.facts.items()},
        }

    def __str__(self) -> str:
        return f"{self.check}: {self.status.value}. {self.message}"


@dataclasses.dataclass(frozen=True)
class Check(Generic[I]):
    """A statement of a paper that can be run.

    Attributes:
        id: `paper/name`, such as `completion/theorem-3.3`.
        source: Where the paper states it, such as `Theorem 3.3`.
        statement: The statement we stand for, in one sentence.
        hypotheses: Its conditions.
        tolerances: Tolerance of each part of the claim.
        measure: Measures the claim on several instances at once, so that runs of equal shape share a batch.
        draw: A random instance that satisfies the hypotheses.
        violations: Ways to break it; on each the claim must be missed.
        printed: The statement as printed, where that is wrong.
        printed_tolerance: Tolerance of the printed statement.
        sized: A random instance of a network of given widths, where the statement is about networks of many shapes;
            raises `HypothesisError` or `ValueError` where it does not speak of these widths.
        adopt: The instance of a given problem and start; raises `HypothesisError` where there is none.
        version: Raised when the same seed gives other instances or other numbers than before.
    """

    id: str
    source: str
    statement: str
    hypotheses: tuple[Hypothesis[I], ...]
    tolerances: Mapping[str, float]
    measure: Callable[[Sequence[I]], Sequence[Measured]]
    draw: Callable[[np.random.Generator], I]
    violations: tuple[Violation[I], ...]
    printed: str | None = None
    printed_tolerance: float = 0.0
    sized: Callable[[np.random.Generator, tuple[int, ...]], I] | None = None
    adopt: Callable[[Problem, Params], I] | None = None
    version: int = 1

    @property
    def paper(self) -> str:
        """Short name of the paper."""
        return self.id.split("/")[0]

    def judge(self, instances: Sequence[I]) -> list[Verdict]:
        """One verdict for each instance; the claim is measured only where the hypotheses are met."""
        readings = [self._hypotheses(instance) for instance in instances]
        met = [i for i, reading in enumerate(readings) if all(r.holds for r in reading)]
        measured = dict(zip(met, self.measure([instances[i] for i in met]), strict=True)) if met else {}
        return [self._verdict(readings[i], measured.get(i)) for i in range(len(instances))]

    def _hypotheses(self, instance: I) -> tuple[Reading, ...]:
        return tuple(Reading(h.name, float(h.residual(instance)), h.tolerance) for h in self.hypotheses)

    def _claim(self, measured: Measured) -> tuple[Reading, ...]:
        if set(measured.residuals) != set(self.tolerances):
            raise RuntimeError(f"Check {self.id} measured {set(measured.residuals)}, not {set(self.tolerances)}.")
        return tuple(Reading(name, float(measured.residuals[name]), tol) for name, tol in self.tolerances.items())

    def _verdict(self, hypotheses: tuple[Reading, ...], measured: Measured | None) -> Verdict:
        if measured is None:
            unmet = [str(r) for r in hypotheses if not r.holds]
            return Verdict(self.id, STATUS.unmet, hypotheses, message=f"Not met: {'; '.join(unmet)}.")
        claim = self._claim(measured)
        broken = [str(r) for r in claim if not r.holds]
        printed = None
        if measured.printed is not None:
            printed = Reading("as printed", float(measured.printed), self.printed_tolerance)
        if broken:
            status, message = STATUS.fails, f"Missed: {'; '.join(broken)}."
        elif printed is not None and not printed.holds:
            status, message = STATUS.erratum, f"The printed form is missed, {printed}; ours holds."
        else:
            worst = max(claim, key=_strain)
            status, message = STATUS.holds, f"Closest: {worst}."
        return Verdict(self.id, status, hypotheses, claim, printed, measured.facts, message)

    def __str__(self) -> str:
        return f"{self.id} ({self.source}): {self.statement}"


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a planted violation did: whether it was caught, and the residual that gave it away."""

    name: str
    caught: bool
    reading: Reading | None
    unmet: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a check over many random instances and all planted violations.

    Attributes:
        check: The check.
        status: `holds` or `erratum` if every instance held and every violation was caught, else `fails`.
        message: The outcome in one sentence.
        instances: Number of random instances.
        seed: Seed they were drawn with.
        widths: Widths they were drawn with, where they were chosen.
        claim: Largest residual of each part over all instances.
        printed: Largest residual of the printed form, where it is another.
        trials: The violations.
        broken: Positions of the instances that did not hold.
        seconds: Wall-clock time.
    """

    check: Check
    status: STATUS
    message: str
    instances: int
    seed: int
    claim: tuple[Reading, ...]
    printed: Reading | None
    trials: tuple[Trial, ...]
    broken: tuple[int, ...]
    seconds: float
    widths: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; numbers that are not finite are text."""
        return {
            "id": self.check.id,
            "paper": self.check.paper,
            "source": self.check.source,
            "statement": self.check.statement,
            "printed_statement": self.check.printed,
            "version": self.check.version,
            "status": self.status.name,
            "message": self.message,
            "instances": self.instances,
            "seed": self.seed,
            "widths": None if self.widths is None else list(self.widths),
            "claim": [r.to_json() for r in self.claim],
            "printed": None if self.printed is None else self.printed.to_json(),
            "violations": [
                {
                    "name": t.name,
                    "caught": t.caught,
                    "claim": None if t.reading is None else t.reading.to_json(),
                    "hypotheses_not_met": list(t.unmet),
                }
                for t in self.trials
            ],
            "broken": list(self.broken),
            "seconds": self.seconds,
        }


def generator(*names: object) -> np.random.Generator:
    """Random numbers that depend on names only, not on the order in which things are run.

    Example:
        >>> bool(generator("a", 1).integers(10**6) == generator("a", 1).integers(10**6))
        True
    """
    digest = hashlib.sha256("\x00".join(map(str, names)).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:16], "little"))


def verify(check: Check, *, instances: int = 50, seed: int = 0, widths: Sequence[int] | None = None) -> Outcome:
    """Run a check on random instances and on every planted violation.

    Instance $k$ depends on the check, the seed and $k$ only: the first ten of fifty are the ten of ten.

    Args:
        check: The check.
        instances: How many random instances.
        seed: Seed of the instances.
        widths: Widths of the networks to draw, for checks that can be `sized`; violations keep their own.

    Returns:
        The outcome; it fails if an instance fails, if one does not meet the hypotheses it was drawn to meet, or if a
        violation goes unnoticed.
    """
    check_x64("verify")
    check_count("verify", "instances", instances, at_least=1)
    check_count("verify", "seed", seed)
    start = time.perf_counter()
    drawn = [_drawn(check, generator(check.id, seed, k), widths) for k in range(instances)]
    verdicts = check.judge(drawn)
    trials = tuple(_trial(check, violation, seed) for violation in check.violations)
    broken = tuple(k for k, v in enumerate(verdicts) if v.status in (STATUS.fails, STATUS.unmet))
    claim = tuple(
        max((r for v in verdicts for r in v.claim if r.name == name), key=_strain)
        for name in check.tolerances
        if any(v.claim for v in verdicts)
    )
    prints = [v.printed for v in verdicts if v.printed is not None]
    printed = max(prints, key=_strain) if prints else None
    missed = [t.name for t in trials if not t.caught]
    if broken:
        status = STATUS.fails
        message = (
            f"{len(broken)} of {instances} instances do not hold; number {broken[0]}: {verdicts[broken[0]].message}"
        )
    elif missed or not trials:
        status = STATUS.fails
        message = f"Planted violations were not noticed: {', '.join(missed)}." if trials else "It has no violations."
    elif check.printed is not None:
        wrong = printed is not None and not printed.holds
        status = STATUS.erratum if wrong else STATUS.fails
        message = (
            f"As printed or read, missed by {printed.residual:.3g}: {check.printed}"
            if wrong and printed is not None
            else "The printed form was expected to be missed, but holds on every instance."
        )
    else:
        status, message = STATUS.holds, f"Closest on {instances} instances: {max(claim, key=_strain)}."
    return Outcome(
        check,
        status,
        message,
        instances,
        seed,
        claim,
        printed,
        trials,
        broken,
        time.perf_counter() - start,
        None if widths is None else tuple(widths),
    )


def _drawn(check: Check[I], rng: np.random.Generator, widths: Sequence[int] | None) -> I:
    if widths is None:
        return check.draw(rng)
    if check.sized is None:
        raise ValueError(f"verify: {check.id} draws networks of its own widths; leave widths out.")
    for position, width in enumerate(widths):
        check_count("verify", f"widths[{position}]", width, at_least=1)
    return check.sized(rng, tuple(widths))


def examine(problem: Problem, params: Params, checks: Iterable[Check]) -> list[Verdict]:
    """Which statements apply to a given problem and start, and what they say of it.

    Args:
        problem: Model and loss.
        params: Layers at the start.
        checks: The statements to try; those that cannot speak of a single problem are passed over.

    Returns:
        A verdict for each statement that can be asked; `unmet` with the residual where it does not apply, or with the
        reason where it cannot be measured, as at a network of zeros.
    """
    check_x64("examine")
    verdicts = []
    for check in checks:
        if check.adopt is None:
            continue
        try:
            found = check.judge([check.adopt(problem, params)])
        except HypothesisError as error:
            reading = Reading(error.hypothesis, error.residual, error.tolerance)
            found = [Verdict(check.id, STATUS.unmet, (reading,), message=f"Not met: {reading}.")]
        except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
            found = [_unmeasured(check, f"{type(error).__name__}: {error}")]
        verdicts += [
            _unmeasured(check, "a residual is not a number")
            if any(math.isnan(r.residual) for r in verdict.claim)
            else verdict
            for verdict in found
        ]
    return verdicts


def _unmeasured(check: Check, why: str) -> Verdict:
    """The verdict on a network at which a ratio of the statement is 0/0, such as one with a layer of zeros."""
    reading = Reading("a network at which the statement can be measured", 1.0, 0.0)
    return Verdict(check.id, STATUS.unmet, (reading,), message=f"Not met: {reading.name} ({why}).")


def _trial(check: Check, violation: Violation, seed: int) -> Trial:
    """The claim is measured whether or not the hypotheses are met: a violation that breaks nothing proves nothing.

    Where the library refuses the instance, its error names what is broken; a draw that is refused is a fault.
    """
    instance = violation.draw(generator(check.id, violation.name, seed))
    unmet = tuple(r.name for r in check._hypotheses(instance) if not r.holds)
    try:
        (measured,) = check.measure([instance])
    except HypothesisError as error:
        return Trial(violation.name, True, Reading(error.hypothesis, error.residual, error.tolerance), unmet)
    reading = max(check._claim(measured), key=_strain)
    return Trial(violation.name, not reading.holds, reading, unmet)


def _strain(reading: Reading) -> float:
    """How far a residual uses up its tolerance; what is not a number is worst."""
    if math.isnan(reading.residual):
        return math.inf
    excess = reading.residual - reading.tolerance
    return excess / reading.tolerance if reading.tolerance > 0 else excess
