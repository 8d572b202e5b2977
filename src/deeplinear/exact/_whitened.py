r"""Two $\lambda$-balanced layers under white inputs: the Riccati solution as a whole learning curve."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import Array, Matrix, Params, formula, is_concrete, polar, xp
from deeplinear.exact._base import (
    CLOSEST_BASIS,
    EXACT_BASIS,
    AbstractSolution,
    at_times,
    checked_times,
    moments_of,
    require,
    require_network,
)
from deeplinear.exact._convergence import diagnose
from deeplinear.exact._quadratic import quadratic
from deeplinear.exact._representations import limit
from deeplinear.exact._riccati import (
    Correlations,
    Eigensystem,
    correlations_of,
    eigensystem,
    propagated_at,
    stacked,
    unstacked,
)
from deeplinear.exact._two_layers import BALANCE_TOLERANCE, BALANCED, checked_two_layers
from deeplinear.models import Problem

WHITE_TOLERANCE = 1e-10
r"""Largest $\|S - cI\|/c$ of an input covariance that counts as white."""

REAL_IMBALANCE = 1e-13
"""Imbalances below this are rounding."""

SADDLE_TOLERANCE = 1e-3
"""Largest quotient of an imbalance and the smallest overlap with a mode, both relative to the layers."""

TURN_TOLERANCE = 1e-9
"""Largest difference between one turn of the hidden basis and two half ones; what is left was 1e-10 and less."""

FARTHEST = 0.2
"""Longest step, relative to the size of the state, over which the hidden basis is carried at once."""

WINDOW = 1024
"""Steps of the hidden basis that are computed in one batch."""

MOST_NODES = 4096
"""Most states between which the hidden basis is carried along."""

WIDEST = 16
"""Widest hidden layer whose basis is carried along."""


class WhitenedSolution(AbstractSolution):
    r"""Two $\lambda$-balanced layers that learn a target under white inputs.

    Everything that does not depend on the hidden basis is exact: product, layer correlations, loss, tangent kernel,
    singular values of the layers. `params(t)` gives layers in the hidden basis closest to the start; `weights` carries
    the basis along the curve, as training does.

    Attributes:
        system: Eigensystem of target and $\lambda$.
        speed: $c$ of the input covariance $cI$; time runs $c$ times as fast.
        factor: $[W_1^\top; W_2]$ at the start.
    """

    problem: Problem
    start: Params
    residuals: Mapping[str, Float[Array, ""]]
    system: Eigensystem
    speed: Float[Array, ""]
    factor: Float[Array, "size hidden"]

    @property
    def form(self) -> str:
        return "two λ-balanced layers under white inputs"

    @property
    def lam(self) -> Float[Array, ""]:
        r"""$\lambda$ of $W_2^\top W_2 - W_1 W_1^\top = \lambda I$."""
        return self.system.lam

    def state(self, t: Float[Array, "*times"]) -> Float[Array, "*times size hidden"]:
        r"""A factor $Q$ with the right $QQ^\top$ at a time, in no particular hidden basis."""
        return propagated_at(self.factor, self.system, self.speed * t)

    def correlations(self, t: ArrayLike) -> Correlations:
        r"""$W_1^\top W_1$, $W_2 W_1$ and $W_2 W_2^\top$ at a time, or at several."""
        return at_times(self.correlations_at, moments_of(t))

    def correlations_at(self, t: Float[Array, "*times"]) -> Correlations:
        """Layer correlations at a time."""
        return correlations_of(self.state(t), self.system.inp)

    def limit(self) -> Correlations:
        r"""Layer correlations at infinite time.

        Raises:
            HypothesisError: If the start has no overlap with a mode, so that it is never learned, or the target does
                not determine the limit.
        """
        hidden = self.factor.shape[1]
        diagnosis = diagnose(self.start, self.system.target, self.lam)
        require("an overlap with every mode", diagnosis.missing, 0, "Some modes are never learned; see `diagnose`.")
        return limit(self.system.target, self.lam, hidden)

    def product_at(self, t: Float[Array, "*times"]) -> Float[Array, "*times out inp"]:
        return self.correlations_at(t).product

    def layers_at(self, t: Float[Array, "*times"]) -> tuple[Float[Array, "*times _ _"], ...]:
        state = self.state(t)
        return unstacked(state @ _turn(state, self.factor), self.system.inp)

    def carried(self, times: Float[np.ndarray, " times"], last: Params, carry: bool) -> tuple[tuple[Any, ...], str]:
        if not carry:
            return tuple(layer[None] for layer in last), CLOSEST_BASIS
        nodes = times if times[0] == 0 else np.concatenate([[0.0], times])
        states, known = self._carried(nodes) if len(nodes) > 1 else (np.asarray(self.factor)[None], EXACT_BASIS)
        states = states[-len(times) :]
        return (np.swapaxes(states[:, : self.system.inp], 1, 2), states[:, self.system.inp :]), known

    def weights(self, times: object) -> tuple[np.ndarray, ...]:
        r"""Layers at increasing times, in the hidden basis that training gives, stacked over the times.

        Gradient flow moves the hidden basis without turning it, $Q^\top\dot Q$ being symmetric; the basis is carried
        along the curve in small steps, to an accuracy of about $10^{-9}$.
        """
        return self.carried(checked_times("WhitenedSolution.weights", times), self.start, True)[0]

    def _carried(self, nodes: Float[np.ndarray, " nodes"]) -> tuple[np.ndarray, str]:
        """States at increasing times from 0 on, in the hidden basis that moves with them."""
        if self.factor.shape[1] > WIDEST:
            states = np.asarray(at_times(self.state, nodes))
            return states @ _turn(states, self.factor), f"{CLOSEST_BASIS} (wider than {WIDEST}, so not carried along)"
        wanted = set(nodes)
        fastest = float(self.speed) * float(np.max(np.abs(np.asarray(self.system.values))))
        if fastest * nodes[-1] > 1:  # From the shortest scale of time on, steps may grow with the time that has passed.
            count = 1 + math.ceil(math.log(fastest * nodes[-1]) / math.log(4.0))
            nodes = np.unique(np.concatenate([nodes, np.geomspace(1 / fastest, nodes[-1], count)[:-1]]))
        while True:
            long = nodes[1:] > 8 * nodes[:-1]
            halves = np.where(
                long & (nodes[:-1] > 0), np.sqrt(nodes[:-1]) * np.sqrt(nodes[1:]), (nodes[:-1] + nodes[1:]) / 2
            )
            turns, gaps, ends = _carry(self, nodes, halves)
            rough = gaps > TURN_TOLERANCE
            if not rough.any() or len(nodes) + rough.sum() > MOST_NODES:
                break
            nodes = np.sort(np.concatenate([nodes, halves[rough]]))
        turn = np.eye(self.factor.shape[1])
        kept = [np.asarray(self.factor)]
        for step, end, node in zip(turns, ends, nodes[1:], strict=True):
            turn = step @ turn
            if node in wanted:
                kept.append(end @ turn)
        worst = float(np.max(gaps, initial=0.0))
        known = EXACT_BASIS if worst <= TURN_TOLERANCE else f"carried along the curve to {worst:.0e} only"
        return np.stack(kept), known


def _turn(state: Array, reference: Array) -> Array:
    """Rotation of the hidden basis that brings a state closest to a reference."""
    return polar(xp.swapaxes(state, -1, -2) @ reference)


def _carry(
    solution: WhitenedSolution, nodes: np.ndarray, halves: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Turns between neighbouring nodes, how far one turn differs from two half ones, and the states after each."""
    parts = []
    for begin in range(0, len(halves), WINDOW):
        times = np.stack([nodes[:-1], halves, nodes[1:]])[:, begin : begin + WINDOW]
        parts.append(_turns(solution, times))
    turns, gaps, ends = (np.concatenate(part) for part in zip(*parts, strict=True))
    return turns, gaps, ends


@formula
def _turns(solution: WhitenedSolution, times: Float[Array, "3 steps"]) -> tuple[Array, Array, Array]:
    """Turns over steps with given begin, middle and end, to fourth order.

    Turning to the closest basis carries it along up to an error of third order in the step, which two half steps make
    four times smaller in all; the cube root of the difference removes it.
    """

    before, middle, after = solution.state(times)
    whole, halves = _turn(after, before), _turn(after, middle) @ _turn(middle, before)
    gap = xp.swapaxes(whole, -1, -2) @ halves
    scales = [_size(state) for state in (before, after)]
    sizes = (_size(after @ (halves - whole)) / scales[1])[..., 0, 0]
    # A step that moves the state far may have no error to see: its middle may be as good as its end.
    moved = _size(after @ halves / scales[1] - before / scales[0])[..., 0, 0]
    sizes = xp.where(moved > FARTHEST, 1.0, sizes)
    left, _, right_t = xp.linalg.svd(xp.eye(gap.shape[-1]) + (gap - xp.swapaxes(gap, -1, -2)) / 6)
    return halves @ (left @ right_t), xp.where(xp.isfinite(sizes), sizes, 0.0), after


def _size(states: Float[Array, "*batch size hidden"]) -> Float[Array, "*batch 1 1"]:
    """Frobenius norm of each state."""
    return xp.linalg.norm(states, axis=(-2, -1), keepdims=True)


@formula
def _colour(covariance: Matrix) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Mean variance of the inputs, and by how much their covariance differs from a multiple of one."""
    speed = xp.trace(covariance) / covariance.shape[0]
    return speed, xp.linalg.norm(covariance - speed * xp.eye(covariance.shape[0]), 2) / speed


def whitened(problem: Problem, params: Params, *, balance_tolerance: float = BALANCE_TOLERANCE) -> WhitenedSolution:
    """The closed form of two balanced layers under white inputs, or a refusal by hypothesis.

    Under a transformation the whiteness of the inputs cannot be seen and is not checked; balance is, at run time.
    """
    network = require_network(problem)
    require("two layers", abs(network.depth - 2), 0.0)
    if is_concrete(problem.l2):
        require("no penalty", float(problem.l2), 0.0, "A penalty does not keep what the layers conserve.")
    goal = quadratic(problem.loss)
    speed, colour = _colour(goal.covariance)
    if is_concrete(colour):
        require("white inputs", float(colour), WHITE_TOLERANCE, "Whiten them, see `whiten`.")
    layers = checked_two_layers("solve", params, goal.target, tolerance=balance_tolerance)
    system = eigensystem(goal.target, layers.lam)
    seen = all(map(is_concrete, (layers.residual, system.strengths)))
    # Who asks for an approximation by a larger tolerance gets one, also next to a saddle.
    if seen and balance_tolerance <= BALANCE_TOLERANCE and float(layers.residual) > REAL_IMBALANCE:
        size = math.hypot(*(float(np.linalg.norm(np.asarray(layer))) for layer in layers[:2]))
        overlap = diagnose(layers[:2], goal.target, layers.lam).smallest_overlap / size
        require(
            "an imbalance small against the overlap with every mode",
            float(layers.residual) / max(overlap, 1e-300),
            SADDLE_TOLERANCE,
            "The start is next to a saddle, where the imbalance decides when it is left: simulate instead.",
        )
    return WhitenedSolution(
        problem,
        params,
        {"white inputs": colour, BALANCED: layers.residual},
        system,
        speed,
        stacked(layers[:2]),
    )
