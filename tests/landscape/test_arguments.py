"""What all functions refuse alike: 32 bits, numbers that overflow, keys and widths that are none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear import landscape
from deeplinear.core import HypothesisError
from deeplinear.models import DeepLinear, Problem, SquaredDistance

SIGMA = np.array([2.0, 1.0])
LAYERS = (jnp.eye(2), jnp.eye(2), jnp.eye(2))
PROBLEM = Problem(DeepLinear((2, 2, 2, 2)), SquaredDistance(np.diag(SIGMA)))

CALLS = {
    "classify": lambda: landscape.classify(PROBLEM, LAYERS),
    "inertia": lambda: landscape.inertia(PROBLEM, LAYERS),
    "hessian_matrix": lambda: landscape.hessian_matrix(PROBLEM, LAYERS),
    "structure": lambda: landscape.structure(LAYERS),
    "balance_report": lambda: landscape.balance_report(LAYERS),
    "alignment_metric": lambda: landscape.alignment_metric(LAYERS, 1),
    "descent_drift": lambda: landscape.descent_drift(PROBLEM, LAYERS, 0.1),
    "adjacency": lambda: landscape.numerical_radius(LAYERS),
    "aligned_radius": lambda: landscape.aligned_radius([[1.0]]),
    "balanced_radius": lambda: landscape.balanced_radius(1.0, 2),
    "critical_point": lambda: landscape.critical_point(SIGMA, (2, 2, 2), (1,)),
    "random_critical_point": lambda: landscape.random_critical_point(jax.random.key(0), SIGMA, (2, 2, 2)),
    "random_gauge": lambda: landscape.random_gauge(jax.random.key(0), (2, 2, 2)),
    "random_fill": lambda: landscape.random_fill(jax.random.key(0), LAYERS),
    "same_product": lambda: landscape.same_product(LAYERS, LAYERS),
    "law_counts": lambda: landscape.law_counts(LAYERS),
    "norm_rate": lambda: landscape.norm_rate(PROBLEM, LAYERS),
    "minimal_norm": lambda: landscape.minimal_norm(np.eye(2), 2),
    "learning_times": lambda: landscape.learning_times([0.0], [[1.0]], [1.0]),
    "sharp_rate": lambda: landscape.sharp_rate(LAYERS),
    "rate_report": lambda: landscape.rate_report(LAYERS),
    "norm_bounds": lambda: landscape.norm_bounds(LAYERS),
    "trace_power_bounds": lambda: landscape.trace_power_bounds(np.eye(2), 2.0),
    "arc_loss": lambda: landscape.arc_loss(SIGMA, (), (1,), 0.5),
    "line_polynomial": lambda: landscape.line_polynomial(PROBLEM, LAYERS, LAYERS),
    "chord_loss": lambda: landscape.chord_loss(PROBLEM, LAYERS, LAYERS, 0.5),
    "critical_graph": lambda: landscape.critical_graph(SIGMA, (2, 2, 2)),
}


@pytest.mark.parametrize("name", CALLS)
def test_32_bits_are_refused(name: str) -> None:
    with jax.enable_x64(False), pytest.raises(RuntimeError, match=f"{name} needs 64-bit numbers"):
        CALLS[name]()


BROKEN = {
    "classify": lambda layers: landscape.classify(PROBLEM, layers),
    "nearest_critical_point": lambda layers: landscape.nearest_critical_point(PROBLEM, layers),
    "canonical_form": lambda layers: landscape.canonical_form(layers, SIGMA),
    "structure": landscape.structure,
    "balance_report": landscape.balance_report,
    "trajectory_radius": lambda layers: landscape.trajectory_radius(PROBLEM, layers),
    "norm_bounds": landscape.norm_bounds,
    "same_product": lambda layers: landscape.same_product(layers, layers),
    "random_fill": lambda layers: landscape.random_fill(jax.random.key(0), layers),
    "orbit_dimension": landscape.orbit_dimension,
    "fibre_tangent": landscape.fibre_tangent,
    "sharp_rate": landscape.sharp_rate,
}


@pytest.mark.parametrize("name", BROKEN)
def test_weights_that_are_no_numbers_or_overflow_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}: \w+\[1\] must be finite, but entry \(0, 0\) is nan"):
        BROKEN[name]((LAYERS[0], jnp.full((2, 2), jnp.nan), LAYERS[2]))
    large = "the weights are so large that their product is not a number|the largest number of params must be at most"
    with pytest.raises(ValueError, match=f"{name}: ({large})"):
        BROKEN[name](tuple(1e160 * layer for layer in LAYERS))


def test_directions_must_be_numbers() -> None:
    bad = (LAYERS[0], LAYERS[1], jnp.full((2, 2), jnp.nan))
    with pytest.raises(ValueError, match=r"line_polynomial: direction\[2\] must be finite"):
        landscape.line_polynomial(PROBLEM, LAYERS, bad)


def test_large_weights_whose_product_is_a_number_have_a_radius() -> None:
    """Balanced multiples of the identity: the norm is at least that of the start, and the bound is of its order."""
    layers = tuple(1e40 * jnp.eye(2) for _ in range(3))
    assert np.sqrt(6) * 1e40 <= landscape.trajectory_radius(PROBLEM, layers) <= 10e40


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: unchecked(landscape.random_critical_point)(key, SIGMA, (2, 2, 2)),
        lambda key: unchecked(landscape.random_gauge)(key, (2, 2, 2)),
        lambda key: unchecked(landscape.random_fill)(key, LAYERS),
    ],
)
def test_keys_are_keys(draw) -> None:
    key = jax.random.key(0)
    for other in (0, np.random.default_rng(0), jax.random.split(key)):
        with pytest.raises(TypeError, match=r"key must be one random key, such as jax\.random\.key\(0\)"):
            draw(other)


def test_widths_are_widths() -> None:
    calls = (
        ("critical_point", lambda: unchecked(landscape.critical_point)(SIGMA, 2, (1,))),
        ("critical_graph", lambda: unchecked(landscape.critical_graph)(SIGMA, 3)),
        ("random_gauge", lambda: unchecked(landscape.random_gauge)(jax.random.key(0), 3)),
        ("minima_dimension", lambda: unchecked(landscape.minima_dimension)(3)),
    )
    for name, call in calls:
        with pytest.raises(TypeError, match=rf"{name}: widths must be a tuple such as \(3, 5, 2\), but is \d"):
            call()


def test_residuals_of_a_task_say_something() -> None:
    with pytest.raises(HypothesisError, match=r"distinct, largest first .*residual 1\.500e\+00, tolerance 1\.0e\+00"):
        landscape.critical_graph([3.0, 2.0, 3.0], (3, 3, 3))
    with pytest.raises(HypothesisError, match=r"positive \(number of others\).*residual 2\.000e\+00, tolerance 0"):
        landscape.critical_graph([3.0, 0.0, 0.0], (3, 3, 3))
