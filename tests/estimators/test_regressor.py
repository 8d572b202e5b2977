"""`DeepLinearRegressor` against SciPy, least squares and closed forms written out by hand."""

import pickle
import warnings

import jax
import numpy as np
import pytest
import scipy.integrate
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from deeplinear.core import HypothesisError
from deeplinear.estimators import DeepLinearRegressor

INTEGRATOR = 1e-6
"""Error of a flow followed to a tolerance of 1e-8, relative to the coefficients."""


@parametrize_with_checks(
    [
        DeepLinearRegressor(folds=1, tolerance=0.02),
        DeepLinearRegressor(depth=1, folds=1),
        DeepLinearRegressor(depth=3, whiten=True, method="closed form", held_out=0.0),
    ]
)
def test_contract_of_scikit_learn(estimator, check) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)


def make_data(seed: int, rows: int = 40, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Five correlated features far from zero, three outputs."""
    random = np.random.default_rng(seed)
    X = 3.0 + random.normal(size=(rows, 5)) @ random.normal(size=(5, 5))
    W = random.normal(size=(3, 5)) * [[2.0], [1.0], [0.3]]
    return X, X @ W.T + 1.0 + noise * random.normal(size=(rows, 3))


def raw_flow(X: np.ndarray, Y: np.ndarray, layers: list[np.ndarray], time: float) -> np.ndarray:
    """Product of gradient flow of the mean square loss on centred data as they are, by SciPy."""
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    shapes, cuts = [layer.shape for layer in layers], np.cumsum([layer.size for layer in layers])[:-1]

    def cut(state: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(shape) for part, shape in zip(np.split(state, cuts), shapes, strict=True)]

    def field(_: float, state: np.ndarray) -> np.ndarray:
        parts = cut(state)
        slopes = []
        for i in range(len(parts)):
            below, above = np.eye(parts[0].shape[1]), np.eye(parts[-1].shape[0])
            for layer in parts[:i]:
                below = layer @ below
            for layer in reversed(parts[i + 1 :]):
                above = above @ layer
            residual = X @ (above @ parts[i] @ below).T - Y
            slopes.append(-above.T @ (residual.T @ X / len(X)) @ below.T)
        return np.concatenate([slope.ravel() for slope in slopes])

    start = np.concatenate([layer.ravel() for layer in layers])
    run = scipy.integrate.solve_ivp(field, (0.0, time), start, method="LSODA", rtol=1e-10, atol=1e-14)
    result = np.eye(X.shape[1])
    for layer in cut(run.y[:, -1]):
        result = layer @ result
    return result


@pytest.mark.parametrize("start", ["aligned", "gaussian", "balanced"])
def test_the_flow_is_that_of_the_data_as_they_are(seed: int, start: str) -> None:
    """Units, principal axes and filled-up shapes change nothing; between records too."""
    X, Y = make_data(seed)
    model = DeepLinearRegressor(start=start, scale=0.05, held_out=0.0, random_state=seed, time=40.0).fit(X, Y)
    assert model.method_ == "gradient flow" and model.times_[0] == 0
    assert len(model.layers_) == 2 and model.layers_[0].shape == (3, 5)
    np.testing.assert_allclose(model.layers_[1] @ model.layers_[0], model.coef_, rtol=1e-12, atol=1e-12)
    first = model.layers_at(0.0)
    size = np.abs(model.coef_).max()
    for time in (model.times_[5], 0.5 * (model.times_[10] + model.times_[11]), 7.0):
        expected = raw_flow(X, Y, first, time * model.time_unit_)
        found = model.predict(np.eye(5), time=time) - model.predict(np.zeros((1, 5)), time=time)
        np.testing.assert_allclose(found.T, expected, atol=INTEGRATOR * size)


def test_recorded_times_and_path(seed: int) -> None:
    X, Y = make_data(seed)
    model = DeepLinearRegressor(held_out=0.0).fit(X, Y)
    stages = list(model.staged_predict(X))
    assert len(stages) == len(model.times_) == len(model.modes_) == len(model.training_path_)
    np.testing.assert_allclose(stages[-1], model.predict(X), rtol=1e-12)
    np.testing.assert_allclose(model.predict(X, time=model.times_[7]), stages[7], rtol=1e-12)
    errors = [np.mean((stage - Y) ** 2) for stage in stages]
    np.testing.assert_allclose(model.training_path_, errors, rtol=1e-9)
    np.testing.assert_allclose(model.modes_[-1], np.linalg.svd(model.coef_, compute_uv=False), rtol=1e-10)
    least = np.linalg.lstsq(X - X.mean(axis=0), Y - Y.mean(axis=0))[0].T
    np.testing.assert_allclose(model.limit_modes_, np.linalg.svd(least, compute_uv=False), rtol=1e-9)
    check_learning_times(model, least)
    # One number for all inputs, or all outputs, changes nothing but units.
    other = DeepLinearRegressor(held_out=0.0).fit(1e3 * X, 1e-4 * Y)
    np.testing.assert_allclose(other.predict(1e3 * X), 1e-4 * model.predict(X), rtol=1e-7, atol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X, time=3.21), model.predict(X, time=3.21))


def check_learning_times(model: DeepLinearRegressor, least: np.ndarray) -> None:
    """At its learning time the part of the product along a mode of least squares is half of what it will be."""
    left, values, right = np.linalg.svd(least, full_matrices=False)
    for mode, when in enumerate(model.learning_times_):
        first, last = model.layers_at(when)
        assert left[:, mode] @ last @ first @ right[mode] == pytest.approx(values[mode] / 2, rel=0.05)


def test_learning_times_follow_modes_whose_order_changes_on_the_way(seed: int) -> None:
    """The weak mode stands on strong inputs: it is learnt first, and is the largest singular value until the other."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 3))
    X = np.linalg.qr(X - X.mean(axis=0))[0] * np.array([30.0, 3.0, 1.0])
    turn = np.linalg.qr(rng.standard_normal((2, 2)))[0]
    least = turn @ np.array([[1.0, 0.0, 0.0], [0.0, 4.0, 0.0]])
    model = DeepLinearRegressor(held_out=0.0).fit(X, X @ least.T)
    np.testing.assert_allclose(model.limit_modes_, [4.0, 1.0], rtol=1e-9)
    check_learning_times(model, least)
    assert model.learning_times_[1] < 0.2 * model.learning_times_[0]


@pytest.mark.parametrize("start", ["aligned", "gaussian"])
def test_modes_that_the_data_do_not_have_are_never_learnt(seed: int, start: str) -> None:
    X, Y = make_data(seed)
    twice = np.column_stack([Y[:, 0], -2 * Y[:, 0], Y[:, 0]])
    model = DeepLinearRegressor(start=start, held_out=0.0, random_state=seed).fit(X, twice)
    least = np.linalg.lstsq(X - X.mean(axis=0), twice - twice.mean(axis=0))[0]
    np.testing.assert_allclose(model.limit_modes_, [np.linalg.norm(least), 0.0, 0.0], rtol=1e-9)
    assert np.isfinite(model.learning_times_[0]) and np.isinf(model.learning_times_[1:]).all()
    assert not model.strengths_[:, 1:].any()


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_end_is_least_squares_of_least_norm(seed: int, depth: int) -> None:
    """Four rows, so three directions, of five features."""
    X, Y = make_data(seed, rows=4)
    model = DeepLinearRegressor(depth, held_out=0.0, tolerance=1e-16).fit(X, Y)
    assert model.converged_
    centred = X - X.mean(axis=0)
    expected = np.linalg.lstsq(centred, Y - Y.mean(axis=0))[0].T
    slowest = np.linalg.svd(centred, compute_uv=False)[:3]
    np.testing.assert_allclose(model.coef_, expected, atol=1e-6 * np.abs(expected).max() * slowest[0] / slowest[-1])
    np.testing.assert_allclose(model.predict(X), Y, atol=1e-5)


def test_one_layer_decays_exponentially(seed: int) -> None:
    X, Y = make_data(seed)
    model = DeepLinearRegressor(1, scale=0.0, method="closed form", held_out=0.0, time=20.0).fit(X, Y[:, 0])
    assert model.coef_.shape == (5,) and isinstance(model.intercept_, float)
    centred, y = X - X.mean(axis=0), Y[:, 0] - Y[:, 0].mean()
    values, axes = np.linalg.eigh(centred.T @ centred / len(X))
    limit = axes.T @ np.linalg.lstsq(centred, y)[0]
    for time in (0.0, 0.77, 20.0):
        expected = axes @ (limit * -np.expm1(-values * time * model.time_unit_))
        found = model.predict(np.eye(5), time=time) - model.predict(np.zeros((1, 5)), time=time)
        np.testing.assert_allclose(found, expected, atol=INTEGRATOR * np.abs(limit).max())


@pytest.mark.parametrize(("depth", "start"), [(2, "aligned"), (3, "aligned"), (2, "balanced")])
def test_closed_forms_and_flow_agree(seed: int, depth: int, start: str) -> None:
    X, Y = make_data(seed)
    settings = {"start": start, "whiten": True, "held_out": 0.0, "scale": 0.01, "random_state": seed, "time": 30.0}
    exact = DeepLinearRegressor(depth, method="closed form", **settings).fit(X, Y)
    flow = DeepLinearRegressor(depth, method="flow", **settings).fit(X, Y)
    assert exact.method_ == ("aligned modes" if start == "aligned" else "two λ-balanced layers under white inputs")
    assert DeepLinearRegressor(depth, **settings).fit(X, Y).method_ == exact.method_
    for time in (0.0, 3.3, 11.0, 30.0):
        np.testing.assert_allclose(exact.predict(X, time=time), flow.predict(X, time=time), rtol=1e-6, atol=1e-6)
    if start == "aligned" and depth == 2:  # Modes are logistic curves, read off between records.
        ends = exact.limit_modes_ / exact.limit_modes_[0]
        known = np.log(np.maximum(ends / 0.01 - 1, 1.0)) / (2 * ends)
        seen = (ends > 0.03) & (known < 30)
        np.testing.assert_allclose(exact.learning_times_[seen], known[seen], rtol=0.02)
        assert seen[0]
    assert exact.whitening_ is not None
    white = (X - X.mean(axis=0)) @ exact.whitening_.T
    np.testing.assert_allclose(white.T @ white / len(X), np.eye(5), atol=1e-12)
    product = np.linalg.multi_dot([*reversed(exact.layers_), exact.whitening_])
    np.testing.assert_allclose(product, exact.coef_, atol=1e-12)


def test_a_closed_form_is_refused_with_its_residual() -> None:
    X, Y = make_data(0)
    values = np.linalg.eigvalsh(np.cov(X.T))
    with pytest.raises(HypothesisError, match=r"inputs of equal variances.*whiten=True") as refusal:
        DeepLinearRegressor(2, method="closed form", whiten=False, held_out=0.0).fit(X, Y)
    assert refusal.value.residual == pytest.approx(np.abs(values / values.mean() - 1).max())
    with pytest.raises(ValueError, match=r"λ-balanced layers.*measured residual"):
        DeepLinearRegressor(2, method="closed form", start="gaussian", held_out=0.0, random_state=0).fit(X, Y)


def test_stopping_in_time_regularises() -> None:
    """Forty noisy rows of twelve features, of which one direction counts."""
    random = np.random.default_rng(1)
    truth = np.outer([1.0, 0.5, -0.5], random.normal(size=12))
    X, new = random.normal(size=(40, 12)), random.normal(size=(2000, 12))
    Y = X @ truth.T + 3.0 * random.normal(size=(40, 3))
    model = DeepLinearRegressor(2, folds=2, random_state=0).fit(X, Y)
    assert model.stopping_time_ < model.times_[-1]
    best = int(np.argmin(model.validation_path_))
    assert model.times_[best] == model.stopping_time_ and len(model.validation_path_) == len(model.times_)
    clean = new @ truth.T
    stopped, end = (np.mean((model.predict(new, time=t) - clean) ** 2) for t in (None, model.times_[-1]))
    assert stopped < 0.6 * end
    # The rows held out are those of the permutation; the paths that have not seen them are those of the others.
    order, seen = np.random.RandomState(0).permutation(40), []
    for held in (order[:8], order[8:16]):
        rest = np.setdiff1d(np.arange(40), held)
        mean = Y[rest].mean(axis=0)
        least = np.linalg.lstsq(X[rest] - X[rest].mean(axis=0), Y[rest] - mean)[0]
        first, last = mean - Y[held], mean - Y[held] + (X[held] - X[rest].mean(axis=0)) @ least
        seen.append([np.mean(first**2), np.mean(last**2)])
    assert model.validation_path_ is not None
    np.testing.assert_allclose(model.validation_path_[[0, -1]], np.mean(seen, axis=0), rtol=0.01)
    spread = np.mean((Y[order[:16]] - Y.mean(axis=0)) ** 2)
    assert model.held_out_score_ == pytest.approx(1 - model.validation_path_[best] / spread, abs=0.1)
    whole = DeepLinearRegressor(2, held_out=0.0).fit(X, Y)
    assert whole.validation_path_ is None and np.isnan(whole.held_out_score_)
    assert whole.stopping_time_ == whole.times_[-1]
    error = float(whole.training_path_[0] + whole.training_path_[-1]) / 2
    until = DeepLinearRegressor(2, held_out=0.0, until=error).fit(X, Y)
    assert np.mean((until.predict(X) - Y) ** 2) == pytest.approx(error, rel=0.01)
    with pytest.raises(ValueError, match=r"until must be above .*, the mean squared error of least squares"):
        DeepLinearRegressor(2, held_out=0.0, until=0.9 * whole.training_path_[-1]).fit(X, Y)


def test_another_fit_goes_on_from_its_layers() -> None:
    X, Y = make_data(3)
    first = DeepLinearRegressor(2, held_out=0.0, time=5.0).fit(X, Y)
    second = DeepLinearRegressor(2, start=first.layers_, held_out=0.0, time=3.0).fit(X, Y)
    np.testing.assert_allclose(second.predict(X), first.predict(X, time=8.0), rtol=1e-6, atol=1e-6)
    # On other rows, and with features that these do not see: what is not seen stays.
    few = DeepLinearRegressor(2, start=first.layers_, held_out=0.0, time=3.0).fit(X[:3], Y[:3])
    expected = raw_flow(X[:3], Y[:3], first.layers_, 3.0 * few.time_unit_)
    np.testing.assert_allclose(few.coef_, expected, atol=INTEGRATOR * np.abs(expected).max())


def test_hidden_units_bound_the_rank() -> None:
    X, Y = make_data(4)
    model = DeepLinearRegressor(2, width=1, held_out=0.0, tolerance=1e-12).fit(X, Y)
    centred, outputs = X - X.mean(axis=0), Y - Y.mean(axis=0)
    fitted = centred @ np.linalg.lstsq(centred, outputs)[0]
    left, values, right = np.linalg.svd(fitted, full_matrices=False)
    np.testing.assert_allclose(model.predict(X) - Y.mean(axis=0), values[0] * np.outer(left[:, 0], right[0]), atol=1e-4)
    assert model.converged_ and model.modes_.shape[1] == 1


def test_nothing_to_learn_and_flows_that_cannot() -> None:
    X, _ = make_data(5)
    still = DeepLinearRegressor(2, held_out=0.0).fit(X, np.full(len(X), 0.1))
    np.testing.assert_allclose(still.predict(X), 0.1, rtol=1e-12)
    flat = DeepLinearRegressor(2, held_out=0.0).fit(np.ones((6, 2)), np.arange(6.0))
    np.testing.assert_allclose(flat.predict(np.ones((1, 2))), 2.5)
    # One input, one output and balanced layers: the sign of the product cannot change.
    x = X[:, :1] - X[:, :1].mean()
    wrong = [np.full((1, 1), 0.1), np.full((1, 1), 0.1)]
    with pytest.warns(ConvergenceWarning, match="came to rest: the start cannot reach least squares"):
        stuck = DeepLinearRegressor(2, start=wrong, held_out=0.0).fit(x, -x[:, 0])
    assert not stuck.converged_ and abs(stuck.coef_[0]) < 1e-3


def test_bits_of_the_surroundings_do_not_matter() -> None:
    X, Y = make_data(6)
    model = DeepLinearRegressor(2, held_out=0.0)
    wide = model.fit(X, Y).coef_
    with jax.enable_x64(False):
        np.testing.assert_allclose(model.fit(X, Y).predict(X, time=2.0), model.predict(X, time=2.0))
    np.testing.assert_allclose(model.coef_, wide, rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"depth": 0}, "depth must be at least 1, but is 0"),
        ({"width": 0}, "width must be at least 1"),
        ({"scale": -1.0}, "scale must be at least 0"),
        ({"scale": 0.0}, "scale must be above 0 with two or more layers"),
        ({"start": "alined"}, "Did you mean 'aligned'"),
        ({"start": 3}, "start must be 'aligned'"),
        ({"start": [np.eye(5)]}, "start has 1 layers, but depth is 2; give depth=1"),
        ({"start": [np.ones((2, 4)), np.ones((3, 2))]}, "must lead from 5 features to 3 outputs"),
        ({"start": [np.ones((2, 5)), np.ones((3, 3))]}, "must be finite matrices that follow each other"),
        ({"method": "newton"}, "method 'newton' is unknown"),
        ({"whiten": "yes"}, "whiten must be True, False or 'auto'"),
        ({"held_out": 1.0}, "held_out must be at most 0.9"),
        ({"folds": 0}, "folds must be at least 1"),
        ({"held_out": 0.9}, "leaves 1 to learn from"),
        ({"time": 0.0}, "time must be greater than 0"),
        ({"until": -1.0}, "until must be greater than 0"),
        ({"tolerance": 0.0}, "tolerance must be greater than 0"),
        ({"rtol": 1.0}, "rtol must be at most 0.1"),
    ],
)
def test_refusals(settings: dict, words: str) -> None:
    X, Y = make_data(0, rows=10)
    with pytest.raises((ValueError, TypeError), match=words):
        DeepLinearRegressor(**settings).fit(X, Y)


def test_refusals_of_data_and_times() -> None:
    X, Y = make_data(0, rows=10)
    model = DeepLinearRegressor(1, held_out=0.0).fit(X, Y)
    with pytest.raises(ValueError, match="time must be at least 0, but is -1"):
        model.predict(X, time=-1.0)
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :4])
    with pytest.raises(ValueError, match="largest number of y must lie between 1e-100 and 1e\\+100"):
        DeepLinearRegressor(1).fit(X, 1e200 * Y)
    with pytest.raises(ValueError, match="NaN"):
        DeepLinearRegressor(1).fit(X, np.full_like(Y, np.nan))
