"""What `jit`, `vmap` and `grad` do with every public function, one table for each package.

A table maps each public name of its package to a row: `passes` or `refuses` with a call on random arrays, or `outside`
for what takes no arrays. `laws/test_traces.py` holds every row to account, and `docs/transformations.md` shows them.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

ANNOTATED = "takes lists too, but is annotated for arrays, which the tests hold to"


def _same(*arrays: Any) -> tuple[Any, ...]:
    return arrays


class Traced(NamedTuple):
    """A function that takes arrays.

    Attributes:
        call: The function of its arrays alone.
        free: Makes arrays whose entries may move freely, from a generator of random numbers.
        through: From these to the arrays that the function takes, such as symmetric ones; written for traced arrays.
        grad: `"yes"`, `"forward"` (not in reverse mode), `"none"` (integers and the like) or `"refused"`.
        traced: Whether `jit` and `vmap` pass.
        scales: Why the arrays are not multiplied by 1e-200 and 1e200, to see an answer or a refusal; empty if they are.
        kinds: Why the arrays are not also tried in other kinds; empty if they are.
        step: Step of the finite differences.
    """

    call: Callable[..., Any]
    free: Callable[[np.random.Generator], tuple[Any, ...]]
    through: Callable[..., tuple[Any, ...]] = _same
    grad: str = "yes"
    traced: bool = True
    scales: str = ""
    kinds: str = ""
    step: float = 1e-4


class Outside(NamedTuple):
    """A public name that takes no arrays; `why` says what it takes."""

    why: str


Row = Traced | Outside


def passes(
    call: Callable[..., Any],
    free: Callable[[np.random.Generator], tuple[Any, ...]],
    *,
    through: Callable[..., tuple[Any, ...]] = _same,
    grad: str = "yes",
    scales: str = "",
    kinds: str = "",
    step: float = 1e-4,
) -> Traced:
    """Return the row of a function that passes `jit` and `vmap`, and `grad` unless said."""
    return Traced(call, free, through, grad, True, scales, kinds, step)


def refuses(
    call: Callable[..., Any],
    free: Callable[[np.random.Generator], tuple[Any, ...]],
    *,
    through: Callable[..., tuple[Any, ...]] = _same,
    scales: str = "",
    kinds: str = "",
) -> Traced:
    """Return the row of a function that refuses traced arrays."""
    return Traced(call, free, through, "refused", False, scales, kinds)


def outside(why: str) -> Outside:
    """Return the row of a name that takes no arrays."""
    return Outside(why)


def normal(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """Independent normal arrays of these shapes."""
    return lambda rng: tuple(rng.normal(size=shape) for shape in shapes)


def positive(*shapes: tuple[int, ...]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """Independent numbers between 0.5 and 2."""
    return lambda rng: tuple(rng.uniform(0.5, 2.0, size=shape) for shape in shapes)


def layers(*widths: int) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """One network: normal layers between these widths, as a single argument."""
    shapes = [(above, below) for below, above in itertools.pairwise(widths)]
    return lambda rng: (tuple(rng.normal(size=shape) for shape in shapes),)


def both(*makers: Callable[[np.random.Generator], tuple[Any, ...]]) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """The arguments of several makers, one after another."""
    return lambda rng: tuple(argument for maker in makers for argument in maker(rng))


def near(*values: Any) -> Callable[[np.random.Generator], tuple[Any, ...]]:
    """Arrays, or tuples of arrays, that differ from these numbers by at most a tenth of each."""

    def moved(rng: np.random.Generator, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(moved(rng, part) for part in value)
        array = np.asarray(value, dtype=float)
        return array * rng.uniform(0.9, 1.1, size=array.shape)

    return lambda rng: tuple(moved(rng, value) for value in values)
