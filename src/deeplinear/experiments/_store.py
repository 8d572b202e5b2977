"""Where results live: one folder for each completed run, found by content, written atomically, checked when read.

    store/
      experiments/completion/fig2/3f9c…/   record.json  data.nc  figure.svg  figure.pdf  figure.png
      checks/completion/theorem-3.3/91ab…/ record.json
      scratch/…                            checkpoints of runs that are not complete yet
      parts/…                              folders being written
      replaced/…                           folders that were replaced and held more, or something else, than was written

A folder can be copied anywhere and opened with `Store.open_record`. `record.json` holds the digest of every file beside
it and one of itself, so that a damaged or edited file is noticed.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeplinear.core import replacing
from deeplinear.experiments._base import Claim
from deeplinear.experiments._record import fault_of
from deeplinear.readers import FileError, Source, one_line, read_json

try:
    import fcntl
except ImportError:  # Only Windows has none; there two processes must not write the same run at once.
    fcntl = None

if TYPE_CHECKING:
    import xarray

FORMAT = 1
"""Version of the layout of a run folder."""

WHERE = "store"

RECORD = "record.json"
LOCK = ".lock"
REPLACED = "replaced"
PART = re.compile(r"[0-9a-f]{32}")
"""Names of folders being written."""

LEFT_BEHIND = 3600.0
"""Seconds after which a folder being written is taken for one that was left behind."""


class CorruptRecord(FileError):
    """A run folder whose files are not what was written."""

    def __init__(self, where: str, name: str, problem: str, fix: str = "run it again, or restore the folder") -> None:
        super().__init__(where, name, problem, fix)


@dataclasses.dataclass(frozen=True)
class Record:
    """A completed run, as its folder tells it.

    Attributes:
        path: The folder.
        kind: `experiment` or `check`.
        id: Of the experiment or check.
        key: Content address.
        loaded: What `record.json` holds, where it is kept in memory.
    """

    path: Path
    kind: str
    id: str
    key: str
    loaded: Mapping[str, Any] | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def content(self) -> Mapping[str, Any]:
        """Everything in `record.json`: spec, claims, environment, timing; read and checked if it is not in memory."""
        if self.loaded is not None:
            return self.loaded
        found = Store.open_record(self.path)
        if (found.kind, found.id, found.key) != (self.kind, self.id, self.key):
            raise corrupt(self.path, f"it holds {found.kind} {found.id} {found.key}, not what its place says")
        return found.content

    @property
    def light(self) -> "Record":
        """The same record without its content in memory; it is read when it is asked for."""
        return dataclasses.replace(self, loaded=None)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims with their verdicts."""
        return tuple(
            Claim(**{**claim, "measured": float(claim["measured"])}) for claim in self.content.get("claims", ())
        )

    def file(self, name: str) -> bytes:
        """Content of a file of the folder, if it is what was written."""
        return self._file(name, self.content["files"])

    def _file(self, name: str, digests: Mapping[str, str]) -> bytes:
        if name not in digests:
            raise FileNotFoundError(f"{self.path} has no file '{name}'; it has {sorted(digests)}.")
        try:
            data = Source.of(self.path / name, WHERE).read()
        except FileError as error:
            raise corrupt(self.path / name, error.problem) from None
        if _digest(data) != digests[name]:
            raise corrupt(self.path / name, "it is not what was written: its digest differs from the record's")
        return data

    def dataset(self) -> "xarray.Dataset":
        """Return the arrays."""
        import xarray

        data = self.file("data.nc")
        try:
            with xarray.open_dataset(io.BytesIO(data), engine="h5netcdf") as opened:
                return opened.load()
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise corrupt(self.path / "data.nc", f"it is not NetCDF ({one_line(error)})") from None

    def verify(self) -> None:
        """Raise `CorruptRecord` if any file is not what was written."""
        digests = self.content["files"]
        for name in digests:
            self._file(name, digests)


class Store:
    """A folder of completed runs."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def folder(self, kind: str, name: str, key: str) -> Path:
        """Folder of a run, present or not."""
        return self.path / f"{kind}s" / name / key

    def keys(self, kind: str, name: str) -> set[str]:
        """Keys of the runs that are there, by one look at the names of their folders; nothing is read."""
        try:
            with os.scandir(self.path / f"{kind}s" / name) as entries:
                return {entry.name for entry in entries}
        except (FileNotFoundError, NotADirectoryError):
            return set()

    def record(self, kind: str, name: str, key: str) -> Record:
        """The record of a run that is there. Nothing is read now; its content and files are checked when they are."""
        return Record(self.folder(kind, name, key), kind, name, key)

    def find(self, kind: str, name: str, key: str) -> Record | None:
        """The record of a completed run, all files checked; `None` if there is none.

        Raises:
            CorruptRecord: If there is one, but damaged.
        """
        folder = self.folder(kind, name, key)
        with self._locked():
            if not os.path.lexists(folder):
                return None
            record = self.record(kind, name, key)
            record = dataclasses.replace(record, loaded=record.content)
            record.verify()
        return record

    @staticmethod
    def open_record(folder: str | os.PathLike[str]) -> Record:
        """The record in a run folder, wherever it lies; its own digest is checked, those of the files on reading."""
        path = Path(folder) / RECORD
        try:
            content = read_json(Source.of(path, WHERE))
        except FileError as error:
            raise corrupt(path, error.problem) from None
        if not isinstance(content, dict) or content.pop("digest", None) != _digest(_canonical(content)):
            raise corrupt(path, "it is not what was written: its digest differs")
        if content.get("format") != FORMAT:
            raise corrupt(path, f"its format is {content.get('format')!r:.40}, but this program reads {FORMAT}")
        fault = fault_of(content)
        if fault is not None:
            raise corrupt(path, fault)
        return Record(Path(folder), content["kind"], content["id"], content["key"], content)

    def put(
        self, kind: str, name: str, key: str, content: Mapping[str, Any], files: Mapping[str, bytes] | None = None
    ) -> Record:
        """Write a completed run. It is there as a whole or not at all; what is in its place is replaced."""
        files = files or {}
        body = {
            **content,
            "format": FORMAT,
            "kind": kind,
            "id": name,
            "key": key,
            "files": {file: _digest(data) for file, data in files.items()},
        }
        part = self.path / "parts" / uuid.uuid4().hex
        part.mkdir(parents=True)
        target = self.folder(kind, name, key)
        try:
            for file, data in files.items():
                with replacing(part / file) as whole:
                    whole.write_bytes(data)
            text = json.dumps({**body, "digest": _digest(_canonical(body))}, indent=2, allow_nan=False)
            with replacing(part / RECORD) as whole:
                whole.write_bytes(text.encode() + b"\n")
            target.parent.mkdir(parents=True, exist_ok=True)
            with self._locked():
                self._place(part, target)
        finally:
            _remove(part)
        return Record(target, kind, name, key, body)

    def _place(self, part: Path, target: Path) -> None:
        """Rename a whole folder into its place. What stands there is removed if it is exactly what was written, and
        kept under `replaced` otherwise: somebody may have edited a file, or put one beside the others."""
        aside = part.with_name(uuid.uuid4().hex)
        if os.path.lexists(target):
            own = self._untouched(target)
            kept = self.path / REPLACED / target.relative_to(self.path) / aside.name
            if not own:
                kept.parent.mkdir(parents=True, exist_ok=True)
            os.rename(target, aside if own else kept)
        os.rename(part, target)
        _remove(aside)

    def _untouched(self, folder: Path) -> bool:
        """Whether a folder holds what was written, all of it and nothing else."""
        try:
            record = self.open_record(folder)
            record.verify()
            held = {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}
            return not folder.is_symlink() and held == {RECORD, *record.content["files"]}
        except (CorruptRecord, OSError, KeyError, TypeError):
            return False

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Time in which no other process replaces a folder of this store; one that cannot be written needs no lock."""
        with contextlib.ExitStack() as stack:
            if fcntl is not None:
                with contextlib.suppress(OSError):
                    fcntl.flock(stack.enter_context((self.path / LOCK).open("a")), fcntl.LOCK_EX)
            yield

    def tidy(self) -> None:
        """Remove what writers that were killed have left."""
        for part in (self.path / "parts").glob("*"):
            if not PART.fullmatch(part.name):
                continue
            with contextlib.suppress(OSError):
                if time.time() - part.lstat().st_mtime > LEFT_BEHIND:
                    _remove(part)

    def records(self, kind: str) -> Iterator[Record | CorruptRecord]:
        """All runs of a kind, by id and key; a damaged one comes as the error that says what is wrong with it."""
        root = self.path / f"{kind}s"
        for path in sorted(root.glob("*/*/*")):
            try:
                record = self.open_record(path)
                record.verify()
                yield record
            except CorruptRecord as error:
                yield error

    def scratch(self, key: str) -> Path:
        """Folder for checkpoints of a run that is not complete yet."""
        return self.path / "scratch" / key

    def begun(self) -> set[str]:
        """Keys of the runs that have checkpoints."""
        with contextlib.suppress(OSError), os.scandir(self.path / "scratch") as entries:
            return {entry.name for entry in entries}
        return set()

    def clear_scratch(self, key: str) -> None:
        """Remove the checkpoints of a run, once it is complete."""
        shutil.rmtree(self.scratch(key), ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.path / "scratch").rmdir()


def corrupt(path: Path, problem: str) -> CorruptRecord:
    """Return the error about a file or a folder of a store."""
    return CorruptRecord(WHERE, str(path), problem)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, allow_nan=False).encode()


def _remove(path: Path) -> None:
    """Remove a folder or a file, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
