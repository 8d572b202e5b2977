"""Room 1: two layers between lazy and rich learning, in closed form."""

import math
from typing import Any

import numpy as np

from deeplinear.core import Array, HypothesisError
from deeplinear.dynamics import simulate
from deeplinear.exact import Correlations, WhitenedSolution, diagnose, phase_map, regime, solve
from deeplinear.lab._figures import Answer, Axis, Fact, Map, Mark, Matrix, curves, line, numbers, rows
from deeplinear.lab._room import Preset, Room, View, Watch
from deeplinear.lab.rooms._lazy_rich_recipes import (
    curve_command,
    curve_script,
    map_script,
    simulation_command,
    simulation_script,
)
from deeplinear.lab.rooms._lazy_rich_setting import (
    CELLS,
    LAMBDA,
    POINTS,
    SCALE,
    WIDEST,
    CurveParams,
    MapParams,
    paces_of,
    setting_of,
    spectrum_of,
    target_of,
    times_of,
)
from deeplinear.landscape import learning_times
from deeplinear.probes import loss, singular_values

LEAST = 1e-16
"""Losses of one layer below this are not drawn."""

REGIMES = {"delayed-rich": "lazy at first, rich late"}
"""Regimes whose name in the library needs words."""


def _regime_fact(target: Array, layers: Any) -> Fact:
    try:
        kind = regime(layers, target)
    except HypothesisError as error:
        return Fact(
            label="Regime", value="none", tone="warning", note=f"It is told where this holds: {error.hypothesis}."
        )
    note = f"The kernel distance ends at {kind.end:.3g}"
    if math.isfinite(kind.kernel_time):
        note += f", half of it at t = {kind.kernel_time:.3g}; half of the loss is gone at t = {kind.loss_time:.3g}"
    return Fact(label="Regime", value=REGIMES.get(kind.label, kind.label), note=f"{note}.")


def _facts(target: Array, layers: Any) -> list[Fact]:
    found = diagnose(layers, target)
    facts = [_regime_fact(target, layers)]
    if found.obstructed:
        note = "At λ = 0 the determinant keeps its sign, so one mode is never learned. Change λ or the seed."
        facts.append(Fact(label="Obstruction", value="wrong sign of the determinant", tone="bad", note=note))
    if found.bottleneck:
        facts.append(Fact(label="Bottleneck", value="hidden width below the rank of the task", tone="warning"))
    left = f"{found.limit_loss:.3g}" if found.limit_loss > 1e-12 else "0"
    facts.append(Fact(label="Loss as t → ∞", value=left, tone="good" if left == "0" else "warning"))
    if np.isfinite(found.rate):
        facts.append(Fact(label="Last rate", value=f"{found.rate:.3g}", note="The error falls like exp(-rate · t)."))
    return facts


def _one_layer(times: np.ndarray, start: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Products of a single layer that starts as the same function: every gap closes at the same rate, one."""
    return target + np.exp(-times)[:, None, None] * (start - target)


def _pace_fact(times: np.ndarray, values: np.ndarray, spectrum: list[float]) -> Fact:
    """When each mode is half learnt, beside a single layer."""
    more = WIDEST - len(spectrum)  # filled up to one shape, for one program
    filled = np.pad(values, ((0, 0), (0, more)), constant_values=1.0)
    goal = np.pad(spectrum, (0, more), constant_values=1.0)
    found = np.asarray(learning_times(times, filled, goal))[: len(spectrum)]
    when = ", ".join(f"{one:.2g}" if np.isfinite(one) else "later" for one in found)
    note = f"Strongest first. A single layer closes half of every gap at t = {math.log(2):.2g}, strong or weak."
    return Fact(label="Modes half learnt at t", value=when, note=note)


def _mode_curves(times: Any, values: np.ndarray, spectrum: list[float]) -> list[Any]:
    found = []
    for i in range(values.shape[1]):
        found.append(line(f"mode {i + 1}", times, values[:, i], colour=i))
        if i < len(spectrum):
            ends = [times[0], times[-1]]
            found.append(
                line(f"task {i + 1}", ends, [spectrum[i]] * 2, colour=i, style="dot", faint=True, legend=False)
            )
    return found


def _kernel_distances(path: Correlations) -> np.ndarray:
    r"""Distances of tangent kernels from the first, with the number of inputs and outputs as sums of squares.

    The kernel is $I\otimes W_1^\top W_1 + W_2W_2^\top\otimes I$. Of each part the trace is kept apart.
    """
    a, m = np.asarray(path.input), np.asarray(path.output)
    size = math.sqrt(a.shape[-1] * m.shape[-1])

    def parts(one: np.ndarray, other: int) -> tuple[np.ndarray, np.ndarray]:
        mean = np.trace(one, axis1=-2, axis2=-1) / one.shape[-1]
        return math.sqrt(other) * (one - mean[:, None, None] * np.eye(one.shape[-1])), mean

    (one, first), (two, second) = parts(a, m.shape[-1]), parts(m, a.shape[-1])
    flat = np.concatenate([one.reshape(len(a), -1), two.reshape(len(a), -1), size * (first + second)[:, None]], axis=1)
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    return 0.5 * np.sum((unit - unit[:1]) ** 2, axis=1)


def _curves(params: CurveParams, watch: Watch) -> Answer:
    problem, layers = setting_of(params)
    solution = solve(problem, layers, form="whitened")
    assert isinstance(solution, WhitenedSolution)
    times, when = times_of(params.horizon), params.moment * params.horizon
    clock = paces_of(params.horizon)
    path = solution.correlations(np.concatenate([times, clock, [when]]))
    products, target = np.asarray(path.product), np.asarray(target_of(params))
    early, products = products[POINTS:-1], products[:POINTS]
    single = _one_layer(times, products[0], target)
    losses, others = (0.5 * np.sum((one - target) ** 2, axis=(1, 2)) for one in (products, single))
    values, reference = (np.linalg.svd(one, compute_uv=False) for one in (products, single))
    dashed = [
        line("one layer", times, reference[:, i], colour=i, style="dash", faint=True, legend=i == 0)
        for i in range(reference.shape[1])
    ]
    marks = [Mark(at=when, label="now")]
    figures: list[Any] = [
        curves(
            "loss",
            "Loss",
            "time",
            Axis(label="loss", log=True),
            [
                line("two layers", times, losses),
                line("one layer", times, np.where(others > LEAST, others, np.nan), colour=7, style="dash"),
            ],
            marks,
            "One layer learns all modes at one pace; two layers of small weights wait, and learn them one by one.",
        ),
        curves(
            "modes",
            "Singular values of the product",
            "time",
            "singular value",
            [*_mode_curves(times, values, spectrum_of(params)), *dashed],
            marks,
            "Dashed: a single layer from the same function. Dotted: those of the task.",
        ),
        curves(
            "kernel",
            "How far the tangent kernel has turned",
            "time",
            "kernel distance",
            [line("distance", times, _kernel_distances(path)[:POINTS], colour=2)],
            marks,
            "0: the features stay as they are. Called lazy if it ends below 0.02, rich above.",
        ),
    ]
    parts = [
        ("inputs", "Input representation", r"W₁ᵀW₁", path.input),
        ("product", "Function", r"W₂W₁", path.product),
        ("outputs", "Output representation", r"W₂W₂ᵀ", path.output),
    ]
    for name, title, formula, matrix in parts:
        figures.append(Matrix(name=name, title=f"{title} {formula} at t = {when:.3g}", values=rows(matrix[-1])))
    pace = _pace_fact(clock, np.linalg.svd(early, compute_uv=False), spectrum_of(params))
    return Answer(figures=figures, facts=[pace, *_facts(target_of(params), layers)])


def _map(params: MapParams, watch: Watch) -> Answer:
    _, layers = setting_of(params)
    lams = np.linspace(*LAMBDA, CELLS)
    scales = np.geomspace(*SCALE, CELLS)
    directions = layers[1] @ layers[0]
    found = phase_map(target_of(params), directions, lams, scales, [params.time])
    here = [line("you are here", [params.lam], [params.scale], colour=7, style="points", legend=False)]
    x, y = Axis(label="relative scale λ"), Axis(label="absolute scale", log=True)
    base = {"x": x, "y": y, "xs": numbers(lams), "ys": numbers(scales), "pick": ("lam", "scale"), "series": here}
    hidden = min(params.inputs, params.outputs)
    caption = f"Hidden width {hidden}, the smaller of inputs and outputs."
    return Answer(
        figures=[
            Map(
                name="kernel",
                title=f"Kernel distance at t = {params.time:.3g}",
                z=rows(found.kernel_distance[0]),
                value="kernel distance",
                caption=f"Dark: lazy. Bright: rich. {caption}",
                **base,
            ),
            Map(
                name="loss",
                title=f"Loss at t = {params.time:.3g}",
                z=rows(np.maximum(np.asarray(found.loss[0]), 1e-16)),
                value="loss",
                log=True,
                caption=caption,
                **base,
            ),
        ],
        facts=_facts(target_of(params), layers),
    )


def _simulation(params: CurveParams, watch: Watch) -> Answer:
    problem, layers = setting_of(params)
    times = times_of(params.horizon)
    watch(0.0, "closed form")
    exact = solve(problem, layers, form="whitened").trajectory(times, probes=[loss, singular_values], carry=False)
    watch(0.1, "gradient flow, integrated")
    run = simulate(
        problem,
        layers,
        times=times,
        probes=[loss, singular_values],
        progress=lambda told: watch(0.1 + 0.9 * told.fraction, f"t = {told.t:.3g}"),
    )
    theory, simulated = np.asarray(exact["singular_values"]), np.asarray(run["singular_values"])
    thin = slice(None, None, 8)
    series = _mode_curves(times, theory, [])
    series += [
        line(f"simulated {i + 1}", times[thin], simulated[thin, i], colour=i, style="points", legend=i == 0)
        for i in range(simulated.shape[1])
    ]
    gap = np.max(np.abs(theory - simulated), axis=1)
    return Answer(
        figures=[
            curves(
                "modes", "Singular values: theory (lines) and simulation (points)", "time", "singular value", series
            ),
            curves(
                "gap",
                "Largest difference",
                "time",
                Axis(label="difference", log=True),
                [line("difference", times, np.maximum(gap, 1e-17), colour=1)],
            ),
        ],
        facts=[
            Fact(label="Largest difference", value=f"{gap.max():.2g}", tone="good" if gap.max() < 1e-4 else "warning"),
            *_facts(target_of(params), layers),
        ],
    )


ROOM = Room(
    name="lazy-rich",
    title="Lazy to rich",
    story="""
One layer learns all modes of a task at **one pace**; two layers of small weights **wait**, and learn the strongest
first: compare the dashed curves. Two layers can also fit a task in two ways. In the **lazy** way their weights hardly
move and the features stay what chance made them; in the **rich** way features are learned one after the other. What
decides is the size of the weights *and* how it is shared between the layers: drag λ away from zero and watch the curves
change from steps to exponentials, although the network computes the same function at the start.
""",
    mathematics=r"""
Two layers under white inputs follow $\dot W_1 = W_2^\top(\Sigma - W_2W_1)$, $\dot W_2 = (\Sigma - W_2W_1)W_1^\top$. The
difference $W_2^\top W_2 - W_1W_1^\top = \lambda I$ never changes. With $Q = (W_1\;\;W_2^\top)^\top$ the flow of
$QQ^\top$ is a matrix Riccati equation, and has a closed form for every $\lambda$. At $\lambda = 0$ a mode of strength
$s$ grows as

$$a(t) = \frac{s\,e^{2st}}{e^{2st} - 1 + s/a_0},$$

a step. For large $|\lambda|$ it relaxes as $s(1 - e^{-|\lambda| t})$, all modes at once, if the larger layer reaches
the whole task: $\lambda > 0$ with more inputs than outputs, $\lambda < 0$ with fewer. On the other side learning is
lazy at first and rich after a delay. How far the tangent kernel turns, $1 - \langle K, K_0\rangle/\|K\|\|K_0\|$,
tells lazy from rich.
""",
    views=(
        View("curves", "Learning curves", CurveParams, _curves, curve_script, curve_command, hint="Move λ first."),
        View(
            "map",
            "Phase map",
            MapParams,
            _map,
            map_script,
            None,
            hint="Click or drag in the map: λ and the scale follow, also in the other views.",
        ),
        View(
            "simulation",
            "Theory against simulation",
            CurveParams,
            _simulation,
            simulation_script,
            simulation_command,
            kind="run",
            hint="Integrates the flow and puts it on the closed form.",
        ),
    ),
    presets=(
        Preset(
            "Rich: small and balanced",
            "curves",
            {"lam": 0.0, "scale": 0.001, "horizon": 10.0},
            "One mode after the other, each a step.",
        ),
        Preset(
            "Lazy: large second layer",
            "curves",
            {"lam": 9.0, "scale": 0.1, "horizon": 2.0},
            "All modes at once; the kernel hardly turns.",
        ),
        Preset(
            "Lazy: large first layer",
            "curves",
            {"inputs": 3, "hidden": 3, "outputs": 4, "lam": -9.0, "scale": 0.1, "horizon": 2.0},
            "The mirror image: more outputs than inputs.",
        ),
        Preset(
            "Delayed rich (funnel, λ < 0)",
            "curves",
            {"inputs": 6, "hidden": 3, "outputs": 3, "lam": -9.0, "scale": 0.1, "horizon": 1000.0},
            "The loss falls early, the kernel turns late.",
        ),
        Preset(
            "The map late in training", "map", {"time": 100.0}, "What is lazy on one side of λ = 0 turns rich at last."
        ),
    ),
)
