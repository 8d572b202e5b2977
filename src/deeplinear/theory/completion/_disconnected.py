r"""Two layers and observations that share no row and no column: the closed form against the flow."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jax.typing import ArrayLike

from deeplinear.core import Params, xp
from deeplinear.exact import block_limit, disconnected, disconnected_hyperbolic
from deeplinear.models import Completion, DeepLinear, Problem, observed_entries
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import FITTED, MEASURABLE, decades, flows, largest, observed

MODEL = DeepLinear((4, 4, 4))
"""Two or four entries are observed."""

HORIZON = 1e4
"""Longest time to zero loss."""

LIMIT_TOLERANCE = 1e-9
"""Limits of flows at rtol 1e-12 stopped at loss 1e-24, residuals 1e-12."""

FORM_TOLERANCE = 1e-9
"""The hyperbolic form cancels where a target is negative: a few of sixteen digits are left of a start of order 0.1."""

TIME_TOLERANCE = 1e-10
"""Flows at rtol 1e-12 over times up to 4; 1e-12 is usual."""

ALGEBRA_TOLERANCE = 1e-12
"""Two closed forms, rounding only."""

SIGN_TOLERANCE = 1e-8
"""Flow and a Gauss rule for the integral of a smooth residual."""


@dataclasses.dataclass(frozen=True)
class Pairs:
    """A start and a problem; the closed form may be told another problem."""

    problem: Problem
    params: Params
    told: Problem | None = None

    @property
    def alone(self) -> Problem:
        """The problem that the closed form is told: of each row and column only the first observation."""
        problem = self.problem if self.told is None else self.told
        rows, columns, values = observed_entries(problem.loss)
        kept = [k for k in range(len(rows)) if rows[k] not in set(rows[:k]) and columns[k] not in set(columns[:k])]
        return observed(problem.model, rows[kept], columns[kept], values[kept])


def _start(rng: np.random.Generator) -> Params:
    scale = np.exp(rng.uniform(np.log(0.05), 0.0))
    return tuple(xp.asarray(scale * rng.standard_normal(shape)) for shape in MODEL.shapes)


def _values(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(0.3, 2.0, count) * rng.choice([-1.0, 1.0], count)


def _draw(rng: np.random.Generator) -> Pairs:
    count = int(rng.choice([2, 4]))
    rows, columns = rng.permutation(4)[:count], rng.permutation(4)[:count]
    return Pairs(observed(MODEL, rows, columns, _values(rng, count)), _start(rng))


def _crowded(rng: np.random.Generator) -> Pairs:
    rows, columns = np.array([0, 0, 1]), np.array([0, 1, 2])
    return Pairs(observed(MODEL, rows, columns, _values(rng, 3)), _start(rng))


def _told_another(rng: np.random.Generator) -> Pairs:
    pairs = _draw(rng)
    rows, columns, values = observed_entries(pairs.problem.loss)
    return dataclasses.replace(pairs, told=observed(MODEL, rows, columns, 1.01 * values))


def _crowd(pairs: Pairs) -> float:
    rows, columns, _ = observed_entries(pairs.problem.loss)
    return float(max(np.bincount(rows).max(), np.bincount(columns).max()) - 1)


def _sizes(pairs: Pairs) -> float:
    """Decades by which layers or targets lie outside of the sizes whose flow is known to ten digits."""
    return decades((largest(pairs.params), 1e-3, 10.0), (largest([observed_entries(pairs.problem.loss)[2]]), 0.0, 30.0))


def _slow(pairs: Pairs) -> float:
    r"""Decades by which a pair is too slow, $S$ near 0, or starts too near to a saddle, $a = \mp b$ for a target $\pm$.

    With $S = 0$, as for a target 0 and $a = \pm b$, the decay is algebraic and has no end that a flow reaches.
    """
    rows, columns, values = observed_entries(pairs.alone.loss)
    first, second = (np.asarray(w) for w in pairs.params)
    a, b = second[rows], first.T[columns]
    plus, minus = np.linalg.norm(a + b, axis=1), np.linalg.norm(a - b, axis=1)
    rate = np.sqrt(values**2 + (plus * minus) ** 2 / 4)
    growing = np.where(values >= 0, plus, minus) / np.maximum(np.maximum(plus, minus), 1e-300)
    return decades((float(rate.min()), 1e-2, np.inf), (float(growing.min()), 1e-3, np.inf))


ALONE = (Hypothesis("at most one observation in each row and column", _crowd),)
SIZES = Hypothesis(MEASURABLE, _sizes)
ENDS = Hypothesis(f"{MEASURABLE}: every pair has a target that is not zero, or both a + b and a - b", _slow)
CROWDED = Violation("two observations in one row", _crowded)
TOLD_ANOTHER = Violation("a prediction for targets one per cent larger", _told_another)


def _largest(first: Sequence[ArrayLike], second: Sequence[ArrayLike]) -> float:
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in zip(first, second, strict=True))


def _measure_limit(instances: Sequence[Pairs]) -> list[Measured]:
    runs = flows([i.problem for i in instances], [i.params for i in instances], [0.0, HORIZON], below=FITTED)
    found = []
    for instance, run in zip(instances, runs, strict=True):
        expected = disconnected(instance.alone, instance.params).limit()
        facts = {"loss at the end": float(run.loss[-1]), "time": float(run.times[-1])}
        found.append(Measured({"layers in the limit": _largest(run.final, expected)}, facts=facts))
    return found


def _measure_form(instances: Sequence[Pairs]) -> list[Measured]:
    return [
        Measured(
            {
                "layers in the limit": _largest(
                    disconnected_hyperbolic(i.alone, i.params), disconnected(i.problem, i.params).limit()
                )
            }
        )
        for i in instances
    ]


def _adopt_limit(problem: Problem, params: Params) -> Pairs:
    disconnected(problem, params).limit()
    return Pairs(problem, params)


TIMES = np.linspace(0.0, 4.0, 17)


def _measure_times(instances: Sequence[Pairs]) -> list[Measured]:
    runs = flows([i.problem for i in instances], [i.params for i in instances], TIMES)
    return [
        Measured({"layers at all times": _largest(run.layers, disconnected(i.alone, i.params).params(TIMES))})
        for i, run in zip(instances, runs, strict=True)
    ]


def _adopt_times(problem: Problem, params: Params) -> Pairs:
    disconnected(problem, params)
    return Pairs(problem, params)


@dataclasses.dataclass(frozen=True)
class Family:
    """Diagonal observations of one value from layers with `alpha` on and `alpha/m` off the diagonal."""

    size: int
    alpha: float
    m: float
    values: tuple[float, ...]


def _draw_family(rng: np.random.Generator) -> Family:
    size = int(rng.integers(2, 5))
    value = float(np.exp(rng.uniform(-2, 2)))
    return Family(size, float(np.exp(rng.uniform(-5, 0))), 1 + float(np.exp(rng.uniform(-3, 6))), (value,) * size)


def _unequal(rng: np.random.Generator) -> Family:
    family = _draw_family(rng)
    return dataclasses.replace(family, values=(*family.values[:-1], 1.5 * family.values[-1]))


def _measure_family(instances: Sequence[Family]) -> list[Measured]:
    found = []
    for family in instances:
        n = family.size
        layer = xp.asarray(family.alpha * ((1 - 1 / family.m) * np.eye(n) + np.ones((n, n)) / family.m))
        problem = Problem(DeepLinear((n, n, n)), Completion(np.diag(family.values), np.eye(n)))
        first, second = (np.asarray(w) for w in disconnected(problem, (layer, layer)).limit())
        measured = np.linalg.svd(second @ first, compute_uv=False)
        theory = block_limit(2, family.alpha, family.m, blocks=n, value=family.values[0])
        expected = np.array([float(theory.sigma_1)] + [float(theory.sigma_2)] * (n - 1))
        gap = float(np.max(np.abs(measured - expected)) / expected[0])
        found.append(
            Measured({"singular values of the limit": gap}, facts={"first": measured[0], "second": measured[1]})
        )
    return found


NODES, WEIGHTS = np.polynomial.legendre.leggauss(48)
SPAN = 3.0
"""Length of the integral of the residual; the residual varies on times of about 1/4 and more."""


def _moved(params: Params, rows: np.ndarray, columns: np.ndarray, exponent: np.ndarray) -> tuple[np.ndarray, ...]:
    """Pairs of rows and columns turned hyperbolically by an exponent each."""
    first, second = (np.asarray(w) for w in params)
    a, b = second[rows], first.T[columns]
    cosh, sinh = np.cosh(exponent)[:, None], np.sinh(exponent)[:, None]
    return cosh * a + sinh * b, cosh * b + sinh * a


def _unit(pairs: Pairs) -> Pairs:
    r"""The same in units in which the largest of targets and squared weights is 2.

    The flow of targets $cw$ from layers $\sqrt c\,X$ is that of $w$ from $X$ in times of $1/c$.
    """
    rows, columns, values = observed_entries(pairs.problem.loss)
    c = max(largest([values]), largest(pairs.params) ** 2) / 2
    if not c > 0:
        return pairs
    layers = tuple(layer / np.sqrt(c) for layer in pairs.params)
    return Pairs(observed(pairs.problem.model, rows, columns, values / c), layers)


def _measure_sign(instances: Sequence[Pairs]) -> list[Measured]:
    instances = [_unit(instance) for instance in instances]
    times = np.concatenate([[0.0], SPAN * (1 + NODES) / 2, [SPAN]])
    runs = flows([i.problem for i in instances], [i.params for i in instances], times)
    found = []
    for instance, run in zip(instances, runs, strict=True):
        rows, columns, values = observed_entries(instance.alone.loss)
        integral = SPAN / 2 * WEIGHTS @ (values - run.product[1:-1, rows, columns])
        end = _moved(run.final, rows, columns, 0 * integral)
        ours, printed = (_largest(_moved(instance.params, rows, columns, s * integral), end) for s in (1, -1))
        found.append(Measured({"exponent +∫(w* - w)": ours}, printed=printed))
    return found


CHECKS: tuple[Check, ...] = (
    Check(
        id="completion/proposition-4.1",
        source="Proposition 4.1 (E.1)",
        statement=(
            "Two layers with at most one observation in each row and column converge to layers known in closed form: "
            "of an observed pair a, b the directions of a ± b stay, |a ± b|² goes to 2(S ± w) with "
            "S² = w² + |a+b|²|a-b|²/4 at the start, and all else stays."
        ),
        hypotheses=(*ALONE, SIZES, ENDS),
        tolerances={"layers in the limit": LIMIT_TOLERANCE},
        measure=_measure_limit,
        draw=_draw,
        violations=(CROWDED, TOLD_ANOTHER),
        adopt=_adopt_limit,
    ),
    Check(
        id="completion/proposition-4.1-hyperbolic",
        source="Proposition 4.1 (E.1)",
        statement=(
            "The limit of an observed pair is a cosh r̄ - b sinh r̄, b cosh r̄ - a sinh r̄ with "
            "r̄ = ½ ln((P + Q/2) / (w + √(w² - P² + Q²/4))), P = a·b, Q = |a|² + |b|²."
        ),
        hypotheses=ALONE,
        tolerances={"layers in the limit": FORM_TOLERANCE},
        measure=_measure_form,
        draw=_draw,
        violations=(TOLD_ANOTHER,),
    ),
    Check(
        id="completion/proposition-4.1-diagonal",
        source="Proposition 4.1 and Theorem 3.3",
        statement=(
            "For diagonal observations of one value and a start with α on and α/m off the diagonal, the closed form of "
            "disconnected observations and that of block-diagonal ones at depth 2 give the same limit."
        ),
        hypotheses=(Hypothesis[Family]("equal targets", lambda f: max(f.values) - min(f.values)),),
        tolerances={"singular values of the limit": ALGEBRA_TOLERANCE},
        measure=_measure_family,
        draw=_draw_family,
        violations=(Violation("one target half as large again", _unequal),),
    ),
    Check(
        id="completion/disconnected-finite-time",
        source="Proposition 4.1, extension",
        statement=(
            "With at most one observation in each row and column the flow is known at every time: |a+b| and |a-b| "
            "change by reciprocal factors that are rational in tanh(St), S² = w² + |a+b|²|a-b|²/4."
        ),
        hypotheses=(*ALONE, SIZES),
        tolerances={"layers at all times": TIME_TOLERANCE},
        measure=_measure_times,
        draw=_draw,
        violations=(CROWDED, TOLD_ANOTHER),
        adopt=_adopt_times,
    ),
    Check(
        id="completion/erratum-residual-sign",
        source="Proposition E.1, proof",
        statement=(
            "With the residual R = w* - w the layers at time t are a cosh s + b sinh s and b cosh s + a sinh s, "
            "where s = +∫R."
        ),
        hypotheses=(*ALONE, Hypothesis(MEASURABLE, lambda pairs: _sizes(_unit(pairs)))),
        tolerances={"exponent +∫(w* - w)": SIGN_TOLERANCE},
        measure=_measure_sign,
        draw=_draw,
        violations=(CROWDED,),
        printed="With the residual R = w* - w the exponent is -∫R.",
        printed_tolerance=SIGN_TOLERANCE,
        adopt=_adopt_times,
        version=2,
    ),
)
