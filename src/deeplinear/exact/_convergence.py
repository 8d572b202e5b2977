r"""Whether two layers learn their task, how fast, and in which regime.

Everything follows from the overlap $B$ of the start $Q(0)$ with the growing eigenvectors of the matrix of the Riccati
equation: a mode is learned unless the start has nothing to grow it from.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_shape,
    check_size,
    check_x64,
    entry,
    formula,
    scan,
    spectrum,
    xp,
)
from deeplinear.exact._kernel import kernel_distance
from deeplinear.exact._printed_forms import overlaps
from deeplinear.exact._representations import RANK_TOLERANCE, limit
from deeplinear.exact._riccati import Correlations, Eigensystem, correlations_of, eigensystem, propagated, stacked
from deeplinear.exact._two_layers import checked_two_layers

SINGULAR = 1e-12
"""Overlaps below this share of the norm of the start are rounding."""

LAZY = 0.02
"""Kernel distances at the end below this are lazy learning."""

DELAYED = 10.0
"""A kernel that takes this many times longer than the loss is a delayed one."""

CLOSE = 1e-9
"""Relative distance from the limit at which a path has arrived."""

POINTS = 64
"""Times of one stretch of the grid of `regime`."""

SPACING = 1.15
"""Ratio of neighbouring times of that grid."""

REFINEMENTS = 3
"""How often `regime` divides the interval with a root by `POINTS` before it draws a line."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    r"""What the start says about the end of training. Printed, it is a short report.

    Attributes:
        widths: Input, hidden and output width.
        lam: $\lambda$.
        smallest_overlap: $\sigma_{\min}(B)$; 0, to rounding, if a mode within reach is never learned.
        condition: $\sigma_{\max}(B)/\sigma_{\min}(B)$; infinite where the smallest overlap is rounding.
        guaranteed: Whether $\lambda$ and the widths alone make $B$ invertible.
        overlap_bound: Lower bound $|\lambda|/(\|W_1\|_2 + \|W_2\|_2)$ of the smallest overlap if so, else 0.
        obstructed: Whether the sign of the determinant, which cannot change, is that of the wrong side.
        bottleneck: Whether the hidden width is too small for the task.
        missing: Number of modes within reach of the hidden width that are never learned; those of strength zero,
            of which there is nothing to learn, do not count.
        limit_loss: What is left of $\tfrac12\|W_2W_1 - \Sigma\|_F^2$ at infinite time.
        rate: Rate $r$ of $\|W_2W_1(t) - W_2W_1(\infty)\|_F \sim e^{-rt}$ where no mode is missing, else `nan`; 0
            where the approach is not exponential.
        delay: Time $|\lambda|/s_{\min}^2$ for which the rich phase is delayed, with the weakest mode within reach
            that is not zero; 0 where it is not.
    """

    widths: tuple[int, int, int]
    lam: float
    smallest_overlap: float
    condition: float
    guaranteed: bool
    overlap_bound: float
    obstructed: bool
    bottleneck: bool
    missing: int
    limit_loss: float
    rate: float
    delay: float

    @property
    def converges(self) -> bool:
        """Whether the product converges to the best one that the hidden width allows."""
        return self.missing == 0

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        hidden = self.widths[1]
        rows = [("network", f"{self.widths} with λ = {self.lam:.6g}")]
        rows.append(("overlap", f"smallest {self.smallest_overlap:.3e}, condition {self.condition:.3e}"))
        if self.guaranteed:
            rows.append(("convergence", f"guaranteed: the smallest overlap is at least {self.overlap_bound:.3e}"))
        if self.obstructed:
            rows.append(("obstruction", "the determinant of the product has the wrong sign and cannot change it"))
        if self.bottleneck:
            rows.append(("bottleneck", f"at best the {hidden} strongest modes are learned"))
        if self.missing:
            rows.append(("never learned", f"{self.missing} mode{'s' * (self.missing > 1)} within reach"))
        rows.append(("reduced loss", f"{self.limit_loss:.6g} at infinite time"))
        if self.converges and self.rate > 0:
            rows.append(("late rate", f"{self.rate:.6g} of the product; the loss falls at twice this rate"))
        elif self.converges:
            rows.append(("late rate", "none: modes of strength zero fade like 1/t, not exponentially"))
        if self.delay > 0:
            rows.append(("rich phase", f"delayed by a time of about {self.delay:.6g}"))
        return rows

    def to_json(self) -> dict[str, Any]:
        """All attributes as plain values; what is not finite is null."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        gone = {name: None for name, value in plain.items() if isinstance(value, float) and not math.isfinite(value)}
        return {**plain, **gone, "widths": list(self.widths), "converges": self.converges}

    def __str__(self) -> str:
        return "\n".join(f"{label:<15} {text}" for label, text in self.rows())


@entry
def late_rate(target: object, lam: ArrayLike, hidden: int | None = None) -> Float[Array, ""]:
    r"""Rate $r$ of the last approach $\|W_2W_1(t) - W_2W_1(\infty)\|_F \sim e^{-rt}$ from a generic start.

    With $s$ the smallest singular value of the target and $s_\lambda = \sqrt{s^2 + \lambda^2/4}$: $2s_\lambda$ for as
    many inputs as outputs, $s_\lambda - \lambda_\perp$ otherwise, $\lambda_\perp = \mathrm{sgn}(d_o - d_i)\lambda/2$.
    So it grows like $|\lambda|$ on the lazy side and falls like $s^2/|\lambda|$ on the other. The loss falls at twice
    the rate. Behind a bottleneck of $k$ units it is $s_{\lambda,k} - s_{\lambda,k+1}$; where the hidden layer is as
    wide as the wider side, which is then filled, $s_\lambda + |\lambda_\perp|$.

    In general the $k$ fastest of the growing directions are filled. A filled one turns towards every other one at the
    difference of their eigenvalues, except towards those as fast as itself: which of these are filled is left to the
    start and stays. For a target of rank $r$ below $k$ and below both widths all directions without a mode on the side
    of the larger layer grow at $|\lambda|/2$, and the product of such modes fades at the rate $|\lambda|$. So the rate
    is the smaller of $s_{\lambda,r} - |\lambda|/2$ and $|\lambda|$; the latter where that side is filled or $r = 0$.
    At $\lambda = 0$ they fade like $1/t$. Singular values below $10^{-12}$ of the largest are zero.

    Args:
        target: $\Sigma$, (out, in).
        lam: $\lambda$.
        hidden: Hidden width; the smaller of the two others by default.

    Returns:
        The rate; 0 where the approach is not exponential.

    Example:
        >>> round(float(late_rate(jnp.array([[4.0, 0.0]]), -6.0)), 12)  # a triangle of sides 3, 4, 5: 16/(5 + 3)
        2.0
    """
    where = "late_rate"
    check_x64(where)
    sigma = as_array(target, float)
    check_shape(where, "target", sigma, (None, None))
    check_finite(where, "target", sigma)
    check_number(where, "lam", lam)
    hidden = min(sigma.shape) if hidden is None else hidden
    check_count(where, "hidden", hidden, at_least=1)
    return _late_rate(sigma, as_array(lam, float), int(hidden))


@formula(static_argnums=2)
def _late_rate(sigma: Matrix, lam: Float[Array, ""], hidden: int) -> Float[Array, ""]:
    out, inp = sigma.shape
    modes, half = min(inp, out), xp.abs(lam) / 2
    found = spectrum(sigma)
    zero = RANK_TOLERANCE * found[0]
    strengths = xp.where(found > zero, found, 0.0)
    across = xp.sign(lam) * np.sign(out - inp)
    # Strengths of the directions that grow, strongest first; the complement is weaker than all where it does not.
    growing = xp.concatenate([strengths, xp.full(abs(out - inp), xp.where(across > 0, 0.0, -1.0))])
    count = xp.where(across > 0, min(hidden, inp + out - modes), min(hidden, modes))
    last = growing[count - 1]
    place = xp.arange(len(growing))
    equal, there = xp.abs(growing - last) <= zero, growing >= 0

    def least(gaps: Float[Array, " growing"], which: Array) -> Float[Array, ""]:
        return xp.min(xp.where(which, gaps, xp.inf))

    def gap(high: Array, low: Array) -> Array:
        total = xp.hypot(high, half) + xp.hypot(low, half)
        return (high - low) * (high + low) / xp.where(total > 0, total, 1.0)

    shared = xp.any(equal & there & (place >= count))
    rate = xp.hypot(last, half) + xp.hypot(strengths[-1], half)  # towards what decays
    if inp != out:
        rate = xp.where(across > 0, rate, xp.minimum(rate, xp.hypot(last, half) + half))
    rate = xp.minimum(rate, least(gap(last, growing), there & (place >= count) & ~equal))
    rate = xp.minimum(rate, least(gap(growing, last), shared & (place < count) & ~equal))
    return xp.where((last > 0) | (half > 0), rate, 0.0)


@entry(instead="use overlaps, limit and late_rate")
def diagnose(params: Params, target: object, lam: ArrayLike | None = None) -> Diagnosis:
    r"""What becomes of two $\lambda$-balanced layers under gradient flow on whitened inputs, told from the start.

    $B = W_2^\top U(g + hg) + W_1 V(g - hg)$ is the overlap of the start with the growing modes of the task
    ($\sqrt2$ times that with unit eigenvectors). If it is invertible, the product converges to the target. If
    $\lambda > 0$ with as many outputs as hidden units, or $\lambda < 0$ with as many inputs, it always is. For
    $\lambda = 0$ and a square target the sign of the determinant of the product never changes: from the wrong one the
    flow ends in a saddle with the loss $s_{\min}^2/2$.

    Args:
        params: Two layers.
        target: $\Sigma$, (out, in).
        lam: $\lambda$; that of the layers by default, exactly 0 where it is so to rounding.

    Returns:
        The diagnosis; `print` it for a report.

    Raises:
        HypothesisError: If the layers are not $\lambda$-balanced.

    Example:
        >>> mirrored = diagnose((jnp.eye(2), jnp.eye(2)), jnp.diag(jnp.array([2.0, -0.5])))
        >>> mirrored.obstructed, mirrored.missing, mirrored.limit_loss
        (True, 1, 0.125)
    """
    first, second, sigma, number = _checked("diagnose", params, target, lam)
    (hidden, inp), out = first.shape, second.shape[0]
    modes, strengths = min(inp, out), np.asarray(spectrum(xp.asarray(sigma, dtype=float)))
    found = overlaps(params, target, number)
    overlap = every = np.asarray(found.growing)
    guaranteed = (number > 0 and out == hidden) or (number < 0 and inp == hidden)
    if guaranteed and hidden > modes:  # the complement of the wider side grows too, and is filled
        every = np.concatenate([overlap, math.sqrt(2.0) * np.asarray(found.complement)], axis=1)
    size = float(np.linalg.norm(np.concatenate([first.T, second]), 2))
    sizes = np.linalg.svd(every[:, : min(hidden, every.shape[1])], compute_uv=False)
    singular = not sizes[-1] > SINGULAR * size
    bound = abs(number) / (np.linalg.norm(first, 2) + np.linalg.norm(second, 2)) if guaranteed else 0.0
    present = strengths > RANK_TOLERANCE * strengths[0]
    rank = int(present.sum())
    signs = [np.linalg.slogdet(m)[0] for m in (second @ first, sigma)] if inp == out == rank <= hidden else [0, 0]
    learned = present if guaranteed else present & _learned(overlap, SINGULAR * size)
    missing = int(min(hidden, rank) - learned.sum())
    delayed = (out - inp) * number > 0 and hidden < max(inp, out) and rank > 0
    return Diagnosis(
        widths=(inp, hidden, out),
        lam=number,
        smallest_overlap=float(sizes[-1]),
        condition=math.inf if singular else float(sizes[0] / sizes[-1]),
        guaranteed=guaranteed,
        overlap_bound=float(bound),
        obstructed=bool(number == 0 and signs[0] * signs[1] < 0),
        bottleneck=hidden < modes,
        missing=missing,
        limit_loss=float(0.5 * np.sum(strengths[present & ~learned] ** 2)),
        rate=math.nan if missing else float(late_rate(sigma, number, hidden)),
        delay=abs(number) / float(strengths[min(hidden, rank) - 1]) ** 2 if delayed else 0.0,
    )


@dataclasses.dataclass(frozen=True)
class Regime:
    r"""The regime of a network, with the numbers it is read off.

    Attributes:
        label: `lazy`, `rich` or `delayed-rich`.
        end: Kernel distance between start and limit.
        kernel_time: First time at which the kernel distance is half of that.
        loss_time: First time at which the reduced loss above its limit is half of that at the start.
    """

    label: str
    end: float
    kernel_time: float
    loss_time: float

    def __str__(self) -> str:
        return (
            f"{self.label}: kernel distance {self.end:.3g} at the end, half of it at t = {self.kernel_time:.3g}; "
            f"half of the loss at t = {self.loss_time:.3g}"
        )


@entry(instead="use kernel_distance of states that propagate gives")
def regime(
    params: Params, target: object, lam: ArrayLike | None = None, *, lazy: float = LAZY, delayed: float = DELAYED
) -> Regime:
    r"""Whether two layers learn lazily, richly, or richly after a delay.

    With $S(t)$ the distance of the tangent kernel from that of the start: *lazy* if $S(\infty)$ is below `lazy`; else
    *delayed-rich* if half of $S(\infty)$ is reached more than `delayed` times later than half of the loss; else *rich*.
    Both times are found on the closed form, bracketed on a logarithmic grid that is refined around them.

    Args:
        params: Two $\lambda$-balanced layers.
        target: $\Sigma$, (out, in).
        lam: $\lambda$; that of the layers by default.
        lazy: Largest kernel distance of lazy learning.
        delayed: Smallest ratio of the two times of a delayed rich phase.

    Returns:
        The label and the numbers behind it. The times are `nan` for a start that is already at the end.

    Raises:
        HypothesisError: If the layers are not $\lambda$-balanced, if a mode is never learned, or if the target does not
            determine the limit.

    Example:
        >>> target = jnp.array([[3.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
        >>> regime((0.1 * jnp.eye(2, 4), 0.1 * jnp.eye(2)), target).label
        'rich'
    """
    where = "regime"
    check_number(where, "lazy", lazy, at_least=0)
    check_number(where, "delayed", delayed, above=0)
    first, second, sigma, number = _checked(where, params, target, lam)
    report = diagnose(params, target, lam)
    if report.missing:
        raise HypothesisError(
            "every mode within reach is learned",
            float(report.missing),
            0.0,
            "The start has no overlap with that many of them; a regime is that of a flow which reaches its target.",
        )
    if not report.rate > 0:
        raise HypothesisError(
            "modes for all hidden units", 1.0, 0.0, "Modes of strength zero fade like 1/t at λ = 0: it is never over."
        )
    goal = limit(sigma, number, first.shape[0])  # or a refusal, which a compiled program could not make
    factor, system, beginning, ending, distance, loss = _ends(
        *(xp.asarray(x, dtype=float) for x in (first, second, sigma, np.asarray(number))), ending=goal
    )
    end = float(distance)
    levels = (0.5 * end, 0.5 * float(loss))
    if levels[0] <= 0 or levels[1] <= 0:
        return Regime("lazy", end, math.nan, math.nan)
    times = [math.nan, math.nan]
    state = (factor, xp.asarray(np.zeros(()), dtype=float))
    values = [0.0, float(loss)]
    step = 1e-4 / float(np.max(np.abs(np.asarray(system.values))))
    while True:
        steps = xp.asarray(step * SPACING ** np.arange(POINTS), dtype=float)
        path = _stretch(*state, system, steps, beginning, ending)
        for k, level in enumerate(levels):
            if math.isnan(times[k]) and _first(path, k, level) is not None:
                times[k] = _crossing(k, level, path, values[k], system, beginning, ending)
        if not any(map(math.isnan, times)) or float(path.gap) < CLOSE:
            break
        state, values = path.last, [float(np.asarray(path.values[k])[-1]) for k in range(2)]
        step = float(np.asarray(path.times)[-1]) * (SPACING - 1)
    label = "lazy" if end < lazy else "delayed-rich" if times[0] > delayed * times[1] else "rich"
    return Regime(label, end, times[0], times[1])


@formula
def _ends(
    first: Float[Array, "hidden inp"],
    second: Float[Array, "out hidden"],
    sigma: Float[Array, "out inp"],
    lam: Float[Array, ""],
    ending: Correlations,
) -> tuple[Array, Eigensystem, Correlations, Correlations, Array, Array]:
    """Stacked factor, eigensystem, correlations at the start and at the end, kernel distance and loss between them."""
    factor = stacked((first, second))
    beginning = correlations_of(factor, first.shape[1])
    distance, loss = kernel_distance(beginning, ending), _loss(beginning, ending)
    return factor, eigensystem(sigma, lam), beginning, ending, distance, loss


class _Path(eqx.Module):
    """A stretch of a path: times with kernel distances and losses, the states before each, and the last state."""

    times: Float[Array, " points"]
    values: tuple[Float[Array, " points"], Float[Array, " points"]]
    before: tuple[Float[Array, "points size hidden"], Float[Array, " points"]]
    last: tuple[Float[Array, "size hidden"], Float[Array, ""]]
    gap: Float[Array, ""]


@formula
def _stretch(
    factor: Float[Array, "size hidden"],
    reached: Float[Array, ""],
    system: Eigensystem,
    steps: Float[Array, " points"],
    beginning: Correlations,
    ending: Correlations,
) -> _Path:
    """Move on in given steps, each from the one before: far times cost no more than the way there."""

    def move(state: tuple[Array, Array], dt: Array) -> tuple[tuple[Array, Array], tuple[Array, ...]]:
        q, t = state
        moved = propagated(q, system, dt)
        now = correlations_of(moved, system.inp)
        return (moved, t + dt), (t + dt, kernel_distance(beginning, now), _loss(now, ending), q, t)

    last, (times, distance, loss, before, since) = scan(move, (factor, reached), steps)
    gap = xp.linalg.norm(correlations_of(last[0], system.inp).matrix - ending.matrix) / xp.linalg.norm(ending.matrix)
    return _Path(times, (distance, loss), (before, since), last, gap)


def _first(path: _Path, which: int, level: float) -> int | None:
    """First point of a stretch at which the kernel distance (0) has risen, or the loss (1) has fallen, to a level."""
    values = np.asarray(path.values[which])
    beyond = values >= level if which == 0 else values <= level
    return int(np.argmax(beyond)) if beyond.any() else None


def _crossing(
    which: int,
    level: float,
    path: _Path,
    value: float,
    system: Eigensystem,
    beginning: Correlations,
    ending: Correlations,
) -> float:
    """Time at which a level is first reached: finer and finer stretches, and a line between the last two points.

    The stretch is one in which the level is reached; `value` is what it begins with.
    """
    for remaining in reversed(range(REFINEMENTS + 1)):
        first = _first(path, which, level)
        if first is None:  # rounding at the very end of a finer stretch
            first = POINTS - 1
        values = np.asarray(path.values[which])
        value = float(values[first - 1]) if first else value
        since, until = float(np.asarray(path.before[1])[first]), float(np.asarray(path.times)[first])
        if remaining:
            steps = xp.asarray(np.full(POINTS, (until - since) / POINTS), dtype=float)
            state = (xp.asarray(np.asarray(x)[first], dtype=float) for x in path.before)
            path = _stretch(*state, system, steps, beginning, ending)
            continue
        rise = float(values[first]) - value
        share = (level - value) / rise if rise else 1.0
        return since + min(max(share, 0.0), 1.0) * (until - since)
    raise AssertionError


def _loss(now: Correlations, ending: Correlations) -> Float[Array, ""]:
    """Half the squared distance of the product from its limit."""
    return 0.5 * xp.sum((now.product - ending.product) ** 2)


def _learned(overlap: Float[np.ndarray, "hidden modes"], tolerance: float) -> np.ndarray:
    """Which modes, strongest first, find a direction of the hidden layer that no stronger one has taken."""
    ranks = [0] + [
        int(np.sum(np.linalg.svd(overlap[:, : k + 1], compute_uv=False) > tolerance)) for k in range(overlap.shape[1])
    ]
    return np.diff(ranks) > 0


def _checked(
    where: str, params: Params, target: object, lam: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Two balanced layers, their target and relative scale as plain numbers, or a refusal."""
    given = [(f"params[{position}]", layer) for position, layer in enumerate(params)]
    for name, array in (*given, ("target", target)):
        numbers = np.asarray(array)
        if numbers.size:
            check_size(where, name, numbers)
    layers = checked_two_layers(where, params, target, lam)
    return np.asarray(layers.first), np.asarray(layers.second), np.asarray(target, dtype=float), float(layers.lam)
