"""One formula for two array modules: numbers stay numbers, traced values make programs, and both agree."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear import core
from deeplinear.core import xp

RNG = np.random.default_rng(0)
SQUARE, VECTOR = RNG.standard_normal((3, 3)), RNG.standard_normal(3)


def horner(coefficients: Any, x: Any) -> Any:
    return core.fori_loop(0, len(coefficients), lambda i, total: total * x + coefficients[i], xp.zeros_like(x))


def powers(x: Any) -> Any:
    return core.scan(lambda carry, item: (carry * item, carry), xp.ones_like(x[0]), x)[1]


def halved(x: Any) -> Any:
    return core.while_loop(lambda state: xp.max(xp.abs(state)) > 0.1, lambda state: state / 2, x)


FORMULAS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "namespace": (lambda a, b: xp.sum(xp.exp(a) @ b) / xp.linalg.norm(b), (SQUARE, VECTOR)),
    "special": (lambda a: core.special.entr(xp.abs(a)), (SQUARE,)),
    "lists": (lambda a, b: xp.stack([a, 2 * b]), (VECTOR, VECTOR)),
    "put": (lambda a, b: core.put(a, (slice(None), 1), b), (SQUARE, VECTOR)),
    "add_at": (lambda a: core.add_at(a, np.array([0, 0, 2]), 1.0), (VECTOR,)),
    "entries": (lambda a: core.entries(a, (np.array([0, 2]), np.array([1, 1]))), (SQUARE,)),
    "fori_loop": (horner, (VECTOR, VECTOR)),
    "scan": (powers, (VECTOR,)),
    "while_loop": (halved, (VECTOR,)),
    "over": (lambda a, b: core.over(lambda row, x: row @ b * x)(a, b), (SQUARE, VECTOR)),
    "over columns": (core.over(xp.sum, in_axes=1), (SQUARE,)),
    "columns to columns": (core.over(lambda x: x * xp.sum(x), in_axes=1, out_axes=1), (SQUARE,)),
    "over nothing": (core.over(lambda x: x[:2]), (np.zeros((0, 3)),)),
    "scan of nothing": (lambda x: core.scan(lambda carry, item: (carry, carry * item), x[0], x[:0])[1], (SQUARE,)),
    "cond": (lambda a: core.cond(xp.sum(a) > 0, lambda x: 2 * x, lambda x: -x, a), (VECTOR,)),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_numbers_give_what_a_program_gives_and_compile_nothing(name):
    function, given = FORMULAS[name]
    formula = core.formula(function)
    before = len(COMPILED)
    found = formula(*given)
    assert len(COMPILED) == before and isinstance(found, np.ndarray | np.generic)
    np.testing.assert_allclose(found, jax.jit(formula)(*given), rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(formula(*map(jnp.asarray, given)), found)


COMPILED: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: COMPILED.append(name) if "backend_compile" in name else None
)


def test_derivatives_and_maps_go_through():
    formula = core.formula(FORMULAS["namespace"][0])
    shift = 1e-6 * RNG.standard_normal(SQUARE.shape)
    slope = (formula(SQUARE + shift, VECTOR) - formula(SQUARE - shift, VECTOR)) / 2
    np.testing.assert_allclose(np.sum(jax.grad(formula)(SQUARE, VECTOR) * shift), slope, rtol=1e-7)
    many = np.stack([SQUARE, 2 * SQUARE])
    np.testing.assert_allclose(
        jax.vmap(formula, (0, None))(many, VECTOR), [formula(item, VECTOR) for item in many], rtol=1e-13
    )


def test_what_a_function_closes_over_counts():
    def outer(x: Any) -> Any:
        def scaled(row: Any) -> Any:
            return row * x  # `x` is traced, the rows are numbers

        return xp.sum(core.over(functools.partial(scaled))(np.arange(3.0)))

    assert float(jax.grad(outer)(2.0)) == 3.0


def test_a_rule_for_derivatives_is_used_by_programs_only():
    @core.differentiable
    def cube(x: Any) -> Any:
        return x**3

    @cube.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        return cube(primals[0]), 10.0 * tangents[0]  # not the derivative: seen if it is used

    assert cube(2.0) == 8.0 and float(jax.grad(cube)(2.0)) == 10.0


def test_branches_that_are_left_out_say_nothing():
    @core.formula
    def guarded(x: Any) -> Any:
        return xp.where(x > 0, 1 / x, 0.0)

    np.testing.assert_array_equal(guarded(np.array([0.0, 2.0])), [0.0, 0.5])


def test_entries_that_cannot_be_seen_and_lie_outside_are_not_numbers():
    assert np.isnan(jax.jit(lambda i: core.entries(jnp.ones(3), i))(5))


def test_states_within_a_run_pass_unseen():
    with core.within_run():
        assert not core.is_concrete(np.ones(2))
        core.check_number("test", "x", -1.0, above=0)
    assert core.is_concrete(np.ones(2))
