"""A file from elsewhere, and the one family of errors that says why it cannot be read."""

import contextlib
import dataclasses
import gzip
import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

LARGEST_UNPACKED = 2**28
"""Bytes that a compressed file may unpack to, whatever its own size."""

LONGEST_WORDS = 160
"""Characters of what another library says that are quoted in an error."""

RESTORE = "restore the file from a copy, or write it again"

BROKEN = (
    ValueError,
    EOFError,
    OSError,
    OverflowError,
    RecursionError,
    LookupError,
    TypeError,
    MemoryError,
    NotImplementedError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
)
"""What the readers of archives and of compressed data raise on damaged files."""


class FileError(ValueError):
    """A file that cannot be used: who reads it, its name, the problem and the fix.

    Attributes:
        where: The function or the option that reads the file.
        name: The file.
        problem: What is wrong with it.
        fix: What to do.
    """

    def __init__(self, where: str, name: str, problem: str, fix: str) -> None:
        super().__init__(f"{where}: cannot read {name}: {problem}; {fix}.")
        self.where, self.name, self.problem, self.fix = where, name, problem, fix

    def seen_by(self, where: str) -> "FileError":
        """Return the same error with another reader, such as the option that named the file."""
        return type(self)(where, self.name, self.problem, self.fix)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.where, self.name, self.problem, self.fix)


class MissingFile(FileError, FileNotFoundError):
    """A file that does not exist."""


@dataclasses.dataclass(frozen=True)
class Source:
    """A file that is read, on disk or in memory.

    Attributes:
        where: The function or the option that reads it, for messages.
        name: Its path, or what it is called in messages.
        content: Its bytes, where it lies in memory.

    Example:
        >>> Source("load", "numbers.csv", b"1,2").text()
        '1,2'
    """

    where: str
    name: str
    content: bytes | None = dataclasses.field(default=None, repr=False)

    @staticmethod
    def of(path: str | os.PathLike[str], where: str) -> "Source":
        """Return the source of a path, or refuse what is not a regular file: reading a pipe or a device may not end."""
        found = Source(where, os.fspath(path))
        with found.guarded():
            mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            raise found.refused("it is a folder", "name a file")
        if not stat.S_ISREG(mode):
            raise found.refused("it is not a regular file", "copy it into one first")
        return found

    @property
    def ending(self) -> str:
        """The ending of its name, in small letters."""
        return Path(self.name).suffix.lower()

    @property
    def stem(self) -> str:
        """Its name without folder and ending."""
        return Path(self.name).stem

    @property
    def size(self) -> int:
        """Its bytes."""
        if self.content is not None:
            return len(self.content)
        with self.guarded():
            return os.stat(self.name).st_size

    def refused(self, problem: str, fix: str = RESTORE) -> FileError:
        """Return the error that refuses this file."""
        return FileError(self.where, self.name, problem, fix)

    @contextlib.contextmanager
    def guarded(self, problem: str = "", fix: str = RESTORE) -> Iterator[None]:
        """Turn what the readers of Python and NumPy raise on damaged files into a `FileError`.

        Args:
            problem: What is wrong with the file if they do, such as "it cannot be unpacked".
            fix: What to do.
        """
        try:
            yield
        except FileError:
            raise
        except FileNotFoundError:
            raise MissingFile(self.where, self.name, "no such file", "check the name and the folder") from None
        except PermissionError:
            raise self.refused("permission denied", "check who may read it") from None
        except MemoryError:
            raise self.refused("there is not enough memory for it", "use a machine with more memory") from None
        except BROKEN as error:
            words = f"{problem} ({one_line(error)})" if problem else one_line(error)
            raise self.refused(words, fix) from None

    @contextlib.contextmanager
    def opened(self, problem: str = "") -> Iterator[IO[bytes]]:
        """Open the file for reading; errors of the block become a `FileError`, as in `guarded`."""
        with (
            self.guarded(problem),
            io.BytesIO(self.content) if self.content is not None else open(self.name, "rb") as file,
        ):
            yield file

    def read(self, most: int | None = None) -> bytes:
        """Return all bytes, or refuse a file that is larger than `most` before it is read."""
        if most is not None and self.size > most:
            raise self.refused(f"it has {self.size:,} bytes, more than {most:,}", "give a smaller file")
        if self.content is not None:
            return self.content
        with self.opened() as file:
            return file.read()

    def unpacked(self, most: int = LARGEST_UNPACKED) -> bytes:
        """Return all bytes, decompressed if the name ends in .gz, but never more than `most`."""
        if self.ending != ".gz":
            return self.read(most)
        with self.opened("it cannot be unpacked") as file, gzip.GzipFile(fileobj=file) as packed:
            content = packed.read(most + 1)
        if len(content) > most:
            raise self.refused(f"it unpacks to more than {most:,} bytes", "give the file as its authors publish it")
        return content

    def text(self, most: int = LARGEST_UNPACKED) -> str:
        """Return its text in UTF-8, without a mark of the byte order."""
        content = self.read(most)
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise self.refused(f"it is not text in UTF-8 (byte {error.start})", "save it as UTF-8") from None


def one_line(error: BaseException) -> str:
    """Return the words of an error on one line, or else its kind.

    Example:
        >>> one_line(EOFError())
        'EOFError'
    """
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(words.split())[:LONGEST_WORDS].rstrip(".") or type(error).__name__
