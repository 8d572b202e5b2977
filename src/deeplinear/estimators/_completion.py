"""Matrix completion as a scikit-learn transformer."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from deeplinear.core import check_count, check_number
from deeplinear.estimators._base import in_64_bit
from deeplinear.estimators._learning import DENSE, Factors, Learner, Path, follow, rms
from deeplinear.estimators._mask_report import mask_report
from deeplinear.estimators._observed import Entries, Frame, checked_places, framed, listed, observed

WHERE = "DeepMatrixCompletion"
WIDTH = 32
"""Hidden units, if nothing is said; fewer where the matrix is narrower."""
ENOUGH = 20
"""Entries from which on some are held out."""
SMALL = 0.01
"""Part of the largest singular value from which on one counts for `rank_`."""
LARGEST = 200_000_000
"""Entries of a matrix up to which it is written out."""


class PlasticityWarning(UserWarning):
    """A network of depth 2 goes on from entries whose parts were not joined; a fresh start may find a lower rank."""


class CompletionProgress(NamedTuple):
    """How far a fit is: restart (from 0) of how many, levels of the loss so far, root mean square errors in units of
    the data's spread on the entries that are fitted and on those held out."""

    restart: int
    restarts: int
    level: int
    error: float
    held_out: float


class DeepMatrixCompletion(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Complete a matrix by a deep linear network $W_L\cdots W_1$ that learns from the entries that are there.

    From a small start the network finds directions one after the other, the strongest first, so it fits with the least
    rank that does; the deeper, the more so. Training is gradient flow, stopped where entries that were held out are
    predicted best, and then repeated on all entries down to the same error. Offsets of rows and columns are taken off
    before.

    As a transformer it is an imputer: what is observed stays as it is, what is missing is filled in.

    Args:
        depth: Layers, 2 or more. More layers favour lower ranks.
        width: Hidden units; by default 32, or fewer where the matrix is narrower.
        scale: Standard deviation of the entries of the product at the start, in units of the data's spread.
        offsets: What is taken off before: `"both"`, `"rows"`, `"columns"`, `"mean"` or `"none"`; with `"auto"` those of
            columns, and of rows too where columns can be compared, that is, where they do not have units of their own.
        scaling: Units: one for each column (`"columns"`), one for all (`"one"`), those of the data (`"none"`), or
            `"auto"`: columns, if the spreads of many of them differ by more than a factor of five, or if their means
            lie apart by more than their spreads.
        held_out: Part of the entries that decides where to stop; with 0 the fit goes on to `tolerance`.
        tolerance: Root mean square residual, relative to the spread of the data, at which a fit ends at the latest.
        max_levels: Levels of the loss after which a fit ends at the latest. They lie 5 % apart, below a hundredth of
            the first loss 20 %; where 100 steps do not reach the next one, these count as one.
        restarts: Fits from different starts and with different entries held out; predictions are their mean, and their
            spread says what depends on chance. It is no bound on errors: rows with few entries fall back to their
            offsets in every fit; `mask_report_` names them, and `held_out_error_` tells the size of errors.
        warm_start: Whether `fit` goes on from the network of the last fit if the shape is the same. Entries held out
            are then taken from those that are new. At depth 2 this can cost rank for good: see `PlasticityWarning`.
        method: `"flow"`, `"adam"`, or `"auto"`: flow up to four million entries of the whole matrix, and above that
            Adam on the observed entries only, whose cost does not depend on the size of the matrix.
        random_state: Seed of starts and of what is held out.
        progress: Called with a `CompletionProgress` at every level.

    Attributes:
        rank_: Singular values of the network's part above 1 % of the largest.
        singular_values_: Of the network's part, in units of the data's spread.
        effective_rank_path_: Effective rank at each level of the (first) fit; `path_` has times and errors too.
        held_out_error_: Root mean square error on entries held out, in units of the data; NaN if there were none. These
            entries also chose where to stop, so it is somewhat too good. After a warm start without new ones to hold
            out it is still that of the fit before.
        mask_report_: What the pattern of observed entries can say; prints as text.
        scaling_: Units that were chosen.
        offsets_: Offsets that were chosen.
        method_: Method that was chosen.
        n_iter_: Levels of the longest fit.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> truth = np.outer(rng.standard_normal(30), rng.standard_normal(20))
        >>> seen = np.where(rng.random((30, 20)) < 0.6, truth, np.nan)
        >>> filled = DeepMatrixCompletion(depth=3, random_state=0).fit_transform(seen)
        >>> bool(np.abs(filled - truth).max() < 0.02 * np.abs(truth).max())
        True
    """

    def __init__(
        self,
        depth: int = 2,
        width: int | None = None,
        *,
        scale: float = 1e-4,
        offsets: str = "auto",
        scaling: str = "auto",
        held_out: float = 0.1,
        tolerance: float = 1e-4,
        max_levels: int = 1000,
        restarts: int = 1,
        warm_start: bool = False,
        method: str = "auto",
        random_state: Any = None,
        progress: Callable[[CompletionProgress], None] | None = None,
    ) -> None:
        self.depth = depth
        self.width = width
        self.scale = scale
        self.offsets = offsets
        self.scaling = scaling
        self.held_out = held_out
        self.tolerance = tolerance
        self.max_levels = max_levels
        self.restarts = restarts
        self.warm_start = warm_start
        self.method = method
        self.random_state = random_state
        self.progress = progress

    # --- Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> "DeepMatrixCompletion":
        """Learn from a matrix.

        Args:
            X: Matrix with NaN where nothing is known (array, data frame), or a sparse matrix whose stored entries are
                those that are known.
            y: Ignored.
        """
        X = validate_data(self, X, accept_sparse=("csr", "csc", "coo"), dtype="numeric", ensure_all_finite="allow-nan")
        self._learn(observed(X))
        self._rows = None if scipy.sparse.issparse(X) else {_fingerprint(row): i for i, row in enumerate(_plain(X))}
        return self

    def fit_entries(self, rows: Any, columns: Any, values: Any, shape: Any = None) -> "DeepMatrixCompletion":
        """Learn from a list of entries.

        Args:
            rows: Row of each, from 0 on.
            columns: Column of each.
            values: Value of each.
            shape: Of the matrix; by default as large as the entries need.
        """
        entries = listed(f"{WHERE}.fit_entries", rows, columns, values, shape)
        self.n_features_in_ = entries.shape[1]
        vars(self).pop("feature_names_in_", None)
        self._learn(entries)
        self._rows = None
        return self

    @in_64_bit
    def _learn(self, entries: Entries) -> None:
        self._check(entries)
        seeds = check_random_state(self.random_state).randint(np.iinfo(np.int32).max, size=self.restarts)
        learner, asked = self._learner(entries), (self.offsets, self.scaling)
        before = getattr(self, "_fitted", None) if self.warm_start else None
        if before is not None and (before.learner, before.asked) != (learner, asked):
            before = None
        if before is not None:
            self._warn()
        frame = framed(WHERE, entries, *asked) if before is None else before.frame
        inner = entries.of(frame.inner(entries))
        paths, layers, errors = [], [], []
        for restart, seed in enumerate(seeds):
            start = None if before is None else before.layers[restart % len(before.layers)]
            old = None if before is None else before.seen
            path, params, residual = self._one(learner, inner, int(seed), restart, start, old)
            paths.append(path)
            layers.append(params)
            errors.append(residual.values * frame.scale * frame.units[residual.columns])
        factors = [learner.factors(params) for params in layers]
        mean = Factors(
            np.concatenate([one.left for one in factors], axis=1) / len(factors),
            np.concatenate([one.right for one in factors], axis=0),
        )
        if before is None or len(errors[0]):
            self.held_out_error_ = rms(np.concatenate(errors)) if len(errors[0]) else float("nan")
        self._fitted = _Fitted(learner, frame, tuple(layers), tuple(factors), mean, inner, asked)
        self._tell(entries, paths, mean)

    def _one(
        self,
        learner: Learner,
        inner: Entries,
        seed: int,
        restart: int,
        start: tuple[np.ndarray, ...] | None,
        seen: Entries | None,
    ) -> tuple[Path, tuple[np.ndarray, ...], Entries]:
        """One fit: a path with some entries held out, then down to the same error with all.

        Gives the path, the layers, and what was missed of the entries held out.
        """
        generator = np.random.default_rng(seed)
        first = learner.start(self.scale, generator) if start is None else start
        candidates = np.arange(len(inner)) if seen is None else np.flatnonzero(_new(inner, seen))
        count = round(self.held_out * len(candidates)) if len(candidates) >= ENOUGH else 0
        nothing = np.zeros(1)
        if not np.any(inner.values):  # offsets are all there is
            zero = tuple(np.zeros_like(layer) for layer in first)
            return Path(nothing, nothing, nothing + np.nan, nothing), zero, inner.part(candidates[:0])
        if seen is not None and not len(candidates):
            return self.path_, first, inner.part(candidates)
        chosen = np.zeros(len(inner), dtype=bool)
        chosen[generator.choice(candidates, count, replace=False)] = True

        def report(level: int, error: float, held_out: float) -> None:
            if self.progress is not None:
                self.progress(CompletionProgress(restart, self.restarts, level, error, held_out))

        fitted, held = inner.part(~chosen), inner.part(chosen)
        path, params = follow(
            learner, fitted, held, first, tolerance=self.tolerance, most=self.max_levels, report=report
        )
        missed = held.of(learner.factors(params).at(held.rows, held.columns) - held.values)
        if count:
            params = learner.until_error(inner, first, path.errors[path.best])
        return path, params, missed

    def _check(self, entries: Entries) -> None:
        check_count(WHERE, "depth", self.depth, at_least=2)
        if self.width is not None:
            check_count(WHERE, "width", self.width, at_least=1)
        check_number(WHERE, "scale", self.scale, above=0)
        check_number(WHERE, "held_out", self.held_out, at_least=0, at_most=0.9)
        check_number(WHERE, "tolerance", self.tolerance, above=0, at_most=1)
        check_count(WHERE, "max_levels", self.max_levels, at_least=1)
        check_count(WHERE, "restarts", self.restarts, at_least=1)
        if self.method not in ("auto", "flow", "adam"):
            raise ValueError(f"{WHERE}: method must be 'auto', 'flow' or 'adam', but is {self.method!r}.")
        if not len(entries):
            raise ValueError(f"{WHERE}: X must hold at least one entry that is not missing, but holds none.")
        if not np.all(np.isfinite(entries.values)):
            raise ValueError(f"{WHERE}: X must not hold infinity; NaN marks what is missing.")

    def _learner(self, entries: Entries) -> Learner:
        height, width = entries.shape
        hidden = min(WIDTH, height, width) if self.width is None else int(self.width)
        method = ("flow" if height * width <= DENSE else "adam") if self.method == "auto" else self.method
        return Learner(entries.shape, int(self.depth), hidden, method)

    def _warn(self) -> None:
        """The theory's warning: at depth 2 the parts of a disconnected pattern are learnt apart from each other."""
        parts = len(self.mask_report_.connectivity.components)
        if self.depth == 2 and parts > 1:
            warnings.warn(
                f"{WHERE}: the entries of the last fit fall into {parts} parts that are not joined. At depth 2 a "
                "network learns such parts apart from each other, and their sum has a high rank that it keeps when "
                "entries that join them arrive. Take warm_start=False.",
                PlasticityWarning,
                stacklevel=4,
            )

    def _tell(self, entries: Entries, paths: list[Path], mean: Factors) -> None:
        """Attributes that a user reads."""
        fitted = self._fitted
        self.path_ = paths[0]
        self.effective_rank_path_ = paths[0].ranks
        self.n_iter_ = max(len(path.times) for path in paths)
        self.singular_values_ = mean.singular_values()[: min(entries.shape)]
        largest = self.singular_values_.max(initial=0.0)
        self.rank_ = int(np.sum(self.singular_values_ > SMALL * largest)) if largest > 0 else 0
        self.scaling_ = fitted.frame.scaling
        self.offsets_ = fitted.frame.offsets
        self.method_ = fitted.learner.method
        self.mask_report_ = mask_report(entries, self.rank_)

    # --- Predicting ---------------------------------------------------------------------------------------------------

    def predict_entries(self, rows: Any, columns: Any, *, return_std: bool = False) -> Any:
        """What the network says at some entries, observed or not.

        Args:
            rows: Row of each, from 0 on.
            columns: Column of each.
            return_std: Give also the standard deviation over restarts, of which there must be at least 2.
        """
        check_is_fitted(self)
        fitted = self._fitted
        row, column = checked_places(f"{WHERE}.predict_entries", rows, columns, fitted.learner.shape)
        scale = fitted.frame.scale * fitted.frame.units[column]
        values = fitted.frame.base(row, column) + scale * fitted.mean.at(row, column)
        return (values, scale * self._spread(row, column)) if return_std else values

    def complete(self, *, return_std: bool = False) -> Any:
        """The whole matrix of the fit as the network has it, observed entries too.

        Args:
            return_std: Give also the standard deviation over restarts, of which there must be at least 2.
        """
        check_is_fitted(self)
        height, width = self._fitted.learner.shape
        if height * width > LARGEST:
            raise ValueError(
                f"{WHERE}.complete: a matrix of {height} x {width} is too large to be written out; ask for the entries "
                "you need by predict_entries."
            )
        rows, columns = (index.ravel() for index in np.indices((height, width)))
        found = self.predict_entries(rows, columns, return_std=return_std)
        return tuple(one.reshape(height, width) for one in found) if return_std else found.reshape(height, width)

    def _spread(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        factors = self._fitted.factors
        if len(factors) < 2:
            raise ValueError(f"{WHERE}: return_std needs restarts=2 or more, but the fit had 1.")
        return np.std([one.at(rows, columns) for one in factors], axis=0, ddof=1)

    def transform(self, X: Any) -> np.ndarray:
        """Fill in what is missing.

        Rows of the fit are completed as the network learnt them. Other rows are completed from their own entries: the
        most likely row, if rows are drawn from the normal distribution that the network's rows have.

        Args:
            X: Matrix with NaN where nothing is known, or a sparse matrix, with the columns of the fit.
        """
        check_is_fitted(self)
        X = validate_data(
            self,
            X,
            accept_sparse=("csr", "csc", "coo"),
            dtype="numeric",
            ensure_all_finite="allow-nan",
            reset=False,
        )
        sparse = scipy.sparse.issparse(X)
        if X.shape[0] * X.shape[1] > LARGEST:
            raise ValueError(
                f"{WHERE}.transform: a matrix of {X.shape[0]} x {X.shape[1]} is too large to be written out; ask for "
                "the entries you need by predict_entries."
            )
        entries = observed(X)
        if sparse and self._same(entries):
            filled = self.complete()
        elif sparse:
            filled = self._new_rows(_written(entries))
        else:
            filled = self._rows_of(_plain(X))
        filled[entries.rows, entries.columns] = entries.values
        return filled

    def _same(self, entries: Entries) -> bool:
        seen = self._fitted.seen
        return (
            entries.shape == seen.shape
            and np.array_equal(entries.places, seen.places)
            and bool(np.allclose(self._fitted.frame.inner(entries), seen.values, rtol=1e-9, atol=1e-12))
        )

    def _rows_of(self, X: np.ndarray) -> np.ndarray:
        filled = X.copy()
        known = self._rows or {}
        places = np.array([known.get(_fingerprint(row), -1) for row in X], dtype=int)
        gaps = np.isnan(X)
        rows, columns = np.nonzero(gaps & (places >= 0)[:, None])
        if len(rows):
            filled[rows, columns] = self.predict_entries(places[rows], columns)
        new = np.flatnonzero((places < 0) & gaps.any(axis=1))
        if len(new):
            filled[new] = self._new_rows(X[new])
        return filled

    def _new_rows(self, X: np.ndarray) -> np.ndarray:
        r"""Posterior mean of rows $x = Vc + \text{noise}$, with $c$ as the rows of the fit have it on average."""
        frame, factors = self._fitted.frame, self._fitted.mean
        gram = factors.left.T @ factors.left / max(1, len(factors.left))
        strengths, directions = np.linalg.eigh(gram)
        kept = strengths > 1e-12 * max(strengths.max(initial=0.0), 1e-300)
        basis = (directions[:, kept] * np.sqrt(strengths[kept])).T @ factors.right  # rows are basis^T c, c standard
        noise = max(float(self._noise()), 1e-6)
        filled = np.empty(X.shape)
        for place, row in enumerate(X):
            columns = np.flatnonzero(~np.isnan(row))
            level, left = frame.row(columns, row[columns])
            seen = basis[:, columns]
            system = seen @ seen.T + noise**2 * np.eye(len(basis))
            weights = np.linalg.solve(system, seen @ left) if len(columns) and len(basis) else np.zeros(len(basis))
            filled[place] = level + frame.scale * frame.units * (weights @ basis)
        return filled

    def _noise(self) -> float:
        """Error on entries held out, or the residual, in units of the spread."""
        fitted = self._fitted
        seen = self.path_.held_out[self.path_.best]
        if np.isfinite(seen):
            return float(seen)
        return rms(fitted.mean.at(fitted.seen.rows, fitted.seen.columns) - fitted.seen.values)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


@dataclasses.dataclass(frozen=True)
class _Fitted:
    """What a fit leaves: networks of all restarts, their mean as two factors, the entries in units of one, and what
    offsets and units were asked for."""

    learner: Learner
    frame: Frame
    layers: tuple[tuple[np.ndarray, ...], ...]
    factors: tuple[Factors, ...]
    mean: Factors
    seen: Entries
    asked: tuple[str, str]


def _new(entries: Entries, seen: Entries) -> np.ndarray:
    """Which entries were not there, or had another value."""
    place = np.minimum(np.searchsorted(seen.places, entries.places), len(seen) - 1)
    there = seen.places[place] == entries.places
    return ~(there & np.isclose(seen.values[place], entries.values, rtol=1e-9, atol=1e-12))


def _fingerprint(row: np.ndarray) -> bytes:
    return np.where(np.isnan(row), np.nan, row).tobytes()


def _plain(matrix: Any) -> np.ndarray:
    return np.array(matrix, dtype=float)


def _written(entries: Entries) -> np.ndarray:
    matrix = np.full(entries.shape, np.nan)
    matrix[entries.rows, entries.columns] = entries.values
    return matrix
