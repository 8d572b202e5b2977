r"""Gradient flow of an energy in the geometry of a depth: what balanced layers do, seen at their product.

$\dot X = -A_L[X](\nabla E(X))$ costs the same for every depth. Rank and the sign of the determinant are kept from depth
two on.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from deeplinear.core import (
    check_count,
    check_finite,
    check_number,
    check_x64,
    checked_layer,
    entry,
    is_program,
    near_name,
)
from deeplinear.geometry._energies import AbstractSpectralEnergy, NegativeEntropy
from deeplinear.geometry._metric import Metric
from deeplinear.geometry._singular import DISTINCT, refuse_repeated
from deeplinear.geometry._stretches import CLOSED, Limits, Log, Runner
from deeplinear.models import AbstractLoss

Coordinates = Literal["auto", "matrix", "singular", "spectral"]
Method = Literal["explicit", "implicit"]

FLAT = 1e-14
"""A matrix is numerically singular where its smallest singular value is below this part of the largest."""

TIGHT = 1e-7
"""Relative tolerance below which the method of order eight is taken."""


@dataclasses.dataclass(frozen=True)
class MatrixFlow:
    """Runs of a flow of matrices. Arrays have the members first, if several starts were given.

    After a run has stopped, its outputs hold the values where it stopped.

    Attributes:
        times: Output times.
        spectra: Singular values, largest first.
        points: The matrices, unless they were not asked for.
        energies: The energy.
        lengths: Length of the path since the start, in the metric.
        end: Matrix where the run ended.
        end_times: When it ended.
        gradients: Frobenius norm of the gradient there.
        status: For each run how it ended: `"converged"`, `"time limit"`, `"singular"` (numerically), `"diverged"`, or
            `"step limit"` (no steps were left, or they became smaller than rounding).
        switches: How often singular values met, so that the run went on in matrix coordinates.
        steps: Steps taken, refused ones too.
    """

    times: np.ndarray
    spectra: np.ndarray
    points: np.ndarray | None
    energies: np.ndarray
    lengths: np.ndarray
    end: np.ndarray
    end_times: np.ndarray
    gradients: np.ndarray
    status: tuple[str, ...]
    switches: np.ndarray
    steps: np.ndarray


@entry(instead="call it outside of jit, vmap and grad, or integrate Metric.apply, which can be traced")
def matrix_flow(
    energy: AbstractLoss | Sequence[AbstractLoss],
    start: Any,
    depth: float,
    times: Any,
    *,
    normalised: bool = False,
    coordinates: Coordinates = "auto",
    method: Method = "explicit",
    rtol: float = 1e-6,
    atol: float = 1e-9,
    gradient: float | None = None,
    largest: float = 1e6,
    points: bool = True,
    steps: int = 100_000,
    progress: Callable[[float], None] | None = None,
) -> MatrixFlow:
    r"""Follow $\dot X = -A_L[X](\nabla E(X))$, the product of balanced layers under gradient flow, for any depth.

    Each member of a batch has its own steps and its own end. Its energy never rises, and its rank and the sign of its
    determinant do not change from depth two on.

    Args:
        energy: $E$, a loss of the product; or one for each start, all of one kind. A free energy must have the entropy
            of this depth.
        start: $X(0)$, square; or several, members first. One that is not of full rank ends at once, as singular.
        depth: $L$, a positive integer or infinity.
        times: Output times, increasing and not negative; the last one is the time limit.
        normalised: Whether the operator is divided by $L$; infinite depth is always so.
        coordinates: `"matrix"`: one singular value decomposition for each evaluation. `"singular"`: singular vectors
            and logarithms of singular values, products of matrices alone; the values must stay distinct. `"spectral"`:
            singular values alone, for spectral energies. `"auto"`: spectral where the energy is; else singular, with
            matrix coordinates for as long as singular values meet, which is told in `switches`; matrix coordinates
            for depth one and for the implicit method.
        method: `"explicit"`: order 5, or 8 for `rtol` below 1e-7. `"implicit"`: order 5, with dense Jacobians of the
            $d^2$ entries; for stiff runs of small matrices.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step; in matrix coordinates far below the singular values of interest.
        gradient: A run has converged where $\|\nabla E\|_F$ is below this; ten times `rtol` times $s_1$ or more.
        largest: A run has diverged where $s_1$ exceeds this.
        points: Whether to keep the matrices at the output times.
        steps: Most steps of a run in one kind of coordinates.
        progress: Called with the share of members done; may raise to stop.

    Returns:
        Outputs, ends and how each run ended.

    Raises:
        HypothesisError: Singular coordinates were asked for and singular values meet.

    Example:
        >>> from deeplinear.models import SquaredDistance
        >>> energy, start = SquaredDistance(jnp.zeros((2, 2))), 2 * jnp.eye(2)
        >>> run = matrix_flow(energy, start, jnp.inf, [4.0], coordinates="matrix", rtol=1e-10, atol=1e-12)
        >>> run.status, round(float(run.end[0, 0]), 8)
        (('time limit',), 0.34815531)
    """
    where = "matrix_flow"
    check_x64(where)
    metric = Metric(depth, normalised=normalised)
    starts, single = _starts(where, start)
    energies = _energies(where, energy, len(starts), starts.shape[-1])
    _check_depths(where, energies[:1] if isinstance(energy, AbstractLoss) else energies, depth)
    outputs = _times(where, times)
    for name, choice, options in (
        ("coordinates", coordinates, ("auto", "matrix", "singular", "spectral")),
        ("method", method, ("explicit", "implicit")),
    ):
        if choice not in options:
            raise ValueError(f"{where}: {name} is {choice!r}, which is not known. {near_name(str(choice), options)}")
    check_number(where, "rtol", rtol, above=0)
    check_number(where, "atol", atol, at_least=0)
    check_number(where, "largest", largest, above=0, finite=False)
    if gradient is not None:
        check_number(where, "gradient", gradient, at_least=0)
    check_count(where, "steps", steps, at_least=1)
    chart = _chart(where, coordinates, method, energies[0], depth)
    solver = "kvaerno5" if method == "implicit" else "dopri8" if rtol < TIGHT else "tsit5"
    closed = -np.inf if chart != "singular" else DISTINCT if coordinates == "singular" else CLOSED
    numbers = (gradient or 0.0, largest, closed, np.inf)
    limits = Limits(*map(float, (*numbers, FLAT if depth > 1 else -1.0, rtol, atol)))
    if coordinates == "singular":
        for one in starts:
            refuse_repeated(where, np.linalg.svd(one, compute_uv=False))
    runner = Runner(metric, outputs, limits, chart, solver, steps, coordinates == "auto", is_program(start, energy))
    logs = [Log(len(outputs), starts.shape[-1], points) for _ in starts]
    runner.run(energies, starts, logs, progress)
    return _collect(outputs, logs, single, points)


def _chart(where: str, coordinates: str, method: str, energy: AbstractLoss, depth: float) -> str:
    spectral = isinstance(energy, AbstractSpectralEnergy)
    if coordinates == "spectral" and not spectral:
        raise TypeError(
            f"{where}: coordinates='spectral' needs an energy of the singular values alone (AbstractSpectralEnergy), "
            f"but energy is {type(energy).__name__}; take 'auto'."
        )
    if coordinates == "singular" and (depth == 1 or method == "implicit"):
        wanted = "a depth of at least 2" if depth == 1 else "the explicit method"
        raise ValueError(f"{where}: coordinates='singular' needs {wanted}; take 'auto' or 'matrix'.")
    if coordinates != "auto":
        return coordinates
    if depth == 1:
        return "matrix"
    return "spectral" if spectral else "matrix" if method == "implicit" else "singular"


def _starts(where: str, start: Any) -> tuple[np.ndarray, bool]:
    array = np.asarray(checked_layer(where, "start", start), dtype=float)
    if array.ndim not in (2, 3) or array.shape[-1] != array.shape[-2] or 0 in array.shape:
        raise ValueError(
            f"{where}: start must be a square matrix, or several of them (members first), but has shape {array.shape}."
        )
    check_finite(where, "start", array)
    return (array[None], True) if array.ndim == 2 else (array, False)


def _energies(where: str, energy: Any, members: int, size: int) -> list[AbstractLoss]:
    given = [energy] * members if isinstance(energy, AbstractLoss) else energy
    if not isinstance(given, Sequence) or not all(isinstance(one, AbstractLoss) for one in given):
        raise TypeError(f"{where}: energy must be a loss of the product, or several of them, but is {energy!r}.")
    if len(given) != members:
        raise ValueError(f"{where}: energy must be one loss or one for each of {members} starts, but is {len(given)}.")
    for one in given:
        if one.shape not in (None, (size, size)):
            raise ValueError(f"{where}: energy must take matrices of shape {(size, size)}, but takes {one.shape}.")
    first, structure = [np.shape(leaf) for leaf in jax.tree.leaves(given[0])], jax.tree.structure(given[0])
    for place, one in enumerate(given):
        if jax.tree.structure(one) != structure or [np.shape(leaf) for leaf in jax.tree.leaves(one)] != first:
            raise ValueError(
                f"{where}: energy must hold losses of one kind, but number {place} differs from the first."
            )
    return list(given)


def _check_depths(where: str, energies: Sequence[AbstractLoss], depth: float) -> None:
    """Refuse an energy that holds the entropy of another depth than the flow has."""

    def entropic(node: Any) -> bool:
        return isinstance(node, NegativeEntropy)

    for energy in energies:
        for part in jax.tree.leaves(energy, is_leaf=entropic):
            if entropic(part) and not np.isclose(float(part.rate), 1 / depth, rtol=1e-12, atol=0.0):
                own = "infinity" if float(part.rate) == 0 else f"{1 / float(part.rate):g}"
                raise ValueError(
                    f"{where}: energy must hold the entropy of the depth of the flow, {depth:g}, but holds that of "
                    f"depth {own}; give free_energy and {where} the same depth."
                )


def _times(where: str, times: Any) -> np.ndarray:
    array = np.asarray(checked_layer(where, "times", times), dtype=float)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{where}: times must be a list of numbers, but has shape {array.shape}.")
    check_finite(where, "times", array)
    if array[0] < 0 or np.any(np.diff(array) <= 0):
        raise ValueError(f"{where}: times must be increasing and not negative, but are {array[:5]}.")
    return array


def _collect(outputs: np.ndarray, logs: list[Log], single: bool, points: bool) -> MatrixFlow:
    def stack(name: str) -> np.ndarray:
        values = np.asarray([getattr(log, name) for log in logs])
        return np.asarray(values[0]) if single else values

    return MatrixFlow(
        times=outputs,
        spectra=stack("spectra"),
        points=stack("points") if points else None,
        energies=stack("energies"),
        lengths=stack("lengths"),
        end=stack("end"),
        end_times=stack("time"),
        gradients=stack("steepness"),
        status=tuple(log.status for log in logs),
        switches=stack("switches"),
        steps=stack("steps"),
    )
