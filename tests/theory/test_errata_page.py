"""The page of errata is what the registry and the stored numbers say, and the numbers are those of today's checks."""

import dataclasses
import importlib
import re
import sys
from types import ModuleType

import numpy as np
import pytest
from latex2mathml.converter import convert

from architecture.source import ROOT
from deeplinear.theory import Check, Measured, Violation, check, errata

pytestmark = pytest.mark.covers("rnn:F30")


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    """The module that writes the page."""
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module("book.errata")
    finally:
        sys.path.pop(0)


def test_the_page_is_made_from_the_registry(writer: ModuleType) -> None:
    assert writer.PAGE.read_text(encoding="utf-8") == writer.page(writer.stored()), "run `python -m book.errata`"


def test_numbers_are_those_of_the_checks_as_they_are(writer: ModuleType) -> None:
    versions = {name: entry["version"] for name, entry in writer.stored().items()}
    assert versions == {one.check: check(one.check).version for entry in errata() for one in entry.evidence}, (
        "run `python -m book.errata --measure`"
    )


def test_every_erratum_can_be_linked(writer: ModuleType) -> None:
    text = writer.PAGE.read_text(encoding="utf-8")
    places = re.findall(r'<a id="([^"]+)">', text)
    assert places == [f"{entry.paper}-e{entry.number}" for entry in errata()]
    headings = {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.M)}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= {*places, *headings}


def test_formulas_of_the_page_can_be_drawn(writer: ModuleType) -> None:
    text = re.sub(r"`[^`\n]*`", "", writer.PAGE.read_text(encoding="utf-8"))
    assert text.count("$") % 2 == 0
    for formula in set(re.findall(r"\$([^$]+)\$", text)):
        assert re.findall(r"\\[A-Za-z]+", convert(formula)) == [], formula


def statement(ours: float, printed: float) -> Check[float]:
    """A check whose instances are numbers, of which both forms are missed by multiples."""
    return Check(
        id="network/none",
        source="Section 0",
        statement="It is so.",
        printed="It is not.",
        hypotheses=(),
        tolerances={"part": 1e-3, "other part": 0.0},
        measure=lambda cases: [Measured({"part": ours * x, "other part": -1.0}, printed=printed * x) for x in cases],
        draw=lambda rng: float(rng.uniform(0.5, 1.0)),
        violations=(Violation("none", lambda rng: 1.0),),
        printed_tolerance=1e-6,
        version=7,
    )


def test_the_instance_that_misses_the_printed_form_most_is_told(writer: ModuleType) -> None:
    one = statement(ours=1e-4, printed=3.0)
    found = writer.measure(one)
    drawn = [one.draw(writer.generator(one.id, writer.SEED, k)) for k in range(writer.INSTANCES)]
    worst = int(np.argmax(drawn))
    assert found == {
        "version": 7,
        "instance": worst,
        "printed": f"{3 * drawn[worst]:.2g}".removesuffix(".0"),
        "printed_tolerance": "1e-06",
        "parts": [
            {"name": "part", "right": f"{float(f'{1e-4 * drawn[worst]:.1g}'):g}", "tolerance": "0.001"},
            {"name": "other part", "right": "-1", "tolerance": "0"},
        ],
    }


@pytest.mark.parametrize(("ours", "printed"), [(1e-4, 0.0), (1.0, 3.0)])
def test_a_check_that_shows_no_erratum_is_refused(writer: ModuleType, ours: float, printed: float) -> None:
    with pytest.raises(RuntimeError, match="network/none does not show an erratum"):
        writer.measure(statement(ours, printed))


def test_known_numbers_are_kept_unless_the_check_has_changed(
    writer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = errata("network")[:2]
    monkeypatch.setattr(writer, "errata", lambda: entries)
    monkeypatch.setattr(writer, "measure", lambda one: {"version": one.version, "new": one.id})
    kept, *others = writer.checks_of(entries)
    version = check(kept).version
    known = {kept: {"version": version, "old": kept}, others[0]: {"version": 0}, "gone": {"version": 1}}
    found = writer.measured(known)
    assert list(found) == [kept, *others]
    assert found[kept] == known[kept] and found[others[0]] == {"version": check(others[0]).version, "new": others[0]}


def test_an_entry_tells_both_numbers(writer: ModuleType) -> None:
    (entry,) = (one for one in errata("exact") if one.number == 7)
    numbers = {one.check: writer.measure(statement(1e-4, 3.0)) for one in entry.evidence}
    text = writer.block(entry, numbers)
    assert "- how sure: **may be the extraction**;" in text
    assert "right **0.0001** (`part`; tolerance 0.001)" in text and "`dln check run exact/erratum-inverse`" in text
    (evidence,) = entry.evidence
    other = dataclasses.replace(entry, evidence=(dataclasses.replace(evidence, printed="size", part="other part"),))
    assert re.search(r"printed \*\*\S+\*\* \(size; tolerance 1e-06\), right \*\*-1\*\*", writer.block(other, numbers))


def test_an_entry_tells_why_there_is_no_check(writer: ModuleType) -> None:
    (entry,) = (one for one in errata("exact") if one.number == 37)
    text = writer.block(entry, {})
    assert "- no check: a wrong cross-reference" in text and "measured" not in text
    assert "- how sure: **certain**;" in text
