"""What a diagnosis would speak of and cannot: each with the reason, so that nothing is missing without a word."""

from collections.abc import Sequence

from deeplinear.diagnosis._completion import MOST_OBSERVED
from deeplinear.diagnosis._finding import STANDING, Finding, Prediction
from deeplinear.diagnosis._forms import FORMS
from deeplinear.diagnosis._structure import Layers
from deeplinear.diagnosis._task import Task
from deeplinear.models import Completion, EntryCompletion, Problem, Regression, SampleRegression


def silent_findings(
    problem: Problem,
    layers: Layers,
    task: Task | None,
    found: Sequence[Finding],
    predictions: Sequence[Prediction],
) -> list[Finding]:
    """One line for each subject that no line speaks of."""
    topics = {finding.topic for finding in found}
    statements = " ".join(finding.statement for finding in found)
    lines = []
    if "balance" not in topics:
        lines.append(("balance", "neighbouring layers are balanced", "There is one layer.", ""))
    if "observations" not in topics:
        reason = f"It is about observed entries of the product, but the loss is {type(problem.loss).__name__}."
        lines.append(
            ("observations", "the observations are connected, the dynamics coupled", reason, "dynamics.coupling")
        )
    if "saddles" not in topics:
        told = [finding.reason for finding in found if finding.statement == "critical points are known"]
        reason = told[0] if told else _no_task(problem)
        lines.append(("saddles", "saddles that can lie ahead", reason, "landscape.reduction_of"))
    if "obstruction" not in topics:
        reason = "It is stated without a penalty on the weights." if len(layers) > 1 else "There is one layer."
        lines.append(("obstruction", "the product keeps its rank at all finite times", reason, "completion/lemma-f1"))
    if "convergence" not in topics:
        lines.append(
            (
                "convergence",
                "the product converges to the best one of these widths",
                _no_pair(problem, layers, task, found),
                "exact/theorem-c3",
            )
        )
    if not any(one.name == "product_end" for one in predictions):
        reason = (
            "The closed form above tends to a saddle, which rounding leaves, or takes longer than was looked at."
            if any(f.topic == "closed form" and f.standing is STANDING.holds for f in found)
            else "No closed form applies, as told above; a simulation shows where training ends."
        )
        lines.append(("limit", "limit of the product, its rank, and when its modes are learnt", reason, "exact.solve"))
    if "lazy, rich or delayed" not in statements:
        lines.append(("regime", "lazy, rich or delayed", _no_pair(problem, layers, task, found), "exact.regime"))
    if "lazy: " not in statements:
        lines.append(
            (
                "regime",
                "lazy: the layers fit their observations near their start, with a bound on their stable rank",
                _no_lazy(problem, layers),
                "completion/theorem-4.3",
            )
        )
    if "falls at least like" not in statements:
        lines.append(
            (
                "rates",
                "the loss falls at least like exp(−2kt) for all times",
                _no_task(problem),
                "landscape.rate_report",
            )
        )
    if "at a balanced minimum" not in statements:
        lines.append(
            (
                "curvature",
                "at a balanced minimum: step, rate, stiffness",
                _no_minimum(problem, layers),
                "network/balanced-spectrum",
            )
        )
    return [
        Finding(topic, statement, STANDING.silent, reason=reason, source=source)
        for topic, statement, reason, source in lines
    ]


def _no_task(problem: Problem) -> str:
    if float(problem.l2) > 0:
        return f"It is known without a penalty on the weights, but l2 is {float(problem.l2):.4g}."
    if isinstance(problem.loss, Regression | SampleRegression):
        return "All inputs are zero."
    return f"It is known for the squared error of the whole product, but the loss is {type(problem.loss).__name__}."


def _no_pair(problem: Problem, layers: Layers, task: Task | None, found: Sequence[Finding]) -> str:
    """Why what is known of two λ-balanced layers under white inputs is not known here."""
    known = "It is known for two λ-balanced layers under white inputs"
    if task is None:
        return f"{known}. {_no_task(problem)}"
    if len(layers) != 2:
        return f"{known}, but {_count(layers)}."
    if not task.white:
        return f"{known}, but the inputs are white only to {task.colour:.2g}."
    forms = [finding for finding in found if finding.topic == "closed form"]
    refused = next((finding for finding in forms if finding.statement == FORMS["whitened"]), None)
    if refused is None or refused.standing is STANDING.holds:
        return f"{known}; the closed form that applies here is another one."
    missed = "" if refused.residual is None else f" (residual {refused.residual:.2g})"
    return f"{known}. {refused.reason.rstrip('.')}{missed}."


def _no_lazy(problem: Problem, layers: Layers) -> str:
    known = "It is known for two balanced layers that fit observed entries"
    if not isinstance(problem.loss, Completion | EntryCompletion):
        return f"{known}, but the loss is {type(problem.loss).__name__}."
    if len(layers) != 2:
        return f"{known}, but {_count(layers)}."
    return f"{known}; it is computed for at most {MOST_OBSERVED} of them."


def _no_minimum(problem: Problem, layers: Layers) -> str:
    return "There is one layer: the Hessian is the same everywhere." if len(layers) == 1 else _no_task(problem)


def _count(layers: Layers) -> str:
    return "there is one layer" if len(layers) == 1 else f"there are {len(layers)} layers"
