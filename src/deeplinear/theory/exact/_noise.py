"""What noise in inputs and weights costs a trained two-layer network, and the relative scale that bears it best."""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from deeplinear.exact import input_noise_loss, noise_optimal_lambda, weight_noise_loss
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation

ROUNDING = 1e-12
"""A few thousand roundings."""

ARCHITECTURES = ((2, 2, 2), (3, 2, 2), (2, 2, 3))
"""Few enough weights to average over all signs of noise."""

# The expected loss is a polynomial in which every entry of the noise has degree two, so that noise of random signs
# gives it exactly, as a finite sum: the oracle of this file.


def _signs(count: int) -> np.ndarray:
    return np.array(list(itertools.product((-1.0, 1.0), repeat=count)))


def _rotation(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


# ---- Noise in the inputs ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """A regression task on white inputs, samples in columns, a product and the standard deviation of the noise."""

    inputs: np.ndarray
    outputs: np.ndarray
    product: np.ndarray
    std: float

    @property
    def target(self) -> np.ndarray:
        return self.outputs @ self.inputs.T / self.inputs.shape[1]

    @property
    def floor(self) -> float:
        samples = self.inputs.shape[1]
        return 0.5 * (float(np.sum(self.outputs**2)) / samples - float(np.sum(self.target**2)))


def _draw_inputs(rng: np.random.Generator) -> Trained:
    inp, out = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    samples = inp + 3
    x = rng.normal(size=(inp, samples))
    values, vectors = np.linalg.eigh(x @ x.T / samples)
    x = (vectors / np.sqrt(values)) @ vectors.T @ x
    task = Trained(x, rng.normal(size=(out, samples)), np.zeros(0), 10 ** rng.uniform(-1, 1))
    return dataclasses.replace(task, product=task.target)


def _measure_inputs(cases: Sequence[Trained]) -> list[Measured]:
    measured = []
    for case in cases:
        noise = case.std * _signs(case.inputs.shape[0])
        seen = case.inputs.T[:, None] + noise  # (samples, patterns, in)
        residuals = seen @ case.product.T - case.outputs.T[:, None]
        wanted = 0.5 * float(np.mean(np.sum(residuals**2, axis=-1)))
        strengths = np.linalg.svd(case.product, compute_uv=False)
        ours, printed = (
            float(input_noise_loss(strengths, case.std, case.floor, as_printed=flag)) for flag in (False, True)
        )
        measured.append(
            Measured(
                {EXPECTED: abs(ours / wanted - 1)},
                printed=abs(printed / wanted - 1),
                facts={"expected loss": wanted, "as printed": printed},
            )
        )
    return measured


EXPECTED = "relative distance from the exact average"
CONVERGED: Hypothesis[Trained] = Hypothesis(
    "the product is the target",
    lambda case: float(np.linalg.norm(case.product - case.target) / np.linalg.norm(case.target)),
    ROUNDING,
)


def _unfinished(rng: np.random.Generator) -> Trained:
    case = _draw_inputs(rng)
    return dataclasses.replace(case, product=0.7 * case.product)


ERRATUM_INPUT_NOISE = Check(
    id="exact/erratum-input-noise",
    source="Equation 171",
    statement=(
        "A trained network on white inputs with noise of standard deviation σ in its inputs has the expected loss "
        "½σ² Σ s_k² + c, whatever λ."
    ),
    hypotheses=(CONVERGED,),
    tolerances={EXPECTED: ROUNDING},
    measure=_measure_inputs,
    draw=_draw_inputs,
    violations=(Violation("a network that has not converged", _unfinished),),
    printed="The expected loss is σ² Σ s_k² + c.",
    printed_tolerance=ROUNDING,
)


# ---- Noise in the weights --------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """Two layers, the λ the formula is told, and the standard deviation of the noise."""

    first: np.ndarray
    second: np.ndarray
    lam: float
    std: float

    @property
    def widths(self) -> tuple[int, int, int]:
        return self.first.shape[1], self.first.shape[0], self.second.shape[0]

    @property
    def balance(self) -> np.ndarray:
        return self.second.T @ self.second - self.first @ self.first.T


def _draw_weights(rng: np.random.Generator) -> Weights:
    inp, hidden, out = ARCHITECTURES[rng.integers(len(ARCHITECTURES))]
    lam, s = float(rng.uniform(-4, 4)), rng.uniform(0.1, 2.0, size=hidden)
    root = np.sqrt(s**2 + lam**2 / 4)
    turn = _rotation(rng, hidden)
    first = turn @ np.diag(np.sqrt(root - lam / 2)) @ _rotation(rng, inp)[:hidden]
    second = _rotation(rng, out)[:, :hidden] @ np.diag(np.sqrt(root + lam / 2)) @ turn.T
    return Weights(first, second, lam, 10 ** float(rng.uniform(-1, 0.5)))


def _measure_weights(cases: Sequence[Weights]) -> list[Measured]:
    measured = []
    for case in cases:
        inp, hidden, out = case.widths
        noise = case.std * _signs(hidden * (inp + out))
        first = case.first + noise[:, : hidden * inp].reshape(-1, hidden, inp)
        second = case.second + noise[:, hidden * inp :].reshape(-1, out, hidden)
        target = case.second @ case.first
        wanted = 0.5 * float(np.mean(np.sum((second @ first - target) ** 2, axis=(1, 2))))
        strengths = np.linalg.svd(target, compute_uv=False)[:hidden]
        ours, printed = (
            float(weight_noise_loss(strengths, case.lam, case.widths, case.std, as_printed=flag))
            for flag in (False, True)
        )
        measured.append(
            Measured(
                {EXPECTED: abs(ours / wanted - 1)},
                printed=abs(printed / wanted - 1),
                facts={"expected loss": wanted, "as printed": printed, "λ": case.lam},
            )
        )
    return measured


BALANCED: Hypothesis[Weights] = Hypothesis(
    "λ-balanced",
    lambda case: float(np.linalg.norm(case.balance - case.lam * np.eye(len(case.balance)))),
    1e-10,
)


def _unbalanced(rng: np.random.Generator) -> Weights:
    case = _draw_weights(rng)
    return dataclasses.replace(case, first=1.3 * case.first)


ERRATUM_WEIGHT_NOISE = Check(
    id="exact/erratum-weight-noise",
    source="Equations 173-175",
    statement=(
        "A trained λ-balanced network on white inputs with noise of standard deviation σ in its weights has the "
        "expected loss ½σ²(N_i‖W₂‖² + N_o‖W₁‖²) + ½N_i N_h N_o σ⁴ + c with ‖W₂‖² = Σ(√(λ² + 4s²) + λ)/2 and "
        "‖W₁‖² = Σ(√(λ² + 4s²) − λ)/2."
    ),
    hypotheses=(BALANCED,),
    tolerances={EXPECTED: ROUNDING},
    measure=_measure_weights,
    draw=_draw_weights,
    violations=(Violation("the first layer enlarged, so that the balance is lost", _unbalanced),),
    printed="The norms of the two layers are the other way round.",
    printed_tolerance=1e-9,  # the two forms agree where N_i = N_o
)


# ---- The best λ ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Optimum:
    """Strengths, widths, and by what the optimum is multiplied (other than 1 only in a violation)."""

    strengths: np.ndarray
    widths: tuple[int, int, int]
    factor: float = 1.0


def _draw_optimum(rng: np.random.Generator) -> Optimum:
    widths = ((3, 3, 6), (6, 3, 3), (7, 3, 4), (3, 3, 9))[rng.integers(4)]
    return Optimum(10 ** rng.uniform(-1, 1, size=widths[1]), widths)


def _measure_optimum(cases: Sequence[Optimum]) -> list[Measured]:
    measured = []
    for case in cases:
        inp, _, out = case.widths
        ours = case.factor * float(noise_optimal_lambda(case.strengths, case.widths))
        printed = float(noise_optimal_lambda(case.strengths, case.widths, as_printed=True))

        def equation(lam: float, s: np.ndarray = case.strengths, rho: float = (out - inp) / (out + inp)) -> float:
            return abs(float(np.sum(lam / np.hypot(lam, 2 * s))) - len(s) * rho)

        def price(lam: np.ndarray, s: np.ndarray = case.strengths, inp: int = inp, out: int = out) -> np.ndarray:
            """The part of the expected loss that depends on λ, written out."""
            roots = np.sqrt(lam[:, None] ** 2 + 4 * s**2)
            return inp * np.sum(roots + lam[:, None], axis=1) + out * np.sum(roots - lam[:, None], axis=1)

        reach = 3 * max(1.0, abs(ours))
        grid = np.linspace(-reach, reach, 4001)
        best = grid[int(np.argmin(price(grid)))]
        cheapest, at_printed = (float(price(np.array([x]))[0]) for x in (ours, printed))
        measured.append(
            Measured(
                {
                    EQUATION: equation(ours),
                    GRID: abs(best - ours) / (grid[1] - grid[0]),
                },
                printed=equation(printed),
                facts={"λ*": ours, "as printed": printed, "loss there, relative": at_printed / cheapest},
            )
        )
    return measured


EQUATION = "residual of Σ λ/√(λ² + 4s²) = N_h (N_o − N_i)/(N_o + N_i)"
GRID = "distance from the best of a grid, in steps"

ERRATUM_BEST_LAMBDA = Check(
    id="exact/erratum-best-lambda",
    source="Equation 176",
    statement=(
        "The λ that bears noise in the weights best is the root of Σ λ/√(λ² + 4s_k²) = N_h (N_o − N_i)/(N_o + N_i), "
        "which is 0 where N_i = N_o."
    ),
    hypotheses=(
        Hypothesis("no zero strengths", lambda case: float(np.sum(case.strengths <= 0))),
        Hypothesis("unequal widths of input and output", lambda case: float(case.widths[0] == case.widths[2])),
    ),
    tolerances={EQUATION: ROUNDING, GRID: 0.51},
    measure=_measure_optimum,
    draw=_draw_optimum,
    violations=(
        Violation(
            "one per cent more than the optimum", lambda rng: dataclasses.replace(_draw_optimum(rng), factor=1.01)
        ),
    ),
    printed="The right-hand side is N_h (N_i − N_o)/(N_i + N_o).",
    printed_tolerance=ROUNDING,
)


# ---- Zero modes ------------------------------------------------------------------------------------------------------


def _draw_kink(rng: np.random.Generator) -> Optimum:
    inp, hidden, out = ((4, 3, 3), (3, 3, 5), (6, 3, 3))[rng.integers(3)]
    zeros = math.ceil(hidden * abs(out - inp) / (out + inp))
    strengths = np.append(rng.uniform(0.1, 2.0, size=hidden - zeros), np.zeros(zeros))
    return Optimum(strengths, (inp, hidden, out))


def _measure_kink(cases: Sequence[Optimum]) -> list[Measured]:
    measured = []
    for case in cases:
        best = float(noise_optimal_lambda(case.strengths, case.widths))
        steps = np.array([-1e-2, -1e-4, 1e-4, 1e-2])
        around = np.asarray(weight_noise_loss(case.strengths, steps, case.widths, 0.3))
        here = float(weight_noise_loss(case.strengths, 0.0, case.widths, 0.3))
        measured.append(
            Measured({"|λ*|": abs(best), "loss at 0 above that around it": here - float(around.min())}),
        )
    return measured


def _few_zeros(rng: np.random.Generator) -> Optimum:
    return Optimum(np.append(rng.uniform(0.1, 2.0, size=2), 0.0), (30, 3, 3))


NOISE_KINK = Check(
    id="exact/noise-kink",
    source="Appendix C.3",
    statement=(
        "A mode of strength zero contributes sgn λ to the equation of the best λ: with at least N_h |N_o − N_i|/(N_o + "
        "N_i) of them the expected loss has a kink at its minimum λ = 0."
    ),
    hypotheses=(
        Hypothesis(
            "enough zero modes",
            lambda case: (
                case.widths[1] * abs(case.widths[2] - case.widths[0]) / (case.widths[2] + case.widths[0])
                - float(np.sum(case.strengths == 0))
            ),
            ROUNDING,
        ),
    ),
    tolerances={"|λ*|": 0.0, "loss at 0 above that around it": 1e-13},
    measure=_measure_kink,
    draw=_draw_kink,
    violations=(Violation("one zero mode of three, with thirty inputs and three outputs", _few_zeros),),
)

CHECKS: tuple[Check, ...] = (ERRATUM_INPUT_NOISE, ERRATUM_WEIGHT_NOISE, ERRATUM_BEST_LAMBDA, NOISE_KINK)
"""Checks of this file."""
