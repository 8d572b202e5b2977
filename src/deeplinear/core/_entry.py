"""What every public function does with its arrays before anything is computed.

`entry` goes over the arguments of a function: it converts each supported kind of array into what the package computes
with, refuses all others by name, and refuses traced values where a function needs concrete numbers.
"""

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, overload

import jax
import jaxtyping
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from deeplinear.core._arrays import as_array
from deeplinear.core._errors import check_size, is_concrete, is_within_run
from deeplinear.core._layers import checked_layer
from deeplinear.core._xp import quietly

P = ParamSpec("P")
R = TypeVar("R")

TRANSFORMATIONS = {"DynamicJaxprTracer": "jit", "BatchTracer": "vmap"}
"""The transformation that makes each kind of traced value; the other kinds belong to `grad`."""


class TracedError(TypeError):
    """A function that needs concrete numbers was called inside a transformation of JAX."""

    def __init__(self, where: str, name: str, by: str, instead: str) -> None:
        super().__init__(f"{where} needs concrete numbers, but {name} is traced by {by}; {instead}.")
        self.where = where
        self.name = name
        self.by = by
        self.instead = instead

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.where, self.name, self.by, self.instead)


def concrete(where: str, name: str, value: Any, *, instead: str) -> None:
    """Refuse traced values, also inside lists and modules.

    Args:
        where: Package and function.
        name: Name of the argument.
        value: What was passed.
        instead: What to use instead.
    """
    if isinstance(value, Iterator):  # it can be gone through only once, by the function
        return
    for leaf in [value] if isinstance(value, jax.Array) else jax.tree.leaves(value):
        if not is_concrete(leaf):
            raise TracedError(where, name, TRANSFORMATIONS.get(type(leaf).__name__, "grad"), instead)


def no_gradient(where: str, name: str, value: Any, *, instead: str) -> Any:
    """Return an array as it is, and refuse to differentiate with respect to it.

    Args:
        where: Package and function.
        name: Name of the argument.
        value: The array, also a traced one.
        instead: What to use instead.
    """
    if is_concrete(value):
        return value

    @jax.custom_jvp
    def same(array: jax.Array) -> jax.Array:
        return array

    @same.defjvp
    def _refuse(*_: Any) -> Any:
        raise TracedError(where, name, "grad", instead)

    return same(value)


def forward_only(where: str, result: Any, *, instead: str) -> Any:
    """Return a result as it is, with derivatives of forward mode; those of reverse mode are refused by name.

    Args:
        where: Package and function.
        result: Arrays, in any tree.
        instead: What to use instead of `jax.grad`.
    """

    def guarded(leaf: Any) -> Any:
        traced = not is_concrete(leaf) and jax.numpy.issubdtype(leaf.dtype, np.floating)
        return _forward.bind(leaf, where=where, instead=instead) if traced else leaf

    return jax.tree.map(guarded, result)


def _transposed(cotangent: Any, array: Any, *, where: str, instead: str) -> Any:
    raise TracedError(where, "its argument", "grad", instead)


_forward = Primitive("forward_only")  # the identity; reverse mode alone transposes it
_forward.def_impl(lambda array, **_: array)
_forward.def_abstract_eval(lambda array, **_: array)
ad.primitive_jvps[_forward] = lambda primals, tangents, **names: (
    _forward.bind(primals[0], **names),
    tangents[0] if isinstance(tangents[0], ad.Zero) else _forward.bind(tangents[0], **names),
)
ad.primitive_transposes[_forward] = _transposed
batching.primitive_batchers[_forward] = lambda arrays, places, **names: (_forward.bind(*arrays, **names), places[0])
mlir.register_lowering(_forward, lambda _, array, **__: [array])


@overload
def entry(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def entry(
    *,
    instead: str | None = None,
    empty: bool = False,
    sized: tuple[str, ...] = (),
    bounded: tuple[str, ...] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def entry(
    function: Any = None,
    /,
    *,
    instead: str | None = None,
    empty: bool = False,
    sized: tuple[str, ...] = (),
    bounded: tuple[str, ...] = (),
) -> Any:
    """Convert the arrays that a function is given, and refuse those that it cannot use.

    NumPy arrays of any byte order and lists become arrays of the default float type where the annotation is an array of
    floats; arrays of JAX keep their type. Complex numbers, objects, texts and empty matrices are refused by name.

    Args:
        function: The function; left out where options follow.
        instead: For a function that needs concrete numbers, what to use instead of calling it with traced ones.
        empty: Whether empty matrices are welcome.
        sized: Parameters whose numbers are refused where their squares would overflow or vanish.
        bounded: Parameters whose numbers are refused where their squares would overflow.

    Example:
        >>> @entry
        ... def total(matrix: Matrix):
        ...     return float(matrix.sum())
        >>> total(np.ones((2, 2), dtype=">f4"))
        4.0
    """
    if function is None:
        again: Any = entry
        return lambda later: again(later, instead=instead, empty=empty, sized=sized, bounded=bounded)
    where = function.__qualname__.removesuffix(".__init__")
    package = [*(function.__module__ or "").split("."), "", ""][1]
    full = f"{package}.{where}" if package else where
    parameters = list(inspect.signature(function).parameters.values())
    checked_names = {*sized, *bounded}
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "argument")
    kinds = {p.name: _kind(p.annotation) for p in parameters}

    def converted(name: str, value: Any) -> Any:
        if name == "self":
            return value
        if instead is not None:
            concrete(full, name, value, instead=instead)
        found = _converted(where, name, value, kinds.get(name, ANY), empty)
        if name in checked_names:
            for leaf in jax.tree.leaves(found):
                if isinstance(leaf, jax.Array | np.ndarray | float) and is_concrete(leaf):
                    check_size(where, name, leaf, small=name in bounded)
        return found

    @functools.wraps(function)
    def checked(*args: Any, **options: Any) -> Any:
        if is_within_run():  # numbers that have been converted once
            return function(*args, **options)
        many = names + [rest] * (len(args) - len(names))
        given = [converted(name, value) for name, value in zip(many, args, strict=False)]
        named = {name: converted(name, value) for name, value in options.items()}
        with quietly():
            return function(*given, **named)

    return checked


FLOATS = (np.dtype(np.float64), np.dtype(np.float32))

ANY, NUMBERS, LAYERS = "any", "array of floats", "tuple of arrays of floats"
"""What the annotation of a parameter asks for."""


def _kind(annotation: Any) -> str:
    """What an annotation asks for; `None` and numbers beside arrays make no difference."""
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        return NUMBERS if "float64" in annotation.dtypes and "int64" not in annotation.dtypes else ANY
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        kinds = {_kind(member) for member in typing.get_args(annotation)} - {ANY}
        return kinds.pop() if len(kinds) == 1 else ANY
    members = typing.get_args(annotation)
    if origin is tuple and members and all(m is ... or _kind(m) == NUMBERS for m in members):
        return LAYERS
    return ANY


def _converted(where: str, name: str, value: Any, kind: str, empty: bool) -> Any:
    """One argument as the package computes with it."""
    if isinstance(value, jax.Array | np.ndarray):
        return _array(where, name, value, kind, empty)
    if isinstance(value, complex | np.complexfloating):
        raise TypeError(f"{where}: {name} must be real, but is complex.")
    if kind == NUMBERS and isinstance(value, list | tuple):
        return _array(where, name, checked_layer(where, name, value), kind, empty)
    if isinstance(value, list | tuple):
        inner = NUMBERS if kind == LAYERS else ANY
        labels = getattr(value, "_fields", range(len(value)))
        parts = [
            part
            if isinstance(part, float | int | str)
            else _converted(
                where, f"{name}.{label}" if isinstance(label, str) else f"{name}[{label}]", part, inner, empty
            )
            for label, part in zip(labels, value, strict=True)
        ]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return tuple(value) if kind == LAYERS and isinstance(value, list) else value
        if hasattr(value, "_fields"):
            return typing.cast(Any, type(value))(*parts)
        return tuple(parts) if kind == LAYERS or isinstance(value, tuple) else parts
    if isinstance(value, Mapping) and type(value) is dict:
        return {key: _converted(where, f"{name}[{key!r}]", part, ANY, empty) for key, part in value.items()}
    return value


def _array(where: str, name: str, value: Any, kind: str, empty: bool) -> Any:
    if isinstance(value, jax.Array) and value.dtype in FLOATS:
        array, kind = value, ANY
    elif isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.extended):
        return value  # a key of random numbers
    else:
        array = checked_layer(where, name, value)
    if array.ndim > 1 and not array.size and not empty:
        raise ValueError(
            f"{where}: {name} must have at least one row and one column, but has shape {tuple(array.shape)}."
        )
    return as_array(array, float) if kind == NUMBERS else array
