"""Diagnostics of nearly balanced layers, against eigenvectors of the Gram matrices and plain sums."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.dynamics import GradientDescent
from deeplinear.landscape import alignment_metric, balance_report, descent_drift
from deeplinear.models import Aligned, DeepLinear, DeltaBalanced, Gaussian, Masked, Problem, SquaredDistance
from deeplinear.probes import layer_alignment

ROUNDING = 1e-11  # of sums of fourth powers of order ten to a hundred, relative to them
CHAIN = DeepLinear((4, 3, 3, 2))


@pytest.mark.covers("network:F36", "network:C36")
@pytest.mark.parametrize("init", [Gaussian(1.0), DeltaBalanced(0.04)], ids=["Gaussian", "DeltaBalanced"])
def test_report_agrees_with_the_gram_matrices(init, seed):
    params = init(CHAIN, jax.random.key(seed))
    report = balance_report(params)
    assert len(report.interfaces) == 2
    for (below, above), found in zip(itertools.pairwise(map(np.asarray, params)), report.interfaces, strict=True):
        s2, u = np.linalg.eigh(below @ below.T)
        t2, v = np.linalg.eigh(above.T @ above)
        c2 = np.sum((below @ below.T - above.T @ above) ** 2)
        scale = max(c2, np.sum(s2**2))
        assert found.norm**2 == pytest.approx(c2, rel=1e-13)
        np.testing.assert_allclose(found.written, s2[::-1], atol=ROUNDING * s2.max())
        np.testing.assert_allclose(found.read, t2[::-1], atol=ROUNDING * t2.max())
        assert found.slack >= -ROUNDING * scale
        assert found.slack == pytest.approx(c2 - np.sum((s2 - t2) ** 2), abs=ROUNDING * scale)
        overlaps = ((v.T @ u) ** 2)[::-1, ::-1]
        assert found.identity == pytest.approx(c2, abs=ROUNDING * scale)
        assert np.sum(overlaps * (t2[::-1, None] - s2[None, ::-1]) ** 2) == pytest.approx(c2, abs=ROUNDING * scale)
        for axis in (0, 1):
            np.testing.assert_allclose(found.overlaps.sum(axis), 1, atol=ROUNDING)
            np.testing.assert_allclose(found.symmetric_overlaps.sum(axis), 1, atol=ROUNDING)
        mu = found.written
        form = 2 * mu @ (np.eye(len(mu)) - found.symmetric_overlaps) @ mu
        assert found.laplacian_form == pytest.approx(form, abs=ROUNDING * scale)
        assert np.all(found.overlaps <= found.overlap_bounds + ROUNDING)
        np.testing.assert_allclose(found.misalignment, 1 - np.diag(found.overlaps), atol=ROUNDING)
        assert np.all(found.misalignment <= found.misalignment_bounds + ROUNDING)
        apart = np.abs(np.sqrt(found.written) - np.sqrt(found.read))
        assert np.all(apart <= found.strength_bounds * (1 + ROUNDING))
    assert str(report).count("layers") == 2


@pytest.mark.covers("network:F36")
def test_bounds_bind_where_a_gap_is_wide():
    """Two units, the gap g and the angle a between their directions: the norm is √2 g sin a, the overlap sin² a."""
    g, a = 3.0, 0.1
    turn = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
    first, second = np.diag([np.sqrt(g), 0.0]), np.diag([np.sqrt(g), 0.0]) @ turn.T
    (found,) = balance_report((jnp.asarray(first), jnp.asarray(second))).interfaces
    assert found.norm == pytest.approx(np.sqrt(2) * g * np.sin(a), rel=1e-12)
    np.testing.assert_allclose(found.misalignment, np.sin(a) ** 2, rtol=1e-10)
    np.testing.assert_allclose(found.misalignment_bounds, 2 * np.sin(a) ** 2, rtol=1e-10)
    assert found.slack == pytest.approx(found.norm**2, rel=1e-12)
    assert found.laplacian_form == pytest.approx(found.norm**2, rel=1e-10)
    assert balance_report((jnp.eye(2),)).delta == 0.0
    (one,) = balance_report((jnp.ones((1, 2)), jnp.ones((2, 1)))).interfaces
    assert one.misalignment_bounds.tolist() == [0.0]


@pytest.mark.covers("network:F36")
def test_alignment_metric_is_free_of_signs_and_extends_the_probe(seed):
    rng = np.random.default_rng(seed)
    params = Gaussian(1.0)(CHAIN, jax.random.key(seed))
    for q in (1, 2):
        own = []
        for below, above in itertools.pairwise(map(np.asarray, params)):
            u, v = np.linalg.eigh(below @ below.T)[1][:, ::-1], np.linalg.eigh(above.T @ above)[1][:, ::-1]
            own.append(np.sum((np.abs(v[:, :q].T @ u[:, :q]) - np.eye(q)) ** 2))
        np.testing.assert_allclose(alignment_metric(params, q), own, atol=1e-10)
    problem = Problem(CHAIN, SquaredDistance(np.zeros((2, 4))))
    first = np.asarray(layer_alignment(jnp.zeros(()), params, problem))
    np.testing.assert_allclose(alignment_metric(params, 1), (1 - first) ** 2, atol=1e-12)
    aligned = Aligned([[3.0, 1.0], [2.0, -1.5], [-4.0, 0.5]])(CHAIN, jax.random.key(seed))
    flipped = tuple(layer * jnp.asarray(rng.choice([-1.0, 1.0])) for layer in aligned)
    np.testing.assert_allclose(alignment_metric(flipped, 2), 0, atol=1e-12)
    together = jax.jit(jax.vmap(lambda p: alignment_metric(p, 2)))(
        jax.tree.map(lambda w: jnp.stack([w, 2 * w]), params)
    )
    np.testing.assert_allclose(together, np.stack([alignment_metric(params, 2)] * 2), atol=1e-10)
    with pytest.raises(ValueError, match="modes must be at most 3"):
        alignment_metric(params, 4)


@pytest.mark.covers("network:F38", "network:C41")
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_drift_of_one_step_is_exact(l2, seed):
    rng = np.random.default_rng(seed)
    params = tuple(jnp.asarray(0.5 * rng.standard_normal(shape)) for shape in CHAIN.shapes)
    problem = Problem(CHAIN, SquaredDistance(rng.standard_normal((2, 4))), l2)
    lr = 0.05
    after, _ = GradientDescent(lr).step(problem, params, None, jax.random.key(0))
    told = descent_drift(problem, params, lr)
    for number, change in enumerate(told):
        (w, above), (w1, above1) = ([np.asarray(p) for p in layers[number : number + 2]] for layers in (params, after))
        wanted = (above1.T @ above1 - w1 @ w1.T) - (above.T @ above - w @ w.T)
        np.testing.assert_allclose(change, wanted, atol=1e-13 * (1 + np.abs(wanted).max()) * 10)
    masked = Masked(CHAIN, [np.ones(shape) for shape in CHAIN.shapes])
    with pytest.raises(TypeError, match=r"descent_drift: problem\.model must be a DeepLinear network"):
        descent_drift(Problem(masked, SquaredDistance(np.zeros((2, 4)))), params, lr)
