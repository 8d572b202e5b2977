"""What the weights and the task tell together: loss, curvature, step size, saddles, rates."""

import math
from typing import NamedTuple

import numpy as np

from deeplinear.core import HypothesisError, Params
from deeplinear.diagnosis._finding import STANDING, Finding, Prediction, standing_of
from deeplinear.diagnosis._structure import BALANCE_TOLERANCE, Layers, imbalance, multiply, too_near
from deeplinear.landscape import (
    Reduction,
    balanced_spectrum,
    check_assumptions,
    classify,
    descent_threshold,
    hessian_spectrum,
    rate_report,
    reduction_of,
)
from deeplinear.models import DeepLinear, Problem, Regression, SampleRegression, SquaredDistance

WHITE_TOLERANCE = 1e-10
r"""Largest $\|S - cI\|_2/c$ of an input covariance that counts as white; that of `exact`."""

DENSE = 800
"""Most weights whose Hessian is decomposed as a whole."""

MOST_LEVELS = 6
"""Most saddle levels that are listed."""

SINGULAR = 1e-14
"""Singular values of the product below this share of the largest are rounding."""

ROUNDED = 1e-13
"""Relative imbalance that is rounding of 64-bit numbers."""

ENVELOPE = 5e-3
"""Share by which a run may exceed an envelope, for the errors of its integration."""

SPECTRUM = "landscape.hessian_spectrum"


class Task(NamedTuple):
    r"""A least-squares task $\tfrac12\mathrm{tr}((W - W^\star)S(W - W^\star)^\top)$ plus a constant.

    `speed` is the mean variance $c$ of the inputs and `colour` $\|S - cI\|_2/c$.
    """

    target: np.ndarray
    covariance: np.ndarray
    speed: float
    colour: float
    constant: float

    @property
    def white(self) -> bool:
        """Whether the inputs are white up to a factor."""
        return self.colour <= WHITE_TOLERANCE


def task_of(problem: Problem) -> Task | None:
    """The least-squares task of a problem on the whole product, if it is one without a penalty."""
    loss = problem.loss
    if float(problem.l2) > 0 or not isinstance(problem.model, DeepLinear):
        return None
    if isinstance(loss, SampleRegression):
        loss = Regression.from_data(loss.inputs, loss.outputs)
    if isinstance(loss, SquaredDistance):
        target = np.asarray(loss.target)
        return Task(target, np.eye(target.shape[1]), 1.0, 0.0, 0.0)
    if not isinstance(loss, Regression):
        return None
    covariance = np.asarray(loss.sxx)
    speed = float(np.trace(covariance)) / len(covariance)
    if speed <= 0:
        return None
    colour = float(np.linalg.norm(covariance - speed * np.eye(len(covariance)), 2)) / speed
    return Task(np.asarray(loss.solution), covariance, speed, colour, 0.0 if loss.reduced else float(loss.offset))


def units(problem: Problem) -> str:
    """What the loss is, in words, with the factor to that of PyTorch."""
    if isinstance(problem.loss, Regression | SampleRegression):
        out = problem.model.product_shape[0]
        return (
            "Half the mean over samples of the squared error, summed over outputs"
            + (", without its constant" if isinstance(problem.loss, Regression) and problem.loss.reduced else "")
            + f"; torch.nn.MSELoss is {2 / out:.4g} of it (2/outputs), and its flow runs at {2 / out:.4g} of the speed."
        )
    if isinstance(problem.loss, SquaredDistance):
        return "Half the sum of the squared errors of all entries of the product."
    return ""


def task_findings(problem: Problem, params: Params, layers: Layers, task: Task | None) -> list[Finding]:
    """Loss, gradient, the task's strengths and assumptions, the kind of point, saddles ahead."""
    value, gradient = problem.value_and_gradient(params)
    size = math.sqrt(sum(float(np.sum(np.asarray(g) ** 2)) for g in gradient))
    found = [
        Finding("task", "loss", value=float(value), reason=units(problem)),
        Finding("task", "norm of the gradient", value=size),
    ]
    if float(problem.l2) > 0:
        found.append(
            Finding(
                "task",
                "no penalty on the weights",
                STANDING.fails,
                float(problem.l2),
                reason="A penalty lets the imbalance decay; closed forms and conserved quantities need l2 = 0.",
                source="network/proposition-10",
            )
        )
    if task is None:
        return found
    found.append(
        Finding(
            "task",
            "inputs are white, covariance cI",
            standing_of(task.colour, WHITE_TOLERANCE),
            task.speed,
            task.colour,
            WHITE_TOLERANCE,
            "" if task.white else "The flow of the weights is another one than on white inputs.",
            "exact.solve",
        )
    )
    try:
        reduction = reduction_of(problem)
    except HypothesisError as error:
        return [*found, Finding("task", "critical points are known", STANDING.silent, reason=str(error))]
    return found + _critical(problem, layers, reduction, float(value))


def _critical(problem: Problem, layers: Layers, reduction: Reduction, value: float) -> list[Finding]:
    network = problem.model
    assert isinstance(network, DeepLinear)  # a reduction has no other
    sigma, constant = np.asarray(reduction.sigma), float(reduction.constant)
    reach = min(len(sigma), *network.widths)
    least = constant + 0.5 * float(np.sum(sigma[reach:] ** 2))
    given = check_assumptions(sigma, network.widths)
    found = [
        Finding(
            "task",
            "strengths of the modes of the task",
            value=tuple(map(float, sigma)),
            source="landscape.reduction_of",
        ),
        Finding(
            "task",
            "the widths carry every mode of the task",
            STANDING.holds if given.filling else STANDING.fails,
            least,
            reason=f"The least loss of these widths is {least:.6g}.",
            source="network/proposition-3",
        ),
        Finding(
            "task",
            "the modes have positive and distinct strengths",
            STANDING.holds if given.positive and given.distinct else STANDING.fails,
            reason=" ".join(reduction.notes),
            source="landscape.check_assumptions",
        ),
    ]
    point = classify(problem, layers)
    found.append(
        Finding(
            "saddles",
            "kind of point",
            value=point.kind.value,
            reason=" ".join(point.notes),
            source="landscape.classify",
        )
    )
    if len(layers) == 1:
        reason = "With one layer the loss is convex: there are none."
        return [*found, Finding("saddles", "saddles that can lie ahead", STANDING.silent, "none", reason=reason)]
    strong = int(np.sum(sigma[:reach] > SINGULAR * sigma[0])) if sigma[0] > 0 else 0
    levels = [constant + 0.5 * float(np.sum(sigma[k:] ** 2)) for k in range(strong)]
    ahead = [level for level in levels if level < value - 1e-9 * max(abs(value), 1e-300)]
    found.append(
        Finding(
            "saddles",
            "losses of the saddles that can lie ahead, strongest modes first",
            value=tuple(ahead[:MOST_LEVELS]) if ahead else "none",
            reason=(
                f"{len(ahead)} in all: the loss never rises, so a saddle above {value:.4g} is not met. Whether one is "
                "passed closely is a matter of the start."
                if ahead
                else "The loss is below that of every saddle with the strongest modes."
            ),
            source="network/proposition-14",
        )
    )
    return found


# ---- Curvature -------------------------------------------------------------------------------------------------------


def curvature_findings(
    problem: Problem, params: Params, layers: Layers, task: Task | None, tolerance: float = BALANCE_TOLERANCE
) -> list[Finding]:
    """Extreme eigenvalues of the Hessian, the step size they allow, and what a balanced minimum would allow."""
    found: list[Finding] = []
    size = sum(layer.size for layer in layers)
    try:
        if size <= DENSE:
            values = hessian_spectrum(problem, params).values
            high, low = float(values[-1]), float(values[0])
        else:
            high = float(hessian_spectrum(problem, params, 1, "largest", largest=DENSE).values[0])
            low = None
    except RuntimeError as error:
        return [Finding("curvature", "largest eigenvalue of the Hessian", STANDING.silent, reason=str(error))]
    found.append(Finding("curvature", "largest eigenvalue of the Hessian", value=high, source=SPECTRUM))
    if low is not None:
        found.append(Finding("curvature", "smallest eigenvalue of the Hessian", value=low, source=SPECTRUM))
    if high > 0:
        found.append(
            Finding(
                "curvature",
                "gradient descent is stable here below the step 2/λmax",
                value=2 / high,
                reason="Further on the curvature is another one.",
                source=SPECTRUM,
            )
        )
    if task is not None and len(layers) > 1:
        found += _at_minimum(problem, layers, task, tolerance)
    return found


def _at_minimum(problem: Problem, layers: Layers, task: Task, tolerance: float) -> list[Finding]:
    widths = (layers[0].shape[1], *(layer.shape[0] for layer in layers))
    sigma = np.linalg.svd(task.target, compute_uv=False)
    residual = imbalance(layers)
    source = "network/balanced-spectrum"

    def finding(statement: str, value: float | None, reason: str, source: str = source) -> Finding:
        standing = STANDING.silent if value is None else STANDING.holds
        return Finding("curvature", statement, standing, value, residual, tolerance, reason, source)

    everything = "at a balanced minimum: step, rate, stiffness"
    if standing_of(residual, tolerance) is not STANDING.holds:
        return [finding(everything, None, f"The imbalance is {residual:.2g} of the layers.")]
    try:
        step = float(descent_threshold(problem))
    except (HypothesisError, RuntimeError) as error:
        return [finding(everything, None, str(error))]
    if math.isinf(step):
        return [finding(everything, None, "The target vanishes, and the minimum is flat.")]
    reason = "If training ends at a minimum, balanced as it is now."
    statement = "largest step of gradient descent at a balanced minimum"
    found = [finding(statement, step, reason, "landscape.descent_threshold")]
    if not task.white or min(widths) < len(sigma) or not check_assumptions(sigma, widths).positive:
        reason = (
            "It needs a task of full rank and widths that carry it."
            if task.white
            else f"It is known for white inputs, but these are white only to {task.colour:.2g}."
        )
        return [*found, finding("at a balanced minimum: rate, stiffness", None, reason)]
    spectrum = task.speed * np.asarray(balanced_spectrum(sigma, widths[0], len(layers), out=widths[-1]))
    slow = float(spectrum[0])
    stiff = float(spectrum[-1]) / slow if slow > 0 else math.inf
    return [
        *found,
        finding("rate of the loss at a balanced minimum", 2 * slow, ""),
        finding("stiffness at a balanced minimum, largest rate over smallest", stiff, ""),
    ]


# ---- Rates -----------------------------------------------------------------------------------------------------------


def rate_findings(layers: Layers, params: Params, task: Task | None) -> tuple[list[Finding], list[Prediction]]:
    """Rates at which the loss must fall, now and for all times, on white inputs."""
    statement = "the loss falls at least like exp(−2kt) for all times"
    if task is None:
        return [], []
    if not task.white:
        reason = f"The inputs are not white: {task.colour:.2g}."
        return [Finding("rates", statement, STANDING.silent, reason=reason, source="landscape.rate_report")], []
    report = rate_report(params)
    speed = task.speed
    now = "rate k of the loss exp(−2kt) that holds now"
    known = f"The smallest eigenvalue of the tangent kernel, {report.method}."
    found = [
        Finding("rates", now, STANDING.silent, reason=f"The tangent kernel: {report.method}.", source="rate_report")
        if report.sharp is None
        else Finding("rates", now, value=speed * max(0.0, report.sharp), reason=known, source="landscape.sharp_rate")
    ]
    best = report.best
    if best is None or not best.rate:
        reasons = dict.fromkeys(rate.reason for rate in report.lasting)
        found.append(
            Finding(
                "rates", statement, STANDING.silent, reason=next(iter(reasons)) + ".", source="network/proposition-27"
            )
        )
        return found, []
    rate = speed * float(best.rate)
    found.append(
        Finding(
            "rates",
            statement,
            STANDING.holds,
            rate,
            reason=f"By the conserved quantities, {best.kind} with pivot {best.pivot}; a millionth of the loss is left "
            f"after t = {math.log(1e6) / (2 * rate):.4g} at the latest.",
            source="network/proposition-27" if best.kind == "pyramid" else "landscape.cumulative_rate",
        )
    )
    prediction = Prediction(
        "envelope",
        f"largest loss over its envelope exp(−{2 * rate:.4g} t)",
        1.0,
        "at most",
        ENVELOPE,
        source="landscape.rate_report",
        rate=2 * rate,
        offset=task.constant,
    )
    return found, [prediction]


# ---- Obstructions ----------------------------------------------------------------------------------------------------


def obstruction_findings(
    layers: Layers, task: Task | None, tolerance: float = BALANCE_TOLERANCE
) -> tuple[list[Finding], list[Prediction]]:
    """What balanced layers cannot change: the rank of the product, and the sign of its determinant."""
    if len(layers) < 2:
        return [], []
    product, source = multiply(layers), "geometry/determinant-sign"
    widths = (layers[0].shape[1], *(layer.shape[0] for layer in layers))
    residual = imbalance(layers)
    standing = standing_of(residual, tolerance)
    values = np.linalg.svd(product, compute_uv=False)[: min(widths)]
    rank = int(np.sum(values > SINGULAR * values[0])) if values[0] > 0 else 0
    reason = "" if standing is STANDING.holds else "Only balanced layers are bound to keep it."
    if standing is STANDING.holds:
        reason = too_near(layers, float(values[rank - 1])) if rank else ""
        if not reason and rank < len(values) and residual > ROUNDED:
            reason = f"The imbalance, {residual:.1g} of the layers, may hide modes that the product does not show yet."
    bound = standing is STANDING.holds and not reason
    kept = Finding(
        "obstruction",
        "the product keeps its rank at all finite times",
        STANDING.silent if standing is STANDING.fails or (standing is STANDING.holds and reason) else standing,
        float(rank),
        residual,
        tolerance,
        reason,
        "completion/lemma-f1",
    )
    if not bound or not len(product) == product.shape[1] == rank:
        return [kept], []
    sign = float(np.linalg.slogdet(product)[0])
    found = [kept, _kept_sign(sign, residual, tolerance, source)]
    predictions = [Prediction("determinant_sign", "sign of the determinant at the end", sign, source=source)]
    if task is None:
        return found, predictions
    strengths = np.linalg.svd(task.target, compute_uv=False)
    singular = not strengths[-1] > SINGULAR * strengths[0]
    wanted = 0.0 if singular else float(np.linalg.slogdet(task.target)[0])
    floor = task.constant + 0.5 * _smallest(task) ** 2
    reason = "" if sign == wanted else f"The target is out of reach: the loss stays above {floor:.6g}."
    if wanted == 0:
        standing, reason = STANDING.silent, "The target is singular."
    else:
        standing = STANDING.holds if sign == wanted else STANDING.fails
    statement = "the determinant of the target has the same sign"
    found.append(Finding("obstruction", statement, standing, wanted, reason=reason, source=source))
    if standing is STANDING.fails:
        predictions.append(Prediction("loss_floor", "lowest loss", floor, "at least", 1e-6, source=source))
    return found, predictions


def _kept_sign(sign: float, residual: float, tolerance: float, source: str) -> Finding:
    statement = "the determinant of the product keeps its sign"
    return Finding("obstruction", statement, STANDING.holds, sign, residual, tolerance, source=source)


def _smallest(task: Task) -> float:
    r"""Smallest singular value of $W^\star S^{1/2}$: how far the loss sees singular matrices from the target."""
    strengths, basis = np.linalg.eigh(task.covariance)
    seen = task.target @ (basis * np.sqrt(np.maximum(strengths, 0.0)))
    return float(np.linalg.svd(seen, compute_uv=False)[-1])
