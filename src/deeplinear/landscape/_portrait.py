"""Where a network stands: all that the landscape has to say of given weights, in one report."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from deeplinear.core import HypothesisError, Params, check_size, check_x64, entry, norm, spectrum
from deeplinear.landscape._arguments import checked_chain, widths_of
from deeplinear.landscape._balance_report import BalanceReport, balance_report
from deeplinear.landscape._balanced_minima import descent_threshold
from deeplinear.landscape._certificates import KIND, Classification
from deeplinear.landscape._classify import classify
from deeplinear.landscape._curvature import Inertia, LayerCurvature, inertia_of, layer_curvature_of
from deeplinear.landscape._hessian import HessianSpectrum, Which, hessian_spectrum
from deeplinear.landscape._laws import LawCounts, law_counts
from deeplinear.landscape._nearest import Nearest, nearest_critical_point
from deeplinear.landscape._rates import RateReport, rate_report
from deeplinear.landscape._reduction import Reduction, reduction_of
from deeplinear.landscape._structure import Structure, structure
from deeplinear.models import DeepLinear, Problem, SquaredDistance

EXTREMES = 6
"""Eigenvalues taken at each end of the spectrum of a Hessian that is too large to be decomposed."""

RESTARTS = 100
"""Most restarts of Lanczos' method: at a minimum, where 0 occurs many times, the lowest eigenvalues never settle."""

SEARCHED = 400
"""Most weights for which a critical point close by is looked for: up to 60 decompositions of the Hessian."""

FEW_LAWS = 300
"""Most conserved quantities whose independence is measured."""

DENSE = 1000
"""Most weights for which the dense Hessian is decomposed, unless more are allowed."""


SAME = 1e-9
"""Relative difference of singular values that are printed once."""


@dataclasses.dataclass(frozen=True)
class Portrait:
    r"""All that the landscape has to say of given weights. Printed, it is a report.

    Attributes:
        widths: Widths of the network, input first.
        singular_values: Of the product.
        layer_singular_values: Of every layer, first-acting first.
        structure: Which structures the layers have.
        balance: How nearly balanced they are.
        laws: Number of conserved quantities, listed and independent; `None` where there are too many to measure.
        rates: Rates of convergence of the square loss of the whole product; `None` for other tasks.
        loss: Loss, and
        gradient_norm: the norm of its gradient; `None` without a task, as is all that follows.
        sigma: Singular values of the task on whitened inputs.
        constant: Part of the loss that no linear map can fit.
        whitened_singular_values: Of the product on whitened inputs: those that `sigma` compares with.
        place: What kind of point this is, with its certificate.
        nearest: A critical point close by, where this is none.
        nearest_place: What kind of point that is.
        hessian: Eigenvalues of the Hessian: all of them, or the extreme ones of a large network.
        inertia: How many directions fall, rest and rise.
        curvature: Curvature seen by each layer.
        threshold: Largest step of gradient descent that is stable at the balanced minima; `None` where it is unknown or
            unbounded.
        notes: What could not be told, and why.
    """

    widths: tuple[int, ...]
    singular_values: np.ndarray
    layer_singular_values: tuple[np.ndarray, ...]
    structure: Structure
    balance: BalanceReport
    laws: LawCounts | None
    rates: RateReport | None
    loss: float | None = None
    gradient_norm: float | None = None
    sigma: np.ndarray | None = None
    constant: float | None = None
    whitened_singular_values: np.ndarray | None = None
    place: Classification | None = None
    nearest: Nearest | None = None
    nearest_place: Classification | None = None
    hessian: HessianSpectrum | None = None
    inertia: Inertia | None = None
    curvature: LayerCurvature | None = None
    threshold: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def white(self) -> bool:
        """Whether the singular values of the product compare with the modes of the task as they are."""
        seen = self.whitened_singular_values
        return seen is None or bool(np.allclose(seen, self.singular_values, rtol=SAME, atol=SAME * max(seen)))

    def sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """Headings with pairs of label and text."""
        network = [
            ("widths", "-".join(map(str, self.widths))),
            ("weights", f"{sum(a * b for a, b in zip(self.widths, self.widths[1:], strict=False)):,d}"),
            ("product", "singular values " + _few(self.singular_values)),
            ("structure", str(self.structure)),
            ("imbalance", f"δ = {self.balance.delta:.4g}"),
        ]
        if self.laws is not None:
            network.append(("conserved", f"{self.laws.listed}, {self.laws.independent} of them independent"))
        sections = [("Network", network)]
        if self.loss is not None:
            task = [("loss", f"{self.loss:.8g}"), ("gradient", f"{self.gradient_norm:.3e}")]
            task += [("not linear", f"{self.constant:.8g} of the loss fits no linear map")] if self.constant else []
            task += [] if self.sigma is None else [("modes", _few(self.sigma))]
            if self.whitened_singular_values is not None and not self.white:
                task.append(("product", "on whitened inputs, as the modes: " + _few(self.whitened_singular_values)))
            task += [] if self.threshold is None else [("largest step", f"{self.threshold:.6g} at the balanced minima")]
            sections.append(("Task", task))
        if self.place is not None:
            sections.append(("Place", [row for row in self.place.rows() if row[0] not in ("loss", "gradient")]))
        if self.nearest is not None:
            sections.append(("Critical point near by", self.nearest.rows()))
        if self.nearest_place is not None:
            sections.append(("Its kind", self.nearest_place.rows()))
        curvature = [] if self.hessian is None else self.hessian.rows()
        curvature += [] if self.inertia is None else self.inertia.rows()
        curvature += [] if self.curvature is None else self.curvature.rows()[1:]
        if curvature:
            sections.append(("Curvature", curvature))
        if self.rates is not None:
            sections.append(("Rates of convergence", self.rates.rows()[1:]))
        if self.notes:
            sections.append(("Notes", [("", note) for note in self.notes]))
        return sections

    def to_json(self) -> dict[str, Any]:
        """Everything but eigenvectors as plain values."""
        parts = {
            name: None if getattr(self, name) is None else getattr(self, name).to_json()
            for name in ("place", "nearest", "nearest_place", "hessian", "inertia", "curvature", "rates")
        }
        defects = dataclasses.asdict(self.structure)
        return {
            "widths": list(self.widths),
            "singular_values": self.singular_values.tolist(),
            "layer_singular_values": [values.tolist() for values in self.layer_singular_values],
            "structure": {"names": list(self.structure.names), **defects},
            "imbalance": self.balance.delta,
            "laws": None if self.laws is None else self.laws._asdict(),
            "loss": self.loss,
            "gradient_norm": self.gradient_norm,
            "sigma": None if self.sigma is None else self.sigma.tolist(),
            "constant": self.constant,
            "whitened_singular_values": (
                None if self.whitened_singular_values is None else self.whitened_singular_values.tolist()
            ),
            "threshold": self.threshold,
            **parts,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        lines = []
        for title, rows in self.sections():
            lines.append(title)
            width = max(len(label) for label, _ in rows)
            lines += [f"  {label.ljust(width)}  {text}" for label, text in rows]
        return "\n".join(lines)


@entry(instead="use hessian_matrix, sharp_rate and norm_bounds")
def portrait(params: Iterable[Any], problem: Problem | None = None, *, largest: int = DENSE) -> Portrait:
    """Everything the landscape has to say of given weights.

    What does not depend on a task is always told: structure, balance, conserved quantities, rates. With a problem come
    the kind of point and its certificate, a critical point close by, and the spectrum of the Hessian. What the theory
    does not speak of, or what would take too long, is left out and named in the notes. Computed on the host.

    Args:
        params: Layers, first-acting first.
        problem: What they learn, if it is known.
        largest: Most weights for which the dense Hessian is decomposed; above, its extreme eigenvalues are found.

    Returns:
        The report; `print` it.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> found = portrait((jnp.zeros((1, 1)), jnp.zeros((1, 1))), problem)
        >>> found.place.kind.value, found.inertia.index
        ('strict saddle', 1)
    """
    where = "portrait"
    check_x64(where)
    weights = checked_chain(where, params)
    for position, layer in enumerate(weights):
        check_size(where, f"params[{position}]", np.asarray(layer))
    network = DeepLinear(widths_of(weights))
    product = network.product(weights)
    if not np.all(np.isfinite(np.asarray(product))):
        raise ValueError(f"{where}: params must have a finite product, but are so large that it is not a number.")
    notes: list[str] = []
    listed = sum(width * (width + 1) // 2 for width in network.widths[1:-1])
    square = problem is None or (
        isinstance(problem.model, DeepLinear) and isinstance(problem.loss, SquaredDistance) and float(problem.l2) == 0
    )
    chain = problem is None or isinstance(problem.model, DeepLinear)
    if problem is None:
        notes.append("No task was given: loss, kind of point and curvature cannot be told.")
    if not square:
        notes.append("Rates of convergence are known for the square loss of the whole product on white inputs only.")
    if not chain:
        notes.append("Some weights are fixed: the conserved quantities are not those of a chain.")
    elif listed > FEW_LAWS:
        notes.append(f"Whether the {listed} conserved quantities are independent was not measured: they are too many.")
    plain = Portrait(
        widths=network.widths,
        singular_values=np.asarray(spectrum(product)),
        layer_singular_values=tuple(np.linalg.svd(np.asarray(layer), compute_uv=False) for layer in weights),
        structure=structure(weights),
        balance=balance_report(weights),
        laws=law_counts(weights) if chain and listed <= FEW_LAWS else None,
        rates=rate_report(weights) if square else None,
        notes=tuple(notes),
    )
    if problem is None:
        return plain
    problem.check(weights, where)
    value, gradient = problem.value_and_gradient(weights)
    place = near = near_place = reduction = threshold = counts = curvature = hessian = None
    try:
        reduction = reduction_of(problem)
        place = classify(problem, weights)
    except HypothesisError as error:
        notes.append(f"The kind of point cannot be told: {error}")
    if reduction is not None:
        try:
            threshold = _finite(float(descent_threshold(problem)))
        except (HypothesisError, RuntimeError) as error:
            notes.append(f"The largest stable step at the balanced minima is not known: {error}")
    if place is not None and place.kind is KIND.regular:
        if network.size <= SEARCHED:
            near = nearest_critical_point(problem, weights)
            near_place = classify(problem, near.params) if near.found else None
        else:
            notes.append(
                f"No critical point was looked for: the network has more than {SEARCHED} weights; "
                "nearest_critical_point looks for one."
            )
    if network.size <= largest:
        hessian = hessian_spectrum(problem, weights, largest=largest)
        counts = inertia_of(hessian)
        curvature = layer_curvature_of(problem, weights, hessian)
    else:
        hessian, told = _ends(problem, weights, largest)
        notes += told
    return dataclasses.replace(
        plain,
        loss=float(value),
        gradient_norm=float(norm(gradient)),
        sigma=None if reduction is None else np.asarray(reduction.sigma),
        constant=None if reduction is None else float(reduction.constant),
        whitened_singular_values=None if reduction is None else _whitened(reduction, np.asarray(product)),
        place=place,
        nearest=near,
        nearest_place=near_place,
        hessian=hessian,
        inertia=counts,
        curvature=curvature,
        threshold=threshold,
        notes=tuple(notes),
    )


def _ends(problem: Problem, weights: Params, largest: int) -> tuple[HessianSpectrum | None, list[str]]:
    """Extreme eigenvalues of a Hessian that is too large to be decomposed, the highest ones at least; and notes."""
    notes = [f"The network has more than {largest} weights: only extreme eigenvalues were found."]
    ends: tuple[tuple[Which, int, str], ...] = (
        ("both", 2 * EXTREMES, "lowest and highest"),
        ("largest", EXTREMES, "highest"),
    )
    for which, count, words in ends:
        try:
            found = hessian_spectrum(problem, weights, count, which, largest=largest, max_iterations=RESTARTS)
            return found, notes
        except RuntimeError as error:
            notes.append(f"The {words} eigenvalues of the Hessian were not found together: {error}")
    return None, notes[1:]


def _whitened(reduction: Reduction, product: np.ndarray) -> np.ndarray:
    """Singular values of a product on whitened inputs."""
    return np.linalg.svd(product @ np.asarray(reduction.inner), compute_uv=False)


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _few(values: np.ndarray, most: int = 8) -> str:
    shown = ", ".join(f"{value:.5g}" for value in values[:most])
    return shown + (f", … ({len(values)} in all)" if len(values) > most else "")
