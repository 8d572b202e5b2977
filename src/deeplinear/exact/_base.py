"""What a closed form of a learning curve offers: the network at any time, and trajectories like a simulation's."""

import abc
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from deeplinear.core import (
    RESULTS,
    HypothesisError,
    Matrix,
    Params,
    Trajectory,
    check_number,
    check_shape,
    describe,
    one_at_a_time,
)
from deeplinear.models import DeepLinear, Problem
from deeplinear.probes import checked_probes, dimension_names, loss

EXACT_BASIS = "as training gives it"
"""What is known of the hidden basis where nothing is left open."""

WINDOW = 4096
"""Times at which probes are evaluated in one batch."""


class AbstractSolution(eqx.Module):
    """Gradient flow of a problem from given layers, known at every time."""

    problem: eqx.AbstractVar[Problem]
    start: eqx.AbstractVar[Params]
    residuals: eqx.AbstractVar[Mapping[str, Float[Array, ""]]]

    @property
    @abc.abstractmethod
    def form(self) -> str:
        """Which closed form this is, in words."""

    @abc.abstractmethod
    def layers_at(self, t: Float[Array, ""]) -> Params:
        """Layers at a time."""

    @abc.abstractmethod
    def product_at(self, t: Float[Array, ""]) -> Matrix:
        """End-to-end matrix at a time."""

    @abc.abstractmethod
    def carried(self, t: float, layers: Params) -> tuple[tuple[np.ndarray, ...], str]:
        """The layers at a time in the hidden basis that training gives, and what is known of that basis."""

    def params(self, t: ArrayLike) -> Params:
        """Layers at a time; a pure function that can be compiled, batched and differentiated."""
        return _layers(self, _moment(t))

    def product(self, t: ArrayLike) -> Matrix:
        """End-to-end matrix at a time; a pure function that can be compiled, batched and differentiated."""
        return _product(self, _moment(t))

    def value(self, t: ArrayLike) -> Float[Array, ""]:
        """Loss at a time; a pure function that can be compiled, batched and differentiated."""
        return _value(self, _moment(t))

    def trajectory(
        self, times: Any, *, probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,)
    ) -> Trajectory:
        r"""Probes along the curve, in the same form as the record of a simulation.

        Args:
            times: Increasing times from 0 on.
            probes: Observables, as for `simulate`.

        Returns:
            Trajectory; `info` says which closed form made it, with the measured residuals of its hypotheses, and what
            is known of the hidden basis of the final layers.
        """
        where = "AbstractSolution.trajectory"
        clock = time.monotonic()
        moments = checked_times(where, times)
        found = checked_probes(
            where, probes, self.problem, False, tuple(jnp.asarray(layer)[None] for layer in self.start)
        )
        parts, layers = [], self.start
        for begin in range(0, len(moments), WINDOW):
            window = moments[begin : begin + WINDOW]
            # Short windows are filled up, so that few lengths are compiled.
            size = min(WINDOW, 1 << (len(window) - 1).bit_length())
            padded = np.concatenate([window, np.full(size - len(window), window[-1])])
            values, layers = _record(self, found, jnp.asarray(padded))
            parts.append([np.asarray(value)[: len(window)] for value in values])
        values = {item.name: np.concatenate(part) for item, part in zip(found, zip(*parts, strict=True), strict=True)}
        layers, basis = self.carried(float(moments[-1]), layers)
        return Trajectory(
            times=moments,
            values=values,
            dims={item.name: dimension_names(item, values[item.name].ndim - 1) for item in found},
            params=tuple(np.asarray(layer) for layer in layers),
            results=np.asarray(int(RESULTS.completed)),
            fired=np.asarray(0),
            rules=(),
            lengths=np.asarray(len(moments)),
            stats={"seconds": time.monotonic() - clock},
            info={
                "problem": describe(self.problem),
                "method": f"closed form: {self.form}",
                "loss": self.problem.loss.kind,
                "clock": "time",
                "hypotheses": {name: float(value) for name, value in self.residuals.items()},
                "hidden_basis": basis,
            },
        )


def _moment(t: ArrayLike) -> Float[Array, ""]:
    check_number("AbstractSolution", "t", t, at_least=0)
    return jnp.asarray(t, dtype=float)


@one_at_a_time
@eqx.filter_jit
def _layers(solution: AbstractSolution, t: Float[Array, ""]) -> Params:
    return solution.layers_at(t)


@one_at_a_time
@eqx.filter_jit
def _product(solution: AbstractSolution, t: Float[Array, ""]) -> Matrix:
    return solution.product_at(t)


@one_at_a_time
@eqx.filter_jit
def _value(solution: AbstractSolution, t: Float[Array, ""]) -> Float[Array, ""]:
    return solution.problem.value(solution.layers_at(t))


@one_at_a_time
@eqx.filter_jit
def _record(
    solution: AbstractSolution, probes: tuple[Any, ...], times: Float[Array, " times"]
) -> tuple[list[Array], Params]:
    """Probes at all times, and the layers at the last."""

    def at(t: Float[Array, ""]) -> tuple[list[Array], Params]:
        layers = solution.layers_at(t)
        return [jnp.asarray(item(t, layers, solution.problem)) for item in probes], layers

    values, layers = jax.vmap(at)(times)
    return values, tuple(layer[-1] for layer in layers)


def checked_times(where: str, times: Any) -> Float[np.ndarray, " times"]:
    """Increasing, finite times from 0 on, or a refusal."""
    moments = np.atleast_1d(np.asarray(times, dtype=float))
    check_shape(where, "times", moments, (None,))
    if moments.size == 0:
        raise ValueError(f"{where}: times must hold at least one time, but is empty.")
    bad = ~np.isfinite(moments) | (moments < 0)
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(
            f"{where}: times must be finite and at least 0, but times[{first}] is {moments[first]:g}; a flow "
            "may not exist backwards in time."
        )
    if np.any(np.diff(moments) <= 0):
        first = int(np.argmax(np.diff(moments) <= 0))
        raise ValueError(
            f"{where}: times must increase, but times[{first}] is {moments[first]:g} and times[{first + 1}] is "
            f"{moments[first + 1]:g}."
        )
    return moments


def require(hypothesis: str, residual: float, tolerance: float, advice: str = "") -> None:
    """Refuse where a residual is above its tolerance, or is no number."""
    if not residual <= tolerance:
        raise HypothesisError(hypothesis, float(residual), tolerance, advice)


def require_network(problem: Problem) -> DeepLinear:
    """The model as a feed-forward network, or a refusal by hypothesis."""
    if not isinstance(problem.model, DeepLinear):
        raise HypothesisError("a feed-forward network", 1.0, 0.0, f"The model is {type(problem.model).__name__}.")
    return problem.model
