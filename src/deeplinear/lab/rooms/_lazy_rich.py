"""Room 1: two layers between lazy and rich learning, in closed form."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import HypothesisError
from deeplinear.dynamics import simulate
from deeplinear.exact import Correlations, WhitenedSolution, diagnose, phase_map, regime, solve
from deeplinear.lab._figures import Answer, Axis, Fact, Map, Mark, Matrix, curves, line, numbers, rows
from deeplinear.lab._recipes import command, keys_of, script
from deeplinear.lab._room import Params, Preset, Room, View, Watch, slider, whole
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, spectral_target
from deeplinear.probes import loss, singular_values

POINTS = 160
"""Times of a curve."""

CELLS = 41
"""Cells of a side of the map."""

LAMBDA = (-10.0, 10.0)
SCALE = (1e-3, 3.0)


class Task(Params):
    """A task, and a start of two layers for it."""

    lam: float = slider(
        0.0, *LAMBDA, "Relative scale λ", step=0.1, about="How much larger the second layer is than the first."
    )
    scale: float = slider(
        0.1, *SCALE, "Absolute scale", log=True, about="Size of the product of the layers at the start."
    )
    inputs: int = whole(4, 1, 8, "Inputs")
    hidden: int = whole(3, 1, 8, "Hidden width")
    outputs: int = whole(3, 1, 8, "Outputs")
    strongest: float = slider(3.0, 0.1, 10.0, "Strongest mode", step=0.1, about="Largest singular value of the task.")
    ratio: float = slider(
        0.6, 0.05, 1.0, "Ratio of modes", step=0.05, about="Each mode is so much weaker than the last."
    )
    seed: int = whole(0, 0, 9999, "Seed", seed=True)


class CurveParams(Task):
    """Learning curves up to a time."""

    horizon: float = slider(6.0, 0.1, 1000.0, "Horizon", log=True)
    moment: float = slider(1.0, 0.0, 1.0, "Look at (part of the horizon)", step=0.01)


class MapParams(Task):
    """A map at a time."""

    time: float = slider(10.0, 0.01, 1000.0, "Time", log=True)


def _spectrum(params: Task) -> list[float]:
    return [float(f"{params.strongest * params.ratio**i:.12g}") for i in range(min(params.inputs, params.outputs))]


def _target(params: Task) -> jax.Array:
    return spectral_target(keys_of(params.seed)[0], (params.outputs, params.inputs), _spectrum(params))


def _setting(params: Task) -> tuple[Problem, Any]:
    key_start, target = keys_of(params.seed)[1], _target(params)
    problem = Problem(DeepLinear((params.inputs, params.hidden, params.outputs)), SquaredDistance(target))
    return problem, LambdaBalanced(params.lam, 1.0, absolute_scale=params.scale)(problem.model, key_start)


def _times(horizon: float) -> np.ndarray:
    return np.linspace(0.0, horizon, POINTS)


def _regime_fact(target: jax.Array, layers: Any) -> Fact:
    try:
        kind = regime(layers, target)
    except HypothesisError as error:
        return Fact(
            label="Regime", value="none", tone="warning", note=f"It is told where this holds: {error.hypothesis}."
        )
    note = f"The kernel distance ends at {kind.end:.3g}"
    if math.isfinite(kind.kernel_time):
        note += f", half of it at t = {kind.kernel_time:.3g}; half of the loss is gone at t = {kind.loss_time:.3g}"
    return Fact(label="Regime", value=kind.label, note=f"{note}.")


def _facts(target: jax.Array, layers: Any) -> list[Fact]:
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
    problem, layers = _setting(params)
    solution = solve(problem, layers, form="whitened")
    assert isinstance(solution, WhitenedSolution)
    times, when = _times(params.horizon), params.moment * params.horizon
    # All curves come from one program; NumPy does the rest, which has nothing to compile.
    path = solution.correlations(np.append(times, when))
    products, target = np.asarray(path.product)[:-1], np.asarray(_target(params))
    losses = 0.5 * np.sum((products - target) ** 2, axis=(1, 2))
    marks = [Mark(at=when, label="now")]
    figures: list[Any] = [
        curves("loss", "Loss", "time", Axis(label="loss", log=True), [line("loss", times, losses)], marks),
        curves(
            "modes",
            "Singular values of the product",
            "time",
            "singular value",
            _mode_curves(times, np.linalg.svd(products, compute_uv=False), _spectrum(params)),
            marks,
            "Dotted: those of the task.",
        ),
        curves(
            "kernel",
            "How far the tangent kernel has turned",
            "time",
            "kernel distance",
            [line("distance", times, _kernel_distances(path)[:-1], colour=2)],
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
    return Answer(figures=figures, facts=_facts(_target(params), layers))


def _map(params: MapParams, watch: Watch) -> Answer:
    _, layers = _setting(params)
    lams = np.linspace(*LAMBDA, CELLS)
    scales = np.geomspace(*SCALE, CELLS)
    directions = layers[1] @ layers[0]
    found = phase_map(_target(params), directions, lams, scales, [params.time])
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
        facts=_facts(_target(params), layers),
    )


def _simulation(params: CurveParams, watch: Watch) -> Answer:
    problem, layers = _setting(params)
    times = _times(params.horizon)
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
            Fact(label="Steps of the integrator", value=f"{int(run.stats['accepted_steps'])}"),
            *_facts(_target(params), layers),
        ],
    )


def _setup_script(params: Task) -> str:
    return f"""
from deeplinear.exact import solve
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, spectral_target
from deeplinear.probes import KernelDistance, loss, singular_values

key_problem, key_start, _ = jax.random.split(jax.random.key({params.seed}), 3)
key_target, spectrum = jax.random.split(key_problem)[0], {_spectrum(params)}
target = spectral_target(key_target, ({params.outputs}, {params.inputs}), spectrum)

model = DeepLinear(({params.inputs}, {params.hidden}, {params.outputs}))
problem = Problem(model, SquaredDistance(target))
start = LambdaBalanced({params.lam!r}, 1.0, absolute_scale={params.scale!r})
layers = start(model, jax.random.fold_in(key_start, 0))
"""


def _curve_script(params: CurveParams) -> str:
    return script(
        _setup_script(params),
        f"""
times = np.linspace(0.0, {params.horizon!r}, {POINTS})
solution = solve(problem, layers, form="whitened")
run = solution.trajectory(times, probes=[loss, singular_values, KernelDistance(layers)], carry=False)
print(run["loss"][-1], run["singular_values"][-1], run["kernel_distance"][-1])
print(solution.correlations({params.moment * params.horizon!r}).product)
""",
    )


def _map_script(params: MapParams) -> str:
    return script(
        _setup_script(params),
        f"""
from deeplinear.exact import phase_map

lams, scales = np.linspace({LAMBDA[0]}, {LAMBDA[1]}, {CELLS}), np.geomspace({SCALE[0]}, {SCALE[1]}, {CELLS})
found = phase_map(target, layers[1] @ layers[0], lams, scales, [{params.time!r}])
print(found.kernel_distance[0], found.loss[0])
""",
    )


def _simulation_script(params: CurveParams) -> str:
    return script(
        _setup_script(params),
        f"""
from deeplinear.dynamics import simulate

times = np.linspace(0.0, {params.horizon!r}, {POINTS})
exact = solve(problem, layers, form="whitened").trajectory(times, probes=[singular_values], carry=False)
run = simulate(problem, layers, times=times, probes=[loss, singular_values])
print(np.abs(np.asarray(exact["singular_values"]) - np.asarray(run["singular_values"])).max())
""",
    )


def _entry_scale(params: Task) -> float:
    """Scale of the layers whose product has the norm that is asked for: it goes with the square."""
    model = DeepLinear((params.inputs, params.hidden, params.outputs))
    first, second = LambdaBalanced(params.lam, 1.0)(model, keys_of(params.seed)[1])
    return math.sqrt(params.scale / float(jnp.linalg.norm(second @ first)))


def _options(params: Task) -> dict[str, Any]:
    return {
        "widths": [params.inputs, params.hidden, params.outputs],
        "spectrum": _spectrum(params),
        "init": "lambda-balanced",
        "lam": params.lam,
        "init_scale": _entry_scale(params),
        "seed": params.seed,
    }


def _curve_command(params: CurveParams) -> str:
    probes = ["loss", "singular_values", "kernel_distance"]
    return command("exact", **_options(params), horizon=params.horizon, points=POINTS, probes=probes)


def _simulation_command(params: CurveParams) -> str:
    probes = ["loss", "singular_values"]
    return command("simulate", **_options(params), horizon=params.horizon, points=POINTS, probes=probes)


ROOM = Room(
    name="lazy-rich",
    title="Lazy to rich",
    story="""
A network of two linear layers can fit a task in two ways. In the **lazy** way its weights hardly move and its features
stay what chance made them; in the **rich** way it learns features one after the other, strongest first. What decides
is the size of the weights *and* how it is shared between the layers: drag λ away from zero and watch the curves change
from steps to exponentials, although the network computes the same function at the start.
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
        View("curves", "Learning curves", CurveParams, _curves, _curve_script, _curve_command, hint="Move λ first."),
        View(
            "map",
            "Phase map",
            MapParams,
            _map,
            _map_script,
            None,
            hint="Click or drag in the map: λ and the scale follow, also in the other views.",
        ),
        View(
            "simulation",
            "Theory against simulation",
            CurveParams,
            _simulation,
            _simulation_script,
            _simulation_command,
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
