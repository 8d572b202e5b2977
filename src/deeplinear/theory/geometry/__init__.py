"""Statements on the geometry of end-to-end matrices, its geodesics and flows, and the entropy of fibres."""

from deeplinear.theory._check import Check
from deeplinear.theory.geometry._balance import CHECKS as BALANCE
from deeplinear.theory.geometry._bures import CHECKS as BURES
from deeplinear.theory.geometry._distances import CHECKS as DISTANCES
from deeplinear.theory.geometry._entropy import CHECKS as ENTROPY
from deeplinear.theory.geometry._entropy_errata import CHECKS as ENTROPY_ERRATA
from deeplinear.theory.geometry._equilibria import CHECKS as EQUILIBRIA
from deeplinear.theory.geometry._explicit import CHECKS as EXPLICIT
from deeplinear.theory.geometry._explicit_errata import CHECKS as EXPLICIT_ERRATA
from deeplinear.theory.geometry._fibres import CHECKS as FIBRES
from deeplinear.theory.geometry._flows import CHECKS as FLOWS
from deeplinear.theory.geometry._geodesics import CHECKS as GEODESICS
from deeplinear.theory.geometry._geodesics_errata import CHECKS as GEODESICS_ERRATA
from deeplinear.theory.geometry._lines import CHECKS as LINES
from deeplinear.theory.geometry._low_rank import CHECKS as LOW_RANK
from deeplinear.theory.geometry._metric import CHECKS as METRIC
from deeplinear.theory.geometry._metric_errata import CHECKS as METRIC_ERRATA

CHECKS: tuple[Check, ...] = (
    *BALANCE,
    *METRIC,
    *METRIC_ERRATA,
    *FIBRES,
    *BURES,
    *GEODESICS,
    *GEODESICS_ERRATA,
    *LINES,
    *EXPLICIT,
    *EXPLICIT_ERRATA,
    *DISTANCES,
    *FLOWS,
    *LOW_RANK,
    *ENTROPY,
    *ENTROPY_ERRATA,
    *EQUILIBRIA,
)
