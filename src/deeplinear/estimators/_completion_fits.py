"""Fits of a matrix from several starts, cold or on from the network of an earlier fit, and when to doubt the latter."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from deeplinear.estimators._learning import Layers, Learner, Path, follow, rms
from deeplinear.estimators._observed import Entries, Frame, framed

ENOUGH = 20
"""Entries from which on some are held out."""
LESS_SURE = 1.5
"""Factor by which errors held out may grow from fit to fit before a warm start is doubted."""


class CompletionProgress(NamedTuple):
    """How far a fit is: restart (from 0) of how many, levels of the loss so far, root mean square errors in units of
    the data's spread on the entries that are fitted and on those held out."""

    restart: int
    restarts: int
    level: int
    error: float
    held_out: float


class Settings(NamedTuple):
    """What a fit needs to know, as in `DeepMatrixCompletion`; one seed for each restart."""

    seeds: Sequence[int]
    scale: float
    held_out: float
    tolerance: float
    max_levels: int
    progress: Callable[[CompletionProgress], None] | None


@dataclasses.dataclass(frozen=True)
class Fits:
    """Networks of all restarts in one frame.

    Attributes:
        learner: The network.
        frame: Offsets and units.
        seen: Entries in units of one.
        paths: One for each restart.
        layers: Likewise.
        missed: What was missed of all entries held out, in units of the data.
        plain: What offsets alone miss of these.
    """

    learner: Learner
    frame: Frame
    seen: Entries
    paths: tuple[Path, ...]
    layers: tuple[Layers, ...]
    missed: np.ndarray
    plain: np.ndarray

    @property
    def error(self) -> float:
        """Root mean square error on entries held out, in units of the data; NaN if there were none."""
        return rms(self.missed) if len(self.missed) else float("nan")

    @property
    def residual(self) -> float:
        """Root mean square residual on all entries, in units of the data."""
        found = [self.learner.factors(layers).at(self.seen.rows, self.seen.columns) for layers in self.layers]
        return rms((np.array(found) - self.seen.values) * self.frame.spreads(self.seen.columns))


def fits(
    where: str,
    learner: Learner,
    entries: Entries,
    frame: Frame,
    candidates: np.ndarray,
    starts: Sequence[Layers],
    settings: Settings,
) -> Fits:
    """Fit from every seed.

    Entries that are held out do not take part in anything before they are looked at, offsets and units included.

    Args:
        where: Name of the estimator, for messages.
        learner: The network.
        entries: As they were observed.
        frame: Offsets and units.
        candidates: Positions of the entries out of which some are held out.
        starts: Networks to go on from; cold if there are none.
        settings: Of the fit.
    """
    seen = entries.of(frame.inner(entries))
    paths, layers, missed, plain = [], [], [], []
    for restart, seed in enumerate(settings.seeds):
        generator = np.random.default_rng(seed)
        start = learner.start(settings.scale, generator)
        held = np.zeros(len(seen), dtype=bool)
        if len(candidates) >= ENOUGH:
            held[generator.choice(candidates, round(settings.held_out * len(candidates)), replace=False)] = True
            held &= ~_last_of_columns(entries, held)
        first = starts[restart % len(starts)] if starts else start
        blind = frame if starts or not held.any() else framed(where, entries.part(~held), frame.offsets, frame.scaling)
        fitted, rest = (part.of(blind.inner(part)) for part in (entries.part(~held), entries.part(held)))
        path, params, gaps = _one(learner, seen, fitted, rest, first, restart, settings)
        units = blind.spreads(rest.columns)
        paths.append(path)
        layers.append(params)
        missed.append(gaps * units)
        plain.append(rest.values * units)
    return Fits(learner, frame, seen, tuple(paths), tuple(layers), np.concatenate(missed), np.concatenate(plain))


def _last_of_columns(entries: Entries, held: np.ndarray) -> np.ndarray:
    """The first entry held out of each column of which nothing else would be left."""
    left = np.bincount(entries.columns[~held], minlength=entries.shape[1])
    bare = np.flatnonzero(held & (left[entries.columns] == 0))
    _, first = np.unique(entries.columns[bare], return_index=True)
    return np.isin(np.arange(len(entries)), bare[first])


def _one(
    learner: Learner, seen: Entries, fitted: Entries, rest: Entries, first: Layers, restart: int, settings: Settings
) -> tuple[Path, Layers, np.ndarray]:
    """A path with some entries held out, then down to the same error with all; and what was missed of those held out.

    Where all entries together do not come down to that error, the network of the path stays.
    """
    if not np.any(fitted.values):  # offsets are all there is
        nothing = np.zeros(1)
        zero = tuple(np.zeros_like(layer) for layer in first)
        return Path(nothing, nothing, nothing + np.nan, nothing), zero, -rest.values

    def report(level: int, error: float, held_out: float) -> None:
        if settings.progress is not None:
            settings.progress(CompletionProgress(restart, len(settings.seeds), level, error, held_out))

    path, params = follow(
        learner,
        fitted,
        rest,
        first,
        tolerance=settings.tolerance,
        most=settings.max_levels,
        report=report,
    )
    missed = learner.factors(params).at(rest.rows, rest.columns) - rest.values
    whole = learner.until_error(seen, first, path.errors[path.best]) if len(rest) else None
    return path, params if whole is None else whole, missed


def doubtful(found: Fits, fresh: int, before: float, settings: Settings) -> bool:
    """Whether fits that went on from earlier ones may have got stuck, so that a cold start should be tried.

    At depth 3 and more, directions that the old entries did not need have faded, and the path may end on a plateau
    before they are back. Doubtful are fits where more entries are new than old; where entries held out are predicted no
    better than by offsets, or much worse than before; where nothing is held out and the residual did not come down.

    Args:
        found: The fits.
        fresh: Number of new entries.
        before: Error on entries held out of the earlier fit, or NaN.
        settings: Of the fits.
    """
    if 2 * fresh > len(found.seen):
        return True
    if len(found.missed):
        return found.error >= rms(found.plain) or found.error > LESS_SURE * before
    enough = (1 + 1e-6) * settings.tolerance * rms(found.seen.values)
    return any(path.errors[-1] > enough and len(path.times) < settings.max_levels for path in found.paths)
