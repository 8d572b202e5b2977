"""One formula for two array modules: NumPy for numbers, `jax.numpy` for what is traced or on an accelerator.

`xp` stands where `jnp` or `np` would: `xp.exp(x)` is `numpy.exp` of a number, `jax.numpy.exp` of a tracer. A function
under `formula` gets its arguments as NumPy arrays where all of them are numbers, and answers without tracing or
compiling anything; where one of them is traced, or lies on an accelerator, the same lines are one program of JAX.

Arrays that a formula makes itself (`xp.zeros`, `xp.arange`) are NumPy's: JAX takes them as constants. Loops, maps over
members and changed entries have functions of their own here, as NumPy has no transformations and arrays of JAX cannot
be written to.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

Carry = TypeVar("Carry")


PLAIN = (np.ndarray, np.generic, int, float, str, type(None))
"""What is a number, or none, at first sight."""


def _jax() -> Any:
    """JAX, if anything in this process has imported it: before that nothing can be an array of it."""
    return sys.modules.get("jax")


def is_program(*values: Any) -> bool:
    """Whether values make a formula a program: one of them, or of what they hold, is traced or on an accelerator.

    Example:
        >>> is_program(np.ones(2), 1.0)
        False
    """
    for value in values:
        if not isinstance(value, PLAIN) and (jax := _jax()) is not None and _for_jax(value, jax):
            return True
    return False


def _for_jax(value: Any, jax: Any) -> bool:
    if isinstance(value, jax.Array):
        return isinstance(value, jax.core.Tracer) or not _on_host(value)
    if isinstance(value, tuple | list):
        return is_program(*value)
    if callable(value) and not hasattr(value, "__dataclass_fields__"):
        return False
    leaves = jax.tree.leaves(value)
    return not (len(leaves) == 1 and leaves[0] is value) and is_program(*leaves)


def _on_host(array: Any) -> bool:
    return all(device.platform == "cpu" for device in array.devices())


def as_numbers(value: Any) -> Any:
    """A value with the arrays of JAX in it, which must be numbers on the host, as NumPy's."""
    jax = _jax()
    if jax is None or isinstance(value, PLAIN):
        return value
    if isinstance(value, jax.Array):
        return value if _is_key(value, jax) else np.asarray(value)
    if type(value) in (tuple, list):
        return type(value)(as_numbers(item) for item in value)
    if callable(value) and not hasattr(value, "__dataclass_fields__"):
        return value
    leaves, structure = jax.tree.flatten(value)
    if not any(isinstance(leaf, jax.Array) for leaf in leaves):
        return value
    return jax.tree.unflatten(structure, [as_numbers(leaf) if leaf is not value else leaf for leaf in leaves])


def _is_key(value: Any, jax: Any) -> bool:
    return jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def quietly() -> np.errstate:
    """Context in which formulas say nothing of infinities and 0/0 on branches that `where` leaves out, as in JAX."""
    return np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore")


def formula(function: Callable[..., Any] | None = None, **settings: Any) -> Any:
    """Decorator of a formula: plain NumPy for numbers, one compiled program for what JAX traces or holds elsewhere.

    Args:
        function: The formula, written with `xp`.
        settings: For `jax.jit`, such as `static_argnums`.

    Example:
        >>> @formula
        ... def half(x):
        ...     return xp.sum(x) / 2
        >>> half(np.arange(3.0))
        np.float64(1.5)
    """
    if function is None:
        return functools.partial(formula, **settings)
    programs: list[Any] = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_program(*args, *kwargs.values()):
            if not programs:
                import jax

                programs.append(jax.jit(function, **{"inline": True, **settings}))
            return programs[0](*args, **kwargs)
        with quietly():
            return function(*map(as_numbers, args), **{name: as_numbers(value) for name, value in kwargs.items()})

    return call


class Differentiable:
    """A function with a derivative of its own for JAX; made by `differentiable`."""

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        self.function, self.settings, self.rule, self.program = function, settings, None, None
        self.options: dict[str, Any] = {}
        functools.update_wrapper(self, function)

    def defjvp(self, rule: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
        """Give the rule: `(primals, tangents) -> (value, tangent)`, as for `jax.custom_jvp`; with its options."""
        if rule is None:
            return functools.partial(self.defjvp, **options)
        self.rule, self.options = rule, options
        return rule

    def __call__(self, *args: Any) -> Any:
        if not is_program(*args):
            with quietly():
                return self.function(*map(as_numbers, args))
        if self.program is None:
            import jax

            self.program = jax.custom_jvp(self.function, **self.settings)
            assert self.rule is not None
            self.program.defjvp(self.rule, **self.options)
        return self.program(*args)


def differentiable(function: Callable[..., Any] | None = None, **settings: Any) -> Any:
    """Decorator of a formula whose derivative is given by a rule (`.defjvp`), as `jax.custom_jvp` has it."""
    return functools.partial(Differentiable, **settings) if function is None else Differentiable(function)


# --- The namespace ----------------------------------------------------------------------------------------------------


class _Namespace:
    """Functions of one module that choose between NumPy and JAX by their arguments."""

    def __init__(self, plain: str, traced: str, **inside: "_Namespace") -> None:
        self._plain, self._traced = plain, traced
        self.__dict__.update(inside)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = getattr(importlib.import_module(self._plain), name)
        chosen = value if isinstance(value, type) or not callable(value) else _choosing(self._traced, name, value)
        setattr(self, name, chosen)
        return chosen


def _choosing(traced: str, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_program(*args) or (kwargs and is_program(*kwargs.values())):
            return getattr(importlib.import_module(traced), name)(*args, **kwargs)
        return plain(*args, **kwargs)

    return call


if TYPE_CHECKING:
    import jax.numpy as xp
    import jax.scipy.linalg as splinalg
    import jax.scipy.special as special

    __all__ = ("special", "splinalg", "xp")
else:
    xp = _Namespace("numpy", "jax.numpy", linalg=_Namespace("numpy.linalg", "jax.numpy.linalg"))
    """NumPy for numbers, `jax.numpy` for what is traced or on an accelerator."""

    special = _Namespace("scipy.special", "jax.scipy.special")
    """Special functions of SciPy for numbers, of JAX for what is traced or on an accelerator."""

    splinalg = _Namespace("scipy.linalg", "jax.scipy.linalg")
    """Linear algebra of SciPy for numbers, of JAX for what is traced or on an accelerator."""


def put(array: Any, index: Any, value: Any, **hints: Any) -> Any:
    """An array with some entries replaced; `hints` are for JAX's indexed updates.

    Example:
        >>> put(np.zeros(3), 1, 2.0)
        array([0., 2., 0.])
    """
    if is_program(array, value, index):
        import jax.numpy

        return jax.numpy.asarray(array).at[index].set(value, **hints)
    out = np.array(array)
    out[index] = value
    return out


def add_at(array: Any, index: Any, value: Any, **hints: Any) -> Any:
    """An array with values added to some entries; entries named twice get both."""
    if is_program(array, value, index):
        import jax.numpy

        return jax.numpy.asarray(array).at[index].add(value, **hints)
    out = np.array(array)
    np.add.at(out, index, value)
    return out


def entries(array: Any, index: Any) -> Any:
    """Entries of an array; those whose index cannot be seen and lies outside are NaN."""
    if is_program(array, index):
        import jax.numpy

        return jax.numpy.asarray(array).at[index].get(mode="fill", fill_value=jax.numpy.nan)
    return array[index]


def stop_gradient(value: Any) -> Any:
    """A value that derivatives take for a constant."""
    if not is_program(value):
        return value
    import jax

    return jax.lax.stop_gradient(value)


def fori_loop(lower: int, upper: int, body: Callable[[Any, Carry], Carry], start: Carry) -> Carry:
    """`jax.lax.fori_loop`; a loop of Python for numbers."""
    if is_program(lower, upper, start) or _closes_over(body):
        import jax

        return jax.lax.fori_loop(lower, upper, body, start)
    for number in range(int(lower), int(upper)):
        start = body(number, start)
    return start


def while_loop(goes_on: Callable[[Carry], Any], body: Callable[[Carry], Carry], start: Carry) -> Carry:
    """`jax.lax.while_loop`; a loop of Python for numbers."""
    if is_program(start) or _closes_over(goes_on) or _closes_over(body):
        import jax

        return jax.lax.while_loop(goes_on, body, start)
    while goes_on(start):
        start = body(start)
    return start


def scan(
    body: Callable[[Carry, Any], tuple[Carry, Any]],
    start: Carry,
    items: Any,
    length: int | None = None,
    *,
    reverse: bool = False,
) -> tuple[Carry, Any]:
    """`jax.lax.scan`; a loop of Python for numbers."""
    if is_program(start, items) or _closes_over(body):
        import jax

        return jax.lax.scan(body, start, items, length, reverse=reverse)
    count = length if items is None else len(_leaves(items)[0])
    assert count is not None
    if count == 0:
        import jax

        return _empty(functools.partial(jax.lax.scan, body), start, items, length)
    found: list[Any] = [None] * count
    for number in range(count)[:: -1 if reverse else 1]:
        start, found[number] = body(start, _entry(items, number))
    return start, _stacked(found)


def over(function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """`jax.vmap`; a loop of Python for numbers, whose results are stacked.

    Example:
        >>> over(lambda x: x + 1)(np.arange(3))
        array([1, 2, 3])
    """

    def call(*args: Any) -> Any:
        if is_program(*args) or _closes_over(function):
            import jax

            return jax.vmap(function, in_axes, out_axes)(*args)
        axes = [in_axes] * len(args) if isinstance(in_axes, int | None) else list(in_axes)
        count = next(np.shape(_leaves(a)[0])[axis] for a, axis in zip(args, axes, strict=True) if isinstance(axis, int))
        if count == 0:
            import jax

            return _empty(jax.vmap(function, in_axes, out_axes), *args)
        found = [function(*(_entry(a, k, axis) for a, axis in zip(args, axes, strict=True))) for k in range(count)]
        return _stacked(found, out_axes)

    return call


def cond(which: Any, yes: Callable[..., Any], no: Callable[..., Any], *args: Any) -> Any:
    """`jax.lax.cond`; a choice of Python for numbers."""
    if is_program(which, *args) or _closes_over(yes) or _closes_over(no):
        import jax

        return jax.lax.cond(which, yes, no, *args)
    return yes(*args) if which else no(*args)


def _closes_over(function: Callable[..., Any], depth: int = 5) -> bool:
    """Whether a function, or one that it calls through its closure, has something traced there."""
    if isinstance(function, functools.partial):
        return is_program(*function.args, *function.keywords.values()) or _closes_over(function.func, depth)
    inside = [getattr(function, "__self__", None)]
    for cell in getattr(function, "__closure__", None) or ():
        try:
            inside.append(cell.cell_contents)
        except ValueError:  # not set yet
            continue
    functions = [item for item in inside if callable(item) and hasattr(item, "__closure__")]
    return is_program(*inside) or (depth > 0 and any(_closes_over(item, depth - 1) for item in functions))


def _empty(function: Callable[..., Any], *args: Any) -> Any:
    """What a function of JAX gives for arrays without entries: only the shapes are asked for."""
    import jax

    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), jax.eval_shape(function, *args))


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray | np.generic):
        return [value]
    import jax

    return jax.tree.leaves(value)


def _entry(value: Any, number: int, axis: int | None = 0) -> Any:
    if axis is None or value is None:
        return value
    if isinstance(value, np.ndarray):
        return value[number] if axis == 0 else np.take(value, number, axis)
    import jax

    return jax.tree.map(lambda leaf: np.take(leaf, number, axis), value)


def _stacked(items: Sequence[Any], axis: int = 0) -> Any:
    if items[0] is None:
        return None
    if isinstance(items[0], np.ndarray | np.generic | int | float):
        return np.stack([np.asarray(item) for item in items], axis)
    import jax

    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves], axis), *items)
