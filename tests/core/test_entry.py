"""What every public function does with its arrays: conversions, refusals, and derivatives that are refused by name."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from deeplinear.core import (
    Matrix,
    Params,
    TracedError,
    as_array,
    check_size,
    concrete,
    entry,
    forward_only,
    no_gradient,
)

VALUES = np.array([[1.0, 2.0], [3.0, 4.0]])


@entry
def given(matrix: Matrix | None, params: Params = (), rest: Any = None, *, size: float | Float[Array, ""] = 1.0) -> Any:
    return matrix, params, rest, size


@pytest.mark.parametrize("kind", [">f8", "<f8", ">f4", "f2", "f4", "i4", ">i8", "u1", "longdouble"])
def test_every_type_and_byte_order_becomes_the_default_type(kind):
    matrix, (layer,), rest, _ = given(VALUES.astype(kind), (VALUES.astype(kind),), [VALUES.astype(kind), {"a": 1}])
    for array in (matrix, layer):
        assert type(array) is np.ndarray and array.dtype == np.float64
        np.testing.assert_array_equal(array, VALUES)
    assert rest[0].dtype.isnative and rest[1] == {"a": 1}
    np.testing.assert_array_equal(jax.jit(jnp.sum)(rest[0]), 10.0)


def test_lists_tuples_and_arrays_of_jax():
    wide = jnp.asarray(VALUES, dtype=jnp.float32)
    matrix, params, _, size = given(VALUES.tolist(), [VALUES.tolist(), wide], size=np.float32(2.0))
    assert isinstance(params, tuple) and params[1] is wide and size == 2.0
    np.testing.assert_array_equal(matrix, VALUES)
    key = jax.random.key(0)
    assert given(None, (), key)[2] is key
    bools = np.eye(2, dtype=bool)
    assert given(bools, (), bools)[2].dtype == bool


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: given(VALUES + 1j), "given: matrix must be real, but is complex"),
        (lambda: given(jnp.asarray(VALUES) + 1j), "given: matrix must be real, but is complex"),
        (lambda: given([[1.0, 2j]]), "given: matrix must be real, but is complex"),
        (lambda: given(None, (VALUES, VALUES * 1j)), r"given: params\[1\] must be real, but is complex"),
        (lambda: given(None, (), {"a": VALUES * 1j}), r"given: rest\['a'\] must be real, but is complex"),
        (lambda: given(None, (), 1j), "given: rest must be real, but is complex"),
        (lambda: given(None, (), np.complex64(1)), "given: rest must be real, but is complex"),
        (lambda: given(VALUES.astype(str)), "given: matrix must be a matrix of numbers"),
        (lambda: given(VALUES.astype(object)), "given: matrix must be a matrix of numbers"),
        (lambda: given(np.zeros((2, 2), "M8[s]")), "given: matrix must be a matrix of numbers"),
        (lambda: given([[1.0], [1.0, 2.0]]), "given: matrix must be a matrix, but its rows are of different lengths"),
        (lambda: as_array([1j]), "as_array: value must be real"),
        (lambda: as_array(jnp.ones(2) * 1j, float), "as_array: value must be real"),
        (lambda: as_array(np.array(["a"]), float), "as_array: value must be an array of numbers"),
    ],
)
def test_other_kinds_are_refused_by_name(call, words):
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0)])
def test_empty_matrices_are_refused_unless_they_are_welcome(shape):
    with pytest.raises(ValueError, match=r"given: matrix must have at least one row and one column, but has shape"):
        given(np.zeros(shape))
    assert entry(empty=True)(np.shape)(np.zeros(shape)) == shape


def test_big_endian_numbers_keep_their_values_in_as_array():
    np.testing.assert_array_equal(as_array(VALUES.astype(">f8")), VALUES)
    np.testing.assert_array_equal(as_array(VALUES.astype(">i4"), float), VALUES)
    np.testing.assert_array_equal(as_array(VALUES.astype("longdouble")), VALUES)


@entry(instead="compute it before")
def host(values: Any) -> Any:
    return values


@pytest.mark.parametrize(("transformation", "by"), [(jax.jit, "jit"), (jax.vmap, "vmap"), (jax.grad, "grad")])
def test_traced_values_are_refused_with_what_to_use_instead(transformation, by):
    start = jnp.ones(2) if transformation is jax.vmap else jnp.ones(())
    for wrapped in (lambda x: x, lambda x: [1.0, {"a": x}]):
        with pytest.raises(TracedError, match=rf"host needs concrete numbers, but values is traced by {by}; compute"):
            transformation(lambda x, wrapped=wrapped: host(wrapped(x)))(start)
    assert host(1.0) == 1.0
    concrete("here", "values", [np.ones(2), jnp.ones(2), "text"], instead="nothing")


def test_a_refusal_survives_being_sent_to_another_process():
    error = TracedError("geometry.distance", "start", "jit", "call it outside")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and again.instead == "call it outside"


def refused(x):
    return jnp.sum(no_gradient("here.f", "x", x, instead="use g") ** 2)


def forward(x):
    return jnp.sum(jnp.sin(forward_only("here.f", x, instead="use jax.jvp")))


def test_a_derivative_can_be_refused_while_values_pass():
    x = jnp.array([1.0, 2.0])
    assert float(refused(x)) == float(jax.jit(refused)(x)) == 5.0
    np.testing.assert_array_equal(jax.vmap(refused)(x[None]), [5.0])
    for call in (jax.grad(refused), jax.jit(jax.grad(refused)), jax.jacfwd(refused)):
        with pytest.raises(TracedError, match=r"here.f needs concrete numbers, but x is traced by grad; use g\."):
            call(x)


def test_reverse_mode_alone_can_be_refused():
    x = jnp.array([1.0, 2.0])
    assert float(forward(x)) == pytest.approx(float(np.sin(x).sum()))
    for call in (jax.jacfwd(forward), jax.jit(jax.jacfwd(forward))):
        np.testing.assert_allclose(call(x), np.cos(x), rtol=1e-15)
    np.testing.assert_allclose(jax.jacfwd(jax.jacfwd(forward))(x), np.diag(-np.sin(x)), rtol=1e-15)
    for call in (jax.grad(forward), jax.jit(jax.grad(forward)), jax.vmap(jax.grad(forward))):
        with pytest.raises(TracedError, match=r"here.f needs concrete numbers.*; use jax.jvp\."):
            call(x)


def test_sizes_beyond_squares_are_refused():
    plain = vars(host)["__wrapped__"]
    sized, bounded = entry(sized=("values",))(plain), entry(bounded=("values",))(plain)
    for call, values in ((sized, 1e101), (sized, [np.full(2, 1e-101)]), (bounded, np.full((1, 1), -1e151))):
        with pytest.raises(ValueError, match=r"host: the largest number of values must .* take other units"):
            call(values)
    assert sized(0.0) == 0.0 and bounded(1e-300) == 1e-300
    check_size("here", "values", np.array([0.0, np.inf]))
