"""Statements on aligned modes: every instance holds, every violation is caught, printed forms are missed."""

import pytest

from deeplinear.theory import STATUS, Check, verify
from deeplinear.theory.exact import _modes


def holds(check: Check, seed: int = 0, instances: int = 3) -> None:
    outcome = verify(check, instances=instances, seed=seed)
    assert outcome.status is (STATUS.holds if check.printed is None else STATUS.erratum), outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


@pytest.mark.covers("exact:S11", "exact:S14")
def test_two_layers(seed: int) -> None:
    holds(_modes.THEOREM_51, seed)


@pytest.mark.covers("exact:S12")
def test_progress(seed: int) -> None:
    holds(_modes.PROGRESS, seed, 6)


@pytest.mark.covers("exact:S13", "exact:F17")
def test_limits(seed: int) -> None:
    holds(_modes.EQUATION_17, seed, 6)


@pytest.mark.covers("exact:E24")
def test_large_start(seed: int) -> None:
    holds(_modes.LARGE_START, seed, 6)


@pytest.mark.covers("exact:S26", "exact:E25")
def test_reversal(seed: int) -> None:
    holds(_modes.REVERSAL, seed)


@pytest.mark.covers("exact:S27")
def test_reversal_time(seed: int) -> None:
    holds(_modes.REVERSAL_TIME, seed, 6)


def test_any_depth() -> None:
    holds(_modes.DEEP_MODES, instances=3)
