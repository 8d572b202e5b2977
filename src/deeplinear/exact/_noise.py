r"""What noise in the inputs or in the weights of a two-layer network costs, and the $\lambda$ that bears it best.

Noise is independent from entry to entry, of mean zero and of one standard deviation. The expected loss depends on its
variance only, whatever its distribution.
"""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
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
    entry,
    is_concrete,
)
from deeplinear.exact._riccati import speeds_of
from deeplinear.models import DeepLinear, Problem, Regression, SquaredDistance

HALVINGS = 100
"""Halvings of the logarithmic bracket of the best $\\lambda$: more than double precision can tell apart."""


@entry
def input_noise_loss(
    strengths: object, std: object, floor: ArrayLike = 0.0, *, as_printed: bool = False
) -> Float[Array, "..."]:
    r"""Expected loss of a trained network whose inputs are noisy, $c + \tfrac12\sigma^2 \sum_k s_k^2$.

    At convergence the product is the target, so the loss is the floor $c$ that no linear map can go below, and the
    noise adds $\tfrac12\sigma^2\|W_2 W_1\|_F^2$. Nothing depends on $\lambda$.

    Args:
        strengths: Singular values $s_k \ge 0$ of the product; for a bottleneck those that are learnt.
        std: Standard deviation $\sigma \ge 0$ of the noise, one or several.
        floor: $c$, the loss without noise.
        as_printed: Leave the factor $\tfrac12$ out, as the paper's formula does.

    Returns:
        The expected loss, of the shape of `std`.

    Example:
        >>> float(input_noise_loss([2.0, 1.0], 1.0, floor=0.5))
        3.0
    """
    where = "input_noise_loss"
    modes = _strengths(where, strengths)
    noise = _nonnegative(where, "std", std)
    check_number(where, "floor", floor)
    return _input_noise(modes, noise, 1.0 if as_printed else 0.5, as_array(floor, float))


@jax.jit
def _input_noise(
    modes: Float[Array, " modes"], noise: Float[Array, "..."], share: Array | float, floor: Float[Array, ""]
) -> Float[Array, "..."]:
    return share * noise**2 * jnp.sum(modes**2) + floor


@entry
def weight_noise_loss(
    strengths: object,
    lam: object,
    widths: Sequence[int],
    std: object,
    floor: ArrayLike = 0.0,
    *,
    as_printed: bool = False,
) -> Float[Array, "..."]:
    r"""Expected loss of a trained $\lambda$-balanced network whose weights are noisy.

    $$c + \tfrac12\sigma^2\big(d_{\mathrm{in}}\|W_2\|_F^2 + d_{\mathrm{out}}\|W_1\|_F^2\big)
    + \tfrac12 d_{\mathrm{in}} d_{\mathrm{hid}} d_{\mathrm{out}}\,\sigma^4$$

    with the norms at convergence, $\|W_{2,1}\|_F^2 = \sum_k \big(\sqrt{s_k^2 + \lambda^2/4} \pm \lambda/2\big)$. Inputs
    are white.

    Args:
        strengths: Singular values $s_k \ge 0$ of the product, at most one per hidden unit; hidden directions that are
            left over have $s = 0$.
        lam: $\lambda$, one or several; $\lambda > 0$ needs as many outputs as hidden units, $\lambda < 0$ as many
            inputs.
        widths: Input, hidden and output width.
        std: Standard deviation $\sigma \ge 0$ of the noise, one or several.
        floor: $c$, the loss without noise.
        as_printed: Exchange the norms of the two layers, as the paper's formulas do.

    Returns:
        The expected loss, of the common shape of `lam` and `std`.

    Example:
        >>> float(weight_noise_loss([2.0], 3.0, (1, 1, 1), 0.1).round(12))
        0.02505
    """
    where = "weight_noise_loss"
    inp, hidden, out = _widths(where, widths)
    modes = _padded(where, strengths, (inp, hidden, out))
    noise = _nonnegative(where, "std", std)
    check_number(where, "floor", floor)
    scale = as_array(lam, float)
    check_finite(where, "lam", scale)
    _check_feasible(where, scale, (inp, hidden, out))
    sign = -1.0 if as_printed else 1.0
    return _weight_noise(modes, scale, noise, np.array([inp, hidden, out], dtype=float), sign, as_array(floor, float))


@entry
def noisy_loss(
    problem: Problem, params: Params, *, input_std: ArrayLike = 0.0, weight_std: ArrayLike = 0.0
) -> Float[Array, ""]:
    r"""Expected loss of a two-layer network, trained or not, when inputs and weights are noisy.

    With $W = W_2 W_1$, the input covariance $S$ and that of the noisy inputs $\hat S = S + \sigma_x^2 I$,

    $$\mathcal L + \tfrac12\sigma_x^2\|W\|_F^2 + \tfrac12\sigma_w^2\big(\mathrm{tr}\,\hat S\,\|W_2\|_F^2
    + d_{\mathrm{out}}\,\mathrm{tr}\,W_1\hat S W_1^\top + \sigma_w^2\,d_{\mathrm{hid}} d_{\mathrm{out}}\,
    \mathrm{tr}\,\hat S\big),$$

    where all noise is independent and each sample has its own.

    Args:
        problem: Two layers with the loss `Regression` or `SquaredDistance` (white inputs), without a penalty.
        params: Layers, first-acting first.
        input_std: Standard deviation $\sigma_x \ge 0$ of the noise of the inputs.
        weight_std: Standard deviation $\sigma_w \ge 0$ of the noise of all weights.

    Returns:
        The expected loss.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance([[2.0]]))
        >>> float(noisy_loss(problem, (jnp.ones((1, 1)), jnp.ones((1, 1))), input_std=1.0))
        1.0
    """
    where = "noisy_loss"
    model, loss = problem.model, problem.loss
    if not isinstance(model, DeepLinear) or model.depth != 2:
        raise TypeError(f"{where}: problem must have two feed-forward layers, but its model is {model!r}.")
    if not isinstance(loss, Regression | SquaredDistance):
        raise TypeError(f"{where}: the loss must be Regression or SquaredDistance, but is {type(loss).__name__}.")
    if is_concrete(problem.l2) and float(problem.l2) != 0:
        raise ValueError(f"{where}: problem must have no penalty, but its l2 is {float(problem.l2):g}.")
    problem.check(params, where)
    for position, layer in enumerate(params):
        check_finite(where, f"params[{position}]", layer)
    at_input, at_weight = _nonnegative(where, "input_std", input_std), _nonnegative(where, "weight_std", weight_std)
    check_shape(where, "input_std", at_input, ())
    check_shape(where, "weight_std", at_weight, ())
    return check_result(where, _noisy_loss(problem, params, at_input, at_weight))


@eqx.filter_jit
def _noisy_loss(
    problem: Problem, params: Params, at_input: Float[Array, ""], at_weight: Float[Array, ""]
) -> Float[Array, ""]:
    (hidden, inp), out = params[0].shape, params[1].shape[0]
    first, second = params
    covariance = problem.loss.sxx if isinstance(problem.loss, Regression) else jnp.eye(inp)
    noisy = covariance + at_input**2 * jnp.eye(inp)
    total = jnp.trace(noisy)
    spread = total * jnp.sum(second**2) + out * jnp.sum((first @ noisy) * first)
    spread = spread + at_weight**2 * hidden * out * total
    product = second @ first
    return problem.value(params) + 0.5 * at_input**2 * jnp.sum(product**2) + 0.5 * at_weight**2 * spread


@entry
def noise_optimal_lambda(strengths: object, widths: Sequence[int], *, as_printed: bool = False) -> Float[Array, ""]:
    r"""The $\lambda$ at which a trained network bears noise in its weights best: the minimiser of `weight_noise_loss`.

    It is the root of $\sum_k \lambda/\sqrt{\lambda^2 + 4 s_k^2} = d_{\mathrm{hid}}\,\rho$ with
    $\rho = (d_{\mathrm{out}} - d_{\mathrm{in}})/(d_{\mathrm{out}} + d_{\mathrm{in}})$, and has the sign of $\rho$. A
    mode with $s_k = 0$ contributes $\mathrm{sgn}\,\lambda$: if there are $d_{\mathrm{hid}}|\rho|$ of them or more, the
    loss has a kink at its minimum $\lambda = 0$. The size of the noise does not matter, and what is found is always
    feasible.

    Differentiable to any order with respect to the strengths, by the implicit function theorem; where the minimum is
    the kink the derivative is 0.

    Args:
        strengths: Singular values $s_k \ge 0$ of the product, at most one per hidden unit; hidden directions that are
            left over have $s = 0$.
        widths: Input, hidden and output width.
        as_printed: Take $-\rho$ for $\rho$, as the paper's equation does.

    Returns:
        $\lambda^*$.

    Example:
        >>> float(noise_optimal_lambda([1.5], (1, 1, 4)).round(12))
        2.25
        >>> float(noise_optimal_lambda([3.0, 0.0], (2, 2, 4)))
        0.0
    """
    where = "noise_optimal_lambda"
    check_x64(where)
    sizes = _widths(where, widths)
    modes = _padded(where, strengths, sizes)
    sign = float(np.sign(sizes[2] - sizes[0])) * (-1.0 if as_printed else 1.0)
    return _best(float(sizes[0]), float(sizes[2]), modes, sign)


@jax.jit
def _best(inp: ArrayLike, out: ArrayLike, modes: Float[Array, " hidden"], sign: ArrayLike) -> Float[Array, ""]:
    size = _best_scale(jnp.asarray(inp, dtype=float), jnp.asarray(out, dtype=float), modes)
    return jnp.where(size > 0, sign * size, 0.0)  # no negative zero


@jax.jit
def _weight_noise(
    modes: Float[Array, " hidden"],
    lam: Float[Array, "..."],
    noise: Float[Array, "..."],
    widths: Float[Array, "3"],
    sign: ArrayLike,
    floor: ArrayLike,
) -> Float[Array, "..."]:
    """The loss without noise, and what noise in the weights adds to it."""
    inp, hidden, out = widths
    half = jnp.asarray(sign * lam[..., None] / 2)
    roots = speeds_of("weight_noise_loss", modes, half)
    norms = inp * jnp.sum(_sum_of(roots, half, modes), axis=-1) + out * jnp.sum(_sum_of(roots, -half, modes), axis=-1)
    return 0.5 * noise**2 * norms + 0.5 * inp * hidden * out * noise**4 + floor


def _sum_of(roots: Array, half: Array, modes: Array) -> Array:
    """A root and half of λ, without cancellation where that is negative."""
    below = half < 0
    return jnp.where(below, modes * (modes / jnp.where(below, roots - half, 1.0)), roots + half)


@jax.custom_jvp
@jax.jit
def _best_scale(inp: Float[Array, ""], out: Float[Array, ""], modes: Float[Array, " hidden"]) -> Float[Array, ""]:
    r"""Size of the best $\lambda$: halving of a bracket of $\log\lambda$, which holds for any range of strengths."""
    hidden = modes.shape[0]
    live = modes > 0
    zeros = hidden - jnp.sum(live)
    # The terms of the modes that are not zero have to sum to wanted/total, which is less than their number; the share
    # of each and what it lacks to 1 are found without a difference of nearly equal numbers.
    total = out + inp
    wanted = hidden * jnp.abs(out - inp) - zeros * total
    kink = wanted <= 0
    count = jnp.maximum(hidden - zeros, 1)
    share = jnp.where(kink, 0.5, wanted / (total * count))
    lack = 2 * hidden * jnp.minimum(inp, out) / (total * count)
    slope = jnp.log(share / jnp.sqrt(lack * (1 + share)))
    doubled = jnp.log(2 * jnp.where(live, modes, 1.0))
    low = slope + jnp.min(jnp.where(live, doubled, jnp.inf), initial=jnp.inf, where=live)
    high = slope + jnp.max(jnp.where(live, doubled, -jnp.inf), initial=-jnp.inf, where=live)
    low, high = jnp.where(kink, 0.0, low), jnp.where(kink, 0.0, high)

    def halve(_: object, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        left, right = bracket
        middle = (left + right) / 2
        # A term near 1 is taken by what it lacks, for strengths of very different sizes.
        near = live & (doubled < middle)
        small = jnp.exp(-2 * jnp.abs(doubled - middle))
        root = jnp.sqrt(1 + small)
        terms = jnp.where(near, -small / (root * (1 + root)), jnp.sqrt(small) / root)
        below = jnp.sum(jnp.where(live, terms, 0.0)) < (wanted - total * jnp.sum(near)) / total
        return jnp.where(below, middle, left), jnp.where(below, right, middle)

    left, right = jax.lax.fori_loop(0, HALVINGS, halve, (low, high))
    return jnp.where(kink, 0.0, jnp.exp((left + right) / 2))


@_best_scale.defjvp
def _(primals: tuple[Array, Array, Array], tangents: tuple[Array, Array, Array]) -> tuple[Array, Array]:
    r"""$\mathrm d\lambda = \lambda \sum_k s_k d_k^{-3}\,\mathrm ds_k / \sum_k s_k^2 d_k^{-3}$ with
    $d_k^2 = \lambda^2 + 4 s_k^2$."""
    *widths, modes = primals
    moved = tangents[2]
    lam = _best_scale(*widths, modes)
    live = lam > 0
    safe = jnp.where(live, lam, 1.0)
    ratios = modes / safe
    weights = ratios / jnp.hypot(1.0, 2 * ratios) ** 3
    total = jnp.sum(weights * ratios)
    change = jnp.sum(weights * moved) / jnp.where(live, total, 1.0)
    return lam, jnp.where(live, change, 0.0)


def _widths(where: str, widths: Sequence[int]) -> tuple[int, int, int]:
    """Input, hidden and output width, or a refusal."""
    if not isinstance(widths, Sequence) or len(widths) != 3:
        raise ValueError(f"{where}: widths must be (input, hidden, output), but is {widths!r}.")
    for name, width in zip(("input", "hidden", "output"), widths, strict=True):
        check_count(where, f"the {name} width", width, at_least=1)
    return int(widths[0]), int(widths[1]), int(widths[2])


def _nonnegative(where: str, name: str, value: object) -> Float[Array, "..."]:
    """Finite numbers that are not negative, or a refusal."""
    array = as_array(value, float)
    check_finite(where, name, array)
    if is_concrete(array) and array.size and float(np.min(np.asarray(array))) < 0:
        raise ValueError(f"{where}: {name} must not be negative, but holds {np.min(np.asarray(array)):g}.")
    return array


def _strengths(where: str, strengths: object) -> Float[Array, " modes"]:
    """Singular values, or a refusal."""
    modes = _nonnegative(where, "strengths", strengths)
    check_shape(where, "strengths", modes, (None,))
    return modes


def _padded(where: str, strengths: object, widths: tuple[int, int, int]) -> Float[Array, " hidden"]:
    """One strength per hidden unit: zeros after those that are given."""
    modes = _strengths(where, strengths)
    if modes.shape[0] > min(widths):
        raise ValueError(
            f"{where}: strengths must be at most {min(widths)} numbers for widths {widths}, but are {modes.shape[0]}; "
            "a bottleneck learns only the largest of the target's singular values."
        )
    if is_concrete(modes):
        return jnp.asarray(np.pad(np.asarray(modes), (0, widths[1] - modes.shape[0])), dtype=float)
    return jnp.pad(modes, (0, widths[1] - modes.shape[0]))


def _check_feasible(where: str, lam: Float[Array, "..."], widths: tuple[int, int, int]) -> None:
    r"""Refuse a sign of $\lambda$ for which no $\lambda$-balanced layers of these widths exist."""
    if not is_concrete(lam) or not lam.size:
        return
    inp, hidden, out = widths
    low, high = float(np.min(np.asarray(lam))), float(np.max(np.asarray(lam)))
    if high > 0 and out < hidden:
        raise ValueError(
            f"{where}: lam > 0 needs at least as many outputs as hidden units, but the widths are {widths} and lam is "
            f"{high:g}."
        )
    if low < 0 and inp < hidden:
        raise ValueError(
            f"{where}: lam < 0 needs at least as many inputs as hidden units, but the widths are {widths} and lam is "
            f"{low:g}."
        )
