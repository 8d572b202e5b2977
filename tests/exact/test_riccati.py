"""The Riccati equation of two layers: eigensystem, propagator, derivatives."""

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.exact import Correlations, correlations_of, eigensystem, flow_matrix, propagate, riccati_field, stacked
from deeplinear.exact._riccati import _spectral

REFERENCE = json.loads((Path(__file__).parent / "riccati_reference.json").read_text())
"""Solutions in 60 to thousands of digits, rounded; made by tools/reference_riccati.py."""

GENERIC = 2e-14
"""Rounding: measured 6e-15 relative to the largest entry."""

HARD = 5e-14
"""The same; the limits still miss some 1e-14 where the slowest rate is s²/|λ| = 1e-4."""

CASES, TIMES = 8, 7
"""Cases at once and times of each, so that all calls of one shape share code; shorter lists repeat their last."""


@jax.jit
def solutions(factors: Any, targets: Any, lams: Any, times: Any) -> Any:
    """QQᵀ, and its factor, for every case (start, task, λ) and each of its times."""

    def one(factor: Any, target: Any, lam: Any, own: Any) -> Any:
        system = eigensystem(target, lam)
        moved = jax.vmap(lambda t: propagate(factor, system, t))(own)
        return correlations_of(moved, target.shape[1]).matrix, moved

    return jax.vmap(one)(factors, targets, lams, times)


def solved(cases: list[dict[str, Any]], factors: bool = False) -> np.ndarray:
    """QQᵀ of the cases at their times, or its factors."""
    full = cases + cases[-1:] * (CASES - len(cases))
    times = [[*case["times"], *[case["times"][-1]] * (TIMES - len(case["times"]))] for case in full]
    starts = [np.concatenate([np.transpose(case["first"]), case["second"]]) for case in full]
    targets, lams = [case["target"] for case in full], [case["lam"] for case in full]
    found = solutions(*(np.array(x, dtype=float) for x in (starts, targets, lams, times)))
    return np.asarray(found[int(factors)])[: len(cases)]


def missed(found: np.ndarray, wanted: Any) -> float:
    """Largest error relative to the largest entry."""
    return float(np.max(np.abs(found - np.array(wanted))) / np.max(np.abs(wanted)))


def shape_of(case: dict[str, Any]) -> tuple[int, ...]:
    return (*np.shape(case["first"]), len(case["second"]))


SHAPES = sorted({shape_of(case) for case in REFERENCE["cases"]})


@pytest.mark.covers("exact:F12", "exact:S8", "exact:S10")
@pytest.mark.parametrize("shape", SHAPES)
def test_propagator_has_the_digits_of_the_reference_at_every_time(shape: tuple[int, ...]) -> None:
    """Tiny starts, singular overlaps, reversals, |λ| = 1e4, any width and rank, times from 1e-15 to past the end."""
    cases = [case for case in REFERENCE["cases"] if shape_of(case) == shape]
    for case, found in zip(cases, solved(cases), strict=True):
        bound = GENERIC if case["kind"] == "generic" else HARD
        for t, got, wanted in zip(case["times"], found, case["solutions"], strict=False):
            assert missed(got, wanted) <= bound, f"{case['name']} at t = {t:g}"


def test_reference_reaches_the_corners_it_should() -> None:
    cases = REFERENCE["cases"]
    assert {case["kind"] for case in cases} == {"generic", "hard"}
    assert max(abs(case["lam"]) for case in cases) == 1e4
    assert min(min(case["times"]) for case in cases) == 1e-15
    assert sum(case["limit_last"] for case in cases) >= 8
    assert min(np.max(np.abs(case["first"])) for case in cases) < 1e-9


@pytest.mark.covers("exact:S9")
def test_reference_agrees_with_a_taylor_series_of_the_weights() -> None:
    """Thirty digits of the layers themselves, by no closed form."""
    case = REFERENCE["taylor"]
    inp = np.shape(case["first"])[1]
    closed = np.array(case["closed"])
    for name, block in (("input", closed[:inp, :inp]), ("product", closed[inp:, :inp]), ("output", closed[inp:, inp:])):
        np.testing.assert_allclose(case[name], block, rtol=0, atol=2e-16 * np.max(np.abs(closed)))
    # So does the propagator. An input that nothing depends on is added: the shape is then one that is compiled anyway.
    padded = {name: np.pad(np.array(case[name]), ((0, 0), (0, 1))) for name in ("first", "target")}
    found = solved([case | padded | {"times": [case["time"]]}])[0, 0]
    assert found.shape == (6, 6) and np.all(found[inp] == 0)
    kept = np.delete(np.delete(found, inp, axis=0), inp, axis=1)
    product = np.array(case["product"])
    wanted = np.block([[np.array(case["input"]), product.T], [product, np.array(case["output"])]])
    assert missed(kept, wanted) <= GENERIC


def balanced(u: np.ndarray, values: np.ndarray, v: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray]:
    """λ-balanced layers with the product u diag(values) vᵀ."""
    large = np.sqrt(np.hypot(values, lam / 2) + abs(lam) / 2)
    small, large = (values / large, large) if lam >= 0 else (large, values / large)
    return (v * small).T, u * large


def start(widths: tuple[int, int, int], lam: float, seed: int) -> dict[str, Any]:
    """λ-balanced layers with a random product, and a task."""
    inp, hidden, out = widths
    rng = np.random.default_rng(seed)
    u, s, vt = np.linalg.svd(rng.normal(size=(out, inp)), full_matrices=False)
    turn = np.linalg.qr(rng.normal(size=(hidden, hidden)))[0]
    first, second = balanced(u[:, :hidden], s[:hidden], vt[:hidden].T, lam)
    return {"first": turn @ first, "second": second @ turn.T, "target": rng.normal(size=(out, inp)), "lam": lam}


def factor_of(case: dict[str, Any]) -> Any:
    return stacked((jnp.asarray(case["first"]), jnp.asarray(case["second"])))


@pytest.mark.covers("exact:F12")
def test_time_zero_gives_back_the_start_and_two_stretches_of_time_make_one(seed: int) -> None:
    case = start((4, 2, 2), -2.0, seed)
    ((begun, half, once, *_),) = solved([case | {"times": [0.0, 0.7, 1.9]}], factors=True)
    assert np.array_equal(begun, factor_of(case))
    (twice,) = solved([case | {"first": half[:4].T, "second": half[4:], "times": [1.2]}], factors=True)[:, 0]
    assert missed(twice @ twice.T, once @ once.T) <= GENERIC


@pytest.mark.covers("exact:F26", "exact:S32")
def test_mirrored_networks_learn_mirrored_functions(seed: int) -> None:
    """Exchange of input and output, with −λ, and for square networks −λ alone."""
    times = list(np.geomspace(1e-3, 1e3, TIMES))
    case = start((4, 2, 2), 2.0, seed) | {"times": times}
    other = {"first": case["second"].T, "second": case["first"].T, "target": case["target"].T, "lam": -2.0}
    (there,), (back,) = solved([case]), solved([other | {"times": times}])
    turned = np.block([[back[:, 2:, 2:], back[:, 2:, :2]], [back[:, :2, 2:], back[:, :2, :2]]])
    assert missed(turned, there) <= GENERIC

    case = start((3, 3, 3), 2.0, seed) | {"times": times}
    u, s, vt = np.linalg.svd(case["second"] @ case["first"])
    first, second = balanced(u, s, vt.T, -2.0)
    plus, minus = solved([case, case | {"first": first, "second": second, "lam": -2.0}])
    assert missed(minus[:, 3:, :3], plus[:, 3:, :3]) <= GENERIC
    assert missed(minus[:, :3, :3] - 2 * np.eye(3), plus[:, :3, :3]) <= GENERIC
    assert missed(minus[:, 3:, 3:] + 2 * np.eye(3), plus[:, 3:, 3:]) <= GENERIC


# ---- Eigensystem and field -------------------------------------------------------------------------------------------


@pytest.mark.covers("exact:F9", "exact:S4")
@pytest.mark.parametrize("shape", [(3, 3), (2, 4)])
def test_eigensystem_is_one_for_degenerate_tasks_too(shape: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    generic = rng.normal(size=shape)
    u, _, vt = np.linalg.svd(generic, full_matrices=False)
    repeated, deficient = 2.0 * u @ vt, 3.0 * np.outer(u[:, 0], vt[0])
    targets = np.stack([generic, repeated, deficient, np.zeros(shape)])
    lams = np.array([0.0, 1e-12, 0.5, -7.0, 1e6, -1e6])

    def parts(target: Any, lam: Any) -> tuple[Any, Any, Any]:
        system = eigensystem(target, lam)
        return system.values, system.vectors, flow_matrix(target, lam)

    found = jax.jit(jax.vmap(jax.vmap(parts, (None, 0)), (0, None)))(targets, lams)
    values, vectors, matrices = map(np.asarray, found)
    size = sum(shape)
    turned = np.swapaxes(vectors, -1, -2)
    assert np.max(np.abs(turned @ vectors - np.eye(size))) <= 1e-13
    misfit = np.max(np.abs(vectors * values[..., None, :] @ turned - matrices), axis=(-1, -2))
    assert np.all(misfit <= 1e-13 * np.maximum(1.0, np.abs(lams)))
    sigma, lam = targets[0], 0.5
    by_hand = np.block([[-lam / 2 * np.eye(shape[1]), sigma.T], [sigma, lam / 2 * np.eye(shape[0])]])
    assert np.array_equal(matrices[0, 2], by_hand)
    np.testing.assert_allclose(np.sort(values[0, 2]), np.linalg.eigvalsh(by_hand), atol=1e-13)


def training_field(first: np.ndarray, second: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Derivative of QQᵀ from the gradient flow of the layers."""
    error = target - second @ first
    moved = np.concatenate([(second.T @ error).T, error @ first.T])
    factor = np.concatenate([first.T, second])
    return moved @ factor.T + factor @ moved.T


@pytest.mark.covers("exact:F8", "exact:S3")
def test_riccati_field_is_the_gradient_flow_of_balanced_layers_only(seed: int) -> None:
    case = start((4, 2, 2), 2.0, seed)
    first, second, target = case["first"], case["second"], case["target"]
    found = riccati_field(correlations_of(factor_of(case), 4), target, 2.0)
    assert isinstance(found, Correlations)
    np.testing.assert_allclose(found.matrix, training_field(first, second, target), rtol=0, atol=1e-12)
    second = second + np.array([[0.5, 0.0], [0.0, 0.0]])
    lam = np.trace(second.T @ second - first @ first.T) / 2
    found = riccati_field(correlations_of(factor_of({"first": first, "second": second}), 4), target, lam)
    assert np.max(np.abs(found.matrix - training_field(first, second, target))) > 1e-3


# ---- Derivatives -----------------------------------------------------------------------------------------------------

STEPS = 4


def summary(target: Any, lam: Any, factor: Any, t: Any) -> Any:
    """A smooth number of the solution, with no symmetry."""
    x = correlations_of(propagate(factor, eigensystem(target, lam), t, steps=STEPS), target.shape[1]).matrix
    return jnp.sum(jnp.sin(1.0 + jnp.arange(x.size, dtype=float)).reshape(x.shape) * x)


values_of = jax.jit(jax.vmap(summary))
"""At several points at once."""

slopes_of = jax.jit(jax.vmap(jax.grad(summary, argnums=(0, 1, 2, 3))))
"""Reverse mode, with respect to everything."""


@pytest.mark.covers("exact:F12")
def test_derivatives_agree_with_differences(seed: int) -> None:
    """With respect to task, λ, start and time: generic, equal singular values, rank one, early, and near the end."""
    rng = np.random.default_rng(seed)
    case = start((3, 3, 3), 0.5, seed)
    factor, target = factor_of(case), case["target"]
    u, s, vt = np.linalg.svd(target)
    tasks = {
        "generic": (target, 0.5, 0.8),
        "equal singular values": (1.5 * u @ vt, 0.5, 0.8),
        "rank one": (s[0] * np.outer(u[:, 0], vt[0]), 0.5, 0.8),
        "no task, λ = 0": (np.zeros((3, 3)), 0.0, 0.8),
        "early": (target, 0.5, 1e-9),
        "late": (np.diag([1.5, 1.0, 1.0]), 0.5, 60.0),
    }
    points = [(np.asarray(a), lam, np.asarray(factor), t) for a, lam, t in tasks.values()]
    # λ and the time move too; near time zero by a share of it.
    directions = [
        (rng.normal(size=(3, 3)), rng.normal(), rng.normal(size=(6, 3)), t * rng.normal()) for *_, t in points
    ]

    def stack(rows: list[Any]) -> tuple[Any, ...]:
        return tuple(jnp.asarray(np.stack([np.asarray(row[i], dtype=float) for row in rows])) for i in range(4))

    gradients = slopes_of(*stack(points))
    slopes = sum(
        np.sum((np.asarray(g) * np.asarray(d)).reshape(len(points), -1), axis=1)
        for g, d in zip(gradients, stack(directions), strict=True)
    )

    def at(h: float) -> np.ndarray:
        moved = [tuple(x + h * d for x, d in zip(p, v, strict=True)) for p, v in zip(points, directions, strict=True)]
        return np.asarray(values_of(*stack(moved)))

    # Differences extrapolated twice: their error is of order h⁶ and rounding.
    h = 2e-3
    central = [(at(k) - at(-k)) / (2 * k) for k in (h, h / 2, h / 4)]
    once = [(4 * fine - coarse) / 3 for coarse, fine in itertools.pairwise(central)]
    twice = (16 * once[1] - once[0]) / 15
    for name, found, wanted in zip(tasks, slopes, twice, strict=True):
        assert abs(found - wanted) <= 1e-8 * max(1.0, abs(wanted)), name


def test_derivatives_beyond_the_reach_of_the_steps_are_refused() -> None:
    case = start((3, 3, 3), 0.5, 0)
    factor, target = factor_of(case), jnp.asarray(case["target"])
    with pytest.raises(Exception, match="4 steps do not reach that far"):
        values_of(*(jnp.stack([x] * 6) for x in (target, jnp.array(0.5), factor, jnp.array(1e5))))


def test_second_derivatives_of_the_task_are_refused() -> None:
    case = start((3, 3, 3), 0.5, 0)
    factor, target = factor_of(case), jnp.asarray(case["target"])
    with pytest.raises(NotImplementedError, match="second derivatives"):
        jax.eval_shape(jax.hessian(lambda a: summary(a, 0.5, factor, 1.0)), target)


def test_bad_arguments_are_named() -> None:
    case = start((3, 3, 3), 0.5, 0)
    factor, target = factor_of(case), jnp.asarray(case["target"])
    system = eigensystem(target, 0.5)
    with pytest.raises(ValueError, match="t must be at least 0, but is -1"):
        propagate(factor, system, -1.0)
    with pytest.raises(ValueError, match="t must be finite"):
        propagate(factor, system, np.inf)
    with pytest.raises(ValueError, match=r"factor must have shape \(6, any\)"):
        propagate(factor[:5], system, 1.0)
    with pytest.raises(ValueError, match="target must be finite"):
        eigensystem(np.full((2, 2), np.nan), 0.0)
    with pytest.raises(ValueError, match="at least one row"):
        flow_matrix(np.zeros((0, 2)), 0.0)
    with pytest.raises(ValueError, match="lam must be finite"):
        flow_matrix(np.eye(2), np.nan)
    with pytest.raises(ValueError, match="two layers"):
        stacked((jnp.eye(2),))


@pytest.mark.parametrize("t", [1e3, 1e-3])
def test_a_spectral_function_is_differentiated_at_any_time(t: float) -> None:
    """Gaps are small or large by what they are times t: against differences of the matrix function by NumPy."""

    def function(matrix: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(matrix)
        x = 2 * values * t
        return (vectors * np.sqrt(x / np.expm1(x) / t)) @ vectors.T

    values, move = np.array([1.0, 2.0, 2.5]) / t, np.array([[0.3, 1.0, 0.2], [1.0, -0.4, 0.5], [0.2, 0.5, 0.1]]) / t
    step = 1e-5
    wanted = (function(np.diag(values) + step * move) - function(np.diag(values) - step * move)) / (2 * step)

    def ours(change: jax.Array) -> jax.Array:
        return _spectral("shrink", jnp.asarray(values), change, jnp.asarray(t))

    _, found = jax.jvp(ours, (jnp.zeros((3, 3)),), (jnp.asarray(move),))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-8 * np.abs(wanted).max())


def test_a_task_that_is_no_matrix_is_refused_with_its_shape() -> None:
    with pytest.raises(ValueError, match=r"eigensystem: target must have shape \(any, any\), but has shape \(2,\)"):
        unchecked(eigensystem)(np.ones(2), 0.0)
