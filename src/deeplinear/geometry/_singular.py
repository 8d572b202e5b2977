r"""Singular values and vectors along a path, and the gradient flow of an energy written in them.

With $X = USV^\top$ and $Z = U^\top\dot X V$, where the singular values are distinct,

$$\dot s_i = Z_{ii}, \qquad \dot U = U\Omega, \quad \Omega_{ij} = \frac{s_jZ_{ij} + s_iZ_{ji}}{s_j^2 - s_i^2}, \qquad
\dot V = V\Psi, \quad \Psi_{ij} = \frac{s_iZ_{ij} + s_jZ_{ji}}{s_j^2 - s_i^2}.$$

Along $\dot X = -A_L[X](\nabla E)$ the factor $s_i^2 - s_j^2$ cancels against that of the eigenvalue, so that no
decomposition is needed while the flow is followed, products of matrices alone, at a cost that does not depend on depth.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, Matrix, check_shape, entry, formula, is_concrete, over, xp
from deeplinear.geometry._energies import (
    AbstractSpectralEnergy,
    FreeEnergy,
    NegativeEntropy,
    PowerEnergy,
    Scaled,
    SpectralEnergy,
    SpectralFreeEnergy,
)
from deeplinear.geometry._metric import Metric, Stack, checked_point
from deeplinear.models import AbstractLoss, Completion, SquaredDistance

DISTINCT = 1e-10
"""Singular values are distinct if the logarithms of neighbours differ by more than this."""


class SingularDerivative(NamedTuple):
    r"""How a singular value decomposition moves.

    Attributes:
        values: $\dot s$.
        left: $\Omega = U^\top\dot U$, skew.
        right: $\Psi = V^\top\dot V$, skew.
    """

    values: Float[Array, " modes"]
    left: Float[Array, "modes modes"]
    right: Float[Array, "modes modes"]


@entry(sized=("point", "velocity"))
def singular_derivative(point: Any, velocity: Any) -> SingularDerivative:
    r"""Derivatives of singular values and vectors along a path through a matrix.

    They belong to the decomposition that `xp.linalg.svd` gives; a change of the signs of its vectors changes the signs
    of the entries of $\Omega$ and $\Psi$.

    Args:
        point: $X$, square, of full rank, with distinct singular values.
        velocity: $\dot X$.

    Returns:
        $\dot s$, $\Omega$ and $\Psi$.

    Raises:
        HypothesisError: Two singular values coincide, or one is zero.

    Example:
        >>> singular_derivative(jnp.diag(jnp.array([2.0, 1.0])), jnp.array([[0.5, 3.0], [0.0, 0.25]])).values
        array([0.5 , 0.25])
    """
    where = "singular_derivative"
    x, z = checked_point(where, "point", point), checked_point(where, "velocity", velocity)
    check_shape(where, "point", x, (x.shape[0], x.shape[0]))
    check_shape(where, "velocity", z, x.shape)
    found, values = _derivative(x, z)
    refuse_repeated(where, values)
    return found


@formula
def _derivative(x: Matrix, z: Matrix) -> tuple[SingularDerivative, Float[Array, " modes"]]:
    left, values, right_t = xp.linalg.svd(x)
    seen = left.T @ z @ right_t.T
    same = xp.eye(values.shape[0], dtype=bool)
    apart = (values[None] - values[:, None]) * (values[None] + values[:, None])
    weights = xp.where(same, 0.0, 1.0 / xp.where(same, 1.0, apart))
    found = SingularDerivative(
        xp.diagonal(seen),
        weights * (seen * values + values[:, None] * seen.T),
        weights * (values[:, None] * seen + seen.T * values),
    )
    return found, values


def refuse_repeated(where: str, values: Float[Array, " modes"]) -> None:
    """Refuse a spectrum with a zero or with neighbours that coincide; abstract values pass unseen."""
    if not is_concrete(values):
        return
    seen = np.asarray(values)
    if not np.min(seen) > 0:
        raise HypothesisError(f"{where}: a matrix of full rank", float(np.sum(seen <= 0)), 0.0)
    gap = spectrum_gap(seen)
    if not gap > DISTINCT:
        raise HypothesisError(
            f"{where}: distinct singular values",
            gap,
            DISTINCT,
            "The smallest difference of their logarithms is told; it must be greater. Singular vectors have no "
            "derivative there, and the flow is followed in matrix coordinates.",
        )


def spectrum_gap(values: np.ndarray) -> float:
    """`log_gap` of the logarithms of given singular values."""
    return float(np.min(np.diff(np.sort(np.log(values))), initial=np.inf))


def log_gap(logs: Float[Array, "*batch modes"]) -> Float[Array, "*batch"]:
    """Smallest difference of two logarithms of singular values; infinite if there is one value only."""
    return xp.min(xp.diff(xp.sort(logs, axis=-1), axis=-1), axis=-1, initial=np.inf)


def gradients(energy: AbstractLoss, points: Stack) -> Stack:
    """Gradients of an energy at a point or at stacked ones: at once for the energies that are elementwise."""
    if points.ndim == 2:
        return energy.gradient(points)
    if isinstance(energy, SquaredDistance):
        return points - energy.target
    if isinstance(energy, Completion):
        return energy.mask * (points - energy.target)
    if isinstance(energy, Scaled):
        return energy.factor * gradients(energy.energy, points)
    if isinstance(energy, FreeEnergy):
        return gradients(energy.energy, points) + gradients(energy.entropic, points) / energy.beta
    if isinstance(energy, AbstractSpectralEnergy):
        left, values, right_t = xp.linalg.svd(points)
        return (left * spectral_slopes(energy, values)[..., None, :]) @ right_t
    return over(energy.gradient)(points)


ELEMENTWISE = PowerEnergy | SpectralEnergy | NegativeEntropy
"""Spectral energies that take stacked spectra."""


def spectral_slopes(
    energy: AbstractSpectralEnergy, values: Float[Array, "*batch modes"]
) -> Float[Array, "*batch modes"]:
    """Derivatives of a spectral energy by the singular values, of one spectrum or of stacked ones."""
    if isinstance(energy, SpectralFreeEnergy):
        return spectral_slopes(energy.energy, values) + spectral_slopes(energy.entropic, values) / energy.beta
    if values.ndim == 1 or isinstance(energy, ELEMENTWISE):
        return energy.spectral_gradient(values)
    flat = over(energy.spectral_gradient)(values.reshape(-1, values.shape[-1]))
    return flat.reshape(values.shape)


def energy_values(energy: AbstractLoss, points: Stack) -> Float[Array, "*batch"]:
    """Values of an energy at stacked points: at once for the energies that `gradients` takes so."""
    if isinstance(energy, SquaredDistance | Completion):
        return 0.5 * xp.sum(gradients(energy, points) ** 2, axis=(-2, -1))
    if isinstance(energy, Scaled):
        return energy.factor * energy_values(energy.energy, points)
    if isinstance(energy, FreeEnergy | SpectralFreeEnergy):
        return energy_values(energy.energy, points) + energy_values(energy.entropic, points) / energy.beta
    if isinstance(energy, ELEMENTWISE):
        return energy.spectral_value(xp.linalg.svd(points, compute_uv=False))
    flat = points.reshape(-1, *points.shape[-2:])
    return over(energy.value)(flat).reshape(points.shape[:-2])


def seen_gradient(energy: AbstractLoss, left: Stack, values: Float[Array, "*batch modes"], right: Stack) -> Stack:
    r"""$U^\top\,\nabla E(USV^\top)\,V$ without a decomposition, unchecked; what is spectral costs no product either."""
    if isinstance(energy, Scaled):
        return energy.factor * seen_gradient(energy.energy, left, values, right)
    if isinstance(energy, FreeEnergy):
        force = _diagonal(spectral_slopes(energy.entropic, values)) / energy.beta
        return seen_gradient(energy.energy, left, values, right) + force
    if isinstance(energy, AbstractSpectralEnergy):
        return _diagonal(spectral_slopes(energy, values))
    return _turned(left) @ gradients(energy, (left * values[..., None, :]) @ _turned(right)) @ right


def _diagonal(values: Float[Array, "*batch modes"]) -> Stack:
    return values[..., None] * np.eye(values.shape[-1])


def _turned(stack: Stack) -> Stack:
    return xp.swapaxes(stack, -1, -2)


def singular_field(
    metric: Metric, energy: AbstractLoss, left: Stack, logs: Float[Array, "*batch modes"], right: Stack
) -> tuple[Stack, Float[Array, "*batch modes"], Stack, Float[Array, "*batch"]]:
    r"""$\dot U$, $\mathrm d\ln s/\mathrm dt$, $\dot V$ and the speed of $\dot X = -A_L[X](\nabla E)$, unchecked.

    With $F = U^\top\nabla E\,V$ and $c_{ij} = 1/(s_i^{2/L} - s_j^{2/L})$ (in the limit $1/(2\ln(s_i/s_j))$ times the
    scale) it is $\Omega_{ij} = c_{ij}(s_jF_{ij} + s_iF_{ji})$, $\Psi_{ij} = c_{ij}(s_iF_{ij} + s_jF_{ji})$ and
    $\dot s_i = -\lambda_L(s_i, s_i)F_{ii}$.

    Args:
        metric: The metric of a depth.
        energy: $E$.
        left: $U$.
        logs: $\ln s$, distinct.
        right: $V$.
    """
    values = xp.exp(logs)
    seen = seen_gradient(energy, left, values, right)
    rate = metric.rate
    apart = 2 * (logs[..., :, None] - logs[..., None, :])
    shrunk = xp.where(rate > 0, xp.expm1(rate * apart) / xp.where(rate > 0, rate, 1.0), apart)
    same = apart == 0
    scaled = metric.scale * xp.exp(-2 * rate * logs)
    weights = xp.where(same, 0.0, scaled[..., None, :] / xp.where(same, 1.0, shrunk))
    own = xp.diagonal(seen, axis1=-2, axis2=-1)
    slopes = scaled * values * own
    outer, inner = seen * values[..., None, :], values[..., :, None] * seen
    turn_left, turn_right = weights * (outer + _turned(outer)), weights * (inner + _turned(inner))
    squares = values**2
    gaps = squares[..., :, None] - squares[..., None, :]
    power = xp.sum(weights * gaps * seen**2, axis=(-2, -1)) + xp.sum(scaled * squares * own**2, axis=-1)
    return left @ turn_left, -slopes, right @ turn_right, xp.sqrt(xp.maximum(power, 0.0))


def orthonormalised(matrix: Stack) -> Stack:
    r"""One Newton step to the nearest orthogonal matrix: a defect $\varepsilon$ becomes $\tfrac34\varepsilon^2$."""
    return matrix @ (1.5 * np.eye(matrix.shape[-1]) - 0.5 * (_turned(matrix) @ matrix))
