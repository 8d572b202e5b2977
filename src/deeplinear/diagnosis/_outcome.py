"""What a run did, put beside what was predicted of it."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from deeplinear.core import Params, Trajectory, checked_params, xp
from deeplinear.diagnosis._finding import Finding, Prediction, Value
from deeplinear.diagnosis._forms import COUNTED, LEARNT, Curve
from deeplinear.diagnosis._structure import Layers, as_params, deltas, multiply, pair_sizes
from deeplinear.diagnosis._task import DENSE
from deeplinear.dynamics import GradientFlow, simulate, steady
from deeplinear.exact import correlations_of, kernel_distance, stacked
from deeplinear.landscape import envelope_excess, hessian_spectrum, learning_times
from deeplinear.models import Problem
from deeplinear.probes import gradient_norm, loss, singular_values

RTOL = 2e-7
"""Relative tolerance of the flow that is computed; what is predicted of its end is compared to 1e-4."""

TIGHT = 1e-12
"""The same towards a saddle, which errors of the flow leave."""

LONGER = 2.0
"""How much longer than the closed form takes to settle a run goes on."""

RECORDS = 240
"""Records of a run whose length is known beforehand."""

REST = 1e-8
"""Gradient at which a run of unknown length stops, as a share of the largest at its start."""

BENT, WEAK = 1e-5, 1e-2
"""Negative curvature of a plateau, and strength of modes that have not grown, as shares of the largest."""

ROUNDED, LEVEL = 1e-12, 1e-6
"""Gradients that are rounding, and those below which no larger one need have been seen, as shares of the task's."""

QUIET = 1e-4
"""Gradient at the end of a run that counts as at rest, as a share of the largest seen."""

SAME = 1e-6
"""Largest relative difference between the loss at the start and the first one that a trajectory recorded."""

LIMITS = (
    "loss_end",
    "product_end",
    "singular_values_end",
    "rank_end",
    "learning_times",
    "kernel_distance",
    "late_rate",
)
"""Predictions about the limit, which only a run that has come to rest can answer."""


LAST, STEADY = 1e3, 0.15
"""Range of the loss on which the last rate is read off, and the share by which it may change within."""

FAINT = 1e-6
"""Share of the first loss down to which a run is compared with an envelope; below, errors of its integration count."""

SIGNS = ("determinant_sign", "loss_floor")
"""Predictions that hang on a determinant which never vanishes."""

BLURRED = 10.0
"""How much smaller than the squared singular values of the layers the change of what they conserve must be."""


class Run(NamedTuple):
    """What a run recorded, on the host."""

    times: np.ndarray | None
    losses: np.ndarray
    strengths: np.ndarray | None
    start: Layers
    end: Layers
    rest: float
    plateau: str = ""


def computed(
    problem: Problem, params: Params, curve: Curve | None, flow: GradientFlow | None, max_steps: int
) -> Trajectory:
    """Gradient flow from the start, to where the closed form has settled or to rest."""
    if flow is None:
        flow = GradientFlow(RTOL if curve is None or not curve.unstable else TIGHT)
    probes = (loss, singular_values, gradient_norm)
    if curve is not None:
        last = (1.0 if curve.unstable else LONGER) * curve.duration
        inside = curve.times[(curve.times > 0) & (curve.times < last)]
        kept = inside[:: max(1, len(inside) // RECORDS)]
        times = np.concatenate([[0.0], kept, [last]])
        return simulate(problem, params, flow, times=times, probes=probes, max_steps=max_steps)
    size = _gradient(problem, params)
    stop = steady(max(REST * size, ROUNDED * _slope(problem, params), 1e-300))
    return simulate(problem, params, flow, every=1, probes=probes, until=stop, max_steps=max_steps)


def run_of(problem: Problem, params: Params, trajectory: Trajectory) -> Run:
    """A trajectory as it is compared; a refusal where it is not one of this network from this start."""
    where = "diagnose"
    if trajectory.is_ensemble:
        raise ValueError(f"{where}: trajectory must be a single run, but is an ensemble; take trajectory.member(k).")
    end = tuple(np.asarray(layer) for layer in checked_params(where, "trajectory.params", trajectory.params))
    problem.check(as_params(end), where)
    if "loss" not in trajectory.values:
        raise ValueError(
            f"{where}: trajectory must have recorded the probe 'loss', but has {list(trajectory.values)}; singular "
            "values and gradient norms are welcome too."
        )
    losses, times = np.asarray(trajectory["loss"]), np.asarray(trajectory.times)
    if trajectory.failed or not np.all(np.isfinite(losses)):
        raise ValueError(f"{where}: trajectory must be a run that did not break down, but: {trajectory.result.message}")
    _check_start("loss", float(losses[0]), float(problem.value(params)))
    strengths = None
    if "singular_values" in trajectory.values:
        strengths = np.asarray(trajectory["singular_values"])
    elif "product" in trajectory.values:
        strengths = np.linalg.svd(np.asarray(trajectory["product"]), compute_uv=False)
    if strengths is not None:
        strengths = strengths[:, : min(min(layer.shape) for layer in end)]
    seen = [_gradient(problem, params)]
    if "gradient_norm" in trajectory.values:
        _check_start("gradient norm", float(trajectory["gradient_norm"][0]), seen[0])
        seen.append(float(np.max(trajectory["gradient_norm"])))
    rest = _gradient(problem, as_params(end)) / max(*seen, LEVEL * _slope(problem, params), 1e-300)
    clock = trajectory.info.get("clock", "time")
    start = tuple(np.asarray(layer) for layer in params)
    plateau = _plateau(problem, end) if rest <= QUIET else ""
    return Run(times if clock == "time" else None, losses, strengths, start, end, rest, plateau)


def _check_start(what: str, recorded: float, own: float) -> None:
    if not abs(recorded - own) <= SAME * max(abs(own), abs(recorded)):
        raise ValueError(
            f"diagnose: trajectory must start from params, but its first {what} is {recorded:.6g} and that of params "
            f"is {own:.6g}; diagnose the layers it started from."
        )


def _gradient(problem: Problem, params: Params) -> float:
    return math.sqrt(sum(float(np.sum(np.asarray(part) ** 2)) for part in problem.gradient(params)))


def _plateau(problem: Problem, layers: Layers) -> str:
    """Why a point with a small gradient may be left later: a direction bends down, or modes have not grown yet."""
    if len(layers) < 2:
        return ""
    if sum(layer.size for layer in layers) <= DENSE:
        values = np.asarray(hessian_spectrum(problem, as_params(layers)).values)
        if values[0] < -BENT * max(abs(float(values[-1])), abs(float(values[0]))):
            return f"The run rests on a plateau: the Hessian there has the eigenvalue {values[0]:.3g}."
        if len(layers) == 2:
            return ""
    # From three layers on a plateau may be flat to second order.
    strengths = np.linalg.svd(multiply(layers), compute_uv=False)[: min(min(layer.shape) for layer in layers)]
    if strengths[-1] < WEAK * max(float(strengths[0]), 1e-300):
        return "The run may rest on a plateau: the product has modes that have not grown."
    return ""


def _slope(problem: Problem, params: Params) -> float:
    """A gradient of the order of those of the task at layers of this size."""
    nothing = problem.loss.gradient(xp.zeros(problem.model.product_shape))
    sizes = [float(np.linalg.norm(np.asarray(layer))) for layer in params]
    return float(np.linalg.norm(np.asarray(nothing))) * max(sizes) ** (len(sizes) - 1)


def judged(predictions: Sequence[Prediction], run: Run, step: float = 0.0) -> tuple[Prediction, ...]:
    """Predictions with what came of them. `step` is that of gradient descent, 0 for a flow."""
    found = []
    for prediction in predictions:
        if step > 0 and prediction.name in STEPPED:
            prediction = dataclasses.replace(prediction, atol=prediction.atol + STEPPED[prediction.name](run, step))
        if prediction.name in LIMITS and run.rest > QUIET:
            found.append(
                prediction.open(f"The run has not come to rest: its gradient is still {run.rest:.1g} of the largest.")
            )
            continue
        outcome = MEASURES[prediction.name](run, prediction)
        if prediction.name in LIMITS and run.plateau and prediction.judged(outcome).agrees is not True:
            found.append(prediction.open(run.plateau))
            continue
        differs = prediction.judged(outcome).agrees is False
        if prediction.name in SIGNS and differs and _blurred(run):
            found.append(
                prediction.open("The run came so close to a singular product that its own errors decide the sign.")
            )
            continue
        if prediction.name == "learning_times" and differs and _bracketed(run, prediction, outcome):
            found.append(prediction.open("The records of the run are too far apart to tell."))
            continue
        if outcome is None:
            late = prediction.name == "late_rate" and run.times is not None
            reason = "The run does not show a last approach with one rate." if late else ""
            found.append(prediction.open(reason or "The run did not record what it takes."))
        else:
            found.append(prediction.judged(outcome))
    return tuple(found)


def outcome_findings(run: Run) -> list[Finding]:
    """What the run did, predicted or not."""
    values = _end_values(run)
    top = float(values[0])
    found = [
        Finding("outcome", "lowest and last loss of the run", value=(float(np.min(run.losses)), float(run.losses[-1]))),
        Finding("outcome", "gradient at the end, of the largest seen", value=run.rest),
        Finding("outcome", "singular values of the product at the end", value=tuple(map(float, values))),
    ]
    if run.times is not None:
        found.append(Finding("outcome", "time of the run", value=float(run.times[-1])))
    if top > 0:
        counted = values > COUNTED * top
        found.append(Finding("outcome", "stable rank at the end", value=float(np.sum((values / top) ** 2))))
        if run.times is not None and run.strengths is not None:
            moments = learning_times(run.times, run.strengths[:, counted], values[counted], fraction=LEARNT)
            found.append(
                Finding(
                    "outcome",
                    "times at which the modes were half of what they ended with",
                    value=tuple(map(float, np.asarray(moments))),
                    source="landscape.learning_times",
                )
            )
    return found


# ---- What is measured for each prediction ----------------------------------------------------------------------------


def _end_values(run: Run) -> np.ndarray:
    values = np.linalg.svd(multiply(run.end), compute_uv=False)
    return values[: min(min(layer.shape) for layer in run.end)]


def _rank(run: Run, prediction: Prediction) -> Value:
    values = _end_values(run)
    return float(np.sum(values > COUNTED * values[0])) if values[0] > 0 else 0.0


def _learning(run: Run, prediction: Prediction) -> Value:
    if run.times is None or run.strengths is None or not isinstance(prediction.value, tuple):
        return None
    modes = len(prediction.value)
    final = _end_values(run)[:modes]
    return tuple(map(float, np.asarray(learning_times(run.times, run.strengths[:, :modes], final, fraction=LEARNT))))


def _bracketed(run: Run, prediction: Prediction, outcome: Value) -> bool:
    """Whether every predicted time lies between the records between which the run has passed it."""
    if run.times is None or not isinstance(prediction.value, tuple) or not isinstance(outcome, tuple):
        return False
    wanted, seen = np.array(prediction.value), np.array(outcome)
    if wanted.shape != seen.shape or not np.all(np.isfinite(wanted) & np.isfinite(seen)):
        return False
    after = np.clip(np.searchsorted(run.times, seen), 1, len(run.times) - 1)
    return bool(np.all((run.times[after - 1] <= wanted) & (wanted <= run.times[after])))


def _late(run: Run, prediction: Prediction) -> Value:
    """Half the slope of the logarithm of the loss above its limit, where that is small but no rounding."""
    if run.times is None:
        return None
    excess = run.losses - prediction.offset
    scale = excess[0]
    known = (excess < 1e-3 * scale) & (excess > max(1e-10 * scale, 1e-13 * abs(prediction.offset)))
    if known.sum() < 4:
        return None
    # Only the last decades: before them a weaker mode may still have been on its plateau.
    inside = np.flatnonzero(known & (excess < LAST * np.min(excess[known])))
    if len(inside) < 6:
        inside = np.flatnonzero(known)[-6:]
    logs, half = np.log(excess[inside]), len(inside) // 2
    if half < 2:
        return None
    slopes = [-np.polyfit(run.times[part], np.log(excess[part]), 1)[0] for part in (inside[:half], inside[half:])]
    if not min(slopes) > (1 - STEADY) * max(slopes):
        return None
    return float(-np.polyfit(run.times[inside], logs, 1)[0] / 2)


def _kernel(run: Run, prediction: Prediction) -> Value:
    inp = run.start[0].shape[1]
    before, after = (correlations_of(stacked(as_params(layers)), inp) for layers in (run.start, run.end))
    return float(kernel_distance(before, after))


def _envelope(run: Run, prediction: Prediction) -> Value:
    excess = np.maximum(run.losses - prediction.offset, 0.0)
    if run.times is None or prediction.rate is None or not excess[0] > 0:
        return None
    return float(envelope_excess(run.times, excess, prediction.rate / 2, lowest=FAINT))


def _way(run: Run, prediction: Prediction) -> Value:
    return math.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in zip(run.start, run.end, strict=True)))


def _layer_rank(run: Run, prediction: Prediction) -> Value:
    values = np.linalg.svd(run.end[-1], compute_uv=False)
    return float(np.sum((values / values[0]) ** 2))


def _changes(run: Run) -> np.ndarray:
    """Frobenius norm of the change of every conserved quantity."""

    def laws(layers: Layers) -> list[np.ndarray]:
        return [above.T @ above - below @ below.T for below, above in itertools.pairwise(layers)]

    return np.array([float(np.linalg.norm(a - b)) for a, b in zip(laws(run.start), laws(run.end), strict=True)])


def _drift(run: Run, prediction: Prediction) -> Value:
    return float(np.max(_changes(run) / pair_sizes(run.end)))


def _stepped(run: Run, step: float) -> float:
    r"""What the steps of gradient descent may change of the conserved quantities, relative to the layers' size.

    One step of size $\eta$ changes $C_l$ by $\eta^2(G_{l+1}^\top G_{l+1} - G_lG_l^\top)$, at most
    $\eta^2\|\nabla L\|^2$, and lowers the loss by at least $\eta\|\nabla L\|^2/2$ where
    $\eta\lambda_{\max} \le 1$; so all of them change it by at most $2\eta$ times what the loss has fallen.
    """
    return 2 * step * float(run.losses[0] - np.min(run.losses)) / float(np.min(pair_sizes(run.end)))


def _blurred(run: Run) -> bool:
    """Whether the smallest singular value was ever so small that layers balanced to the run's errors may change sign.

    Layers with an imbalance δ have squared singular values that differ by at most δ, so none above it changes sign.
    """
    if run.strengths is None:
        return False
    lowest = float(np.min(run.strengths[:, -1])) ** (2 / len(run.end))
    return lowest <= BLURRED * max(float(np.max(_changes(run))), deltas(run.start))


STEPPED: dict[str, Callable[[Run, float], float]] = {
    "conserved": _stepped,
    # The product and what is conserved fix the tangent kernel of two layers: it turns with what has changed of that.
    "kernel_distance": lambda run, step: float(np.max(_changes(run) / pair_sizes(run.end))),
}
"""What the steps of gradient descent add to the room of a prediction."""

MEASURES: dict[str, Callable[[Run, Prediction], Value]] = {
    "loss_end": lambda run, prediction: float(run.losses[-1]),
    "singular_values_end": lambda run, prediction: tuple(map(float, _end_values(run))),
    "product_end": lambda run, prediction: tuple(tuple(map(float, row)) for row in multiply(run.end)),
    "rank_end": _rank,
    "learning_times": _learning,
    "late_rate": _late,
    "kernel_distance": _kernel,
    "loss_floor": lambda run, prediction: float(np.min(run.losses)),
    "determinant_sign": lambda run, prediction: float(np.linalg.slogdet(multiply(run.end))[0]),
    "envelope": _envelope,
    "lazy_envelope": _envelope,
    "displacement": _way,
    "layer_stable_rank": _layer_rank,
    "conserved": _drift,
}
