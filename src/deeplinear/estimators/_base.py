"""What the estimators share: 64-bit numbers while they compute, sides that are filled up, the size of random starts."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

from deeplinear.models import DeepLinear, MatchedGaussian

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")

STRIDE = 64
"""Sides are filled up to powers of two up to this, and to multiples of it above."""


def in_64_bit(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """Let a function compute with 64-bit numbers, whatever JAX is set to around it.

    The setting holds for this thread and this call only, so a program that uses JAX in 32 bits for its own work is not
    touched.
    """

    @functools.wraps(function)
    def wide(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wide


def filled_up(size: int, least: int) -> int:
    """What a side is filled up to, `least` or more, so that programs are compiled for few shapes only."""
    return max(least, 1 << (size - 1).bit_length()) if size <= STRIDE else -(-size // STRIDE) * STRIDE


def matched_std(scale: float, widths: tuple[int, ...]) -> float:
    """Standard deviation of Gaussian layers whose product has entries of standard deviation `scale`, 0 or more."""
    return float(MatchedGaussian(scale, rule="product").std(DeepLinear(widths))) if scale > 0 else 0.0
