"""Answers of views: computed on a few threads, and kept."""

import asyncio
import functools
import logging
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

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cache = Cache(settings.cache_bytes)
        self.runs = Runs(settings, self.cache)
        self._asked = 0

    def open(self) -> None:
        """Begin to work."""
        self._pool = ThreadPoolExecutor(self.settings.answers, thread_name_prefix="lab-answer")
        self.runs.open()

    def close(self) -> None:
        """End all work."""
        self.runs.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _compute(self, key: str, view: View, params: Params) -> bytes:
        """Compute a closed form, and keep its answer."""
        answer: Answer = view.answer(params, Watch(seconds=self.settings.answer_seconds))
        if answer.count() > self.settings.points:
            raise LabError("size", "The answer has too many numbers. Ask for fewer times or smaller matrices.")
        found = answer.model_dump_json().encode()
        self.cache.put(key, found)
        return found

    async def answer(self, room: Room, view: View, params: Params) -> tuple[bytes, float]:
        """Return the answer of a closed form, and the milliseconds it took."""
        start = time.perf_counter()
        key = key_of(room, view, params)
        kept = self.cache.get(key)
        if kept is not None:
            return kept, 1000 * (time.perf_counter() - start)
        if self._asked >= self.settings.answers + self.settings.waiting:
            raise LabError("busy", "The server has too many requests at once. Try again in a moment.")
        self._asked += 1
        try:
            work = functools.partial(self._compute, key, view, params)
            computed = asyncio.get_running_loop().run_in_executor(self._pool, work)
            found = await asyncio.wait_for(computed, self.settings.answer_seconds)
        except TimeoutError:
            text = f"No answer within {self.settings.answer_seconds:g} seconds. Ask for less, or try again."
            raise LabError("time", text) from None
        except LabError:
            raise
        except Exception as error:
            failure = failure_of(error)
            if failure.kind == "internal":
                log.exception("%s failed.", key)
            raise LabError(failure.kind, failure.message, failure.fields) from error
        finally:
            self._asked -= 1
        return found, 1000 * (time.perf_counter() - start)

    def start(self, room: Room, view: View, params: Params) -> Ticket:
        """Begin a simulation, or join one."""
        return self.runs.submit(key_of(room, view, params), lambda watch: view.answer(params, watch))

    def kept(self, room: Room, view: View, params: Params) -> bytes | None:
        """Return the answer of an earlier simulation, if it is kept."""
        return self.cache.get(key_of(room, view, params))

    def status(self) -> dict[str, Any]:
        """Return how busy the server is, and how much it keeps."""
        return {"answers": self._asked, "runs": self.runs.busy(), "cached_bytes": self.cache.size}
