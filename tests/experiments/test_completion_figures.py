"""Figures of the completion paper that are formulas, trainings of small matrices, or two phases."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from deeplinear.experiments import Claim, Context, experiment
from deeplinear.plots import paper_style

SIX_DIGITS = 5.1e-6
"""Half a unit in the sixth digit, relative."""

FORMULA = {
    # m, depth: sigma_1 / sigma_2 at alpha^L = 1e-1, 1e-2, 1e-4, 1e-6, to six digits
    (2, 2): [(9.30769, 0.0769231)] * 4,
    (2, 3): [(9.89311, 0.0118766), (9.98725, 0.00141678), (9.99986, 1.60598e-5), (10, 1.65107e-7)],
    (2, 4): [(9.94559, 0.00604513), (9.99437, 6.25446e-4), (9.99994, 6.34448e-6), (10, 6.35359e-8)],
    (10, 2): [(3.31193, 0.743119)] * 4,
    (10, 3): [(8.32992, 0.185565), (9.7209, 0.031011), (9.99596, 4.48586e-4), (9.99996, 4.88301e-6)],
    (10, 4): [(9.20173, 0.088697), (9.90805, 0.0102169), (9.99902, 1.08344e-4), (9.99999, 1.08989e-6)],
    (10, 5): [(9.4123, 0.0652996), (9.93727, 0.0069697), (9.99936, 7.11142e-5), (9.99999, 7.12048e-7)],
    (100, 2): [(1.18703, 0.979219)] * 4,
    (100, 3): [(1.75025, 0.916639), (3.28731, 0.745854), (9.40297, 0.0663369), (9.99023, 0.00108515)],
    (100, 4): [(3.04711, 0.772543), (8.03305, 0.21855), (9.97277, 0.00302592), (9.99972, 3.12308e-5)],
    (100, 5): [(4.93812, 0.562432), (9.22638, 0.0859582), (9.99147, 9.47635e-4), (9.99991, 9.53369e-6)],
}

OTHERS = {
    # alpha^L = 1e-2, m = 10, depths 2 to 5
    "fig5": [(5.27007, 1.18248), (9.87567, 0.031083), (9.95913, 0.0102186), (9.97212, 0.00697001)],
    "fig6": [(33.1193, 7.43119), (99.6422, 0.0397522), (99.9039, 0.0106817), (99.9363, 0.0070827)],
    "fig7": [(0.331193, 0.0743119), (0.832992, 0.0185565), (0.920173, 0.0088697), (0.94123, 0.00652996)],
    "fig8": [(1.41176, 0.794118), (2.75112, 0.124439), (2.94415, 0.0279262), (2.97249, 0.013756)],
}


def made(name: str, **changes: Any) -> tuple[Any, list[Claim]]:
    """Arrays and claims of an experiment's quick preset with some settings changed; its picture is drawn too."""
    chosen = experiment(f"completion/{name}")
    spec = dataclasses.replace(chosen.preset("quick"), **changes)
    dataset = chosen.run(spec, Context())
    with paper_style():
        figure = chosen.plot(dataset, spec)
    shown = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert all(axes.get_xlabel() for axes in shown[-len(shown) // 2 :])
    assert shown[0].get_ylabel()
    return dataset, list(chosen.claims(dataset, spec))


def failing(claims: list[Claim]) -> list[str]:
    return [f"{claim.statement}: {claim.measured} is not {claim.expected}" for claim in claims if not claim.holds]


@pytest.mark.covers("completion:fig2", "completion:F29")
def test_figure_2_has_the_values_of_its_table() -> None:
    dataset, claims = made("fig2", largest=1e-1, smallest=1e-10, points=10)
    assert failing(claims) == []
    for (m, depth), rows in FORMULA.items():
        for scale, wanted in zip((1e-1, 1e-2, 1e-4, 1e-6), rows, strict=True):
            here = dataset.sel(m=m, depth=depth).sel(scale=scale, method="nearest")
            got = [float(here["sigma_1"]), float(here["sigma_2"])]
            np.testing.assert_allclose(got, wanted, rtol=SIX_DIGITS)
    last = dataset.sel(m=1e10, depth=5).isel(scale=-1)
    np.testing.assert_allclose([last["sigma_1"], last["sigma_2"]], [1.00451, 0.999498], rtol=SIX_DIGITS)


@pytest.mark.covers("completion:fig5", "completion:fig6", "completion:fig7", "completion:fig8", "completion:F29")
@pytest.mark.parametrize("name", OTHERS)
def test_figures_5_to_8_have_the_values_of_their_table(name: str) -> None:
    dataset, claims = made(name, points=10)
    assert failing(claims) == []
    here = dataset.sel(m=10).sel(scale=1e-2, method="nearest")
    np.testing.assert_allclose(np.stack([here["sigma_1"], here["sigma_2"]], -1), OTHERS[name], rtol=SIX_DIGITS)


@pytest.mark.covers("completion:F29")
def test_figures_2_6_and_7_are_one_figure_rescaled() -> None:
    base, _ = made("fig2", largest=1e-2, smallest=1e-8, points=10)
    for name, value in (("fig6", 10.0), ("fig7", 0.1)):
        other, _ = made(name, largest=1e-2 * value, smallest=1e-8 * value, points=10)
        np.testing.assert_allclose(other["sigma_2"] / value, base["sigma_2"], rtol=1e-12)


@pytest.mark.covers("completion:F37")
def test_phase_diagram() -> None:
    dataset, claims = made("phases", points=200)
    assert failing(claims) == [] and len(claims) == 3
    # The line lies where the colours change: within a factor of two of it the second value is neither small nor large.
    ratio = dataset["ratio"].sel(depth=4)
    near = ratio.where(abs(np.log(dataset["m"] / dataset["crossover"].sel(deep=4))) < math.log(2))
    small = near.where(dataset["scale"] < 1e-3)
    assert 0.01 < float(small.min()) < 0.5 and 0.1 < float(small.max()) < 0.99


@pytest.mark.slow
@pytest.mark.covers("completion:fig9", "completion:F30", "completion:C33")
def test_figure_9_flow_and_descent_against_the_formula() -> None:
    dataset, claims = made("fig9", depths=(3,), scales=(1e-2, 1e-10), descent_scales=(1e-2,))
    assert failing(claims) == []
    assert float(dataset["error"].max()) < 1e-6
    # First order in the step, with the errors measured for it: 3.7e-2, 1.8e-2, 9.2e-3.
    np.testing.assert_allclose(dataset["order_error"], [3.7e-2, 1.8e-2, 9.2e-3], rtol=0.03)


OPTIMISERS = {"fig13": 1.553, "fig14": 1.553, "fig15": 1.718, "fig16": 1.727, "fig17": 1.726}
"""Mean stable rank at depth 2 and scale 1e-3 of ten other starts."""

DEVIATION = 0.32
"""Standard deviation of the stable rank over starts, the largest of the five optimisers, from 300 starts."""


@pytest.mark.slow
@pytest.mark.covers(
    "completion:fig13", "completion:fig14", "completion:fig15", "completion:fig16", "completion:fig17", "completion:F33"
)
@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers(name: str) -> None:
    dataset, claims = made(name, seeds=10, scales=(1e-3,))
    assert failing(claims) == []
    ranks = dataset["stable_rank"].mean("start").sel(scale=1e-3)
    error = DEVIATION * math.sqrt(1 / 10 + 1 / 10)
    assert abs(float(ranks.sel(depth=2)) - OPTIMISERS[name]) < 3 * error
    assert float(ranks.sel(depth=3)) < 1.25


@pytest.mark.covers("completion:F33")
def test_divergence_is_reported() -> None:
    """Steps too large: the runs are marked, left out of the means and counted by the claim."""
    dataset, claims = made("fig13", method="gd", lr=3.0, depths=(2,), seeds=2, scales=(1e-1,), max_steps=10_000)
    assert bool(dataset["diverged"].all())
    assert claims[0].holds is False and claims[0].measured == 2 and "2 of them diverged" in claims[0].note


@pytest.mark.slow
@pytest.mark.covers("completion:fig3", "completion:F34")
def test_figure_3_small() -> None:
    dataset, claims = made("fig3")
    assert failing(claims) == []
    assert dataset.sizes == {"phase": 3, "depth": 2, "scale": 1, "trial": 2}
    assert bool((dataset["loss"] <= 1e-3 * (1 + 1e-9)).all())


@pytest.mark.covers("completion:fig31", "completion:fig32", "completion:fig33", "completion:F34")
@pytest.mark.parametrize("name", ["fig31", "fig31-text", "fig32", "fig33"])
def test_figures_31_to_33(name: str) -> None:
    dataset, claims = made(name)
    assert failing(claims) == []
    assert any("Reference values" in claim.statement for claim in claims)
    if name != "fig33":
        before = dataset["effective_rank"].sel(phase="before")
        np.testing.assert_allclose(before, [1.3841, 1.9609, 1.9996, 2.0], atol=6e-5)


@pytest.mark.covers("completion:F40")
def test_the_same_seed_gives_the_same_numbers() -> None:
    chosen = experiment("completion/fig13")
    spec = dataclasses.replace(chosen.preset("quick"), seeds=2, scales=(1e-1,), depths=(2,), max_steps=1000)
    first, again, other = (chosen.run(one, Context()) for one in (spec, spec, dataclasses.replace(spec, seed=1)))
    assert first.equals(again) and not first.equals(other)
    assert bool(np.isfinite(first["stable_rank"]).all())
