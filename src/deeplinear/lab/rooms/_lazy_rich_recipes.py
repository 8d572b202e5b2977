"""The views between lazy and rich as scripts and commands."""

import math
from typing import Any

import numpy as np

from deeplinear.lab._recipes import command, keys_of, script
from deeplinear.lab.rooms._lazy_rich_setting import (
    CELLS,
    FIRST,
    LAMBDA,
    POINTS,
    SCALE,
    CurveParams,
    MapParams,
    Task,
    spectrum_of,
)
from deeplinear.models import DeepLinear, LambdaBalanced


def _setup_script(params: Task) -> str:
    return f"""
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, spectral_target

key_problem, key_start, _ = jax.random.split(jax.random.key({params.seed}), 3)
key_target, spectrum = jax.random.split(key_problem)[0], {spectrum_of(params)}
target = spectral_target(key_target, ({params.outputs}, {params.inputs}), spectrum)

model = DeepLinear(({params.inputs}, {params.hidden}, {params.outputs}))
problem = Problem(model, SquaredDistance(target))
start = LambdaBalanced({params.lam!r}, 1.0, absolute_scale={params.scale!r})
layers = start(model, jax.random.fold_in(key_start, 0))
"""


def curve_script(params: CurveParams) -> str:
    """Curves, representations, and the single layer beside them."""
    return script(
        _setup_script(params),
        f"""
from deeplinear.exact import diagnose, solve
from deeplinear.landscape import learning_times
from deeplinear.probes import KernelDistance, loss, singular_values

times = np.linspace(0.0, {params.horizon!r}, {POINTS})
solution = solve(problem, layers, form="whitened")
run = solution.trajectory(times, probes=[loss, singular_values, KernelDistance(layers)], carry=False)
print(run["loss"][-1], run["singular_values"][-1], run["kernel_distance"][-1])

# When modes are half learnt, on times that are close together at first.
clock = np.concatenate([[0.0], np.geomspace({FIRST * params.horizon!r}, {params.horizon!r}, {POINTS - 1})])
course = solution.trajectory(clock, probes=[singular_values], carry=False)
half_learnt = learning_times(clock, course["singular_values"], spectrum)
print(half_learnt)

# The representations at a moment.
now = solution.correlations({params.moment * params.horizon!r})
print(now.input, now.product, now.output, sep="\\n")

# A single layer from the same function.
layer = Problem(DeepLinear(({params.inputs}, {params.outputs})), SquaredDistance(target))
single = solve(layer, [layers[1] @ layers[0]]).trajectory(times, probes=[loss, singular_values])
print(single["loss"][-1], single["singular_values"][-1])

# What is known of the end.
found = diagnose(layers, target)
print(found.limit_loss, found.rate)
""",
    )


def map_script(params: MapParams) -> str:
    """Both maps."""
    return script(
        _setup_script(params),
        f"""
from deeplinear.exact import phase_map

lams, scales = np.linspace({LAMBDA[0]}, {LAMBDA[1]}, {CELLS}), np.geomspace({SCALE[0]}, {SCALE[1]}, {CELLS})
found = phase_map(target, layers[1] @ layers[0], lams, scales, [{params.time!r}])
print(found.kernel_distance[0], found.loss[0])
""",
    )


def simulation_script(params: CurveParams) -> str:
    """Closed form and simulation, and how far they are apart."""
    return script(
        _setup_script(params),
        f"""
from deeplinear.dynamics import simulate
from deeplinear.exact import solve
from deeplinear.probes import loss, singular_values

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
    return math.sqrt(params.scale / float(np.linalg.norm(second @ first)))


def _options(params: Task) -> dict[str, Any]:
    return {
        "widths": [params.inputs, params.hidden, params.outputs],
        "spectrum": spectrum_of(params),
        "init": "lambda-balanced",
        "lam": params.lam,
        "init_scale": _entry_scale(params),
        "seed": params.seed,
    }


def curve_command(params: CurveParams) -> str:
    """The closed form."""
    probes = ["loss", "singular_values", "kernel_distance"]
    return command("exact", **_options(params), horizon=params.horizon, points=POINTS, probes=probes)


def simulation_command(params: CurveParams) -> str:
    """The simulation."""
    probes = ["loss", "singular_values"]
    return command("simulate", **_options(params), horizon=params.horizon, points=POINTS, probes=probes)
