r"""The graph of critical values: signatures as nodes, decreasing arcs as edges."""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from deeplinear.core import check_shape, entry
from deeplinear.landscape._arcs import Arc, arc_between, deep_network
from deeplinear.landscape._arguments import Signature, checked_sigma, checked_signature, set_name
from deeplinear.landscape._certificates import KIND
from deeplinear.landscape._critical import critical_value

MOST_MODES = 8
"""Graphs of more modes are not made: at this number they have up to 6,305 edges."""

MOST_PATHS = 7
"""Paths that learn more modes one by one are not listed: at this number they are 5,040."""


@dataclasses.dataclass(frozen=True)
class CriticalNode:
    r"""The critical points of one signature.

    Attributes:
        signature: Modes that are learnt, numbered from 1.
        value: Loss $\tfrac12\sum_{i\notin S}\sigma_i^2$.
        kind: What the simplest of them is, the one with nothing beside the learnt modes in any layer; a network with
            more in it may be a strict saddle where this one is not.
    """

    signature: Signature
    value: float
    kind: KIND

    @property
    def rank(self) -> int:
        """Number of modes that are learnt."""
        return len(self.signature)

    @property
    def name(self) -> str:
        """The signature as a set."""
        return set_name(self.signature)


@dataclasses.dataclass(frozen=True)
class CriticalGraph:
    r"""Critical values of a task and the decreasing arcs between them.

    An edge leads from every signature to every larger one; the loss falls along it by half the sum of the squares of
    the modes gained. It is a *cover* if one mode is gained. The *greedy* path gains them by size. With a bottleneck no
    signature has more modes than the narrowest layer has units.

    Attributes:
        sigma: Singular values of the task, largest first.
        widths: Widths of the network.
        nodes: By number of modes, then in the order of the modes.
        edges: Decreasing arcs, in the order of the nodes.
    """

    sigma: tuple[float, ...]
    widths: tuple[int, ...]
    nodes: tuple[CriticalNode, ...]
    edges: tuple[Arc, ...]

    @property
    def greedy(self) -> tuple[Signature, ...]:
        r"""The path $\emptyset, \{1\}, \{1,2\}, \dots$ to the global minimum."""
        top = min(len(self.sigma), *self.widths)
        return tuple(tuple(range(1, rank + 1)) for rank in range(top + 1))

    @property
    def covers(self) -> tuple[Arc, ...]:
        """Edges that gain one mode."""
        return tuple(edge for edge in self.edges if len(edge.end) == len(edge.start) + 1)

    @property
    def minimum(self) -> CriticalNode:
        """The global minimum."""
        return self.node(self.greedy[-1])

    def node(self, signature: Sequence[int]) -> CriticalNode:
        """The node of a signature."""
        own = self._own("signature", signature)
        return next(node for node in self.nodes if node.signature == own)

    def leads_to(self, signature: Sequence[int]) -> tuple[Arc, ...]:
        """Decreasing arcs that begin at a signature: its unstable submanifolds."""
        own = self._own("signature", signature)
        return tuple(edge for edge in self.edges if edge.start == own)

    def reached_from(self, signature: Sequence[int]) -> tuple[Arc, ...]:
        """Decreasing arcs that end at a signature: its stable submanifolds."""
        own = self._own("signature", signature)
        return tuple(edge for edge in self.edges if edge.end == own)

    def paths(self, start: Sequence[int], end: Sequence[int]) -> tuple[tuple[Signature, ...], ...]:
        """All ways to gain the modes that `start` lacks of `end`, one by one; none if it has others."""
        first, last = self._own("start", start), self._own("end", end)
        if not set(first) <= set(last):
            return ()
        gained = [mode for mode in last if mode not in first]
        if len(gained) > MOST_PATHS:
            raise ValueError(
                f"CriticalGraph.paths: end must have at most {MOST_PATHS} modes more than start, but has "
                f"{len(gained)}: there are {math.factorial(len(gained)):,} paths."
            )
        return tuple(
            tuple(tuple(sorted((*first, *order[:count]))) for count in range(len(order) + 1))
            for order in itertools.permutations(gained)
        )

    def adjacency(self, *, covers: bool = False) -> dict[Signature, tuple[Signature, ...]]:
        """For every signature those that arcs lead to; with `covers` those with one mode more."""
        edges = self.covers if covers else self.edges
        table: dict[Signature, list[Signature]] = {node.signature: [] for node in self.nodes}
        for edge in edges:
            table[edge.start].append(edge.end)
        return {start: tuple(ends) for start, ends in table.items()}

    def rows(self) -> list[dict[str, Any]]:
        """One row of plain values for each node, the highest value first."""
        followed = set(self.greedy)
        rows = [
            {
                "signature": node.name,
                "rank": node.rank,
                "value": node.value,
                "kind": node.kind.value,
                "leads_to": len(self.leads_to(node.signature)),
                "reached_from": len(self.reached_from(node.signature)),
                "greedy": node.signature in followed,
            }
            for node in self.nodes
        ]
        return sorted(rows, key=lambda row: -row["value"])

    def __str__(self) -> str:
        titles = ("signature", "loss", "kind", "leads to", "reached from", "greedy")
        table = [titles] + [
            (
                row["signature"],
                f"{row['value']:.6g}",
                row["kind"],
                str(row["leads_to"]),
                str(row["reached_from"]),
                "yes" if row["greedy"] else "",
            )
            for row in self.rows()
        ]
        sizes = [max(map(len, column)) for column in zip(*table, strict=True)]
        return "\n".join(
            "  ".join(text.ljust(size) for text, size in zip(line, sizes, strict=True)).rstrip() for line in table
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; signatures are lists of mode numbers."""
        steps = set(itertools.pairwise(self.greedy))
        return {
            "sigma": list(self.sigma),
            "widths": list(self.widths),
            "nodes": [
                {"signature": list(node.signature), "rank": node.rank, "value": node.value, "kind": node.kind.name}
                for node in self.nodes
            ],
            "edges": [
                {
                    "start": list(edge.start),
                    "end": list(edge.end),
                    "drop": edge.drop,
                    "cover": len(edge.end) == len(edge.start) + 1,
                    "greedy": (edge.start, edge.end) in steps,
                }
                for edge in self.edges
            ],
            "greedy": [list(signature) for signature in self.greedy],
        }

    def _own(self, name: str, signature: Sequence[int]) -> Signature:
        return checked_signature(f"CriticalGraph: {name}", signature, len(self.sigma), self.widths)


@entry(instead="use arc_loss")
def critical_graph(sigma: ArrayLike | Sequence[float], widths: Sequence[int]) -> CriticalGraph:
    r"""The critical values of a task for a network, and the decreasing arcs between them.

    A node for every signature of at most $r = \min_l d_l$ modes. Its kind is that of its simplest network: the global
    minimum if the $r$ largest modes are learnt; a strict saddle if a larger mode is missing than one that is learnt, or
    if there is one hidden layer only; otherwise a non-strict saddle. Computed on the host.

    Args:
        sigma: Singular values of the task, distinct, largest first; at most 8.
        widths: $(d_0, \dots, d_L)$, with at least one hidden layer.

    Returns:
        The graph.

    Raises:
        HypothesisError: Singular values vanish, coincide or are not sorted.

    Example:
        >>> graph = critical_graph([3.0, 2.0, 1.0], (4, 3, 3, 3))
        >>> [(node.name, node.value) for node in graph.nodes][:5]
        [('∅', 7.0), ('{1}', 2.5), ('{2}', 5.0), ('{3}', 6.5), ('{1,2}', 0.5)]
        >>> len(graph.edges), len(graph.covers), graph.node((2,)).kind.value
        (19, 12, 'strict saddle')
    """
    where = "critical_graph"
    model = deep_network(where, widths)
    values = np.asarray(checked_sigma(where, sigma, positive=True, ordered=True))
    modes = len(values)
    check_shape(where, "sigma", values, (min(model.product_shape),))
    if modes > MOST_MODES:
        raise ValueError(
            f"{where}: sigma must hold at most {MOST_MODES} modes, but holds {modes}; submanifolds lists the arcs of "
            "one signature."
        )
    top = min(model.widths)
    signatures = [chosen for rank in range(top + 1) for chosen in itertools.combinations(range(1, modes + 1), rank)]
    nodes = tuple(CriticalNode(s, critical_value(values, s), _kind(s, top, model.depth)) for s in signatures)
    edges = tuple(
        arc_between(values, start, end)
        for start, end in itertools.product(signatures, repeat=2)
        if set(start) < set(end)
    )
    return CriticalGraph(tuple(float(value) for value in values), model.widths, nodes, edges)


def _kind(signature: Signature, top: int, depth: int) -> KIND:
    if signature != tuple(range(1, len(signature) + 1)):
        return KIND.strict_saddle
    if len(signature) == top:
        return KIND.global_minimum
    return KIND.non_strict_saddle if depth > 2 else KIND.strict_saddle
