"""Pictures of fibres, invariant curves, tangents and lines, and balancing flows."""

import dataclasses
import math

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.geometry import _balancing, _fibre_pictures, _tangent_pictures
from deeplinear.plots import paper_style

FIGURES = {e.id: e for module in (_balancing, _fibre_pictures, _tangent_pictures) for e in module.EXPERIMENTS}


def shown(name: str, **changes: object) -> tuple:
    """Dataset, spec and drawn figure of the quick size, somewhat changed; all claims hold."""
    figure = FIGURES[name]
    spec = dataclasses.replace(figure.preset("quick"), **changes)
    dataset = figure.run(spec, Context())
    claims = figure.claims(dataset, spec)
    assert claims and [claim.statement for claim in claims if not claim.holds] == []
    with paper_style():
        drawn = figure.plot(dataset, spec)
    return dataset, spec, drawn


@pytest.mark.covers("geometry:fig2.1", "geometry:F36")
def test_flows_stay_on_their_hyperbolas() -> None:
    """Also by hand: at the end w₁² − w₂² = G and w₁w₂ = 1 give w₁² = G/2 + (G²/4 + 1)^½."""
    dataset, spec, drawn = shown("geometry/fig2.1", levels=(-1.0, 0.0, 1.0))
    path = dataset["path"].to_numpy()
    off = path[..., 0] ** 2 - path[..., 1] ** 2 - dataset["level"].to_numpy()[:, None]
    assert path.shape == (14, spec.records, 2) and np.max(np.abs(off)) <= 1e-10
    for level, end in zip(dataset["level"].to_numpy(), path[:, -1], strict=True):
        if level != 0:
            assert end[0] ** 2 == pytest.approx(level / 2 + math.sqrt(level**2 / 4 + 1), rel=1e-3)
    assert len(drawn.axes[0].lines) >= 14
    with pytest.raises(ValueError, match="levels must be at most"):
        dataclasses.replace(spec, levels=(5.0,))


@pytest.mark.covers("geometry:fig1.1", "geometry:fig2.2", "geometry:fig3.1")
def test_pictures_in_place_of_drawings() -> None:
    fibres, _, drawn = shown("geometry/fig1.1", points=1001)
    assert len(drawn.axes) == 2 and fibres["layers"].shape == (3, 2, 1001, 2, 2, 2)
    # Two circles of the radius (σ₁ + σ₂)^½ of one turn, each with both layers.
    np.testing.assert_allclose(fibres["length"], 4 * math.pi * np.sqrt(2 * np.array([0.75, 2.0, 4.5])), rtol=1e-5)
    tangents, spec, _ = shown("geometry/fig2.2", places=(0.5, 2.0), points=25)
    ball = tangents["ball"].sel(depth=2, first=2.0, second=0.5).to_numpy()
    np.testing.assert_allclose(np.max(np.abs(ball), axis=0), [math.sqrt(2.0), math.sqrt(0.5)], rtol=1e-12)
    assert math.inf in spec.depths
    lines, _, _ = shown("geometry/fig3.1", points=5, nodes=12)
    middle = lines["geodesic"].sel(pair="not commuting", time=0.5).to_numpy()
    np.testing.assert_allclose(middle, [[3.171041365048, 0.789118222781], [0.789118222781, 1.592804919487]], rtol=1e-11)
    chord = lines["curve"].sel(pair="not commuting", time=0.5).to_numpy()
    np.testing.assert_allclose(chord, [[3.125, 0.75], [0.75, 1.625]], atol=1e-12)
    assert float(lines["defect"].sel(pair="not commuting")[0]) == pytest.approx(0.316, abs=1e-3)


@pytest.mark.covers("geometry:X4", "geometry:F7", "geometry:S8")
def test_balancing_flows_from_random_layers() -> None:
    dataset, spec, drawn = shown("geometry/balancing", size=3, depth=4, draws=2, records=16)
    assert len(drawn.axes) == 4 and dataset.sizes["draw"] == 2
    assert float(dataset["drift"].max()) <= 1e-7 and float(dataset["imbalance"].isel(record=-1).max()) <= 1e-6
    first = [spec.draw(np.random.default_rng(spec.seed))]
    norm = sum(float(np.sum(layer**2)) for layer in first[0])
    np.testing.assert_allclose(dataset["norm"].isel(draw=0, record=0), norm, rtol=1e-12)
