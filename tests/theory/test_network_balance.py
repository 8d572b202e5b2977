"""Checks of the statements on balance and on variants of the flow."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import STATUS, examine, verify
from deeplinear.theory.network import _balance, _descent, _variants
from deeplinear.theory.network._critical import form_of
from deeplinear.theory.network._networks import Network

CHECKS = {check.id: check for module in (_balance, _descent, _variants) for check in module.CHECKS}
INSTANCES = 3
ROUNDING = 1e-13
"""Entries of order one of a few products, orthonormal bases."""


STATEMENTS = (
    pytest.param("network/proposition-34", marks=pytest.mark.covers("network:C35")),
    pytest.param("network/proposition-35", marks=pytest.mark.covers("network:C35")),
    pytest.param("network/proposition-36", marks=pytest.mark.covers("network:C36", "network:F36")),
    pytest.param("network/approximate-balance", marks=pytest.mark.covers("network:C37", "network:F36")),
    pytest.param("network/erratum-top-directions", marks=pytest.mark.covers("network:E19")),
    pytest.param("network/erratum-synchronisation", marks=pytest.mark.covers("network:E18")),
    pytest.param("network/erratum-alignment-threshold", marks=pytest.mark.covers("network:E18")),
    pytest.param("network/proposition-10", marks=pytest.mark.covers("network:C13", "network:F14")),
    pytest.param("network/soft-threshold", marks=pytest.mark.covers("network:C13", "network:F14")),
    pytest.param("network/equation-67", marks=pytest.mark.covers("network:C41", "network:F38")),
    pytest.param("network/descent-against-flow", marks=pytest.mark.covers("network:C41", "network:F38")),
    pytest.param("network/equation-68", marks=pytest.mark.covers("network:C42", "network:F39")),
    pytest.param("network/erratum-skip", marks=pytest.mark.covers("network:E9", "network:C42", "network:F40")),
    pytest.param("network/skip-laws", marks=pytest.mark.covers("network:C42", "network:F40")),
    pytest.param("network/bottleneck", marks=pytest.mark.covers("network:C42", "network:F41")),
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


def test_statements_take_widths_or_refuse_them(seed: int) -> None:
    """Those that need no flow are measured at other widths; the others only drawn."""
    rng = np.random.default_rng(seed)
    plain = ("proposition-36", "equation-67", "equation-68", "erratum-skip")
    widths = (2, 3, 2, 2)
    for name, check in CHECKS.items():
        if check.sized is None:
            assert name in ("network/erratum-synchronisation", "network/erratum-alignment-threshold")
            continue
        if name.endswith(("bottleneck", "soft-threshold")):
            with pytest.raises(ValueError, match=r"bottleneck"):
                check.sized(rng, widths)
        else:
            instance = check.sized(rng, widths)
            if name.removeprefix("network/") in plain:
                (verdict,) = check.judge([instance])
                assert not verdict.status.bad, verdict.message
    for name in ("proposition-34", "proposition-36", "proposition-10", "equation-67", "erratum-skip"):
        with pytest.raises(ValueError, match=r"hidden layers|two layers of equal width"):
            CHECKS[f"network/{name}"].sized(rng, (3, 2))


def test_a_given_problem_is_examined(seed: int) -> None:
    """Statements on one point speak of any target; those on penalties of any penalty."""
    rng = np.random.default_rng(seed)
    params = tuple(jnp.asarray(0.5 * rng.standard_normal(shape)) for shape in ((3, 3), (2, 3)))
    target = rng.standard_normal((2, 3))
    names = ["network/proposition-36", "network/equation-67"]
    checks = [CHECKS[name] for name in names]
    problem = Problem(DeepLinear((3, 3, 2)), SquaredDistance(target))
    assert [verdict.status for verdict in examine(problem, params, checks)] == [STATUS.holds] * 2
    penal = Problem(DeepLinear((3, 3, 2)), SquaredDistance(target), 0.2)
    adopted = CHECKS["network/proposition-10"].adopt(penal, params)
    assert adopted.l2 == adopted.told == 0.2
    assert [verdict.status for verdict in examine(penal, params, checks)] == [STATUS.unmet] * 2


@pytest.mark.covers("network:C35")
def test_balanced_critical_points_have_no_free_blocks(seed: int) -> None:
    """Saddles and minima made by hand: singular values σ^(1/L) of learnt modes, shared orthonormal bases, no flow."""
    rng = np.random.default_rng(seed)
    sigma, widths = np.array([3.0, 2.0, 0.5]), (4, 5, 4, 3)
    bases = [np.eye(4), *(np.linalg.qr(rng.standard_normal((width, width)))[0] for width in widths[1:-1]), np.eye(3)]
    for signature in ((), (1,), (2,), (1, 3), (2, 3), (1, 2, 3)):
        chosen = [mode - 1 for mode in signature]
        layers = tuple((b[:, chosen] * sigma[chosen] ** (1 / 3)) @ a[:, chosen].T for a, b in itertools.pairwise(bases))
        for below, above in itertools.pairwise(layers):
            np.testing.assert_allclose(above.T @ above, below @ below.T, atol=1e-14)
        network = Network(layers, sigma)
        form = form_of(network)
        assert tuple(form.signature) == signature
        assert max(float(np.max(np.abs(fill), initial=0.0)) for fill in form.fills) < ROUNDING
        if len(signature) == 3:
            blocks = _balance.normal_form_rest(network)
            assert max(float(np.max(np.abs(block), initial=0.0)) for block in blocks) < ROUNDING
