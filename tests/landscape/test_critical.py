"""Critical values, critical points by their normal form, and the normal form of given layers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.landscape import (
    canonical_form,
    critical_point,
    critical_value,
    critical_values,
    criticality_residual,
    detect_signature,
    fill_shapes,
    normal_form,
    random_critical_point,
)

SIGMA = np.array([3.0, 2.0, 1.0])
WIDTHS = ((4, 3, 4, 3), (3, 5, 3), (4, 2, 5, 3), (3, 4, 4, 4, 5), (3, 3))
"""A chain, two layers, a bottleneck, more outputs than inputs, and a single layer."""

ROUNDING = 1e-12
"""Numbers of order one, a few products of matrices."""

EXOTIC = ((4, 4, 4, 4, 2), (4.0, 2.0), [((0, 2),), ((1, 1),), ((2, 2),), ((0, 3),)])
"""Widths, strengths and entries of a critical point none of whose blocks vanishes."""


def product(layers) -> np.ndarray:
    result = np.asarray(layers[0])
    for layer in layers[1:]:
        result = np.asarray(layer) @ result
    return result


def gradient(layers, target: np.ndarray) -> list[np.ndarray]:
    """Every layer's gradient from its own formula, by plain products."""
    layers = [np.asarray(layer) for layer in layers]
    residual = target - product(layers)
    found = []
    for place in range(len(layers)):
        below = product([np.eye(layers[0].shape[1]), *layers[:place]])
        above = product([*layers[place + 1 :], np.eye(target.shape[0])])
        found.append(-above.T @ residual @ below.T)
    return found


def target_of(sigma, widths) -> np.ndarray:
    target = np.zeros((widths[-1], widths[0]))
    np.fill_diagonal(target, sigma)
    return target


def draw_key(rng: np.random.Generator) -> jax.Array:
    return jax.random.key(int(rng.integers(2**31)))


def exotic() -> tuple[tuple[int, ...], tuple[float, ...], list[np.ndarray]]:
    widths, sigma, entries = EXOTIC
    fills = [np.zeros(shape) for shape in fill_shapes(widths, 0)]
    for fill, places in zip(fills, entries, strict=True):
        for place in places:
            fill[place] = 1.0
    return widths, sigma, fills


@pytest.mark.covers("network:F17", "network:N6")
def test_critical_values_are_all_and_exact() -> None:
    wanted = {
        (): 7.0,
        (1,): 2.5,
        (2,): 5.0,
        (3,): 6.5,
        (1, 2): 0.5,
        (1, 3): 2.0,
        (2, 3): 4.5,
        (1, 2, 3): 0.0,
    }
    table = critical_values(SIGMA)
    assert table == wanted
    assert list(table.values()) == sorted(wanted.values())
    assert all(critical_value(SIGMA, signature) == value for signature, value in wanted.items())
    assert len(critical_values(np.arange(10.0, 0.0, -1.0))) == 2**10
    with pytest.raises(ValueError, match="at most 20 values, but holds 21"):
        critical_values(np.linspace(2.0, 1.0, 21))
    assert critical_value(np.linspace(2.0, 1.0, 21), range(1, 22)) == 0.0


@pytest.mark.covers("network:F18")
def test_every_signature_has_critical_points_with_its_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for widths in WIDTHS[:-1]:
        for size in range(min(widths) + 1):
            for signature in itertools.combinations((1, 2, 3), size):
                layers = random_critical_point(draw_key(rng), SIGMA, widths, signature)
                target = target_of(SIGMA, widths)
                missing = [s for i, s in enumerate(SIGMA, start=1) if i not in signature]
                assert max(np.max(np.abs(g)) for g in gradient(layers, target)) < 1e-9
                value = 0.5 * np.sum((target - product(layers)) ** 2)
                assert abs(value - 0.5 * np.sum(np.square(missing))) < 1e-10


@pytest.mark.covers("network:F19")
def test_the_normal_form_is_read_off_and_rebuilds_the_layers(seed: int) -> None:
    """Critical or not: any layers with product SΣ, in bases of condition up to a thousand."""
    rng = np.random.default_rng(seed)
    for widths, signature in ((WIDTHS[0], (1, 3)), (WIDTHS[1], (2,)), (WIDTHS[2], (1, 2)), (WIDTHS[3], ())):
        fills = [rng.standard_normal(shape) for shape in fill_shapes(widths, len(signature))]
        fills[1] = np.zeros_like(fills[1])
        gauge = []
        for width in widths[1:-1]:
            left, right = (np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(2))
            gauge.append(left * np.geomspace(1.0, 1e3, width) @ right)
        layers = normal_form(SIGMA, widths, signature, fills, gauge)
        form = canonical_form(layers, SIGMA)
        assert form.signature == signature
        assert form.reconstruction < 1e-8
        rebuilt = form.layers()
        scale = max(np.max(np.abs(layer)) for layer in layers)
        assert max(np.max(np.abs(a - b)) for a, b in zip(rebuilt, layers, strict=True)) < 1e-8 * scale
        # The pattern, from the bases alone: what belongs to learnt modes is an identity, the corners are zero.
        rank = len(signature)
        for place in range(1, len(widths) - 2):
            seen = np.linalg.solve(form.gauge[place], np.asarray(layers[place]) @ form.gauge[place - 1])
            np.testing.assert_allclose(seen[:rank, :rank], np.eye(rank), atol=1e-9)
            np.testing.assert_allclose(seen[:rank, rank:], 0.0, atol=1e-9 * scale)
            np.testing.assert_allclose(seen[rank:, :rank], 0.0, atol=1e-9 * scale)
            np.testing.assert_allclose(seen[rank:, rank:], form.fills[place], atol=1e-9 * scale)


@pytest.mark.covers("network:F19")
def test_the_criterion_vanishes_exactly_where_the_gradient_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counted = {True: 0, False: 0}
    for place in range(40):
        widths = WIDTHS[place % 4]
        rank = int(rng.integers(0, min(widths)))
        signature = tuple(sorted(int(i) for i in rng.choice(3, size=rank, replace=False) + 1))
        if place % 2:
            layers = random_critical_point(draw_key(rng), SIGMA, widths, signature, fills="sparse")
        else:  # one vanishing block is not enough
            fills = [rng.standard_normal(shape) for shape in fill_shapes(widths, rank)]
            fills[int(rng.integers(len(fills)))][:] = 0.0
            layers = normal_form(SIGMA, widths, signature, fills)
        slope = max(np.max(np.abs(g)) for g in gradient(layers, target_of(SIGMA, widths)))
        residual = criticality_residual(canonical_form(layers, SIGMA, signature))
        assert (slope < 1e-9) == (residual < 1e-9), (slope, residual)
        counted[slope < 1e-9] += 1
    assert min(counted.values()) >= 10


@pytest.mark.covers("network:F19")
@pytest.mark.parametrize("place", range(3))
def test_each_layer_has_its_term_of_the_criterion(place: int, seed: int) -> None:
    """Where one block alone vanishes, one term is left: it is computed by hand and is the size of that gradient."""
    rng = np.random.default_rng(seed)
    widths, signature = (4, 3, 4, 3), (2,)
    fills = [rng.standard_normal(shape) for shape in fill_shapes(widths, 1)]
    fills[place][:] = 0.0
    layers = normal_form(SIGMA, widths, signature, fills)
    bridge = target_of(SIGMA, widths)[[0, 2]].T  # the target's rows of the modes that are not learnt
    below = product([np.eye(4), *fills[:place]])
    above = product([*fills[place + 1 :], np.eye(2)])
    wanted = np.linalg.norm(below @ bridge @ above)
    assert wanted > 0.1
    assert criticality_residual(canonical_form(layers, SIGMA, signature)) == pytest.approx(wanted, rel=1e-10)
    sizes = [np.linalg.norm(part) for part in gradient(layers, target_of(SIGMA, widths))]
    assert sizes[place] == pytest.approx(wanted, rel=1e-10) and sum(sizes) == pytest.approx(wanted, rel=1e-10)


def test_critical_points_without_a_vanishing_block_are_built_and_found() -> None:
    widths, sigma, fills = exotic()
    layers = critical_point(sigma, widths, (), fills)
    assert max(np.max(np.abs(g)) for g in gradient(layers, target_of(sigma, widths))) == 0.0
    form = canonical_form(layers, sigma)
    assert form.signature == () and criticality_residual(form) < ROUNDING
    assert min(np.linalg.norm(fill) for fill in form.fills) > 0.5
    drawn = [
        canonical_form(random_critical_point(jax.random.key(k), sigma, widths, (), fills="sparse"), sigma)
        for k in range(5)
    ]
    assert any(min(np.linalg.norm(fill) for fill in form.fills) > 0.1 for form in drawn)
    assert len(form.rows()) == 5 and form.to_json()["signature"] == []
    assert str(form).splitlines()[0].split() == ["signature", "∅"]


def test_signatures_are_detected_or_refused_with_the_residual() -> None:
    found = detect_signature(np.diag([3.0, 1e-5, 1.0]), SIGMA)
    assert found.signature == (1, 3) and found.converged
    assert found.residual == pytest.approx(1e-5 / 3)
    half = detect_signature(np.diag([3.0, 1.2, 0.0]), SIGMA)
    assert half.signature is None and not half.converged
    assert half.residual == pytest.approx(0.8 / 3) and "not that of a critical point" in half.message
    with pytest.raises(HypothesisError, match="a product SΣ with one signature"):
        canonical_form((jnp.eye(3), jnp.diag(jnp.array([3.0, 1.2, 0.0]))), SIGMA)
    with pytest.raises(HypothesisError, match=r"S = \{2\}"):
        canonical_form((jnp.eye(3), jnp.diag(jnp.array([3.0, 0.0, 0.0]))), SIGMA, (2,))


def test_products_that_are_not_square_have_as_many_modes_as_their_shorter_side() -> None:
    product = np.zeros((2, 4))
    product[1, 1] = 1.0
    for matrix in (product, product.T):
        assert detect_signature(matrix, [3.0, 1.0]).signature == (2,)
        with pytest.raises(ValueError, match=r"sigma must have shape \(2\)"):
            detect_signature(matrix, [3.0, 1.0, 0.0, 0.0])


def test_equal_strengths_leave_a_subspace() -> None:
    """Two equal modes, one direction of them learnt: any direction is one of a critical point."""
    angle = 0.3
    learnt = np.array([np.cos(angle), np.sin(angle), 0.0])
    found = detect_signature(2.0 * np.outer(learnt, learnt), [2.0, 2.0, 1.0])
    assert found.signature is None and found.converged and found.rank == 1
    assert abs(found.subspace[:, 0] @ learnt) == pytest.approx(1.0, abs=ROUNDING)
    assert "1 of the equal modes 1 to 2" in found.message
    # Where all or none of them are learnt, there is nothing to choose.
    assert detect_signature(np.diag([2.0, 2.0, 0.0]), [2.0, 2.0, 1.0]).signature == (1, 2)
    assert detect_signature(np.diag([0.0, 0.0, 1.0]), [2.0, 2.0, 1.0]).signature == (3,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"sigma": [1.0, 2.0], "widths": (2, 2, 2), "signature": ()},
            "sigma must hold non-negative numbers, largest first",
        ),
        ({"sigma": [2.0], "widths": (2, 2, 2), "signature": ()}, r"sigma must have shape \(2\)"),
        ({"sigma": [2.0, 1.0], "widths": (2, 2, 2), "signature": (3,)}, "a mode of the signature must be at most 2"),
        ({"sigma": [2.0, 1.0], "widths": (2, 2, 2), "signature": (0,)}, "a mode of the signature must be at least 1"),
        ({"sigma": [2.0, 1.0], "widths": (2, 2, 2), "signature": (1, 1)}, "must not name a mode twice"),
        ({"sigma": [2.0, 1.0], "widths": (2, 1, 2), "signature": (1, 2)}, "at most 1 modes, the smallest width"),
        ({"sigma": [2.0, 0.0], "widths": (2, 2, 2), "signature": (2,)}, "modes of positive strength"),
        ({"sigma": [2.0, 1.0], "widths": (2, 2), "signature": (1,)}, "all modes of a single layer"),
        ({"sigma": [2.0, 1.0], "widths": (2, 2, 2), "signature": (1,), "fills": (None,)}, "fills must have shape"),
        (
            {"sigma": [2.0, 1.0], "widths": (2, 2, 2), "signature": (1,), "gauge": (np.ones((2, 2)),)},
            "invertible with a condition number",
        ),
        (
            {"sigma": [2.0, 1.0], "widths": (2, 2, 2), "signature": (1,), "gauge": (np.eye(3),)},
            r"gauge\[0\] must have shape",
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        critical_point(**arguments)


def test_blocks_that_are_not_critical_are_refused_with_the_residual() -> None:
    with pytest.raises(HypothesisError, match=r"measured residual 1\.000e"):
        critical_point([2.0, 1.0], (2, 2, 2), (1,), fills=(None, [[3.0]]))
