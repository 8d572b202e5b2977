"""What is printed wrongly in the papers, as data: place, both forms, the checks that measure them, how sure we are."""

import dataclasses
import enum
import functools
import importlib.resources
import tomllib
from typing import Any

from deeplinear.core import near_name
from deeplinear.theory._registry import papers


class FAULT(enum.Enum):
    """What an erratum does to the paper. The value says it in words."""

    claim = "a statement, or a claim in the text, does not hold as printed, and the right one says something else"
    slip = (
        "a formula, a proof, a caption or a reference is off, but the text shows what is meant, or nothing rests on it"
    )
    caveat = "true as printed, but easily read as more, or asking for more than it needs"


class SURENESS(enum.Enum):
    """How sure it is that the paper prints it so, and not only the extracted text we read. The value says why."""

    certain = "in words or numbers, or in several places that agree: no fault of an extraction explains it"
    likely = "in one place, or in a pair of formulas copied from each other, but it reads clean and is more than a mark"
    extraction = "it hangs on one mark, such as a transpose, a sign, a square or an index, that an extraction may lose"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """A check that measures the printed and the right form side by side.

    Attributes:
        check: Id of the check.
        printed: What the number of the printed form is; empty where it is that of the right form's part.
        part: The part of the right form to set beside it; empty for the one closest to its tolerance.
    """

    check: str
    printed: str = ""
    part: str = ""


@dataclasses.dataclass(frozen=True)
class Erratum:
    """A place of a paper that is printed wrongly, or that is easily read wrongly.

    Attributes:
        paper: Short name of the paper.
        number: Its number in the specification of the paper.
        section: Part of the paper, for grouping.
        place: Where it stands.
        kind: What it does to the paper.
        printed: What is printed, in words and formulas.
        right: What is right.
        sureness: How sure it is that the paper prints it so.
        because: Why that is the grade.
        evidence: The checks that measure both forms.
        unchecked: Why there is no check, where there is none.
        also: Further checks, functions and figures.
    """

    paper: str
    number: int
    section: str
    place: str
    kind: FAULT
    printed: str
    right: str
    sureness: SURENESS
    because: str
    evidence: tuple[Evidence, ...] = ()
    unchecked: str = ""
    also: str = ""

    @property
    def id(self) -> str:
        """Such as `exact:E3`, the name that specifications use."""
        return f"{self.paper}:E{self.number}"


def errata(paper: str | None = None) -> tuple[Erratum, ...]:
    """Every erratum, or those of one paper, grouped by parts of the papers.

    Example:
        >>> errata("network")[0].place
        'eq. 19, last line'
    """
    if paper is not None and paper not in papers():
        raise ValueError(f"errata: there is no paper '{paper}'. {near_name(paper, papers())}")
    return tuple(found for name in papers() if paper in (None, name) for found in _read(name))


@functools.cache
def _read(paper: str) -> tuple[Erratum, ...]:
    text = (importlib.resources.files("deeplinear.theory") / paper / "errata.toml").read_text(encoding="utf-8")
    return tuple(
        _erratum(paper, section["title"], entry)
        for section in tomllib.loads(text)["section"]
        for entry in section["erratum"]
    )


def _erratum(paper: str, section: str, entry: dict[str, Any]) -> Erratum:
    kind, sureness = FAULT[entry.pop("kind")], SURENESS[entry.pop("sureness")]
    evidence = tuple(Evidence(**one) for one in entry.pop("evidence", ()))
    return Erratum(paper=paper, section=section, kind=kind, sureness=sureness, evidence=evidence, **entry)
