"""Exact learning dynamics of two-layer networks, from lazy to rich."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.exact._applications import EXPERIMENTS as APPLICATIONS
from deeplinear.experiments.catalog.exact._curves import EXPERIMENTS as CURVES
from deeplinear.experiments.catalog.exact._modes import EXPERIMENTS as MODES
from deeplinear.experiments.catalog.exact._phase_maps import EXPERIMENTS as PHASE_MAPS
from deeplinear.experiments.catalog.exact._representations import EXPERIMENTS as REPRESENTATIONS
from deeplinear.experiments.catalog.exact._statistics import EXPERIMENTS as STATISTICS

_ALL = (*CURVES, *STATISTICS, *MODES, *REPRESENTATIONS, *PHASE_MAPS, *APPLICATIONS)


def _figure(experiment: Experiment) -> tuple[float, str]:
    """Figures in the order of their numbers, the rest after them."""
    number = experiment.id.partition("/fig")[2].rstrip("abcde")
    return (float(number) if number else float("inf"), experiment.id)


EXPERIMENTS: tuple[Experiment, ...] = tuple(sorted(_ALL, key=_figure))
