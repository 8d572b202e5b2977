"""Networks seen at chosen entries: against the dense completion loss, plain NumPy, and sizes of what is computed."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import deeplinear.models._entries as entries
from deeplinear.core import dopri8
from deeplinear.dynamics import Adam, GradientFlow, ensemble, simulate
from deeplinear.models import (
    Completion,
    DeepLinear,
    Gaussian,
    MatchedGaussian,
    NetworkEntries,
    Problem,
    SquaredDistance,
    sparse_completion,
)
from deeplinear.probes import gradient_norm, layer_balancedness, layer_norms, loss, ntk

ROUNDING = 1e-11  # sums of some hundred products of order one, in another order
FLOW = 1e-6  # runs at relative tolerance 1e-9 and better
OUT, INP = 9, 40


def pattern(rng, kind):
    """Entries without repetition in random order: scattered, with one long row and empty ones, or a single one."""
    if kind == "one":
        return np.array([5]), np.array([7])
    mask = rng.random((OUT, INP)) < 0.2
    if kind == "long":
        mask[:] = False
        mask[3] = True
        mask[6, :3] = True
    mask[0, 0] = True
    rows, columns = np.nonzero(mask)
    order = rng.permutation(len(rows))
    return rows[order], columns[order]


def dense(rows, columns, values, widths):
    target, mask = np.zeros((OUT, INP)), np.zeros((OUT, INP), bool)
    target[rows, columns], mask[rows, columns] = values, True
    return Problem(DeepLinear(widths), Completion(target, mask))


def draw(rng, shapes):
    return tuple(jax.device_put(rng.standard_normal(shape)) for shape in shapes)


def close(one, other, tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, float(np.abs(b).max())))


def product_of(layers):
    product = np.asarray(layers[0])
    for layer in layers[1:]:
        product = np.asarray(layer) @ product
    return product


@eqx.filter_jit
def differentiate(problem, params, direction):
    return *problem.value_and_gradient(params), problem.hessian_product(params, direction)


@eqx.filter_jit
def seen(problem, params):
    return problem.product(params)[0]


@pytest.mark.parametrize(
    ("kind", "widths"),
    [
        ("scattered", (INP, 3, OUT)),
        ("long", (INP, 6, 19, 7, OUT)),  # cut before the wide layer
        ("scattered", (INP, 20, 18, OUT)),  # cut after it; more numbers in a row than are taken at a time
        ("one", (INP, 3, OUT)),
    ],
)
def test_derivatives_are_those_of_the_dense_problem(seed, kind, widths):
    rng = np.random.default_rng(seed)
    rows, columns = pattern(rng, kind)
    values = rng.standard_normal(len(rows))
    problem, reference = sparse_completion(rows, columns, values, widths), dense(rows, columns, values, widths)
    params, direction = draw(rng, problem.model.shapes), draw(rng, problem.model.shapes)
    value, gradient, product = differentiate(problem, params, direction)
    order = np.lexsort((columns, rows))
    close(seen(problem, params), product_of(params)[rows[order], columns[order]], ROUNDING)
    close((value, gradient, product), differentiate(reference, params, direction), ROUNDING)


def test_repeated_entries_are_observations_of_their_own(seed):
    rng = np.random.default_rng(seed)
    widths = (INP, 2, OUT)
    rows, columns = rng.integers(0, 3, 300), rng.integers(0, 4, 300)
    values = rng.standard_normal(300)
    problem = sparse_completion(rows, columns, values, widths)
    params = draw(rng, problem.model.shapes)
    value, gradient, _ = differentiate(problem, params, params)
    u, v = np.asarray(params[1]), np.asarray(params[0])
    of_u, of_v, total = np.zeros_like(u), np.zeros_like(v), 0.0
    for i, j, y in zip(rows, columns, values, strict=True):
        gap = u[i] @ v[:, j] - y
        total += gap**2 / 2
        of_u[i] += gap * v[:, j]
        of_v[:, j] += gap * u[i]
    close((value, gradient), (total, (of_v, of_u)), ROUNDING)


def test_chunks_and_short_segments_change_nothing(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    rows, columns = pattern(rng, "scattered")
    values, widths = rng.standard_normal(len(rows)), (INP, 5, OUT)
    reference = dense(rows, columns, values, widths)
    params = draw(rng, reference.model.shapes)
    monkeypatch.setattr(entries, "CHUNK", 16)
    monkeypatch.setattr(entries, "LANES", 2)
    monkeypatch.setattr(entries, "LENGTHS", (4,))
    problem = sparse_completion(rows, columns, values, widths)
    chunks, _, length = problem.model.by_row.across.shape
    assert chunks > 2 and length == 4
    close(problem.value_and_gradient(params), reference.value_and_gradient(params), ROUNDING)


def test_the_way_on_an_accelerator_gives_the_same(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    rows, columns = pattern(rng, "scattered")
    model = NetworkEntries((INP, 5, OUT), rows, columns)
    params = draw(rng, model.shapes)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    close(model.forward(params)[0][0], product_of(params)[rows, columns], ROUNDING)


def test_flow_and_updates_are_those_of_plain_numpy(seed):
    rng = np.random.default_rng(seed)
    rows, columns = pattern(rng, "one")
    rows, columns = np.append(rows, [5, 0]), np.append(columns, [1, 7])
    values, widths = rng.standard_normal(3), (INP, 2, OUT)
    problem = sparse_completion(rows, columns, values, widths)
    params = Gaussian(0.3)(problem.model, jax.random.key(seed))

    def gradient(v, u):
        gap = np.zeros((OUT, INP))
        gap[rows, columns] = (u @ v)[rows, columns] - values
        return u.T @ gap, gap @ v.T

    def field(t, y):
        layers = y[: 2 * INP].reshape(2, INP), y[2 * INP :].reshape(OUT, 2)
        return -np.concatenate([g.ravel() for g in gradient(*layers)])

    start = np.concatenate([np.ravel(layer) for layer in params])
    expected = solve_ivp(field, (0.0, 1.0), start, rtol=1e-10, atol=1e-12).y[:, -1]
    method = GradientFlow(rtol=1e-9, atol=1e-12, integrator=dopri8())  # no step of this flow is stiff
    run = simulate(problem, params, method, times=[0.0, 1.0], probes=(loss, gradient_norm))
    close(np.concatenate([np.ravel(layer) for layer in run.params]), expected, FLOW)

    layers = [np.array(layer) for layer in params]
    means, squares = [np.zeros_like(w) for w in layers], [np.zeros_like(w) for w in layers]
    for step in range(1, 11):
        for w, m, s, g in zip(layers, means, squares, gradient(*layers), strict=True):
            m += 0.1 * (g - m)
            s += 0.001 * (g**2 - s)
            w -= 0.05 * (m / (1 - 0.9**step)) / (np.sqrt(s / (1 - 0.999**step)) + 1e-8)
    starts = [params, tuple(2 * layer for layer in params)]
    both = ensemble(problem, starts, Adam(0.05), times=[0, 10], probes=(loss, layer_norms), strategy="vector")
    close(both.member(0).params, tuple(layers), FLOW)


def test_other_entries_are_predicted(seed):
    rng = np.random.default_rng(seed)
    model = NetworkEntries((INP, 3, OUT), [0], [0])
    params = draw(rng, model.shapes)
    rows, columns = rng.integers(0, OUT, 50), rng.integers(0, INP, 50)
    predicted = model.at(rows, columns).forward(params)[0]
    close(predicted[0], product_of(params)[rows, columns], ROUNDING)
    assert model.network == DeepLinear((INP, 3, OUT))


def test_nothing_as_large_as_the_matrix_or_a_vector_for_every_entry_is_made(seed):
    rng = np.random.default_rng(seed)
    size, count, width = 3_000, 200_000, 32
    rows, columns = rng.integers(0, size, count), rng.integers(0, size, count)
    problem = sparse_completion(rows, columns, np.zeros(count), (size, width, width, size))
    params = tuple(jnp.zeros(shape) for shape in problem.model.shapes)

    def sizes(jaxpr):
        for equation in jaxpr.eqns:
            yield from (int(np.prod(variable.aval.shape)) for variable in equation.outvars)
            for inner in jax.tree.leaves(equation.params, is_leaf=lambda leaf: hasattr(leaf, "jaxpr")):
                if hasattr(inner, "jaxpr"):
                    yield from sizes(inner.jaxpr)

    for function in (problem.gradient, lambda p: problem.hessian_product(p, p)):
        largest = max(sizes(jax.make_jaxpr(function)(params).jaxpr))
        assert largest >= count
        assert largest < count * width / 3 < size * size


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (((4, 3), [0], [0]), ValueError, "hidden layer"),
        (((4, 2, 3), [], []), ValueError, "at least one"),
        (((4, 2, 3), [0], [0, 1]), ValueError, "shape"),
        (((4, 2, 3), [0.0], [0]), TypeError, "integers"),
        (((4, 2, 3), [3], [0]), ValueError, r"rows must lie in 0\.\.2, but entry 0 is 3"),
        (((4, 2, 3), [0, 0], [1, -1]), ValueError, r"columns must lie in 0\.\.3, but entry 1 is -1"),
        (((4, 2, 3), [[0]], [[0]]), ValueError, "shape"),
    ],
)
def test_bad_entries_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        NetworkEntries(*arguments)


def test_values_and_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="values must have shape"):
        sparse_completion([0, 1], [0, 1], [1.0], (2, 1, 2))
    with pytest.raises(ValueError, match="must be finite"):
        sparse_completion([0], [1], [np.nan], (2, 1, 2))
    with pytest.raises(ValueError, match=r"sparse_completion: rows must lie in 0\.\.1, but entry 1 is -1"):
        sparse_completion([0, -1], [0, 1], [1.0, 2.0], (2, 1, 2))
    with pytest.raises(ValueError, match=r"sparse_completion: columns must lie in 0\.\.1, but entry 0 is 2"):
        sparse_completion([1, 0], [2, 1], [1.0, 2.0], (2, 1, 2))
    problem = sparse_completion([0], [1], [1.0], (2, 1, 2))
    with pytest.raises(ValueError, match="layer shapes"):
        problem.check((jnp.ones((2, 2)),), "here")
    with pytest.raises(TypeError, match="traced"):
        jax.jit(lambda rows: NetworkEntries((2, 1, 2), rows, rows).place)(jnp.array([0]))
    assert isinstance(problem.loss, SquaredDistance)


def test_probes_of_layers_and_inits_take_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = sparse_completion([0, 2, 1], [1, 0, 3], rng.normal(size=3), (4, 2, 2, 3))
    params = MatchedGaussian(0.1)(problem.model, jax.random.key(seed))
    assert [layer.shape for layer in params] == [(2, 4), (2, 2), (3, 2)]
    upper, lower = np.asarray(params[1]), np.asarray(params[0])
    expected = np.linalg.norm(upper.T @ upper - lower @ lower.T)
    assert np.isclose(float(layer_balancedness(jnp.zeros(()), params, problem)[0]), expected, rtol=1e-12)
    with pytest.raises(TypeError, match="has no meaning there"):
        ntk(jnp.zeros(()), params, problem)
