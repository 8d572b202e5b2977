"""Diagnoses of networks whose every verdict is known by hand, and of the same networks with a planted violation."""

import json
import re

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import tsit5
from deeplinear.diagnosis import STANDING, Diagnosis, Finding, Prediction, diagnose, load_weights
from deeplinear.dynamics import GradientDescent, GradientFlow, simulate
from deeplinear.models import Completion, DeepLinear, Problem, Regression, SquaredDistance
from deeplinear.theory import checks

SIGMA = np.array([3.0, 2.0, 1.0])
FLOW = GradientFlow(1e-11, integrator=tsit5())  # one program for all runs
ROUNDING = 1e-12  # of products of a few matrices of order one, relative


def rotation(seed: int, sign: float = 1.0) -> np.ndarray:
    """A random orthogonal matrix with a determinant of given sign."""
    found = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    return found * np.array([1.0, 1.0, sign * np.sign(np.linalg.det(found))])


LEFT, RIGHT = rotation(1), rotation(2)
TARGET = LEFT @ np.diag(SIGMA) @ RIGHT.T
SQUARED = Problem(DeepLinear((3, 3, 3)), SquaredDistance(TARGET))


def two_layers(lam: float, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Layers with W₂ᵀW₂ − W₁W₁ᵀ = λI, in no relation to the task, whose product has a determinant of given sign."""
    s = np.array([0.3, 0.2, 0.1])
    root = np.sqrt(s**2 + lam**2 / 4)
    hidden = rotation(5)
    first = hidden @ np.diag(np.sqrt(root - lam / 2)) @ rotation(3).T
    return first, rotation(4, sign) @ np.diag(np.sqrt(root + lam / 2)) @ hidden.T


def line(found: Diagnosis, words: str) -> Finding:
    """The one finding whose statement has these words."""
    (one,) = [finding for finding in found.findings if words in finding.statement]
    return one


def several(value: object) -> tuple[float, ...]:
    """Values of a line that has several."""
    assert isinstance(value, tuple)
    return value


def predicted(found: Diagnosis, name: str) -> Prediction:
    one = found.prediction(name)
    assert one is not None
    return one


@pytest.fixture(scope="module")
def learner() -> Diagnosis:
    return diagnose(SQUARED, two_layers(0.4), simulate=True, theorems=False, flow=FLOW)


def test_two_balanced_layers_learn_what_is_predicted(learner: Diagnosis) -> None:
    first, second = two_layers(0.4)
    size = np.sum(first**2) + np.sum(second**2)
    plain, multiple = line(learner, "layers are balanced"), line(learner, "λ-balanced, W'ᵀW'")
    assert plain.standing is STANDING.fails and multiple.standing is STANDING.holds
    assert plain.residual == pytest.approx(0.4 * np.sqrt(3) / size, rel=ROUNDING)
    np.testing.assert_allclose(multiple.value, [0.4], rtol=ROUNDING)
    assert line(learner, "two λ-balanced layers under white inputs").standing is STANDING.holds
    assert line(learner, "converges to the best one").standing is STANDING.holds
    assert line(learner, "lazy, rich or delayed").value == "rich"
    np.testing.assert_allclose(predicted(learner, "singular_values_end").value, SIGMA, rtol=1e-9)
    assert predicted(learner, "loss_end").value == pytest.approx(0, abs=1e-12)
    assert predicted(learner, "late_rate").value == pytest.approx(2 * np.hypot(1, 0.2), rel=ROUNDING)
    names = {
        "loss_end",
        "singular_values_end",
        "rank_end",
        "learning_times",
        "late_rate",
        "kernel_distance",
        "conserved",
    }
    assert names <= {one.name for one in learner.predictions}
    assert [one.name for one in learner.predictions if one.agrees is not True] == []

    # Learning times by an integrator of SciPy, from the singular values of the product.
    def field(t: float, y: np.ndarray) -> np.ndarray:
        a, b = y[:9].reshape(3, 3), y[9:].reshape(3, 3)
        gap = TARGET - b @ a
        return np.concatenate([(b.T @ gap).ravel(), (gap @ a.T).ravel()])

    times = np.linspace(0, 4, 2001)
    start = np.concatenate([first.ravel(), second.ravel()])
    states = solve_ivp(field, (0, 4), start, t_eval=times, rtol=1e-9, atol=1e-12).y.T
    values = [np.linalg.svd(y[9:].reshape(3, 3) @ y[:9].reshape(3, 3), compute_uv=False) for y in states]
    halves = [times[np.argmax(column >= half)] for column, half in zip(np.array(values).T, SIGMA / 2, strict=True)]
    np.testing.assert_allclose(predicted(learner, "learning_times").value, halves, atol=0.01)


def test_curvature_and_step_size(learner: Diagnosis) -> None:
    """Against central differences of the gradient, written here."""
    first, second = two_layers(0.4)

    def gradient(y: np.ndarray) -> np.ndarray:
        a, b = y[:9].reshape(3, 3), y[9:].reshape(3, 3)
        gap = b @ a - TARGET
        return np.concatenate([(b.T @ gap).ravel(), (gap @ a.T).ravel()])

    point = np.concatenate([first.ravel(), second.ravel()])
    columns = [(gradient(point + 1e-5 * e) - gradient(point - 1e-5 * e)) / 2e-5 for e in np.eye(18)]
    values = np.linalg.eigvalsh(np.array(columns))
    assert line(learner, "largest eigenvalue").value == pytest.approx(values[-1], rel=1e-8)
    assert line(learner, "smallest eigenvalue").value == pytest.approx(values[0], rel=1e-8)
    assert line(learner, "below the step").value == pytest.approx(2 / values[-1], rel=1e-8)
    # A balanced minimum is none of this network's: its layers are not balanced, and the line says by how much.
    assert line(learner, "at a balanced minimum").standing is STANDING.silent


def test_numbers_on_inputs_that_are_not_white_behind_a_bottleneck() -> None:
    """3-2-3 on inputs of scales 3, 2, 1 with noise: losses by truncation, the step by central differences."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 80)) * np.array([[3.0], [2.0], [1.0]])
    y = TARGET @ x + 0.5 * rng.standard_normal((3, 80))
    values, vectors = np.linalg.eigh(x @ x.T / 80)
    root, inverse = (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
    seen = np.linalg.lstsq(x.T, y.T, rcond=None)[0].T @ root
    constant = 0.5 * np.sum((seen @ inverse @ x - y) ** 2) / 80
    left, sigma, right = np.linalg.svd(seen)

    def factors(product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, s, vt = np.linalg.svd(product)
        return np.sqrt(s[:2])[:, None] * vt[:2], u[:, :2] * np.sqrt(s[:2])

    def gradient(point: np.ndarray) -> np.ndarray:
        a, b = point[:6].reshape(2, 3), point[6:].reshape(3, 2)
        error = (b @ a @ x - y) @ x.T / 80
        return np.concatenate([(b.T @ error).ravel(), (error @ a.T).ravel()])

    first, second = factors(0.1 * TARGET)
    found = diagnose(Problem(DeepLinear((3, 2, 3)), Regression.from_data(x, y)), (first, second), theorems=False)
    best = np.concatenate([w.ravel() for w in factors((left[:, :2] * sigma[:2]) @ right[:2] @ inverse)])
    assert np.abs(gradient(best)).max() < 1e-10
    columns = [(gradient(best + 1e-5 * e) - gradient(best - 1e-5 * e)) / 2e-5 for e in np.eye(12)]
    highest = np.linalg.eigvalsh(np.array(columns))[-1]
    assert line(found, "largest step of gradient descent").value == pytest.approx(2 / highest, rel=1e-8)
    assert "white only to" in line(found, "rate, stiffness").reason
    levels = [constant + 0.5 * np.sum(sigma[k:] ** 2) for k in range(3)]
    assert line(found, "the widths carry").value == pytest.approx(levels[2], rel=1e-9)
    np.testing.assert_allclose(line(found, "saddles that can lie ahead").value, levels[1:2], rtol=1e-9)
    np.testing.assert_allclose(line(found, "strengths of the modes").value, sigma, rtol=1e-9)
    loss = 0.5 * np.sum((second @ first @ x - y) ** 2) / 80
    own = next(finding for finding in found.topic("task") if finding.statement == "loss")
    assert levels[1] < loss < levels[0] and own.value == pytest.approx(loss, rel=1e-12)


def test_a_sign_that_cannot_be_learnt() -> None:
    """From a determinant of the wrong sign balanced layers end at a saddle with the loss s²/2 of the weakest mode."""
    found = diagnose(SQUARED, two_layers(0.0, -1.0), simulate=True, theorems=False, flow=FLOW)
    assert line(found, "neighbouring layers are balanced").standing is STANDING.holds
    assert line(found, "determinant of the target has the same sign").standing is STANDING.fails
    assert line(found, "converges to the best one").standing is STANDING.fails
    assert line(found, "lazy, rich or delayed").standing is STANDING.silent
    assert predicted(found, "loss_floor").value == pytest.approx(0.5, rel=ROUNDING)
    assert predicted(found, "loss_end").value == pytest.approx(0.5, rel=ROUNDING)
    assert predicted(found, "determinant_sign").value == -1
    for name in ("loss_floor", "loss_end", "determinant_sign", "conserved"):
        assert predicted(found, name).agrees is True
    right = diagnose(SQUARED, two_layers(0.0), theorems=False)
    assert line(right, "determinant of the target has the same sign").standing is STANDING.holds
    assert right.prediction("loss_floor") is None and predicted(right, "loss_end").value < 1e-12
    told = [line(right, f"{words} at a balanced minimum").value for words in ("descent", "loss", "stiffness")]
    np.testing.assert_allclose(told, [2 / 6, 4.0, 3.0], rtol=1e-9)  # sums of two singular values


@pytest.mark.parametrize(("size", "standing"), [(1e-3, STANDING.nearly), (0.5, STANDING.fails)])
def test_a_planted_imbalance(size: float, standing: STANDING) -> None:
    """A verdict changes with the planted residual, and nothing is predicted from it any more."""
    first, second = two_layers(0.4)
    second = second + size * np.diag([1.0, 0.0, 0.0])
    found = diagnose(SQUARED, (first, second), theorems=False)
    laws = second.T @ second - first @ first.T
    rest = laws - np.trace(laws) / 3 * np.eye(3)
    residual = np.linalg.norm(rest) / (np.sum(first**2) + np.sum(second**2))
    for words in ("λ-balanced, W'ᵀW'", "two λ-balanced layers under white inputs"):
        assert line(found, words).standing is standing
        assert line(found, words).residual == pytest.approx(residual, rel=1e-9)
    assert {one.name for one in found.predictions} <= {"conserved", "envelope"}


def test_weights_alone() -> None:
    found = diagnose(None, ([[1.0]], [[2.0]]))
    low, high = several(line(found, "distance from balanced layers").value)
    nearest, same_product = 1 / np.sqrt(2), np.hypot(np.sqrt(2) - 1, 2 - np.sqrt(2))
    assert 0 < low <= nearest and high == pytest.approx(same_product, rel=ROUNDING)
    assert line(found, "above the least for their product").value == pytest.approx(0.25, rel=ROUNDING)  # 5 of 4
    assert found.predictions == () and {f.topic for f in found.findings} == {"network", "balance", "product"}
    # The third unit is never written to. (0, -5, 1) is what the second layer does not read.
    first = np.vstack([np.diag([4.0, 1.0]), [0.0, 0.0]])
    second = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 5.0]])
    found = diagnose(None, load_weights({"1.weight": first, "2.weight": second}))
    np.testing.assert_allclose(line(found, "none of the earlier ones writes").value, [5.0], rtol=ROUNDING)
    np.testing.assert_allclose(line(found, "none of the later ones reads").value, [5 / np.sqrt(26)], rtol=ROUNDING)
    np.testing.assert_allclose(line(found, "singular values of the product").value, [4.0, 1.0], rtol=ROUNDING)
    assert line(found, "stable rank").value == pytest.approx(17 / 16, rel=ROUNDING)
    assert line(diagnose(None, (np.zeros((2, 2)),)), "stable rank").standing is STANDING.silent


def test_aligned_layers_with_a_mode_that_is_missing() -> None:
    """Three layers diagonal in the bases of the task: a mode of strength zero is never learnt."""
    strengths = np.diag([0.5, 0.4, 0.0])
    problem = Problem(DeepLinear((3, 3, 3, 3)), SquaredDistance(TARGET))
    found = diagnose(problem, (strengths @ RIGHT.T, strengths, LEFT @ strengths), theorems=False)
    assert line(found, "aligned modes").standing is STANDING.holds
    np.testing.assert_allclose(predicted(found, "singular_values_end").value, [3, 2, 0], atol=1e-7)
    assert (
        predicted(found, "loss_end").value == pytest.approx(0.5, abs=1e-7) and predicted(found, "rank_end").value == 2
    )
    assert line(found, "keeps its rank").value == 2
    early, late = several(predicted(found, "learning_times").value)
    assert 0 < early < late < np.inf  # the stronger mode first
    assert line(found, "kind of point").value == "regular point"
    np.testing.assert_allclose(line(found, "can lie ahead").value, [2.5, 0.5], rtol=1e-9)


def test_observations_that_do_not_see_each_other() -> None:
    values = np.diag([2.0, -1.0, 0.5])
    apart = Problem(DeepLinear((3, 3, 3)), Completion(values, np.eye(3)))
    start = tuple(0.3 * np.random.default_rng(k).normal(size=(3, 3)) for k in (0, 1))
    found = diagnose(apart, start, simulate=True, theorems=False, flow=FLOW)
    assert (
        line(found, "graph is connected").standing is STANDING.fails
        and line(found, "graph is connected").value == "3 components"
    )
    assert (
        line(found, "coupled dynamics").standing is STANDING.fails
        and line(found, "coupled dynamics").value == "3 parts"
    )
    assert line(found, "no two observations in a row").standing is STANDING.holds
    assert predicted(found, "loss_end").value == pytest.approx(0, abs=1e-12)
    assert [one.name for one in found.predictions if one.agrees is not True] == []
    joined = Problem(DeepLinear((3, 3, 3)), Completion(values, np.triu(np.ones((3, 3)))))
    found = diagnose(joined, start, theorems=False)
    for words in ("graph is connected", "coupled dynamics"):
        assert line(found, words).standing is STANDING.holds
    assert found.prediction("loss_end") is None
    assert line(found, "no two observations in a row").standing is STANDING.silent


def test_inputs_that_are_not_white() -> None:
    inputs = np.diag([1.0, 1.0, 1.1]) @ np.kron(np.eye(3), [1.0, -1.0])
    problem = Problem(DeepLinear((3, 3, 3)), Regression.from_data(inputs, TARGET @ inputs))
    found = diagnose(problem, two_layers(0.0, -1.0), theorems=False)
    covariance = inputs @ inputs.T / 6
    mean = np.trace(covariance) / 3
    colour = np.abs(np.diag(covariance) / mean - 1).max()
    assert line(found, "inputs are white").standing is STANDING.fails
    assert line(found, "inputs are white").residual == pytest.approx(colour, rel=1e-9)
    assert line(found, "two λ-balanced layers under white inputs").standing is STANDING.fails
    assert found.prediction("loss_end") is None and found.prediction("envelope") is None
    # The obstruction needs balance only: no singular matrix is nearer to the target, as the loss sees it.
    floor = 0.5 * np.linalg.svd(TARGET @ np.sqrt(covariance), compute_uv=False)[-1] ** 2
    assert predicted(found, "loss_floor").value == pytest.approx(floor, rel=1e-9)


def test_hypotheses_of_theorems() -> None:
    """The theorem on determinants asks for balance; a planted imbalance is told with its size."""
    first, second = two_layers(0.0)
    held = {f.source: f for f in diagnose(SQUARED, (first, second)).topic("theorems")}
    missed = {f.source: f for f in diagnose(SQUARED, (first, second + 0.01 * np.eye(3))).topic("theorems")}
    name = "geometry/determinant-sign"
    assert held[name].standing is STANDING.holds and missed[name].standing is not STANDING.holds
    assert "It needs" in missed[name].reason and missed[name].residual > missed[name].tolerance
    assert held["completion/proposition-3.2"].standing is STANDING.silent
    assert not any("erratum" in source or source.startswith("rnn/") for source in held)


def test_sources_are_checks_or_functions(learner: Diagnosis) -> None:
    known = {check.id for check in checks()}
    sources = {one.source for one in (*learner.findings, *learner.predictions) if one.source}
    assert {source for source in sources if "/" in source} <= known
    import deeplinear

    for source in sources:
        if "/" not in source and ":" not in source:
            package, _, name = source.partition(".")
            assert hasattr(getattr(deeplinear, package), name), source


def test_a_run_of_ones_own(learner: Diagnosis) -> None:
    run, start = learner.trajectory, two_layers(0.4)
    assert run is not None
    again = diagnose(SQUARED, start, trajectory=run, theorems=False)
    assert [one.outcome for one in again.predictions] == [one.outcome for one in learner.predictions]
    short = simulate(SQUARED, start, GradientDescent(0.01), horizon=5)
    early = diagnose(SQUARED, start, trajectory=short, theorems=False)
    assert predicted(early, "loss_end").agrees is None and "not come to rest" in predicted(early, "loss_end").reason
    with pytest.raises(ValueError, match="trajectory must start from params"):
        diagnose(SQUARED, two_layers(0.3), trajectory=run)
    with pytest.raises(TypeError, match=r"trajectory must be a Trajectory, or a pair .* but is a dict"):
        diagnose(SQUARED, start, trajectory={})
    with pytest.raises(ValueError, match="must not both be given"):
        diagnose(SQUARED, start, trajectory=run, simulate=True)


def test_the_limit_is_a_matrix(learner: Diagnosis) -> None:
    """The whole target is learnt; a narrow hidden layer learns its best approximation, as Eckart and Young have it."""
    limit = learner.limit
    assert limit is not None
    np.testing.assert_allclose(limit, TARGET, atol=1e-9)
    assert predicted(learner, "product_end").agrees is True and line(learner, "the linear map that is learnt").value
    np.testing.assert_array_equal(learner.to_json()["limit"], limit)
    shown = str(learner).partition("\nlimit\n")[2].splitlines()[2:5]
    np.testing.assert_allclose([[float(x) for x in row.split()] for row in shown], TARGET, rtol=0.01, atol=1e-6)
    strengths = np.diag([0.5, 0.4])
    frames = LEFT[:, :2], RIGHT[:, :2]
    narrow = Problem(DeepLinear((3, 2, 3)), SquaredDistance(TARGET))
    found = diagnose(narrow, (strengths @ frames[1].T, frames[0] @ strengths), theorems=False)
    np.testing.assert_allclose(found.limit, frames[0] @ np.diag([3.0, 2.0]) @ frames[1].T, atol=1e-9)
    off = predicted(found, "product_end").judged(tuple(map(tuple, TARGET)))
    assert off.agrees is False  # the third mode is 1, the room 3e-4
    bent = diagnose(SQUARED, (two_layers(0.4)[0], 1.5 * two_layers(0.4)[1] @ rotation(7)), theorems=False)
    assert bent.limit is None and bent.to_json()["limit"] is None


def descent(steps: int, step: float, skip: int) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Gradient descent in plain NumPy: times and layers of every so many steps."""
    first, second = two_layers(0.4)
    records = []
    for n in range(steps + 1):
        if n % skip == 0:
            records.append([first.copy(), second.copy()])
        gap = second @ first - TARGET
        first, second = first - step * second.T @ gap, second - step * gap @ first.T
    return step * skip * np.arange(len(records)), records


def test_runs_as_plain_arrays() -> None:
    start, step = two_layers(0.4), 0.01
    times, records = descent(2000, step, 8)
    found = diagnose(SQUARED, start, trajectory=(times, records), step=step, theorems=False)
    assert [one.name for one in found.predictions if one.agrees is not True] == []
    # What the steps have changed is more than a flow may, and is told where no step is given.
    assert 1e-5 < predicted(found, "conserved").outcome < predicted(found, "conserved").atol < 0.05
    few, ends = times[[0, -1]], [records[0], records[-1]]
    stacked = [np.stack([record[k] for record in ends]) for k in (0, 1)]
    for layers in (stacked, np.array(ends), [{"1.weight": a, "2.weight": b} for a, b in ends]):
        same = diagnose(SQUARED, start, trajectory=(few, layers), step=step, theorems=False)
        for name in ("product_end", "loss_end", "conserved"):
            assert predicted(same, name).outcome == predicted(found, name).outcome
    flow = diagnose(SQUARED, start, trajectory=(few, ends), theorems=False)
    assert [one.name for one in flow.disagreements] == ["conserved"]
    assert "too far apart" in predicted(flow, "learning_times").reason
    late = diagnose(SQUARED, start, trajectory=(3 * times, records), step=step, theorems=False)  # a wrong clock
    assert "learning_times" in [one.name for one in late.disagreements]
    timeless = diagnose(SQUARED, start, trajectory=(None, ends), step=step, theorems=False)
    assert predicted(timeless, "learning_times").agrees is None and predicted(timeless, "product_end").agrees is True
    for trajectory, words in (
        ((times[1:], records), "a time for each of its 251 records"),
        ((-times, records), "must be finite and increase"),
        ((times, records[::-1]), "must start from params.*copied when they were recorded"),
        ((times[:2], [records[0], records[0][:1]]), r"record 1 of trajectory must have layers of shapes"),
        ((times[:2], [records[0], [np.eye(3), "x"]]), "record 1 of trajectory must be layers, but"),
        ((times, {"a": 1}), "must be a list with the layers at each time"),
        ((times, records, 3), "but is 3 things"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            diagnose(SQUARED, start, trajectory=trajectory, theorems=False)
    with pytest.raises(ValueError, match="step must be left out without a trajectory"):
        diagnose(SQUARED, start, step=step)
    with pytest.raises(ValueError, match="step must be greater than 0"):
        diagnose(SQUARED, start, trajectory=(times, records), step=0.0)


def test_what_is_not_known_is_said_with_its_reason() -> None:
    subjects = {
        "lazy, rich or delayed": "but there are 3 layers",
        "converges to the best one": "but there are 3 layers",
        "limit of the product": "No closed form applies",
        "lazy: the layers fit": "but the loss is SquaredDistance",
        "observations are connected": "but the loss is SquaredDistance",
    }
    deep = Problem(DeepLinear((3, 3, 3, 3)), SquaredDistance(TARGET))
    found = diagnose(deep, deep_start(), theorems=False)
    for words, reason in subjects.items():
        one = line(found, words)
        assert one.standing is STANDING.silent and reason in one.reason
    one = diagnose(Problem(DeepLinear((3, 3)), SquaredDistance(TARGET)), (np.eye(3),), theorems=False)
    for words in ("neighbouring layers are balanced", "keeps its rank", "at a balanced minimum"):
        assert line(one, words).standing is STANDING.silent and "one layer" in line(one, words).reason
    seen = diagnose(Problem(DeepLinear((3, 3, 3, 3)), Completion(TARGET, np.eye(3))), deep_start(), theorems=False)
    for words in ("lazy: the layers fit", "lazy, rich or delayed"):
        assert "layers" in line(seen, words).reason
    assert "but the loss is Completion" in line(seen, "falls at least like").reason
    bent = diagnose(SQUARED, (np.eye(3), np.diag([1.0, 2.0, 3.0])), theorems=False)
    assert "It needs: λ-balanced layers (residual" in line(bent, "lazy, rich or delayed").reason


def deep_start() -> tuple[np.ndarray, ...]:
    return (*two_layers(0.4), 2 * np.eye(3))


def test_weights_of_32_bits() -> None:
    """Rounded layers count as balanced to their own precision, told in a note; as 64-bit numbers they do not."""
    single = tuple(layer.astype(np.float32) for layer in two_layers(0.4))
    found = diagnose(SQUARED, load_weights(single), theorems=False)
    one = line(found, "λ-balanced, W'ᵀW'")
    assert one.standing is STANDING.holds and 1e-8 < one.residual < one.tolerance == 2.0**-22
    assert any("relative rounding of 1e-07" in note for note in found.notes)
    np.testing.assert_allclose(predicted(found, "singular_values_end").value, SIGMA, rtol=1e-6)
    double = diagnose(SQUARED, tuple(layer.astype(float) for layer in single), theorems=False)
    assert line(double, "λ-balanced, W'ᵀW'").standing is STANDING.nearly and double.prediction("loss_end") is None


def test_signs_that_an_imbalance_may_change() -> None:
    first, second = np.diag([1.0, 1.0, 1e-4]), np.diag([1.0, 1.0, -1.2e-4])  # δ = 4.4e-9, the strength 1.2e-8
    found = diagnose(SQUARED, (first, second), theorems=False)
    assert line(found, "neighbouring layers are balanced").standing is STANDING.holds
    rank = line(found, "keeps its rank")
    assert rank.standing is STANDING.silent and "may change its sign" in rank.reason
    assert found.prediction("determinant_sign") is None and found.prediction("loss_floor") is None
    hidden = diagnose(SQUARED, (first, np.diag([1.0, 1.0, 0.0])), theorems=False)  # the third mode grows
    assert "may hide modes" in line(hidden, "keeps its rank").reason


def test_runs_that_stop_on_a_plateau() -> None:
    """A run that is left at the saddle of two modes is open; the whole one has the rate of the third, 2s."""
    strengths = np.diag(np.sqrt([1.5, 1.0, 1e-13]))
    start = (strengths @ RIGHT.T, LEFT @ strengths)
    grown = diagnose(SQUARED, start, trajectory=simulate(SQUARED, start, FLOW, horizon=4.0), theorems=False)
    for name in ("loss_end", "singular_values_end", "rank_end"):
        one = predicted(grown, name)
        assert one.agrees is None and "rests on a plateau" in one.reason
    assert grown.disagreements == ()
    whole = diagnose(SQUARED, start, simulate=True, theorems=False, flow=FLOW)
    assert predicted(whole, "late_rate").outcome == pytest.approx(2.0, rel=0.01)
    assert [one.name for one in whole.predictions if one.agrees is not True] == []


def test_where_nothing_grows_and_where_something_does() -> None:
    adapter = line(diagnose(None, (np.eye(3), np.zeros((3, 3)))), "stable rank")
    assert "moves a layer" in adapter.reason
    both = line(diagnose(None, (np.zeros((3, 3)), np.zeros((3, 3)))), "stable rank")
    assert "no direction to grow in" in both.reason
    single = diagnose(Problem(DeepLinear((3, 3)), SquaredDistance(TARGET)), (np.eye(3),), theorems=False)
    assert line(single, "can lie ahead").value == "none" and "convex" in line(single, "can lie ahead").reason


def test_units() -> None:
    """The loss of samples against its definition, and the factor to the mean over all entries."""
    inputs = np.kron(np.eye(3), [1.0, -1.0])
    outputs = TARGET @ inputs + 0.1
    problem = Problem(DeepLinear((3, 3, 3)), Regression.from_data(inputs, outputs))
    first, second = two_layers(0.4)
    gaps = second @ first @ inputs - outputs
    (loss,) = [
        one for one in diagnose(problem, (first, second), theorems=False).topic("task") if one.statement == "loss"
    ]
    assert loss.value == pytest.approx(0.5 * np.mean(np.sum(gaps**2, axis=0)), rel=1e-12)
    assert np.mean(gaps**2) == pytest.approx(2 / 3 * loss.value, rel=1e-12) and "MSELoss is 0.6667 of it" in loss.reason


def test_a_wrong_prediction_is_seen() -> None:
    for relation, wrong, right in (("equal", 1.1, 1.00005), ("at least", 0.9, 1.5), ("at most", 1.1, 0.5)):
        one = Prediction("loss_end", "loss", 1.0, relation)
        assert one.judged(wrong).agrees is False and one.judged(right).agrees is True
    two = Prediction("learning_times", "times", (1.0, float("nan")))
    assert two.judged((1.0, float("nan"))).agrees is True
    assert two.judged((1.0, 2.0)).agrees is False and two.judged((1.0,)).agrees is False


def test_reports(learner: Diagnosis) -> None:
    text = str(learner)
    assert max(map(len, text.splitlines())) <= 80
    for words in ("prediction against outcome", "✓  singular values at the end", "λ-balanced", "2/λmax"):
        assert words in text
    told = json.loads(json.dumps(learner.to_json(), allow_nan=False))
    assert len(told["findings"]) == len(learner.findings) and told["predictions"][0]["agrees"] is True
    page = learner.to_html()
    assert page.count("<table>") == 1 + len({f.topic for f in learner.findings})
    assert page.count("<table") == page.count("</table>") and page.count('class="matrix"') == 1
    assert "Theorem C.6" in page and "overflow-x: auto" in page  # names, and tables that scroll in themselves
    assert re.search(r"(src|href)=", page) is None  # nothing is loaded from elsewhere
    hostile = Diagnosis("<script>", (Finding("a&b", "<b>", reason='"<i>"'),), notes=("<u>",))
    for bad in ("<script>", "<b>", "<i>", "<u>", "a&b"):
        assert bad not in hostile.to_html()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ((np.ones((3, 3)), np.ones((3, 2))), r"params\[1\] must have 3 columns"),
        ((np.ones((3, 3)), np.full((3, 3), np.nan)), r"params\[1\] must be finite"),
        ((np.ones((3, 3)),), "params must have layer shapes"),
        ((), "at least one layer"),
    ],
)
def test_layers_that_do_not_fit(params: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        diagnose(SQUARED, params)


def test_arguments_that_do_not_fit() -> None:
    with pytest.raises(TypeError, match="problem must be a Problem"):
        diagnose(TARGET, two_layers(0.4))
    with pytest.raises(ValueError, match="problem must be given for a run"):
        diagnose(None, two_layers(0.4), simulate=True)
    with jax.enable_x64(False), pytest.raises(RuntimeError, match="needs 64-bit numbers"):
        diagnose(None, two_layers(0.4))
