r"""Geodesics from a point: the exponential map, by integration of Hamilton's equations.

Along every geodesic the energy $H$ and the momenta $PX^\top - XP^\top$, $X^\top P - P^\top X$ are constant; with
$\langle P, X\rangle = m_0$ at the start, $\sigma = L$ for the metric of layers and 1 for the normalised one,

$$\langle P, X\rangle = m_0 + \tfrac2L H t, \qquad
\frac L2\sum_i s_i^{2/L} = \frac L2\sum_i s_i(0)^{2/L} + \sigma m_0 t + \frac\sigma L H t^2.$$

The second says that the squared norm $L\sum_i s_i^{2/L}$ of balanced layers over $X$ is a parabola in time: the space
is a cone. At infinite depth it reads $\ln|\det X| = \ln|\det X(0)| + m_0 t$. These tell how exact an integration was.
At finite depth from two on a geodesic can reach a singular matrix and end there; at infinite depth all go on for ever.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from deeplinear.core import (
    Array,
    HypothesisError,
    Integral,
    Matrix,
    as_array,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    integrate,
    is_program,
    xp,
)
from deeplinear.geometry._curvature import field as host_field
from deeplinear.geometry._hamiltonian import geodesic_field, geodesic_field_sum, layer_exponents
from deeplinear.geometry._metric import LARGEST_CONDITION, Metric, Stack, applied, checked_point

Form = Literal["closed", "sum"]

COMPLETE, SINGULAR, LIMIT = "complete", "reached a singular matrix", "step limit"
"""How a geodesic ended."""

SMALLEST = 1e-8
"""A geodesic of finite depth ends where the smallest singular value is below this share of the largest, or of the
largest at its start."""

STEPS = 10_000
"""Most steps of a geodesic."""


class Monitors(NamedTuple):
    """Relative drifts of what is constant, or known in time, along a geodesic.

    Attributes:
        energy: Of $H$, relative to it.
        left: Of $PX^\\top - XP^\\top$, relative to the product of the norms of $P$ and $X$ at the start.
        right: Of $X^\\top P - P^\\top X$, likewise.
        dilation: Of $\\langle P, X\\rangle$ from its line in time, likewise.
        cone: Of the squared norm of balanced layers from its parabola, relative to it; at infinite depth of
            $\\ln|\\det X|$ from its line, relative to the size of $X$.
    """

    energy: Float[Array, "*times"]
    left: Float[Array, "*times"]
    right: Float[Array, "*times"]
    dilation: Float[Array, "*times"]
    cone: Float[Array, "*times"]

    @property
    def largest(self) -> Float[Array, ""]:
        """The largest of all."""
        return xp.max(xp.stack([xp.max(drift) for drift in self]))


class Geodesic(eqx.Module):
    """A geodesic that was integrated from a point.

    Attributes:
        metric: The metric of a depth.
        start: $X$ at time 0.
        momentum: $P$ at time 0.
        times: Times asked for, as far as they were reached; where it ended before, its end is the last.
        points: $X$ at these times.
        momenta: $P$ at these times.
        end_time: When it ended.
        steps: Steps of the integration.
        status: "complete", "reached a singular matrix" or "step limit".
    """

    metric: Metric
    start: Matrix
    momentum: Matrix
    times: Float[Array, " times"]
    points: Float[Array, "times size size"]
    momenta: Float[Array, "times size size"]
    end_time: Float[Array, ""]
    steps: Int[Array, ""]
    status: str = eqx.field(static=True)

    @property
    def speed(self) -> Float[Array, ""]:
        r"""$\sqrt{2H}$ at time 0."""
        return _speed(self.metric, self.start, self.momentum)

    @property
    def length(self) -> Float[Array, ""]:
        """Speed times the time from the first to the last of the times."""
        return travelled(self.speed, self.times)

    @property
    def velocities(self) -> Float[Array, "times size size"]:
        r"""$\dot X = A_L[X](P)$ at the times."""
        return _velocities(self.metric, self.points, self.momenta)

    @property
    def spectra(self) -> Float[Array, "times size"]:
        """Singular values at the times, largest first."""
        return xp.linalg.svd(self.points, compute_uv=False)

    def drifts(self) -> Monitors:
        """How far each conserved quantity has drifted at each time since time 0."""
        return path_drifts(self.metric, (self.start, self.momentum), self.times, self.points, self.momenta)

    def monitors(self) -> Monitors:
        """The largest drift of each conserved quantity."""
        return Monitors(*map(xp.max, self.drifts()))


@entry(instead="call it outside of jit, vmap and grad, or integrate geodesic_field, which can be traced")
def geodesic(
    point: Any,
    depth: float,
    times: Any,
    *,
    velocity: Any = None,
    momentum: Any = None,
    normalised: bool = False,
    rtol: float = 1e-12,
    atol: float = 1e-14,
    form: Form = "closed",
) -> Geodesic:
    r"""The geodesic from a point with a velocity or a momentum: the exponential map at each time.

    $\dot X = A_L[X](P)$, $\dot P = -\nabla_X H$ by an explicit method of order eight. With the metric normalised the
    curve of a velocity is the same and momenta are $L$ times as large. At finite depth from two on it ends where the
    smallest singular value falls below $10^{-8}$ of the largest, now or at the start; depth one is flat, and its lines
    go on.

    Args:
        point: $X$, square and of full rank.
        depth: $L$, a positive integer or infinity.
        times: Where the curve is wanted: increasing, not negative, the last one positive.
        velocity: $\dot X$ at time 0; this or the momentum.
        momentum: $P = A_L[X]^{-1}(\dot X)$ at time 0.
        normalised: Whether the operator is divided by $L$; infinite depth is always so.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step, of matrices scaled to size one.
        form: How the equations are evaluated: "closed" at a cost that does not depend on the depth, "sum" over layers
            (over the nodes of a quadrature at infinite depth) as an independent check.

    Returns:
        The geodesic and how it ended.

    Raises:
        HypothesisError: The point is singular, or nearly so.

    Example:
        >>> path = geodesic(jnp.eye(2), 2, [1.0], velocity=jnp.eye(2))
        >>> round(float(path.points[0, 0, 0]), 12), path.status
        (2.25, 'complete')
    """
    where = "geodesic"
    metric = Metric(depth, normalised=normalised)
    start, first = _checked_start(where, metric, point, velocity, momentum)
    ts = checked_times(where, times)
    check_number(where, "rtol", rtol, above=0.0, at_most=1e-2)
    check_number(where, "atol", atol, above=0.0)
    if form not in ("closed", "sum"):
        raise ValueError(f"{where}: form must be 'closed' or 'sum', but is {form!r}.")
    # Multiples of a geodesic are geodesics: it is integrated where the singular values are about one.
    size = np.exp(np.mean(np.log(np.linalg.svd(start, compute_uv=False))))
    sizes = float(size), float(size ** (2 * float(metric.rate) - 1))
    scaled = start / sizes[0], first / sizes[1]
    if form == "closed":
        found = shoot(metric, *scaled, ts, rtol, atol)
    else:
        found = _shoot_sum(metric, layer_exponents(metric), *scaled, ts, rtol, atol)
    return _gathered(metric, (start, first), ts, found, sizes)


@formula
def shoot(
    metric: Metric,
    point: Matrix,
    momentum: Matrix,
    times: Float[Array, " times"],
    rtol: Float[Array, ""] | float,
    atol: Float[Array, ""] | float,
    *,
    smallest: Float[Array, ""] | float = SMALLEST,
    steps: int = STEPS,
) -> Integral:
    r"""The integration itself, unchecked.

    Args:
        metric: The metric of a depth.
        point: $X$, square and of full rank.
        momentum: $P$.
        times: Increasing; the last one positive.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        smallest: Share of the largest singular value below which the smallest ends the geodesic.
        steps: Most steps.

    Returns:
        States are pairs $(X, P)$; event 0 is a singular matrix.
    """
    ending = _ending(metric, point, smallest)
    return integrate(
        _field(metric, point, momentum),
        (point, momentum),
        times,
        rtol=rtol,
        atol=atol,
        events=(ending,),
        steps=steps,
    )


def _field(metric: Metric, point: Matrix, momentum: Matrix) -> Callable[[tuple[Matrix, Matrix]], Any]:
    """Hamilton's equations; of numbers as the collocation has them, which takes a quarter of the time at size two."""
    if is_program(metric, point, momentum) or float(metric.rate) == 1:
        return lambda state: geodesic_field(metric, *state)
    rate, scale = float(metric.rate), float(metric.scale)
    return lambda state: tuple(scale * host_field(rate, np.stack(state)[None])[0])


@formula
def _shoot_sum(
    metric: Metric,
    exponents: Float[Array, "3 layers"],
    point: Matrix,
    momentum: Matrix,
    times: Float[Array, " times"],
    rtol: Float[Array, ""] | float,
    atol: Float[Array, ""] | float,
) -> Integral:
    ending = _ending(metric, point, SMALLEST)
    field = lambda state: geodesic_field_sum(exponents, *state)  # noqa: E731
    return integrate(field, (point, momentum), times, rtol=rtol, atol=atol, events=(ending,), steps=STEPS)


@formula
def path_drifts(
    metric: Metric,
    start: tuple[Matrix, Matrix],
    times: Float[Array, " times"],
    points: Float[Array, "times size size"],
    momenta: Float[Array, "times size size"],
) -> Monitors:
    """Drifts of the conserved quantities along points and momenta, unchecked.

    Args:
        metric: The metric of a depth.
        start: $X$ and $P$ at time 0.
        times: Times of the points.
        points: $X$ at the times.
        momenta: $P$ at the times.

    Returns:
        Relative drifts since time 0.
    """
    points = xp.concatenate([start[0][None], points])
    momenta = xp.concatenate([start[1][None], momenta])
    passed = xp.append(0.0, times)
    transposed, turned = xp.swapaxes(points, 1, 2), xp.swapaxes(momenta, 1, 2)
    energy = _speed(metric, points, momenta) ** 2 / 2
    size = xp.linalg.norm(points[0]) * xp.linalg.norm(momenta[0])
    dilation = xp.sum(points * momenta, axis=(1, 2))
    line = dilation[0] + 2 * metric.rate * energy[0] * passed
    logs = xp.log(xp.maximum(xp.linalg.svd(points, compute_uv=False), xp.finfo(float).tiny))
    twice = 2 * metric.rate
    powers = xp.exp(twice * logs)
    norms = xp.sum(xp.where(twice > 0, powers / xp.where(twice > 0, twice, 1.0), logs), axis=1)
    parabola = norms[0] + metric.scale * (dilation[0] * passed + metric.rate * energy[0] * passed**2)
    weight = xp.max(xp.sum(powers, axis=1))
    drifts = Monitors(
        xp.abs(energy - energy[0]) / _some(energy[0]),
        _spread(momenta @ transposed - points @ turned) / _some(size),
        _spread(transposed @ momenta - turned @ points) / _some(size),
        xp.abs(dilation - line) / _some(size),
        xp.abs(norms - parabola) / weight,
    )
    return Monitors(*(drift[1:] for drift in drifts))


def _ending(metric: Metric, start: Matrix, smallest: Any) -> Callable[[tuple[Matrix, Matrix]], Any]:
    """Whether a state has come to a singular matrix; at depth one and at infinite depth none has."""
    bound = smallest * xp.linalg.svd(start, compute_uv=False)[0]

    def ended(state: tuple[Matrix, Matrix]) -> Any:
        values = xp.linalg.svd(state[0], compute_uv=False)
        near = values[-1] < xp.maximum(smallest * values[0], bound)
        return (metric.rate > 0) & (metric.rate < 1) & near

    return ended


@formula
def _speed(metric: Metric, point: Stack, momentum: Stack) -> Float[Array, "..."]:
    """Speeds of momenta at points, of any axes before the last two."""
    return xp.sqrt(xp.maximum(xp.sum(momentum * applied(metric, point, momentum), axis=(-2, -1)), 0.0))


@formula
def travelled(speed: Float[Array, ""], times: Float[Array, " times"]) -> Float[Array, ""]:
    """Length of a path of constant speed from the first to the last of the times."""
    return speed * (times[-1] - times[0])


@formula
def _velocities(
    metric: Metric, points: Float[Array, "times size size"], momenta: Float[Array, "times size size"]
) -> Float[Array, "times size size"]:
    return applied(metric, points, momenta)


def _spread(stack: Float[Array, "times size size"]) -> Float[Array, " times"]:
    return xp.linalg.norm(stack - stack[0], axis=(1, 2))


def _some(size: Float[Array, ""]) -> Float[Array, ""]:
    return xp.where(size > 0, size, 1.0)


def _checked_start(where: str, metric: Metric, point: Any, velocity: Any, momentum: Any) -> tuple[Matrix, Matrix]:
    """Point and momentum at the start, or a refusal."""
    start = checked_point(where, "point", point)
    check_shape(where, "point", start, (start.shape[0], start.shape[0]))
    if (velocity is None) == (momentum is None):
        raise ValueError(f"{where}: exactly one of velocity and momentum must be given.")
    name, given = ("velocity", velocity) if momentum is None else ("momentum", momentum)
    vector = checked_point(where, name, given)
    check_shape(where, name, vector, start.shape)
    values = np.linalg.svd(np.asarray(start), compute_uv=False)
    largest = 1 / SMALLEST if 0 < float(metric.rate) < 1 else LARGEST_CONDITION
    condition = float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
    if condition > largest:
        raise HypothesisError(
            f"{where}: point is of full rank", condition, largest, "The ratio of its singular values is told."
        )
    return start, vector if momentum is not None else metric.inverse(start, vector)


def checked_times(where: str, times: Any) -> Float[Array, " times"]:
    check_x64(where)
    ts = as_array(checked_layer(where, "times", times), float)
    check_shape(where, "times", ts, (None,))
    check_finite(where, "times", ts)
    seen = np.asarray(ts)
    if seen.size == 0 or seen[0] < 0 or seen[-1] <= 0 or np.any(np.diff(seen) <= 0):
        raise ValueError(
            f"{where}: times must be increasing, not negative and end after 0, but are {times!r}; "
            "for the past reverse the velocity."
        )
    return ts


def _gathered(
    metric: Metric,
    start: tuple[Matrix, Matrix],
    times: Float[Array, " times"],
    found: Integral,
    sizes: tuple[float, float],
) -> Geodesic:
    """What was reached, times the sizes of points and momenta, with the end as the last where it came early."""
    points, momenta = (part * by for part, by in zip(found.states, sizes, strict=True))
    if bool(found.finished) and int(found.event) < 0:
        return Geodesic(
            metric,
            *start,
            times,
            as_array(points, float),
            xp.asarray(momenta, dtype=float),
            found.time,
            found.steps,
            COMPLETE,
        )
    status = SINGULAR if int(found.event) == 0 else LIMIT
    reached = np.asarray(times) < float(found.time)
    reached &= np.all(np.isfinite(points), axis=(1, 2))
    point, momentum = (np.asarray(part)[None] * by for part, by in zip(found.end, sizes, strict=True))
    return Geodesic(
        metric,
        *start,
        xp.asarray(np.append(np.asarray(times)[reached], np.asarray(found.time)), dtype=float),
        xp.asarray(np.concatenate([points[reached], point]), dtype=float),
        xp.asarray(np.concatenate([momenta[reached], momentum]), dtype=float),
        found.time,
        found.steps,
        status,
    )
