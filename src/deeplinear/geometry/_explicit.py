r"""Geodesics in closed form between special pairs of matrices, and a curve that was taken for one.

Write $A = OP_A$ with $O$ orthogonal and $P_A$ positive definite, and $B$ likewise. Known are

| case | where | geodesic | length |
|---|---|---|---|
| `straight line` | depth one | $(1-t)A + tB$ | $\|A - B\|_F$ |
| `common frame` | equal $O$, $P_AP_B = P_BP_A$ | $O((1-t)R_A + tR_B)^L$ | $\sqrt L\,\|R_A - R_B\|_F$ |
| `positive pair` | equal $O$, depth two | $O$ times the Bures–Wasserstein geodesic | $\sqrt2$ times that distance |
| `from a scaled rotation` | $A = cO$, $O^\top B$ normal | $O((1-t)R_A + tR_B)^L$ | $\sqrt L\,\|R_A - R_B\|_F$ |
| `normal map` | depth two, $M$ normal | $U(I + t(M-I))\,S\,(I + t(M-I))V^\top$ | $\sqrt2\,\|(M-I)S^{1/2}\|_F$ |

with $R_A = (O^\top A)^{1/L}$, $R_B = (O^\top B)^{1/L}$, $A = USV^\top$ and
$M = S^{-1/2}(S^{1/2}U^\top BVS^{1/2})^{1/2}S^{-1/2}$, principal roots throughout, and `to a scaled rotation` with the
ends exchanged. At infinite depth powers become exponentials of logarithms.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, check_finite, check_shape, checked_layer, entry, xp
from deeplinear.geometry._bures import bures_distance, bures_map
from deeplinear.geometry._fibres import horizontality_defect
from deeplinear.geometry._length import curve_length
from deeplinear.geometry._metric import LARGEST_CONDITION, checked_depth, checked_point

SAME = 1e-9
"""Largest distance of polar factors over $\\sqrt d$, and largest relative commutator, of those that are equal."""

NUMERIC = "numeric"
"""The case in which no closed form is known."""

Curve = Callable[[np.ndarray], np.ndarray]
"""Matrices, times first, of times of shape (n, 1, 1)."""


@dataclasses.dataclass(frozen=True)
class ExplicitGeodesic:
    """A geodesic in closed form on the times from 0 to 1.

    Attributes:
        case: Which closed form it is.
        length: Its length.
        point: The matrices as a function of times of shape (n, 1, 1).
        velocity: Their derivatives likewise.
    """

    case: str
    length: float
    point: Curve = dataclasses.field(repr=False)
    velocity: Curve = dataclasses.field(repr=False)

    def points(self, times: Any) -> Float[Array, "*times size size"]:
        """The matrices at times of any shape."""
        return _at("ExplicitGeodesic.points", self.point, times)

    def velocities(self, times: Any) -> Float[Array, "*times size size"]:
        """Their derivatives by time."""
        return _at("ExplicitGeodesic.velocities", self.velocity, times)


@dataclasses.dataclass(frozen=True)
class RotationChord:
    r"""The curve $U((1-t)S^{1/L} + tR^{1/L})^LV^\top$ with $A = USV^\top$ and $R = U^\top BV$.

    The product of the straight line between two balanced lifts. That line is a geodesic of the balanced layers, but
    horizontal only where $R$ and $S$ commute; only then is the curve a geodesic.

    Attributes:
        is_geodesic: Whether it is one.
        commutator: $\|RS - SR\|_F$ over the product of the norms.
        defect: Norm of the part of the line's direction, at its start, that is not horizontal.
        length: Length of the curve.
        line: Length $\sqrt L\,\|S^{1/L} - R^{1/L}\|_F$ of the line above it.
        point: The matrices as a function of times of shape (n, 1, 1).
        velocity: Their derivatives likewise.
    """

    is_geodesic: bool
    commutator: float
    defect: float
    length: float
    line: float
    point: Curve = dataclasses.field(repr=False)
    velocity: Curve = dataclasses.field(repr=False)

    def points(self, times: Any) -> Float[Array, "*times size size"]:
        """The matrices at times of any shape."""
        return _at("RotationChord.points", self.point, times)

    def velocities(self, times: Any) -> Float[Array, "*times size size"]:
        """Their derivatives by time."""
        return _at("RotationChord.velocities", self.velocity, times)


@entry(instead="call it outside of jit, vmap and grad; its result is a text")
def classify_endpoints(start: Any, end: Any, depth: float) -> str:
    r"""Which closed form joins two matrices, or "numeric".

    Args:
        start: $A$, square and of full rank.
        end: $B$, likewise, with a determinant of the same sign.
        depth: $L$, a positive integer or infinity.

    Returns:
        "straight line", "common frame", "positive pair", "from a scaled rotation", "to a scaled rotation", "normal map"
        or "numeric".

    Example:
        >>> classify_endpoints(jnp.diag(jnp.array([4.0, 1.0])), jnp.diag(jnp.array([1.0, 9.0])), 3)
        'common frame'
        >>> classify_endpoints(jnp.diag(jnp.array([4.0, 1.0])), jnp.array([[2.5, 1.5], [1.5, 2.5]]), 3)
        'numeric'
    """
    a, b = checked_ends("classify_endpoints", start, end, depth)
    form = closed_form(a, b, depth)
    return NUMERIC if form is None else form.case


@entry(instead="call it outside of jit, vmap and grad; its points can be traced by time")
def explicit_geodesic(start: Any, end: Any, depth: float, *, normalised: bool = False) -> ExplicitGeodesic:
    r"""The geodesic between two matrices for which a closed form is known.

    Args:
        start: $A$, square and of full rank.
        end: $B$, likewise, with a determinant of the same sign.
        depth: $L$, a positive integer or infinity.
        normalised: Whether lengths are those of the normalised metric; infinite depth is always so.

    Raises:
        HypothesisError: The pair is in none of the cases; `geodesic_between` finds the geodesic numerically.

    Example:
        >>> path = explicit_geodesic(jnp.eye(1), 4 * jnp.eye(1), 2)
        >>> path.points(0.5), round(path.length, 12)
        (array([[2.25]]), 1.414213562373)
    """
    where = "explicit_geodesic"
    a, b = checked_ends(where, start, end, depth)
    form = closed_form(a, b, depth)
    if form is None:
        polar, crooked = _polar_distance(a, b), _commutator(*_positive(a, b))
        raise HypothesisError(
            f"{where}: start and end have a common frame, or another closed form",
            max(polar, crooked),
            SAME,
            "The larger of the distance of the polar factors and the commutator of the positive ones is told; "
            "geodesic_between finds the geodesic numerically.",
        )
    scale = math.sqrt(depth) if normalised and not math.isinf(depth) else 1.0
    return dataclasses.replace(form, length=scale * form.length)


@entry(instead="call it outside of jit, vmap and grad; its points can be traced by time")
def rotation_chord(start: Any, end: Any, depth: int, *, normalised: bool = False) -> RotationChord:
    r"""The curve $U((1-t)S^{1/L} + tR^{1/L})^LV^\top$ between matrices with equal polar factors.

    It is shorter than the line above it and longer than the geodesic, unless $R$ and $S$ commute; then all are equal.

    Args:
        start: $A = USV^\top$, square and of full rank.
        end: $B = URV^\top$ with positive definite $R$.
        depth: $L$, a positive integer.
        normalised: Whether lengths are those of the normalised metric.

    Raises:
        HypothesisError: The polar factors differ.

    Example:
        >>> curve = rotation_chord(jnp.diag(jnp.array([4.0, 1.0])), jnp.array([[2.5, 1.5], [1.5, 2.5]]), 2)
        >>> curve.is_geodesic, round(curve.length, 6), round(curve.line, 6), round(curve.defect, 6)
        (False, 1.377145, 1.414214, 0.316228)
    """
    where = "rotation_chord"
    depth = int(checked_depth(where, depth, finite=True))
    a, b = checked_ends(where, start, end, depth)
    if np.linalg.det(a) * np.linalg.det(b) <= 0 or _polar_distance(a, b) > SAME:
        raise HypothesisError(
            f"{where}: start and end have equal polar factors",
            _polar_distance(a, b),
            SAME,
            "Symmetric matrices have equal polar factors if they are definite of one sign.",
        )
    left, values, right_t = np.linalg.svd(a)
    turned = _even(left.T @ b @ right_t.T)
    first, second = np.diag(values ** (1 / depth)), _power(turned, 1 / depth)
    point, velocity = _powers(left, first, second, right_t, depth)
    scale = math.sqrt(depth) if normalised else 1.0
    crooked = _commutator(np.diag(values), turned)
    line = [first] * depth
    move = [second - first] * depth
    line[0], move[0] = line[0] @ right_t, move[0] @ right_t
    line[-1], move[-1] = left @ line[-1], left @ move[-1]
    return RotationChord(
        is_geodesic=crooked <= SAME,
        commutator=crooked,
        defect=float(horizontality_defect(tuple(map(xp.asarray, line)), tuple(map(xp.asarray, move)))),
        length=curve_length(_single(point), depth, velocity=_single(velocity), normalised=normalised),
        line=scale * math.sqrt(depth) * float(np.linalg.norm(second - first)),
        point=point,
        velocity=velocity,
    )


def checked_ends(where: str, start: Any, end: Any, depth: float) -> tuple[np.ndarray, np.ndarray]:
    """Two square matrices of full rank in one component, or a refusal.

    At depth one, where the metric is flat and singular matrices are points like others, any two.
    """
    checked_depth(where, depth)
    a = np.asarray(checked_point(where, "start", start))
    check_shape(where, "start", a, (a.shape[0], a.shape[0]))
    if a.size == 0:
        raise ValueError(f"{where}: start must have at least one row, but has shape {a.shape}.")
    b = np.asarray(checked_point(where, "end", end))
    check_shape(where, "end", b, a.shape)
    if depth == 1:
        return a, b
    for name, matrix in (("start", a), ("end", b)):
        values = np.linalg.svd(matrix, compute_uv=False)
        condition = values[0] / values[-1] if values[-1] > 0 else math.inf
        if condition > LARGEST_CONDITION:
            raise HypothesisError(
                f"{where}: {name} is of full rank",
                float(condition),
                LARGEST_CONDITION,
                "The ratio of its singular values is told; at a singular matrix the metric degenerates.",
            )
    signs = [float(np.linalg.slogdet(matrix)[0]) for matrix in (a, b)]
    if signs[0] != signs[1]:
        raise HypothesisError(
            f"{where}: the determinants of start and end have one sign",
            1.0,
            0.0,
            "They lie in different components: no path of invertible matrices joins them, their distance is infinite.",
        )
    return a, b


def closed_form(a: np.ndarray, b: np.ndarray, depth: float) -> ExplicitGeodesic | None:
    """The closed form for two matrices, unchecked; `None` where there is none. Lengths are not normalised."""
    if depth == 1:
        return _form("straight line", lambda t: a + t * (b - a), lambda t: b - a + 0 * t, np.linalg.norm(b - a))
    same = _polar_distance(a, b) <= SAME
    one, other = _positive(a, b)
    root = 1.0 if math.isinf(depth) else math.sqrt(depth)
    if same and _commutator(one, other) <= SAME:
        orthogonal = scipy.linalg.polar(a)[0]
        first, second = (log_positive(m) if math.isinf(depth) else _power(m, 1 / depth) for m in (one, other))
        curves = _powers(orthogonal, first, second, np.eye(len(a)), depth)
        return ExplicitGeodesic("common frame", root * float(np.linalg.norm(second - first)), *curves)
    if same and depth == 2:
        orthogonal, move = scipy.linalg.polar(a)[0], np.asarray(bures_map(one, other)) - np.eye(len(a))
        point, velocity = _mapped(orthogonal, one, move, np.eye(len(a)))
        return _form("positive pair", point, velocity, math.sqrt(2) * float(bures_distance(one, other)))
    found = _from_rotation(a, b, depth)
    if found is not None:
        return found
    back = _from_rotation(b, a, depth)
    if back is not None:
        return ExplicitGeodesic(
            "to a scaled rotation", back.length, lambda t: back.point(1 - t), lambda t: -back.velocity(1 - t)
        )
    return _normal_map(a, b) if depth == 2 else None


def _from_rotation(a: np.ndarray, b: np.ndarray, depth: float) -> ExplicitGeodesic | None:
    left, values, right_t = np.linalg.svd(a)
    if values[0] - values[-1] > SAME * values[0]:
        return None
    orthogonal, scale = left @ right_t, float(np.mean(values))
    normal = orthogonal.T @ b
    triangle, frame = scipy.linalg.schur(normal.astype(complex), output="complex")[:2]
    eigenvalues: np.ndarray = np.diag(triangle)
    if not _is_normal(normal) or _on_the_cut(eigenvalues):
        return None
    if math.isinf(depth):
        first, second = np.full(len(a), math.log(scale), dtype=complex), np.log(eigenvalues)
    else:
        first, second = np.full(len(a), scale ** (1 / depth), dtype=complex), eigenvalues ** (1 / depth)
    way = second - first

    def point(t: np.ndarray) -> np.ndarray:
        now = first + t[..., 0] * way
        return orthogonal @ _framed(frame, np.exp(now) if math.isinf(depth) else now**depth)

    def velocity(t: np.ndarray) -> np.ndarray:
        now = first + t[..., 0] * way
        return orthogonal @ _framed(frame, way * (np.exp(now) if math.isinf(depth) else depth * now ** (depth - 1)))

    root = 1.0 if math.isinf(depth) else math.sqrt(depth)
    return _form("from a scaled rotation", point, velocity, root * float(np.linalg.norm(way)))


def _normal_map(a: np.ndarray, b: np.ndarray) -> ExplicitGeodesic | None:
    left, values, right_t = np.linalg.svd(a)
    half = np.sqrt(values)
    inner = half[:, None] * (left.T @ b @ right_t.T) * half
    if _on_the_cut(np.linalg.eigvals(inner)):
        return None
    root = np.real(scipy.linalg.sqrtm(inner))
    map_ = root / half[:, None] / half
    if not np.all(np.isfinite(map_)) or not _is_normal(map_):
        return None
    move = map_ - np.eye(len(a))
    point, velocity = _mapped(left, np.diag(values), move, right_t)
    return _form("normal map", point, velocity, math.sqrt(2) * float(np.linalg.norm(move * half)))


def _form(case: str, point: Curve, velocity: Curve, length: Any) -> ExplicitGeodesic:
    return ExplicitGeodesic(case, float(length), point, velocity)


def _mapped(left: np.ndarray, middle: np.ndarray, move: np.ndarray, right: np.ndarray) -> tuple[Curve, Curve]:
    """left (I + t move) middle (I + t move) right, and its derivative."""
    eye = np.eye(len(move))

    def velocity(t: np.ndarray) -> np.ndarray:
        way = eye + t * move
        return left @ (move @ middle @ way + way @ middle @ move) @ right

    return lambda t: left @ (eye + t * move) @ middle @ (eye + t * move) @ right, velocity


def _powers(
    left: np.ndarray, first: np.ndarray, second: np.ndarray, right: np.ndarray, depth: float
) -> tuple[Curve, Curve]:
    """left ((1-t) first + t second)^depth right, or the exponential, of symmetric matrices; and its derivative."""

    def framed(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.linalg.eigh(first + t * (second - first))

    def point(t: np.ndarray) -> np.ndarray:
        values, frame = framed(t)
        raised = np.exp(values) if math.isinf(depth) else values**depth
        return left @ (frame * raised[..., None, :]) @ np.swapaxes(frame, -1, -2) @ right

    def velocity(t: np.ndarray) -> np.ndarray:
        values, frame = framed(t)
        one, other = values[..., :, None], values[..., None, :]
        if math.isinf(depth):
            gap = (one - other) / 2
            slopes = np.exp((one + other) / 2) * np.where(gap == 0, 1.0, np.sinh(gap) / np.where(gap == 0, 1.0, gap))
        else:
            slopes = sum(one**k * other ** (int(depth) - 1 - k) for k in range(int(depth)))
        turned = np.swapaxes(frame, -1, -2)
        return left @ frame @ (slopes * (turned @ (second - first) @ frame)) @ turned @ right

    return point, velocity


def _framed(frame: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.real((frame * values[..., None, :]) @ frame.conj().T)


def _at(where: str, curve: Curve, times: Any) -> Float[Array, "*times size size"]:
    moments = np.asarray(checked_layer(where, "times", times), dtype=float)
    check_finite(where, "times", moments)
    found = curve(moments.reshape(-1, 1, 1))
    return xp.asarray(found.reshape(*moments.shape, *found.shape[1:]), dtype=float)


def _single(curve: Curve) -> Callable[[float], np.ndarray]:
    return lambda time: curve(np.full((1, 1, 1), time))[0]


def _even(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _positive(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return _even(scipy.linalg.polar(a)[1]), _even(scipy.linalg.polar(b)[1])


def _polar_distance(a: np.ndarray, b: np.ndarray) -> float:
    apart = scipy.linalg.polar(a)[0] - scipy.linalg.polar(b)[0]
    return float(np.linalg.norm(apart)) / math.sqrt(len(a))


def _commutator(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.linalg.norm(one @ other - other @ one) / (np.linalg.norm(one) * np.linalg.norm(other)))


def _is_normal(matrix: np.ndarray) -> bool:
    crooked = np.linalg.norm(matrix @ matrix.T - matrix.T @ matrix)
    return bool(crooked <= SAME * np.linalg.norm(matrix) ** 2)


def _on_the_cut(eigenvalues: np.ndarray) -> bool:
    """Whether an eigenvalue has no principal root that is safe to take."""
    return bool(np.any((np.real(eigenvalues) <= 0) & (np.abs(np.imag(eigenvalues)) <= SAME * np.abs(eigenvalues))))


def _power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    values, frame = np.linalg.eigh(matrix)
    return (frame * values**exponent) @ frame.T


def log_positive(matrix: np.ndarray) -> np.ndarray:
    """Logarithm of a positive definite matrix, unchecked."""
    values, frame = np.linalg.eigh(matrix)
    return (frame * np.log(values)) @ frame.T
