"""Coupled and decoupled dynamics: the classifier against known labels, plain NumPy flows and planted cases."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from checking import unchecked
from deeplinear.core import RESULTS, Params, tsit5
from deeplinear.dynamics import Coupling, EntryGram, GradientFlow, coupling, coupling_examples, simulate, until
from deeplinear.models import (
    AlphaM,
    Completion,
    DeepLinear,
    EntryCompletion,
    Gaussian,
    Problem,
    SquaredDistance,
    block_mask,
    connectivity,
    diagonal_mask,
    unique_patterns,
)
from deeplinear.probes import loss

GRAPH, ZEROS = "observation graph (depth 2)", "zero pattern"
START, FLOW = "kernel at the start", "kernel along the flow (numerical)"
KEY = jax.random.key(0)

# One shape for all flows that are simulated, so that they compile once.
SIDE = 4
SQUARE = DeepLinear((SIDE, SIDE, SIDE, SIDE))
DIAGONAL = Problem(SQUARE, Completion(np.eye(SIDE), diagonal_mask(SIDE)))


def layers_of(*arrays: object) -> Params:
    return tuple(jnp.asarray(array, dtype=float) for array in arrays)


def plain_gram(layers: list[np.ndarray], mask: np.ndarray) -> np.ndarray:
    """Gram matrix of the observed entries from their gradients, layer by layer."""
    gradients = []
    for i, j in np.argwhere(mask):
        parts = []
        for position in range(len(layers)):
            after, before = np.eye(layers[-1].shape[0]), np.eye(layers[0].shape[1])
            for layer in reversed(layers[position + 1 :]):
                after = after @ layer
            for layer in layers[:position]:
                before = layer @ before
            parts.append(np.outer(after[i], before[:, j]).ravel())
        gradients.append(np.concatenate(parts))
    matrix = np.array(gradients)
    return matrix @ matrix.T


def plain_velocity(layers: list[np.ndarray], target: np.ndarray, mask: np.ndarray) -> list[np.ndarray]:
    """Minus the gradient of half the sum of squares over the mask."""
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product
    residual = np.where(mask, product - target, 0.0)
    result = []
    for position in range(len(layers)):
        after, before = np.eye(layers[-1].shape[0]), np.eye(layers[0].shape[1])
        for layer in reversed(layers[position + 1 :]):
            after = after @ layer
        for layer in layers[:position]:
            before = layer @ before
        result.append(-after.T @ residual @ before.T)
    return result


# ---- known labels


@pytest.mark.covers("completion:C5", "completion:F10")
@pytest.mark.parametrize(("blocks", "size"), [(2, 1), (3, 1), (2, 2), (3, 2)])
def test_block_observations(blocks: int, size: int) -> None:
    """All layers alpha on the diagonal, alpha/m off it: decoupled at depth 2 or m = inf, coupled otherwise."""
    mask = block_mask(blocks, size)
    whole = tuple(map(tuple, np.argwhere(mask).tolist()))
    by_block = tuple(tuple((i, j) for i, j in whole if i // size == block) for block in range(blocks))
    for depth, m in itertools.product((2, 3, 4), (1.0, 1.5, 10.0, 1e6, np.inf)):
        problem = Problem(DeepLinear((len(mask),) * (depth + 1)), Completion(np.ones(mask.shape), mask))
        found = coupling(problem, AlphaM(0.1, m)(problem.model, KEY))
        coupled = depth > 2 and m < np.inf
        assert found.coupled == coupled, (depth, m)
        assert found.certified
        assert found.rule == (GRAPH if depth == 2 else ZEROS if m == np.inf else START)
        assert found.partition == ((whole,) if coupled else by_block)
        assert (found.residual > 0) == coupled


@pytest.mark.parametrize("alpha", [1e-120, 1e120])
@pytest.mark.parametrize("m", [1e6, 1e10, 1e14])
def test_labels_at_the_start_depend_neither_on_scale_nor_on_a_tolerance(alpha: float, m: float) -> None:
    """Normalised inner products of depth 3 are 4/(3 m^2) to leading order, for layers of any size."""
    problem = Problem(DeepLinear((2, 2, 2, 2)), Completion(np.ones((2, 2)), np.eye(2)))
    found = coupling(problem, AlphaM(alpha, m)(problem.model, KEY))
    assert (found.coupled, found.rule) == (True, START)
    np.testing.assert_allclose(found.residual, 4 / (3 * m**2), rtol=1e-5)  # the next order is relative 1/m


@pytest.mark.covers("completion:C4", "completion:F9")
def test_depth_2_has_the_components_of_the_observation_graph(seed: int) -> None:
    """Gaussian layers with a rectangular hidden width, all patterns of two and more entries."""
    model = DeepLinear((3, 4, 3))
    params = Gaussian(0.5)(model, jax.random.key(seed))
    patterns = unique_patterns(3, 3, least=2)
    assert len(patterns) == 24
    for mask in patterns:
        found = coupling(Problem(model, Completion(np.ones((3, 3)), mask)), params)
        graph = connectivity(mask)
        assert found.partition == graph.partition
        assert found.coupled == graph.connected
        assert found.rule == (START if graph.connected else GRAPH)
        gram = plain_gram([np.asarray(w) for w in params], mask)
        label = {entry: number for number, part in enumerate(graph.partition) for entry in part}
        number = np.array([label[i, j] for i, j in np.argwhere(mask)])
        assert np.all(gram[number[:, None] != number] == 0)


@pytest.mark.covers("completion:C7", "completion:E4", "completion:F10")
@pytest.mark.parametrize("depth", [2, 3])
def test_zero_layers_never_move(depth: int) -> None:
    """No inner product at all, so every entry is a part, whatever the pattern."""
    model = DeepLinear((3,) * (depth + 1))
    zero = layers_of(*[np.zeros((3, 3))] * depth)
    diagonal = coupling(Problem(model, Completion(np.eye(3), diagonal_mask(3))), zero)
    assert diagonal.partition == (((0, 0),), ((1, 1),), ((2, 2),))
    assert (diagonal.coupled, diagonal.certified, diagonal.residual) == (False, True, 0.0)
    full = coupling(Problem(model, Completion(np.eye(3), np.ones((3, 3)))), zero)
    assert (full.coupled, full.rule, len(full.partition)) == (False, ZEROS, 9)


def test_one_observation_is_coupled() -> None:
    problem = Problem(DeepLinear((2, 3, 2)), EntryCompletion([1], [0], [1.0], (2, 2)))
    found = coupling(problem, Gaussian(1.0)(problem.model, KEY))
    assert found == Coupling(True, (((1, 0),),), "fewer than two observations", True, 0.0)


def test_named_examples() -> None:
    rules = {name: (found.coupled, found.rule) for name, found in labelled_examples().items()}
    assert rules == {
        "depth 2, diagonal": (False, GRAPH),
        "depth 2, column": (True, START),
        "depth 3, diagonal": (True, START),
        "identity, blocks": (False, ZEROS),
        "zero": (False, ZEROS),
    }


def labelled_examples() -> dict[str, Coupling]:
    return {name: coupling(*example) for name, example in coupling_examples().items()}


@pytest.mark.covers("completion:E1")
def test_decoupled_may_end_at_rank_one() -> None:
    """All entries of two layers equal (m = 1): decoupled by definition, yet the limit is the rank-one completion."""
    mask, alpha = diagonal_mask(3), 0.2
    problem = Problem(DeepLinear((3, 3, 3)), Completion(np.eye(3), mask))
    params = AlphaM(alpha, 1.0)(problem.model, KEY)
    found = coupling(problem, params)
    assert (found.coupled, found.rule) == (False, GRAPH)

    def field(_: float, y: np.ndarray) -> np.ndarray:
        velocity = plain_velocity(list(y.reshape(2, 3, 3)), np.eye(3), mask)
        return np.concatenate([part.ravel() for part in velocity])

    run = solve_ivp(field, (0, 30), np.full(18, alpha), method="DOP853", rtol=1e-12, atol=1e-14)
    first, second = run.y[:, -1].reshape(2, 3, 3)
    np.testing.assert_allclose(np.linalg.svd(second @ first)[1], [3.0, 0.0, 0.0], atol=1e-10)
    # Away from m = 1 the same pattern at depth 2 ends at the full rank: the label alone does not give the rank.
    start = np.stack([np.asarray(w) for w in AlphaM(alpha, 10.0)(problem.model, KEY)]).ravel()
    run = solve_ivp(field, (0, 30), start, method="DOP853", rtol=1e-12, atol=1e-14)
    first, second = run.y[:, -1].reshape(2, 3, 3)
    values = np.linalg.svd(second @ first)[1]
    np.testing.assert_allclose(np.sum((values / values[0]) ** 2), 1 + 2 * (9 / 12) ** 4, rtol=1e-8)


# ---- zero patterns


@pytest.mark.covers("completion:C6", "completion:F10")
def test_identity_stays_decoupled_along_the_flow() -> None:
    """Multiples of the identity, two observed blocks, depth 3: between the blocks nothing, exactly."""
    mask = block_mask(2, 2)
    problem = Problem(SQUARE, Completion(np.ones((SIDE, SIDE)), mask))
    rows, columns = np.nonzero(mask)
    across = (rows[:, None] < 2) != (rows < 2)
    start = AlphaM(0.3, np.inf)(SQUARE, KEY)
    run = simulate(problem, start, every=1, until=until(loss, below=1e-2), probes=EntryGram(rows, columns))
    assert run.result is RESULTS.stopped
    gram = run["entry_gram"]
    assert np.abs(gram[-1]).max() > 0.5  # it has learnt
    assert np.all(gram[:, across] == 0.0)
    assert np.any(gram[-1][~across & ~np.eye(8, dtype=bool)] != 0)


@pytest.mark.covers("completion:E4", "completion:F10")
def test_block_diagonal_layers_of_rectangular_widths(seed: int) -> None:
    """Random blocks matched to the observed ones decouple at any depth: the inner products between them stay zero."""
    rng = np.random.default_rng(seed)
    model = DeepLinear((SIDE, 6, 5, SIDE))
    first = np.zeros((6, SIDE))
    first[:4, :2], first[4:, 2:] = rng.normal(size=(4, 2)), rng.normal(size=(2, 2))
    second = np.zeros((5, 6))
    second[:2, :4], second[2:, 4:] = rng.normal(size=(2, 4)), rng.normal(size=(3, 2))
    third = np.zeros((SIDE, 5))
    third[:2, :2], third[2:, 2:] = rng.normal(size=(2, 2)), rng.normal(size=(2, 3))
    mask = block_mask(2, 2)
    problem = Problem(model, Completion(rng.normal(size=(SIDE, SIDE)), mask))
    params = layers_of(first, second, third)
    found = coupling(problem, params)
    assert found.partition == connectivity(mask).partition
    assert (found.coupled, found.rule, found.certified) == (False, ZEROS, True)
    rows, columns = np.nonzero(mask)
    method = GradientFlow(integrator=tsit5())
    run = simulate(problem, params, method, times=[0.0, 0.5, 2.0], probes=EntryGram(rows, columns))
    assert run.result is RESULTS.completed
    assert np.all(run["entry_gram"][:, (rows[:, None] < 2) != (rows < 2)] == 0.0)
    # Weights between the blocks on both sides of the middle layer join them at once.
    first[0, 3] = third[0, 3] = 1e-9
    joined = coupling(problem, layers_of(first, second, third))
    assert (joined.coupled, joined.rule) == (True, START)


def test_zero_patterns_of_sparse_layers_are_kept(seed: int) -> None:
    """Planted zeros at random: Euler steps of the flow in plain NumPy never join what the rule separates."""
    rng = np.random.default_rng(seed)
    separated = 0
    for _ in range(30):
        layers = [rng.normal(size=shape) * (rng.random(shape) < 0.2) for shape in SQUARE.shapes]
        mask = rng.random((SIDE, SIDE)) < 0.15
        mask[[0, 3], [0, 3]] = True
        target = rng.normal(size=(SIDE, SIDE))
        found = coupling(Problem(SQUARE, Completion(target, mask)), layers_of(*layers), times=[0.0])
        if found.rule != ZEROS:
            continue
        separated += 1
        label = {entry: number for number, part in enumerate(found.partition) for entry in part}
        number = np.array([label[i, j] for i, j in np.argwhere(mask).tolist()])
        for _ in range(6):
            assert np.all(plain_gram(layers, mask)[number[:, None] != number] == 0)
            velocity = plain_velocity(layers, target, mask)
            layers = [w + 0.01 * v for w, v in zip(layers, velocity, strict=True)]
    assert separated > 5


# ---- along the flow


def rotated_identity(scale: float, rng: np.random.Generator) -> Params:
    """Layers alpha Q_1, alpha Q_2 Q_1^T, alpha Q_2^T."""
    one, two = (np.linalg.qr(rng.normal(size=(SIDE, SIDE)))[0] for _ in range(2))
    return layers_of(scale * one, scale * two @ one.T, scale * two.T)


@pytest.mark.covers("completion:E4", "completion:F10")
def test_hidden_rotations_of_the_identity_are_decoupled(seed: int) -> None:
    """No zero in the layers, yet decoupled, which following the flow shows. The limit keeps the full rank."""
    params = rotated_identity(0.4, np.random.default_rng(seed))
    found = coupling(DIAGONAL, params)
    assert (found.coupled, found.rule, found.certified) == (False, FLOW, False)
    assert found.partition == tuple(((i, i),) for i in range(SIDE))
    assert found.residual < 1e-13  # rounding, which the flow has made to grow a little
    assert "not certified" in str(found)
    run = simulate(
        DIAGONAL, params, every=1, until=until(loss, below=1e-10), probes=EntryGram(*np.nonzero(np.eye(SIDE)))
    )
    values = np.linalg.svd(np.linalg.multi_dot(run.params[::-1]), compute_uv=False)
    np.testing.assert_allclose(np.sum(values**2) / values[0] ** 2, SIDE, rtol=1e-4)  # the loss is at 1e-10


def test_rounding_that_the_flow_has_grown_is_not_taken_for_coupling(seed: int) -> None:
    """From a tiny start the flow multiplies rounding by 1e13: at its end the entries seem coupled and are not."""
    params = rotated_identity(1e-13, np.random.default_rng(seed))
    run = simulate(
        DIAGONAL, params, every=1, until=until(loss, below=1e-6), probes=EntryGram(*np.nonzero(np.eye(SIDE)))
    )
    gram = run.final("entry_gram")
    roots = np.sqrt(np.diag(gram))
    assert np.abs(gram / np.outer(roots, roots))[~np.eye(SIDE, dtype=bool)].max() > 1e-8
    found = coupling(DIAGONAL, params)
    assert (found.coupled, found.rule, found.certified) == (False, FLOW, False)
    assert found.residual < 1e-10


def test_entries_may_meet_on_the_way() -> None:
    """Orthogonal outer layers make all inner products of the diagonal zero at the start, but not later."""
    middle = np.random.default_rng(3).normal(size=(SIDE, SIDE))
    params = layers_of(np.eye(SIDE), middle, np.eye(SIDE))
    start = plain_gram([np.asarray(w) for w in params], diagonal_mask(SIDE))
    assert np.all(start[~np.eye(SIDE, dtype=bool)] == 0)
    found = coupling(DIAGONAL, params)
    assert (found.coupled, found.rule, found.certified) == (True, FLOW, False)
    assert found.residual > 1e-6
    # Looking at the start only, nothing is seen; so it says that it has proved nothing.
    blind = coupling(DIAGONAL, params, times=[0.0])
    assert (blind.coupled, blind.certified, blind.residual) == (False, False, 0.0)


def test_a_rest_point_is_looked_at_once() -> None:
    """Zero loss at the start: the flow rests, and the kernel at the start is all there is."""
    params = layers_of(np.eye(SIDE), np.eye(SIDE)[::-1], np.eye(SIDE)[::-1])
    found = coupling(DIAGONAL, params)
    assert not found.coupled
    assert len(found.partition) == SIDE


# ---- probe and refusals


def test_probe_against_plain_gradients(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers = [rng.normal(size=(SIDE, SIDE)) for _ in range(3)]
    mask = rng.random((SIDE, SIDE)) < 0.5
    item = EntryGram(*np.nonzero(mask), name="seen")
    assert item.dims == ("seen_entry", "seen_other")
    np.testing.assert_allclose(
        item(0.0, layers_of(*layers), DIAGONAL), plain_gram(layers, mask), rtol=1e-11, atol=1e-11
    )


@pytest.mark.covers("completion:F39")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: unchecked(coupling)(DIAGONAL.loss, ()), "problem must be a Problem"),
        (lambda: coupling(Problem(SQUARE, SquaredDistance(np.eye(SIDE))), ones()), "loss must observe single entries"),
        (lambda: coupling(DIAGONAL, ones()[:2]), "params must have layer shapes"),
        (lambda: coupling(DIAGONAL, (np.full((SIDE, SIDE), np.nan), *ones()[1:])), r"params\[0\] must be finite"),
        (lambda: coupling(DIAGONAL, ones(), rtol=0.0), "rtol must be greater than 0"),
        (lambda: coupling(DIAGONAL, ones(), rtol=np.nan), "rtol must be greater than 0"),
        (
            lambda: coupling(Problem(DeepLinear((2, 2)), Completion(np.eye(2), np.eye(2))), (np.eye(2),)),
            "depth at least 2, but has depth 1",
        ),
        (lambda: EntryGram([0, 1], [0]), "columns must have shape"),
        (lambda: EntryGram([0.5], [0]), "rows must hold integers"),
        (lambda: EntryGram([-1], [0]), "rows must be non-negative"),
        (lambda: EntryGram([SIDE], [0])(0.0, ones(), DIAGONAL), "rows must lie in 0..3"),
    ],
)
def test_refusals(call, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call()


def ones() -> Params:
    return layers_of(*[np.ones((SIDE, SIDE))] * 3)
