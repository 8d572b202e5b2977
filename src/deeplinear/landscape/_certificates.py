"""Certificates: what a point of the landscape is, with a proof that can be measured again."""

import dataclasses
import enum
from typing import Any, TypeAlias

import numpy as np

from deeplinear.core import Params, inner, norm, xp
from deeplinear.landscape._arguments import Layers, Signature, set_name
from deeplinear.landscape._canonical import multiply
from deeplinear.landscape._reduced_layers import reduced_layers
from deeplinear.models import Problem

RANKS = 1e-7
"""Singular values of products of layers below this share of the largest, or of what learnt modes make, are zero."""

AGREEMENT = 1e-6
"""Relative difference up to which a number measured again is the one that was certified."""


class KIND(enum.Enum):
    """What a point is. The value is the word a person reads."""

    regular = "regular point"
    global_minimum = "global minimum"
    strict_saddle = "strict saddle"
    non_strict_saddle = "non-strict saddle"


@dataclasses.dataclass(frozen=True)
class Remeasured:
    """A certificate measured again by the derivatives and values of the problem itself.

    Attributes:
        holds: Whether the certificate says the truth.
        measured: The numbers, by name.
    """

    holds: bool
    measured: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Slope:
    """The gradient of a regular point: the loss falls against it.

    Attributes:
        direction: Unit vector against the gradient.
        slope: Derivative of the loss along it, minus the norm of the gradient.
    """

    direction: Params
    slope: float

    def verify(self, problem: Problem, params: Params) -> Remeasured:
        """Measure the slope by the gradient of the problem."""
        slope = float(inner(problem.gradient(params), self.direction))
        return Remeasured(slope < 0 and _near(slope, self.slope), {"slope": slope})

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        return [("certificate", f"the loss falls against the gradient with slope {self.slope:.6g}")]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {"proves": "slope", "slope": self.slope, "direction": _plain(self.direction)}


@dataclasses.dataclass(frozen=True)
class Least:
    """The loss of a global minimum beside the least that networks of these widths reach.

    Attributes:
        value: Loss.
        least: Half the sum of squares of the modes that the widths cannot carry, and what no linear map can fit.
    """

    value: float
    least: float

    def verify(self, problem: Problem, params: Params) -> Remeasured:
        """Measure the loss again."""
        value = float(problem.value(params))
        scale = max(float(problem.loss.value(xp.zeros(problem.model.product_shape))), abs(self.least)) or 1.0
        return Remeasured(abs(value - self.least) <= AGREEMENT * scale, {"value": value})

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        return [("certificate", f"loss {self.value:.6g}, the least for these widths is {self.least:.6g}")]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {"proves": "least", "value": self.value, "least": self.least}


@dataclasses.dataclass(frozen=True)
class NegativeDirection:
    r"""A direction along which the Hessian form is negative: the saddle is strict.

    Attributes:
        direction: $V$ of unit norm, in the coordinates of the problem.
        value: $\mathrm{Hess}(W; V)$ at the given layers, which is its Rayleigh quotient, since $V$ has norm one.
        predicted: The same number by the closed form at a critical point.
        origin: `"swap"` of modes or `"pivot"` through two layers.
        indices: The modes $(i, j)$ of a swap, the layers $(i, j)$ of a pivot, counted from 1.
    """

    direction: Params
    value: float
    predicted: float
    origin: str
    indices: tuple[int, ...]

    @property
    def rayleigh(self) -> float:
        """Rayleigh quotient: an upper bound of the smallest eigenvalue of the Hessian."""
        return self.value

    def verify(self, problem: Problem, params: Params) -> Remeasured:
        """Measure the Hessian form by the Hessian product of the problem."""
        value = float(inner(self.direction, problem.hessian_product(params, self.direction)))
        size = float(norm(self.direction))
        return Remeasured(value < 0 and _near(value, self.value), {"Hessian form": value, "norm": size})

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        i, j = self.indices
        how = f"mode {i} in place of mode {j}" if self.origin == "swap" else f"a new mode through layers {i} and {j}"
        return [
            ("certificate", f"negative direction of unit length: {how}"),
            ("Hessian form", f"{self.value:.6g} there (by its closed form {self.predicted:.6g})"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "proves": "negative direction",
            "origin": self.origin,
            "indices": list(self.indices),
            "value": self.value,
            "predicted": self.predicted,
            "direction": _plain(self.direction),
        }


@dataclasses.dataclass(frozen=True)
class PairRanks:
    r"""The two ranks of a pair of layers $i > j$; where one of them is $r$ the pair makes no negative direction.

    Attributes:
        upper: $i$.
        lower: $j$.
        between: $\mathrm{rank}\,W_{i-1:j+1}$.
        around: $\mathrm{rank}(W_{j-1:1}\Sigma^\top W_{L:i+1})$.
        rank: $r$.
    """

    upper: int
    lower: int
    between: int
    around: int
    rank: int

    @property
    def tight(self) -> bool:
        """Whether one of the two ranks is $r$."""
        return self.between == self.rank or self.around == self.rank


@dataclasses.dataclass(frozen=True)
class Descent:
    r"""A line along which the loss falls at a higher order: $F(W + \varepsilon V) = F(W) + c\,\varepsilon^k + \dots$

    Attributes:
        direction: $V$ of unit norm, in the coordinates of the problem.
        order: $k \ge 3$.
        coefficient: $c < 0$.
        layers: The $k$ layers that move.
        step: $\varepsilon$ of the lowest loss along the line.
        drop: How much lower the loss is there.
    """

    direction: Params
    order: int
    coefficient: float
    layers: tuple[int, ...]
    step: float
    drop: float


@dataclasses.dataclass(frozen=True)
class Tightened:
    r"""The ranks that prove that the Hessian has no negative direction, and how the loss falls nevertheless.

    With $S = \{1, \dots, r\}$ and one of the two ranks of every pair of layers equal to $r$, the Hessian form is a sum
    of squares and of terms $\sigma_s^2x^2 - 2\sigma_q xy + y^2 \ge 0$, $\sigma_s \ge \sigma_q$.

    Attributes:
        rank: $r$.
        pairs: The ranks of every pair of layers.
        descent: A line along which the loss falls; `None` where none was found (some $\sigma_i$ vanish).
    """

    rank: int
    pairs: tuple[PairRanks, ...]
    descent: Descent | None

    def verify(self, problem: Problem, params: Params) -> Remeasured:
        """Measure all ranks from the layers themselves, and the loss at the end of the line."""
        reduced = reduced_layers("verify", problem, params)
        widths = reduced.widths
        tight = True
        for pair in self.pairs:
            between = _partial(reduced.layers, pair.upper - 1, pair.lower + 1, widths)
            above = _partial(reduced.layers, len(reduced.layers), pair.upper + 1, widths)
            around = _partial(reduced.layers, pair.lower - 1, 1, widths) @ reduced.target.T @ above
            inside, outside = pair.upper - pair.lower - 1, len(reduced.layers) - pair.upper + pair.lower - 1
            sizes = (reduced.unit**inside, reduced.scale * reduced.unit**outside)
            ranks = [
                int(np.sum(s > RANKS * max(size, s[0])))
                for s, size in zip((_values(between), _values(around)), sizes, strict=True)
            ]
            tight &= ranks == [pair.between, pair.around] and self.rank in ranks
        measured = {"pairs": float(len(self.pairs))}
        if self.descent is not None:
            there = tuple(w + self.descent.step * v for w, v in zip(params, self.descent.direction, strict=True))
            measured["drop"] = float(problem.value(params) - problem.value(there))
            tight &= measured["drop"] > 0 and _near(measured["drop"], self.descent.drop)
        return Remeasured(bool(tight), measured)

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        rows = [("certificate", f"tightened: every pair of layers has a product of rank {self.rank}")]
        for pair in self.pairs:
            inside, outside = (f"{pair.upper - 1}:{pair.lower + 1}", f"{pair.lower - 1}:1 Σᵀ W_{pair.upper + 1}…")
            rows.append(
                (
                    f"layers {pair.upper}, {pair.lower}",
                    f"rank W_{inside} = {pair.between}, rank W_{outside} = {pair.around}",
                )
            )
        if self.descent is not None:
            d = self.descent
            rows.append(
                (
                    "descent",
                    f"order {d.order}: {d.coefficient:.4g} ε^{d.order}, lower by {d.drop:.4g} at ε = {d.step:.3g}",
                )
            )
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        descent = None
        if self.descent is not None:
            descent = dataclasses.asdict(self.descent) | {"direction": _plain(self.descent.direction)}
        pairs = [dataclasses.asdict(pair) | {"tight": pair.tight} for pair in self.pairs]
        return {"proves": "tightened", "rank": self.rank, "pairs": pairs, "descent": descent}


Certificate: TypeAlias = Slope | Least | NegativeDirection | Tightened
"""What proves a classification; `verify(problem, params)` measures it again."""


@dataclasses.dataclass(frozen=True)
class Classification:
    r"""What a point is, with its proof.

    Attributes:
        kind: Regular point, global minimum, strict or non-strict saddle.
        signature: Modes that are learnt, counted from 1; `None` at regular points, and where modes of equal strength
            leave it open.
        rank: Number of modes that are learnt; `None` at regular points.
        value: Loss.
        critical_value: Loss of the signature; `None` at regular points.
        gradient_norm: Norm of the gradient, in the coordinates of the problem.
        product_distance: $\|W_{L:1} - S\Sigma\|_F$ in reduced coordinates; `None` at regular points.
        certificate: The proof.
        notes: What one should know beside it.
    """

    kind: KIND
    signature: Signature | None
    rank: int | None
    value: float
    critical_value: float | None
    gradient_norm: float
    product_distance: float | None
    certificate: Certificate
    notes: tuple[str, ...] = ()

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        rows = [("kind", self.kind.value)]
        if self.rank is not None:
            named = "open, some modes are equally strong" if self.signature is None else set_name(self.signature)
            rows += [("signature", named), ("rank", str(self.rank))]
        rows.append(("loss", f"{self.value:.8g}"))
        if self.critical_value is not None:
            rows.append(("critical value", f"{self.critical_value:.8g}"))
        rows.append(("gradient", f"{self.gradient_norm:.2e}"))
        if self.product_distance is not None:
            rows.append(("product from SΣ", f"{self.product_distance:.2e}"))
        return rows + self.certificate.rows() + [("note", note) for note in self.notes]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        plain = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "certificate"
        }
        signature = None if self.signature is None else list(self.signature)
        changed = {"kind": self.kind.name, "signature": signature, "notes": list(self.notes)}
        return plain | changed | {"certificate": self.certificate.to_json()}

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label.ljust(width)}  {text}" for label, text in rows)


def _partial(layers: Layers, last: int, first: int, widths: tuple[int, ...]) -> np.ndarray:
    return multiply([np.eye(widths[first - 1]), *layers[first - 1 : last]])


def _values(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrix, compute_uv=False)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= AGREEMENT * max(abs(a), abs(b))


def _plain(params: Params) -> list[Any]:
    return [np.asarray(layer).tolist() for layer in params]
