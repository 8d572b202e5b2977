"""Discrete updates that the native engine makes, held to a loop in plain NumPy and to the draws of `jax.random`."""

import itertools
import signal
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import (
    Adagrad,
    Adam,
    GradientDescent,
    Milestones,
    Minibatch,
    Momentum,
    Progress,
    RMSProp,
    _native_run,
    _native_spec,
    ensemble,
    resume,
    simulate,
    until,
)
from deeplinear.engine import available
from deeplinear.models import (
    Completion,
    DeepLinear,
    EntryCompletion,
    Problem,
    SampleRegression,
    Sensing,
    SquaredDistance,
    WhiteInputs,
)
from deeplinear.probes import gradient_norm, loss, singular_values
from flows import LOSSES, Flow, flat, flow, start

pytestmark = pytest.mark.skipif(not available(), reason="the engine is not compiled on this machine")

ROUNDING = 1e-12
"""Relative difference of states after tens of steps: each is made from rounded numbers of the last."""

Gradient = Callable[[np.ndarray, int], np.ndarray]


def descent(y: np.ndarray, g: Gradient, steps: int, rate: Callable[[int], float]) -> np.ndarray:
    for n in range(steps):
        y = y - rate(n) * g(y, n)
    return y


def momentum(
    y: np.ndarray, g: Gradient, steps: int, rate: Any, mu: float = 0.9, damp: float = 0.0, ahead: bool = False
) -> np.ndarray:
    b = np.zeros_like(y)
    for n in range(steps):
        now = g(y, n)
        b = mu * b + (1 - damp if n else 1.0) * now
        y = y - rate(n) * (now + mu * b if ahead else b)
    return y


def adam(y: np.ndarray, g: Gradient, steps: int, rate: Any, b1: float, b2: float, eps: float) -> np.ndarray:
    m, v = np.zeros_like(y), np.zeros_like(y)
    for n in range(steps):
        now = g(y, n)
        m, v = b1 * m + (1 - b1) * now, b2 * v + (1 - b2) * now**2
        y = y - rate(n) * (m / (1 - b1 ** (n + 1))) / (np.sqrt(v / (1 - b2 ** (n + 1))) + eps)
    return y


def scaled(y: np.ndarray, g: Gradient, steps: int, rate: Any, keep: float, take: float, eps: float) -> np.ndarray:
    v = np.zeros_like(y)
    for n in range(steps):
        now = g(y, n)
        v = keep * v + take * now**2
        y = y - rate(n) * now / (np.sqrt(v) + eps)
    return y


RULES: dict[str, tuple[Any, Callable[..., np.ndarray], float, tuple[Any, ...]]] = {
    "descent": (GradientDescent(0.03), descent, 0.03, ()),
    "heavy ball": (Momentum(0.02, 0.8, 0.3), momentum, 0.02, (0.8, 0.3)),
    "nesterov": (Momentum(0.02, 0.7, nesterov=True), momentum, 0.02, (0.7, 0.0, True)),
    "adam": (Adam(0.02, 0.8, 0.95, 1e-3), adam, 0.02, (0.8, 0.95, 1e-3)),
    "rmsprop": (RMSProp(0.01, 0.9, 1e-2), scaled, 0.01, (0.9, 0.1, 1e-2)),
    "adagrad": (Adagrad(0.05, 1e-2), scaled, 0.05, (1.0, 1.0, 1e-2)),
}

WIDTHS = ((3, 2), (4, 1, 3), (1, 3, 1), (3, 4, 2, 3), (2, 3, 4, 2, 2))


def gap(found: Any, expected: np.ndarray) -> float:
    return float(np.max(np.abs(flat(found) - expected)) / max(1.0, float(np.max(np.abs(expected)))))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("wide", [700, 0], ids=["lanes", "wide"])
def test_every_update_is_its_rule(name: str, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every loss, with and without penalty and milestones, through the first steps and later ones."""
    monkeypatch.setattr(_native_spec, "WIDE", wide)
    method, rule, rate, numbers = RULES[name]
    falling = Milestones(method, [3, 20], 0.3)

    def slower(n: int) -> float:
        return rate * 0.3 ** ((n >= 3) + (n >= 20))

    for i, (kind, l2) in enumerate(itertools.product(LOSSES, (0.0, 0.2))):
        widths = WIDTHS[i % len(WIDTHS)]
        rng = np.random.default_rng(i)
        case, params = flow(kind, widths, rng, l2), start(widths, rng)
        for used, pace in ((method, lambda n: rate), (falling, slower)):
            for steps in (1, 2, 30):
                run = simulate(
                    case.problem, params, used, times=[0, steps], probes=[loss, gradient_norm], engine="native"
                )
                assert run.info["engine"].startswith("native") and run.result is RESULTS.completed
                expected = rule(flat(params), lambda y, n, case=case: -case.slope(y), steps, pace, *numbers)
                assert gap(run.params, expected) < ROUNDING, (kind, l2, steps)
                y = flat(run.params)
                np.testing.assert_allclose(
                    run["loss"], [case.value(flat(params)), case.value(y)], rtol=1e-10, atol=1e-13
                )
                assert run["gradient_norm"][-1] == pytest.approx(np.linalg.norm(case.slope(y)), rel=1e-10, abs=1e-13)


def test_ten_thousand_steps_of_adam_keep_their_corrections() -> None:
    """Where the second mean is still being corrected, and where the correction is rounding."""
    rng = np.random.default_rng(3)
    case, params = flow("distance", (2, 2), rng), start((2, 2), rng, 3.0)
    for steps, b2 in ((3000, 0.999), (10_000, 0.99)):
        run = simulate(case.problem, params, Adam(1e-3, b2=b2, eps=0.1), times=[steps], engine="native")
        expected = adam(flat(params), lambda y, n: -case.slope(y), steps, lambda n: 1e-3, 0.9, b2, 0.1)
        assert gap(run.params, expected) < 1e-9


# --- Batches ----------------------------------------------------------------------------------------------------------


def sums(rng: np.random.Generator) -> dict[str, tuple[Any, Callable[..., np.ndarray]]]:
    """Losses made of terms, (out, in) = (3, 4), and minus the gradient of a batch with a key, drawn by `jax.random`."""
    target, mask = rng.standard_normal((3, 4)), rng.random((3, 4)) < 0.7
    rows, columns = (index[::-1].copy() for index in np.nonzero(mask))
    values = rng.standard_normal(len(rows))
    x, y = rng.standard_normal((4, 9)), rng.standard_normal((3, 9))

    def some(key: Any, terms: int, batch: int) -> np.ndarray:
        if batch == 1:
            return np.asarray(jax.random.randint(key, (1,), 0, terms))
        return np.asarray(jax.random.permutation(key, terms))[:batch]

    def of_mask(p: np.ndarray, key: Any, batch: int) -> np.ndarray:
        seen = np.flatnonzero(mask)
        if batch > 1:
            scores = np.where(mask.ravel(), np.asarray(jax.random.uniform(key, (12,))), -1.0)
            chosen = [i for i in np.argsort(-scores, kind="stable")[:batch] if mask.ravel()[i]]
        else:
            chosen = seen[some(key, len(seen), 1)]
        out = np.zeros(12)
        out[chosen] = (target - p).ravel()[chosen]
        return out.reshape(3, 4)

    def of_entries(p: np.ndarray, key: Any, batch: int) -> np.ndarray:
        out = np.zeros((3, 4))
        for k in some(key, len(rows), batch):
            out[rows[k], columns[k]] = values[k] - p[rows[k], columns[k]]
        return out

    def of_samples(p: np.ndarray, key: Any, batch: int) -> np.ndarray:
        chosen = some(key, 9, batch)
        return (y[:, chosen] - p @ x[:, chosen]) @ x[:, chosen].T / batch

    return {
        "mask": (Completion(target, mask), of_mask),
        "entries": (EntryCompletion(rows, columns, values, (3, 4)), of_entries),
        "samples": (SampleRegression(x, y), of_samples),
    }


@pytest.mark.parametrize("name", ["mask", "entries", "samples"])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_batches_are_those_that_jax_draws(name: str, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    widths = (4, 2, 3)
    wrapped, pull = sums(rng)[name]
    params = start(widths, rng)
    terms = int(wrapped.terms)
    share = 1.0 if name == "samples" else min(batch / terms, 1.0)
    key = jax.random.key(17)
    shape = Flow(Problem(DeepLinear(widths), wrapped), np.sum, np.negative, widths, 0.0)

    def gradient(y: np.ndarray, n: int) -> np.ndarray:
        first, second = shape.layers(y)
        back = pull(second @ first, jax.random.fold_in(key, n), batch)
        return -np.concatenate([(second.T @ back).ravel(), (back @ first.T).ravel()]) + share * 0.1 * y

    problem, steps = Problem(DeepLinear(widths), wrapped, 0.1), 12
    expected = descent(flat(params), gradient, steps, lambda n: 0.05)
    for wide in (700, 0):
        monkeypatch.setattr(_native_spec, "WIDE", wide)
        settings = {"key": key, "engine": "native"}
        run = simulate(problem, params, Minibatch(GradientDescent(0.05), batch), times=[steps], **settings)
        assert gap(run.params, expected) < ROUNDING
        rare = simulate(problem, params, Minibatch(GradientDescent(0.05), batch), horizon=steps, every=1, **settings)
        assert gap(rare.params, expected) < ROUNDING  # a record changes nothing


def test_a_random_order_of_many_terms_is_sorted_twice() -> None:
    """From 1626 terms on `jax.random.permutation` sorts a second time."""
    rng = np.random.default_rng(0)
    for terms in (1625, 1626, 3000):
        x, key = rng.standard_normal((2, terms)), jax.random.key(terms)
        chosen = np.asarray(jax.random.permutation(jax.random.fold_in(key, 0), terms))[:3]
        run = simulate(
            Problem(DeepLinear((2, 1)), SampleRegression(x, np.ones((1, terms)))),
            (np.zeros((1, 2)),),
            Minibatch(GradientDescent(1.0), 3),
            times=[1],
            key=key,
            engine="native",
        )
        np.testing.assert_allclose(run.params[0][0], x[:, chosen].sum(axis=1) / 3, rtol=1e-13)


def test_a_batch_of_more_than_is_observed_takes_all_once() -> None:
    """Where members differ in how many entries they observe, their batches have as many as there are."""
    masks = [np.array([[1, 0], [0, 0]]), np.array([[1, 1], [0, 1]])]
    problems = [Problem(DeepLinear((2, 2)), Completion(np.ones((2, 2)), mask), 0.5) for mask in masks]
    run = ensemble(problems, (np.full((2, 2), 0.5),), Minibatch(GradientDescent(1.0), 2), times=[1], engine="native")
    few, many = run.params[0]
    np.testing.assert_allclose(few, [[0.75, 0.25], [0.25, 0.25]])  # share 1: 0.5 + 0.5 - 0.25 where observed
    assert np.sum(np.abs(many - 0.5 * (1 - 0.5 * 2 / 3)) > 1e-9) == 2


def test_members_have_keys_of_their_own() -> None:
    rng = np.random.default_rng(1)
    problem = Problem(DeepLinear((4, 2, 3)), sums(rng)["mask"][0])
    params, key = start((4, 2, 3), rng), jax.random.key(3)
    method = Minibatch(Adam(0.01), 2)
    many = ensemble(problem, [params] * 11, method, times=[9], key=key, engine="native")
    for member, own in enumerate(jax.random.split(key, 11)):
        alone = simulate(problem, params, method, times=[9], key=own, engine="native")
        assert alone.params[0].tobytes() == many.params[0][member].tobytes()
    assert len({layer.tobytes() for layer in many.params[0]}) == 11


# --- Members, records, ends -------------------------------------------------------------------------------------------


def crowd(count: int) -> tuple[list[Problem], list[tuple], list[Any]]:
    """Members of different targets, masks, penalties, starts and rates."""
    rng = np.random.default_rng(8)
    problems = []
    for i in range(count):
        seen = rng.random((2, 3)) < 0.5 + 0.5 * (i % 2)
        seen[0, :2] = True
        problems.append(Problem(DeepLinear((3, 4, 2)), Completion(rng.standard_normal((2, 3)), seen), 0.1 * (i % 3)))
    params = [start((3, 4, 2), rng, 10.0 ** -(i % 3)) for i in range(count)]
    methods = [Minibatch(Milestones(Adam(0.02 + 0.01 * (i % 4)), [5 + i % 7], 0.5), 2) for i in range(count)]
    return problems, params, methods


def bits(run: Trajectory, member: int, keys: bool = True) -> list[bytes]:
    own = run.member(int(member))
    state = own.state if keys else own.state[:-2]
    return [np.asarray(x).tobytes() for x in (*own.params, own.times, *own.values.values(), *state, own.results)]


@pytest.mark.parametrize("wide", [700, 0], ids=["lanes", "wide"])
def test_a_member_is_moved_as_if_it_were_alone(wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any company, any order and on any number of threads, to the last bit; rules and failures included."""
    monkeypatch.setattr(_native_spec, "WIDE", wide)
    problems, params, batches = crowd(23)
    methods = [Momentum(1e6 if i == 4 else 0.02 + 0.01 * (i % 4), 0.9) for i in range(23)]
    settings = {"horizon": 400, "every": 7, "until": until(loss, below=1e-2), "engine": "native"}
    settings["probes"] = [loss, singular_values]

    def move(ids: Sequence[int], processors: int) -> Trajectory:
        monkeypatch.setattr(_native_run, "processors", lambda: processors)
        return ensemble([problems[i] for i in ids], [params[i] for i in ids], [methods[i] for i in ids], **settings)

    whole = move(range(23), 1)
    assert whole.failed == (4,) and len(set(whole.results.tolist())) == 3
    for processors, ids in ((2, range(23)), (1, range(22, -1, -1)), (2, [3, 4, 20]), (1, [4]), (1, [11])):
        run = move(ids, processors)
        for place, i in enumerate(ids):
            assert bits(run, place, keys=False) == bits(whole, i, keys=False), (processors, i)
    # Of batches the keys are those of the places, so the company changes and the place does not.
    few, many = (ensemble(problems[:n], params[:n], batches[:n], times=[0, 30], engine="native") for n in (9, 23))
    for i, own in enumerate(jax.random.split(jax.random.key(0), 9)):
        alone = simulate(problems[i], params[i], batches[i], times=[0, 30], key=own, engine="native")
        assert alone.params[0].tobytes() == few.member(i).params[0].tobytes()
    monkeypatch.setattr(_native_run, "processors", lambda: 1)
    again = ensemble(problems, params, batches, times=[0, 30], engine="native")
    assert [bits(many, i) for i in range(23)] == [bits(again, i) for i in range(23)]


def test_stops_and_records_are_those_of_programs() -> None:
    """Rules are looked at before a step, so that of the last state is not; each outcome, with the same records."""
    rng = np.random.default_rng(2)
    case, params = flow("completion", (3, 2, 3), rng), start((3, 2, 3), rng, 0.7)
    method = GradientDescent(0.1)
    settings: list[dict[str, Any]] = [
        {"times": [0, 3, 4, 11]},
        {"times": [2, 5]},
        {"horizon": 20, "every": 6},
        {"horizon": 20, "every": 4},
        {"until": until(loss, below=0.05), "every": 10},
        {"until": [until(gradient_norm, below=1e-30), until(gradient_norm, above=1e-9)], "horizon": 5, "every": 2},
        {"until": until(loss, above=1e3), "horizon": 10, "every": 3, "max_steps": 7},
    ]
    ends = set()
    for own in settings:
        one, other = (
            simulate(case.problem, params, method, probes=[loss, gradient_norm], engine=engine, **own)
            for engine in ("native", "xla")
        )
        assert one.result is other.result and one.rule == other.rule
        assert one.times.tolist() == other.times.tolist()
        assert one.stats["accepted_steps"] == other.stats["accepted_steps"]
        for name in ("loss", "gradient_norm"):
            np.testing.assert_allclose(one[name], other[name], rtol=1e-10)
        ends.add(one.result)
    assert ends == {RESULTS.completed, RESULTS.stopped, RESULTS.step_limit}


def test_a_step_out_of_the_finite_numbers_is_not_taken() -> None:
    rng = np.random.default_rng(2)
    case = flow("distance", (2, 2, 2), rng)
    good, huge = start(case.widths, rng), start(case.widths, rng, 1e60)
    many = ensemble(case.problem, [good, huge, good], Adam(0.1), times=[0, 40], engine="native")
    assert many.failed == () and bits(many, 0, keys=False) == bits(many, 2, keys=False)
    many = ensemble(case.problem, [good, huge, good], GradientDescent(0.1), times=[0, 40], engine="native")
    alone = simulate(case.problem, huge, GradientDescent(0.1), times=[0, 40], engine="xla")
    assert many.failed == (1,) and RESULTS(int(many.results[1])) is alone.result is RESULTS.diverged
    assert many.member(1).times.tolist() == alone.times.tolist()
    assert all(np.isfinite(layer).all() for layer in many.member(1).params)


BOTH = [(name, "native", "native") for name in RULES]
BOTH += [(name, *way) for name in ("heavy ball", "adam") for way in (("native", "xla"), ("xla", "native"))]


@pytest.mark.parametrize(("name", "first", "second"), BOTH)
def test_a_continued_run_is_the_run_that_went_on(name: str, first: str, second: str) -> None:
    """To the last bit on the native engine, and across engines: moments, counts, milestones, random stream."""
    rng = np.random.default_rng(5)
    wrapped, _ = sums(rng)["mask"]
    problem, params = Problem(DeepLinear((4, 2, 3)), wrapped, 0.1), start((4, 2, 3), rng)
    method, key = Minibatch(Milestones(RULES[name][0], [3, 8], 0.5), 3), jax.random.key(9)
    whole = simulate(problem, params, method, times=[0, 12], key=key, engine="native")
    part = simulate(problem, params, method, times=[0, 5], key=key, engine=first)
    part = resume(part, problem, method, times=[12], engine=second)
    assert part.stats["accepted_steps"] == 7
    assert [leaf.dtype for leaf in part.state] == [leaf.dtype for leaf in whole.state]
    for mine, theirs in zip((*part.params, *part.state), (*whole.params, *whole.state), strict=True):
        if first == second:
            assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
        else:
            np.testing.assert_allclose(np.asarray(mine, float), np.asarray(theirs, float), rtol=1e-9, atol=1e-12)


def test_a_state_of_another_method_is_refused() -> None:
    problem, params = Problem(DeepLinear((2, 2)), Completion(np.eye(2), np.eye(2))), (np.eye(2),)
    run = simulate(problem, params, Minibatch(Adam()), times=[3], engine="native")
    with pytest.raises(ValueError, match="its saved state does not fit"):
        resume(run, problem, Minibatch(RMSProp()), times=[5], engine="native")


@pytest.mark.parametrize("widths", [(2, 3, 2), (60, 50, 40)], ids=["lanes", "wide"])
def test_an_interrupt_ends_all_members_and_keeps_their_states(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    case, params = flow("distance", widths, rng), start(widths, rng, 0.1)
    over: list[Progress] = []

    def progress(now: Progress) -> None:
        if now.steps > 0 and not over:
            over.append(now)
            signal.raise_signal(signal.SIGINT)

    settings = {"horizon": 10**12, "every": 10**9, "engine": "native"}
    run = ensemble(case.problem, [params] * 20, Adam(1e-6), progress=progress, **settings)
    assert over and run.outcomes() == {"interrupted": tuple(range(20))}
    assert run.final_time.tolist() == run.stats["accepted_steps"].tolist()
    assert all(member.times.tolist()[-1] == member.final_time for member in map(run.member, range(20)))
    # It goes on as if nothing had been, from wherever it was.
    part = run.member(0)
    steps = int(part.final_time) + 5
    on = resume(part, case.problem, Adam(1e-6), times=[steps], engine="native")
    assert on.result is RESULTS.completed and on.stats["accepted_steps"] == 5
    late = simulate(case.problem, params, Adam(1e-6), wall_limit=0.1, **settings)
    assert late.result is RESULTS.wall_limit and late.final_time == late.times[-1] > 0


# --- Refusals ---------------------------------------------------------------------------------------------------------


def test_what_the_engine_does_not_draw_is_left_to_xla() -> None:
    layer, target = (np.ones((2, 2)),), np.eye(2)
    white = Problem(DeepLinear((2, 2)), WhiteInputs(target))
    cases = {
        "batches are drawn from WhiteInputs": (white, Minibatch(GradientDescent(0.1))),
        "a batch has more terms than the loss": (
            Problem(DeepLinear((2, 2)), SampleRegression(target, target)),
            Minibatch(GradientDescent(0.1), 3),
        ),
        "the loss is Sensing": (Problem(DeepLinear((2, 2)), Sensing(target[None], np.ones(1))), Adam()),
        "the method is Minibatch": (white, Minibatch(Minibatch(Adam()))),
    }
    for words, (problem, method) in cases.items():
        with pytest.raises(ValueError, match=f"native engine cannot move this run: {words}"):
            simulate(problem, layer, method, times=[1], engine="native")
    moved = simulate(white, layer, GradientDescent(0.25), times=[1], engine="native")  # a distance, to an update
    np.testing.assert_allclose(moved.params[0], np.ones((2, 2)) - 0.25 * (1 - target))


def test_a_loss_without_terms_and_too_large_a_batch_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"Minibatch: problem\.loss must be made of terms"):
        simulate(Problem(DeepLinear((2, 2)), SquaredDistance(np.eye(2))), (np.eye(2),), Minibatch(Adam()), times=[1])
    few = Problem(DeepLinear((2, 2)), SampleRegression(np.eye(2), np.eye(2)))
    with pytest.raises(ValueError, match="batch must be at most the number of terms"):
        simulate(few, (np.eye(2),), Minibatch(Adam(), 3), times=[1])
