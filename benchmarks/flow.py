"""One small gradient flow: gradient evaluations and time to the same end error, with dense Jacobians among the peers.

Every contestant integrates from the same start to the same end time. For each, the loosest tolerance of a ladder is
taken whose product at the end differs from the reference by at most 1e-6 (relative, Frobenius); the reference is this
package at a tolerance of 1e-11. Gradient evaluations count a Hessian product as two, and a dense Jacobian as a Hessian
product for each column. What is stopped after `CAP` seconds is scaled to the end time at the pace of its second half,
and is a lower bound for implicit solvers. Descent is a loop in torch, 32 bits; it does not follow the flow. The large
cases are in `completion.py`. About seven minutes.

* Completion 30 x 30, rank 3, half observed, depths 2 and 3, Gaussian layers of size 0.05: to T = 200, to loss 1e-12.
* Two layers 10-5-3 on their slow side: lambda = -100, whitened regression, t = 500.

    python benchmarks/flow.py            # all cases into benchmarks/results/
    python benchmarks/flow.py --quick    # the two layers, short runs, nothing stored
    python benchmarks/flow.py --show     # tables from the stored numbers
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import peers
from common import case, command, device_name, print_cases

from deeplinear.core import Params, flatten, unflatten
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.models import (
    Completion,
    DeepLinear,
    Gaussian,
    LambdaBalanced,
    Problem,
    SquaredDistance,
    low_rank_target,
    random_mask,
)
from deeplinear.probes import loss

TITLE = "One small gradient flow to a stated end error"
WITHIN, REFERENCE, CAP, QUICK_CAP = 1e-6, 1e-11, 8.0, 1.0


class Case(NamedTuple):
    """A problem with its start and its end: a time, or a loss that is reached there."""

    name: str
    problem: Problem
    params: Params
    end: float | None = None
    below: float | None = None


def cases(quick: bool) -> Iterator[Case]:
    """The cases."""
    keys = jax.random.split(jax.random.key(0), 3)
    problem = Problem(DeepLinear((10, 5, 3)), SquaredDistance(low_rank_target(keys[0], (3, 10), 3)))
    yield Case("two layers, slow side, to 500", problem, LambdaBalanced(-100.0, 1.0)(problem.model, keys[2]), end=500.0)
    if quick:
        return
    losses = Completion(low_rank_target(keys[0], (30, 30), 3), random_mask(keys[1], (30, 30), 450))
    for depth in (2, 3):
        problem = Problem(DeepLinear((30,) * (depth + 1)), losses)
        params = Gaussian(0.05)(problem.model, keys[2])
        yield Case(f"completion 30 x 30, depth {depth}, to 200", problem, params, end=200.0)
        yield Case(f"completion 30 x 30, depth {depth}, to loss 1e-12", problem, params, below=1e-12)


def solvers(problem: Problem, y0: np.ndarray) -> list[peers.Peer]:
    """Those that need a dense Jacobian."""
    hessian = jax.jit(lambda y: -problem.hessian(unflatten(y, problem.model.shapes)))

    def jac(y: np.ndarray) -> np.ndarray:
        return np.asarray(hessian(jnp.asarray(y)))

    jac(y0)
    return [
        peers.Peer("SciPy LSODA", partial(peers.scipy, method="LSODA", jac=jac), ("scipy",), "implicit"),
        peers.Peer("CVODE BDF, dense", partial(peers.cvode, method="BDF", jac=jac), ("sksundae",), "implicit"),
    ]


def measure(one: Case, cap: float) -> dict[str, Any]:
    """One case."""
    problem, params, end = one.problem, one.params, one.end
    if end is None:
        assert one.below is not None
        rule = until(loss, below=one.below)
        end = float(simulate(problem, params, GradientFlow(1e-6), until=rule, every=10**9).final_time)
    shapes, losses = problem.model.shapes, problem.loss
    data = [np.asarray(losses.target)]  # pyright: ignore[reportAttributeAccessIssue]
    data += [np.asarray(losses.mask, dtype=float)] if isinstance(losses, Completion) else []
    flow = peers.layer_flow(shapes, tuple(data), np.asarray(flatten(params)))

    def solve(rtol: float, share: float = 1.0) -> Any:
        return simulate(problem, params, GradientFlow(rtol), times=[share * end], probes=[loss])

    def state(run: Any) -> np.ndarray:
        return np.asarray(flatten(tuple(map(jnp.asarray, run.params))))

    exact = peers.product_of(state(solve(REFERENCE)), shapes)

    def judge(y: np.ndarray) -> float:
        return float(np.linalg.norm(peers.product_of(y, shapes) - exact) / np.linalg.norm(exact))

    rows = [peers.ours("simulate", solve, lambda run: judge(state(run)), within=WITHIN, long=cap)[0]]
    meet = partial(peers.contest, flow=flow, end=end, judge=judge, within=WITHIN, cap=cap)
    rows += [meet(peers.TSIT5), meet(peers.DOPRI8)]
    if device_name() == "cpu":
        others = (peers.RK45, peers.DOP853, peers.BDF, peers.TORCHDIFFEQ, peers.TORCHODE)
        rows += [meet(peer) for peer in (*others, *solvers(problem, flow.y0))]
        depth = len(shapes)
        start = max(float(jnp.linalg.norm(layer, 2)) for layer in params) ** (2 * depth - 2)
        rate = 0.3 / (depth * max(float(np.linalg.norm(data[0], 2)) ** (2 - 2 / depth), start))
        rows.append(peers.by_descent(flow, end, rate, judge, cap=cap))
    return case(
        one.name,
        f"{len(flow.y0):,} weights to time {end:.4g}.",
        "product at the end, relative; at most 1e-6.",
        rows,
        within=WITHIN,
        stiff=True,
    )


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All cases, kept one by one."""
    data: dict[str, Any] = {"title": TITLE, "cases": []}
    for one in cases(quick):
        print(one.name, flush=True)
        data["cases"].append(measure(one, QUICK_CAP if quick else CAP))
        keep(data)
    return data


if __name__ == "__main__":
    command("flow", __doc__, "the two layers, short runs", measure_all, print_cases)
