r"""Recurrent networks near zero: how gradient flow makes small unbalanced parameters balanced.

While the parameters are small, $A$ rests, the sum $B + C^\top$ grows and the difference $B - C^\top$ decays, both
exponentially at a rate set by the first entry $w_0$ of the target (for $w_0 < 0$ the two change roles). So the network
leaves zero almost balanced, and with a transition matrix that is small beside its other maps.

Clocks: under the loss $\tfrac12\sum_j(h_j - w_j)^2$ of this library, `"half_sum_sq"`, the rate is $|w_0|$; under the
sum of squares without the half, `"sum_sq"`, everything happens twice as fast.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import scipy.special
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    frobenius,
    is_concrete,
    near_name,
    xp,
)
from deeplinear.models import System, checked_system

Clock = Literal["half_sum_sq", "sum_sq"]
Size = Literal["norm", "entry"]


class NearZeroRatios(NamedTuple):
    r"""Sizes of a small network by its growing part, $B + C^\top$ for $w_0 > 0$ and $B - C^\top$ for $w_0 < 0$.

    Attributes:
        growing: Frobenius norm of the growing part.
        imbalance: Norm of the decaying part over that of the growing part.
        transition: $\|A\|_F$ over the norm of the growing part.
    """

    growing: Float[Array, "..."]
    imbalance: Float[Array, "..."]
    transition: Float[Array, "..."]


class NearZeroExponents(NamedTuple):
    r"""Powers of the initial scale $\varepsilon$ that the sizes of `NearZeroRatios` are proportional to."""

    growing: float
    imbalance: float
    transition: float


class NormEvent(NamedTuple):
    r"""Probability that a Gaussian vector of size about $\varepsilon$ has a norm in $(\varepsilon/2, 3\varepsilon/2)$.

    Attributes:
        exact: From the chi-square distribution.
        bound: $1 - 2e^{-9n/64}$, never above `exact`.
    """

    exact: float
    bound: float


@entry(instead="call it outside of jit, vmap and grad, or draw with scale 1 and multiply")
def near_zero_system(
    states: int,
    scale: Any,
    rng: np.random.Generator,
    *,
    size: Size = "norm",
    symmetric: bool = False,
    inputs: int = 1,
    outputs: int = 1,
) -> System:
    r"""Small Gaussian matrices $A$, $B$, $C$ that are independent of each other.

    With `"norm"` a matrix of $n$ entries has entries $N(0, \varepsilon^2/n)$, so that each of the three has a norm of
    about $\varepsilon$; with `"entry"` all entries are $N(0, \varepsilon^2)$.

    Args:
        states: Size of the state.
        scale: $\varepsilon$.
        rng: Generator of what is drawn.
        size: What the scale is: `"norm"` of a matrix or standard deviation of an `"entry"`.
        symmetric: Whether to replace $A$ by $(A + A^\top)/\sqrt2$, which keeps the variance off the diagonal.
        inputs: Size of an input.
        outputs: Size of an output.

    Example:
        >>> small = near_zero_system(400, 1e-3, np.random.default_rng(0))
        >>> [round(1e3 * float(np.linalg.norm(matrix)), 1) for matrix in small]
        [1.0, 1.0, 1.0]
    """
    where = "near_zero_system"
    check_x64(where)
    for name, count in (("states", states), ("inputs", inputs), ("outputs", outputs)):
        check_count(where, name, count, at_least=1)
    check_number(where, "scale", scale, above=0)
    if size not in get_args(Size):
        options = get_args(Size)
        raise ValueError(f"{where}: size is '{size}'. {near_name(size, options)}")
    if not isinstance(rng, np.random.Generator):
        raise TypeError(
            f"{where}: rng must be a numpy.random.Generator, but is {rng!r}; make one by default_rng(seed)."
        )
    shapes = ((states, states), (states, inputs), (outputs, states))
    matrices = [rng.standard_normal(s) * (scale / math.sqrt(math.prod(s) if size == "norm" else 1)) for s in shapes]
    if symmetric:
        matrices[0] = (matrices[0] + matrices[0].T) / math.sqrt(2)
    return System(*(as_array(matrix, float) for matrix in matrices))


@entry
def linearised_flow(system: Any, first: Any, time: Any, *, clock: Clock = "half_sum_sq") -> System:
    r"""Gradient flow linearised at zero: $B \pm C^\top = e^{\pm w_0t}(B_0 \pm C_0^\top)$ and $A = A_0$.

    In the clock of the sum of squares the exponents are $\pm2w_0t$.

    Args:
        system: $A_0$, $B_0$, $C_0$ at time 0, one input and one output.
        first: $w_0$, first entry of the target response, not zero.
        time: $t$.
        clock: Loss whose flow is meant.

    Returns:
        The system at that time.

    Raises:
        HypothesisError: $w_0 = 0$: nothing grows exponentially.

    Example:
        >>> start = (jnp.zeros((1, 1)), jnp.array([[1e-3]]), jnp.array([[0.0]]))
        >>> float(linearised_flow(start, 2.0, 1.0).input[0, 0].round(9)), round(1e-3 * math.cosh(2), 9)
        (0.003762196, 0.003762196)
    """
    where = "linearised_flow"
    start = _single(where, system)
    rate = _rate(where, first, clock, signed=True)
    check_number(where, "time", time)
    return _grown(start, rate * xp.asarray(time, dtype=float))


@formula
def _grown(start: System, angle: Float[Array, ""]) -> System:
    plus, minus = start.input + start.output.T, start.input - start.output.T
    plus, minus = xp.exp(angle) * plus, xp.exp(-angle) * minus
    return System(start.transition, (plus + minus) / 2, (plus - minus).T / 2)


@entry(sized=("system",))
def linearised_ratios(system: Any, first: Any, times: Any, *, clock: Clock = "half_sum_sq") -> NearZeroRatios:
    r"""Ratios of sizes along the flow linearised at zero: the imbalance falls like $e^{-2|w_0|t}$.

    Args:
        system: $A_0$, $B_0$, $C_0$ at time 0, one input and one output.
        first: $w_0$, first entry of the target response, not zero.
        times: Times, of any shape.
        clock: Loss whose flow is meant.

    Returns:
        The ratios, each in the shape of the times.

    Raises:
        HypothesisError: $w_0 = 0$, or a growing part that is zero at the start.

    Example:
        >>> start = (jnp.array([[1e-3]]), jnp.array([[1e-3]]), jnp.array([[0.0]]))
        >>> linearised_ratios(start, 1.0, [0.0, 1.0]).imbalance
        array([1.        , 0.13533528])
    """
    where = "linearised_ratios"
    begin = near_zero_ratios(system, first)
    rate = _rate(where, first, clock, signed=False)
    times = as_array(checked_layer(where, "times", times), float)
    check_finite(where, "times", times)
    growth = xp.exp(rate * times)
    return NearZeroRatios(begin.growing * growth, begin.imbalance / growth**2, begin.transition / growth)


@entry(sized=("system",))
def near_zero_ratios(system: Any, first: Any) -> NearZeroRatios:
    r"""Sizes of the decaying part and of $A$ beside the growing part of a system.

    Args:
        system: $A$, $B$, $C$, one input and one output.
        first: $w_0$, first entry of the target response; its sign says which part grows.

    Raises:
        HypothesisError: $w_0 = 0$, or a growing part that is zero.

    Example:
        >>> found = near_zero_ratios((jnp.eye(1), jnp.array([[3.0]]), jnp.array([[1.0]])), -1.0)
        >>> float(found.imbalance), float(found.transition)
        (2.0, 0.5)
    """
    where = "near_zero_ratios"
    checked = _single(where, system)
    _rate(where, first, "half_sum_sq", signed=False)
    found = _ratios(checked, as_array(first, float))
    if is_concrete(found.growing) and float(found.growing) == 0:
        part = "B + C^T" if float(first) > 0 else "B - C^T"
        advice = "Start from matrices that have this part."
        raise HypothesisError(f"a growing part {part} that is not zero", 0.0, 0.0, advice)
    return found


@formula
def _ratios(system: System, first: Float[Array, ""]) -> NearZeroRatios:
    plus = frobenius(system.input + system.output.T)
    minus = frobenius(system.input - system.output.T)
    growing, decaying = xp.where(first > 0, plus, minus), xp.where(first > 0, minus, plus)
    return NearZeroRatios(growing, decaying / growing, frobenius(system.transition) / growing)


@entry(instead="call it outside of jit, vmap and grad; the formula is in its description")
def escape_time(first: Any, scale: Any, *, fraction: float = 0.25, clock: Clock = "half_sum_sq") -> float:
    r"""Time $\frac{\theta}{|w_0|}\ln\frac1\varepsilon$ at which the growing part has size $\varepsilon^{1-\theta}$.

    With $\theta = 1/4$, the default, it is the time $\frac1{2w_0}\ln\varepsilon^{-1/2}$ that is printed for this
    purpose, in the clock of the half sum of squares, to which that belongs; in the clock of the sum of squares half of
    it.

    Args:
        first: $w_0$, first entry of the target response, not zero.
        scale: $\varepsilon$, initial size, between 0 and 1.
        fraction: $\theta$, between 0 and 1: part of the way out of zero, in the logarithm.
        clock: Loss whose flow is meant.

    Raises:
        HypothesisError: $w_0 = 0$.

    Example:
        >>> round(escape_time(1.0, 1e-4), 12), round(escape_time(1.0, 1e-4, clock="sum_sq"), 12)
        (2.302585092994, 1.151292546497)
    """
    where = "escape_time"
    rate = _rate(where, first, clock, signed=False)
    check_number(where, "scale", scale, above=0)
    _check_fraction(where, fraction)
    if not float(scale) < 1:
        raise ValueError(f"{where}: scale must be less than 1, but is {float(scale):g}: there is no way out of zero.")
    return fraction / float(rate) * math.log(1 / float(scale))


def predicted_exponents(fraction: float, *, symmetric: bool) -> NearZeroExponents:
    r"""Powers of $\varepsilon$ at the escape time of a fraction $\theta$.

    The growing part is of size $\varepsilon^{1-\theta}$ and the decaying part $\varepsilon^{1+\theta}$, so their ratio
    is $\varepsilon^{2\theta}$; if $A$ is not symmetric, its antisymmetric part keeps this ratio from falling below the
    order $\varepsilon$. $A$ rests at size $\varepsilon$ up to $\theta = 1/2$. From there on the square of the growing
    part drives it, if the second entry of the target is not zero: its ratio to that part is
    $\varepsilon^{\min(\theta, 1-\theta)}$, smallest at $\theta = 1/2$.

    Args:
        fraction: $\theta$, between 0 and 1.
        symmetric: Whether $A$ is symmetric.

    Example:
        >>> predicted_exponents(0.25, symmetric=False)
        NearZeroExponents(growing=0.75, imbalance=0.5, transition=0.25)
    """
    _check_fraction("predicted_exponents", fraction)
    ratio = 2 * fraction
    return NearZeroExponents(1 - fraction, ratio if symmetric else min(ratio, 1.0), min(fraction, 1 - fraction))


@entry(instead="call it outside of jit, vmap and grad; near_zero_ratios can be traced")
def measured_exponents(scales: Any, systems: Sequence[Any], first: Any) -> NearZeroExponents:
    r"""Powers of $\varepsilon$ fitted to systems that started at several scales: slopes of lines through logarithms.

    Args:
        scales: Initial scales $\varepsilon$, at least two.
        systems: System of each scale at its escape time.
        first: $w_0$, first entry of the target response, not zero.

    Raises:
        HypothesisError: $w_0 = 0$, or a system that is exactly balanced, with a transition or a growing part of zero.

    Example:
        >>> start = [(e * jnp.eye(1), jnp.array([[e]]), jnp.array([[0.0]])) for e in (1e-2, 1e-4)]
        >>> grown = [linearised_flow(s, 1.0, escape_time(1.0, e)) for s, e in zip(start, (1e-2, 1e-4))]
        >>> [round(power, 9) for power in measured_exponents((1e-2, 1e-4), grown, 1.0)]
        [0.75, 0.5, 0.25]
    """
    where = "measured_exponents"
    check_x64(where)
    sizes = np.asarray(checked_layer(where, "scales", scales), dtype=float)
    check_shape(where, "scales", sizes, (len(systems),))
    check_finite(where, "scales", sizes)
    if len(sizes) < 2 or np.any(sizes <= 0) or np.ptp(sizes) == 0:
        raise ValueError(f"{where}: scales must be at least two different positive numbers, but is {sizes.tolist()}.")
    found = np.array([near_zero_ratios(system, first) for system in systems], dtype=float)
    if np.any(found == 0):
        advice = "A size that is zero has no exponent; start from unbalanced systems with a transition matrix."
        raise HypothesisError("sizes that are not zero", float(found.min()), 0.0, advice)
    slopes = np.polyfit(np.log(sizes), np.log(found), 1)[0]
    return NearZeroExponents(*(float(slope) for slope in slopes))


def norm_event(entries: int) -> NormEvent:
    r"""Probability that $n$ entries $N(0, \varepsilon^2/n)$ have a norm in $(\varepsilon/2, 3\varepsilon/2)$.

    $\Pr(n/4 < \chi^2_n < 9n/4)$, a difference of two regularised incomplete gamma functions, and its lower bound
    $1 - 2e^{-9n/64}$.

    Args:
        entries: $n$.

    Example:
        >>> [round(value, 5) for value in norm_event(21)]
        [0.99893, 0.89565]
    """
    check_count("norm_event", "entries", entries, at_least=1)
    half = entries / 2
    outside = scipy.special.gammainc(half, half / 4) + scipy.special.gammaincc(half, 9 * half / 4)
    return NormEvent(float(1 - outside), 1 - 2 * math.exp(-9 * entries / 64))


def _single(where: str, system: Any) -> System:
    checked = checked_system(where, system)
    if checked.input.shape[1] != 1 or checked.output.shape[0] != 1:
        raise ValueError(
            f"{where}: system must have one input and one output, but has {checked.input.shape[1]} and "
            f"{checked.output.shape[0]}."
        )
    return checked


def _rate(where: str, first: Any, clock: str, *, signed: bool) -> Float[Array, ""]:
    """Rate at which the growing part grows, with the sign of $w_0$ if asked for."""
    check_x64(where)
    check_number(where, "first", first)
    if clock not in get_args(Clock):
        options = get_args(Clock)
        raise ValueError(f"{where}: clock is '{clock}'. {near_name(clock, options)}")
    if is_concrete(first) and float(first) == 0:
        advice = "At a target whose first entry is zero nothing leaves zero exponentially; delays are such targets."
        raise HypothesisError("a first entry w_0 of the target response that is not zero", 0.0, 0.0, advice)
    rate = as_array(first, float) * (1 if clock == "half_sum_sq" else 2)
    return rate if signed else xp.abs(rate)


def _check_fraction(where: str, fraction: float) -> None:
    check_number(where, "fraction", fraction, above=0)
    if not fraction < 1:
        raise ValueError(f"{where}: fraction must be less than 1, but is {fraction:g}.")
