"""A chain of three numbers: three layers of one unit each."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import chain_minimum, diagonal_limit
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation


@dataclasses.dataclass(frozen=True)
class Chain:
    """Three layers of one unit each, and their target."""

    weights: np.ndarray
    sigma: float
    told: float | None = None

    @property
    def known(self) -> float:
        return self.sigma if self.told is None else self.told

    @property
    def laws(self) -> np.ndarray:
        """w₂² - w₁² and w₃² - w₂²."""
        return np.diff(self.weights**2)


def _draw_chain(rng: np.random.Generator) -> Chain:
    sizes = rng.permutation([0.4, 0.8, 1.2]) + rng.uniform(0, 0.2, 3)
    return Chain(rng.choice([-1, 1], 3) * sizes, float(rng.uniform(0.5, 2)))


CUBIC = {
    "squares at the minimum against the roots of x(x - c₁)(x + c₂) = σ²": 1e-9,
    "weights at the end: product less σ": 1e-12,
    "and change of what is conserved": 1e-12,
}


def _measure_cubic(instances: Sequence[Chain]) -> list[Measured]:
    measured = []
    for chain in instances:
        c1, c2 = chain.laws
        roots = np.roots([1.0, c2 - c1, -c1 * c2, -(chain.sigma**2)])
        x = max(root.real for root in roots if abs(root.imag) < 1e-6)
        squares = np.asarray(chain_minimum(chain.laws, chain.known))
        gap = float(np.max(np.abs(squares - [x - c1, x, x + c2])))
        end = np.asarray(diagonal_limit(chain.weights[:, None], chain.known).weights)[:, 0]
        drift = float(np.max(np.abs(np.diff(end**2) - chain.laws)))
        measured.append(Measured(dict(zip(CUBIC, (gap, abs(float(np.prod(end)) - chain.sigma), drift), strict=True))))
    return measured


def _untied(chain: Chain) -> float:
    """By how much the sizes of two layers differ at least, less what is asked."""
    sizes = np.sort(np.abs(chain.weights))
    return 1e-2 - float(np.min(np.diff(sizes)))


def _tied(rng: np.random.Generator) -> Chain:
    """(x, y, -x) with |y| > |x|: both neighbours differ, the outer layers do not."""
    low, high = rng.uniform(0.3, 1.0), rng.uniform(1.3, 2.5)
    return Chain(np.array([low, high, -low]), float(rng.uniform(0.5, 2)))


SECTION_6_2_2 = Check(
    id="network/section-6.2.2",
    source="Section 6.2.2, equation 65",
    statement="Three layers of one unit whose sizes differ end at the minimum given by the one root of "
    "x(x - c₁)(x + c₂) = σ², x = w₂², that makes all squares positive.",
    hypotheses=(Hypothesis("sizes that differ", _untied),),
    tolerances=CUBIC,
    measure=_measure_cubic,
    draw=_draw_chain,
    violations=(
        Violation("another target", lambda rng: dataclasses.replace(_draw_chain(rng), sigma=1.0, told=1.1)),
        Violation("outer layers of equal size and a negative product", _tied),
    ),
)

NEGATIVE = {"loss at the end of the flow": 1e-16}


def _last_loss(chain: Chain) -> float:
    from scipy.integrate import solve_ivp

    def field(_: float, y: np.ndarray) -> np.ndarray:
        a, b, c = y
        return (chain.sigma - a * b * c) * np.array([b * c, a * c, a * b])

    run = solve_ivp(field, (0, 60.0), chain.weights, method="LSODA", rtol=1e-11, atol=1e-13)
    return 0.5 * (chain.sigma - float(np.prod(run.y[:, -1]))) ** 2


def _measure_negative(instances: Sequence[Chain]) -> list[Measured]:
    measured = []
    for chain in instances:
        w = chain.weights
        low, high = np.sort(np.abs(w))[[0, 2]]
        stuck = Chain(np.array([low, high, -low]), chain.sigma)  # w₁² - w₂² and w₂² - w₃² are not zero; their sum is
        numbers = dict.fromkeys(NEGATIVE, _last_loss(chain))
        measured.append(Measured(numbers, printed=_last_loss(stuck), facts={"saddle": 0.5 * chain.sigma**2}))
    return measured


ERRATUM_CHAIN = Check(
    id="network/erratum-chain",
    source="Section 6.2.2, below equation 65",
    statement="The loss of three layers of one unit falls to zero if w₁² - w₂², w₂² - w₃² and w₁² - w₃² are not zero.",
    hypotheses=(Hypothesis("sizes that differ", _untied),),
    tolerances=NEGATIVE,
    measure=_measure_negative,
    draw=_draw_chain,
    violations=(Violation("outer layers of equal size and a negative product", _tied),),
    printed="The derivative of the loss is negative definite as soon as w₁² - w₂² and w₂² - w₃² are not zero; but "
    "(x, y, -x) with |y| > |x| ends at a saddle.",
    printed_tolerance=1e-6,
)
