r"""Equilibria of free energies: where an energy of the singular values and the entropy balance.

At a minimum of $F = \sum_i f(s_i) - S_L(s)/\beta$ with equal singular values, $s f'(s) = (d-1)c_L/(2\beta)$ with
$c_L = 1 - 1/L$. For convex $f$ there is at most one such $s$, and no other equilibrium (but at depth two with two
singular values and linear $f$, where only their sum is determined). For $f = s^p/p$ with $p$ below
$\frac{d}{3(d-1)}(1 + \frac1L)$ equal singular values are unstable; states with $k$ singular values smaller by a factor
$e^{-u}$ exist at

$$p(u) = \frac1u \ln\frac{(d-1)c_L + k\,w_L(u)}{(d-1)c_L - (d-k)\,w_L(u)},$$

so that the whole bifurcation diagram is explicit. Rates are those of the flow in the metric of the depth.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_x64,
    checked_layer,
    entry,
    formula,
    is_concrete,
    xp,
)
from deeplinear.geometry._energies import AbstractSpectralEnergy, PowerEnergy, SpectralEnergy, SpectralFreeEnergy
from deeplinear.geometry._metric import checked_depth
from deeplinear.geometry._pair_eigenvalues import pair_slope

REACH = 300.0
"""Equilibria are looked for where the logarithm of the singular value is within this of zero."""

WIDEST = 700.0
"""Largest logarithm of a ratio at which split states are looked for: the smaller values would underflow beyond."""


@dataclasses.dataclass(frozen=True)
class Equilibrium:
    r"""A rest point of the flow of a free energy, up to the singular vectors.

    Attributes:
        spectrum: Singular values, largest first.
        rates: Decay rates of small changes of the spectrum, in rising order; a negative one is growth.
    """

    spectrum: np.ndarray
    rates: np.ndarray

    @property
    def stable(self) -> bool:
        """Whether all small changes of the spectrum die out."""
        return bool(self.rates[0] > 0)


def equilibrium(
    energy: PowerEnergy | SpectralEnergy, size: int, beta: float, depth: float, *, normalised: bool = False
) -> Equilibrium:
    r"""The equilibrium with equal singular values of $F = E - S_L/\beta$.

    $s f'(s) = (d-1)c_L/(2\beta)$, for $E = \tfrac1p\sum s_i^p$ in closed form $s = ((d-1)c_L/(2\beta))^{1/p}$. The
    minimisers are $s$ times the orthogonal matrices.

    Args:
        energy: $E = \sum_i f(s_i)$.
        size: $d$, at least two.
        beta: Inverse temperature $\beta > 0$.
        depth: $L$, an integer from two or infinity.
        normalised: Whether the rates are those of the operator divided by $L$; at infinite depth they always are.

    Returns:
        The equilibrium.

    Raises:
        HypothesisError: $s f'(s)$ does not reach that value, or takes it more than once.

    Example:
        >>> float(equilibrium(PowerEnergy(2.0), size=10, beta=1.0, depth=math.inf).spectrum[0].round(10))
        2.1213203436
    """
    where = "equilibrium"
    push = _push(where, size, beta, depth)
    _check_energy(where, energy)
    value = push ** (1 / float(energy.power)) if isinstance(energy, PowerEnergy) else _crossing(energy, push)
    return _rest(energy, np.full(size, value), beta, depth, normalised)


def has_equilibrium(energy: PowerEnergy | SpectralEnergy, size: int, beta: float, depth: float) -> bool:
    r"""Whether $s f'(s)$ reaches $(d-1)c_L/(2\beta)$, so that the free energy of a convex $f$ has a minimum.

    Args:
        energy: $E = \sum_i f(s_i)$.
        size: $d$, at least two.
        beta: Inverse temperature $\beta > 0$.
        depth: $L$, an integer from two or infinity.

    Example:
        >>> decreasing = SpectralEnergy(lambda s: jnp.exp(-s), lambda s: -jnp.exp(-s))
        >>> has_equilibrium(decreasing, size=3, beta=1.0, depth=math.inf)
        False
    """
    push = _push("has_equilibrium", size, beta, depth)
    _check_energy("has_equilibrium", energy)
    _, force = _forces(energy)
    return bool(np.max(force) >= push)


@entry
def equilibrium_rates(
    value: Any, curvature: Any, size: int, beta: float, depth: float, *, normalised: bool = False
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""Decay rates around equal singular values $s$: of their differences, and of their mean.

    With $m = s^{2-2/L}$, times $L$ unless normalised, and $w_0 = (1 - L^{-2})/3$:
    $m\,(f'' - (d w_0 - (d-1)c_L)/(2\beta s^2))$ and $m\,(f'' + (d-1)c_L/(2\beta s^2))$.

    Args:
        value: $s$.
        curvature: $f''(s)$.
        size: $d$, at least two.
        beta: Inverse temperature $\beta > 0$.
        depth: $L$, an integer from two or infinity.
        normalised: Whether the operator is divided by $L$; at infinite depth it always is.

    Returns:
        The two rates.

    Example:
        >>> [round(float(r), 10) for r in equilibrium_rates(4.5**0.5, 1.0, size=10, beta=1.0, depth=math.inf)]
        [7.3333333333, 9.0]
    """
    where = "equilibrium_rates"
    push = _push(where, size, beta, depth)
    s, bend = (as_array(checked_layer(where, n, v), float) for n, v in (("value", value), ("curvature", curvature)))
    for name, array in (("value", s), ("curvature", bend)):
        check_finite(where, name, array)
    if is_concrete(s) and np.any(np.asarray(s) <= 0):
        raise ValueError(f"{where}: value must be positive, but reaches {float(xp.min(s)):g}.")
    rate = 1 / checked_depth(where, depth)
    speed = _scale(depth, normalised) * s ** (2 - 2 * rate)
    spread = size * (1 - rate**2) / (6 * beta)
    return speed * (bend - (spread - push) / s**2), speed * (bend + push / s**2)


def critical_power(size: int, depth: float) -> float:
    r"""$p_c = \frac{d}{3(d-1)}(1 + \frac1L)$: above this power equal singular values are stable, below it they are not.

    For the energy $\tfrac1p\sum s_i^p$ at any temperature.

    Args:
        size: $d$, at least two.
        depth: $L$, an integer from two or infinity.

    Example:
        >>> round(critical_power(5, math.inf), 12)
        0.416666666667
    """
    _push("critical_power", size, 1.0, depth)
    return size / (3 * (size - 1)) * (1 + 1 / depth)


@entry
def split_power(log_ratio: Any, size: int, depth: float, *, low: int = 1) -> Float[Array, "..."]:
    r"""The power $p(u)$ at which a state with `low` singular values smaller by the factor $e^{-u}$ is an equilibrium.

    `critical_power` at $u = 0$; negative $u$ are states in which these values are larger. It does not depend on
    $\beta$, which only scales the singular values.

    Args:
        log_ratio: $u$, any real numbers.
        size: $d$, at least two.
        depth: $L$, an integer from two or infinity.
        low: $k$, how many singular values split off; from 1 to $d - 1$.

    Returns:
        $p$, one for each.

    Example:
        >>> round(float(split_power(2.007, size=2, depth=math.inf)), 3)
        0.6
    """
    where = "split_power"
    _push(where, size, 1.0, depth)
    check_count(where, "low", low, at_least=1, at_most=size - 1)
    u = as_array(checked_layer(where, "log_ratio", log_ratio), float)
    check_finite(where, "log_ratio", u)
    return _split(u, size, low, 1 / checked_depth(where, depth))


@entry
def split_equilibria(
    power: float, size: int, beta: float, depth: float, *, low: int = 1, normalised: bool = False
) -> tuple[Equilibrium, ...]:
    r"""Equilibria of $\tfrac1p\sum s_i^p - S_L/\beta$ in which `low` singular values differ from the others.

    The roots of $p(u) = p$ of `split_power`, found on a grid of $u$ and polished.

    Args:
        power: $p > 0$.
        size: $d$, at least two.
        beta: Inverse temperature $\beta > 0$.
        depth: $L$, an integer from two or infinity.
        low: $k$, from 1 to $d - 1$.
        normalised: As for `equilibrium`.

    Returns:
        The equilibria, those with the strongest split first; none for $p \ge 1$.

    Example:
        >>> split_equilibria(0.6, size=2, beta=1.0, depth=math.inf)[0].spectrum.round(4)
        array([0.6458, 0.0868])
    """
    where = "split_equilibria"
    check_number(where, "power", power, above=0)
    _push(where, size, beta, depth)
    check_count(where, "low", low, at_least=1, at_most=size - 1)
    grid = np.geomspace(1e-3, WIDEST, 4001)
    grid = np.concatenate([-grid[::-1], grid])
    missing = np.asarray(split_power(grid, size, depth, low=low)) - power
    turns = np.flatnonzero((missing[:-1] * missing[1:] < 0) & (grid[:-1] * grid[1:] > 0))
    rate, found = 1 / checked_depth(where, depth), []
    for k in turns:
        u = _root(lambda x: float(_split(x, size, low, rate)) - power, grid[k], grid[k + 1])
        high, small = (float(v) for v in _parts(xp.asarray(u, dtype=float), size, low, rate))
        values = [(high / (2 * beta)) ** (1 / power)] * (size - low) + [(small / (2 * beta)) ** (1 / power)] * low
        found.append((abs(u), np.sort(values)[::-1]))
    if 2 * low == size:  # exchanging the halves gives the same states
        found = found[: (len(found) + 1) // 2]
    found.sort(key=lambda pair: -pair[0])
    energy = PowerEnergy(power)
    return tuple(_rest(energy, spectrum, beta, depth, normalised) for _, spectrum in found)


def _push(where: str, size: int, beta: float, depth: float) -> float:
    r"""$(d-1)c_L/(2\beta)$, or a refusal."""
    check_x64(where)
    check_count(where, "size", size, at_least=2)
    check_number(where, "beta (the inverse temperature)", beta, above=0)
    depth = checked_depth(where, depth)
    if depth == 1:
        raise ValueError(f"{where}: depth must be at least 2, but is 1: a single layer has no entropy.")
    return (size - 1) * (1 - 1 / depth) / (2 * beta)


def _check_energy(where: str, energy: object) -> None:
    if not isinstance(energy, PowerEnergy | SpectralEnergy):
        raise TypeError(
            f"{where}: energy must be a sum of f(s_i), PowerEnergy or SpectralEnergy, but is {type(energy).__name__}."
        )


def _scale(depth: float, normalised: bool) -> float:
    return 1.0 if normalised or math.isinf(depth) else depth


@formula
def _parts(u: Any, size: Any, low: Any, rate: Any) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    r"""$2\beta a^p$ and $2\beta b^p$ of the two values; written so that both keep their digits far from $u = 0$."""
    flat = 1 - rate
    up, down = pair_slope(u, rate), pair_slope(-u, rate)
    return (size - low - 1) * flat + low * up, (low - 1) * flat + (size - low) * down


@formula
def _split(u: Any, size: Any, low: Any, rate: Any) -> Float[Array, "..."]:
    near = xp.abs(u) < 1e-6  # its value at zero; what is left out is below a millionth of it
    safe = xp.where(near, 1.0, u)
    high, small = _parts(safe, size, low, rate)
    return xp.where(near, size / (3 * (size - 1)) * (1 + rate), (xp.log(high) - xp.log(small)) / safe)


def _forces(energy: AbstractSpectralEnergy) -> tuple[np.ndarray, np.ndarray]:
    r"""$s f'(s)$ over a wide grid of $\ln s$, where it is finite."""
    logs = np.linspace(-REACH, REACH, 6001)
    values = xp.exp(xp.asarray(logs, dtype=float))
    force = np.asarray(values * energy.spectral_gradient(values))  # of a sum of f(s_i): elementwise
    kept = np.isfinite(force)
    return logs[kept], force[kept]


def _crossing(energy: AbstractSpectralEnergy, push: float) -> float:
    logs, force = _forces(energy)
    above = force >= push
    turns = np.flatnonzero(above[1:] != above[:-1])
    if len(turns) == 0:
        raise HypothesisError(
            "an equilibrium exists: s f'(s) reaches (d-1)(1-1/L)/(2 beta)",
            float(push - np.max(force)),
            0.0,
            "Told is by how much the largest s f'(s) falls short; the free energy has no minimum at equal values.",
        )
    if len(turns) > 1:
        raise HypothesisError(
            "a convex energy: s f'(s) takes each positive value once",
            float(len(turns)),
            1.0,
            "The number of equilibria is told.",
        )
    k = int(turns[0])

    def missing(log: float) -> float:
        value = math.exp(log)
        return value * float(energy.spectral_gradient(xp.asarray([value], dtype=float))[0]) - push

    return math.exp(_root(missing, logs[k], logs[k + 1]))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    import scipy.optimize

    return float(scipy.optimize.root_scalar(function, bracket=(low, high), method="brentq", xtol=1e-14).root)


@formula
def _hessian(energy: SpectralFreeEnergy, values: Float[Array, " modes"]) -> Float[Array, "modes modes"]:
    return energy.spectral_hessian(values)


def _rest(
    energy: AbstractSpectralEnergy, spectrum: np.ndarray, beta: float, depth: float, normalised: bool
) -> Equilibrium:
    """The rates are the eigenvalues of the Hessian, scaled by the square roots of the metric on both sides."""
    hessian = np.asarray(_hessian(SpectralFreeEnergy(energy, beta, depth), as_array(spectrum, float)))
    root = np.sqrt(_scale(depth, normalised)) * spectrum ** (1 - 1 / depth)
    return Equilibrium(spectrum, np.linalg.eigvalsh(root[:, None] * hessian * root))
