"""Figures and tables on noise, on the balance of random layers and on low-rank adapters."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from deeplinear.experiments import Claim, Context
from deeplinear.experiments.catalog.exact import EXPERIMENTS
from deeplinear.plots import paper_style

BY_NAME = {chosen.id.removeprefix("exact/"): chosen for chosen in EXPERIMENTS}


def made(name: str, preset: str = "quick", **changes: Any) -> tuple[Any, list[Claim]]:
    """Arrays and claims of an experiment with some settings changed; its picture is drawn too."""
    chosen: Any = BY_NAME[name]
    spec = dataclasses.replace(chosen.preset(preset), **changes)
    dataset = chosen.run(spec, Context())
    with paper_style():
        figure = chosen.plot(dataset, spec)
    shown = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    assert all(axes.get_xlabel() for axes in shown)
    assert shown[0].get_ylabel()
    return dataset, list(chosen.claims(dataset, spec))


def failing(claims: list[Claim]) -> list[str]:
    return [f"{c.statement}: {c.measured} is not {c.expected}" for c in claims if c.holds is False]


@pytest.mark.covers("exact:fig1c", "exact:F24", "exact:E17")
def test_figure_1c() -> None:
    dataset, claims = made("fig1c", "paper")
    assert failing(claims) == []
    balance = dataset["balance"].sel(init="LeCun").to_numpy()
    assert balance.shape == (120, 120)
    np.testing.assert_allclose(np.diag(balance).mean(), 1.083, atol=4 * 0.291 / 120**0.5)
    values = dataset["eigenvalue"].to_numpy()
    assert values.min() < -4.5 and values.max() > 4.3  # not near λ = 1.083


@pytest.mark.covers("exact:fig4e", "exact:F22")
def test_figure_4e_has_its_recorded_values() -> None:
    dataset, claims = made("fig4e")
    assert failing(claims) == []
    assert sum("ecorded" in claim.statement for claim in claims) == 2
    weights = dataset["formula"].sel(noise="weights", std=0.5)
    np.testing.assert_allclose(weights.sel(lam=[0.0, 2.0, 5.0]), [3.685, 6.612, 12.436], atol=5.1e-4)
    np.testing.assert_allclose(dataset["formula"].sel(noise="inputs", lam=0.0), [0.3083, 0.3891, 0.6314], atol=5.1e-5)


@pytest.mark.covers("exact:fig6", "exact:F24", "exact:E17")
def test_figure_6() -> None:
    dataset, claims = made("fig6", "paper")
    assert failing(claims) == []
    np.testing.assert_allclose(dataset["lam"], [0.5, 1.0, 5.0, -0.1333], atol=5e-5)
    np.testing.assert_allclose(dataset["variance_off_diagonal"] ** 0.5, [0.158, 0.316, 0.553, 0.152], atol=5e-4)
    lecun = dataset["eigenvalue"].sel(init="LeCun").to_numpy()
    assert lecun.min() < -1.6 and lecun.max() > 3.4


@pytest.mark.covers("exact:fig7", "exact:E16")
def test_figure_7() -> None:
    dataset, claims = made("fig7", points=11)
    assert failing(claims) == []
    glorot = dataset["lam"].sel(init="Glorot")
    assert bool((glorot.where(glorot["r"] > 1.01, drop=True) > 0).all())
    assert bool((glorot.where(glorot["r"] < 0.99, drop=True) < 0).all())


@pytest.mark.covers("exact:table1", "exact:table2", "exact:table3", "exact:F24", "exact:E10", "exact:E11", "exact:E13")
def test_tables() -> None:
    dataset, claims = made("tables", "paper", draws=2000)
    assert failing(claims) == []
    assert all(claim.holds for claim in claims)
    assert abs(float(dataset["corrected"].sel(init="LeCun", quantity="mean")) - 0.25) < 1e-12
    np.testing.assert_allclose(dataset["limit"].sel(init="He").isel(case=slice(1, 4)), [-2.0, 2.5, -2.0], atol=1e-12)


@pytest.mark.slow
@pytest.mark.covers("exact:lora", "exact:F32", "exact:E31")
def test_adapters() -> None:
    dataset, claims = made("lora", lams=(0.1, 10.0), points=15)
    assert failing(claims) == []
    balanced = dataset.sel(kind="balanced")
    np.testing.assert_allclose(balanced["theory"], balanced["loss"], atol=1e-8)
    # The best approximation of rank 2 leaves the third strength.
    np.testing.assert_allclose(balanced["loss"].isel(time=-1), 0.5 * 0.5**2, atol=1e-6)
