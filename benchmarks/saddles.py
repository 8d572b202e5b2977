r"""From saddle to saddle: `simulate` against other solvers on trajectories that start near the origin.

Two networks. *Wide*: five layers of 64 x 64 (20 480 weights) to a target of rank 4 with singular values 4, 3, 2, 1 in
random bases, from Gaussian layers of standard deviation 0.2/8: the loss rests on a plateau before each of the four is
learnt. *Survey*: 11-6-6-6-6-4 (198 weights) to singular values 10, 8, 6, 4 from Gaussian weights of size 0.05.

Ends: *escape*, where the last singular value passes half of its target, so that an error made on any plateau has grown
most; *settled*, at twenty times that time, the stiff end. The error is that of the product at
the end, relative in Frobenius norm, against this package at a tolerance of 1e-11 (wide: 1e-9); all must be within 1e-6
and take the loosest tolerance of a ladder that is. A Hessian product counts as two gradients, a
dense Jacobian as a Hessian product for each column.

Solvers with dense Jacobians (LSODA and Radau of SciPy, Kvaerno5 of diffrax, CVODE dense) take part where there are 198
weights, with the Hessian of the package as Jacobian where they take one; with 20 480 weights a Jacobian would have 3.4
GB. CVODE is matrix-free otherwise. A run is stopped after `CAP` seconds and scaled to the end time at the pace of its
second half; that of an implicit solver is then a lower bound. Descent is a loop in torch, 32 bits, at the rate
$0.3/(Ls_1^{2-2/L})$, for as many steps as the time holds; it does not follow the flow. About eight minutes.

    python benchmarks/saddles.py            # all into benchmarks/results/
    python benchmarks/saddles.py --quick    # the survey's network to the escape, nothing stored
    python benchmarks/saddles.py --show     # tables from the stored numbers
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp
import numpy as np
import peers
from common import case, command, device_name, print_cases, row

from deeplinear.core import Params, flatten, unflatten
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.probes import loss, singular_values

TITLE = "From saddle to saddle"
WITHIN, CAP, QUICK_CAP = 1e-6, 15.0, 2.0
LATER = 20
DENSE = 1000
"""Weights up to which dense Jacobians are tried."""


class Network(NamedTuple):
    """Layer sizes, singular values of the target, size of the weights at the start, tolerance of the reference."""

    name: str
    widths: tuple[int, ...]
    values: tuple[float, ...]
    entry: float
    reference: float


WIDE = Network("wide, 64 x 5", (64,) * 6, (4.0, 3.0, 2.0, 1.0), 0.2 / 8, 1e-9)
SURVEY = Network("survey, 11-6-6-6-6-4", (11, 6, 6, 6, 6, 4), (10.0, 8.0, 6.0, 4.0), 0.05, 1e-11)


def make(network: Network) -> tuple[Problem, Params]:
    """The problem and its start."""
    rng = np.random.default_rng(1)
    rank, (inputs, *_, outputs) = len(network.values), network.widths
    left, right = (np.linalg.qr(rng.standard_normal((size, rank)))[0] for size in (outputs, inputs))
    problem = Problem(DeepLinear(network.widths), SquaredDistance((left * network.values) @ right.T))
    pairs = itertools.pairwise(network.widths)
    return problem, tuple(jnp.asarray(network.entry * rng.standard_normal((out, inp))) for inp, out in pairs)


def escape(network: Network, problem: Problem, params: Params) -> float:
    """Time of the escape from the last saddle."""
    last = len(network.values) - 1
    rule = until(loss, below=0.05 * network.values[last] ** 2)
    run = simulate(problem, params, GradientFlow(1e-8), until=rule, every=1, probes=(loss, singular_values))
    return float(run.times[np.argmax(run["singular_values"][:, last] >= 0.5 * network.values[last])])


def measure(network: Network, settled: bool, cap: float) -> dict[str, Any]:
    """One network to one end."""
    problem, params = make(network)
    shapes, end = problem.model.shapes, escape(network, problem, params) * (LATER if settled else 1)
    flow = peers.layer_flow(shapes, (np.asarray(problem.loss.target),), np.asarray(flatten(params)))  # pyright: ignore

    def solve(rtol: float, share: float = 1.0) -> Any:
        return simulate(problem, params, GradientFlow(rtol), times=[share * end], probes=[loss])

    def product(run: Any) -> np.ndarray:
        return np.asarray(problem.product(tuple(map(jnp.asarray, run.params))))

    exact = product(solve(network.reference))

    def distance(found: np.ndarray) -> float:
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    def judge(y: np.ndarray) -> float:
        return distance(peers.product_of(y, shapes))

    rows = [peers.ours("simulate", solve, lambda run: distance(product(run)), within=WITHIN, long=cap / 4)[0]]
    meet = partial(peers.contest, flow=flow, end=end, judge=judge, within=WITHIN, cap=cap)
    rows += [meet(peers.TSIT5), meet(peers.DOPRI8)]
    if device_name() == "cpu":
        rows += [meet(one) for one in (peers.RK45, peers.DOP853, peers.BDF, peers.ADAMS)]
        rows += [meet(peers.TORCHDIFFEQ), meet(peers.TORCHODE)]
    rows += implicit(problem, flow, meet)
    if device_name() == "cpu":
        depth = len(shapes)
        rate = 0.3 / (depth * network.values[0] ** (2 - 2 / depth))
        rows.append(peers.by_descent(flow, end, rate, judge, cap=cap))
    return case(
        f"{network.name}, {'settled' if settled else 'escape'}",
        f"{len(flow.y0):,} weights to time {end:.4g}.",
        "product at the end, relative; at most 1e-6.",
        rows,
        within=WITHIN,
        stiff=settled,
        why=""
        if settled
        else "Up to the escape accuracy and not stability sets the steps; what is left is the order of the method.",
    )


def implicit(problem: Problem, flow: peers.Flow, meet: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Solvers with dense Jacobians, where these can be held."""
    size = len(flow.y0)
    names = ["diffrax Kvaerno5"]
    names += ["SciPy LSODA", "SciPy Radau", "CVODE BDF, dense"] if device_name() == "cpu" else []
    if size > DENSE:
        note = f"a dense Jacobian would have {size:,}² entries, {8e-9 * size**2:.1f} GB"
        return [row(name, None, note=note, kind="implicit") for name in names]
    hessian = jax.jit(lambda y: -problem.hessian(unflatten(y, problem.model.shapes)))

    def jac(y: np.ndarray) -> np.ndarray:
        return np.asarray(hessian(jnp.asarray(y)))

    jac(flow.y0)
    solvers: dict[str, Callable[..., peers.Outcome]] = {
        "diffrax Kvaerno5": partial(peers.diffrax, method="Kvaerno5"),
        "SciPy LSODA": partial(peers.scipy, method="LSODA", jac=jac),
        "SciPy Radau": partial(peers.scipy, method="Radau", jac=jac),
        "CVODE BDF, dense": partial(peers.cvode, method="BDF", jac=jac),
    }
    modules = {"diffrax": "diffrax", "SciPy": "scipy", "CVODE": "sksundae"}
    return [meet(peers.Peer(name, solvers[name], (modules[name.split()[0]],), "implicit")) for name in names]


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All cases, kept one by one."""
    data: dict[str, Any] = {"title": TITLE, "cases": []}
    every = [(network, settled) for network in (WIDE, SURVEY) for settled in (False, True)]
    for network, settled in [(SURVEY, False)] if quick else every:
        print(network.name, flush=True)
        data["cases"].append(measure(network, settled, QUICK_CAP if quick else CAP))
        keep(data)
    return data


if __name__ == "__main__":
    command("saddles", __doc__, "the survey's network to the escape, short runs", measure_all, print_cases)
