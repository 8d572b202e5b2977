"""Files that are there as a whole or not at all."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to, in the folder of `path`, which is made if need be; renamed to `path` at the end.

    Whoever reads `path` finds what was there before or all that was written, also after a failure of the system: the
    file goes through to the disk first. Any number may write the same path at once; the last one's file stays. Where
    the block raises, what was written is removed.

    Args:
        path: The file to write or to replace.

    Returns:
        Context manager that gives the path to write to, of a name of its own.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/found/value.txt") as part:
        ...         length = part.write_text("4.0")
        ...     [(file.name, file.read_text()) for file in part.parent.iterdir()]
        [('value.txt', '4.0')]
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        yield part
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        if error.filename == str(part):
            error.filename = str(target)  # the name that is known
        raise
    finally:
        part.unlink(missing_ok=True)
