"""What is shipped as source is what is kept."""

import shutil
import subprocess
import tomllib

import pytest

from architecture.source import ROOT

ALWAYS = {"pyproject.toml", ".gitignore", "LICENSE"}
"""Files that Hatch adds by itself."""


def test_all_that_is_kept_is_in_the_source_distribution() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not in a repository")
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files"]
    kept = {line.split("/")[0] for line in subprocess.check_output(command, text=True).splitlines()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert {name for name in kept - ALWAYS if not name.endswith(".md")} == set(included) - {"*.md"}
