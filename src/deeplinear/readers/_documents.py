"""Settings and records: TOML and JSON of limited size and depth."""

import json
import math
import tomllib
from typing import Any

from deeplinear.readers._source import FileError, Source, one_line

LARGEST_TOML = 2**16
"""Bytes of a file of settings; reading takes time that grows with their square."""

LARGEST_JSON = 2**26

MOST_LEVELS = 64
"""Depth to which lists and tables are nested."""


def read_toml(source: Source) -> dict[str, Any]:
    """Return the settings of a TOML file.

    Example:
        >>> read_toml(Source("--config", "run.toml", b"widths = [2, 3]"))
        {'widths': [2, 3]}
    """
    text = source.text(LARGEST_TOML)
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:
        raise source.refused(f"it is not TOML ({one_line(error)})", "correct the file") from None
    check_depth(source, found)
    return found


def read_json(source: Source) -> Any:
    """Return what a JSON file holds: no deeper than `MOST_LEVELS`, and all numbers finite.

    Example:
        >>> read_json(Source("load", "record.json", b'{"a": [1, 2.5]}'))
        {'a': [1, 2.5]}
    """
    return parse_json(source, source.read(LARGEST_JSON))


def parse_json(source: Source, content: bytes) -> Any:
    """Return the value of JSON in UTF-8 that is the file, or a part of it."""
    try:
        found = json.loads(content.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise _too_deep(source) from None
    except ValueError as error:
        raise source.refused(f"it is not JSON ({one_line(error)})") from None
    check_depth(source, found)
    return found


def check_depth(source: Source, value: Any) -> None:
    """Refuse lists and tables that are nested too deeply, by a walk that does not recurse."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MOST_LEVELS):
        parts = [part for item in level for part in (item.values() if isinstance(item, dict) else item)]
        level = [part for part in parts if isinstance(part, dict | list)]
        if not level:
            return
    raise _too_deep(source)


def _too_deep(source: Source) -> FileError:
    return source.refused(f"its values are nested deeper than {MOST_LEVELS} levels", "write them flatter")


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number
