"""What is installed is what was tested: versions, digests and the bill of materials agree with each other."""

import importlib.metadata
import json
import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools.lock import OLDEST, build_packages, data_packages
from tools.sbom import BILL, document, normal, packages

ROOT = Path(__file__).parents[2]

LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

LOCKED = {package.name: package for package in packages(LOCK)}


def pins(text: str) -> dict[str, str]:
    return {
        normal(name): version for name, version in re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, re.MULTILINE)
    }


def test_every_locked_package_has_digests() -> None:
    assert len(LOCKED) == len(pins(LOCK)) > 100
    assert [package.name for package in LOCKED.values() if not package.digests] == []
    lines = [line for line in LOCK.splitlines() if line and not line.startswith(("#", "    "))]
    assert [line for line in lines if not re.match(r"^[A-Za-z0-9._-]+==\S+( ; .*)? \\$", line)] == []


def test_the_lock_is_made_for_the_oldest_python_that_is_promised() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        promised = tomllib.load(file)["project"]["requires-python"]
    assert promised == f">={OLDEST.removesuffix('.0')}" and OLDEST.endswith(".0")


def test_the_lock_has_the_versions_of_the_constraints() -> None:
    constraints = pins((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    assert pins(LOCK).items() <= constraints.items()


def needed() -> list[str]:
    """All requirements of an installation by `make`, those of extras that extras name included."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    waiting, found = ["dev", "report"], [*project["dependencies"], *build_packages(), *data_packages()]
    while waiting:
        for line in project["optional-dependencies"][waiting.pop()]:
            one = Requirement(line)
            if one.name == "deeplinear":
                waiting += one.extras
            else:
                found.append(line)
    return found


@pytest.mark.parametrize("line", sorted(set(needed())))
def test_every_requirement_is_locked_within_its_bounds(line: str) -> None:
    one = Requirement(line)
    assert LOCKED[normal(one.name)].version in one.specifier


def test_what_locked_packages_need_is_locked() -> None:
    """Where they are installed, their metadata say what they need here; packages of data are read, not run."""
    missing = []
    for name in LOCKED.keys() - {normal(name) for name in data_packages()}:
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        for one in map(Requirement, lines):
            if (one.marker is None or one.marker.evaluate({"extra": ""})) and normal(one.name) not in LOCKED:
                missing.append(f"{name} needs {one}")
    assert missing == []


def test_the_bill_of_materials_is_current() -> None:
    """`python tools/sbom.py` writes it anew."""
    stored = json.loads(BILL.read_text(encoding="utf-8"))
    assert stored == document(LOCK)
    assert (stored["bomFormat"], stored["specVersion"]) == ("CycloneDX", "1.6")
    refs = [component["bom-ref"] for component in stored["components"]]
    assert len(set(refs)) == len(refs) == len(LOCKED)
    scopes = {component["name"]: component["scope"] for component in stored["components"]}
    assert scopes["jaxlib"] == scopes["h5py"] == "required" and scopes["pytest"] == scopes["plotly"] == "optional"


def test_make_installs_with_digests_only() -> None:
    recipe = re.search(
        r"^\$\(INSTALLED\):.*?(?=^\S)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert recipe is not None
    installs = [line for line in recipe[0].splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert "--require-hashes --no-deps -r requirements.lock" in installs[0]
    assert "--no-build-isolation --no-deps -e ." in installs[1]
