"""Observation patterns and the Gram matrix of entries against Laplacians, counting formulas and plain Jacobians."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from checking import unchecked
from deeplinear.models import (
    Completion,
    DeepLinear,
    EntryCompletion,
    SquaredDistance,
    bipartite_adjacency,
    block_mask,
    canonical_pattern,
    column_mask,
    connected_mask,
    connectivity,
    diagonal_mask,
    disconnected_mask,
    entry_connectivity,
    entry_gradient,
    entry_gram,
    observed_entries,
    unique_patterns,
)

ROUNDING = 1e-12  # relative, some hundreds of operations
NETWORK = DeepLinear((3, 5, 4, 2))  # rectangular, depth 3


def nullity(mask: np.ndarray) -> int:
    """Components of the observation graph without isolated vertices: nullity of its Laplacian."""
    rows, columns = mask.any(axis=1), mask.any(axis=0)
    kept = mask[rows][:, columns].astype(float)
    adjacency = np.block(
        [[np.zeros((kept.shape[1],) * 2), kept.T], [kept, np.zeros((kept.shape[0],) * 2)]],
    )
    values = np.linalg.eigvalsh(np.diag(adjacency.sum(axis=0)) - adjacency)
    return int(np.sum(values < 1e-9))  # the next eigenvalue of a graph of 6 vertices is above 0.2


# ---- connectivity


@pytest.mark.covers("completion:F2")
def test_components_are_the_nullity_of_the_laplacian() -> None:
    patterns = unique_patterns(3, 3)
    assert len(patterns) == 25
    for mask in patterns:
        found = connectivity(mask)
        assert len(found.components) == nullity(mask)
        assert found.connected == (nullity(mask) == 1)


def test_components_of_random_masks(seed: int) -> None:
    """Parts cover the entries, and no two parts share a row or a column; their number is the nullity."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        mask = rng.random((5, 7)) < 0.2
        mask[rng.integers(5), rng.integers(7)] = True
        found = connectivity(mask)
        assert len(found.components) == nullity(mask)
        assert sorted(itertools.chain(*found.partition)) == sorted(map(tuple, np.argwhere(mask).tolist()))
        for part in found.components:
            assert part.rows == tuple(sorted({i for i, _ in part.entries}))
            assert part.columns == tuple(sorted({j for _, j in part.entries}))
            assert part.complete == bool(mask[np.ix_(part.rows, part.columns)].all())
        for one, other in itertools.combinations(found.components, 2):
            assert not set(one.rows) & set(other.rows)
            assert not set(one.columns) & set(other.columns)
        assert found.isolated_rows == tuple(np.flatnonzero(~mask.any(axis=1)).tolist())
        assert found.isolated_columns == tuple(np.flatnonzero(~mask.any(axis=0)).tolist())
        first = [part.rows[0] for part in found.components]
        assert first == sorted(first)
        rows, columns = np.nonzero(mask)
        shuffled = rng.permutation(len(rows))
        assert entry_connectivity(rows[shuffled], columns[shuffled], (5, 7)) == found


@pytest.mark.covers("completion:F2")
def test_named_masks() -> None:
    """The two patterns of two entries in a 2 x 2 matrix, with their graphs; blocks; a column."""
    apart, joined = connectivity(disconnected_mask()), connectivity(connected_mask())
    assert not apart.connected
    assert apart.partition == (((0, 0),), ((1, 1),))
    assert joined.connected
    assert joined.partition == (((0, 0), (1, 0)),)
    assert joined.isolated_columns == (1,)
    # Columns first: column 1, column 2, row 1, row 2.
    assert bipartite_adjacency(disconnected_mask()).tolist() == [[0, 0, 1, 0], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, 0, 0]]
    assert bipartite_adjacency(connected_mask()).tolist() == [[0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert bipartite_adjacency([[1, 0, 1]]).tolist() == [[0, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 1, 0]]
    blocks = connectivity(block_mask(3, 2))
    assert [part.rows for part in blocks.components] == [(0, 1), (2, 3), (4, 5)]
    assert blocks.complete_components
    assert connectivity(diagonal_mask(4)).complete_components
    assert not connectivity([[1, 1], [1, 0]]).complete_components
    assert connectivity([[0, 1]]).connected
    assert column_mask(2, 3, 2).tolist() == [[False, False, True], [False, False, True]]


def test_a_large_sparse_pattern_needs_no_mask() -> None:
    """A million rows and columns: 1000 stars of 200 entries each. The mask would have 10^12 entries."""
    centre = np.repeat(np.arange(1000) * 999, 200)
    leaf = np.arange(200_000) * 5
    found = entry_connectivity(centre, leaf, (1_000_000, 1_000_000))
    assert len(found.components) == 1000
    assert found.components[3].rows == (2997,)
    assert found.components[3].columns == tuple(range(3000, 4000, 5))
    assert found.complete_components
    assert len(found.isolated_rows) == 999_000


def test_print() -> None:
    assert str(connectivity([[1, 0, 0], [0, 0, 0]])).splitlines() == [
        "2 x 3 pattern, connected",
        "  rows 0, columns 0: 1 observed, complete",
        "  rows without an observation: 1",
        "  columns without an observation: 1 2",
    ]
    text = str(connectivity(diagonal_mask(20)))
    assert "disconnected, 20 components" in text
    assert "and 12 more" in text


# ---- enumeration


def count_by_burnside(rows: int, columns: int) -> int:
    """Patterns up to permutations: mean of 2^(cycles on entries) over all pairs of permutations."""

    def cycles(order: tuple[int, ...]) -> list[int]:
        left, lengths = set(range(len(order))), []
        while left:
            start = at = left.pop()
            length = 1
            while (at := order[at]) != start:
                left.remove(at)
                length += 1
            lengths.append(length)
        return lengths

    total = 0
    for p in itertools.permutations(range(rows)):
        for q in itertools.permutations(range(columns)):
            total += 2 ** sum(math.gcd(a, b) for a in cycles(p) for b in cycles(q))
    return total // (math.factorial(rows) * math.factorial(columns))


@pytest.mark.covers("completion:F3")
@pytest.mark.parametrize(
    ("rows", "columns", "transpose", "connected", "disconnected"),
    [(3, 3, True, 19, 6), (3, 3, False, 28, 7), (2, 2, True, 4, 1), (2, 3, False, 10, 2), (2, 3, True, 10, 2)],
)
def test_numbers_of_patterns(rows: int, columns: int, transpose: bool, connected: int, disconnected: int) -> None:
    patterns = unique_patterns(rows, columns, transpose=transpose)
    labels = [connectivity(mask).connected for mask in patterns]
    assert (sum(labels), len(labels) - sum(labels)) == (connected, disconnected)
    every = unique_patterns(rows, columns, transpose=transpose, least=0)
    assert len(every) == len(patterns) + 1  # the empty one
    assert not every[0].any()


@pytest.mark.covers("completion:F3")
def test_the_23_patterns() -> None:
    """Without the empty, the single and the full pattern: 17 connected, 6 disconnected."""
    labels = [connectivity(mask).connected for mask in unique_patterns(3, 3, least=2, most=8)]
    assert (sum(labels), len(labels) - sum(labels)) == (17, 6)


@pytest.mark.parametrize(("rows", "columns"), [(2, 4), (3, 4), (4, 4), (1, 5)])
def test_numbers_of_patterns_by_burnside(rows: int, columns: int) -> None:
    assert len(unique_patterns(rows, columns, transpose=False, least=0)) == count_by_burnside(rows, columns)


def test_patterns_are_canonical_and_the_first_of_their_orbits() -> None:
    for transpose in (True, False):
        patterns = unique_patterns(3, 3, transpose=transpose)
        codes = [tuple(mask.ravel().tolist()) for mask in patterns]
        assert codes == sorted(codes)
        for mask, code in zip(patterns, codes, strict=True):
            variants = [mask, mask.T] if transpose else [mask]
            orbit = {
                tuple(item[np.ix_(p, q)].ravel().tolist())
                for item in variants
                for p in itertools.permutations(range(3))
                for q in itertools.permutations(range(3))
            }
            assert min(orbit) == code
            assert tuple(canonical_pattern(mask, transpose=transpose).ravel().tolist()) == code


def test_canonical_form_is_invariant(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = rng.random((5, 6)) < 0.5
    moved = mask[rng.permutation(5)][:, rng.permutation(6)]
    np.testing.assert_array_equal(canonical_pattern(mask), canonical_pattern(moved))
    square = rng.random((4, 4)) < 0.5
    np.testing.assert_array_equal(canonical_pattern(square), canonical_pattern(square.T))
    lopsided = [[1, 1], [0, 0]]
    assert not np.array_equal(
        canonical_pattern(lopsided, transpose=False), canonical_pattern(np.transpose(lopsided), transpose=False)
    )


# ---- observed entries


def test_observed_entries_of_both_losses() -> None:
    dense = observed_entries(Completion([[1.0, np.nan], [2.0, 3.0]], [[1, 0], [1, 1]]))
    assert [item.tolist() for item in dense] == [[0, 1, 1], [0, 0, 1], [1.0, 2.0, 3.0]]
    listed = observed_entries(EntryCompletion([1, 0], [0, 2], [4.0, 5.0], (2, 3)))
    assert [item.tolist() for item in listed] == [[1, 0], [0, 2], [4.0, 5.0]]


# ---- Gram matrix


def jacobian_of_entries(layers: tuple[jax.Array, ...], rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Jacobian of chosen entries of W_3 W_2 W_1, one row for each.

    The product is linear in each layer, so its derivative is the product with that layer replaced by a unit matrix.
    """
    weights = [np.asarray(layer) for layer in layers]
    slopes = []
    for position, weight in enumerate(weights):
        for index in np.ndindex(weight.shape):
            unit = np.zeros(weight.shape)
            unit[index] = 1.0
            w1, w2, w3 = (*weights[:position], unit, *weights[position + 1 :])
            slopes.append((w3 @ w2 @ w1)[rows, columns])
    return np.array(slopes).T


@pytest.mark.covers("completion:C1", "completion:F8")
def test_gram_against_explicit_gradients(seed: int) -> None:
    """Rectangular, depth 3: the layers by hand, the Jacobian by linearity in each layer, the Gram by both."""
    rng = np.random.default_rng(seed)
    layers = tuple(jnp.asarray(rng.normal(size=shape)) for shape in NETWORK.shapes)
    w1, w2, w3 = (np.asarray(layer) for layer in layers)
    i, j = 1, 2
    by_hand = (
        np.outer((w3 @ w2)[i], np.eye(3)[:, j]),
        np.outer(w3[i], w1[:, j]),
        np.outer(np.eye(2)[i], (w2 @ w1)[:, j]),
    )
    gradient = jax.jit(lambda row, column: entry_gradient(NETWORK, layers, row, column))
    for ours, hand in zip(gradient(i, j), by_hand, strict=True):
        np.testing.assert_allclose(ours, hand, rtol=ROUNDING, atol=ROUNDING)
    rows, columns = np.array([0, 1, 1, 0]), np.array([0, 2, 1, 2])
    jacobian = jacobian_of_entries(layers, rows, columns)
    for k in range(4):
        ours = np.concatenate([np.ravel(w) for w in gradient(rows[k], columns[k])])
        np.testing.assert_allclose(ours, jacobian[k], rtol=ROUNDING, atol=ROUNDING)
    gram = jax.jit(lambda *layers: entry_gram(NETWORK, layers, rows, columns))(*layers)
    expected = jacobian @ jacobian.T
    np.testing.assert_allclose(gram, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())


@pytest.mark.covers("completion:F8")
def test_gram_of_the_visible_example() -> None:
    layers = tuple(
        jnp.asarray(w) for w in ([[0.5, 0.1], [-0.2, 0.4]], [[0.3, -0.1], [0.2, 0.6]], [[0.4, 0.2], [0.1, -0.5]])
    )
    gram = entry_gram(DeepLinear((2, 2, 2, 2)), layers, [0, 1], [0, 1])
    np.testing.assert_allclose(gram, [[0.1193, 0.0018], [0.0018, 0.2129]], rtol=ROUNDING)


@pytest.mark.covers("completion:F8")
def test_gram_moves_the_residuals_and_batches(seed: int) -> None:
    """The residuals' rate along minus the gradient is -K r; one call for many time points; jit changes nothing."""
    rng = np.random.default_rng(seed)
    stack = tuple(jnp.asarray(rng.normal(size=(3, *shape))) for shape in NETWORK.shapes)
    rows, columns = jnp.array([0, 1, 1]), jnp.array([0, 0, 2])
    grams = jax.jit(jax.vmap(lambda *layers: entry_gram(NETWORK, layers, rows, columns)))(*stack)
    residual = rng.normal(size=3)
    for k in range(3):
        layers = tuple(layer[k] for layer in stack)
        jacobian = jacobian_of_entries(layers, np.asarray(rows), np.asarray(columns))
        velocity = -jacobian.T @ residual
        np.testing.assert_allclose(-grams[k] @ residual, jacobian @ velocity, rtol=ROUNDING, atol=1e-11)


@pytest.mark.covers("completion:E9")
def test_gram_belongs_to_the_product_with_the_first_layer_last(seed: int) -> None:
    """The formula holds for W_3 W_2 W_1, the first layer acting first, and fails for W_1 W_2 W_3."""
    rng = np.random.default_rng(seed)
    layers = tuple(jnp.asarray(rng.normal(size=(2, 2))) for _ in range(3))
    rows = columns = np.array([0, 1])
    gram = np.asarray(entry_gram(DeepLinear((2, 2, 2, 2)), layers, rows, columns))
    right = jacobian_of_entries(layers, rows, columns)
    wrong = jacobian_of_entries(layers[::-1], rows, columns)
    np.testing.assert_allclose(gram, right @ right.T, rtol=ROUNDING, atol=ROUNDING)
    assert np.abs(gram - wrong @ wrong.T).max() > 1e-6


@pytest.mark.covers("completion:C2", "completion:F9")
def test_gaussian_layers_join_all_entries_from_depth_3_on(seed: int) -> None:
    """600 draws, all 36 pairs of entries of a 3 x 3 product: no inner product vanishes."""
    rng = np.random.default_rng(seed)
    network = DeepLinear((3, 3, 3, 3))
    stack = tuple(jnp.asarray(rng.normal(size=(600, 3, 3))) for _ in range(3))
    rows, columns = np.divmod(np.arange(9), 3)
    grams = np.asarray(jax.vmap(lambda *layers: entry_gram(network, layers, rows, columns))(*stack))
    roots = np.sqrt(np.diagonal(grams, axis1=1, axis2=2))
    normalised = np.abs(grams) / (roots[:, :, None] * roots[:, None, :])
    assert normalised[:, ~np.eye(9, dtype=bool)].min() > 1e-12  # about 1e-5; rounding is about 1e-15


@pytest.mark.covers("completion:C3", "completion:E8", "completion:F9")
def test_depth_2_joins_entries_of_one_row_or_column_only(seed: int) -> None:
    """100 draws: zero exactly where i != p and j != q. The condition "i != p and j != p" is another one, and wrong."""
    rng = np.random.default_rng(seed)
    network = DeepLinear((3, 3, 3))
    stack = tuple(jnp.asarray(rng.normal(size=(100, 3, 3))) for _ in range(2))
    rows, columns = np.divmod(np.arange(9), 3)
    grams = np.asarray(jax.vmap(lambda *layers: entry_gram(network, layers, rows, columns))(*stack))
    i, j, p, q = rows[:, None], columns[:, None], rows[None], columns[None]
    apart = (i != p) & (j != q)
    assert np.all(grams[:, apart] == 0)
    assert np.all(np.abs(grams[:, ~apart]) > 1e-12)
    misprinted = (i != p) & (j != p)
    assert np.any(np.abs(grams[:, misprinted]) > 1e-3)  # not zero where the misprint says so
    assert np.any(grams[:, ~misprinted] == 0)  # and zero where it does not


# ---- refusals


@pytest.mark.covers("completion:F39")
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: connectivity(np.zeros((2, 2))), "connectivity: mask must mark at least one entry"),
        (lambda: connectivity([[0.0, 0.5]]), "mask must hold only 0 and 1 .* but holds 0.5"),
        (lambda: connectivity([[np.nan, 1.0]]), "mask must hold only 0 and 1"),
        (lambda: connectivity([["a"]]), "mask must hold only 0 and 1"),
        (lambda: connectivity([1, 0]), "mask must have shape"),
        (lambda: connectivity([[1, 0], [1]]), "mask must be a matrix"),
        (lambda: connectivity(np.zeros((0, 2))), "at least one row"),
        (lambda: jax.jit(lambda m: connectivity(m).connected)(jnp.eye(2)), "mask must be a concrete array"),
        (lambda: entry_connectivity([], [], (2, 2)), "rows must hold at least one observation"),
        (lambda: entry_connectivity([0, 2], [0, 1], (2, 2)), "rows must lie in 0..1"),
        (lambda: entry_connectivity([0, 1], [0, -1], (2, 2)), "columns must lie in 0..1"),
        (lambda: entry_connectivity([0, 1, 0], [1, 1, 1], (2, 2)), "name an entry twice"),
        (lambda: entry_connectivity([0.0], [1], (2, 2)), "rows must hold integers"),
        (lambda: entry_connectivity([0], [1, 0], (2, 2)), "columns must have shape"),
        (lambda: unchecked(entry_connectivity)([0], [0], 3), "shape must be two widths"),
        (lambda: entry_connectivity([0], [0], (0, 2)), "each width in shape must be at least 1"),
        (lambda: unique_patterns(5, 5), "rows . columns must be at most 20"),
        (lambda: unique_patterns(0, 2), "rows must be at least 1"),
        (lambda: unique_patterns(2, 2, least=3, most=2), "most must be at least 3"),
        (lambda: canonical_pattern(np.ones((2, 9))), "mask must have at most 8 columns"),
        (lambda: block_mask(2, 0), "size must be at least 1"),
        (lambda: block_mask(0, 2), "blocks must be at least 1"),
        (lambda: diagonal_mask(0), "size must be at least 1"),
        (lambda: column_mask(2, 2, 2), "column must be at most 1"),
        (lambda: observed_entries(SquaredDistance(jnp.eye(2))), "loss must observe single entries"),
        (lambda: entry_gram(NETWORK, (jnp.eye(2),), [0], [0]), "params must have layer shapes"),
        (lambda: entry_gram(NETWORK, zeros(), [2], [0]), "rows must lie in 0..1"),
        (lambda: entry_gram(NETWORK, zeros(), [0], [-1]), "columns must lie in 0..2"),
        (lambda: entry_gram(NETWORK, zeros(), [0, 1], [0]), "columns must have shape"),
        (lambda: entry_gram(NETWORK, zeros(), [0.5], [0]), "rows must hold integers"),
        (lambda: entry_gram(NETWORK, zeros(), [], []), "rows must hold at least one entry"),
        (lambda: entry_gram(NETWORK, zeros(), [0, 1, 0], [2, 1, 2]), r"not name an entry twice, but name \(0, 2\) 2"),
        (lambda: entry_gram(NETWORK, zeros(jnp.nan), [0], [0]), r"entry_gram: params\[0\] must be finite"),
        (lambda: entry_gradient(NETWORK, zeros(jnp.inf), 0, 0), r"entry_gradient: params\[0\] must be finite"),
        (lambda: entry_gradient(NETWORK, zeros(), 0, 3), "column must lie in 0..2"),
        (lambda: entry_gradient(NETWORK, zeros(), [0], 0), "row must have shape"),
    ],
)
def test_refusals(call, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        call()


def zeros(value: float = 0.0) -> tuple[jax.Array, ...]:
    return tuple(jnp.full(shape, value) for shape in NETWORK.shapes)


def test_a_hidden_index_outside_gives_nan() -> None:
    """Under a transformation an index cannot be refused; it must not be taken for another entry."""
    gram = jax.jit(lambda rows: entry_gram(NETWORK, zeros(), rows, rows))(jnp.array([0, 7]))
    assert np.isnan(np.asarray(gram)[1, 1])
