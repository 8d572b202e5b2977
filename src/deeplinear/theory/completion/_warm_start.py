r"""The two-by-two warm start: a fitted diagonal, then one more entry."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, Params, formula, over, xp
from deeplinear.exact import disconnected, warm_start_bounds, warm_start_field, warm_start_violations
from deeplinear.models import Completion, DeepLinear, EntryCompletion, Problem, observed_entries
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import FITTED, MEASURABLE, Run, decades, excess, flows

MODEL = DeepLinear((2, 2, 2))

TIMES = np.concatenate([np.linspace(0.0, 6.0, 31), [8.0, 10.0, 13.0, 17.0, 22.0, 30.0]])
"""In units of $1/w^\\star$: from the reveal to a loss of about $10^{-40}$ of its start."""

ENVELOPE_TOLERANCE = 1e-8
"""Relative to the envelope, which the loss meets at the reveal, up to rounding and the error of the start."""

BOUND_TOLERANCE = 1e-9
"""Flows at rtol 1e-12 and starts to 1e-10: relations that are equalities at some time are met to that."""

STRICTLY = -1e-14
r"""Below zero by more than rounding, in units of $w^\star$: 0.2 after the reveal $w_{21}$ is below $-10^{-10}$."""

FIGURE_TOLERANCE = 5e-3
"""Half of the last digit that the text shows of the bound; of the stable rank it shows one digit less."""

DIGIT_TOLERANCE = 5.1e-5
"""Half of the fourth digit after the point."""

START_TOLERANCE = 1e-10
r"""How near to $\sqrt{w^\star} I$ the layers must start, relative to it."""


@dataclasses.dataclass(frozen=True)
class Reveal:
    """Targets of the diagonal and of the revealed corner, and the layers at the reveal."""

    diagonal: tuple[float, float]
    revealed: float
    params: Params

    @property
    def value(self) -> float:
        """$w^\\star$, the first target of the diagonal."""
        return self.diagonal[0]

    @property
    def ratio(self) -> float:
        r"""The revealed target beside $w^\star$; 1 where the signs, judged apart, leave it without meaning."""
        return self.revealed / self.value if self.revealed * self.value > 0 else 1.0

    @property
    def unit(self) -> "Reveal":
        r"""The same with $w^\star = 1$.

        The flow of targets $w^\star M$ from layers $\sqrt{w^\star} X$ is that of $M$ from $X$ in times of $1/w^\star$.
        """
        w = self.value
        layers = tuple(layer / np.sqrt(w) for layer in self.params)
        return Reveal((1.0, self.diagonal[1] / w), self.revealed / w, layers)

    @property
    def problem(self) -> Problem:
        """The diagonal and the corner are observed."""
        target = [[self.diagonal[0], self.revealed], [0.0, self.diagonal[1]]]
        return Problem(MODEL, Completion(target, [[1, 1], [0, 1]]))


def _learnt(value: float) -> Params:
    layer = np.sqrt(value) * xp.eye(2)
    return (layer, layer)


def _numbers(rng: np.random.Generator) -> tuple[float, float]:
    value = float(np.exp(rng.uniform(np.log(0.5), np.log(2.0))))
    return value, value * float(np.exp(rng.uniform(np.log(0.05), np.log(5.0))))


def _draw(rng: np.random.Generator) -> Reveal:
    value, revealed = _numbers(rng)
    return Reveal((value, value), revealed, _learnt(value))


def _cold(rng: np.random.Generator) -> Reveal:
    """The same three entries from a small start: nothing was learnt before."""
    value = float(np.exp(rng.uniform(np.log(0.5), np.log(2.0))))
    layer = 1e-2 * np.sqrt(value) * xp.eye(2)
    return Reveal((value, value), value * float(rng.uniform(0.3, 1.0)), (layer, layer))


def _negative(rng: np.random.Generator) -> Reveal:
    reveal = _draw(rng)
    return dataclasses.replace(reveal, revealed=-float(rng.uniform(0.3, 2.0)) * reveal.value)


def _unequal(rng: np.random.Generator) -> Reveal:
    """The second target of the diagonal is larger; the layers have learnt both."""
    value = float(rng.uniform(0.5, 2.0))
    layer = xp.diag(xp.sqrt(xp.array([value, 2 * value])))
    return Reveal((value, 2 * value), value * float(rng.uniform(0.3, 1.0)), (layer, layer))


def _adopt(problem: Problem, params: Params) -> Reveal:
    model, loss = problem.model, problem.loss
    if not isinstance(model, DeepLinear) or model.widths != MODEL.widths:
        raise HypothesisError("two layers of two by two", 1, 0)
    if not isinstance(loss, Completion | EntryCompletion):
        raise HypothesisError("completion loss", 1, 0)
    if float(problem.l2) != 0:
        raise HypothesisError("no penalty (l2 = 0)", float(problem.l2), 0)
    problem.check(params, "examine")
    entries = {(int(i), int(j)): float(y) for i, j, y in zip(*observed_entries(loss), strict=True)}
    other = {(0, 0), (1, 1), (0, 1)} ^ set(entries)
    if other:
        raise HypothesisError("the diagonal and the corner (1, 2) are observed", len(other), 0)
    return Reveal((entries[0, 0], entries[1, 1]), entries[0, 1], params)


HYPOTHESES = (
    Hypothesis[Reveal]("w11* = w22*", lambda r: abs(r.diagonal[1] - r.diagonal[0]) / abs(r.value), START_TOLERANCE),
    Hypothesis[Reveal]("w* > 0", lambda r: float(r.value <= 0)),
    Hypothesis[Reveal]("w12* > 0", lambda r: float(r.revealed <= 0)),
    Hypothesis[Reveal](
        "A = B = √w* I at the reveal",
        lambda r: max(float(xp.max(xp.abs(w / np.sqrt(abs(r.value)) - xp.eye(2)))) for w in r.params),
        START_TOLERANCE,
    ),
    Hypothesis[Reveal](f"{MEASURABLE}: w12*/w* from 0.005 to 15", lambda r: decades((r.ratio, 5e-3, 15.0))),
)
COLD = Violation("a small start in place of the learnt one", _cold)
NEGATIVE = Violation("a negative revealed entry", _negative)
UNEQUAL = Violation("unequal targets on the diagonal", _unequal)


def _runs(units: Sequence[Reveal]) -> list[Run]:
    return flows([u.problem for u in units], [u.params for u in units], TIMES)


def _stable_rank(product: np.ndarray) -> float:
    values = np.linalg.svd(product, compute_uv=False)
    return float(np.sum((values / values[0]) ** 2))


def _measure_theorem(instances: Sequence[Reveal]) -> list[Measured]:
    units = [i.unit for i in instances]
    found = []
    for instance, unit, run in zip(instances, units, _runs(units), strict=True):
        bounds = warm_start_bounds(1.0, abs(unit.revealed))
        limit, w = run.product[-1], instance.value
        values, rank = np.linalg.svd(limit, compute_uv=False), _stable_rank(limit)
        largest, smallest = float(bounds.largest_singular_value), float(bounds.smallest_singular_value)
        found.append(
            Measured(
                {
                    "loss beyond ½w12*² exp(-2w*τ)": excess(run.loss, np.asarray(bounds.loss_envelope(run.times))),
                    "1 + exp(-8w12*/w*) - stable rank": float(bounds.stable_rank) - rank,
                    "σ1/w* exp(-2w12*/w*) - 1": float(values[0]) / largest - 1,
                    "exp(-2w12*/w*) - σ2/w*": smallest - float(values[1]),
                    "w21/w* after the reveal": float(np.max(run.product[1:, 1, 0])),
                },
                facts={
                    "stable rank": rank,
                    "bound of the stable rank": float(bounds.stable_rank),
                    "slack of the stable rank": rank - float(bounds.stable_rank),
                    "σ1": w * float(values[0]),
                    "bound of σ1": w * largest,
                    "slack of σ1": w * (largest - float(values[0])),
                    "σ2": w * float(values[1]),
                    "bound of σ2": w * smallest,
                    "slack of σ2": w * (float(values[1]) - smallest),
                    "w21": w * float(limit[1, 0]),
                    "w21 of rank one": w * float(bounds.rank_one_value),
                    "loss at the end": w**2 * float(run.loss[-1]),
                },
            )
        )
    return found


def _measure_sharper(instances: Sequence[Reveal]) -> list[Measured]:
    units = [i.unit for i in instances]
    found = []
    for unit, run in zip(units, _runs(units), strict=True):
        bounds = warm_start_bounds(1.0, abs(unit.revealed))
        rank, sharper = _stable_rank(run.product[-1]), float(bounds.sharper_stable_rank)
        middle = 1 + float(np.exp(-2 * abs(unit.revealed)))
        found.append(
            Measured(
                {
                    "sharper bound - stable rank": sharper - rank,
                    "|w21| - w12": float(np.max(np.abs(run.product[:, 1, 0]) - run.product[:, 0, 1])),
                    "1 + exp(-2w12*/w*) - sharper bound": middle - sharper,
                    "published bound - sharper bound": float(bounds.stable_rank) - sharper,
                },
                facts={
                    "stable rank": rank,
                    "sharper bound": sharper,
                    "slack": rank - sharper,
                    "slack of the published bound": rank - float(bounds.stable_rank),
                },
            )
        )
    return found


@formula
def _relations(
    first: Float[Array, "times 2 2"], second: Float[Array, "times 2 2"], revealed: Float[Array, ""]
) -> dict[str, Float[Array, ""]]:
    r"""Worst violation of each relation over the times, $w^\star = 1$."""

    def at(b: Float[Array, "2 2"], a: Float[Array, "2 2"]) -> dict[str, Float[Array, ""]]:
        return warm_start_violations((b, a), 1.0, revealed)

    return {name: xp.max(worst) for name, worst in over(at)(first, second).items()}


@formula
def _field(second: Float[Array, "times 2 2"], revealed: Float[Array, ""]) -> Float[Array, "times 2 2"]:
    r"""$\dot A$ of the reduced system at all times, $w^\star = 1$."""
    return over(lambda a: warm_start_field(a.ravel(), 1.0, revealed).reshape(2, 2))(second)


RELATIONS = (
    "reflection",
    "equal diagonal",
    "diagonal at least its target",
    "revealed entry not negative",
    "revealed entry at most its target",
    "missing entry not positive",
    "missing entry smaller than the revealed one",
    "positive diagonal of A",
    "corner of A not negative",
    "rows of A at an acute angle",
    "first row of A long",
    "second row of A short",
    "determinant of the product",
    "determinant of B",
    "norm of the product",
)
"""Names of the relations that `warm_start_violations` measures."""


def _measure_lemmas(instances: Sequence[Reveal]) -> list[Measured]:
    units = [i.unit for i in instances]
    found = []
    for unit, run in zip(units, _runs(units), strict=True):
        first, second = (xp.asarray(layer) for layer in run.layers)
        revealed = xp.asarray(abs(unit.revealed), dtype=float)
        relations = {name: float(worst) for name, worst in _relations(first, second, revealed).items()}
        w, b = run.product, run.layers[0]
        gradient = np.array([[1, 1], [0, 1]]) * (w - np.array([[1.0, abs(unit.revealed)], [0.0, 1.0]]))
        speed = -gradient @ np.swapaxes(b, 1, 2)
        reduced = float(np.max(np.abs(np.asarray(_field(second, revealed)) - speed)))
        found.append(Measured({**relations, "reduced system": reduced}, facts={"worst": max(relations.values())}))
    return found


def _measure_strict(instances: Sequence[Reveal]) -> list[Measured]:
    units = [i.unit for i in instances]
    return [
        Measured(
            {
                "|w21|/w* at the reveal": abs(float(run.product[0, 1, 0])),
                "w21/w* after the reveal": float(np.max(run.product[1:, 1, 0])),
            },
            printed=float(not run.product[0, 1, 0] < -BOUND_TOLERANCE),
            facts={"w21 in the limit": i.value * float(run.product[-1, 1, 0])},
        )
        for i, run in zip(instances, _runs(units), strict=True)
    ]


def _measure_norm(instances: Sequence[Reveal]) -> list[Measured]:
    units = [i.unit for i in instances]
    found = []
    for run in _runs(units):
        norms = np.linalg.norm(run.product, axis=(1, 2))
        rises = np.diff(run.loss) / (run.loss[0] + run.loss[:-1])
        found.append(
            Measured(
                {"rise of the loss": float(rises.max()), "√2 w* - |W|": float(np.sqrt(2) - norms.min())},
                printed=float(-rises.min()),
                facts={"smallest |W|/(√2 w*)": float(norms.min() / np.sqrt(2))},
            )
        )
    return found


@dataclasses.dataclass(frozen=True)
class Figure:
    """Small starts `alpha` times an orthogonal matrix and its transpose, and the two values of the revealed entry."""

    alpha: float
    basis: np.ndarray
    text: float = 0.1
    caption: float = 0.5


def _draw_figure(rng: np.random.Generator) -> Figure:
    basis, _ = np.linalg.qr(rng.standard_normal((2, 2)))
    return Figure(1e-3, basis)


def _draw_other_figure(rng: np.random.Generator) -> Figure:
    return dataclasses.replace(_draw_figure(rng), text=0.3)


def _effective_rank(product: np.ndarray) -> float:
    shares = np.linalg.svd(product, compute_uv=False)
    shares = shares / shares.sum()
    return float(np.exp(-np.sum(shares * np.log(shares))))


def _measure_figure(instances: Sequence[Figure]) -> list[Measured]:
    """Warm: the diagonal is learnt in closed form, then the entry is revealed. Cold: all three at once."""
    problems, starts = [], []
    diagonal = Problem(MODEL, Completion(np.eye(2), np.eye(2)))
    for figure in instances:
        small = (xp.asarray(figure.alpha * figure.basis.T), xp.asarray(figure.alpha * figure.basis))
        learnt = disconnected(diagonal, small).limit()
        for revealed in (figure.text, figure.caption):
            problem = Reveal((1.0, 1.0), revealed, learnt).problem
            problems += [problem, problem]
            starts += [learnt, small]
    runs = iter(flows(problems, starts, [0.0, 1e4], below=FITTED))
    found = []
    for figure in instances:
        (text, cold_text), (caption, cold_caption) = ([next(runs).product[-1] for _ in range(2)] for _ in range(2))
        of_text = float(warm_start_bounds(1.0, figure.text).stable_rank)
        of_caption = float(warm_start_bounds(1.0, figure.caption).stable_rank)
        found.append(
            Measured(
                {
                    "bound, w12* = 0.1": abs(of_text - 1.45),
                    "stable rank, w12* = 0.1": abs(_stable_rank(text) - 1.8),
                    "bound, w12* = 0.5": abs(of_caption - 1.0183),
                    "stable rank, w12* = 0.5": abs(_stable_rank(caption) - 1.3764),
                    "cold effective rank, w12* = 0.1": abs(_effective_rank(cold_text) - 1.9227),
                    "cold effective rank, w12* = 0.5": abs(_effective_rank(cold_caption) - 1.1733),
                },
                printed=max(abs(of_caption - 1.45), abs(_stable_rank(caption) - 1.8)),
                facts={"stable rank, w12* = 0.1": _stable_rank(text), "stable rank, w12* = 0.5": _stable_rank(caption)},
            )
        )
    return found


CHECKS: tuple[Check, ...] = (
    Check(
        id="completion/theorem-4.2",
        source="Theorem 4.2, Lemma E.8",
        statement=(
            "Two-by-two layers A = B = √w* I, that fit the diagonal w* and are shown w12* > 0 have a loss of at most "
            "½w12*² exp(-2w*τ), end with stable rank at least 1 + exp(-8w12*/w*), σ1 ≤ w* exp(2w12*/w*), "
            "σ2 ≥ w* exp(-2w12*/w*), and w21 < 0 after the reveal."
        ),
        hypotheses=HYPOTHESES,
        tolerances={
            "loss beyond ½w12*² exp(-2w*τ)": ENVELOPE_TOLERANCE,
            "1 + exp(-8w12*/w*) - stable rank": BOUND_TOLERANCE,
            "σ1/w* exp(-2w12*/w*) - 1": BOUND_TOLERANCE,
            "exp(-2w12*/w*) - σ2/w*": BOUND_TOLERANCE,
            "w21/w* after the reveal": STRICTLY,
        },
        measure=_measure_theorem,
        draw=_draw,
        violations=(COLD, NEGATIVE),
        adopt=_adopt,
        version=2,
    ),
    Check(
        id="completion/lemmas-e2-e7",
        source="Lemmas E.2-E.7",
        statement=(
            "After the reveal B = E Aᵀ E, w11 = w22 ≥ w*, 0 ≤ w12 ≤ w12*, w21 ≤ 0, the rows of A are at an acute angle "
            "with |a1|² ≥ w* ≥ |a2|², det W ≥ w*², det(B)² ≥ w*|a2|² and |W| ≥ √2 w*, at all times, and A follows a "
            "system of its own."
        ),
        hypotheses=HYPOTHESES,
        tolerances={**dict.fromkeys(RELATIONS, BOUND_TOLERANCE), "reduced system": BOUND_TOLERANCE},
        measure=_measure_lemmas,
        draw=_draw,
        violations=(COLD, UNEQUAL, NEGATIVE),
        adopt=_adopt,
    ),
    Check(
        id="completion/sharper-warm-start",
        source="Theorem 4.2, extension",
        statement=(
            "In the warm start |w21| ≤ w12, and the stable rank ends at 1 + exp(-4 asinh(w12*/(2w*))) or more, which "
            "is at least 1 + exp(-2w12*/w*)."
        ),
        hypotheses=HYPOTHESES,
        tolerances={
            "sharper bound - stable rank": BOUND_TOLERANCE,
            "|w21| - w12": BOUND_TOLERANCE,
            "1 + exp(-2w12*/w*) - sharper bound": BOUND_TOLERANCE,
            "published bound - sharper bound": BOUND_TOLERANCE,
        },
        measure=_measure_sharper,
        draw=_draw,
        violations=(COLD,),
        adopt=_adopt,
    ),
    Check(
        id="completion/erratum-missing-entry",
        source="Theorem 4.2",
        statement="In the warm start w21 is 0 at the reveal and strictly negative after it.",
        hypotheses=HYPOTHESES,
        tolerances={"|w21|/w* at the reveal": BOUND_TOLERANCE, "w21/w* after the reveal": STRICTLY},
        measure=_measure_strict,
        draw=_draw,
        violations=(NEGATIVE,),
        printed="w21(t) < 0 for all t ≥ T1, the time of the reveal included.",
        adopt=_adopt,
    ),
    Check(
        id="completion/erratum-lemma-e7",
        source="Proofs of Lemmas E.3 and E.7",
        statement=(
            "In the warm start the loss does not increase (used in the proof of Lemma E.3), and |W| ≥ √2 w* at all "
            "times, by Lemma E.5 (used in the proof of Lemma E.7, which cites itself for it)."
        ),
        hypotheses=HYPOTHESES,
        tolerances={"rise of the loss": BOUND_TOLERANCE, "√2 w* - |W|": BOUND_TOLERANCE},
        measure=_measure_norm,
        draw=_draw,
        violations=(COLD,),
        printed="The loss is non-decreasing (proof of Lemma E.3).",
        printed_tolerance=BOUND_TOLERANCE,
        adopt=_adopt,
    ),
    Check(
        id="completion/erratum-figure-31",
        source="Figure 31",
        statement=(
            "For w* = 1 the bound 1.45 and the observed stable rank 1.8 belong to w12* = 0.1; for w12* = 0.5 they are "
            "1.0183 and 1.3764, and there a small start, α = 0.001, ends at the low effective rank 1.17 of the figure."
        ),
        hypotheses=(
            Hypothesis[Figure]("w12* = 0.1 in the text", lambda f: abs(f.text - 0.1)),
            Hypothesis[Figure]("w12* = 0.5 in the caption", lambda f: abs(f.caption - 0.5)),
        ),
        tolerances={
            "bound, w12* = 0.1": FIGURE_TOLERANCE,
            "stable rank, w12* = 0.1": 10 * FIGURE_TOLERANCE,
            "bound, w12* = 0.5": DIGIT_TOLERANCE,
            "stable rank, w12* = 0.5": DIGIT_TOLERANCE,
            "cold effective rank, w12* = 0.1": DIGIT_TOLERANCE,
            "cold effective rank, w12* = 0.5": DIGIT_TOLERANCE,
        },
        measure=_measure_figure,
        draw=_draw_figure,
        violations=(Violation("another revealed entry", _draw_other_figure),),
        printed="For w12* = 0.5 the bound is 1.45 and the observed stable rank 1.8.",
        printed_tolerance=0.05,
    ),
)
