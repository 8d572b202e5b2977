"""Answers that are kept, within a bound of memory."""

import threading
from collections import OrderedDict


class Cache:
    """The latest used answers, as bytes."""

    def __init__(self, most: int) -> None:
        self._most, self._size = most, 0
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """The answer, if it is kept."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: str, value: bytes) -> None:
        """Keep an answer, and forget the longest unused ones beyond the bound."""
        if len(value) > self._most:
            return
        with self._lock:
            self._size += len(value) - len(self._kept.pop(key, b""))
            self._kept[key] = value
            while self._size > self._most:
                self._size -= len(self._kept.popitem(last=False)[1])

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size
