"""Figures of the thesis on geodesics and low rank in the deep linear network."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.geometry._balancing import EXPERIMENTS as BALANCING
from deeplinear.experiments.catalog.geometry._chords import EXPERIMENTS as CHORDS
from deeplinear.experiments.catalog.geometry._entropy_surface import EXPERIMENTS as ENTROPY_SURFACE
from deeplinear.experiments.catalog.geometry._fibre_pictures import EXPERIMENTS as FIBRE_PICTURES
from deeplinear.experiments.catalog.geometry._free_energy import EXPERIMENTS as FREE_ENERGY
from deeplinear.experiments.catalog.geometry._inefficiency import EXPERIMENTS as INEFFICIENCY
from deeplinear.experiments.catalog.geometry._low_rank import EXPERIMENTS as LOW_RANK
from deeplinear.experiments.catalog.geometry._low_rank_dimensions import EXPERIMENTS as LOW_RANK_DIMENSIONS
from deeplinear.experiments.catalog.geometry._low_rank_entropy import EXPERIMENTS as LOW_RANK_ENTROPY
from deeplinear.experiments.catalog.geometry._low_rank_masks import EXPERIMENTS as LOW_RANK_MASKS
from deeplinear.experiments.catalog.geometry._low_rank_scales import EXPERIMENTS as LOW_RANK_SCALES
from deeplinear.experiments.catalog.geometry._monitors import EXPERIMENTS as MONITORS
from deeplinear.experiments.catalog.geometry._tangent_pictures import EXPERIMENTS as TANGENT_PICTURES

EXPERIMENTS: tuple[Experiment, ...] = (
    *FIBRE_PICTURES,
    *TANGENT_PICTURES,
    *BALANCING,
    *MONITORS,
    *CHORDS,
    *INEFFICIENCY,
    *LOW_RANK,
    *LOW_RANK_DIMENSIONS,
    *LOW_RANK_SCALES,
    *LOW_RANK_MASKS,
    *FREE_ENERGY,
    *LOW_RANK_ENTROPY,
    *ENTROPY_SURFACE,
)
