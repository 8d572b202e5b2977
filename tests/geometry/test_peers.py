"""Depth two on positive definite matrices against the Bures–Wasserstein metric of geomstats."""

import math
import warnings
from typing import Any

import numpy as np
import pytest

from deeplinear.geometry import bures_distance, bures_exponential, bures_geodesic, bures_map, distance, geodesic_between

AGREE = 1e-9


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Their metric for four rows. Their import asks NumPy for a name it has given up, and for an old way to load."""
    monkeypatch.setattr(np, "trapz", np.trapezoid, raising=False)
    monkeypatch.setenv("GEOMSTATS_BACKEND", "numpy")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*BackendImporter", category=ImportWarning)
        from geomstats.geometry.spd_matrices import SPDBuresWassersteinMetric, SPDMatrices

        return SPDBuresWassersteinMetric(SPDMatrices(4, equip=False))


@pytest.mark.covers("geometry:F18", "geometry:F27")
def test_positive_pairs(peer: Any, seed: int) -> None:
    """The metric of two layers is twice theirs: distances √2 times as long, the same geodesics."""
    rng = np.random.default_rng(seed)
    for _ in range(2):
        frames = [np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2)]
        start, end = ((frame * np.exp(rng.uniform(-1, 1, 4))) @ frame.T for frame in frames)
        theirs = float(peer.dist(start, end))
        assert float(bures_distance(start, end)) == pytest.approx(theirs, abs=AGREE)
        assert distance(start, end, 2) == pytest.approx(math.sqrt(2) * theirs, abs=AGREE)
        numeric = geodesic_between(start, end, 2, method="collocation")
        assert numeric.length == pytest.approx(math.sqrt(2) * theirs, abs=AGREE)
        log = np.asarray(peer.log(end, start))
        np.testing.assert_allclose(numeric.velocity, log, atol=AGREE)
        times = np.array([0.25, 0.5, 0.8])
        path = np.asarray(peer.geodesic(start, end_point=end)(times))
        np.testing.assert_allclose(bures_geodesic(start, end, times), path.reshape(3, 4, 4), atol=AGREE)
        # Their exponential takes the velocity, ours the momentum T - I.
        momentum = np.asarray(bures_map(start, end)) - np.eye(4)
        np.testing.assert_allclose(bures_exponential(start, momentum, 1.0), peer.exp(log, start), atol=AGREE)
