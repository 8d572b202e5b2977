"""Statements on deep matrix completion: coupling, low-rank bias, loss of plasticity."""

from deeplinear.theory._check import Check
from deeplinear.theory.completion._blocks import CHECKS as BLOCKS
from deeplinear.theory.completion._column import CHECKS as COLUMN
from deeplinear.theory.completion._coupling import CHECKS as COUPLING
from deeplinear.theory.completion._disconnected import CHECKS as DISCONNECTED
from deeplinear.theory.completion._laws import CHECKS as LAWS
from deeplinear.theory.completion._lazy import CHECKS as LAZY
from deeplinear.theory.completion._limit_errata import CHECKS as LIMIT_ERRATA
from deeplinear.theory.completion._limits import CHECKS as LIMITS
from deeplinear.theory.completion._singular_values import CHECKS as SINGULAR_VALUES
from deeplinear.theory.completion._warm_start import CHECKS as WARM_START

CHECKS: tuple[Check, ...] = (
    *LAWS,
    *COUPLING,
    *COLUMN,
    *BLOCKS,
    *LIMITS,
    *LIMIT_ERRATA,
    *DISCONNECTED,
    *WARM_START,
    *LAZY,
    *SINGULAR_VALUES,
)
