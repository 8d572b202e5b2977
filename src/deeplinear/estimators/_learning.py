r"""Completion of a matrix by a deep linear network from a small start, stopped by entries that it has not seen.

The network learns the directions of the data one after the other, strong ones first. Its loss therefore falls through
a sequence of ranks, and the error on entries that were held out has a minimum on the way if the data are noisy. The
path is followed by levels of the loss, each a fixed factor below the last.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from deeplinear.core import RESULTS, NumericalError, spectrum_effective_rank
from deeplinear.dynamics import Adam, GradientFlow, resume, simulate, until
from deeplinear.estimators._observed import Entries
from deeplinear.models import Completion, DeepLinear, Problem, sparse_completion
from deeplinear.probes import loss

DENSE = 4_000_000
"""Size of a matrix up to which its product is formed; above, the network is looked at in the observed entries only."""
EXACT = 512
"""Side from which on a matrix is not filled up: compiling for its shape then costs little beside the work."""
LEAST = 32
"""Smallest side that is worked with; sides up to `EXACT` are rounded up, so that few shapes are compiled."""
LEVEL, LATER, LATE = 0.95, 0.8, 0.01
"""Factor from a level of the loss to the next, factor below `LATE` of the first, where curves are straight."""
PATIENCE, IMPATIENCE, WORSE, LONGER = 15, 8, 1.1, 2
"""Stations without a better error on the entries held out after which a path ends; fewer, if it has grown by a factor
(a network on its way from one rank to the next may be worse for a while); at once, if it has grown at all and so many
times the steps were made that led to the best."""
RTOL = 1e-3
MOST_STEPS = 100
"""Steps after which a station is made although its level is not reached."""
REST = 1e-3
"""Relative change of the loss from station to station below which the network has no more to learn."""
RATE, STRIDE = 0.05, 2
"""Adam: learning rate, and steps between two looks at the entries held out."""
CHUNK = 1 << 18


@dataclasses.dataclass(frozen=True)
class Factors:
    """The product of a network as two matrices, left times right."""

    left: np.ndarray
    right: np.ndarray

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Entries of the product."""
        found, across = np.empty(len(rows)), self.right.T
        for begin in range(0, len(rows), CHUNK):
            part = slice(begin, begin + CHUNK)
            found[part] = np.einsum("kw,kw->k", self.left[rows[part]], across[columns[part]])
        return found

    def singular_values(self) -> np.ndarray:
        """Of the product, largest first; no more than the width."""
        if not self.left.size:
            return np.zeros(0)
        left, right = (np.linalg.qr(factor)[1] for factor in (self.left, self.right.T))
        return np.linalg.svd(left @ right.T, compute_uv=False)


@dataclasses.dataclass(frozen=True)
class Path:
    """What was seen on the way, at levels of the loss or after some steps, whichever came first.

    Attributes:
        times: Time of the flow, or number of steps.
        errors: Root mean square on the entries that were fitted.
        held_out: The same on those held out; NaN where there were none.
        ranks: Effective rank of the product: the exponential of the entropy of its singular values.
    """

    times: np.ndarray
    errors: np.ndarray
    held_out: np.ndarray
    ranks: np.ndarray

    @property
    def best(self) -> int:
        """Position of the smallest error on the entries held out; the last if there were none."""
        return int(np.nanargmin(self.held_out)) if np.any(np.isfinite(self.held_out)) else len(self.times) - 1


def side(size: int) -> int:
    """What a side is filled up to: 32, 48, 64, 96, 128, …; itself above `EXACT`."""
    if size > EXACT:
        return size
    least = LEAST
    while least < size:
        least = least * 3 // 2 if least & (least - 1) == 0 else least * 4 // 3
    return least


@dataclasses.dataclass(frozen=True)
class Learner:
    """A network for matrices of one shape.

    Rows, columns and hidden units that only fill up have weights zero. Nothing is observed there and their gradient
    vanishes, so they stay zero and the rest moves as without them.
    """

    shape: tuple[int, int]
    depth: int
    width: int
    method: str

    @property
    def padded(self) -> tuple[int, ...]:
        """Widths that are worked with, input first."""
        if self.method == "adam":
            return (self.shape[1], *(self.width,) * (self.depth - 1), self.shape[0])
        return (side(self.shape[1]), *(min(side(self.width), 4 * self.width),) * (self.depth - 1), side(self.shape[0]))

    def start(self, scale: float, generator: np.random.Generator) -> tuple[np.ndarray, ...]:
        """Gaussian layers of one size whose product has entries of standard deviation `scale`."""
        sizes = (self.shape[1], *(self.width,) * (self.depth - 1), self.shape[0])
        spread = (scale / np.sqrt(float(self.width) ** (self.depth - 1))) ** (1 / self.depth)
        layers = []
        for layer in range(self.depth):
            weights = np.zeros((self.padded[layer + 1], self.padded[layer]))
            weights[: sizes[layer + 1], : sizes[layer]] = spread * generator.standard_normal(
                (sizes[layer + 1], sizes[layer])
            )
            layers.append(weights)
        return tuple(layers)

    def factors(self, params: tuple[np.ndarray, ...]) -> Factors:
        """The product, without what fills up."""
        first, *others = (np.asarray(layer) for layer in params)
        left = others[-1]
        for layer in reversed(others[:-1]):
            left = left @ layer
        return Factors(left[: self.shape[0], : self.width].copy(), first[: self.width, : self.shape[1]].copy())

    def problem(self, entries: Entries) -> Problem:
        """Loss of the network on entries."""
        if self.method == "adam":
            return sparse_completion(entries.rows, entries.columns, entries.values, self.padded)
        target, mask = (np.zeros((self.padded[-1], self.padded[0])) for _ in range(2))
        target[entries.rows, entries.columns] = entries.values
        mask[entries.rows, entries.columns] = 1.0
        return Problem(DeepLinear(self.padded), Completion(target, mask))

    def stations(self, entries: Entries, params: tuple[np.ndarray, ...], least: float) -> Iterator[Any]:
        """Trajectories that end at one level of the loss after the other; `least` is where the levels end."""
        problem = self.problem(entries)
        if self.method == "adam":
            run = simulate(problem, params, Adam(RATE), horizon=STRIDE, every=STRIDE)
            for end in itertools.count(2 * STRIDE, STRIDE):
                yield _sound(run)
                run = resume(run, problem, Adam(RATE), horizon=end, every=STRIDE)
        flow, first = GradientFlow(RTOL), 0.5 * float(np.sum(entries.values**2))
        begin = 0.5 * float(np.sum((self.factors(params).at(entries.rows, entries.columns) - entries.values) ** 2))
        level, last, run = min(begin, first), begin, None
        while level > least * first:
            level *= LEVEL if level > LATE * first else LATER
            settings: dict[str, Any] = {"until": until(loss, below=level), "every": 10**9, "max_steps": MOST_STEPS}
            run = simulate(problem, params, flow, **settings) if run is None else resume(run, problem, flow, **settings)
            yield _sound(run)
            now = float(run["loss"][-1])
            if run.result is RESULTS.step_limit and (now > (1 - REST) * last) and now < (1 - REST) * begin:
                return
            if run.result not in (RESULTS.stopped, RESULTS.step_limit):  # at rest
                return
            level, last = min(begin, now), now

    def until_error(self, entries: Entries, params: tuple[np.ndarray, ...], error: float) -> tuple[np.ndarray, ...]:
        """Layers where the root mean square residual is `error`, or where no more is learnt."""
        method = Adam(RATE) if self.method == "adam" else GradientFlow(RTOL)
        rule = until(loss, below=0.5 * len(entries) * error**2)
        most = 10 * MOST_STEPS if self.method == "adam" else 50 * MOST_STEPS
        return _sound(simulate(self.problem(entries), params, method, until=rule, every=10**9, max_steps=most)).params


def _sound(run: Any) -> Any:
    """A run that did not break down and was not interrupted."""
    if run.result is RESULTS.interrupted:
        raise KeyboardInterrupt
    if run.result.failed:
        raise NumericalError(run.result, "The values may be too far apart in size; try scaling='columns'.")
    return run


def follow(
    learner: Learner,
    fitted: Entries,
    held: Entries,
    params: tuple[np.ndarray, ...],
    *,
    tolerance: float,
    most: int,
    report: Callable[[int, float, float], None],
) -> tuple[Path, tuple[np.ndarray, ...]]:
    """Go down the levels until the entries held out get worse, the residual is small, or `most` levels are seen.

    Args:
        learner: The network.
        fitted: Entries to learn, in units of one.
        held: Entries to look at.
        params: Start.
        tolerance: Root mean square residual, relative to that of zero, at which the path ends.
        most: Levels at the most.
        report: Told level, error and error on the entries held out.

    Returns:
        The path, and the layers at its best point.
    """
    rows, best, error = [], params, np.inf
    since, steps, needed = 0, 0, 0
    size = rms(fitted.values)
    for count, run in enumerate(learner.stations(fitted, params, tolerance**2), start=1):
        factors = learner.factors(run.params)
        train = float(np.sqrt(2 * float(run["loss"][-1]) / len(fitted)))
        seen = rms(factors.at(held.rows, held.columns) - held.values) if len(held) else np.nan
        rows.append((float(run.times[-1]), train, seen, _effective_rank(factors.singular_values())))
        report(count, train, seen)
        since, steps = since + 1, steps + int(run.stats["accepted_steps"])
        if not len(held) or seen < error:
            best, error, since, needed = run.params, seen if len(held) else np.inf, 0, steps
        lost = steps > (1 + LONGER) * needed + MOST_STEPS
        patience = 1 if lost else IMPATIENCE if seen > WORSE * error else PATIENCE
        if since >= patience or count >= most or train <= tolerance * size:
            break
    times, errors, unseen, ranks = (np.array(column) for column in zip(*rows, strict=True))
    return Path(times, errors, unseen, ranks), best


def _effective_rank(values: np.ndarray) -> float:
    return float(spectrum_effective_rank(values)) if values.any() else 0.0


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values**2)))
