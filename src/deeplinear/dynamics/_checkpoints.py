"""Runs kept in a folder under the hash of everything that determines them, with a digest of their bytes."""

import dataclasses
import dis
import enum
import functools
import hashlib
import inspect
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    EllipsisType,
    GenericAlias,
    ModuleType,
    UnionType,
)
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import Trajectory, replacing

INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages."""

Seen: TypeAlias = dict[int, tuple[int, Any]]
"""Functions and classes met so far, with their order, by their identity."""


def content_hash(parts: Mapping[str, Any]) -> str:
    """Hash of all that determines a run: problems, layers, methods, rules, probes and plain values by name.

    Functions and classes are what they do: their code, what they enclose, their defaults, and the globals they use,
    which may be functions again. What is installed, this package too, is named with its version. Other modules are
    their names and files: a change in a module of one's own is seen, but not one in a module that it imports.

    Raises:
        TypeError: For something that has no content that can be told.
    """
    seen: Seen = {}
    plain = json.dumps({name: _plain(part, seen) for name, part in sorted(parts.items())}, sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()


def _plain(item: Any, seen: Seen) -> Any:
    """Anything that determines a run as JSON: classes and fields by name, arrays by the hash of their bytes."""
    if item is None or isinstance(item, bool | int | str):
        return item
    if isinstance(item, float):
        return item.hex()
    if isinstance(item, complex | bytes | range | slice | EllipsisType | UnionType | GenericAlias):
        return [type(item).__name__, repr(item)]
    if isinstance(item, jax.Array) and jnp.issubdtype(item.dtype, jax.dtypes.prng_key):
        return ["key", str(item.dtype), _plain(jax.random.key_data(item), seen)]
    if isinstance(item, jax.Array | np.ndarray | np.generic) and not item.dtype.hasobject:
        array = np.ascontiguousarray(item)
        return ["array", str(array.dtype), list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(item, list | tuple):
        return [type(item).__name__, *(_plain(part, seen) for part in item)]
    if isinstance(item, set | frozenset):
        return [type(item).__name__, *sorted(json.dumps(_plain(part, seen)) for part in item)]
    if isinstance(item, Mapping):
        return [type(item).__name__, *([_plain(name, seen), _plain(part, seen)] for name, part in item.items())]
    if isinstance(item, enum.Enum):
        return [_plain(type(item), seen), item.name, _plain(item.value, seen)]
    if isinstance(item, ModuleType):
        own = None if _installed(item.__name__) else getattr(item, "__file__", None)
        return ["module", *_origin(item.__name__), own and hashlib.sha256(Path(own).read_bytes()).hexdigest()]
    if isinstance(item, functools.partial):
        return ["partial", _plain(item.func, seen), _plain(item.args, seen), _plain(item.keywords, seen)]
    if inspect.ismethod(item):
        return ["method", _plain(item.__self__, seen), _plain(item.__func__, seen)]
    if isinstance(item, BuiltinFunctionType):
        return ["builtin", item.__qualname__, _plain(item.__self__, seen)]
    function = inspect.unwrap(item) if callable(item) and not isinstance(item, type) else item
    if inspect.isfunction(function) or isinstance(function, type):
        return _once(function, seen)
    if dataclasses.is_dataclass(item):
        fields = {field.name: _plain(getattr(item, field.name), seen) for field in dataclasses.fields(item)}
        return [_plain(type(item), seen), fields]
    module = str(getattr(item, "__module__", None))
    if callable(item) and hasattr(item, "__name__") and _installed(module):  # such as functions of NumPy in C
        return [*_origin(module), item.__name__]
    if module == "typing":
        return ["typing", repr(item)]
    raise TypeError(
        f"with checkpoints everything that determines a run must have a content, but {item!r} has none "
        "that can be told; leave out checkpoints."
    )


def _once(item: Any, seen: Seen) -> Any:
    """A function or a class; where it comes again, also within itself, only that it does."""
    if id(item) in seen:
        return ["seen", seen[id(item)][0]]
    seen[id(item)] = (len(seen), item)
    return _class(item, seen) if isinstance(item, type) else _function(item, seen)


def _function(function: Any, seen: Seen) -> list[Any]:
    cells = [_plain(cell.cell_contents, seen) if _filled(cell) else ["empty"] for cell in function.__closure__ or ()]
    defaults = _plain(function.__defaults__, seen), _plain(function.__kwdefaults__, seen)
    module = str(function.__module__)
    used = [] if _installed(module) else sorted(_globals(function.__code__) & function.__globals__.keys())
    return [
        *_origin(module),
        function.__qualname__,
        _code(function.__code__),
        cells,
        *defaults,
        [[name, _plain(function.__globals__[name], seen)] for name in used],
    ]


def _class(item: type, seen: Seen) -> list[Any]:
    told = [*_origin(item.__module__), item.__qualname__]
    if _installed(item.__module__):
        return told
    parts = [[name, _plain(part, seen)] for name, value in sorted(vars(item).items()) for part in _written(name, value)]
    return [*told, [_plain(base, seen) for base in item.__bases__], parts]


def _written(name: str, value: Any) -> list[Any]:
    """What of an attribute of a class is written in it, not made from that."""
    if isinstance(value, property):
        return [part for part in (value.fget, value.fset) if part is not None]
    if isinstance(value, functools.cached_property):
        return [value.func]
    function = inspect.unwrap(value.__func__ if isinstance(value, staticmethod | classmethod) else value)
    if inspect.isfunction(function):
        return [] if "__create_fn__" in function.__code__.co_qualname else [function]  # made for a dataclass
    made = inspect.isdatadescriptor(value) and _installed(type(value).__module__)
    return [] if made or name == "_abc_impl" or (name.startswith("_") and name.endswith("_")) else [value]


def _filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _code(code: CodeType) -> list[Any]:
    """What a function does, without where it stands."""
    return [code.co_code.hex(), list(code.co_names), [_constant(item) for item in code.co_consts]]


def _constant(item: Any) -> Any:
    if isinstance(item, CodeType):
        return _code(item)
    return sorted(map(repr, item)) if isinstance(item, frozenset) else repr(item)


def _globals(code: CodeType) -> set[str]:
    """Names that code looks for outside, that of functions within it included."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return found.union(*(_globals(item) for item in code.co_consts if isinstance(item, CodeType)))


def _origin(module: str) -> list[Any]:
    """A module by its name, and by its version if it is installed."""
    top = sys.modules.get(module.partition(".")[0])
    return [module, str(getattr(top, "__version__", "")) if _installed(module) else None]


@functools.cache
def _installed(module: str) -> bool:
    """Whether a module is Python's, this package's or an installed one's."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(module) or sys.modules.get(top), "__file__", None) or ""
    return top in ("deeplinear", *sys.stdlib_module_names) or not INSTALLED.isdisjoint(Path(file).parts)


def save_checkpoint(folder: Path, content: str, run: Trajectory) -> None:
    """Keep a run; the digest comes last, so that it stands for a file that is whole."""
    file = run.save(folder / content)
    with replacing(folder / f"{content}.sha256") as part:
        part.write_text(hashlib.sha256(file.read_bytes()).hexdigest() + "\n")


def load_checkpoint(folder: Path, content: str, usable: Callable[[Trajectory], bool]) -> Trajectory | None:
    """A run that was kept, or `None`; a file that is not what was written is reported and left aside."""
    file, digest = folder / f"{content}.nc", folder / f"{content}.sha256"
    if not file.exists():
        return None
    try:
        if hashlib.sha256(file.read_bytes()).hexdigest() != digest.read_text().strip():
            raise ValueError("its bytes are not those that were written")
        run = Trajectory.load(file)
        if not usable(run):
            raise ValueError("the run in it did not reach its end")
        return run
    except (OSError, ValueError, KeyError) as error:
        warnings.warn(f"the checkpoint {file} cannot be used ({error}); its run is made again.", stacklevel=2)
        return None
