"""Deep matrix completion."""

from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog.completion._diagonals import EXPERIMENTS as DIAGONALS
from deeplinear.experiments.catalog.completion._formula import EXPERIMENTS as FORMULA
from deeplinear.experiments.catalog.completion._image_networks import (
    EXPERIMENTS as IMAGES,
    Folder as Folder,
    read_images as read_images,
)
from deeplinear.experiments.catalog.completion._image_pictures import (
    interval as interval,
    shape_averages as shape_averages,
)
from deeplinear.experiments.catalog.completion._optimisers import EXPERIMENTS as OPTIMISERS
from deeplinear.experiments.catalog.completion._plasticity import EXPERIMENTS as PLASTICITY
from deeplinear.experiments.catalog.completion._ranks import EXPERIMENTS as RANKS
from deeplinear.experiments.catalog.completion._validation import EXPERIMENTS as VALIDATION


def _figure(experiment: Experiment) -> tuple[float, str]:
    """Figures in the order of their numbers, the rest after them."""
    number = experiment.id.partition("/fig")[2].partition("-")[0]
    return (float(number) if number else float("inf"), experiment.id)


EXPERIMENTS: tuple[Experiment, ...] = tuple(
    sorted((*RANKS, *FORMULA, *PLASTICITY, *VALIDATION, *DIAGONALS, *OPTIMISERS, *IMAGES), key=_figure)
)
