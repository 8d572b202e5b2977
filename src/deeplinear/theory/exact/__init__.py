"""Statements on the exact learning dynamics of two-layer networks, from lazy to rich."""

from deeplinear.theory._check import Check
from deeplinear.theory.exact._balance import CHECKS as BALANCE
from deeplinear.theory.exact._balance_statistics import CHECKS as BALANCE_STATISTICS
from deeplinear.theory.exact._closed_forms import CHECKS as CLOSED_FORMS
from deeplinear.theory.exact._consequences import CHECKS as CONSEQUENCES
from deeplinear.theory.exact._continual import CHECKS as CONTINUAL
from deeplinear.theory.exact._convergence import CHECKS as CONVERGENCE
from deeplinear.theory.exact._kernel import CHECKS as KERNEL
from deeplinear.theory.exact._large_lambda import CHECKS as LARGE_LAMBDA
from deeplinear.theory.exact._modes import CHECKS as MODES
from deeplinear.theory.exact._noise import CHECKS as NOISE
from deeplinear.theory.exact._random_layers import CHECKS as RANDOM_LAYERS
from deeplinear.theory.exact._recovery import CHECKS as RECOVERY
from deeplinear.theory.exact._riccati import CHECKS as RICCATI
from deeplinear.theory.exact._riccati_errata import CHECKS as RICCATI_ERRATA
from deeplinear.theory.exact._training_end import CHECKS as TRAINING_END
from deeplinear.theory.exact._transfer import CHECKS as TRANSFER

CHECKS: tuple[Check, ...] = (
    *BALANCE,
    *RICCATI,
    *CLOSED_FORMS,
    *CONSEQUENCES,
    *RICCATI_ERRATA,
    *MODES,
    *RECOVERY,
    *TRAINING_END,
    *LARGE_LAMBDA,
    *KERNEL,
    *CONVERGENCE,
    *NOISE,
    *BALANCE_STATISTICS,
    *RANDOM_LAYERS,
    *CONTINUAL,
    *TRANSFER,
)
