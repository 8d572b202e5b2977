r"""Coupled or decoupled: whether the observed entries of a completion problem influence each other along the flow.

The residuals of the observed entries obey $\dot r = -K r$ with the Gram matrix $K$ of `entry_gram`. The dynamics is
*decoupled* if the observations fall into two or more parts with $K = 0$ between them at all times $t \ge 0$; otherwise
it is *coupled*.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float, Int

from deeplinear.core import (
    Array,
    Params,
    check_finite,
    check_number,
    check_shape,
    checked_params,
    entry,
    flatten,
    is_concrete,
    norm,
    unflatten,
    xp,
)
from deeplinear.dynamics._flow import GradientFlow
from deeplinear.dynamics._simulate import simulate
from deeplinear.dynamics._stopping import until
from deeplinear.models import (
    Completion,
    DeepLinear,
    Observations,
    Problem,
    block_mask,
    checked_problem,
    connected_mask,
    disconnected_mask,
    entry_connectivity,
    entry_gram,
    observed_entries,
)
from deeplinear.probes import AbstractProbe, Time, loss, network_of, probe

FALL = 1e-6
"""The flow is watched until the loss has fallen by this factor."""
MOST_STEPS = 1000
"""Most steps of the flow."""
MOST_STATES = 64
"""Most states of the flow that are looked at, spread evenly over its steps."""

Pairs = tuple[tuple[int, int], ...]
Graph = Bool[np.ndarray, "entries entries"]
Weights = Float[np.ndarray, "entries entries"]


@dataclasses.dataclass(frozen=True)
class Coupling:
    """Whether the observed entries influence each other along the flow, and how that was found.

    Attributes:
        coupled: The label. With fewer than two observations the dynamics counts as coupled.
        partition: Parts of the observed entries, (row, column), with nothing between different parts: the finest that
            the rule gives; one part if coupled.
        rule: What decided: `"fewer than two observations"`, `"observation graph (depth 2)"`, `"zero pattern"`,
            `"kernel at the start"` or `"kernel along the flow (numerical)"`.
        certified: Whether the rule is a proof for the given numbers. The last rule is an observation of a computed
            flow: it may miss an influence below its tolerance, and take for one what rounding has grown into.
        residual: If decoupled, the largest normalised inner product $|K_{pq}|/\\sqrt{K_{pp}K_{qq}}$ between different
            parts, at the times looked at; if coupled, the weakest link: the largest threshold on the normalised
            inner products that leaves all entries joined. Zero where there are not two entries.
    """

    coupled: bool
    partition: tuple[Pairs, ...]
    rule: str
    certified: bool
    residual: float

    def __str__(self) -> str:
        label = "coupled" if self.coupled else f"decoupled into {len(self.partition)} parts"
        strength = "weakest link" if self.coupled else "largest inner product between parts"
        kind = "" if self.certified else ", not certified"
        return f"{label}, by {self.rule}{kind}; {strength} {self.residual:.3g}"


@entry(instead="call it outside of the transformation")
def coupling(problem: Problem, params: Iterable[Any], *, rtol: float = 1e-10, times: Any = None) -> Coupling:
    r"""Whether the observed entries of a completion problem influence each other along the gradient flow.

    Four rules, in this order; the first that answers decides.

    1. *Observation graph.* At depth 2 entries of different components of the graph (see `connectivity`) have $K = 0$
       for all weights.
    2. *Zero pattern.* The zeros of the layers that the flow keeps are found by following which weights a gradient can
       reach. Entries that no remaining weights join have $K = 0$ at all times, exactly and in floating point too:
       multiples of the identity, block-diagonal layers of any widths, zero layers.
    3. *Kernel at the start.* Entries joined by non-zero inner products at $t = 0$ are coupled. An inner product counts
       as non-zero if it exceeds a bound on its own rounding error, $\gamma \sum_l |T_l|_{ip} |S_l|_{jq}$ with the
       products of absolute values of the layers and $\gamma$ a few hundred roundings. This bound, unlike a tolerance
       relative to $\sqrt{K_{pp} K_{qq}}$, shrinks with the weights that join two entries: with three layers
       $\alpha I + O(\alpha/m)$ the normalised inner product is $O(1/m^2)$ and told from zero at $m = 10^6$ and far
       beyond. The numbers are taken as given: zeros that rounding has made non-zero join entries too, which
       `residual` shows.
    4. *Kernel along the flow.* Otherwise the flow is computed, and entries are joined where the normalised inner
       product exceeds `rtol` at a time looked at. $K(t)$ is analytic, so an inner product that is ever non-zero is
       non-zero at almost all times; what decides is its size. Layers that a hidden rotation makes diagonal are found
       decoupled here. Leaving a small start, the flow multiplies relative errors of the weights by up to
       $(\|\theta(t)\|/\|\theta(0)\|)^{L-2}$; it is followed no further than where rounding may have reached `rtol`.

    Args:
        problem: A `DeepLinear` network of depth 2 or more with a `Completion` or `EntryCompletion` loss.
        params: Layers at the start.
        rtol: Threshold on normalised inner products along the flow, in the fourth rule only; well above rounding, as
            the flow makes rounding errors grow.
        times: Times to look at in the fourth rule, increasing, from 0 on. By default 64 states, spread evenly over the
            steps of the flow until the loss has fallen to $10^{-6}$ of its value at the start or the flow rests, at
            most 1000 steps.

    Returns:
        Label, partition, the rule that decided, and how far from the other label the numbers are.

    Raises:
        NumericalError: If the fourth rule is reached and the flow breaks down.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2, 2)), Completion(jnp.eye(2), disconnected_mask()))
        >>> print(coupling(problem, AlphaM(0.1, 1e6)(problem.model, jax.random.key(0))))
        coupled, by kernel at the start; weakest link 1.33e-12
        >>> coupling(problem, ScaledIdentity(0.1)(problem.model, jax.random.key(0))).partition
        (((0, 0),), ((1, 1),))
    """
    where = "coupling"
    network = network_of(checked_problem(where, "problem", problem), where)
    check_number(where, "rtol", rtol, above=0)
    if network.depth < 2:
        raise ValueError(
            f"{where}: problem.model must have depth at least 2, but has depth {network.depth}; the entries of a "
            "single layer never influence each other."
        )
    layers = tuple(xp.asarray(layer, dtype=float) for layer in checked_params(where, "params", params))
    problem.check(layers, where)
    for position, layer in enumerate(layers):
        check_finite(where, f"params[{position}]", layer)
    seen = observed_entries(problem.loss)
    if len(seen.rows) < 2:
        return Coupling(True, _parts(seen, np.zeros(len(seen.rows), int)), "fewer than two observations", True, 0.0)

    labels = _components(_pattern_graph(network, layers, seen))
    if labels.max() > 0:
        partition = _parts(seen, labels)
        graph = entry_connectivity(seen.rows, seen.columns, network.product_shape)
        plain = network.depth == 2 and len(graph.components) == len(partition)
        return Coupling(False, partition, "observation graph (depth 2)" if plain else "zero pattern", True, 0.0)

    weights, bounds = _normalised(network, layers, seen)
    link = _weakest_link(np.where(weights > bounds, weights, 0.0))
    if link > 0:
        return Coupling(True, _parts(seen, np.zeros(len(seen.rows), int)), "kernel at the start", True, link)

    joined, largest = weights > bounds, np.where(weights > bounds, weights, 0.0)
    for state in _states(problem, layers, times):
        growth = float(norm(state)) / float(norm(layers))
        if growth ** (network.depth - 2) * _rounding(network) > rtol:
            break
        now, bounds = _normalised(network, state, seen)
        joined |= now > np.maximum(rtol, bounds)
        largest = np.maximum(largest, now)
    labels = _components(joined)
    rule = "kernel along the flow (numerical)"
    if labels.max() == 0:
        return Coupling(True, _parts(seen, labels), rule, False, _weakest_link(np.where(joined, largest, 0.0)))
    across = labels[:, None] != labels
    return Coupling(False, _parts(seen, labels), rule, False, float(largest[across].max()))


# ---- Graphs on the observed entries ----------------------------------------------------------------------------------


def _parts(seen: Observations, labels: Int[np.ndarray, " entries"]) -> tuple[Pairs, ...]:
    """Entries by label, in row-major order, parts ordered by their first entry."""
    groups: dict[int, list[tuple[int, int]]] = {}
    entries = zip(seen.rows.tolist(), seen.columns.tolist(), strict=True)
    for place, label in sorted(zip(entries, labels.tolist(), strict=True)):
        groups.setdefault(label, []).append(place)
    return tuple(tuple(group) for group in groups.values())


def _components(graph: Graph) -> Int[np.ndarray, " entries"]:
    """Label of the component of each vertex, from zero."""
    labels = np.full(len(graph), -1)
    for label in range(len(graph)):
        if labels.min() >= 0:
            break
        front = np.array([np.argmin(labels)])
        while len(front):
            labels[front] = label
            front = np.flatnonzero(graph[front].any(axis=0) & (labels < 0))
    return labels


def _weakest_link(weights: Weights) -> float:
    """Smallest edge of a largest spanning tree: the threshold above which the graph falls apart; zero if it has."""
    inside = np.zeros(len(weights), dtype=bool)
    inside[0], reach, link = True, weights[0].copy(), np.inf
    for _ in range(len(weights) - 1):
        best = int(np.argmax(np.where(inside, -1.0, reach)))
        link = min(link, float(reach[best]))
        inside[best], reach = True, np.maximum(reach, weights[best])
    return link


def _pattern_graph(network: DeepLinear, layers: Params, seen: Observations) -> Graph:
    """Pairs of entries whose inner product can become non-zero, judged by zeros of the layers alone.

    A weight that is zero stays so unless some observed entry has paths of possibly non-zero weights to it from both
    sides; weights are let in until none is missing. The layers with these zeros form a space the flow does not leave.
    """
    observed = np.zeros(network.product_shape, dtype=bool)
    observed[seen.rows, seen.columns] = True
    alive = [np.asarray(layer) != 0 for layer in layers]
    while True:
        before, after = [np.eye(network.widths[0], dtype=bool)], [np.eye(network.widths[-1], dtype=bool)]
        for layer in alive[:-1]:
            before.append(_meet(layer, before[-1]))
        for layer in reversed(alive[1:]):
            after.append(_meet(after[-1], layer))
        after.reverse()
        wider = [
            layer | _meet(_meet(left.T, observed), right.T)
            for layer, left, right in zip(alive, after, before, strict=True)
        ]
        if all(np.array_equal(new, old) for new, old in zip(wider, alive, strict=True)):
            break
        alive = wider
    i, j = seen.rows, seen.columns
    graph = np.zeros((len(i), len(i)), dtype=bool)
    for left, right in zip(after, before, strict=True):
        graph |= _meet(left, left.T)[i[:, None], i] & _meet(right.T, right)[j[:, None], j]
    return graph


def _meet(a: Bool[np.ndarray, "m k"], b: Bool[np.ndarray, "k n"]) -> Bool[np.ndarray, "m n"]:
    """Which entries of a product of matrices with these non-zeros can be non-zero."""
    return (a.astype(np.float32) @ b.astype(np.float32)) > 0


# ---- Inner products in numbers ---------------------------------------------------------------------------------------


def _normalised(network: DeepLinear, layers: Params, seen: Observations) -> tuple[Weights, Weights]:
    r"""$|K_{pq}|/\sqrt{K_{pp}K_{qq}}$, zero for entries without a gradient, and bounds on its rounding errors.

    The error of sums of products, in any order, is at most `_rounding` times the same sums of absolute values.
    """
    # Layers of any size: dividing all by one power of two is exact and changes no normalised inner product.
    size = max(float(xp.max(xp.abs(layer))) for layer in layers)
    scale = 2.0 ** np.floor(np.log2(size)) if size > 0 else 1.0
    scaled = tuple(layer / scale for layer in layers)
    gram = _gram(network, scaled, seen)
    bound = _rounding(network) * _gram(network, tuple(xp.abs(layer) for layer in scaled), seen)
    root = np.sqrt(np.maximum(np.diag(gram), 0.0))
    size = root[:, None] * root
    empty = size == 0
    size = np.where(empty, 1.0, size)
    return np.where(empty, 0.0, np.abs(gram) / size), np.where(empty, 0.0, bound / size)


def _rounding(network: DeepLinear) -> float:
    r"""Bound on the relative error of an inner product whose terms do not cancel.

    To first order it is $n\epsilon$ for $n$ terms and factors in all; twice that covers the rest.
    """
    operations = 2 * (sum(network.widths) + network.depth)
    return 2 * operations * float(xp.finfo(xp.result_type(float)).eps)


def _gram(network: DeepLinear, layers: Params, seen: Observations) -> Weights:
    """As `entry_gram`, gathered on the host: nothing is compiled for the number of entries."""
    i, j = seen.rows, seen.columns
    result = np.zeros((len(i), len(i)))
    for left, right in network.kernel_factors(layers):
        result += np.asarray(left)[i[:, None], i] * np.asarray(right)[j[:, None], j]
    return result


@probe(dims=("weight",), name="weights")
def _weights(t: Time, params: Params, problem: Problem) -> Float[Array, " size"]:
    """All weights in a vector."""
    return flatten(params)


def _states(problem: Problem, layers: Params, times: Any) -> list[Params]:
    """Layers along the flow, at given times or spread over its steps while it learns."""
    if times is None:
        stop = until(loss, below=FALL * float(problem.value(layers)))
        run = simulate(
            problem, layers, GradientFlow(), every=1, until=stop, max_steps=MOST_STEPS, probes=_weights, throw=True
        )
    else:
        run = simulate(problem, layers, GradientFlow(), times=times, probes=_weights, throw=True)
    states = run["weights"]
    if times is None and len(states) > MOST_STATES:
        states = states[np.linspace(0, len(states) - 1, MOST_STATES).round().astype(int)]
    return [unflatten(xp.asarray(state), problem.model.shapes) for state in states]


class EntryGram(AbstractProbe):
    r"""Inner products $K_{(ij),(pq)} = \langle\nabla w_{ij}, \nabla w_{pq}\rangle$ of the gradients of chosen entries.

    See `entry_gram`. Along a run it shows which observed entries influence each other, and when.

    Args:
        rows: Row indices.
        columns: Column indices, as many.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), Completion(jnp.eye(2), disconnected_mask()))
        >>> EntryGram([0, 1], [0, 1])(0.0, (jnp.eye(2), 2 * jnp.ones((2, 2))), problem).tolist()
        [[9.0, 0.0], [0.0, 9.0]]
    """

    rows: Int[Array, " entries"]
    columns: Int[Array, " entries"]
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, rows: object, columns: object, *, name: str = "entry_gram") -> None:
        self.rows = xp.asarray(rows)
        self.columns = xp.asarray(columns)
        self.name = name
        check_shape("EntryGram", "rows", self.rows, (None,))
        check_shape("EntryGram", "columns", self.columns, self.rows.shape)
        for label, index in (("rows", self.rows), ("columns", self.columns)):
            if not xp.issubdtype(index.dtype, xp.integer):
                raise TypeError(f"EntryGram: {label} must hold integers, but holds {index.dtype}.")
            if is_concrete(index) and np.any(np.asarray(index) < 0):
                raise ValueError(f"EntryGram: {label} must be non-negative, but reaches {np.asarray(index).min()}.")

    @property
    def dims(self) -> tuple[str, ...]:
        return (f"{self.name}_entry", f"{self.name}_other")

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, "entries entries"]:
        return entry_gram(network_of(problem, "EntryGram"), params, self.rows, self.columns)


# ---- Examples --------------------------------------------------------------------------------------------------------


def coupling_examples() -> Mapping[str, tuple[Problem, Params]]:
    r"""Small problems with a start, one for each way in which entries are or are not coupled.

    By name: `"depth 2, diagonal"` (decoupled for all weights), `"depth 2, column"` (coupled), `"depth 3, diagonal"`
    (the same entries coupled by depth), `"identity, blocks"` (three layers $\alpha I$ and two observed blocks) and
    `"zero"` (layers of zeros, which never move).

    Returns:
        Problem and layers by name.

    Example:
        >>> {name: coupling(*example).coupled for name, example in coupling_examples().items()}
        {'depth 2, diagonal': False, 'depth 2, column': True, 'depth 3, diagonal': True,
         'identity, blocks': False, 'zero': False}
    """
    first, second, third = ([[0.5, 0.1], [-0.2, 0.4]], [[0.3, -0.1], [0.2, 0.6]], [[0.4, 0.2], [0.1, -0.5]])
    layers = tuple(xp.asarray(layer, dtype=float) for layer in (first, second, third))
    two, three = DeepLinear((2, 2, 2)), DeepLinear((2, 2, 2, 2))
    diagonal = Completion(np.ones((2, 2)), disconnected_mask())
    column = Completion(np.ones((2, 2)), connected_mask())
    blocks = Completion(np.ones((4, 4)), block_mask(2, 2))
    zero = xp.zeros((2, 2), dtype=float)
    return {
        "depth 2, diagonal": (Problem(two, diagonal), layers[::2]),
        "depth 2, column": (Problem(two, column), layers[::2]),
        "depth 3, diagonal": (Problem(three, diagonal), layers),
        "identity, blocks": (Problem(DeepLinear((4, 4, 4, 4)), blocks), (0.1 * xp.eye(4, dtype=float),) * 3),
        "zero": (Problem(three, diagonal), (zero, zero, zero)),
    }
