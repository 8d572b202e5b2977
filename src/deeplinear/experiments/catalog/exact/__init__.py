"""Exact learning dynamics of two-layer networks, from lazy to rich."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.exact._adapters import EXPERIMENTS as ADAPTERS
from deeplinear.experiments.catalog.exact._continual import EXPERIMENTS as CONTINUAL
from deeplinear.experiments.catalog.exact._curves import EXPERIMENTS as CURVES
from deeplinear.experiments.catalog.exact._delay import EXPERIMENTS as DELAY
from deeplinear.experiments.catalog.exact._fine_tuning import EXPERIMENTS as FINE_TUNING
from deeplinear.experiments.catalog.exact._hierarchy import EXPERIMENTS as HIERARCHY
from deeplinear.experiments.catalog.exact._modes import EXPERIMENTS as MODES
from deeplinear.experiments.catalog.exact._movement import EXPERIMENTS as MOVEMENT
from deeplinear.experiments.catalog.exact._noise import EXPERIMENTS as NOISE
from deeplinear.experiments.catalog.exact._phase_maps import EXPERIMENTS as PHASE_MAPS
from deeplinear.experiments.catalog.exact._reversal import EXPERIMENTS as REVERSAL
from deeplinear.experiments.catalog.exact._statistics import EXPERIMENTS as STATISTICS
from deeplinear.experiments.catalog.exact._transfer import EXPERIMENTS as TRANSFER

_ALL = (
    *CURVES,
    *STATISTICS,
    *NOISE,
    *ADAPTERS,
    *MODES,
    *HIERARCHY,
    *MOVEMENT,
    *DELAY,
    *PHASE_MAPS,
    *CONTINUAL,
    *REVERSAL,
    *TRANSFER,
    *FINE_TUNING,
)


def _figure(experiment: Experiment) -> tuple[float, str]:
    """Figures in the order of their numbers, the rest after them."""
    number = experiment.id.partition("/fig")[2].rstrip("abcde")
    return (float(number) if number else float("inf"), experiment.id)


EXPERIMENTS: tuple[Experiment, ...] = tuple(sorted(_ALL, key=_figure))
