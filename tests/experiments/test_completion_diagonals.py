"""Figures 10, 11 and 12 of the completion paper."""

import dataclasses
import math

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.completion._diagonals import EXPERIMENTS, NoiseSpec, StartSpec, ValuesSpec
from deeplinear.plots import paper_style

pytestmark = pytest.mark.slow

STARTS, NOISE, VALUES = EXPERIMENTS

# Effective ranks of the limit from starts of the family at alpha^L = 1e-3, to three digits, for the m named.
FAMILY_M = [1.1, 2, 5, 10, 30, 100, 1e3, 1e4]
FAMILY = {
    2: [1.016, 1.531, 2.572, 2.882, 2.987, 2.999, 3, 3],
    3: [1.000, 1.002, 1.023, 1.097, 1.636, 2.712, 2.997, 3],
    4: [1.000, 1.001, 1.005, 1.017, 1.093, 1.519, 2.947, 3],
    5: [1.000, 1.000, 1.003, 1.008, 1.037, 1.182, 2.678, 2.997],
}
# Mean stable ranks at alpha^L = 1e-1, 1e-2, 1e-3, 1e-4.
NOISELESS = {2: [4.284] * 4, 3: [3.096, 1.960, 1.180, 1.011], 4: [2.085, 1.072, 1.001, 1], 5: [1.492, 1.009, 1, 1]}
LITTLE_NOISE = {2: [4.280] * 4, 3: [3.095, 1.959, 1.179, 1.011]}
LAST_DIGIT = 1.01e-3
"""Of a table with three digits after the point."""
REACHED = 1e-3
"""What a loss of 1e-8, entries off by 1e-4, may change in a stable rank."""
SIGMAS = 5
"""Standard errors allowed between a mean over draws and the mean of all draws."""


def two_layer_ranks(values: np.ndarray, m: float) -> np.ndarray:
    r"""Stable ranks of $\sqrt{w_i w_j}\cos\theta_{ij}$, where two equal symmetric layers end for positive values.

    Row $a_i$ and column $b_i$ start equal and only change their length, so the angles $\theta_{ij}$ between the rows of
    the start stay as they are.
    """
    start = np.where(np.eye(values.shape[-1], dtype=bool), 1.0, 1 / m)
    rows = start / np.linalg.norm(start, axis=1, keepdims=True)
    limit = np.sqrt(values)[..., :, None] * (rows @ rows.T) * np.sqrt(values)[..., None, :]
    s = np.linalg.svd(limit, compute_uv=False)
    return np.sum((s / s[..., :1]) ** 2, axis=-1)


@pytest.fixture(scope="module")
def starts(seed):
    spec = dataclasses.replace(STARTS.preset("quick"), depths=(2, 3, 4), seed=seed)
    return STARTS.run(spec, Context()), spec


@pytest.fixture(scope="module")
def noise(seed):
    spec = dataclasses.replace(NOISE.preset("quick"), seed=seed)
    return NOISE.run(spec, Context()), spec


@pytest.fixture(scope="module")
def values():
    # Four scales at four m make 16 members; twice as many share compiled code with the noisy diagonal.
    spec = dataclasses.replace(VALUES.preset("quick"), scales=(1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6))
    return VALUES.run(spec, Context()), spec


def failures(experiment, dataset, spec):
    return [f"{claim.statement} {claim.measured}" for claim in experiment.claims(dataset, spec) if not claim.holds]


@pytest.mark.covers("completion:F31", "completion:fig10")
def test_both_kinds_of_starts_lose_rank_with_depth(starts):
    dataset, spec = starts
    assert failures(STARTS, dataset, spec) == []
    family = dataset["family"].sel(m=FAMILY_M)
    for depth in spec.depths:
        assert family.sel(depth=depth).values == pytest.approx(FAMILY[depth], abs=LAST_DIGIT)
    medians = dataset["effective_rank"].median("trial")
    assert medians.sel(depth=2) > 1.8 and medians.sel(depth=3) < 1.2 and medians.sel(depth=4) < 1.05


@pytest.mark.covers("completion:F32", "completion:fig11")
def test_noise_on_the_diagonal_changes_little(noise):
    dataset, spec = noise
    assert failures(NOISE, dataset, spec) == []
    for depth in spec.depths:
        part = dataset.sel(depth=depth)
        assert part["stable_rank_noiseless"].values == pytest.approx(NOISELESS[depth], abs=LAST_DIGIT)
        assert part["theory"].values == pytest.approx(NOISELESS[depth], abs=LAST_DIGIT)
        assert part["mean"].sel(noise=0.01).values == pytest.approx(LITTLE_NOISE[depth], abs=0.02)


@pytest.mark.covers("completion:F32")
def test_noise_at_depth_two_against_plain_geometry(noise):
    dataset, spec = noise
    shallow = dataset["stable_rank"].sel(depth=2)
    expected = two_layer_ranks(dataset["observed"].values, spec.m)
    for scale in spec.scales:
        assert shallow.sel(scale=scale).values == pytest.approx(expected, abs=REACHED)
    draws = 1 + 0.1 * np.random.default_rng(0).standard_normal((20_000, spec.width))
    everything = two_layer_ranks(draws, spec.m)
    mean = float(shallow.sel(noise=0.1).mean())
    assert mean == pytest.approx(everything.mean(), abs=SIGMAS * everything.std() / math.sqrt(spec.draws))


@pytest.mark.covers("completion:F32", "completion:fig12")
def test_different_values_on_the_diagonal(values):
    dataset, spec = values
    assert failures(VALUES, dataset, spec) == []
    ranks = dataset["stable_rank"]
    assert ranks.sel(m=math.inf).values == pytest.approx(1.875, abs=2e-3)
    assert ranks.sel(m=100, depth=2).values == pytest.approx(1.8699, abs=2e-3)
    assert ranks.sel(m=10, depth=2).values == pytest.approx(1.4685, abs=2e-3)
    assert ranks.sel(m=2, depth=2).values == pytest.approx(1.0036, abs=2e-3)
    assert float(ranks.sel(m=100, depth=3, scale=1e-3)) == pytest.approx(1.0100, abs=2e-3)
    assert ranks.sel(m=100, depth=3, scale=[1e-1, 1e-5]).values == pytest.approx([1.787, 1.0], abs=0.02)
    assert ranks.sel(m=10, depth=3, scale=[1e-1, 1e-3]).values == pytest.approx([1.023, 1.0], abs=0.02)
    for position, m in enumerate(spec.ms):
        expected = two_layer_ranks(np.asarray(spec.values), m)
        assert dataset["exact"].values[position] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_data_are_stored_and_drawn(which, starts, noise, values, tmp_path):
    import xarray

    experiment, (dataset, spec) = ((STARTS, starts), (NOISE, noise), (VALUES, values))[which]
    words = ("effective", "stable", "stable")[which]
    dataset.to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    with xarray.open_dataset(tmp_path / "data.nc", engine="h5netcdf") as stored:
        xarray.testing.assert_identical(stored.load(), dataset)
    with paper_style():
        figure = experiment.plot(dataset, spec)
        figure.savefig(tmp_path / "figure.png")
    assert all(axes.get_xlabel() and axes.get_title() for axes in figure.axes)
    assert words in figure.axes[0].get_ylabel()
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {f"depth {d}" for d in spec.depths} <= set(labels)


def test_presets_have_the_numbers_of_the_paper():
    assert STARTS.preset("paper").trials == 1000
    assert (NOISE.preset("paper").draws, NOISE.preset("paper").width, NOISE.preset("paper").m) == (10, 5, 100)
    assert NOISE.preset("paper").noises == (0.01, 0.05, 0.1)
    assert VALUES.preset("paper").values == (0, 0.5, 1, 1.5, 2)


@pytest.mark.parametrize(
    ("kind", "change", "named"),
    [
        (StartSpec, {"ms": (0.5,)}, "ms"),
        (StartSpec, {"scale": 0.0}, "scale"),
        (StartSpec, {"trials": 1}, "trials"),
        (NoiseSpec, {"noises": (0.0,)}, "noises"),
        (NoiseSpec, {"draws": 1}, "draws"),
        (NoiseSpec, {"value": 0.0}, "value"),
        (NoiseSpec, {"m": 0.9}, "m "),
        (ValuesSpec, {"values": (1.0,)}, "values"),
        (ValuesSpec, {"values": (0.0, 0.0)}, "values"),
        (ValuesSpec, {"values": (-1.0, 1.0)}, "values"),
        (ValuesSpec, {"max_steps": 0}, "max_steps"),
    ],
)
def test_bad_specs_are_refused_by_name(kind, change, named):
    with pytest.raises(ValueError, match=named):
        kind(**change)
