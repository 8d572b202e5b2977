r"""Two layers that hardly move: the Lipschitz constant of the Jacobian, the lazy certificate, an example."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import numpy as np

from deeplinear.core import Params, add_at, xp
from deeplinear.exact import LazyCertificate, lazy_certificate, toeplitz_example, toeplitz_ratio
from deeplinear.landscape import product_jacobian
from deeplinear.models import Completion, DeepLinear, Problem, entry_gram, observed_entries
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import MEASURABLE, Run, decades, excess, flows

ROUNDING = 1e-12
"""Norms of small matrices."""

ENVELOPE_TOLERANCE = 1e-8
"""Relative to the envelope, which the loss meets at the start."""

BOUND_TOLERANCE = 1e-9
"""Flows at rtol 1e-12, in layers of order one."""

BALANCE_TOLERANCE = 1e-10
"""Largest relative imbalance of the layers at the start; it is conserved."""


# --- Jacobian -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Displacement:
    """Two points in parameter space and the entries that are looked at."""

    model: DeepLinear
    mask: np.ndarray
    here: Params
    there: Params


def _jacobian(mask: np.ndarray, params: Params) -> np.ndarray:
    """Jacobian of the observed entries of the product, (entries, weights)."""
    return np.asarray(product_jacobian(params))[np.flatnonzero(mask)]


def _draw_points(rng: np.random.Generator, widths: tuple[int, ...] = (3, 3, 4), size: float = 1.0) -> Displacement:
    model = DeepLinear(widths)
    mask = rng.random(model.product_shape) < rng.uniform(0.3, 1.0)
    mask[rng.integers(mask.shape[0]), rng.integers(mask.shape[1])] = True

    def layers() -> list[np.ndarray]:
        return [size * rng.standard_normal(shape) for shape in model.shapes]

    here, step = layers(), layers()
    if rng.random() < 0.5:  # steps of rank one come nearest to the constant
        step = [np.outer(w[:, 0], w[0]) for w in step]
    there = tuple(xp.asarray(w + 4 * s) for w, s in zip(here, step, strict=True))
    return Displacement(model, mask, tuple(xp.asarray(w) for w in here), there)


def _three_layers(rng: np.random.Generator) -> Displacement:
    points = _draw_points(rng, (3, 3, 3, 3), 3.0)
    return dataclasses.replace(points, mask=np.ones((3, 3), bool))


def _steps(points: Displacement) -> tuple[np.ndarray, list[float]]:
    """Change of the Jacobian and Frobenius norms of the change of the layers."""
    change = _jacobian(points.mask, points.there) - _jacobian(points.mask, points.here)
    moved = [float(xp.linalg.norm(a - b)) for a, b in zip(points.there, points.here, strict=True)]
    return change, moved


def _attained(points: Displacement) -> float:
    """Ratio for a step of one observed row of the last layer: the constant 1 is reached."""
    row = int(np.flatnonzero(points.mask.any(axis=1))[0])
    last = add_at(xp.asarray(points.here[-1]), row, 1.0)
    step = dataclasses.replace(points, there=(*points.here[:-1], last))
    change, moved = _steps(step)
    return float(np.linalg.norm(change, 2)) / float(np.linalg.norm(moved))


def _measure_lipschitz(instances: Sequence[Displacement]) -> list[Measured]:
    found = []
    for points in instances:
        change, moved = _steps(points)
        ratio = float(np.linalg.norm(change, 2)) / float(np.linalg.norm(moved))
        found.append(
            Measured(
                {
                    "|J(X) - J(Y)|₂ / |X - Y| beyond √d": ratio / np.sqrt(max(points.mask.shape)) - 1,
                    "|J(X) - J(Y)|₂ / |X - Y| beyond 1": ratio - 1,
                    "constant 1 is reached": abs(_attained(points) - 1),
                },
                facts={"ratio": ratio},
            )
        )
    return found


ROW = "|J_n|² against |a_i|² + |b_j|²"
FROBENIUS = "|ΔJ|² / (d(|ΔA|² + |ΔB|²)) - 1"
SPECTRAL = "|ΔJ|₂² / (|ΔA|² + |ΔB|²) - 1"


def _measure_squares(instances: Sequence[Displacement]) -> list[Measured]:
    found = []
    for points in instances:
        change, moved = _steps(points)
        squares = float(np.sum(np.square(moved)))
        rows, columns = np.nonzero(points.mask)
        a = np.linalg.norm(np.asarray(points.here[-1])[rows], axis=1)
        b = np.linalg.norm(np.asarray(points.here[0]).T[columns], axis=1)
        row = np.sum(_jacobian(points.mask, points.here) ** 2, axis=1)
        found.append(
            Measured(
                {
                    ROW: float(np.max(np.abs(row - a**2 - b**2) / row)),
                    FROBENIUS: float(np.sum(change**2)) / (max(points.mask.shape) * squares) - 1,
                    SPECTRAL: float(np.linalg.norm(change, 2)) ** 2 / squares - 1,
                },
                printed=float(np.max(np.abs(row - a - b) / row)),
            )
        )
    return found


TWO_LAYERS = (Hypothesis[Displacement]("two layers", lambda p: float(abs(p.model.depth - 2))),)


# --- Certificate ----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Lazy:
    """A start near a fit; `constant` says which form of the certificate is meant."""

    problem: Problem
    params: Params
    constant: Literal["width", "one"]

    @functools.cached_property
    def certificate(self) -> LazyCertificate:
        """What the theory says beforehand."""
        return lazy_certificate(self.problem, self.params, constant=self.constant)


LAZY_MODEL = DeepLinear((4, 4, 4))
LAZY_TIMES = np.concatenate([np.linspace(0.0, 4.0, 21), [6.0, 9.0, 14.0, 20.0]])


def _near_fit(rng: np.random.Generator, constant: Literal["width", "one"], share: float, lopsided: float) -> Lazy:
    """Balanced layers (the second times `lopsided`) whose loss is a share of the threshold, in a random direction."""
    right, left, turn = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(3))
    root = np.sqrt(rng.uniform(0.6, 2.0, 4))
    first, second = turn @ (root[:, None] * right.T), lopsided * (left * root) @ turn.T
    params = (xp.asarray(first), xp.asarray(second))
    mask = np.zeros(16)
    mask[rng.choice(16, rng.choice([3, 7]), replace=False)] = 1
    mask = mask.reshape(4, 4)
    here = second @ first
    direction = mask * rng.standard_normal((4, 4))
    exact = Lazy(Problem(LAZY_MODEL, Completion(here, mask)), params, constant)
    size = np.sqrt(2 * share * exact.certificate.threshold) / np.linalg.norm(direction)
    return Lazy(Problem(LAZY_MODEL, Completion(here + size * direction, mask)), params, constant)


def _draw_width(rng: np.random.Generator) -> Lazy:
    return _near_fit(rng, "width", 0.98, 1.0)


def _draw_one(rng: np.random.Generator) -> Lazy:
    return _near_fit(rng, "one", 0.98, 1.0)


def _measure_certificate(instances: Sequence[Lazy]) -> list[Measured]:
    runs = flows([i.problem for i in instances], [i.params for i in instances], LAZY_TIMES)
    return [_lazy(i, run) for i, run in zip(instances, runs, strict=True)]


def _lazy(instance: Lazy, run: Run) -> Measured:
    """Both sides of every inequality; bounds are written out here, as a certificate that does not apply has none."""
    certificate = instance.certificate
    low, high, loss = certificate.sigma_min, certificate.sigma_max, certificate.loss
    radius = low / (4 * np.sqrt(certificate.constant))
    delta = 6 * np.sqrt(2) * high / low**2 * np.sqrt(loss)
    first, second = run.layers
    moved = np.sqrt(sum(np.sum((w - w[0]) ** 2, axis=(1, 2)) for w in run.layers))
    values, others = (np.linalg.svd(w, compute_uv=False) for w in (second, first))
    modes = min(values.shape[1], others.shape[1])
    ranks = np.sum(values**2, axis=1) / values[:, 0] ** 2

    def bound(reach: float) -> float:
        size, largest = float(np.linalg.norm(values[0])), float(values[0, 0])
        return (max(size - reach / np.sqrt(2), 0) / (largest + reach / np.sqrt(2))) ** 2

    return Measured(
        {
            "loss beyond l exp(-σmin² t/2)": excess(run.loss, loss * np.exp(-(low**2) * run.times / 2)),
            "displacement - δ": float(moved.max()) - delta,
            "δ - R": delta - radius,
            "|σ(A(t)) - σ(A)| - R/√2": float(np.max(np.abs(values - values[0]))) - radius / np.sqrt(2),
            "σ(A)² = σ(B)²": float(np.max(np.abs(values[:, :modes] ** 2 - others[:, :modes] ** 2))) / values[0, 0] ** 2,
            "bound of the stable rank": bound(radius) - float(ranks.min()),
            "bound with δ": bound(delta) - float(ranks.min()),
        },
        facts={
            "loss": loss,
            "threshold": certificate.threshold,
            "displacement": float(moved.max()),
            "δ": delta,
            "R": radius,
            "slack of the displacement": delta - float(moved.max()),
            "smallest stable rank": float(ranks.min()),
            "bound of the stable rank": max(1.0, bound(radius)),
            "bound with δ": max(1.0, bound(delta)),
            "slack of the stable rank": float(ranks.min()) - max(1.0, bound(radius)),
            "loss / threshold with k = d": loss
            * max(instance.problem.model.product_shape)
            / certificate.constant
            / certificate.threshold,
        },
    )


LAZY_HYPOTHESES = (
    Hypothesis[Lazy]("σmin > 0", lambda i: float(i.certificate.threshold <= 0)),
    Hypothesis[Lazy]("balanced layers", lambda i: i.certificate.imbalance, BALANCE_TOLERANCE),
    Hypothesis[Lazy]("loss - σmin⁶/(1152 k σmax²)", lambda i: i.certificate.loss - i.certificate.threshold),
    Hypothesis[Lazy](MEASURABLE, lambda i: decades((i.certificate.sigma_max, 0.1, 10.0))),
)
LAZY_TOLERANCES = {
    "loss beyond l exp(-σmin² t/2)": ENVELOPE_TOLERANCE,
    "displacement - δ": BOUND_TOLERANCE,
    "δ - R": BOUND_TOLERANCE,
    "|σ(A(t)) - σ(A)| - R/√2": BOUND_TOLERANCE,
    "σ(A)² = σ(B)²": BOUND_TOLERANCE,
    "bound of the stable rank": BOUND_TOLERANCE,
    "bound with δ": BOUND_TOLERANCE,
}


def _adopt(constant: Literal["width", "one"], problem: Problem, params: Params) -> Lazy:
    lazy = Lazy(problem, params, constant)
    _ = lazy.certificate  # refuses other problems
    return lazy


# --- Example --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Toeplitz:
    """Upper triangle of $w c^{j-i}$; the layers are scaled by `unlearnt` from where they fit the diagonal."""

    size: int
    ratio: float
    value: float
    constant: Literal["width", "one"]
    unlearnt: float = 1.0

    @property
    def lazy(self) -> Lazy:
        """The start that the certificate is about."""
        problem, params = toeplitz_example(self.size, self.ratio, self.value)
        return Lazy(problem, tuple(self.unlearnt * layer for layer in params), self.constant)


def _draw_toeplitz(rng: np.random.Generator) -> Toeplitz:
    size = int(rng.choice([2, 4]))
    constant: Literal["width", "one"] = "one" if rng.random() < 0.5 else "width"
    ratio = float(rng.uniform(0.5, 1.0)) * toeplitz_ratio(size, constant=constant)
    return Toeplitz(size, ratio, float(rng.uniform(0.7, 1.5)), constant)


def _unlearnt(rng: np.random.Generator) -> Toeplitz:
    return dataclasses.replace(_draw_toeplitz(rng), size=4, unlearnt=0.5)


def _wide_ratio(rng: np.random.Generator) -> Toeplitz:
    return Toeplitz(4, float(rng.uniform(0.6, 0.9)), float(rng.uniform(0.7, 1.5)), "width")


def _measure_toeplitz(instances: Sequence[Toeplitz]) -> list[Measured]:
    starts = [i.lazy for i in instances]
    runs = flows([s.problem for s in starts], [s.params for s in starts], LAZY_TIMES)
    found = []
    for example, start, run in zip(instances, starts, runs, strict=True):
        d, w, c = example.size, example.value, example.ratio
        k = d if example.constant == "width" else 1
        rows, columns, _ = observed_entries(start.problem.loss)
        gram = np.asarray(entry_gram(start.problem.model, start.params, rows, columns))
        steps = np.arange(1, d)
        loss = w**2 / 2 * float(np.sum((d - steps) * c ** (2 * steps)))
        bound = ((4 * d - 1) / (4 * np.sqrt(d) + 1)) ** 2 if k == d else ((4 * np.sqrt(d) - 1) / 5) ** 2
        largest = toeplitz_ratio(d, constant=example.constant)
        limit = float(np.sum((d - steps) * largest ** (2 * steps))) * 144 * k
        values = np.linalg.svd(run.layers[1], compute_uv=False)
        ranks = np.sum(values**2, axis=1) / values[:, 0] ** 2
        whole = _lazy(start, run)
        found.append(
            Measured(
                {
                    "Gram matrix - 2w* I": float(np.max(np.abs(gram - 2 * w * np.eye(len(gram))))) / w,
                    "loss at the start": abs(float(start.problem.value(start.params)) - loss) / w**2,
                    "loss - w*²/(288k)": (loss - w**2 / (288 * k)) / w**2,
                    "largest ratio": abs(limit - 1),
                    "bound of the stable rank": abs(whole.facts["bound of the stable rank"] - max(1.0, bound)),
                    "bound - stable rank": bound - float(ranks.min()),
                },
                facts={"bound": bound, "stable rank": float(ranks[-1]), "slack": float(ranks.min()) - bound},
            )
        )
    return found


CHECKS: tuple[Check, ...] = (
    Check(
        id="completion/lemma-e9",
        source="Lemma E.9; the constant 1 is an extension",
        statement=(
            "The Jacobian J of the entries of a product of two layers is Lipschitz, |J(X) - J(Y)|₂ ≤ √d |X - Y|; the "
            "constant 1 holds too and is reached."
        ),
        hypotheses=TWO_LAYERS,
        tolerances={
            "|J(X) - J(Y)|₂ / |X - Y| beyond √d": ROUNDING,
            "|J(X) - J(Y)|₂ / |X - Y| beyond 1": ROUNDING,
            "constant 1 is reached": ROUNDING,
        },
        measure=_measure_lipschitz,
        draw=_draw_points,
        violations=(Violation("three layers", _three_layers),),
    ),
    Check(
        id="completion/erratum-lemma-e9",
        source="Lemma E.9, proof",
        statement=(
            "The row of the Jacobian of two layers that belongs to w_ij, X = e_i e_jᵀ, has |J_n|² = |XᵀA|² + |XBᵀ|² = "
            "|a_i|² + |b_j|², with squared norms, so that |J(X) - J(Y)|² ≤ d (|ΔA|² + |ΔB|²), and |J(X) - J(Y)|₂² ≤ "
            "|ΔA|² + |ΔB|²."
        ),
        hypotheses=TWO_LAYERS,
        tolerances={ROW: ROUNDING, FROBENIUS: ROUNDING, SPECTRAL: ROUNDING},
        measure=_measure_squares,
        draw=_draw_points,
        violations=(Violation("three layers", _three_layers),),
        printed="|J_n|² = |XᵀA| + |XBᵀ|, the norms on the right not squared.",
        printed_tolerance=ROUNDING,
        version=2,
    ),
    Check(
        id="completion/theorem-4.3",
        source="Theorem 4.3 (E.2), Corollary E.3",
        statement=(
            "Two balanced layers whose loss is at most σmin⁶/(1152 d σmax²), the σ those of the Jacobian, fit their "
            "observations at rate σmin²/2 within the distance δ = 6√2 σmax √l/σmin² ≤ R = σmin/(4√d), and the stable "
            "rank of A stays above ((|A| - R/√2)/(|A|₂ + R/√2))²."
        ),
        hypotheses=LAZY_HYPOTHESES,
        tolerances=LAZY_TOLERANCES,
        measure=_measure_certificate,
        draw=_draw_width,
        violations=(
            Violation("a loss far above the threshold", lambda rng: _near_fit(rng, "width", 1e3, 1.0)),
            Violation("layers that are not balanced", lambda rng: _near_fit(rng, "width", 0.98, 1.3)),
        ),
        adopt=functools.partial(_adopt, "width"),
        version=2,
    ),
    Check(
        id="completion/lazy-dimension-free",
        source="Theorem 4.3, extension",
        statement="Theorem 4.3 holds with 1 in place of the width d: for losses d times as large, within R = σmin/4.",
        hypotheses=LAZY_HYPOTHESES,
        tolerances=LAZY_TOLERANCES,
        measure=_measure_certificate,
        draw=_draw_one,
        violations=(
            Violation("a loss far above the threshold", lambda rng: _near_fit(rng, "one", 1e3, 1.0)),
            Violation("layers that are not balanced", lambda rng: _near_fit(rng, "one", 0.98, 1.3)),
        ),
        adopt=functools.partial(_adopt, "one"),
        version=2,
    ),
    Check(
        id="completion/lazy-example",
        source="Theorem 4.3, example",
        statement=(
            "For w*_ij = w* c^(j-i) with a fitted diagonal and the upper triangle revealed, J Jᵀ = 2w* I, the "
            "condition is Σ(d-j)c^(2j) ≤ 1/(144k), and the stable rank of A stays above ((4d-1)/(4√d+1))², of order d, "
            "for k = d, and above ((4√d-1)/5)² for k = 1."
        ),
        hypotheses=(
            Hypothesis[Toeplitz](
                "c - its largest value", lambda t: t.ratio - toeplitz_ratio(t.size, constant=t.constant)
            ),
            Hypothesis[Toeplitz]("the diagonal is fitted", lambda t: abs(t.unlearnt - 1)),
        ),
        tolerances={
            "Gram matrix - 2w* I": ROUNDING,
            "loss at the start": ROUNDING,
            "loss - w*²/(288k)": ROUNDING,
            "largest ratio": ROUNDING,
            "bound of the stable rank": ROUNDING,
            "bound - stable rank": BOUND_TOLERANCE,
        },
        measure=_measure_toeplitz,
        draw=_draw_toeplitz,
        violations=(Violation("a diagonal that is not fitted", _unlearnt), Violation("a ratio too large", _wide_ratio)),
    ),
)
