r"""Flow of an end-to-end matrix: what a right-hand side and a run cost, in which coordinates, at which depth.

The energy is diagonal completion (target and mask the identity), the start has independent entries of variance 1/d.

| contestant | right-hand side |
| --- | --- |
| singular | $U$, $\ln s$, $V$: five products of matrices |
| matrix | one singular value decomposition, four products |
| sum over layers | $\sum_l (XX^\top)^{(L-l)/L}\,\nabla E\,(X^\top X)^{(l-1)/L}$ from two eigen-decompositions |
| layers | the $L$ layers themselves: one pass forward, one back |

Evaluations are timed in a compiled loop of many, with small Euler steps so that none can be left out. Runs go to T = 10
with the infinite-depth operator, and with layers of depth 2 to 20 (normalised, so that times compare); the error is the
largest entry against rtol 1e-11 in matrix coordinates.

    python benchmarks/geometry.py            # all into benchmarks/results/
    python benchmarks/geometry.py --quick    # two depths, one size, few seeds, nothing stored
    python benchmarks/geometry.py --show     # tables from the stored numbers
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from common import command, describe, machine, table, timed

from deeplinear.core import integrate
from deeplinear.geometry import Metric, balanced_lift
from deeplinear.geometry._charts import descent
from deeplinear.geometry._flow import matrix_flow
from deeplinear.geometry._singular import singular_field
from deeplinear.models import Completion

STEP = 1e-9
HORIZON = 10.0
DEPTHS = (2, 3, 5, 10, 20)
SIZES = (10, 25, 100)
SEEDS = 200


def start(size: int, seeds: int = 1) -> np.ndarray:
    """Starts with entries of variance 1/d, seeds first."""
    return np.random.default_rng(0).standard_normal((seeds, size, size)) / np.sqrt(size)


def completion(size: int) -> Completion:
    """Diagonal completion."""
    return Completion(np.eye(size), np.eye(size))


def singular(metric: Metric, energy: Completion, state: Any) -> Any:
    """Velocity in singular coordinates."""
    return singular_field(metric, energy, *state)[:3]


def matrix(metric: Metric, energy: Completion, state: Any) -> Any:
    """Velocity in matrix coordinates."""
    return (descent(metric, energy, state[0])[0],)


def summed(metric: Metric, energy: Completion, state: Any, *, depth: int) -> Any:
    """Velocity by the sum over layers."""
    (point,) = state
    (outer, left), (inner, right) = jnp.linalg.eigh(point @ point.T), jnp.linalg.eigh(point.T @ point)
    outer, inner, force = jnp.maximum(outer, 0), jnp.maximum(inner, 0), energy.gradient(point)
    total = jnp.zeros_like(point)
    for layer in range(1, depth + 1):
        before = (left * outer ** ((depth - layer) / depth)) @ left.T
        after = (right * inner ** ((layer - 1) / depth)) @ right.T
        total += before @ force @ after
    return (-total * metric.scale / depth,)


def layered(metric: Metric, energy: Completion, state: Any) -> Any:
    """Velocity of the layers."""
    below = [jnp.eye(state[0].shape[0])]
    for layer in state:
        below.append(layer @ below[-1])
    back, found = -energy.gradient(below[-1]), []
    for layer, under in zip(reversed(state), reversed(below[:-1]), strict=True):
        found.append(back @ under.T)
        back = layer.T @ back
    return tuple(reversed(found))


@functools.partial(jax.jit, static_argnums=(0, 4))
def repeat(velocity: Callable, metric: Metric, energy: Completion, state: Any, count: int) -> Any:
    """Many evaluations, one after another."""
    step = lambda _, y: jax.tree.map(lambda a, b: a + STEP * b, y, velocity(metric, energy, y))  # noqa: E731
    return jax.lax.fori_loop(0, count, step, state)


def evaluation(name: str, size: int, depth: float) -> dict[str, Any]:
    """Cost of one right-hand side."""
    point, metric, energy = jnp.asarray(start(size)[0]), Metric(depth), completion(size)
    left, values, right_t = jnp.linalg.svd(point)
    contestants: dict[str, tuple[Callable, Any]] = {
        "singular": (singular, (left, jnp.log(values), right_t.T)),
        "matrix": (matrix, (point,)),
    }
    if math.isfinite(depth):
        contestants |= {
            "sum over layers": (SUMS[int(depth)], (point,)),
            "layers": (layered, tuple(balanced_lift(point, int(depth)))),
        }
    velocity, state = contestants[name]
    count = 400 if size <= 25 else 40
    _, timing = timed(lambda: repeat(velocity, metric, energy, state, count), 3)
    return {"contestant": name, "size": size, "depth": str(depth), "microseconds": 1e6 * timing.median / count}


SUMS = {depth: functools.partial(summed, depth=depth) for depth in DEPTHS}


@jax.jit
def follow(metric: Metric, energy: Completion, state: Any) -> Any:
    """Layers to the end, at the tolerances of the other runs."""
    times = jnp.asarray([HORIZON])
    speed = lambda y: jax.tree.map(lambda v: v / metric.scale, layered(metric, energy, y))  # noqa: E731
    return integrate(speed, state, times, method="tsit5", rtol=1e-6, atol=1e-9)


def run(name: Any, size: int, depth: float, seeds: int) -> dict[str, Any]:
    """Runs of some seeds, one after another on a processor and together on an accelerator."""
    starts, energy = start(size, seeds), completion(size)
    exact = matrix_flow(
        energy, starts[:4], depth, [HORIZON], normalised=True, coordinates="matrix", rtol=1e-11, atol=1e-13
    )
    if name == "layers":
        states = [tuple(balanced_lift(jnp.asarray(one), int(depth))) for one in starts]
        found, timing = timed(lambda: [follow(Metric(depth), energy, state) for state in states], 2)
        ends = np.array([functools.reduce(lambda a, b: b @ a, one.end) for one in found[:4]])
        steps = float(np.mean([int(one.steps) for one in found]))
    else:
        found, timing = timed(
            lambda: matrix_flow(energy, starts, depth, [HORIZON], normalised=True, coordinates=name, points=False), 2
        )
        ends, steps = found.end[:4], float(np.mean(found.steps))
    return timing.to_json() | {
        "contestant": name,
        "size": size,
        "depth": str(depth),
        "seeds": seeds,
        "steps": steps,
        "milliseconds": 1e3 * timing.median / seeds,
        "error": float(np.abs(ends - exact.end).max()),
    }


def show(data: dict[str, Any]) -> None:
    """Tables of stored numbers."""
    print(describe(data["machine"]), "\n")
    costs = {(one["size"], one["depth"], one["contestant"]): one["microseconds"] for one in data["evaluations"]}
    names = ("singular", "matrix", "sum over layers", "layers")
    rows = [
        [size, depth, *(costs.get((size, depth, name)) for name in names)]
        + [(costs.get((size, depth, name)) or math.nan) / costs[size, depth, "singular"] for name in names[1:]]
        for size, depth in dict.fromkeys((size, depth) for size, depth, _ in costs)
    ]
    head = ("d", "depth", *(f"{name}, µs" for name in names), *(f"{name} / singular" for name in names[1:]))
    print(table(head, rows), "\n")
    head = ("contestant", "d", "depth", "seeds", "steps", "ms a seed", "s in all", "compile s", "error")
    print(
        table(
            head,
            [
                [
                    one["contestant"],
                    one["size"],
                    one["depth"],
                    one["seeds"],
                    round(one["steps"]),
                    one["milliseconds"],
                    one["seconds"],
                    one["compile"],
                    one["error"],
                ]
                for one in data["runs"]
            ],
        )
    )


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Evaluations and runs."""
    sizes, depths = ((10,), (2, 20)) if quick else (SIZES, DEPTHS)
    data: dict[str, Any] = {"machine": machine()}
    data["evaluations"] = [
        evaluation(name, size, depth)
        for size in sizes
        for depth in (*depths, math.inf)
        for name in ("singular", "matrix", "sum over layers", "layers")
        if math.isfinite(depth) or name in ("singular", "matrix")
    ]
    seeds, size = (8, 10) if quick else (SEEDS, 25)
    data["runs"] = [run(name, size, math.inf, seeds) for name in ("singular", "matrix")]
    for depth in depths:
        data["runs"] += [run(name, size, depth, max(8, seeds // 10)) for name in ("singular", "matrix", "layers")]
    return data


if __name__ == "__main__":
    command("geometry", __doc__, "two depths, one size, few seeds", measure_all, show)
