"""Gradient flow: gradient evaluations and time to the same end error, against the peers, in one run.

Every contestant integrates from the same start to the same end time, the time at which the flow reaches the given loss.
For each, the loosest tolerance of a ladder is taken whose product at the end differs from the reference by at most 1e-6
(relative, Frobenius); the reference is this package at rtol 1e-11 (case b: 1e-9). A run that would take longer than the
cap is not finished: its evaluations up to there are a lower bound, shown with a `>`. Times are of warm, compiled runs.

    python benchmarks/flow.py [--quick] [--cases a,b,c] [--cap SECONDS]     measure and store
    python benchmarks/flow.py --show                                        print the stored tables

Cases:
* a: completion 30 x 30, rank 3, half observed, depths 2 and 3, Gaussian layers of std 0.05; to T = 200, to loss 1e-12.
* b: completion 100 x 100, rank 5, one in five observed, depths 2 to 4, entries of the initial product of std 1e-2 and
  1e-4; to masked mean square 1e-5 and 1e-12.
* c: two layers 10-5-3 on their slow side: lambda = -100, whitened regression, t = 500.

Gradient evaluations count Hessian products (of the spectral radius) as two.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from common import describe, device_name, load, machine, results_path, save, table
from scipy.integrate import solve_ivp

from deeplinear.core import Params, flatten, unflatten
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.models import (
    Completion,
    DeepLinear,
    Gaussian,
    LambdaBalanced,
    MatchedGaussian,
    Problem,
    SquaredDistance,
    low_rank_target,
    random_mask,
)
from deeplinear.probes import loss

END_ERROR = 1e-6
LADDER = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9)


class Case(NamedTuple):
    """A problem with its start, end time and reference product."""

    name: str
    problem: Problem
    params: Params
    end: float
    product: np.ndarray
    small: bool


class Outcome(NamedTuple):
    """What one run gave; `finished` is False where the cap ended it."""

    evaluations: int | None
    seconds: float
    product: np.ndarray | None
    finished: bool = True


def gradient_in_numpy(case: Case) -> Callable[[np.ndarray], np.ndarray]:
    """The right-hand side in plain NumPy, for peers that do not speak JAX."""
    shapes = case.problem.model.shapes
    sizes = np.cumsum([0, *(r * c for r, c in shapes)])
    target = np.asarray(case.problem.loss.target)
    mask = np.asarray(case.problem.loss.mask) if isinstance(case.problem.loss, Completion) else 1.0

    def field(y: np.ndarray) -> np.ndarray:
        layers = [y[a:b].reshape(s) for a, b, s in zip(sizes[:-1], sizes[1:], shapes, strict=True)]
        prefixes = [layers[0]]
        for layer in layers[1:]:
            prefixes.append(layer @ prefixes[-1])
        backward = mask * (prefixes[-1] - target)
        parts = []
        for position in range(len(layers) - 1, 0, -1):
            parts.append((backward @ prefixes[position - 1].T).ravel())
            backward = layers[position].T @ backward
        parts.append(backward.ravel())
        return -np.concatenate(parts[::-1])

    return field


def product_of(case: Case, y: Any) -> np.ndarray:
    return np.asarray(case.problem.product(unflatten(jnp.asarray(y), case.problem.model.shapes)))


def ours(case: Case, rtol: float, cap: float) -> Outcome:
    method = GradientFlow(rtol)
    simulate(case.problem, case.params, method, times=[case.end * 1e-9], probes=[loss])  # compiles
    run = simulate(case.problem, case.params, method, times=[case.end], wall_limit=cap, probes=[loss])
    return Outcome(
        run.stats["gradient_evaluations"],
        run.stats["seconds"],
        np.asarray(case.problem.product(tuple(jnp.asarray(w) for w in run.params))),
        run.result.finished,
    )


@eqx.filter_jit
def _diffrax(problem: Problem, y: jax.Array, end: jax.Array, rtol: jax.Array, solver: Any) -> Any:
    shapes = problem.model.shapes

    def field(t: Any, y: Any, args: Any) -> Any:
        return -flatten(problem.gradient(unflatten(y, shapes)))

    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        solver,
        0.0,
        end,
        None,
        y,
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol * 1e-3),
        max_steps=None,
        adjoint=diffrax.ForwardMode(),
        throw=False,
    )


def with_diffrax(case: Case, rtol: float, cap: float, solver: Any, stages: int) -> Outcome:
    y = flatten(case.params)
    # A solve cannot be interrupted: find how far it comes in the cap by doubling the end time.
    end = case.end / 2**12

    def call(end: float) -> Any:
        return _diffrax(case.problem, y, jnp.asarray(end), jnp.asarray(rtol), solver)

    jax.block_until_ready(call(end).ys)
    while True:
        end = min(2 * end, case.end)
        begin = time.perf_counter()
        solution = call(end)
        jax.block_until_ready(solution.ys)
        seconds = time.perf_counter() - begin
        evaluations = int(solution.stats["num_steps"]) * stages + 1 if stages else None
        if end >= case.end:
            return Outcome(evaluations, seconds, product_of(case, solution.ys[-1]))
        if 2 * seconds > cap:
            return Outcome(evaluations, seconds, None, finished=False)


class OverTime(Exception):
    """The cap was reached."""


def with_scipy(case: Case, rtol: float, cap: float, method: str) -> Outcome:
    plain = gradient_in_numpy(case)
    count, begin = 0, time.perf_counter()

    def field(_: float, y: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        if time.perf_counter() - begin > cap:
            raise OverTime
        return plain(y)

    settings: dict[str, Any] = {}
    if method in ("LSODA", "BDF"):
        hessian = jax.jit(lambda y: -case.problem.hessian(unflatten(y, case.problem.model.shapes)))
        settings["jac"] = lambda _, y: np.asarray(hessian(jnp.asarray(y)))
        settings["jac"](0.0, np.asarray(flatten(case.params)))
        begin = time.perf_counter()
    start = np.asarray(flatten(case.params))
    try:
        solution = solve_ivp(field, (0.0, case.end), start, method=method, rtol=rtol, atol=rtol * 1e-3, **settings)
    except OverTime:
        return Outcome(count, time.perf_counter() - begin, None, finished=False)
    return Outcome(count, time.perf_counter() - begin, product_of(case, solution.y[:, -1]), bool(solution.success))


def with_torch(case: Case, rtol: float, cap: float) -> Outcome:
    import torch
    import torchdiffeq

    shapes = case.problem.model.shapes
    target = torch.tensor(np.asarray(case.problem.loss.target))
    masked = isinstance(case.problem.loss, Completion)
    mask = torch.tensor(np.asarray(case.problem.loss.mask)) if masked else torch.ones_like(target)
    sizes = [r * c for r, c in shapes]
    count, begin = 0, time.perf_counter()

    def field(_: Any, y: Any) -> Any:
        nonlocal count
        count += 1
        if time.perf_counter() - begin > cap:
            raise OverTime
        layers = [part.reshape(s) for part, s in zip(torch.split(y, sizes), shapes, strict=True)]
        prefixes = [layers[0]]
        for layer in layers[1:]:
            prefixes.append(layer @ prefixes[-1])
        backward = mask * (prefixes[-1] - target)
        parts = []
        for position in range(len(layers) - 1, 0, -1):
            parts.append((backward @ prefixes[position - 1].T).reshape(-1))
            backward = layers[position].T @ backward
        parts.append(backward.reshape(-1))
        return -torch.cat(parts[::-1])

    start = torch.tensor(np.asarray(flatten(case.params)))
    times = torch.tensor([0.0, case.end], dtype=torch.float64)
    try:
        with torch.no_grad():
            states = torchdiffeq.odeint(field, start, times, rtol=rtol, atol=rtol * 1e-3, method="dopri5")
    except OverTime:
        return Outcome(count, time.perf_counter() - begin, None, finished=False)
    return Outcome(count, time.perf_counter() - begin, product_of(case, states[-1].numpy()))


@jax.jit
def _descend(problem: Problem, y: jax.Array, rate: jax.Array, steps: jax.Array) -> jax.Array:
    shapes = problem.model.shapes
    return jax.lax.fori_loop(0, steps, lambda _, y: y - rate * flatten(problem.gradient(unflatten(y, shapes))), y)


def by_descent(case: Case, cap: float) -> Outcome:
    """Plain descent at the largest customary rate; its error is that of its step, whatever the cost."""
    depth = len(case.params)
    size = float(np.linalg.norm(np.asarray(case.problem.loss.target), 2))
    start = max(float(jnp.linalg.norm(layer, 2)) for layer in case.params) ** (2 * depth - 2)
    rate = 0.3 / (depth * max(size ** (2 - 2 / depth), start))
    steps = int(np.ceil(case.end / rate))
    y = flatten(case.params)
    call = partial(_descend, case.problem, y, jnp.asarray(rate))
    jax.block_until_ready(call(jnp.asarray(1)))
    begin = time.perf_counter()
    jax.block_until_ready(call(jnp.asarray(200)))
    each = (time.perf_counter() - begin) / 200
    if each * steps > cap:
        return Outcome(steps, each * steps, None, finished=False)
    begin = time.perf_counter()
    end = jax.block_until_ready(call(jnp.asarray(steps)))
    return Outcome(steps, time.perf_counter() - begin, product_of(case, end))


def contestants(case: Case) -> dict[str, Callable[[float, float], Outcome]]:
    result: dict[str, Callable[[float, float], Outcome]] = {
        "deeplinear auto": partial(ours, case),
        "diffrax Tsit5": partial(with_diffrax, case, solver=diffrax.Tsit5(), stages=6),
        "diffrax Dopri8": partial(with_diffrax, case, solver=diffrax.Dopri8(), stages=13),
        "SciPy RK45": partial(with_scipy, case, method="RK45"),
        "SciPy DOP853": partial(with_scipy, case, method="DOP853"),
        "torchdiffeq dopri5": partial(with_torch, case),
    }
    if case.small:  # dense Jacobians
        result["diffrax Kvaerno5"] = partial(with_diffrax, case, solver=diffrax.Kvaerno5(), stages=0)
        result["SciPy LSODA"] = partial(with_scipy, case, method="LSODA")
        result["SciPy BDF"] = partial(with_scipy, case, method="BDF")
    return result


def measure(case: Case, cap: float, skip: tuple[str, ...]) -> dict[str, Any]:
    rows = {}
    for name, run in contestants(case).items():
        if name in skip:
            continue
        for rtol in LADDER:
            outcome = run(rtol, cap)
            error = None
            if outcome.product is not None:
                error = float(np.linalg.norm(outcome.product - case.product) / np.linalg.norm(case.product))
            if not outcome.finished or error is None or error <= END_ERROR:
                break
        rows[name] = {
            "rtol": rtol,
            "evaluations": outcome.evaluations,
            "seconds": outcome.seconds,
            "error": error,
            "finished": outcome.finished,
        }
        print(f"  {case.name}: {name}: {rows[name]}", flush=True)
    outcome = by_descent(case, cap)
    error = None
    if outcome.product is not None:
        error = float(np.linalg.norm(outcome.product - case.product) / np.linalg.norm(case.product))
    rows["gradient descent"] = {
        "rtol": None,
        "evaluations": outcome.evaluations,
        "seconds": outcome.seconds,
        "error": error,
        "finished": outcome.finished,
    }
    print(f"  {case.name}: gradient descent: {rows['gradient descent']}", flush=True)
    return {"end": case.end, "weights": int(flatten(case.params).size), "rows": rows}


def finished_case(
    name: str, problem: Problem, params: Params, *, below: float | None, end: float | None, small: bool
) -> Case:
    """The end time, where the flow reaches the loss `below` unless it is given, and the reference product there."""
    if end is None:
        assert below is not None
        rule = until(loss, below=below)
        end = float(simulate(problem, params, GradientFlow(1e-6), until=rule, every=10**9).final_time)
    run = simulate(problem, params, GradientFlow(1e-11 if small else 1e-9), times=[end])
    product = np.asarray(problem.product(tuple(jnp.asarray(layer) for layer in run.params)))
    return Case(name, problem, params, end, product, small)


def cases(which: str, quick: bool) -> Any:
    keys = jax.random.split(jax.random.key(0), 3)
    if "a" in which:
        target, mask = low_rank_target(keys[0], (30, 30), 3), random_mask(keys[1], (30, 30), 450)
        for depth in (3,) if quick else (2, 3):
            problem = Problem(DeepLinear((30,) * (depth + 1)), Completion(target, mask))
            params = Gaussian(0.05)(problem.model, keys[2])
            yield finished_case(f"a depth {depth}, T = 200", problem, params, below=None, end=200.0, small=True)
            if not quick:
                yield finished_case(f"a depth {depth}, to 1e-12", problem, params, below=1e-12, end=None, small=True)
    if "b" in which:
        target, mask = low_rank_target(keys[0], (100, 100), 5), random_mask(keys[1], (100, 100), 2000)
        for depth in (2,) if quick else (2, 3, 4):
            problem = Problem(DeepLinear((100,) * (depth + 1)), Completion(target, mask))
            for alpha in (1e-2,) if quick else (1e-2, 1e-4):
                params = MatchedGaussian(alpha, rule="product")(problem.model, keys[2])
                for square in (1e-5,) if quick else (1e-5, 1e-12):
                    label = f"b depth {depth}, {alpha:g}, to {square:g}"
                    yield finished_case(label, problem, params, below=1000 * square, end=None, small=False)
    if "c" in which:
        target = low_rank_target(keys[0], (3, 10), 3)
        problem = Problem(DeepLinear((10, 5, 3)), SquaredDistance(target))
        params = LambdaBalanced(-100.0, 1.0)(problem.model, keys[2])
        yield finished_case("c slow side, t = 500", problem, params, below=None, end=500.0, small=True)


def show(results: dict[str, Any]) -> str:
    parts = [describe(results["machine"])]
    head = ["contestant", "rtol", "evaluations", "ratio", "seconds", "ratio", "end error"]
    for name, case in results["cases"].items():
        mine = case["rows"]["deeplinear auto"]
        rows = []
        for contestant, row in case["rows"].items():
            sign = "" if row["finished"] else "> "
            counted = row["evaluations"] is not None
            rows.append(
                [
                    contestant,
                    None if row["rtol"] is None else f"{row['rtol']:.0e}",
                    f"{sign}{row['evaluations']:,}" if counted else None,
                    f"{sign}{row['evaluations'] / mine['evaluations']:.1f}" if counted else None,
                    f"{sign}{row['seconds']:.2f}",
                    f"{sign}{row['seconds'] / mine['seconds']:.1f}",
                    row["error"],
                ]
            )
        parts.append(f"{name} (t = {case['end']:.4g}, {case['weights']} weights)\n\n" + table(head, rows))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Gradient evaluations and time to the same end error.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cases", default="abc")
    parser.add_argument("--cap", type=float, default=40.0, help="seconds for one run of a peer")
    parser.add_argument("--skip", default="", help="contestants to leave out, separated by commas")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    path = results_path("flow")
    if options.show:
        stored = load(path)
        print(show(stored) if stored else f"There are no stored results for {device_name()}.")
        return
    results: dict[str, Any] = {"machine": machine(), "cap": options.cap, "cases": {}}
    if not options.quick and (stored := load(path)):
        results["cases"] = stored["cases"]
    for case in cases(options.cases, options.quick):
        results["cases"][case.name] = measure(case, options.cap, tuple(options.skip.split(",")))
        if not options.quick:
            save(path, results)
    print(show(results))


if __name__ == "__main__":
    main()
