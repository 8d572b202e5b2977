r"""Discrete optimisers: pure pairs of `init` and `step`.

The rules and the default numbers are PyTorch's: $\epsilon$ stands outside the square root. Every hyper-parameter is an
array, so that a sweep over it compiles once. With $g$ the gradient of the whole loss, penalty included:

| update | rule |
| --- | --- |
| `GradientDescent` | $\theta \leftarrow \theta - \eta g$ |
| `Momentum` | $b \leftarrow \mu b + (1-\tau) g$, first $b = g$; $\theta \leftarrow \theta - \eta b$ |
| `Adam` | $\theta \leftarrow \theta - \eta\, \hat m / (\sqrt{\hat v} + \epsilon)$ |
| `RMSProp` | $v \leftarrow \alpha v + (1-\alpha) g^2$; $\theta \leftarrow \theta - \eta\, g/(\sqrt v + \epsilon)$ |
| `Adagrad` | $s \leftarrow s + g^2$; $\theta \leftarrow \theta - \eta\, g/(\sqrt s + \epsilon)$ |
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from deeplinear.core import Array, Params, RandomKey, add_scaled, as_array, check_number, entry, is_concrete
from deeplinear.dynamics._base import AbstractUpdate
from deeplinear.models import Problem

Number = float | int | Float[Array, ""]


def _zeros(params: Params) -> Params:
    return tuple(jnp.zeros_like(layer) for layer in params)


def _positive(where: str, name: str, value: Number) -> Float[Array, ""]:
    """A hyper-parameter above 0."""
    check_number(where, name, value, above=0)
    return as_array(value, float)


def _nonnegative(where: str, name: str, value: Number) -> Float[Array, ""]:
    """A hyper-parameter of at least 0."""
    check_number(where, name, value, at_least=0)
    return as_array(value, float)


def _decay(where: str, name: str, value: Number) -> Float[Array, ""]:
    """A decay rate in [0, 1)."""
    check_number(where, name, value, at_least=0)
    if is_concrete(value) and not value < 1:
        raise ValueError(f"{where}: {name} must be less than 1, but is {float(value):g}.")
    return as_array(value, float)


class GradientDescent(AbstractUpdate[None]):
    r"""Plain descent $\theta \leftarrow \theta - \eta\,\nabla\mathcal L(\theta)$.

    Args:
        lr: Learning rate $\eta > 0$. Stable near a minimum below 2 / (largest Hessian eigenvalue).

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> params, _ = GradientDescent(0.25).step(problem, (jnp.zeros((1, 1)),), None, jax.random.key(0))
        >>> float(params[0][0, 0])
        0.25
    """

    lr: Float[Array, ""]

    @entry
    def __init__(self, lr: Number) -> None:
        self.lr = _positive("GradientDescent", "lr", lr)

    def init(self, params: Params) -> None:
        """No state."""
        return None

    def step(self, problem: Problem, params: Params, state: None, key: RandomKey) -> tuple[Params, None]:
        """One step of descent."""
        return add_scaled(params, -self.lr, problem.gradient(params)), None


class MomentumState(NamedTuple):
    """Whether a step was taken, and the running sum of gradients."""

    started: Bool[Array, ""]
    velocity: Params


class Momentum(AbstractUpdate[MomentumState]):
    r"""Heavy-ball descent: $b \leftarrow \mu b + (1-\tau) g$, $\theta \leftarrow \theta - \eta b$.

    The first $b$ is $g$, undamped. With `nesterov` the step is along $g + \mu b$ with the new $b$.

    Args:
        lr: Learning rate $\eta > 0$.
        momentum: $\mu \in [0, 1)$.
        dampening: $\tau \in [0, 1]$; must be 0 with `nesterov`.
        nesterov: Whether to look ahead.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> method, params, key = Momentum(0.5, 0.5), (jnp.zeros((1, 1)),), jax.random.key(0)
        >>> params, state = method.step(problem, params, method.init(params), key)
        >>> float(method.step(problem, params, state, key)[0][0][0, 0])
        1.0
    """

    lr: Float[Array, ""]
    momentum: Float[Array, ""]
    dampening: Float[Array, ""]
    nesterov: bool = eqx.field(static=True)

    @entry
    def __init__(self, lr: Number, momentum: Number = 0.9, dampening: Number = 0.0, *, nesterov: bool = False) -> None:
        self.lr = _positive("Momentum", "lr", lr)
        self.momentum = _decay("Momentum", "momentum", momentum)
        check_number("Momentum", "dampening", dampening, at_least=0, at_most=1)
        self.dampening = as_array(dampening, float)
        self.nesterov = bool(nesterov)
        if self.nesterov and is_concrete(dampening) and dampening != 0:
            raise ValueError(f"Momentum: dampening must be 0 with nesterov=True, but is {float(dampening):g}.")

    def init(self, params: Params) -> MomentumState:
        """No velocity."""
        return MomentumState(jnp.asarray(False), _zeros(params))

    def step(
        self, problem: Problem, params: Params, state: MomentumState, key: RandomKey
    ) -> tuple[Params, MomentumState]:
        """One step along the velocity."""
        gradient = problem.gradient(params)
        weight = jnp.where(state.started, 1 - self.dampening, 1.0)
        velocity = tuple(self.momentum * b + weight * g for b, g in zip(state.velocity, gradient, strict=True))
        direction = add_scaled(gradient, self.momentum, velocity) if self.nesterov else velocity
        return add_scaled(params, -self.lr, direction), MomentumState(jnp.asarray(True), velocity)


class AdamState(NamedTuple):
    """Number of steps taken, and the running means of gradients and of their squares."""

    steps: Int[Array, ""]
    mean: Params
    square: Params


class Adam(AbstractUpdate[AdamState]):
    r"""Adam: $\theta \leftarrow \theta - \eta\,\hat m/(\sqrt{\hat v}+\epsilon)$.

    $m \leftarrow \beta_1 m + (1-\beta_1) g$, $v \leftarrow \beta_2 v + (1-\beta_2) g^2$, and after $n$ steps
    $\hat m = m/(1-\beta_1^n)$, $\hat v = v/(1-\beta_2^n)$.

    Args:
        lr: Learning rate $\eta > 0$.
        b1: $\beta_1 \in [0, 1)$.
        b2: $\beta_2 \in [0, 1)$.
        eps: $\epsilon \ge 0$, outside the root. Zero gives 0/0 where a gradient has always vanished.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> method, params = Adam(0.1), (jnp.zeros((1, 1)),)
        >>> params, _ = method.step(problem, params, method.init(params), jax.random.key(0))
        >>> round(float(params[0][0, 0]), 6)
        0.1
    """

    lr: Float[Array, ""]
    b1: Float[Array, ""]
    b2: Float[Array, ""]
    eps: Float[Array, ""]

    @entry
    def __init__(self, lr: Number = 1e-3, b1: Number = 0.9, b2: Number = 0.999, eps: Number = 1e-8) -> None:
        self.lr = _positive("Adam", "lr", lr)
        self.b1 = _decay("Adam", "b1", b1)
        self.b2 = _decay("Adam", "b2", b2)
        self.eps = _nonnegative("Adam", "eps", eps)

    def init(self, params: Params) -> AdamState:
        """Zero moments."""
        return AdamState(jnp.zeros((), dtype=int), _zeros(params), _zeros(params))

    def step(self, problem: Problem, params: Params, state: AdamState, key: RandomKey) -> tuple[Params, AdamState]:
        """One step with moments corrected for their zero start."""
        gradient = problem.gradient(params)
        steps = state.steps + 1
        mean = tuple(self.b1 * m + (1 - self.b1) * g for m, g in zip(state.mean, gradient, strict=True))
        square = tuple(self.b2 * v + (1 - self.b2) * g**2 for v, g in zip(state.square, gradient, strict=True))
        exponent = steps.astype(self.b1.dtype)
        mean_weight, square_weight = 1 - self.b1**exponent, 1 - self.b2**exponent
        direction = tuple(
            (m / mean_weight) / (jnp.sqrt(v / square_weight) + self.eps) for m, v in zip(mean, square, strict=True)
        )
        return add_scaled(params, -self.lr, direction), AdamState(steps, mean, square)


class RMSProp(AbstractUpdate[Params]):
    r"""RMSProp: $v \leftarrow \alpha v + (1-\alpha) g^2$, $\theta \leftarrow \theta - \eta\,g/(\sqrt v+\epsilon)$.

    Not centred, without momentum; $v$ starts at zero and is not corrected for it.

    Args:
        lr: Learning rate $\eta > 0$.
        decay: $\alpha \in [0, 1)$.
        eps: $\epsilon \ge 0$, outside the root. Zero gives 0/0 where a gradient has always vanished.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> method, params = RMSProp(0.1), (jnp.zeros((1, 1)),)
        >>> params, _ = method.step(problem, params, method.init(params), jax.random.key(0))
        >>> round(float(params[0][0, 0]), 6)
        1.0
    """

    lr: Float[Array, ""]
    decay: Float[Array, ""]
    eps: Float[Array, ""]

    @entry
    def __init__(self, lr: Number = 1e-2, decay: Number = 0.99, eps: Number = 1e-8) -> None:
        self.lr = _positive("RMSProp", "lr", lr)
        self.decay = _decay("RMSProp", "decay", decay)
        self.eps = _nonnegative("RMSProp", "eps", eps)

    def init(self, params: Params) -> Params:
        """Zero second moment."""
        return _zeros(params)

    def step(self, problem: Problem, params: Params, state: Params, key: RandomKey) -> tuple[Params, Params]:
        """One step along the scaled gradient."""
        gradient = problem.gradient(params)
        squares = tuple(self.decay * v + (1 - self.decay) * g**2 for v, g in zip(state, gradient, strict=True))
        direction = tuple(g / (jnp.sqrt(v) + self.eps) for g, v in zip(gradient, squares, strict=True))
        return add_scaled(params, -self.lr, direction), squares


class Adagrad(AbstractUpdate[Params]):
    r"""Adagrad: $s \leftarrow s + g^2$, $\theta \leftarrow \theta - \eta\,g/(\sqrt s+\epsilon)$.

    Args:
        lr: Learning rate $\eta > 0$.
        eps: $\epsilon \ge 0$, outside the root. Zero gives 0/0 where a gradient has always vanished.

    Example:
        >>> problem = Problem(DeepLinear((1, 1)), SquaredDistance(jnp.ones((1, 1))))
        >>> method, params = Adagrad(0.1), (jnp.zeros((1, 1)),)
        >>> params, _ = method.step(problem, params, method.init(params), jax.random.key(0))
        >>> round(float(params[0][0, 0]), 6)
        0.1
    """

    lr: Float[Array, ""]
    eps: Float[Array, ""]

    @entry
    def __init__(self, lr: Number = 1e-2, eps: Number = 1e-10) -> None:
        self.lr = _positive("Adagrad", "lr", lr)
        self.eps = _nonnegative("Adagrad", "eps", eps)

    def init(self, params: Params) -> Params:
        """Zero sums of squares."""
        return _zeros(params)

    def step(self, problem: Problem, params: Params, state: Params, key: RandomKey) -> tuple[Params, Params]:
        """One step along the scaled gradient."""
        gradient = problem.gradient(params)
        squares = tuple(s + g**2 for s, g in zip(state, gradient, strict=True))
        direction = tuple(g / (jnp.sqrt(s) + self.eps) for g, s in zip(gradient, squares, strict=True))
        return add_scaled(params, -self.lr, direction), squares
