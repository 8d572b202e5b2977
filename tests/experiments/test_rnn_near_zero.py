"""Networks that start near zero: powers of the scale, growth of the order."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.rnn._near_zero import EXPERIMENTS, Exponents, Growth, slopes
from deeplinear.plots import paper_style

EXPONENTS, GROWTH = EXPERIMENTS


@pytest.mark.covers("rnn:F11", "rnn:S16")
def test_ratios_fall_with_the_predicted_powers() -> None:
    spec = dataclasses.replace(EXPONENTS.preset("quick"), states=6, scales=(1e-4, 1e-5, 1e-6), draws=1)
    dataset = EXPONENTS.run(spec, Context())
    claims = EXPONENTS.claims(dataset, spec)
    early = [claim for claim in claims if "θ = 0.75" not in claim.statement]
    assert len(claims) == 18 and [claim.statement for claim in early if not claim.holds] == []
    expected = dataset["expected"].sel(quantity="imbalance").to_numpy()
    np.testing.assert_array_equal(expected, [[0.5, 1.0, 1.0], [0.5, 1.0, 1.5]])
    # At the start of the way the linearised flow is exact: by hand from the draw.
    small = np.random.default_rng([spec.seed, 0])
    _, b, c = small.standard_normal((6, 6)), small.standard_normal(6), small.standard_normal(6)
    by_hand = np.linalg.norm(b - c) / np.linalg.norm(b + c) * spec.scales[-1] ** 0.5
    found = float(dataset["size"].sel(quantity="imbalance", form="general", fraction=0.25)[0, -1])
    assert found == pytest.approx(by_hand, rel=0.02)
    with paper_style():
        figure = EXPONENTS.plot(dataset, spec)
    assert len(figure.axes) == 4 and figure.axes[0].get_title() == "general A, 6 states, 1 draws"
    wrong = dataset.copy(deep=True)
    wrong["exponent"][1] += 0.1
    assert sum(not claim.holds for claim in EXPONENTS.claims(wrong, spec) if "θ = 0.25" in claim.statement) == 2
    assert EXPONENTS.preset("paper") == Exponents()


@pytest.mark.covers("rnn:F13")
def test_the_order_grows_by_one() -> None:
    spec = dataclasses.replace(GROWTH.preset("quick"), scales=(1e-3, 3e-4, 1e-4), draws=1, rtol=1e-9)
    dataset = GROWTH.run(spec, Context())
    claims = GROWTH.claims(dataset, spec)
    assert len(claims) == 12 and [claim.statement for claim in claims if not claim.holds] == []
    order = dataset["order"].to_numpy()
    assert set(np.unique(order)) == {1, 2}
    # At the end the response is that of the teacher: singular values of its Hankel matrix of 20 rows.
    h = 0.6 * 0.9 ** np.arange(39) + 0.4 * (-0.5) ** np.arange(39)
    values = np.linalg.svd(h[np.add.outer(np.arange(20), np.arange(20))], compute_uv=False)
    np.testing.assert_allclose(
        dataset["singular_values"].to_numpy()[..., -1, :2], np.tile(values[:2], (2, 1, 3, 1)), rtol=1e-5
    )
    assert dataset["atoms"].to_numpy()[..., -1].tolist() == [[[2, 2, 2]], [[2, 2, 2]]]
    p = np.array([0.6, 0.4])
    np.testing.assert_allclose(dataset["entropy"].to_numpy()[..., -1], np.exp(-np.sum(p * np.log(p))), rtol=1e-3)
    with paper_style():
        figure = GROWTH.plot(dataset, spec)
    assert [axes.get_title() for axes in figure.axes][2] == "state dimension, general A"
    wrong = dataset.copy(deep=True)
    wrong["order"][0, 0, 0, -1] = 1
    assert [claim.holds for claim in GROWTH.claims(wrong, spec)].count(False) == 2
    assert GROWTH.preset("paper") == Growth()


def test_slopes_and_refusals() -> None:
    scales = (1e-1, 1e-2, 1e-4)
    values = np.stack([3 * np.array(scales) ** 2, np.array(scales) ** 0.5])
    np.testing.assert_allclose(slopes(scales, values, 1), [2, 0.5], rtol=1e-12)
    with pytest.raises(ValueError, match="falling order"):
        Exponents(scales=(1e-3, 1e-2))
    with pytest.raises(ValueError, match="one weight for each of the 2 modes"):
        Growth(shares=(1.0,))
    with pytest.raises(ValueError, match="scales must be"):
        Growth(scales=(0.5, 0.1))
    with pytest.raises(ValueError, match="entries must be at least 6"):
        Growth(entries=5)
