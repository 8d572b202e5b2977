r"""Energies of end-to-end matrices: functions of the singular values, free energies, multiples.

A *spectral* energy $E(X) = f(s)$, $f$ symmetric, has the gradient $U\,\mathrm{diag}(f_i)\,V^\top$ with
$f_i = \partial f/\partial s_i$. Its Hessian takes $\tilde Z = U^\top Z V$, beside the diagonal, to

$$\frac{f_i - f_j}{s_i - s_j}\,\frac{\tilde Z_{ij} + \tilde Z_{ji}}2
  + \frac{f_i + f_j}{s_i + s_j}\,\frac{\tilde Z_{ij} - \tilde Z_{ji}}2,$$

and on it to $\sum_j f_{ij}\tilde Z_{jj}$. Close singular values are no special case: the first quotient is then the
mean of $f_{ii} - f_{ij}$ on the way from $s$ to the spectrum with $s_i$ and $s_j$ exchanged.
"""

import abc
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    as_array,
    as_numbers,
    check_number,
    differentiable,
    entry,
    is_concrete,
    is_program,
    over,
    put,
    xp,
)
from deeplinear.geometry._entropy import spectrum_curve, spectrum_entropy, spectrum_slope
from deeplinear.geometry._metric import checked_depth
from deeplinear.models import AbstractLoss

NODES, WEIGHTS = np.polynomial.legendre.leggauss(5)
"""Gauss–Legendre rule for the way between close singular values."""

CLOSE = 0.1
"""Two singular values are close if they differ by less than this part of their mean: the rule is then exact."""


class AbstractSpectralEnergy(AbstractLoss):
    """Energy of a square matrix that depends on its singular values alone, and not on their order."""

    @abc.abstractmethod
    def spectral_value(self, values: Float[Array, " modes"]) -> Float[Array, ""]:
        """The energy as a function of the singular values."""

    @abc.abstractmethod
    def spectral_gradient(self, values: Float[Array, " modes"]) -> Float[Array, " modes"]:
        """Its derivatives by the singular values."""

    @abc.abstractmethod
    def spectral_hessian(self, values: Float[Array, " modes"]) -> Float[Array, "modes modes"]:
        """Its second derivatives."""

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        return self.spectral_value(xp.linalg.svd(_square(self, product), compute_uv=False))

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return _finite(self, product, _gradient(self, _square(self, product)))

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return _finite(self, product, _curvature(self, _square(self, product), tangent))

    @property
    def shape(self) -> None:
        return None

    @property
    def kind(self) -> str:
        return "full"


class PowerEnergy(AbstractSpectralEnergy):
    r"""$E_p(X) = \tfrac1p\sum_i s_i^p$: half the squared norm for $p = 2$, the nuclear norm for $p = 1$.

    Args:
        power: $p$, positive.

    Example:
        >>> float(PowerEnergy(2.0).value(jnp.diag(jnp.array([3.0, 4.0]))))
        12.5
    """

    power: Float[Array, ""]

    @entry
    def __init__(self, power: object) -> None:
        check_number("PowerEnergy", "power", power, above=0)
        self.power = as_array(power, float)

    def spectral_value(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch"]:
        return xp.sum(values**self.power, axis=-1) / self.power

    def spectral_gradient(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch modes"]:
        return values ** (self.power - 1)

    def spectral_hessian(self, values: Float[Array, " modes"]) -> Float[Array, "modes modes"]:
        return xp.diag((self.power - 1) * values ** (self.power - 2))


class SpectralEnergy(AbstractSpectralEnergy):
    r"""$E(X) = \sum_i f(s_i)$ for a function of one variable.

    Args:
        function: $f$, elementwise on an array, written for NumPy or for JAX. In a transformation, and for `curvature`,
            which differentiates $f'$, it must be written for JAX. Pass a named function: a fresh lambda per call
            compiles anew.
        derivative: $f'$, elementwise.

    Example:
        >>> SpectralEnergy(jnp.exp, jnp.exp).gradient(jnp.diag(jnp.array([2.0, 1.0]))).round(6)
        Array([[7.389056, 0.      ],
               [0.      , 2.718282]], dtype=float64)
    """

    function: Callable[[Array], Array] = eqx.field(static=True)
    derivative: Callable[[Array], Array] = eqx.field(static=True)

    def __init__(self, function: Callable[[Array], Array], derivative: Callable[[Array], Array]) -> None:
        for name, given in (("function", function), ("derivative", derivative)):
            if not callable(given):
                raise TypeError(f"SpectralEnergy: {name} must be a function of the singular values, but is {given!r}.")
        self.function = function
        self.derivative = derivative

    def spectral_value(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch"]:
        return xp.sum(_numbers(self.function(values)), axis=-1)

    def spectral_gradient(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch modes"]:
        return _numbers(self.derivative(values))

    def spectral_hessian(self, values: Float[Array, " modes"]) -> Float[Array, "modes modes"]:
        return xp.diag(_numbers(jax.jvp(self.derivative, (values,), (xp.ones_like(values),))[1]))


class NegativeEntropy(AbstractSpectralEnergy):
    r"""$-S_L(X)$, the negative entropy of the spectrum as an energy; plus infinity where $X$ is singular.

    Args:
        depth: $L$, a positive integer or infinity.

    Example:
        >>> round(float(NegativeEntropy(2).value(jnp.diag(jnp.array([3.0, 1.2, 0.4])))), 12)
        -1.564431793079
    """

    rate: Float[Array, ""]

    def __init__(self, depth: float) -> None:
        self.rate = xp.asarray(1 / checked_depth("NegativeEntropy", depth), dtype=float)

    def spectral_value(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch"]:
        return -_entropy(values, self.rate)

    def spectral_gradient(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch modes"]:
        return -spectrum_slope(values, self.rate)

    def spectral_hessian(self, values: Float[Array, " modes"]) -> Float[Array, "modes modes"]:
        return -spectrum_curve(values, self.rate)


class SpectralFreeEnergy(AbstractSpectralEnergy):
    r"""$F_\beta(X) = E(X) - S_L(X)/\beta$ of a spectral energy; made by `free_energy`.

    Args:
        energy: $E$.
        beta: Inverse temperature $\beta > 0$.
        depth: $L$ of the entropy, a positive integer or infinity.
    """

    energy: AbstractSpectralEnergy
    entropic: NegativeEntropy
    beta: Float[Array, ""]

    @entry
    def __init__(self, energy: AbstractSpectralEnergy, beta: object, depth: float) -> None:
        _check_energy("SpectralFreeEnergy", energy, AbstractSpectralEnergy)
        self.energy, self.entropic = energy, NegativeEntropy(depth)
        self.beta = _inverse_temperature("SpectralFreeEnergy", beta)

    def spectral_value(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch"]:
        return self.energy.spectral_value(values) + self.entropic.spectral_value(values) / self.beta

    def spectral_gradient(self, values: Float[Array, "*batch modes"]) -> Float[Array, "*batch modes"]:
        return self.energy.spectral_gradient(values) + self.entropic.spectral_gradient(values) / self.beta

    def spectral_hessian(self, values: Float[Array, " modes"]) -> Float[Array, "modes modes"]:
        return self.energy.spectral_hessian(values) + self.entropic.spectral_hessian(values) / self.beta


class FreeEnergy(AbstractLoss):
    r"""$F_\beta(X) = E(X) - S_L(X)/\beta$ of any energy of square matrices.

    $\nabla F = \nabla E - U\,\mathrm{diag}(\partial S_L/\partial s)\,V^\top/\beta$. Of a completion energy with an
    unobserved entry it has no lower bound: that entry may grow, and the entropy grows with its logarithm. `free_energy`
    gives a spectral energy where $E$ is one.

    Args:
        energy: $E$, a loss of the product.
        beta: Inverse temperature $\beta > 0$.
        depth: $L$ of the entropy, a positive integer or infinity.
    """

    energy: AbstractLoss
    entropic: NegativeEntropy
    beta: Float[Array, ""]

    @entry
    def __init__(self, energy: AbstractLoss, beta: object, depth: float) -> None:
        _check_energy("FreeEnergy", energy, AbstractLoss)
        self.energy, self.entropic = energy, NegativeEntropy(depth)
        self.beta = _inverse_temperature("FreeEnergy", beta)

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        return self.energy.value(product) + self.entropic.value(product) / self.beta

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return self.energy.gradient(product) + self.entropic.gradient(product) / self.beta

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return self.energy.curvature(product, tangent) + self.entropic.curvature(product, tangent) / self.beta

    @property
    def shape(self) -> tuple[int, int] | None:
        return self.energy.shape

    @property
    def kind(self) -> str:
        return self.energy.kind


@entry
def free_energy(energy: AbstractLoss, beta: object, depth: float) -> FreeEnergy | SpectralFreeEnergy:
    r"""$F_\beta = E - S_L/\beta$: an energy minus the entropy of depth $L$ at the temperature $1/\beta$.

    Args:
        energy: $E$, a loss of the product.
        beta: Inverse temperature $\beta > 0$.
        depth: $L$, a positive integer or infinity.

    Returns:
        A spectral energy if $E$ is one, so that its flow keeps the singular vectors.

    Example:
        >>> energy = free_energy(PowerEnergy(2.0), beta=1.0, depth=math.inf)
        >>> energy.gradient(jnp.sqrt(0.5) * jnp.eye(2)).round(12) + 0.0
        array([[0., 0.],
               [0., 0.]])
    """
    if isinstance(energy, AbstractSpectralEnergy):
        return SpectralFreeEnergy(energy, beta, depth)
    return FreeEnergy(energy, beta, depth)


class Scaled(AbstractLoss):
    r"""$c\,E(X)$: the same paths of steepest descent, run $c$ times as fast.

    With $c = 2$ the losses of completion and sensing lose their factor $\tfrac12$.

    Args:
        energy: $E$, a loss of the product.
        factor: $c$, positive.

    Example:
        >>> from deeplinear.models import SquaredDistance
        >>> float(Scaled(SquaredDistance(jnp.eye(2)), 2.0).value(jnp.zeros((2, 2))))
        2.0
    """

    energy: AbstractLoss
    factor: Float[Array, ""]

    @entry
    def __init__(self, energy: AbstractLoss, factor: object) -> None:
        _check_energy("Scaled", energy, AbstractLoss)
        check_number("Scaled", "factor", factor, above=0)
        self.energy = energy
        self.factor = as_array(factor, float)

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        return self.factor * self.energy.value(product)

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return self.factor * self.energy.gradient(product)

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return self.factor * self.energy.curvature(product, tangent)

    @property
    def shape(self) -> tuple[int, int] | None:
        return self.energy.shape

    @property
    def kind(self) -> str:
        return self.energy.kind


def _numbers(found: Any) -> Any:
    """What a function of the user's gives, which may be written for JAX, as an array of NumPy where it can be."""
    return found if is_program(found) else as_numbers(found)


def _check_energy(where: str, energy: object, kind: type[AbstractLoss]) -> None:
    if not isinstance(energy, kind):
        wanted = "a loss such as SquaredDistance" if kind is AbstractLoss else "a spectral energy such as PowerEnergy"
        raise TypeError(f"{where}: energy must be {wanted}, but is {energy!r}.")


def _inverse_temperature(where: str, beta: object) -> Float[Array, ""]:
    check_number(where, "beta (the inverse temperature)", beta, above=0)
    return as_array(beta, float)


def _entropy(values: Float[Array, "*batch modes"], rate: Float[Array, ""]) -> Float[Array, "*batch"]:
    """The entropy with its constant, which is left out for infinite depth."""
    size = values.shape[-1]
    return spectrum_entropy(values, rate) - size * (size - 1) / 4 * xp.log(xp.where(rate > 0, rate, 1.0))


def _square(energy: AbstractSpectralEnergy, product: Matrix) -> Matrix:
    if product.shape[0] != product.shape[1]:
        raise ValueError(f"{type(energy).__name__}: product must be square, but has shape {product.shape}.")
    return product


def _finite(energy: AbstractSpectralEnergy, product: Matrix, result: Matrix) -> Matrix:
    """Refuse to differentiate where the energy has no derivative; unseen inside a transformation."""
    if is_concrete(result) and not np.all(np.isfinite(np.asarray(result))):
        least = float(xp.linalg.svd(product, compute_uv=False)[-1]) if is_concrete(product) else math.nan
        raise HypothesisError(
            f"{type(energy).__name__}: singular values at which the energy is smooth",
            least,
            0.0,
            "The smallest singular value is told; it must be positive, or move the matrix away from the singular ones.",
        )
    return result


@differentiable
def _gradient(energy: AbstractSpectralEnergy, product: Matrix) -> Matrix:
    left, values, right_t = xp.linalg.svd(product)
    return (left * energy.spectral_gradient(values)) @ right_t


@_gradient.defjvp
def _gradient_jvp(primals: tuple[Any, Matrix], tangents: tuple[Any, Matrix]) -> tuple[Matrix, Matrix]:
    # Singular vectors have no derivative at equal singular values; the gradient has one.
    energy, product = primals
    left, values, right_t = xp.linalg.svd(product)
    slopes, moved = jax.jvp(lambda at: at.spectral_gradient(values), (energy,), (tangents[0],))
    return (left * slopes) @ right_t, _curvature(energy, product, tangents[1]) + (left * moved) @ right_t


def _curvature(energy: AbstractSpectralEnergy, product: Matrix, tangent: Matrix) -> Matrix:
    left, values, right_t = xp.linalg.svd(product)
    seen = left.T @ tangent @ right_t.T
    slopes = energy.spectral_gradient(values)
    even, odd = (seen + seen.T) / 2, (seen - seen.T) / 2
    turned = _quotients(energy, values) * even + (slopes[:, None] + slopes) / (values[:, None] + values) * odd
    spread = energy.spectral_hessian(values) @ xp.diagonal(seen)
    same = xp.eye(values.shape[0], dtype=bool)
    return left @ xp.where(same, spread[:, None], turned) @ right_t


def _quotients(energy: AbstractSpectralEnergy, values: Float[Array, " modes"]) -> Float[Array, "modes modes"]:
    """Divided differences of the gradient for all pairs; the diagonal is not used."""
    size = values.shape[0]
    if size == 1:
        return xp.zeros((1, 1))
    i, j = np.triu_indices(size, 1)
    pairs = np.arange(len(i))
    slopes = energy.spectral_gradient(values)
    middle, half = (values[i] + values[j]) / 2, (values[i] - values[j]) / 2
    near = xp.abs(half) <= CLOSE / 2 * middle
    shift = xp.where(near, half, 0.0)[:, None] * xp.asarray(NODES)
    way = xp.broadcast_to(values, (len(i), len(NODES), size))
    every = slice(None)
    way = put(way, (pairs, every, i), middle[:, None] + shift)
    way = put(way, (pairs, every, j), middle[:, None] - shift)
    bend = over(over(energy.spectral_hessian))(way)
    mean = xp.sum(0.5 * xp.asarray(WEIGHTS) * (bend[pairs, :, i, i] - bend[pairs, :, i, j]), axis=-1)
    quotient = xp.where(near, mean, (slopes[i] - slopes[j]) / xp.where(near, 1.0, 2 * half))
    return put(put(xp.zeros((size, size)), (i, j), quotient), (j, i), quotient)
