"""Closed forms as printed, corrected where the print is wrong, and what they refuse."""

import json
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import HypothesisError, TracedError
from deeplinear.exact import PrecisionWarning, block_form, decaying_form, generic_form, overlaps
from deeplinear.exact._two_layers import checked_two_layers

CASES = [
    case
    for case in json.loads((Path(__file__).parent / "riccati_reference.json").read_text())["cases"]
    if case["kind"] == "generic"
]
"""Solutions in many digits: square, funnel and inverted funnel, λ of both signs and 0."""

EPS = float(np.finfo(float).eps)

GROWING = 1e-11
"""Growing exponentials at s t ≤ 3: rounding times e^6 and the condition of the start; spread of instances included."""


def layers(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    return np.array(case["first"]), np.array(case["second"])


def missed(found: Any, wanted: Any) -> float:
    return float(np.max(np.abs(np.asarray(found.matrix) - np.array(wanted))) / np.max(np.abs(wanted)))


def strongest(case: dict[str, Any]) -> float:
    return float(np.hypot(np.linalg.norm(case["target"], 2), case["lam"] / 2))


@pytest.mark.covers("exact:F11")
@pytest.mark.parametrize("form", [generic_form, block_form])
def test_forms_with_growing_exponentials_are_right_early_and_say_when_they_are_not(form: Any) -> None:
    early = warned = 0
    for case in CASES:
        for t, wanted in zip(case["times"], case["solutions"], strict=True):
            length = strongest(case) * t
            if length <= 3:
                assert missed(form(layers(case), case["target"], case["lam"], t), wanted) <= GROWING
                early += 1
            elif length <= 30:
                with pytest.warns(PrecisionWarning, match=r"beyond 3"):
                    form(layers(case), case["target"], case["lam"], t)
                warned += 1
        with pytest.raises(HypothesisError, match="range of growing exponentials"):
            form(layers(case), case["target"], case["lam"], 400 / strongest(case))
    assert early >= 15 and warned >= 4


def by_definition(first: np.ndarray, second: np.ndarray, target: Any, lam: float) -> tuple[np.ndarray, ...]:
    """B, C and D with h = sgn(λ) √((s_λ − s)/(s_λ + s))."""
    left, values, right = np.linalg.svd(np.array(target))
    m = len(values)
    speed = np.hypot(values, lam / 2)
    h = np.sign(lam) * np.sqrt((speed - values) / (speed + values))
    g = 1 / np.sqrt(1 + h**2)
    above, below = second.T @ left[:, :m], first @ right[:m].T
    rest = np.concatenate([first @ right[m:].T, second.T @ left[:, m:]], axis=1)
    return above * (g + h * g) + below * (g - h * g), above * (g - h * g) - below * (g + h * g), rest


@pytest.mark.covers("exact:F13", "exact:S7")
def test_form_with_decaying_exponentials_is_right_at_all_times() -> None:
    """To the square of the condition of B."""
    for case in CASES:
        condition = np.linalg.cond(by_definition(*layers(case), case["target"], case["lam"])[0])
        assert condition < 1e3
        for t, wanted in zip(case["times"], case["solutions"], strict=True):
            found = decaying_form(layers(case), case["target"], case["lam"], t)
            assert missed(found, wanted) <= 100 * condition**2 * EPS, (case["name"], t)


@pytest.mark.covers("exact:E3", "exact:E6")
def test_printed_fractions_are_wrong_for_rectangular_networks_only() -> None:
    """Against the reference: large errors with λ ≠ 0 and unequal widths, none for the block form elsewhere."""
    for case in CASES:
        first, second = layers(case)
        position = case["times"].index(0.3)
        wanted = case["solutions"][position]
        skewed = case["lam"] != 0 and first.shape[1] != second.shape[0]
        printed = missed(block_form((first, second), case["target"], case["lam"], 0.3, as_printed=True), wanted)
        assert (printed > 1e-3) if skewed else (printed <= GROWING)
        assert missed(decaying_form((first, second), case["target"], case["lam"], 0.3, as_printed=True), wanted) > 1e-3


@pytest.mark.covers("exact:F10")
def test_overlaps_are_those_of_their_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    u, s, vt = np.linalg.svd(rng.normal(size=(2, 4)), full_matrices=False)
    first, second = np.diag(s / np.sqrt(np.hypot(s, 1) + 1)) @ vt, u * np.sqrt(np.hypot(s, 1) + 1)
    target = rng.normal(size=(2, 4))
    found = overlaps((first, second), target)
    b, c, d = by_definition(first, second, target, 2.0)
    np.testing.assert_allclose(np.abs(found.growing), np.abs(b), atol=1e-13)
    np.testing.assert_allclose(np.abs(found.decaying), np.abs(c), atol=1e-13)
    np.testing.assert_allclose(found.complement @ found.complement.T, d @ d.T, atol=1e-13)
    singular = np.linalg.svd(b, compute_uv=False)
    assert abs(float(found.smallest) / singular[-1] - 1) < 1e-10
    assert abs(float(found.condition) / (singular[0] / singular[-1]) - 1) < 1e-10


@pytest.mark.covers("exact:F13")
def test_decaying_form_warns_and_refuses_by_the_condition_of_b() -> None:
    first, second, target = np.eye(2), np.diag([1.0, -1.0]), np.diag([2.0, 1.0])
    with pytest.raises(HypothesisError, match="B invertible"):
        decaying_form((first, second), target, 0.0, 1.0)
    for lam, kind in ((1e-2, None), (1e-5, PrecisionWarning), (1e-8, HypothesisError)):
        small = np.sqrt(np.hypot(1, lam / 2) - lam / 2)
        params = (small * np.eye(2), np.diag([1.0, -1.0]) / small)
        if kind is HypothesisError:
            with pytest.raises(HypothesisError, match="condition"):
                decaying_form(params, target, lam, 1.0)
        elif kind is PrecisionWarning:
            with pytest.warns(PrecisionWarning, match="condition"):
                decaying_form(params, target, lam, 1.0)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                decaying_form(params, target, lam, 1.0)
    with pytest.raises(HypothesisError, match="as many hidden units"):
        decaying_form((np.ones((1, 2)), np.ones((2, 1))), np.eye(2), 0.0, 1.0)


@pytest.mark.covers("exact:F4", "exact:F35")
def test_bad_arguments_are_refused_by_the_assumption_they_break() -> None:
    good = (np.eye(2), 2 * np.eye(2))
    target = np.eye(2)
    for form in (generic_form, block_form, decaying_form):
        with pytest.raises(ValueError, match="t must be at least 0, but is -1"):
            form(good, target, 3.0, -1.0)
        with pytest.raises(ValueError, match="t must be finite"):
            form(good, target, 3.0, np.inf)
        with pytest.raises(HypothesisError, match=r"λ-balanced.*residual") as caught:
            form((np.eye(2), np.diag([1.0, 2.0])), target, None, 1.0)
        assert abs(caught.value.residual - 3 / np.sqrt(2) / 7) < 1e-12  # relative to the squared norms, 2 + 5
        with pytest.raises(HypothesisError, match="measured for λ = 1"):
            form(good, target, 1.0, 1.0)
        with pytest.raises(ValueError, match="two layers"):
            form((np.eye(2),), target, 3.0, 1.0)
        with pytest.raises(ValueError, match=r"target must have shape \(2, 2\)"):
            form(good, np.eye(3), 3.0, 1.0)
        with pytest.raises(ValueError, match=r"params\[1\] must have shape \(any, 2\)"):
            form((np.eye(2), np.ones((2, 3))), target, 3.0, 1.0)
        with pytest.raises(ValueError, match=r"params\[0\] must be finite"):
            form((np.full((2, 2), np.nan), np.eye(2)), target, 3.0, 1.0)
        with pytest.raises(TracedError, match="use propagate"):
            jax.eval_shape(lambda t, form=form: form(good, target, 3.0, t).product, 1.0)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_small_imbalance_is_no_rounding(unit: float) -> None:
    """W₁ = 1, W₂² = 1 + 1e-12 differ by thousands of roundings; by a few of them, they do not differ."""
    task = jnp.ones((1, 1))
    apart = (unit * jnp.ones((1, 1)), unit * jnp.sqrt(jnp.full((1, 1), 1 + 1e-12)))
    assert float(checked_two_layers("here", apart, task).lam) == pytest.approx(1e-12 * unit**2, rel=1e-3)
    close = (unit * jnp.ones((1, 1)), unit * jnp.full((1, 1), 1 + 4e-16))
    assert float(checked_two_layers("here", close, task).lam) == 0.0


@pytest.mark.covers("exact:F35")
def test_layers_seen_only_at_run_time_are_checked_then() -> None:
    scale = jax.jit(lambda first, second: checked_two_layers("here", (first, second), jnp.eye(2))[0][0, 0])
    assert float(scale(jnp.eye(2), 2 * jnp.eye(2))) == 1.0
    with pytest.raises(Exception, match="params must be λ-balanced"):
        scale(jnp.eye(2), jnp.diag(jnp.array([1.0, 2.0])))
