r"""How fast the loss falls: rates $k$ with $\dot F \le -2kF$ for $F = \tfrac12\|\Sigma - W_{L:1}\|_F^2$.

Everything is about the square distance of the whole product, with white inputs, and a chain of layers whose weights are
all learnt: the functions that take layers alone speak of that loss. The rates of `pyramid_rate` and `cumulative_rate`
are made of conserved quantities alone, so they hold for all times: $F(t) \le F(0)\,e^{-2kt}$. Ours is $C_l =
W_{l+1}^\top W_{l+1} - W_l W_l^\top$, the opposite sign of the $C_i$ in which these rates are often written.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Params,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    is_concrete,
    spectrum,
    xp,
)
from deeplinear.landscape._arguments import check_range, host_layers, network_of, widths_of
from deeplinear.landscape._symmetric import eigenvalues
from deeplinear.landscape._tangent_kernel import smallest_kernel_eigenvalue
from deeplinear.models import DeepLinear, conserved

SEMIDEFINITE = 1e-10
"""Negative eigenvalues of conserved quantities down to this share of the squared layers are taken for rounding."""

POSITIVE = 1e-14
"""Eigenvalues of conserved quantities up to this share of the squared layers are not told from zero."""

LOWEST = 1e-24
"""Share of the first loss down to which a loss is compared with an envelope: below it is rounding."""


@entry
def product_rate(params: Params) -> Float[Array, ""]:
    r"""Lower bound $\sum_j\prod_{i<j}\lambda_{\min}(W_i^\top W_i)\prod_{i>j}\lambda_{\min}(W_iW_i^\top)$ of $k$.

    Term $j$ vanishes unless the widths do not fall before layer $j$ and do not rise after it. It holds at this
    moment, changes along the flow, and is useless near balance, where unlearnt singular values multiply: a network
    that started near the origin ends with about $10^{-9}$ where `sharp_rate` is 9. As there, the loss is
    $\tfrac12\|W_{L:1} - \Sigma\|_F^2$ (white inputs) and all weights are learnt. Pure; may be mapped.

    Args:
        params: Layers, first-acting first.

    Returns:
        The rate, at most `sharp_rate`.

    Example:
        >>> float(product_rate((2 * jnp.eye(2), 3 * jnp.eye(2))))
        13.0
    """
    network_of("product_rate", params)
    total = _product(params)
    check_range("product_rate", total)
    return total


@formula
def _product(params: Params) -> Float[Array, ""]:
    zero = xp.zeros((), params[0].dtype)
    squares = [spectrum(layer)[-1] ** 2 for layer in params]
    inner = [s if w.shape[0] >= w.shape[1] else zero for s, w in zip(squares, params, strict=True)]
    outer = [s if w.shape[0] <= w.shape[1] else zero for s, w in zip(squares, params, strict=True)]
    total = zero
    for j in range(len(params)):
        total = total + math.prod([*inner[:j], *outer[j + 1 :]], start=xp.ones_like(zero))
    return total


@entry
def pyramid_factors(params: Params, pivot: int) -> Float[Array, " pairs"]:
    r"""The $L - 1$ eigenvalues whose product is `pyramid_rate`, where all are positive.

    Below the pivot $j$, for $i < j$: the $d_{i-1}$-th largest eigenvalue of $-C_i$. From the pivot on: the
    $d_{i+1}$-th largest of $C_i$. They are positive if and only if the conserved quantities satisfy the hypotheses.
    Pure; may be mapped.

    Args:
        params: Layers, of widths $d_0 \le \dots \le d_{j-1}$ and $d_j \ge \dots \ge d_L$.
        pivot: $j$, from 1 to the depth.

    Returns:
        One eigenvalue for each pair of neighbouring layers.

    Raises:
        ValueError: The widths are not those of a pyramid with this pivot.

    Example:
        >>> pyramid_factors((3 * jnp.eye(2), jnp.eye(2), 2 * jnp.eye(2)), 2).tolist()
        [8.0, 3.0]
    """
    where = "pyramid_factors"
    network = network_of(where, params)
    check_count(where, "pivot", pivot, at_least=1, at_most=network.depth)
    refusal = _pyramid_widths(network.widths, pivot)
    if refusal:
        raise ValueError(f"{where}: {refusal}.")
    return check_result("pyramid_factors", _pyramid_factors(network, params, int(pivot)))


@formula(static_argnames="pivot")
def _pyramid_factors(network: DeepLinear, params: Params, pivot: int) -> Float[Array, " pairs"]:
    values = [eigenvalues(matrix) for matrix in conserved(params)]
    return xp.asarray(_pyramid_picks(network.widths, values, pivot), params[0].dtype).reshape(len(params) - 1)


@entry(instead="use pyramid_factors")
def pyramid_rate(params: Params, pivot: int) -> float | None:
    r"""Rate of a network whose widths grow up to a layer and shrink after it, from its conserved quantities.

    For pivot $j$: widths $d_0 \le \dots \le d_{j-1}$ and $d_j \ge \dots \ge d_L$; $-C_i$ has at least $d_{i-1}$
    positive eigenvalues for $i < j$, and $C_i$ at least $d_{i+1}$ for $i \ge j$. Then
    $k = \prod_{i<j}\lambda_{1+d_i-d_{i-1}}(-C_i)\prod_{i\ge j}\lambda_{1+d_i-d_{i+1}}(C_i)$, eigenvalues in ascending
    order, and $F(t) \le F(0)\,e^{-2kt}$ for all times, with $F = \tfrac12\|W_{L:1} - \Sigma\|_F^2$ (white inputs) and
    all weights learnt. Layers that grow away from layer $j$ satisfy this.

    Args:
        params: Layers, first-acting first.
        pivot: $j$, from 1 to the depth.

    Returns:
        The rate; `None` where a hypothesis fails (`rate_report` says which).

    Example:
        >>> pyramid_rate((3 * jnp.eye(2), jnp.eye(2), 2 * jnp.eye(2)), 2)
        24.0
        >>> pyramid_rate((3 * jnp.eye(2), jnp.eye(2), 2 * jnp.eye(2)), 1) is None
        True
    """
    return _pyramid("pyramid_rate", _interfaces("pyramid_rate", params), pivot).rate


class CumulativeTerms(NamedTuple):
    """What `cumulative_rate` is made of.

    Attributes:
        factors: The $L - 1$ numbers whose product is the rate, where the slack is not negative.
        slack: Smallest eigenvalue of all $-C_i$ below the pivot and $C_i$ from it on, relative to the squared norms of
            the layers; not negative, to rounding, where the hypotheses hold.
    """

    factors: Float[Array, " pairs"]
    slack: Float[Array, ""]


@entry
def cumulative_factors(params: Params, pivot: int) -> CumulativeTerms:
    r"""The $L - 1$ sums of eigenvalues whose product is `cumulative_rate`, and how far its hypotheses hold.

    For $i \ge j$: $a_i = \sum_{l=j}^i\lambda_{1+d_l-d_L}(C_l)$; for $i < j$: $a_i =
    \sum_{l=i}^{j-1}\lambda_{1+d_l-d_0}(-C_l)$. Pure; may be mapped.

    Args:
        params: Layers, whose hidden widths are at least those of input and output.
        pivot: $j$, from 1 to the depth.

    Returns:
        Factors and slack.

    Raises:
        ValueError: A hidden width is smaller than the input or the output.

    Example:
        >>> cumulative_factors((jnp.eye(2), 2 * jnp.eye(2), 3 * jnp.eye(2)), 1).factors.tolist()
        [3.0, 8.0]
    """
    where = "cumulative_factors"
    network = network_of(where, params)
    check_count(where, "pivot", pivot, at_least=1, at_most=network.depth)
    refusal = _cumulative_widths(network.widths)
    if refusal:
        raise ValueError(f"{where}: {refusal}.")
    return check_result("cumulative_factors", _cumulative_factors(network, params, int(pivot)))


@formula(static_argnames="pivot")
def _cumulative_factors(network: DeepLinear, params: Params, pivot: int) -> CumulativeTerms:
    dtype = params[0].dtype
    largest = xp.max(xp.stack([xp.sum(layer**2) for layer in params]))
    values = [eigenvalues(matrix) for matrix in conserved(params)]
    factors, lowest = _cumulative_picks(network.widths, values, pivot)
    slack = xp.min(xp.stack([xp.asarray(xp.inf, dtype), *lowest])) / xp.where(largest > 0, largest, 1.0)
    return CumulativeTerms(xp.asarray(factors, dtype).reshape(len(params) - 1), slack)


@entry(instead="use cumulative_factors")
def cumulative_rate(params: Params, pivot: int) -> float | None:
    r"""Rate of a network without bottleneck whose conserved quantities are semi-definite, away from a layer.

    For pivot $j$: hidden widths at least $\max(d_0, d_L)$; $C_i \preceq 0$ for $i < j$ and $C_i \succeq 0$ for
    $i \ge j$. Then $k = \prod_i a_i$ with the sums $a_i$ of `cumulative_factors`, and $F(t) \le F(0)\,e^{-2kt}$ for
    all times, with $F = \tfrac12\|W_{L:1} - \Sigma\|_F^2$ (white inputs) and all weights learnt.

    Args:
        params: Layers, first-acting first.
        pivot: $j$, from 1 to the depth.

    Returns:
        The rate, which may be 0; `None` where a hypothesis fails (`rate_report` says which).

    Example:
        >>> cumulative_rate((jnp.eye(2), 2 * jnp.eye(2), 3 * jnp.eye(2)), 1)
        24.0
    """
    return _cumulative("cumulative_rate", _interfaces("cumulative_rate", params), pivot).rate


@dataclasses.dataclass(frozen=True)
class Rate:
    """One bound: its value, or why there is none.

    Attributes:
        kind: `pyramid` or `cumulative`.
        pivot: The layer it is built around.
        rate: $k$; `None` where a hypothesis fails, and in a report where it is 0.
        reason: Why there is none; empty where there is one.
    """

    kind: str
    pivot: int
    rate: float | None
    reason: str = ""

    def __str__(self) -> str:
        return self.reason if self.rate is None else f"{self.rate:.6g}"


@dataclasses.dataclass(frozen=True)
class RateReport:
    """All rates of a network. Printed, it is a short report.

    Attributes:
        widths: Widths of the network.
        sharp: Smallest eigenvalue of the tangent kernel: the best rate at this moment; `None` where it is not known.
        product: The bound by products of singular values, at this moment.
        lasting: The bounds that hold for all times, for every pivot.
        method: How the eigenvalue was found, or why it is not known.
    """

    widths: tuple[int, ...]
    sharp: float | None
    product: float
    lasting: tuple[Rate, ...]
    method: str

    @property
    def best(self) -> Rate | None:
        """The largest rate that holds for all times; `None` where there is none."""
        known = [rate for rate in self.lasting if rate.rate is not None]
        return max(known, key=lambda rate: rate.rate or 0.0) if known else None

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        rows = [("network", "-".join(map(str, self.widths)))]
        now = self.method if self.sharp is None else f"{self.sharp:.6g} (tangent kernel, {self.method})"
        rows += [("now", now), ("products", f"{self.product:.6g}")]
        rows += [(f"{rate.kind} {rate.pivot}", str(rate)) for rate in self.lasting]
        best = self.best
        lasting = "none of these" if best is None else f"{best.rate:.6g}, {best.kind} with pivot {best.pivot}"
        rows.append(("for all times", lasting))
        return rows

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "widths": list(self.widths),
            "sharp": self.sharp,
            "method": self.method,
            "product": self.product,
            "lasting": [dataclasses.asdict(rate) for rate in self.lasting],
            "best": None if self.best is None else dataclasses.asdict(self.best),
        }

    def __str__(self) -> str:
        return "\n".join(f"{label:<15} {text}" for label, text in self.rows())


@entry(instead="use sharp_rate, product_rate, pyramid_factors and cumulative_factors")
def rate_report(params: Params) -> RateReport:
    r"""Every rate of a network, with the reason where one does not apply.

    Of the loss $\tfrac12\|W_{L:1} - \Sigma\|_F^2$ (white inputs) of a chain whose weights are all learnt; another loss
    has other rates. A bound of 0 promises nothing, and the report says so. Computed on the host, without the matrix of
    the tangent kernel where that is large.

    Args:
        params: Layers, first-acting first.

    Returns:
        The rates; `print` it for a report.

    Example:
        >>> report = rate_report((3 * jnp.eye(2), jnp.eye(2), 2 * jnp.eye(2)))
        >>> report.sharp, report.best.kind, report.best.rate
        (49.0, 'pyramid', 24.0)
    """
    where = "rate_report"
    given = _interfaces(where, params)
    pivots = range(1, len(given.widths))
    sharp, method = smallest_kernel_eigenvalue(where, params)
    return RateReport(
        widths=given.widths,
        sharp=sharp,
        product=float(product_rate(params)),
        lasting=(
            *(_promising(_pyramid(where, given, pivot)) for pivot in pivots),
            *(_promising(_cumulative(where, given, pivot)) for pivot in pivots),
        ),
        method=method,
    )


def _promising(rate: Rate) -> Rate:
    """The rate, unless it is 0, which promises nothing."""
    if rate.rate == 0:
        return Rate(rate.kind, rate.pivot, None, "the bound is 0, which promises nothing")
    return rate


@entry
def envelope_excess(times: object, losses: object, rate: ArrayLike, *, lowest: float = LOWEST) -> Float[Array, ""]:
    r"""Largest ratio $F(t)/(F(0)\,e^{-2kt})$ along a run: a rate $k$ that holds gives at most 1.

    Taken while $F(t)$ is above `lowest` $F(0)$, as what is below is rounding; computed with logarithms, so that nothing
    overflows. The first time is where the envelope starts. Pure; may be mapped over runs.

    Args:
        times: Times, increasing.
        losses: Losses at these times, the first one positive.
        rate: $k$.
        lowest: Share of the first loss down to which the comparison is made.

    Returns:
        The ratio, at least 1, which is that of the start.

    Example:
        >>> t = np.linspace(0.0, 3.0, 31)
        >>> [round(float(envelope_excess(t, losses, 1.0)), 6) for losses in (5 * np.exp(-2.5 * t), np.exp(-t))]
        [1.0, 20.085537]
    """
    where = "envelope_excess"
    check_x64(where)
    at, values = (
        as_array(checked_layer(where, name, value), float) for name, value in (("times", times), ("losses", losses))
    )
    check_shape(where, "times", at, (None,))
    check_shape(where, "losses", values, at.shape)
    check_number(where, "lowest", lowest, above=0)
    check_number(where, "rate", rate)
    check_finite(where, "times", at)
    check_finite(where, "losses", values)
    if is_concrete(values) and not (len(values) and np.asarray(values)[0] > 0):
        raise ValueError(f"{where}: losses must begin with a positive number.")
    return _excess(at, values, rate, lowest)


@formula
def _excess(at: Array, values: Array, rate: Any, lowest: Any) -> Float[Array, ""]:
    seen = values > lowest * values[0]
    logs = xp.log(xp.where(seen, values, values[0]) / values[0]) + 2 * xp.asarray(rate) * (at - at[0])
    return xp.exp(xp.max(xp.where(seen, logs, -xp.inf)))


# --- Eigenvalues of conserved quantities ------------------------------------------------------------------------------


def _pyramid_picks(widths: tuple[int, ...], values: Sequence[Any], pivot: int) -> list[Any]:
    """The factors of a pyramid from the eigenvalues of every $C_i$ in ascending order."""
    return [
        _signed(own, i, pivot)[widths[i] - (widths[i - 1] if i < pivot else widths[i + 1])]
        for i, own in enumerate(values, start=1)
    ]


def _cumulative_picks(widths: tuple[int, ...], values: Sequence[Any], pivot: int) -> tuple[list[Any], list[Any]]:
    """The factors of a cumulative bound, and the lowest eigenvalue of each matrix that must be semi-definite."""
    signed = [_signed(own, i, pivot) for i, own in enumerate(values, start=1)]
    picked = [own[widths[i] - (widths[0] if i < pivot else widths[-1])] for i, own in enumerate(signed, start=1)]
    down = list(itertools.accumulate(reversed(picked[: pivot - 1])))
    return [*reversed(down), *itertools.accumulate(picked[pivot - 1 :])], [own[0] for own in signed]


def _signed(values: Any, i: int, pivot: int) -> Any:
    """Eigenvalues of $-C_i$ below the pivot and of $C_i$ from it on, in ascending order."""
    return -values[::-1] if i < pivot else values


class _Interfaces(NamedTuple):
    """What bounds for all times are made of, on the host: eigenvalues of every $C_i$ and the largest squared layer."""

    widths: tuple[int, ...]
    values: list[np.ndarray]
    largest: float


def _interfaces(where: str, params: Params) -> _Interfaces:
    layers = host_layers(where, params)
    with np.errstate(over="ignore", invalid="ignore"):
        matrices = [above.T @ above - below @ below.T for below, above in itertools.pairwise(layers)]
        largest = max(float(np.sum(layer**2)) for layer in layers)
    check_range(where, largest, *matrices)
    return _Interfaces(widths_of(layers), [np.linalg.eigvalsh(matrix) for matrix in matrices], largest)


# --- Hypotheses -------------------------------------------------------------------------------------------------------


def _pyramid(where: str, given: _Interfaces, pivot: int) -> Rate:
    widths = given.widths
    check_count(where, "pivot", pivot, at_least=1, at_most=len(widths) - 1)
    refusal = _pyramid_widths(widths, pivot)
    if refusal:
        return Rate("pyramid", pivot, None, refusal)
    factors = _pyramid_picks(widths, given.values, pivot)
    rounding = POSITIVE * given.largest
    for i, factor in enumerate(factors, start=1):
        if not factor > rounding:
            wanted, sign = (widths[i - 1], "-") if i < pivot else (widths[i + 1], "")
            many = "1 positive eigenvalue" if wanted == 1 else f"{wanted} positive eigenvalues"
            which = "the largest" if wanted == 1 else f"number {wanted} from the top"
            value = f"{factor:.3g}" if factor < -rounding else "0 to rounding"
            reason = f"{sign}C_{i} must have at least {many}, but {which} is {value}"
            return Rate("pyramid", pivot, None, reason)
    return Rate("pyramid", pivot, float(np.prod(factors)))


def _cumulative(where: str, given: _Interfaces, pivot: int) -> Rate:
    check_count(where, "pivot", pivot, at_least=1, at_most=len(given.widths) - 1)
    refusal = _cumulative_widths(given.widths)
    if refusal:
        return Rate("cumulative", pivot, None, refusal)
    factors, lowest = _cumulative_picks(given.widths, given.values, pivot)
    slack = min(lowest, default=np.inf) / (given.largest or 1.0)
    if not slack >= -SEMIDEFINITE:
        return Rate(
            "cumulative",
            pivot,
            None,
            "C_i must be negative semi-definite below the pivot and positive semi-definite from it on, but is missed "
            f"by {-slack:.3g} of the squared norm of the layers",
        )
    return Rate("cumulative", pivot, float(np.prod(np.maximum(factors, 0.0))))


def _pyramid_widths(widths: tuple[int, ...], pivot: int) -> str:
    """What is wrong with the widths; empty if nothing is."""
    for low, high in itertools.pairwise(widths[:pivot]):
        if low > high:
            return f"widths must not fall before layer {pivot}, but fall from {low} to {high}"
    for high, low in itertools.pairwise(widths[pivot:]):
        if low > high:
            return f"widths must not rise after layer {pivot}, but rise from {high} to {low}"
    return ""


def _cumulative_widths(widths: tuple[int, ...]) -> str:
    """What is wrong with the widths; empty if nothing is."""
    outer = max(widths[0], widths[-1])
    if len(widths) > 2 and min(widths[1:-1]) < outer:
        return f"hidden widths must be at least {outer}, as input and output are, but one is {min(widths[1:-1])}"
    return ""
