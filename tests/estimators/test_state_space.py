"""Identification of linear systems from inputs and outputs."""

import pickle

import jax
import numpy as np
import pytest
import scipy.signal
from sklearn.base import clone
from sklearn.model_selection import TimeSeriesSplit, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from deeplinear.dynamics import Adam, simulate
from deeplinear.estimators import LinearStateSpace
from deeplinear.estimators._state_space_data import Record, Units, design, records, windows
from deeplinear.estimators._state_space_network import drawn, network, train
from deeplinear.estimators._state_space_systems import (
    Small,
    _sensitivities,
    entries,
    first_state,
    fitted_to_response,
    misfit,
    realised,
    resolved,
    settled,
)
from deeplinear.models import LinearRNN, Problem, Regression
from deeplinear.recurrent import certificate

ROUNDING = 1e-9
"""What double precision leaves of a system of a few states, in units of its response."""

EXACT = Small(
    np.array([[0.9, 0.2, 0.0], [-0.2, 0.8, 0.1], [0.0, 0.0, 0.5]]),
    np.array([[1.0, -0.5], [0.3, 1.2], [0.7, 0.4]]),
    np.array([[0.8, -0.3, 1.0], [0.2, 1.1, -0.6]]),
    np.array([[0.5, 0.0], [-1.0, 0.25]]),
    np.array([3.0, -2.0]),
)
"""Three states, two inputs, two outputs; it rests at the inputs `LEVEL`."""
LEVEL = np.array([1.0, -4.0])

SMALL = {"states": 6, "memory": 10, "steps": 300, "rate": 1e-2, "random_state": 0}
"""One shape, and so one compiled program, for most tests."""


def simulated(system: Small, inputs: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Outputs by SciPy."""
    found = scipy.signal.dlsim((*system[:4], 1.0), inputs - LEVEL[: inputs.shape[1]], x0=begin)[1]
    return found + system.offset


@pytest.fixture(scope="module")
def record() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    inputs = LEVEL + rng.standard_normal((300, 2)) * [1.0, 20.0]
    return inputs, simulated(EXACT, inputs, np.array([5.0, -3.0, 2.0]))


@pytest.fixture(scope="module")
def fitted(record: tuple[np.ndarray, np.ndarray]) -> LinearStateSpace:
    inputs, outputs = record
    return LinearStateSpace(**SMALL).fit(inputs[:200], outputs[:200])


def test_system_without_noise_is_found(fitted: LinearStateSpace) -> None:
    assert fitted.order_ == 3 and fitted.n_features_in_ == 2 and fitted.memory_ == 10
    np.testing.assert_allclose(np.sort(fitted.poles_), np.sort(np.linalg.eigvals(EXACT.transition)), atol=ROUNDING)
    truth = np.concatenate([EXACT.direct[None], entries(EXACT.transition, EXACT.input, EXACT.output, 20)])
    np.testing.assert_allclose(fitted.impulse_response_, truth, atol=ROUNDING)
    assert fitted.stable_ and fitted.spectral_radius_ == pytest.approx(np.abs(fitted.poles_).max())
    assert fitted.held_out_score_ > 1 - ROUNDING and fitted.refined_
    # The offsets say the same as the true ones: at rest at the mean inputs the outputs are those of the true system.
    gain = np.linalg.solve(np.eye(3) - EXACT.transition, EXACT.input)
    rest = (EXACT.output @ gain + EXACT.direct) @ (fitted.input_offset_ - LEVEL) + EXACT.offset
    np.testing.assert_allclose(fitted.output_offset_, rest, atol=1e-7)


def test_prediction_goes_on_beyond_the_fit(fitted: LinearStateSpace, record: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, outputs = record
    np.testing.assert_allclose(
        fitted.predict(inputs, initial_state=fitted.initial_state_[0]), outputs, rtol=0, atol=1e-7
    )
    np.testing.assert_allclose(
        fitted.predict(inputs[200:], initial_state=fitted.final_state_), outputs[200:], rtol=0, atol=1e-7
    )
    state = fitted.initial_state(inputs[50:90], outputs[50:90])
    np.testing.assert_allclose(fitted.predict(inputs[50:], initial_state=state), outputs[50:], rtol=0, atol=1e-7)
    found = fitted.simulate(inputs[50:], initial_state=state)
    moved = found.states @ fitted.A_.T + (inputs[50:] - fitted.input_offset_) @ fitted.B_.T
    np.testing.assert_allclose(moved, np.vstack([found.states[1:], found.final_state]), atol=1e-12)
    np.testing.assert_allclose(found.outputs, outputs[50:], rtol=0, atol=1e-7)
    # From rest the first rows miss what the state does, and later ones do not.
    assert np.abs(fitted.predict(inputs) - outputs)[:10].max() > 0.1
    assert fitted.score(inputs, outputs) < 1 - 1e-6 < fitted.score(inputs[200:], fitted.predict(inputs[200:]))


def test_sequences_from_rest() -> None:
    rng = np.random.default_rng(2)
    inputs = LEVEL + rng.standard_normal((12, 30, 2))
    outputs = np.stack([simulated(EXACT, u, np.zeros(3)) for u in inputs])
    # Without an offset to be found, the levels are taken off before.
    model = LinearStateSpace(**SMALL, start="rest", fit_intercept=False).fit(inputs - LEVEL, outputs - EXACT.offset)
    assert model.order_ == 3 and not model.input_offset_.any() and not model.initial_state_.any()
    truth = entries(EXACT.transition, EXACT.input, EXACT.output, 20)
    np.testing.assert_allclose(model.impulse_response_[1:], truth, atol=ROUNDING)
    found = model.predict(inputs - LEVEL)
    assert found.shape == outputs.shape and model.score(inputs - LEVEL, outputs - EXACT.offset) > 1 - ROUNDING
    listed = model.predict([u - LEVEL for u in inputs[:2]])
    assert isinstance(listed, list)
    np.testing.assert_array_equal(listed[1], found[1])
    # Levels of the outputs are found; those of the inputs are 0, as they are before the first row.
    model = LinearStateSpace(**SMALL, start="rest").fit(
        inputs - LEVEL + 1, [simulated(EXACT, u + 1, np.zeros(3)) for u in inputs]
    )
    np.testing.assert_allclose(model.output_offset_, EXACT.offset, atol=1e-7)
    np.testing.assert_allclose(model.impulse_response_[1:], truth, atol=ROUNDING)
    # Sequences whose states are unknown: twelve of them are fitted with the system.
    begins = rng.standard_normal((12, 3))
    outputs = [simulated(EXACT, u, x) for u, x in zip(inputs, begins, strict=True)]
    model = LinearStateSpace(**SMALL).fit(list(inputs), outputs)
    np.testing.assert_allclose(model.impulse_response_[1:], truth, atol=1e-7)
    assert model.initial_state_.shape == (12, model.order_)


def test_noise(seed: int) -> None:
    """The response is as near as the spread of outputs over the root of the number of rows allows."""
    rng = np.random.default_rng(seed)
    inputs = LEVEL + rng.standard_normal((800, 2))
    clean = simulated(EXACT, inputs, np.zeros(3))
    noise = 0.2
    model = LinearStateSpace(**SMALL).fit(inputs, clean + noise * rng.standard_normal(clean.shape))
    truth = np.concatenate([EXACT.direct[None], entries(EXACT.transition, EXACT.input, EXACT.output, 20)])
    assert 3 <= model.order_ <= 5
    assert np.abs(model.impulse_response_ - truth).max() < 6 * noise / np.sqrt(640)
    assert model.response_error_.shape == (10, 2, 2) and model.response_error_.max() < 0.1
    variance = clean.var(axis=0).mean()
    assert model.held_out_score_ == pytest.approx(1 - noise**2 / variance, abs=0.02)


def test_slow_modes_and_inputs_that_drift() -> None:
    """Modes that outlast the lags, under inputs that wander: the lags alone give systems that explode."""
    rng = np.random.default_rng(0)
    inputs = np.column_stack([2.0 * (rng.random(400) < 0.3), 0.1 * rng.standard_normal(400).cumsum()])
    slow = Small(np.array([[0.95, 0.03], [0.05, 0.9]]), np.diag([0.5, -0.3]), np.eye(2), np.zeros((2, 2)), np.ones(2))
    outputs = simulated(slow, inputs + LEVEL, np.zeros(2)) + 0.05 * rng.standard_normal((400, 2))
    model = LinearStateSpace(**SMALL).fit(inputs[:320], outputs[:320])
    assert 2 <= model.order_ <= 3 and model.stable_ and model.held_out_score_ > 0.95
    model = LinearStateSpace(**SMALL, order=2).fit(inputs[:320], outputs[:320])
    np.testing.assert_allclose(np.sort(model.poles_.real), np.sort(np.linalg.eigvals(slow.transition)), atol=0.01)
    found = model.predict(inputs[320:], initial_state=model.final_state_)
    assert np.sqrt(np.mean((found - outputs[320:]) ** 2)) < 2 * 0.05


def test_delay() -> None:
    """None of the four states of a delay helps without the others."""
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((150, 1))
    outputs = np.roll(inputs[:, 0], 4) + 0.2 * rng.standard_normal(150)
    model = LinearStateSpace(**SMALL).fit(inputs[4:], outputs[4:])
    assert model.order_ == 4 and model.order_errors_[3] > 0.3 > 0.1 > model.order_errors_[4]
    np.testing.assert_allclose(model.impulse_response_[:8, 0, 0], np.arange(8) == 4, atol=0.1)


def test_static_data_have_no_states() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((150, 2))
    outputs = inputs @ np.array([[1.0, 2.0], [0.0, -1.0]]) + 0.1 * rng.standard_normal((150, 2))
    model = LinearStateSpace(**SMALL).fit(inputs, outputs)
    assert model.order_ == 0 and model.A_.shape == (0, 0) and model.stable_ and model.spectral_radius_ == 0
    np.testing.assert_allclose(model.D_, [[1.0, 0.0], [2.0, -1.0]], atol=0.05)
    assert "no memory" in LinearStateSpace(**SMALL).fit(inputs[:, :1], outputs[:, 0]).certificate_.reason
    np.testing.assert_allclose(model.predict(inputs[::-1]), model.predict(inputs)[::-1])


@pytest.mark.filterwarnings("ignore:LinearStateSpace. on the rows held out")
def test_early_stopping_and_its_absence() -> None:
    """Few rows and much noise: the network is taken from before its end, and fits noise if nothing is held out."""
    rng = np.random.default_rng(3)
    inputs = rng.standard_normal((80, 2))
    outputs = simulated(EXACT._replace(offset=np.zeros(2)), inputs + LEVEL, np.zeros(3))
    noisy = outputs + 2.0 * rng.standard_normal(outputs.shape)
    settings = {**SMALL, "start": "rest", "refine": False, "feed_through": False, "steps": 1000}
    stopped = LinearStateSpace(**settings).fit(inputs, noisy)
    path = stopped.path_
    assert path.best == np.argmin(path.held_out) < len(path.times) - 1
    assert path.training[path.best] > path.training[-1]
    gone_on = LinearStateSpace(**settings, held_out=0).fit(inputs, noisy)
    assert gone_on.path_.best == len(gone_on.path_.times) - 1 and len(gone_on.path_.held_out) == 0
    assert np.isnan(gone_on.held_out_score_) and not stopped.refined_
    values = gone_on.hankel_singular_values_
    assert gone_on.order_ == np.sum(values > 1e-2 * values[0])


def test_units_and_seeds(record: tuple[np.ndarray, np.ndarray], fitted: LinearStateSpace) -> None:
    """Units do not matter, nor does the precision that JAX is set to; equal seeds give equal numbers."""
    inputs, outputs = (part[:200] for part in record)
    with jax.enable_x64(False):
        again = LinearStateSpace(**SMALL).fit(inputs, outputs)
        assert not jax.config.jax_enable_x64
    np.testing.assert_array_equal(again.A_, fitted.A_)
    other = LinearStateSpace(**SMALL).fit(8 * inputs, outputs / 4)
    np.testing.assert_allclose(other.impulse_response_, fitted.impulse_response_ / 32, atol=ROUNDING)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(inputs), fitted.predict(inputs))


def test_warm_start(record: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, outputs = record
    model = LinearStateSpace(**SMALL, warm_start=True).fit(inputs, outputs)
    before = model.path_
    model.fit(inputs, outputs)
    assert model.path_.training[0] == pytest.approx(before.training[-1], rel=1e-6)
    assert model.path_.training[-1] < before.training[-1]
    assert clone(model).fit(inputs, outputs).path_.training[0] == pytest.approx(before.training[0], rel=1e-12)


def test_cross_validation(record: tuple[np.ndarray, np.ndarray]) -> None:
    scores = cross_val_score(LinearStateSpace(**SMALL), record[0], record[1], cv=TimeSeriesSplit(2))
    assert scores.shape == (2,) and np.all(scores > 0.5)


# --- Parts ------------------------------------------------------------------------------------------------------------


def test_filling_up_changes_nothing() -> None:
    """A network of three inputs and one output among four of both moves as one of three and one alone."""
    rng = np.random.default_rng(0)
    inputs, outputs = rng.standard_normal((60, 3)), rng.standard_normal((60, 1))
    parts = records([inputs], [outputs], Units.of([inputs], [outputs], True), 3, 0.0)
    fit, held = (design(parts, 3, intercept=True, feed=False, held=which) for which in (False, True))
    model = network(2, 3, 3, 1, "general")
    assert (model.inputs, model.outputs) == (4, 4)
    start = drawn(model, 3, 1, 0.3, np.random.RandomState(0))
    path = train(model, start, fit, held, (3, 1), rate=0.01, end=50, progress=None)
    matrix, target = fit.lags
    alone = LinearRNN(2, 3, inputs=3)
    problem = Problem(alone, Regression(matrix.T @ matrix / fit.rows, target.T @ matrix / fit.rows, reduced=True))
    plain = simulate(problem, (start[0][:, :3], start[1], start[2][:1]), Adam(0.01), times=[50])
    np.testing.assert_allclose(path.end[0][:, :3], plain.params[0], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(path.end[1], plain.params[1], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(path.end[2][:1], plain.params[2], rtol=1e-9, atol=1e-12)
    assert not path.end[0][:, 3:].any() and not path.end[2][1:].any()
    for inputs, outputs in ((2, 1), (2, 3)):  # filled up they would be equal
        with pytest.raises(ValueError, match="outputs must equal inputs"):
            network(2, 3, inputs, outputs, "tied")


def test_least_squares_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    inputs, outputs = rng.standard_normal((90, 2)), rng.standard_normal((90, 2))
    parts = [Record(inputs, outputs, 4, 70)]
    monkeypatch.setattr("deeplinear.estimators._state_space_data.CHUNK", 17)
    fit, held = (design(parts, 4, intercept=True, feed=True, held=which) for which in (False, True))
    lags = np.hstack([np.roll(inputs, j, axis=0) for j in range(1, 5)])
    matrix = np.hstack([np.ones((90, 1)), inputs, lags])
    np.testing.assert_array_equal(windows(inputs, 4, slice(4, 90)), lags[4:])
    truth = np.linalg.lstsq(matrix[4:70], outputs[4:70], rcond=None)[0]
    found = np.linalg.lstsq(*fit.lags, rcond=None)[0]
    np.testing.assert_allclose(found, truth[3:], atol=1e-12)
    np.testing.assert_allclose(fit.besides(found), truth[:3], atol=1e-12)
    assert (fit.rows, held.rows) == (66, 20)
    for part, rows in ((fit, slice(4, 70)), (held, slice(70, 90))):
        assert part.error(truth) == pytest.approx(np.sum((matrix[rows] @ truth - outputs[rows]) ** 2) / part.rows)
    residual = matrix[4:70] @ truth - outputs[4:70]
    covariance = np.linalg.inv(matrix[4:70].T @ matrix[4:70])
    wanted = np.sqrt(np.outer(np.diag(covariance)[3:], np.sum(residual**2, axis=0) / (66 - 11)))
    np.testing.assert_allclose(fit.standard_errors(4).swapaxes(1, 2).reshape(8, 2), wanted)


def test_derivatives_of_a_simulation() -> None:
    rng = np.random.default_rng(0)
    record, begin = Record(rng.standard_normal((40, 2)), rng.standard_normal((40, 2)), 0, 40), rng.standard_normal(3)
    shapes = [part.shape for part in (*EXACT, begin)]
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in shapes])

    def residuals(point: np.ndarray) -> np.ndarray:
        parts = [part.reshape(shape) for part, shape in zip(np.split(point, ends[:-1]), shapes, strict=True)]
        return (simulated(Small(*parts[:5]), record.inputs + LEVEL, parts[5]) - record.outputs).ravel()

    point, step = np.concatenate([part.ravel() for part in (*EXACT, begin)]), 1e-6 * rng.standard_normal(ends[-1])
    value, jacobian = next(iter(_sensitivities(EXACT, begin, record, True, True, True)))
    np.testing.assert_allclose(value, residuals(point), atol=1e-12)
    slope = (residuals(point + step) - residuals(point - step)) / 2
    np.testing.assert_allclose(jacobian @ step, slope, atol=1e-7 * np.abs(slope).max())
    free = record.outputs - simulated(EXACT, record.inputs + LEVEL, np.zeros(3))
    basis = np.vstack([EXACT.output @ np.linalg.matrix_power(EXACT.transition, t) for t in range(40)])
    wanted = np.linalg.lstsq(basis, free.ravel(), rcond=None)[0]
    np.testing.assert_allclose(first_state(EXACT, record.inputs, record.outputs), wanted, atol=1e-10)


def test_realisations() -> None:
    delay = np.zeros((10, 1, 1))
    delay[3] = 1.0  # a nilpotent transition matrix of four states
    np.testing.assert_allclose(entries(*realised(delay, 4), 10), delay, atol=1e-12)
    assert np.abs(entries(*realised(delay, 3), 10) - delay).max() > 0.1
    idle = realised(np.zeros((10, 2, 1)), 2)
    assert [part.shape for part in idle] == [(2, 2), (2, 1), (2, 2)] and not any(part.any() for part in idle)
    # Steps on the response find the best system of an order: no change of its matrices is better.
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((200, 2))
    outputs = simulated(EXACT, inputs + LEVEL, np.zeros(3)) + rng.standard_normal((200, 2))
    fit = design([Record(inputs, outputs, 10, 200)], 10, intercept=True, feed=True, held=False)
    matrix, target = fit.lags

    def error(parts: tuple[np.ndarray, ...]) -> float:
        response = entries(*parts, 10)
        return float(np.sum((matrix @ response.swapaxes(1, 2).reshape(20, 2) - target) ** 2))

    rough = realised(np.linalg.lstsq(matrix, target, rcond=None)[0].reshape(10, 2, 2).swapaxes(1, 2), 2)
    fine = fitted_to_response(rough, fit, 10, 200)
    assert error(fine) < error(rough)
    for _ in range(5):
        step = [1e-3 * rng.standard_normal(part.shape) for part in fine]
        two = [error(tuple(p + sign * s for p, s in zip(fine, step, strict=True))) for sign in (1, -1)]
        assert min(two) > error(fine) * (1 - 1e-9) and abs(two[0] - two[1]) < 0.05 * (sum(two) - 2 * error(fine))


def test_unstable_starts_are_settled() -> None:
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((3, 3)))[0]
    unstable = turned @ np.diag([1.5, -0.4, 1.001]) @ turned.T
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(settled(unstable)).real), [-0.4, 1 / 1.5, 0.99], atol=1e-12)
    fine = 0.9 * np.eye(2)
    assert settled(fine) is fine
    defective = np.array([[1.2, 1.0], [0.0, 1.2]])
    np.testing.assert_allclose(np.abs(np.linalg.eigvals(settled(defective))), 0.99, atol=1e-6)
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((100, 2))
    record = Record(inputs, simulated(EXACT, inputs + LEVEL, np.zeros(3)), 10, 100)
    found = resolved(EXACT.transition, EXACT.input, [record], intercept=True, feed=True)
    for part, wanted in zip(found, EXACT, strict=True):
        np.testing.assert_allclose(part, wanted, atol=1e-10)
    assert misfit(found, [record], True) < 1e-18
    growing = 9.0 * np.eye(3)
    assert resolved(growing, EXACT.input, [record], intercept=True, feed=True) is None
    assert misfit(EXACT._replace(transition=1e9 * growing), [record], True) == np.inf


def test_certificate() -> None:
    rng = np.random.default_rng(0)
    root = np.array([[0.8], [0.6]])
    balanced = Small(np.diag([0.9, -0.5]), root, root.T, np.zeros((1, 1)), np.zeros(1))
    inputs = LEVEL[:1] + rng.standard_normal((150, 1))
    outputs = simulated(balanced, inputs, np.zeros(2))[:, 0]
    model = LinearStateSpace(**SMALL, horizon=13).fit(inputs, outputs)
    found = model.certificate_
    assert found.applies and found.known == 10 and found.horizon == 13 and "True" in repr(found)
    truth = 0.64 * 0.9 ** np.arange(13) + 0.36 * (-0.5) ** np.arange(13)
    np.testing.assert_allclose(found.response, truth, atol=ROUNDING)
    np.testing.assert_allclose(found.constants, certificate([-0.5, 0.9], 10, 13, radius=1.0).constants, rtol=1e-4)
    low, high = found.bounds(1e-3)
    assert np.all(low <= truth) and np.all(truth <= high) and 1e-3 <= (high - low)[10:].max() < 0.2
    # The network itself is of the general form, for which there is no theorem.
    assert found.verdict is not None and found.verdict.theorem == "none"
    outputs = 0.5 * np.roll(inputs[:, 0], 2) - np.roll(inputs[:, 0], 3)
    found = LinearStateSpace(**SMALL).fit(inputs[3:], outputs[3:]).certificate_
    assert not found.applies and "not balanced" in found.reason
    with pytest.raises(ValueError, match="does not apply"):
        found.bounds(1e-3)


def test_certificate_needs_one_input_and_output(fitted: LinearStateSpace) -> None:
    found = fitted.certificate_
    assert not found.applies and found.reason.endswith("2 inputs and 2 outputs") and found.constants is None


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"states": 0}, "states must be at least 1, but is 0"),
        ({"memory": 1}, "memory must be at least 2, but is 1"),
        ({"memory": 60}, "must have more rows than the memory, 60, but one has 60"),
        ({"memory": 59}, "are left to fit after 59 lags"),
        ({"order": 11}, "order must be at most 5, what 10 lags can tell, but is 11"),
        ({"form": "diagnal"}, "Did you mean 'diagonal'"),
        ({"start": "zero"}, "start is 'zero'"),
        ({"method": "sgd"}, "method is 'sgd'"),
        ({"scale": 0.0}, "scale must be greater than 0"),
        ({"held_out": 1.0}, "held_out must be at most 0.9"),
        ({"form": "tied"}, "outputs must equal inputs"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], words: str) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=words):
        LinearStateSpace(**{**SMALL, **settings}).fit(rng.standard_normal((60, 2)), rng.standard_normal(60))


def test_data_are_checked(fitted: LinearStateSpace, record: tuple[np.ndarray, np.ndarray]) -> None:
    inputs, outputs = record
    model = LinearStateSpace(**SMALL)
    still = inputs.copy()
    still[:, 1] = 7.0
    with pytest.raises(ValueError, match="column 1 of X is constant"):
        model.fit(still, outputs)
    for factor in (1e160, 1e-170):
        with pytest.raises(ValueError, match="the largest number of column 1 of X must lie between"):
            model.fit(inputs * [1, factor], outputs)
    with pytest.raises(ValueError, match="the largest number of column 0 of y must lie between"):
        model.fit(inputs, outputs * 1e-170)
    with pytest.raises(ValueError, match="one sequence for each of the 2 of X, but holds 1"):
        model.fit([inputs, inputs], [outputs])
    with pytest.raises(ValueError, match="sequence 1: Found input variables with inconsistent numbers"):
        model.fit([inputs, inputs], [outputs, outputs[:5]])
    with pytest.raises(ValueError, match=r"y of sequence 1 must have shape \(any, 2\)"):
        model.fit([inputs, inputs], [outputs, outputs[:, :1]])
    with pytest.raises(ValueError, match=r"initial_state must have shape \(1, 3\), but has shape \(1, 2\)"):
        fitted.predict(inputs, initial_state=[0.0, 0.0])
    with pytest.raises(ValueError, match="must be one sequence"):
        fitted.simulate([inputs, inputs])
    with pytest.raises(ValueError, match="must be one sequence"):
        fitted.initial_state([inputs], [outputs])


def test_growth_is_told() -> None:
    """A system that grows is found from short sequences; its predictions end with a word, not with infinity."""
    rng = np.random.default_rng(0)
    inputs, outputs = rng.standard_normal((40, 20, 1)), np.zeros((40, 20))
    for t in range(19):
        outputs[:, t + 1] = 1.3 * outputs[:, t] + inputs[:, t, 0]
    model = LinearStateSpace(**SMALL, start="rest", fit_intercept=False).fit(inputs, outputs)
    assert not model.stable_ and model.spectral_radius_ == pytest.approx(1.3, abs=1e-8)
    with pytest.raises(OverflowError, match=r"overflow from row \d+ on"):
        model.predict(np.ones((5000, 1)))


TIMES = "rows are times: an output depends on the rows before it, so order and batches of rows matter"


def test_a_fit_that_predicts_nothing_is_told() -> None:
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="no better than their mean"):
        LinearStateSpace(states=3, memory=2, order=1, steps=20, random_state=0).fit(
            rng.standard_normal((60, 1)), rng.standard_normal(60)
        )


@pytest.mark.filterwarnings("ignore:LinearStateSpace. on the rows held out")  # the checks fit noise
@parametrize_with_checks(
    [LinearStateSpace(states=3, memory=2, order=1, steps=20, rate=1e-2)],
    expected_failed_checks=lambda _: {
        "check_methods_sample_order_invariance": TIMES,
        "check_methods_subset_invariance": TIMES,
    },
)
def test_contract(estimator: LinearStateSpace, check) -> None:
    check(estimator)
