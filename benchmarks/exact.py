r"""Cost of closed forms: `deeplinear.exact.solve` against the integration of the same flow.

Each case is a problem for which a closed form applies, with 200 recorded times. Contestants:

| contestant | what it is |
| --- | --- |
| exact | `solve(...)` and `trajectory(times, probes=[loss, product])`, final layers in their hidden basis included |
| exact curve | the same without layers: the product at all times, compiled once |
| simulate | `simulate(...)` with GradientFlow at rtol 1e-10, which is what `follow` falls back to |
| scipy | `solve_ivp` with a NumPy right-hand side at rtol 1e-10: LSODA up to 200 weights, DOP853 above |

All are warm; compile time is told apart. Errors are those of the product at the last time, relative to the largest
entry of the target, against the closed form (which the tests hold to 1e-12 against 60 digits). A contestant that takes
longer than `LIMIT` seconds once is not repeated. Besides, the rates that a researcher meets: evaluations of one small
network per second, one time of a wide one, phase maps of the size of the paper.

    python benchmarks/exact.py            # all cases into benchmarks/results/
    python benchmarks/exact.py --quick    # one small case, nothing stored
    python benchmarks/exact.py --show     # tables from the stored numbers
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from common import command, describe, machine, table, timed
from scipy.integrate import solve_ivp

from deeplinear.core import Params
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.exact import correlations_of, eigensystem, phase_map, propagate, solve, stacked
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, TaskAligned
from deeplinear.probes import loss, product

POINTS, LIMIT = 200, 20.0


class Case(NamedTuple):
    """A problem with a start, and how far to go."""

    name: str
    make: Callable[[], tuple[Problem, Params]]
    horizon: float


def white(widths: tuple[int, int, int], lam: float, scale: float) -> tuple[Problem, Params]:
    """Two balanced layers in a random position to a random target of unit size."""
    target = np.random.default_rng(0).normal(size=(widths[2], widths[0])) / np.sqrt(widths[0])
    problem = Problem(DeepLinear(widths), SquaredDistance(target))
    return problem, LambdaBalanced(lam, 1.0, absolute_scale=scale)(problem.model, jax.random.key(1))


def aligned(depth: int, width: int, strength: float) -> tuple[Problem, Params]:
    """Balanced layers aligned with a random target."""
    target = np.random.default_rng(0).normal(size=(width, width)) / np.sqrt(width)
    problem = Problem(DeepLinear((width,) * (depth + 1)), SquaredDistance(target))
    return problem, TaskAligned(target, strength)(problem.model, jax.random.key(1))


CASES = (
    Case("two layers 4-2-2, lambda -2", lambda: white((4, 2, 2), -2.0, 0.5), 40.0),
    Case("two layers 4-2-2, lambda -100 (slow side)", lambda: white((4, 2, 2), -100.0, 0.5), 500.0),
    Case("two layers 8-8-8, lambda 0, scale 1e-8", lambda: white((8, 8, 8), 0.0, 1e-8), 200.0),
    Case("two layers 32-32-32, lambda 1", lambda: white((32, 32, 32), 1.0, 1.0), 40.0),
    Case("depth 3, aligned, width 8, from 1e-6", lambda: aligned(3, 8, 1e-6), 2e4),
)


def integrate(problem: Problem, params: Params, times: np.ndarray, method: str) -> np.ndarray:
    """Product at the last time by SciPy."""
    target = np.asarray(problem.loss.target)  # pyright: ignore[reportAttributeAccessIssue]
    shapes = [layer.shape for layer in params]
    cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]

    def split(y: np.ndarray) -> list[np.ndarray]:
        return [part.reshape(shape) for part, shape in zip(np.split(y, cuts), shapes, strict=True)]

    def field(_: float, y: np.ndarray) -> np.ndarray:
        layers = split(y)
        below = [np.eye(shapes[0][1])]
        for layer in layers:
            below.append(layer @ below[-1])
        back, speeds = below[-1] - target, []
        for position in range(len(layers) - 1, -1, -1):
            speeds.append(-(back @ below[position].T))
            back = layers[position].T @ back
        return np.concatenate([speed.ravel() for speed in reversed(speeds)])

    start = np.concatenate([np.ravel(layer) for layer in params])
    run = solve_ivp(field, (0, times[-1]), start, method, times, rtol=1e-10, atol=1e-14)
    whole = np.eye(shapes[0][1])
    for layer in split(run.y[:, -1]):
        whole = layer @ whole
    return whole


def measure(case: Case) -> dict[str, Any]:
    """Times and end errors of all contestants."""
    problem, params = case.make()
    times = np.linspace(0, case.horizon, POINTS)
    probes = (loss, product)
    result: dict[str, Any] = {"name": case.name}
    exact, timing = timed(lambda: solve(problem, params).trajectory(times, probes=probes))
    end = exact["product"][-1]
    scale = float(np.abs(np.asarray(problem.loss.target)).max())  # pyright: ignore[reportAttributeAccessIssue]
    result["exact"] = timing.to_json()
    solution = solve(problem, params)
    curve = jax.jit(jax.vmap(solution.product))
    _, timing = timed(lambda: curve(jnp.asarray(times)))
    result["exact curve"] = timing.to_json()
    run, timing = timed(lambda: simulate(problem, params, GradientFlow(1e-10), times=times, probes=probes), long=LIMIT)
    error = float(np.abs(run["product"][-1] - end).max()) / scale
    result["simulate"] = timing.to_json() | {"error": error, "gradients": int(run.stats["gradient_evaluations"])}
    method = "LSODA" if sum(layer.size for layer in params) <= 200 else "DOP853"
    whole, timing = timed(lambda: integrate(problem, params, times, method), 1, warm=False)
    result["scipy"] = timing.to_json() | {"error": float(np.abs(whole - end).max()) / scale, "method": method}
    return result


def rates() -> dict[str, Any]:
    """Evaluations of a small network, one time of a wide one, a phase map."""
    problem, params = white((4, 2, 2), 1.0, 1.0)
    system, factor = eigensystem(np.asarray(problem.loss.target), 1.0), stacked(params)  # pyright: ignore
    many = jax.jit(jax.vmap(lambda t: correlations_of(propagate(factor, system, t), 4).matrix))
    moments = jnp.linspace(0.0, 20.0, 100_000)
    _, small = timed(lambda: many(moments))
    problem, params = white((256, 256, 256), 1.0, 1.0)
    wide, target = stacked(params), problem.loss.target  # pyright: ignore[reportAttributeAccessIssue]
    _, large = timed(lambda: propagate(wide, eigensystem(target, 1.0), 3.0))
    rng = np.random.default_rng(0)
    maps = {}
    for widths in ((2, 2, 2), (2, 2, 4), (4, 2, 2)):
        goal, start = rng.normal(size=(widths[2], widths[0])), rng.normal(size=(widths[2], widths[0]))
        lams, scales = np.linspace(-9, 9, 50), np.linspace(0.4, 20, 50)
        _, timing = timed(lambda g=goal, s=start: phase_map(g, s, lams, scales, [0.01, 0.2, 1.0]))  # noqa: B023
        maps["-".join(map(str, widths))] = timing.to_json()
    return {"100,000 times of 4-2-2": small.to_json(), "one time of 256-256-256": large.to_json(), "phase maps": maps}


def show(data: dict[str, Any]) -> None:
    """Tables of stored numbers."""
    print(describe(data["machine"]), "\n")
    rows = []
    for case in data["cases"]:
        ours = case["exact"]["seconds"]
        peer, scipy = case["simulate"], case["scipy"]
        rows.append(
            [
                case["name"],
                1e3 * case["exact curve"]["seconds"],
                1e3 * ours,
                1e3 * peer["seconds"],
                peer["seconds"] / ours,
                1e3 * scipy["seconds"],
                scipy["seconds"] / ours,
                peer["error"],
                scipy["error"],
            ]
        )
    head = ("case", "curve ms", "exact ms", "simulate ms", "ratio", "scipy ms", "ratio", "error sim.", "error scipy")
    print(table(head, rows), "\n")
    rates = data["rates"]
    rows = [[name, rates[name]["seconds"]] for name in rates if name != "phase maps"]
    rows += [[f"phase map 50 x 50 x 3 of {name}", one["seconds"]] for name, one in rates["phase maps"].items()]
    print(table(("what", "seconds"), rows))


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All cases, kept one by one."""
    data: dict[str, Any] = {"machine": machine(), "rates": rates(), "cases": []}
    for case in CASES[:1] if quick else CASES:
        print(case.name, flush=True)
        data["cases"].append(measure(case))
        keep(data)
    return data


if __name__ == "__main__":
    command("exact", __doc__, "one small case", measure_all, show)
