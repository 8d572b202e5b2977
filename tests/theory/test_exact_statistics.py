"""Checks of the statements on noise, on the balance of random layers and on low-rank adapters."""

import pytest

from deeplinear.theory import STATUS, verify
from deeplinear.theory.exact import _balance_statistics, _noise

CHECKS = {c.id: c for module in (_noise, _balance_statistics) for c in module.CHECKS}
INSTANCES = 4


@pytest.mark.covers(
    "exact:S21",
    "exact:S22",
    "exact:S28",
    "exact:S29",
    "exact:S35",
    "exact:E10",
    "exact:E11",
    "exact:E12",
    "exact:E13",
    "exact:E14",
    "exact:E15",
    "exact:E16",
    "exact:E17",
    "exact:E20",
    "exact:E21",
    "exact:E27",
    "exact:E31",
)
@pytest.mark.parametrize("name", CHECKS)
def test_statement_holds_and_its_violations_are_caught(name: str) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)
