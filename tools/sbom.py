"""Write sbom.cdx.json, the bill of materials: a CycloneDX document of the packages in requirements.lock.

    python tools/sbom.py

It says of each package its version, its release files' digests, what needs it, and whether the library itself does
(`required`) or only the development of it, the lab, reports and estimators (`optional`). The same lock gives the same
document; a test holds the file to it.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

BILL = ROOT / "sbom.cdx.json"

ENTRY = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)(?: ; ([^\\]*[^\s\\]))?")

ITSELF = ("deeplinear (pyproject.toml)", "-r build", "-r data")
"""How the lock calls what needs packages and is none itself."""


class Package(NamedTuple):
    """An entry of the lock."""

    name: str
    version: str
    marker: str
    digests: tuple[str, ...]
    needed_by: tuple[str, ...]


def normal(name: str) -> str:
    """The name of a package as indexes spell it.

    Example:
        >>> normal("Jinja2_x.y")
        'jinja2-x-y'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(text: str) -> list[Package]:
    """The entries of a lock."""
    found = []
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        entry = ENTRY.match(block)
        if entry:
            words = [line.strip() for line in block.splitlines() if line.startswith("    #")]
            names = [re.sub(r"^#\s*(via)?\s*", "", word) for word in words]
            needed_by = tuple(name for name in names if name and not name.startswith("-c "))
            digests = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)))
            found.append(Package(normal(entry[1]), entry[2], (entry[3] or "").strip(), digests, needed_by))
    return sorted(found)


def runtime() -> set[str]:
    """Names of the packages that the library itself names."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        needed = tomllib.load(file)["project"]["dependencies"]
    return {normal(re.split(r"[<>=!~;\[ ]", line, maxsplit=1)[0]) for line in needed}


def document(text: str) -> dict[str, Any]:
    """The bill of materials of a lock."""
    version = re.search(r'__version__ = "([^"]+)"', (ROOT / "src/deeplinear/_about.py").read_text(encoding="utf-8"))
    assert version is not None
    found = packages(text)
    place = {package.name: f"pkg:pypi/{package.name}@{package.version}" for package in found}
    root = f"pkg:pypi/deeplinear@{version[1]}"
    needs: dict[str, list[str]] = {root: []} | {ref: [] for ref in place.values()}
    for package in found:
        for name in package.needed_by:
            above = root if name in ITSELF else place.get(normal(name))
            if above is not None and place[package.name] not in needs[above]:
                needs[above].append(place[package.name])
    reached, waiting = set(), [place[name] for name in runtime()]
    while waiting:
        ref = waiting.pop()
        if ref not in reached:
            reached.add(ref)
            waiting += needs[ref]
    components = [
        {
            "type": "library",
            "bom-ref": place[package.name],
            "name": package.name,
            "version": package.version,
            "purl": place[package.name],
            "scope": "required" if place[package.name] in reached else "optional",
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{package.name}/{package.version}/",
                    "hashes": [{"alg": "SHA-256", "content": digest} for digest in package.digests],
                }
            ],
            **({"properties": [{"name": "python:marker", "value": package.marker}]} if package.marker else {}),
        }
        for package in found
    ]
    itself = {"type": "library", "bom-ref": root, "name": "deeplinear", "version": version[1], "purl": root}
    itself["licenses"] = [{"license": {"id": "Apache-2.0"}}]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": sorted(below)} for ref, below in sorted(needs.items())],
    }


def main() -> int:
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    BILL.write_text(json.dumps(document(text), indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
