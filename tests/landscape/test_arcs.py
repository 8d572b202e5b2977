"""Arcs between critical points, and chords between networks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import (
    arc_counts,
    arc_kind,
    arc_loss,
    arc_minimum,
    arc_point,
    chord_loss,
    chord_polynomial,
    gauge,
    submanifolds,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance

EXACT = 1e-12
"""Closed forms against sums of a few squares, relative."""

SIGMA = np.array([10.0, 8.0, 6.0, 4.0])
THREE = np.array([3.0, 2.0, 1.0])
SIGNATURES = [chosen for size in range(4) for chosen in itertools.combinations((1, 2, 3), size)]
PLACES = np.linspace(0.0, 1.0, 41)


def target_of(sigma: np.ndarray, out: int, inp: int) -> np.ndarray:
    target = np.zeros((out, inp))
    np.fill_diagonal(target, sigma)
    return target


def product_of(layers: tuple) -> np.ndarray:
    result = np.asarray(layers[0])
    for layer in layers[1:]:
        result = np.asarray(layer) @ result
    return result


def factors_of(rng: np.random.Generator, widths: tuple[int, ...], condition: float) -> list[np.ndarray]:
    """Changes of basis of the hidden layers with a given condition number."""
    factors = []
    for width in widths[1:-1]:
        left, right = (np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(2))
        factors.append(left * np.geomspace(condition**-0.5, condition**0.5, width) @ right)
    return factors


def gradient_norm(layers: tuple, target: np.ndarray) -> float:
    """Plain products."""
    matrices = [np.asarray(layer) for layer in layers]
    residual = product_of(layers) - target
    total = 0.0
    for position in range(len(matrices)):
        left = np.eye(target.shape[0])
        for layer in reversed(matrices[position + 1 :]):
            left = left @ layer
        right = np.eye(target.shape[1])
        for layer in matrices[:position]:
            right = layer @ right
        total += float(np.sum((left.T @ residual @ right.T) ** 2))
    return total**0.5


@pytest.mark.covers("network:F24", "network:C25", "network:fig4")
def test_numbers_of_the_figure() -> None:
    np.testing.assert_allclose(arc_loss(SIGMA, (1,), (1, 2), [0.0, 1.0]), [58.0, 26.0], rtol=EXACT)
    np.testing.assert_allclose(arc_loss(SIGMA, (1, 2), (1,), [0.0, 1.0]), [26.0, 58.0], rtol=EXACT)
    np.testing.assert_allclose(arc_loss(SIGMA, (1,), (1,), [0.0, 0.3, 1.0]), 58.0, rtol=EXACT)
    np.testing.assert_allclose(arc_loss(SIGMA, (1, 3), (2,), [0.0, 0.32, 1.0]), [40.0, 29.76, 76.0], rtol=EXACT)
    place, value = arc_minimum(SIGMA, (1, 3), (2,))
    np.testing.assert_allclose([place, value], [0.32, 29.76], rtol=EXACT)
    np.testing.assert_allclose(arc_minimum(SIGMA, (1,), (1, 2)), [1.0, 26.0], rtol=EXACT)
    np.testing.assert_allclose(arc_minimum(SIGMA, (1, 2), (1,)), [0.0, 26.0], rtol=EXACT)
    np.testing.assert_allclose(arc_minimum(SIGMA, (1,), (1,)), [0.0, 58.0], rtol=EXACT)


@pytest.mark.covers("network:F24", "network:C25", "network:E4")
def test_kinds_of_all_pairs_of_three_modes() -> None:
    """8 constant, 19 decreasing, 19 increasing and 18 mixed ones, each seen in the losses themselves."""
    kinds = {pair: arc_kind(*pair) for pair in itertools.product(SIGNATURES, repeat=2)}
    counted = {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())}
    assert counted == {"constant": 8, "decreasing": 19, "increasing": 19, "mixed": 18}
    for (start, end), kind in kinds.items():
        first, last = (np.diag(np.isin([1, 2, 3], s) * THREE) for s in (start, end))
        losses = [0.5 * np.sum(((1 - a) * first + a * last - np.diag(THREE)) ** 2) for a in PLACES]
        np.testing.assert_allclose(arc_loss(THREE, start, end, PLACES), losses, atol=EXACT * 7)
        slopes = np.sign(np.round(np.diff(losses), 12))
        expected = {"constant": {0.0}, "decreasing": {-1.0}, "increasing": {1.0}}
        if kind == "mixed":  # falls, then rises: one minimum inside, no maximum
            assert slopes[0] == -1 and slopes[-1] == 1 and np.sum(np.diff(slopes[slopes != 0]) != 0) == 1
            place, value = arc_minimum(THREE, start, end)
            assert 0 < float(place) < 1
            assert all(float(value) <= loss + EXACT for loss in losses)
            assert float(arc_loss(THREE, start, end, place)) == pytest.approx(float(value), rel=EXACT)
        else:
            assert set(slopes) == expected[kind]


@pytest.mark.covers("network:F24", "network:C25")
@pytest.mark.parametrize("widths", [(4, 3, 3, 3), (3, 5, 3)], ids=str)
def test_explicit_arcs_have_their_loss_and_critical_ends(widths: tuple[int, ...], seed: int) -> None:
    """Losses and gradients from plain products, after a random change of basis."""
    target = target_of(THREE, widths[-1], widths[0])
    factors = factors_of(np.random.default_rng(seed), widths, 3.0)
    for start, end in [((), (1, 2)), ((2,), (1, 3)), ((1, 2, 3), (3,)), ((2, 3), (2, 3))]:
        for place in (0.0, 0.3, 1.0):
            plain = arc_point(THREE, widths, start, end, place)
            for layer in plain:
                assert np.count_nonzero(layer) == np.count_nonzero(np.diagonal(layer))
            layers = gauge(plain, factors)
            loss = 0.5 * np.sum((product_of(layers) - target) ** 2)
            np.testing.assert_allclose(loss, arc_loss(THREE, start, end, place), atol=EXACT * 7)
            if place in (0.0, 1.0):
                assert gradient_norm(layers, target) < 1e-10


def test_arcs_can_be_mapped_and_differentiated() -> None:
    widths, places = (4, 3, 3, 3), jnp.array([0.25, 0.5])
    many = jax.jit(jax.vmap(lambda place: arc_point(THREE, widths, (1,), (2,), place)))(places)
    np.testing.assert_allclose(many[0][1], arc_point(THREE, widths, (1,), (2,), 0.5)[0], rtol=EXACT)
    slope = jax.jit(jax.vmap(jax.grad(lambda place: arc_loss(THREE, (1,), (2,), place))))(places)
    np.testing.assert_allclose(slope, -(1 - places) * 4.0 + places * 9.0, rtol=EXACT)


def test_arcs_through_a_bottleneck() -> None:
    """Two units carry modes 1 and 3 of a 3 × 4 target."""
    widths, target = (4, 2, 3), target_of(THREE, 3, 4)
    for place in (0.0, 0.4, 1.0):
        layers = arc_point(THREE, widths, (3,), (1, 3), place)
        loss = 0.5 * np.sum((product_of(layers) - target) ** 2)
        np.testing.assert_allclose(loss, arc_loss(THREE, (3,), (1, 3), place), rtol=EXACT)
    assert gradient_norm(layers, target) < EXACT
    with pytest.raises(ValueError, match="at most 2 modes together"):
        arc_point(THREE, widths, (1, 2), (3,), 0.5)
    with pytest.raises(ValueError, match="end: signature must name at most 2 modes"):
        arc_point(THREE, widths, (1,), (1, 2, 3), 0.5)
    assert arc_counts(3, 1, narrowest=2) == (2, 1)
    found = submanifolds(THREE, (1,), narrowest=2)
    assert [arc.end for arc in found.unstable] == [(1, 2), (1, 3)]


@pytest.mark.covers("network:F24", "network:C25")
def test_counts_are_those_of_subsets_and_supersets() -> None:
    everything = [set(chosen) for size in range(6) for chosen in itertools.combinations(range(1, 6), size)]
    for own in everything:
        larger, smaller = sum(own < other for other in everything), sum(other < own for other in everything)
        assert arc_counts(5, len(own)) == (larger, smaller) == (2 ** (5 - len(own)) - 1, 2 ** len(own) - 1)
    for signature in SIGNATURES:
        found = submanifolds(THREE, signature)
        assert (len(found.unstable), len(found.stable)) == arc_counts(3, len(signature))
        for arc in (*found.unstable, *found.stable):
            ends = [0.5 * sum(THREE[i - 1] ** 2 for i in (1, 2, 3) if i not in s) for s in (arc.start, arc.end)]
            assert arc.drop == pytest.approx(ends[0] - ends[1], rel=EXACT)
            assert arc_kind(arc.start, arc.end) == "decreasing"
    assert submanifolds(THREE, ()).stable == () and len(submanifolds(THREE, ()).unstable) == 7


@pytest.mark.covers("network:F24", "network:E4")
def test_chords_have_maxima_inside(seed: int) -> None:
    """A network and its twin with two signs turned: the same product, and 2.5, 7, 2.5 on the way."""
    widths = (4, 3, 3, 3)
    problem = Problem(DeepLinear(widths), SquaredDistance(target_of(THREE, 3, 4)))
    layers = arc_point(THREE, widths, (), (1,), 1.0)
    twin = (-layers[0], -layers[1], layers[2])
    np.testing.assert_allclose(chord_loss(problem, layers, twin, [0.0, 0.5, 1.0]), [2.5, 7.0, 2.5], rtol=EXACT)
    # The polynomial of any two networks, against plain products.
    rng = np.random.default_rng(seed)
    one, two = ([rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths)] for _ in range(2))
    coefficients = np.asarray(chord_polynomial(problem, one, two))
    assert coefficients.shape == (7,)
    places = np.linspace(-0.5, 1.5, 9)
    losses = [
        0.5
        * np.sum(
            (product_of(tuple((1 - p) * a + p * b for a, b in zip(one, two, strict=True))) - problem.loss.target) ** 2
        )
        for p in places
    ]
    scale = max(losses) + np.abs(coefficients).max()
    np.testing.assert_allclose(np.polynomial.polynomial.polyval(places, coefficients), losses, atol=EXACT * scale)
    np.testing.assert_allclose(chord_loss(problem, one, two, places.reshape(3, 3)).ravel(), losses, rtol=1e-11)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="start: a mode of the signature must be at most 3, but is 4"):
        arc_loss(THREE, (4,), (1,), 0.5)
    with pytest.raises(ValueError, match="must be at least 1, but is 0"):
        arc_kind((0,), (1,))
    with pytest.raises(ValueError, match="end: signature must not name a mode twice"):
        arc_loss(THREE, (1,), (2, 2), 0.5)
    with pytest.raises(ValueError, match="alpha must be at most 1"):
        arc_loss(THREE, (1,), (2,), [0.5, 1.1])
    with pytest.raises(HypothesisError, match="singular values of the task are positive"):
        arc_loss([1.0, 0.0], (1,), (2,), 0.5)
    with pytest.raises(HypothesisError, match="singular values of the task are positive"):
        arc_minimum([1.0, 0.0], (1,), (2,))
    with pytest.raises(ValueError, match="widths must have a hidden layer"):
        arc_point(THREE, (3, 3), (), (1,), 0.5)
    with pytest.raises(ValueError, match=r"sigma must have shape \(2\)"):
        arc_point(THREE, (4, 3, 2), (), (1,), 0.5)
    with pytest.raises(ValueError, match="learnt must be at most 3"):
        arc_counts(3, 4)
    with pytest.raises(ValueError, match="at most 16 modes"):
        submanifolds(np.arange(17.0, 0.0, -1.0), ())
    problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(np.ones((1, 1))))
    with pytest.raises(ValueError, match="end: params must have layer shapes"):
        chord_loss(problem, ([[1.0]], [[1.0]]), ([[1.0]],), 0.5)
    with pytest.raises(ValueError, match="alpha must be finite"):
        chord_loss(problem, ([[1.0]], [[1.0]]), ([[2.0]], [[1.0]]), np.nan)


def test_submanifolds_are_printed_arc_by_arc() -> None:
    lines = str(submanifolds([3.0, 2.0, 1.0], (2,))).splitlines()
    assert lines[0].split() == ["signature", "{2}"] and len(lines) == 5
    assert lines[1] == "unstable   to {1,2}, falls by 4.5" and lines[-1] == "stable     from ∅, falls by 2"
