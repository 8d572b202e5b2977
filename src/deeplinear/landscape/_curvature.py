r"""What the spectrum of the Hessian says: how many directions fall, what each layer sees, how the flow splits.

The flow near a critical point is that of $-H$: it contracts where the Hessian is positive, rests to first order where
it vanishes, and escapes where it is negative.
"""

import dataclasses
import itertools
from typing import Any, Literal

import numpy as np

from deeplinear.core import (
    HypothesisError,
    Params,
    check_count,
    check_number,
    entry,
    norm,
    unflatten,
    xp,
)
from deeplinear.landscape._arguments import check_range
from deeplinear.landscape._hessian import (
    LARGEST,
    HessianSpectrum,
    check_dense,
    checked_size,
    dense_hessian,
    hessian_spectrum,
    learnt_entries,
    report_text,
)
from deeplinear.models import Problem

ZERO = 1e-9
"""Eigenvalues below this share of the largest are taken for zero."""

RESTING = 1e-8
"""Gradients below this share of the gradient of the loss at the product 0 are those of a critical point."""


@dataclasses.dataclass(frozen=True)
class Inertia:
    """How many directions fall, rest and rise. Printed, it is a short report.

    Attributes:
        index: Number of negative eigenvalues.
        nullity: Number of eigenvalues that vanish.
        positive: Number of positive ones.
        smallest: Smallest eigenvalue.
        largest: Largest eigenvalue.
        threshold: Size below which an eigenvalue counts as zero.
        below: Largest size of an eigenvalue that counts as zero; 0 where there is none.
        above: Smallest size of one that does not; infinite where there is none.
    """

    index: int
    nullity: int
    positive: int
    smallest: float
    largest: float
    threshold: float
    below: float
    above: float

    @property
    def gap(self) -> float:
        """Ratio of the sizes on both sides of the threshold: the counts are as sure as this is large."""
        return self.above / self.below if self.below > 0 else float("inf")

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        if self.nullity == 0:
            apart = "and no eigenvalue within it"
        elif not np.isfinite(self.above):
            apart = "and no eigenvalue beyond it"
        elif self.below == 0:
            apart = f"the next eigenvalue is {self.above:.1e} in size"
        else:
            apart = f"with a gap of {self.gap:.1e} around it"
        return [
            ("negative", f"{self.index}, smallest {self.smallest:.9g}" if self.index else "0"),
            ("zero", f"{self.nullity}, at most {self.below:.1e} in size" if self.nullity else "0"),
            ("positive", f"{self.positive}, largest {self.largest:.9g}" if self.positive else "0"),
            ("threshold", f"{self.threshold:.1e}, {apart}"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; what is infinite is null."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {"gap": self.gap}
        return {name: None if value == float("inf") else value for name, value in plain.items()}

    def __str__(self) -> str:
        return report_text(self.rows())


@entry(instead="use hessian_matrix and jax.numpy.linalg.eigvalsh")
def inertia(
    problem: Problem, params: Params, *, tolerance: float = ZERO, absolute: float = 0.0, largest: int = LARGEST
) -> Inertia:
    r"""Numbers of negative, vanishing and positive eigenvalues of the Hessian.

    At a minimum of a network without bottleneck the nullity is $N - d_0 d_L$, the dimension of the set of minima.
    Weights that a `Masked` model fixes are no directions and do not count. Computed on the host from all eigenvalues.

    Args:
        problem: Model and loss.
        params: Layers, usually of a critical point.
        tolerance: Eigenvalues up to this share of the largest in size count as zero.
        absolute: And so do those up to this size.
        largest: Most weights for which the dense Hessian is made.

    Returns:
        The counts, with the gap that separates them.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> found = inertia(problem, (jnp.ones((1, 1)), jnp.ones((1, 1))))  # on the hyperbola of minima
        >>> found.index, found.nullity, found.positive
        (0, 1, 1)
    """
    return inertia_of(_spectrum("inertia", problem, params, largest), tolerance=tolerance, absolute=absolute)


def inertia_of(spectrum: HessianSpectrum, *, tolerance: float = ZERO, absolute: float = 0.0) -> Inertia:
    """The counts from a complete spectrum."""
    where, values = "inertia", spectrum.values
    check_number(where, "tolerance", tolerance, at_least=0)
    check_number(where, "absolute", absolute, at_least=0)
    sizes = np.abs(values)
    threshold = max(tolerance * float(sizes.max()), absolute)
    zero = sizes <= threshold
    return Inertia(
        index=int(np.sum((values < 0) & ~zero)),
        nullity=int(np.sum(zero)),
        positive=int(np.sum((values > 0) & ~zero)),
        smallest=float(values[0]),
        largest=float(values[-1]),
        threshold=threshold,
        below=float(sizes[zero].max(initial=0.0)),
        above=float(sizes[~zero].min(initial=np.inf)),
    )


@dataclasses.dataclass(frozen=True)
class LayerCurvature:
    """Curvature seen by one layer at a time. Printed, it is a short report.

    Attributes:
        smallest: Smallest eigenvalue of the diagonal block of each layer.
        largest: Largest eigenvalue of each.
        whole: Smallest and largest eigenvalue of the whole Hessian.
        shares: Share of each layer in the squared length of the most negative eigenvector; `None` where no eigenvalue
            is negative.
    """

    smallest: tuple[float, ...]
    largest: tuple[float, ...]
    whole: tuple[float, float]
    shares: tuple[float, ...] | None

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        rows = [("all layers", f"{self.whole[0]:.6g} to {self.whole[1]:.6g}")]
        for position, (low, high) in enumerate(zip(self.smallest, self.largest, strict=True)):
            share = f"; {self.shares[position]:.1%} of the way down" if self.shares is not None else ""
            rows.append((f"layer {position + 1}", f"{low:.6g} to {high:.6g}{share}"))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "smallest": list(self.smallest),
            "largest": list(self.largest),
            "whole": list(self.whole),
            "shares": None if self.shares is None else list(self.shares),
        }

    def __str__(self) -> str:
        return report_text(self.rows())


@entry(instead="use hessian_matrix")
def layer_curvature(
    problem: Problem, params: Params, *, tolerance: float = ZERO, largest: int = LARGEST
) -> LayerCurvature:
    r"""Extreme eigenvalues of the Hessian of every layer alone, and the layers of the steepest way down.

    The loss is quadratic and convex in a single layer, so no layer alone sees a negative eigenvalue: a saddle is left
    by moving several at once. Weights that a `Masked` model fixes do not count; a layer without others has curvature 0.
    Computed on the host.

    Args:
        problem: Model and loss.
        params: Layers.
        tolerance: Eigenvalues up to this share of the largest in size count as zero.
        largest: Most weights for which the dense Hessian is made.

    Returns:
        Curvatures, and the shares of the layers in the most negative eigenvector.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(3 * jnp.ones((1, 1))))
        >>> found = layer_curvature(problem, (jnp.zeros((1, 1)), jnp.zeros((1, 1))))
        >>> found.whole, found.largest, [round(share, 12) for share in found.shares]
        ((-3.0, 3.0), (0.0, 0.0), [0.5, 0.5])
    """
    return layer_curvature_of(
        problem, params, _spectrum("layer_curvature", problem, params, largest), tolerance=tolerance
    )


def layer_curvature_of(
    problem: Problem, params: Params, found: HessianSpectrum, *, tolerance: float = ZERO
) -> LayerCurvature:
    """The curvature of every layer, and the shares in the lowest eigenvector of a complete spectrum."""
    where = "layer_curvature"
    check_number(where, "tolerance", tolerance, at_least=0)
    matrix = np.asarray(dense_hessian(problem, params))
    learnt = learnt_entries(problem.model)
    cuts = np.concatenate([[0], np.cumsum([rows * columns for rows, columns in problem.model.shapes])])
    places = [a + np.flatnonzero(learnt[a:b]) for a, b in itertools.pairwise(cuts)]
    extremes = [
        np.linalg.eigvalsh(matrix[np.ix_(place, place)])[[0, -1]] if len(place) else np.zeros(2) for place in places
    ]
    lowest = found.values[0]
    shares = None
    if lowest < -tolerance * np.abs(found.values).max():
        shares = tuple(float(np.sum(part**2)) for part in np.split(found.vectors[:, 0], cuts[1:-1]))
    return LayerCurvature(
        smallest=tuple(float(pair[0]) for pair in extremes),
        largest=tuple(float(pair[1]) for pair in extremes),
        whole=(float(lowest), float(found.values[-1])),
        shares=shares,
    )


@dataclasses.dataclass(frozen=True)
class TangentSpaces:
    """Orthonormal bases of what the flow does near a critical point, in columns in the coordinates of `flatten`.

    Attributes:
        stable: Directions that the flow contracts: eigenvectors of positive eigenvalues.
        centre: Directions in which it rests to first order.
        unstable: Directions in which it escapes: eigenvectors of negative eigenvalues, the steepest first.
        rates: Rate $-\\lambda$ of the flow along the columns of `unstable`.
        inertia: The counts.
        gradient: Norm of the gradient at the point.
        shapes: Shapes of the layers.
    """

    stable: np.ndarray
    centre: np.ndarray
    unstable: np.ndarray
    rates: np.ndarray
    inertia: Inertia
    gradient: float
    shapes: tuple[tuple[int, int], ...]

    def direction(self, space: Literal["stable", "centre", "unstable"], position: int) -> Params:
        """A basis vector as a direction of the layers."""
        return unflatten(xp.asarray(getattr(self, space)[:, position], dtype=float), self.shapes)

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        rows = [
            ("stable", f"{self.stable.shape[1]} dimensions"),
            ("centre", f"{self.centre.shape[1]} dimensions"),
            ("unstable", f"{self.unstable.shape[1]} dimensions"),
        ]
        if len(self.rates):
            rows.append(("fastest escape", f"grows at rate {self.rates[0]:.6g}"))
        rows.append(("gradient", f"{self.gradient:.1e}"))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything but the bases as plain values."""
        return {
            "stable": self.stable.shape[1],
            "centre": self.centre.shape[1],
            "unstable": self.unstable.shape[1],
            "rates": self.rates.tolist(),
            "gradient": self.gradient,
            "inertia": self.inertia.to_json(),
        }

    def __str__(self) -> str:
        return report_text(self.rows())


@entry(instead="use hessian_matrix and jax.numpy.linalg.eigh")
def tangent_spaces(
    problem: Problem,
    params: Params,
    *,
    tolerance: float = ZERO,
    resting: float = RESTING,
    largest: int = LARGEST,
) -> TangentSpaces:
    r"""Stable, centre and unstable subspace of the flow at a critical point.

    Near a critical point the flow is $\dot V = -HV$. Its unstable directions are those that leave a saddle; the centre
    holds the directions along the set of critical points and, at a non-strict saddle, the ways down of higher order.
    Of a `Masked` model only the weights that are learnt span them. Computed on the host.

    Args:
        problem: Model and loss.
        params: Layers of a critical point.
        tolerance: Eigenvalues up to this share of the largest in size count as zero.
        resting: Largest norm of the gradient, relative to that of the loss at the product 0.
        largest: Most weights for which the dense Hessian is made.

    Returns:
        Bases and rates.

    Raises:
        HypothesisError: The point is not critical; the residual is the norm of its gradient.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(3 * jnp.ones((1, 1))))
        >>> found = tangent_spaces(problem, (jnp.zeros((1, 1)), jnp.zeros((1, 1))))
        >>> found.rates.tolist(), found.centre.shape
        ([3.0], (2, 0))
    """
    where = "tangent_spaces"
    checked_size(where, problem, params)
    check_number(where, "resting", resting, above=0)
    gradient = float(norm(problem.gradient(params)))
    check_range(where, gradient)
    scale = float(xp.linalg.norm(problem.loss.gradient(xp.zeros(problem.model.product_shape))))
    bound = resting * (scale if scale > 0 else 1.0)
    if not gradient <= bound:
        raise HypothesisError(
            "a critical point: the gradient vanishes",
            gradient,
            bound,
            "Flow until the gradient is that small (until=steady(...)), or give the critical point itself.",
        )
    found = _spectrum(where, problem, params, largest)
    counts = inertia_of(found, tolerance=tolerance, absolute=0.0)
    low, high = counts.index, len(found.values) - counts.positive
    return TangentSpaces(
        stable=found.vectors[:, high:],
        centre=found.vectors[:, low:high],
        unstable=found.vectors[:, :low],
        rates=-found.values[:low],
        inertia=counts,
        gradient=gradient,
        shapes=problem.model.shapes,
    )


def _spectrum(where: str, problem: Problem, params: Params, largest: int) -> HessianSpectrum:
    """All eigenpairs, by the dense method, with refusals in the name of the caller."""
    size = checked_size(where, problem, params)
    check_count(where, "largest", largest, at_least=1)
    check_dense(where, size, largest)
    return hessian_spectrum(problem, params, method="dense", largest=largest)
