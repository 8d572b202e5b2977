"""Data sets of other packages, against facts that are known of them."""

import numpy as np
import pytest

from deeplinear import datasets
from deeplinear.datasets import _load


def test_fertility_has_the_gaps_it_is_known_for():
    table = datasets.fertility()
    assert table.values.shape == (219, 54) == (len(table.rows), len(table.columns))
    assert np.isnan(table.values).mean() == pytest.approx(0.13, abs=0.005)
    assert np.isnan(table.values).all(axis=1).sum() == 9
    assert table.rows[0] == "Aruba" and table.values[0, 0] == 4.82 and table.columns[-1] == "2013"


def test_camera_is_a_picture_and_smaller_ones_are_means_of_blocks():
    whole, small = datasets.camera(512), datasets.camera(128)
    assert whole.shape == (512, 512) and 0 <= whole.min() < whole.max() <= 1
    assert small[3, 5] == pytest.approx(whole[12:16, 20:24].mean())
    with pytest.raises(ValueError, match="side must divide 512"):
        datasets.camera(100)


def test_expression_is_a_table_of_logarithms():
    table = datasets.expression()
    assert table.values.shape == (700, 765) == (len(table.rows), len(table.columns))
    assert table.values.min() == 0 and 6 < table.values.max() < 7
    assert table.columns[0] == "HES4"


def test_movielens_has_a_hundred_thousand_ratings():
    found = datasets.movielens()
    assert found.shape == (943, 1682) and len(found.ratings) == 100_000
    assert set(found.ratings) == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert len(set(zip(found.users, found.items, strict=True))) == 100_000


def test_the_robot_moves_by_its_matrices():
    found = datasets.robot()
    left = found.states[1:] - found.states[:-1] @ found.A.T - found.inputs[:-1]
    without = found.states[1:] - found.states[:-1] @ found.A.T
    assert left.std() < 0.6 * without.std()  # what is left is noise
    assert (found.outputs - found.states @ found.C.T - found.offset).std() == pytest.approx(1.0, abs=0.1)


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(_load.SOURCES, "robot", ("no-such-package", "robot.mat"))
    with pytest.raises(ImportError, match="pip install --no-deps no-such-package"):
        datasets.robot()
    monkeypatch.setitem(_load.SOURCES, "robot", ("numpy", "robot.mat"))
    with pytest.raises(ImportError, match=r"has no file robot\.mat"):
        datasets.robot()
