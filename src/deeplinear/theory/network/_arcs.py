"""Statements on arcs between critical points, and on where flows go that leave a saddle along one."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from deeplinear.core import over, xp
from deeplinear.landscape import arc_counts, arc_kind, arc_loss, arc_minimum, arc_point, gauge, submanifolds
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import flows
from deeplinear.theory.network._networks import CHAIN, draw_layers, draw_sigma

PLACES = np.linspace(0.0, 1.0, 21)
"""Where arcs are looked at."""

TOLD = 1e-10
"""Relative: losses of networks with changes of basis of condition 3."""

WIDTHS = (4, 3, 3, 3)
"""Three modes: signatures of all kinds."""


@dataclasses.dataclass(frozen=True)
class Path:
    """An arc between two signatures, carried out by networks.

    Attributes:
        sigma: Singular values of the task.
        widths: Widths of the networks.
        start: Signature at the start.
        end: Signature at the end.
        factors: Change of basis of the networks.
        bend: Directions of the layers; a multiple α(1 − α) of them leaves the arc.
    """

    sigma: np.ndarray
    widths: tuple[int, ...]
    start: tuple[int, ...]
    end: tuple[int, ...]
    factors: tuple[np.ndarray, ...]
    bend: tuple[np.ndarray, ...] = ()

    @property
    def target(self) -> np.ndarray:
        target = np.zeros((self.widths[-1], self.widths[0]))
        np.fill_diagonal(target, self.sigma)
        return target

    def layers(self, places: np.ndarray) -> list[np.ndarray]:
        """The networks at places of the arc: every layer with a leading axis of places."""
        points = over(lambda place: arc_point(self.sigma, self.widths, self.start, self.end, place))(places)
        after = (*self.factors, np.eye(self.widths[-1]))
        before = (np.eye(self.widths[0]), *(np.linalg.inv(factor) for factor in self.factors))
        layers = [a @ np.asarray(w) @ b for a, w, b in zip(after, points, before, strict=True)]
        if self.bend:
            size = (places * (1 - places))[:, None, None]
            layers = [w + size * v for w, v in zip(layers, self.bend, strict=True)]
        return layers

    def losses(self) -> np.ndarray:
        """Losses of the networks at all places, by plain products."""
        return 0.5 * np.sum((self.target - _multiplied(self.layers(PLACES))) ** 2, axis=(1, 2))

    def value(self, signature: Sequence[int]) -> float:
        """Half the sum of the squares of the modes that are missing."""
        return 0.5 * float(sum(s**2 for i, s in enumerate(self.sigma, start=1) if i not in signature))


def _multiplied(layers: Sequence[np.ndarray]) -> np.ndarray:
    result = layers[0]
    for layer in layers[1:]:
        result = layer @ result
    return result


def _gradient_size(layers: Sequence[np.ndarray], target: np.ndarray) -> float:
    residual, depth, total = _multiplied(layers) - target, len(layers), 0.0
    for position in range(depth):
        left = _multiplied(layers[position + 1 :]) if position + 1 < depth else np.eye(target.shape[0])
        right = _multiplied(layers[:position]) if position else np.eye(target.shape[1])
        total += float(np.sum((left.T @ residual @ right.T) ** 2))
    return total**0.5


def _signatures(modes: int) -> list[tuple[int, ...]]:
    numbers = range(1, modes + 1)
    return [chosen for size in range(modes + 1) for chosen in itertools.combinations(numbers, size)]


def _factors(rng: np.random.Generator, widths: Sequence[int]) -> tuple[np.ndarray, ...]:
    """Changes of basis with condition number 3."""
    factors = []
    for width in widths[1:-1]:
        left, right = (np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(2))
        factors.append(left * np.geomspace(3**-0.5, 3**0.5, width) @ right)
    return tuple(factors)


def _checked(widths: Sequence[int]) -> None:
    if len(widths) < 3 or min(widths) < min(widths[0], widths[-1]):
        raise ValueError(
            f"there must be a hidden layer, and none narrower than input and output, but the widths are "
            f"{tuple(widths)}."
        )


def _draw_path(rng: np.random.Generator, widths: Sequence[int], *, mixed: bool = False) -> Path:
    _checked(widths)
    modes = min(widths[0], widths[-1])
    if mixed and modes < 2:
        raise ValueError(f"there must be at least two modes, but the widths are {tuple(widths)}.")
    names = [tuple(int(k) + 1 for k in np.flatnonzero(rng.random(modes) < 0.5)) for _ in range(2)]
    if mixed:
        order = rng.permutation(modes) + 1
        count = int(rng.integers(1, modes))
        extra = [int(k) for k in order[1:] if rng.random() < 0.5]
        names = [
            tuple(sorted({int(order[0]), *extra} - {int(order[count])})),
            tuple(sorted({int(order[count]), *extra} - {int(order[0])})),
        ]
    return Path(draw_sigma(rng, modes), tuple(widths), names[0], names[1], _factors(rng, widths))


def _bent(rng: np.random.Generator, path: Path) -> Path:
    return dataclasses.replace(path, bend=draw_layers(rng, path.widths))


# --- Theorem 24 -------------------------------------------------------------------------------------------------------

THEOREM = {
    "loss on the arc, relative": TOLD,
    "gradient at the ends, relative": TOLD,
    "kinds told wrongly": 0.0,
    "least loss of the networks below that told, relative": TOLD,
    "numbers of arcs told wrongly": 0.0,
    "fall along decreasing arcs told wrongly, relative": TOLD,
}


def _seen_kind(losses: np.ndarray, scale: float) -> str:
    """How losses go, by the signs of their differences."""
    slopes = np.sign(np.where(np.abs(np.diff(losses)) <= 1e-9 * scale, 0.0, np.diff(losses)))
    if not slopes.any():
        return "constant"
    if np.all(slopes <= 0):
        return "decreasing"
    return "increasing" if np.all(slopes >= 0) else "mixed"


def _measure_theorem(instances: Sequence[Path]) -> list[Measured]:
    measured = []
    for path in instances:
        scale = path.value(())
        losses = path.losses()
        told = np.asarray(arc_loss(path.sigma, path.start, path.end, PLACES))
        first, last = zip(*path.layers(np.array([0.0, 1.0])), strict=True)
        ends = max(_gradient_size(layers, path.target) for layers in (first, last))
        kind = arc_kind(path.start, path.end)
        least = float(arc_minimum(path.sigma, path.start, path.end).value)
        modes = len(path.sigma)
        wrong, fall = 0, 0.0
        for own in _signatures(modes) if modes <= 4 else [path.start]:
            larger = [s for s in _signatures(modes) if set(own) < set(s)] if modes <= 10 else []
            counts = arc_counts(modes, len(own))
            wrong += counts != (2 ** (modes - len(own)) - 1, 2 ** len(own) - 1)
            if larger:
                found = submanifolds(path.sigma, own)
                wrong += sorted(arc.end for arc in found.unstable) != sorted(larger)
                wrong += len(found.stable) != counts.increasing
                drops = [abs(path.value(arc.start) - path.value(arc.end) - arc.drop) for arc in found.unstable]
                fall = max(fall, *drops)
        numbers = (
            float(np.max(np.abs(losses - told))) / scale,
            ends / scale,
            float(kind != _seen_kind(losses, scale)),
            max(0.0, least - float(losses.min())) / scale,
            float(wrong),
            fall / scale,
        )
        facts = {"loss at the start": float(losses[0]), "loss at the end": float(losses[-1])}
        measured.append(Measured(dict(zip(THEOREM, numbers, strict=True)), facts=facts))
    return measured


THEOREM_24 = Check(
    id="network/theorem-24",
    source="Theorem 24",
    statement=(
        "Along an arc of products (1 − α)S₁Σ + αS₂Σ the loss is constant if S₁ = S₂, falls if S₁ ⊂ S₂, rises if "
        "S₁ ⊃ S₂, and is a parabola with one minimum inside otherwise; a signature of k of m modes has 2^(m−k) − 1 "
        "unstable and 2^k − 1 stable submanifolds."
    ),
    hypotheses=(
        Hypothesis("products on the segment: size of the bend", lambda path: float(bool(path.bend))),
        Hypothesis("positive singular values", lambda path: float(-np.min(path.sigma))),
    ),
    tolerances=THEOREM,
    measure=_measure_theorem,
    draw=lambda rng: _draw_path(rng, WIDTHS),
    sized=_draw_path,
    violations=(Violation("networks that leave the arc", lambda rng: _bent(rng, _draw_path(rng, WIDTHS, mixed=True))),),
)


# --- Item 4: mixed arcs -----------------------------------------------------------------------------------------------

MIXED = {
    "loss against ½(rest + (1 − α)²a + α²b), relative": TOLD,
    "maxima inside": 0.0,
    "minima inside, minus one": 0.0,
    "place of the minimum against a/(a + b)": 1e-6,
}


def _measure_mixed(instances: Sequence[Path]) -> list[Measured]:
    measured = []
    for path in instances:
        squares = {i: s**2 for i, s in enumerate(path.sigma, start=1)}
        gained = sum(squares[i] for i in path.end if i not in path.start)
        lost = sum(squares[i] for i in path.start if i not in path.end)
        rest = sum(v for i, v in squares.items() if i not in (*path.start, *path.end))
        losses, scale = path.losses(), path.value(())
        told = 0.5 * (rest + (1 - PLACES) ** 2 * gained + PLACES**2 * lost)
        turns = np.diff(np.sign(np.diff(losses)))
        # The vertex of the parabola through all losses of the networks.
        constant, slope, bend = np.polynomial.polynomial.polyfit(PLACES, losses, 2)
        vertex = -slope / (2 * bend) if bend != 0 else np.inf
        own = float(arc_minimum(path.sigma, path.start, path.end).alpha)
        place = gained / (gained + lost)
        numbers = (
            float(np.max(np.abs(losses - told))) / scale,
            float(np.sum(turns < 0)),
            abs(float(np.sum(turns > 0)) - 1),
            max(abs(vertex - place), abs(own - place)),
        )
        found = dict(zip(MIXED, numbers, strict=True))
        facts = {"α of the minimum": place, "loss there": float(constant - slope**2 / (4 * bend)) if bend else 0.0}
        # As printed there are minima or maxima, and nothing can be said: two networks over one arc would differ.
        measured.append(Measured(found, printed=float(np.sum(turns < 0) == 0), facts=facts))
    return measured


def _not_mixed(path: Path) -> float:
    start, end = set(path.start), set(path.end)
    return float(start <= end or end <= start)


ERRATUM_MIXED = Check(
    id="network/erratum-mixed-arcs",
    source="Theorem 24, item 4, and the remark after it",
    statement=(
        "A mixed arc is a parabola, the same for all networks over it: one minimum inside, at α = a/(a + b) with the "
        "squares a gained and b lost, and no maximum."
    ),
    hypotheses=(
        Hypothesis("signatures of which neither contains the other", _not_mixed),
        Hypothesis("products on the segment: size of the bend", lambda path: float(bool(path.bend))),
    ),
    tolerances=MIXED,
    measure=_measure_mixed,
    draw=lambda rng: _draw_path(rng, WIDTHS, mixed=True),
    sized=lambda rng, widths: _draw_path(rng, widths, mixed=True),
    violations=(
        Violation("networks that leave the arc", lambda rng: _bent(rng, _draw_path(rng, WIDTHS, mixed=True))),
        Violation(
            "a signature within the other",
            lambda rng: dataclasses.replace(_draw_path(rng, WIDTHS), start=(2,), end=(1, 2)),
        ),
    ),
    printed="nothing can be said of mixed arcs; they show minima or maxima. Maxima that were expected and are missing:",
    printed_tolerance=0.5,
)


# --- Item 1 and the origin: a factor of one half ----------------------------------------------------------------------

HALF = {"loss of networks of one signature against ½Σσ², relative": TOLD, "loss at the origin, relative": TOLD}


def _measure_half(instances: Sequence[Path]) -> list[Measured]:
    measured = []
    for path in instances:
        missing = float(sum(s**2 for i, s in enumerate(path.sigma, start=1) if i not in path.start))
        losses, scale = path.losses(), float(np.sum(path.sigma**2))
        zeros = tuple(xp.zeros((out, inp)) for inp, out in itertools.pairwise(path.widths))
        origin = float(Problem(DeepLinear(path.widths), SquaredDistance(path.target)).value(zeros))
        gap = max(float(np.max(np.abs(losses - 0.5 * missing))), abs(path.value(path.start) - 0.5 * missing))
        numbers = (gap / scale, abs(origin - 0.5 * scale) / scale)
        printed = max(float(np.max(np.abs(losses - missing))), abs(origin - scale)) / scale
        measured.append(Measured(dict(zip(HALF, numbers, strict=True)), printed=printed))
    return measured


def _draw_constant(rng: np.random.Generator, widths: Sequence[int]) -> Path:
    path = _draw_path(rng, widths)
    return dataclasses.replace(path, end=path.start)


ERRATUM_HALF = Check(
    id="network/erratum-half",
    source="Theorem 24, item 1; Sections 4.2 and 4.3",
    statement=(
        "Between points of one signature the loss is half the sum of the squares of the missing modes, and at the "
        "origin half that of all."
    ),
    hypotheses=(
        Hypothesis("equal signatures", lambda path: float(path.start != path.end)),
        Hypothesis("products on the segment: size of the bend", lambda path: float(bool(path.bend))),
    ),
    tolerances=HALF,
    measure=_measure_half,
    draw=lambda rng: _draw_constant(rng, WIDTHS),
    sized=_draw_constant,
    violations=(
        Violation("two signatures", lambda rng: dataclasses.replace(_draw_path(rng, WIDTHS), start=(1,), end=(1, 2))),
    ),
    printed="the loss is the whole sum of the squares, and the loss of the origin ‖Σ‖².",
    printed_tolerance=1e-3,
)


# --- Flows that leave a saddle along a decreasing arc -----------------------------------------------------------------

ESCAPE = {
    "final loss above that of the end of the arc, relative": 1e-6,
    "final loss above that of the saddle less half the drop, relative to the drop": 0.0,
    "rise of the loss on the way, relative": 1e-12,
}

DISTANCE = (0.05, 0.2)
"""How far along the arc the flows start."""

UNTIL = np.concatenate([[0.0], np.geomspace(0.5, 60.0, 11)])
"""Long enough for the weakest mode: it needs about 10 to grow, and is learnt at a rate of about 1 then."""


@dataclasses.dataclass(frozen=True)
class Escape:
    """A start on a decreasing arc, `place` along it."""

    path: Path
    place: float


def _measure_escape(instances: Sequence[Escape]) -> list[Measured]:
    problems = [Problem(DeepLinear(e.path.widths), SquaredDistance(e.path.target)) for e in instances]
    starts = [
        gauge(arc_point(e.path.sigma, e.path.widths, e.path.start, e.path.end, e.place), e.path.factors)
        for e in instances
    ]
    measured = []
    for escape, run in zip(instances, flows(problems, starts, UNTIL), strict=True):
        path, scale = escape.path, escape.path.value(())
        saddle, lower = path.value(path.start), path.value(path.end)
        final, drop = float(run.loss[-1]), saddle - lower
        numbers = (
            (final - lower) / scale,
            (final - (saddle - 0.5 * drop)) / drop,
            float(np.max(np.diff(run.loss), initial=0.0)) / scale,
        )
        facts = {"saddle": saddle, "end of the arc": lower, "final loss": final}
        measured.append(Measured(dict(zip(ESCAPE, numbers, strict=True)), facts=facts))
    return measured


def _draw_escape(rng: np.random.Generator, widths: Sequence[int]) -> Escape:
    _checked(widths)
    modes = min(widths[0], widths[-1])
    order = [int(k) + 1 for k in rng.permutation(modes)]
    first = int(rng.integers(0, modes))
    last = int(rng.integers(first + 1, modes + 1))
    turns = tuple(np.linalg.qr(rng.standard_normal((width, width)))[0] for width in widths[1:-1])
    names = (tuple(sorted(order[:first])), tuple(sorted(order[:last])))
    return Escape(Path(draw_sigma(rng, modes), tuple(widths), *names, turns), float(rng.uniform(*DISTANCE)))


ESCAPES = Check(
    id="network/unstable-submanifolds",
    source="Theorem 24, items 2 and 3",
    statement=(
        "A saddle has an unstable submanifold along every decreasing arc: a flow that starts on the arc, beside the "
        "saddle, ends at the loss of the arc's end or lower."
    ),
    hypotheses=(
        Hypothesis("a decreasing arc", lambda escape: float(not set(escape.path.start) < set(escape.path.end))),
        Hypothesis("a start beside the saddle", lambda escape: DISTANCE[0] - escape.place),
    ),
    tolerances=ESCAPE,
    measure=_measure_escape,
    draw=lambda rng: _draw_escape(rng, CHAIN),
    sized=_draw_escape,
    violations=(
        Violation(
            "a start at the saddle itself",
            lambda rng: dataclasses.replace(_draw_escape(rng, CHAIN), place=0.0),
        ),
    ),
)

CHECKS = (THEOREM_24, ERRATUM_MIXED, ERRATUM_HALF, ESCAPES)
"""Statements on arcs."""
