"""Gradient flows of deep linear networks in plain NumPy and SciPy: nothing of the package is called to move them."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import solve_ivp

from deeplinear.models import (
    Completion,
    DeepLinear,
    EntryCompletion,
    Problem,
    Regression,
    SampleRegression,
    SquaredDistance as Distance,
)

LOSSES = ("distance", "white", "regression", "reduced", "singular", "samples", "completion", "entries")


class Flow(NamedTuple):
    """A problem of the package, and the same energy of the product written out again."""

    problem: Problem
    energy: Callable[[np.ndarray], Any]
    pull: Callable[[np.ndarray], np.ndarray]
    widths: tuple[int, ...]
    l2: float

    def layers(self, y: np.ndarray) -> list[np.ndarray]:
        parts, at = [], 0
        for below, above in itertools.pairwise(self.widths):
            parts.append(y[at : at + below * above].reshape(above, below))
            at += below * above
        return parts

    def value(self, y: np.ndarray) -> Any:
        product = np.eye(self.widths[0])
        for layer in self.layers(y):
            product = layer @ product
        return self.energy(product) + 0.5 * self.l2 * np.sum(y * y)

    def slope(self, y: np.ndarray) -> np.ndarray:
        """Minus the gradient, with the products before and after each layer."""
        layers = self.layers(y)
        before = [np.eye(self.widths[0])]
        for layer in layers:
            before.append(layer @ before[-1])
        after = self.pull(before.pop())
        parts = []
        for layer, right in zip(reversed(layers), reversed(before), strict=True):
            parts.append((-after @ right.T - self.l2 * layer).ravel())
            after = layer.T @ after
        return np.concatenate(parts[::-1])

    def jacobian(self, y: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Derivative of the slope along v, by a complex step."""
        return self.slope(y + 1e-100j * v).imag / 1e-100

    def at(
        self, y: np.ndarray, times: Sequence[float], method: str = "DOP853", rtol: float = 1e-11, atol: float = 1e-16
    ) -> list[np.ndarray]:
        """States at some times, by SciPy."""
        solution = solve_ivp(
            lambda _, z: self.slope(z), (0.0, times[-1]), y, t_eval=times, method=method, rtol=rtol, atol=atol
        )
        assert solution.success
        return list(solution.y.T)


def flow(name: str, widths: tuple[int, ...], rng: np.random.Generator, l2: float = 0.0) -> Flow:
    """A flow with a loss of some name, whose data are drawn."""
    inp, out, samples = widths[0], widths[-1], widths[0] + 4
    target = rng.standard_normal((out, inp))
    if name == "distance":
        return _flow(widths, l2, Distance(target), lambda p: 0.5 * np.sum((p - target) ** 2), lambda p: p - target)
    if name in ("completion", "entries"):
        seen = rng.random((out, inp)) < 0.6
        seen[0, 0] = True
        places = np.nonzero(seen)
        loss = Completion(target, seen) if name == "completion" else EntryCompletion(*places, target[seen], (out, inp))

        def pull(p: np.ndarray) -> np.ndarray:
            gap = np.zeros_like(p)
            gap[places] = p[places] - target[places]
            return gap

        return _flow(widths, l2, loss, lambda p: 0.5 * np.sum((p[places] - target[places]) ** 2), pull)

    x, y = rng.standard_normal((inp, samples)), rng.standard_normal((out, samples))
    if name == "white":
        x = np.sqrt(samples) * np.linalg.qr(x.T)[0].T
    if name == "singular" and inp > 1:
        x[-1] = x[0]
    best = np.linalg.lstsq(x.T, y.T, rcond=None)[0].T
    unfit = 0.5 * np.sum((best @ x - y) ** 2) / samples if name in ("reduced", "singular") else 0.0
    moments = (x @ x.T / samples, y @ x.T / samples)
    if name in ("white", "regression"):
        loss = Regression(*moments, y @ y.T / samples)
    elif name == "reduced":
        loss = Regression(*moments)
    elif name == "singular":
        loss = Regression.from_data(x, y, reduced=True)
    else:
        loss = SampleRegression(x, y)
    return _flow(
        widths,
        l2,
        loss,
        lambda p: 0.5 * np.sum((p @ x - y) ** 2) / samples - unfit,
        lambda p: (p @ x - y) @ x.T / samples,
    )


def _flow(widths: tuple[int, ...], l2: float, loss: Any, energy: Any, pull: Any) -> Flow:
    return Flow(Problem(DeepLinear(widths), loss, l2), energy, pull, widths, l2)


def start(widths: tuple[int, ...], rng: np.random.Generator, size: float = 0.5) -> tuple[np.ndarray, ...]:
    """Layers whose entries have some size."""
    return tuple(size * rng.standard_normal((above, below)) for below, above in itertools.pairwise(widths))


def flat(layers: Sequence[Any]) -> np.ndarray:
    """Layers one after the other in one vector."""
    return np.concatenate([np.ravel(layer) for layer in layers])
