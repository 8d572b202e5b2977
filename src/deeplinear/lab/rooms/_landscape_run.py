"""A deep network from near the origin: its plateaus, the saddles they belong to, what it conserves."""

from typing import Any, Literal

import numpy as np

from deeplinear.core import Trajectory
from deeplinear.dynamics import GradientFlow, until
from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer, Axis, Fact, Mark, Table, curves, line
from deeplinear.lab._recipes import command, keys_of, script
from deeplinear.lab._room import Params, Watch, choice, slider, whole
from deeplinear.lab.rooms._landscape_critical import STRONGEST, WEAKEST, even_spectrum
from deeplinear.lab.rooms._live import pieces, simulate_live
from deeplinear.landscape import Itinerary, Visit, critical_value, itinerary, learning_times, set_name
from deeplinear.models import (
    DeepLinear,
    Gaussian,
    LambdaBalanced,
    Orthogonal,
    Problem,
    SquaredDistance,
    balancedness,
    spectral_target,
)
from deeplinear.probes import Drift, gradient_norm, loss, product, singular_values

POINTS = 320
"""Records of a run, evenly spaced on the axis of the logarithm of time."""

PIECES = 16
"""How often a run shows what there is."""

FIRST = 1e-4
"""First record after the start, as a share of the horizon."""

DONE = 1e-20
"""Loss, as a share of that of the product 0, at which a run ends."""

FAR = 1e4
"""Largest loss at the start, as a multiple of that of the product 0: the flow from farther away is too stiff."""

INITS = {
    "gaussian": ("Gaussian(scale)", Gaussian),
    "orthogonal": ("Orthogonal(scale)", Orthogonal),
    "balanced": ("LambdaBalanced(0.0, scale)", lambda scale: LambdaBalanced(0.0, scale)),
}
"""Starts by name: how they are written, and what makes them."""


class Deep(Params):
    """A task, a deep network, and a small start."""

    scale: float = slider(
        0.02, 1e-3, 1.5, "Scale of the start", log=True, about="Size of the weights: near the origin, or far from it."
    )
    depth: int = whole(3, 2, 6, "Layers")
    init: Literal["gaussian", "orthogonal", "balanced"] = choice(
        "gaussian",
        {"gaussian": "Gaussian", "orthogonal": "orthogonal", "balanced": "balanced"},
        "Start",
        about="Balanced: the conserved quantities are zero.",
    )
    horizon: float = slider(200.0, 1.0, 20000.0, "Horizon", log=True, about="The run ends before if all is learnt.")
    strongest: float = STRONGEST
    weakest: float = WEAKEST
    inputs: int = whole(6, 1, 12, "Inputs")
    hidden: int = whole(4, 1, 12, "Hidden width")
    outputs: int = whole(4, 1, 8, "Outputs")
    seed: int = whole(0, 0, 9999, "Seed", seed=True)


def _widths(params: Deep) -> tuple[int, ...]:
    return (params.inputs, *[params.hidden] * (params.depth - 1), params.outputs)


def _spectrum(params: Deep) -> list[float]:
    return even_spectrum(params, min(params.inputs, params.outputs))


def _setting(params: Deep) -> tuple[Problem, Any]:
    key_target, key_start = keys_of(params.seed)
    target = spectral_target(key_target, (params.outputs, params.inputs), _spectrum(params))
    problem = Problem(DeepLinear(_widths(params)), SquaredDistance(target))
    return problem, INITS[params.init][1](params.scale)(problem.model, key_start)


def _times(horizon: float) -> np.ndarray:
    times = np.concatenate([[0.0], np.geomspace(FIRST * horizon, horizon, POINTS - 1)])
    times[-1] = horizon
    return times


def _done(params: Deep) -> float:
    return float(DONE * critical_value(_spectrum(params), ()))


def _called(visit: Visit, most: int) -> str:
    """A saddle by the modes learnt there; the one with all that can be learnt is the minimum."""
    best = visit.signature == tuple(range(1, most + 1))
    return f"global minimum {visit.name}" if best else visit.name


def _table(visited: Itinerary, most: int) -> Table:
    rows = []
    for visit in visited.visits:
        then = ", ".join(map(str, visit.learnt)) or ("–" if visit.left else "stays")
        numbers = (visit.start, visit.dwell, visit.loss)
        rows.append([_called(visit, most), *(f"{one:.4g}" for one in numbers), f"{visit.gradient_norm:.1e}", then])
    columns = ["modes learnt", "time of arrival", "time spent", "loss", "size of the gradient", "mode learnt next"]
    return Table(name="saddles", title="Saddles on the way, and the end", columns=columns, rows=rows)


def _levels(params: Deep) -> list[Mark]:
    """Losses at the saddles that have learnt the strongest modes, and at the minimum."""
    sigma = _spectrum(params)
    most = min(len(sigma), params.hidden)
    named = [tuple(range(1, rank + 1)) for rank in range(most + 1)]
    return [
        Mark(at=critical_value(sigma, one), label=set_name(one) if len(one) < most else "", axis="y") for one in named
    ]


def _pictures(params: Deep, layers: Any, run: Trajectory) -> Answer:
    """What there is to see of a run, or of its beginning."""
    sigma = _spectrum(params)
    times, values = np.asarray(run.times), np.asarray(run["singular_values"])
    span = [FIRST * params.horizon, params.horizon]
    clock = Axis(label="time", log=True, low=span[0], high=span[1])
    later = slice(1, None)
    modes = []
    for i, strength in enumerate(sigma):
        modes.append(line(f"mode {i + 1}", times[later], values[later, i], colour=i))
        modes.append(line(f"task {i + 1}", span, [strength] * 2, colour=i, style="dot", faint=True, legend=False))
    drift = np.asarray(run["drift"])
    sizes = np.asarray(balancedness(layers))
    figures: list[Any] = [
        curves(
            "loss",
            "Loss",
            clock,
            "loss",
            [line("loss", times[later], run["loss"][later])],
            _levels(params),
            "Dotted: values at saddles, named by the modes that are learnt there; the lowest is the minimum.",
        ),
        curves("modes", "Singular values of the product", clock, "singular value", modes, (), "Dotted: the task."),
        curves(
            "gradient",
            "Size of the gradient",
            clock,
            Axis(label="gradient", log=True),
            [line("gradient", times[later], run["gradient_norm"][later], colour=1)],
            (),
            "Valleys: the run passes a saddle.",
        ),
        curves(
            "drift",
            "Change of the conserved quantities",
            clock,
            Axis(label="change", log=True),
            [
                line(f"layers {i + 1} and {i + 2}", times[later], np.maximum(drift[later, i], 1e-17), colour=i)
                for i in range(drift.shape[1])
            ],
            (),
            f"Of matrices of size {sizes.min():.2g} to {sizes.max():.2g}: the error of the integrator.",
        ),
    ]
    return Answer(figures=figures)


def _answer(params: Deep, problem: Problem, layers: Any, run: Trajectory) -> Answer:
    """The whole run: pictures, the saddles it visited, and when modes were learnt."""
    sigma, figures = _spectrum(params), _pictures(params, layers, run).figures
    most = min(len(sigma), params.hidden)
    learnt = np.asarray(learning_times(run.times, run["singular_values"], sigma))[:most]
    facts, remarks = [], []
    if len(run.times) > 3:
        visited = itinerary(problem, run)
        if visited.visits:
            figures.append(_table(visited, most))
        names = " → ".join(_called(visit, most) for visit in visited.visits)
        order = "one by one, strongest first" if visited.greedy else "not one by one"
        order = order if np.any(np.isfinite(learnt)) else "none yet"
        tone: Any = "good" if visited.greedy else "plain"
        facts = [
            Fact(label="Saddles visited", value=names or "none", tone=tone, note="Named by the modes learnt there."),
            Fact(label="Modes learnt", value=order, tone="good" if visited.greedy else "warning"),
        ]
        remarks += visited.notes
    when = ", ".join(f"{time:.4g}" if np.isfinite(time) else "not yet" for time in learnt)
    facts += [
        Fact(label="Times at which they are learnt", value=when, note="Strongest mode first."),
        Fact(label="Largest change of what is conserved", value=f"{np.max(run['drift']):.2g}"),
    ]
    if params.hidden < len(sigma):
        level = critical_value(sigma, tuple(range(1, most + 1)))
        remarks.append(f"The hidden width carries {params.hidden} modes only: the loss ends at {level:.4g}.")
    return Answer(figures=figures, facts=facts, remarks=remarks)


def deep(params: Deep, watch: Watch) -> Answer:
    """Integrate the flow, and show it while it runs."""
    problem, layers = _setting(params)
    share = float(problem.value(layers)) / critical_value(_spectrum(params), ())
    if share > FAR:
        text = f"The loss at this start is {share:.1e} times that of the origin, which takes too long to follow. "
        raise LabError("value", text + "Take a smaller scale, or fewer layers.", ["scale", "depth"])
    run = simulate_live(
        watch,
        lambda part: _pictures(params, layers, part),
        problem,
        layers,
        GradientFlow(),
        pieces(_times(params.horizon), PIECES),
        probes=[loss, singular_values, gradient_norm, product, Drift(layers)],
        until=until(loss, below=_done(params)),
    )
    return _answer(params, problem, layers, run)


def deep_script(params: Deep) -> str:
    """The same run in one piece."""
    return script(f"""
from deeplinear.dynamics import simulate, until
from deeplinear.landscape import itinerary, learning_times
from deeplinear.models import DeepLinear, Problem, SquaredDistance, spectral_target
from deeplinear.models import {INITS[params.init][0].split("(")[0]}
from deeplinear.probes import Drift, gradient_norm, loss, product, singular_values

key_problem, key_start, _ = jax.random.split(jax.random.key({params.seed}), 3)
key_target, spectrum, scale = jax.random.split(key_problem)[0], {_spectrum(params)}, {params.scale!r}
target = spectral_target(key_target, ({params.outputs}, {params.inputs}), spectrum)
problem = Problem(DeepLinear({_widths(params)}), SquaredDistance(target))
layers = {INITS[params.init][0]}(problem.model, jax.random.fold_in(key_start, 0))

times = np.concatenate([[0.0], np.geomspace({FIRST * params.horizon!r}, {params.horizon!r}, {POINTS - 1})])
times[-1] = {params.horizon!r}
probes = [loss, singular_values, gradient_norm, product, Drift(layers)]
run = simulate(problem, layers, times=times, probes=probes, until=until(loss, below={_done(params)!r}))
print(itinerary(problem, run))
print(learning_times(run.times, run["singular_values"], spectrum))
""")


def deep_command(params: Deep) -> str:
    """The same run, and the saddles it visited."""
    run = command(
        "simulate",
        widths=list(_widths(params)),
        spectrum=_spectrum(params),
        init=params.init,
        init_scale=params.scale,
        seed=params.seed,
        horizon=params.horizon,
        points=POINTS,
        spacing="log",
        until_loss=_done(params),
        probes=["loss", "singular_values", "gradient_norm", "product"],
        out="run",
    )
    return f"{run}\ndln landscape run"
