"""A network and its diagonal target: the instance most statements on the landscape are about, and how it is drawn."""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.landscape import reduction_of
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory._check import Measured

FUNNEL, CHAIN, BOTTLENECK = (3, 4, 2), (4, 3, 3, 2), (4, 2, 3)
"""Widths, input first. Few of them, so that statements share compiled code."""

ROUNDING = 1e-12
"""Algebraic identities between numbers of order one."""


Layers = tuple[np.ndarray, ...]
"""Layers on the host, first-acting first."""


def each(measure: Callable[[Any], Measured]) -> Callable[[Sequence[Any]], list[Measured]]:
    """A measure of one instance as one of several."""
    return lambda instances: [measure(instance) for instance in instances]


def laws_of(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """W_{l+1}ᵀW_{l+1} − W_lW_lᵀ of neighbouring layers, by plain products."""
    return [above.T @ above - below @ below.T for below, above in itertools.pairwise(layers)]


@dataclasses.dataclass(frozen=True)
class Network:
    """Layers and the singular values of the diagonal target they learn.

    Attributes:
        layers: W₁, W₂, …, first-acting first.
        sigma: Diagonal of the target, largest first.
        direction: A direction of the layers, of statements that need one.
    """

    layers: tuple[np.ndarray, ...]
    sigma: np.ndarray
    direction: tuple[np.ndarray, ...] = ()

    @property
    def params(self) -> Params:
        return tuple(xp.asarray(layer, dtype=float) for layer in self.layers)

    @property
    def widths(self) -> tuple[int, ...]:
        return (self.layers[0].shape[1], *(layer.shape[0] for layer in self.layers))

    @property
    def depth(self) -> int:
        return len(self.layers)

    @property
    def target(self) -> np.ndarray:
        target = np.zeros((self.widths[-1], self.widths[0]))
        np.fill_diagonal(target, self.sigma)
        return target

    @property
    def problem(self) -> Problem:
        return Problem(DeepLinear(self.widths), SquaredDistance(self.target))

    def partial(self, last: int, first: int) -> np.ndarray:
        """W_last … W_first by plain products; the identity if last = first - 1."""
        result = np.eye(self.widths[first - 1])
        for layer in self.layers[first - 1 : last]:
            result = layer @ result
        return result

    @property
    def product(self) -> np.ndarray:
        return self.partial(self.depth, 1)

    @property
    def residual(self) -> np.ndarray:
        """Target minus product."""
        return self.target - self.product


def draw_sigma(rng: np.random.Generator, modes: int) -> np.ndarray:
    """Well-separated singular values, largest first: steps between 0.4 and 1."""
    return np.cumsum(rng.uniform(0.4, 1.0, modes))[::-1].copy()


def draw_layers(rng: np.random.Generator, widths: Sequence[int], scale: float = 1.0) -> tuple[np.ndarray, ...]:
    """Gaussian layers, drawn in the order in which they act."""
    return tuple(scale * rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))


def draw_network(rng: np.random.Generator, widths: Sequence[int], scale: float = 1.0) -> Network:
    """A Gaussian network with a direction, and a target with well-separated singular values."""
    sigma = draw_sigma(rng, min(widths[0], widths[-1]))
    return Network(draw_layers(rng, widths, scale), sigma, draw_layers(rng, widths))


def adopt_network(problem: Problem, params: Params) -> Network:
    """The instance of a given problem, in the coordinates in which its target is diagonal and its inputs white."""
    reduction = reduction_of(problem)
    if float(reduction.white) > ROUNDING:
        raise HypothesisError("white inputs", float(reduction.white), ROUNDING, "Whiten the inputs.")
    layers = tuple(np.asarray(layer) for layer in reduction.reduce(params))
    rng = np.random.default_rng(0)
    widths = (layers[0].shape[1], *(layer.shape[0] for layer in layers))
    return Network(layers, np.asarray(reduction.sigma), draw_layers(rng, widths))
