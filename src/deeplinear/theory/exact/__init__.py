"""Statements on the exact learning dynamics of two-layer networks, from lazy to rich."""

from deeplinear.theory._check import Check
from deeplinear.theory.exact._balance_statistics import CHECKS as BALANCE_STATISTICS
from deeplinear.theory.exact._continual import CHECKS as CONTINUAL
from deeplinear.theory.exact._convergence import CHECKS as CONVERGENCE
from deeplinear.theory.exact._modes import CHECKS as MODES
from deeplinear.theory.exact._noise import CHECKS as NOISE
from deeplinear.theory.exact._random_layers import CHECKS as RANDOM_LAYERS
from deeplinear.theory.exact._representations import CHECKS as REPRESENTATIONS
from deeplinear.theory.exact._riccati import CHECKS as RICCATI
from deeplinear.theory.exact._riccati_errata import CHECKS as RICCATI_ERRATA
from deeplinear.theory.exact._transfer import CHECKS as TRANSFER

CHECKS: tuple[Check, ...] = (
    *RICCATI,
    *RICCATI_ERRATA,
    *MODES,
    *REPRESENTATIONS,
    *CONVERGENCE,
    *NOISE,
    *BALANCE_STATISTICS,
    *RANDOM_LAYERS,
    *CONTINUAL,
    *TRANSFER,
)
