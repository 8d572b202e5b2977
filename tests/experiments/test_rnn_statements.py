"""Experiments on single statements about recurrent networks: small runs, all claims, a picture of each."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.rnn import _statement_bounds, _statements
from deeplinear.plots import paper_style

CATALOG = {e.id: e for e in (*_statements.EXPERIMENTS, *_statement_bounds.EXPERIMENTS)}


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
    assert all(axis.get_xlabel() and axis.get_ylabel() for axis in figure.axes)
    return dataset, claims


@pytest.mark.covers("rnn:X1", "rnn:F19")
def test_one_entry_more_than_twice_the_order() -> None:
    dataset, claims = carried_out("rnn/sharpness", orders=(2,), couplings=(0.1, 0.4), horizon=12)
    assert len(claims) == 7
    atoms, weights = np.array([0.9, -0.5]), np.array([0.4, 0.35])
    mean = weights @ atoms / weights.sum()
    spread = weights @ (atoms - mean) ** 2  # the mass times the squared entry beside the diagonal
    np.testing.assert_allclose(dataset["gap"].to_numpy()[0], spread * np.array([0.1, 0.4]) ** 2, atol=1e-14)
    np.testing.assert_allclose(dataset["teacher"].to_numpy()[0], weights @ atoms[:, None] ** np.arange(12), atol=1e-15)


@pytest.mark.covers("rnn:S3", "rnn:F15")
def test_students_that_do_not_extrapolate() -> None:
    dataset, claims = carried_out("rnn/adversarial", lengths=(11, 20), seeds=2, horizon=25)
    assert len(claims) == 4
    np.testing.assert_array_equal(dataset["response"].sel(teacher="delay"), np.eye(25)[9])
    student, teacher = dataset["student"].to_numpy(), dataset["response"].to_numpy()
    np.testing.assert_allclose(student[:, :11], teacher[:, :11], atol=1e-12)
    np.testing.assert_allclose(student[:, 11] - teacher[:, 11], 1.0, atol=1e-10)
    assert list(dataset["teacher"].to_numpy()) == ["delay", "balanced 0", "unbalanced 0", "balanced 1", "unbalanced 1"]


@pytest.mark.covers("rnn:F20", "rnn:S9")
def test_what_first_entries_leave_open() -> None:
    dataset, claims = carried_out("rnn/ambiguity", indices=(8,), tolerances=(1e-2, 1e-6), cluster_indices=(49,))
    assert len(claims) == 8
    # One known entry: the mass may sit where the power is least or largest.
    first = dataset.sel(length=1, index=8)
    np.testing.assert_allclose([float(first["lower"]), float(first["upper"])], [0.0, 1.0], atol=1e-8)
    # Two: below the line through the ends, of slope zero for an even power on [-1, 1].
    assert float(dataset["upper"].sel(length=2, index=8)) == pytest.approx(1.0, abs=1e-8)


@pytest.mark.covers("rnn:X4", "rnn:F22")
def test_constants_of_the_certificate() -> None:
    dataset, claims = carried_out("rnn/certificate", indices=(20,))
    assert len(claims) == 16
    worst = float(dataset["worst"].sel(spectrum="cluster", chosen=20))
    assert worst == pytest.approx(5.7e3, rel=2e-2)
    pair = dataset["sharp"].sel(spectrum="pair")
    assert np.isnan(pair[4]) and float(pair[5]) == pytest.approx(4.26, rel=2e-3)
    assert float(dataset["sufficient"].sel(spectrum="pair", horizon=5)) == pytest.approx(0.01, rel=1e-12)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="orders must be at most 3"):
        _statements.Sharpness(orders=(4,))
    with pytest.raises(ValueError, match="shown must be one of the lengths"):
        _statements.Adversarial(shown=4)
    with pytest.raises(ValueError, match="lengths must be at most 49"):
        _statements.Adversarial(lengths=(50,), horizon=70)
    with pytest.raises(ValueError, match="one for each atom"):
        _statement_bounds.Ambiguity(weights=(1.0,))
    with pytest.raises(ValueError, match="Did you mean 'pair'"):
        _statement_bounds.Constants(spectra=("pairs",))
