"""How far layers are from balance: the formulas for Gaussian layers, relative imbalance, refusals."""

import itertools

import numpy as np
import pytest

from deeplinear.geometry import balanced_lift, gaussian_imbalance, is_balanced, relative_imbalance

SAMPLES = 4000
STANDARD_ERRORS = 3


@pytest.mark.covers("geometry:F8", "geometry:S6")
@pytest.mark.parametrize("size", [2, 5])
def test_moments_of_gaussian_layers(size: int) -> None:
    """Formulas by hand, and means over samples drawn once, within three standard errors."""
    std = 0.3
    found = gaussian_imbalance(size, std)
    assert float(found.square) == pytest.approx(2 * std**4 * size**2 * (size + 1), rel=1e-14)
    assert float(found.layer_square) == pytest.approx(std**4 * size**2 * (2 * size + 1), rel=1e-14)
    assert float(found.relative) == pytest.approx(2 * (size + 1) / (2 * size + 1), rel=1e-14)
    rng = np.random.default_rng(11)
    first, second = std * rng.standard_normal((2, SAMPLES, size, size))
    grams = first @ first.transpose(0, 2, 1)
    imbalances = grams - second.transpose(0, 2, 1) @ second
    for values, wanted in (
        (np.sum(imbalances**2, axis=(1, 2)), float(found.square)),
        (np.sum(grams**2, axis=(1, 2)), float(found.layer_square)),
    ):
        assert abs(np.mean(values) - wanted) <= STANDARD_ERRORS * np.std(values) / np.sqrt(SAMPLES)
    assert np.max(np.abs(np.mean(imbalances, axis=0))) <= 0.05 * std**2 * size


@pytest.mark.covers("geometry:F5")
def test_relative_imbalance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = [rng.standard_normal((3, 2)), rng.standard_normal((4, 3)), rng.standard_normal((1, 4))]
    laws = [a @ a.T - b.T @ b for a, b in itertools.pairwise(layers)]
    wanted = max(np.linalg.norm(law) for law in laws) / max(np.sum(layer**2) for layer in layers)
    assert float(relative_imbalance(layers)) == pytest.approx(wanted, rel=1e-13)
    assert float(relative_imbalance([7 * layer for layer in layers])) == pytest.approx(wanted, rel=1e-13)
    assert not is_balanced(layers) and is_balanced(layers[:1]) and is_balanced([np.zeros((2, 2))] * 2)
    lift = balanced_lift(rng.standard_normal((3, 3)), 3)
    assert float(relative_imbalance(lift)) < 1e-13 and is_balanced(lift, tolerance=1e-13)


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    with pytest.raises(ValueError, match="size must be at least 1"):
        gaussian_imbalance(0, 1.0)
    with pytest.raises(ValueError, match="std must be greater than 0"):
        gaussian_imbalance(2, 0.0)
    with pytest.raises(ValueError, match="params must have layer shapes"):
        relative_imbalance([np.eye(2), np.eye(3)])
    with pytest.raises(ValueError, match=r"params\[1\] must be finite"):
        is_balanced([np.eye(2), np.full((2, 2), np.inf)])
    with pytest.raises(ValueError, match="params must hold at least one layer"):
        is_balanced([])
