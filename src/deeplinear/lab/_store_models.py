"""What the page of results is told."""

from typing import Literal

from pydantic import BaseModel, Field

Verdict = Literal["holds", "fails", "untold"]
Number = float | None

PICTURES = {"figure.svg": "image/svg+xml", "figure.png": "image/png"}
"""Files that are pictures a page can show, the better first."""


class Picture(BaseModel):
    """A picture: what it is asked for by, and its kind."""

    digest: str
    type: str


class Claims(BaseModel):
    """How many claims hold, fail, or could not be told."""

    holds: int = 0
    fails: int = 0
    untold: int = 0


class Run(BaseModel):
    """A run of an experiment in a listing; `status` is the worst verdict of its claims."""

    key: str
    id: str
    paper: str
    source: str
    shows: str
    preset: str | None
    started: str
    seconds: float
    claims: Claims
    status: Verdict
    picture: Picture | None


class ClaimText(BaseModel):
    """A claim of a paper with its verdict."""

    statement: str
    measured: Number
    expected: str
    verdict: Verdict
    note: str


class RunDetail(Run):
    """A run in full: claims, parameters, and how to make it again."""

    notes: str
    statements: list[ClaimText]
    parameters: dict[str, str]
    command: str
    remark: str
    folder: str
    environment: dict[str, str]


class CheckRow(BaseModel):
    """A check in a listing; residual and tolerance are those of the part that comes closest to failing."""

    id: str
    paper: str
    source: str
    statement: str
    status: Literal["holds", "erratum", "unmet", "fails"]
    words: str
    message: str
    instances: int
    seed: int
    part: str
    residual: Number
    tolerance: Number
    caught: int
    violations: int
    started: str
    seconds: float
    command: str


class Counts(BaseModel):
    """How much there is."""

    experiments: int = 0
    runs: int = 0
    claims: Claims = Claims()
    checks: int = 0
    errata: int = 0
    failing: int = 0
    damaged: int = 0


class StoreInfo(BaseModel):
    """What a store holds; `message` says what to do where it holds nothing, or that not everything is listed."""

    path: str
    message: str
    counts: Counts
    runs: list[Run]
    checks: list[CheckRow]
    damaged: list[str]


class Erratum(BaseModel):
    """A statement that is printed wrongly, and the right one; what was measured of it, if its check is in the store."""

    id: str
    paper: str
    source: str
    printed: str
    corrected: str
    missed: Number = Field(description="By how much the printed form is missed in the store.")
    allowed: Number = Field(description="What it may be missed by.")
    status: str
    command: str


class Errata(BaseModel):
    """All errata that a check shows."""

    total: int
    measured: int
    errata: list[Erratum]
