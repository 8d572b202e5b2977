"""Checks of the statements on noise, on the balance of random layers and on low-rank adapters."""

import pytest

from deeplinear.theory import STATUS, verify
from deeplinear.theory.exact import _balance_statistics, _noise, _random_layers

CHECKS = {c.id: c for module in (_noise, _balance_statistics, _random_layers) for c in module.CHECKS}
INSTANCES = 3
STATEMENTS = (
    pytest.param(
        "exact/erratum-input-noise", marks=pytest.mark.covers("exact:S21", "exact:E20"), id="exact/erratum-input-noise"
    ),
    pytest.param(
        "exact/erratum-weight-noise",
        marks=pytest.mark.covers("exact:S21", "exact:E21"),
        id="exact/erratum-weight-noise",
    ),
    pytest.param(
        "exact/erratum-best-lambda", marks=pytest.mark.covers("exact:S22", "exact:E21"), id="exact/erratum-best-lambda"
    ),
    "exact/noise-kink",
    pytest.param(
        "exact/erratum-diagonal-variance",
        marks=pytest.mark.covers("exact:S28", "exact:E10"),
        id="exact/erratum-diagonal-variance",
    ),
    pytest.param("exact/tables-1-2", marks=pytest.mark.covers("exact:S29"), id="exact/tables-1-2"),
    pytest.param(
        "exact/erratum-scaled-variance", marks=pytest.mark.covers("exact:E11"), id="exact/erratum-scaled-variance"
    ),
    pytest.param(
        "exact/erratum-scaled-weights", marks=pytest.mark.covers("exact:E12"), id="exact/erratum-scaled-weights"
    ),
    "exact/table-3",
    pytest.param(
        "exact/erratum-glorot-limits", marks=pytest.mark.covers("exact:E13"), id="exact/erratum-glorot-limits"
    ),
    pytest.param("exact/erratum-lecun-bound", marks=pytest.mark.covers("exact:E14"), id="exact/erratum-lecun-bound"),
    pytest.param("exact/erratum-glorot-slope", marks=pytest.mark.covers("exact:E15"), id="exact/erratum-glorot-slope"),
    "exact/figure-7",
    pytest.param("exact/erratum-glorot-sign", marks=pytest.mark.covers("exact:E16"), id="exact/erratum-glorot-sign"),
    pytest.param(
        "exact/erratum-concentration", marks=pytest.mark.covers("exact:E17"), id="exact/erratum-concentration"
    ),
    pytest.param("exact/erratum-padding", marks=pytest.mark.covers("exact:E27"), id="exact/erratum-padding"),
    pytest.param("exact/erratum-guards", marks=pytest.mark.covers("exact:E27"), id="exact/erratum-guards"),
    pytest.param(
        "exact/erratum-adapters", marks=pytest.mark.covers("exact:S35", "exact:E31"), id="exact/erratum-adapters"
    ),
)
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {entry if isinstance(entry, str) else entry.values[0] for entry in STATEMENTS} == set(CHECKS)
