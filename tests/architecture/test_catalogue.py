"""What the command line tells of checks and experiments without importing them is what the registries tell."""

import importlib.resources

from deeplinear.cli._catalogue import FILE, text

REGENERATE = ".venv/bin/python -m deeplinear.cli._catalogue"


def test_the_catalogue_is_that_of_the_registries() -> None:
    stored = (importlib.resources.files("deeplinear.cli") / FILE).read_text(encoding="utf-8").splitlines()
    now = text().splitlines()
    new, gone = sorted(set(now) - set(stored)), sorted(set(stored) - set(now))
    assert stored == now, (
        f"checks or experiments changed; write the catalogue anew with\n    {REGENERATE}\n"
        f"now: {[line[:80] for line in new]}, before: {[line[:80] for line in gone]}"
    )
