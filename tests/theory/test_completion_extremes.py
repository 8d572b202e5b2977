"""A proved statement never fails on a given problem: where numbers cannot tell, its hypotheses are not met."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Params
from deeplinear.models import Completion, DeepLinear, Problem
from deeplinear.theory import STATUS, examine
from deeplinear.theory.completion import CHECKS
from deeplinear.theory.completion._blocks import Block

BY_NAME = {check.id.removeprefix("completion/"): check for check in CHECKS}

Q, R = (np.linalg.qr(np.random.default_rng(k).standard_normal((3, 3)))[0] for k in (0, 1))
"""Any two orthogonal matrices."""


def network(depth: int, target: object, mask: object, *layers: object) -> tuple[Problem, Params]:
    widths = (len(np.asarray(target)),) * (depth + 1)
    return Problem(DeepLinear(widths), Completion(target, mask)), tuple(jnp.asarray(w, dtype=float) for w in layers)


def family(depth: int, alpha: float, m: float, blocks: int) -> tuple[Problem, Params]:
    block = Block(depth, blocks, 1, 1.0, alpha, m)
    return block.problem, block.params


START = ([[0.5, -0.2], [0.1, 0.3]], [[0.3, 0.1], [0.2, -0.4]])
PAIRS = ("proposition-4.1", "disconnected-finite-time", "erratum-residual-sign", "balancedness")
WARM = ("theorem-4.2", "lemmas-e2-e7", "sharper-warm-start", "erratum-missing-entry", "erratum-lemma-e7")

INPUTS = {
    "rotated identity": (
        network(3, np.ones((3, 3)), np.eye(3), 0.3 * Q, 0.3 * R @ Q.T, 0.3 * R.T),
        ("lemma-b1", "proposition-b1"),
    ),
    "orthogonal rows": (
        network(2, [[1.0, 0], [0.5, 0]], [[1, 0], [1, 0]], START[0], [[1, 2], [-2.2, 1.1]]),
        ("lemma-b1", "depth-2-components", "theorem-3.1"),
    ),
    "targets 0": (network(2, np.zeros((2, 2)), np.eye(2), np.eye(2), np.eye(2)), PAIRS),
    "start of 1e-8": (network(2, np.eye(2), np.eye(2), *(1e-8 * np.array(w) for w in START)), PAIRS),
    "targets 1e4": (network(2, 1e4 * np.eye(2), np.eye(2), *START), PAIRS),
    "large corner": (network(2, [[1, 30.0], [0, 1]], [[1, 1], [0, 1]], np.eye(2), np.eye(2)), WARM),
    "small corner": (network(2, [[1, 1e-6], [0, 1]], [[1, 1], [0, 1]], np.eye(2), np.eye(2)), WARM),
    "above the crossover": (family(3, 0.1, 1e6, 10), ("corollary-3.4", "proposition-d2", "proposition-3.2")),
    "underflow": (family(3, 1e-8, 2.0, 4), ("proposition-d2", "limit-laws", "theorem-3.3", "proposition-d1")),
    "tiny layers": (
        family(3, 1e-100, 1e6, 4),
        ("proposition-3.2", "proposition-d2", "corollary-3.4", "limit-laws", "theorem-3.3", "lemma-b1"),
    ),
}


@pytest.mark.covers("completion:F38")
@pytest.mark.parametrize("name", INPUTS)
def test_nothing_fails(name: str) -> None:
    (problem, params), names = INPUTS[name]
    verdicts = examine(problem, params, [BY_NAME[n] for n in names])
    assert verdicts and not any(v.status.bad for v in verdicts), [str(v) for v in verdicts]


def status(name: str, check: str) -> STATUS:
    (problem, params), _ = INPUTS[name]
    (verdict,) = examine(problem, params, [BY_NAME[check]])
    return verdict.status


def test_what_can_be_measured_is_measured() -> None:
    """Relative measures reach further than a range: these hold, or show the misprint."""
    assert status("tiny layers", "proposition-3.2") is STATUS.holds
    assert status("start of 1e-8", "balancedness") is STATUS.holds
    assert status("targets 1e4", "erratum-residual-sign") is STATUS.erratum


def test_what_cannot_is_said_by_name() -> None:
    def unmet(name: str, check: str) -> Sequence[str]:
        (problem, params), _ = INPUTS[name]
        (verdict,) = examine(problem, params, [BY_NAME[check]])
        assert verdict.status is STATUS.unmet
        return [r.name for r in verdict.hypotheses if not r.holds]

    for name, check in (
        ("targets 0", "proposition-4.1"),
        ("large corner", "theorem-4.2"),
        ("small corner", "erratum-missing-entry"),
        ("underflow", "proposition-d2"),
    ):
        assert any("measurable in double precision" in n for n in unmet(name, check))
    assert any("m* exceeds 100 m" in n for n in unmet("above the crossover", "corollary-3.4"))
