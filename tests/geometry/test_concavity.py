"""Concavity of the entropy: pairs against many digits, whole spectra, and where diagonal dominance ends."""

import math
from typing import Any

import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

from deeplinear.geometry import concavity_spectrum, diagonal_dominance, dominance_threshold, pair_concavity

RATIOS = [0.0, 1e-3, 0.4, 0.9, 1.1, 3.0, 30.0, 400.0]


def pair_entropy(a: Any, b: Any, depth: float) -> Any:
    if math.isinf(depth):
        return mpmath.log((a**2 - b**2) / (2 * mpmath.log(a / b))) / 2
    return mpmath.log((a**2 - b**2) / (a ** (mpmath.mpf(2) / depth) - b ** (mpmath.mpf(2) / depth))) / 2


@pytest.mark.covers("geometry:F33", "geometry:S37", "geometry:S38")
@pytest.mark.parametrize("depth", [3, 10, math.inf])
def test_the_pair_criterion_is_the_determinant_of_the_hessian(depth: float) -> None:
    """In logarithms x, y of the pair: s_i s_j H is the Hessian there less the diagonal of the gradient."""
    for u in RATIOS[1:6]:
        with mpmath.workdps(60):
            step = mpmath.mpf(10) ** -15

            def value(x: Any, y: Any) -> Any:
                return pair_entropy(mpmath.exp(x), mpmath.exp(y), depth)

            zero, top, h = mpmath.mpf(0), mpmath.mpf(u), step
            gx = (value(top + h, zero) - value(top - h, zero)) / (2 * h)
            gy = (value(top, zero + h) - value(top, zero - h)) / (2 * h)
            xx = (value(top + h, zero) - 2 * value(top, zero) + value(top - h, zero)) / h**2
            yy = (value(top, h) - 2 * value(top, zero) + value(top, -h)) / h**2
            xy = (value(top + h, h) - value(top + h, -h) - value(top - h, h) + value(top - h, -h)) / (4 * h**2)
            determinant = float(4 * ((xx - gx) * (yy - gy) - xy**2))
        assert float(pair_concavity(u, depth)) == pytest.approx(determinant, rel=1e-11)


@pytest.mark.covers("geometry:F33", "geometry:S37", "geometry:S38", "geometry:E7")
def test_every_pair_is_strictly_concave_from_three_layers_on() -> None:
    u = np.concatenate([[0.0], np.geomspace(1e-6, 400.0, 2000)])
    endless = np.asarray(pair_concavity(u, math.inf))
    assert endless.min() == pytest.approx(2 / 400 - 3 / 400**2, rel=1e-9)  # its expansion at the far end
    assert np.all(endless * (1 + u) >= 1 / 3 - 1e-12)
    three = np.asarray(pair_concavity(u, 3))
    assert np.all(three > 0)
    assert np.asarray(pair_concavity(30.0, 3)) == pytest.approx(8 / 27 * math.exp(-20), rel=1e-7)
    np.testing.assert_allclose(pair_concavity(u, 2), 0.0, atol=2e-14)
    np.testing.assert_allclose(pair_concavity(u, 1), 0.0, atol=1e-15)
    np.testing.assert_allclose(pair_concavity(-u, math.inf), endless, rtol=1e-13)


@pytest.mark.covers("geometry:F33", "geometry:S36", "geometry:S38", "geometry:E7")
def test_spectra_of_the_hessian(seed: int) -> None:
    rng = np.random.default_rng(seed)
    s = np.exp(rng.uniform(-3, 3, (300, 4)))
    assert np.max(concavity_spectrum(s, math.inf)[:, -1]) < -0.05
    np.testing.assert_allclose(concavity_spectrum(7 * s, math.inf), concavity_spectrum(s, math.inf), atol=1e-13)
    assert np.max(concavity_spectrum(s, 2)[:, -1]) < 0  # two layers: strict from three singular values on
    flat = concavity_spectrum(s[:, :2], 2)  # ½ ln(s_1 + s_2): flat along differences
    np.testing.assert_allclose(flat[:, -1], 0.0, atol=1e-13)
    np.testing.assert_allclose(flat[:, 0], -(s[:, 0] ** 2 + s[:, 1] ** 2) / (2 * (s[:, 0] + s[:, 1]) ** 2), rtol=1e-12)
    np.testing.assert_allclose(concavity_spectrum([2.0, 2.0], math.inf), [-1 / 2, -1 / 6], rtol=1e-13)


@pytest.mark.covers("geometry:F33", "geometry:E7")
def test_dominance_ends_at_a_ratio() -> None:
    """Against the last inequality of the printed proof, as it stands there."""

    def printed(ratio: float) -> float:
        log = math.log(ratio)
        return 1 / (ratio - 1) ** 2 - (log + 1 + ratio) / (2 * ratio**2 * log**2)

    threshold = dominance_threshold(math.inf)
    assert threshold == pytest.approx(9.106688, abs=1e-5)
    assert printed(threshold) == pytest.approx(0.0, abs=1e-12)
    assert printed(0.999 * threshold) > 0 > printed(1.001 * threshold)
    margins = np.asarray(diagonal_dominance([20.0, 1.0], math.inf))
    assert margins[0] == pytest.approx(printed(20.0), abs=1e-14)
    assert margins[0] == pytest.approx(-5.7e-4, abs=5e-6)
    assert float(concavity_spectrum([20.0, 1.0], math.inf)[-1]) < -0.1  # and is concave there
    assert dominance_threshold(2) == math.inf
    np.testing.assert_allclose(diagonal_dominance([20.0, 1.0], 2), 0.0, atol=1e-15)
    three = dominance_threshold(3)
    assert float(jnp.min(diagonal_dominance([1.001 * three, 1.0], 3))) < 0
    assert float(jnp.min(diagonal_dominance([0.999 * three, 1.0], 3))) > 0


def test_refusals() -> None:
    with pytest.raises(ValueError, match="log_ratio must be finite"):
        pair_concavity(math.inf, 3)
    with pytest.raises(ValueError, match="depth must be a positive integer"):
        dominance_threshold(0)
