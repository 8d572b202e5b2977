"""How gradient flow of balanced recurrent students ends."""

import dataclasses

import numpy as np
import pytest

from deeplinear.experiments import Context
from deeplinear.experiments.catalog.rnn._convergence import EXPERIMENTS, Convergence
from deeplinear.plots import paper_style

(CHOSEN,) = EXPERIMENTS


@pytest.mark.covers("rnn:S11")
def test_losses_and_tails_over_long_times() -> None:
    assert CHOSEN.preset("paper") == Convergence()
    spec = dataclasses.replace(CHOSEN.preset("quick"), cases=((1, 3, 6),), forms=(), decades=8, per_decade=1, seeds=2)
    dataset = CHOSEN.run(spec, Context())
    claims = CHOSEN.claims(dataset, spec)
    assert len(claims) == 7
    assert [claim.statement for claim in claims if not claim.holds] == []
    # The recorded end of such a run: L t² between 0.1 and 100, a tail of 1.1e-7.
    assert float(dataset["tail"][0, :, -1].median()) < 1e-6
    np.testing.assert_allclose(dataset["time"][0], 10.0 ** np.arange(9))
    with paper_style():
        figure = CHOSEN.plot(dataset, spec)
    assert [axis.get_xscale() for axis in figure.axes] == ["log", "log"]
    # Over a shorter time the law of the loss is not claimed.
    short = dataclasses.replace(spec, decades=5)
    untold = CHOSEN.claims(dataset.isel(point=slice(6)), short)
    assert [claim.holds for claim in untold].count(None) == 1


def test_specs_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(ValueError, match="second of each of cases must be at least 5"):
        Convergence(cases=((2, 4, 8),))
    with pytest.raises(ValueError, match="'symmetric' or 'upper'"):
        Convergence(forms=("tied",))
    with pytest.raises(ValueError, match="rtol"):
        Convergence(rtol=1e-6)
