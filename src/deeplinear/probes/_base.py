r"""Probes: named observables $(t, \text{params}, \text{problem}) \mapsto$ array, computed while a run goes on.

A probe knows its `name` and the names `dims` of the dimensions of its output. Those without parameters are functions
under `@probe(...)`; those with parameters are classes whose numbers are arrays. Either way the same probe used again
never compiles anew. Equal dimension names mean equal lengths within one run: `row`, `column` and `mode` belong to the
product, `layer` runs over layers, `pair` over neighbouring layers; everything else carries the name of its probe.
"""

import abc
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Num, Shaped

from deeplinear.core import (
    Params,
    entry,
    is_concrete,
)
from deeplinear.models import DeepLinear, NetworkEntries, Problem

Time = Num[Array, ""] | float | int
"""The time that a probe is given."""


class AbstractProbe(eqx.Module):
    """Named observable of a run; one array per probe."""

    name: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def dims(self) -> tuple[str, ...] | None:
        """Names of the dimensions of the output; `None` if they are to be made from the name of the probe."""

    @abc.abstractmethod
    def __call__(self, t: Time, params: Params, problem: Problem) -> Shaped[Array, "..."]:
        """Value at time `t`."""


class FunctionProbe(AbstractProbe):
    """A plain function as a probe. Made by `probe` or `as_probe`.

    Two of them with the same function, name and dimensions are equal and share compiled code.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    name: str = eqx.field(static=True)
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, function: Callable[..., Any], name: str, labels: tuple[str, ...] | None) -> None:
        self.function = function
        self.name = name
        self.labels = labels

    @property
    def dims(self) -> tuple[str, ...] | None:
        return self.labels

    @entry(bounded=("params",))
    def __call__(self, t: Time, params: Params, problem: Problem) -> Shaped[Array, "..."]:
        value = self.function(t, params, problem)
        if not isinstance(value, jax.Array | np.ndarray | np.generic | int | float | complex):
            raise TypeError(
                f"probe '{self.name}' must give one array, but gives {type(value).__name__}; record the parts of a "
                "result by probes of their own."
            )
        return jnp.asarray(value)


def probe(
    *, dims: tuple[str, ...] | None = None, name: str | None = None
) -> Callable[[Callable[..., Any]], FunctionProbe]:
    """Decorator that makes a function `(t, params, problem) -> array` a probe.

    Args:
        dims: Names of the dimensions of the output; by default made from the name of the probe.
        name: Name of the probe; by default that of the function.

    Example:
        >>> @probe(dims=("column",))
        ... def first_row(t, params, problem):
        ...     return problem.product(params)[0]
        >>> first_row.name, first_row.dims
        ('first_row', ('column',))
    """

    def wrap(function: Callable[..., Any]) -> FunctionProbe:
        label = name if name is not None else getattr(function, "__name__", "")
        if not callable(function):
            raise TypeError(f"probe: a probe must be a function (t, params, problem) -> array, but is {function!r}.")
        if not label.isidentifier():
            raise ValueError(
                f"probe: a probe must have a name, but {function!r} has none. Use a named function, or "
                "probe(name=...)(function); keep the function, as a fresh one compiles anew."
            )
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # Some compiled functions do not tell.
            return FunctionProbe(function, label, dims)
        try:
            signature.bind(None, None, None)
        except TypeError:
            raise TypeError(
                f"probe: '{label}' must take three arguments (t, params, problem), but takes {signature}."
            ) from None
        return FunctionProbe(function, label, dims)

    return wrap


def as_probe(function: Callable[..., Any]) -> AbstractProbe:
    """A probe as it is, or a named function `(t, params, problem) -> array` as a probe.

    Example:
        >>> def trace(t, params, problem):
        ...     return jnp.trace(problem.product(params))
        >>> as_probe(trace).name
        'trace'
    """
    return function if isinstance(function, AbstractProbe) else probe()(function)


def as_probes(functions: Callable[..., Any] | Iterable[Any]) -> tuple[AbstractProbe, ...]:
    """Probes and named functions, or a single one, as probes; refused if two share a name.

    Names of probes and of their dimensions are identifiers; the dimensions `time` and `member` belong to the run.

    Example:
        >>> [item.name for item in as_probes([loss, product])]
        ['loss', 'product']
    """
    if callable(functions):
        functions = (functions,)
    if isinstance(functions, str) or not isinstance(functions, Iterable):
        raise TypeError(f"as_probes: probes must be a list of probes such as [loss], but is {functions!r}.")
    found = tuple(as_probe(item) for item in functions)
    for item in found:
        if not item.name.isidentifier():
            raise ValueError(f"as_probes: the name of a probe must be an identifier, but is {item.name!r}.")
        own = item.dims or ()
        good = len(set(own)) == len(own) and all(label.isidentifier() for label in own)
        if not good or {"time", "member"} & set(own):
            raise ValueError(
                f"as_probes: dims of probe '{item.name}' must be different identifiers other than time and member, but "
                f"are {own}."
            )
    names = [item.name for item in found]
    for label in names:
        if names.count(label) > 1:
            raise ValueError(
                f"as_probes: probes must have different names, but {names.count(label)} are called '{label}'. Drop "
                "one, or name it with its argument name=..."
            )
    return found


def dimension_names(item: AbstractProbe, ndim: int) -> tuple[str, ...]:
    """Names of the dimensions of a probe's output of `ndim` dimensions: its `dims`, or its name with a number.

    Example:
        >>> dimension_names(product, 2)
        ('row', 'column')
    """
    if item.dims is None:
        return tuple(f"{item.name}_{position}" for position in range(ndim))
    if len(item.dims) != ndim:
        raise ValueError(
            f"dimension_names: probe '{item.name}' must give {len(item.dims)} dimensions {item.dims}, but gives {ndim}."
        )
    return item.dims


def network_of(problem: Problem, where: str, *, entries: bool = False) -> DeepLinear:
    """The model as a feed-forward network, or a refusal that names it.

    Args:
        problem: The problem.
        where: Who asks.
        entries: Whether it may be a network of which only some entries are seen: for what looks at layers alone.
    """
    if entries and isinstance(problem.model, NetworkEntries):
        return problem.model.network
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(
            f"{where}: problem.model must be a DeepLinear network, but is {type(problem.model).__name__}; this "
            "probe has no meaning there."
        )
    return problem.model


def check_nonzero(where: str, name: str, value: Array) -> None:
    """Refuse a reference of zero where it can be seen."""
    if is_concrete(value) and not np.any(np.asarray(value)):
        raise ValueError(f"{where}: {name} must not be zero, as the result is relative to it.")


# ---- without parameters
