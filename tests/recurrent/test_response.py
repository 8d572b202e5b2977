"""Responses by three paths and by logarithms, outputs as convolutions, and measures of extrapolation."""

import math

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.linalg

from deeplinear.core import HypothesisError
from deeplinear.recurrent import (
    Response,
    extrapolation,
    hankel_order,
    hankel_singular_values,
    impulse_response,
    log_response,
    outputs,
    summarise_ratios,
)

PATHS_AGREE = 1e-12  # relative, spectral radius up to 1.1


def by_powers(system: tuple[np.ndarray, ...], length: int) -> np.ndarray:
    a, b, c = system
    return np.array([c @ np.linalg.matrix_power(a, j) @ b for j in range(length)])


def symmetric(rng: np.random.Generator, size: int, radius: float) -> np.ndarray:
    a = rng.normal(size=(size, size))
    a = a + a.T
    return radius * a / np.abs(np.linalg.eigvalsh(a)).max()


@pytest.mark.covers("rnn:F2")
@pytest.mark.parametrize(("inputs", "size"), [(1, 7), (2, 5)])
def test_three_paths(inputs: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, c = rng.normal(size=(size, inputs)), rng.normal(size=(3 if inputs > 1 else 1, size))
    a = symmetric(rng, size, 1.1)
    truth = by_powers((a, b, c), 50)
    scale = np.linalg.norm(b) * np.linalg.norm(c) * 1.1 ** np.arange(50)
    for path in ("general", "symmetric"):
        found = impulse_response((a, b, c), 50, path=path)
        assert found.diverged_at is None
        assert found.values.shape == ((50,) if inputs == 1 else (50, 3, 2))
        errors = np.abs(np.asarray(found.values).reshape(truth.shape) - truth).max(axis=(1, 2))
        assert np.max(errors / scale) < PATHS_AGREE
    d = np.diag(rng.uniform(-1.1, 1.1, size))
    d[0, 0] = 0.0  # 0^0 = 1
    one, two, three = (impulse_response((d, b, c), 50, path=p).values for p in ("general", "symmetric", "diagonal"))
    np.testing.assert_allclose(np.ravel(one), by_powers((d, b, c), 50).ravel(), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(two, one, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(three, one, rtol=1e-12, atol=1e-12)


@pytest.mark.covers("rnn:S21", "rnn:E15")
def test_a_delay_answers_with_one_entry() -> None:
    """And the output before the first input, always zero, is not counted."""
    shift = (np.eye(4, k=1), np.eye(4)[:, 3:], np.eye(4)[:1])
    np.testing.assert_array_equal(impulse_response(shift, 7).values, np.eye(7)[3])
    np.testing.assert_array_equal(outputs(shift, np.eye(7)[0]), np.eye(7)[3])


@pytest.mark.covers("rnn:F2")
def test_overflow_is_reported() -> None:
    system = (np.diag([2.0, 0.5]), np.ones((2, 1)), np.array([[1.0, -1.0]]))
    for path in ("general", "symmetric", "diagonal"):
        found = impulse_response(system, 2000, path=path)
        assert found.diverged_at == 1024
        assert found.values.shape == (1024,) and np.all(np.isfinite(found.values))
    unseen = (np.diag([2.0, 0.5]), np.array([[0.0], [1.0]]), np.ones((1, 2)))
    assert impulse_response(unseen, 2000, path="diagonal").diverged_at is None
    at_once = impulse_response(([[1.0]], [[1e200]], [[1e200]]), 3)
    assert at_once.diverged_at == 0 and at_once.values.shape == (0,)


@pytest.mark.covers("rnn:F2")
def test_logarithms_go_on_where_numbers_end(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = rng.uniform(-3, 3, 3), rng.normal(size=(3, 1)), rng.normal(size=(1, 3))
    a[0] = 3.0
    found = log_response((np.diag(a), b, c), 1500)
    plain = np.asarray(impulse_response((np.diag(a), b, c), 100).values)
    np.testing.assert_allclose(np.exp(found.sizes[:100]) * found.signs[:100], plain, rtol=1e-11)
    with mpmath.workdps(50):
        terms = [mpmath.mpf(p) * mpmath.mpf(x) ** 1499 for p, x in zip(c[0] * b[:, 0], a, strict=True)]
        truth = mpmath.fsum(terms)
        assert float(found.sizes[1499]) == pytest.approx(float(mpmath.log(abs(truth))), rel=1e-13)
        assert float(found.signs[1499]) == float(mpmath.sign(truth))
    small = log_response(([[1e-3]], [[1.0]], [[-2.0]]), 400)
    assert float(small.sizes[-1]) == pytest.approx(math.log(2.0) + 399 * math.log(1e-3), rel=1e-14)
    gone = log_response(([[0.0]], [[1.0]], [[1.0]]), 2)
    assert gone.sizes.tolist() == [0.0, -math.inf] and gone.signs.tolist() == [1.0, 0.0]
    assert log_response((np.eye(2), np.ones((2, 2)), np.ones((3, 2))), 4).sizes.shape == (4, 3, 2)


@pytest.mark.covers("rnn:F1", "rnn:S1")
def test_outputs_are_convolutions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    times, size = 30, 6
    for _ in range(10):
        a = rng.normal(size=(size, size)) / 3
        b, c, x = rng.normal(size=(size, 1)), rng.normal(size=(1, size)), rng.normal(size=times)
        h = by_powers((a, b, c), times).ravel()
        found = np.asarray(outputs((a, b, c), x))
        scale = np.convolve(np.abs(x), np.abs(h))[:times]
        assert np.max(np.abs(found - np.convolve(x, h)[:times]) / scale.max()) < 1e-12
        assert found[-1] == pytest.approx(sum(h[times - 1 - j] * x[j] for j in range(times)), abs=1e-12 * scale.max())
    a = rng.normal(size=(size, size)) / 3
    b, c, x = rng.normal(size=(size, 2)), rng.normal(size=(3, size)), rng.normal(size=(times, 2))
    h = by_powers((a, b, c), times)
    truth = np.array([sum(h[t - j] @ x[j] for j in range(t + 1)) for t in range(times)])
    found = outputs((a, b, c), x)
    assert found.shape == (times, 3)
    np.testing.assert_allclose(found, truth, atol=1e-12 * np.abs(truth).max())
    many = jax.vmap(lambda sequence: outputs((a, b, c), sequence))(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(many[1], 2 * np.asarray(found), rtol=1e-12, atol=1e-12)


@pytest.mark.covers("rnn:F1", "rnn:F2")
def test_refusals_of_systems() -> None:
    system = (np.array([[0.0, 1.0], [0.0, 0.0]]), np.ones((2, 1)), np.ones((1, 2)))
    with pytest.raises(HypothesisError, match="a symmetric transition matrix"):
        impulse_response(system, 3, path="symmetric")
    with pytest.raises(HypothesisError, match="a diagonal transition matrix"):
        impulse_response(system, 3, path="diagonal")
    with pytest.raises(ValueError, match="length must be at least 1"):
        impulse_response(system, 0)
    with pytest.raises(ValueError, match="A must be finite"):
        impulse_response((system[0] * math.nan, *system[1:]), 3)
    with pytest.raises(ValueError, match="must have shape"):
        impulse_response((system[0], np.ones((3, 1)), system[2]), 3)
    with pytest.raises(ValueError, match="inputs must be finite"):
        outputs(system, [1.0, math.inf])
    with pytest.raises(ValueError, match=r"inputs must have shape \(times, 2\)"):
        outputs((system[0], np.ones((2, 2)), system[2]), [1.0, 0.0])
    with pytest.raises(OverflowError, match="from output 5 on"):
        outputs(([[1e100]], [[1.0]], [[1.0]]), np.ones(9))


@pytest.mark.covers("rnn:F14")
def test_errors_of_a_tail() -> None:
    w = 0.9 ** np.arange(20)
    h = w.copy()
    h[3] += 0.2
    h[8] -= 0.05
    h[15] += 7.0
    found = extrapolation(h, w, 6, horizon=12)
    assert found.training_loss == pytest.approx(0.02, rel=1e-13)
    assert found.error == pytest.approx(0.05, rel=1e-13) and found.gap == pytest.approx(0.2, rel=1e-13)
    assert found.reference == 0.9**6 and not found.degenerate and (found.length, found.horizon) == (6, 12)
    assert found.ratio == pytest.approx(0.05 / 0.9**6, rel=1e-13)
    assert found.within(0.2 + 1e-12) and not found.within(0.2 - 1e-12)
    assert found.extrapolates()
    assert not extrapolation(h, w, 6, horizon=20).extrapolates()
    assert not extrapolation(0 * w, w, 6, horizon=20).extrapolates()  # the zero student is not better than itself
    exploding = extrapolation(Response(jnp.asarray(w[:9]), 9), w, 6, horizon=12)
    assert exploding.error == math.inf and exploding.training_loss == 0 and not exploding.extrapolates()
    assert extrapolation(Response(jnp.asarray(w[:4]), 4), w, 6, horizon=12).training_loss == math.inf
    blocks = w[:, None, None] * np.ones((20, 2, 2))
    assert extrapolation(2 * blocks, blocks, 6, horizon=20).error == pytest.approx(2 * 0.9**6, rel=1e-13)
    huge = extrapolation(1e200 * w, w, 6, horizon=12)
    assert huge.error == pytest.approx(1e200 * 0.9**6) and huge.training_loss == math.inf


@pytest.mark.covers("rnn:F14", "rnn:E16")
def test_a_teacher_without_a_tail_needs_a_trained_student() -> None:
    delay = np.eye(40)[3]
    untrained = extrapolation(1e-17 * np.ones(40), delay, 8, horizon=40)
    assert untrained.degenerate and untrained.reference == 1.0
    assert untrained.error == 1e-17 and not untrained.extrapolates()  # although its tail is as good as none
    assert untrained.training_loss == pytest.approx(0.5, rel=1e-13)
    trained = extrapolation(delay + 1e-9, delay, 8, horizon=40)
    assert trained.extrapolates() and not trained.extrapolates(converged=1e-18)
    assert not extrapolation(delay + 2 * np.eye(40)[20], delay, 8, horizon=40).extrapolates()
    with pytest.raises(HypothesisError, match="a teacher whose response is not zero"):
        extrapolation(delay, np.zeros(40), 8, horizon=40)


@pytest.mark.covers("rnn:F14")
def test_one_explosion_does_not_speak_for_all() -> None:
    found = summarise_ratios([0.1, 0.15, 1e40, 0.2, math.inf])
    assert found.median == 0.2 and found.failed == pytest.approx(0.4)
    np.testing.assert_array_equal(found.capped, [0.1, 0.15, 1e3, 0.2, 1e3])
    assert found.mean == pytest.approx(np.mean(found.capped)) and found.deviation == pytest.approx(np.std(found.capped))
    assert summarise_ratios([0.5, math.inf]).median == math.inf
    assert summarise_ratios([0.2, 0.4]).median == pytest.approx(0.3)
    with pytest.raises(ValueError, match="ratios must be at least 0"):
        summarise_ratios([0.1, math.nan])
    with pytest.raises(ValueError, match="at least one number"):
        summarise_ratios([])


@pytest.mark.covers("rnn:F14")
def test_refusals_of_tails() -> None:
    w = np.ones(10)
    with pytest.raises(ValueError, match="horizon must be at least 6"):
        extrapolation(w, w, 5, horizon=5)
    with pytest.raises(ValueError, match="length must be at least 1"):
        extrapolation(w, w, 0, horizon=5)
    with pytest.raises(ValueError, match="response must reach the horizon, 10 entries, but has 9"):
        extrapolation(w[:9], w, 5, horizon=10)
    with pytest.raises(ValueError, match="response must be finite"):
        extrapolation(np.append(w, math.inf), w, 5, horizon=10)
    with pytest.raises(ValueError, match="response must"):
        extrapolation(np.ones((10, 2)), np.ones((10, 2)), 5, horizon=10)
    with pytest.raises(ValueError, match="entries of the same shape"):
        extrapolation(np.ones((10, 1, 2)), w, 5, horizon=10)


@pytest.mark.covers("rnn:F18")
def test_order_of_a_response(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, p = np.array([0.9, -0.5, 0.3]), rng.uniform(0.5, 2, 3)
    h = (x ** np.arange(21)[:, None]) @ p
    truth = scipy.linalg.svdvals(scipy.linalg.hankel(h[:11], h[10:]))
    np.testing.assert_allclose(hankel_singular_values(h), truth, atol=1e-14 * truth[0])
    assert hankel_order(h) == 3 and hankel_order(h, size=2) == 2
    assert hankel_order((x ** np.arange(21)[:, None]) @ [1.0, 0.1, 0.1], tolerance=0.5) == 1
    assert hankel_order(np.zeros(9)) == 0
    assert hankel_order(np.eye(20)[9]) == 10  # a delay by ten steps
    a, b, c = np.diag([0.9, 0.5, 0.2, 0.1]), rng.normal(size=(4, 2)), rng.normal(size=(3, 4))
    assert hankel_order(by_powers((a, b, c), 9)) == 4
    with pytest.raises(ValueError, match="size must be at most 5"):
        hankel_order(h[:9], size=6)
