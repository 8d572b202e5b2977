r"""Is it a minimum, a strict saddle or a non-strict saddle? With a certificate that can be checked.

A critical point with signature $S$, $r = |S|$, is a global minimum where it has learnt as many of the strongest modes
as the widths carry. Any other is a saddle. It is *strict*, with a negative direction of the Hessian, where a stronger
mode is missing while a weaker one is learnt, and where two layers $i > j$ have
$\mathrm{rank}\,W_{i-1:j+1} > r$ and $\mathrm{rank}(W_{j-1:1}\Sigma^\top W_{L:i+1}) > r$. Where no pair of layers has
both, the point is *tightened*, and with $S = \{1, \dots, r\}$ it is a *non-strict* saddle: the Hessian has no negative
direction, and the loss falls at a higher order only. Recognition runs on the host.
"""

import dataclasses
import enum
import itertools
from collections.abc import Iterable
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np

from deeplinear.core import HypothesisError, Params, check_number, check_x64, inner, norm
from deeplinear.landscape._arguments import Layers, Signature, check_range, host_layers, set_name, widths_of
from deeplinear.landscape._canonical import (
    CONVERGED,
    CanonicalForm,
    as_params,
    criticality_residual,
    detect,
    form_of,
    multiply,
)
from deeplinear.landscape._critical import critical_value, gradient_of, rectangular, size_of
from deeplinear.landscape._directions import (
    NEGLIGIBLE,
    Direction,
    cleaned,
    curvature_along,
    loss_along,
    pivot_direction,
    place,
    rank_around,
    rank_between,
    swap_direction,
)
from deeplinear.landscape._reduction import WEAK, Reduction, reduction_of
from deeplinear.models import Problem, checked_problem

CRITICAL = 1e-6
r"""Largest norm of the gradient in reduced coordinates, as a share of $\sigma_1^{2-1/L}$, at a critical point."""

ROUNDING = 1e-10
r"""Gradients below this share of $\sigma_1^{2-1/L}$ are rounding; above it the point is only nearly critical."""

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
        scale = max(float(problem.loss.value(jnp.zeros(problem.model.product_shape))), abs(self.least)) or 1.0
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
        reduced = _reduced("verify", problem, params)
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


# --- Reduced coordinates on the host ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Reduced:
    """Layers in coordinates in which the target is diagonal, with what leads there and back."""

    layers: Layers
    sigma: np.ndarray
    inner: np.ndarray
    inner_inverse: np.ndarray
    outer: np.ndarray
    constant: float

    @property
    def widths(self) -> tuple[int, ...]:
        return widths_of(self.layers)

    @property
    def target(self) -> np.ndarray:
        return rectangular(self.sigma, self.widths)

    @property
    def scale(self) -> float:
        r"""$\sigma_1$, the scale of products; 1 where nothing is to be learnt."""
        return float(self.sigma[0]) or 1.0

    @property
    def unit(self) -> float:
        r"""$\sigma_1^{1/L}$, the scale of layers."""
        return self.scale ** (1 / len(self.layers))

    @property
    def steepness(self) -> float:
        r"""$\sigma_1^{2-1/L}$, the scale of gradients: what layers and targets in other units multiply them by."""
        return self.scale**2 / self.unit

    def turned(self, turn: np.ndarray) -> "Reduced":
        """The same in coordinates turned on both sides, which leave the target as it is."""
        inp, out = self.widths[0], self.widths[-1]
        left, right = turn[:out, :out], turn[:inp, :inp]
        layers = list(self.layers)
        layers[0] = layers[0] @ right
        layers[-1] = left.T @ layers[-1]
        return dataclasses.replace(
            self,
            layers=tuple(layers),
            inner=self.inner @ right,
            inner_inverse=right.T @ self.inner_inverse,
            outer=self.outer @ left,
        )

    def lift(self, direction: Layers) -> Layers:
        """A direction of the layers in the coordinates of the problem."""
        layers = list(direction)
        layers[0] = layers[0] @ self.inner_inverse
        layers[-1] = self.outer @ layers[-1]
        return tuple(layers)

    def gradient(self) -> tuple[Layers, Layers]:
        """Gradients in reduced coordinates and in those of the problem."""
        reduced = gradient_of(self.layers, self.target)
        raw = list(reduced)
        raw[0] = raw[0] @ self.inner.T
        raw[-1] = self.outer @ raw[-1]
        return reduced, tuple(raw)

    @property
    def value(self) -> float:
        return 0.5 * float(np.sum((self.target - multiply(self.layers)) ** 2)) + self.constant


def _reduced(where: str, problem: Problem, params: Iterable[Any]) -> Reduced:
    checked_problem(where, "problem", problem)
    reduction: Reduction = reduction_of(problem)
    layers = host_layers(where, params)
    problem.check(as_params(layers), where)
    point = reduced_by(reduction, layers)
    check_measurable(where, point)
    return point


def check_measurable(where: str, point: Reduced) -> None:
    """Refuse layers whose loss or gradient overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        check_range(where, point.value, *(size_of(part) for part in point.gradient()))


def reduced_by(reduction: Reduction, layers: Layers) -> Reduced:
    """Layers in the coordinates of a reduction."""
    inner_map, outer = np.asarray(reduction.inner), np.asarray(reduction.outer)
    moved = list(layers)
    moved[0] = moved[0] @ inner_map
    moved[-1] = outer.T @ moved[-1]
    return Reduced(
        tuple(moved),
        np.asarray(reduction.sigma),
        inner_map,
        np.asarray(reduction.inner_inverse),
        outer,
        float(reduction.constant),
    )


def _partial(layers: Layers, last: int, first: int, widths: tuple[int, ...]) -> np.ndarray:
    return multiply([np.eye(widths[first - 1]), *layers[first - 1 : last]])


def _values(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.svd(matrix, compute_uv=False)


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= AGREEMENT * max(abs(a), abs(b))


def _plain(params: Params) -> list[Any]:
    return [np.asarray(layer).tolist() for layer in params]


# --- Classification ---------------------------------------------------------------------------------------------------


def pair_ranks(form: CanonicalForm, *, tolerance: float = NEGLIGIBLE) -> tuple[PairRanks, ...]:
    r"""$\mathrm{rank}\,W_{i-1:j+1}$ and $\mathrm{rank}(W_{j-1:1}\Sigma^\top W_{L:i+1})$ for every pair of layers.

    Args:
        form: Normal form of a critical point.
        tolerance: Singular values below this share of what they could be count as zero.

    Returns:
        One entry for each pair.

    Example:
        >>> form = canonical_form(critical_point([2.0, 1.0], (3, 2, 2), (1,)), [2.0, 1.0])
        >>> pair_ranks(form)
        (PairRanks(upper=2, lower=1, between=2, around=2, rank=1),)
    """
    clean = cleaned(form, tolerance)
    return tuple(
        PairRanks(
            upper,
            lower,
            form.rank + rank_between(clean, upper, lower, tolerance),
            form.rank + rank_around(clean, upper, lower, tolerance),
            form.rank,
        )
        for lower, upper in itertools.combinations(range(1, form.depth + 1), 2)
    )


def is_tightened(form: CanonicalForm, *, tolerance: float = NEGLIGIBLE) -> bool:
    r"""Whether every pair of layers $i > j$ has a product of rank $r$.

    That is $\mathrm{rank}\,W_{i-1:j+1} = r$ or $\mathrm{rank}(W_{j-1:1}\Sigma^\top W_{L:i+1}) = r$; empty products are
    identities. Three layers of rank $r$ are enough. With two layers no saddle is tightened.

    Args:
        form: Normal form of a critical point.
        tolerance: Singular values below this share of what they could be count as zero.

    Returns:
        Whether it is.

    Example:
        >>> deep = canonical_form(critical_point([2.0, 1.0], (3, 2, 2, 2), (1,)), [2.0, 1.0])
        >>> is_tightened(deep)
        True
    """
    check_number("is_tightened", "tolerance", tolerance, above=0)
    return all(pair.tight for pair in pair_ranks(form, tolerance=tolerance))


def classify(
    problem: Problem, params: Iterable[Any], *, tolerance: float = CRITICAL, rank_tolerance: float = NEGLIGIBLE
) -> Classification:
    r"""Is this point a global minimum, a strict saddle, a non-strict saddle, or no critical point at all?

    The target need not be diagonal nor the inputs white: all is done in reduced coordinates, and directions are
    brought back. Widths are free, bottlenecks included. Modes of equal or no strength are allowed; they leave the
    signature open, not the kind.

    Args:
        problem: A deep linear network that learns a whole matrix or from whole samples, without a penalty.
        params: Its layers.
        tolerance: Largest norm of the gradient, as a share of $\sigma_1^{2-1/L}$ and in reduced coordinates, at a point
            that is taken for critical. Gradients scale like this: other units of the layers give the same answer.
        rank_tolerance: Singular values below this share of what they could be count as zero in ranks.

    Returns:
        Kind, signature, measured gradient, and a certificate whose `verify(problem, params)` measures it again.

    Raises:
        HypothesisError: The theory does not speak of this problem, or the point is too far from critical for its ranks
            to be told.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2, 2)), SquaredDistance(jnp.diag(jnp.array([2.0, 1.0]))))
        >>> origin = classify(problem, (jnp.zeros((2, 2)),) * 3)
        >>> origin.kind.value, origin.certificate.descent.order
        ('non-strict saddle', 3)
    """
    where = "classify"
    check_x64(where)
    check_number(where, "tolerance", tolerance, above=0)
    check_number(where, "rank_tolerance", rank_tolerance, above=0)
    point = _reduced(where, problem, params)
    scale = point.scale
    reduced_gradient, raw_gradient = point.gradient()
    share, size = size_of(reduced_gradient) / point.steepness, size_of(raw_gradient)
    found, turn, chosen = detect(multiply(point.layers), point.sigma, CONVERGED)
    notes = []
    if share > tolerance or not found.converged:
        if share <= tolerance:
            notes.append("The gradient is small, but the product is not that of a critical point. " + found.message)
        steepest = as_params(-layer / (size or 1.0) for layer in raw_gradient)
        return Classification(
            KIND.regular, None, None, point.value, None, size, None, Slope(steepest, -size), tuple(notes)
        )
    if share > ROUNDING:
        notes.append(
            f"Only nearly critical: the gradient is {share:.1e} of its scale, σ₁^(2-1/L). The answer is that of a "
            "critical point near by; nearest_critical_point finds one."
        )
    if found.signature is None:
        notes.append(found.message)
    point = point.turned(turn)
    sigma, widths, rank = point.sigma, point.widths, len(chosen)
    kept = np.zeros_like(point.target)
    places = [i - 1 for i in chosen]
    kept[places] = point.target[places]
    distance = float(np.linalg.norm(multiply(point.layers) - kept))
    level = critical_value(sigma, chosen) + point.constant
    most = min(int(np.sum(sigma > WEAK * scale)), *widths)
    strongest = bool(np.all(sigma[:rank] - sigma[places] <= WEAK * scale))
    certificate: Certificate
    if strongest and rank == most:
        least = critical_value(sigma, tuple(range(1, most + 1))) + point.constant
        kind, certificate = KIND.global_minimum, Least(point.value, least)
    else:
        form = form_of(point.layers, sigma, chosen)
        pairs = pair_ranks(form, tolerance=rank_tolerance)
        direction = None
        if not strongest:
            direction = _best_swap(form, point, WEAK * scale)
        elif not all(pair.tight for pair in pairs):
            direction = pivot_direction(form, tolerance=rank_tolerance)
            if direction is None:
                raise HypothesisError(
                    "a critical point as far as ranks can tell",
                    criticality_residual(form) / point.steepness,
                    rank_tolerance,
                    "Its blocks are neither zero nor clearly not: take nearest_critical_point of it, or another "
                    "rank_tolerance.",
                )
        if direction is not None:
            kind, certificate = KIND.strict_saddle, _negative(point, direction)
        else:
            kind = KIND.non_strict_saddle
            certificate = Tightened(rank, pairs, _descent(form, point, rank_tolerance))
    return Classification(kind, found.signature, rank, point.value, level, size, distance, certificate, tuple(notes))


def _best_swap(form: CanonicalForm, point: Reduced, tie: float) -> Direction:
    """The swap with the smallest Rayleigh quotient in the coordinates of the problem."""
    swaps = [
        swap_direction(form, i, j)
        for j in form.signature
        for i in range(1, j)
        if i not in form.signature and form.sigma[i - 1] - form.sigma[j - 1] > tie
    ]
    return min(swaps, key=lambda swap: swap.value / size_of(point.lift(_host(swap.layers))) ** 2)


def _host(params: Params) -> Layers:
    return tuple(np.asarray(layer) for layer in params)


def _negative(point: Reduced, direction: Direction) -> NegativeDirection:
    lifted = point.lift(_host(direction.layers))
    size = size_of(lifted)
    value = curvature_along(point.layers, _host(direction.layers), point.target) / size**2
    unit = as_params(layer / size for layer in lifted)
    return NegativeDirection(unit, value, direction.value / size**2, direction.kind, direction.indices)


def _descent(form: CanonicalForm, point: Reduced, tolerance: float) -> Descent | None:
    r"""The loss falls at the order of the shortest chain of layers through which a mode can be added.

    A chain $i_1 > \dots > i_k$ with $K = Z_{i_k-1:1}\Sigma^\top U_Q Z_{L:i_1+1} \ne 0$ and all products of blocks
    between neighbours non-zero adds $\kappa\beta_1\cdots\beta_{k-1}\varepsilon^k$ to the inner product of target and
    product. There is no shorter chain, and what this one adds to the product itself begins at order $k - 1$ or later,
    so that its square does not count for $k \ge 3$.
    """
    clean = cleaned(form, tolerance)
    chain = _shortest_chain(clean, tolerance)
    if chain is None:
        return None
    left, _, right = np.linalg.svd(clean.around(chain[0], chain[-1]), full_matrices=False)
    ins, outs = {chain[-1]: left[:, 0]}, {chain[0]: right[0]}
    for upper, lower in itertools.pairwise(chain):
        u, _, v = np.linalg.svd(clean.between(upper - 1, lower + 1), full_matrices=False)
        ins[upper], outs[lower] = u[:, 0], v[0]
    moved = form.move(place(clean, {layer: np.outer(outs[layer], ins[layer]) for layer in chain}))
    # Layers of unit length each: then the whole is made one.
    moved = tuple(layer / (np.linalg.norm(layer) or 1.0) for layer in moved)
    size = size_of(point.lift(moved))
    unit = tuple(layer / size for layer in moved)
    line = loss_along(point.layers, unit, point.target)
    order, coefficient = len(chain), float(line[len(chain)])
    steps = np.geomspace(1e-3, 1e2, 400) * size * point.unit
    losses = np.polynomial.polynomial.polyval(steps, np.concatenate([[0.0], line[1:]]))
    first = int(np.argmax(np.diff(losses, append=np.inf) > 0)) if losses[0] < 0 else int(np.argmin(losses))
    if coefficient >= 0 or losses[first] >= 0:
        return None
    lifted = as_params(point.lift(unit))
    return Descent(lifted, order, coefficient, tuple(chain), float(steps[first]), -float(losses[first]))


def _shortest_chain(form: CanonicalForm, tolerance: float) -> list[int] | None:
    """Layers from the last-acting to the first-acting, as few as there can be; of equal chains the strongest end."""
    depth = form.depth
    linked = {
        (upper, lower)
        for lower, upper in itertools.combinations(range(1, depth + 1), 2)
        if rank_between(form, upper, lower, tolerance)
    }
    best: list[int] | None = None
    for last in range(depth, 0, -1):
        chains: dict[int, list[int]] = {last: [last]}
        for layer in range(last - 1, 0, -1):
            reached = [chains[upper] for upper in chains if (upper, layer) in linked]
            if reached:
                chains[layer] = [*min(reached, key=len), layer]
        for end, chain in chains.items():
            if (best is None or len(chain) < len(best)) and rank_around(form, last, end, tolerance):
                best = chain
    return best
