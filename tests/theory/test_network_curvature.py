"""Checks of the statements on the Hessian and on rates of convergence."""

import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.network import _hessian, _rates

CHECKS = {check.id: check for module in (_hessian, _rates) for check in module.CHECKS}
INSTANCES = 3
STATEMENTS = (
    pytest.param("network/equation-22", marks=pytest.mark.covers("network:C9", "network:F8")),
    pytest.param("network/lemma-19", marks=pytest.mark.covers("network:C9")),
    pytest.param("network/proposition-12", marks=pytest.mark.covers("network:C16")),
    pytest.param("network/proposition-13", marks=pytest.mark.covers("network:C17", "network:F10")),
    pytest.param("network/erratum-origin", marks=pytest.mark.covers("network:C43", "network:E12")),
    pytest.param("network/balanced-spectrum", marks=pytest.mark.covers("network:C35", "network:F27")),
    pytest.param("network/descent-threshold", marks=pytest.mark.covers("network:C41", "network:F27")),
    pytest.param("network/proposition-26", marks=pytest.mark.covers("network:C26")),
    pytest.param("network/proposition-27", marks=pytest.mark.covers("network:C27", "network:F26")),
    pytest.param("network/proposition-28", marks=pytest.mark.covers("network:C28", "network:F26")),
    pytest.param("network/erratum-proposition-27", marks=pytest.mark.covers("network:E3")),
)
"""Every check of these modules, each with what it holds."""


@pytest.mark.parametrize("name", STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in STATEMENTS} == set(CHECKS)


def test_a_given_problem_is_examined(seed: int) -> None:
    """A generic network has no rate for all times and is no minimum; one that grows away from a layer has a rate."""
    rng = np.random.default_rng(seed)
    pyramid = _rates.draw_pyramid(rng)
    problem = Problem(DeepLinear(pyramid.network.widths), SquaredDistance(pyramid.network.target))
    verdicts = {v.check: v for v in examine(problem, pyramid.network.params, CHECKS.values())}
    for name in ("network/equation-22", "network/proposition-13", "network/proposition-26", "network/proposition-27"):
        assert verdicts[name].status is STATUS.holds, verdicts[name].message
    assert verdicts["network/balanced-spectrum"].status is STATUS.unmet
    minimum = _hessian.draw_balanced_minimum(rng, pyramid.network.widths)
    problem = Problem(DeepLinear(minimum.widths), SquaredDistance(minimum.target))
    chosen = [CHECKS[name] for name in ("network/balanced-spectrum", "network/descent-threshold")]
    assert [v.status for v in examine(problem, minimum.params, chosen)] == [STATUS.holds] * 2


def test_statements_of_other_widths(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for name in (
        "network/equation-22",
        "network/proposition-26",
        "network/descent-threshold",
        "network/erratum-origin",
    ):
        sized = CHECKS[name].sized
        assert sized is not None
        (verdict,) = CHECKS[name].judge([sized(rng, (3, 3, 3, 3))])
        assert not verdict.status.bad, verdict.message
    refusals = {
        "network/proposition-27": ((3, 2, 3, 2), "widths must grow"),
        "network/proposition-28": ((3, 2, 3), "hidden widths must be at least"),
        "network/proposition-12": ((3, 2, 3), "no bottleneck"),
    }
    for name, (widths, words) in refusals.items():
        sized = CHECKS[name].sized
        assert sized is not None
        with pytest.raises(ValueError, match=words):
            sized(rng, widths)


@pytest.mark.covers("network:C41", "network:F27")
def test_descent_settles_below_the_threshold_only(seed: int) -> None:
    """Losses after 400 steps from beside a balanced minimum: nothing below, of order one above."""
    network = _hessian.draw_balanced_minimum(np.random.default_rng(seed), (4, 3, 3, 2))
    # 2/(Lσ₁^{2−2/L}) by hand, not by the library.
    threshold = 2 / (3 * network.sigma[0] ** (4 / 3))
    _, below = _hessian._descend(network, 0.97 * threshold, 400)
    _, above = _hessian._descend(network, 1.03 * threshold, 400)
    assert below < 1e-22 and above > 1e-4
