"""What the paper trains its image classifiers by, and how far a study is from it."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from deeplinear.nonlinear import ConvolutionStudy, ReLUStudy

Study = ConvolutionStudy | ReLUStudy

NAMES = {
    "digits": "scikit-learn's digits",
    "mnist": "5,000 digits of MNIST",
    "fashion": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "clusters": "Gaussian clusters",
}
"""Data in words."""

OPTIMISERS = {"sgd": (0.1, 5e-4), "adam": (1e-3, 1e-5), "rmsprop": (1e-3, 1e-5)}
"""The paper's rate and penalty for convolutional networks."""

DEPTHS = {"resnet": (18, 34, 50, 101), "vgg": (11, 13, 16, 19)}
"""The paper's depths."""

IMAGES = (50_000, 10_000)
"""How many images CIFAR has for training and for testing."""


def convolutions(family: str, optimiser: str) -> ConvolutionStudy:
    """The paper's training of a family by an optimiser on CIFAR-10."""
    lr, weight_decay = OPTIMISERS[optimiser]
    return ConvolutionStudy(family=family, depths=DEPTHS[family], optimiser=optimiser, lr=lr, weight_decay=weight_decay)


def departure(spec: Study, told: Mapping[Any, Any]) -> str:
    """In words, what keeps a study from being the paper's own; nothing where it is.

    Args:
        spec: Of the study.
        told: What its data set tells of its images: `train_images` and `test_images`, how many there were.
    """
    if not spec.data.startswith("cifar"):
        return "not the paper's data"
    paper: Study = ReLUStudy()
    if isinstance(spec, ConvolutionStudy):  # of which there are figures on both sets of CIFAR
        paper = dataclasses.replace(convolutions(spec.family, spec.optimiser), data=spec.data)
    same = dataclasses.replace(paper, seed=spec.seed, runs=spec.runs, measured=spec.measured)
    if spec != same or spec.runs < paper.runs:
        return "not the paper's protocol"
    counts = tuple(told.get(f"{part}_images") for part in ("train", "test"))
    if None in counts:
        return "not known to be the paper's images"
    return "" if counts == IMAGES else "not all of the paper's images"
