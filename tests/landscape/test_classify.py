"""Kinds of critical points against the smallest eigenvalue of a dense Hessian, certificates, and the way to a point."""

import functools
import itertools
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import (
    ENDED,
    KIND,
    Least,
    NegativeDirection,
    Slope,
    Tightened,
    canonical_form,
    classify,
    critical_point,
    hessian_form,
    is_tightened,
    nearest_critical_point,
    normal_form,
    pair_ranks,
    pivot_direction,
    random_critical_point,
    reduction_of,
    swap_direction,
    zero_direction,
)
from deeplinear.landscape._nearest import _hessian
from deeplinear.landscape._reduced_layers import reduced_by
from deeplinear.models import Completion, DeepLinear, Problem, Regression, SampleRegression, SquaredDistance

POINTS = 160
"""Random critical points for each seed; four seeds make more than three hundred."""

NONE = 2e-14
"""Eigenvalues of a dense Hessian of up to 216 rows, relative to the largest: rounding."""

NEGATIVE, WEAKEST = 6e-3, 5e-4
"""Smallest negative curvature of strict saddles: of all but one or two of a sample, and of every one (6.9e-3 was the
weakest among 3200 points of 20 seeds)."""

ROUNDING = 1e-10
"""Hessian forms of order ten, bases of condition up to three."""


def dense_hessian(layers, target: np.ndarray) -> np.ndarray:
    """The Hessian block by block, in plain NumPy, so that many shapes compile nothing."""
    layers = [np.asarray(layer) for layer in layers]
    below, above = [np.eye(layers[0].shape[1])], [np.eye(target.shape[0])]
    for layer in layers:
        below.append(layer @ below[-1])
    for layer in reversed(layers):
        above.append(above[-1] @ layer)
    above.reverse()
    residual = target - below[-1]
    ends = np.concatenate([[0], np.cumsum([layer.size for layer in layers])])
    hessian = np.zeros((ends[-1], ends[-1]))
    for i in range(1, len(layers) + 1):
        for j in range(1, i + 1):
            block = np.einsum("ac,be->abce", above[i].T @ above[j], below[i - 1] @ below[j - 1].T)
            if i > j:
                middle = np.eye(layers[j - 1].shape[0])
                for layer in layers[j : i - 1]:
                    middle = layer @ middle
                block = block - np.einsum("bc,ea->abce", middle, below[j - 1] @ residual.T @ above[i])
            flat = block.reshape(layers[i - 1].size, layers[j - 1].size)
            hessian[ends[i - 1] : ends[i], ends[j - 1] : ends[j]] = flat
            hessian[ends[j - 1] : ends[j], ends[i - 1] : ends[i]] = flat.T
    return hessian


def flat(layers) -> np.ndarray:
    return np.concatenate([np.asarray(layer).ravel() for layer in layers])


def partial(layers, last: int, first: int) -> np.ndarray:
    """Product of layers from `first` to `last`; the identity where there are none."""
    width = layers[first - 1].shape[1] if first <= len(layers) else layers[-1].shape[0]
    return functools.reduce(lambda below, layer: layer @ below, layers[first - 1 : last], np.eye(width))


def target_of(sigma, widths) -> np.ndarray:
    target = np.zeros((widths[-1], widths[0]))
    np.fill_diagonal(target, sigma)
    return target


def strengths(rng: np.random.Generator, modes: int) -> np.ndarray:
    return np.cumsum(rng.uniform(0.4, 1.0, modes))[::-1].copy()


def draw_key(rng: np.random.Generator) -> jax.Array:
    return jax.random.key(int(rng.integers(2**31)))


def instance(rng: np.random.Generator, place: int) -> tuple[Problem, tuple, np.ndarray]:
    """Any depth and widths up to six; every other point has sparse blocks, some have bottlenecks by chance."""
    depth = int(rng.integers(1, 7))
    widths = tuple(int(width) for width in rng.integers(2, 7, depth + 1))
    sigma = strengths(rng, min(widths[0], widths[-1]))
    most = min(widths)
    signature = None
    if depth > 1 and place % 4 < 2:  # the strongest modes, but not all: both kinds of saddles
        signature = tuple(range(1, 1 + int(rng.integers(0, most))))
    layers = random_critical_point(
        draw_key(rng), sigma, widths, signature, fills="sparse" if place % 2 else "blocks", condition=3.0
    )
    target = target_of(sigma, widths)
    return Problem(DeepLinear(widths), SquaredDistance(target)), layers, target


@pytest.mark.covers("network:F20", "network:F21", "network:C21")
def test_kinds_are_the_signs_of_the_smallest_eigenvalue(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen = dict.fromkeys(KIND, 0)
    blockless, bottlenecks, weak = 0, 0, 0
    for place in range(POINTS):
        problem, layers, target = instance(rng, place)
        widths, sigma = problem.model.widths, np.diag(target)
        found = classify(problem, layers)
        seen[found.kind] += 1
        hessian = dense_hessian(layers, target)
        values = np.linalg.eigvalsh(hessian)
        scale = max(1.0, values[-1])
        certificate = found.certificate
        if found.kind is KIND.strict_saddle:
            assert values[0] <= -WEAKEST
            weak += values[0] > -NEGATIVE
            direction = flat(certificate.direction)
            assert np.linalg.norm(direction) == pytest.approx(1.0, abs=1e-12)
            value = direction @ hessian @ direction
            assert value < 0
            assert certificate.value == pytest.approx(value, rel=1e-9) == pytest.approx(certificate.predicted, rel=1e-9)
            assert certificate.rayleigh >= values[0] - NONE * scale
        else:
            assert values[0] >= -NONE * scale
        if found.kind is KIND.non_strict_saddle:
            assert all(pair.tight for pair in certificate.pairs)
            assert pivot_direction(canonical_form(layers, sigma)) is None
            assert certificate.descent is not None and certificate.descent.order >= 3 and certificate.descent.drop > 0
        assert found.gradient_norm < 1e-11 and found.product_distance is not None and found.product_distance < 1e-11
        assert found.critical_value == pytest.approx(found.value, abs=1e-11)
        bottlenecks += min(widths) < min(widths[0], widths[-1])
        if found.kind is not KIND.global_minimum and len(layers) > 1:
            fills = canonical_form(layers, sigma).fills
            blockless += all(fill.size and np.linalg.norm(fill) > 1e-6 for fill in fills)
    assert seen[KIND.regular] == 0 and min(seen[kind] for kind in KIND if kind is not KIND.regular) >= 5
    assert blockless >= 1 and bottlenecks >= 5 and weak <= 2


@pytest.mark.covers("network:N6")
def test_recorded_spectra_of_the_plain_normal_form() -> None:
    sigma, widths = [3.0, 2.0, 1.0], (4, 3, 3, 3)
    target = target_of(sigma, widths)
    first, second = (
        np.linalg.eigvalsh(dense_hessian(critical_point(sigma, widths, signature), target))
        for signature in ((1,), (2,))
    )
    assert first[0] == pytest.approx(0.0, abs=1e-12) and first[-1] == pytest.approx(19.0, abs=1e-11)
    assert np.sum(np.abs(first) < 1e-10) == 24 and len(first) == 30
    assert second[0] == pytest.approx(-0.854101966250, abs=1e-11) and second[-1] == pytest.approx(9.0, abs=1e-11)
    assert np.sum(second < -1e-10) == 1


@pytest.mark.covers("network:F21")
def test_directions_have_their_exact_values(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sigma, pivots, none = np.array([3.0, 2.0, 1.0]), 0, 0
    for place in range(24):
        widths = ((4, 3, 4, 3), (3, 5, 3), (5, 4, 4, 4, 3), (3, 4, 4, 5))[place % 4]
        layers = random_critical_point(
            draw_key(rng), sigma, widths, fills="sparse" if place % 3 else "blocks", condition=3.0
        )
        hessian = dense_hessian(layers, target_of(sigma, widths))
        form = canonical_form(layers, sigma)
        zero = flat(zero_direction(form).layers)
        assert abs(zero @ hessian @ zero) < ROUNDING * max(1.0, zero @ zero) and zero @ zero > 0.1
        for i, j in itertools.combinations((1, 2, 3), 2):
            if i not in form.signature and j in form.signature:
                swap = swap_direction(form, i, j)
                direction = flat(swap.layers)
                assert swap.value == -(sigma[i - 1] ** 2 - sigma[j - 1] ** 2)
                assert abs(direction @ hessian @ direction - swap.value) < 1e-9
            else:
                with pytest.raises(ValueError, match="an unlearnt mode before a learnt mode"):
                    swap_direction(form, i, j)
        pivot = pivot_direction(form)
        assert (pivot is None) == is_tightened(form)
        if pivot is not None:
            direction = flat(pivot.layers)
            assert pivot.value < 0 and abs(direction @ hessian @ direction - pivot.value) < 1e-9
            assert pivot.rayleigh == pytest.approx(pivot.value / (direction @ direction))
        pivots, none = pivots + (pivot is not None), none + (pivot is None)
    assert pivots >= 3 and none >= 3
    single = canonical_form((np.diag(sigma),), sigma)
    with pytest.raises(HypothesisError, match="two or more layers"):
        zero_direction(single)
    assert pivot_direction(single) is None


def test_tightened_by_the_ranks_of_the_layers_themselves(seed: int) -> None:
    """The definition with products of layers, against the blocks of the normal form."""
    rng = np.random.default_rng(seed)
    sigma, widths = np.array([3.0, 2.0, 1.0]), (4, 4, 3, 4, 3)
    target = target_of(sigma, widths)
    for _ in range(10):
        layers = random_critical_point(draw_key(rng), sigma, widths, (1,), condition=3.0)
        form = canonical_form(layers, sigma)
        numpy_layers = [np.asarray(layer) for layer in layers]

        for pair in pair_ranks(form):
            i, j = pair.upper, pair.lower
            assert pair.between == np.linalg.matrix_rank(partial(numpy_layers, i - 1, j + 1), tol=1e-8)
            around = partial(numpy_layers, j - 1, 1) @ target.T @ partial(numpy_layers, 4, i + 1)
            assert pair.around == np.linalg.matrix_rank(around, tol=1e-8)


def test_the_loss_falls_at_the_order_that_is_told(seed: int) -> None:
    """From the loss alone: its fall at small steps, and no fall at a lower order along random directions."""
    rng = np.random.default_rng(seed)
    sigma, widths = np.array([3.0, 2.0]), (3, 4, 3, 4, 3, 2)
    target = target_of(sigma, widths)
    problem = Problem(DeepLinear(widths), SquaredDistance(target))

    def loss(layers) -> float:
        product = np.eye(widths[0])
        for layer in layers:
            product = layer @ product
        return 0.5 * float(np.sum((target - product) ** 2))

    orders = set()
    for kept in range(3):  # none, one or two blocks that do not vanish
        fills = [None] * 5
        for place in range(kept):
            fills[2 * place + 1] = rng.standard_normal((widths[2 * place + 2] - 1, widths[2 * place + 1] - 1))
        layers = [np.asarray(layer) for layer in critical_point(sigma, widths, (1,), fills)]
        found = classify(problem, layers)
        assert found.kind is KIND.non_strict_saddle and isinstance(found.certificate, Tightened)
        descent = found.certificate.descent
        assert descent is not None
        orders.add(descent.order)
        assert len(descent.layers) == descent.order == 5 - kept
        steps = np.array([0.02, 0.04])
        direction = [np.asarray(layer) for layer in descent.direction]
        falls = [loss([w + step * v for w, v in zip(layers, direction, strict=True)]) - loss(layers) for step in steps]
        assert max(falls) < 0
        assert np.log2(falls[1] / falls[0]) == pytest.approx(descent.order, abs=0.3)
        assert falls[0] / steps[0] ** descent.order == pytest.approx(descent.coefficient, rel=0.2)
    assert orders == {3, 4, 5}


def test_certificates_are_measured_again_by_the_problem(seed: int) -> None:
    """A target that is not diagonal, inputs that are not white, more outputs than inputs; all four kinds."""
    rng = np.random.default_rng(seed)
    inputs, outputs = rng.standard_normal((3, 20)) * [[2.0], [1.0], [0.5]], rng.standard_normal((4, 20))
    covariance = inputs @ inputs.T
    widths = (3, 3, 4, 4)
    model = DeepLinear(widths)
    sampled = Problem(model, SampleRegression(inputs, outputs))
    moments = Problem(model, Regression(covariance / 20, outputs @ inputs.T / 20))
    left, right = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (4, 3))
    turned = Problem(model, SquaredDistance(left @ target_of([3.0, 2.0, 1.0], widths) @ right))
    for problem in (sampled, moments, turned):
        reduction = reduction_of(problem)
        sigma = np.asarray(reduction.sigma)
        wanted = {
            KIND.global_minimum: ((1, 2, 3), None, Least),
            KIND.strict_saddle: ((1, 3), None, NegativeDirection),
            KIND.non_strict_saddle: ((1,), None, Tightened),
        }
        for kind, (signature, fills, proof) in wanted.items():
            params = reduction.lift(critical_point(sigma, widths, signature, fills))
            found = classify(problem, params)
            assert found.kind is kind and found.signature == signature and isinstance(found.certificate, proof)
            again = found.certificate.verify(problem, params)
            assert again.holds, (problem.loss, kind, again)
            assert found.value == pytest.approx(float(problem.value(params)), rel=1e-9, abs=1e-12)
            json.dumps(found.to_json())
            assert str(found).startswith("kind") and ("gradient", f"{found.gradient_norm:.2e}") in found.rows()
        pivot = classify(problem, reduction.lift(critical_point(sigma, widths, (1,), (None, np.ones((3, 2)), None))))
        assert pivot.kind is KIND.strict_saddle and pivot.certificate.origin == "pivot"
        params = tuple(jnp.asarray(rng.standard_normal(shape)) for shape in model.shapes)
        somewhere = classify(problem, params)
        assert somewhere.kind is KIND.regular and isinstance(somewhere.certificate, Slope)
        assert somewhere.certificate.verify(problem, params).holds
        assert somewhere.signature is None and somewhere.gradient_norm == pytest.approx(
            float(jnp.sqrt(sum(jnp.sum(g**2) for g in problem.gradient(params)))), rel=1e-10
        )
        # A certificate of another point says nothing of this one.
        assert not pivot.certificate.verify(problem, params).holds


def test_equal_and_vanishing_strengths_leave_the_kind_clear(seed: int) -> None:
    """Turned within a group of equal modes, and with modes that the target lacks, against the dense Hessian."""
    rng = np.random.default_rng(seed)
    widths = (4, 4, 4, 4)
    for sigma in ([2.0, 2.0, 1.0, 1.0], [2.0, 2.0, 1.0, 0.0], [3.0, 1.0, 0.0, 0.0]):
        target = np.diag(sigma)
        problem = Problem(DeepLinear(widths), SquaredDistance(target))
        for _ in range(12):
            layers = list(random_critical_point(draw_key(rng), sigma, widths, condition=3.0))
            turn = np.eye(4)
            for strength in set(sigma):
                group = [i for i, s in enumerate(sigma) if s == strength]
                turn[np.ix_(group, group)] = np.linalg.qr(rng.standard_normal((len(group),) * 2))[0]
            layers[0], layers[-1] = layers[0] @ turn.T, turn @ layers[-1]
            found = classify(problem, layers)
            values = np.linalg.eigvalsh(dense_hessian(layers, target))
            assert (found.kind is KIND.strict_saddle) == (values[0] < -1e-6), (sigma, found, values[0])
            least = 0.5 * np.sum(np.square(np.asarray(sigma)[4:]))
            assert (found.kind is KIND.global_minimum) == (abs(found.value - least) < 1e-9)


def test_nearly_critical_points_say_so() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([2.0, 1.0])))
    params = tuple(layer + 1e-7 for layer in critical_point([2.0, 1.0], (2, 2, 2), (2,)))
    found = classify(problem, params)
    assert found.kind is KIND.strict_saddle and 1e-8 < found.gradient_norm < 1e-6
    assert any("Only nearly critical" in note for note in found.notes)
    assert classify(problem, params, tolerance=1e-9).kind is KIND.regular
    with pytest.raises(HypothesisError, match="whole product"):
        classify(Problem(DeepLinear((2, 2, 2)), Completion(np.eye(2), np.array([[1.0, 0.0], [1.0, 1.0]]))), params)
    with pytest.raises(ValueError, match="layer shapes"):
        classify(problem, params[:1])


def test_plateaus_at_the_origin_are_told_by_their_own_curvature(seed: int) -> None:
    """Small layers of full rank: hardly a gradient, not critical, and a negative direction that is small but true."""
    rng = np.random.default_rng(seed)
    target = np.diag([2.0, 1.0])
    problem = Problem(DeepLinear((2, 2, 2, 2, 2)), SquaredDistance(target))
    layers = tuple(1e-3 * rng.standard_normal((2, 2)) for _ in range(4))
    found = classify(problem, layers)
    assert found.signature == () and found.notes
    assert found.kind is KIND.strict_saddle
    direction = flat(found.certificate.direction)
    assert direction @ dense_hessian(layers, target) @ direction == pytest.approx(found.certificate.value, rel=1e-6)


def test_answers_do_not_depend_on_the_units(seed: int) -> None:
    """All layers times c and the target times c^L: the same kinds, signatures and notes, certificates that hold."""
    rng = np.random.default_rng(seed)
    kinds = set()
    for place in range(16):
        widths = ((2, 3, 2), (3, 3, 2, 3), (3, 2, 4, 2))[place % 3]
        sigma = strengths(rng, min(widths[0], widths[-1]))
        style = "sparse" if place % 2 else "blocks"
        layers = random_critical_point(draw_key(rng), sigma, widths, fills=style, condition=3.0)
        away = (0.0, 1e-8, 1e-2)[int(rng.integers(3))] * max(np.abs(flat(layers)))
        layers = [np.asarray(layer) + away * rng.standard_normal(layer.shape) for layer in layers]
        told = set()
        for c in (1e-3, 1.0, 1e3):
            problem = Problem(DeepLinear(widths), SquaredDistance(target_of(sigma * c ** len(layers), widths)))
            scaled = tuple(jnp.asarray(c * layer) for layer in layers)
            found = classify(problem, scaled)
            assert found.certificate.verify(problem, scaled).holds
            told.add((found.kind, found.signature, bool(found.notes)))
            if away < 1e-2:
                near = nearest_critical_point(problem, scaled)
                assert near.found and near.signature == found.signature and near.distance < 1e-5 * c
        assert len(told) == 1, (widths, told)
        kinds |= told
    assert {KIND.regular, KIND.strict_saddle} <= {kind for kind, _, _ in kinds}


@pytest.mark.covers("network:E17")
def test_two_layers_have_strict_saddles_only() -> None:
    sigma, widths = [2.0, 1.0], (3, 3, 2)
    layers = critical_point(sigma, widths, (1,))
    target = target_of(sigma, widths)
    found = classify(Problem(DeepLinear(widths), SquaredDistance(target)), layers)
    assert found.kind is KIND.strict_saddle and found.certificate.indices == (2, 1)
    assert found.certificate.value == pytest.approx(-1.0, abs=1e-12)
    assert np.linalg.eigvalsh(dense_hessian(layers, target))[0] == pytest.approx(-1.0, abs=1e-12)


# --- The way to a critical point --------------------------------------------------------------------------------------


def test_layers_near_a_critical_point_find_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sigma, widths = np.array([3.0, 2.0, 1.0]), (4, 3, 4, 3)
    target = target_of(sigma, widths)
    problem = Problem(DeepLinear(widths), SquaredDistance(target))
    for signature in ((), (1,), (2, 3), (1, 2, 3)):
        layers = random_critical_point(draw_key(rng), sigma, widths, signature, condition=2.0)
        noise = [1e-3 * rng.standard_normal(layer.shape) for layer in layers]
        start = tuple(layer + step for layer, step in zip(layers, noise, strict=True))
        near = nearest_critical_point(problem, start)
        assert near.found and near.signature == signature
        assert near.gradient_norm < 1e-10 * near.gradient_before + 1e-13
        away = np.sqrt(
            sum(np.sum((np.asarray(a) - np.asarray(b)) ** 2) for a, b in zip(near.params, start, strict=True))
        )
        assert near.distance == pytest.approx(away, rel=1e-9)
        assert near.distance < 10 * np.linalg.norm(flat(noise))
        found = classify(problem, near.params)
        assert found.signature == signature and not found.notes
        smallest = np.linalg.eigvalsh(dense_hessian(near.params, target))[0]
        assert (found.kind is KIND.strict_saddle) == (smallest < -1e-8)


def test_plateaus_lead_to_strict_saddles_and_beyond_them_to_the_tightened_one(seed: int) -> None:
    """Near-balanced layers with one mode learnt and small other parts, as a run from near the origin leaves them."""
    rng = np.random.default_rng(seed)
    sigma, widths = np.array([5.0, 3.0, 2.0]), (6, 5, 5, 5, 3)
    problem = Problem(DeepLinear(widths), SquaredDistance(target_of(sigma, widths)))
    root = [np.zeros((out, inp)) for inp, out in itertools.pairwise(widths)]
    for layer in root:
        layer[0, 0] = sigma[0] ** (1 / 4)
    start = tuple(jnp.asarray(layer + 0.05 * rng.standard_normal(layer.shape)) for layer in root)
    near = nearest_critical_point(problem, start)
    plain = nearest_critical_point(problem, start, drop_below=np.inf)
    assert near.found and plain.found and near.signature == plain.signature == (1,)
    assert near.gradient_before > 1e-3 and near.distance <= plain.distance + 1e-12 < 1.0
    assert classify(problem, near.params).kind is KIND.strict_saddle
    assert classify(problem, plain.params).kind is KIND.non_strict_saddle
    proof = classify(problem, plain.params).certificate
    assert isinstance(proof, Tightened) and proof.descent is not None and proof.descent.order == 4
    json.dumps(near.to_json())
    assert str(near).startswith("outcome")


def test_the_way_is_taken_in_the_coordinates_of_the_data(seed: int) -> None:
    """Inputs that are not white, more outputs than inputs: the Hessian of the steps is that of the problem."""
    rng = np.random.default_rng(seed)
    inputs, outputs = rng.standard_normal((2, 9)) * [[2.0], [0.5]], rng.standard_normal((3, 9))
    problem = Problem(DeepLinear((2, 3, 3)), SampleRegression(inputs, outputs))
    reduction = reduction_of(problem)
    layers = reduction.lift(critical_point(np.asarray(reduction.sigma), (2, 3, 3), (1,)))
    start = tuple(layer + 1e-3 * rng.standard_normal(layer.shape) for layer in layers)
    host = _hessian(reduced_by(reduction, tuple(np.asarray(layer) for layer in start)))
    np.testing.assert_allclose(host, eqx.filter_jit(problem.hessian)(start), atol=1e-12 * np.max(np.abs(host)))
    near = nearest_critical_point(problem, start)
    assert near.found and near.signature == (1,) and near.distance < 0.05
    assert float(jnp.sqrt(sum(jnp.sum(g**2) for g in problem.gradient(near.params)))) < 1e-9
    assert classify(problem, near.params).kind is KIND.strict_saddle


def test_a_search_that_fails_is_a_value() -> None:
    """A product of rank one that is near a product of rank two: no basis brings it to the normal form."""
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([1.5, 1.2])))
    start = (jnp.ones((2, 2)), jnp.eye(2))
    stuck = nearest_critical_point(problem, start, max_steps=0)
    assert stuck.ended is ENDED.failed and not stuck.found and stuck.signature is None
    assert stuck.distance < 1e-12 and stuck.gradient_norm == pytest.approx(stuck.gradient_before)
    assert "No critical point was found" in str(stuck)
    assert nearest_critical_point(problem, start).found
    with pytest.raises(ValueError, match="at most 1500 weights"):
        nearest_critical_point(Problem(DeepLinear((40, 40)), SquaredDistance(np.eye(40))), (np.eye(40),))


def test_normal_forms_that_are_not_critical_are_regular_points() -> None:
    sigma, widths = [2.0, 1.0], (2, 2, 2)
    problem = Problem(DeepLinear(widths), SquaredDistance(np.diag(sigma)))
    found = classify(problem, normal_form(sigma, widths, (1,), (None, [[3.0]])))
    assert found.kind is KIND.regular and found.gradient_norm == pytest.approx(3.0)


def test_the_direction_of_no_curvature_at_a_point_that_learnt_nothing() -> None:
    """None of its blocks vanishes, and one of them is wider than the next: the direction is found all the same."""
    widths, sigma = (2, 3, 4, 3), [2.0, 1.0]
    layers = random_critical_point(jax.random.key(1), sigma, widths, (), fills="sparse")
    target = np.zeros((3, 2))
    np.fill_diagonal(target, sigma)
    found = zero_direction(canonical_form(layers, sigma))
    form = hessian_form(Problem(DeepLinear(widths), SquaredDistance(target)), layers, found.layers)
    assert abs(float(form)) < 1e-20


def test_a_nearest_point_names_its_signature_in_plain_values() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([2.0, 1.0])))
    root = math.sqrt(2.0)
    layers = (jnp.diag(jnp.array([root, 1e-3])), jnp.diag(jnp.array([root, 0.0])))
    assert nearest_critical_point(problem, layers).to_json()["signature"] == [1]
