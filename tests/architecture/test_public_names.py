"""Public names are a snapshot, so that a change of the interface is seen when it is read."""

from pathlib import Path

from architecture.source import exports, subpackages

SNAPSHOT = Path(__file__).with_name("public_names.txt")
REGENERATE = "PYTHONPATH=tests .venv/bin/python -m architecture.test_public_names"


def public_names() -> list[str]:
    """What each sub-package offers: what its `__init__` re-exports without a leading underscore."""
    found = {f"deeplinear.{name}.{item}" for name in subpackages() for item in exports(f"deeplinear.{name}")}
    return sorted(one for one in found if not one.rpartition(".")[2].startswith("_"))


def test_public_names_are_those_of_the_snapshot() -> None:
    listed = SNAPSHOT.read_text(encoding="utf-8").split()
    new, gone = sorted(set(public_names()) - set(listed)), sorted(set(listed) - set(public_names()))
    assert listed == public_names(), (
        f"public names changed: new {new}, gone {gone}. If that is meant, write the snapshot anew with\n"
        f"    {REGENERATE}\nand add a line to CHANGELOG.md."
    )


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(public_names()) + "\n", encoding="utf-8")
    print(f"{len(public_names())} names written to {SNAPSHOT}")
