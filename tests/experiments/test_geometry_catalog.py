"""The figures of the geometry as stored runs: data, pictures, settings."""

import json
from pathlib import Path

import pytest
import xarray
from typer.testing import CliRunner

from deeplinear.cli._main import app
from deeplinear.experiments import experiments


def dln(*arguments: object) -> dict:
    run = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert run.exit_code == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.covers("geometry:F49")
def test_a_figure_is_stored_with_data_pictures_and_settings(tmp_path: Path) -> None:
    dln("experiment", "run", "geometry/entropy-surface", "--store", tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} >= {".nc", ".json", ".png", ".svg"}
    data = next(file for file in files if file.suffix == ".nc")
    with xarray.open_dataset(data, engine="h5netcdf") as dataset:
        assert len(dataset.data_vars) >= 1
    told = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.suffix == ".json"]
    assert any("geometry/entropy-surface" in json.dumps(one) and "spec" in json.dumps(one) for one in told)
    for one in experiments("geometry"):
        assert set(one.presets) >= {"quick", "paper"}, one.id


@pytest.mark.covers("geometry:F48")
def test_a_statement_is_run_by_its_name(tmp_path: Path) -> None:
    """A statement that holds and one that is printed wrongly, with the measured numbers of both forms."""
    told = dln("check", "run", "geometry/lemma-3.2.2", "geometry/equation-5.5", "--instances", 3, "--store", tmp_path)
    text = json.dumps(told)
    assert "geometry/lemma-3.2.2" in text and "holds" in text and "erratum" in text and "residual" in text
