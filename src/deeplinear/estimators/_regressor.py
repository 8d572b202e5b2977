"""Linear regression by a deep linear network."""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from deeplinear.core import check_count, check_number, near_name
from deeplinear.dynamics import Progress
from deeplinear.estimators._base import in_64_bit
from deeplinear.estimators._regression_data import WHERE, Frame, Rows, pooled_score
from deeplinear.estimators._regression_path import Ending, Layers, Path, follow, product

METHODS = ("auto", "flow", "closed form")
STARTS = ("aligned", "balanced", "gaussian")
BETWEEN = 15
"""Times that are looked at on either side of the best recorded one."""
QUIET = 1e-4
"""A flow rests where its gradient is below this, times the root of the tolerance and the size of the start."""
FEWEST = 2
"""Samples that must be left to learn from."""


class DeepLinearRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Linear regression by gradient flow of a deep linear network $W_L\cdots W_1$ from a small start.

    The network learns strong directions of the data first, the more so the deeper it is, and ends at least squares, of
    least norm where there are several. Stopped on the way it is regularised: by default where rows that were held out
    are predicted best, and then the path is repeated on all rows up to that time.

    The flow sees the data through second moments only, so its cost does not depend on the number of rows. Inputs and
    outputs are centred, inputs divided by the root of their largest variance and outputs by one number that makes their
    strongest correlation with the inputs 1; times and `scale` are in these units, and the path does not depend on the
    units of the data as a whole. It does depend on those of single columns: put a `StandardScaler` before.

    Args:
        depth: Layers.
        width: Hidden units; by default as many as the smaller of features and outputs, with which the network can learn
            every linear map. Fewer bound the rank.
        scale: Singular values of the product at the start (for `"gaussian"`, standard deviation of its entries).
        start: `"aligned"`, balanced layers whose product has the singular vectors of the correlations of inputs and
            outputs, as those of a far smaller start have when they have grown; `"balanced"` or `"gaussian"` layers at
            random; or a list of layers, such as `layers_` of another fit, with which this one goes on.
        method: `"flow"` integrates; `"closed form"` takes a formula, for one layer, or white inputs and a balanced
            start (of two layers, or aligned), and refuses where none applies; `"auto"` takes a formula where one does.
        whiten: Whether to learn from whitened inputs; `"auto"` does so for `"closed form"` with two or more layers.
        held_out: Part of the rows that decides where to stop; with 0 the path goes to its end.
        folds: How often this is done, with other rows each time; the mean error decides. 1 / `held_out` folds hold out
            every row once.
        time: Where the path ends at the latest; without, where the loss has come down to least squares.
        until: Mean squared training error at which the path ends.
        tolerance: Part of the loss, above that of least squares, at which the path ends.
        rtol: Relative tolerance of the integration.
        fit_intercept: Whether there is an intercept, so whether data are centred.
        random_state: Seed of what is held out and of random starts.
        progress: Called with a `Progress` of `deeplinear.dynamics` now and then.

    Attributes:
        coef_: Coefficients, (outputs, features), or (features,) if y has one dimension.
        intercept_: Intercepts, or one number.
        layers_: Layers at the stopping time, first-acting first; their product is the coefficients, or those of
            whitened inputs.
        whitening_: Matrix that whitens centred inputs, (rank, features), or `None`.
        stopping_time_: Time of the path at which the fit was stopped.
        times_: Recorded times of the path.
        modes_: Singular values of the product of layers at these times, (time, mode).
        limit_modes_: The same for least squares (of bounded rank, if the width bounds it), to which the path leads;
            zero for those that the data do not have.
        strengths_: Strengths at these times of the modes of least squares, $u_k^\top W_L\cdots W_1 v_k$ with their
            singular vectors, (time, mode). On inputs of unequal variances the singular vectors of the product are
            others on the way, so these are not `modes_`.
        learning_times_: For each mode of least squares the time at which its strength is at half of its limit;
            infinite if that is not up to the end of the path.
        training_path_: Mean squared error on all rows at these times.
        validation_path_: Mean squared error on rows held out, of the paths that have not seen them, or `None`.
        held_out_score_: R² of these paths on these rows, taken together, at the stopping time; NaN without them. The
            rows chose the time, so it is somewhat too good.
        time_unit_: A time of the path times this is one of gradient flow of $\tfrac1{2n}\sum\|Wx - y\|^2$ with layers
            like `layers_` on the centred (and whitened) data as they are.
        method_: `"gradient flow"`, or the closed form in words.
        converged_: Whether the path came down to least squares (or to `until`).
        n_features_in_: Number of features.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(100, 5))
        >>> y = X @ [2.0, -1.0, 0.0, 0.0, 0.0] + 0.1 * rng.normal(size=100)
        >>> model = DeepLinearRegressor(depth=1, random_state=0).fit(X, y)
        >>> model.method_, model.coef_.round(1)[:2].tolist()
        ('one layer, linear flow', [2.0, -1.0])
    """

    def __init__(
        self,
        depth: int = 2,
        width: int | None = None,
        *,
        scale: float = 1e-3,
        start: Any = "aligned",
        method: str = "auto",
        whiten: bool | str = "auto",
        held_out: float = 0.2,
        folds: int = 5,
        time: float | None = None,
        until: float | None = None,
        tolerance: float = 1e-6,
        rtol: float = 1e-8,
        fit_intercept: bool = True,
        random_state: Any = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.depth = depth
        self.width = width
        self.scale = scale
        self.start = start
        self.method = method
        self.whiten = whiten
        self.held_out = held_out
        self.folds = folds
        self.time = time
        self.until = until
        self.tolerance = tolerance
        self.rtol = rtol
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.progress = progress

    # --- Fitting ------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> "DeepLinearRegressor":
        """Learn from samples in rows.

        Args:
            X: Inputs, (samples, features).
            y: Outputs, (samples,) or (samples, outputs).
        """
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=FEWEST)
        y = np.asarray(y, dtype=float)
        self._check()
        self._flat = y.ndim == 1
        self._learn(X, y.reshape(len(y), -1))
        return self

    def _check(self) -> None:
        check_count(WHERE, "depth", self.depth, at_least=1)
        if self.width is not None:
            check_count(WHERE, "width", self.width, at_least=1)
        check_number(WHERE, "scale", self.scale, at_least=0, at_most=1)
        if isinstance(self.start, str) and self.start not in STARTS:
            raise ValueError(f"{WHERE}: start {self.start!r} is unknown. {near_name(self.start, STARTS)}")
        if isinstance(self.start, str) and self.scale == 0 and self.depth > 1:
            raise ValueError(f"{WHERE}: scale must be above 0 with two or more layers, as zero layers never move.")
        if self.method not in METHODS:
            raise ValueError(f"{WHERE}: method {self.method!r} is unknown. {near_name(str(self.method), METHODS)}")
        if not isinstance(self.whiten, bool | np.bool_) and self.whiten != "auto":
            raise ValueError(f"{WHERE}: whiten must be True, False or 'auto', but is {self.whiten!r}.")
        check_number(WHERE, "held_out", self.held_out, at_least=0, at_most=0.9)
        check_count(WHERE, "folds", self.folds, at_least=1)
        for name in ("time", "until"):
            if getattr(self, name) is not None:
                check_number(WHERE, name, getattr(self, name), above=0)
        check_number(WHERE, "tolerance", self.tolerance, above=0, at_most=1)
        check_number(WHERE, "rtol", self.rtol, at_least=1e-14, at_most=0.1)

    @in_64_bit
    def _learn(self, X: np.ndarray, Y: np.ndarray) -> None:
        random = check_random_state(self.random_state)
        white = self.whiten is True or (self.whiten == "auto" and self.method == "closed form" and self.depth > 1)
        every = not isinstance(self.start, str)
        frame = Frame.of(X, Y, int(self.depth), bool(self.fit_intercept), bool(white), every)
        draws = self._draws(random, X.shape[1], Y.shape[1])
        self.validation_path_, self.held_out_score_ = None, math.nan
        if self.held_out > 0:
            paths: list[Path] = []
            rests: list[Rows] = []
            for held in _held_out(random, len(X), float(self.held_out), int(self.folds)):
                part = Frame.of(X[~held], Y[~held], frame.depth, frame.centred, frame.white, every, frame.units)
                paths.append(self._follow(part, draws, paths[0].times if paths else None))
                rests.append(Rows.of(part, X[held], Y[held], Y.mean(axis=0)))
            near = _near(paths[0].times, _mean_errors(paths, rests))
            paths = [path.with_times(near) for path in paths]
            self.validation_path_ = _mean_errors(paths, rests)
            best = int(np.argmin(self.validation_path_))
            self.held_out_score_ = pooled_score(rests, [path.products[best] for path in paths])
            path = paths[0]
            whole = self._follow(frame, draws, path.times)
            self.converged_ = path.arrived
        else:
            path = whole = self._follow(frame, draws, None)
            best = len(path.times) - 1
            self.converged_ = path.arrived
        short = self.time is None or path.times[-1] < float(self.time)
        if short and not path.arrived and best == len(path.times) - 1:
            self._warn(frame, whole, path.quiet)
        self._tell(frame, whole, best)

    def _follow(self, frame: Frame, draws: Layers, times: np.ndarray | None) -> Path:
        start = frame.start(self.start, draws, float(self.scale), self.width)
        return follow(
            frame.task,
            start,
            self._ending(frame, start),
            method=self.method,
            rtol=float(self.rtol),
            times=times,
            progress=self.progress,
        )

    def _ending(self, frame: Frame, start: Layers) -> Ending:
        task, rank = frame.task, min(min(layer.shape) for layer in start)
        floor = float(task.excess(task.limit(rank)))
        top = max(float(task.excess(product(start))), float(task.excess(np.zeros_like(task.correlation))))
        level = floor + float(self.tolerance) * (top - floor)
        if self.until is not None:
            asked = frame.excess_of(float(self.until))
            if asked < floor:
                raise ValueError(
                    f"{WHERE}: until must be above {frame.error_of(floor):.6g}, the mean squared error of least "
                    f"squares, but is {self.until:g}."
                )
            level = max(level, asked)
        sizes = [float(np.linalg.norm(layer, 2)) for layer in start]
        quiet = QUIET * math.sqrt(self.tolerance) * min(1.0, *sizes) ** (len(start) - 1)
        return Ending(level, quiet, None if self.time is None else float(self.time))

    def _draws(self, random: Any, features: int, outputs: int) -> Layers:
        """What a start is made from: the layers given, or numbers at random in the space of all features."""
        if not isinstance(self.start, str):
            return _given(self.start, int(self.depth), self.width)
        if self.start == "aligned":
            return ()
        if self.start == "balanced":
            return (random.standard_normal((outputs, features)),)
        hidden = min(features, outputs) if self.width is None else int(self.width)
        widths = [features, *([hidden] * (int(self.depth) - 1)), outputs]
        return tuple(random.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))

    def _warn(self, frame: Frame, path: Path, quiet: bool) -> None:
        error = frame.error_of(float(frame.task.excess(path.products[-1])))
        least = frame.error_of(0.0)
        reason = (
            "came to rest: the start cannot reach least squares, or some inputs vary too little; take another start, "
            "scale the inputs, or whiten=True"
            if quiet
            else "did not arrive within its steps; give a time or until, or scale the inputs"
        )
        warnings.warn(
            f"{WHERE}: at time {path.times[-1]:.3g}, with mean squared error {error:.6g} (least squares {least:.6g}), "
            f"the flow {reason}.",
            ConvergenceWarning,
            stacklevel=5,
        )

    def _tell(self, frame: Frame, path: Path, best: int) -> None:
        """Attributes that a user reads."""
        self._frame, self._path = frame, path
        self.times_, self.stopping_time_ = path.times, float(path.times[best])
        self.layers_ = frame.outer([layer[best] for layer in path.layers])
        self.coef_, self.intercept_ = self._linear(path.products[best])
        self.whitening_ = frame.basis if frame.white else None
        modes = min(min(layer.shape) for layer in self.layers_)
        self.modes_ = frame.gain * np.linalg.svd(path.products, compute_uv=False)[:, :modes]
        left, limit, right = frame.modes(modes)
        self.limit_modes_ = frame.gain * limit
        self.strengths_ = frame.gain * np.einsum("om,toi,mi->tm", left, path.products, right, optimize=True)
        strengths = zip(self.strengths_.T, self.limit_modes_, strict=True)
        self.learning_times_ = np.array([_crossing(path.times, mode, end / 2) for mode, end in strengths])
        self.training_path_ = frame.error_of(frame.task.excess(path.products))
        self.time_unit_ = frame.share**2 / frame.units[1] ** 2
        self.method_ = path.form or "gradient flow"

    def _linear(self, matrix: np.ndarray) -> tuple[np.ndarray, Any]:
        """Coefficients and intercept of a product, of the shape of y."""
        coef = self._frame.coefficients(matrix)
        intercept = self._frame.mean_y - coef @ self._frame.mean_x
        return (coef[0], float(intercept[0])) if self._flat else (coef, intercept)

    # --- Predicting ---------------------------------------------------------------------------------------------------

    def predict(self, X: Any, time: float | None = None) -> np.ndarray:
        """Outputs for inputs in rows.

        Args:
            X: Inputs, (samples, features).
            time: Time of the path at which to predict; by default the stopping time. Between recorded times, and beyond
                the last, the flow is integrated on from the last record before, or the closed form is evaluated.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        coef, intercept = (self.coef_, self.intercept_) if time is None else self._linear(product(self._at(time)))
        return X @ coef.T + intercept

    def staged_predict(self, X: Any) -> Iterator[np.ndarray]:
        """Outputs at each of the recorded times `times_`, one after the other.

        Args:
            X: Inputs, (samples, features).
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        for matrix in self._path.products:
            coef, intercept = self._linear(matrix)
            yield X @ coef.T + intercept

    def layers_at(self, time: float) -> list[np.ndarray]:
        """Layers at a time of the path, like `layers_`.

        Args:
            time: From 0 on, recorded or not.
        """
        check_is_fitted(self)
        return self._frame.outer(list(self._at(time)))

    @in_64_bit
    def _at(self, time: float) -> Layers:
        check_number(WHERE, "time", time, at_least=0)
        return tuple(layer[0] for layer in self._path.at(np.array([float(time)])))


def _held_out(random: Any, rows: int, part: float, folds: int) -> list[np.ndarray]:
    """Which rows are held out, in each fold; different ones as long as there are some."""
    count = max(1, round(part * rows))
    if rows - count < FEWEST:
        raise ValueError(
            f"{WHERE}: held_out={part:g} of n_samples = {rows} leaves {rows - count} to learn from, but {FEWEST} are "
            "needed; give more samples, or held_out=0."
        )
    order = random.permutation(rows)
    return [np.isin(np.arange(rows), np.roll(order, -fold * count)[:count]) for fold in range(folds)]


def _mean_errors(paths: list[Path], rests: list[Rows]) -> np.ndarray:
    """Mean squared errors of paths on rows that they have not seen, at their common times."""
    return np.mean([rest.errors(path.products) for path, rest in zip(paths, rests, strict=True)], axis=0)


def _near(times: np.ndarray, errors: np.ndarray) -> np.ndarray:
    """Times on either side of the one with the least error."""
    best = int(np.argmin(errors))
    return np.concatenate(
        [
            np.linspace(times[i], times[i + 1], BETWEEN + 2)[1:-1]
            for i in (best - 1, best)
            if i >= 0 and i + 1 < len(times)
        ]
        or [times[:0]]
    )


def _crossing(times: np.ndarray, values: np.ndarray, level: float) -> float:
    """First time at which values reach a level, straight between records; infinite if they do not."""
    above = np.flatnonzero(values >= level)
    if level <= 0 or not len(above):
        return math.inf
    i = int(above[0])
    if i == 0:
        return float(times[0])
    part = (level - values[i - 1]) / (values[i] - values[i - 1])
    return float(times[i - 1] + part * (times[i] - times[i - 1]))


def _given(start: Any, depth: int, width: int | None) -> Layers:
    """Layers that a user gave, or a refusal."""
    try:
        layers = tuple(np.asarray(layer, dtype=float) for layer in start)
    except (TypeError, ValueError):
        raise TypeError(
            f"{WHERE}: start must be {', '.join(map(repr, STARTS))} or a list of matrices, but is {start!r}."
        ) from None
    shapes = [layer.shape for layer in layers]
    if len(layers) != depth:
        raise ValueError(f"{WHERE}: start has {len(layers)} layers, but depth is {depth}; give depth={len(layers)}.")
    fits = all(len(shape) == 2 for shape in shapes) and all(a[0] == b[1] for a, b in itertools.pairwise(shapes))
    if not fits or not all(np.isfinite(layer).all() for layer in layers):
        raise ValueError(f"{WHERE}: start must be finite matrices that follow each other, but has shapes {shapes}.")
    if width is not None and any(len(layer) != width for layer in layers[:-1]):
        raise ValueError(f"{WHERE}: the hidden layers of start must have width {width}, but have shapes {shapes}.")
    return layers
