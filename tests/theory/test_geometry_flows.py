"""Statements on the flow of the product of balanced layers hold, and their planted violations do not."""

import pytest

from deeplinear.theory import verify
from deeplinear.theory.geometry._flows import CHECKS

WRONG = {"geometry/lemma-4.1.2", "geometry/corollary-4.1.3.1"}
"""What is printed wrongly."""


CHECKS_BY_ID = {check.id: check for check in CHECKS}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("geometry/theorem-2.1.2", marks=pytest.mark.covers("geometry:S5")),
        pytest.param("geometry/lemma-4.1.1", marks=pytest.mark.covers("geometry:S28")),
        pytest.param("geometry/lemma-4.1.2", marks=pytest.mark.covers("geometry:S29", "geometry:E9")),
        pytest.param("geometry/corollary-4.1.3.1", marks=pytest.mark.covers("geometry:S30", "geometry:E9")),
        pytest.param("geometry/log-determinant", marks=pytest.mark.covers("geometry:S31")),
    ],
)
def test_the_statement(name: str, seed: int) -> None:
    check = CHECKS_BY_ID[name]
    outcome = verify(check, instances=3, seed=seed)
    assert outcome.status.name == ("erratum" if check.id in WRONG else "holds"), outcome.message
    assert all(trial.caught for trial in outcome.trials)


def test_every_check_is_tried() -> None:
    assert len(CHECKS) == 5
