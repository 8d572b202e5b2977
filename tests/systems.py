"""Problems whose solutions are known in closed form, derived here independently of the package."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.integrate import quad, solve_ivp

from deeplinear.core import Params
from deeplinear.models import Completion, DeepLinear, Problem, SquaredDistance


class System(NamedTuple):
    """A problem, a start and its exact product at time t."""

    problem: Problem
    params: Params
    product: Callable[[float], np.ndarray]


def linear_decay() -> System:
    """Depth 1: every entry relaxes exponentially."""
    target = np.array([[1.0, -2.0], [0.5, 3.0]])
    start = np.array([[0.0, 1.0], [-1.0, 0.2]])
    problem = Problem(DeepLinear((2, 2)), SquaredDistance(target))
    return System(problem, (jnp.asarray(start),), lambda t: target + (start - target) * np.exp(-t))


def scalar_logistic(start: float = 1e-6, target: float = 2.0) -> System:
    """Depth 2, width 1, balanced: w' = 2 w (s - w) is logistic."""
    root = np.sqrt(start)
    problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance([[target]]))
    params = (jnp.asarray([[root]]), jnp.asarray([[root]]))
    return System(
        problem,
        params,
        lambda t: np.array([[target / (1 + (target / start - 1) * np.exp(-2 * target * t))]]),
    )


def escape_time(depth: int, start: float, end: float, target: float) -> float:
    """Time for one balanced layer amplitude a, a' = a^(L-1) (s - a^L), to go from `start` to `end`."""

    def slowness(v: float) -> float:
        a = np.exp(v)
        return a / (a ** (depth - 1) * (target - a**depth))

    cuts = np.linspace(np.log(start), np.log(end), 40)
    return sum(quad(slowness, lo, hi, epsabs=0, epsrel=1e-13)[0] for lo, hi in itertools.pairwise(cuts))


def aligned_modes(depth: int, strengths: np.ndarray, target: np.ndarray, rotation: np.ndarray) -> System:
    """Balanced layers diagonal in one rotated basis: the modes decouple into scalar equations of their own."""

    def product(t: float) -> np.ndarray:
        # ln a obeys v' = a^(L-2) (s - a^L): one scalar equation for each mode, whatever the size of the others.
        def field(_: float, v: np.ndarray) -> np.ndarray:
            a = np.exp(v)
            return a ** (depth - 2) * (target - a**depth)

        logs = np.log(strengths)
        if t > 0:
            logs = solve_ivp(field, (0, t), logs, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
        return rotation @ np.diag(np.exp(logs) ** depth) @ rotation.T

    width = len(strengths)
    problem = Problem(DeepLinear((width,) * (depth + 1)), SquaredDistance(rotation @ np.diag(target) @ rotation.T))
    layer = jnp.asarray(rotation @ np.diag(strengths) @ rotation.T)
    return System(problem, (layer,) * depth, product)


def completion_example() -> tuple[Problem, Params]:
    """Depth 3, two by two, diagonal observed; its product at t = 3 is known to thirteen digits."""
    layers = ([[0.5, 0.1], [-0.2, 0.4]], [[0.3, -0.1], [0.2, 0.6]], [[0.4, 0.2], [0.1, -0.5]])
    problem = Problem(DeepLinear((2, 2, 2, 2)), Completion(np.eye(2), np.eye(2)))
    return problem, tuple(jnp.asarray(layer) for layer in layers)


def scipy_flow(problem: Problem, params: Params, times: np.ndarray, energy: Callable) -> list[list[np.ndarray]]:
    """Gradient flow by SciPy's DOP853, restarted at each time, with gradients of an independently written energy.

    `energy(product)` returns the gradient on the product; the chain rule through the layers is written out here with
    explicit partial products.
    """
    shapes = [np.shape(layer) for layer in params]
    sizes = np.cumsum([0, *(int(np.prod(s)) for s in shapes)])
    l2 = float(problem.l2)

    def split(y: np.ndarray) -> list[np.ndarray]:
        return [y[a:b].reshape(s) for a, b, s in zip(sizes[:-1], sizes[1:], shapes, strict=True)]

    def field(_: float, y: np.ndarray) -> np.ndarray:
        layers = split(y)
        rights = [layers[0]]  # products of the first layers
        for layer in layers[1:]:
            rights.append(layer @ rights[-1])
        left = energy(rights[-1])  # the gradient on the product, times the layers after a layer
        parts = []
        for position in range(len(layers) - 1, -1, -1):
            gradient = left @ rights[position - 1].T if position else left
            parts.append((-gradient - l2 * layers[position]).ravel())
            left = layers[position].T @ left
        return np.concatenate(parts[::-1])

    y = np.concatenate([np.asarray(layer).ravel() for layer in params])
    result, now = [], 0.0
    for t in times:
        if t > now:
            y = solve_ivp(field, (now, t), y, method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
            now = t
        result.append(split(y))
    return result
