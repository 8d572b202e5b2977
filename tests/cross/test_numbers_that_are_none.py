"""NaN and infinity are refused by name, where they can be seen; under a transformation they pass."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.exact import forgetting, noisy_loss, scalar_curvature, scalar_speed
from deeplinear.landscape import descent_drift, envelope_excess, norm_rate
from deeplinear.models import DeepLinear, Problem, SquaredDistance, rescale_balance, spectral_target

PROBLEM = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.eye(2)))
GOOD = np.array([[1.0, 2.0], [3.0, 5.0]])

CASES: dict[str, tuple[Callable[..., Any], str]] = {
    "forgetting: before": (lambda x: forgetting(x, GOOD, GOOD), "before"),
    "forgetting: after": (lambda x: forgetting(GOOD, x, GOOD), "after"),
    "forgetting: target": (lambda x: forgetting(GOOD, GOOD, x), "target"),
    "noisy_loss": (lambda x: noisy_loss(PROBLEM, (jnp.asarray(GOOD), x), input_std=0.1), r"params\[1\]"),
    "scalar_speed: z": (lambda x: scalar_speed(x, 1.0, 3), "z"),
    "scalar_speed: sigma": (lambda x: scalar_speed(1.0, x, 3), "sigma"),
    "scalar_curvature: z": (lambda x: scalar_curvature(x, 1.0, 3), "z"),
    "scalar_curvature: sigma": (lambda x: scalar_curvature(1.0, x, 3), "sigma"),
    "spectral_target": (lambda x: spectral_target(jax.random.key(0), (4, 4), x[1]), "values"),
    "rescale_balance": (lambda x: rescale_balance((x, jnp.asarray(GOOD)), 1.0), r"params\[0\]"),
    "envelope_excess": (lambda x: envelope_excess(x[1], np.ones(2), 0.1), "times"),
    "descent_drift": (lambda x: descent_drift(PROBLEM, (x, jnp.asarray(GOOD)), 0.1), r"params\[0\]"),
    "norm_rate": (lambda x: norm_rate(PROBLEM, (jnp.asarray(GOOD), x)), r"params\[1\]"),
}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("case", CASES)
def test_what_is_no_number_is_refused(case: str, bad: float) -> None:
    function, name = CASES[case]
    planted = jnp.asarray(GOOD).at[1, 0].set(bad)
    with pytest.raises(ValueError, match=rf"{case.partition(':')[0]}: {name} must be (finite|a number), but entry"):
        function(planted)


@pytest.mark.parametrize("case", CASES)
def test_what_is_transformed_is_not_looked_at(case: str) -> None:
    function, _ = CASES[case]
    given = jnp.asarray(GOOD)
    for plain, mapped in zip(jax.tree.leaves(function(given)), jax.tree.leaves(jax.jit(function)(given)), strict=True):
        np.testing.assert_allclose(mapped, plain, rtol=1e-12)  # rounding
    assert jax.tree.leaves(jax.jit(function)(given.at[1, 0].set(jnp.nan)))
