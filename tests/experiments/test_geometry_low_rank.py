"""Figures 4.1 to 4.4 and 4.5b of the thesis: the attraction to low rank. Dimensions and output times are few, so that
the tests share what they compile."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import xarray

from deeplinear.experiments import Context, Experiment
from deeplinear.experiments.catalog.geometry import (
    _low_rank,
    _low_rank_dimensions,
    _low_rank_entropy,
    _low_rank_masks,
    _low_rank_runs,
    _low_rank_scales,
)
from deeplinear.geometry import MatrixFlow, matrix_flow
from deeplinear.plots import paper_style

MODULES = (_low_rank, _low_rank_dimensions, _low_rank_scales, _low_rank_masks, _low_rank_entropy)
FIGURES = {experiment.id: experiment for module in MODULES for experiment in module.EXPERIMENTS}

POINTS = 33
"""Output times of every figure that shows a course of time."""


def made(figure: Experiment, **changes: object) -> xarray.Dataset:
    """The quick preset run, drawn and held to its claims; the dataset."""
    spec = dataclasses.replace(figure.preset("quick"), **changes)
    dataset = figure.run(spec, Context())
    missed = [f"{claim.statement}: {claim.measured}" for claim in figure.claims(dataset, spec) if claim.holds is False]
    assert missed == []
    with paper_style():
        drawn = figure.plot(dataset, spec)
        drawn.draw_without_rendering()
    assert drawn.axes and all(axis.get_ylabel() and axis.get_xlabel() for axis in drawn.axes)
    assert "ended" in dataset
    return dataset


def operator(point: np.ndarray, force: np.ndarray) -> np.ndarray:
    """A[X](Z) at infinite depth, by its printed eigenvalues."""
    left, values, right = np.linalg.svd(point)
    a, b = values[:, None], values[None]
    with np.errstate(divide="ignore", invalid="ignore"):
        table = np.where(a == b, a * b, (a**2 - b**2) / (2 * np.log(a / b)))
    return left @ (table * (left.T @ force @ right.T)) @ right


@pytest.mark.covers("geometry:fig4.1a", "geometry:F37")
def test_the_hyperbola() -> None:
    dataset = made(FIGURES["geometry/fig4.1a"], seeds=30)
    assert FIGURES["geometry/fig4.1a"].preset("paper") == _low_rank.Hyperbola(200, 0.01, 2.0, 1e5)
    assert int(dataset["ended"].sel(outcome="converged")) == 30
    # One run against SciPy's implicit method, without stopping.
    start, time = dataset["start"][0].to_numpy(), 2 * float(dataset["time"][0])

    def field(t: float, flat: np.ndarray) -> np.ndarray:
        point = flat.reshape(2, 2)
        return -operator(point, 2 * np.eye(2) * (point - np.eye(2))).ravel()

    end = scipy.integrate.solve_ivp(field, (0, time), start.ravel(), "LSODA", rtol=1e-9, atol=1e-13).y[:, -1]
    np.testing.assert_allclose(dataset["end"][0].to_numpy().ravel(), end, atol=3e-5)


@pytest.mark.covers("geometry:fig4.1b", "geometry:F38", "geometry:S50")
def test_the_largest_singular_value_moves() -> None:
    dataset = made(FIGURES["geometry/fig4.1b"], seeds=12, points=POINTS)
    values, done = dataset["singular_value"].to_numpy(), dataset["converged"].to_numpy()
    assert done.sum() >= 6
    assert np.all((values[done, -1, 0] >= 5) & (values[done, -1, 0] <= 5.5))
    assert np.all(values[done, -1, 1:] < 0.02)


@pytest.mark.covers("geometry:fig4.2abc", "geometry:F39")
def test_effective_rank_over_time() -> None:
    figure = FIGURES["geometry/fig4.2abc"]
    dataset = made(figure, sizes=(5,), horizons=(10.0,), points=POINTS)
    ranks = dataset["effective_rank"][0].to_numpy()
    for place, mean, deviation in ((0, 3.949, 0.302), (-1, 3.050, 0.423)):
        error = math.sqrt(deviation**2 / 200 + ranks[:, place].var(ddof=1) / len(ranks))
        assert abs(ranks[:, place].mean() - mean) < 4 * error
    paper = figure.preset("paper")
    assert (paper.sizes, paper.seeds) == ((2, 5, 10, 25), 200)
    # A course that stays where it is claims nothing of the kind.
    flat = dataset.assign(effective_rank=dataset["effective_rank"].isel(point=[0] * POINTS))
    spec = dataclasses.replace(figure.preset("quick"), sizes=(5,), horizons=(10.0,), points=POINTS)
    assert any(claim.holds is False for claim in figure.claims(flat, spec))


@pytest.mark.covers("geometry:fig4.2d", "geometry:F40", "geometry:E15")
def test_effective_rank_against_the_dimension() -> None:
    dataset = made(FIGURES["geometry/fig4.2d"])
    slope, offset = np.polyfit(dataset["size"], dataset["end"].mean("run"), 1)
    means = dataset["end"].mean("run").to_numpy()
    explained = 1 - np.var(means - offset - slope * dataset["size"].to_numpy()) / np.var(means)
    assert 0.50 <= slope <= 0.62 and explained > 0.99
    assert FIGURES["geometry/fig4.2d"].preset("paper").sizes == (2, 3, 4, 5, 7, 10, 15, 20, 30, 40)


@pytest.mark.covers("geometry:depth-sweep", "geometry:F45")
def test_effective_rank_against_the_depth() -> None:
    dataset = made(FIGURES["geometry/depth-sweep"], size=5)
    means = dataset["end"][0].mean("run").to_numpy()
    assert np.all(np.diff(means) < 0)
    # One layer: the diagonal goes to one and nothing else moves.
    start = np.random.default_rng(0).standard_normal((30, 5, 5)) / math.sqrt(5)
    values = np.linalg.svd(start * (1 - np.eye(5)) + np.eye(5), compute_uv=False)
    shares = values / values.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(dataset["end"][0, 0], np.exp(-np.sum(shares * np.log(shares), axis=1)), rtol=1e-4)
    assert FIGURES["geometry/depth-sweep"].preset("paper").deviations == (0.0, 0.01)


@pytest.mark.covers("geometry:fig4.3", "geometry:F41")
def test_small_starts_end_at_rank_one() -> None:
    figure = FIGURES["geometry/fig4.3"]
    paper = figure.preset("paper")
    assert (paper.size, paper.deviations[-1], paper.seeds, paper.horizon) == (25, 0.001, 30, 100)
    recorded = {0.1: (9.84, 0.70), 0.001: (1.075, 0.032)}
    dataset = made(figure, size=25, deviations=tuple(recorded), seeds=20, points=POINTS)
    ranks = dataset["effective_rank"][:, :, -1].to_numpy()
    assert np.all(np.diff(ranks.mean(axis=1)) < 0) and ranks[-1].mean() < 1.2
    for found, (mean, deviation) in zip(ranks, recorded.values(), strict=True):
        error = math.sqrt(found.var(ddof=1) / len(found) + deviation**2 / 30)
        assert abs(found.mean() - mean) < 4 * error


@pytest.mark.covers("geometry:fig4.4", "geometry:F42")
def test_few_or_nearly_all_observed_entries_change_little() -> None:
    figure = FIGURES["geometry/fig4.4"]
    dataset = made(figure, observed=(1, 25, 99), labels=3, starts=6, horizon=10.0)
    means = dataset["effective_rank"].mean(("labels", "run")).to_numpy()
    assert min(means[0], means[-1]) - max(means[1:-1]) > 0.5
    assert int(dataset["ended"].sum()) == 3 * 3 * 6
    labels, order = figure.preset("quick").problems()
    assert np.abs(labels).max() <= 2 and np.all(np.sort(order, axis=1) == np.arange(100))
    # Observed entries of runs that have converged are met.
    assert float(dataset["loss"].sel(observed=25).median()) < 1e-6
    assert figure.preset("paper").observed == (1, 10, 25, 50, 99) and figure.preset("large").labels == 50


def test_a_run_that_lacks_steps_goes_on_by_the_implicit_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs are said to have run out of steps where they were at time 1; going on brings them to the same end."""
    start, times = _low_rank_runs.gaussian(0, 10, 2, 0.7), [0.0, 4.0]

    def followed(until: float) -> tuple[MatrixFlow, int]:
        energy = _low_rank_runs.unit_diagonal(2)
        return _low_rank_runs.follow(Context(), energy, start, [0.0, until], rtol=1e-6, gradient=1e-5, stiff=True)

    (whole, none), (early, _) = followed(4.0), followed(1.0)

    def tired(*given: Any, method: str = "explicit", steps: int = 0, **settings: Any) -> MatrixFlow:
        if method == "implicit":  # the same from there on; with the explicit method, which is compiled already
            point, moments = np.repeat(given[1][None], 10, axis=0), given[3]
            run = matrix_flow(given[0], point, given[2], moments, steps=_low_rank_runs.STEPS, **settings)
            names = ("spectra", "energies", "lengths", "end", "end_times", "gradients", "switches", "steps")
            return dataclasses.replace(
                run, **{name: np.asarray(getattr(run, name)[0]) for name in names}, status=run.status[:1]
            )
        cut = {name: getattr(whole, name).copy() for name in ("spectra", "energies", "lengths", "end", "end_times")}
        for name, values in cut.items():
            values[[3, 7]] = getattr(early, name)[[3, 7]]
        status = tuple("step limit" if k in (3, 7) else word for k, word in enumerate(whole.status))
        return dataclasses.replace(whole, **cut, status=status)

    assert none == 0 and early.status[3] == early.status[7] == "time limit"
    monkeypatch.setattr(_low_rank_runs, "matrix_flow", tired)
    mended, two = followed(4.0)
    assert two == 2 and mended.status == whole.status
    # Twice a flow at relative tolerance 1e-6, with other steps.
    for name in ("spectra", "energies", "lengths", "end"):
        np.testing.assert_allclose(getattr(mended, name), getattr(whole, name), atol=2e-5)
    np.testing.assert_allclose(mended.end_times[[3, 7]], times[-1], rtol=1e-12)


@pytest.mark.covers("geometry:fig4.5b", "geometry:F44", "geometry:E19")
def test_entropy_lowers_the_rank_and_lets_it_diverge() -> None:
    figure = FIGURES["geometry/fig4.5b"]
    dataset = made(figure, points=2)
    ranks = dataset["effective_rank"][0, :, :, -1]
    assert float(ranks[1].mean()) < float(ranks[0].mean()) and float(ranks[1].std()) < float(ranks[0].std())
    assert int(dataset["ended"].sel(energy="with entropy", outcome="converged").sum()) == 0
    spec = dataclasses.replace(figure.preset("quick"), points=2)
    assert any("s₁ exceeds 1000" in claim.note for claim in figure.claims(dataset, spec))


def test_comparisons_tell_what_differs() -> None:
    rng = np.random.default_rng(0)
    same = rng.normal(1.0, 0.2, 100)
    assert _low_rank_runs.same_mean("a", same, 1.0, deviation=0.2, count=100).holds is True
    assert _low_rank_runs.same_mean("a", same, 1.3, deviation=0.2, count=100).holds is False
    assert _low_rank_runs.same_mean("a", same[:5], 1.0, count=100).holds is None
    hits = np.arange(100) < 30
    assert _low_rank_runs.same_share("a", hits, 0.3, count=200).holds is True
    assert _low_rank_runs.same_share("a", hits, 0.6, count=200).holds is False
    assert _low_rank_runs.same_share("a", hits[:5], 0.3, count=200).holds is None


def test_bad_specs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Dynamics: horizons must have one value for each of the 2 sizes"):
        _low_rank_dimensions.Dynamics(sizes=(2, 5), horizons=(1.0,))
    with pytest.raises(ValueError, match=r"Sizes: sizes must hold at least three dimensions"):
        _low_rank_dimensions.Sizes(sizes=(2, 3))
    with pytest.raises(ValueError, match=r"Depths: depths must be positive whole numbers or infinity"):
        _low_rank_dimensions.Depths(depths=(1.5,))
    with pytest.raises(ValueError, match=r"Depths: depths must increase"):
        _low_rank_dimensions.Depths(depths=(3, 2))
    with pytest.raises(ValueError, match=r"Scales: deviations must decrease"):
        _low_rank_scales.Scales(deviations=(0.1, 0.2))
    with pytest.raises(ValueError, match=r"Scales: deviations\[0\] must be"):
        _low_rank_scales.Scales(deviations=(-0.1,))
    with pytest.raises(ValueError, match=r"Masks: observed must be at most 4"):
        _low_rank_masks.Masks(size=2, observed=(5,))
    with pytest.raises(ValueError, match=r"Regularised: factors, deviations and horizons must be equally many"):
        _low_rank_entropy.Regularised(factors=(1.0,))
