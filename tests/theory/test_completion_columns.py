"""Checks of the statements on one observed column, on disconnected observations and on singular values."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import Completion, DeepLinear, EntryCompletion, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.completion import _column, _disconnected, _singular_values

CHECKS = {c.id: c for module in (_column, _disconnected, _singular_values) for c in module.CHECKS}
INSTANCES = 3


@pytest.mark.covers(
    "completion:C18",
    "completion:C19",
    "completion:C20",
    "completion:C21",
    "completion:C22",
    "completion:C29",
    "completion:C30",
    "completion:C31",
    "completion:C35",
    "completion:E5",
    "completion:E7",
    "completion:E14",
)
@pytest.mark.parametrize("name", CHECKS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


COLUMN = Problem(DeepLinear((2, 2, 2)), Completion([[1.0, 0.0], [0.5, 0.0]], [[1, 0], [1, 0]]))
SADDLE = "the flow reaches zero loss"
COLUMN_START = (jnp.array([[0.2, 0.3], [0.1, -0.1]]), jnp.array([[0.1, 0.05], [-0.02, 0.1]]))


@pytest.mark.covers("completion:F38")
def test_column_of_a_user() -> None:
    """Numbers of an integration in extended precision."""
    names = ["completion/theorem-3.1", "completion/theorem-3.1-parallel", "completion/erratum-column-bound"]
    bound, parallel, vacuous = examine(COLUMN, COLUMN_START, [CHECKS[name] for name in names])
    assert [v.status for v in (bound, parallel, vacuous)] == [STATUS.holds] * 3  # this start is small: B < 1
    assert abs(bound.facts["largest share"] - 0.0314323033701) < 1e-9
    assert abs(bound.facts["bound of it"] - 0.1047275131483) < 1e-12
    assert abs(bound.facts["slack"] - min(0.1047275131483 - 0.0314323033701, 0.0261818782871 - 0.0012541438186)) < 1e-9
    assert abs(parallel.facts["u·b"] - 1.0657616177781) < 1e-9


def test_disconnected_problem_of_a_user_given_as_entries() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), EntryCompletion([0, 1], [0, 1], [1.0, -0.5], (2, 2)))
    params = (jnp.array([[0.5, -0.2], [0.1, 0.3]]), jnp.array([[0.3, 0.1], [0.2, -0.4]]))
    names = ["completion/proposition-4.1", "completion/disconnected-finite-time", "completion/lemma-f1"]
    limit, times, speed = examine(problem, params, [CHECKS[name] for name in names])
    assert limit.status is STATUS.holds and times.status is STATUS.holds
    assert speed.status is STATUS.unmet and speed.hypotheses[0].name == "balanced layers"


@pytest.mark.parametrize(
    ("problem", "params", "hypothesis"),
    [
        (Problem(DeepLinear((2, 2, 2)), Completion(np.eye(2), np.eye(2))), COLUMN_START, "one observed column"),
        (Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2))), COLUMN_START, "completion loss"),
        (
            COLUMN,
            (jnp.array([[0.0, 1.0], [0.0, 1.0]]), jnp.array([[0.5, 0.0], [-1.0, 0.0]])),
            "the flow reaches zero loss",
        ),
    ],
)
def test_other_problems_do_not_meet_the_column_theorem(problem: Problem, params, hypothesis: str) -> None:
    """The last start has b = 0 and rows whose pull on it cancels: the flow rests at half the squares of the targets."""
    (verdict,) = examine(problem, params, [CHECKS["completion/theorem-3.1"]])
    assert verdict.status is STATUS.unmet and verdict.hypotheses[0].name == hypothesis
    if hypothesis == SADDLE:
        assert verdict.hypotheses[0].residual == 0.625


def test_speed_of_a_user_of_another_loss_and_scale() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.diag(jnp.array([500.0, 300.0]))), 0.1)
    layer = jnp.diag(jnp.array([20.0, 10.0]))
    (verdict,) = examine(problem, (layer, layer), [CHECKS["completion/lemma-f1"]])
    assert verdict.status is STATUS.holds
    # By hand: 2·400·(500 - 400) - 2·0.1·400.
    assert abs(verdict.facts["largest speed"] - 79920.0) < 1e-2


@pytest.mark.covers("completion:E7")
def test_determinant_counterexample() -> None:
    """One by one, a = 0.1, b = -1, target 1: a(5) = -0.788 by integration."""
    check = CHECKS["completion/erratum-determinant"]
    pair = _singular_values.Pair(0.1, -1.0, 1.0, _singular_values._draw_determinant(np.random.default_rng(0)))
    (verdict,) = check.judge([pair])
    assert verdict.status is STATUS.erratum and abs(verdict.facts["a(5)"] + 0.788) < 5e-4
