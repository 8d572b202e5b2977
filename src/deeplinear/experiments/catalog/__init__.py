"""The experiments of the papers, one folder for each paper."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.completion import EXPERIMENTS as COMPLETION
from deeplinear.experiments.catalog.exact import EXPERIMENTS as EXACT
from deeplinear.experiments.catalog.geometry import EXPERIMENTS as GEOMETRY
from deeplinear.experiments.catalog.network import EXPERIMENTS as NETWORK
from deeplinear.experiments.catalog.rnn import EXPERIMENTS as RNN
from deeplinear.experiments.catalog.tour import EXPERIMENTS as TOUR

EXPERIMENTS: tuple[Experiment, ...] = (*TOUR, *COMPLETION, *EXACT, *NETWORK, *GEOMETRY, *RNN)
