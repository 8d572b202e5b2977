"""Two lanes for closed forms: what is compiled already does not wait for what has to be compiled."""

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from deeplinear.lab._errors import LabError
from deeplinear.lab._room import Params, Room, View

MOST_KNOWN = 10_000
"""Shapes that are remembered as compiled."""

Work = Callable[[], bytes]


def shape_of(room: Room, view: View, params: Params) -> str:
    """What decides on the program of an answer: the view, and all but real numbers and seeds."""
    fields = type(params).model_fields
    kept = [name for name in fields if _control(fields[name].json_schema_extra) != "seed"]
    return json.dumps([room.name, view.name, {name: _without_numbers(getattr(params, name)) for name in kept}])


def _control(extra: Any) -> str:
    return extra.get("control", "") if isinstance(extra, dict) else ""


def _without_numbers(value: Any) -> Any:
    """The value, real numbers left open: of a matrix its size remains."""
    if isinstance(value, list):
        return [_without_numbers(one) for one in value]
    return None if isinstance(value, float) else value


class Lanes:
    """Threads for shapes that were computed before, and others for new ones.

    Of a new shape one request is computed; others of that shape wait for it, and are answered as known ones then.

    Args:
        fast: Threads for known shapes.
        slow: Threads for new ones.
        most: New shapes at a time, those that wait included.
    """

    def __init__(self, fast: int, slow: int, most: int) -> None:
        self._sizes, self._most = (fast, slow), most
        self._lock = threading.Lock()
        self._known: dict[str, None] = {}
        self._new: dict[str, Future[None]] = {}  # they end when the computation has ended, and never fail

    def open(self) -> None:
        """Begin to work."""
        fast, slow = self._sizes
        self._fast = ThreadPoolExecutor(fast, thread_name_prefix="lab-answer")
        self._slow = ThreadPoolExecutor(slow, thread_name_prefix="lab-compile")

    def close(self) -> None:
        """End all work."""
        for pool in (self._fast, self._slow):
            pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, shape: str, work: Work) -> bytes:
        """Compute in the lane of the shape.

        Raises:
            LabError: If the shape is new and too many new ones wait already.
        """
        while not self.knows(shape):
            mine, end = self._compile(shape, work, self._most)
            if mine is not None:
                return await asyncio.wrap_future(mine)
            await asyncio.wait([asyncio.wrap_future(end)])
        return await asyncio.get_running_loop().run_in_executor(self._fast, work)

    def prepare(self, shape: str, work: Work) -> None:
        """Compute in the lane of new shapes, however many wait, and return when it is done."""
        mine, end = self._compile(shape, work, None)
        wait([end])
        if mine is not None:
            mine.result()

    def knows(self, shape: str) -> bool:
        """Whether the shape was computed since programs were dropped."""
        return shape in self._known

    def forget(self) -> None:
        """All shapes are new: their programs were dropped."""
        with self._lock:
            self._known.clear()

    def _compile(self, shape: str, work: Work, most: int | None) -> tuple[Future[bytes] | None, Future[None]]:
        """The computation of a shape, if none was under way, and the end of the one that is."""

        def first() -> bytes:
            found = work()
            with self._lock:
                self._known[shape] = None
                if len(self._known) > MOST_KNOWN:
                    del self._known[next(iter(self._known))]
            return found

        def ended(future: Future[bytes]) -> None:
            with self._lock:
                del self._new[shape]
            end.set_result(None)

        with self._lock:
            other = self._new.get(shape)
            if other is not None:
                return None, other
            if most is not None and len(self._new) >= most:
                text = (
                    f"{len(self._new)} new sizes are being compiled, which takes a few seconds each. Try again in a "
                    "moment; sizes that were used before are answered meanwhile."
                )
                raise LabError("busy", text)
            mine = self._slow.submit(first)
            end = self._new[shape] = Future[None]()
        mine.add_done_callback(ended)
        return mine, end
