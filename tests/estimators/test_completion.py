"""Completion of matrices by the estimator, against truth, least squares and the flow without its wrapping."""

import dataclasses
import warnings
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from deeplinear.core import RESULTS, spectrum_effective_rank
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.estimators import DeepMatrixCompletion, PlasticityWarning
from deeplinear.estimators._base import filled_up, matched_std
from deeplinear.estimators._completion_fits import Fits, Settings, doubtful
from deeplinear.estimators._learning import Learner, Path, _sound
from deeplinear.estimators._observed import SHRINKAGE, framed, listed, observed
from deeplinear.models import Completion, DeepLinear, Problem, connectivity

SHAPE, RANK = (30, 28), 2


def low_rank(seed: int = 0, noise: float = 0.0, known: float = 0.6) -> tuple[np.ndarray, np.ndarray]:
    """A matrix of low rank with an offset, and what is known of it."""
    rng = np.random.default_rng(seed)
    truth = 3.0 + rng.standard_normal((SHAPE[0], RANK)) @ rng.standard_normal((RANK, SHAPE[1]))
    seen = truth + noise * rng.standard_normal(SHAPE)
    return truth, np.where(rng.random(SHAPE) < known, seen, np.nan)


@pytest.fixture(scope="module")
def noisy() -> tuple[np.ndarray, np.ndarray, DeepMatrixCompletion]:
    """Truth, what is known of it with noise, and two fits of that from different starts, as one estimator."""
    truth, seen = low_rank(noise=0.5)
    return truth, seen, DeepMatrixCompletion(random_state=0, restarts=2).fit(seen)


@parametrize_with_checks([DeepMatrixCompletion(max_levels=1, held_out=0.0, random_state=0)])
def test_contract_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_matrix_of_low_rank_is_found_and_one_of_full_rank_is_not():
    truth, seen = low_rank()
    fit = DeepMatrixCompletion(depth=3, random_state=0).fit(seen)
    gaps = np.isnan(seen)
    error = np.sqrt(np.mean((fit.transform(seen) - truth)[gaps] ** 2)) / truth.std()
    assert error < 0.02
    assert fit.held_out_error_ / truth.std() < 0.02
    assert fit.rank_ <= RANK + 2  # offsets and the network share the part that both can have
    rng = np.random.default_rng(1)
    noise = np.where(gaps, np.nan, rng.standard_normal(SHAPE))
    hopeless = DeepMatrixCompletion(depth=3, random_state=0).fit(noise)
    assert hopeless.held_out_error_ > 0.8


def test_what_is_known_stays_and_the_network_may_differ_from_it(noisy):
    _, seen, fit = noisy
    known = ~np.isnan(seen)
    filled = fit.transform(seen)
    np.testing.assert_array_equal(filled[known], seen[known])
    assert np.isfinite(filled).all()
    assert np.abs(fit.complete() - seen)[known].max() > 0.1


def test_held_out_entries_stop_the_fit_before_it_fits_the_noise(noisy):
    truth, seen, stopped = noisy
    gaps = np.isnan(seen)
    gone_on = DeepMatrixCompletion(random_state=0, held_out=0.0, tolerance=0.05).fit(seen)
    errors = [np.sqrt(np.mean((fit.complete() - truth)[gaps] ** 2)) for fit in (stopped, gone_on)]
    assert errors[0] < 0.8 * errors[1]


def test_filling_up_changes_nothing():
    _, seen = low_rank()
    entries = observed(seen - np.nanmean(seen))
    learner = Learner(SHAPE, 3, 5, "flow")
    assert learner.padded == (32, 32, 32, 32) and Learner((300, 28), 2, 5, "flow").padded == (32, 8, 320)
    start = learner.start(0.1, np.random.default_rng(3))
    bare = (start[0][:5, :28], start[1][:5, :5], start[2][:30, :5])
    loss = Completion(np.nan_to_num(seen - np.nanmean(seen)), ~np.isnan(seen))
    run = simulate(Problem(DeepLinear((28, 5, 5, 30)), loss), bare, GradientFlow(1e-6), times=[0.05])
    filled = simulate(learner.problem(entries), start, GradientFlow(1e-6), times=[0.05]).params
    found = learner.factors(filled)
    exact = run.params[2] @ run.params[1] @ run.params[0]
    np.testing.assert_allclose(found.left @ found.right, exact, atol=1e-5 * np.abs(exact).max())
    assert all(np.all(layer[rows:] == 0) for layer, rows in zip(filled, (5, 5, 30), strict=True))
    assert [filled_up(size, 16) for size in (1, 17, 33, 64, 65, 129, 600)] == [16, 32, 64, 64, 128, 192, 640]
    product = start[2] @ start[1] @ start[0]
    assert product[:30, :28].std() == pytest.approx(0.1, rel=0.6) and matched_std(0.0, (3, 2)) == 0


def test_offsets_are_the_least_squares_they_claim_to_be():
    _, seen = low_rank(noise=0.5)
    entries = observed(seen)
    frame = framed("test", entries, "both", "one")
    count, (height, width) = len(entries), SHAPE
    design = np.zeros((count + height + width, height + width))
    design[np.arange(count), entries.rows] = 1
    design[np.arange(count), height + entries.columns] = 1
    design[count:] = np.sqrt(SHRINKAGE) * np.eye(height + width)
    right = np.concatenate([entries.values - entries.values.mean(), np.zeros(height + width)])
    exact = np.linalg.lstsq(design, right, rcond=None)[0]
    np.testing.assert_allclose(np.concatenate([frame.rows, frame.columns]), exact, atol=1e-6)
    back = frame.base(entries.rows, entries.columns) + frame.scale * frame.inner(entries)
    np.testing.assert_allclose(back, entries.values, atol=1e-12)
    assert np.mean(frame.inner(entries) ** 2) == pytest.approx(1.0)


def test_columns_in_other_units_are_seen_and_change_nothing(noisy):
    _, seen, fit = noisy
    assert fit.scaling_ == "one"
    units = np.where(np.arange(SHAPE[1]) % 2, 1000.0, 1.0)
    settings = {"random_state": 0, "max_levels": 20}
    plain = DeepMatrixCompletion(scaling="columns", **settings).fit_transform(seen)
    fit = DeepMatrixCompletion(**settings).fit(seen * units)
    assert fit.scaling_ == "columns"
    np.testing.assert_allclose(fit.transform(seen * units) / units, plain, rtol=1e-6)


def test_tables_of_unlike_columns_are_filled_better_than_by_means():
    rng = np.random.default_rng(0)
    common = rng.standard_normal((40, 1))
    scales, places = np.array([1.0, 8.0, 0.2, 5e12, 1e-3]), np.array([300.0, 2000.0, 7.0, 2e13, 0.03])
    truth = places + scales * (0.9 * common + 0.4 * rng.standard_normal((40, 5)))
    truth = np.column_stack([truth, np.full(40, 1e6)])
    seen = np.where(rng.random(truth.shape) < 0.85, truth, np.nan)
    gaps = np.isnan(seen)
    fit = DeepMatrixCompletion(random_state=0).fit(seen)
    assert fit.scaling_ == fit.offsets_ == "columns"
    filled = fit.transform(seen)
    error = ((filled - truth) / truth.std(axis=0).clip(1e-9))[:, :5][gaps[:, :5]]
    means = ((np.nanmean(seen, axis=0) - truth) / truth.std(axis=0).clip(1e-9))[:, :5][gaps[:, :5]]
    assert np.sqrt(np.mean(error**2)) < 0.8 * np.sqrt(np.mean(means**2))
    np.testing.assert_array_equal(filled[:, 5], 1e6)
    bare = DeepMatrixCompletion(random_state=0, scaling="columns", offsets="none").fit_transform(seen)
    assert np.abs(bare[:, 5] / 1e6 - 1).max() < 0.5  # not zero: without offsets the network has to learn it


def test_an_interrupt_is_not_taken_for_an_end():
    def press(now):
        raise KeyboardInterrupt

    _, seen = low_rank()
    with pytest.raises(KeyboardInterrupt):
        DeepMatrixCompletion(random_state=0, progress=press).fit(seen)
    run = simulate(
        Problem(DeepLinear((2, 2, 2)), Completion(np.eye(2), np.eye(2))), (np.eye(2), np.eye(2)), times=[1.0]
    )
    interrupted = dataclasses.replace(run, results=np.asarray(int(RESULTS.interrupted)))
    with pytest.raises(KeyboardInterrupt):
        _sound(interrupted)


def test_the_error_held_out_is_in_the_units_of_the_data(noisy):
    truth, seen, _ = noisy
    units = np.where(np.arange(SHAPE[1]) % 2, 100.0, 1.0)
    fit = DeepMatrixCompletion(random_state=0, restarts=3).fit(seen * units)
    gaps = np.isnan(seen)
    noise = 0.5 * units[np.nonzero(gaps)[1]]
    actual = np.sqrt(np.mean(((fit.complete() - truth * units)[gaps]) ** 2 + noise**2))
    assert fit.held_out_error_ == pytest.approx(actual, rel=0.35)


def test_offsets_have_not_seen_what_is_held_out():
    """Columns of two numbers: without one of them all that is known is the other, so they miss by their distance."""
    rng = np.random.default_rng(0)
    seen = np.full((30, 40), np.nan)
    for column in range(40):
        pair = rng.choice(30, 2, replace=False)
        seen[pair, column] = 100.0 * column + np.array([-1.0, 1.0])
    fit = DeepMatrixCompletion(scaling="columns", offsets="columns", held_out=0.3, max_levels=1, random_state=0)
    assert fit.fit(seen).held_out_error_ == pytest.approx(2.0, rel=0.02)


def test_the_ranks_told_are_of_the_network_that_predicts(noisy):
    _, seen, _ = noisy
    settings = {"offsets": "none", "scaling": "one", "max_levels": 30, "random_state": 0}
    fit = DeepMatrixCompletion(restarts=2, **settings).fit(seen)
    values = np.linalg.svd(fit.complete(), compute_uv=False)
    shares = values[values > 1e-12 * values[0]] / values.sum()
    assert fit.effective_rank_ == pytest.approx(np.exp(-shares @ np.log(shares)), rel=1e-6)
    assert fit.rank_ == np.sum(values > 0.01 * values[0])


def test_lists_sparse_matrices_and_gaps_are_one_thing():
    _, seen = low_rank()
    entries = observed(seen)
    fit = DeepMatrixCompletion(random_state=0, max_levels=20)
    dense = clone(fit).fit(seen).complete()
    listed_fit = clone(fit).fit_entries(entries.rows, entries.columns, entries.values, shape=SHAPE)
    np.testing.assert_array_equal(listed_fit.complete(), dense)
    stored = scipy.sparse.csr_array((entries.values, (entries.rows, entries.columns)), shape=SHAPE)
    sparse = clone(fit).fit(stored)
    np.testing.assert_array_equal(sparse.complete(), dense)
    np.testing.assert_array_equal(sparse.transform(stored), clone(fit).fit_transform(seen))
    np.testing.assert_array_equal(listed_fit.predict_entries([3, 3, 0], [1, 1, 2]), dense[[3, 3, 0], [1, 1, 2]])


def test_rows_that_were_not_there_are_completed_from_their_own_entries():
    truth, _ = low_rank()
    rng = np.random.default_rng(5)
    seen = np.where(rng.random(SHAPE) < 0.7, truth, np.nan)
    fit = DeepMatrixCompletion(depth=3, random_state=0).fit(seen[:22])
    new = seen[22:]
    filled = fit.transform(new)
    gaps = np.isnan(new)
    error = np.sqrt(np.mean((filled - truth[22:])[gaps] ** 2)) / truth.std()
    assert error < 0.15
    np.testing.assert_array_equal(fit.transform(new[2:5]), filled[2:5])
    empty = fit.transform(np.full((1, SHAPE[1]), np.nan))
    assert np.isfinite(empty).all()


def test_a_warm_start_loses_plasticity_at_depth_two_and_says_so():
    truth = np.outer(np.ones(8), np.linspace(1.0, 2.0, 8))
    blocks = np.kron(np.eye(2), np.ones((4, 4))).astype(bool)
    first, second = np.where(blocks, truth, np.nan), truth.copy()
    second[:4, 4:] = np.nan
    settings = {"offsets": "none", "scaling": "none", "held_out": 0.0, "tolerance": 1e-2, "random_state": 0}
    warm = DeepMatrixCompletion(warm_start=True, **settings).fit(first)
    with pytest.warns(PlasticityWarning, match="2 parts that are not joined"):
        warm.fit(second)
    cold = DeepMatrixCompletion(**settings).fit(second)

    def rank(fit) -> float:
        return float(spectrum_effective_rank(np.linalg.svd(fit.complete())[1]))

    assert rank(cold) < 1.05
    assert rank(warm) > rank(cold) + 0.02
    deep = DeepMatrixCompletion(depth=3, warm_start=True, **settings).fit(first)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        deep.fit(second)
    again = deep.complete()
    np.testing.assert_array_equal(deep.fit(second).complete(), again)  # nothing is new


def test_a_warm_start_that_gets_stuck_gives_way_to_a_cold_one():
    """From a tenth of the entries to most of them at depth 3: the warm path ends on a plateau."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((SHAPE[0], 2)) @ rng.standard_normal((2, SHAPE[1]))
    place = rng.random(SHAPE)
    fit = DeepMatrixCompletion(depth=3, warm_start=True, random_state=0).fit(np.where(place < 0.1, truth, np.nan))
    assert not fit.warm_started_
    with pytest.warns(PlasticityWarning, match="the cold one is taken"):
        fit.fit(np.where(place < 0.6, truth, np.nan))
    assert not fit.warm_started_ and fit.held_out_error_ < 0.02
    assert np.sqrt(np.mean((fit.complete() - truth)[place >= 0.6] ** 2)) < 0.02 * truth.std()
    # A few more entries are learnt from there, and nothing is said.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit.fit(np.where(place < 0.7, truth, np.nan))
    assert fit.warm_started_ and fit.held_out_error_ < 0.02


def test_when_a_warm_start_is_doubted():
    """Each reason alone: most entries new, no better than offsets, much worse than before, a residual that stays."""
    _, seen = low_rank()
    entries = observed(seen)
    learner = Learner(SHAPE, 2, 4, "flow")
    layers = learner.start(0.1, np.random.default_rng(0))
    path = Path(*(np.array([1.0, 0.5]) for _ in range(4)))
    one = np.ones(5)
    held = Fits(learner, framed("test", entries, "both", "one"), entries, (path,), (layers,), one, 2 * one)
    settings = Settings([0], 1e-4, 0.1, 1e-4, 100, None)
    assert not doubtful(held, 10, 0.9, settings) and not doubtful(held, 10, np.nan, settings)
    assert doubtful(held, len(entries) // 2 + 1, 0.9, settings)
    assert doubtful(held, 10, 0.5, settings)
    assert doubtful(dataclasses.replace(held, plain=one), 10, 0.9, settings)
    bare = dataclasses.replace(held, missed=np.zeros(0), plain=np.zeros(0))
    assert doubtful(bare, 10, np.nan, settings)
    assert not doubtful(bare, 10, np.nan, settings._replace(max_levels=2))
    assert not doubtful(bare, 10, np.nan, settings._replace(tolerance=1.0))


def test_a_path_that_does_not_come_down_is_not_taken_for_one_that_does(monkeypatch):
    """The flow is played: losses after each part of it, the last of which reaches its level or not."""
    entries = listed("test", [0, 0, 1, 1], [0, 1, 0, 1], [1.0, 0.0, 0.0, 0.5])
    learner = Learner((2, 2), 2, 1, "flow")
    start = learner.start(1e-3, np.random.default_rng(0))  # with a loss of 0.625

    def played(losses: list[float], last: RESULTS) -> tuple[bool, int]:
        rest = list(losses)

        def down(self, problem, begin, level):
            value = rest.pop(0)
            return SimpleNamespace(result=RESULTS.step_limit if rest else last, params=(), values=value)

        monkeypatch.setattr(Learner, "_down", down)
        monkeypatch.setattr("deeplinear.estimators._learning._last_loss", lambda run: run.values)
        return learner.until_error(entries, start, 0.2) is not None, len(losses) - len(rest)

    assert played([0.625, 0.625, 0.5, 0.2, 0.05], RESULTS.stopped) == (True, 5)  # a first plateau is waited for
    assert played([0.5, 0.125, 0.125, 0.05], RESULTS.stopped) == (False, 3)  # a later one is not
    assert played([0.5, 0.125], RESULTS.steady) == (False, 2)


def test_the_mask_says_what_cannot_be_determined():
    _, seen = low_rank()
    seen[7] = np.nan
    seen[:, 4] = np.nan
    seen[9], seen[:, 11] = np.nan, np.nan
    seen[9, 11] = 1.0
    report = DeepMatrixCompletion(random_state=0, max_levels=2).fit(seen).mask_report_
    np.testing.assert_array_equal(report.loose_rows, [7, 9])
    np.testing.assert_array_equal(report.loose_columns, [4, 11])
    assert "2 rows (7, 9): cannot be determined from the rest" in str(report)
    graph = connectivity(~np.isnan(seen))
    assert (
        (report.parts, report.observed)
        == (len(graph.components), np.count_nonzero(~np.isnan(seen)))
        == (2, report.observed)
    )


def test_restarts_tell_how_much_depends_on_chance(noisy):
    _, _, fit = noisy
    mean, spread = fit.complete(return_std=True)
    rows, columns = (index.ravel() for index in np.indices(SHAPE))
    frame = fit._fitted.fits.frame
    singles = [frame.scale * part.at(rows, columns).reshape(SHAPE) for part in fit._fitted.factors]
    base = frame.base(rows, columns).reshape(SHAPE)
    np.testing.assert_allclose(mean, base + np.mean(singles, axis=0), atol=1e-12)
    np.testing.assert_allclose(spread, np.std(singles, axis=0, ddof=1), atol=1e-12)
    _, clean = low_rank()
    sure = DeepMatrixCompletion(restarts=2, random_state=0, max_levels=60).fit(clean)
    assert sure.complete(return_std=True)[1].mean() < 0.7 * spread.mean()
    with pytest.raises(ValueError, match="restarts=2 or more"):
        DeepMatrixCompletion(random_state=0, max_levels=2).fit(clean).complete(return_std=True)


def test_adam_on_the_entries_learns_too():
    truth, seen = low_rank()
    fit = DeepMatrixCompletion(method="adam", width=4, random_state=0).fit(seen)
    gaps = np.isnan(seen)
    rows, columns = np.nonzero(gaps)
    offsets = np.sqrt(np.mean((fit._fitted.fits.frame.base(rows, columns) - truth[gaps]) ** 2))
    error = np.sqrt(np.mean((fit.complete() - truth)[gaps] ** 2))
    assert fit.method_ == "adam" and error < 0.5 * offsets


def test_numbers_do_not_depend_on_what_jax_is_set_to():
    _, seen = low_rank()
    fit = DeepMatrixCompletion(random_state=0, max_levels=10)
    wide = clone(fit).fit(seen).complete()
    with jax.enable_x64(False):
        narrow = clone(fit).fit(seen).complete()
        assert jax.numpy.zeros(1).dtype == np.float32
    np.testing.assert_array_equal(narrow, wide)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"depth": 1}, "depth must be"),
        ({"depth": 2.5}, "depth must be"),
        ({"width": 0}, "width must be"),
        ({"scale": 0.0}, "scale must be"),
        ({"held_out": 1.0}, "held_out must be"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"restarts": 0}, "restarts must be"),
        ({"offsets": "colums"}, "Did you mean 'columns'"),
        ({"scaling": "all"}, "scaling 'all' is unknown"),
        ({"method": "sgd"}, "method must be 'auto', 'flow' or 'adam'"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings, message):
    with pytest.raises((ValueError, TypeError), match=message):
        DeepMatrixCompletion(**settings).fit(np.eye(3))


def test_input_that_makes_no_sense_is_refused():
    fit = DeepMatrixCompletion(max_levels=2)
    with pytest.raises(ValueError, match="at least one entry that is not missing"):
        fit.fit(np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match="infinity"):
        fit.fit(np.array([[np.inf, 1.0], [2.0, 3.0]]))
    with pytest.raises(ValueError, match="take other units"):
        fit.fit(np.array([[1e200, 1.0], [2.0, 3.0]]))
    assert fit.fit([[1.0, None], [2.0, 3.0]]).complete().shape == (2, 2)
    with pytest.raises(ValueError, match="shape must be the numbers"):
        fit.fit_entries([0], [0], [1.0], shape=(1,))
    with pytest.raises(ValueError, match="row 1, column 2 is given twice"):
        listed("test", [1, 1], [2, 2], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"columns must lie in 0\.\.1"):
        listed("test", [0], [2], [1.0], shape=(1, 2))
    with pytest.raises(ValueError, match=r"values\[1\] is nan"):
        listed("test", [0, 1], [0, 1], [1.0, np.nan])
    with pytest.raises(TypeError, match="whole numbers"):
        listed("test", [0.5], [0], [1.0])
    with pytest.raises(TypeError, match="columns must be whole numbers from 0 on, but are of type float64"):
        listed("test", [0], [np.nan], [1.0])
    for names in (["a", "b"], np.array(["a", "b"], dtype=object)):
        with pytest.raises(TypeError, match="rows must be whole numbers from 0 on, but are text; number your names"):
            fit.fit_entries(names, ["x", "y"], [1.0, 2.0])
    with pytest.raises(ValueError, match="too large to be written out"):
        fit.fit_entries([0], [0], [1.0], shape=(100_000, 100_000)).complete()


def test_a_constant_matrix_needs_no_network():
    seen = np.full((5, 4), 7.0)
    seen[1, 2] = np.nan
    fit = DeepMatrixCompletion(random_state=0).fit(seen)
    assert fit.rank_ == 0
    np.testing.assert_allclose(fit.transform(seen), 7.0, atol=1e-3)
