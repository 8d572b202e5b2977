"""Equilibria of free energies, beside flows of SciPy with the entropy's derivatives written out in plain NumPy."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from jax import Array
from scipy.integrate import solve_ivp

from deeplinear.core import xp
from deeplinear.geometry import (
    FreeEnergy,
    PowerEnergy,
    SpectralEnergy,
    critical_power,
    equilibrium,
    equilibrium_rates,
    has_equilibrium,
    split_equilibria,
)
from deeplinear.models import Completion
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory.geometry._matrices import DEPTHS, ROUNDING, draw_spectrum


@dataclasses.dataclass(frozen=True)
class Balance:
    """An energy of the singular values against the entropy.

    Attributes:
        start: Singular values that a flow starts from.
        power: p of (1/p) Σ s^p.
        beta: Inverse temperature.
        depth: Number of layers, or infinity.
        shift: Factor by which the state that is looked at is away from the equilibrium.
    """

    start: np.ndarray
    power: float
    beta: float
    depth: float = math.inf
    shift: float = 1.0

    @property
    def size(self) -> int:
        """Number of singular values."""
        return len(self.start)


def draw_balance(
    rng: np.random.Generator,
    sizes: tuple[int, ...] = (3, 5),
    powers: tuple[float, float] = (1.0, 3.0),
    depths: tuple[float, ...] = DEPTHS,
) -> Balance:
    """A spectrum to start from, a power, and an inverse temperature."""
    start = draw_spectrum(rng, int(rng.choice(sizes)))
    depth = depths[int(rng.integers(len(depths)))]
    return Balance(start, float(rng.uniform(*powers)), float(np.exp(rng.uniform(-1, 1))), depth)


def plain_slopes(s: np.ndarray, depth: float) -> np.ndarray:
    """Derivatives of the entropy: printed differences, and the first terms of their expansion for close values."""
    u, r = np.log(s[:, None] / s[None]), 1 / depth
    near = np.abs(u) < 1e-3
    one, other = s[:, None], np.where(near, 2 * s[:, None], s[None])
    if math.isinf(depth):
        second = 1 / (2 * one * np.log(one / other))
    else:
        second = one ** (2 * r - 1) / (depth * (one ** (2 * r) - other ** (2 * r)))
    close = (1 - r + u * (1 - r**2) / 3 - u**3 * (1 - r**4) / 45) / (2 * one)
    pairs = np.where(near, close, one / (one**2 - other**2) - second)
    np.fill_diagonal(pairs, 0.0)
    return pairs.sum(axis=1)


def plain_force(balance: Balance, s: np.ndarray, slope: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
    """Derivatives of the free energy of an energy Σ f(s_i)."""
    own = s ** (balance.power - 1) if slope is None else slope(s)
    return own - plain_slopes(s, balance.depth) / balance.beta


def follow(balance: Balance, horizon: float, slope: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
    """Where the normalised flow of the free energy is after a time, in logarithms, by a stiff method of SciPy."""

    def field(_: float, log: np.ndarray) -> np.ndarray:
        s = np.exp(log)
        return -(s ** (1 - 2 / balance.depth)) * plain_force(balance, s, slope)

    run = solve_ivp(field, (0, horizon), np.log(balance.start), "LSODA", rtol=1e-8, atol=1e-10)
    return np.sort(np.exp(run.y[:, -1]))[::-1]


MANY = Hypothesis[Balance]("at least two singular values", lambda b: 2.0 - b.size)
LAYERS = Hypothesis[Balance]("depth at least two", lambda b: 2.0 - b.depth)
CONVEX = Hypothesis[Balance]("p at least one", lambda b: 1.0 - b.power)
DETERMINED = Hypothesis[Balance](
    "not two values at depth two with p = 1, where their sum alone is determined",
    lambda b: float(b.size == 2 and b.depth == 2 and b.power == 1),
)

# --- Theorem 4.3.7 ----------------------------------------------------------------------------------------------------

ISOTROPIC = {"largest |s at the end of the flow over s* - 1|": 1e-6}


def _measure_isotropic(balances: Sequence[Balance]) -> list[Measured]:
    measured = []
    for b in balances:
        rest = equilibrium(PowerEnergy(b.power), b.size, b.beta, b.depth, normalised=True)
        end = follow(b, 25 / abs(float(rest.rates[0])) + 25)
        printed = ((b.size - 1) * (1 - 1 / b.depth) / b.beta) ** (1 / b.power)
        missed = float(np.max(np.abs(end / rest.spectrum - 1)))
        measured.append(
            Measured(
                dict.fromkeys(ISOTROPIC, missed),
                printed=float(np.max(np.abs(end / printed - 1))),
                facts={"s*": float(rest.spectrum[0])},
            )
        )
    return measured


def _below(rng: np.random.Generator) -> Balance:
    """p far below the critical power."""
    return Balance(np.array([6.0, 5.5, 5.2, 5.1, 3.0]), 0.35, 1.0)


THEOREM_ISOTROPIC = Check(
    id="geometry/theorem-4.3.7",
    source="Theorem 4.3.7",
    statement=(
        "For p ≥ 1 the flow of (1/p) Σ s^p - S_L/β ends at equal singular values ((d-1)(1-1/L)/(2β))^{1/p}, from any "
        "start of full rank."
    ),
    hypotheses=(MANY, LAYERS, CONVEX, DETERMINED),
    tolerances=ISOTROPIC,
    measure=_measure_isotropic,
    draw=draw_balance,
    violations=(Violation("p below the critical power", _below),),
    printed="The singular values are ((d-1)/β)^{1/p}.",
    printed_tolerance=1e-6,
)

# --- Rates ------------------------------------------------------------------------------------------------------------

RATES = {"largest relative error of a rate beside differences of the field": 1e-6}


def _jacobian(b: Balance, s: np.ndarray) -> np.ndarray:
    """Of the normalised flow, by central differences wide enough for the expansion at equal values to be exact."""

    def field(x: np.ndarray) -> np.ndarray:
        return x ** (2 - 2 / b.depth) * plain_force(b, x)

    steps = 2e-4 * s[0] * np.eye(len(s))
    return np.stack([(field(s + h) - field(s - h)) / (2 * h.sum()) for h in steps], axis=1)


def _measure_rates(balances: Sequence[Balance]) -> list[Measured]:
    measured = []
    for b in balances:
        rest = equilibrium(PowerEnergy(b.power), b.size, b.beta, b.depth, normalised=True)
        s = b.shift * rest.spectrum
        seen = np.sort(np.linalg.eigvals(_jacobian(b, s)).real)
        bend = (b.power - 1) * rest.spectrum[0] ** (b.power - 2)
        pair = equilibrium_rates(rest.spectrum[0], bend, b.size, b.beta, b.depth, normalised=True)
        formulas = np.sort([float(pair[0])] * (b.size - 1) + [float(pair[1])])
        size = float(np.max(np.abs(seen)))
        missed = max(float(np.max(np.abs(seen - other))) for other in (rest.rates, formulas)) / size
        measured.append(Measured(dict.fromkeys(RATES, missed)))
    return measured


EQUILIBRIUM_RATES = Check(
    id="geometry/equilibrium-rates",
    source="after Theorem 4.3.7",
    statement=(
        "Around the equilibrium differences of singular values decay at the rate m((p-1)s^{p-2} - (d w₀ - "
        "(d-1)c)/(2βs²)) and their mean at m p s^{p-2}, with m = s^{2-2/L}, c = 1-1/L, w₀ = (1-1/L²)/3."
    ),
    hypotheses=(MANY, LAYERS, Hypothesis("at the equilibrium", lambda b: abs(b.shift - 1), ROUNDING)),
    tolerances=RATES,
    measure=_measure_rates,
    draw=lambda rng: draw_balance(rng, powers=(0.7, 3.0)),
    violations=(Violation("a state ten per cent away", lambda rng: dataclasses.replace(draw_balance(rng), shift=1.1)),),
)

# --- Remark 4.3.8 -----------------------------------------------------------------------------------------------------

REMARK = {
    "largest |s at the end of the flow of Σ e^s - S/β over s* - 1|": 1e-6,
    "1 where an equilibrium of Σ e^{-s} - S/β is claimed": 0.0,
}


def _falling(s: Array) -> Array:
    return xp.exp(-s)


def _falling_slope(s: Array) -> Array:
    return -xp.exp(-s)


@functools.cache
def _energies() -> tuple[SpectralEnergy, SpectralEnergy]:
    return SpectralEnergy(xp.exp, xp.exp), SpectralEnergy(_falling, _falling_slope)


def _measure_remark(balances: Sequence[Balance]) -> list[Measured]:
    rising, falling = _energies()
    measured = []
    for b in balances:
        rest = equilibrium(rising, b.size, b.beta, b.depth, normalised=True)
        end = follow(b, 25 / float(rest.rates[0]) + 25, lambda s: np.exp(b.shift * s))  # noqa: B023
        claimed = has_equilibrium(falling, b.size, b.beta, b.depth)
        elsewhere = plain_force(b, np.full(b.size, 2 * rest.spectrum[0]), np.exp)
        numbers = (float(np.max(np.abs(end / rest.spectrum - 1))), float(claimed))
        measured.append(Measured(dict(zip(REMARK, numbers, strict=True)), printed=float(np.max(np.abs(elsewhere)))))
    return measured


REMARK_CONVEX = Check(
    id="geometry/remark-4.3.8",
    source="Remark 4.3.8",
    statement=(
        "For convex f the equilibria of Σ f(s_i) - S_L/β are the matrices with equal singular values s f'(s) = "
        "(d-1)(1-1/L)/(2β), if that is reached; else there are none."
    ),
    hypotheses=(MANY, LAYERS, Hypothesis("the energy is Σ e^s", lambda b: abs(b.shift - 1))),
    tolerances=REMARK,
    measure=_measure_remark,
    draw=draw_balance,
    violations=(Violation("the flow of another f", lambda rng: dataclasses.replace(draw_balance(rng), shift=1.3)),),
    printed="The equilibrium points are exactly all X with σ₁ = … = σ_d.",
    printed_tolerance=1e-6,
)

# --- Powers below one -------------------------------------------------------------------------------------------------

THRESHOLD = {
    "rate of differences at p_c + 0.001, by differences of the field: what lacks to a positive one": -1e-6,
    "rate of differences at p_c - 0.001": -1e-6,
    "|p_c - d(1 + 1/L)/(3(d-1))|": ROUNDING,
}


def _slowest(b: Balance) -> float:
    value = ((b.size - 1) * (1 - 1 / b.depth) / (2 * b.beta)) ** (1 / b.power)
    eigenvalues = np.sort(np.linalg.eigvals(_jacobian(b, np.full(b.size, b.shift * value))).real)
    return float(eigenvalues[0] * b.beta)


def _measure_threshold(balances: Sequence[Balance]) -> list[Measured]:
    measured = []
    for b in balances:
        threshold = critical_power(b.size, b.depth)
        above, below = (_slowest(dataclasses.replace(b, power=threshold + h)) for h in (1e-3, -1e-3))
        known = b.size * (1 + 1 / b.depth) / (3 * (b.size - 1))
        numbers = (-above, below, abs(threshold - known))
        measured.append(Measured(dict(zip(THRESHOLD, numbers, strict=True)), facts={"p_c": threshold}))
    return measured


CRITICAL_POWER = Check(
    id="geometry/critical-power",
    source="after Theorem 4.3.7",
    statement="For p < 1 equal singular values are stable if and only if p > d(1 + 1/L)/(3(d-1)).",
    hypotheses=(MANY, LAYERS, Hypothesis("at the equilibrium", lambda b: abs(b.shift - 1), ROUNDING)),
    tolerances=THRESHOLD,
    measure=_measure_threshold,
    draw=draw_balance,
    violations=(Violation("a state ten per cent away", lambda rng: dataclasses.replace(draw_balance(rng), shift=1.1)),),
)

SPLIT = {
    "largest |s at the end of the flow over the split state - 1|": 1e-6,
    "1 where the split state is not stable": 0.0,
}


def _measure_split(balances: Sequence[Balance]) -> list[Measured]:
    measured = []
    for b in balances:
        states = split_equilibria(b.power, b.size, b.beta, b.depth, normalised=True)
        if not states:
            measured.append(Measured(dict.fromkeys(SPLIT, math.inf)))
            continue
        end = follow(b, 30 / abs(float(states[0].rates[0])))
        numbers = (float(np.max(np.abs(end / states[0].spectrum - 1))), float(not states[0].stable))
        measured.append(Measured(dict(zip(SPLIT, numbers, strict=True)), facts={"smallest": float(end[-1])}))
    return measured


def _draw_split(rng: np.random.Generator) -> Balance:
    """Below the critical power, from close to a state with one value smaller."""
    size = int(rng.choice([2, 5]))
    power = critical_power(size, math.inf) * float(rng.uniform(0.85, 0.95))
    beta = float(np.exp(rng.uniform(-1, 1)))
    value = ((size - 1) / (2 * beta)) ** (1 / power)
    start = value * np.exp(rng.uniform(-0.02, 0.02, size))
    start[-1] *= 0.5
    return Balance(start, power, beta)


SPLIT_STATES = Check(
    id="geometry/split-states",
    source="after Theorem 4.3.7",
    statement=(
        "Below the critical power, at infinite depth, one singular value splits off, and the flow ends where "
        "p ln(a/b) = ln((d-1) + ℒ) - ln((d-1)(1 - ℒ)), ℒ the Langevin function of ln(a/b)."
    ),
    hypotheses=(
        MANY,
        Hypothesis("infinite depth", lambda b: float(not math.isinf(b.depth))),
        Hypothesis("p below the critical power", lambda b: b.power - critical_power(b.size, b.depth)),
    ),
    tolerances=SPLIT,
    measure=_measure_split,
    draw=_draw_split,
    violations=(
        Violation("p above one, without split states", lambda rng: dataclasses.replace(_draw_split(rng), power=1.2)),
        Violation("all values equal", lambda rng: Balance(np.full(5, 5.0), 0.35, 1.0)),
    ),
)

# --- Completion -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Unobserved:
    """A completion with entropy, and the place of an entry that is moved.

    Attributes:
        target: Values of the observed entries.
        mask: Which are observed.
        entry: The entry that is moved.
        beta: Inverse temperature.
    """

    target: np.ndarray
    mask: np.ndarray
    entry: tuple[int, int]
    beta: float


UNBOUNDED = {"β(F at an entry of 10⁸ less F at an entry of 1) over (d-1) ln 10⁸": -0.7}


def _measure_unbounded(cases: Sequence[Unobserved]) -> list[Measured]:
    measured = []
    for case in cases:
        energy = FreeEnergy(Completion(case.target, case.mask), case.beta, math.inf)
        values = []
        for size in (1.0, 1e8):
            point = case.target.copy()
            point[case.entry] = size
            values.append(float(energy.value(xp.asarray(point))))
        fall = float((values[1] - values[0]) * case.beta / ((len(case.target) - 1) * math.log(1e8)))
        measured.append(Measured(dict.fromkeys(UNBOUNDED, fall), facts={"fall": values[1] - values[0]}))
    return measured


def _draw_unobserved(rng: np.random.Generator) -> Unobserved:
    size = int(rng.choice([2, 4]))
    mask = (rng.random((size, size)) < 0.7).astype(float)
    row, column = (int(k) for k in rng.integers(size, size=2))
    mask[row, column], mask[(row + 1) % size, column] = 0.0, 1.0
    target = rng.standard_normal((size, size)) + 2 * np.eye(size)
    return Unobserved(target, mask, (row, column), float(rng.uniform(5, 40)))


def _observed(rng: np.random.Generator) -> Unobserved:
    case = _draw_unobserved(rng)
    return dataclasses.replace(case, mask=np.ones_like(case.mask))


COMPLETION_UNBOUNDED = Check(
    id="geometry/completion-free-energy",
    source="Section 4.3, Matrix Completion Regularization",
    statement=(
        "E - S_∞/β of a completion has no lower bound where an entry is unobserved: as that entry grows, the free "
        "energy falls like -(d-1) ln s₁/β."
    ),
    hypotheses=(Hypothesis("the moved entry is unobserved", lambda c: float(c.mask[c.entry])),),
    tolerances=UNBOUNDED,
    measure=_measure_unbounded,
    draw=_draw_unobserved,
    violations=(Violation("all entries observed", _observed),),
)

CHECKS = (
    THEOREM_ISOTROPIC,
    EQUILIBRIUM_RATES,
    REMARK_CONVEX,
    CRITICAL_POWER,
    SPLIT_STATES,
    COMPLETION_UNBOUNDED,
)
