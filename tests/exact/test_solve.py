"""The verb `solve`: closed forms are recognised by measurement, agree with an integration, or are refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import HypothesisError
from deeplinear.exact import (
    AlignedSolution,
    NoClosedFormError,
    ShallowSolution,
    WhitenedSolution,
    solve,
)
from deeplinear.models import (
    Completion,
    DeepLinear,
    EntryCompletion,
    Gaussian,
    LambdaBalanced,
    Problem,
    Regression,
    SampleRegression,
    ScaledIdentity,
    Sensing,
    SquaredDistance,
    TaskAligned,
    whiten,
)
from deeplinear.probes import loss, product

TIMES = np.array([0.0, 0.4, 1.5, 6.0])
ODE = 1e-9  # DOP853 at rtol 1e-11, atol 1e-13, over times of this length
BASIS = 1e-8  # the hidden basis is carried along the curve to about 1e-9


def descend(gradient, params, times):
    """Layers at times by SciPy, for a plain gradient of the product."""
    shapes = [np.shape(layer) for layer in params]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def split(y):
        return [part.reshape(shape) for part, shape in zip(np.split(y, cuts), shapes, strict=True)]

    def field(_, y):
        layers = split(y)
        below = [np.eye(shapes[0][1])]
        for layer in layers:
            below.append(layer @ below[-1])
        back, speeds = gradient(below[-1]), []
        for position in range(len(layers) - 1, -1, -1):
            speeds.append(-back @ below[position].T)
            back = layers[position].T @ back
        return np.concatenate([speed.ravel() for speed in reversed(speeds)])

    y0 = np.concatenate([np.ravel(layer) for layer in params])
    run = solve_ivp(field, (0, times[-1]), y0, "DOP853", times, rtol=1e-11, atol=1e-13)
    return [split(y) for y in run.y.T]


def case_aligned(rng):
    target = rng.normal(size=(2, 3))
    problem = Problem(DeepLinear((3, 2, 4, 2)), SquaredDistance(target))
    return problem, TaskAligned(target, [0.4, -0.1])(problem.model, jax.random.key(0)), lambda w: w - target


def case_diagonal(rng):
    values, mask = np.diag([1.0, -2.0, 3.0]), np.diag([1.0, 1.0, 0.0])
    mask[0, 1] = 1.0
    problem = Problem(DeepLinear((3, 3, 3, 3)), Completion(values, mask))
    params = tuple(np.diag(rng.uniform(0.2, 0.8, size=3)) for _ in range(3))
    return problem, params, lambda w: mask * (w - values)


def case_coloured(rng):
    """Inputs that are not white, but whose covariance shares the singular vectors of the target."""
    left, right = (np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in range(2))
    solution, covariance = left @ np.diag([2.0, 1.0, 0.5]) @ right.T, right @ np.diag([1.0, 0.5, 2.0]) @ right.T
    problem = Problem(DeepLinear((3, 3, 3)), Regression(covariance, solution @ covariance))
    params = TaskAligned(solution, [0.3, 0.2, 0.1], lam=0.5)(problem.model, jax.random.key(0))
    return problem, params, lambda w: (w - solution) @ covariance


def case_white(rng):
    inputs, outputs = np.asarray(whiten(rng.normal(size=(3, 8)))), rng.normal(size=(2, 8))
    problem = Problem(DeepLinear((3, 2, 2)), Regression.from_data(inputs, outputs))
    params = LambdaBalanced(-1.0, 0.4)(problem.model, jax.random.key(1))
    return problem, params, lambda w: w - outputs @ inputs.T / 8


def case_isotropic(rng):
    """White up to a factor: time runs faster, here nine times."""
    inputs, outputs = 3 * np.asarray(whiten(rng.normal(size=(3, 8)))), rng.normal(size=(2, 8))
    problem = Problem(DeepLinear((3, 2, 2)), SampleRegression(inputs, outputs))
    params = LambdaBalanced(0.7, 0.4)(problem.model, jax.random.key(2))
    return problem, params, lambda w: (w @ inputs - outputs) @ inputs.T / 8


CASES = {
    "aligned": (case_aligned, AlignedSolution),
    "diagonal": (case_diagonal, AlignedSolution),
    "coloured": (case_coloured, AlignedSolution),
    "white": (case_white, WhitenedSolution),
    "isotropic": (case_isotropic, WhitenedSolution),
}


@pytest.mark.covers("exact:F7", "exact:F12")
@pytest.mark.parametrize("name", CASES)
def test_closed_form_is_the_flow(name: str) -> None:
    make, kind = CASES[name]
    problem, params, gradient = make(np.random.default_rng(4))
    solution = solve(problem, params)
    assert isinstance(solution, kind)
    run = solution.trajectory(TIMES, probes=[loss, product])
    layers = descend(gradient, [np.asarray(layer) for layer in params], TIMES)
    products = []
    for one in layers:
        whole = one[0]
        for layer in one[1:]:
            whole = layer @ whole
        products.append(whole)
    assert np.abs(run["product"] - np.stack(products)).max() < ODE
    values = [float(problem.loss.value(jnp.asarray(whole))) for whole in products]
    assert np.abs(run["loss"] - values).max() < ODE
    assert run.info["hidden_basis"] == "as training gives it"
    for found, wanted in zip(run.params, layers[-1], strict=True):
        assert np.abs(found - wanted).max() < BASIS
    if name in ("diagonal", "isotropic"):  # asked for alone, once for each kind of solution
        assert np.abs(solution.product(TIMES) - run["product"]).max() < 1e-13
        assert np.abs(solution.value(TIMES) - run["loss"]).max() < 1e-13
    assert run.result.finished and run.info["method"] == f"closed form: {solution.form}"
    assert all(value < 1e-10 for value in run.info["hypotheses"].values())


def test_one_layer(seed: int) -> None:
    """Least squares with a penalty, completion as a mask and as entries: linear flows, known by hand."""
    rng = np.random.default_rng(seed)
    inputs, outputs, start = rng.normal(size=(3, 9)), rng.normal(size=(2, 9)), rng.normal(size=(2, 3))
    sxx, syx, t = inputs @ inputs.T / 9, outputs @ inputs.T / 9, 0.7
    values, vectors = np.linalg.eigh(sxx + 0.2 * np.eye(3))
    end = syx @ np.linalg.inv(sxx + 0.2 * np.eye(3))
    wanted = end + (start - end) @ vectors @ np.diag(np.exp(-values * t)) @ vectors.T
    problem = Problem(DeepLinear((3, 2)), Regression.from_data(inputs, outputs), l2=0.2)
    solution = solve(problem, (start,))
    assert isinstance(solution, ShallowSolution)
    assert np.abs(solution.product(t) - wanted).max() < 1e-13
    mask, target = np.array([[1, 0, 1], [0, 0, 1]]), rng.normal(size=(2, 3))
    wanted = np.where(mask, target + (start - target) * np.exp(-t), start)
    for energy in (
        Completion(target, mask),
        EntryCompletion(*np.nonzero(mask), target[np.nonzero(mask)], (2, 3)),
    ):
        found = solve(Problem(DeepLinear((3, 2)), energy), (start,)).product(t)
        assert np.abs(found - wanted).max() < 1e-14


def test_directions_without_force_drift_nowhere() -> None:
    """Fewer samples than inputs: what the data do not see stays as it is, for all times."""
    inputs = np.array([[1.0], [0.0]])
    solution = solve(
        Problem(DeepLinear((2, 1)), SampleRegression(inputs, np.array([[3.0]]))), (np.array([[0.5, 7.0]]),)
    )
    assert np.allclose(solution.product(1e6), [[3.0, 7.0]], rtol=1e-12)


def test_saddles_rest() -> None:
    """Modes without strength in two layers stay so; one in a single layer leaves."""
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([2.0, 1.0])))
    assert np.all(np.asarray(solve(problem, (np.zeros((2, 2)), np.zeros((2, 2)))).product(50.0)) == 0)
    solution = solve(problem, (np.diag([0.0, 0.0]), np.diag([0.3, 0.0])))
    assert np.allclose(solution.product(200.0), np.diag([2.0, 0.0]), atol=1e-12)
    # Balanced layers whose product has the wrong sign can only lose it.
    target = np.array([[1.0, 2.0], [-1.0, 0.5]])
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(target))
    stuck = solve(problem, TaskAligned(target, [0.3, -0.2])(problem.model, jax.random.key(0)), form="aligned")
    assert np.linalg.svd(stuck.product(1e4), compute_uv=False)[1] < 1e-3


@pytest.mark.parametrize("form", ["aligned", "whitened"])
@pytest.mark.parametrize(
    ("target", "second", "time"),
    [
        ([1e8, 1.0], [0.3, 0.3], 100.0),
        ([1.0, 5e-8], [0.3, 0.3], 1e12),
        ([2.0, 1.0], [1.0, 1e-15], 45.0),
        ([2.0, 1.0], [1.0, -(1 + 5e-14)], 60.0),
    ],
)
def test_weak_modes_are_learned_in_the_end(target, second, time: float, form: str) -> None:
    """Targets and strengths of very different sizes, and nearly equal layers: nothing real is taken for zero."""
    first = np.abs(second) if second[1] > 0 else np.ones(2)
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag(target)))
    solution = solve(problem, (np.diag(first), np.diag(second)), form=form)
    assert np.allclose(np.diag(solution.product(time)), target, rtol=1e-9)


def test_nearly_equal_singular_values_have_vectors_of_their_own() -> None:
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([1.0, 1 + 5e-8])))
    layer = turn @ np.diag([0.3, 0.2]) @ turn.T
    with pytest.raises(HypothesisError, match="modes of the network that are modes of the target"):
        solve(problem, (layer, layer), form="aligned")


def test_layers_that_lead_nowhere_but_are_not_aligned() -> None:
    """The product is zero and no mode is whole, but a gradient moves the layers."""
    target = np.diag([2.0, 1.0])
    first, second = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 1.0], [0.0, 1.0]])
    assert not (second @ first).any() and (second.T @ target).any()
    with pytest.raises(HypothesisError, match="layers aligned with the task"):
        solve(Problem(DeepLinear((2, 2, 2)), SquaredDistance(target)), (first, second), form="aligned")


@pytest.mark.parametrize("unit", [1e-299, 1.0, 1e140])
def test_how_far_inputs_may_miss_the_modes_depends_on_no_unit(unit: float) -> None:
    """Off the diagonal of the covariance a share of 1e-11 is too much, and one of 1e-14 is not."""
    problem = DeepLinear((2, 2, 2))
    params = (np.eye(2), np.eye(2))
    for share in (1e-11, 1e-14):
        covariance = unit * np.array([[1.0, share], [share, 0.5]])
        task = Problem(problem, Regression(covariance, np.diag([2.0, 1.0]) @ covariance))
        if share < 1e-12:
            assert isinstance(solve(task, params, form="aligned"), AlignedSolution)
            continue
        with pytest.raises(HypothesisError, match="inputs whose covariance shares"):
            solve(task, params, form="aligned")


def test_an_imbalance_next_to_a_saddle_is_refused() -> None:
    """It decides when the saddle is left, however small it is."""
    start = np.array([[0.3, 0.1], [-0.1, 0.2]])
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.array([[1.0, 0.3], [0.2, -1.0]])))
    assert solve(problem, (start, start.T)).form.startswith("two λ-balanced")
    with pytest.raises(HypothesisError, match="overlap with every mode"):
        solve(problem, (start, start.T + 1e-11 * np.array([[1.0, 2.0], [0.0, 3.0]])), form="whitened")


def test_probes_see_the_hidden_basis_of_training() -> None:
    def first_layer(t, params, problem):
        return params[0]

    def small(t, params, problem):
        return 1e-9 * params[0]

    problem, params, gradient = case_white(np.random.default_rng(4))
    solution = solve(problem, params)
    run = solution.trajectory(TIMES, probes=[loss, first_layer, small])
    layers = descend(gradient, [np.asarray(layer) for layer in params], TIMES)
    assert np.abs(run["first_layer"] - np.stack([one[0] for one in layers])).max() < BASIS
    np.testing.assert_allclose(run["small"], 1e-9 * run["first_layer"], rtol=1e-12)
    told = solution.trajectory(TIMES, probes=[loss, first_layer], carry=False).info["hidden_basis"]
    assert told == "closest to the start"


def test_repeated_singular_values() -> None:
    """Any basis of a singular space will do: the network says which one it uses."""
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    problem = Problem(DeepLinear((3, 3, 3)), SquaredDistance(2 * np.eye(3)))
    params = (turn @ np.diag([0.1, 0.2, 0.3]) @ turn.T, turn @ np.diag([0.5, 0.1, 0.3]) @ turn.T)
    solution = solve(problem, params)
    assert isinstance(solution, AlignedSolution)
    layers = descend(lambda w: w - 2 * np.eye(3), params, TIMES)
    assert np.abs(solution.params(6.0)[0] - layers[-1][0]).max() < ODE


@pytest.mark.covers("exact:F4", "exact:F35")
@pytest.mark.parametrize(
    ("make", "form", "hypothesis"),
    [
        (lambda: (SquaredDistance(np.eye(3)), (3, 3, 3), 0.0), "whitened", "λ-balanced layers"),
        (lambda: (SquaredDistance(np.eye(3)), (3, 3, 3), 0.1), "whitened", "no penalty"),
        (lambda: (SquaredDistance(np.eye(3)), (3, 3, 3, 3), 0.0), "whitened", "two layers"),
        (lambda: (SquaredDistance(np.eye(3)), (3, 3, 3), 0.0), "aligned", "layers aligned with the task"),
        (lambda: (Regression(np.diag([1.0, 2.0, 3.0]), np.eye(3)), (3, 3, 3), 0.0), "whitened", "white inputs"),
        (lambda: (Completion(np.ones((3, 3)), np.ones((3, 3))), (3, 3, 3), 0.0), "aligned", "observed entries"),
        (lambda: (Sensing(np.ones((2, 3, 3)), np.ones(2)), (3, 3, 3), 0.0), "whitened", "least squares"),
        (lambda: (SquaredDistance(np.eye(3)), (3, 3, 3), 0.0), "shallow", "one layer"),
    ],
)
def test_refusals_name_the_hypothesis_and_its_residual(make, form: str, hypothesis: str) -> None:
    energy, widths, penalty = make()
    problem = Problem(DeepLinear(widths), energy, penalty)
    params = Gaussian(0.5)(problem.model, jax.random.key(0))
    with pytest.raises(HypothesisError, match=hypothesis) as error:
        solve(problem, params, form=form)
    assert error.value.residual > error.value.tolerance
    with pytest.raises(NoClosedFormError, match=hypothesis) as error:
        solve(problem, params)
    assert set(error.value.reasons) == {"shallow", "aligned", "whitened", "channel"}


def test_approximations_are_asked_for_and_say_so() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.array([[2.0, 0.5], [0.0, 1.0]])))
    first, second = LambdaBalanced(0.5, 0.3)(problem.model, jax.random.key(0))
    params = (first + 1e-5 * jnp.array([[1.0, 0.0], [0.0, -1.0]]), second)
    with pytest.raises(NoClosedFormError, match="λ-balanced"):
        solve(problem, params)
    solution = solve(problem, params, balance_tolerance=1e-3)
    target = np.asarray(problem.loss.target)
    wanted = descend(lambda w: w - target, [np.asarray(p) for p in params], TIMES)[2]
    error = np.abs(solution.product(TIMES[2]) - wanted[1] @ wanted[0]).max()
    assert 1e-9 < error < 1e-4
    assert solution.trajectory([1.0], carry=False).info["hypotheses"]["λ-balanced layers"] > 1e-8


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1.0, 0.5], "must increase"),
        ([-1.0], "at least 0"),
        ([np.nan], "finite"),
        ([], "at least one"),
        ([[1.0]], "shape"),
    ],
)
def test_bad_times(times, message: str) -> None:
    solution = solve(Problem(DeepLinear((1, 1)), SquaredDistance([[1.0]])), ([[0.0]],))
    with pytest.raises(ValueError, match=message):
        solution.trajectory(times)
    with pytest.raises(ValueError, match="t must be at least 0"):
        solution.product(-1.0)


def test_bad_arguments() -> None:
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.eye(2)))
    with pytest.raises(ValueError, match=r"there is no form 'whitend'. Did you mean 'whitened'"):
        solve(problem, ScaledIdentity(0.1)(problem.model, jax.random.key(0)), form="whitend")
    with pytest.raises(ValueError, match=r"params\[0\] must be finite"):
        solve(problem, (np.full((2, 2), np.nan), np.eye(2)))
    with pytest.raises(ValueError, match="layer shapes"):
        solve(problem, (np.eye(3), np.eye(3)))


def test_wide_hidden_layers_are_not_carried_along_and_say_so() -> None:
    problem = Problem(DeepLinear((2, 70, 2)), SquaredDistance(np.diag([2.0, 1.0])))
    run = solve(problem, LambdaBalanced(0.0, 0.1)(problem.model, jax.random.key(0)), form="whitened").trajectory([3.0])
    assert "closest to the start" in run.info["hidden_basis"]
    assert np.abs(run.params[1] @ run.params[0] - np.diag([2.0, 1.0])).max() < 1.0


def test_the_limit_is_that_of_the_start() -> None:
    """The target at infinite time, or a refusal where a mode can never be learned."""
    problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.diag([2.0, -1.0])))
    start = np.array([[0.3, 0.1], [-0.1, 0.2]])
    found = solve(problem, LambdaBalanced(0.5, 0.3)(problem.model, jax.random.key(0)), form="whitened").limit()
    assert np.abs(found.product - np.diag([2.0, -1.0])).max() < 1e-12
    with pytest.raises(HypothesisError, match="overlap with every mode"):
        solve(problem, (start, start.T), form="whitened").limit()


def test_derivatives_of_observables() -> None:
    """Loss and product with respect to target and start, by the slope of a Taylor expansion."""
    rng = np.random.default_rng(0)
    model = DeepLinear((3, 2, 2))
    first, second = LambdaBalanced(0.6, 0.5)(model, jax.random.key(0))
    target, direction = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))

    def observed(target, scale):
        solution = solve(Problem(model, SquaredDistance(target)), (first * scale, second * scale), form="whitened")
        return jnp.sum(solution.product(0.8) ** 2) + solution.value(0.3)

    both = jax.jit(jax.value_and_grad(observed, argnums=(0, 1)))
    value, slopes = both(target, 1.0)
    slope = float(jnp.sum(slopes[0] * direction) + slopes[1])
    steps = np.array([1e-3, 1e-4])
    # At the start itself the derivative in time is that of the flow: minus the squared gradient.
    solution = solve(Problem(model, SquaredDistance(target)), (first, second))
    squared = sum(float(jnp.sum(g**2)) for g in solution.problem.gradient((first, second)))
    assert float(jax.jit(jax.grad(solution.value))(0.0)) == pytest.approx(-squared, rel=1e-12)
    rests = [abs(float(both(target + h * direction, 1.0 + h)[0]) - float(value) - h * slope) for h in steps]
    assert rests[0] > 1e-9 and 80 < rests[0] / rests[1] < 125  # of second order in the step


# ---- One input, one output -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [1.5, -0.7])
def test_one_channel_from_any_start(seed: int, target: float) -> None:
    """Against SciPy, for either sign of the target, an input of any variance, and layers that are not balanced."""
    rng = np.random.default_rng(seed)
    a, b, variance = rng.normal(size=3), rng.normal(size=3), 0.6
    problem = Problem(DeepLinear((1, 3, 1)), Regression([[variance]], [[variance * target]]))
    solution = solve(problem, (a[:, None], b[None]))
    assert solution.form == "one input, one output, one hidden layer"

    def field(_: float, x: np.ndarray) -> np.ndarray:
        error = variance * (target - x[:3] @ x[3:])
        return error * np.concatenate([x[3:], x[:3]])

    times = np.array([0.0, 0.5, 3.0])
    truth = solve_ivp(field, (0, 3), np.concatenate([a, b]), t_eval=times, rtol=1e-12, atol=1e-13, method="DOP853").y.T
    first, second = solution.params(times)
    np.testing.assert_allclose(first[..., 0], truth[:, :3], atol=1e-9)
    np.testing.assert_allclose(second[:, 0], truth[:, 3:], atol=1e-9)
    with pytest.raises(HypothesisError, match="a target that is not zero"):
        solve(Problem(DeepLinear((1, 3, 1)), SquaredDistance([[0.0]])), (a[:, None], b[None]), form="channel")
    with pytest.raises(HypothesisError, match="one input and one output"):
        solve(
            Problem(DeepLinear((2, 3, 1)), SquaredDistance([[1.0, 0.0]])),
            (rng.normal(size=(3, 2)), b[None]),
            form="channel",
        )


@pytest.mark.parametrize("form", ["shallow", "whitened", "aligned", "channel"])
def test_solutions_keep_nothing_of_the_callers_memory(form: str, seed: int) -> None:
    """What is written into the arrays later, target, layers or times, changes neither the solution nor its record."""
    rng = np.random.default_rng(seed)
    target = np.array([[2.0]]) if form == "channel" else rng.standard_normal((3, 3))
    starts = {
        "shallow": lambda: [rng.standard_normal((3, 3))],
        "whitened": lambda: LambdaBalanced(0.5, 0.1)(DeepLinear((3, 3, 3)), jax.random.key(seed)),
        "aligned": lambda: TaskAligned(target, np.full(3, 0.1))(DeepLinear((3, 3, 3, 3)), jax.random.key(seed)),
        "channel": lambda: [rng.standard_normal((4, 1)), rng.standard_normal((1, 4))],
    }
    params = [np.array(layer) for layer in starts[form]()]
    widths = (params[0].shape[1], *(layer.shape[0] for layer in params))
    solution = solve(Problem(DeepLinear(widths), SquaredDistance(target)), params, form=form)
    times = TIMES.copy()
    record = solution.trajectory(times, carry=False)

    def seen() -> list[np.ndarray]:
        return [np.array(x) for x in (solution.product(0.7), *solution.params(0.7), *solution.params(0.0))]

    before = seen()
    for array in (target, times, *params):
        array[...] = 9.0
    for one, other in zip(before, seen(), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(record.times, TIMES)
