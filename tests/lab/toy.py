"""A small room without numerics, for tests of the server itself."""

import threading
import time
from typing import Literal

from deeplinear.core import HypothesisError
from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer, Fact, curves, line
from deeplinear.lab._room import (
    Cells,
    Entries,
    Params,
    Preset,
    Room,
    View,
    Watch,
    choice,
    entries,
    grid,
    slider,
    switch,
    whole,
)

computed: list[object] = []
"""Parameters that were computed with, in order."""

gate = threading.Event()
"""Simulations with `wait` go on when this is set."""


BROKEN = 6.66
"""The size that breaks the view."""


class Numbers(Params):
    """One of each kind of control."""

    size: float = slider(1.0, 0.1, 10.0, "Size", log=True)
    count: int = whole(3, 1, 50, "Count")
    kind: Literal["fine", "hypothesis", "value"] = choice("fine", {"fine": "Fine", "value": "Value"}, "Kind")
    up: bool = switch(True, "Up")
    mask: Cells = grid([[True, False], [False, True]], 4, "Mask")
    matrix: Entries = entries([[1.0, 0.0]], 4, "Matrix")


class Work(Params):
    """A simulation of so many pieces."""

    pieces: int = whole(3, 1, 100, "Pieces")
    wait: bool = switch(False, "Wait")
    fails: bool = switch(False, "Fails")


def answered(values: Numbers, watch: Watch) -> Answer:
    """A line, or the failure that was asked for."""
    computed.append(values)
    if values.kind == "hypothesis":
        raise HypothesisError("balance", 0.5, 1e-9)
    if values.kind == "value":
        raise LabError("value", "The size is not to my taste.", ["size"])
    if values.size == BROKEN:
        raise ZeroDivisionError("secret")
    x = [float(i) for i in range(values.count)]
    series = [line("line", x, [values.size * one for one in x])]
    return Answer(
        figures=[curves("line", "A line", "x", "y", series)], facts=[Fact(label="Count", value=str(values.count))]
    )


def worked(values: Work, watch: Watch) -> Answer:
    """Pieces one after another, each told."""
    computed.append(values)
    for piece in range(values.pieces):
        found = [float(i) for i in range(piece + 1)]
        watch(
            piece / values.pieces,
            f"piece {piece}",
            Answer(figures=[curves("pieces", "Pieces", "x", "y", [line("p", found, found)])]),
        )
        while values.wait and not gate.is_set():
            watch(piece / values.pieces, "waits")
            time.sleep(0.01)
    if values.fails:
        raise ValueError("Work: pieces must be whole, but are not.")
    return Answer(figures=[], facts=[Fact(label="Pieces", value=str(values.pieces))])


ROOM = Room(
    name="toy",
    title="Toy",
    story="A story with $x^2$.",
    mathematics="$$y = s x$$",
    views=(
        View(
            "line", "Line", Numbers, answered, lambda p: f"print({p.size!r})\n", lambda p: f"dln toy --size {p.size:g}"
        ),
        View("work", "Work", Work, worked, lambda p: "print(1)\n", None, kind="run"),
    ),
    presets=(Preset("Steep", "line", {"size": 9.0}),),
)
