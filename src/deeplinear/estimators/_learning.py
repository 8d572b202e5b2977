r"""Completion of a matrix by a deep linear network from a small start, stopped by entries that it has not seen.

The network learns the directions of the data one after the other, strong ones first. Its loss therefore falls through
a sequence of ranks, and the error on entries that were held out has a minimum on the way if the data are noisy. The
path is followed by levels of the loss, each a fixed factor below the last.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from deeplinear.core import RESULTS, NumericalError, spectrum_effective_rank
from deeplinear.dynamics import Adam, GradientFlow, resume, simulate, until
from deeplinear.estimators._base import filled_up, matched_std
from deeplinear.estimators._observed import Entries
from deeplinear.models import Completion, DeepLinear, Problem, sparse_completion
from deeplinear.probes import loss

DENSE = 4_000_000
"""Size of a matrix up to which its product is formed; above, the network is looked at in the observed entries only."""
LEAST, NARROW = 32, 8
"""Smallest side that is worked with, and smallest number of hidden units beside larger sides."""
LEVEL, LATER, LATE = 0.95, 0.8, 0.01
"""Factor from a level of the loss to the next, factor below `LATE` of the first, where curves are straight."""
PATIENCE, IMPATIENCE, WORSE, LONGER = 15, 8, 1.1, 2
"""Stations without a better error on the entries held out after which a path ends; fewer, if it has grown by a factor
(a network on its way from one rank to the next may be worse for a while); at once, if it has grown at all and so many
times the steps were made that led to the best."""
LONG, HELPED = 45, 0.9
"""The same for three layers and more, whose first directions may be wrong ones for long, and for a network that was
never below this part of the error of offsets."""
RTOL = 1e-3
MOST_STEPS = 100
"""Steps after which a station is made although its level is not reached."""
MOST_PARTS, MOST_ADAM = 50, 1000
"""So often such steps are taken, and so many of Adam, to come down to one error."""
REST = 1e-3
"""Relative change of the loss from station to station below which the network has no more to learn."""
RATE, STRIDE = 0.05, 2
"""Adam: learning rate, and steps between two looks at the entries held out."""
CHUNK = 1 << 18


Layers = tuple[np.ndarray, ...]


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


def mean_of(factors: Sequence[Factors]) -> Factors:
    """The mean of products."""
    return Factors(
        np.concatenate([one.left for one in factors], axis=1) / len(factors),
        np.concatenate([one.right for one in factors], axis=0),
    )


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
    def sizes(self) -> tuple[int, ...]:
        """Widths of the network, input first."""
        return (self.shape[1], *(self.width,) * (self.depth - 1), self.shape[0])

    @property
    def padded(self) -> tuple[int, ...]:
        """Widths that are worked with, input first."""
        if self.method == "adam":
            return self.sizes
        height, width = (filled_up(size, LEAST) for size in self.shape)
        hidden = filled_up(self.width, NARROW if max(height, width) > 2 * LEAST else LEAST)
        return (width, *(hidden,) * (self.depth - 1), height)

    def start(self, scale: float, generator: np.random.Generator) -> Layers:
        """Gaussian layers of one size whose product has entries of standard deviation `scale`."""
        std, shapes = matched_std(scale, self.sizes), itertools.pairwise(self.sizes)
        return self.filled([std * generator.standard_normal((out, inp)) for inp, out in shapes])

    def filled(self, layers: Sequence[np.ndarray]) -> Layers:
        """Layers of the network with zeros around them."""
        shapes = itertools.pairwise(self.padded)
        return tuple(
            np.pad(layer, ((0, out - layer.shape[0]), (0, inp - layer.shape[1])))
            for layer, (inp, out) in zip(layers, shapes, strict=True)
        )

    def factors(self, params: Layers) -> Factors:
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

    def stations(self, entries: Entries, params: Layers, least: float) -> Iterator[Any]:
        """Trajectories that end at one level of the loss after the other; `least` is where the levels end."""
        problem = self.problem(entries)
        if self.method == "adam":
            run = simulate(problem, params, Adam(RATE), horizon=STRIDE, every=STRIDE)
            for end in itertools.count(2 * STRIDE, STRIDE):
                yield _sound(run)
                run = resume(run, problem, Adam(RATE), horizon=end, every=STRIDE)
        first = 0.5 * float(np.sum(entries.values**2))
        begin = self._loss(entries, params)
        level, run = min(begin, first), None
        while level > least * first:
            level *= LEVEL if level > LATE * first else LATER
            before = begin if run is None else _last_loss(run)
            run = self._down(problem, params if run is None else run, level)
            yield run
            if run.result is not RESULTS.stopped and not _moving(run, before, begin):
                return
            level = min(begin, _last_loss(run))

    def until_error(self, entries: Entries, params: Layers, error: float) -> Layers | None:
        """Layers where the root mean square residual is `error`, or nothing if the path does not lead there."""
        problem, level = self.problem(entries), 0.5 * len(entries) * error**2
        if self.method == "adam":
            rule = until(loss, below=level)
            run = _sound(simulate(problem, params, Adam(RATE), until=rule, every=10**9, max_steps=MOST_ADAM))
            return run.params if run.result is RESULTS.stopped else None
        begin = before = self._loss(entries, params)
        run: Any = params
        for _ in range(MOST_PARTS):
            run = self._down(problem, run, level)
            if run.result is RESULTS.stopped:
                return run.params
            if not _moving(run, before, begin):
                return None
            before = _last_loss(run)
        return None

    def _loss(self, entries: Entries, params: Layers) -> float:
        return 0.5 * float(np.sum((self.factors(params).at(entries.rows, entries.columns) - entries.values) ** 2))

    def _down(self, problem: Problem, begin: Any, level: float) -> Any:
        """The flow, from layers or on from a run, down to a level of the loss; `MOST_STEPS` steps at the most."""
        flow, rule = GradientFlow(RTOL), until(loss, below=level)
        if isinstance(begin, tuple):
            return _sound(simulate(problem, begin, flow, until=rule, every=10**9, max_steps=MOST_STEPS))
        return _sound(resume(begin, problem, flow, until=rule, every=10**9, max_steps=MOST_STEPS))


def _last_loss(run: Any) -> float:
    return float(run["loss"][-1])


def _moving(run: Any, before: float, begin: float) -> bool:
    """Whether a run that has not reached its level may do so yet: it ran out of steps, and the loss still falls, or it
    has not left its first plateau."""
    now = _last_loss(run)
    return run.result is RESULTS.step_limit and not (1 - REST) * before < now < (1 - REST) * begin


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
    params: Layers,
    *,
    tolerance: float,
    most: int,
    report: Callable[[int, float, float], None],
) -> tuple[Path, Layers]:
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
    size, plain = rms(fitted.values), rms(held.values) if len(held) else np.inf
    for count, run in enumerate(learner.stations(fitted, params, tolerance**2), start=1):
        factors = learner.factors(run.params)
        train = float(np.sqrt(2 * _last_loss(run) / len(fitted)))
        seen = rms(factors.at(held.rows, held.columns) - held.values) if len(held) else np.nan
        rows.append((float(run.times[-1]), train, seen, effective_rank_of(factors.singular_values())))
        report(count, train, seen)
        since, steps = since + 1, steps + int(run.stats["accepted_steps"])
        if not len(held) or seen < error:
            best, error, since, needed = run.params, seen if len(held) else np.inf, 0, steps
        lost = steps > (1 + LONGER) * needed + MOST_STEPS
        if error > HELPED * plain:
            patience = LONG
        elif lost:
            patience = 1
        else:
            patience = LONG if learner.depth > 2 else IMPATIENCE if seen > WORSE * error else PATIENCE
        if since >= patience or count >= most or train <= tolerance * size:
            break
    times, errors, unseen, ranks = (np.array(column) for column in zip(*rows, strict=True))
    return Path(times, errors, unseen, ranks), best


def effective_rank_of(values: np.ndarray) -> float:
    """Effective rank of singular values, 0 if all vanish."""
    return float(spectrum_effective_rank(values)) if values.any() else 0.0


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values**2)))
