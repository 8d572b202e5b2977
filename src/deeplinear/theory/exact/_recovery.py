"""The product determines the correlations of balanced two-layer networks, and the layers up to a rotation."""

from collections.abc import Sequence

import jax
import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.exact import Correlations, aligned_to, correlations_of, recover, recovered_correlations, stacked
from deeplinear.models import DeepLinear, Problem, SquaredDistance, lambda_estimate
from deeplinear.theory._check import Check, Measured, Violation
from deeplinear.theory.exact._convergence import BALANCED, NARROW, ROUNDING, Case, distance, draw_case, unbalanced


def blocks_apart(here: Correlations, there: Correlations) -> float:
    """Largest entry of the differences of all blocks."""
    return max(distance(a, b) for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True))


def adopt_case(problem: Problem, params: Params) -> Case:
    """Two layers with a squared distance from a target, as on whitened inputs."""
    fits = isinstance(problem.model, DeepLinear) and isinstance(problem.loss, SquaredDistance) and len(params) == 2
    if not fits:
        raise HypothesisError("two layers and the squared distance from a target", 1.0, 0.0)
    if float(problem.l2) > 0:
        raise HypothesisError("no penalty on the weights", float(problem.l2), 0.0)
    lam = float(lambda_estimate(params).lam[0])
    first, second = (np.asarray(layer) for layer in params)
    target = np.asarray(problem.loss.target)  # pyright: ignore[reportAttributeAccessIssue]
    return Case(first, second, target, lam if abs(lam) > ROUNDING else 0.0)


TIMES = (0.4, 1.5)
ORDER = 24
"""Terms of the series of one step of the flow."""
RECOVERY = {
    "correlations from the product, times its smallest singular value": 1e-10,  # some steps of a series to rounding
    "layers up to a rotation, times the smallest singular value": 1e-10,
}


def flown(case: Case, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Layers after a time of gradient flow, by power series in time: the oracle of this part, for any layers."""
    first, second, left = case.first, case.second, t
    while left > 0:
        w1, w2, error = (np.zeros((ORDER + 1, *m.shape)) for m in (first, second, case.target))
        w1[0], w2[0] = first, second
        for k in range(ORDER):
            error[k] = (case.target if k == 0 else 0) - np.einsum("jab,jbc->ac", w2[: k + 1], w1[k::-1])
            w1[k + 1] = np.einsum("jba,jbc->ac", w2[: k + 1], error[k::-1]) / (k + 1)
            w2[k + 1] = np.einsum("jab,jcb->ac", error[: k + 1], w1[k::-1]) / (k + 1)
        last = max(float(np.max(np.abs(w[-1]))) for w in (w1, w2))
        step = min(left, float((1e-18 / max(last, 1e-300)) ** (1 / ORDER)))
        powers = step ** np.arange(ORDER + 1)
        first, second, left = np.tensordot(powers, w1, 1), np.tensordot(powers, w2, 1), left - step
    return first, second


def _measure_recovery(cases: Sequence[Case]) -> list[Measured]:
    measured = []
    for case in cases:
        worst = [0.0, 0.0]
        for time in TIMES:
            w1, w2 = map(xp.asarray, flown(case, time))
            product = w2 @ w1
            weakest = min(1.0, float(np.linalg.svd(product, compute_uv=False)[min(product.shape) - 1]))
            true = correlations_of(stacked((w1, w2)), case.widths[0])
            worst[0] = max(worst[0], weakest * blocks_apart(recovered_correlations(product, case.lam), true))
            turned = aligned_to(recover(product, case.lam), (w1, w2))
            worst[1] = max(worst[1], weakest * max(distance(a, b) for a, b in zip(turned, (w1, w2), strict=True)))
        measured.append(Measured(dict(zip(RECOVERY, worst, strict=True))))
    return measured


THEOREM_52 = Check(
    id="exact/theorem-5.2",
    source="Theorems 5.2 and C.2",
    statement=(
        "Along the flow of λ-balanced layers a product of full rank W₂W₁ = USVᵀ determines W₁ᵀW₁ = V(s_λ − λ/2)Vᵀ and "
        "W₂W₂ᵀ = U(s_λ + λ/2)Uᵀ, and both layers up to one rotation of the hidden basis."
    ),
    hypotheses=(BALANCED, NARROW),
    tolerances=RECOVERY,
    measure=_measure_recovery,
    draw=draw_case,
    violations=(Violation("layers that are not balanced", lambda rng: unbalanced(rng, draw_case(rng))),),
    adopt=adopt_case,
)

CHECKS: tuple[Check, ...] = (THEOREM_52,)
