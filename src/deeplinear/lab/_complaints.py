"""What is wrong with a request, in sentences: fields by their titles, and what they must be."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from deeplinear._about import near_name

MOST = 3
"""Complaints that are told at once."""

LONGEST = 60
"""Characters of a value that is shown."""

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "finite_number": "a finite number",
    "string_unicode": "text of whole characters",
}
"""What a value must be, by the first part of the name pydantic gives to the complaint, or by the whole name."""


def _shown(value: Any) -> str:
    """A value as in JSON."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _must(problem: Mapping[str, Any]) -> str | None:
    """What a value must be, but is not; nothing for complaints of another form."""
    kind, limits = problem["type"], problem.get("ctx", {})
    if kind in ("greater_than_equal", "less_than_equal", "greater_than", "less_than"):
        word = {"greater_than_equal": "at least", "less_than_equal": "at most", "greater_than": "more than"}
        return f"{word.get(kind, 'less than')} {next(iter(limits.values())):g}"
    if kind == "literal_error":
        return limits["expected"]
    return KINDS.get(kind) or KINDS.get(kind.partition("_")[0])


def _length(problem: Mapping[str, Any]) -> str:
    """A complaint about the number of rows of a table."""
    limits = problem["ctx"]
    word, bound = ("least", limits["min_length"]) if "min_length" in limits else ("most", limits["max_length"])
    return f"must have at {word} {bound} row{'s' if bound > 1 else ''}, but has {limits['actual_length']}"


def _where(path: Sequence[Any], model: type[BaseModel] | None) -> str:
    """The title of a field, with row and column of a table."""
    field = model.model_fields.get(path[0]) if model is not None else None
    title = (field.title if field is not None else None) or str(path[0])
    places = [f"{noun} {place + 1}" for noun, place in zip(("row", "column"), path[1:], strict=False)]
    return ", ".join([title, *places])


def _whole_request(problem: Mapping[str, Any]) -> str:
    """A complaint about the request itself."""
    given = problem.get("input")
    if problem["type"] == "json_invalid":
        reason = str(problem.get("ctx", {}).get("error", "it cannot be read"))
        return f"The request is not JSON: {reason} at position {problem['loc'][-1]}."
    if problem["type"] == "string_unicode":
        return f"The request names a parameter {_shown(given)}, which is no text of whole characters."
    if problem["type"] == "value_error":
        text = problem["msg"].removeprefix("Value error, ").rstrip(".")
        return f"{text[:1].upper()}{text[1:]}."
    if problem["type"] == "missing":
        return "The request is empty: it must be a JSON object of parameters, {} for the defaults."
    shown = "text that was not sent as application/json" if isinstance(given, (str, bytes)) else _shown(given)
    return f"The request must be a JSON object of parameters, but is {shown}."


def complaint(problem: Mapping[str, Any], model: type[BaseModel] | None) -> str:
    """One complaint of pydantic as a sentence; `model` has the titles of the fields."""
    place, *path = problem["loc"]
    kind, given = problem["type"], problem.get("input")
    if kind == "json_invalid" or not path:
        return _whole_request(problem)
    if kind == "extra_forbidden":
        name = str(path[-1])[:LONGEST]
        return f"There is no parameter '{name}'. {near_name(name, model.model_fields if model else [])}"
    where = _where(path, model if place == "body" else None)
    must = _must(problem)
    if kind == "missing":
        text = "is missing"
    elif kind in ("too_short", "too_long"):
        text = _length(problem)
    elif must is not None:
        text = f"must be {must}, but is {_shown(given)}"
    else:
        text = problem["msg"].removeprefix("Value error, ").rstrip(".")
        text = f"{text[:1].lower()}{text[1:]}"
    return f"{where}: {text}."


def complaints(problems: Sequence[Mapping[str, Any]], model: type[BaseModel] | None) -> tuple[str, list[str]]:
    """The first complaints as sentences, and the names of all fields they concern."""
    fields = [str(one["loc"][1])[:LONGEST] for one in problems if len(one["loc"]) > 1 and one["type"] != "json_invalid"]
    return " ".join(complaint(one, model) for one in problems[:MOST]), list(dict.fromkeys(fields))
