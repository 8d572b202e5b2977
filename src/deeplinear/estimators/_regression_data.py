"""Data of a regression as a network sees them: coordinates, units, starts, rows that are held out."""

import dataclasses
import math
from typing import Any

import numpy as np

from deeplinear.core import check_size
from deeplinear.estimators._base import matched_std
from deeplinear.estimators._regression_path import Layers, Task

WHERE = "DeepLinearRegressor"


@dataclasses.dataclass(frozen=True)
class Frame:
    """Data in the coordinates of the network: centred, in principal axes of the inputs, in units of one.

    Attributes:
        depth: Layers.
        centred: Whether means were taken off.
        white: Whether the axes are scaled to equal variances.
        mean_x: Mean inputs.
        mean_y: Mean outputs.
        basis: From centred inputs to coordinates, (axes, features).
        axes: Orthonormal axes in columns, (features, axes).
        units: Of inputs and outputs.
        task: What is learnt.
        rest: Loss of least squares in units of one.
        noise: What rounding leaves of outputs along axes of equal variances, in units of one.
    """

    depth: int
    centred: bool
    white: bool
    mean_x: np.ndarray
    mean_y: np.ndarray
    basis: np.ndarray
    axes: np.ndarray
    units: tuple[float, float]
    task: Task
    rest: float
    noise: float

    @staticmethod
    def of(
        X: np.ndarray,
        Y: np.ndarray,
        depth: int,
        centred: bool,
        white: bool,
        every: bool,
        units: tuple[float, float] | None = None,
    ) -> "Frame":
        """Coordinates of data; with `every` also of axes on which the inputs do not vary, unless they are whitened."""
        for name, values in (("X", X), ("y", Y)):
            check_size(WHERE, name, values)
        mean_x = X.mean(axis=0) if centred else np.zeros(X.shape[1])
        mean_y = Y.mean(axis=0) if centred else np.zeros(Y.shape[1])
        # Triangular factors hold all of the moments, without the loss of digits that squares bring.
        inputs, outputs = _triangle(X - mean_x, Y - mean_y)
        left, values, right = np.linalg.svd(inputs, full_matrices=every and not white)
        left, top = left[:, : len(values)], max(float(values[0]), 1e-300)
        # What is left of constant columns after centring is rounding of their means.
        rounding = np.finfo(float).eps * (max(X.shape) * top + 4 * float(np.abs(mean_x).max()))
        values = np.where(values > rounding, values, 0.0)
        rank = max(1, int(np.count_nonzero(values)))
        axes = right.T if every and not white else right[:rank].T
        unit_x = 1.0 if white else units[0] if units is not None else (top if values[0] > 0 else 1.0)
        lengths = np.zeros(axes.shape[1])
        lengths[: min(len(values), len(lengths))] = values[: len(lengths)]
        basis = axes.T / unit_x
        if white:
            basis = axes.T / np.where(lengths > 0, lengths, 1.0)[:, None]
        spread = np.where(lengths > 0, 1.0, 0.0) if white else lengths / unit_x
        along = np.zeros((Y.shape[1], len(lengths)))  # outputs along each axis, for a variance of one
        kept = min(left.shape[1], len(lengths))
        along[:, :kept] = outputs.T @ left[:, :kept]
        correlation = along * spread
        strongest = float(np.linalg.norm(correlation, 2))
        size = 10 * max(X.shape) * float(np.linalg.norm(outputs)) + 4 * float(np.linalg.norm(mean_y))
        noise = np.finfo(float).eps * size
        if strongest <= noise:
            correlation, strongest = np.zeros_like(correlation), 0.0
        unit_y = units[1] if units is not None else strongest if strongest > 0 else 1.0
        seen = left[:, :kept] * (spread[:kept] > 0)
        rest = 0.5 * float(np.sum(((outputs - seen @ (seen.T @ outputs)) / unit_y) ** 2))
        task = Task(spread**2, correlation / unit_y)
        return Frame(depth, centred, white, mean_x, mean_y, basis, axes, (unit_x, unit_y), task, rest, noise / unit_y)

    @property
    def gain(self) -> float:
        """From the product of the network in units of one to that of `outer` layers."""
        return self.units[1] / self.units[0]

    @property
    def share(self) -> float:
        """The part of each layer in the gain."""
        return self.gain ** (1 / self.depth)

    def modes(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Modes of least squares of at most a rank: vectors in columns, strengths, vectors in rows.

        There are as many as are counted; those that the data do not have, but for rounding, are zero.
        """
        there = np.linalg.svd(self.task.solution * np.sqrt(self.task.variances), compute_uv=False) > self.noise
        rank = min(count, int(np.count_nonzero(there)))
        left, values, right = np.linalg.svd(self.task.limit(rank), full_matrices=False)
        more = (0, count - rank)
        return (
            np.pad(left[:, :rank], ((0, 0), more)),
            np.pad(values[:rank], more),
            np.pad(right[:rank], (more, (0, 0))),
        )

    def coefficients(self, matrix: np.ndarray) -> np.ndarray:
        """Coefficients of the data from a product."""
        return self.units[1] * matrix @ self.basis

    def outer(self, layers: list[np.ndarray]) -> list[np.ndarray]:
        """Layers in the units of the data, the first acting on centred or whitened inputs."""
        first, *others = (self.share * layer for layer in layers)
        return [first if self.white else first @ self.axes.T, *others]

    def error_of(self, excess: Any) -> Any:
        """Mean squared error, over rows and outputs, of a loss above that of least squares."""
        return 2 * self.units[1] ** 2 * (excess + self.rest) / len(self.mean_y)

    def excess_of(self, error: float) -> float:
        """The inverse of `error_of`."""
        return 0.5 * error * len(self.mean_y) / self.units[1] ** 2 - self.rest

    def start(self, kind: Any, draws: Layers, scale: float, width: int | None) -> Layers:
        """Layers to start from."""
        outputs, inputs = self.task.correlation.shape
        if not isinstance(kind, str):
            return self._inner(draws)
        if kind == "gaussian":
            first, *others = draws
            std = matched_std(scale, (first.shape[1], *(len(layer) for layer in draws)))
            return tuple(std * layer for layer in (first @ self.axes, *others))
        hidden = min(outputs, inputs) if width is None else int(width)
        matrix = self.task.correlation if kind == "aligned" else draws[0] @ self.axes
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        modes = min(len(values), hidden) if self.depth > 1 else len(values)
        there = values[:modes] > max(matrix.shape) * np.finfo(float).eps * values[0]
        if self.depth == 1:
            return (scale * (left * there) @ right,)
        strength = scale ** (1 / self.depth) * there
        first = np.zeros((hidden, inputs))
        first[:modes] = strength[:, None] * right[:modes]
        last = np.zeros((outputs, hidden))
        last[:, :modes] = left[:, :modes] * strength
        middle = np.diag(np.pad(strength, (0, hidden - modes)))
        return (first, *([middle] * (self.depth - 2)), last)

    def _inner(self, layers: Layers) -> Layers:
        """The inverse of `outer`, or a refusal."""
        outputs, features = len(self.mean_y), self.basis.shape[0] if self.white else len(self.mean_x)
        if layers[0].shape[1] != features or layers[-1].shape[0] != outputs:
            kind = "whitened inputs" if self.white else "features"
            raise ValueError(
                f"{WHERE}: the layers of start must lead from {features} {kind} to {outputs} outputs, but have shapes "
                f"{[layer.shape for layer in layers]}."
            )
        first, *others = (layer / self.share for layer in layers)
        return (first if self.white else first @ self.axes, *others)


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows that a path has not seen, as triangular factors in its coordinates.

    Attributes:
        inputs: Factor of the inputs.
        outputs: Factor of the outputs.
        unit: Of outputs.
        spread: Mean squares of the outputs around their centre.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    unit: float
    spread: np.ndarray

    @staticmethod
    def of(frame: Frame, X: np.ndarray, Y: np.ndarray, centre: np.ndarray) -> "Rows":
        """Rows in the coordinates of a frame."""
        inputs, outputs = _triangle((X - frame.mean_x) @ frame.basis.T, (Y - frame.mean_y) / frame.units[1])
        return Rows(inputs, outputs, frame.units[1], np.mean((Y - centre) ** 2, axis=0))

    def squares(self, matrix: np.ndarray) -> np.ndarray:
        """Mean squared error of a product, for each output."""
        return self.unit**2 * np.sum((self.inputs @ matrix.T - self.outputs) ** 2, axis=0)

    def errors(self, products: np.ndarray) -> np.ndarray:
        """Mean squared error, over rows and outputs, of each product."""
        return np.array([np.mean(self.squares(matrix)) for matrix in products])


def pooled_score(rests: list[Rows], matrices: list[np.ndarray]) -> float:
    """R² of all rows together, each predicted by its product; mean over outputs that vary, NaN where none does."""
    squares = np.sum([rest.squares(matrix) for rest, matrix in zip(rests, matrices, strict=True)], axis=0)
    spread = np.sum([rest.spread for rest in rests], axis=0)
    there = spread > 0
    return float(np.mean(1 - squares[there] / spread[there])) if there.any() else math.nan


def _triangle(inputs: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs, turned and shortened, with the same second moments: triangular factor, over √rows."""
    both = np.asarray(np.linalg.qr(np.concatenate([inputs, outputs], axis=1), mode="r")) / math.sqrt(len(inputs))
    return both[:, : inputs.shape[1]], both[:, inputs.shape[1] :]
