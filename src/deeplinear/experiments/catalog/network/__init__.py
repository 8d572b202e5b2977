"""Figures of the survey on gradient flow of deep linear networks."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.network._arcs import EXPERIMENTS as ARCS
from deeplinear.experiments.catalog.network._bottleneck import EXPERIMENTS as BOTTLENECK
from deeplinear.experiments.catalog.network._classification import EXPERIMENTS as CLASSIFICATION
from deeplinear.experiments.catalog.network._cube import EXPERIMENTS as CUBE
from deeplinear.experiments.catalog.network._descent import EXPERIMENTS as DESCENT
from deeplinear.experiments.catalog.network._graph_view import EXPERIMENTS as GRAPH_VIEW
from deeplinear.experiments.catalog.network._low_rank import EXPERIMENTS as LOW_RANK
from deeplinear.experiments.catalog.network._plane import EXPERIMENTS as PLANE
from deeplinear.experiments.catalog.network._plateaus import EXPERIMENTS as PLATEAUS
from deeplinear.experiments.catalog.network._rates import EXPERIMENTS as RATES
from deeplinear.experiments.catalog.network._scalar import EXPERIMENTS as SCALAR
from deeplinear.experiments.catalog.network._skip import EXPERIMENTS as SKIP
from deeplinear.experiments.catalog.network._slices import EXPERIMENTS as SLICES
from deeplinear.experiments.catalog.network._sweeps import EXPERIMENTS as SWEEPS
from deeplinear.experiments.catalog.network._trajectories import EXPERIMENTS as TRAJECTORIES

EXPERIMENTS: tuple[Experiment, ...] = (
    *SCALAR,
    *TRAJECTORIES,
    *ARCS,
    *PLANE,
    *CUBE,
    *SLICES,
    *GRAPH_VIEW,
    *CLASSIFICATION,
    *PLATEAUS,
    *RATES,
    *SWEEPS,
    *LOW_RANK,
    *DESCENT,
    *SKIP,
    *BOTTLENECK,
)
