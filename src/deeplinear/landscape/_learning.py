r"""When the modes of a task are learnt.

A mode counts as learnt from the first time on at which the singular value of the product that stands for it reaches a
given fraction of the target's. Near the origin these times lie far apart, far from it they do not.
"""

from typing import Any

from jaxtyping import Float

from deeplinear.core import (
    Array,
    as_array,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    entry,
    formula,
    is_concrete,
    xp,
)


@entry
def learning_times(
    times: Any, singular_values: Any, sigma: Any, *, fraction: float | Float[Array, ""] = 0.5
) -> Float[Array, "*runs modes"]:
    r"""First time at which $s_j(W_{L:1}) \ge f \sigma_j$, for each mode $j$ and each of many runs.

    Between two records the singular value is taken to be linear, so that the error is of second order in their
    distance. A mode that is above its threshold at the first record has its time; one that never gets there has NaN.
    Records that are not numbers, such as the padding of an ensemble, are passed over.

    Args:
        times: Recorded times, (time) or (run, time).
        singular_values: Singular values of the product, or another measure of the strength of each mode, at these
            times: (..., time, mode).
        sigma: Singular values of the target, (mode).
        fraction: $f$, the share of a singular value at which its mode counts as learnt; 0.5 by default.

    Returns:
        One time for each mode; runs lead.

    Example:
        >>> learning_times([0.0, 1.0, 2.0], [[0.0, 0.0], [2.0, 0.0], [4.0, 0.5]], [4.0, 2.0]).tolist()
        [1.0, nan]
        >>> learning_times([0.0, 1.0, 2.0], [[0.0, 0.0], [2.0, 0.0], [4.0, 0.5]], [4.0, 2.0], fraction=0.25).tolist()
        [0.5, 2.0]
    """
    where = "learning_times"
    check_x64(where)
    check_number(where, "fraction", fraction, above=0)
    values, clock = as_array(singular_values, float), as_array(times, float)
    wanted = as_array(sigma, float)
    if values.ndim < 2 or values.shape[-2] < 1:
        raise ValueError(
            f"{where}: singular_values must have the axes (..., time, mode) and at least one time, but has shape "
            f"{values.shape}."
        )
    check_shape(where, "sigma", wanted, values.shape[-1:])
    if is_concrete(wanted):
        check_finite(where, "sigma", wanted)
    if clock.shape not in (values.shape[-2:-1], values.shape[:-1]):
        raise ValueError(
            f"{where}: times must have one entry for each record of singular_values, shape {values.shape[-2:-1]} or "
            f"{values.shape[:-1]}, but has shape {clock.shape}."
        )
    return _reached(clock, values, wanted, fraction)


@formula
def _reached(clock: Array, values: Array, wanted: Array, fraction: Any) -> Float[Array, "*runs modes"]:
    clock = xp.broadcast_to(clock, values.shape[:-1])[..., None]
    above = values - fraction * wanted
    reached = above >= 0
    place = xp.argmax(reached, axis=-2, keepdims=True)
    before = xp.maximum(place - 1, 0)
    low, high = (xp.take_along_axis(above, index, axis=-2)[..., 0, :] for index in (before, place))
    early, late = (xp.take_along_axis(clock, index, axis=-2)[..., 0, :] for index in (before, place))
    rise = high - low
    share = xp.where(rise > 0, high / xp.where(rise > 0, rise, 1.0), 0.0)
    return xp.where(xp.any(reached, axis=-2), late - share * (late - early), xp.nan)
