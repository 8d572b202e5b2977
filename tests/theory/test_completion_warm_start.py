"""Checks of the statements on the warm start and on layers that hardly move."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.exact import toeplitz_example, toeplitz_ratio
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.completion import _lazy, _warm_start

CHECKS = {c.id: c for module in (_warm_start, _lazy) for c in module.CHECKS}
INSTANCES = 3


@pytest.mark.covers(
    "completion:C23",
    "completion:C24",
    "completion:C25",
    "completion:C26",
    "completion:C27",
    "completion:C28",
    "completion:E6",
    "completion:E10",
    "completion:E11",
    "completion:E13",
)
@pytest.mark.parametrize("name", CHECKS)
def test_statement_holds_and_its_violations_are_caught(name: str, seed: int) -> None:
    outcome = verify(CHECKS[name], instances=INSTANCES, seed=seed)
    expected = STATUS.erratum if "erratum" in name else STATUS.holds
    assert outcome.status is expected, outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


def revealed(value: float) -> Problem:
    return Problem(DeepLinear((2, 2, 2)), Completion([[1.0, value], [0.0, 1.0]], [[1, 1], [0, 1]]))


LEARNT = (jnp.eye(2), jnp.eye(2))


@pytest.mark.covers("completion:C23", "completion:C25", "completion:F21", "completion:F22", "completion:F38")
@pytest.mark.parametrize(
    ("value", "rank", "published", "sharper", "missing"),
    [
        (0.01, 1.98019886, 1.92312, 1.98019867, -5.2080967e-8),
        (0.1, 1.818884134436, 1.44933, 1.81880, -5.18474481719e-5),
        (0.5, 1.376379786303, 1.01832, 1.37163, -5.829120389e-3),
        (1.0, 1.159921978913, 1.00034, 1.14590, -0.0347155739),
        (10.0, 1.002170942, 1.0, 1.0000962, -0.3748762631),
    ],
)
def test_table_of_the_warm_start(value: float, rank: float, published: float, sharper: float, missing: float) -> None:
    """Numbers of an independent integration, to the digits given."""
    names = ["completion/theorem-4.2", "completion/sharper-warm-start"]
    theorem, extension = examine(revealed(value), LEARNT, [CHECKS[name] for name in names])
    assert theorem.status is STATUS.holds and extension.status is STATUS.holds
    assert abs(theorem.facts["stable rank"] - rank) < 1e-8
    assert abs(theorem.facts["bound of the stable rank"] - published) < 5.1e-6
    assert abs(extension.facts["sharper bound"] - sharper) < 5.1e-6
    assert abs(theorem.facts["w21"] / missing - 1) < 1e-7


@pytest.mark.parametrize(
    ("problem", "params", "hypothesis"),
    [
        (revealed(0.5), (2 * jnp.eye(2), jnp.eye(2)), "A = B = √w* I at the reveal"),
        (revealed(-0.5), LEARNT, "w12* > 0"),
        (
            Problem(DeepLinear((2, 2, 2)), Completion(np.eye(2), np.eye(2))),
            LEARNT,
            "the diagonal and the corner (1, 2) are observed",
        ),
        (toeplitz_example(3, 0.01)[0], toeplitz_example(3, 0.01)[1], "two layers of two by two"),
    ],
)
def test_other_problems_do_not_meet_the_warm_start(problem: Problem, params, hypothesis: str) -> None:
    (verdict,) = examine(problem, params, [CHECKS["completion/theorem-4.2"]])
    assert verdict.status is STATUS.unmet
    assert hypothesis in [r.name for r in verdict.hypotheses if not r.holds]


@pytest.mark.covers("completion:C27", "completion:F24", "completion:F38")
def test_certificate_of_a_user() -> None:
    """Worked example: A = B = diag(1, 1.2), the corner revealed with 0.02."""
    layer = jnp.diag(jnp.array([1.0, 1.2]))
    problem = Problem(DeepLinear((2, 2, 2)), Completion([[1.0, 0.02], [0.0, 1.44]], [[1, 1], [0, 1]]))
    names = ["completion/theorem-4.3", "completion/lazy-dimension-free"]
    published, free = examine(problem, (layer, layer), [CHECKS[name] for name in names])
    assert published.status is STATUS.holds and free.status is STATUS.holds
    for name, number in (
        ("loss", 2e-4),
        ("threshold", 0.0012056327160),
        ("R", 0.25),
        ("δ", 0.1018233764909),
        ("bound of the stable rank", 1.0123807471630),
        ("bound with δ", 1.3722316223979),
    ):
        assert abs(published.facts[name] - number) < 1e-10, name
    assert abs(free.facts["threshold"] - 0.0024112654321) < 1e-10 and free.facts["bound of the stable rank"] == 1
    slack = published.facts["smallest stable rank"] - published.facts["bound of the stable rank"]
    assert published.facts["slack of the stable rank"] == slack > 0


@pytest.mark.covers("completion:C27")
def test_dimension_free_certificate_goes_beyond_the_published_one(seed: int) -> None:
    lazy = CHECKS["completion/lazy-dimension-free"].draw(np.random.default_rng(seed))
    free, published = (CHECKS[f"completion/{name}"] for name in ("lazy-dimension-free", "theorem-4.3"))
    (held,) = examine(lazy.problem, lazy.params, [free])
    (refused,) = examine(lazy.problem, lazy.params, [published])
    assert held.status is STATUS.holds and abs(held.facts["loss / threshold with k = d"] - 4 * 0.98) < 1e-6
    assert refused.status is STATUS.unmet


@pytest.mark.covers("completion:C28", "completion:F25")
@pytest.mark.parametrize(("constant", "bound", "rank"), [("width", 2.778, 3.923), ("one", 1.960, 3.847)])
def test_example_of_width_four(constant, bound: float, rank: float) -> None:
    """That of width eight is with the formulas."""
    ratio = 0.999 * toeplitz_ratio(4, constant=constant)
    (verdict,) = CHECKS["completion/lazy-example"].judge([_lazy.Toeplitz(4, ratio, 1.0, constant)])
    assert verdict.status is STATUS.holds, verdict.message
    assert abs(verdict.facts["bound"] - bound) < 5.1e-4 and abs(verdict.facts["stable rank"] - rank) < 5.1e-4
