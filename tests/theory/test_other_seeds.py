"""Statements hold at every seed: those whose random instances are the most delicate, at some more of them.

Here a student without loss may be ill-conditioned, a descent steep, two rates close, a planted violation harmless.
"""

import numpy as np
import pytest

from deeplinear.theory import STATUS, check, generator, verify
from deeplinear.theory.exact import _closed_forms, _two_layers

SEEDS = (1, 2, 11, 12)
INSTANCES = 12


@pytest.mark.parametrize(
    "name",
    [
        "exact/any-width",
        "geometry/lemma-4.3.5-proof",
        "geometry/theorem-2.2.1",
        "rnn/erratum-theorem-5-sizes",
        "rnn/lemma-7",
        "rnn/lemma-7-interval",
        "rnn/lemma-c.6",
        "rnn/mimo-uniqueness",
    ],
)
def test_statement_holds_at_other_seeds(name: str) -> None:
    statement = check(name)
    wanted = STATUS.holds if statement.printed is None else STATUS.erratum
    for seed in SEEDS:
        outcome = verify(statement, instances=INSTANCES, seed=seed)
        assert outcome.status is wanted, f"seed {seed}: {outcome.message}"


def test_planted_violations_break_only_what_they_name() -> None:
    """Coloured inputs, of layers that are balanced; singular vectors that are those of no other decomposition."""
    for seed in range(20):
        (violation,) = _closed_forms.WIDTHS.violations
        assert _two_layers.imbalance(violation.draw(generator(violation.name, seed))) < 1e-12
        (violation,) = check("geometry/theorem-2.2.1").violations
        assert np.ptp(violation.draw(generator(violation.name, seed)).values) > 0
