"""Rates: recorded values, a thousand draws of each, and the envelope along runs."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Params
from deeplinear.landscape import (
    balanced_spectrum,
    cumulative_factors,
    cumulative_rate,
    descent_threshold,
    envelope_excess,
    hessian_matrix,
    product_rate,
    pyramid_factors,
    pyramid_rate,
    rate_report,
    sharp_rate,
)
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory._flows import flows
from deeplinear.theory.network._rates import draw_cumulative, draw_pyramid

WIDE = (2, 3, 3, 2)
TWELVE = 1e-11
"""Values that are recorded to twelve digits."""
SLACK = 1e-9
"""A bound may exceed what it bounds by this share."""

COUNTEREXAMPLE = (
    jnp.diag(jnp.array([3.0, 1.0])),
    jnp.full((3, 2), 0.01),
    jnp.array([[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]),
)


@pytest.mark.covers("network:N7", "network:E3", "network:F25")
def test_counterexample_to_the_printed_index() -> None:
    """Widths 2-2-3-2 around layer 2. In print the first factor is λ_{1+d₂−d₁}(C₁), by plain NumPy here."""
    assert abs(float(product_rate(COUNTEREXAMPLE)) - 4.0) < TWELVE
    assert abs((pyramid_rate(COUNTEREXAMPLE, 2) or 0.0) - 3.99840009500) < TWELVE
    assert abs(float(sharp_rate(COUNTEREXAMPLE)) - 4.00029997469) < TWELVE
    assert [cumulative_rate(COUNTEREXAMPLE, pivot) for pivot in (1, 2, 3)] == [None] * 3
    first, second, third = (np.asarray(w) for w in COUNTEREXAMPLE)
    lower = np.linalg.eigvalsh(first @ first.T - second.T @ second)
    upper = np.linalg.eigvalsh(third.T @ third - second @ second.T)
    printed = lower[1 + 3 - 2 - 1] * upper[1 + 3 - 2 - 1]
    assert abs(printed - 35.9952003450) < 10 * TWELVE
    worst = 2 * float(sharp_rate(COUNTEREXAMPLE))  # of −Ḟ/F over all residuals
    assert abs(worst - 8.0006) < 1e-4 and printed > 4 * worst
    report = rate_report(COUNTEREXAMPLE)
    assert report.best is not None and (report.best.kind, report.best.pivot) == ("pyramid", 2)
    reasons = {(rate.kind, rate.pivot): rate.reason for rate in report.lasting}
    assert "widths must not rise after layer 1" in reasons["pyramid", 1]
    assert "-C_2 must have at least 2 positive eigenvalues" in reasons["pyramid", 3]
    assert "semi-definite" in reasons["cumulative", 2] and reasons["pyramid", 2] == ""
    assert "3.9984, pyramid with pivot 2" in str(report) and report.to_json()["best"]["pivot"] == 2


def _ratios(params: Params, rate: jax.Array) -> np.ndarray:
    """λ_min(K) over a rate, for many networks, rounding granted; K by plain Kronecker products."""
    layers = [np.asarray(w) for w in params]
    depth, members = len(layers), len(layers[0])
    kernel = 0.0
    for j in range(depth):
        left = np.broadcast_to(np.eye(layers[-1].shape[1]), (members, layers[-1].shape[1], layers[-1].shape[1]))
        for w in reversed(layers[j + 1 :]):
            left = left @ w
        right = np.broadcast_to(np.eye(layers[0].shape[2]), (members, layers[0].shape[2], layers[0].shape[2]))
        for w in layers[:j]:
            right = w @ right
        outer, inner = left @ np.swapaxes(left, 1, 2), np.swapaxes(right, 1, 2) @ right
        size = outer.shape[1] * inner.shape[1]
        kernel = kernel + np.einsum("mip,mjq->mijpq", outer, inner).reshape(members, size, size)
    values = np.linalg.eigvalsh(kernel)
    return (values[:, 0] + 1e-14 * values[:, -1]) / np.asarray(rate)


@pytest.mark.covers("network:F25", "network:C26", "network:C27", "network:C28")
def test_bounds_of_a_thousand_networks(seed: int) -> None:
    """All draws of a kind in one mapped call. The second pyramid has more units before its pivot than after it."""
    rng = np.random.default_rng(seed)

    def draw(widths: tuple[int, ...], scales: tuple[float, ...], members: int) -> Params:
        return tuple(
            jnp.asarray(c * rng.standard_normal((members, out, inp)))
            for c, (inp, out) in zip(scales, itertools.pairwise(widths), strict=True)
        )

    many = draw((2, 2, 3, 2), (1.0, 1.0, 1.0), 1000)
    rates, sharp = jax.jit(jax.vmap(lambda p: (product_rate(p), sharp_rate(p))))(many)
    assert _ratios(many, rates).min() >= 1 - SLACK
    np.testing.assert_allclose(np.median(_ratios(many, sharp)), 1.0, rtol=SLACK)

    for widths, pivot, members in ((WIDE, 2, 4000), ((2, 3, 2, 2), 2, 4000)):
        scales = tuple(3.0 ** abs(position - pivot) for position in (1, 2, 3))
        many = draw(widths, scales, members)
        factors = jax.jit(jax.vmap(lambda p, pivot=pivot: pyramid_factors(p, pivot)))(many)
        kept = np.flatnonzero(np.all(np.asarray(factors) > 1e-12, axis=1))
        assert len(kept) >= 1000
        kept_params = tuple(w[kept] for w in many)
        assert _ratios(kept_params, jnp.prod(factors[kept], axis=1)).min() >= 1 - SLACK

    for pivot in (1, 2, 3):
        many = _cumulative(rng, WIDE, pivot, 400)
        terms = jax.jit(jax.vmap(lambda p, pivot=pivot: cumulative_factors(p, pivot)))(many)
        assert float(terms.slack.min()) > -1e-12
        assert _ratios(many, jnp.prod(terms.factors, axis=1)).min() >= 1 - SLACK


def _cumulative(rng: np.random.Generator, widths: tuple[int, ...], pivot: int, members: int) -> Params:
    """Networks built outwards from a layer: each square exceeds that of its neighbour by a positive matrix."""
    depth, (inp, *_, out) = len(widths) - 1, widths

    def frame(width: int, size: int) -> np.ndarray:
        return np.linalg.qr(rng.standard_normal((members, width, size)))[0]

    def root(matrix: np.ndarray) -> np.ndarray:
        extra = rng.standard_normal(matrix.shape)
        values, vectors = np.linalg.eigh(matrix + extra @ np.swapaxes(extra, 1, 2))
        return (vectors * np.sqrt(values)[:, None, :]) @ np.swapaxes(vectors, 1, 2)

    frames = [frame(width, inp if place < pivot else out) for place, width in enumerate(widths)]
    inside = {pivot: 0.5 * rng.standard_normal((members, out, inp))}
    for place in range(pivot + 1, depth + 1):
        below = inside[place - 1]
        inside[place] = frame(out, out) @ root(below @ np.swapaxes(below, 1, 2))
    for place in range(pivot - 1, 0, -1):
        above = inside[place + 1]
        inside[place] = root(np.swapaxes(above, 1, 2) @ above) @ frame(inp, inp)
    return tuple(
        jnp.asarray(frames[place] @ inside[place] @ np.swapaxes(frames[place - 1], 1, 2))
        for place in range(1, depth + 1)
    )


@pytest.mark.covers("network:F26", "network:C27")
def test_envelopes_hold_along_runs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = [draw_pyramid(rng), draw_cumulative(rng)]
    runs = flows([s.network.problem for s in starts], [s.network.params for s in starts], np.linspace(0, 2, 9))
    for start, run, rate_of in zip(starts, runs, (pyramid_rate, cumulative_rate), strict=True):
        rate = rate_of(start.params, start.pivot)
        assert rate is not None and rate > 0
        assert float(envelope_excess(run.times, run.loss, rate)) <= 1 + SLACK
        # No faster rate than that of the run itself is certified.
        fastest = np.log(run.loss[0] / run.loss[1]) / (2 * run.times[1])
        assert float(envelope_excess(run.times, run.loss, 1.1 * fastest)) > 1 + SLACK


def test_envelope_by_hand() -> None:
    times = np.linspace(0.0, 500.0, 501)
    losses = 3.0 * np.exp(-2.0 * times)
    # Below 1e-24 of the start nothing is compared; nothing overflows.
    losses[30:] = 1e-30
    assert float(envelope_excess(times, losses, 1.0)) == pytest.approx(1.0, abs=1e-12)
    assert float(envelope_excess(times, losses, 1.5)) == pytest.approx(np.exp(27.0), rel=1e-12)
    mapped = jax.vmap(lambda rate: envelope_excess(times, losses, rate))(jnp.array([0.5, 1.5]))
    np.testing.assert_allclose(mapped, [1.0, np.exp(27.0)], rtol=1e-12)
    with pytest.raises(ValueError, match="losses must begin with a positive number"):
        envelope_excess([0.0, 1.0], [0.0, 0.0], 1.0)


@pytest.mark.covers("network:F27")
def test_balanced_minimum(seed: int) -> None:
    """Against the Hessian of a balanced minimum with more outputs than inputs, and of one of two layers by hand."""
    rng = np.random.default_rng(seed)
    sigma = np.sort(rng.uniform(0.5, 3.0, 2))[::-1]
    for widths in ((4, 3, 3, 2), (2, 3, 4)):
        depth, modes = len(widths) - 1, 2
        frames = [np.linalg.qr(rng.standard_normal((width, modes)))[0] for width in widths]
        layers = tuple(
            jnp.asarray((above * sigma ** (1 / depth)) @ below.T) for below, above in itertools.pairwise(frames)
        )
        problem = Problem(DeepLinear(widths), SquaredDistance((frames[-1] * sigma) @ frames[0].T))
        values = np.linalg.eigvalsh(np.asarray(hessian_matrix(problem, layers)))
        formula = np.asarray(balanced_spectrum(sigma, widths[0], depth, out=widths[-1]))
        np.testing.assert_allclose(values[-len(formula) :], formula, rtol=1e-9)
        np.testing.assert_allclose(values[: -len(formula)], 0, atol=1e-9)
        top = depth * sigma[0] ** (2 - 2 / depth)
        assert abs(formula[-1] - top) < 1e-12 * top
        assert abs(float(descent_threshold(sigma, depth)) - 2 / top) < 1e-12 / top
        assert abs(float(descent_threshold(problem)) - 2 / top) < 1e-12 / top


def test_refusals() -> None:
    params = tuple(jnp.eye(2) for _ in range(2))
    with pytest.raises(ValueError, match="pivot must be at most 2"):
        pyramid_rate(params, 3)
    with pytest.raises(ValueError, match="widths must not fall before layer 2"):
        pyramid_factors((jnp.ones((1, 2)), jnp.ones((2, 1))), 2)
    with pytest.raises(ValueError, match="hidden widths must be at least 2"):
        cumulative_factors((jnp.ones((1, 2)), jnp.ones((2, 1))), 1)
    assert cumulative_rate((jnp.ones((1, 2)), jnp.ones((2, 1))), 1) is None
    # Balanced layers have no pyramid, to rounding; their cumulative rate is 0.
    assert pyramid_rate(params, 1) is None and cumulative_rate(params, 1) == 0.0
    # In a report a rate of 0 is none.
    report = rate_report(params)
    assert report.best is None and report.lasting[2].rate is None
    assert report.lasting[2].reason == "the bound is 0, which promises nothing"
    assert report.lasting[0].reason.endswith(
        "at least 2 positive eigenvalues, but number 2 from the top is 0 to rounding"
    )
    alone = rate_report((jnp.ones((1, 1)), 2 * jnp.ones((1, 1))))
    assert alone.lasting[1].reason == "-C_1 must have at least 1 positive eigenvalue, but the largest is -3"
    with pytest.raises(TypeError, match="depth must be given"):
        descent_threshold([2.0, 1.0])
    with pytest.raises(ValueError, match="largest singular value must be greater than 0"):
        descent_threshold([0.0], 2)
    with pytest.raises(ValueError, match="inp must be at least 2"):
        balanced_spectrum([2.0, 1.0], 1, 2)
    with pytest.raises(ValueError, match="sigma must hold non-negative numbers"):
        balanced_spectrum([-1.0], 1, 2)


def test_a_small_factor_above_rounding_gives_a_rate() -> None:
    """Of two numbers w and 1 with 1 - w² = 1e-12 of their squares."""
    layers = (jnp.full((1, 1), 1 - 5e-13), jnp.ones((1, 1)))
    assert pyramid_rate(layers, 1) == pytest.approx(1e-12, rel=1e-3)
    assert pyramid_rate((jnp.full((1, 1), 1 - 2e-16), jnp.ones((1, 1))), 1) is None
