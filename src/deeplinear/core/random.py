"""Random numbers of keys, the same ones as `jax.random` draws, without JAX where the key is known.

A key is that of `jax.random.key`, or its two words. From a key whose words can be seen, NumPy computes what JAX's
generator (Threefry, 20 rounds) gives: `split`, `fold_in`, `bits`, `uniform`, `randint` and `permutation` agree with
`jax.random` to the last bit, `normal` and `orthogonal` to rounding, as they take another routine for the quantile of
the normal distribution and for QR. Nothing is compiled. From a traced key, or one of another generator, JAX draws.

SciPy has that quantile too; loading `scipy.special` takes longer than what draws the start of a run.
"""

import math
import sys
from typing import Any

import numpy as np

from deeplinear.core._xp import is_program

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Bits by which Threefry 2x32 turns its words, in groups of four rounds."""

PARITY = 0x1BD11BDA
"""The constant of Threefry that joins the words of a key to a third one."""

# Numerators and denominators, highest power first: M. J. Wichura, Algorithm AS 241, Applied Statistics 37 (1988).
CENTRAL = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
MIDDLE = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
FAR = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def key(seed: int) -> np.ndarray:
    """Key of a seed: the words of `jax.random.key(seed)`.

    Example:
        >>> key(7)
        array([0, 7], dtype=uint32)
    """
    return np.array([seed >> 32 & 0xFFFFFFFF, seed & 0xFFFFFFFF], np.uint32)


def words(key: Any) -> np.ndarray | None:
    """The two words of each key, last axis; None where they cannot be seen or are another generator's."""
    if isinstance(key, np.ndarray):
        return key if key.dtype == np.uint32 and key.shape[-1:] == (2,) else None
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(key, jax.Array) or is_program(key) or not jax.config.jax_threefry_partitionable:
        return None
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        if jax.random.key_impl(key) != "threefry2x32":
            return None
        with jax.ensure_compile_time_eval():  # also while something else is traced
            return np.asarray(jax.random.key_data(key))
    return words(np.asarray(key))


def _of_jax() -> Any:
    import jax.random

    return jax.random


def threefry(key: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """Threefry 2x32 with 20 rounds: two words for each pair of counters.

    Args:
        key: Two words.
        high: First counters, of 32 bits.
        low: Second counters.
    """
    first, second = np.uint32(key[0]), np.uint32(key[1])
    schedule = (first, second, first ^ second ^ np.uint32(PARITY))
    with np.errstate(over="ignore"):
        left, right = high + first, low + second
        for group in range(5):
            for bits in ROTATIONS[group % 2]:
                left = left + right
                right = (right << np.uint32(bits)) | (right >> np.uint32(32 - bits))
                right ^= left
            left = left + schedule[(group + 1) % 3]
            right = right + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return left, right


def _counted(key: np.ndarray, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Two words for each entry of an array."""
    counts = np.arange(math.prod(shape), dtype=np.uint64).reshape(shape)
    return threefry(key, (counts >> np.uint64(32)).astype(np.uint32), counts.astype(np.uint32))


def split(key: Any, num: int | tuple[int, ...] = 2) -> Any:
    """New keys from one, as `jax.random.split`.

    Example:
        >>> split(np.array([0, 7], np.uint32)).shape
        (2, 2)
    """
    seen = words(key)
    if seen is None:
        return _of_jax().split(key, num)
    return np.stack(_counted(seen, (num,) if isinstance(num, int) else tuple(num)), axis=-1)


def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and a number, as `jax.random.fold_in`."""
    seen = words(key)
    if seen is None or is_program(data):
        return _of_jax().fold_in(key, data)
    return np.stack(threefry(seen, np.zeros((), np.uint32), np.asarray(int(data) & 0xFFFFFFFF, np.uint32)))


def bits(key: Any, shape: tuple[int, ...] = (), width: int = 32) -> Any:
    """Random whole numbers of 32 or 64 bits, as `jax.random.bits`."""
    seen = words(key)
    if seen is None:
        return _of_jax().bits(key, shape, f"uint{width}")
    high, low = _counted(seen, tuple(shape))
    return high ^ low if width == 32 else high.astype(np.uint64) << np.uint64(32) | low


def uniform(key: Any, shape: tuple[int, ...] = (), dtype: Any = float, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Uniform numbers in [minval, maxval), as `jax.random.uniform`."""
    kind = np.dtype(dtype)
    if words(key) is None or is_program(minval, maxval) or kind.itemsize not in (4, 8):
        return _of_jax().uniform(key, shape, dtype, minval, maxval)
    width, mantissa = 8 * kind.itemsize, np.finfo(kind).nmant
    whole = np.asarray(bits(key, shape, width)) >> np.array(width - mantissa, f"uint{width}")
    parts = (whole | np.ones((), kind).view(whole.dtype)).view(kind) - kind.type(1)
    low, high = np.asarray(minval, kind), np.asarray(maxval, kind)
    return np.maximum(low, parts * (high - low) + low)


def bernoulli(key: Any, chance: float = 0.5, shape: tuple[int, ...] = ()) -> Any:
    """Whether each of independent events with one chance happens, as `jax.random.bernoulli`."""
    return uniform(key, shape) < chance


def randint(key: Any, shape: tuple[int, ...], minval: Any, maxval: Any) -> Any:
    """Whole numbers from `minval` up to but without `maxval`, as `jax.random.randint`."""
    if words(key) is None or is_program(minval, maxval):
        return _of_jax().randint(key, shape, minval, maxval)
    first, second = split(key)
    span = np.asarray(np.maximum(np.asarray(maxval, np.int64) - minval, 1)).astype(np.uint64)
    with np.errstate(over="ignore"):
        turn = np.uint64(2**32) % span
        turn = turn * turn % span
        offset = ((bits(first, shape, 64) % span) * turn + bits(second, shape, 64) % span) % span
    return np.asarray(minval, np.int64) + offset.astype(np.int64)


def permutation(key: Any, count: int) -> Any:
    """The numbers 0 … count - 1 in random order, as `jax.random.permutation`."""
    if words(key) is None:
        return _of_jax().permutation(key, count)
    order = np.arange(count)
    for _ in range(math.ceil(3 * math.log(max(1, count)) / math.log(2**32 - 1))):
        key, drawn = split(key)
        order = order[np.argsort(bits(drawn, (count,)), kind="stable")]
    return order


def normal(key: Any, shape: tuple[int, ...] = (), dtype: Any = float) -> Any:
    """Independent standard normal numbers, as `jax.random.normal` to rounding."""
    kind = np.dtype(dtype)
    if words(key) is None or kind.itemsize not in (4, 8):
        return _of_jax().normal(key, shape, dtype)
    drawn = uniform(key, shape, kind, np.nextafter(kind.type(-1), kind.type(0)), kind.type(1))
    return np.asarray(quantile(np.asarray(drawn, float))).astype(kind)


def quantile(drawn: Any) -> Any:
    """The number x with P(|X| <= x) = |drawn| for normal X, with the sign of `drawn`, which lies between -1 and 1.

    Relative error about 1e-16.

    Example:
        >>> quantile(np.array([0.6826894921370859]))
        array([1.])
    """
    half = drawn / 2
    near = 0.180625 - half * half
    tail = np.sqrt(-np.log((1 - np.abs(drawn)) / 2))
    outside = np.where(tail <= 5, _ratio(MIDDLE, tail - 1.6), _ratio(FAR, tail - 5))
    return np.where(np.abs(half) <= 0.425, half * _ratio(CENTRAL, near), np.copysign(outside, drawn))


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], at: Any) -> Any:
    return np.polyval(coefficients[0], at) / np.polyval(coefficients[1], at)


def orthogonal(key: Any, rows: int, columns: int | None = None, dtype: Any = float) -> Any:
    """Matrix with orthonormal rows or columns, drawn from Haar measure, as `jax.random.orthogonal` to rounding."""
    count = rows if columns is None else columns
    if words(key) is None:
        return _of_jax().orthogonal(key, rows, dtype=dtype, m=count)
    basis, upper = np.linalg.qr(normal(key, (max(rows, count), min(rows, count)), dtype))
    basis = basis * np.sign(np.diagonal(upper))
    return basis.T if rows < count else basis
