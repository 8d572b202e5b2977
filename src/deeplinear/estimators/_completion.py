"""Matrix completion as a scikit-learn transformer."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from deeplinear.core import check_count, check_number
from deeplinear.estimators._base import in_64_bit
from deeplinear.estimators._completion_fits import CompletionProgress, Fits, Settings, doubtful, fits
from deeplinear.estimators._learning import DENSE, Factors, Learner, effective_rank_of, mean_of, rms
from deeplinear.estimators._mask_report import mask_report
from deeplinear.estimators._observed import Entries, checked_places, framed, listed, observed

WHERE = "DeepMatrixCompletion"
WIDTH = 32
"""Hidden units, if nothing is said; fewer where the matrix is narrower."""
SMALL = 0.01
"""Part of the largest singular value from which on one counts for `rank_`."""
LARGEST = 200_000_000
"""Entries of a matrix up to which it is written out."""


class PlasticityWarning(UserWarning):
    """A warm start is, or may be, worse than a cold one: the network has lost the ability to learn what is new."""


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
            are then taken from those that are new. At depth 2 this can cost rank for good, and at any depth the network
            may get stuck; where that is in doubt (most entries are new, or they are predicted no better than by
            offsets, or much worse than before) a cold start is tried too and the better one taken. A
            `PlasticityWarning` says so.
        method: `"flow"`, `"adam"`, or `"auto"`: flow up to four million entries of the whole matrix, and above that
            Adam on the observed entries only, whose cost does not depend on the size of the matrix.
        random_state: Seed of starts and of what is held out.
        progress: Called with a `CompletionProgress` at every level.

    Attributes:
        rank_: Singular values of the network's part above 1 % of the largest.
        singular_values_: Of the network's part, in units of the data's spread.
        effective_rank_: Effective rank of the network's part; 0 if that vanishes.
        effective_rank_path_: Effective rank at each level of the (first) fit; `path_` has times and errors too.
        held_out_error_: Root mean square error on entries held out, in units of the data; NaN if there were none. The
            fit that it is of has not seen them, neither its network nor its offsets and units; but they chose where to
            stop, so it is somewhat too good. After a warm start without new ones to hold
            out it is still that of the fit before.
        mask_report_: What the pattern of observed entries can say; prints as text.
        scaling_: Units that were chosen.
        offsets_: Offsets that were chosen.
        method_: Method that was chosen.
        warm_started_: Whether the network went on from that of the last fit.
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
        settings = Settings(
            [int(seed) for seed in seeds],
            self.scale,
            self.held_out,
            self.tolerance,
            self.max_levels,
            self.progress,
        )
        learner, asked = self._learner(entries), (self.offsets, self.scaling)
        before = getattr(self, "_fitted", None) if self.warm_start else None
        self.warm_started_ = before is not None and (before.fits.learner, before.asked) == (learner, asked)
        if before is not None and self.warm_started_:
            found = self._go_on(before.fits, entries, settings)
        else:
            found = fits(WHERE, learner, entries, framed(WHERE, entries, *asked), np.arange(len(entries)), (), settings)
        if not self.warm_started_ or len(found.missed):
            self.held_out_error_ = found.error
        factors = tuple(learner.factors(params) for params in found.layers)
        self._fitted = _Fitted(found, asked, factors, mean_of(factors))
        self._tell(entries)

    def _go_on(self, before: Fits, entries: Entries, settings: Settings) -> Fits:
        """Fits from the networks of earlier ones, or from a cold start where these are doubtful and it is better."""
        self._warn()
        inner = entries.of(before.frame.inner(entries))
        fresh = np.flatnonzero(_new(inner, before.seen))
        if not len(fresh):
            return dataclasses.replace(before, seen=inner, missed=np.zeros(0), plain=np.zeros(0))
        warm = fits(WHERE, before.learner, entries, before.frame, fresh, before.layers, settings)
        if not doubtful(warm, len(fresh), self.held_out_error_, settings):
            return warm
        frame = framed(WHERE, entries, self.offsets, self.scaling)
        cold = fits(WHERE, before.learner, entries, frame, fresh, (), settings)
        what = "error on entries held out" if len(warm.missed) else "residual"
        ends = [one.error if len(warm.missed) else one.residual for one in (warm, cold)]
        if ends[1] >= ends[0]:
            return warm
        warnings.warn(
            f"{WHERE}: going on from the last fit ends at a root mean square {what} of {ends[0]:.4g}, a cold start at "
            f"{ends[1]:.4g}; the cold one is taken. Where most entries are new, warm_start=False saves the time of the "
            "other.",
            PlasticityWarning,
            stacklevel=5,
        )
        self.warm_started_ = False
        return cold

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
        parts = self.mask_report_.parts
        if self.depth == 2 and parts > 1:
            warnings.warn(
                f"{WHERE}: the entries of the last fit fall into {parts} parts that are not joined. At depth 2 a "
                "network learns such parts apart from each other, and their sum has a high rank that it keeps when "
                "entries that join them arrive. Take warm_start=False.",
                PlasticityWarning,
                stacklevel=6,
            )

    def _tell(self, entries: Entries) -> None:
        """Attributes that a user reads."""
        found = self._fitted.fits
        self.path_ = found.paths[0]
        self.effective_rank_path_ = self.path_.ranks
        self.n_iter_ = max(len(path.times) for path in found.paths)
        self.singular_values_ = self._fitted.mean.singular_values()[: min(entries.shape)]
        largest = self.singular_values_.max(initial=0.0)
        self.effective_rank_ = effective_rank_of(self.singular_values_)
        self.rank_ = int(np.sum(self.singular_values_ > SMALL * largest)) if largest > 0 else 0
        self.scaling_ = found.frame.scaling
        self.offsets_ = found.frame.offsets
        self.method_ = found.learner.method
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
        found = self._fitted.fits
        row, column = checked_places(f"{WHERE}.predict_entries", rows, columns, found.learner.shape)
        scale = found.frame.spreads(column)
        values = found.frame.base(row, column) + scale * self._fitted.mean.at(row, column)
        return (values, scale * self._spread(row, column)) if return_std else values

    def complete(self, *, return_std: bool = False) -> Any:
        """The whole matrix of the fit as the network has it, observed entries too.

        Args:
            return_std: Give also the standard deviation over restarts, of which there must be at least 2.
        """
        check_is_fitted(self)
        height, width = self._fitted.fits.learner.shape
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
        found = self._fitted.fits
        return (
            entries.shape == found.seen.shape
            and np.array_equal(entries.places, found.seen.places)
            and bool(np.allclose(found.frame.inner(entries), found.seen.values, rtol=1e-9, atol=1e-12))
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
        frame, factors = self._fitted.fits.frame, self._fitted.mean
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
        held_out = self.path_.held_out[self.path_.best]
        seen = self._fitted.fits.seen
        return (
            float(held_out)
            if np.isfinite(held_out)
            else rms(self._fitted.mean.at(seen.rows, seen.columns) - seen.values)
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


@dataclasses.dataclass(frozen=True)
class _Fitted:
    """What a fit leaves: networks of all restarts, what offsets and units were asked for, the networks' products as two
    factors each, and the mean of these."""

    fits: Fits
    asked: tuple[str, str]
    factors: tuple[Factors, ...]
    mean: Factors


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
