"""Figures and further experiments on linear recurrent networks, and on gated ones."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.rnn._balanced import EXPERIMENTS as BALANCED
from deeplinear.experiments.catalog.rnn._convergence import EXPERIMENTS as CONVERGENCE
from deeplinear.experiments.catalog.rnn._general import EXPERIMENTS as GENERAL
from deeplinear.experiments.catalog.rnn._gru import EXPERIMENTS as GRU
from deeplinear.experiments.catalog.rnn._near_zero import EXPERIMENTS as NEAR_ZERO
from deeplinear.experiments.catalog.rnn._phases import EXPERIMENTS as PHASES
from deeplinear.experiments.catalog.rnn._statement_bounds import EXPERIMENTS as BOUNDS
from deeplinear.experiments.catalog.rnn._statements import EXPERIMENTS as STATEMENTS
from deeplinear.experiments.catalog.rnn._unbalanced import EXPERIMENTS as UNBALANCED

EXPERIMENTS: tuple[Experiment, ...] = (
    *BALANCED,
    *UNBALANCED,
    *GRU,
    *GENERAL,
    *PHASES,
    *STATEMENTS,
    *BOUNDS,
    *NEAR_ZERO,
    *CONVERGENCE,
)
