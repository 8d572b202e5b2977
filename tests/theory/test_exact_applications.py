"""Statements on networks that have learned something before."""

import pytest

from deeplinear.theory import STATUS, Check, verify
from deeplinear.theory.exact import _continual, _transfer


def holds(check: Check, seed: int, instances: int = 3) -> None:
    """Every instance holds, every violation is caught, and the printed form is missed where it is another."""
    outcome = verify(check, instances=instances, seed=seed)
    assert outcome.status is (STATUS.holds if check.printed is None else STATUS.erratum), outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


@pytest.mark.covers("exact:S26", "exact:F28")
def test_reversal(seed: int) -> None:
    holds(_continual.REVERSAL, seed)


@pytest.mark.covers("exact:S30", "exact:F27")
def test_continual(seed: int) -> None:
    holds(_continual.CONTINUAL, seed)


@pytest.mark.covers("exact:E26")
def test_forgetting(seed: int) -> None:
    holds(_continual.FORGETTING, seed)


@pytest.mark.covers("exact:S31", "exact:F29")
def test_transfer(seed: int) -> None:
    holds(_transfer.TRANSFER, seed)


@pytest.mark.covers("exact:E34")
def test_transfer_at_zero(seed: int) -> None:
    holds(_transfer.HIERARCHY, seed)


@pytest.mark.covers("exact:E28")
def test_semantic_task_is_white(seed: int) -> None:
    holds(_transfer.WHITENED, seed)


@pytest.mark.covers("exact:F30")
def test_rebalancing(seed: int) -> None:
    holds(_transfer.REBALANCE, seed)


@pytest.mark.covers("exact:E24")
def test_kernel_distance_and_scale(seed: int) -> None:
    holds(_transfer.KERNEL, seed)
