"""View of matrix completion: learning more entries from where one is, against starting again."""

import math
from typing import Any

import numpy as np

from deeplinear.core import Trajectory, random, xp
from deeplinear.dynamics import Plasticity, Progress, plasticity
from deeplinear.exact import warm_start_bounds
from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer, Axis, Fact, Matrix, Table, curves, line, rows
from deeplinear.lab._recipes import script
from deeplinear.lab._room import Cells, Watch, grid
from deeplinear.lab.rooms._completion_flow import MOST, UNTIL, drawn, rank_axis, shared, time_axis
from deeplinear.lab.rooms._completion_setting import (
    SIDE,
    SQUARE,
    Pattern,
    Setting,
    Task,
    alpha_of,
    effective_ranks,
    painted,
    setting_of,
    spectrum,
    task_script,
    widths_of,
)
from deeplinear.models import AlphaM, DeepLinear, MatchedGaussian
from deeplinear.probes import loss, product

OTHERS = (1.5, 2.0, 5.0, 10.0, 30.0, 100.0, 1000.0, math.inf)
"""Ratios m that warm and cold starts are compared at, beside the chosen one; without it, or else without 30."""

MEMBERS = len(OTHERS)
"""Starts that are compared, the chosen one among them."""

LOST = 0.1
"""Difference of effective ranks, warm and cold, above which plasticity counts as lost."""


class Reveal(Pattern):
    """Entries that are seen later."""

    more: Cells = grid(
        [[False, True, False], [False] * 3, [False] * 3],
        SIDE,
        "Revealed later",
        about="As large as the first grid.",
        square=SQUARE,
    )


class WarmParams(Task, Reveal):
    """Two sets of entries, and where each phase stops."""

    below: float = UNTIL


def _masks(params: WarmParams) -> tuple[np.ndarray, np.ndarray]:
    """What is seen first, and in the end; the second grid is cut or filled up to the size of the first."""
    before, more = painted(params, "mask"), painted(params, "more")
    after = before.copy()
    height, width = (min(one, other) for one, other in zip(before.shape, more.shape, strict=True))
    after[:height, :width] |= more[:height, :width]
    if not before.any():
        raise LabError("value", "No entry is seen first. Paint at least one cell.", ["mask"])
    if np.array_equal(after, before):
        raise LabError("value", "Nothing new is revealed. Paint an entry that the mask does not see.", ["more"])
    return before, after


def _members(params: WarmParams, shape: tuple[int, ...]) -> tuple[list[Any], list[str]]:
    """Starts that are compared, the chosen one first, and their names."""
    if params.start == "gaussian":
        return [MatchedGaussian(params.scale)] * MEMBERS, [f"draw {k + 1}" for k in range(MEMBERS)]
    if shape[0] != shape[1]:
        text = "Starts of ratio m need as many rows as columns. Take the Gaussian start, or a square mask."
        raise LabError("value", text, ["mask", "start"])
    chosen = params.m if params.start == "alpha-m" else math.inf
    left_out = chosen if chosen in OTHERS else 30.0
    ms = [chosen, *(m for m in OTHERS if m != left_out)]
    return [AlphaM(alpha_of(params), m) for m in ms], ["∞" if math.isinf(m) else f"{m:.4g}" for m in ms]


def _train(params: WarmParams, watch: Watch) -> tuple[Plasticity, list[str], Setting]:
    before, after = _masks(params)
    setting = setting_of(params.model_copy(update={"mask": after.tolist()}))
    inits, names = _members(params, before.shape)
    order = {"before": 0, "warm": 1, "cold": 2}
    words = {"before": "first entries", "warm": "all entries, warm", "cold": "all entries, cold"}

    def progress(phase: str, told: Progress) -> None:
        watch((order[phase] + told.ended / told.members) / 3, f"{words[phase]}: t = {told.t:.3g}")

    watch(0.0)
    start = random.split(random.key(params.seed), 3)[1]
    found = plasticity(
        DeepLinear(widths_of(before.shape, params.depth)),
        setting.target,
        before,
        after,
        inits,
        key=xp.stack([random.fold_in(start, k) for k in range(MEMBERS)]),
        threshold=params.below,
        probes=[loss, product],
        max_steps=MOST,
        progress=progress,
    )
    return found, names, setting


def _curve(run: Trajectory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, losses and effective ranks of the first member, or nothing."""
    first = run.member(0)
    if not np.all(np.isfinite(first.times)):
        return np.zeros(0), np.zeros(0), np.zeros(0)
    times, losses, products = drawn(first)
    return times, losses, effective_ranks(spectrum(products))


def _theorem(params: WarmParams, setting: Setting, found: Plasticity) -> list[Fact]:
    """The proved bounds, where they apply: two layers, two by two, diagonal start, one entry revealed above."""
    before, after = _masks(params)
    corner = before.shape == (2, 2) and np.array_equal(before, np.eye(2)) and after.tolist() == [[1, 1], [0, 1]]
    target = setting.target
    equal = corner and target[0, 0] == target[1, 1] and target[0, 0] > 0 and target[0, 1] > 0
    if not (equal and params.depth == 2 and params.start == "diagonal"):
        return []
    bounds = warm_start_bounds(float(target[0, 0]), float(target[0, 1]))
    measured = float(found.stable_rank["warm"][0])
    sharper, printed = float(bounds.sharper_stable_rank), float(bounds.stable_rank)
    note = f"Proved: at least {printed:.4g}, and by a sharper bound {sharper:.4g}."
    good = measured >= sharper - 1e-3
    return [Fact(label="Stable rank, warm", value=f"{measured:.4g}", tone="good" if good else "bad", note=note)]


def answer_warm(params: WarmParams, watch: Watch) -> Answer:
    """Three phases for several starts."""
    found, names, setting = _train(params, watch)
    before, after = _masks(params)
    ranks = found.effective_rank
    words = {"before": "first entries only", "warm": "all entries, warm", "cold": "all entries, cold"}
    lines = {name: _curve(run) for name, run in found.phases.items()}
    now = time_axis("time since the phase began", *lines["cold"][:2])
    figures: list[Any] = [
        curves(
            "rank",
            "Effective rank in the three phases",
            now,
            rank_axis(*(rank for _, _, rank in lines.values())),
            [line(words[name], x, rank, colour=k) for k, (name, (x, _, rank)) in enumerate(lines.items())],
            caption="The chosen start. Warm: it goes on from what it learned of the first entries.",
        ),
        curves(
            "loss",
            "Loss in the three phases",
            now,
            Axis(label="loss", log=True),
            [line(words[name], x, y, colour=k) for k, (name, (x, y, _)) in enumerate(lines.items())],
        ),
    ]
    masks = {"before": before, "warm": after, "cold": after}
    told = {name: one[0] for name, one in found.products.items() if np.isfinite(one[0]).all()}
    for name, matrix in told.items():
        title = {"before": "After the first entries", "warm": "In the end, warm", "cold": "In the end, cold"}[name]
        known, span = masks[name].tolist(), shared(*told.values())
        figures.append(
            Matrix(name=name, title=title, values=rows(matrix), known=known, caption="Framed: seen.", **span)
        )
    finite = [k for k, name in enumerate(names) if params.start != "gaussian" and name != "∞"]
    if finite:
        order = sorted(finite, key=lambda k: float(names[k]))
        places = [float(names[k]) for k in order]
        series = [line(words[name], places, ranks[name][order], colour=c) for c, name in enumerate(ranks)]
        figures.append(
            curves(
                "ratio",
                "Effective rank at the end against m",
                Axis(label="ratio m", log=True),
                rank_axis(*ranks.values()),
                series,
            )
        )
    figures.append(
        Table(
            name="table",
            title="Effective rank at the end, for other starts",
            columns=["start" if params.start == "gaussian" else "m", "first", "warm", "cold", "warm − cold"],
            rows=[
                [name, *(_shown(ranks[p][k]) for p in ("before", "warm", "cold")), _shown(found.gap[k])]
                for k, name in enumerate(names)
            ],
            caption="The first line is the chosen start.",
        )
    )
    return Answer(figures=figures, facts=_warm_facts(params, setting, found), remarks=_remarks(params, found, names))


def _shown(value: Any) -> str:
    return f"{float(value):.4f}" if np.isfinite(value) else "–"


def _warm_facts(params: WarmParams, setting: Setting, found: Plasticity) -> list[Fact]:
    ranks, gap = found.effective_rank, float(found.gap[0])
    if not np.isfinite(gap):
        note = "The first phase did not reach its loss: it is slow, or ends in a saddle. Take another start or seed."
        return [Fact(label="Plasticity", value="not told", tone="warning", note=note)]
    value, tone = (
        ("lost", "bad") if gap > LOST else ("a little lost", "warning") if gap > LOST / 5 else ("kept", "good")
    )
    note = f"Effective rank {float(ranks['warm'][0]):.4g} warm, {float(ranks['cold'][0]):.4g} cold."
    facts = [Fact(label="Plasticity", value=value, tone=tone, note=note)]
    errors = found.held_out_error
    if np.isfinite(errors["warm"][0]):
        text = f"{float(errors['warm'][0]):.3g} warm, {float(errors['cold'][0]):.3g} cold"
        facts.append(Fact(label="Error on entries never seen", value=text, note="Root mean square."))
    return [*facts, *_theorem(params, setting, found)]


def _remarks(params: WarmParams, found: Plasticity, names: list[str]) -> list[str]:
    words = {"before": "the first phase", "warm": "the warm phase", "cold": "the cold phase"}
    remarks = []
    if np.shape(params.more) != np.shape(params.mask):
        remarks.append("The two grids have different sizes: the second was cut or filled up to the size of the first.")
    begun = np.asarray(found.reached["before"])
    for name, ended in found.reached.items():
        late = np.flatnonzero(~np.asarray(ended) & (begun | (name == "before")))
        if len(late):
            which = "any start" if len(late) == len(names) else ", ".join(names[k] for k in late)
            remarks.append(f"The loss asked for was not reached in {words[name]} of {which}.")
    return remarks


def script_warm(params: WarmParams) -> str:
    """The three phases by the library, for the chosen start."""
    before, after = _masks(params)
    return script(
        task_script(params.model_copy(update={"mask": after.tolist()})),
        f"""
from deeplinear.dynamics import plasticity

before = np.array({before.astype(int).tolist()}, dtype=bool)
found = plasticity(
    problem.model,
    np.asarray(target),
    before,
    mask,
    init,
    key=jax.random.fold_in(key_start, 0),
    threshold={params.below!r},
    max_steps={MOST},
)
print(found.summary())
print(found.products["warm"], found.products["cold"])
""",
    )


def command_warm(params: WarmParams) -> str | None:
    """The experiment of the two-by-two matrix, where this is one."""
    before, after = _masks(params)
    corner = before.shape == (2, 2) and np.array_equal(before, np.eye(2)) and after.tolist() == [[1, 1], [0, 1]]
    if not corner or params.depth != 2 or params.target != "powers" or params.start == "gaussian":
        return None
    m = params.m if params.start == "alpha-m" else math.inf
    if m == 1:
        return None
    settings = {
        "first": f"{params.value:.12g}",
        "second": f"{params.value * params.growth:.12g}",
        "revealed": f"{params.value * params.ratio:.12g}",
        "alpha": f"{alpha_of(params):.12g}",
        "ms": f"{m:.12g}",
        "loss_below": f"{params.below:.12g}",
    }
    return " ".join(["dln experiment run completion/fig31", *(f"{key}={value}" for key, value in settings.items())])
