"""Figures 1 and 4 of the completion paper, and the batch of flows they rest on."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.completion._flows import flow_limits, normal_layers
from deeplinear.experiments.catalog.completion._ranks import EXPERIMENTS, RankSpec
from deeplinear.plots import paper_style

pytestmark = pytest.mark.slow

TWO, ALL = EXPERIMENTS

# Mean effective ranks measured once with another integrator, other draws and 10 trials for each pattern, at scales
# 1e-1, 1e-3, 1e-5 and depths 2, 3.
ALL_PATTERNS = {
    "connected": [[1.643, 1.152, 1.083], [1.510, 1.093, 1.001]],
    "disconnected": [[1.678, 1.488, 1.545], [1.572, 1.124, 1.007]],
}
TWO_PATTERNS = {
    "disconnected": [[1.343, 1.306, 1.314], [1.193, 1.028, 1.003], [1.123, 1.006, 1.001]],
    "connected": [[1.292, 1.015, 1.000], [1.194, 1.014, 1.000], [1.164, 1.008, 1.000]],
}
SIGMAS = 4.5
"""Standard errors that two independent estimates may be apart at the worst of 18 points."""
TAILS = 0.02
"""Added to that: deep means rest on a few trials of high rank, which a sample of 100 may miss, error and all."""
DRAWS = 0.2
"""Four times the 0.05 by which means over 10 trials of each pattern differ from draw to draw."""


def stiff_effective_rank(targets: np.ndarray, layers: list[np.ndarray], below: float) -> float:
    """Effective rank where SciPy's stiff solver first has the diagonal fitted to a loss; written out in plain NumPy."""
    depth, width = len(layers), layers[0].shape[0]

    def split(y: np.ndarray) -> np.ndarray:
        return y.reshape(depth, width, width)

    def product(matrices: list[np.ndarray]) -> np.ndarray:
        result = np.eye(width)
        for matrix in matrices:
            result = matrix @ result
        return result

    def residual(y: np.ndarray) -> np.ndarray:
        return np.diag(np.diag(product(list(split(y)))) - targets)

    def field(t: float, y: np.ndarray) -> np.ndarray:
        w, r = list(split(y)), residual(y)
        return np.concatenate([-(product(w[k + 1 :]).T @ r @ product(w[:k]).T).ravel() for k in range(depth)])

    def fitted(t: float, y: np.ndarray) -> float:
        return float(np.log(0.5 * np.sum(residual(y) ** 2) / below))

    fitted.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    start = np.concatenate([layer.ravel() for layer in layers])
    run = solve_ivp(field, (0, 1e7), start, method="LSODA", rtol=1e-10, atol=1e-13, events=fitted)
    assert run.status == 1
    s = np.linalg.svd(product(list(split(run.y_events[0][0]))), compute_uv=False)
    shares = s / s.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


@pytest.mark.covers("completion:F27")
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_batch_ends_where_a_stiff_solver_ends(depth, seed):
    members, compared, scale, below = 32, 4, 1e-2, 1e-14
    # Away from zero, which a start that leads to it fits only after infinite time.
    values = 0.2 + np.abs(np.asarray(jax.random.normal(jax.random.key(seed), (members, 2))))
    layers = [
        scale ** (1 / depth) * np.asarray(w) for w in normal_layers(jax.random.key(100 + seed), depth, members, 2)
    ]
    targets = values[:, :, None] * np.eye(2)
    limits = flow_limits(Context(), targets, np.eye(2), layers, rtol=2e-7, below=below, max_steps=100_000)
    assert limits.finished.all() and np.all(limits.loss <= below)
    for k in range(compared):
        expected = stiff_effective_rank(values[k], [w[k] for w in layers], below)
        assert limits.effective_rank[k] == pytest.approx(expected, abs=1e-6)


def by_scale(experiment, spec):
    """A run of each scale by itself, put together: the same draws, but so few members that one program moves them all.

    All scales together would have programs of their own for flows side by side. The two patterns share theirs with the
    batches above.
    """
    import xarray

    parts = [experiment.run(dataclasses.replace(spec, scales=(scale,)), Context()) for scale in spec.scales]
    return xarray.concat(parts, dim="scale", data_vars="minimal"), spec


@pytest.fixture(scope="module")
def two(seed):
    return by_scale(TWO, dataclasses.replace(TWO.preset("quick"), depths=(2, 3, 4), seed=seed))


@pytest.fixture(scope="module")
def every(seed):
    # Means at loss 1e-6 are within 0.003 of those at 1e-8, without waiting for the slowest flows, to tiny entries.
    return by_scale(ALL, dataclasses.replace(ALL.preset("quick"), loss_below=1e-6, seed=seed))


@pytest.mark.covers("completion:F28", "completion:fig1")
def test_only_two_layers_on_the_diagonal_keep_rank_two(two):
    dataset, spec = two
    assert [claim.statement for claim in TWO.claims(dataset, spec) if claim.holds is not True] == []
    ranks = dataset["effective_rank"]
    assert ranks.dims == ("depth", "pattern", "scale", "trial") and float(ranks.min()) >= 1
    diagonal = dataset["mean"].sel(pattern="disconnected")
    assert np.all((diagonal.sel(depth=2) > 1.2) & (diagonal.sel(depth=2) < 1.45))
    assert np.all(diagonal.sel(depth=[3, 4], scale=1e-5) <= 1.02)
    assert np.all(dataset["mean"].sel(pattern="connected", scale=1e-5) <= 1.01)
    for pattern, table in TWO_PATTERNS.items():
        part = dataset.sel(pattern=pattern)
        error = np.sqrt(1 + spec.trials / 300) * part["standard_error"].values
        assert np.all(np.abs(part["mean"].values - table) <= SIGMAS * error + TAILS)


@pytest.mark.covers("completion:F28", "completion:fig4")
def test_only_two_layers_on_disconnected_patterns_keep_a_high_rank(every):
    dataset, spec = every
    assert [claim.statement for claim in ALL.claims(dataset, spec) if claim.holds is not True] == []
    assert dataset["effective_rank"].sizes == {"depth": 2, "pattern": 23, "scale": 3, "trial": 10}
    observed = dataset["mask"].sum(("row", "column"))
    assert int(observed.min()) == 2 and int(observed.max()) == 8
    for group, table in ALL_PATTERNS.items():
        assert dataset["mean"].sel(group=group).values == pytest.approx(np.array(table), abs=DRAWS)


@pytest.mark.parametrize("which", [0, 1])
def test_data_are_stored_and_drawn(which, two, every, tmp_path):
    import xarray

    experiment, (dataset, spec) = ((TWO, two), (ALL, every))[which]
    dataset.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "data.nc", engine="h5netcdf") as stored:
        xarray.testing.assert_identical(stored.load(), dataset)
    with paper_style():
        figure = experiment.plot(dataset, spec)
        figure.savefig(tmp_path / "figure.png")
    assert all("alpha" in axes.get_xlabel() and axes.get_title() for axes in figure.axes)
    assert "rank" in figure.axes[0].get_ylabel()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [f"depth {d}" for d in spec.depths]


def test_flows_that_do_not_finish_are_counted_and_kept(every):
    dataset, spec = every
    cut = dataset.copy()
    cut["finished"] = cut["finished"].copy(deep=True)
    cut["finished"][0, 0, 0, :3] = False
    counted = next(claim for claim in ALL.claims(cut, spec) if "did not reach" in claim.statement)
    assert counted.holds is False and counted.measured == 3


def test_presets_have_the_numbers_of_the_paper():
    assert TWO.preset("paper").trials == 300 and ALL.preset("paper").trials == 10
    for experiment, name in itertools.product(EXPERIMENTS, ("quick", "paper", "large")):
        assert experiment.preset_of(experiment.preset(name)) == name


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"depths": (1,)}, "depths"),
        ({"depths": (2, 2)}, "depths"),
        ({"scales": ()}, "scales"),
        ({"scales": (0.0,)}, "scales"),
        ({"trials": 1}, "trials"),
        ({"loss_below": 0.0}, "loss_below"),
        ({"rtol": 1.0}, "rtol"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_specs_are_refused_by_name(change, named):
    with pytest.raises(ValueError, match=named):
        RankSpec(**change)
