"""What a diagnosis is made of: findings, each with its measured number, and predictions, each with its hypotheses."""

import dataclasses
import enum
import math
from typing import Any, Literal, TypeGuard

Matrix = tuple[tuple[float, ...], ...]
"""Rows of a matrix."""

Value = float | tuple[float, ...] | Matrix | str | None
"""What a line has to show: a number, several, a matrix, a word, or nothing."""

NEARLY = 0.05
"""Largest relative residual of a hypothesis that nearly holds."""


class STANDING(enum.Enum):
    """How a statement stands to a network. The value is the word a person reads."""

    holds = "holds"
    nearly = "nearly holds"
    fails = "does not hold"
    silent = "does not apply"
    measured = "measured"

    @property
    def sign(self) -> str:
        """One letter for tables."""
        return {"holds": "✓", "nearly": "≈", "fails": "✗", "silent": "–", "measured": "·"}[self.name]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One line of a diagnosis.

    Attributes:
        topic: What it is about, such as `balance`; lines of one topic stand together.
        statement: The statement in plain words.
        standing: Whether it holds, nearly holds, does not hold, does not apply, or is a number that was measured.
        value: The number that belongs to it.
        residual: By how much it is missed, relative to the size of what it speaks of; `None` where it is no matter of
            degree.
        tolerance: Largest residual at which it holds.
        reason: Why it does not hold or apply, or what follows from it.
        source: Where it is stated: the id of a check, or the function that measured it.
    """

    topic: str
    statement: str
    standing: STANDING = STANDING.measured
    value: Value = None
    residual: float | None = None
    tolerance: float | None = None
    reason: str = ""
    source: str = ""

    def to_json(self) -> dict[str, Any]:
        """All attributes as plain values; numbers that are not finite are text."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return plain | {"standing": self.standing.name, "value": plain_value(self.value)} | _numbers(self)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a theorem whose hypotheses hold says of the training to come, and what became of it.

    Attributes:
        name: Key, such as `loss_end`.
        statement: What is predicted, in plain words.
        value: The predicted number or numbers.
        relation: Whether it is predicted to be `equal`, `at least` or `at most` that.
        rtol: Relative difference up to which the outcome agrees.
        atol: Absolute one.
        source: The closed form or theorem it follows from.
        rate: Rate of the envelope, where the loss is predicted to stay below one.
        offset: What of the loss does not count: a constant of the data, or the limit that is approached.
        outcome: What a run did; `None` without one.
        agrees: Whether the outcome agrees; `None` where it cannot be said.
        reason: Why it cannot be said.
    """

    name: str
    statement: str
    value: Value
    relation: Literal["equal", "at least", "at most"] = "equal"
    rtol: float = 1e-4
    atol: float = 0.0
    source: str = ""
    rate: float | None = None
    offset: float = 0.0
    outcome: Value = None
    agrees: bool | None = None
    reason: str = ""

    def judged(self, outcome: Value) -> "Prediction":
        """The same with an outcome, compared."""
        return dataclasses.replace(self, outcome=outcome, agrees=_agree(self, outcome))

    def open(self, reason: str) -> "Prediction":
        """The same with the reason why there is no outcome to compare with."""
        return dataclasses.replace(self, reason=reason)

    @property
    def remark(self) -> str:
        """What to know beside the outcome: why there is none, or that it keeps a bound up to the tolerance only."""
        exact = dataclasses.replace(self, rtol=0.0, atol=0.0)
        if self.relation == "equal" or not self.agrees or _agree(exact, self.outcome):
            return self.reason
        room = [f"{self.rtol:g} of it"] * (self.rtol > 0) + [f"{self.atol:.2g}"] * (self.atol > 0)
        return f"The bound is kept up to the tolerance, {' and '.join(room)}."

    def to_json(self) -> dict[str, Any]:
        """All attributes as plain values; numbers that are not finite are text."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return plain | {"value": plain_value(self.value), "outcome": plain_value(self.outcome)}


def standing_of(residual: float, tolerance: float, nearly: float = NEARLY) -> STANDING:
    """Whether a residual is within its tolerance, near it, or neither; what is not a number is neither.

    Example:
        >>> [standing_of(r, 1e-8).value for r in (1e-12, 1e-3, 0.4)]
        ['holds', 'nearly holds', 'does not hold']
    """
    if residual <= tolerance:
        return STANDING.holds
    return STANDING.nearly if residual <= nearly else STANDING.fails


def value_text(value: Value, most: int = 6) -> str:
    """A value as a person reads it.

    Example:
        >>> value_text((2.0, 0.5)), value_text(float("nan")), value_text(None)
        ('2, 0.5', '–', '')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if is_matrix(value):
        return f"{len(value)} × {len(value[0])} matrix"
    if isinstance(value, tuple):
        more = f", … ({len(value)})" if len(value) > most else ""
        return ", ".join(value_text(one) for one in value[:most]) + more
    return "–" if math.isnan(value) else f"{value:.4g}"


def is_matrix(value: Value) -> TypeGuard[Matrix]:
    """Whether a value is a matrix."""
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], tuple)


def plain_value(value: Value) -> Any:
    """A value for JSON; numbers that are not finite are text."""
    if isinstance(value, tuple):
        return [plain_value(one) for one in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _numbers(finding: Finding) -> dict[str, Any]:
    return {"residual": plain_value(finding.residual), "tolerance": plain_value(finding.tolerance)}


def _agree(prediction: Prediction, outcome: Value) -> bool | None:
    if outcome is None or prediction.value is None:
        return None
    if isinstance(outcome, str) or isinstance(prediction.value, str):
        return outcome == prediction.value
    wanted, seen = _numbers_of(prediction.value), _numbers_of(outcome)
    if len(wanted) != len(seen):
        return False
    return all(_close(prediction, a, b) for a, b in zip(wanted, seen, strict=True))


def _numbers_of(value: float | tuple[float, ...] | Matrix) -> tuple[float, ...]:
    """The numbers of a value, one after another."""
    if is_matrix(value):
        return tuple(number for row in value for number in row)
    return value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportReturnType]


def _close(prediction: Prediction, wanted: float, seen: float) -> bool:
    if math.isnan(wanted) or math.isnan(seen):
        return math.isnan(wanted) and math.isnan(seen)
    room = prediction.atol + prediction.rtol * abs(wanted)
    low = prediction.relation == "at most" or seen >= wanted - room
    high = prediction.relation == "at least" or seen <= wanted + room
    return low and high
