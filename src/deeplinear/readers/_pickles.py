"""Pickles of dictionaries of lists, numbers and arrays of bytes, read without Python's unpickler.

Python's own reader runs what a file names, and takes gigabytes for nine bytes that name a far place of its memory. This
one knows the opcodes that such files need and nothing else, so that a file can neither call anything nor make more
objects than it has bytes.
"""

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from deeplinear.readers._images import PUBLISHED
from deeplinear.readers._source import Source

MOST_STEPS = 2**20
"""Opcodes of a file; the largest of CIFAR has a fifth of them."""

LONGEST_LINE = 200
"""Bytes of the name of a module or of a class."""

ENCODINGS = ("latin1", "latin-1", b"latin1", b"latin-1")


class _Damaged(Exception):
    """The pickle cannot be read; the text says why."""


class _Bytes:
    """Stand-in for `numpy.dtype`: single bytes."""


class _Array:
    """Stand-in for an array that is being made; `numbers` is the array of bytes."""

    def __init__(self) -> None:
        self.numbers: np.ndarray = np.empty(0, np.uint8)


def _quoted(value: Any) -> str:
    """Return a short text for messages; that of a nested value may take for ever, or recurse too deeply."""
    return f"{value[:20]!r}" if isinstance(value, str | bytes) else type(value).__name__


def _reconstruct(arguments: tuple[Any, ...]) -> _Array:
    if not arguments or arguments[0] is not KNOWN["numpy.ndarray"]:
        raise _Damaged("it makes something other than an array")
    return _Array()


def _dtype(arguments: tuple[Any, ...]) -> _Bytes:
    kind = arguments[0] if arguments else None
    if kind not in ("u1", b"u1"):
        raise _Damaged(f"its numbers are of the kind {_quoted(kind)}, and only arrays of bytes are read")
    return _Bytes()


def _encode(arguments: tuple[Any, ...]) -> bytes:
    if len(arguments) != 2 or not isinstance(arguments[0], str) or arguments[1] not in ENCODINGS:
        raise _Damaged("it encodes something other than bytes")
    try:
        return arguments[0].encode("latin1")
    except UnicodeEncodeError:
        raise _Damaged("its bytes are no bytes") from None


def _uncallable(arguments: tuple[Any, ...]) -> Any:
    raise _Damaged("it makes something other than an array")


KNOWN: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "numpy.core.multiarray._reconstruct": _reconstruct,
    "numpy._core.multiarray._reconstruct": _reconstruct,
    "numpy.ndarray": _uncallable,  # only handed to `_reconstruct`
    "numpy.dtype": _dtype,
    "_codecs.encode": _encode,
}
"""All that pickles of arrays of bytes name, and what stands for it here."""


def read_pickle(source: Source) -> Any:
    """Return what a pickle of lists, dictionaries, numbers, text and arrays of bytes holds; nothing is executed.

    Example:
        >>> import pickle
        >>> read_pickle(Source("load", "batch", pickle.dumps({b"labels": [3, 5]})))
        {b'labels': [3, 5]}
    """
    content = source.unpacked()
    try:
        found = _Machine(content).run()
    except _Damaged as error:
        raise source.refused(str(error), PUBLISHED) from None
    except (struct.error, IndexError):
        raise source.refused("it ends before its end", PUBLISHED) from None
    if isinstance(found, dict):
        return {key: value.numbers if isinstance(value, _Array) else value for key, value in found.items()}
    return found.numbers if isinstance(found, _Array) else found


class _Machine:
    """The stack and the memory of a pickle that is read."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memory: dict[int, Any] = {}

    def run(self) -> Any:
        for _ in range(MOST_STEPS):
            code = self.take(1)
            if code == b".":
                return self.pop()
            step = STEPS.get(code)
            if step is None:
                raise _Damaged(f"it has the opcode {code!r}, which files of arrays of bytes do not need")
            step(self)
        raise _Damaged(f"it has more than {MOST_STEPS:,} opcodes")

    def take(self, count: int) -> bytes:
        end = self.place + count
        if end > len(self.content):
            raise _Damaged("it ends before its end")
        found = self.content[self.place : end]
        self.place = end
        return found

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def sized(self, form: str) -> bytes:
        """Return as many bytes as the number before them says."""
        length = self.number(form)
        if length < 0:
            raise _Damaged("it has a negative length")
        return self.take(length)

    def line(self) -> str:
        end = self.content.find(b"\n", self.place, self.place + LONGEST_LINE)
        if end < 0:
            raise _Damaged("it has no end of a line")
        found = self.content[self.place : end]
        self.place = end + 1
        return found.decode("latin1")

    def text(self, form: str) -> None:
        try:
            self.push(self.sized(form).decode("utf-8", "surrogatepass"))
        except UnicodeDecodeError:
            raise _Damaged("its text is not UTF-8") from None

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        if not self.stack or (self.marks and self.marks[-1] >= len(self.stack)):
            raise _Damaged("its stack is empty")
        return self.stack.pop()

    def top(self, kind: type) -> Any:
        if not self.stack or not isinstance(self.stack[-1], kind):
            raise _Damaged(f"it fills something that is no {kind.__name__}")
        return self.stack[-1]

    def marked(self) -> list[Any]:
        """Take what lies above the last mark."""
        if not self.marks:
            raise _Damaged("it has no mark")
        begin = self.marks.pop()
        found = self.stack[begin:]
        del self.stack[begin:]
        return found

    def many(self, count: int) -> tuple[Any, ...]:
        return tuple(reversed([self.pop() for _ in range(count)]))

    def remember(self, place: int) -> None:
        if not self.stack:
            raise _Damaged("its stack is empty")
        self.memory[place] = self.stack[-1]

    def recall(self, place: int) -> None:
        if place not in self.memory:
            raise _Damaged(f"it recalls place {place}, where it has put nothing")
        self.push(self.memory[place])

    def named(self, module: Any, name: Any) -> None:
        found = KNOWN.get(f"{module}.{name}") if isinstance(module, str) and isinstance(name, str) else None
        if found is None:
            asked = ".".join(part if isinstance(part, str) else _quoted(part) for part in (module, name))
            raise _Damaged(f"it asks for {asked[:80]}, and only arrays of bytes are read")
        self.push(found)

    def named_by_stack(self) -> None:
        module, name = self.many(2)
        self.named(module, name)

    def call(self) -> None:
        function, arguments = self.many(2)
        if function not in KNOWN.values() or not isinstance(arguments, tuple):
            raise _Damaged("it calls something other than an array")
        self.push(function(arguments))

    def build(self) -> None:
        state = self.pop()
        made = self.stack[-1] if self.stack else None
        if isinstance(made, _Bytes):
            return  # Order of bytes and alignment mean nothing for single bytes.
        if not isinstance(made, _Array) or not isinstance(state, tuple) or len(state) != 5:
            raise _Damaged("an array in it is not one of bytes")
        _, shape, kind, by_columns, content = state
        if not isinstance(kind, _Bytes) or not isinstance(content, bytes):
            raise _Damaged("an array in it is not one of bytes")
        if not isinstance(shape, tuple) or not 1 <= len(shape) <= 4:
            raise _Damaged("an array in it has no shape")
        if any(type(n) is not int or not 0 <= n < 2**40 for n in shape) or math.prod(shape) != len(content):
            raise _Damaged(f"an array in it has {len(content)} bytes, which do not fit its shape")
        made.numbers = np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if by_columns is True else "C")

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def assign(self, values: list[Any]) -> None:
        if len(values) % 2 or not all(type(key) in (bytes, str, int) for key in values[::2]):
            raise _Damaged("it has a dictionary whose keys are no text")
        self.top(dict).update(zip(values[::2], values[1::2], strict=True))


STEPS: dict[bytes, Callable[[_Machine], Any]] = {
    b"\x80": lambda m: m.take(1),  # protocol
    b"\x95": lambda m: m.take(8),  # frame
    b"(": lambda m: m.marks.append(len(m.stack)),
    b"0": lambda m: m.pop(),
    b"1": lambda m: m.marked(),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"J": lambda m: m.push(m.number("<i")),
    b"\x8a": lambda m: m.push(int.from_bytes(m.sized("<B"), "little", signed=True)),
    b"U": lambda m: m.push(m.sized("<B")),
    b"C": lambda m: m.push(m.sized("<B")),
    b"T": lambda m: m.push(m.sized("<i")),
    b"B": lambda m: m.push(m.sized("<I")),
    b"\x8e": lambda m: m.push(m.sized("<Q")),
    b"\x8c": lambda m: m.text("<B"),
    b"X": lambda m: m.text("<I"),
    b"\x8d": lambda m: m.text("<Q"),
    b")": lambda m: m.push(()),
    b"\x85": lambda m: m.push(m.many(1)),
    b"\x86": lambda m: m.push(m.many(2)),
    b"\x87": lambda m: m.push(m.many(3)),
    b"t": lambda m: m.push(tuple(m.marked())),
    b"]": lambda m: m.push([]),
    b"l": lambda m: m.push(m.marked()),
    b"a": lambda m: m.append([m.pop()]),
    b"e": lambda m: m.append(m.marked()),
    b"}": lambda m: m.push({}),
    b"s": lambda m: m.assign(list(m.many(2))),
    b"u": lambda m: m.assign(m.marked()),
    b"q": lambda m: m.remember(m.number("<B")),
    b"r": lambda m: m.remember(m.number("<I")),
    b"\x94": lambda m: m.remember(len(m.memory)),
    b"h": lambda m: m.recall(m.number("<B")),
    b"j": lambda m: m.recall(m.number("<I")),
    b"c": lambda m: m.named(m.line(), m.line()),
    b"\x93": _Machine.named_by_stack,
    b"R": _Machine.call,
    b"b": _Machine.build,
}
"""What each opcode does."""
