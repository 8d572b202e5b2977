"""What a closed form of a learning curve offers: the network at any time, and trajectories like a simulation's."""

import abc
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    RESULTS,
    Array,
    HypothesisError,
    Params,
    Stack,
    Trajectory,
    as_array,
    as_numbers,
    check_number,
    check_shape,
    describe,
    formula,
    is_concrete,
    is_program,
    over,
    xp,
)
from deeplinear.models import DeepLinear, Problem
from deeplinear.probes import checked_probes, dimension_names, is_own, loss, values_of

EXACT_BASIS = "as training gives it"
"""What is known of the hidden basis where nothing is left open."""

BLIND = 1e-6
"""Relative change up to which a probe counts as one that does not see the hidden basis."""

CLOSEST_BASIS = "closest to the start"
"""What is known of the hidden basis where it was not carried along."""

WINDOW = 4096
"""Times at which layers are in memory together."""


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
    def layers_at(self, t: Float[Array, "*times"]) -> tuple[Float[Array, "*times _ _"], ...]:
        """Layers at a time; numbers also at several, whose axes come first."""

    @abc.abstractmethod
    def product_at(self, t: Float[Array, "*times"]) -> Float[Array, "*times out inp"]:
        """End-to-end matrix at a time; numbers also at several, whose axes come first."""

    @abc.abstractmethod
    def carried(self, times: Float[np.ndarray, " times"], last: Params, carry: bool) -> tuple[tuple[Any, ...], str]:
        """Layers at times in the hidden basis that training gives, if wanted, and what is known of that basis.

        `last` are the layers at the last time as `params` gives them; they are enough where only that one is asked for.
        """

    def value_at(self, t: Float[Array, "*times"]) -> Float[Array, "*times"]:
        """Loss at a time; numbers also at several."""
        layers = self.layers_at(t)
        return over(self.problem.value)(layers) if t.ndim else self.problem.value(layers)

    def params(self, t: ArrayLike) -> tuple[Array, ...]:
        """Layers at a time, or stacked over several.

        A pure function, as are `product` and `value`: batch it, differentiate it, compile it within one of yours.
        """
        return at_times(self.layers_at, moments_of(t))

    def product(self, t: ArrayLike) -> Float[Array, "*times out inp"]:
        """End-to-end matrix at a time, or at several."""
        return at_times(self.product_at, moments_of(t))

    def value(self, t: ArrayLike) -> Float[Array, "*times"]:
        """Loss at a time, or at several."""
        return at_times(self.value_at, moments_of(t))

    def trajectory(
        self,
        times: Any,
        *,
        probes: Callable[..., Any] | Iterable[Callable[..., Any]] = (loss,),
        carry: bool = True,
    ) -> Trajectory:
        r"""Probes along the curve, in the same form as the record of a simulation.

        Args:
            times: Increasing times from 0 on.
            probes: Observables, as for `simulate`.
            carry: Whether to carry the hidden basis along the curve, as training does, for the final layers and for
                probes that see it; without it both are in the basis closest to the start, and much is saved.

        Returns:
            Trajectory; `info` says which closed form made it, with the measured residuals of its hypotheses, and what
            is known of the hidden basis of the final layers.
        """
        where = "AbstractSolution.trajectory"
        clock = time.monotonic()
        moments = checked_times(where, times)
        found = checked_probes(
            where, probes, self.problem, False, tuple(np.asarray(layer, dtype=float)[None] for layer in self.start)
        )
        parts, layers = [], ()
        for begin in range(0, len(moments), WINDOW):
            window = moments[begin : begin + WINDOW]
            layers = self.params(window)
            parts.append(_observed(found, self.problem, window, layers))
        values = {item.name: np.concatenate(part) for item, part in zip(found, zip(*parts, strict=True), strict=True)}
        closest = tuple(np.asarray(layer)[-1] for layer in layers)
        layers, basis = self.carried(moments[-1:], closest, carry)
        layers = tuple(np.asarray(layer)[-1] for layer in layers)
        blind = _blind(found, self.problem, moments[-1], closest, layers)
        if not all(blind):  # Probes that see the hidden basis are evaluated in that of training, if it is known.
            seeing = tuple(item for item, one in zip(found, blind, strict=True) if not one)
            if carry:
                stack, basis = self.carried(moments, closest, carry)
                again = _observed(seeing, self.problem, moments, stack)
                values |= {item.name: value for item, value in zip(seeing, again, strict=True)}
            if basis != EXACT_BASIS:
                basis += f"; in that basis too: {', '.join(item.name for item in seeing)}"
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


def moments_of(t: ArrayLike) -> Float[Array, "*times"]:
    """One time or several, from 0 on, as an array; or a refusal."""
    times = as_array(t, float)
    if times.ndim > 1:
        raise ValueError(f"AbstractSolution: t must be a time or a list of times, but has shape {times.shape}.")
    if is_concrete(times) and times.size:
        check_number("AbstractSolution", "t", float(np.min(np.asarray(times))), at_least=0)
        check_number("AbstractSolution", "t", float(np.max(np.asarray(times))))
    if not is_concrete(times):
        times = eqx.error_if(times, ~(times >= 0), "AbstractSolution: t must be at least 0, but is not.")
    return times


@formula
def at_times(function: Callable[[Float[Array, "*times"]], Any], times: Float[Array, "*times"]) -> Any:
    """A method of a solution at one time or at each of several; of numbers it takes all of them at once."""
    return over(function)(times) if times.ndim and is_program(function, times) else function(times)


def _observed(probes: tuple[Any, ...], problem: Problem, times: np.ndarray, layers: Stack) -> list[np.ndarray]:
    """Probes of layers at times: our own by their formulas, others, which may be written for JAX, by one program."""
    if all(map(is_own, probes)):
        looks, own = as_numbers((probes, problem))
        stack = as_numbers(layers)
        rows = [values_of(looks, t, tuple(layer[k] for layer in stack), own) for k, t in enumerate(times)]
        return [np.stack(column) for column in zip(*rows, strict=True)]
    # Short windows are filled up, so that few lengths are compiled.
    fill = (1 << (len(times) - 1).bit_length()) - len(times)
    filled = jax.tree.map(lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], fill, axis=0)]), (times, layers))
    return [np.asarray(value)[: len(times)] for value in _program(probes, problem, *filled)]


@eqx.filter_jit
def _program(probes: tuple[Any, ...], problem: Problem, times: Float[Array, " times"], layers: Stack) -> list[Array]:
    """Probes at all times."""
    return jax.vmap(lambda t, layers: [xp.asarray(item(t, layers, problem)) for item in probes])(times, layers)


def _blind(probes: tuple[Any, ...], problem: Problem, t: float, one: Params, other: Params) -> list[bool]:
    """Which probes do not see the difference between two hidden bases of one network."""
    if all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
        return [True] * len(probes)
    both = tuple(np.stack(pair) for pair in zip(one, other, strict=True))
    pairs = _observed(probes, problem, np.full(2, t), both)
    sizes = [max(float(np.abs(pair[0]).max(initial=0.0)), 1e-300) for pair in pairs]
    return [
        bool(np.abs(pair[0] - pair[1]).max(initial=0.0) <= BLIND * size)
        for pair, size in zip(pairs, sizes, strict=True)
    ]


def checked_times(where: str, times: Any) -> Float[np.ndarray, " times"]:
    """Increasing, finite times from 0 on in an array of their own, or a refusal."""
    moments = np.atleast_1d(np.array(times, dtype=float))
    check_shape(where, "times", moments, (None,))
    if moments.size == 0:
        raise ValueError(f"{where}: times must hold at least one time, but is empty.")
    bad = ~np.isfinite(moments) | (moments < 0)
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(f"{where}: times must be finite and at least 0, but times[{first}] is {moments[first]:g}.")
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
