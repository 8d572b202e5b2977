r"""Length and action of curves, and a bound that no curve is shorter than.

The speed of a curve is $\|\dot X\|_X = \sqrt{g_X(\dot X, \dot X)}$, its length the integral of the speed and its action
half the integral of its square. Along any curve $\sum_i (\tfrac{d}{dt}\sqrt L\,s_i^{1/L})^2 \le g_X(\dot X, \dot X)$,
so no curve from $A$ to $B$ is shorter than $\sqrt L\,\|s(A)^{1/L} - s(B)^{1/L}\|$.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    check_count,
    check_finite,
    check_shape,
    entry,
    formula,
    frobenius,
    is_concrete,
    xp,
)
from deeplinear.geometry._metric import LARGEST_CONDITION, Metric, checked_depth, checked_point
from deeplinear.geometry._pair_eigenvalues import pair_eigenvalue

PIECE = 4
"""Gauss–Legendre nodes between two samples."""


@entry(instead="call it outside of jit, vmap and grad, or integrate Metric.norm, which can be traced")
def curve_length(
    curve: Any, depth: float, *, times: Any = None, velocity: Any = None, nodes: int = 48, normalised: bool = False
) -> float:
    r"""Length $\int \|\dot X\|_X\,dt$ of a curve.

    A function is evaluated at Gauss–Legendre nodes, once; where its derivative is not given, that of the polynomial
    through these values is taken, which for analytic curves is exact to many digits. Through samples a cubic spline is
    laid (with velocities, cubic pieces that have them).

    Args:
        curve: Function from a time to a matrix; or samples, times first.
        depth: $L$, a positive integer or infinity.
        times: Begin and end for a function, 0 and 1 by default; the times of samples, evenly spaced by default.
        velocity: Derivative of the curve, likewise.
        nodes: Nodes for a function.
        normalised: Whether in the normalised metric; infinite depth is always so.

    Returns:
        The length.

    Raises:
        HypothesisError: The curve meets a singular matrix.

    Example:
        >>> round(curve_length(lambda t: (1 + t) ** 2 * jnp.eye(1), 2), 9)
        1.414213562
    """
    weights, speeds = _speeds("curve_length", curve, depth, times, velocity, nodes, normalised)
    return float(weights @ speeds)


@entry(instead="call it outside of jit, vmap and grad, or integrate Metric.inner, which can be traced")
def curve_action(
    curve: Any, depth: float, *, times: Any = None, velocity: Any = None, nodes: int = 48, normalised: bool = False
) -> float:
    r"""Action $\tfrac12\int \|\dot X\|_X^2\,dt$ of a curve; arguments as for `curve_length`.

    At least the squared length over twice the time, and equal to it where the speed is constant.

    Example:
        >>> round(curve_action(lambda t: (1 + t) ** 2 * jnp.eye(1), 2), 9)
        1.0
    """
    weights, speeds = _speeds("curve_action", curve, depth, times, velocity, nodes, normalised)
    return float(weights @ speeds**2) / 2


@entry
def distance_lower_bound(start: Any, end: Any, depth: float, *, normalised: bool = False) -> float | Float[Array, ""]:
    r"""$\sqrt L\,\|s(A)^{1/L} - s(B)^{1/L}\|$ with sorted singular values; at infinite depth of their logarithms.

    Args:
        start: $A$.
        end: $B$, of the same shape.
        depth: $L$, a positive integer or infinity.
        normalised: Whether in the normalised metric; infinite depth is always so.

    Returns:
        A number that the length of no curve between them falls below; an array inside a transformation.

    Example:
        >>> round(distance_lower_bound([[1.0, 0.2], [-0.3, 0.8]], [[0.3, -0.9], [0.8, 0.5]], 2), 12)
        0.005554606672
    """
    where = "distance_lower_bound"
    checked_depth(where, depth)
    a, b = checked_point(where, "start", start), checked_point(where, "end", end)
    check_shape(where, "end", b, a.shape)
    seen = is_concrete(a) and is_concrete(b)
    scale = 1.0 if math.isinf(depth) else depth if normalised else math.sqrt(depth)
    one, other = (xp.linalg.svd(matrix, compute_uv=False) for matrix in (a, b))
    if seen and math.isinf(depth) and float(xp.minimum(one[-1], other[-1])) <= 0:
        raise HypothesisError(f"{where}: start and end are of full rank", 1.0, 0.0, "At infinite depth they must be.")
    bound = scale * frobenius(_root(one, depth) - _root(other, depth))
    return float(bound) if seen else bound


def _root(values: Float[Array, " modes"], depth: float) -> Float[Array, " modes"]:
    """Singular values to the power of one over the depth, their logarithms at infinite depth."""
    return xp.log(values) if math.isinf(depth) else values ** (1 / depth)


def _speeds(
    where: str, curve: Any, depth: float, times: Any, velocity: Any, nodes: int, normalised: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Weights of a quadrature and the speeds at its nodes."""
    metric = Metric(checked_depth(where, depth), normalised=normalised)
    if callable(curve):
        weights, points, velocities = _at_nodes(where, curve, times, velocity, nodes)
    else:
        weights, points, velocities = _through_samples(where, curve, times, velocity)
    for name, array in (("curve", points), ("velocity", velocities)):
        check_finite(where, name, array)
    speeds, conditions = point_speeds(metric, xp.asarray(points, dtype=float), xp.asarray(velocities, dtype=float))
    worst = float(np.max(np.asarray(conditions)))
    if depth > 1 and not worst <= LARGEST_CONDITION:
        raise HypothesisError(
            f"{where}: the curve is of full rank", worst, LARGEST_CONDITION, "The ratio of singular values is told."
        )
    return weights, np.asarray(speeds)


@formula
def point_speeds(
    metric: Metric, points: Float[Array, "times size size"], velocities: Float[Array, "times size size"]
) -> tuple[Float[Array, " times"], Float[Array, " times"]]:
    r"""$\|\dot X\|_X$ and the ratio of the largest to the smallest singular value, at many points, unchecked."""
    left, values, right_t = xp.linalg.svd(points)
    seen = xp.swapaxes(left, 1, 2) @ velocities @ xp.swapaxes(right_t, 1, 2)
    eigenvalues = metric.scale * pair_eigenvalue(values[:, :, None], values[:, None], metric.rate)
    return xp.sqrt(xp.sum(seen**2 / eigenvalues, axis=(1, 2))), values[:, 0] / values[:, -1]


def _at_nodes(
    where: str, curve: Callable, times: Any, velocity: Any, nodes: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    check_count(where, "nodes", nodes, at_least=2)
    if velocity is not None and not callable(velocity):
        raise TypeError(f"{where}: velocity must be a function where the curve is one, but is {type(velocity)}.")
    ends = np.asarray((0.0, 1.0) if times is None else times, dtype=float)
    check_shape(where, "times", ends, (2,))
    check_finite(where, "times", ends)
    places, weights = np.polynomial.legendre.leggauss(nodes)
    half = (ends[1] - ends[0]) / 2
    moments = ends[0] + half * (places + 1)
    points = np.stack([np.asarray(checked_point(where, "curve", curve(t))) for t in moments])
    check_shape(where, "curve", points, (nodes, None, points.shape[-1]))
    if velocity is not None:
        velocities = np.stack([np.asarray(checked_point(where, "velocity", velocity(t))) for t in moments])
        check_shape(where, "velocity", velocities, points.shape)
    else:
        # Legendre coefficients of the polynomial through the values, by the quadrature that is exact for them.
        basis = np.polynomial.legendre.legvander(places, nodes - 1)
        factors = (2 * np.arange(nodes) + 1) / 2
        coefficients = np.einsum("nk,n,nij->kij", basis * factors, weights, points)
        slopes = np.polynomial.legendre.legval(places, np.polynomial.legendre.legder(coefficients, axis=0))
        velocities = np.moveaxis(slopes, -1, 0) / half
    return weights * abs(half), points, velocities


def _through_samples(where: str, curve: Any, times: Any, velocity: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    samples = np.asarray(curve, dtype=float)
    check_shape(where, "curve", samples, (None, None, samples.shape[-1] if samples.ndim else None))
    check_finite(where, "curve", samples)
    if len(samples) < 2:
        raise ValueError(f"{where}: curve must have at least 2 samples, but has {len(samples)}.")
    moments = np.linspace(0.0, 1.0, len(samples)) if times is None else np.asarray(times, dtype=float)
    check_shape(where, "times", moments, (len(samples),))
    check_finite(where, "times", moments)
    if np.any(np.diff(moments) <= 0):
        raise ValueError(f"{where}: times must be increasing, but are {times!r}.")
    import scipy.interpolate

    if velocity is None:
        spline = scipy.interpolate.CubicSpline(moments, samples)
    else:
        velocities = np.asarray(velocity, dtype=float)
        check_shape(where, "velocity", velocities, samples.shape)
        check_finite(where, "velocity", velocities)
        spline = scipy.interpolate.CubicHermiteSpline(moments, samples, velocities)
    places, weights = np.polynomial.legendre.leggauss(PIECE)
    steps = np.diff(moments)[:, None]
    inner = (moments[:-1, None] + steps * (places + 1) / 2).ravel()
    return (steps / 2 * weights).ravel(), spline(inner), spline.derivative()(inner)
