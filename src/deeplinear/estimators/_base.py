"""What the estimators share: 64-bit numbers while they compute."""

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


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
