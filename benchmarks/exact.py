r"""Closed forms: phase maps and trajectories without integration, against solvers of the same flow.

**Phase maps.** Kernel distance and loss of two-layer networks over 200 values of $\lambda$, 200 absolute scales and 100
times, four million points, by `phase_map`. Peers run a part of the cells: vmapped diffrax and torchode a grid of 20 by
20 of them, SciPy and CVODE nine, one after another; they are scaled. Of diffrax loss and kernel distance are asked for,
of the others the layers only. The error is that of the loss over the cells that were run, in units of the largest loss
of the start, against the closed form for peers, and against DOP853 at 1e-12 on nine cells for the closed form.

**Trajectories.** One network at 200 times: `solve(...)` and its products in one compiled call, and
`solve(...).trajectory(...)` as it is called, which measures the hypotheses and gives loss and layers, against
`simulate`, which is what `follow` falls back to, and the best solvers. The error is that of the product at the last
time, relative to the largest entry of the target, against the closed form; the tests hold that to 1e-12 against 60
digits.

Peers take the loosest tolerance of a ladder with which they are within 1e-6; the closed form needs none and is exact to
rounding. A run is stopped after `CAP` seconds and scaled at the pace of its second half. About four minutes.

    python benchmarks/exact.py            # all cases into benchmarks/results/
    python benchmarks/exact.py --quick    # a small map and one network, nothing stored
    python benchmarks/exact.py --show     # tables from the stored numbers
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import peers
from common import case, command, device_name, print_cases, row, timed

from deeplinear.core import Params, flatten, unflatten
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.exact import phase_map, solve
from deeplinear.models import DeepLinear, LambdaBalanced, Problem, SquaredDistance, TaskAligned
from deeplinear.probes import loss, product

TITLE = "Closed forms: phase maps and trajectories"
WITHIN, CAP, QUICK_CAP = 1e-6, 10.0, 1.0
POINTS = 200
BEST = 1e-12
TRIED, ALONE = 20, 3
"""Cells in a row of the part that batched peers run, and that the others do."""
TIMES = (
    "The closed form is evaluated anew at every time, with matrices of twice the width, while a solver passes through "
)
TIMES += "all times on one way; where nothing is stiff and the error asked for is loose, the way is cheaper."


def map_starts(directions: np.ndarray, lams: np.ndarray, scales: np.ndarray) -> np.ndarray:
    r"""Layers of all cells, flat, scales first: $W_2W_1 = \alpha U_0S_0V_0^\top/\|S_0\|$, $a_2^2 - a_1^2 = \lambda$."""
    left, values, right = np.linalg.svd(directions, full_matrices=False)
    strengths = scales[:, None, None] * values / np.linalg.norm(values)
    size = np.abs(lams)[None, :, None]
    large = np.sqrt((size + np.sqrt(size**2 + 4 * strengths**2)) / 2)
    small = strengths / large
    upper = lams[None, :, None] > 0
    first, second = np.where(upper, small, large), np.where(upper, large, small)
    layers = (first[..., None] * right, left * second[..., None, :])
    return np.concatenate([layer.reshape(len(scales) * len(lams), -1) for layer in layers], axis=-1)


def phases(widths: tuple[int, int, int], side: int, moments: int, cap: float) -> dict[str, Any]:
    """One phase map."""
    inputs, _, outputs = widths
    rng = np.random.default_rng(0)
    target, directions = (rng.standard_normal((outputs, inputs)) for _ in range(2))
    if inputs == outputs and np.linalg.det(target) * np.linalg.det(directions) < 0:
        directions[0] *= -1
    lams, scales, times = np.linspace(-9, 9, side), np.linspace(0.4, 20, side), np.geomspace(0.01, 20, moments)
    found, timing = timed(lambda: phase_map(target, directions, lams, scales, times, match_det=False), long=30.0)
    shapes = ((widths[1], inputs), (outputs, widths[1]))

    def part(count: int) -> tuple[peers.Flow, np.ndarray]:
        chosen = np.linspace(0, side - 1, min(count, side)).round().astype(int)
        y0 = map_starts(directions, lams[chosen], scales[chosen])
        flow = peers.layer_flow(shapes, (np.broadcast_to(target, (len(y0), *target.shape)),), y0)
        return flow, np.asarray(found.loss)[:, chosen][:, :, chosen].reshape(moments, -1)

    def losses(states: np.ndarray) -> np.ndarray:
        return 0.5 * np.sum((peers.product_of(states, shapes) - target) ** 2, axis=(-2, -1))

    def judge(states: np.ndarray, exact: np.ndarray) -> float:
        return float(np.abs(losses(states) - exact).max() / np.max(np.asarray(found.loss)))

    few, of_few = part(ALONE)
    exact = [peers.scipy(few.member(i), times, BEST, 120.0, "DOP853").y for i in range(len(few.y0))]
    error = judge(np.stack([one for one in exact if one is not None], axis=1), of_few)
    rows = [row("phase_map", timing, error=error, note="kernel distance and loss")]
    many, of_many = part(TRIED)
    cells = side * side
    batched = partial(peers.contest, flow=many, end=times, within=WITHIN, cap=cap, members=cells / len(many.y0))
    batched = partial(batched, judge=lambda states: judge(states, of_many))
    for method, kind in (("Tsit5", "explicit"), ("Kvaerno5", "implicit")):
        adapter = partial(with_kernels, shapes, target, method)
        rows.append(batched(peers.Peer(f"diffrax vmapped {method}", adapter, ("diffrax",), kind)))
    tight = partial(with_kernels, shapes, target, "Dopri8")
    rows.append(batched(peers.Peer("diffrax vmapped Dopri8, 1e-10", tight, ("diffrax",)), within=1e-10))
    if device_name() == "cpu":
        rows.append(batched(peers.TORCHODE))
        for name, adapter, method, module in ALONE_ON_CPU:
            loop = partial(one_by_one, partial(adapter, method=method))
            peer = peers.Peer(name, loop, (module,), "implicit" if method in ("LSODA", "BDF") else "explicit")
            rows.append(
                peers.contest(
                    peer, few, times, lambda y: judge(y, of_few), within=WITHIN, cap=cap, members=cells / len(few.y0)
                )
            )
    name = "-".join(map(str, widths))
    return case(
        f"phase map of {name}",
        f"{side} x {side} cells, {moments} times.",
        "loss, in units of the largest loss; at most 1e-6.",
        rows,
        within=WITHIN,
    )


@partial(jax.jit, static_argnums=0)
def observed(shapes: Any, target: Any, states: Any) -> tuple[Any, Any]:
    """Loss and kernel distance from the first time, of states with times and cells first."""
    first, second = peers.layers_of(states, shapes)
    inner, outer = first.mT @ first, second @ second.mT

    def dot(i: Any, o: Any, j: Any, p: Any) -> Any:
        both = shapes[1][0] * jnp.sum(i * j, (-2, -1)) + shapes[0][1] * jnp.sum(o * p, (-2, -1))
        ends = [jnp.trace(one, axis1=-2, axis2=-1) for one in (i, o, j, p)]
        return both + ends[0] * ends[3] + ends[1] * ends[2]

    start = inner[:1], outer[:1]
    size = jnp.sqrt(dot(*start, *start) * dot(inner, outer, inner, outer))
    loss = 0.5 * jnp.sum((second @ first - target) ** 2, (-2, -1))
    return loss, 1 - dot(*start, inner, outer) / size


def with_kernels(
    shapes: Any, target: np.ndarray, method: str, flow: peers.Flow, end: Any, rtol: float, cap: float
) -> peers.Outcome:
    """Vmapped diffrax, and then what `phase_map` gives."""
    outcome = peers.diffrax(flow, end, rtol, cap, method)
    if outcome.y is None:
        return outcome
    states = jnp.asarray(outcome.y)
    _, timing = timed(lambda: observed(shapes, target, states), 1)
    return outcome._replace(seconds=outcome.seconds + timing.median)


ALONE_ON_CPU = (
    ("SciPy DOP853", peers.scipy, "DOP853", "scipy"),
    ("SciPy LSODA", peers.scipy, "LSODA", "scipy"),
    ("CVODE BDF, GMRES", peers.cvode, "BDF", "sksundae"),
)


def one_by_one(solver: Callable[..., peers.Outcome], flow: peers.Flow, end: Any, rtol: float, cap: float) -> Any:
    """All members of a flow after one another, as one outcome; evaluations are those of one member."""
    ran = [solver(flow.member(i), end, rtol, cap) for i in range(len(flow.y0))]
    states = [one.y for one in ran if one.y is not None]
    whole = np.stack(states, axis=-2) if len(states) == len(ran) else None
    count = float(np.mean([one.evaluations for one in ran if one.evaluations is not None]))
    return peers.Outcome(count, sum(one.seconds for one in ran), whole)


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
    Case("two layers 256-256-256, lambda 1, one time", lambda: white((256, 256, 256), 1.0, 1.0), 3.0),
    Case("depth 3, aligned, width 8, from 1e-6", lambda: aligned(3, 8, 1e-6), 2e4),
)


def trajectory(one: Case, cap: float) -> dict[str, Any]:
    """One network by all contestants."""
    problem, params = one.make()
    wide = sum(layer.size for layer in params) > 10_000
    times = np.array([one.horizon]) if wide else np.linspace(0, one.horizon, POINTS)[1:]
    probes, shapes = (loss, product), problem.model.shapes
    exact, timing = timed(lambda: solve(problem, params).trajectory(times, probes=probes))
    target = np.asarray(problem.loss.target)  # pyright: ignore[reportAttributeAccessIssue]
    end, scale = exact["product"][-1], float(np.abs(target).max())

    def judge(states: np.ndarray) -> float:
        return float(np.abs(peers.product_of(states, shapes)[-1] - end).max()) / scale

    rows = [row("exact, as called", timing, note="hypotheses measured, layers and loss too")]
    if len(params) == 2:

        def curve(layers: Params, times: Any) -> Any:
            return jax.vmap(solve(problem, layers, form="whitened").product)(times)

        _, timing = timed(partial(jax.jit(curve), params, jnp.asarray(times)))
        rows.insert(0, row("exact, compiled", timing, note="from the layers to the products"))
    else:
        found = jax.jit(jax.vmap(solve(problem, params).product))
        _, timing = timed(lambda: found(jnp.asarray(times)))
        rows.insert(0, row("exact, compiled", timing, note="products, modes found before"))

    def run(rtol: float, share: float) -> Any:
        return simulate(problem, params, GradientFlow(rtol), times=share * times, probes=probes)

    def gap(run: Any) -> float:
        return float(np.abs(run["product"][-1] - end).max()) / scale

    rows.append(peers.ours("simulate", run, gap, within=WITHIN, long=cap / 4)[0])
    flow = peers.layer_flow(shapes, (target,), np.asarray(flatten(params)))
    meet = partial(peers.contest, flow=flow, end=times, judge=judge, within=WITHIN, cap=cap)
    rows.append(peers.fastest(meet(peers.TSIT5), meet(peers.DOPRI8)))
    if device_name() == "cpu":
        rows.append(meet(peers.DOP853))
        if len(flow.y0) <= 200:
            hessian = jax.jit(lambda y: -problem.hessian(unflatten(y, shapes)))
            jac = lambda y: np.asarray(hessian(jnp.asarray(y)))  # noqa: E731
            jac(flow.y0)
            adapter = partial(peers.scipy, method="LSODA", jac=jac)
            rows.append(meet(peers.Peer("SciPy LSODA", adapter, ("scipy",), "implicit")))
        rows.append(meet(peers.BDF))
    return case(
        one.name,
        f"{len(times)} times to {one.horizon:g}.",
        "product at the last time, relative to the largest entry of the target; at most 1e-6.",
        rows,
        within=WITHIN,
        why=TIMES,
    )


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Maps, then networks, kept one by one."""
    data: dict[str, Any] = {"title": TITLE, "cases": []}
    cap, side, moments = (QUICK_CAP, 20, 10) if quick else (CAP, 200, 100)
    for widths in ((2, 2, 2),) if quick else ((2, 2, 2), (4, 2, 2)):
        print(widths, flush=True)
        data["cases"].append(phases(widths, side, moments, cap))
        keep(data)
    for one in CASES[:1] if quick else CASES:
        print(one.name, flush=True)
        data["cases"].append(trajectory(one, cap))
        keep(data)
    return data


if __name__ == "__main__":
    command("exact", __doc__, "a small map and one network", measure_all, print_cases)
