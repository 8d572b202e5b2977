r"""Matrix completion as in the paper, over 20 seeds: `ensemble` against the solvers one would use instead.

The target is 100 x 100 of rank 5, 2000 entries are observed, layers are square, depths 2 to 4; target, mask and start
are drawn anew for each seed. Layers start as Gaussians whose product has entries of standard deviation 1e-2 or 1e-4.
All seeds are followed to the time at which the first of them has a mean square of 1e-5 or 1e-12 on the observed
entries. At the second end stability binds: fast directions have settled and slow ones have not. Depth 4 from 1e-4 to
the second end is left out: a single seed would take minutes.

The error is that of the product at the end, relative in Frobenius norm, against this package at a tolerance of 1e-9
(1e-8 at the second end), of the first seed; all must be within 1e-6 and take the loosest tolerance of a ladder (1e-4,
1e-5, …) that is. Gradients are those of one seed, a Hessian product counts as two.

| contestant | what it is |
| --- | --- |
| ensemble | `ensemble(...)` of the 20 seeds as it is called without thinking |
| simulate | `simulate(...)` of the first seed, times 20 |
| SciPy, diffrax | the faster of RK45 and DOP853, of Tsit5 and Dopri8: one seed, times 20 |
| CVODE | of scikit-sundae, the faster of BDF and Adams, matrix-free GMRES: one seed, times 20 |
| diffrax vmapped, torchode | Tsit5 on all seeds at once |
| torchdiffeq | dopri5: one seed, times 20 |
| descent | a loop of `backward` and `SGD.step` in torch, 32 bits, rate $0.3/(L\|W^\star\|^{2-2/L})$: one seed |

Dense Jacobians (LSODA, Radau, Kvaerno5) would have $(20\,000)^2$ entries and more, and take no part. A run of a peer is
stopped after `CAP` seconds, and scaled to the end time at the pace of its second half; that of CVODE is then a lower
bound. Descent does not follow the flow: its error is the distance of its end from that of the flow. Ours runs as many
of the 20 seeds as fit into `OURS` seconds, and is scaled likewise where these are fewer. Twenty minutes or more.

    python benchmarks/completion.py            # all cases into benchmarks/results/
    python benchmarks/completion.py --quick    # depth 2, one end, 4 seeds, nothing stored
    python benchmarks/completion.py --show     # tables from the stored numbers
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

from deeplinear.core import Params, flatten
from deeplinear.dynamics import GradientFlow, ensemble, simulate, until
from deeplinear.models import Completion, DeepLinear, MatchedGaussian, Problem, low_rank_target, random_mask
from deeplinear.probes import loss

TITLE = "Matrix completion over 20 seeds"
SIZE, RANK, OBSERVED, SEEDS = 100, 5, 2000, 20
WITHIN, REFERENCE = 1e-6, 1e-9
CAP, OURS = 4.0, 20.0
CASES = [
    (depth, alpha, square)
    for depth in (2, 3, 4)
    for alpha in (1e-2, 1e-4)
    for square in (1e-5, 1e-12)
    if (depth, alpha, square) != (4, 1e-4, 1e-12)
]
NOT_STIFF = "Before the fast directions have settled, accuracy and not stability sets the steps, and a method of "
NOT_STIFF += "high order in plain NumPy, whose products use both cores, is hard to beat; the ensemble gives each core "
NOT_STIFF += "a seed of its own."
ALONE = "Peers that take one seed at a time are timed on one and multiplied; the ensemble uses all cores."
LAUNCHES = "On an accelerator the products of 20 seeds take less time than it takes to start them. A step costs what "
LAUNCHES += "it starts, and ours also watches loss, spectral radius and records; it wins where it takes fewer steps."


class Seeds(NamedTuple):
    """Problems and starts of all seeds, and the same as a flow of the peers."""

    problems: list[Problem]
    params: list[Params]
    flow: peers.Flow
    rate: float


def draw(depth: int, alpha: float, seeds: int) -> Seeds:
    """Target, mask and start of each seed."""
    model, shape = DeepLinear((SIZE,) * (depth + 1)), (SIZE, SIZE)
    problems, starts = [], []
    for seed in range(seeds):
        keys = jax.random.split(jax.random.key(seed), 3)
        losses = Completion(low_rank_target(keys[0], shape, RANK), random_mask(keys[1], shape, OBSERVED))
        problems.append(Problem(model, losses))
        starts.append(MatchedGaussian(alpha, rule="product")(model, keys[2]))
    targets = np.stack([np.asarray(one.loss.target) for one in problems])
    masks = np.stack([np.asarray(one.loss.mask, dtype=float) for one in problems])
    flow = peers.layer_flow(model.shapes, (targets, masks), np.stack([np.asarray(flatten(one)) for one in starts]))
    size = float(np.linalg.norm(targets[0], 2))
    return Seeds(problems, starts, flow, 0.3 / (depth * size ** (2 - 2 / depth)))


def ours(drawn: Seeds, end: float, judge: Callable[[np.ndarray], float]) -> list[dict[str, Any]]:
    """The ensemble, and one seed after another."""
    seeds = len(drawn.problems)

    def solve(count: int, rtol: float, share: float = 1.0) -> Any:
        problems, params = drawn.problems[:count], drawn.params[:count]
        return ensemble(problems, params, GradientFlow(rtol), times=[share * end], probes=[loss])

    def single(rtol: float, share: float) -> Any:
        return simulate(drawn.problems[0], drawn.params[0], GradientFlow(rtol), times=[share * end], probes=[loss])

    def error(run: Any) -> float:
        return judge(np.asarray(flatten(tuple(map(jnp.asarray, run.params)))))

    name = "simulate, one after another"
    alone, rtol = peers.ours(name, single, error, within=WITHIN, long=peers.SHORT, members=seeds)
    solve(2, rtol, 1e-9)  # compiles
    _, pair = timed(partial(solve, 2, rtol), 1, warm=False)
    count = min(seeds, 2 * max(1, int(OURS / pair.median)))
    solve(count, rtol, 1e-9)
    many, timing = timed(partial(solve, count, rtol), 3, warm=False, long=OURS / 4)
    layers = tuple(jnp.asarray(layer[0]) for layer in many.params)
    note = f"rtol {rtol:.0e}"
    return [
        row(
            "ensemble",
            timing,
            scaled=seeds / count,
            evaluations=float(np.mean(many.stats["gradient_evaluations"])),
            error=judge(np.asarray(flatten(layers))),
            note=note if count == seeds else f"{note}; {count} of {seeds}",
        ),
        alone,
    ]


def measure(depth: int, alpha: float, square: float, seeds: int) -> dict[str, Any]:
    """One case."""
    drawn = draw(depth, alpha, seeds)
    problem, params, shapes = drawn.problems[0], drawn.params[0], drawn.problems[0].model.shapes
    rule = until(loss, below=0.5 * OBSERVED * square)
    end = float(simulate(problem, params, GradientFlow(1e-6), until=rule, every=10**9).final_time)
    best = simulate(
        problem, params, GradientFlow(REFERENCE if square > 1e-9 else 10 * REFERENCE), times=[end], probes=[loss]
    )
    exact = np.asarray(problem.product(tuple(map(jnp.asarray, best.params))))

    def judge(y: np.ndarray) -> float:
        found = peers.product_of(y if y.ndim == 1 else y[0], shapes)
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    rows = ours(drawn, end, judge)
    one = partial(peers.contest, flow=drawn.flow.member(0), end=end, judge=judge, within=WITHIN, cap=CAP, members=seeds)
    together = partial(peers.contest, flow=drawn.flow, end=end, judge=judge, within=WITHIN, cap=CAP)
    rows.append(together(peers.TSIT5) | {"contestant": "diffrax vmapped Tsit5"})
    if device_name() == "cpu":  # elsewhere a NumPy loop measures the wrong machine
        rows.append(peers.fastest(one(peers.TSIT5), one(peers.DOPRI8)))
        rows.append(peers.fastest(one(peers.RK45), one(peers.DOP853)))
        rows.append(peers.fastest(one(peers.BDF), one(peers.ADAMS)))
        rows += [one(peers.TORCHDIFFEQ), together(peers.TORCHODE)]
        rows.append(peers.by_descent(drawn.flow.member(0), end, drawn.rate, judge, cap=CAP, members=seeds))
    return case(
        f"depth {depth}, {alpha:g}, to {square:g}",
        f"{seeds} seeds to time {end:.4g}. {ALONE}",
        "product of the first seed at the end, relative; at most 1e-6.",
        rows,
        within=WITHIN,
        stiff=square < 1e-9,
        why=LAUNCHES if device_name() != "cpu" else "" if square < 1e-9 else NOT_STIFF,
    )


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All cases, kept one by one."""
    data: dict[str, Any] = {"title": TITLE, "cases": []}
    for depth, alpha, square in CASES[:1] if quick else CASES:
        print(depth, alpha, square, flush=True)
        data["cases"].append(measure(depth, alpha, square, 4 if quick else SEEDS))
        keep(data)
    return data


if __name__ == "__main__":
    command("completion", __doc__, "depth 2, one end, 4 seeds", measure_all, print_cases)
