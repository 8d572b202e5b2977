"""Runs pages in processes of their own, two at a time, and keeps their outputs for as long as nothing changes."""

import base64
import concurrent.futures
import functools
import hashlib
import importlib.metadata
import json
import logging
import multiprocessing
import os
import re
import tempfile
import time
import tomllib
import warnings
from collections.abc import Mapping
from pathlib import Path

from book.run import Output, Picture, blocks, run_blocks

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "book"
"""Where outputs are kept."""

LOG = logging.getLogger("mkdocs.book")


def outputs_of(pages: Mapping[str, str]) -> dict[str, list[Output]]:
    """Outputs of the blocks of pages, given their texts by name; what is kept is not run again.

    Raises:
        RuntimeError: If blocks failed; it says which, of all pages.
    """
    found, waiting = {}, {}
    for name, text in pages.items():
        path = FOLDER / f"{_key(text)}.json"
        if path.exists():
            found[name] = _read(path)
        else:
            waiting[name] = (text, path)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor(
        max_workers=min(2, os.cpu_count() or 1),
        mp_context=multiprocessing.get_context("spawn"),
        max_tasks_per_child=1,
    ) as pool:
        running = {pool.submit(_run_page, name, text, path): name for name, (text, path) in waiting.items()}
        wrong = []
        for done in concurrent.futures.as_completed(running):
            name = running[done]
            if error := done.exception():
                wrong.append(str(error))
            else:
                LOG.info("Ran %s in %.1f s", name, done.result())
                found[name] = _read(waiting[name][1])
    if wrong:
        raise RuntimeError("blocks of pages failed:\n" + "\n".join(wrong))
    return found


def _run_page(name: str, text: str, path: Path) -> float:
    """Run one page in this process and write its outputs; the seconds it took."""
    os.environ["MPLBACKEND"] = "Agg"
    from deeplinear import use_64_bit
    from deeplinear.core import replacing

    use_64_bit()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("error")  # as in the tests
        os.chdir(folder)
        try:
            outputs = run_blocks(text, name)
        except Exception as error:
            raise RuntimeError(f"{name}{_place(error, name)}: {type(error).__name__}: {error}") from None
        finally:
            os.chdir(ROOT)
    plain = [
        {"text": one.text, "pictures": [[p.alt, p.ending, base64.b64encode(p.data).decode()] for p in one.pictures]}
        for one in outputs
    ]
    with replacing(path) as part:
        part.write_text(json.dumps(plain), encoding="utf-8")
    return time.perf_counter() - start


def _place(error: BaseException, name: str) -> str:
    """The line of the page where an error arose."""
    line, trace = "", error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            line = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _read(path: Path) -> list[Output]:
    plain = json.loads(path.read_text(encoding="utf-8"))
    return [
        Output(
            one["text"], tuple(Picture(alt, ending, base64.b64decode(data)) for alt, ending, data in one["pictures"])
        )
        for one in plain
    ]


def _key(text: str) -> str:
    """Address of the outputs: the blocks of the page, and all their numbers and looks depend on."""
    parts = [[code for _, code in blocks(text)], _program()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:20]


@functools.cache
def _program() -> list[str]:
    """Digest of all files of the package and of the runner, and the versions of what they use."""
    digest = hashlib.sha256()
    package = ROOT / "src" / "deeplinear"
    files = [path for path in sorted(package.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    for path in (*files, ROOT / "book" / "run.py"):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(ROOT).as_posix()} {len(content)}\n".encode() + content)
    return [digest.hexdigest(), *(f"{name} {importlib.metadata.version(name)}" for name in _dependencies())]


def _dependencies() -> list[str]:
    """Names of the packages that the package uses, with the extras of the book."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = {one for name in ("estimators", "lab", "report") for one in extras[name]} | set(project["dependencies"])
    names = {re.split(r"[^\w.-]", one)[0] for one in wanted}
    return sorted(names - {project["name"]})
