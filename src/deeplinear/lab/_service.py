"""Answers of views: computed on a few threads, kept, and made ready in the background."""

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from deeplinear.lab._cache import Cache
from deeplinear.lab._errors import LabError, failure_of
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Params, Room, View, Watch
from deeplinear.lab._runs import Runs, Ticket
from deeplinear.lab._settings import Settings

log = logging.getLogger(__name__)


def key_of(room: Room, view: View, params: Params) -> str:
    """What an answer is kept under."""
    return f"{room.name}/{view.name}:{params.model_dump_json()}"


class Service:
    """What the server does, without HTTP."""

    def __init__(self, settings: Settings, rooms: tuple[Room, ...]) -> None:
        self.settings, self.rooms = settings, rooms
        self.cache = Cache(settings.cache_bytes)
        self.runs = Runs(settings, self.cache)
        self._asked = 0
        self.warm_total = sum(view.kind == "closed" for room in rooms for view in room.views) if settings.warm else 0
        self.warm_done, self.warm_now = 0, ""

    def open(self) -> None:
        """Begin to work."""
        self._closed = threading.Event()
        self._pool = ThreadPoolExecutor(self.settings.answers, thread_name_prefix="lab-answer")
        self.runs.open()
        if self.settings.warm:
            threading.Thread(target=self._warm, args=[self._closed], name="lab-warm", daemon=True).start()

    def compute(self, room: Room, view: View, params: Params) -> bytes:
        """The answer of a closed form, kept from before or new."""
        key = key_of(room, view, params)
        found = self.cache.get(key)
        if found is None:
            answer: Answer = view.answer(params, Watch(seconds=self.settings.answer_seconds))
            if answer.count() > self.settings.points:
                raise LabError("size", "The answer has too many numbers. Ask for fewer times or smaller matrices.")
            found = answer.model_dump_json().encode()
            self.cache.put(key, found)
        return found

    async def answer(self, room: Room, view: View, params: Params) -> tuple[bytes, float]:
        """The answer of a closed form, and the milliseconds it took."""
        start = time.perf_counter()
        if self._asked >= self.settings.answers + self.settings.waiting:
            raise LabError("busy", "The server has too many requests at once. Try again in a moment.")
        self._asked += 1
        loop = asyncio.get_running_loop()
        try:
            work = loop.run_in_executor(self._pool, self.compute, room, view, params)
            found = await asyncio.wait_for(work, self.settings.answer_seconds)
        except TimeoutError:
            text = f"No answer within {self.settings.answer_seconds:g} seconds. Ask for less, or try again."
            raise LabError("time", text) from None
        except LabError:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure.kind == "internal":
                log.exception("%s failed.", key_of(room, view, params))
            raise LabError(failure.kind, failure.message, failure.fields) from error
        finally:
            self._asked -= 1
        return found, 1000 * (time.perf_counter() - start)

    def start(self, room: Room, view: View, params: Params) -> Ticket:
        """Begin a simulation, or join one."""
        return self.runs.submit(key_of(room, view, params), lambda watch: view.answer(params, watch))

    def status(self) -> dict[str, Any]:
        """How far the server is with making closed forms ready."""
        return {"ready": self.warm_done, "of": self.warm_total, "now": self.warm_now, "cached_bytes": self.cache.size}

    def close(self) -> None:
        """End all work."""
        self._closed.set()
        self.runs.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _warm(self, closed: threading.Event) -> None:
        self.warm_done = 0
        for room in self.rooms:
            for view in (one for one in room.views if one.kind == "closed"):
                if closed.is_set():
                    return
                self.warm_now = f"{room.title}: {view.title}"
                try:
                    self.compute(room, view, view.params())
                except Exception:
                    log.exception("%s could not be made ready.", self.warm_now)
                self.warm_done += 1
        self.warm_now = ""
