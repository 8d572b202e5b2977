"""What is compiled is answered while other things are being compiled."""

import asyncio
import threading
from typing import Any

import pytest

from deeplinear.lab._errors import LabError
from deeplinear.lab._lanes import MOST_KNOWN, Lanes, shape_of
from deeplinear.lab._room import Params, Room, View, whole
from lab import toy

ENDLESS = 300.0
"""Seconds that no test waits for."""


class Slow:
    """A computation that goes on until it is told to end."""

    def __init__(self) -> None:
        self.begun, self.end, self.times = threading.Event(), threading.Event(), 0

    def __call__(self) -> bytes:
        self.times += 1
        self.begun.set()
        assert self.end.wait(ENDLESS)
        return b"slow"


def in_lanes(test: Any, *, most: int = 2) -> None:
    """Run a test with one thread for each lane."""
    lanes = Lanes(1, 1, most)
    lanes.open()
    try:
        asyncio.run(test(lanes))
    finally:
        lanes.close()


def test_a_known_shape_is_answered_while_a_new_one_is_computed() -> None:
    async def test(lanes: Lanes) -> None:
        slow = Slow()
        assert await lanes.run("a", lambda: b"first") == b"first"
        waiting = asyncio.create_task(lanes.run("b", slow))
        await asyncio.to_thread(slow.begun.wait, ENDLESS)
        assert await lanes.run("a", lambda: b"again") == b"again"
        assert not waiting.done()
        slow.end.set()
        assert await waiting == b"slow"

    in_lanes(test)


def test_one_request_of_a_new_shape_is_computed_and_the_others_wait_for_it() -> None:
    async def test(lanes: Lanes) -> None:
        slow, order = Slow(), []
        first = asyncio.create_task(lanes.run("a", slow))
        await asyncio.to_thread(slow.begun.wait, ENDLESS)
        others = [asyncio.create_task(lanes.run("a", lambda: order.append(1) or b"other")) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert order == []
        slow.end.set()
        assert await first == b"slow" and [await one for one in others] == 5 * [b"other"]
        lanes.forget()
        assert not lanes.knows("a")

    in_lanes(test, most=1)  # one shape, however many requests


def test_too_many_new_shapes_are_refused_in_words() -> None:
    async def test(lanes: Lanes) -> None:
        slow = Slow()
        tasks = [asyncio.create_task(lanes.run(name, slow)) for name in ("a", "b")]
        await asyncio.to_thread(slow.begun.wait, ENDLESS)
        with pytest.raises(LabError, match="2 new sizes are being compiled") as caught:
            await lanes.run("c", slow)
        assert caught.value.failure.kind == "busy"
        slow.end.set()
        assert [await one for one in tasks] == 2 * [b"slow"]
        assert await lanes.run("c", slow) == b"slow"

    in_lanes(test)


def test_after_a_failure_or_a_client_that_went_away_the_next_one_is_computed() -> None:
    async def test(lanes: Lanes) -> None:
        slow = Slow()

        def fails() -> bytes:
            slow()
            raise ZeroDivisionError

        first = asyncio.create_task(lanes.run("a", fails))
        await asyncio.to_thread(slow.begun.wait, ENDLESS)
        gone = asyncio.create_task(lanes.run("b", fails))
        others = [asyncio.create_task(lanes.run(name, lambda: b"fine")) for name in ("a", "b")]
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.wait([gone])
        slow.end.set()
        with pytest.raises(ZeroDivisionError):
            await first
        assert [await one for one in others] == 2 * [b"fine"] and slow.times == 1

    in_lanes(test)


def test_making_ready_is_not_refused_and_does_not_compute_twice() -> None:
    async def test(lanes: Lanes) -> None:
        slow = Slow()
        task = asyncio.create_task(lanes.run("a", slow))
        await asyncio.to_thread(slow.begun.wait, ENDLESS)
        ready = [asyncio.create_task(asyncio.to_thread(lanes.prepare, name, slow)) for name in ("a", "b")]
        await asyncio.sleep(0.01)
        slow.end.set()
        await asyncio.gather(task, *ready)
        assert slow.times == 2 and lanes.knows("a") and lanes.knows("b")
        for number in range(MOST_KNOWN):
            lanes._known[str(number)] = None
        lanes.prepare("c", lambda: b"")
        assert len(lanes._known) <= MOST_KNOWN + 2 and not lanes.knows("a") and lanes.knows("c")

    in_lanes(test, most=1)


def test_shapes_are_all_but_real_numbers_and_seeds() -> None:
    class Seeded(Params):
        seed: int = whole(0, 0, 9, "Seed", seed=True)
        size: int = whole(1, 1, 9, "Size")

    def shape(**values: Any) -> str:
        return shape_of(toy.ROOM, toy.ROOM.view("line"), toy.Numbers(**values))

    assert shape() == shape(size=2.0, matrix=[[3.0, 1]])
    others = [shape(count=4), shape(up=False), shape(kind="value"), shape(mask=[[True]]), shape(matrix=[[1.0]])]
    assert len({shape(), *others}) == 6
    view = View("seeded", "Seeded", Seeded, toy.answered, lambda p: "", None)
    room = Room("r", "R", "", "", (view,))
    assert (
        shape_of(room, view, Seeded(seed=3)) == shape_of(room, view, Seeded()) != shape_of(room, view, Seeded(size=2))
    )
