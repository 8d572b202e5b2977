"""Loss curves under their exponential envelopes."""

import dataclasses
import itertools

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.network._rates import EXPERIMENTS, STARTS, Rates
from deeplinear.plots import paper_style

(CHOSEN,) = EXPERIMENTS


@pytest.mark.covers("network:F26", "network:C26", "network:C27", "network:C28")
def test_envelopes_hold_and_products_say_nothing_near_balance() -> None:
    assert CHOSEN.preset("paper") == Rates()
    spec = dataclasses.replace(CHOSEN.preset("quick"), points=56)
    dataset = CHOSEN.run(spec, Context())
    claims = CHOSEN.claims(dataset, spec)
    assert len(claims) == 9
    assert [claim.statement for claim in claims if not claim.holds] == []
    # Recorded: 9.19 and 6.6e-10 at the end of the run from near the origin.
    assert float(dataset["sharp"].sel(start=STARTS[2])[-1]) == pytest.approx(9.19, abs=0.005)
    assert float(dataset["product"].sel(start=STARTS[2])[-1]) == pytest.approx(6.6e-10, abs=0.05e-10)
    # The rate for all times by hand, for the first start: eigenvalues of differences of Gram matrices.
    layers = [np.asarray(w) for w in spec.layers("pyramid")]
    rate = 1.0
    for i, (below, above) in enumerate(itertools.pairwise(layers), start=1):
        difference = below @ below.T - above.T @ above
        if i < spec.pivot:
            rate *= np.linalg.eigvalsh(difference)[spec.widths[i] - spec.widths[i - 1]]
        else:
            rate *= np.linalg.eigvalsh(-difference)[spec.widths[i] - spec.widths[i + 1]]
    assert float(dataset["lasting"][0]) == pytest.approx(rate, rel=1e-10)
    with paper_style():
        figure = CHOSEN.plot(dataset, spec)
    assert [axis.get_title() for axis in figure.axes[:3]] == list(STARTS)
    # Another start near the origin has no recorded end.
    assert len(CHOSEN.claims(dataset, dataclasses.replace(spec, long_seed=2))) == 7


def test_specs_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ValueError, match="one singular value for each of 3 modes"):
        Rates(sigma=(1.0,))
    with pytest.raises(ValueError, match="pivot must be at most 4"):
        Rates(pivot=5)
