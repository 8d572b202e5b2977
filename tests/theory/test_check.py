"""The machinery of checks, on statements so small that every verdict is known beforehand."""

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, Check, Hypothesis, Measured, Violation, examine, generator, verify


def measure(numbers):
    """Squares are at least 0, and (as printed, wrongly) at least 1; `None` stands for a tampered square."""
    return [
        Measured({"square ≥ 0": 1.0 if x is None else -(x**2)}, printed=None if x is None else 1 - x**2)
        for x in numbers
    ]


SQUARES = Check(
    id="toy/squares",
    source="Lemma 1",
    statement="The square of a number of size at most 1 is not negative.",
    hypotheses=(Hypothesis("|x| ≤ 1", lambda x: 0.0 if x is None else abs(x) - 1),),
    tolerances={"square ≥ 0": 0.0},
    measure=lambda xs: [dataclasses.replace(m, printed=None) for m in measure(xs)],
    draw=lambda rng: rng.uniform(-1, 1),
    violations=(Violation("a square that is not one", lambda rng: None),),
)
ERRATUM = dataclasses.replace(SQUARES, measure=measure, printed="The square is at least 1.")


def test_verdict_of_each_kind() -> None:
    holds, unmet, fails = SQUARES.judge([0.5, 3.0, None])
    assert holds.status is STATUS.holds and holds.claim[0].residual == -0.25
    assert unmet.status is STATUS.unmet and "|x| ≤ 1: 2" in unmet.message and unmet.claim == ()
    assert fails.status is STATUS.fails and fails.status.bad
    (erratum,) = ERRATUM.judge([0.5])
    assert erratum.status is STATUS.erratum and erratum.printed is not None and erratum.printed.residual == 0.75


def test_verify_holds_and_catches(seed: int) -> None:
    outcome = verify(SQUARES, instances=7, seed=seed)
    assert outcome.status is STATUS.holds and outcome.instances == 7 and outcome.broken == ()
    assert [t.caught for t in outcome.trials] == [True]
    assert verify(ERRATUM, instances=7, seed=seed).status is STATUS.erratum


def test_verify_fails_where_an_instance_fails() -> None:
    wrong = dataclasses.replace(SQUARES, measure=lambda xs: [Measured({"square ≥ 0": 0.1}) for _ in xs])
    outcome = verify(wrong, instances=3)
    assert outcome.status is STATUS.fails and outcome.broken == (0, 1, 2) and "3 of 3" in outcome.message


def test_verify_fails_where_a_violation_goes_unnoticed() -> None:
    harmless = dataclasses.replace(SQUARES, violations=(Violation("harmless", lambda rng: 0.5),))
    outcome = verify(harmless, instances=3)
    assert outcome.status is STATUS.fails and "harmless" in outcome.message


def test_what_is_refused_by_name_is_noticed() -> None:
    """A violation that the library refuses to measure; one that cannot be drawn is a fault of the check."""

    def refusing(numbers):
        if None in numbers:
            raise HypothesisError("a number", 1.0, 0.0)
        return [Measured({"square ≥ 0": -(x**2)}) for x in numbers]

    outcome = verify(dataclasses.replace(SQUARES, measure=refusing), instances=3)
    assert outcome.status is STATUS.holds
    (trial,) = outcome.trials
    assert trial.caught and trial.reading is not None and trial.reading.name == "a number"
    faulty = dataclasses.replace(SQUARES, violations=(Violation("none", lambda rng: refusing([None])),))
    with pytest.raises(HypothesisError, match="a number"):
        verify(faulty, instances=3)


def test_verify_fails_without_violations() -> None:
    assert verify(dataclasses.replace(SQUARES, violations=()), instances=3).status is STATUS.fails


def test_verify_fails_where_the_generator_leaves_the_hypotheses() -> None:
    outcome = verify(dataclasses.replace(SQUARES, draw=lambda rng: 2.0), instances=2)
    assert outcome.status is STATUS.fails and "Not met" in outcome.message


def test_verify_fails_where_an_erratum_is_none() -> None:
    outcome = verify(dataclasses.replace(ERRATUM, printed_tolerance=2.0), instances=4)
    assert outcome.status is STATUS.fails and "expected to be missed" in outcome.message


def test_what_is_not_a_number_does_not_hold() -> None:
    nan = dataclasses.replace(SQUARES, measure=lambda xs: [Measured({"square ≥ 0": math.nan}) for _ in xs])
    outcome = verify(nan, instances=2)
    assert outcome.status is STATUS.fails
    json.dumps(outcome.to_json(), allow_nan=False)


def test_parts_that_were_not_measured_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="toy/squares"):
        dataclasses.replace(SQUARES, tolerances={"other": 0.0}).judge([0.5])


def test_instances_depend_on_names_only(seed: int) -> None:
    drawn: list[list[float]] = []
    for count in (3, 6):
        seen: list[float] = []
        check = dataclasses.replace(SQUARES, draw=lambda rng, seen=seen: seen.append(x := rng.uniform(-1, 1)) or x)
        verify(check, instances=count, seed=seed)
        drawn.append(seen[:3])
    assert drawn[0] == drawn[1]
    assert generator("a", 1).random() != generator("a", 2).random()


@pytest.mark.parametrize(("instances", "seed"), [(0, 0), (1, -1)])
def test_bad_numbers_are_refused(instances: int, seed: int) -> None:
    with pytest.raises(ValueError, match=r"verify: (instances|seed)"):
        verify(SQUARES, instances=instances, seed=seed)


def test_examine_says_what_applies() -> None:
    def adopt(problem, params):
        if problem.model.depth != 1:
            raise HypothesisError("depth 1", float(problem.model.depth), 1.0)
        return float(params[0][0, 0])

    check = dataclasses.replace(SQUARES, adopt=adopt)
    one, two = DeepLinear((1, 1)), DeepLinear((1, 1, 1))
    target = SquaredDistance(np.ones((1, 1)))
    entry = jnp.full((1, 1), 0.5)
    assert [v.status for v in examine(Problem(one, target), (entry,), [SQUARES, check])] == [STATUS.holds]
    (verdict,) = examine(Problem(two, target), (entry, entry), [check])
    assert verdict.status is STATUS.unmet and verdict.hypotheses[0].name == "depth 1"


@pytest.mark.parametrize(
    ("adopt", "why"),
    [
        (lambda problem, params: 1.0 / float(params[0][0, 0]), "division by zero"),
        (lambda problem, params: math.nan, "not a number"),
        (lambda problem, params: float(np.linalg.inv(np.asarray(params[0]))[0, 0]), "Singular"),
    ],
)
def test_examine_says_what_cannot_be_measured(adopt: Callable[[Problem, Any], float], why: str) -> None:
    check = dataclasses.replace(SQUARES, adopt=adopt, hypotheses=())
    problem = Problem(DeepLinear((1, 1)), SquaredDistance(np.ones((1, 1))))
    (verdict,) = examine(problem, (jnp.zeros((1, 1)),), [check])
    assert verdict.status is STATUS.unmet and why in verdict.message
