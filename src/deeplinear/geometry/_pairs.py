r"""Distances of many pairs of matrices at once.

By what `geodesic_between` does for one pair: closed forms where they apply, else collocation from the first path, here
for blocks of pairs in lock-step, those that are done leaving it, on as many threads as there are processors. A pair
that Newton's method does not join is done by itself, with its end approached.
"""

import concurrent.futures
import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from deeplinear.core import check_finite, check_number, check_x64, entry, processors
from deeplinear.geometry._curvature import decomposed, velocities_of
from deeplinear.geometry._explicit import NUMERIC, SAME
from deeplinear.geometry._logarithm import FAR, connect, generator_of, geodesic_between, planes_of, ways_round
from deeplinear.geometry._metric import LARGEST_CONDITION, checked_depth
from deeplinear.geometry._paths import Paths, join
from deeplinear.geometry._stacked import definite_lengths, likely_closed, nearest_root

EXACT = 1e-11
"""What the ends are missed by at most, relative to them and to what they are apart, before a mesh is made finer."""

THREADED = 4
"""Largest size of matrix whose blocks are given to threads: for larger ones the linear algebra has its own."""

SINGULAR, OTHER = "singular end", "other component"
"""Cases of pairs that no geodesic joins."""


@dataclasses.dataclass(frozen=True)
class Distances:
    """Distances of pairs of matrices; all arrays have the shape of the pairs and are not to be written to.

    Attributes:
        depth: $L$.
        normalised: Whether in the normalised metric.
        lengths: Of the geodesics; infinite between components, not a number where none was found or an end is singular.
        residuals: Largest entry of what the geodesic misses the end by, as in `Connection`; for the closed forms of
            equal polar factors, what the end differs from a matrix with this very polar factor.
        angles: Largest angle by which the polar factors are turned against each other.
        converged: Which were found, with residuals within the tolerance.
        careful: Which were not found by Newton's method from the first path, and needed their end approached.
        iterations: Newton steps.
        cases: The closed form or "numeric"; "singular end" or "other component" where no geodesic joins them.
        messages: Why there is none, in words; empty for those that converged.
    """

    depth: float
    normalised: bool
    lengths: Float[np.ndarray, "*pairs"]
    residuals: Float[np.ndarray, "*pairs"]
    angles: Float[np.ndarray, "*pairs"]
    converged: Bool[np.ndarray, "*pairs"]
    careful: Bool[np.ndarray, "*pairs"]
    iterations: Int[np.ndarray, "*pairs"]
    cases: np.ndarray
    messages: np.ndarray

    @property
    def far(self) -> Bool[np.ndarray, "*pairs"]:
        """Which are turned so far that another geodesic may be as short or shorter."""
        return self.angles > FAR


@entry(empty=True)
def distances(
    starts: Any,
    ends: Any,
    depth: float,
    *,
    normalised: bool = False,
    tolerance: float = 1e-9,
    progress: Callable[[float], None] | None = None,
) -> Distances:
    r"""Lengths of the geodesics that `geodesic_between` finds between many pairs of matrices.

    Stacked matrices are paired one by one, and the axes before the last two are broadcast: one start with many ends, or
    `starts[:, None]` with `ends` for all pairs. Pairs without a geodesic are told in the result, not refused; of
    no pairs there are no distances.

    Args:
        starts: $A$, square, stacked.
        ends: $B$, likewise.
        depth: $L$, a positive integer or infinity.
        normalised: Whether in the normalised metric; infinite depth is always so.
        tolerance: Largest residual with which a result counts as converged, relative to the largest entry of the end.
        progress: Called with the share of pairs done; may raise to stop.

    Returns:
        The lengths, and how each was found.

    Example:
        >>> turns = jnp.array([[[math.cos(t), -math.sin(t)], [math.sin(t), math.cos(t)]] for t in (0.5, 1.1)])
        >>> found = distances(jnp.eye(2), turns, 3)
        >>> [round(float(length) / (2 * math.sqrt(6)), 12) for length in found.lengths]
        [0.0832369162, 0.182308051721]
    """
    where = "distances"
    check_x64(where)
    depth = checked_depth(where, depth)
    check_number(where, "tolerance", tolerance, above=0.0)
    one, other = _checked(where, "starts", starts), _checked(where, "ends", ends)
    if one.shape[-1] != other.shape[-1]:
        raise ValueError(
            f"{where}: ends must be matrices of the size of starts, {one.shape[-1]}, but have shape {other.shape}."
        )
    try:
        shape = np.broadcast_shapes(one.shape[:-2], other.shape[:-2])
    except ValueError as error:
        raise ValueError(
            f"{where}: the axes of starts before the last two must go with those of ends, but their shapes are "
            f"{one.shape} and {other.shape}."
        ) from error
    a, b = (np.broadcast_to(part, shape + part.shape[-2:]).reshape(-1, *part.shape[-2:]) for part in (one, other))
    table = _Table.empty(len(a))
    with np.errstate(all="ignore"):  # what comes of it is looked at
        if depth == 1:
            table.cases[:] = "straight line"
            table.lengths[:], table.residuals[:] = np.linalg.norm(b - a, axis=(1, 2)), 0.0
            table.converged[:] = np.isfinite(table.lengths)
            table.messages[~table.converged] = "The length is too large a number."
        elif depth == 2 and len(a) and (definite := definite_lengths(a, b)) is not None:
            lengths, common, table.residuals[:] = definite
            table.lengths[:] = (2.0 if normalised else math.sqrt(2)) * lengths
            table.cases[:], table.cases[common] = "positive pair", "common frame"
            table.angles[:], table.converged[:] = 0.0, True
        elif len(a):
            _fill(table, a, b, depth, normalised, tolerance, progress)
    table.lengths[~table.converged & (table.cases != OTHER)] = np.nan
    if progress is not None:
        progress(1.0)
    columns = [getattr(table, field.name).reshape(shape) for field in dataclasses.fields(table)]
    columns[-2:] = [part.astype(str) for part in columns[-2:]]
    for column in columns:
        column.setflags(write=False)
    return Distances(depth, normalised or depth == 1 or math.isinf(depth), *columns)


@dataclasses.dataclass(frozen=True)
class _Table:
    """What is filled in, one row for each pair."""

    lengths: np.ndarray
    residuals: np.ndarray
    angles: np.ndarray
    converged: np.ndarray
    careful: np.ndarray
    iterations: np.ndarray
    cases: np.ndarray
    messages: np.ndarray

    @classmethod
    def empty(cls, count: int) -> "_Table":
        nothing, false = np.full(count, np.nan), np.zeros(count, dtype=bool)
        texts = np.full(count, "", dtype=object)
        return cls(
            nothing,
            nothing.copy(),
            nothing.copy(),
            false,
            false.copy(),
            np.zeros(count, dtype=int),
            texts,
            texts.copy(),
        )


def _checked(where: str, name: str, value: Any) -> np.ndarray:
    array = np.asarray(value, dtype=float)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] == 0:
        raise ValueError(f"{where}: {name} must be square matrices on the last two axes, but have shape {array.shape}.")
    check_finite(where, name, array)
    return array


def _fill(
    table: _Table,
    a: np.ndarray,
    b: np.ndarray,
    depth: float,
    normalised: bool,
    tolerance: float,
    progress: Callable[[float], None] | None,
) -> None:
    """All pairs, from depth two on."""
    frames = decomposed(a), decomposed(b)
    conditions = [values[:, 0] / values[:, -1] for _, values, _ in frames]
    signs = [np.linalg.slogdet(part)[0] for part in (a, b)]
    bad = np.zeros(len(a), dtype=bool)
    for name, condition in zip(("start", "end"), conditions, strict=True):
        rows = ~bad & ~(condition <= LARGEST_CONDITION)
        table.cases[rows] = SINGULAR
        table.messages[rows] = f"The {name} is singular, or nearly so: there the metric degenerates."
        bad |= rows
    rows = ~bad & (signs[0] != signs[1])
    table.cases[rows], table.lengths[rows] = OTHER, np.inf
    table.messages[rows] = "The determinants have opposite signs: no path of invertible matrices joins the two."
    left = np.flatnonzero(~bad & ~rows)
    scale = 1.0 if normalised and not math.isinf(depth) else 1 / math.sqrt(depth) if not math.isinf(depth) else 1.0
    polar = [(u @ vt)[left] for u, _, vt in frames]
    spectra = [(values[left], vt[left]) for _, values, vt in frames]
    left, kept = _closed(table, (a[left], b[left]), left, polar, spectra, depth, scale, tolerance)
    turns = np.swapaxes(polar[0][kept], 1, 2) @ polar[1][kept]
    alone = likely_closed(a[left], b[left], polar[0][kept], polar[1][kept], [v[kept] for v, _ in spectra], depth)
    for row in map(int, left[alone]):
        _take(table, row, geodesic_between(a[row], b[row], depth, normalised=normalised, tolerance=tolerance))
    left, turns = left[~alone], turns[~alone]
    done = len(a) - len(left)
    for share in _numeric(table, left, a, b, turns, depth, normalised, scale, tolerance):
        if progress is not None:
            progress((done + share * len(left)) / len(a))


def _closed(
    table: _Table,
    ends: tuple[np.ndarray, np.ndarray],
    rows: np.ndarray,
    polar: list[np.ndarray],
    spectra: list[tuple[np.ndarray, np.ndarray]],
    depth: float,
    scale: float,
    tolerance: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with equal polar factors in closed form; the rows that are left, and where they stand among those given."""
    size = polar[0].shape[-1]
    same = np.linalg.norm(polar[0] - polar[1], axis=(1, 2)) / math.sqrt(size) <= SAME
    where = np.flatnonzero(same)
    if not where.size:
        return rows, np.arange(len(rows))

    def power(k: int, function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        values, right_t = (part[where] for part in spectra[k])
        return np.swapaxes(right_t, 1, 2) @ (function(values)[:, :, None] * right_t)

    one, other = (power(k, lambda s: s) for k in (0, 1))
    crooked = np.linalg.norm(one @ other - other @ one, axis=(1, 2)) / (
        np.linalg.norm(one, axis=(1, 2)) * np.linalg.norm(other, axis=(1, 2))
    )
    common = crooked <= SAME
    root = 1.0 if math.isinf(depth) else depth
    roots = [power(k, np.log if math.isinf(depth) else lambda s: s ** (1 / depth)) for k in (0, 1)]
    lengths = np.linalg.norm(roots[1] - roots[0], axis=(1, 2))
    missed = np.abs(polar[0][where] @ other - ends[1][where]).max(axis=(1, 2))
    if depth == 2:
        done, lengths = where, np.where(common, lengths, nearest_root(*roots))
    else:
        done, lengths, missed = where[common], lengths[common], missed[common]
    into = rows[done]
    table.cases[into] = np.where(common[np.isin(where, done)], "common frame", "positive pair")
    table.lengths[into] = root * scale * lengths
    table.residuals[into], table.angles[into] = missed, 0.0
    fine = (missed <= tolerance * np.abs(ends[1][done]).max(axis=(1, 2))) & np.isfinite(lengths)
    table.converged[into] = fine
    table.messages[into[~fine]] = "The closed form misses the end: numbers too large or too small."
    kept = np.setdiff1d(np.arange(len(rows)), done, assume_unique=True)
    return rows[kept], kept


def _take(table: _Table, row: int, found: Any) -> None:
    """Write what was found for one pair by itself."""
    table.cases[row], table.lengths[row], table.residuals[row] = found.case, found.length, found.residual
    table.angles[row], table.converged[row], table.iterations[row] = found.angle, found.converged, found.iterations
    table.careful[row] |= "approached" in found.message or (found.case == NUMERIC and not found.converged)
    table.messages[row] = "" if found.converged else found.message


def _numeric(
    table: _Table,
    rows: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    turns: np.ndarray,
    depth: float,
    normalised: bool,
    scale: float,
    tolerance: float,
) -> Iterator[float]:
    """Pairs without a closed form, in blocks; gives the share of them that is done."""
    if not rows.size:
        return
    size = a.shape[-1]
    pair, generators, ways, table.angles[rows] = _ways(turns)
    table.cases[rows], table.converged[rows] = NUMERIC, False
    starts, ends = a[rows], b[rows]
    sizes = [_sizes(part, depth) for part in (starts, ends)]
    scaled = [(part / many[:, None, None])[pair] for part, many in zip((starts, ends), sizes, strict=True)]
    paths = Paths(scaled[0], scaled[1], generators)
    block = max(8, min(128, 4096 // size**4))
    places = [slice(k, k + block) for k in range(0, len(pair), block)]
    workers = min(len(places), processors() if size <= THREADED else 1)
    pool = concurrent.futures.ThreadPoolExecutor(workers)
    try:
        parts = [
            pool.submit(join, 0.0 if math.isinf(depth) else 1 / depth, paths[place], exact=EXACT) for place in places
        ]
        best = np.full(len(rows), np.inf)
        retry: list[tuple[int, int]] = []
        for place, part in zip(places, parts, strict=True):
            found = part.result()
            with np.errstate(all="ignore"):
                which = pair[place]
                lengths = scale * _lengths(paths.starts[place], found.momenta, [many[which] for many in sizes], depth)
                last = np.abs(paths.ends[place]).max(axis=(1, 2))
                fine = (found.missed <= min(tolerance, 1e-10) * last) & np.isfinite(lengths)
            np.add.at(table.iterations, rows[which], found.iterations)
            for k, one in enumerate(which):
                if not fine[k]:
                    retry.append((int(one), int(ways[place][k])))
                elif lengths[k] < best[one]:
                    best[one] = lengths[k]
                    table.residuals[rows[one]] = found.missed[k] * sizes[1][one]
            yield 0.9 * place.stop / len(pair) if retry else min(1.0, place.stop / len(pair))
    finally:
        pool.shutdown(cancel_futures=True)
    good = np.isfinite(best)
    table.lengths[rows[good]], table.converged[rows[good]] = best[good], True
    for number, (one, way) in enumerate(retry):
        _retry(table, int(rows[one]), a, b, turns[one], way, depth, normalised, tolerance)
        yield 0.9 + 0.1 * (number + 1) / len(retry)


def _retry(
    table: _Table,
    row: int,
    a: np.ndarray,
    b: np.ndarray,
    turn: np.ndarray,
    way: int,
    depth: float,
    normalised: bool,
    tolerance: float,
) -> None:
    """One way round of one pair by itself, kept if it is the shortest so far."""
    turns = ways_round(planes_of(turn))[way]
    found = connect(a[row], b[row], depth, normalised, turns, tolerance, quick=False)
    table.iterations[row] += found.iterations
    table.careful[row] = True
    if found.converged and not (table.converged[row] and table.lengths[row] <= found.length):
        table.lengths[row], table.residuals[row], table.converged[row] = found.length, found.residual, True
        table.messages[row] = ""
    elif not table.converged[row] and not table.residuals[row] <= found.residual:
        table.residuals[row], table.messages[row] = found.residual, found.message


def _ways(turns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Pairs and the ways to turn for each, as generators, numbers of the ways; and the largest angles of the pairs."""
    count, size = turns.shape[:2]
    if size == 2:
        angles = np.arctan2(turns[:, 1, 0] - turns[:, 0, 1], turns[:, 0, 0] + turns[:, 1, 1])
        far = np.flatnonzero(np.abs(angles) > FAR)
        both = np.append(angles, angles[far] - np.copysign(2 * math.pi, angles[far]))
        generators = both[:, None, None] * np.array([[0.0, -1.0], [1.0, 0.0]])
        numbers = np.append(np.zeros(count, dtype=int), np.ones(len(far), dtype=int))
        return np.append(np.arange(count), far), generators, numbers, np.abs(angles)
    pairs, generators, numbers, angles = [], [], [], np.zeros(count)
    for k, turn in enumerate(turns):
        planes = planes_of(turn)
        angles[k] = max((abs(angle) for _, angle in planes), default=0.0)
        for number, way in enumerate(ways_round(planes)):
            pairs.append(k)
            generators.append(generator_of(way, size))
            numbers.append(number)
    return np.array(pairs), np.array(generators), np.array(numbers), angles


def _sizes(matrices: np.ndarray, depth: float) -> np.ndarray:
    r"""Numbers by which matrices are divided to have $\sum_i s_i^{2/L} = d$, or determinant one at infinite depth."""
    logs = np.log(decomposed(matrices)[1])
    middle = logs.mean(axis=1)
    if math.isinf(depth):
        return np.exp(middle)
    return np.exp(middle + depth / 2 * np.log(np.mean(np.exp(2 / depth * (logs - middle[:, None])), axis=1)))


def _lengths(firsts: np.ndarray, momenta: np.ndarray, sizes: list[np.ndarray], depth: float) -> np.ndarray:
    """Normalised lengths from momenta between ends divided by their sizes: by the law of cosines in a cone."""
    rate = 0.0 if math.isinf(depth) else 1 / depth
    squared = np.maximum(np.sum(momenta * velocities_of(rate, firsts, momenta), axis=(1, 2)), 0.0)
    ratio = np.log(sizes[1]) - np.log(sizes[0])
    size = firsts.shape[-1]
    if math.isinf(depth):
        return np.sqrt(squared + size * ratio**2)
    along = depth * math.sqrt(size) * np.expm1(ratio / depth)
    return np.sqrt(along**2 + np.exp(ratio / depth) * squared) * sizes[0] ** (1 / depth)
