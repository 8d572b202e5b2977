"""Theorems that can be run: statements, random instances, planted violations, verdicts."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.theory._check import (
        STATUS as STATUS,
        Check as Check,
        Hypothesis as Hypothesis,
        Measured as Measured,
        Outcome as Outcome,
        Reading as Reading,
        Trial as Trial,
        Verdict as Verdict,
        Violation as Violation,
        examine as examine,
        generator as generator,
        verify as verify,
    )
    from deeplinear.theory._errata import (
        FAULT as FAULT,
        SURENESS as SURENESS,
        Erratum as Erratum,
        Evidence as Evidence,
        errata as errata,
    )
    from deeplinear.theory._registry import check as check, checks as checks, papers as papers
else:
    __getattr__, __dir__, __all__ = attach(__name__)
