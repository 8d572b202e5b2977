"""What two layers conserve under gradient flow, and how it drifts under gradient descent."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.theory._check import Check, Measured, Violation
from deeplinear.theory.exact._two_layers import PLAIN, Two, adopt_two, draw_two, flow_factors

KEPT = {"change of W₂ᵀW₂ − W₁W₁ᵀ, relative": 1e-12}


def measure_conserved(instances: Sequence[Two], printed: bool = False) -> list[Measured]:
    measured = []
    for two, run in zip(instances, flow_factors(instances), strict=True):
        first, second = np.swapaxes(run[:, : two.widths[0]], 1, 2), run[:, two.widths[0] :]
        scale = np.sum(two.factor**2)
        outer = first @ np.swapaxes(first, 1, 2)
        balance = np.swapaxes(second, 1, 2) @ second - outer
        changed = None
        if printed:
            mistaken = second @ np.swapaxes(second, 1, 2) - outer
            changed = float(np.max(np.abs(mistaken - mistaken[0])) / scale)
        change = float(np.max(np.abs(balance - balance[0])) / scale)
        measured.append(Measured(dict(zip(KEPT, [change], strict=True)), printed=changed))
    return measured


def draw_any(rng: np.random.Generator) -> Two:
    """Any layers, any covariance of the inputs."""
    two = draw_two(rng, covariance=True)
    first, second = rng.normal(size=two.first.shape), rng.normal(size=two.second.shape)
    return dataclasses.replace(two, first=first, second=second, target=1.5 * two.target)


DECAYED = Violation[Two]("weight decay", lambda rng: dataclasses.replace(draw_any(rng), decay=0.3))

THEOREM_A2 = Check(
    id="exact/theorem-a2",
    source="Theorem A.2",
    statement="Under gradient flow W₂ᵀW₂ − W₁W₁ᵀ is constant, from any start and for any covariance of the inputs.",
    hypotheses=(PLAIN,),
    tolerances=KEPT,
    measure=measure_conserved,
    draw=draw_any,
    violations=(DECAYED,),
    adopt=adopt_two,
)

STEP = {"one step against η²(g₂ᵀg₂ − g₁g₁ᵀ), relative": 1e-12, "drift beyond η² Σ‖g‖²": 1e-12}


@dataclasses.dataclass(frozen=True)
class Descent:
    """Gradient descent from two layers; `in_turn` moves the second layer after the first, not with it."""

    start: Two
    rate: float
    steps: int
    in_turn: bool = False

    def run(self) -> tuple[list[np.ndarray], list[np.ndarray], list[tuple[np.ndarray, np.ndarray]]]:
        """Both layers at every step, and the gradients there."""
        first, second = self.start.first, self.start.second
        firsts, seconds, gradients = [first], [second], []
        for _ in range(self.steps):
            error = second @ first @ self.start.sxx - self.start.target
            g1, g2 = second.T @ error, error @ first.T
            first = first - self.rate * g1
            if self.in_turn:
                g2 = (second @ first @ self.start.sxx - self.start.target) @ first.T
            second = second - self.rate * g2
            firsts.append(first)
            seconds.append(second)
            gradients.append((g1, g2))
        return firsts, seconds, gradients


def _measure_descent(instances: Sequence[Descent]) -> list[Measured]:
    measured = []
    for descent in instances:
        firsts, seconds, gradients = descent.run()
        balance = [b.T @ b - a @ a.T for a, b in zip(firsts, seconds, strict=True)]
        power = descent.rate**2
        step = max(
            float(np.max(np.abs(balance[k + 1] - balance[k] - power * (g2.T @ g2 - g1 @ g1.T))))
            for k, (g1, g2) in enumerate(gradients)
        )
        total = power * np.cumsum([np.sum(g1**2) + np.sum(g2**2) for g1, g2 in gradients])
        drift = np.array([np.linalg.norm(b - balance[0]) for b in balance[1:]])
        scale = float(np.sum(descent.start.factor**2))
        numbers = (step / scale, float(np.max(drift - total)) / scale)
        ratio = float(np.max(drift / total))
        measured.append(Measured(dict(zip(STEP, numbers, strict=True)), facts={"drift over its bound": ratio}))
    return measured


DISCRETE = Check(
    id="exact/balance-under-descent",
    source="extension of Theorem A.2",
    statement=(
        "A step of gradient descent changes W₂ᵀW₂ − W₁W₁ᵀ by η²(g₂ᵀg₂ − g₁g₁ᵀ), so that its drift is at most η² Σ‖g‖²."
    ),
    hypotheses=(),
    tolerances=STEP,
    measure=_measure_descent,
    draw=lambda rng: Descent(draw_any(rng), float(10 ** rng.uniform(-3, -1.5)), 100),
    violations=(Violation("layers moved in turn", lambda rng: Descent(draw_any(rng), 0.02, 100, in_turn=True)),),
)

CHECKS: tuple[Check, ...] = (
    THEOREM_A2,
    DISCRETE,
)
