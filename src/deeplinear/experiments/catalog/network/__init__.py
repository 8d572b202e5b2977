"""Figures of the survey on gradient flow of deep linear networks."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.network._arcs import EXPERIMENTS as ARCS
from deeplinear.experiments.catalog.network._classification import EXPERIMENTS as CLASSIFICATION
from deeplinear.experiments.catalog.network._graph_view import EXPERIMENTS as GRAPH_VIEW
from deeplinear.experiments.catalog.network._plateaus import EXPERIMENTS as PLATEAUS
from deeplinear.experiments.catalog.network._rates import EXPERIMENTS as RATES
from deeplinear.experiments.catalog.network._scalar import EXPERIMENTS as SCALAR
from deeplinear.experiments.catalog.network._small import EXPERIMENTS as SMALL
from deeplinear.experiments.catalog.network._sweeps import EXPERIMENTS as SWEEPS
from deeplinear.experiments.catalog.network._trajectories import EXPERIMENTS as TRAJECTORIES
from deeplinear.experiments.catalog.network._variants import EXPERIMENTS as VARIANTS

EXPERIMENTS: tuple[Experiment, ...] = (
    *SCALAR,
    *TRAJECTORIES,
    *ARCS,
    *SMALL,
    *GRAPH_VIEW,
    *CLASSIFICATION,
    *PLATEAUS,
    *RATES,
    *SWEEPS,
    *VARIANTS,
)
