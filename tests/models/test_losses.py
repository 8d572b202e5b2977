"""Losses: worked values and refusals. What all losses share is in laws/test_losses.py."""

import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.models import (
    Completion,
    Energy,
    EntryCompletion,
    Regression,
    SampleRegression,
    Sensing,
    SquaredDistance,
)

NAN = float("nan")


def test_worked_values():
    ones, zeros = np.ones((2, 2)), jnp.zeros((2, 2))
    assert float(SquaredDistance(ones).value(zeros)) == 2.0
    assert float(Completion(ones, np.eye(2)).value(zeros)) == 1.0
    assert float(EntryCompletion([0], [1], [3.0], (2, 2)).value(zeros)) == 4.5
    assert float(Sensing([ones], [2.0]).value(zeros)) == 2.0
    # Two samples with x = e_1, e_2 and y = (1, 1), (1, 1): the mean over samples of half of 2.
    assert float(Regression.from_data(np.eye(2), ones).value(zeros)) == pytest.approx(1.0, rel=1e-14)
    assert float(SampleRegression(np.eye(2), ones).value(zeros)) == 1.0


@pytest.mark.covers("exact:F1")
def test_constant_of_whitened_regression_is_the_loss_at_the_covariance(seed):
    rng = np.random.default_rng(seed)
    q, _ = np.linalg.qr(rng.normal(size=(12, 3)))
    x, y = np.sqrt(12) * q.T, rng.normal(size=(2, 12))
    sigma = y @ x.T / 12
    constant = 0.5 * np.trace(y @ y.T / 12) - 0.5 * np.sum(sigma**2)
    direct = 0.5 * np.sum((sigma @ x - y) ** 2) / 12
    loss = Regression.from_data(x, y)
    assert float(loss.value(jnp.asarray(sigma))) == pytest.approx(constant, rel=1e-12)
    assert float(loss.value(jnp.asarray(sigma))) == pytest.approx(direct, rel=1e-12)
    assert float(Regression.from_data(x, y, reduced=True).value(jnp.asarray(sigma))) == pytest.approx(0, abs=1e-28)


def test_regression_with_fewer_samples_than_inputs_has_a_minimum_of_zero(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(4, 2)), rng.normal(size=(2, 2))
    loss = Regression.from_data(x, y)
    best = np.linalg.lstsq(x.T, y.T, rcond=None)[0].T
    assert float(loss.value(jnp.asarray(best))) == pytest.approx(0, abs=1e-13)
    np.testing.assert_allclose(loss.solution, best, atol=1e-10)


def test_unobserved_entries_may_be_missing():
    loss = Completion([[1.0, NAN]], [[True, False]])
    assert float(loss.value(jnp.array([[3.0, 7.0]]))) == 2.0


def test_energy_depends_on_its_data():
    loss = Energy(lambda w, a: jnp.sum(a * w), np.ones((2, 2)))
    np.testing.assert_array_equal(loss.gradient(jnp.zeros((2, 2))), np.ones((2, 2)))


REFUSED = {
    "target not a matrix": (lambda: SquaredDistance([1.0]), "SquaredDistance: target must have shape"),
    "target not finite": (lambda: SquaredDistance([[1.0, NAN]]), r"SquaredDistance: target must be finite.*\(0, 1\)"),
    "target without rows": (
        lambda: SquaredDistance(np.zeros((0, 2))),
        "SquaredDistance: target must have at least one",
    ),
    "mask without columns": (
        lambda: Completion(np.zeros((2, 0)), np.zeros((2, 0))),
        "target must have at least one row",
    ),
    "syy negative": (lambda: Regression(np.eye(2), np.eye(2), -np.eye(2)), "syy must be positive semi-definite"),
    "syy not symmetric": (lambda: Regression(np.eye(2), np.eye(2), [[2, 1], [0, 2]]), "syy must be symmetric"),
    "syy too small": (lambda: Regression(np.eye(2), np.eye(2), 0.5 * np.eye(2)), "the loss would be negative"),
    "width of zero": (lambda: EntryCompletion([0], [0], [1.0], (0, 2)), "each width in shape must be at least 1"),
    "sxx not square": (lambda: Regression(np.ones((2, 3)), np.ones((1, 2))), "Regression: sxx must have shape"),
    "sxx not symmetric": (lambda: Regression([[1, 1], [0, 1]], np.ones((1, 2))), "Regression: sxx must be symmetric"),
    "sxx indefinite": (lambda: Regression(np.diag([1, -1]), np.ones((1, 2))), "positive semi-definite"),
    "syx of another width": (lambda: Regression(np.eye(2), np.ones((1, 3))), "Regression: syx must have shape"),
    "syx off the range": (lambda: Regression(np.diag([1, 0]), np.ones((1, 2))), "syx must vanish on the null space"),
    "syy of another size": (lambda: Regression(np.eye(2), np.ones((1, 2)), np.eye(2)), "syy must have shape"),
    "no syy": (lambda: Regression(np.eye(2), np.ones((1, 2)), reduced=False), "full loss needs syy"),
    "no samples": (lambda: Regression.from_data(np.ones((2, 0)), np.ones((1, 0))), "inputs must hold"),
    "unequal samples": (lambda: Regression.from_data(np.ones((2, 3)), np.ones((1, 4))), "outputs must have shape"),
    "unequal samples kept": (lambda: SampleRegression(np.ones((2, 3)), np.ones((1, 4))), "outputs must have shape"),
    "mask of another shape": (lambda: Completion(np.eye(2), np.ones((2, 3))), "Completion: mask must have shape"),
    "mask with other numbers": (lambda: Completion(np.eye(2), 2 * np.eye(2)), "mask must hold only 0 and 1"),
    "nothing observed": (lambda: Completion(np.eye(2), np.zeros((2, 2))), "mask must mark at least one"),
    "observed NaN": (lambda: Completion([[NAN]], [[1]]), r"Completion: target \(where observed\) must be finite"),
    "no entries": (lambda: EntryCompletion([], [], [], (2, 2)), "values must hold at least one"),
    "row outside": (lambda: EntryCompletion([2], [0], [1.0], (2, 2)), r"rows must lie in 0\.\.1"),
    "negative column": (lambda: EntryCompletion([0], [-1], [1.0], (2, 2)), r"columns must lie in 0\.\.1"),
    "entry twice": (lambda: EntryCompletion([0, 0], [1, 1], [1.0, 2.0], (2, 2)), "observed twice"),
    "rows too few": (lambda: EntryCompletion([0], [0, 1], [1.0, 2.0], (2, 2)), "rows must have shape"),
    "measurements without entries": (lambda: Sensing(np.ones((2, 0, 3)), [1.0, 2.0]), "each of matrices must have at"),
    "no measurements": (lambda: Sensing(np.ones((0, 2, 2)), []), "matrices must hold at least one"),
    "values too few": (lambda: Sensing(np.ones((2, 2, 2)), [1.0]), "Sensing: values must have shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_data_are_refused_by_name(case):
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_what_counts_as_rounding_of_covariances_depends_on_no_unit(unit):
    """Outputs that the inputs explain to the last digits are data; outputs of half that size are none."""
    white = unit * np.eye(2)
    assert float(Regression(white, white, (1 - 1e-10) * white).offset) == pytest.approx(0, abs=1e-9 * unit)
    with pytest.raises(ValueError, match="the loss would be negative"):
        Regression(white, white, 0.5 * white)


def test_bad_types_are_refused_by_name():
    with pytest.raises(TypeError, match="rows must hold integers"):
        EntryCompletion([0.5], [0], [1.0], (2, 2))
    with pytest.raises(TypeError, match=r"each width in shape must be an integer, but is 2\.5"):
        unchecked(EntryCompletion.__init__)(object(), [0], [0], [1.0], (2.5, 2))
    with pytest.raises(TypeError, match=r"shape must be two widths \(out, in\), but is 4"):
        unchecked(EntryCompletion.__init__)(object(), [0], [0], [1.0], 4)
    for energy in (lambda w: w[0], lambda w: 1j * w[0, 0], lambda w: (w[0, 0], w[0, 0])):
        with pytest.raises(TypeError, match="Energy: energy must give one real number"):
            Energy(energy).value(jnp.eye(2))


def test_rounding_of_an_ill_conditioned_fit_is_no_negative_loss():
    """Nearly dependent inputs, outputs fitted exactly: what is left over is rounding of either sign."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 6))
    x[3] = x[2] + 1e-9 * rng.normal(size=6)
    y = rng.normal(size=(2, 4)) @ x
    assert float(Regression.from_data(x, y).offset) == pytest.approx(0, abs=1e-5)
