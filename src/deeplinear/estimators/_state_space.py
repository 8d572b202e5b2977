r"""System identification by an over-parameterised linear recurrent network, as a scikit-learn regressor."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from deeplinear.core import check_count, check_finite, check_number, check_shape, check_size, near_name
from deeplinear.dynamics import Progress
from deeplinear.estimators._base import in_64_bit
from deeplinear.estimators._state_space_certificate import StateSpaceCertificate, certified
from deeplinear.estimators._state_space_data import Units, design, records, several, usable
from deeplinear.estimators._state_space_network import drawn, network, train
from deeplinear.estimators._state_space_order import FREE, Choice, check_order, chosen
from deeplinear.estimators._state_space_systems import (
    Small,
    at_starts,
    entries,
    first_state,
    fitted_to_records,
    hankel_blocks,
    states,
)

WHERE = "LinearStateSpace"
MEMORY = 20
"""Lags, if nothing is said; fewer where the sequences are shorter than five times that."""
FORMS = ("general", "symmetric", "upper", "diagonal", "tied")
STARTS, METHODS = ("unknown", "rest"), ("adam", "flow")
REFINE = 60
"""Most Gauss–Newton steps on the whole records."""


class Simulation(NamedTuple):
    """Outputs beside the inputs, states beside them, and the state after the last input."""

    outputs: np.ndarray
    states: np.ndarray
    final_state: np.ndarray


class LinearStateSpace(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Identify $s_{t+1} = As_t + B(u_t - \bar u)$, $y_t = Cs_t + D(u_t - \bar u) + \bar y$ from inputs and outputs.

    Three steps. A linear recurrent network with more states than needed is trained, from a small start, to predict
    $y_t$ from the last $k$ inputs; it is taken from where rows that were held out are predicted best. From the first
    $k$ entries of its response comes the system of $n$ states by the singular values of their Hankel matrix, for every
    $n$ in question; the least $n$ is taken whose error on the rows held out is no worse than the best one by more than
    a standard error. Gauss–Newton steps then fit the system to simulations of the whole records; with `refine=False` it
    stays what the network says.

    Rows are times, in order. Inputs older than $k$ rows count in the last step only.

    Args:
        states: States of the network.
        memory: $k$, lags that the network is trained on; by default 20, or a fifth of the shortest sequence.
        order: $n$; by default it is found.
        form: Form of the network, as in `LinearRNN`: `"general"`, `"symmetric"`, `"upper"`, `"diagonal"`, `"tied"`.
        feed_through: Whether $y_t$ may depend on $u_t$ itself; else $D = 0$.
        fit_intercept: Whether there are offsets $\bar u$ (the mean of the inputs; 0 from rest) and $\bar y$; else they
            are 0.
        start: `"unknown"`: the system is at work when a sequence starts, and its state is fitted; `"rest"`: its state
            and its inputs are 0 before, so that the first rows can be learned from.
        scale: Standard deviation of the entries of the network at its start, inputs and outputs having size 1.
        method: `"adam"`, or `"flow"`: gradient flow.
        rate: Learning rate of Adam.
        steps: Steps of Adam, or time of the flow, at which training ends.
        held_out: Part of the rows (of the sequences, if there are several), at the end, that decides where to stop and
            which order to take; 0: training goes on to its end, and `tolerance` decides on the order.
        tolerance: Singular value, relative to the largest, that counts if nothing is held out.
        refine: Whether to fit the system to the data at the end.
        horizon: Entries of `impulse_response_`, and where `certificate_` ends; by default $2k + 1$.
        warm_start: Whether `fit` trains on from where the network of the last fit ended, if its shape is the same.
        random_state: Seed of the start.
        progress: Called with a `Progress` while the network is trained.

    Attributes:
        A_: (order, order); with `B_`, `C_`, `D_` in units of the data, and the offsets `input_offset_`,
            `output_offset_`.
        order_: $n$. It can be 0: outputs that depend on the present input only.
        stable_: Whether all eigenvalues of $A$ lie inside the unit circle; `poles_` are these, `spectral_radius_` is
            the largest size.
        impulse_response_: $D, CB, CAB, \dots$, (horizon, outputs, inputs).
        certificate_: What theorems say about extrapolation; a `StateSpaceCertificate`.
        response_error_: Standard error of $CA^jB$, $j < k$, in the least squares of the lags, (k, outputs, inputs).
        hankel_singular_values_: Of the network's response, in units of the spreads of inputs and outputs.
        order_errors_: Mean squared error held out, in shares of the variance, by order.
        held_out_score_: R² on the rows held out, before they were used in the last step; NaN if there were none. As
            they decided on the order, it is somewhat high.
        path_: The network's training: `times`, `training` and `held_out` errors, `best`.
        network_: $A$, $B$, $C$ of the network, in units of the data.
        initial_state_: State at the first row, one for each sequence; zeros from rest.
        final_state_: State after the last row of the last sequence.
        refined_: Whether the system is fitted to the records; not if its simulation overflows.
        memory_: $k$.
        n_features_in_: Inputs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> u, y, s = rng.standard_normal(400), np.zeros(400), 0.0
        >>> for t in range(400):
        ...     y[t], s = 2 * s, 0.8 * s + u[t]
        >>> model = LinearStateSpace(random_state=0).fit(u[:, None], y)
        >>> model.order_, round(float(model.A_[0, 0]), 9), round(float(model.C_[0, 0] * model.B_[0, 0]), 9)
        (1, 0.8, 2.0)
    """

    def __init__(
        self,
        states: int = 20,
        memory: int | None = None,
        order: int | None = None,
        *,
        form: str = "general",
        feed_through: bool = True,
        fit_intercept: bool = True,
        start: str = "unknown",
        scale: float = 0.05,
        method: str = "adam",
        rate: float = 3e-3,
        steps: float = 3000,
        held_out: float = 0.2,
        tolerance: float = 1e-2,
        refine: bool = True,
        horizon: int | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.states = states
        self.memory = memory
        self.order = order
        self.form = form
        self.feed_through = feed_through
        self.fit_intercept = fit_intercept
        self.start = start
        self.scale = scale
        self.method = method
        self.rate = rate
        self.steps = steps
        self.held_out = held_out
        self.tolerance = tolerance
        self.refine = refine
        self.horizon = horizon
        self.warm_start = warm_start
        self.random_state = random_state
        self.progress = progress

    @in_64_bit
    def fit(self, X: Any, y: Any) -> "LinearStateSpace":
        """Identify a system.

        Args:
            X: Inputs, (times, inputs); or several sequences: a list of such, or an array (sequences, times, inputs).
            y: Outputs, (times, outputs) or (times,); of several sequences likewise, (sequences, times) for one output.
        """
        self._check_settings()
        inputs, outputs = self._read(X, y, reset=True)
        for name, parts in (("X", inputs), ("y", outputs)):
            for column, values in enumerate(np.concatenate(parts).T):
                check_size(WHERE, f"column {column} of {name}", values)
        skip, memory = self._lengths(inputs)
        units = Units.of(inputs, outputs, self.fit_intercept, self.start == "rest")
        usable(WHERE, units, inputs)
        parts = records(inputs, outputs, units, skip, self.held_out)
        shape = {"intercept": self.fit_intercept, "feed": self.feed_through}
        fit, held = (design(parts, memory, **shape, held=which) for which in (False, True))
        if fit.rows < 2:
            raise ValueError(
                f"{WHERE}: of the rows of X, {fit.rows} are left to fit after {skip} lags and {held.rows} rows held "
                "out, but there must be 2 or more; give more rows, a smaller memory, or start='rest'."
            )
        sizes = (inputs[0].shape[1], outputs[0].shape[1])
        check_order(WHERE, self.order, memory, *sizes)
        model = network(self.states, memory, *sizes, self.form)
        begin = drawn(model, *sizes, self.scale, check_random_state(self.random_state))
        before = getattr(self, "path_", None) if self.warm_start else None
        if before is not None and tuple(layer.shape for layer in before.end) == model.shapes:
            begin = before.end
        self.path_ = train(
            model,
            begin,
            fit,
            held,
            sizes,
            rate=self.rate if self.method == "adam" else None,
            end=float(self.steps),
            progress=self.progress,
        )
        choice = chosen(
            self.path_.response, parts, fit, held, self.order, self.tolerance, self.refine, self.start == "rest"
        )
        small, starts, self.refined_ = self._finish(choice, parts)
        self._keep(small, starts, choice, units, parts, fit, memory)
        return self

    @in_64_bit
    def predict(self, X: Any, *, initial_state: Any = None) -> Any:
        """Outputs that the system gives to inputs, for as long as they are.

        Args:
            X: Inputs as for `fit`.
            initial_state: State at the first row, or one for each sequence; by default it is 0: rest at the offsets.
                `final_state_` goes on where the data of the fit ended.

        Raises:
            OverflowError: The outputs grow beyond what a number can hold.
        """
        check_is_fitted(self)
        inputs, _ = self._read(X, None, reset=False)
        begins = self._begins(initial_state, len(inputs))
        found = [self._outputs(u, begin)[0] for u, begin in zip(inputs, begins, strict=True)]
        if not several(X):
            return found[0]
        return np.stack(found) if getattr(X, "ndim", 0) == 3 else found

    @in_64_bit
    def simulate(self, X: Any, *, initial_state: Any = None) -> Simulation:
        """Outputs and states of one sequence.

        Args:
            X: Inputs, (times, inputs).
            initial_state: State at the first row; rest by default.

        Raises:
            OverflowError: The outputs grow beyond what a number can hold.
        """
        check_is_fitted(self)
        if several(X):
            raise ValueError(f"{WHERE}.simulate: X must be one sequence, (times, inputs), but is several of them.")
        inputs, _ = self._read(X, None, reset=False)
        return Simulation(*self._outputs(inputs[0], self._begins(initial_state, 1)[0]))

    @in_64_bit
    def initial_state(self, X: Any, y: Any) -> np.ndarray:
        """State at the first row of a sequence that explains its outputs best, by least squares.

        Args:
            X: Inputs, (times, inputs).
            y: Outputs, (times, outputs) or (times,).
        """
        check_is_fitted(self)
        if several(X):
            raise ValueError(f"{WHERE}.initial_state: X must be one sequence, (times, inputs), but is several of them.")
        inputs, outputs = self._read(X, y, reset=False)
        return first_state(self._system(), inputs[0] - self.input_offset_, outputs[0])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the predictions from rest, the mean over outputs.

        Args:
            X: Inputs as for `fit`.
            y: Outputs.
            sample_weight: Weights of the rows, one after the other for several sequences.
        """
        found = self.predict(X)
        if several(X):
            found, y = np.concatenate(list(found)), np.concatenate([np.asarray(one) for one in y])
        return float(r2_score(y, found, sample_weight=sample_weight))

    @property
    @in_64_bit
    def certificate_(self) -> StateSpaceCertificate:
        """What the theorems on extrapolation say about the identified system; found when it is asked for."""
        check_is_fitted(self)
        horizon = max(len(self.impulse_response_), self.memory_ + 2)
        response = entries(self.A_, self.B_, self.C_, horizon)
        return certified((self.A_, self.B_, self.C_), self.network_, response, self.memory_, horizon)

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        check_count(WHERE, "states", self.states, at_least=1)
        if self.memory is not None:
            check_count(WHERE, "memory", self.memory, at_least=2)
        if self.order is not None:
            check_count(WHERE, "order", self.order, at_least=0)
        if self.horizon is not None:
            check_count(WHERE, "horizon", self.horizon, at_least=1)
        for name, options in (("form", FORMS), ("start", STARTS), ("method", METHODS)):
            value = getattr(self, name)
            if value not in options:
                raise ValueError(f"{WHERE}: {name} is {value!r}. {near_name(str(value), options)}")
        check_number(WHERE, "scale", self.scale, above=0)
        check_number(WHERE, "rate", self.rate, above=0)
        check_number(WHERE, "steps", self.steps, at_least=1)
        check_number(WHERE, "held_out", self.held_out, at_least=0, at_most=0.9)
        check_number(WHERE, "tolerance", self.tolerance, at_least=0, at_most=1)

    def _read(self, X: Any, y: Any, *, reset: bool) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Inputs and outputs of every sequence as matrices, checked."""
        paired, many = y is not None or reset, several(X)
        if many and paired and (y is None or len(y) != len(X)):
            count = "none" if y is None else len(y)
            raise ValueError(f"{WHERE}: y must hold one sequence for each of the {len(X)} of X, but holds {count}.")
        inputs, outputs, flat = [], [], False
        targets: Any = y if many else [y]
        for index, sequence in enumerate(X if many else [X]):
            renewed = reset and index == 0
            try:
                if not paired:
                    inputs.append(validate_data(self, sequence, reset=renewed, dtype=np.float64))
                    continue
                u, target = validate_data(
                    self,
                    sequence,
                    targets[index],
                    reset=renewed,
                    multi_output=True,
                    y_numeric=True,
                    dtype=np.float64,
                    ensure_min_samples=2 if reset else 1,
                )
            except ValueError as error:
                if not many:
                    raise
                raise ValueError(f"{WHERE}: sequence {index}: {error}") from None
            target = np.asarray(target, dtype=np.float64)
            flat = target.ndim == 1
            inputs.append(u)
            outputs.append(target[:, None] if flat else target)
        if reset:
            self._flat = flat
        if paired:
            wanted = outputs[0].shape[1] if reset else len(self.C_)
            for index, target in enumerate(outputs):
                check_shape(WHERE, f"y of sequence {index}" if many else "y", target, (None, wanted))
        return inputs, outputs

    def _lengths(self, inputs: Sequence[np.ndarray]) -> tuple[int, int]:
        """Rows to leave out at every start, and lags."""
        shortest = min(map(len, inputs))
        memory = max(2, min(MEMORY, shortest // 5)) if self.memory is None else self.memory
        skip = 0 if self.start == "rest" else memory
        if shortest <= skip:
            raise ValueError(
                f"{WHERE}: sequences of X must have more rows than the memory, {memory}, but one has {shortest}; give "
                "longer ones, a smaller memory, or start='rest' if the system rests before every sequence."
            )
        return skip, memory

    def _finish(self, choice: Choice, parts: Any) -> tuple[Small, np.ndarray, bool]:
        """The system after the last step, with the states at all starts."""
        rest = self.start == "rest"
        starts = at_starts(choice.system, parts, rest)
        if not self.refine or not len(choice.system.transition):
            return choice.system, starts, False
        return fitted_to_records(
            choice.system,
            starts,
            parts,
            intercept=self.fit_intercept,
            feed=self.feed_through,
            free=not rest and starts.size <= FREE,
            steps=REFINE,
        )

    def _keep(
        self, small: Small, starts: np.ndarray, choice: Choice, units: Units, parts: Any, fit: Any, memory: int
    ) -> None:
        """The result in units of the data."""
        of_inputs, of_outputs = units.input_scale, units.output_scale[:, None]
        self.A_, self.B_, self.C_ = small.transition, small.input / of_inputs, small.output * of_outputs
        self.D_ = small.direct * of_outputs / of_inputs
        self.input_offset_ = units.input_offset
        self.output_offset_ = units.output_offset + units.output_scale * small.offset
        self.order_, self.memory_ = len(small.transition), memory
        self.poles_ = np.linalg.eigvals(self.A_)
        self.spectral_radius_ = float(np.max(np.abs(self.poles_), initial=0.0))
        self.stable_ = self.spectral_radius_ < 1.0
        horizon = 2 * memory + 1 if self.horizon is None else int(self.horizon)
        beyond = entries(self.A_, self.B_, self.C_, horizon - 1)
        check_finite(WHERE, f"the impulse response up to horizon {horizon} (the system is unstable)", beyond)
        self.impulse_response_ = np.concatenate([self.D_[None], beyond])
        transition, first, output = self.path_.system
        self.network_ = (transition, first / of_inputs, output * of_outputs)
        self.hankel_singular_values_ = np.linalg.svd(hankel_blocks(self.path_.response)[0], compute_uv=False)
        self.order_errors_, self.held_out_score_ = choice.errors, choice.score
        if choice.score <= 0:
            warnings.warn(
                f"{WHERE}: on the rows held out the system is no better than their mean (R² {choice.score:.2g}), so "
                "order, poles and stability say nothing. Noise may drive the states, the system may be unstable, or "
                "its modes may outlast the memory: give more rows or a larger memory, or take a subspace method.",
                stacklevel=3,
            )
        self.response_error_ = fit.standard_errors(memory) * of_outputs / of_inputs
        self.initial_state_ = starts
        last = parts[-1]
        self.final_state_ = states(small.transition, small.input, last.inputs, starts[-1])[1]

    def _system(self) -> Small:
        return Small(self.A_, self.B_, self.C_, self.D_, self.output_offset_)

    def _begins(self, initial_state: Any, count: int) -> np.ndarray:
        if initial_state is None:
            return np.zeros((count, self.order_))
        found = np.asarray(initial_state, dtype=float)
        if found.ndim == 1:
            found = np.broadcast_to(found, (count, len(found)))
        check_shape(WHERE, "initial_state", found, (count, self.order_))
        check_finite(WHERE, "initial_state", found)
        return found

    def _outputs(self, inputs: np.ndarray, begin: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Outputs, states and the last state of one sequence, or a refusal where they overflow."""
        centred = inputs - self.input_offset_
        found, last = states(self.A_, self.B_, centred, begin)
        with np.errstate(over="ignore", invalid="ignore"):
            y = found @ self.C_.T + centred @ self.D_.T + self.output_offset_
        bad = np.flatnonzero(~np.isfinite(y).all(axis=1))
        if bad.size:
            raise OverflowError(
                f"{WHERE}: outputs overflow from row {bad[0]} on. The system has eigenvalues beyond 1 (the largest has "
                f"size {self.spectral_radius_:.4g}); give fewer rows."
            )
        return y[:, 0] if self._flat else y, found, last
