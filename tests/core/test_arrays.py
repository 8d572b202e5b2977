"""Numbers of users as arrays: values and types are NumPy's, memory is its own, and new shapes compile nothing."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import as_array

GIVEN = (
    2,
    True,
    1.5,
    np.float32(0.1),
    range(3),
    [],
    [1, 2, 3],
    [True, False],
    ((1, 2.5), (np.int8(3), np.float32(0.1))),
    [np.arange(3.0), [4, 5, 6]],
    np.arange(6, dtype=np.uint8).reshape(2, 3),
    np.full((2, 2), 0.1, dtype=np.float32),
    np.arange(12.0).reshape(3, 4)[::2, ::-1],
)

compiled: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
)


@pytest.mark.parametrize("value", GIVEN, ids=repr)
def test_numbers_are_those_of_numpy(value: Any) -> None:
    array = as_array(value, float)
    assert type(array) is np.ndarray and array.dtype == float
    np.testing.assert_array_equal(array, np.asarray(value, dtype=float), strict=True)


@pytest.mark.parametrize(
    "value", [value for value in GIVEN if isinstance(value, np.ndarray | np.generic | list | tuple)], ids=repr
)
def test_numbers_keep_their_type(value: Any) -> None:
    np.testing.assert_array_equal(as_array(value), np.asarray(value), strict=True)


def test_lists_of_arrays_of_jax() -> None:
    array = as_array([jnp.arange(3.0), [1, 2, jnp.asarray(3)]], float)
    np.testing.assert_array_equal(array, [[0.0, 1.0, 2.0], [1.0, 2.0, 3.0]], strict=True)


def test_memory_is_not_shared() -> None:
    room = np.zeros(4096)
    given = room[-room.ctypes.data % 64 // room.itemsize :]  # from where JAX could take it as it lies
    array = as_array(given, float)
    given[:] = 1.0
    assert not np.any(np.asarray(array))


def test_numbers_of_jax_are_numbers() -> None:
    array = as_array(jnp.arange(3.0), float)
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array, [0.0, 1.0, 2.0])


def test_within_transformations() -> None:
    np.testing.assert_allclose(jax.jit(lambda x: as_array([x, 2.0], float) ** 2)(3.0), [9.0, 4.0])
    np.testing.assert_allclose(jax.grad(lambda x: jnp.prod(as_array([x, 2.0], float)))(3.0), 2.0)
    np.testing.assert_allclose(
        jax.vmap(lambda x: as_array(x, float) + as_array(np.ones(2), float))(jnp.eye(2)), [[2, 1], [1, 2]]
    )


def test_new_shapes_compile_nothing() -> None:
    first = [jnp.asarray(float(k)) for k in range(4)]
    compiled.clear()
    for size in range(31, 35):
        as_array(list(range(size)), float)
        as_array([0.5] * size)
        as_array(np.ones((size, 2)))
        as_array(np.ones(size, dtype=np.int32), float)
        as_array(size, float)
        as_array(first[: size - 30], float)
    assert compiled == []


def test_rows_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="inhomogeneous"):
        as_array([[1.0, 2.0], [3.0]], float)
    with pytest.raises((TypeError, ValueError)):
        as_array("1, 2", float)
