"""The monitor of conserved quantities along geodesics."""

import dataclasses
import math

import pytest

from deeplinear.experiments._base import Context
from deeplinear.experiments.catalog.geometry._monitors import MONITORS, Monitored


@pytest.mark.covers("geometry:X3", "geometry:F21")
def test_every_law_holds_at_a_tight_tolerance() -> None:
    spec = dataclasses.replace(MONITORS.preset("quick"), times=2, depths=(2, 3, 5, math.inf))
    dataset = MONITORS.run(spec, Context())
    assert all(claim.holds for claim in MONITORS.claims(dataset, spec)), MONITORS.claims(dataset, spec)
    figure = MONITORS.plot(dataset, spec)
    assert len(figure.axes) == 12


@pytest.mark.covers("geometry:F47")
def test_refusals() -> None:
    with pytest.raises(ValueError, match="length must be greater than 0"):
        Monitored(length=0.0)
    with pytest.raises(ValueError, match="times must be at least 2"):
        Monitored(times=1)
