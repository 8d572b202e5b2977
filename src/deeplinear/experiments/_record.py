"""What `record.json` must hold: whoever shows a record may rely on the types of its values."""

import re
from collections.abc import Callable, Mapping
from typing import Any

KINDS = ("experiment", "check")

LONGEST_NAME = 200

DIGEST = re.compile(r"[0-9a-f]{64}")

Predicate = Callable[[Any], bool]


def fault_of(content: Any) -> str | None:
    """Return what is wrong with the content of a record, or `None`.

    Example:
        >>> fault_of({"kind": "experiment", "id": "../../home", "key": "k", "files": {}})
        "'id' is '../../home'"
    """
    if not isinstance(content, Mapping):
        return "it is not a table"
    for name, fits in REQUIRED.items():
        if name not in content:
            return f"'{name}' is missing"
        if not fits(content[name]):
            return f"'{name}' is {content[name]!r:.80}"
    for name, fits in OPTIONAL.items():
        if name in content and not fits(content[name]):
            return f"'{name}' is {content[name]!r:.80}"
    return None


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _text_or_none(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) < 2**63


def _real(value: Any) -> bool:
    """Whether a value is a number, or the text of one that JSON has no number for."""
    if isinstance(value, str):
        return value in ("nan", "inf", "-inf")
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)


def _part(value: Any) -> bool:
    """Whether a text is the name of one file or folder, and not the way to another place."""
    return _text(value) and value not in ("", ".", "..") and value.isprintable() and not set(value) & set("/\\")


def _name(value: Any) -> bool:
    return _text(value) and len(value) <= LONGEST_NAME and all(map(_part, value.split("/")))


def _table(**kinds: Predicate) -> Predicate:
    """Return the predicate of a table whose named entries, where they are there, are of some kind."""

    def fits(value: Any) -> bool:
        return isinstance(value, dict) and all(kind(value[name]) for name, kind in kinds.items() if name in value)

    return fits


def _rows(needed: tuple[str, ...] = (), exact: bool = False, **kinds: Predicate) -> Predicate:
    """Return the predicate of a list of tables that have the needed entries, and no unknown ones if they are exact."""
    fits = _table(**kinds)

    def all_fit(value: Any) -> bool:
        return isinstance(value, list) and all(
            fits(row) and set(needed) <= set(row) and (not exact or set(row) <= set(kinds)) for row in value
        )

    return all_fit


def _files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _part(name) and _text(digest) and DIGEST.fullmatch(digest) is not None for name, digest in value.items()
    )


REQUIRED: dict[str, Predicate] = {
    "kind": lambda value: value in KINDS,
    "id": _name,
    "key": lambda value: _name(value) and "/" not in value,
    "files": _files,
}

OPTIONAL: dict[str, Predicate] = {
    **dict.fromkeys(("source", "shows", "notes", "statement", "message", "status"), _text),
    **dict.fromkeys(("preset", "printed_statement", "no_figure"), _text_or_none),
    **dict.fromkeys(("version", "instances", "seed"), _whole),
    "spec": _table(),
    "environment": _table(),
    "timing": _table(started=_text, seconds=_real),
    "printed": lambda value: value is None or _table(residual=_real, tolerance=_real)(value),
    "claims": _rows(
        ("statement", "measured", "expected", "holds"),
        exact=True,
        statement=_text,
        measured=_real,
        expected=_text,
        holds=lambda value: value is None or type(value) is bool,
        note=_text,
        general=lambda value: type(value) is bool,
    ),
    "claim": _rows(("residual", "tolerance"), name=_text, residual=_real, tolerance=_real),
    "violations": _rows(("name", "caught"), name=_text, caught=lambda value: type(value) is bool),
}
"""Entries of experiments and of checks."""
