"""Statements on diagonal blocks of equal values, and others that need flows: one width, so that flows share code."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from deeplinear.exact import block_limit
from deeplinear.models import AlphaM, Completion, DeepLinear, Problem, block_mask
from deeplinear.theory import STATUS, Check, examine, verify
from deeplinear.theory.completion import _blocks, _coupling, _laws, _limit_errata, _limits
from deeplinear.theory.completion._blocks import Block


def holds(check: Check, seed: int = 0, instances: int = 4) -> None:
    """Every instance holds, every violation is caught, and the printed form is missed where it is another."""
    outcome = verify(check, instances=instances, seed=seed)
    assert outcome.status is (STATUS.holds if check.printed is None else STATUS.erratum), outcome.message
    assert outcome.trials and all(trial.caught for trial in outcome.trials)


# ---- Formulas --------------------------------------------------------------------------------------------------------


@pytest.mark.covers("completion:C8")
def test_algebra(seed: int) -> None:
    holds(_blocks.LEMMAS_ALGEBRA, seed)


@pytest.mark.covers("completion:C15")
def test_monotone_equations(seed: int) -> None:
    holds(_limits.PROPOSITION_D2, seed)


@pytest.mark.covers("completion:C16")
def test_small_starts_end_at_rank_one(seed: int) -> None:
    holds(_limits.COROLLARY_34, seed)


def test_laws_of_the_limit(seed: int) -> None:
    holds(_limits.LIMIT_LAWS, seed)


@pytest.mark.covers("completion:E2")
def test_large_m_is_not_infinite(seed: int) -> None:
    holds(_limit_errata.FINITE_M, seed)
    large, small = (float(block_limit(5, alpha, 1e10, blocks=10).sigma_2) for alpha in (1e-2, 1e-4))
    assert abs(large - 0.9995) < 5e-5 and small < 1e-5


@pytest.mark.covers("completion:E3")
def test_depth_need_not_strengthen_the_bias(seed: int) -> None:
    holds(_limit_errata.DEPTH_BIAS, seed)
    # The example: w* = 0.1, m = 2, alpha^L = 0.1, n = 10, at depths 2, 3 and 4.
    found = [float(block_limit(depth, 0.1 ** (1 / depth), 2.0, blocks=10, value=0.1).sigma_2) for depth in (2, 3, 4)]
    np.testing.assert_allclose(found, [0.00769, 0.00828, 0.00543], atol=5e-6)
    example = Block(3, 10, 1, 0.1, 0.1 ** (1 / 3), 2.0)
    (measured,) = _limit_errata.DEPTH_BIAS.measure([example])
    assert measured.residuals[next(iter(_limit_errata.ORDER))] > 0.05
    assert _limit_errata.DEPTH_BIAS.judge([example])[0].status is STATUS.unmet
    # Wide matrices, by a solution in extended precision: alpha^L = 0.1 at n = 100, 0.01 at n = 1000.
    for n, scale, m, wanted in ((100, 0.1, 1.47, [0.002184, 0.003015]), (1000, 0.01, 1.52, [2.700e-4, 3.923e-4])):
        found = [float(block_limit(depth, scale ** (1 / depth), m, blocks=n).sigma_2) for depth in (2, 3)]
        np.testing.assert_allclose(found, wanted, rtol=3e-4)
        wide = Block(3, n, 1, 1.0, scale ** (1 / 3), m)
        unmet = [h.name for h in _limit_errata.DEPTH_BIAS.hypotheses if not h.residual(wide) <= h.tolerance]
        assert (
            "width d ≤ 10" in unmet
            and _limit_errata.DEPTH_BIAS.measure([wide])[0].residuals[next(iter(_limit_errata.ORDER))] > 0
        )


# ---- Flows -----------------------------------------------------------------------------------------------------------


@pytest.mark.covers("completion:C12")
def test_limits_of_the_diagonal() -> None:
    """At the depths of the other flows; the deepest is below."""
    shallow = functools.partial(_blocks.draw_block, depths=(2, 3, 4), shapes=((4, 1),))
    holds(dataclasses.replace(_limits.THEOREM_33, draw=shallow))


@pytest.mark.covers("completion:C12")
def test_limits_at_depths_two_to_six() -> None:
    """Finite and infinite m at the shallowest depths and the deepest; tests of the formula have those between."""
    cases = [Block(depth, 4, 1, 1.0, 0.02 ** (1 / depth), m) for depth in (2, 3, 4, 6) for m in (3.0, 30.0, np.inf)]
    verdicts = _limits.THEOREM_33.judge(cases)
    assert [v.status for v in verdicts] == [STATUS.holds] * len(cases), [v.message for v in verdicts]


@pytest.mark.covers("completion:C13", "completion:C14")
def test_limits_of_blocks() -> None:
    holds(_limits.THEOREM_33_BLOCKS)


@pytest.mark.covers("completion:C9", "completion:C10", "completion:C11", "completion:C34")
@pytest.mark.parametrize("check", [c for c in _blocks.CHECKS if c is not _blocks.LEMMAS_ALGEBRA], ids=lambda c: c.id)
def test_way_of_the_flow(check: Check) -> None:
    holds(check)


@pytest.mark.covers("completion:C17")
def test_depth_2_stable_rank() -> None:
    holds(_limits.DEPTH_2_RANK)


def test_shared_starts() -> None:
    holds(_limits.SHARED_START)


@pytest.mark.covers("completion:C33")
def test_gradient_descent() -> None:
    holds(_limits.GRADIENT_DESCENT, instances=2)


@pytest.mark.covers("completion:E1")
def test_rank_one_without_coupling() -> None:
    holds(_limit_errata.RANK_ONE_IFF)


@pytest.mark.covers("completion:C32")
def test_conservation() -> None:
    holds(_laws.BALANCEDNESS)


@pytest.mark.covers("completion:C6")
def test_identity_stays_decoupled() -> None:
    """From multiples of the identity the kernel between blocks is zero to the last bit."""
    outcome = verify(_coupling.IDENTITY_START, instances=4)
    assert outcome.status is STATUS.holds and outcome.claim[0].residual == 0.0


@pytest.mark.covers("completion:E4")
def test_decoupled_without_diagonal_layers() -> None:
    holds(_coupling.DIAGONAL_START)


def test_a_given_problem_is_examined() -> None:
    """Depth 3, blocks of size 2 and a finite m: what applies holds, what does not says why."""
    model = DeepLinear((4, 4, 4, 4))
    problem = Problem(model, Completion(np.full((4, 4), 1.5), block_mask(2, 2)))
    params = AlphaM(0.3, 5.0)(model, jax.random.key(0))
    checks = (*_laws.CHECKS, *_coupling.CHECKS, *_blocks.CHECKS, *_limits.CHECKS, *_limit_errata.CHECKS)
    verdicts = {v.check.removeprefix("completion/"): v for v in examine(problem, params, checks)}
    assert not any(v.status.bad for v in verdicts.values()), [str(v) for v in verdicts.values()]
    applied = {name for name, v in verdicts.items() if v.status is STATUS.holds}
    assert {"theorem-3.3-blocks", "lemma-d7", "proposition-3.2", "balancedness", "corollary-3.4"} <= applied
    assert verdicts["theorem-3.3"].status is STATUS.unmet and "size 1" in verdicts["theorem-3.3"].message
    assert verdicts["erratum-rank-one-iff-coupled"].status is STATUS.unmet


def test_a_flow_cut_short_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow that does not reach its end fails the claim, and the message says so."""
    block = Block(3, 4, 1, 1.0, 0.3, 5.0)
    (run,) = _blocks.follow([block])
    assert run is not None
    early = dataclasses.replace(
        run, times=run.times[:5], loss=run.loss[:5], layers=tuple(layer[:5] for layer in run.layers)
    )
    monkeypatch.setattr(_blocks, "flows", lambda *args, **options: [early])
    (verdict,) = _limits.THEOREM_33.judge([block])
    assert verdict.status is STATUS.fails and _laws.REACHED in verdict.message


def test_ids_are_unique() -> None:
    ids = [check.id for module in (_laws, _coupling, _blocks, _limits) for check in module.CHECKS]
    assert len(set(ids)) == len(ids)
