"""Matrix completion: connected or not, coupled or not, lazy or not."""

import numpy as np

from deeplinear.core import HypothesisError, NumericalError, Params
from deeplinear.diagnosis._finding import STANDING, Finding, Prediction
from deeplinear.diagnosis._structure import Layers
from deeplinear.diagnosis._task import ENVELOPE
from deeplinear.dynamics import coupling
from deeplinear.exact import LazyCertificate, lazy_certificate
from deeplinear.models import (
    Completion,
    DeepLinear,
    EntryCompletion,
    Problem,
    entry_connectivity,
    entry_gram,
    observed_entries,
)

MOST_OBSERVED = 600
"""Most observations whose influence on each other is made as a matrix."""


def completion_findings(
    problem: Problem, params: Params, layers: Layers, tolerance: float
) -> tuple[list[Finding], list[Prediction]]:
    """What the pattern of the observations and the start say together."""
    network = problem.model
    if not isinstance(problem.loss, Completion | EntryCompletion) or not isinstance(network, DeepLinear):
        return [], []
    seen = observed_entries(problem.loss)
    graph = entry_connectivity(seen.rows, seen.columns, network.product_shape)
    parts = len(graph.components)
    found = [
        Finding(
            "observations",
            "observed entries",
            value=f"{len(seen.rows)} of {network.product_shape[0] * network.product_shape[1]}",
        ),
        Finding(
            "observations",
            "the observation graph is connected",
            STANDING.holds if graph.connected else STANDING.fails,
            f"{parts} component{'s' * (parts > 1)}",
            source="models.connectivity",
        ),
    ]
    for name, alone in (("rows", graph.isolated_rows), ("columns", graph.isolated_columns)):
        if alone:
            found.append(Finding("observations", f"{name} without an observation", value=float(len(alone))))
    if network.depth < 2:
        reason = "The entries of a single layer never influence each other."
        return [*found, Finding("observations", "the dynamics is coupled", STANDING.fails, reason=reason)], []
    if len(seen.rows) > MOST_OBSERVED:
        reason = f"There are {len(seen.rows)} observations, more than {MOST_OBSERVED}."
        return [*found, Finding("observations", "the dynamics is coupled", STANDING.silent, reason=reason)], []
    found.append(_coupling(problem, params))
    gram = np.asarray(entry_gram(network, params, seen.rows, seen.columns))
    slowest = max(float(np.linalg.eigvalsh(gram)[0]), 0.0)
    found.append(
        Finding(
            "rates",
            "rate k of the loss exp(−2kt) that holds now",
            value=slowest,
            reason="The smallest eigenvalue of the influence of the observed entries on each other.",
            source="models.entry_gram",
        )
    )
    lazy, predictions = _lazy(problem, params, tolerance) if network.depth == 2 else ([], [])
    return found + lazy, predictions


def _coupling(problem: Problem, params: Params) -> Finding:
    statement = "the observed entries influence each other (coupled dynamics)"
    try:
        told = coupling(problem, params)
    except NumericalError as error:
        return Finding("observations", statement, STANDING.silent, reason=str(error), source="dynamics.coupling")
    text = str(told)
    return Finding(
        "observations",
        statement,
        STANDING.holds if told.coupled else STANDING.fails,
        "coupled" if told.coupled else f"{len(told.partition)} parts",
        told.residual,
        None,
        text[0].upper() + text[1:] + ".",
        "completion/depth-2-components" if problem.model.shapes[2:] == () else "dynamics.coupling",
    )


def _lazy(problem: Problem, params: Params, tolerance: float) -> tuple[list[Finding], list[Prediction]]:
    """Whether two balanced layers provably fit their observations near their start."""
    statement = "lazy: the layers fit their observations near their start"
    told: LazyCertificate | None = None
    for constant in ("one", "width"):
        try:
            told = lazy_certificate(problem, params, constant=constant, balance_tolerance=tolerance)
        except (HypothesisError, ValueError) as error:
            return [
                Finding("regime", statement, STANDING.silent, reason=str(error), source="completion/theorem-4.3")
            ], []
        if told.applicable:
            break
    assert told is not None  # the loop has run
    source = "completion/theorem-4.3" if told.constant > 1 else "completion/lazy-dimension-free"
    if not told.applicable:
        value = told.loss / told.threshold if told.threshold > 0 else None
        reason = told.reason + (" The value is the loss over its threshold." if value is not None else "")
        return [Finding("regime", statement, STANDING.fails, value, reason=reason, source=source)], []
    assert told.displacement is not None and told.sharper_stable_rank is not None and told.rate is not None
    found = Finding(
        "regime",
        statement,
        STANDING.holds,
        told.loss / told.threshold,
        reason=f"They move by at most {told.displacement:.4g}, the loss falls at least like exp(−{told.rate:.4g} t), "
        f"and the stable rank of either stays above {told.sharper_stable_rank:.4g}.",
        source=source,
    )
    predictions = [
        Prediction("displacement", "way of the layers", told.displacement, "at most", 1e-6, source=source),
        Prediction(
            "layer_stable_rank",
            "stable rank of the last layer",
            told.sharper_stable_rank,
            "at least",
            1e-6,
            source=source,
        ),
        Prediction(
            "lazy_envelope",
            f"largest loss over its envelope exp(−{told.rate:.4g} t)",
            1.0,
            "at most",
            ENVELOPE,
            source=source,
            rate=told.rate,
        ),
    ]
    return [found], predictions
