r"""Trajectories that pass by saddles: cost and accuracy of the flow from near the origin, against SciPy.

The problem is the survey's network 11-6-6-6-6-4 (198 weights) from Gaussian weights of size 0.05 to T = 330, where the
largest Hessian eigenvalue is 199. The loss rests on three plateaus; what is wanted are the times at which the four
singular values of the target are learnt. Errors made before a plateau grow on it.

| contestant | what it is |
| --- | --- |
| flow | `simulate(...)` with `GradientFlow(rtol)`, every step recorded |
| DOP853 | `solve_ivp`, explicit of order 8, NumPy velocity, dense output |
| LSODA + Jacobian | `solve_ivp` with the Hessian as analytic Jacobian, dense output |

All tolerances are shown; compare those with which the error is at most 1e-4. The error is the largest of a learning
time, against the flow at rtol 1e-13; learning times are roots of the dense
output for SciPy, and of cubic interpolation between steps with the speeds as slopes for ours. All are warm; compile
time is told apart. SciPy has atol = rtol/100. Besides: 64 such networks, one for each seed, as one ensemble until the
loss has fallen to a millionth.

    python benchmarks/landscape.py            # all contestants into benchmarks/results/
    python benchmarks/landscape.py --quick    # one tolerance each, 8 networks, nothing stored
    python benchmarks/landscape.py --show     # tables from the stored numbers
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from common import Timing, case, command, print_cases, row, timed
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import brentq

from deeplinear.core import Params, flatten, unflatten
from deeplinear.dynamics import GradientFlow, ensemble, simulate, until
from deeplinear.landscape import diagonal_target
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.probes import loss, probe, singular_values

WIDTHS = (11, 6, 6, 6, 6, 4)
SIGMA = np.array([10.0, 8.0, 6.0, 4.0])
HORIZON = 330.0
NETWORKS = 64
REFERENCE, WITHIN = 1e-13, 1e-4
TITLE = "Learning times beside saddles"


def start(seed: int) -> Params:
    """Gaussian weights, layer after layer."""
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(0.05 * rng.standard_normal((out, inp))) for inp, out in itertools.pairwise(WIDTHS))


def task() -> Problem:
    """The network that learns the diagonal target."""
    return Problem(DeepLinear(WIDTHS), SquaredDistance(diagonal_target(jnp.asarray(SIGMA), 4, 11)))


@probe(dims=("weight",))
def weights(t: Any, params: Params, problem: Problem) -> jax.Array:
    """All entries of all layers."""
    return flatten(params)


@probe(dims=("speed",))
def speeds(t: Any, params: Params, problem: Problem) -> jax.Array:
    """Their derivatives."""
    return -flatten(problem.gradient(params))


SHAPES = tuple((out, inp) for inp, out in itertools.pairwise(WIDTHS))
CUTS = np.cumsum([out * inp for out, inp in SHAPES])[:-1]


def split(y: np.ndarray) -> list[np.ndarray]:
    """Layers of a flat state."""
    return [part.reshape(shape) for part, shape in zip(np.split(y, CUTS), SHAPES, strict=True)]


def velocity(_: float, y: np.ndarray) -> np.ndarray:
    """Right-hand side in NumPy: one pass forward, one back."""
    layers = split(y)
    below = [np.eye(WIDTHS[0])]
    for layer in layers:
        below.append(layer @ below[-1])
    back, found = TARGET - below[-1], []
    for position in range(len(layers) - 1, -1, -1):
        found.append(back @ below[position].T)
        back = layers[position].T @ back
    return np.concatenate([speed.ravel() for speed in reversed(found)])


TARGET = np.asarray(diagonal_target(jnp.asarray(SIGMA), 4, 11))


def crossings(state: Any, times: np.ndarray) -> list[float]:
    """Learning times as roots: `state(t)` is the flat state."""

    def strength(t: float, mode: int) -> float:
        product = np.eye(WIDTHS[0])
        for layer in split(state(t)):
            product = layer @ product
        return float(np.linalg.svd(product, compute_uv=False)[mode] - SIGMA[mode] / 2)

    found = []
    for mode in range(len(SIGMA)):
        values = np.array([strength(t, mode) for t in times])
        place = int(np.argmax(values >= 0))
        root: Any = brentq(strength, times[place - 1], times[place], args=(mode,), xtol=1e-12)
        found.append(float(root))
    return found


def ours(rtol: float) -> tuple[list[float], Timing, float]:
    """Learning times, seconds and gradients of one run of the flow."""
    problem, params = task(), start(1)
    probes = (loss, weights, speeds)
    run, timing = timed(lambda: simulate(problem, params, GradientFlow(rtol), horizon=HORIZON, every=1, probes=probes))
    state = CubicHermiteSpline(run.times, run["weights"], run["speeds"])
    return crossings(state, run.times), timing, float(run.stats["gradient_evaluations"])


def scipys(method: str, rtol: float) -> tuple[list[float], Timing, float]:
    """The same of SciPy; a Jacobian counts as a Hessian product for each column."""
    params = start(1)
    y = np.concatenate([np.ravel(layer) for layer in params])
    options: dict[str, Any] = {}
    if method == "LSODA":
        problem = task()
        hessian = jax.jit(lambda flat: -problem.hessian(unflatten(flat, SHAPES)))
        hessian(jnp.asarray(y)).block_until_ready()
        options["jac"] = lambda _, flat: np.asarray(hessian(jnp.asarray(flat)))
    run, timing = timed(
        lambda: solve_ivp(velocity, (0, HORIZON), y, method, rtol=rtol, atol=rtol / 100, dense_output=True, **options),
        1,
        warm=False,
    )
    count = run.nfev + 2 * len(y) * run.njev
    return crossings(run.sol, np.linspace(0, HORIZON, 1321)), timing, float(count)


def sweep(networks: int) -> dict[str, Any]:
    """Many seeds at once, to the end of learning."""
    problem, starts = task(), [start(seed) for seed in range(networks)]
    below = 1e-6 * 0.5 * float(np.sum(SIGMA**2))
    many, timing = timed(
        lambda: ensemble(
            problem, starts, GradientFlow(1e-8), every=1, until=until(loss, below=below), probes=(loss, singular_values)
        ),
        2,
    )
    ends = np.asarray(many.final_time)
    told = ", ".join(f"{len(who)} {name}" for name, who in many.outcomes().items())
    count = float(np.mean(many.stats["gradient_evaluations"]))
    return case(
        f"{networks} networks to the end of learning",
        f"One ensemble, at times {ends.min():.0f} to {ends.max():.0f}, median {np.median(ends):.0f}.",
        "none.",
        [row("ensemble", timing, evaluations=count, note=told)],
    )


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Our runs and those of the peers, then the sweep."""
    exact, rows = ours(REFERENCE)[0], []
    contestants = (
        ("simulate", ours, "explicit", (1e-8, 1e-6, 1e-10, 1e-12)),
        ("SciPy LSODA", functools.partial(scipys, "LSODA"), "implicit", (1e-8, 1e-6, 1e-10)),
        ("SciPy DOP853", functools.partial(scipys, "DOP853"), "explicit", (1e-8, 1e-6, 1e-10)),
    )
    for name, solve, kind, tolerances in contestants[:2] if quick else contestants:
        for rtol in tolerances[:1] if quick else tolerances:
            learning, timing, count = solve(rtol)
            error = float(np.abs(np.subtract(learning, exact)).max())
            rows.append(row(name, timing, evaluations=count, error=error, note=f"rtol {rtol:.0e}", kind=kind))
    told = ", ".join(f"{moment:.6f}" for moment in exact)
    about = f"The singular values are learnt at {told}."
    times = case("learning times", about, "largest error of a learning time; at most 1e-4.", rows, within=WITHIN)
    data = {"title": TITLE, "cases": [times]}
    keep(data)
    data["cases"].append(sweep(8 if quick else NETWORKS))
    return data


if __name__ == "__main__":
    command("landscape", __doc__, "one tolerance each, 8 networks", measure_all, print_cases)
