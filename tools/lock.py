"""Write requirements.lock: every package that `make` installs, with its version and the digests of its release files.

    pip install uv && python tools/lock.py && python tools/sbom.py

The versions are those of constraints.txt; the digests are those of the package index. Packages whose data files only
are read stand in it without what they need. Needs the network, and uv.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LOCK = ROOT / "requirements.lock"

HEAD = """\
# Every package that `make` installs, for every platform, with the digests of its release files. Written by
# tools/lock.py from pyproject.toml and constraints.txt; install with pip's --require-hashes and --no-deps.
"""

OLDEST = "3.11.0"
"""Python for which versions are chosen: the oldest that the package runs on."""


def data_packages() -> list[str]:
    """The packages of which only data files are read."""
    found = re.search(r"^DATA\s*:=\s*(.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1].split()


def build_packages() -> list[str]:
    """What builds the package itself; an editable installation needs one package more."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        return [*tomllib.load(file)["build-system"]["requires"], "editables"]


def compiled(uv: str, *what: str) -> str:
    """Lines of a lock."""
    fixed = ["-c", "constraints.txt", "--universal", "--generate-hashes", "--python-version", OLDEST, "--no-header"]
    command = [uv, "pip", "compile", "--quiet", *what, *fixed]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    uv = sys.argv[1] if len(sys.argv) > 1 else "uv"
    with tempfile.TemporaryDirectory() as folder:
        build, data = Path(folder) / "build.in", Path(folder) / "data.in"
        build.write_text("\n".join(build_packages()))
        data.write_text("\n".join(data_packages()))
        whole = compiled(uv, "pyproject.toml", str(build), "--extra", "dev", "--extra", "report")
        only = compiled(uv, str(data), "--no-deps")
        text = (HEAD + whole + only).replace(str(build), "build").replace(str(data), "data")
    LOCK.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
