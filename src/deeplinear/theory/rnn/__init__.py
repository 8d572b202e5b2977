"""Statements on linear recurrent networks: responses, moments, extrapolation, balance and near-zero starts."""

from deeplinear.theory._check import Check
from deeplinear.theory.rnn._balance import CHECKS as BALANCE
from deeplinear.theory.rnn._certificates import CHECKS as CERTIFICATES
from deeplinear.theory.rnn._extrapolation_errata import CHECKS as EXTRAPOLATION_ERRATA
from deeplinear.theory.rnn._flows import CHECKS as FLOWS
from deeplinear.theory.rnn._gradients import CHECKS as GRADIENTS
from deeplinear.theory.rnn._moments import CHECKS as MOMENTS
from deeplinear.theory.rnn._near_zero import CHECKS as NEAR_ZERO
from deeplinear.theory.rnn._near_zero_errata import CHECKS as NEAR_ZERO_ERRATA
from deeplinear.theory.rnn._realisations import CHECKS as REALISATIONS
from deeplinear.theory.rnn._responses import CHECKS as RESPONSES

CHECKS: tuple[Check, ...] = (
    *RESPONSES,
    *REALISATIONS,
    *GRADIENTS,
    *BALANCE,
    *FLOWS,
    *MOMENTS,
    *CERTIFICATES,
    *EXTRAPOLATION_ERRATA,
    *NEAR_ZERO,
    *NEAR_ZERO_ERRATA,
)
