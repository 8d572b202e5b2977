r"""From layers near a critical point, on a plateau or near a minimum, to a critical point close by.

Two ways are tried, and the nearer result is taken. *Settling* minimises $\|\nabla F\|^2$ by damped Gauss-Newton steps
of least norm, $\delta = -(H^2 + \mu^2)^{-1}H\nabla F$, from an eigen-decomposition of the dense Hessian. *Rounding*
reads off the normal form of the layers and drops what keeps it from being critical: singular values of its blocks
$Z_l$, the smallest first, until $Z_{j-1:1}\Sigma^\top U_QZ_{L:j+1} = 0$ for all layers. Rounding also ends the
settling: at non-strict saddles the gradient vanishes to a high order, and steps alone would stop at blocks that are
small but not zero. All of it runs on the host.
"""

import dataclasses
import enum
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

from deeplinear.core import Params, check_count, check_number, check_x64, entry
from deeplinear.landscape._arguments import Layers, Signature, host_layers, set_name, widths_of
from deeplinear.landscape._canonical import CanonicalForm, as_params, detect, form_of, multiply
from deeplinear.landscape._critical import missed_criterion, size_of
from deeplinear.landscape._reduced_layers import Reduced, check_measurable, reduced_by
from deeplinear.landscape._reduction import reduction_of
from deeplinear.models import Problem, checked_problem

LARGEST_DENSE = 1500
"""Most weights for which dense Hessians are decomposed, step after step."""

SETTLED = 1e-13
r"""Gradient, as a share of $\sigma_1^{2-1/L}$, below which steps stop."""

RELATIVE = 1e-10
"""Terms of the criterion below this share of what they could be count as zero."""


class ENDED(enum.Enum):
    """How the search ended. The value is the message a person reads."""

    settled = "A critical point was found by steps that reduce the gradient."
    rounded = "A critical point was found by dropping the small parts of the normal form."
    failed = (
        "No critical point was found: the gradient stopped falling. Likely causes: the layers are far from any "
        "critical point, or the product lies half-way between two signatures."
    )


@dataclasses.dataclass(frozen=True)
class Nearest:
    """A critical point close to given layers.

    Attributes:
        params: The point; where the search failed, the layers with the smallest gradient that were seen.
        ended: How the search ended.
        signature: Modes that are learnt there, counted from 1; `None` where it failed or where modes are equally
            strong.
        distance: Frobenius distance from the given layers.
        gradient_before: Norm of the gradient at the given layers.
        gradient_norm: Norm of the gradient at the point.
        steps: Number of steps that were taken.
    """

    params: Params
    ended: ENDED
    signature: Signature | None
    distance: float
    gradient_before: float
    gradient_norm: float
    steps: int

    @property
    def found(self) -> bool:
        """Whether the point is critical, to rounding."""
        return self.ended is not ENDED.failed

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        named = "–" if self.signature is None else set_name(self.signature)
        return [
            ("outcome", self.ended.value),
            ("signature", named),
            ("distance moved", f"{self.distance:.4g}"),
            ("gradient", f"{self.gradient_before:.2e} → {self.gradient_norm:.2e}"),
            ("steps", str(self.steps)),
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        signature = None if self.signature is None else list(self.signature)
        layers = [np.asarray(layer).tolist() for layer in self.params]
        return plain | {"params": layers, "ended": self.ended.name, "message": self.ended.value, "signature": signature}

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label.ljust(width)}  {text}" for label, text in rows)


@entry(instead="call it outside of the transformation")
def nearest_critical_point(
    problem: Problem,
    params: Iterable[Any],
    *,
    drop_below: float = 0.0,
    tolerance: float = 1e-10,
    max_steps: int = 60,
) -> Nearest:
    r"""A critical point close to given layers, such as those of a run on a plateau.

    It is the nearer of two candidates, not provably the nearest of all; the distance that was moved is told.

    Args:
        problem: A deep linear network that learns a whole matrix or from whole samples, without a penalty; at most 1500
            weights.
        params: Its layers.
        drop_below: Singular values of the blocks $Z_l$ up to this number are dropped even where the criterion does not
            ask for it. A plateau has strict saddles close by, and a little farther away the non-strict one without
            blocks: infinity leads there.
        tolerance: Largest norm of the gradient at the result, as a share of $\sigma_1^{2-1/L}$ and in reduced
            coordinates.
        max_steps: Most steps of the settling.

    Returns:
        The point and how it was found; a failure is a value too, with a message.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.diag(jnp.array([2.0, 1.0]))))
        >>> near = nearest_critical_point(problem, (0.1 * jnp.eye(2), jnp.zeros((2, 2))))
        >>> near.signature, round(near.distance, 12)
        ((), 0.141421356237)
    """
    where = "nearest_critical_point"
    check_x64(where)
    checked_problem(where, "problem", problem)
    check_number(where, "tolerance", tolerance, above=0)
    check_count(where, "max_steps", max_steps)
    check_number(where, "drop_below", drop_below, at_least=0, finite=False)
    start = host_layers(where, params)
    problem.check(as_params(start), where)
    size = sum(layer.size for layer in start)
    if size > LARGEST_DENSE:
        raise ValueError(
            f"{where}: problem must have at most {LARGEST_DENSE} weights, but has {size}: every step decomposes a "
            "dense Hessian."
        )
    reduction = reduction_of(problem)
    first = reduced_by(reduction, start)
    check_measurable(where, first)
    before = size_of(first.gradient()[1])
    settled, steps = _settle(first, max_steps)
    candidates = []
    for point, ended in ((first, ENDED.rounded), (settled, ENDED.settled)):
        candidates += [(_lifted(rounded), ended, named) for rounded, named in _rounded(point, drop_below)]
    candidates.append(
        (_lifted(settled), ENDED.settled, detect(multiply(settled.layers), settled.sigma, 1e-3)[0].signature)
    )
    judged = []
    for layers, ended, signature in candidates:
        reduced, raw = reduced_by(reduction, layers).gradient()
        away = size_of([a - b for a, b in zip(layers, start, strict=True)])
        judged.append((size_of(reduced) / first.steepness, away, size_of(raw), layers, ended, signature))
    # The settled point itself counts only where nothing could be rounded.
    good = [entry for entry in judged[:-1] if entry[0] <= tolerance] or [e for e in judged[-1:] if e[0] <= tolerance]
    if good:
        _, away, left, layers, ended, signature = min(good, key=lambda entry: entry[1])
    else:
        _, away, left, layers, _, signature = min(judged, key=lambda entry: entry[0])
        ended, signature = ENDED.failed, None
    return Nearest(as_params(layers), ended, signature, away, before, left, steps)


def _lifted(point: Reduced) -> Layers:
    return point.lift(point.layers)


# --- Rounding ---------------------------------------------------------------------------------------------------------


def _rounded(point: Reduced, drop_below: float) -> list[tuple[Reduced, Signature | None]]:
    """The critical point whose normal form is that of the layers without its smallest parts; none where it breaks."""
    found, turn, chosen = detect(multiply(point.layers), point.sigma, 1.0)
    if len(chosen) > min(point.widths):
        return []
    turned = point.turned(turn)
    try:
        form = form_of(turned.layers, turned.sigma, chosen)
        layers = _critical_form(form, drop_below).layers()
    except np.linalg.LinAlgError:
        return []
    if not all(np.all(np.isfinite(layer)) for layer in layers):
        return []
    return [(dataclasses.replace(turned, layers=layers), found.signature)]


def _critical_form(form: CanonicalForm, drop_below: float) -> CanonicalForm:
    """The form with as few singular values of its blocks dropped as the criterion asks for, the smallest first."""
    if not form.fills:
        return form
    parts = [np.linalg.svd(fill, full_matrices=False) for fill in form.fills]
    for threshold in [drop_below or -1.0, *np.sort(np.concatenate([values for _, values, _ in parts]))]:
        threshold = max(threshold, drop_below)
        fills = tuple(left * np.where(values > threshold, values, 0.0) @ right for left, values, right in parts)
        if missed_criterion(fills, form.sigma, form.widths, form.signature) <= RELATIVE:
            return dataclasses.replace(form, fills=fills)
    return dataclasses.replace(form, fills=tuple(np.zeros_like(fill) for fill in form.fills))


# --- Settling ---------------------------------------------------------------------------------------------------------


def _settle(point: Reduced, max_steps: int) -> tuple[Reduced, int]:
    """Damped Gauss-Newton steps on the gradient, in the coordinates of the problem."""
    gradient = point.gradient()[1]
    size, damping, taken = size_of(gradient), None, 0
    for _ in range(max_steps):
        if size <= SETTLED * point.steepness:
            break
        values, vectors = np.linalg.eigh(_hessian(point))
        along = vectors.T @ np.concatenate([layer.ravel() for layer in gradient])
        largest = float(np.max(np.abs(values)))
        if largest == 0.0:
            break
        damping = 1e-2 * np.sqrt(size * largest / point.unit) if damping is None else damping
        for _ in range(12):
            step = vectors @ (-values / (values**2 + damping**2) * along)
            moved = _moved(point, step)
            new = moved.gradient()[1]
            if size_of(new) < size:
                break
            damping *= 4
        else:
            break
        fallen = size_of(new) / size
        point, gradient, size, taken = moved, new, size_of(new), taken + 1
        damping = max(damping / 5, 1e-14 * largest)
        if fallen > 1 - 1e-6:
            break
    return point, taken


def _moved(point: Reduced, step: np.ndarray) -> Reduced:
    """The point after a step given in the coordinates of the problem."""
    pieces, start = [], 0
    for layer in point.layers:
        pieces.append(step[start : start + layer.size].reshape(layer.shape))
        start += layer.size
    pieces[0] = pieces[0] @ point.inner
    pieces[-1] = point.outer.T @ pieces[-1]
    return dataclasses.replace(point, layers=tuple(w + v for w, v in zip(point.layers, pieces, strict=True)))


def _hessian(point: Reduced) -> np.ndarray:
    r"""Dense Hessian in the coordinates of the problem, rows and columns in the order of `flatten`.

    In reduced coordinates block $(i, j)$, $i \ge j$, is
    $(L_i^\top L_j)_{ac}(R_{i-1}R_{j-1}^\top)_{be} - 1_{i>j}(W_{i-1:j+1})_{bc}(R_{j-1}M^\top L_i)_{ea}$ with
    $R_j = W_{j:1}$ and $L_j = W_{L:j+1}$; the outer maps are then applied on both sides.
    """
    layers, widths = point.layers, widths_of(point.layers)
    depth = len(layers)
    # In place of the identities stand the maps between the weights and the reduced ones: R_0 = T and L_L = Uᵀ.
    right = [point.inner, *itertools.accumulate(layers, lambda below, layer: layer @ below)]
    left = [*reversed([*itertools.accumulate(reversed(layers), lambda above, layer: above @ layer)]), point.outer.T]
    residual = point.target - right[-1]
    offsets = np.concatenate([[0], np.cumsum([layer.size for layer in layers])])
    hessian = np.empty((offsets[-1], offsets[-1]))
    for i in range(1, depth + 1):
        middle = np.eye(widths[i - 1])
        for j in range(i, 0, -1):
            block = np.einsum("ac,be->abce", left[i].T @ left[j], right[i - 1] @ right[j - 1].T)
            if j < i:
                block -= np.einsum("bc,ea->abce", middle, right[j - 1] @ residual.T @ left[i])
                middle = middle @ layers[j - 1] if j > 1 else middle
            flat = block.reshape(layers[i - 1].size, layers[j - 1].size)
            rows, columns = slice(offsets[i - 1], offsets[i]), slice(offsets[j - 1], offsets[j])
            hessian[rows, columns], hessian[columns, rows] = flat, flat.T
    return hessian
