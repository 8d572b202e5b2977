"""The two-by-two warm start: bounds, the reduced system and its structure, along SciPy's flow of the full problem."""

import functools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.exact import (
    disconnected,
    warm_start_bounds,
    warm_start_field,
    warm_start_layers,
    warm_start_violations,
)
from deeplinear.models import AlphaM, Completion, DeepLinear, Problem

MASK = np.array([[1.0, 1.0], [0.0, 1.0]])
TIMES = np.concatenate([np.linspace(0, 6, 61), np.linspace(7, 36, 30)])  # 91 times
CASES = [(1, 0.1), (1, 0.5), (1, 1), (2, 0.3), (0.5, 2), (1, 10)]

ROUNDING = 1e-13  # of numbers of order one, and for the largest case of order ten
VIOLATION = 5e-13  # DOP853 at rtol 1e-13 over these times, times the largest entry
FLOOR = 1e-22  # of the loss: squared errors of the integration
PRINTED = 3e-4  # figures given to four digits


def flow(a, b, value, revealed, times, second=None):
    """Products' factors (a, b) at each time, restarted there; the observed entries written out."""
    target = np.array([[value, revealed], [0, value if second is None else second]])

    def field(_, y):
        a, b = y[:4].reshape(2, 2), y[4:].reshape(2, 2)
        g = MASK * (a @ b - target)
        return -np.concatenate([(g @ b.T).ravel(), (a.T @ g).ravel()])

    y, now, states = np.concatenate([np.ravel(a), np.ravel(b)]).astype(float), 0.0, []
    for t in times:
        if t > now:
            y, now = solve_ivp(field, (now, t), y, method="DOP853", rtol=1e-13, atol=1e-20).y[:, -1], t
        states.append((y[:4].reshape(2, 2), y[4:].reshape(2, 2)))
    return states


@functools.cache
def warm(value: float, revealed: float):
    """Factors at `TIMES` after the reveal, from the start that training of the diagonal from alpha I leads to."""
    root = np.sqrt(value) * np.eye(2)
    states = flow(root, root, value, revealed, TIMES)
    return np.array([a for a, _ in states]), np.array([b for _, b in states])


def stable_rank(w) -> float:
    s = np.linalg.svd(w, compute_uv=False)
    return float(np.sum(s**2) / s[0] ** 2)


def effective_rank(w) -> float:
    p = np.linalg.svd(w, compute_uv=False)
    p = p / p.sum()
    return float(np.exp(-np.sum(p * np.log(p))))


@pytest.mark.covers("completion:C23", "completion:E13", "completion:F21")
@pytest.mark.parametrize(("value", "revealed"), CASES)
def test_published_bounds_along_the_flow(value, revealed):
    a, b = warm(value, revealed)
    bounds = warm_start_bounds(float(value), float(revealed))
    w = a @ b
    target = np.array([[value, revealed], [0, value]])
    loss = 0.5 * np.sum((MASK * (w - target)) ** 2, axis=(1, 2))
    assert np.all(loss <= np.asarray(bounds.loss_envelope(TIMES)) * (1 + ROUNDING) + FLOOR)
    assert float(bounds.loss_envelope(0.0)) == pytest.approx(revealed**2 / 2)
    values = np.linalg.svd(w[-1], compute_uv=False)
    assert stable_rank(w[-1]) >= float(bounds.stable_rank)
    assert values[0] <= float(bounds.largest_singular_value)
    assert values[1] >= float(bounds.smallest_singular_value)
    assert w[0, 1, 0] == 0 and np.all(w[1:, 1, 0] < 0), "zero at the reveal, negative ever after"
    assert float(bounds.rank_one_value) == pytest.approx(value**2 / revealed)


@pytest.mark.covers("completion:C25", "completion:F22")
@pytest.mark.parametrize(("value", "revealed"), CASES)
def test_sharper_bound_along_the_flow(value, revealed):
    a, b = warm(value, revealed)
    w = a @ b
    bounds = warm_start_bounds(float(value), float(revealed))
    assert np.all(np.abs(w[:, 1, 0]) <= w[:, 0, 1] + ROUNDING)
    assert stable_rank(w[-1]) >= float(bounds.sharper_stable_rank) > 1 + np.exp(-2 * revealed / value)
    assert float(bounds.sharper_stable_rank) >= float(bounds.stable_rank)
    x, y, z = w[:, 0, 0], w[:, 0, 1], w[:, 1, 0]
    values = np.linalg.svd(w, compute_uv=False)
    np.testing.assert_allclose(values.sum(axis=1), np.sqrt(4 * x**2 + (y - z) ** 2), rtol=1e-11)
    np.testing.assert_allclose(values[:, 0] - values[:, 1], np.abs(y + z), atol=10 * VIOLATION * max(1, revealed))


@pytest.mark.covers("completion:C24", "completion:E11", "completion:F21")
@pytest.mark.parametrize(("value", "revealed"), CASES)
def test_structure_along_the_flow(value, revealed):
    """All lemmas, among them |W|_F >= sqrt(2) w*, which follows from w11 = w22 >= w*; and the loss never rises."""
    a, b = warm(value, revealed)
    violations = jax.jit(jax.vmap(lambda *params: warm_start_violations(params, float(value), float(revealed))))(b, a)
    assert {name: float(v.max()) for name, v in violations.items() if v.max() > VIOLATION * max(1, revealed)} == {}
    target = np.array([[value, revealed], [0, value]])
    loss = 0.5 * np.sum((MASK * (a @ b - target)) ** 2, axis=(1, 2))
    assert np.all(np.diff(loss) <= FLOOR)


def test_a_negative_revealed_entry_is_seen_by_itself():
    """Its size is the violation; the diagonal of the product is positive."""
    a, b = jnp.eye(2), jnp.array([[1.0, -0.25], [0.0, 1.0]])
    assert float(warm_start_violations((b, a), 1.0, 0.1)["revealed entry not negative"]) == 0.25


def test_each_violation_is_seen():
    """Layers far from the warm start break every relation."""
    a, b = jnp.array([[-0.5, -1.0], [3.0, 0.1]]), jnp.array([[0.3, -0.2], [0.5, 0.6]])
    broken = {name for name, v in warm_start_violations((b, a), 1.0, 0.1).items() if v > 0}
    a, b = jnp.array([[0.1, 0.0], [0.2, 0.0]]), jnp.array([[1.0, 9.0], [0.0, 0.0]])
    broken |= {name for name, v in warm_start_violations((b, a), 1.0, 0.1).items() if v > 0}
    assert broken == set(warm_start_violations((b, a), 1.0, 0.1))


@pytest.mark.covers("completion:F21")
def test_reduced_system_is_the_gradient_of_the_full_one(seed):
    entries = np.random.default_rng(seed).normal(size=4)
    b, a = (np.asarray(w) for w in warm_start_layers(jnp.asarray(entries)))
    exchange = np.eye(2)[::-1]
    np.testing.assert_array_equal(b, exchange @ a.T @ exchange)
    g = MASK * (a @ b - np.array([[1.3, 0.7], [0, 1.3]]))
    got = warm_start_field(jnp.asarray(entries), 1.3, 0.7)
    np.testing.assert_allclose(got, -(g @ b.T).ravel(), atol=ROUNDING)
    np.testing.assert_allclose(exchange @ np.asarray(got).reshape(2, 2).T @ exchange, -a.T @ g, atol=ROUNDING)


@pytest.mark.covers("completion:F21", "completion:F22", "completion:E6")
@pytest.mark.parametrize(
    ("revealed", "measured", "published", "sharper", "missing", "soft"),
    [
        (0.01, 1.98019886, 1.92312, 1.98019875, -5.2080967e-8, 1.99998),
        (0.1, 1.818884134436, 1.44933, 1.81880, -5.18474481719e-5, 1.99751),
        (0.5, 1.376379786303, 1.01832, 1.37163, -5.829120389e-3, 1.94289),
        (1.0, 1.159921978913, 1.00034, 1.14590, -0.0347155739, 1.81889),
        (10.0, 1.002170942, 1.0, 1.0000961, -0.3748762631, 1.19967),
    ],
)
def test_table_of_limits(revealed, measured, published, sharper, missing, soft):
    """To the digits printed. The sharper bound at 0.01 and 10 is that of its formula, from mpmath."""
    ((a, b),) = flow(np.eye(2), np.eye(2), 1.0, revealed, [40.0])
    bounds = warm_start_bounds(1.0, revealed)

    def last_digit(printed: float) -> float:
        return 10.0 ** -len(repr(printed).split(".")[1]) if "e" not in repr(printed) else abs(printed) * 1e-7

    assert stable_rank(a @ b) == pytest.approx(measured, abs=last_digit(measured))
    assert (a @ b)[1, 0] == pytest.approx(missing, abs=last_digit(missing))
    assert effective_rank(a @ b) == pytest.approx(soft, abs=1e-5)
    assert float(bounds.stable_rank) == pytest.approx(published, abs=1e-5)
    assert float(bounds.sharper_stable_rank) == pytest.approx(sharper, abs=last_digit(sharper))
    with mpmath.workdps(50):
        exact = mpmath.exp(-4 * mpmath.asinh(mpmath.mpf(revealed) / 2))
        assert float(bounds.sharper_stable_rank_excess) == pytest.approx(float(exact), rel=ROUNDING)
        assert float(bounds.stable_rank_excess) == pytest.approx(
            float(mpmath.exp(-8 * mpmath.mpf(revealed))), rel=ROUNDING
        )


@pytest.mark.covers("completion:F21")
def test_law_of_small_revealed_entries():
    for value in (1.0, 2.0):
        revealed = 1e-3 * value
        root = np.sqrt(value) * np.eye(2)
        ((a, b),) = flow(root, root, value, revealed, [20.0])
        law = float(warm_start_bounds(value, revealed).small_revealed_entry)
        assert (a @ b)[1, 0] == pytest.approx(law, rel=2e-6)  # the next term is smaller by w12^2
        assert law == pytest.approx(-5 / 96 * revealed**3 / value**2)


@pytest.mark.covers("completion:C23")
def test_an_envelope_of_twice_the_rate_does_not_hold():
    """Loss over w12^2/2 exp(-4 w* tau) reaches 4.9 at tau = 6 for w12 = 1/2."""
    a, b = warm(1, 0.5)
    at = int(np.argmin(np.abs(TIMES - 6)))
    residual = MASK * (a[at] @ b[at] - np.array([[1, 0.5], [0, 1]]))
    assert np.sum(residual**2) / (0.25 * np.exp(-24)) == pytest.approx(4.9, abs=0.05)


REFERENCE = {  # warm and cold effective rank, warm and cold w21, for m = 2, 10, 100 and infinity
    (
        1,
        1,
        0.5,
    ): "1.5298 1.0577 .9255 1.8827 1.8864 1.1465 .1855 1.6803 1.9381 1.1705 .0134 1.6270 1.9429 1.1733 -.0058 1.6209",
    (
        1,
        1,
        10,
    ): "1.0507 1.0000 .0115 .1000 1.1652 1.0000 -.2737 .1000 1.1962 1.0000 -.3645 .1000 1.1997 1.0000 -.3749 .1000",
    (
        1,
        2,
        0.5,
    ): "1.5566 1.1548 1.3594 3.0272 1.8259 1.2318 .2733 2.6308 1.8633 1.2437 .0249 2.5742 1.8667 1.2449 -.0028 2.5687",
    (
        1,
        1,
        0.1,
    ): "1.7528 1.6817 1.0014 1.2047 1.9777 1.8840 .1994 .6060 1.9964 1.9191 .0199 .4812 1.9975 1.9227 -.00005 .4673",
}


@pytest.mark.covers("completion:E6")
@pytest.mark.parametrize("case", REFERENCE)
def test_warm_and_cold_starts_from_the_one_parameter_family(case):
    """The diagonal is fitted in closed form from alpha = 1e-3, then the entry is revealed; cold: all at once."""
    w11, w22, w12 = case
    expected = np.array(REFERENCE[case].split(), dtype=float).reshape(4, 4)
    model = DeepLinear((2, 2, 2))
    diagonal = Problem(model, Completion(np.diag([w11, w22]), np.eye(2)))
    for m, (warm_rank, cold_rank, warm_entry, cold_entry) in zip((2.0, 10.0, 100.0, np.inf), expected, strict=True):
        start = AlphaM(1e-3, m)(model, jax.random.key(0))
        trained = disconnected(diagonal, start).limit()
        for layers, rank, entry in ((trained, warm_rank, warm_entry), (start, cold_rank, cold_entry)):
            ((a, b),) = flow(layers[1], layers[0], w11, w12, [100.0], second=w22)
            assert effective_rank(a @ b) == pytest.approx(rank, abs=PRINTED)
            assert (a @ b)[1, 0] == pytest.approx(entry, abs=PRINTED)
        if (w11, w22) == (1, 1) and m < 100:
            product = np.asarray(trained[1] @ trained[0])
            assert effective_rank(product) == pytest.approx({2.0: 1.3841, 10.0: 1.9609}[m], abs=PRINTED)


@pytest.mark.covers("completion:E6")
def test_both_numbers_of_the_figure():
    """Text and caption quote different revealed entries: 0.1 and 0.5."""
    for revealed, bound, observed in ((0.1, 1.4493, 1.8189), (0.5, 1.0183, 1.3764)):
        assert float(warm_start_bounds(1.0, revealed).stable_rank) == pytest.approx(bound, abs=5e-5)
        a, b = warm(1, revealed)
        assert stable_rank(a[-1] @ b[-1]) == pytest.approx(observed, abs=5e-5)


@pytest.mark.covers("completion:F39")
@pytest.mark.parametrize(("value", "revealed", "name"), [(0.0, 1.0, "value"), (1.0, -0.1, "revealed")])
def test_refusals(value, revealed, name):
    for call in (
        lambda: warm_start_bounds(value, revealed),
        lambda: warm_start_field(jnp.ones(4), value, revealed),
        lambda: warm_start_violations((jnp.eye(2), jnp.eye(2)), value, revealed),
    ):
        with pytest.raises(ValueError, match=f"{name} must be greater than 0"):
            call()


@pytest.mark.covers("completion:F39")
def test_layers_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"params\[1\] must have shape \(2, 2\)"):
        warm_start_violations((jnp.eye(2), jnp.eye(3)), 1.0, 1.0)
    with pytest.raises(ValueError, match="two layers"):
        warm_start_violations((jnp.eye(2),), 1.0, 1.0)


@pytest.mark.covers("completion:F39")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: warm_start_bounds(1.0, 0.1).loss_envelope(-1.0), "times must be at least 0, but is -1"),
        (lambda: warm_start_bounds(1.0, 0.1).loss_envelope(np.array([0, np.nan])), r"times .* entry \(1,\) is nan"),
        (lambda: warm_start_field(jnp.full(4, jnp.nan), 1.0, 0.1), "warm_start_field: entries must be finite"),
        (lambda: warm_start_layers(jnp.full(4, jnp.inf)), "warm_start_layers: entries must be finite"),
        (lambda: warm_start_violations((jnp.eye(2), jnp.nan * jnp.eye(2)), 1.0, 0.1), r"params\[1\] must be finite"),
    ],
)
def test_what_is_not_finite_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
