"""Specs: frozen dataclasses of plain values, written as text and read back, varied one key at a time."""

import dataclasses
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from deeplinear.core import near_name

S = TypeVar("S")

RANGE = re.compile(r"^(-?\d+)\.\.(-?\d+)$")
MOST = 100_000
"""Members of one sweep at most."""


def fields(spec: Any) -> dict[str, Any]:
    """Names and types of the fields of a spec or of its class, in order."""
    owner = spec if isinstance(spec, type) else type(spec)
    hints = get_type_hints(owner)
    return {field.name: hints[field.name] for field in dataclasses.fields(owner)}


def plain(spec: Any) -> dict[str, Any]:
    """A spec as JSON values; infinities and NaN are text, so that any reader of JSON can read them."""

    def convert(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            return str(value)
        return [convert(v) for v in value] if isinstance(value, tuple) else value

    return {name: convert(getattr(spec, name)) for name in fields(spec)}


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

    Args:
        spec: Where to start from.
        values: Texts by key, such as `{"alpha": "1e-3", "depths": "2,3"}`.
        where: What is being changed, for messages.

    Raises:
        ValueError: For a key that does not exist, with the nearest that does, and for a text of the wrong type.
    """
    types = fields(spec)
    for name in values:
        if name not in types:
            raise ValueError(f"{where}: there is no key '{name}'. {near_name(name, types)}")
    changed = {name: _read(types[name], text, f"{where}: {name}") for name, text in values.items()}
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
    that is itself a list are separated by semicolons.

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
        many = name in types and get_origin(types[name]) is tuple
        parts = [part.strip() for part in text.split(";" if many else ",") if part.strip()]
        if name in types and types[name] is int:
            parts = [number for part in parts for number in _expand(part, f"{where}: {name}")]
        if not parts:
            raise ValueError(f"{where}: {name} must have at least one value, but has none.")
        choices.append([(name, part) for part in parts])
    if math.prod(len(c) for c in choices) > MOST:
        raise ValueError(f"{where}: a sweep may have {MOST:,} members, but this has more.")
    return list(dict.fromkeys(override(spec, dict(chosen), where) for chosen in itertools.product(*choices)))


def _expand(part: str, where: str) -> list[str]:
    match = RANGE.match(part)
    if not match:
        return [part]
    low, high = int(match[1]), int(match[2])
    if not low <= high or high - low >= MOST:
        raise ValueError(f"{where}: a range must go up by at most {MOST:,}, but is {part}.")
    return [str(number) for number in range(low, high + 1)]


def _read(kind: Any, text: str, where: str) -> Any:
    if get_origin(kind) is tuple:
        inner = get_args(kind)[0]
        parts = [part.strip() for part in text.strip("()[] ").split(",") if part.strip()]
        if not parts:
            raise ValueError(f"{where} must be a list of values with commas between them, but is '{text}'.")
        if inner is int:
            parts = [number for part in parts for number in _expand(part, where)]
        return tuple(_read(inner, part, where) for part in parts)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{where} must be true or false, but is '{text}'.")
        return text.lower() == "true"
    if kind is str:
        return text
    word = {int: "a whole number", float: "a number"}[kind]
    try:
        number = kind(text)
    except ValueError:
        raise ValueError(f"{where} must be {word}, but is '{text}'.") from None
    if kind is float and math.isnan(number):
        raise ValueError(f"{where} must be {word}, but is '{text}'.")
    return number


def _restore(kind: Any, value: Any) -> Any:
    if get_origin(kind) is tuple:
        return tuple(_restore(get_args(kind)[0], item) for item in value)
    return float(value) if kind is float else value
