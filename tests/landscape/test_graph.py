"""The graph of critical values."""

import itertools
import json

import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import KIND, arc_point, critical_graph
from plain import hessian_of

THREE = np.array([3.0, 2.0, 1.0])
SIGN = 1e-9
"""Eigenvalues of a Hessian with numbers of order ten that count as zero."""


def smallest(sigma: np.ndarray, widths: tuple[int, ...], signature: tuple[int, ...]) -> float:
    """Smallest eigenvalue of the Hessian at the simplest network of a signature."""
    target = np.zeros((widths[-1], widths[0]))
    np.fill_diagonal(target, sigma)
    layers = arc_point(sigma, widths, signature, signature, 0.0)
    return float(np.linalg.eigvalsh(hessian_of(layers, target))[0])


@pytest.mark.covers("network:F24")
@pytest.mark.parametrize("widths", [(4, 3, 3, 3), (3, 4, 3), (4, 2, 3)], ids=str)
def test_nodes_have_their_value_and_kind(widths: tuple[int, ...]) -> None:
    """Kinds against the signs of Hessian eigenvalues; values as they are listed for (3, 2, 1)."""
    graph = critical_graph(THREE, widths)
    top = min(widths)
    listed = {
        (): 7.0, (1,): 2.5, (2,): 5.0, (3,): 6.5, (1, 2): 0.5, (1, 3): 2.0, (2, 3): 4.5, (1, 2, 3): 0.0
    }  # fmt: skip
    assert {node.signature: node.value for node in graph.nodes} == {s: v for s, v in listed.items() if len(s) <= top}
    for node in graph.nodes:
        least = smallest(THREE, widths, node.signature)
        if node.kind is KIND.strict_saddle:
            assert least < -0.1
        else:
            assert least > -SIGN
        assert (node.kind is KIND.global_minimum) == (node.signature == tuple(range(1, top + 1)))
    assert graph.minimum.value == listed[tuple(range(1, top + 1))]


def test_edges_are_the_inclusions() -> None:
    graph = critical_graph(THREE, (4, 3, 3, 3))
    signatures = [node.signature for node in graph.nodes]
    pairs = {(a, b) for a, b in itertools.product(signatures, repeat=2) if set(a) < set(b)}
    assert {(edge.start, edge.end) for edge in graph.edges} == pairs and len(pairs) == 3**3 - 2**3
    for edge in graph.edges:
        assert edge.drop == pytest.approx(graph.node(edge.start).value - graph.node(edge.end).value)
    assert len(graph.covers) == 12  # edges of a cube
    assert graph.greedy == ((), (1,), (1, 2), (1, 2, 3))
    assert [arc.end for arc in graph.leads_to([2])] == [(1, 2), (2, 3), (1, 2, 3)]
    assert [arc.start for arc in graph.reached_from((3, 1))] == [(), (1,), (3,)]
    assert graph.paths((1,), (1, 2, 3)) == (((1,), (1, 2), (1, 2, 3)), ((1,), (1, 3), (1, 2, 3)))
    assert len(graph.paths((), (1, 2, 3))) == 6
    assert graph.paths((1,), (2,)) == () and graph.paths((1,), (1,)) == (((1,),),)
    assert graph.adjacency()[(2,)] == ((1, 2), (2, 3), (1, 2, 3))
    assert graph.adjacency(covers=True)[(2,)] == ((1, 2), (2, 3))
    rows = graph.rows()
    assert [row["value"] for row in rows] == [7.0, 6.5, 5.0, 4.5, 2.5, 2.0, 0.5, 0.0]
    assert [row["signature"] for row in rows if row["greedy"]] == ["∅", "{1}", "{1,2}", "{1,2,3}"]
    plain = json.loads(json.dumps(graph.to_json()))
    assert len(plain["edges"]) == 19 and sum(edge["cover"] for edge in plain["edges"]) == 12
    assert [edge["drop"] for edge in plain["edges"] if edge["greedy"]] == [4.5, 2.0, 0.5]


def test_bottleneck_ends_the_graph() -> None:
    graph = critical_graph(THREE, (4, 2, 2, 3))
    assert max(node.rank for node in graph.nodes) == 2 and len(graph.nodes) == 7
    assert graph.minimum.signature == (1, 2) and graph.minimum.value == 0.5
    assert graph.greedy == ((), (1,), (1, 2))
    with pytest.raises(ValueError, match="at most 2 modes"):
        graph.node((1, 2, 3))


def test_bad_tasks_are_refused() -> None:
    with pytest.raises(HypothesisError, match="distinct, largest first"):
        critical_graph([2.0, 2.0], (2, 2, 2))
    with pytest.raises(HypothesisError, match="distinct, largest first"):
        critical_graph([1.0, 2.0], (2, 2, 2))
    with pytest.raises(HypothesisError, match="positive"):
        critical_graph([1.0, 0.0], (2, 2, 2))
    with pytest.raises(ValueError, match="hidden layer"):
        critical_graph([1.0], (1, 1))
    with pytest.raises(ValueError, match="at most 8 modes"):
        critical_graph(np.arange(9.0, 0.0, -1.0), (9, 9, 9))
    with pytest.raises(ValueError, match="at most 7 modes more"):
        critical_graph(np.arange(8.0, 0.0, -1.0), (8, 8, 8)).paths((), range(1, 9))


def test_a_graph_is_printed_as_a_table() -> None:
    lines = str(critical_graph([3.0, 2.0], (2, 2, 2, 2))).splitlines()
    assert lines[0].split() == ["signature", "loss", "kind", "leads", "to", "reached", "from", "greedy"]
    assert lines[2].split() == ["{2}", "4.5", "strict", "saddle", "1", "1"]
    assert lines[4].split() == ["{1,2}", "0", "global", "minimum", "0", "3", "yes"] and len(lines) == 5
