r"""Two layers and one observed column: its rows align with one direction when training starts small."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.exact import ColumnAlignment, column_alignment
from deeplinear.models import DeepLinear, Problem, observed_entries
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import FITTED, MEASURABLE, Run, decades, flows, largest, observed

MODEL = DeepLinear((4, 4, 4))
"""Any column is observed in two to four of its rows."""

HORIZON = 1e5
"""Longest time to zero loss; large starts leave a short column, which is learnt slowly."""

FIT_TOLERANCE = 1e-20
"""Loss that counts as zero: flows stop at 1e-24."""

RATIO_TOLERANCE = 1e-6
"""Relative to the bound: the orthogonal share is the square of numbers known to about 1e-11 of the whole row."""

PARALLEL_TOLERANCE = 1e-9
"""Limits of flows at rtol 1e-12 stopped at loss 1e-24; 1e-12 is usual."""

RANK_TOLERANCE = 1e-12
"""Rounding of a product of rank one."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A start, a problem, and how far it is trained; the statement may be told another start or problem."""

    problem: Problem
    params: Params
    horizon: float = HORIZON
    told: Params | None = None
    run: Run | None = None

    @property
    def alignment_problem(self) -> Problem:
        """The problem with the first of its observed columns only."""
        rows, columns, values = observed_entries(self.problem.loss)
        here = columns == columns.min()
        return observed(self.problem.model, rows[here], columns[here], values[here])

    def alignment(self, direction: np.ndarray | None = None) -> ColumnAlignment:
        """What the theory says beforehand."""
        start = self.params if self.told is None else self.told
        return column_alignment(
            self.alignment_problem, start, None if direction is None else xp.asarray(direction, dtype=float)
        )


def _trained(instances: Sequence[Column], times: np.ndarray | None = None) -> list[Run]:
    """Flows to zero loss, or to the horizon of the instance."""
    runs: dict[int, Run] = {i: c.run for i, c in enumerate(instances) if c.run is not None and times is None}
    for horizon in sorted({c.horizon for i, c in enumerate(instances) if i not in runs}):
        some = [i for i, c in enumerate(instances) if i not in runs and c.horizon == horizon]
        at = np.array([0.0, horizon]) if times is None else times
        found = flows([instances[i].problem for i in some], [instances[i].params for i in some], at, below=FITTED)
        runs |= dict(zip(some, found, strict=True))
    return [runs[i] for i in range(len(instances))]


def _targets(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(0.5, 2.0, count) * rng.choice([-1.0, 1.0], count)


def _start(rng: np.random.Generator, low: float = 1e-3, high: float = 1.5) -> Params:
    """Gaussian layers, of one scale between the bounds."""
    scale = np.exp(rng.uniform(np.log(low), np.log(high)))
    return tuple(xp.asarray(scale * rng.standard_normal(shape)) for shape in MODEL.shapes)


def _draw(rng: np.random.Generator) -> Column:
    rows = np.sort(rng.choice(4, rng.integers(2, 5), replace=False))
    column = np.full(len(rows), rng.integers(4))
    return Column(observed(MODEL, rows, column, _targets(rng, len(rows))), _start(rng))


def _draw_large(rng: np.random.Generator) -> Column:
    """Starts of moderate size, where the bound exceeds one."""
    return dataclasses.replace(_draw(rng), params=_start(rng, 0.5, 1.5))


def _two_columns(rng: np.random.Generator) -> Column:
    """Two columns whose targets are at a right angle: their rows cannot align with both."""
    rows, columns = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    values = np.array([1.0, 1.0, 1.0, -1.0]) * rng.uniform(1.0, 2.0)
    return Column(observed(MODEL, rows, columns, values), _start(rng, 1e-3, 1e-2))


def _small_before_training(rng: np.random.Generator) -> Column:
    return dataclasses.replace(_draw(rng), params=_start(rng, 1e-4, 1e-3), horizon=1e-3)


def _other_columns(column: Column) -> float:
    return float(len(np.unique(observed_entries(column.problem.loss)[1])) - 1)


def _zero_targets(column: Column) -> float:
    return float(np.sum(observed_entries(column.problem.loss)[2] == 0))


def _sizes(column: Column) -> float:
    """Decades by which layers or targets lie outside of the sizes whose flow is known to nine digits."""
    targets = np.abs(observed_entries(column.problem.loss)[2])
    targets = targets[targets > 0] if np.any(targets) else np.ones(1)
    return decades(
        (largest(column.params), 1e-8, 20.0), (float(targets.max()), 0.05, 20.0), (float(targets.min()), 1e-3, 20.0)
    )


ONE_COLUMN = (
    Hypothesis("one observed column", _other_columns),
    Hypothesis("targets not zero", _zero_targets),
    Hypothesis(MEASURABLE, _sizes),
)


def _measure_bound(instances: Sequence[Column]) -> list[Measured]:
    found = []
    for instance, run in zip(instances, _trained(instances), strict=True):
        theory = instance.alignment()
        share, bound = np.asarray(theory.misalignment(run.final)), np.asarray(theory.bounds)
        proper = np.asarray(theory.proper_bounds)
        found.append(
            Measured(
                {
                    "share orthogonal to u, beyond B": _beyond(share, bound),
                    "share orthogonal to u, beyond B/(1+B)": _beyond(share, proper),
                    "loss at the end": float(run.loss[-1]),
                },
                facts={
                    "largest share": float(share.max()),
                    "bound of it": float(bound[share.argmax()]),
                    "slack": float(np.min(bound - share)),
                    "slack of B/(1+B)": float(np.min(proper - share)),
                    "largest share / bound": float(np.max(share / np.maximum(bound, 1e-300))),
                },
            )
        )
    return found


def _beyond(share: np.ndarray, bound: np.ndarray) -> float:
    return float(np.max((share - bound) / (bound + FIT_TOLERANCE)))


def _measure_vacuous(instances: Sequence[Column]) -> list[Measured]:
    found = []
    for instance, measured in zip(instances, _measure_bound(instances), strict=True):
        bounds = np.asarray(instance.alignment().bounds)
        proper = measured.residuals["share orthogonal to u, beyond B/(1+B)"]
        found.append(
            Measured(
                {
                    "share orthogonal to u, beyond B/(1+B)": proper,
                    "B/(1+B) - 1": float(np.max(bounds / (1 + bounds))) - 1,
                },
                printed=float(bounds.max()) - 1,
                facts={**measured.facts, "largest B": float(bounds.max())},
            )
        )
    return found


def _measure_parallel(instances: Sequence[Column]) -> list[Measured]:
    found = []
    for instance, run in zip(instances, _trained(instances), strict=True):
        first, second = (np.asarray(layer) for layer in run.final)
        column = instance.alignment().column
        rows = np.asarray(instance.alignment().rows)
        theory = instance.alignment(first[:, column])
        u = np.asarray(theory.direction)
        a = second[rows]
        rest = a - np.outer(a @ u, u)
        found.append(
            Measured(
                {
                    "u·b": abs(float(first[:, column] @ u) - float(_known(theory.parallel_column))),
                    "u·a_i": float(np.max(np.abs(a @ u - np.asarray(_known(theory.parallel_rows))))),
                    "sum of orthogonal squares": abs(float(np.sum(rest**2)) - float(_known(theory.perpendicular))),
                },
                facts={"u·b": float(first[:, column] @ u), "orthogonal squares": float(np.sum(rest**2))},
            )
        )
    return found


def _known(value: object) -> np.ndarray:
    if value is None:
        raise RuntimeError("column_alignment gave no parallel parts although a direction was given.")
    return np.asarray(value)


ZERO_TIMES = np.concatenate([np.linspace(0.0, 3.0, 13), [6.0, 12.0, 24.0]])
"""From the first steps to a fitted column."""


def _measure_zero(instances: Sequence[Column]) -> list[Measured]:
    found = []
    for instance, run in zip(instances, _trained(instances, ZERO_TIMES), strict=True):
        values = np.linalg.svd(run.product[1:], compute_uv=False)
        b = run.layers[0][:, :, instance.alignment().column]
        b = b / np.linalg.norm(b, axis=1, keepdims=True)
        turned = b - (b @ b[0])[:, None] * b[0]
        found.append(
            Measured(
                {
                    "second singular value / first": float(np.max(values[:, 1] / values[:, 0])),
                    "turn of b": float(np.max(np.abs(turned))),
                },
                facts={"loss at the end": float(run.loss[-1])},
            )
        )
    return found


def _short(column: Column) -> float:
    b = np.asarray(column.params[0])[:, column.alignment().column]
    return decades((float(np.linalg.norm(b)), 1e-3, 20.0))


MOVES = Hypothesis(f"{MEASURABLE}: the column b starts at a size that moves", _short)


def _draw_zero(rng: np.random.Generator) -> Column:
    column = _draw(rng)
    first = rng.uniform(0.2, 1.5) * xp.asarray(rng.standard_normal(MODEL.shapes[0]))
    return dataclasses.replace(column, params=(first, xp.zeros(MODEL.shapes[1])))


def _draw_not_zero(rng: np.random.Generator) -> Column:
    column = _draw_zero(rng)
    second = 1e-3 * xp.asarray(rng.standard_normal(MODEL.shapes[1]))
    return dataclasses.replace(column, params=(column.params[0], second))


def _adopt(problem: Problem, params: Params) -> Column:
    column_alignment(problem, params)
    column = Column(problem, params)
    (run,) = _trained([column])
    if not run.loss[-1] <= FIT_TOLERANCE:
        raise HypothesisError("the flow reaches zero loss", float(run.loss[-1]), FIT_TOLERANCE)
    return dataclasses.replace(column, run=run)


def _adopt_zero(problem: Problem, params: Params) -> Column:
    column_alignment(problem, params)
    return Column(problem, params)


def _told_other_start(rng: np.random.Generator) -> Column:
    column = dataclasses.replace(_draw(rng), params=_start(rng, 0.3, 1.0))
    return dataclasses.replace(column, told=tuple(1.05 * layer for layer in column.params))


CHECKS: tuple[Check, ...] = (
    Check(
        id="completion/theorem-3.1",
        source="Theorem 3.1",
        statement=(
            "Two layers that fit one observed column of non-zero targets end with rows a_i of the second layer whose "
            "share orthogonal to the direction u of the first layer's column is at most "
            "B_i = |A(0)|² (√(|b(0)|⁴ + 4Σw²) + |b(0)|²) / (2w_i²), and at most B_i/(1+B_i)."
        ),
        hypotheses=ONE_COLUMN,
        tolerances={
            "share orthogonal to u, beyond B": RATIO_TOLERANCE,
            "share orthogonal to u, beyond B/(1+B)": RATIO_TOLERANCE,
            "loss at the end": FIT_TOLERANCE,
        },
        measure=_measure_bound,
        draw=_draw,
        violations=(
            Violation("a second observed column", _two_columns),
            Violation("training stopped before it fits", _small_before_training),
        ),
        adopt=_adopt,
    ),
    Check(
        id="completion/theorem-3.1-parallel",
        source="Theorem 3.1, proof; any number of rows is an extension",
        statement=(
            "Given the limit direction u of the column, the conserved Σ a_i a_iᵀ - b bᵀ fixes u·b, every u·a_i and the "
            "sum of the squares orthogonal to u in the limit."
        ),
        hypotheses=ONE_COLUMN,
        tolerances={
            "u·b": PARALLEL_TOLERANCE,
            "u·a_i": PARALLEL_TOLERANCE,
            "sum of orthogonal squares": PARALLEL_TOLERANCE,
        },
        measure=_measure_parallel,
        draw=_draw,
        violations=(
            Violation("a second observed column", _two_columns),
            Violation("a prediction from another start", _told_other_start),
        ),
        adopt=_adopt,
    ),
    Check(
        id="completion/column-rank-one",
        source="Section 3.1, after equation (4)",
        statement=(
            "With one observed column and A(0) = 0 the product has rank one at all times, and the column b keeps its "
            "direction."
        ),
        hypotheses=(*ONE_COLUMN, Hypothesis[Column]("A(0) = 0", lambda c: largest(c.params[1:])), MOVES),
        tolerances={"second singular value / first": RANK_TOLERANCE, "turn of b": RANK_TOLERANCE},
        measure=_measure_zero,
        draw=_draw_zero,
        violations=(Violation("A(0) small but not zero", _draw_not_zero),),
        adopt=_adopt_zero,
    ),
    Check(
        id="completion/erratum-column-bound",
        source="Theorem 3.1",
        statement="B_i/(1+B_i) bounds the orthogonal share too, and is below 1 for every initialisation.",
        hypotheses=ONE_COLUMN,
        tolerances={"share orthogonal to u, beyond B/(1+B)": RATIO_TOLERANCE, "B/(1+B) - 1": 0.0},
        measure=_measure_vacuous,
        draw=_draw_large,
        violations=(Violation("a second observed column", _two_columns),),
        printed="May be read as: the bound B_i tells something for every initialisation, that is, it is at most 1.",
        adopt=_adopt,
    ),
)
