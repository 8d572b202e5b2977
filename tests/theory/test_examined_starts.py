"""True statements do not fail on starts of any size, rank and shape: they hold, or say that they do not apply."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import (
    AbstractInit,
    AlphaM,
    Balanced,
    DeepLinear,
    Gaussian,
    Problem,
    ScaledIdentity,
    SquaredDistance,
)
from deeplinear.theory import STATUS, check, examine

SMALL, SMALLER = 7e-3, 2e-3
RANK_TWO = (3, 4, 4, 2, 3)


@pytest.mark.parametrize(
    ("name", "widths", "init", "status"),
    [
        ("geometry/theorem-2.2.2", (3, 3, 3, 3), AlphaM(SMALL, 10.0), STATUS.holds),
        ("geometry/lemma-4.1.1", (2, 2, 2), AlphaM(0.1, 3.0), STATUS.holds),
        ("geometry/lemma-4.1.1", (3, 3, 3), ScaledIdentity(0.5), STATUS.unmet),
        ("geometry/theorem-3.3.2", (1, 2, 4, 1), Gaussian(1.1), STATUS.holds),
        ("geometry/equation-1.6", (4, 4, 4), Gaussian(SMALL), STATUS.holds),
        ("geometry/equation-1.6", (4, 4, 4, 4, 4), AlphaM(SMALLER, 10.0), STATUS.unmet),
        ("geometry/balancing-flow", (3, 3, 3, 3, 3), Balanced(np.diag([0.9, 0.6, 0.3])), STATUS.unmet),
        ("geometry/ambient-balancing", (3, 3, 3, 3, 3), Balanced(np.diag([0.9, 0.6, 0.3])), STATUS.unmet),
        ("geometry/lemma-4.3.2", RANK_TWO, Gaussian(0.5), STATUS.unmet),
        ("geometry/lemma-4.3.6-2", (2, 2, 2, 2), Gaussian(SMALL), STATUS.erratum),
        ("network/proposition-36", (4, 4, 4, 4), ScaledIdentity(SMALL), STATUS.holds),
        ("completion/lemma-f1", (1, 4), Gaussian(0.03), STATUS.holds),
    ],
)
def test_a_true_statement_does_not_fail(name: str, widths: tuple[int, ...], init: AbstractInit, status: STATUS) -> None:
    model = DeepLinear(widths)
    target = np.random.default_rng(0).standard_normal(model.product_shape)
    problem = Problem(model, SquaredDistance(jnp.asarray(target)))
    (verdict,) = examine(problem, init(model, jax.random.key(3)), [check(name)])
    assert verdict.status is status, verdict.message
