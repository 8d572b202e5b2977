"""Rooms and their views: what can be asked, and what answers it."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from annotated_types import MaxLen
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer

LARGEST = 100.0
"""Largest size of an entry of a matrix of a control."""

Cells = list[list[bool]]
"""Cells to paint, by rows."""

Entries = list[list[Annotated[float, Field(ge=-LARGEST, le=LARGEST)]]]
"""A small matrix, by rows."""

Only = dict[str, list[str]]
"""Words of other fields, all of them, with which a control matters: `{"method": ["adam"]}`. The page bars it else."""


class Params(BaseModel):
    """Parameters of a view. Limits of the fields are those of the page's controls.

    Nothing is taken for a number but numbers: no text, no yes or no.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    @field_validator("*", mode="before")
    @classmethod
    def _whole(cls, value: Any, info: ValidationInfo) -> Any:
        """JSON has one kind of number: 3.0 is the whole number 3."""
        field = cls.model_fields[info.field_name or ""]
        return int(value) if field.annotation is int and isinstance(value, float) and value.is_integer() else value

    @field_validator("*")
    @classmethod
    def _columns(cls, value: Any, info: ValidationInfo) -> Any:
        """A table may have as many columns as rows; see `_table`."""
        field = cls.model_fields[info.field_name or ""]
        most = next((one.max_length for one in field.metadata if isinstance(one, MaxLen)), None)
        if most is not None and isinstance(value, list):
            for number, row in enumerate(value, 1):
                if not 1 <= len(row) <= most:
                    raise ValueError(f"row {number} must have 1 to {most} entries, but has {len(row)}")
        return value


def slider(
    default: float,
    low: float,
    high: float,
    title: str,
    *,
    log: bool = False,
    step: float | None = None,
    about: str = "",
    below: str | None = None,
    above: str | None = None,
    only: Only | None = None,
) -> Any:
    """A real number with a slider; `log` for one whose magnitude is what matters.

    One that must stay `below` or `above` another says so: the page pushes the other along.
    """
    control = {"control": "slider", "log": log, "step": step, **_given(below=below, above=above, only=only)}
    return Field(default, ge=low, le=high, title=title, description=about, json_schema_extra=control)


def whole(
    default: int,
    low: int,
    high: int,
    title: str,
    *,
    about: str = "",
    seed: bool = False,
    below: str | None = None,
    above: str | None = None,
    only: Only | None = None,
) -> Any:
    """A whole number with a slider (see `slider`), or, for a seed, a field with a button that draws another."""
    control = {"control": "seed" if seed else "slider", "step": 1, **_given(below=below, above=above, only=only)}
    return Field(default, ge=low, le=high, title=title, description=about, json_schema_extra=control)


def choice(default: str, options: dict[str, str], title: str, *, about: str = "", only: Only | None = None) -> Any:
    """One of several words; annotate the field with `Literal[...]` of the same words."""
    control = {"control": "choice", "options": options, **_given(only=only)}
    return Field(default, title=title, description=about, json_schema_extra=control)


def switch(default: bool, title: str, *, about: str = "", only: Only | None = None) -> Any:
    """Yes or no."""
    return Field(default, title=title, description=about, json_schema_extra={"control": "switch", **_given(only=only)})


def grid(
    default: Sequence[Sequence[bool]],
    most: int,
    title: str,
    *,
    about: str = "",
    square: dict[str, list[str]] | None = None,
) -> Any:
    """Cells to paint, at most so many a side; annotate with `Cells`.

    `square` has choices for which there must be as many rows as columns: `{"start": ["alpha-m"]}`.
    """
    return _table(default, most, title, about, {"control": "grid", **_given(square=square)})


def entries(default: Sequence[Sequence[float]], most: int, title: str, *, about: str = "") -> Any:
    """A small matrix of numbers, with at most so many a side; annotate with `Entries`."""
    return _table(default, most, title, about, {"control": "matrix", "limit": LARGEST})


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _table(default: Sequence[Sequence[Any]], most: int, title: str, about: str, control: dict[str, Any]) -> Any:
    rows = [list(row) for row in default]

    def extra(schema: dict[str, Any]) -> None:
        schema.update(control)
        schema["items"].update(minItems=1, maxItems=most)

    return Field(rows, min_length=1, max_length=most, title=title, description=about, json_schema_extra=extra)


class Watch:
    """How a simulation tells how far it is, and learns that it should end."""

    def __init__(
        self,
        tell: Callable[[float, str, Answer | None], None] = lambda fraction, text, answer: None,
        cancelled: Callable[[], bool] = lambda: False,
        seconds: float = float("inf"),
    ) -> None:
        self._tell, self._cancelled = tell, cancelled
        self._end = time.monotonic() + seconds
        self._seconds = seconds

    def __call__(self, fraction: float, text: str = "", answer: Answer | None = None) -> None:
        """Tell; end the simulation by an exception if it was cancelled or takes too long."""
        if self._cancelled():
            raise Cancelled
        if time.monotonic() > self._end:
            raise LabError("time", f"The simulation was ended after {self._seconds:g} seconds. Ask for less.")
        self._tell(min(max(fraction, 0.0), 1.0), text, answer)


class Cancelled(Exception):
    """A simulation was cancelled."""


@dataclasses.dataclass(frozen=True)
class View:
    """One question with its answer.

    Attributes:
        name: In addresses.
        title: For people.
        params: What can be chosen.
        answer: Computes, from parameters and a watch.
        python: A script that computes the same with the library.
        command: The same on the command line; `None` where there never is such a command, and a function that gives
            `None` where there is none for some values.
        kind: `"closed"` answers at once, `"run"` simulates: with progress, and can be cancelled.
        hint: What to do here, in a sentence.
    """

    name: str
    title: str
    params: type[Params]
    answer: Callable[[Any, Watch], Answer]
    python: Callable[[Any], str]
    command: Callable[[Any], str | None] | None
    kind: Literal["closed", "run"] = "closed"
    hint: str = ""


@dataclasses.dataclass(frozen=True)
class Preset:
    """Values to begin with, such as those of a figure; what is not named stays at its default."""

    title: str
    view: str
    values: dict[str, Any]
    about: str = ""


@dataclasses.dataclass(frozen=True)
class Room:
    """A theory to play with: story and mathematics in Markdown with `$...$`."""

    name: str
    title: str
    story: str
    mathematics: str
    views: tuple[View, ...]
    presets: tuple[Preset, ...] = ()

    def view(self, name: str) -> View:
        """The view of that name."""
        return next(view for view in self.views if view.name == name)
