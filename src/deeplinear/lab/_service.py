"""Answers of views: computed on a few threads, kept, made ready in the background, and held within bounds of memory."""

import asyncio
import functools
import importlib
import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from deeplinear.core import drop_programs, resident_memory
from deeplinear.lab._cache import Cache
from deeplinear.lab._errors import LabError, failure_of
from deeplinear.lab._figures import Answer
from deeplinear.lab._gate import Gate
from deeplinear.lab._lanes import Lanes, shape_of
from deeplinear.lab._room import Params, Room, View, Watch
from deeplinear.lab._runs import Runs, Ticket
from deeplinear.lab._settings import Settings

LOOK = 1.0
"""Seconds between two looks at the memory."""

CALM = 10.0
"""Seconds in which a moment without computations is awaited before they are held up for the sake of memory."""

PATIENCE = (1 / 6, 1 / 4, 1 / 3)
"""What computations under way get then, as shares of `answer_seconds`, at the first try and at those after it: answers
that wait meanwhile keep most of their time. Nothing is ever dropped under a computation: where one takes longer, the
others go on and it is tried again."""

SPARE = 0.75
"""Share of the memory that making ready may fill: the rest is for what is asked for."""

WORTH = 200_000_000
"""Bytes of programs that are worth dropping."""

IDLE = 1.0
"""Seconds without a request after which closed forms are made ready: compiling makes an answer three times slower."""

DEFER = 10.0
"""Seconds after which the next one is made ready though requests do not cease."""

QUIET = 10.0
"""Seconds without a request after which presets are made ready again when programs were dropped."""

log = logging.getLogger(__name__)


def key_of(room: Room, view: View, params: Params) -> str:
    """What an answer is kept under."""
    return f"{room.name}/{view.name}:{params.model_dump_json()}"


class Service:
    """What the server does, without HTTP."""

    def __init__(self, settings: Settings, rooms: tuple[Room, ...]) -> None:
        self.settings, self.rooms = settings, rooms
        self.cache = Cache(settings.cache_bytes)
        self.gate = Gate()
        self.lanes = Lanes(settings.answers, settings.compiling, settings.new_sizes)
        self.runs = Runs(settings, self.cache, self.gate)
        self._asked, self._latest = 0, -IDLE
        self.warm_done, self.warm_total = 0, len(self._closed_forms(presets=True)) if settings.warm else 0
        self.warm_now, self.note, self.dropped = "", "", 0

    def open(self) -> None:
        """Begin to work."""
        self._closed = threading.Event()
        self.lanes.open()
        self.runs.open()
        threading.Thread(target=self._keep, args=[self._closed], name="lab-keep", daemon=True).start()

    def _compute(self, key: str, view: View, params: Params) -> bytes:
        """The answer of a closed form, which is kept."""
        with self.gate.inside():
            answer: Answer = view.answer(params, Watch(seconds=self.settings.answer_seconds))
        if answer.count() > self.settings.points:
            raise LabError("size", "The answer has too many numbers. Ask for fewer times or smaller matrices.")
        found = answer.model_dump_json().encode()
        self.cache.put(key, found)
        return found

    async def answer(self, room: Room, view: View, params: Params) -> tuple[bytes, float]:
        """The answer of a closed form, and the milliseconds it took."""
        start = time.perf_counter()
        key = key_of(room, view, params)
        kept = self.cache.get(key)
        if kept is not None:
            return kept, 1000 * (time.perf_counter() - start)
        if self._asked >= self.settings.answers + self.settings.waiting:
            raise LabError("busy", "The server has too many requests at once. Try again in a moment.")
        self._asked += 1
        self._latest = time.monotonic()
        shape = shape_of(room, view, params)
        try:
            work = functools.partial(self._compute, key, view, params)
            lane = self.lanes.run(shape, work)
            found = await asyncio.wait_for(lane, self.settings.answer_seconds)
        except TimeoutError:
            text = f"No answer within {self.settings.answer_seconds:g} seconds"
            if not self.lanes.knows(shape):
                text = f"{text}: a new size has to be compiled. Try again in a moment."
                raise LabError("time", text) from None
            raise LabError("time", f"{text}. Ask for less, or try again.") from None
        except LabError:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure.kind == "internal":
                log.exception("%s failed.", key)
            raise LabError(failure.kind, failure.message, failure.fields) from error
        finally:
            self._asked -= 1
            self._latest = time.monotonic()
        return found, 1000 * (time.perf_counter() - start)

    def start(self, room: Room, view: View, params: Params) -> Ticket:
        """Begin a simulation, or join one."""
        return self.runs.submit(key_of(room, view, params), lambda watch: view.answer(params, watch))

    def kept(self, room: Room, view: View, params: Params) -> bytes | None:
        """The answer of an earlier simulation, if it is kept."""
        return self.cache.get(key_of(room, view, params))

    def status(self) -> dict[str, Any]:
        """How far the server is with making closed forms ready, and its memory."""
        return {
            "ready": self.warm_done,
            "of": self.warm_total,
            "now": self.warm_now,
            "note": self.note,
            "dropped": self.dropped,
            "memory_bytes": resident_memory(),
            "cached_bytes": self.cache.size,
        }

    def close(self) -> None:
        """End all work."""
        self._closed.set()
        self.runs.close()
        self.lanes.close()

    def _closed_forms(self, *, presets: bool) -> list[tuple[Room, View, Params]]:
        """Closed forms with their defaults, and after them the presets."""
        views = [(room, view, view.params()) for room in self.rooms for view in room.views]
        named = [(room, room.view(one.view), one) for room in self.rooms for one in room.presets] if presets else []
        found = [*views, *((room, view, view.params(**one.values)) for room, view, one in named)]
        return [(room, view, params) for room, view, params in found if view.kind == "closed"]

    def _keep(self, closed: threading.Event) -> None:
        """Make closed forms ready, and look after the memory from then on."""
        if self.settings.warm:
            self._warm(closed, self._closed_forms(presets=True))
            if self._await_quiet(closed, IDLE, DEFER):
                importlib.import_module("deeplinear.lab._shelf")  # takes seconds, which the page of results is spared
        bound, missed = self.settings.memory_bytes, 0
        while not closed.wait(LOOK):
            if resident_memory() <= bound:
                continue
            if not self._drop(PATIENCE[min(missed, len(PATIENCE) - 1)] * self.settings.answer_seconds):
                missed += 1
                continue
            bound, missed = (
                max(self.settings.memory_bytes, resident_memory() + WORTH),
                0,
            )  # where the limit cannot be kept
            if self.settings.warm:
                self._warm(closed, self._closed_forms(presets=False))
            self.note = ""
            if self.settings.warm:
                self._warm_again(closed)

    def _warm(self, closed: threading.Event, forms: Sequence[tuple[Room, View, Params]]) -> None:
        """Compute closed forms, whether their answers are kept or not, so that they are compiled."""
        self.warm_done, self.warm_total = 0, len(forms)
        for room, view, params in forms:
            if not self._await_quiet(closed, IDLE, DEFER):
                break
            self._make_ready(closed, room, view, params)
            self.warm_done += 1
        self.warm_total = self.warm_done

    def _warm_again(self, closed: threading.Event) -> None:
        """Presets once more, while nobody asks for anything."""
        for room, view, params in self._closed_forms(presets=True):
            if self.lanes.knows(shape_of(room, view, params)):
                continue
            if not self._await_quiet(closed, QUIET, float("inf")):
                break
            self.warm_total += 1
            self._make_ready(closed, room, view, params)
            self.warm_done += 1

    def _await_quiet(self, closed: threading.Event, idle: float, longest: float) -> bool:
        """Wait until nobody asks; gives whether there is memory to make something ready, and a server."""
        until = time.monotonic() + longest
        while not closed.is_set() and resident_memory() <= SPARE * self.settings.memory_bytes:
            if not time.monotonic() < min(until, self._latest + idle):
                return True
            closed.wait(0.05)
        return False

    def _make_ready(self, closed: threading.Event, room: Room, view: View, params: Params) -> None:
        """Compute a closed form as one of a new shape."""
        self.warm_now = f"{room.title}: {view.title}"
        work = functools.partial(self._compute, key_of(room, view, params), view, params)
        try:
            self.lanes.prepare(shape_of(room, view, params), work)
        except Exception:
            if not closed.is_set():
                log.exception("%s could not be made ready.", self.warm_now)
        self.warm_now = ""

    def _drop(self, patience: float) -> bool:
        """Drop compiled programs at a moment without computations, if it comes."""
        self.note = (
            f"Compiled programs are dropped to stay within {self.settings.memory_bytes / 1e9:.3g} GB of memory; sizes "
            "that were used before take a moment once more."
        )
        with self.gate.alone(CALM, patience) as empty:
            if empty:
                drop_programs()
                self.lanes.forget()
                self.dropped += 1
        return empty
