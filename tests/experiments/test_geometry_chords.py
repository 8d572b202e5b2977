"""A printed geodesic beside the true one, and the path of gradient flow beside the shortest."""

import dataclasses

import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.geometry import _chords, _inefficiency

(CHORDS,) = _chords.EXPERIMENTS
(INEFFICIENCY,) = _inefficiency.EXPERIMENTS


@pytest.mark.covers("geometry:X1", "geometry:E1", "geometry:F25", "geometry:F49")
def test_the_printed_curve_is_longer() -> None:
    # As many points as `dln geodesic` is tried with: one program serves both.
    spec = dataclasses.replace(CHORDS.preset("quick"), points=11)
    dataset = CHORDS.run(spec, Context())
    claims = CHORDS.claims(dataset, spec)
    assert len(claims) == 4 + 3 * 3 and all(claim.holds for claim in claims)
    assert len(CHORDS.plot(dataset, spec).axes) == 3
    # The mid-points of depth two: printed, and true.
    middle = dataset["points"].sel(depth=2).isel(time=5)
    assert middle.sel(curve="printed").to_numpy().ravel() == pytest.approx([3.125, 0.75, 0.75, 1.625], abs=1e-12)
    wanted = [3.171041365048, 0.789118222781, 0.789118222781, 1.592804919487]
    assert middle.sel(curve="geodesic").to_numpy().ravel() == pytest.approx(wanted, abs=1e-10)


@pytest.mark.covers("geometry:X2", "geometry:F28", "geometry:F49")
def test_paths_are_longer_the_deeper() -> None:
    spec = dataclasses.replace(INEFFICIENCY.preset("quick"), points=3)
    dataset = INEFFICIENCY.run(spec, Context())
    claims = INEFFICIENCY.claims(dataset, spec)
    assert len(claims) == 3 + 5 and all(claim.holds for claim in claims)
    assert len(INEFFICIENCY.plot(dataset, spec).axes) == 2


def test_specs_refuse() -> None:
    with pytest.raises(ValueError, match="two rows"):
        _chords.Chords(start=(1.0,))
    with pytest.raises(ValueError, match="0 is infinite depth"):
        _inefficiency.Inefficiencies(depths=(-1,))
