"""Statements on coupled and decoupled entries, checked without flows; and what they say of given problems."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.dynamics import coupling_examples
from deeplinear.models import AlphaM, Completion, DeepLinear, Problem, SquaredDistance, block_mask
from deeplinear.theory import STATUS, Check, examine, verify
from deeplinear.theory.completion._coupling import (
    CHECKS,
    DEPTH_2_COMPONENTS,
    DEPTH_2_KERNEL,
    LEMMA_B1,
    PRODUCT_ORDER,
    PROPOSITION_32,
    PROPOSITION_B1,
    ZERO_LAYERS,
)
from deeplinear.theory.completion._laws import NORMALISATION


def holds(check: Check, seed: int, instances: int = 4) -> None:
    """Every instance holds, every violation is caught, and the printed form is missed where it is another."""
    outcome = verify(check, instances=instances, seed=seed)
    assert outcome.status is (STATUS.holds if check.printed is None else STATUS.erratum), outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


@pytest.mark.covers("completion:C1")
def test_kernel_of_entries(seed: int) -> None:
    holds(LEMMA_B1, seed)


@pytest.mark.covers("completion:C2")
def test_generic_entries_are_joined(seed: int) -> None:
    holds(PROPOSITION_B1, seed, instances=20)


@pytest.mark.covers("completion:C3", "completion:E8")
def test_entries_apart_at_depth_2(seed: int) -> None:
    holds(DEPTH_2_KERNEL, seed, instances=20)


@pytest.mark.covers("completion:C4")
def test_components_at_depth_2(seed: int) -> None:
    holds(DEPTH_2_COMPONENTS, seed, instances=10)


@pytest.mark.covers("completion:C5")
def test_family(seed: int) -> None:
    holds(PROPOSITION_32, seed)


@pytest.mark.covers("completion:C7")
def test_zero_layers(seed: int) -> None:
    holds(ZERO_LAYERS, seed)


@pytest.mark.covers("completion:E9")
def test_order_of_the_product(seed: int) -> None:
    holds(PRODUCT_ORDER, seed)


@pytest.mark.covers("completion:E12")
def test_sum_and_not_mean(seed: int) -> None:
    holds(NORMALISATION, seed)


@pytest.mark.covers("completion:C5", "completion:F38")
def test_all_sixty_families() -> None:
    """Blocks, depths and m of the statement, adopted from problem and weights alone; labels written out by hand."""
    shapes, depths, ms = ((2, 1), (3, 1), (2, 2), (3, 2)), (2, 3, 4), (1.0, 1.5, 10.0, 1e6, np.inf)
    right = 0
    for (n, s), depth, m in itertools.product(shapes, depths, ms):
        model = DeepLinear((n * s,) * (depth + 1))
        problem = Problem(model, Completion(np.ones((n * s, n * s)), block_mask(n, s)))
        (verdict,) = examine(problem, AlphaM(0.3, m)(model, jax.random.key(0)), [PROPOSITION_32])
        right += verdict.status is STATUS.holds and verdict.facts["coupled"] == (depth > 2 and m < np.inf)
    assert right == 60


FLOW_FREE = (LEMMA_B1, PROPOSITION_32, ZERO_LAYERS)


def test_examples_are_examined() -> None:
    """What applies to each named example: a family of the identity, zero, or any weights."""
    wanted = {
        "depth 2, diagonal": {"lemma-b1"},
        "depth 2, column": {"lemma-b1"},
        "depth 3, diagonal": {"lemma-b1"},
        "identity, blocks": {"lemma-b1", "proposition-3.2"},
        "zero": {"zero-start"},
    }
    for name, (problem, params) in coupling_examples().items():
        verdicts = examine(problem, params, FLOW_FREE)
        applied = {v.check.removeprefix("completion/") for v in verdicts if v.status is STATUS.holds}
        assert not any(v.status.bad for v in verdicts), name
        assert wanted[name] <= applied, (name, applied)


def test_almost_sure_statements_say_nothing_of_one_start() -> None:
    """Special starts are exceptions to what holds with probability one, and no start can be told from a draw."""
    assert PROPOSITION_B1.adopt is None and DEPTH_2_COMPONENTS.adopt is None


def test_what_is_no_block_problem_is_said_with_its_residual() -> None:
    model = DeepLinear((4, 4, 4, 4))
    blocks = Problem(model, Completion(np.ones((4, 4)), block_mask(2, 2)))
    layer = AlphaM(0.3, 5.0)(model, jax.random.key(0))[0]

    def reading(problem: Problem, *layers: object) -> tuple[str, float]:
        (verdict,) = examine(problem, tuple(jnp.asarray(w) for w in layers), [PROPOSITION_32])
        assert verdict.status is STATUS.unmet
        (unmet,) = verdict.hypotheses
        return unmet.name, unmet.residual

    name, residual = reading(blocks, layer, layer, layer + 0.03 * np.eye(4)[[0]].T * np.eye(4)[1])
    assert "α/m off it" in name and 0.05 < residual < 0.1
    name, residual = reading(blocks, *(0.3 * jnp.eye(4) - 0.1 * (1 - jnp.eye(4)),) * 3)
    assert "m ≥ 1" in name and abs(residual - 1 / 3) < 1e-12
    target = np.ones((4, 4))
    target[0, 0] = 1.1
    name, residual = reading(Problem(model, Completion(target, block_mask(2, 2))), layer, layer, layer)
    assert "values equal" in name and residual > 0.05
    mask = block_mask(2, 2)
    mask[0, 1] = False
    assert "diagonal blocks" in reading(Problem(model, Completion(np.ones((4, 4)), mask)), layer, layer, layer)[0]
    assert "single entries" in reading(Problem(model, SquaredDistance(np.ones((4, 4)))), layer, layer, layer)[0]
    penalised = Problem(model, Completion(np.ones((4, 4)), block_mask(2, 2)), 0.1)
    assert reading(penalised, layer, layer, layer) == ("no penalty on the weights", 0.1)


def test_blocks_in_another_order_are_recognised() -> None:
    order = np.array([0, 2, 1, 3])
    model = DeepLinear((4, 4, 4, 4))
    problem = Problem(model, Completion(2 * np.ones((4, 4)), block_mask(2, 2)[order][:, order]))
    (verdict,) = examine(problem, AlphaM(0.3, 5.0)(model, jax.random.key(0)), [PROPOSITION_32])
    assert verdict.status is STATUS.holds and verdict.facts["coupled"] == 1


def test_ids_are_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
