"""Small data sets: whitened inputs, random and hierarchical tasks, low-rank targets and masks."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int, UInt8

from deeplinear.core import (
    Array,
    Matrix,
    RandomKey,
    as_array,
    check_count,
    check_finite,
    check_key,
    check_number,
    check_shape,
    differentiable,
    entry,
    formula,
    is_concrete,
    random,
    random_orthogonal,
    stop_gradient,
    xp,
)

LEAST_EIGENVALUE_RATIO = 1e-12
"""Covariances whose extreme eigenvalues are further apart count as rank-deficient."""


class Samples(NamedTuple):
    """Training set with samples in columns: `inputs` is (in, samples), `outputs` is (out, samples)."""

    inputs: Float[Array, "inp samples"]
    outputs: Float[Array, "out samples"]


class Images(NamedTuple):
    """Images with their classes, for training and for testing.

    Attributes:
        train: Images (number, rows, columns, channels) in bytes.
        train_labels: Their classes, from 0 on.
        test: Images that are not trained on.
        test_labels: Their classes.
        classes: Number of classes.
    """

    train: UInt8[np.ndarray, "train rows columns channels"]
    train_labels: Int[np.ndarray, " train"]
    test: UInt8[np.ndarray, "test rows columns channels"]
    test_labels: Int[np.ndarray, " test"]
    classes: int


@entry
def whiten(inputs: object) -> Float[Array, "inp samples"]:
    r"""Whitened inputs $(XX^\top/P)^{-1/2} X$, whose covariance is the identity.

    The symmetric square root moves the samples as little as any whitening can. With the singular value
    decomposition $X = U S V^\top$ the result is $\sqrt P\, U V^\top$, orthonormal to rounding however badly
    conditioned $X$ is.

    Args:
        inputs: $X$, (in, samples), of full row rank, so with at least as many samples as rows.

    Returns:
        Whitened inputs, of the same shape.

    Example:
        >>> x = whiten(jnp.array([[1.0, 2.0, 3.0], [0.0, 1.0, -1.0]]))
        >>> bool(jnp.allclose(x @ x.T / 3, jnp.eye(2)))
        True
    """
    x = as_array(inputs, float)
    check_shape("whiten", "inputs", x, (None, None))
    check_finite("whiten", "inputs", x)
    rows, samples = x.shape
    if samples < rows or rows == 0:
        raise ValueError(
            f"whiten: inputs must have at least as many samples (columns) as rows, and a row, but has shape {x.shape}."
        )
    white, lowest, highest = _whitened(x)
    message = "whiten: inputs must have full row rank, but the eigenvalues of their covariance "
    if is_concrete(lowest):
        if float(lowest) <= LEAST_EIGENVALUE_RATIO * float(highest):
            raise ValueError(f"{message}lie between {float(lowest):.1e} and {float(highest):.1e} (times 1/P).")
        return white
    deficient = lowest <= LEAST_EIGENVALUE_RATIO * highest
    return eqx.error_if(white, deficient, f"{message}span more than {1 / LEAST_EIGENVALUE_RATIO:.0e}.")


@formula
def _whitened(x: Float[Array, "inp samples"]) -> tuple[Float[Array, "inp samples"], Float[Array, ""], Float[Array, ""]]:
    """Whitened inputs, and the extreme eigenvalues of their covariance times the number of samples."""
    s = xp.linalg.svd(stop_gradient(x), compute_uv=False)
    return math.sqrt(x.shape[1]) * _polar(x), s[-1] ** 2, s[0] ** 2


@differentiable
def _polar(x: Float[Array, "inp samples"]) -> Float[Array, "inp samples"]:
    """Orthonormal rows nearest to those of a matrix of full row rank."""
    u, _, vt = xp.linalg.svd(x, full_matrices=False)
    return u @ vt


@_polar.defjvp
def _polar_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    # Singular vectors have no derivative at equal singular values, which white inputs have; their product has one.
    u, s, vt = xp.linalg.svd(primals[0], full_matrices=False)
    moved = u.T @ tangents[0]
    inside = moved @ vt.T
    turned = (inside - inside.T) / (s[:, None] + s)
    return u @ vt, u @ (turned @ vt + (moved - inside @ vt) / s[:, None])


def random_regression(
    key: RandomKey, inp: int, out: int, samples: int, *, sigma: ArrayLike = 1.0, per_output: bool = True
) -> Samples:
    r"""Whitened Gaussian inputs with independent Gaussian outputs, so that no linear map fits exactly.

    Outputs have standard deviation $\sigma/\sqrt{d_{\mathrm{out}}}$, or plainly $\sigma$ with `per_output=False`.

    Args:
        key: Randomness.
        inp: Input width.
        out: Output width.
        samples: Number of samples, at least the input width.
        sigma: Scale of the outputs.
        per_output: Whether to divide the scale by the root of the output width.

    Returns:
        Inputs and outputs, samples in columns.

    Example:
        >>> random_regression(jax.random.key(0), 3, 2, 10).outputs.shape
        (2, 10)
    """
    check_key("random_regression", key)
    check_count("random_regression", "inp", inp, at_least=1)
    check_count("random_regression", "out", out, at_least=1)
    check_count("random_regression", "samples", samples, at_least=inp)
    check_number("random_regression", "sigma", sigma, at_least=0)
    raw, outputs = _gaussian_samples(key, as_array(sigma, float), (inp, out, samples), per_output)
    return Samples(whiten(raw), outputs)


@formula(static_argnames=("sizes", "per_output"))
def _gaussian_samples(
    key: RandomKey, sigma: Float[Array, ""], sizes: tuple[int, int, int], per_output: bool
) -> Samples:
    inp, out, samples = sizes
    key_inputs, key_outputs = random.split(key)
    std = sigma / (math.sqrt(out) if per_output else 1.0)
    return Samples(random.normal(key_inputs, (inp, samples)), std * random.normal(key_outputs, (out, samples)))


_HIERARCHY = (
    (1, 1, 1, 1, 1, 1, 1, 1),
    (1, 1, 1, 1, -1, -1, -1, -1),
    (1, 1, -1, -1, 0, 0, 0, 0),
    (0, 0, 0, 0, 1, 1, -1, -1),
    (1, -1, 0, 0, 0, 0, 0, 0),
    (0, 0, 1, -1, 0, 0, 0, 0),
    (0, 0, 0, 0, 1, -1, 0, 0),
    (0, 0, 0, 0, 0, 0, 1, -1),
)


def semantic_hierarchy(scale: ArrayLike = 1.0, perturbed: bool = False) -> Samples:
    r"""Eight items of a two-level tree (fish, birds, algae, flowers) with eight distinguishing features.

    Inputs are $\sqrt8\,I$ and outputs $\sqrt8\,c\,M$, so the inputs are white and the input-output covariance is
    $c M$. Features (rows of $M$): root, animal or plant, fish or bird, alga or flower, one per pair of leaves.
    The singular values of $M$ are $\sqrt8$ twice, $2$ twice and $\sqrt2$ four times.

    Args:
        scale: $c$.
        perturbed: Whether to multiply column $i$ by $1 + 0.1/i$, which makes all singular values distinct.

    Returns:
        Inputs (8, 8) and outputs (8, 8), one column per item.

    Example:
        >>> x, y = semantic_hierarchy()
        >>> jnp.linalg.svd(y @ x.T / 8, compute_uv=False).round(4)[:3]
        Array([2.8284, 2.8284, 2.    ], dtype=float64)
    """
    check_number("semantic_hierarchy", "scale", scale)
    labels = np.asarray(_HIERARCHY, dtype=float)
    if perturbed:
        labels = labels * (1 + 0.1 / np.arange(1, 9))
    return _hierarchy(as_array(scale, float), as_array(labels))


@formula
def _hierarchy(scale: Float[Array, ""], labels: Matrix) -> Samples:
    root = math.sqrt(8.0)
    return Samples(root * xp.eye(8, dtype=float), root * scale * labels)


def low_rank_target(key: RandomKey, shape: tuple[int, int], rank: int, *, std: ArrayLike = 1.0) -> Matrix:
    r"""Gaussian low-rank matrix $W^\star = \sigma\, U V^\top / \sqrt{r}$.

    $U$ and $V$ have $r$ columns with independent standard normal entries, so every entry of $W^\star$ has mean
    zero and standard deviation $\sigma$ whatever the rank.

    Args:
        key: Randomness.
        shape: Shape (out, in).
        rank: $r$, from 1 to the smaller side.
        std: $\sigma$.

    Returns:
        The target, (out, in).

    Example:
        >>> int(jnp.linalg.matrix_rank(low_rank_target(jax.random.key(0), (5, 4), 2)))
        2
    """
    check_key("low_rank_target", key)
    rows, columns = _extent("low_rank_target", shape)
    check_count("low_rank_target", "rank", rank, at_least=1)
    most = min(rows, columns)
    if rank > most:
        raise ValueError(f"low_rank_target: rank must be at most {most} for shape {shape}, but is {rank}.")
    check_number("low_rank_target", "std", std, above=0)
    return _low_rank(key, as_array(std, float), (rows, columns), int(rank))


@entry
def spectral_target(key: RandomKey, shape: tuple[int, int], values: Any) -> Matrix:
    r"""Matrix $U\,\mathrm{diag}(s)\,V^\top$ with given singular values and random singular vectors.

    Args:
        key: Randomness.
        shape: Shape (out, in).
        values: $s$, at most as many as the smaller side.

    Returns:
        The target, (out, in).

    Example:
        >>> jnp.linalg.svd(spectral_target(jax.random.key(0), (4, 3), [3.0, 1.0]), compute_uv=False).round(12)
        Array([3., 1., 0.], dtype=float64)
    """
    check_key("spectral_target", key)
    rows, columns = _extent("spectral_target", shape)
    found = as_array(values, float)
    check_shape("spectral_target", "values", found, (None,))
    check_finite("spectral_target", "values", found)
    if found.shape[0] > min(rows, columns):
        most = min(rows, columns)
        raise ValueError(f"spectral_target: values must be at most {most} for shape {shape}, but are {found.shape[0]}.")
    # Random bases are compiled for each side, not for each pair of sides.
    left, right = (random_orthogonal(k, side) for k, side in zip(random.split(key), (rows, columns), strict=True))
    return _spectral(left, found, right)


@formula
def _spectral(left: Matrix, values: Float[Array, " rank"], right: Matrix) -> Matrix:
    return (left[:, : len(values)] * values) @ right[:, : len(values)].T


@formula(static_argnames=("shape", "rank"))
def _low_rank(key: RandomKey, std: Float[Array, ""], shape: tuple[int, int], rank: int) -> Matrix:
    key_left, key_right = random.split(key)
    left, right = random.normal(key_left, (shape[0], rank)), random.normal(key_right, (shape[1], rank))
    return std / math.sqrt(rank) * (left @ right.T)


def random_mask(key: RandomKey, shape: tuple[int, int], count: int) -> Bool[Array, "out inp"]:
    """Mask with exactly `count` observed entries, every such pattern equally likely.

    Args:
        key: Randomness.
        shape: Shape (out, in).
        count: Number of observed entries, from 1 to all.

    Returns:
        True where observed.

    Example:
        >>> int(random_mask(jax.random.key(0), (5, 4), 7).sum())
        7
    """
    check_key("random_mask", key)
    rows, columns = _extent("random_mask", shape)
    check_count("random_mask", "count", count, at_least=1)
    if count > rows * columns:
        raise ValueError(f"random_mask: count must be at most {rows * columns} for shape {shape}, but is {count}.")
    return _mask(key, count, (rows, columns))


@formula(static_argnames="shape")
def _mask(key: RandomKey, count: int | Int[Array, ""], shape: tuple[int, int]) -> Bool[Array, "out inp"]:
    return (random.permutation(key, math.prod(shape)) < count).reshape(shape)


def _extent(where: str, shape: tuple[int, int]) -> tuple[int, int]:
    """`shape` as two positive integers, or a refusal."""
    if len(shape) != 2:
        raise ValueError(f"{where}: shape must be (out, in), but is {shape}.")
    for position, size in enumerate(shape):
        check_count(where, f"shape[{position}]", size, at_least=1)
    return int(shape[0]), int(shape[1])
