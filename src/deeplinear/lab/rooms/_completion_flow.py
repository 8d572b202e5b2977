"""View of matrix completion: the flow, integrated piece by piece."""

import math
from typing import Any

import numpy as np

from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import GradientFlow, steady, until
from deeplinear.lab._figures import Answer, Axis, Fact, Matrix, curves, line, rows
from deeplinear.lab._recipes import command, script
from deeplinear.lab._room import Watch, slider
from deeplinear.lab.rooms._completion_setting import (
    End,
    Setting,
    Task,
    alpha_of,
    effective_ranks,
    end_of,
    setting_of,
    spectrum,
    task_script,
    widths_of,
)
from deeplinear.lab.rooms._live import simulate_live
from deeplinear.lab.rooms._shell import csv_file
from deeplinear.probes import loss, product

PIECE = 64
"""Records of a piece, after which there is a picture. Each piece is as long as all time before it."""

PIECES = 60
"""Most pieces."""

BEGIN = 3e-2
"""First time, in units of one over the largest target."""

REST = 1e-13
"""Gradient below which the flow rests: far below that of any plateau within the limits."""

MOST = 20_000
"""Most steps of the flow."""

DRAWN = 500
"""Most points of a curve."""

SOON = 1 / 30
"""Times are drawn on a logarithmic axis if most is learned within this part of them."""

UNTIL: Any = slider(
    1e-8, 1e-14, 1e-2, "Stop at loss", log=True, about="Ranks at a larger loss are those of a run not yet done."
)


class FlowParams(Task):
    """A flow and where it stops."""

    below: float = UNTIL


def drawn(run: Trajectory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times after the start, losses and products, thinned to what is drawn."""
    parts = [np.asarray(values) for values in (run.times, run["loss"], run["product"])]
    keep = np.flatnonzero(parts[0] > 0)
    if len(keep) > DRAWN:
        keep = keep[np.unique(np.linspace(0, len(keep) - 1, DRAWN).round().astype(int))]
    return parts[0][keep], parts[1][keep], parts[2][keep]


def time_axis(label: str, times: np.ndarray, losses: np.ndarray) -> Axis:
    """Linear, which shows plateaus; logarithmic where a slow end would hide everything else."""
    learned = times[losses <= 1e-2 * losses[:1]]
    return Axis(label=label, log=bool(len(learned) and learned[0] < SOON * times[-1]))


def rank_axis(*ranks: np.ndarray) -> Axis:
    """From below one, the least there is, to above the largest."""
    most = max((float(np.nanmax(one)) for one in ranks if np.isfinite(one).any()), default=1.0)
    return Axis(label="effective rank", low=0.95, high=most + 0.1)


def shared(*matrices: np.ndarray) -> dict[str, Any]:
    """One range of colours for several matrices."""
    most = max(float(np.nanmax(np.abs(matrix))) for matrix in matrices)
    return {"low": -most, "high": most}


def _flow_figures(setting: Setting, end: End, run: Trajectory) -> list[Any]:
    times, losses, products = drawn(run)
    values = spectrum(products)
    now = time_axis("time", times, losses)
    series = [line(f"σ{k + 1}", times, values[:, k], colour=k) for k in range(values.shape[1])]
    if end.matrix is not None:
        ends = [times[0], times[-1]]
        wanted = np.unique(spectrum(end.matrix).round(10))
        series += [
            line("closed form", ends, [w, w], colour=7, style="dot", legend=k == 0) for k, w in enumerate(wanted)
        ]
    hidden = ~setting.mask
    errors = [line("loss", times, losses)]
    if hidden.any():
        missed = np.sqrt(np.mean((products - setting.target)[:, hidden] ** 2, axis=-1))
        errors.append(line("entries never seen (root mean square error)", times, missed, colour=1))
    dotted = "Dotted: the limit by its closed form." if end.matrix is not None else ""
    ranks = effective_ranks(values)
    look: dict[str, Any] = {"known": setting.mask.tolist(), "caption": "Framed: seen."}
    look |= shared(products[-1], setting.target)
    return [
        curves("loss", "Loss and test error", now, Axis(label="error", log=True), errors),
        curves("values", "Singular values of the product", now, "singular value", series, caption=dotted),
        curves("rank", "Effective rank", now, rank_axis(ranks), [line("rank", times, ranks, colour=2)]),
        Matrix(name="completed", title="The matrix it completes to", values=rows(products[-1]), **look),
        Matrix(name="truth", title="The matrix to find", values=rows(setting.target), **look),
    ]


def _flow_facts(setting: Setting, end: End, run: Trajectory, below: float) -> list[Fact]:
    layers = [np.asarray(layer) for layer in run.params]
    final = layers[0]
    for layer in layers[1:]:
        final = layer @ final
    rank = float(effective_ranks(spectrum(final)))
    facts = [
        Fact(
            label="Effective rank",
            value=f"{rank:.4g}",
            note=f"That of the matrix to find: {float(effective_ranks(spectrum(setting.target))):.4g}.",
        )
    ]
    hidden = ~setting.mask
    if hidden.any():
        missed = float(np.sqrt(np.mean((final - setting.target)[hidden] ** 2)))
        facts.append(Fact(label="Error on entries never seen", value=f"{missed:.3g}", note="Root mean square."))
    left = float(run.final("loss"))
    if left <= 1.02 * below:
        facts.append(Fact(label="Loss", value=f"{left:.2g}", tone="good", note=f"After t = {run.times[-1]:.4g}."))
    else:
        resting = run.result in (RESULTS.stopped, RESULTS.steady)
        what = "rests" if resting else "is not done"
        note = "The gradient vanishes there: a saddle." if resting else "It would take longer than is allowed here."
        facts.append(Fact(label="The flow", value=f"{what} at loss {left:.2g}", tone="warning", note=note))
    if end.matrix is not None:
        gap = float(np.max(np.abs(final - end.matrix)))
        good = gap < 1e-2 * max(1.0, float(np.abs(end.matrix).max()))
        note = f"{end.how[:1].upper()}{end.how[1:]}; what is left comes from the loss it stopped at."
        facts.append(
            Fact(
                label="Distance from the closed form", value=f"{gap:.2g}", tone="good" if good else "warning", note=note
            )
        )
    return facts


def answer_flow(params: FlowParams, watch: Watch) -> Answer:
    """The flow in pieces, each told as it comes."""
    setting = setting_of(params)
    end = end_of(params, setting)
    first = BEGIN / np.abs(setting.target[setting.mask]).max()
    spacing = first * 2.0 ** (np.arange(1, PIECE + 1) / PIECE)
    begin = max(float(setting.problem.value(setting.layers)), 10 * params.below)

    def share(number: int, run: Trajectory) -> float:
        last = max(float(run.final("loss")), params.below)
        return max(math.log(begin / last) / math.log(begin / params.below), number / PIECES)

    run = simulate_live(
        watch,
        lambda part: Answer(figures=_flow_figures(setting, end, part)),
        setting.problem,
        setting.layers,
        GradientFlow(),
        [2.0**number * spacing for number in range(PIECES)],
        share=share,
        max_steps=MOST,
        until=[until(loss, below=params.below), steady(REST)],
        probes=[loss, product],
    )
    return Answer(figures=_flow_figures(setting, end, run), facts=_flow_facts(setting, end, run, params.below))


def script_flow(params: FlowParams) -> str:
    """The flow by the library."""
    return script(
        task_script(params),
        f"""
from deeplinear.core import effective_rank
from deeplinear.dynamics import simulate, steady, until
from deeplinear.probes import loss, product

rules = [until(loss, below={params.below!r}), steady({REST!r})]
run = simulate(problem, layers, every=1, until=rules, probes=[loss, product], max_steps={MOST})
completed = run["product"][-1]
print(run.result.name, run.times[-1], run["loss"][-1])
print(completed, effective_rank(jnp.asarray(completed)))
""",
    )


def command_flow(params: FlowParams) -> str:
    """Files of the mask and the target, and the simulation of them."""
    setting = setting_of(params)
    starts: dict[str, dict[str, Any]] = {
        "alpha-m": {"init": "alpha-m", "init_scale": alpha_of(params), "m": params.m},
        "diagonal": {"init": "identity", "init_scale": alpha_of(params)},
        "gaussian": {"init": "matched", "init_scale": params.scale},
    }
    rank = min(params.rank, *setting.mask.shape)
    random: dict[str, Any] = {"rank": rank, "scale": params.value}
    of_target: dict[str, Any] = random if params.target == "random" else {"target": "target.csv"}
    files = [csv_file("mask.csv", setting.mask)]
    if params.target != "random":
        files.append(csv_file("target.csv", setting.target))
    run = command(
        "simulate",
        widths=widths_of(setting.mask.shape, params.depth),
        loss="completion",
        mask="mask.csv",
        **of_target,
        **starts[params.start],
        until_loss=params.below,
        max_steps=MOST,
        probes=["loss", "singular_values", "product_effective_rank"],
        seed=params.seed,
    )
    return "\n".join([*files, run])
