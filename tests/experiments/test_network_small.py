"""Figures 1, 5, 6 and 7 of the survey: networks that are solved by hand."""

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

from deeplinear.cli._main import app
from deeplinear.experiments import Context, Experiment
from deeplinear.experiments.catalog.network import _cube, _plane, _scalar, _slices
from deeplinear.plots import paper_style

FIGURES = {
    experiment.id: experiment for module in (_scalar, _plane, _cube, _slices) for experiment in module.EXPERIMENTS
}


def made(figure: Experiment, **changes: object) -> object:
    """The quick preset run, drawn and held to its claims; the dataset."""
    spec = dataclasses.replace(figure.preset("quick"), **changes)
    dataset = figure.run(spec, Context())
    missed = [f"{claim.statement}: {claim.measured}" for claim in figure.claims(dataset, spec) if claim.holds is False]
    assert missed == []
    with paper_style():
        drawn = figure.plot(dataset, spec)
    assert drawn.axes and all(axis.get_ylabel() for axis in drawn.axes)
    return dataset


@pytest.mark.covers("network:fig1a", "network:E8")
def test_the_graph_of_the_scalar_equation() -> None:
    dataset = made(FIGURES["network/fig1a"])
    np.testing.assert_allclose(dataset["equilibrium"], [-1, 0, 1])
    assert float(abs(dataset["speed"].sel(panel="near zero")).max()) == pytest.approx(0.0156, abs=5e-5)
    # An odd depth and another target: no negative rest point, and none at σ.
    odd = made(FIGURES["network/fig1a"], depth=3, sigma=2.0)
    np.testing.assert_allclose(odd["equilibrium"], [0, 2 ** (1 / 3)])


@pytest.mark.covers("network:fig1b", "network:C38")
def test_modes_learned_one_after_another_and_not() -> None:
    """Numbers recorded to the third decimal."""
    dataset = made(FIGURES["network/fig1b"], points=41)
    times = dataset["half_time"].to_numpy()
    np.testing.assert_allclose(times[0], [10.410, 13.879, 20.813, 41.600], rtol=5e-3)
    np.testing.assert_allclose(times[1], [24.686, 13.879, 6.146, 5.081], rtol=5e-3)
    np.testing.assert_allclose(dataset["width"], [0.0255, 0.0059, 0.0003], atol=5e-5)
    assert FIGURES["network/fig1b"].preset("paper").depths == (2, 3, 4, 5, 6, 8)
    # Layers end at σ^(1/L).
    np.testing.assert_allclose(dataset["strength"][0, :, -1], np.array([4, 3, 2, 1.0]) ** 0.2, rtol=1e-6)


@pytest.mark.covers("network:fig5", "network:C39")
def test_one_hidden_unit() -> None:
    dataset = made(FIGURES["network/fig5"], points=21)
    np.testing.assert_allclose(dataset["plateau"], [0.5 * 0.955**2, 0.5 * 1.045**2], rtol=1e-9)
    for sigma in (1.0, 2.0):
        dataset = made(FIGURES["network/fig5"], points=21, sigma=sigma)
        start, limit = dataset["path"][:, 0].to_numpy(), dataset["limit"].to_numpy()
        law = start[:, 0] ** 2 - start[:, 1] ** 2
        wanted = np.sqrt((law + np.sqrt(law**2 + 4 * sigma**2)) / 2)
        np.testing.assert_allclose(np.abs(limit[:, 0]), wanted, rtol=1e-9)


@pytest.mark.covers("network:fig6", "network:C40", "network:E11")
def test_three_layers_of_one_unit() -> None:
    dataset = made(FIGURES["network/fig6"], points=15, starts=15)
    np.testing.assert_allclose(dataset["limit"][-1], [0, math.sqrt(3), 0], atol=1e-12)
    assert float(abs(dataset["path"][-1].sel(time=6.0) - dataset["limit"][-1]).max()) == pytest.approx(1.7e-5, abs=1e-6)
    np.testing.assert_allclose(dataset["limit"][:-1].prod("weight"), 1.0, rtol=1e-12)


@pytest.mark.covers("network:fig7", "network:C39")
def test_slices_of_four_weights() -> None:
    dataset = made(FIGURES["network/fig7"])
    limit = dataset["limit"].to_numpy()
    np.testing.assert_allclose(limit[:, 0] * limit[:, 2] + limit[:, 1] * limit[:, 3], 1.0, rtol=1e-11)
    assert FIGURES["network/fig7"].preset("paper").starts == 200


@pytest.mark.covers("network:F42")
def test_one_command_tells_the_numbers_of_a_figure(tmp_path: Path) -> None:
    """The rest points -1, 0, 1 and the largest speed 0.25³(1 - 0.25⁴) near zero, as JSON and in the file it names."""
    command = ["experiment", "run", "network/fig1a", "--preset", "quick", "--store", str(tmp_path), "--json"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    (member,) = content["members"]
    assert content["ok"] and member["status"] == "completed"
    measured = {claim["statement"]: claim["measured"] for claim in member["claims"]}
    assert all(claim["holds"] for claim in member["claims"])
    (distance,) = [value for statement, value in measured.items() if statement.startswith("Rest points are")]
    (speed,) = [value for statement, value in measured.items() if "largest |speed|" in statement]
    assert distance < 1e-12 and speed == pytest.approx(0.25**3 * (1 - 0.25**4), rel=1e-12)
    with xarray.open_dataset(Path(member["folder"]) / "data.nc", engine="h5netcdf") as dataset:
        np.testing.assert_allclose(dataset["equilibrium"], [-1, 0, 1])


def test_specs_that_cannot_be_drawn_are_refused() -> None:
    with pytest.raises(ValueError, match="sigma must be greater than 0"):
        _scalar.Graph(sigma=0.0)
    with pytest.raises(ValueError, match="starts must have 4 numbers"):
        _scalar.Learning(starts=(0.1,))
    with pytest.raises(ValueError, match="border must be at least 8"):
        _plane.Plane(border=2)
    with pytest.raises(ValueError, match="laws must be at most 4"):
        _slices.Slices(laws=(5.0,))
