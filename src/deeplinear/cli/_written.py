"""The files a command writes: a file that the command did not write is never replaced. Imports nothing heavy."""

import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from deeplinear.cli._interrupt import deferred
from deeplinear.cli._shell import UsageError, say

MANIFEST = ".dln-written.json"
"""File in each folder of results that lists what was written there: by name the command and the digests."""

FORMAT = 1
"""Version of the manifest."""


class Written:
    """The files that one command may write into a folder, refused at once where they would replace foreign ones.

    A file is replaced only if the manifest of its folder says that the same command wrote exactly these bytes. Files
    of earlier runs that are not replaced stay where they are.
    """

    def __init__(
        self,
        command: str,
        files: Sequence[Path],
        *,
        force: bool,
        read: Mapping[str, str | None] | None = None,
        others: Iterable[Path] = (),
        flag: str = "--out",
    ) -> None:
        """Check the files before a run, so that no run is lost.

        Args:
            command: Name of the command, without `dln`.
            files: Files that may be written, all in one folder.
            force: Whether foreign files may be replaced.
            read: Files that are read, by their names in messages; these are never replaced.
            others: Files that the command writes under other flags, which are reported if an earlier run left them.
            flag: Option that names the place.
        """
        self.command, self.folder, self.force = command, files[0].parent, force
        self._names, self._others = [file.name for file in files], [file.name for file in others]
        _keep_inputs(files, read or {}, flag)
        known = self._manifest()
        for file in files:
            if file.is_dir():
                raise UsageError(f"{flag}: {file} must be a file to write, but is a folder; name another {flag}.")
            if not force and not self._replaceable(file, known):
                own = self._command_of(known, file.name) == command
                why = f"changed since dln {command} wrote it" if own else f"not written by dln {command}"
                raise UsageError(
                    f"{flag}: {file} would be replaced, but was {why}; name another {flag}, or replace it with --force."
                )

    def write(self, make: Callable[[Path], Sequence[Path]]) -> list[Path]:
        """Write files into a folder of their own and move them into place; an interrupt waits until they are there.

        Args:
            make: Writes into the folder it is given, and returns the files.

        Returns:
            Where the files are now.
        """
        with deferred(), tempfile.TemporaryDirectory(prefix=".dln-", dir=self.folder) as part:
            try:
                made = make(Path(part))
                for file in made:
                    with file.open("rb+") as stream:
                        os.fsync(stream.fileno())
                targets = [self._target(file.name) for file in made]
                # The manifest goes first, with the digests of what is being replaced: it is true whenever a kill comes.
                self._record({target.name: _digest(file) for file, target in zip(made, targets, strict=True)})
                for file, target in zip(made, targets, strict=True):
                    os.replace(file, target)
            except OSError as error:
                if error.filename is not None and Path(error.filename).parent == Path(part):
                    error.filename = str(self.folder / Path(error.filename).name)  # the name that is known
                raise
        return targets

    def finish(self, written: Sequence[Path]) -> None:
        """Report the files of earlier runs that could be mistaken for files of this one; they are left alone."""
        known = self._manifest()
        for name in (*self._names, *self._others):
            file = self.folder / name
            if written and file not in written and self._command_of(known, name) == self.command and file.is_file():
                say(f"dln: {file} is from an earlier run and was left as it is.")

    def _target(self, name: str) -> Path:
        """Where a file goes; beside its place if a foreign file came there during the run."""
        target, known = self.folder / name, self._manifest()
        if self.force or self._replaceable(target, known):
            return target
        numbered = (target.with_stem(f"{target.stem}-{number}") for number in itertools.count(2))
        free = next(file for file in numbered if not os.path.lexists(file))
        say(f"dln: {target} was changed during the run and was left as it is; the result is {free}.")
        return free

    def _replaceable(self, file: Path, known: Mapping[str, Mapping[str, object]]) -> bool:
        """Whether there is nothing, or exactly what this command wrote."""
        if not os.path.lexists(file):
            return True
        if not file.is_file() or self._command_of(known, file.name) != self.command:
            return False
        digests = known[file.name].get("sha256")
        return isinstance(digests, list) and _digest(file) in digests

    @staticmethod
    def _command_of(known: Mapping[str, Mapping[str, object]], name: str) -> object:
        return known[name].get("command") if name in known else None

    def _manifest(self) -> dict[str, dict[str, object]]:
        """What was written into the folder, by name."""
        path = self.folder / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError):
            content = None
        files = content.get("files") if isinstance(content, dict) and content.get("format") == FORMAT else None
        if not isinstance(files, dict) or not all(isinstance(entry, dict) for entry in files.values()):
            raise UsageError(f"cannot read {path}, the list of what was written there; name another folder.")
        return files

    def _record(self, digests: Mapping[str, str]) -> None:
        """Add what is about to be moved into place."""
        from deeplinear.core import replacing

        known = self._manifest()
        for name, digest in digests.items():
            before = known[name].get("sha256") if self._command_of(known, name) == self.command else None
            last = before[:1] if isinstance(before, list) else []
            known[name] = {"command": self.command, "sha256": list(dict.fromkeys([digest, *last]))}
        with replacing(self.folder / MANIFEST) as part:
            part.write_text(json.dumps({"format": FORMAT, "files": known}, indent=1) + "\n", encoding="utf-8")


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _keep_inputs(files: Iterable[Path], read: Mapping[str, str | None], flag: str) -> None:
    """Refuse to write over a file that is read."""
    sources = {where: Path(path) for where, path in read.items() if path is not None and Path(path).exists()}
    for file in files:
        for where, source in sources.items():
            if file.exists() and file.samefile(source):
                raise UsageError(
                    f"{flag} must not write over what is read, but {file} is {where}; name another {flag}."
                )
