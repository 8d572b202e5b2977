"""Closed forms: which apply, how nearly others do, and what those that apply say of the end of training."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.diagnosis._finding import NEARLY, STANDING, Finding, Prediction
from deeplinear.diagnosis._structure import BALANCE_TOLERANCE, Layers, as_params, multiply, too_near
from deeplinear.diagnosis._task import Task, task_of
from deeplinear.exact import (
    NoClosedFormError,
    Regime,
    WhitenedSolution,
    diagnose,
    disconnected,
    regime,
    solve,
)
from deeplinear.landscape import learning_times
from deeplinear.models import Completion, EntryCompletion, Problem, observed_entries

FORMS = {
    "shallow": "closed form: one layer",
    "whitened": "closed form: two λ-balanced layers under white inputs",
    "aligned": "closed form: layers aligned with the task",
    "channel": "closed form: one input and one output",
    "disconnected": "closed form: two layers, no two observations in a row or column",
}

DEGREES = ("λ-balanced layers", "white inputs", "layers aligned with the task")
"""Hypotheses that may nearly hold; others are met or not."""

POINTS, DECADES = 512, (-3.0, 7.0)
"""Times at which a closed form is evaluated, and the powers of ten they reach over, in units of its scale of time."""

MOST_NUMBERS = 2e7
"""Most entries of products that are held at once; larger products are evaluated at fewer times."""

ARRIVED = 1e-8
"""Change over the last two thirds of a decade, relative to the size of the product, of a curve that has arrived."""

SETTLED = 1e-7
"""Relative distance from the end at which a run is taken as long enough."""

POLISHINGS = 2
"""Steps that take the imbalance of rounding away; each squares it."""

SADDLE = 1e-3
"""Largest imbalance of stored numbers, as a share of the smallest overlap with a mode, that decides nothing."""

AT_SADDLE = 1e-10
"""Difference of the losses, relative to that of the start, at which a curve has come to its saddle."""

COUNTED = 1e-3
"""Singular values below this share of the largest do not count in the rank at the end."""

DOUBTFUL = 2.0
"""No rank is predicted where a singular value is within this factor of the cut."""

LEARNT = 0.5
"""Share of its final strength at which a mode counts as learnt."""


class Curve(NamedTuple):
    """A learning curve known in closed form, from the start to its end.

    `unstable` says that the end is a saddle which rounding leaves in the end; the curve is cut where it is nearest.
    """

    times: np.ndarray
    strengths: np.ndarray
    products: np.ndarray
    duration: float
    loss: float
    unstable: bool = False


class Forms(NamedTuple):
    """What closed forms say: findings, predictions, and the curve if one applies and has an end."""

    findings: list[Finding]
    predictions: list[Prediction]
    curve: Curve | None


def form_findings(
    problem: Problem, params: Params, layers: Layers, task: Task | None, tolerance: float = BALANCE_TOLERANCE
) -> Forms:
    """Try every closed form; take the end of training from the one that applies."""
    found: list[Finding] = []
    product: Callable[[Any], Any] | None = None
    solution, name = None, ""
    coarse = tolerance > BALANCE_TOLERANCE and len(layers) == 2
    rounded = 0.0
    if coarse:
        params = _polished(layers, tolerance)
        rounded = math.sqrt(sum(float(np.sum((np.asarray(p) - w) ** 2)) for p, w in zip(params, layers, strict=True)))
    try:
        solution = solve(problem, params)
        product, name = solution.product, solution.form
        worst = max((float(r) for r in solution.residuals.values()), default=0.0)
        hypotheses = ", ".join(solution.residuals)
        polish = f" It is that of layers {rounded:.1g} away, without the imbalance of rounding." if rounded else ""
        found.append(
            Finding(
                "closed form",
                f"closed form: {name}",
                STANDING.holds,
                None,
                worst,
                None,
                f"Measured: {hypotheses}.{polish}",
                "exact.solve",
            )
        )
    except NoClosedFormError as error:
        refused = [_refused(form, reason) for form, reason in error.reasons.items()]
        found += [one for one in refused if one.standing is not STANDING.silent]
        others = [one for one in refused if one.standing is STANDING.silent]
        told = " ".join(f"{one.statement.partition(': ')[2].capitalize()}? {one.reason}" for one in others)
        found.append(Finding("closed form", "other closed forms", STANDING.silent, reason=told, source="exact.solve"))
    if product is None and isinstance(problem.loss, Completion | EntryCompletion):
        try:
            product, name = disconnected(problem, params).product, FORMS["disconnected"].partition(": ")[2]
            found.append(
                Finding("closed form", FORMS["disconnected"], STANDING.holds, source="completion/proposition-4.1")
            )
        except HypothesisError as reason:
            found.append(_refused("disconnected", reason))
    if product is None:
        return Forms(found, [], None)
    curve = _curve(problem, layers, task, product)
    predictions: list[Prediction] = []
    if isinstance(solution, WhitenedSolution) and task is not None:
        try:
            if coarse:
                _check_overlap(params, layers, task)
            more, predictions, curve = _two_layers(params, layers, task, problem, curve)
        except HypothesisError as reason:
            found[0] = _refused("whitened", reason)
            return Forms(found, [], None)
        found += more
    if curve is None:
        found.append(
            Finding(
                "closed form",
                "the curve comes to an end",
                STANDING.fails,
                reason="It still moves at the last time looked at: the approach is slower than exponential, or the "
                "start rests on a saddle to rounding. No limit is predicted.",
            )
        )
        return Forms(found, predictions, None)
    if curve.unstable:
        return Forms(found, predictions, curve)
    return Forms(found, _of_curve(curve, name, float(problem.value(params))) + predictions, curve)


def _refused(form: str, reason: HypothesisError) -> Finding:
    degree = reason.hypothesis in DEGREES
    standing = STANDING.silent
    if degree:
        standing = STANDING.nearly if reason.residual <= NEARLY else STANDING.fails
    text = f"It needs: {reason.hypothesis}."
    if standing is STANDING.nearly:
        text += " No prediction is made from it; exact.solve takes a larger balance_tolerance for an approximation."
    residual = float(reason.residual) if degree else None
    return Finding(
        "closed form", FORMS[form], standing, None, residual, reason.tolerance if degree else None, text, "exact.solve"
    )


# ---- The curve -------------------------------------------------------------------------------------------------------


def _scale(problem: Problem, layers: Layers, task: Task | None) -> float:
    """A rate of the order of those of the task."""
    if task is None and not isinstance(problem.loss, Completion | EntryCompletion):
        task = task_of(Problem(problem.model, problem.loss))  # with a penalty
    if task is not None:
        top = float(np.linalg.norm(task.target, 2))
    else:
        top = float(np.max(np.abs(observed_entries(problem.loss).values)))
    top = max(top, float(np.linalg.norm(multiply(layers), 2)), 1e-12)
    return (1.0 if task is None else task.speed) * top ** (2 - 2 / len(layers))


def _curve(problem: Problem, layers: Layers, task: Task | None, product: Callable[[Any], Any]) -> Curve | None:
    """The curve on a logarithmic grid of times; `None` where it has not arrived at the last of them."""
    start = multiply(layers)
    points = int(min(POINTS, max(32, MOST_NUMBERS / start.size)))
    times = np.concatenate([[0.0], np.logspace(*DECADES, points - 1) / _scale(problem, layers, task)])
    with np.errstate(all="ignore"):
        matrices = np.asarray(product(times))
    if not np.all(np.isfinite(matrices)):
        return None
    end = matrices[-1]
    size = max(float(np.linalg.norm(m)) for m in (start, end, np.zeros(1) if task is None else task.target))
    earlier = matrices[np.searchsorted(times, times[-1] / 5)]
    if not np.linalg.norm(end - earlier) <= ARRIVED * max(size, 1e-300):
        return None
    gaps = np.linalg.norm(matrices - end, axis=(1, 2))
    far = np.flatnonzero(gaps > SETTLED * max(size, 1e-300))
    duration = float(times[min(far[-1] + 1, len(times) - 1)]) if len(far) else float(times[1])
    strengths = np.linalg.svd(matrices, compute_uv=False)[:, : min(min(w.shape) for w in layers)]
    penalty = 0.5 * float(problem.l2) * float(np.sum(end**2)) if len(layers) == 1 else 0.0
    loss = float(problem.loss.value(end)) + penalty
    return Curve(times, strengths, matrices, duration, loss)


def _cut(curve: Curve, task: Task, level: float) -> Curve:
    """The curve up to where its loss is that of the saddle it tends to, well before rounding leads it on."""
    gaps = curve.products - task.target
    losses = task.constant + 0.5 * np.einsum("tij,jk,tik->t", gaps, task.covariance, gaps)
    apart = np.abs(losses - level)
    near = np.flatnonzero(apart <= AT_SADDLE * max(float(losses[0]), abs(level)))
    last = max(int(near[0]) if len(near) else int(np.argmin(apart)), 1)
    kept = slice(0, last + 1)
    return Curve(
        curve.times[kept],
        curve.strengths[kept],
        curve.products[kept],
        float(curve.times[last]),
        float(losses[last]),
        True,
    )


def _of_curve(curve: Curve, form: str, start: float) -> list[Prediction]:
    source = f"exact: {form}"
    last = curve.strengths[-1]
    top = float(last[0])
    room = 1e-4 * max(top, float(curve.strengths[0, 0]))  # a product that vanishes is measured by what it was
    found = [
        Prediction("loss_end", "loss at the end", curve.loss, rtol=1e-4, atol=1e-7 * abs(start), source=source),
        Prediction(
            "singular_values_end",
            "singular values at the end",
            tuple(map(float, last)),
            rtol=1e-4,
            atol=room,
            source=source,
        ),
        Prediction(
            "product_end",
            "product at the end",
            tuple(tuple(map(float, row)) for row in curve.products[-1]),
            rtol=0.0,
            atol=room,
            source=source,
        ),
    ]
    counted = last > COUNTED * top if top > 0 else np.zeros(len(last), bool)
    if top > 0 and not np.any((last > COUNTED * top / DOUBTFUL) & (last < COUNTED * top * DOUBTFUL)):
        found.append(Prediction("rank_end", "rank at the end", float(counted.sum()), rtol=0.0, source=source))
    if counted.any():
        moments = learning_times(curve.times, curve.strengths[:, counted], last[counted], fraction=LEARNT)
        found.append(
            Prediction(
                "learning_times",
                "times at which the modes are half learnt",
                tuple(map(float, np.asarray(moments))),
                rtol=0.02,
                atol=1e-3 * curve.duration,
                source=source,
            )
        )
    return found


# ---- Two balanced layers ---------------------------------------------------------------------------------------------


def _two_layers(
    params: Params, layers: Layers, task: Task, problem: Problem, curve: Curve | None
) -> tuple[list[Finding], list[Prediction], Curve | None]:
    """Convergence, late rate and regime of two λ-balanced layers, and the curve, cut where its end is a saddle."""
    told = diagnose(params, task.target)
    ends = task.constant + task.speed * told.limit_loss
    found = [
        Finding(
            "convergence",
            "the product converges to the best one of these widths",
            STANDING.holds if told.converges else STANDING.fails,
            ends,
            reason=_convergence(told.guaranteed, told.obstructed, told.missing, told.bottleneck),
            source="exact/determinant-obstruction" if told.obstructed else "exact/theorem-c3",
        ),
        Finding(
            "convergence",
            "smallest overlap of the start with a mode that is to be learnt",
            value=told.smallest_overlap,
            source="exact/overlap-bound",
        ),
    ]
    predictions: list[Prediction] = []
    nothing = float(problem.loss.value(xp.zeros_like(task.target)))
    near = too_near(layers, float(np.linalg.svd(multiply(layers), compute_uv=False)[-1]))
    if told.obstructed and near:
        found.append(Finding("convergence", "the saddle is the end", STANDING.silent, reason=near))
        return found, [], None
    if curve is not None and abs(curve.loss - ends) > 1e-6 * max(float(problem.value(params)), nothing):
        curve = _cut(curve, task, ends)
        found.append(
            Finding(
                "convergence",
                "the saddle at the end is reached at the time",
                value=curve.duration,
                reason="It is unstable: rounding leaves it later, a training run, whose errors are larger, sooner. No "
                "limit but the loss is told.",
                source="exact.solve",
            )
        )
        predictions.append(Prediction("loss_end", "loss at the end", ends, source="exact.diagnose"))
    if told.converges and math.isfinite(told.rate) and told.rate > 0:
        rate = task.speed * told.rate
        found.append(
            Finding(
                "rates", "rate r of the last approach exp(−rt) of the product", value=rate, source="exact/late-rate"
            )
        )
        predictions.append(
            Prediction(
                "late_rate",
                "rate of the last approach",
                rate,
                "at least",
                0.1,
                source="exact/late-rate",
                offset=ends,
            )
        )
    if told.delay > 0:
        found.append(
            Finding("regime", "delay of the rich phase, about", value=told.delay / task.speed, source="exact.diagnose")
        )
    try:
        kind: Regime = regime(params, task.target)
    except (HypothesisError, ValueError) as error:
        found.append(
            Finding("regime", "lazy, rich or delayed", STANDING.silent, reason=str(error), source="exact.regime")
        )
        return found, predictions, curve
    times = f"half of the loss is gone at t = {kind.loss_time / task.speed:.3g}, half of the kernel's way at "
    times += f"{kind.kernel_time / task.speed:.3g}"
    if not (math.isfinite(kind.loss_time) and math.isfinite(kind.kernel_time)):
        times = "the start is as good as at its end"
    found.append(
        Finding(
            "regime",
            "lazy, rich or delayed",
            STANDING.holds,
            kind.label,
            reason=f"The tangent kernel turns by {kind.end:.3g} in all; {times}.",
            source="exact.regime",
        )
    )
    predictions.append(
        Prediction(
            "kernel_distance",
            "distance of the tangent kernel at the end",
            kind.end,
            rtol=1e-3,
            atol=1e-5,
            source="exact.regime",
        )
    )
    return found, predictions, curve


def _polished(layers: Layers, tolerance: float) -> Params:
    r"""Two layers without the imbalance that rounding left in them, with the same product.

    A symmetric change of the hidden basis, $W_1 \mapsto AW_1$ and $W_2 \mapsto W_2A^{-1}$, takes it away. Layers that
    are further from balance than the tolerance are left as they are.
    """
    first, second = layers
    hidden = len(first)
    size = float(np.sum(first**2) + np.sum(second**2))
    law = second.T @ second - first @ first.T
    lam = 0.0 if np.linalg.norm(law) <= tolerance * size else float(np.trace(law)) / hidden
    if not 0 < np.linalg.norm(law - lam * np.eye(hidden)) <= tolerance * size:
        return as_params(layers)
    for _ in range(POLISHINGS):
        law = second.T @ second - first @ first.T - lam * np.eye(hidden)
        values, basis = np.linalg.eigh(second.T @ second + first @ first.T)
        sums = values[:, None] + values[None, :]
        inner = np.where(sums > 1e-12 * values[-1], basis.T @ law @ basis / np.maximum(sums, 1e-300), 0.0)
        change = np.eye(hidden) + basis @ inner @ basis.T
        first, second = change @ first, second @ np.linalg.inv(change)
    return as_params((first, second))


def _check_overlap(params: Params, layers: Layers, task: Task) -> None:
    """Refuse a start whose overlap with a mode is no larger than what its rounding may hide."""
    told = diagnose(params, task.target)
    size = sum(float(np.sum(layer**2)) for layer in layers)
    law = layers[1].T @ layers[1] - layers[0] @ layers[0].T - told.lam * np.eye(len(layers[0]))
    residual = float(np.linalg.norm(law)) / size
    share = residual / max(told.smallest_overlap / math.sqrt(size), 1e-300)
    if share > SADDLE:
        raise HypothesisError("an imbalance small against the overlap with every mode", share, SADDLE)


def _convergence(guaranteed: bool, obstructed: bool, missing: int, bottleneck: bool) -> str:
    parts = []
    if guaranteed:
        parts.append("λ and the widths alone guarantee it.")
    if obstructed:
        parts.append("The determinant of the product has the wrong sign and cannot change it: a saddle is the end.")
    if missing:
        parts.append(f"{missing} mode{'s' * (missing > 1)} within reach {'are' if missing > 1 else 'is'} never learnt.")
    if bottleneck:
        parts.append("The hidden layer is narrower than the task.")
    return " ".join(parts)
