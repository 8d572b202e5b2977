"""Modules that a user makes from arrays and passes on: every kind of array in them gives the right answer or a name."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear import exact, landscape, nonlinear, recurrent

RNG = np.random.default_rng(0)
FACTOR, OTHER = RNG.normal(size=(2, 5, 3))
LAYERS = (RNG.normal(size=(4, 3)), RNG.normal(size=(2, 4)))
SIGNALS = RNG.normal(size=(4, 2))

CASES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "Correlations": (
        lambda: exact.correlations_of(jnp.asarray(FACTOR), 3),
        lambda given: (
            exact.kernel_distance(given, exact.correlations_of(jnp.asarray(OTHER), 3)),
            exact.riccati_field(given, np.ones((2, 3)), 0.5),
            given.matrix,
        ),
    ),
    "Eigensystem": (lambda: exact.eigensystem(FACTOR[:2], 0.5), lambda given: (given.values, given.vectors)),
    "Overlaps": (lambda: exact.overlaps((np.eye(2), np.eye(2)), np.diag([2.0, 0.5])), lambda given: given.smallest),
    "Reduction": (
        lambda: landscape.reduce_data(RNG.normal(size=(3, 9)), RNG.normal(size=(2, 9))),
        lambda given: (given.target, given.white, given.solution, given.lift(LAYERS), given.velocity(LAYERS, "raw")),
    ),
    "GRU": (
        lambda: nonlinear.normal_gru(jax.random.key(0), 3, scale=0.3),
        lambda given: (nonlinear.gru_response(given, 5), given.outputs(SIGNALS[:, :1])),
    ),
    "ReLUNetwork": (
        lambda: nonlinear.gaussian_relu(jax.random.key(0), (4, 3, 2)),
        lambda given: given(jnp.asarray(SIGNALS[:, 0]), None)[0],
    ),
    "Certificate": (
        lambda: recurrent.certificate(np.array([0.5, -0.3]), 6, 9),
        lambda given: given.bounds(np.full(6, 1e-3)),
    ),
    "SpectralMeasure": (
        lambda: recurrent.SpectralMeasure(jnp.array([-0.3, 0.5]), jnp.array([0.4, 0.6])),
        lambda given: (given.moments(4), given.mass),
    ),
}

SAME: dict[str, Callable[[np.ndarray], Any]] = {
    "big-endian": lambda array: array.astype(">f8"),
    "single": lambda array: array.astype("f4"),
    "integers": lambda array: np.round(3 * array).astype(">i4"),
    "list": lambda array: array.tolist(),
}
REFUSED: dict[str, Callable[[np.ndarray], Any]] = {
    "complex": lambda array: array + 1j,
    "texts": lambda array: array.astype(str),
    "objects": lambda array: array.astype(object),
}


def rebuilt(given: Any, kind: Callable[[np.ndarray], Any]) -> Any:
    """The module made anew, with arrays of another kind."""

    def turned(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(turned, value))
        return kind(np.asarray(value, dtype=float)) if isinstance(value, jax.Array | np.ndarray) else value

    if hasattr(given, "_fields"):
        return type(given)(*map(turned, given))
    names = [field.name for field in dataclasses.fields(given) if field.init]
    assert set(names) == set(inspect.signature(type(given)).parameters)
    return type(given)(**{name: turned(getattr(given, name)) for name in names})


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, Any, Callable[[Any], Any]]:
    make, use = CASES[request.param]
    return request.param, make(), use


def test_arrays_of_every_kind_give_the_same_answer(case: tuple[str, Any, Callable[[Any], Any]]) -> None:
    _, given, use = case
    for kind in SAME.values():
        found = use(rebuilt(given, kind))
        wanted = use(rebuilt(given, lambda array, kind=kind: jnp.asarray(np.asarray(kind(array), dtype=float))))
        for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_other_arrays_are_refused_by_name(case: tuple[str, Any, Callable[[Any], Any]]) -> None:
    name, given, use = case
    for kind in REFUSED.values():
        with pytest.raises(TypeError, match=rf"^{name}: \w+(\[0\])? must be (real|a matrix of numbers), but is "):
            use(rebuilt(given, kind))
    if any(leaf.ndim > 1 for leaf in jax.tree.leaves(given)) and name != "Overlaps":  # a square task has no complement
        with pytest.raises(ValueError, match=rf"^{name}: .* must have at least one row and one column"):
            rebuilt(given, lambda array: array[:0] if array.ndim else array)
