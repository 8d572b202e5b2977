"""Rooms and their views: what can be asked, and what answers it."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer

MOST_CELLS = 12
"""Largest side of a grid or a matrix of a control."""

LARGEST = 100.0
"""Largest size of an entry of a matrix of a control."""

Cells = list[Annotated[list[bool], Field(min_length=1, max_length=MOST_CELLS)]]
"""Cells to paint, by rows."""

Entries = list[
    Annotated[list[Annotated[float, Field(ge=-LARGEST, le=LARGEST)]], Field(min_length=1, max_length=MOST_CELLS)]
]
"""A small matrix, by rows."""


class Params(BaseModel):
    """Parameters of a view. Limits of the fields are those of the page's controls."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def slider(
    default: float,
    low: float,
    high: float,
    title: str,
    *,
    log: bool = False,
    step: float | None = None,
    about: str = "",
) -> Any:
    """A real number with a slider; `log` for one whose magnitude is what matters."""
    control = {"control": "slider", "log": log, "step": step}
    return Field(default, ge=low, le=high, title=title, description=about, json_schema_extra=control)


def whole(default: int, low: int, high: int, title: str, *, about: str = "", seed: bool = False) -> Any:
    """A whole number with a slider, or, for a seed, a field with a button that draws another."""
    control = {"control": "seed" if seed else "slider", "step": 1}
    return Field(default, ge=low, le=high, title=title, description=about, json_schema_extra=control)


def choice(default: str, options: dict[str, str], title: str, *, about: str = "") -> Any:
    """One of several words; annotate the field with `Literal[...]` of the same words."""
    control = {"control": "choice", "options": options}
    return Field(default, title=title, description=about, json_schema_extra=control)


def switch(default: bool, title: str, *, about: str = "") -> Any:
    """Yes or no."""
    return Field(default, title=title, description=about, json_schema_extra={"control": "switch"})


def grid(default: Sequence[Sequence[bool]], most: int, title: str, *, about: str = "") -> Any:
    """Cells to paint, at most so many a side; annotate with `Cells`."""
    return _table(default, most, title, about, {"control": "grid"})


def entries(default: Sequence[Sequence[float]], most: int, title: str, *, about: str = "") -> Any:
    """A small matrix of numbers, with at most so many rows; annotate with `Entries`."""
    return _table(default, most, title, about, {"control": "matrix", "limit": LARGEST})


def _table(default: Sequence[Sequence[Any]], most: int, title: str, about: str, control: dict[str, Any]) -> Any:
    rows = [list(row) for row in default]
    return Field(rows, min_length=1, max_length=most, title=title, description=about, json_schema_extra=control)


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
        command: The same on the command line, where there is such a command.
        kind: `"closed"` answers at once, `"run"` simulates: with progress, and can be cancelled.
        hint: What to do here, in a sentence.
    """

    name: str
    title: str
    params: type[Params]
    answer: Callable[[Any, Watch], Answer]
    python: Callable[[Any], str]
    command: Callable[[Any], str | None]
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
