"""Experiments on entropy and free energies: small runs, all claims, a picture of each."""

import dataclasses
import math

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.geometry import _entropy_surface, _free_energy
from deeplinear.plots import paper_style

CATALOG = {e.id: e for e in (*_free_energy.EXPERIMENTS, *_entropy_surface.EXPERIMENTS)}


def carried_out(name: str, **changes):
    """Run, all claims, the picture."""
    experiment = CATALOG[name]
    spec = dataclasses.replace(experiment.preset("quick"), **changes)
    dataset = experiment.run(spec, Context())
    claims = experiment.claims(dataset, spec)
    assert [f"{c.statement}: {c.measured:g}" for c in claims if not c.holds] == []
    with paper_style():
        figure = experiment.plot(dataset, spec)
        figure.draw_without_rendering()
    assert all(axis.get_xlabel() for axis in figure.axes if axis.get_label() != "<colorbar>")
    return dataset, claims


@pytest.mark.covers("geometry:fig4.5a", "geometry:F43", "geometry:F34")
def test_all_singular_values_become_equal() -> None:
    dataset, claims = carried_out("geometry/fig4.5a")
    assert len(claims) == 4
    np.testing.assert_allclose(dataset["spectrum"].to_numpy()[-1], math.sqrt(4.5), atol=1e-6)


@pytest.mark.covers("geometry:X5", "geometry:F35")
def test_one_value_splits_off() -> None:
    dataset, claims = carried_out("geometry/power-transition", sizes=(5,), powers=(0.4, 0.45, 0.6), points=41)
    assert len(claims) == 5
    np.testing.assert_allclose(dataset["threshold"], 5 / 12, rtol=1e-12)
    ends = dataset["end"].sel(size=5, power=0.45).to_numpy()
    np.testing.assert_allclose(ends[0], 4.666, atol=1e-3)
    np.testing.assert_allclose(ends[1], [6.1189] * 4 + [0.9179], atol=1e-3)
    # Every point of the branch is at rest: the derivative of the energy is that of the entropy, written with tanh.
    part = dataset.sel(size=5)
    a, b, p, u = (part[n].to_numpy() for n in ("branch_most", "branch_one", "branch_power", "log_ratio"))
    kept = np.abs(u) > 0.1
    a, b, p, u = a[kept], b[kept], p[kept], u[kept]
    langevin = 1 / np.tanh(u) - 1 / u
    np.testing.assert_allclose(np.log(a / b), u, rtol=1e-9)
    np.testing.assert_allclose(a**p, (3 + 1 + langevin) / 2, rtol=1e-9)
    np.testing.assert_allclose(b**p, 4 * (1 - langevin) / 2, rtol=1e-9)


@pytest.mark.covers("geometry:X6", "geometry:E11")
def test_the_entropy_of_two_values() -> None:
    dataset, claims = carried_out("geometry/entropy-surface")
    assert len(claims) == 10
    assert float(dataset["gain"]) == pytest.approx(0.209, abs=5e-4)
    one, other = dataset["first"].to_numpy()[[5, 40]]
    expected = 0.5 * math.log((one**2 - other**2) / (2 * math.log(one / other)))
    assert float(dataset["surface"][5, 40]) == pytest.approx(expected, abs=1e-12)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="depths must be integers from 2 or infinity"):
        _entropy_surface.Surface(depths=(2.5,))
    with pytest.raises(ValueError, match="power must be at least 1"):
        _free_energy.Settling(power=0.5)
    with pytest.raises(ValueError, match="sizes must be at least 2"):
        _free_energy.Splitting(sizes=(1,))
