"""Layers on the host, in coordinates in which the target is diagonal, with what leads there and back."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from deeplinear.landscape._arguments import Layers, check_range, host_layers, widths_of
from deeplinear.landscape._canonical import as_params, multiply
from deeplinear.landscape._critical import gradient_of, rectangular, size_of
from deeplinear.landscape._reduction import Reduction, reduction_of
from deeplinear.models import Problem, checked_problem


@dataclasses.dataclass(frozen=True)
class Reduced:
    """Layers in coordinates in which the target is diagonal, with what leads there and back."""

    layers: Layers
    sigma: np.ndarray
    inner: np.ndarray
    inner_inverse: np.ndarray
    outer: np.ndarray
    constant: float

    @property
    def widths(self) -> tuple[int, ...]:
        return widths_of(self.layers)

    @property
    def target(self) -> np.ndarray:
        return rectangular(self.sigma, self.widths)

    @property
    def scale(self) -> float:
        r"""$\sigma_1$, the scale of products; 1 where nothing is to be learnt."""
        return float(self.sigma[0]) or 1.0

    @property
    def unit(self) -> float:
        r"""$\sigma_1^{1/L}$, the scale of layers."""
        return self.scale ** (1 / len(self.layers))

    @property
    def steepness(self) -> float:
        r"""$\sigma_1^{2-1/L}$, the scale of gradients: what layers and targets in other units multiply them by."""
        return self.scale**2 / self.unit

    def turned(self, turn: np.ndarray) -> "Reduced":
        """The same in coordinates turned on both sides, which leave the target as it is."""
        inp, out = self.widths[0], self.widths[-1]
        left, right = turn[:out, :out], turn[:inp, :inp]
        layers = list(self.layers)
        layers[0] = layers[0] @ right
        layers[-1] = left.T @ layers[-1]
        return dataclasses.replace(
            self,
            layers=tuple(layers),
            inner=self.inner @ right,
            inner_inverse=right.T @ self.inner_inverse,
            outer=self.outer @ left,
        )

    def lift(self, direction: Layers) -> Layers:
        """A direction of the layers in the coordinates of the problem."""
        layers = list(direction)
        layers[0] = layers[0] @ self.inner_inverse
        layers[-1] = self.outer @ layers[-1]
        return tuple(layers)

    def gradient(self) -> tuple[Layers, Layers]:
        """Gradients in reduced coordinates and in those of the problem."""
        reduced = gradient_of(self.layers, self.target)
        raw = list(reduced)
        raw[0] = raw[0] @ self.inner.T
        raw[-1] = self.outer @ raw[-1]
        return reduced, tuple(raw)

    @property
    def value(self) -> float:
        return 0.5 * float(np.sum((self.target - multiply(self.layers)) ** 2)) + self.constant


def reduced_layers(where: str, problem: Problem, params: Iterable[Any]) -> Reduced:
    checked_problem(where, "problem", problem)
    reduction: Reduction = reduction_of(problem)
    layers = host_layers(where, params)
    problem.check(as_params(layers), where)
    point = reduced_by(reduction, layers)
    check_measurable(where, point)
    return point


def check_measurable(where: str, point: Reduced) -> None:
    """Refuse layers whose loss or gradient overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        check_range(where, point.value, *(size_of(part) for part in point.gradient()))


def reduced_by(reduction: Reduction, layers: Layers) -> Reduced:
    """Layers in the coordinates of a reduction."""
    inner_map, outer = np.asarray(reduction.inner), np.asarray(reduction.outer)
    moved = list(layers)
    moved[0] = moved[0] @ inner_map
    moved[-1] = outer.T @ moved[-1]
    return Reduced(
        tuple(moved),
        np.asarray(reduction.sigma),
        inner_map,
        np.asarray(reduction.inner_inverse),
        outer,
        float(reduction.constant),
    )
