"""Specs: frozen dataclasses of plain values, written as text and read back, varied one key at a time."""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from deeplinear._about import NONE, near_name, read_float, read_int, written

S = TypeVar("S")

RANGE = re.compile(r"^(-?\d+)\.\.(-?\d+)$", re.ASCII)
SEPARATORS = ",;|"
"""Between values, between lists of values, and between lists of such lists."""

MOST = 100_000
"""Members of one sweep at most."""


def fields(spec: Any) -> dict[str, Any]:
    """Names and types of the fields of a spec or of its class, in order."""
    owner = spec if isinstance(spec, type) else type(spec)
    hints = get_type_hints(owner)
    return {field.name: hints[field.name] for field in dataclasses.fields(owner)}


def plain(spec: Any) -> dict[str, Any]:
    """A spec as JSON values; infinities and NaN are text, so that any reader of JSON can read them.

    Numbers are written as the types of the fields say, so that equal specs give equal values: 2 in a field of
    floating-point numbers is 2.0.
    """
    return {name: _plain(kind, getattr(spec, name)) for name, kind in fields(spec).items()}


def from_plain(kind: type[S], values: Mapping[str, Any]) -> S:
    """The spec that `plain` wrote."""
    types = fields(kind)
    if set(values) != set(types):
        raise ValueError(f"{kind.__name__}: keys must be {sorted(types)}, but are {sorted(values)}.")
    return kind(**{name: _restore(types[name], value) for name, value in values.items()})


def key_of(name: str, version: int, spec: Any) -> str:
    """Content address of a run: a hash of id, version and spec that depends on no order and no machine."""
    text = json.dumps({"id": name, "version": version, "spec": plain(spec)}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def override(spec: S, values: Mapping[str, str], where: str) -> S:
    """A spec with some keys replaced by what a text says.

    Values of a list are separated by commas, lists in a list by semicolons; `none` is the empty list, for fields that
    are empty by default.

    Args:
        spec: Where to start from.
        values: Texts by key, such as `{"alpha": "1e-3", "depths": "2,3", "angles": "1,2;3,4"}`.
        where: What is being changed, for messages.

    Raises:
        ValueError: For a key that does not exist, with the nearest that does, and for a text of the wrong type.
    """
    types = fields(spec)
    for name in values:
        if name not in types:
            raise ValueError(f"{where}: there is no key '{name}'. {near_name(name, types)}")
    defaults = {field.name: field.default for field in dataclasses.fields(spec)}  # type: ignore[arg-type]
    changed = {}
    for name, text in values.items():
        if defaults[name] == () and text.strip().lower() == NONE:
            changed[name] = ()
        else:
            changed[name] = _read(types[name], text, where, name, written(getattr(spec, name)))
    return dataclasses.replace(spec, **changed)  # type: ignore[type-var]


def split_assignments(texts: Iterable[str], where: str) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dictionary."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"{where}: a setting must have the form key=value, but is '{text}'.")
        if name.strip() in found:
            raise ValueError(f"{where}: {name.strip()} is given twice.")
        found[name.strip()] = value.strip()
    return found


def grid(spec: S, values: Mapping[str, str], where: str) -> list[S]:
    """All specs of a sweep: every combination of the values given for each key, the last key running fastest.

    Values of a key are separated by commas, whole numbers may be a range `0..9` (both ends included); values of a key
    that is itself a list are separated by semicolons, those of a key that is a list of lists by vertical bars.

    Example:
        >>> import dataclasses
        >>> @dataclasses.dataclass(frozen=True)
        ... class Spec:
        ...     seed: int = 0
        >>> [s.seed for s in grid(Spec(), {"seed": "0..2,7"}, "sweep")]
        [0, 1, 2, 7]
    """
    types = fields(spec)
    choices: list[list[tuple[str, str]]] = []
    for name, text in values.items():
        parts = _split(text, SEPARATORS[_depth(types[name]) if name in types else 0])
        if name in types and types[name] is int:
            parts = _expanded(parts, f"{where}: {name}")
        if not parts:
            raise ValueError(f"{where}: {name} must have at least one value, but has none.")
        choices.append([(name, part) for part in parts])
    if math.prod(len(c) for c in choices) > MOST:
        raise ValueError(f"{where}: a sweep may have {MOST:,} members, but this has more.")
    return list(dict.fromkeys(override(spec, dict(chosen), where) for chosen in itertools.product(*choices)))


def _expanded(parts: Iterable[str], where: str) -> list[str]:
    """Whole numbers and ranges of them, one by one."""
    found: list[str] = []
    for part in parts:
        found += _expand(part, where)
        if len(found) > MOST:
            raise ValueError(f"{where} must have at most {MOST:,} values, but has more.")
    return found


def _expand(part: str, where: str) -> list[str]:
    match = RANGE.match(part)
    if not match:
        return [part]
    low, high = int(match[1]), int(match[2])
    if not low <= high or high - low >= MOST:
        raise ValueError(f"{where}: a range must go up by at most {MOST:,}, but is {part}.")
    return [str(number) for number in range(low, high + 1)]


def _depth(kind: Any) -> int:
    """How deep lists are nested in values of a type: 0 for a single value."""
    return 1 + _depth(get_args(kind)[0]) if get_origin(kind) is tuple else 0


def _length(kind: Any) -> int | None:
    """Number of values a list of some type must have; `None` if it may have any."""
    return None if get_args(kind)[-1] is Ellipsis else len(get_args(kind))


def _split(text: str, separator: str) -> list[str]:
    return [part.strip() for part in text.split(separator) if part.strip()]


PLURALS = {int: "whole numbers", float: "numbers", bool: "true or false", str: "words"}


def _wanted(kind: Any) -> str:
    """What a list must be, in words."""
    inner, length = get_args(kind)[0], _length(kind)
    if get_origin(inner) is tuple:
        many = "lists" if length is None else f"{length} lists"
        return f"{many} with semicolons between them, each {_wanted(inner)}"
    return f"{'a list of' if length is None else length} {PLURALS[inner]} with commas between them"


def _read(kind: Any, text: str, where: str, name: str, example: str) -> Any:
    """A value from its text; `example` is one of its type, for messages."""
    if get_origin(kind) is tuple:
        found = _read_list(kind, text, where, name)
        if found is None:
            raise ValueError(f"{where}: {name} must be {_wanted(kind)}, such as {example}, but is '{text}'.")
        return found
    return _read_one(kind, text, f"{where}: {name}")


def _read_list(kind: Any, text: str, where: str, name: str) -> tuple[Any, ...] | None:
    """A list from its text, `None` if it has no values or not as many as it must have."""
    inner, length = get_args(kind)[0], _length(kind)
    parts = _split(text.strip("()[] "), SEPARATORS[_depth(kind) - 1])
    if inner is int:
        parts = _expanded(parts, f"{where}: {name}")
    if not parts or (length is not None and len(parts) != length):
        return None
    if get_origin(inner) is not tuple:
        return tuple(_read_one(inner, part, f"{where}: each of {name}") for part in parts)
    lists = tuple(_read_list(inner, part, where, name) for part in parts)
    return None if None in lists else lists


def _read_one(kind: Any, text: str, where: str) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{where} must be true or false, but is '{text}'.")
        return text.lower() == "true"
    if kind is str:
        return text
    word, read = {int: ("a whole number", read_int), float: ("a number", read_float)}[kind]
    try:
        number = read(text)
    except ValueError:
        raise ValueError(f"{where} must be {word}, but is '{text}'.") from None
    if kind is float and math.isnan(number):
        raise ValueError(f"{where} must be {word}, but is '{text}'.")
    return number


def _plain(kind: Any, value: Any) -> Any:
    if get_origin(kind) is tuple:
        return [_plain(get_args(kind)[0], item) for item in value]
    if kind is float:
        number = float(value) + 0.0  # no negative zero, which is equal to zero but written otherwise
        return number if math.isfinite(number) else str(number)
    if kind in (int, bool) and kind(value) == value:
        return kind(value)
    return value


def _restore(kind: Any, value: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_restore(get_args(kind)[0], item) for item in value)
    return float(value) if kind is float else value
