r"""Which saddles did a run visit? Plateaus of a recorded run, named by the critical points it came near.

In coordinates in which the target is diagonal, $\Sigma = \mathrm{diag}(\sigma)$, every critical point has a product
$S\Sigma$ that keeps some modes of the target and lacks the others; the set of modes kept is its *signature*. A run
visits a saddle where its product stays close to such an $S\Sigma$ while its gradient goes through a valley. Between two
visits the run learns the modes in which the signatures differ.
"""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from deeplinear.core import (
    HypothesisError,
    Trajectory,
    check_number,
    check_x64,
    entry,
    over,
    spectrum,
    xp,
)
from deeplinear.landscape._arguments import Signature, set_name
from deeplinear.landscape._many import records
from deeplinear.landscape._reduction import WEAK, Reduction, reduction_of
from deeplinear.models import Problem, checked_problem

CLOSE = 0.1
r"""Largest $|P - S\Sigma|_{ij}/\sqrt{\sigma_i\sigma_j}$ during a visit, unless another bound is asked for."""

VALLEY = 0.3
"""How far the gradient must fall during a visit, as a share of its largest value on either side."""

SHALLOW_VALLEY = 0.6
"""The same where the gradient alone says what a plateau is."""

LEARNT = 0.5
"""Share of its final strength above which a mode counts as learnt."""

FEW = 3
"""Fewer records than this say little of what happened."""

FAINT = 1e-3
"""Singular values below this share of the largest are no modes, and set no scale."""


@dataclasses.dataclass(frozen=True)
class Visit:
    r"""One plateau of a run, and the critical points it belongs to.

    Attributes:
        signature: Modes that are learnt, counted from 1; `None` where the theory does not name critical points.
        rank: Number of modes that are learnt.
        start: When the run came close.
        end: When it left; the last time of the run where it did not.
        moment: When the gradient was smallest.
        loss: Loss at that moment.
        level: Critical value $\tfrac12\sum_{i \notin S}\sigma_i^2$, with what cannot be fitted; `None` without a
            signature.
        gradient_norm: Norm of the gradient at that moment.
        distance: $\|P - S\Sigma\|_F$ at that moment, in reduced coordinates; `None` without a signature.
        learnt: Modes learnt between this visit and the next one.
        strengths: Their singular values.
        forgotten: Modes lost between this visit and the next one.
        left: Whether the run left again.
        records: Number of recorded times.
    """

    signature: Signature | None
    rank: int
    start: float
    end: float
    moment: float
    loss: float
    level: float | None
    gradient_norm: float
    distance: float | None
    learnt: Signature
    strengths: tuple[float, ...]
    forgotten: Signature
    left: bool
    records: int

    @property
    def dwell(self) -> float:
        """How long the run stayed."""
        return self.end - self.start

    @property
    def name(self) -> str:
        """The signature as a set, or the number of modes."""
        return f"{self.rank} learnt" if self.signature is None else set_name(self.signature)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return dataclasses.asdict(self) | {"dwell": self.dwell, "name": self.name}


@dataclasses.dataclass(frozen=True)
class Itinerary:
    """The plateaus of a run, one after the other.

    Attributes:
        visits: The plateaus.
        sigma: Strengths of the modes: of the target, or of the final product where the theory names no critical points.
        notes: What one should know: where the theory stops, what the records cannot tell.
        gradient_measured: Whether gradients were recorded; otherwise they were taken from the fall of the loss.
    """

    visits: tuple[Visit, ...]
    sigma: tuple[float, ...]
    notes: tuple[str, ...]
    gradient_measured: bool

    @property
    def signatures(self) -> tuple[Signature | None, ...]:
        """The signatures in the order of the visits."""
        return tuple(visit.signature for visit in self.visits)

    @property
    def greedy(self) -> bool:
        """Whether the modes were learnt one by one, the strongest first, and none was passed over."""
        return len(self.visits) > 1 and all(
            visit.signature == tuple(range(1, visit.rank + 1)) and visit.rank == self.visits[0].rank + place
            for place, visit in enumerate(self.visits)
        )

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values."""
        return {
            "visits": [visit.to_json() for visit in self.visits],
            "sigma": list(self.sigma),
            "greedy": self.greedy,
            "notes": list(self.notes),
            "gradient_measured": self.gradient_measured,
        }

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and rows for people, one row for each plateau."""
        header = ("place", "from", "dwell", "loss", "distance", "|gradient|", "learnt on leaving")
        rows = []
        for visit in self.visits:
            learnt = ", ".join(f"{mode} (σ = {s:.4g})" for mode, s in zip(visit.learnt, visit.strengths, strict=True))
            learnt += "".join(f", {mode} lost" for mode in visit.forgotten)
            rows.append(
                (
                    visit.name,
                    f"{visit.start:.5g}",
                    f"{visit.dwell:.4g}",
                    f"{visit.loss:.5g}",
                    "–" if visit.distance is None else f"{visit.distance:.1e}",
                    f"{visit.gradient_norm:.1e}",
                    learnt or ("–" if visit.left else "stays"),
                )
            )
        return header, rows

    def __str__(self) -> str:
        header, rows = self.table()
        widths = [max(len(row[k]) for row in (header, *rows)) for k in range(len(header))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)
        ]
        return "\n".join([*(line.rstrip() for line in lines), *self.notes])


@entry(instead="call it outside of the transformation")
def itinerary(problem: Problem, trajectory: Trajectory, *, close: float = CLOSE) -> Itinerary:
    r"""Plateaus of a run: the saddle each belongs to, how close and how long, and what was learnt on leaving.

    A visit is a stretch of recorded times during which the modes above half their strength are the same, every entry of
    the product (in reduced coordinates) is within `close` $\cdot\sqrt{\sigma_i\sigma_j}$ of $S\Sigma$, and the gradient
    falls to three tenths of what it is before and after. Times between records are interpolated linearly, so the
    records must resolve the plateaus.

    Critical points are known by name for the square loss of a whole matrix or of whole samples, with distinct singular
    values. For any other loss (some entries observed, a penalty) the valleys of the gradient are listed with the
    number of singular values of the product that are learnt, measured against the final ones, and the notes say so.

    Args:
        problem: What was trained.
        trajectory: A single run, from whatever source, with the probe `product` and if possible `gradient_norm` and
            `loss`, or with the probe `weights`, from which they follow.
        close: How close counts as a visit, between 0 and 1/2.

    Returns:
        The itinerary.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.array([[1.0]])))
        >>> times = np.linspace(0.0, 10.0, 201)
        >>> z2 = 1e-4 / (1e-4 + (1 - 1e-4) * np.exp(-2 * times))  # both layers are z, starting at 0.01
        >>> snapshots = [(np.full((1, 1), np.sqrt(z)), np.full((1, 1), np.sqrt(z))) for z in z2]
        >>> found = itinerary(problem, observe(problem, times, snapshots, probes=(product, gradient_norm, loss)))
        >>> [visit.name for visit in found.visits]
        ['∅', '{1}']
    """
    where = "itinerary"
    check_x64(where)
    checked_problem(where, "problem", problem)
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"{where}: trajectory must be a Trajectory, but is {type(trajectory).__name__}.")
    if trajectory.is_ensemble:
        raise ValueError(f"{where}: trajectory must be a single run, but is an ensemble; take trajectory.member(k).")
    check_number(where, "close", close, above=0, at_most=0.5)
    record = _record(where, problem, trajectory)
    try:
        reduction = reduction_of(problem)
    except HypothesisError as error:
        return _by_rank(record, f"Critical points are not named here: {error}")
    sigma = np.asarray(reduction.sigma)
    strong = int(np.sum(sigma > WEAK * sigma[0])) if sigma[0] > 0 else 0
    if strong == 0 or np.any(-np.diff(sigma[:strong]) <= WEAK * sigma[0]):
        reason = "The target is zero." if strong == 0 else " ".join(reduction.notes)
        return _by_rank(record, f"Critical points are not named here: {reason}")
    return _by_signature(record, reduction, sigma, close)


@dataclasses.dataclass(frozen=True)
class _Record:
    times: np.ndarray
    products: np.ndarray
    losses: np.ndarray
    gradients: np.ndarray
    measured: bool


def _record(where: str, problem: Problem, trajectory: Trajectory) -> _Record:
    times = np.asarray(trajectory.times, dtype=float)
    if "weights" in trajectory.values:
        size = sum(rows * columns for rows, columns in problem.model.shapes)
        if np.shape(trajectory["weights"])[1:] != (size,):
            raise ValueError(
                f"{where}: the probe 'weights' of the trajectory must hold the {size} weights of the problem's "
                f"network, but holds {np.shape(trajectory['weights'])[1]}."
            )
        cuts = np.cumsum([rows * columns for rows, columns in problem.model.shapes])[:-1]
        parts = np.split(np.asarray(trajectory["weights"], dtype=float), cuts, axis=1)
        layers = tuple(part.reshape(-1, *shape) for part, shape in zip(parts, problem.model.shapes, strict=True))
        products, losses, gradients = map(np.asarray, records(problem, layers))
        return _whole(where, _Record(times, products, losses, gradients, True))
    if "product" not in trajectory.values:
        raise ValueError(
            f"{where}: trajectory must hold the probe 'product' or 'weights', but holds {list(trajectory.values)}; "
            "record it with probes=(loss, product, gradient_norm)."
        )
    products = np.asarray(trajectory["product"])
    if products.shape[1:] != problem.model.product_shape:
        raise ValueError(
            f"{where}: the products of the trajectory must have shape {problem.model.product_shape}, but have "
            f"{products.shape[1:]}."
        )
    losses = trajectory.values.get("loss")
    if losses is None:
        losses = over(problem.loss.value)(xp.asarray(products, dtype=float))
    losses = np.asarray(losses)
    if "gradient_norm" in trajectory.values:
        return _whole(where, _Record(times, products, losses, np.asarray(trajectory["gradient_norm"]), True))
    if len(times) < 3:
        raise ValueError(f"{where}: trajectory must hold at least 3 times where gradients are not recorded.")
    fall = np.maximum(-np.gradient(losses, times), 0.0)
    return _whole(where, _Record(times, products, losses, np.sqrt(fall), False))


def _whole(where: str, record: _Record) -> _Record:
    """Refuse a record with numbers that are not finite."""
    for name, values in (("product", record.products), ("loss", record.losses), ("gradient_norm", record.gradients)):
        bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if len(bad):
            raise ValueError(f"{where}: {name} must be finite, but is not at t = {record.times[bad[0]]:g}.")
    return record


# ---- Named critical points -------------------------------------------------------------------------------------------


def _by_signature(record: _Record, reduction: Reduction, sigma: np.ndarray, close: float) -> Itinerary:
    reduced = np.asarray(reduction.outer).T @ record.products @ np.asarray(reduction.inner)
    modes = len(sigma)
    place = np.arange(modes)
    known = reduced[:, place, place] > LEARNT * np.maximum(sigma, FAINT * sigma[0])
    goal = np.zeros_like(reduced)
    goal[:, place, place] = known * sigma
    scale = np.sqrt(np.maximum(sigma, FAINT * sigma[0]))
    out, inp = reduced.shape[1:]
    rows, columns = (np.pad(scale, (0, size - modes), mode="edge") for size in (out, inp))
    gap = np.max(np.abs(reduced - goal) / (rows[:, None] * columns), axis=(1, 2))
    stretches = _stretches(known, gap <= close)
    stretches = _valleys(stretches, record.gradients, VALLEY)
    constant = float(reduction.constant)
    found = []
    for first, last in stretches:
        at = first + int(np.argmin(record.gradients[first : last + 1]))
        signature = tuple(int(k) + 1 for k in np.flatnonzero(known[at]))
        left = last < len(record.times) - 1
        found.append(
            Visit(
                signature=signature,
                rank=len(signature),
                start=_crossing(record.times, gap, first, first - 1, close) if first else float(record.times[0]),
                end=_crossing(record.times, gap, last, last + 1, close) if left else float(record.times[-1]),
                moment=float(record.times[at]),
                loss=float(record.losses[at]),
                level=constant + 0.5 * float(np.sum(sigma[~known[at]] ** 2)),
                gradient_norm=float(record.gradients[at]),
                distance=float(np.linalg.norm(reduced[at] - goal[at])),
                learnt=(),
                strengths=(),
                forgotten=(),
                left=left,
                records=last - first + 1,
            )
        )
    notes = list(reduction.notes) + _about_records(found, stretches, record)
    return Itinerary(tuple(_with_changes(found, sigma)), tuple(map(float, sigma)), tuple(notes), record.measured)


def _stretches(known: np.ndarray, near: np.ndarray) -> list[tuple[int, int]]:
    """First and last positions of stretches that are near one and the same set of modes; short absences are joined."""
    joined: list[tuple[int, int]] = []
    position = 0
    while position < len(near):
        if not near[position]:
            position += 1
            continue
        last = position
        while last + 1 < len(near) and near[last + 1] and np.array_equal(known[last + 1], known[position]):
            last += 1
        if joined and np.array_equal(known[joined[-1][1]], known[position]):
            joined[-1] = (joined[-1][0], last)
        else:
            joined.append((position, last))
        position = last + 1
    return joined


def _valleys(stretches: list[tuple[int, int]], gradients: np.ndarray, valley: float) -> list[tuple[int, int]]:
    """Stretches in which the gradient falls well below what it is between them and their neighbours.

    The shallowest one that does not goes first, as its neighbours then have higher hills between them.
    """
    kept = list(stretches)
    while kept:
        worst, least = -1, valley
        for k, (first, last) in enumerate(kept):
            low = float(np.min(gradients[first : last + 1]))
            before = gradients[kept[k - 1][1] + 1 if k else 0 : first]
            after = gradients[last + 1 : kept[k + 1][0] if k + 1 < len(kept) else len(gradients)]
            hills = [float(np.max(side)) for side in (before, after) if len(side)]
            share = max((low / hill if hill > 0 else 0.0 for hill in hills), default=0.0)
            if share > least:
                worst, least = k, share
        if worst < 0:
            break
        del kept[worst]
    return kept


def _crossing(times: np.ndarray, gap: np.ndarray, inside: int, outside: int, close: float) -> float:
    """When a run came or left, between the last record inside and the next one outside of a visit.

    Where that one is close to another saddle nothing is known of the way between them: half of it is given to each.
    """
    near, far = float(gap[inside]), float(gap[outside])
    share = (close - near) / (far - near) if far > close else 0.5
    return float(times[inside] + share * (times[outside] - times[inside]))


def _with_changes(found: list[Visit], sigma: np.ndarray) -> list[Visit]:
    """Each visit with the modes learnt and lost on the way to the next one."""
    result = []
    for k, visit in enumerate(found):
        if k + 1 < len(found) and visit.signature is not None:
            now, then = set(visit.signature), set(found[k + 1].signature or ())
            learnt, lost = tuple(sorted(then - now)), tuple(sorted(now - then))
        elif k + 1 < len(found):
            learnt, lost = tuple(range(visit.rank + 1, found[k + 1].rank + 1)), ()
        else:
            learnt, lost = (), ()
        strengths = tuple(float(sigma[mode - 1]) for mode in learnt)
        result.append(dataclasses.replace(visit, learnt=learnt, strengths=strengths, forgotten=lost))
    return result


def _about_records(found: list[Visit], stretches: list[tuple[int, int]], record: _Record) -> list[str]:
    notes = []
    if not record.measured:
        notes.append("Gradients were not recorded; their size is taken from the fall of the loss.")
    few = [visit.name for visit in found if visit.records < FEW]
    if few:
        notes.append(
            f"The records hardly resolve {', '.join(few)}: what is told there is rough, and sharper with more times."
        )
    together, unknown = [], []
    for (one, other), ((_, last), (first, _)) in zip(
        itertools.pairwise(found), itertools.pairwise(stretches), strict=True
    ):
        if other.rank - one.rank > 1:
            (together if first - last > FEW else unknown).append(f"{one.name} → {other.name}")
    if together:
        notes.append(f"Several modes were learnt together, without a plateau between them: {', '.join(together)}.")
    if unknown:
        notes.append(f"Too few records to see whether there is a plateau between: {', '.join(unknown)}.")
    return notes


# ---- Plateaus without names ------------------------------------------------------------------------------------------


def _by_rank(record: _Record, reason: str) -> Itinerary:
    """Valleys of the gradient with the number of singular values learnt, measured against the final ones."""
    values = np.asarray(spectrum(np.asarray(record.products, dtype=float)))
    final = values[-1]
    real = final > FAINT * final[0] if final[0] > 0 else np.zeros(len(final), bool)
    known = (values > LEARNT * final) & real
    gradients = record.gradients
    stretches = _stretches(known, np.ones(len(gradients), bool))
    stretches = [_floor(gradients, first, last) for first, last in _valleys(stretches, gradients, SHALLOW_VALLEY)]
    found = []
    for first, last in stretches:
        at = first + int(np.argmin(gradients[first : last + 1]))
        found.append(
            Visit(
                signature=None,
                rank=int(known[at].sum()),
                start=float(record.times[first]),
                end=float(record.times[last]),
                moment=float(record.times[at]),
                loss=float(record.losses[at]),
                level=None,
                gradient_norm=float(gradients[at]),
                distance=None,
                learnt=(),
                strengths=(),
                forgotten=(),
                left=last < len(gradients) - 1,
                records=last - first + 1,
            )
        )
    notes = [
        reason,
        "Plateaus are valleys of the gradient; a singular value counts as learnt above half its final size.",
    ]
    return Itinerary(
        tuple(_with_changes(found, final)),
        tuple(map(float, final)),
        (*notes, *_about_records(found, stretches, record)),
        record.measured,
    )


def _floor(gradients: np.ndarray, first: int, last: int) -> tuple[int, int]:
    """The part of a stretch around its lowest gradient that lies below the mean height, in decades, of its rim."""
    part = gradients[first : last + 1]
    at = int(np.argmin(part))
    low = max(float(part[at]), np.finfo(float).tiny)
    rims = [
        float(side.max())
        for side, real in ((part[: at + 1], first > 0), (part[at:], last < len(gradients) - 1))
        if real
    ]
    limit = math.sqrt(low * max(min(rims), low)) if rims else math.inf
    begin, end = at, at
    while begin > 0 and part[begin - 1] <= limit:
        begin -= 1
    while end + 1 < len(part) and part[end + 1] <= limit:
        end += 1
    return first + begin, first + end
