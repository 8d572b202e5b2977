"""What of the machine this process may use."""

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
from jax.core import Tracer

F = TypeVar("F", bound=Callable[..., Any])

_TURN = threading.RLock()

SHARE = "DEEPLINEAR_PROCESSORS"
"""Variable of the environment that limits a worker to its share of the processors."""


def processors() -> int:
    """Processors this process may use: those it is bound to, and no more than its share if it was given one."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(SHARE, "")
    return max(1, min(bound, int(share))) if share.isdigit() else bound


def one_at_a_time(function: F) -> F:
    """A compiled function that decomposes batches of matrices, kept from running in two threads at once.

    On a CPU the parts of such a batch are spread over the threads of XLA's pool from within that pool; two programs
    that do so at the same time may wait for each other for ever. Under a transformation the function just runs.
    """

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves((args, kwargs))):
            return function(*args, **kwargs)
        with _TURN:
            return jax.block_until_ready(function(*args, **kwargs))

    return cast(F, run)
