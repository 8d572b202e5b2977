"""Saddles that runs from near the origin visit, named by two independent means."""

import dataclasses
import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.experiments import Context
from deeplinear.experiments.catalog.network._plateaus import EXPERIMENTS, Plateaus, named_by_loss
from deeplinear.landscape import diagonal_target, itinerary
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import paper_style
from deeplinear.probes import gradient_norm, loss, product

(PLATEAUS,) = EXPERIMENTS


@pytest.mark.covers("network:F37")
def test_plateaus_are_found_where_the_loss_says() -> None:
    """Two modes in three layers: the origin, the stronger mode, both, in every run; the levels by hand."""
    spec = dataclasses.replace(PLATEAUS.preset("quick"), inp=3, hidden=2, out=2, runs=3)
    dataset = PLATEAUS.run(spec, Context())
    claims = PLATEAUS.claims(dataset, spec)
    assert len(claims) == 4 and [claim.statement for claim in claims if not claim.holds] == []
    assert dataset["found"].to_numpy().tolist() == [[[0, 1, 3]] * 3]  # modes as bits
    np.testing.assert_array_equal(dataset["found"], dataset["by_loss"])
    # On the plateau between both modes the loss is half the square of the weaker one.
    first, second = dataset["example_sigma"].to_numpy()
    losses, sizes = dataset["example_loss"].to_numpy(), dataset["example_gradient"].to_numpy()
    between = (losses < 0.5 * second**2 + 0.1 * first**2) & (losses > 0.4 * second**2)
    quiet = np.flatnonzero(between)[np.argmin(sizes[between])]
    assert losses[quiet] == pytest.approx(0.5 * second**2, rel=0.01)
    with paper_style():
        figure = PLATEAUS.plot(dataset, spec)
    assert [axes.get_title() for axes in figure.axes][:2] == ["one run of depth 3", "saddles visited"]
    assert PLATEAUS.preset("paper") == Plateaus()
    # A run whose saddles are told wrongly is seen.
    wrong = dataset.copy(deep=True)
    wrong["agree"][0, 0] = False
    wrong["agree_wider"][0, 0] = False
    assert [claim.holds for claim in PLATEAUS.claims(wrong, spec)[:2]] == [False, False]


def test_a_saddle_passed_beyond_a_tenth_is_told_apart() -> None:
    """Run 28 of depth 5 has {1, 3} on its way at a distance between 0.1 and 0.12; its loss there is within 1 %."""
    rng = np.random.default_rng([0, 5, 28])
    sigma = np.cumsum(rng.uniform(0.7, 1.5, 3))[::-1].copy()
    widths = Plateaus().widths(5)
    problem = Problem(DeepLinear(widths), SquaredDistance(diagonal_target(jnp.asarray(sigma), 3, 5)))
    start = tuple(
        jnp.asarray(0.12 * rng.standard_normal((rows, columns))) for columns, rows in itertools.pairwise(widths)
    )
    run = simulate(
        problem,
        start,
        GradientFlow(1e-8),
        horizon=1e6,
        every=1,
        probes=(loss, product, gradient_norm),
        until=until(loss, below=1e-12),
    )
    greedy = [(), (1,), (1, 2), (1, 2, 3)]
    passed = [(), (1,), (1, 3), (1, 2), (1, 2, 3)]
    assert [list(itinerary(problem, run, close=close).signatures) for close in (0.1, 0.12)] == [greedy, passed]
    assert named_by_loss(run["loss"], run["gradient_norm"], sigma) == passed


def test_valleys_of_the_gradient_are_named_by_their_loss() -> None:
    """Losses of (3, 2): 6.5 at the origin, 2 with the first mode, 0 with both; 5.9 is no critical value."""
    sizes = np.array([1e-3, 1.0, 1e-2, 1.0, 1e-3])
    sigma = np.array([3.0, 2.0])
    assert named_by_loss(np.array([6.5, 4.0, 2.0, 1.0, 0.0]), sizes, sigma) == [(), (1,), (1, 2)]
    assert named_by_loss(np.array([6.5, 6.0, 5.9, 1.0, 0.0]), sizes, sigma) == [(), None, (1, 2)]
    assert named_by_loss(np.array([6.5, 6.0, 4.5, 1.0, 0.0]), sizes, sigma) == [(), (2,), (1, 2)]
    shallow = np.array([1e-3, 1.0, 0.9, 1.0, 1e-3])
    assert named_by_loss(np.array([6.5, 4.0, 2.0, 1.0, 0.0]), shallow, sigma) == [(), (1, 2)]


def test_specs_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ValueError, match="one number for each of the 1 depths"):
        Plateaus(depths=(3,))
    with pytest.raises(ValueError, match="out must be at most 2"):
        Plateaus(out=3, hidden=2)
    with pytest.raises(ValueError, match="least_step must be"):
        Plateaus(least_step=math.inf)
