"""What a room answers: pictures as data, facts and remarks. The page draws them; nothing here knows how."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, Field

Number = float | None
"""A number of a curve; `None` where there is none (it was not finite)."""


DIGITS = 12
"""Significant digits of numbers that are sent: enough for what is downloaded, and without rounding errors shown."""


def numbers(values: Any) -> list[Number]:
    """Plain numbers, gaps where they are not finite."""
    flat = np.asarray(values, dtype=float).ravel().tolist()
    return [float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None for value in flat]


def rows(values: Any) -> list[list[Number]]:
    """A matrix as plain numbers."""
    return [numbers(row) for row in np.atleast_2d(np.asarray(values, dtype=float))]


class Axis(BaseModel):
    """Label, kind and range of an axis."""

    label: str
    log: bool = False
    low: Number = None
    high: Number = None


class Series(BaseModel):
    """A curve or a cloud of points. Series of one `colour` (a place in the palette) belong together."""

    name: str
    x: list[Number]
    y: list[Number]
    style: Literal["line", "dash", "dot", "points", "bars"] = "line"
    colour: int = 0
    faint: bool = False
    legend: bool = True


class Mark(BaseModel):
    """A line across a picture, at a place on an axis, with a word."""

    at: float
    label: str = ""
    axis: Literal["x", "y"] = "x"


class Curves(BaseModel):
    """Curves over one pair of axes."""

    type: Literal["curves"] = "curves"
    name: str = Field(description="Fit for a file name; unique within an answer.")
    title: str
    x: Axis
    y: Axis
    series: list[Series]
    marks: list[Mark] = []
    square: bool = False
    caption: str = ""


class Map(BaseModel):
    """Values over a grid. Where `pick` names two parameters, a click or a drag in the map sets them."""

    type: Literal["map"] = "map"
    name: str
    title: str
    x: Axis
    y: Axis
    xs: list[Number]
    ys: list[Number]
    z: list[list[Number]]
    value: str = Field(description="What is drawn in colours.")
    log: bool = False
    diverging: bool = False
    contours: bool = False
    pick: tuple[str, str] | None = None
    series: list[Series] = []
    caption: str = ""


class Matrix(BaseModel):
    """A matrix of numbers as coloured cells; `known` tells entries that were given from others."""

    type: Literal["matrix"] = "matrix"
    name: str
    title: str
    values: list[list[Number]]
    rows: list[str] = []
    columns: list[str] = []
    known: list[list[bool]] | None = None
    low: Number = None
    high: Number = None
    caption: str = ""


class Node(BaseModel):
    """A corner of a graph: where it stands, its word, and the part it belongs to."""

    x: float
    y: float
    label: str
    part: int = 0
    strong: bool = False


class Graph(BaseModel):
    """Corners and edges (pairs of places in the list of corners)."""

    type: Literal["graph"] = "graph"
    name: str
    title: str
    nodes: list[Node]
    edges: list[tuple[int, int]]
    caption: str = ""


class Table(BaseModel):
    """A table of text."""

    type: Literal["table"] = "table"
    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""


Figure = Annotated[Curves | Map | Matrix | Graph | Table, Field(discriminator="type")]


class Fact(BaseModel):
    """One thing to know, such as a verdict: `tone` says whether it is good news."""

    label: str
    value: str
    tone: Literal["plain", "good", "warning", "bad"] = "plain"
    note: str = ""


class Answer(BaseModel):
    """What a view answers."""

    figures: list[Figure]
    facts: list[Fact] = []
    remarks: list[str] = []

    def count(self) -> int:
        """How many numbers there are."""
        total = 0
        for figure in self.figures:
            if isinstance(figure, (Curves, Map)):
                total += sum(2 * len(one.x) for one in figure.series)
            if isinstance(figure, (Map, Matrix)):
                cells = figure.z if isinstance(figure, Map) else figure.values
                total += sum(len(row) for row in cells)
        return total


def curves(
    name: str,
    title: str,
    x: Axis | str,
    y: Axis | str,
    series: Sequence[Series],
    marks: Iterable[Mark] = (),
    caption: str = "",
    square: bool = False,
) -> Curves:
    """Curves, axes by their labels where nothing else is wanted of them."""
    first, second = (Axis(label=one) if isinstance(one, str) else one for one in (x, y))
    return Curves(
        name=name,
        title=title,
        x=first,
        y=second,
        series=list(series),
        marks=list(marks),
        caption=caption,
        square=square,
    )


def line(
    name: str,
    x: Any,
    y: Any,
    colour: int = 0,
    style: Literal["line", "dash", "dot", "points", "bars"] = "line",
    faint: bool = False,
    legend: bool = True,
) -> Series:
    """A series of arrays."""
    return Series(name=name, x=numbers(x), y=numbers(y), style=style, colour=colour, faint=faint, legend=legend)
