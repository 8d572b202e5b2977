"""Checks of the statements on the adjacency matrix, the conservation laws, norms, bounds and data."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import Completion, DeepLinear, Problem, Regression, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.network import _adjacency, _bounds, _data, _expansions, _laws, _spectra

CHECKS = {
    check.id: check for module in (_adjacency, _bounds, _data, _expansions, _laws, _spectra) for check in module.CHECKS
}
INSTANCES = 3
MANY = {"network/absorbed-inputs": 12, "network/dependent-laws": 16, "network/lemma-38": 12}
"""Where only some instances show the printed error, enough that one does."""
STATEMENTS = [
    pytest.param("network/block-calculus", STATUS.holds, marks=pytest.mark.covers("network:C1")),
    pytest.param("network/proposition-4", STATUS.holds, marks=pytest.mark.covers("network:C5")),
    pytest.param("network/proposition-5", STATUS.holds, marks=pytest.mark.covers("network:C6")),
    pytest.param("network/proposition-6", STATUS.holds, marks=pytest.mark.covers("network:C7", "network:F6")),
    pytest.param("network/proposition-7", STATUS.holds, marks=pytest.mark.covers("network:C10")),
    pytest.param("network/proposition-39", STATUS.holds, marks=pytest.mark.covers("network:C10")),
    pytest.param("network/proposition-11", STATUS.holds, marks=pytest.mark.covers("network:C14")),
    pytest.param("network/numerical-radius", STATUS.holds, marks=pytest.mark.covers("network:C14")),
    pytest.param("network/data-reduction", STATUS.holds, marks=pytest.mark.covers("network:C2")),
    pytest.param("network/assumption-1", STATUS.holds, marks=pytest.mark.covers("network:E15")),
    pytest.param("network/law-count", STATUS.holds, marks=pytest.mark.covers("network:C8", "network:F7")),
    pytest.param("network/law-differentials", STATUS.holds, marks=pytest.mark.covers("network:C47")),
    pytest.param("network/proposition-9", STATUS.holds, marks=pytest.mark.covers("network:C12")),
    pytest.param("network/lemma-37", STATUS.holds, marks=pytest.mark.covers("network:C15")),
    pytest.param("network/proposition-12-bounded", STATUS.holds, marks=pytest.mark.covers("network:C15")),
    pytest.param("network/equation-19", STATUS.erratum, marks=pytest.mark.covers("network:E1", "network:C7")),
    pytest.param("network/absorbed-inputs", STATUS.erratum, marks=pytest.mark.covers("network:C3", "network:E16")),
    pytest.param("network/dependent-laws", STATUS.erratum, marks=pytest.mark.covers("network:E20")),
    pytest.param("network/table-1", STATUS.erratum, marks=pytest.mark.covers("network:E14")),
    pytest.param("network/equal-weights", STATUS.erratum, marks=pytest.mark.covers("network:C12", "network:E14")),
    pytest.param("network/lemma-38", STATUS.erratum, marks=pytest.mark.covers("network:C15", "network:E14")),
    pytest.param("network/variations", STATUS.erratum, marks=pytest.mark.covers("network:E12")),
    pytest.param("network/loss-near-origin", STATUS.erratum, marks=pytest.mark.covers("network:E12", "network:E13")),
]


@pytest.mark.parametrize(("name", "expected"), STATEMENTS)
def test_statement_holds_and_its_violations_are_caught(name: str, expected: STATUS, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=MANY.get(name, INSTANCES), seed=seed)
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def test_every_check_is_run() -> None:
    assert {statement.values[0] for statement in STATEMENTS} == set(CHECKS)


def test_widths_are_chosen_by_the_user(seed: int) -> None:
    rng = np.random.default_rng(seed)
    deep = (4, 3, 2, 3, 2)
    for name in ("law-count", "proposition-5", "loss-near-origin", "variations", "table-1", "equal-weights"):
        check = CHECKS[f"network/{name}"]
        assert check.sized is not None
        widths = (4, 3, 3, 2) if name == "table-1" else deep
        (verdict,) = check.judge([check.sized(rng, widths)])
        assert verdict.status in (STATUS.holds, STATUS.erratum), verdict.message
    for name, widths in (("proposition-6", (3, 2)), ("law-count", (3, 2)), ("data-reduction", (2, 3, 3))):
        sized = CHECKS[f"network/{name}"].sized
        assert sized is not None
        with pytest.raises(ValueError, match="widths must"):
            sized(rng, widths)


def test_a_given_problem_is_examined(seed: int) -> None:
    """A network of the widths the checks are drawn with; coloured inputs and missing entries are not spoken of."""
    rng = np.random.default_rng(seed)
    widths = (4, 3, 3, 2)
    params = tuple(jnp.asarray(rng.standard_normal((b, a))) for a, b in itertools.pairwise(widths))
    target, model = rng.standard_normal((2, 4)), DeepLinear(widths)
    names = ("proposition-4", "proposition-6", "law-differentials", "proposition-9", "lemma-37")
    checks = [CHECKS[f"network/{name}"] for name in names]
    whole = examine(Problem(model, SquaredDistance(target)), params, checks)
    assert [verdict.status for verdict in whole] == [STATUS.holds] * len(checks)
    coloured = Regression(np.diag([0.5, 1.0, 1.5, 2.0]), target)
    for loss in (coloured, Completion(target, np.eye(2, 4))):
        verdicts = examine(Problem(model, loss), params, checks)
        assert [verdict.status for verdict in verdicts] == [STATUS.unmet] * len(checks)
