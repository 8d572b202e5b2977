r"""Distances of 1,000 pairs of matrices in the geometry of deep linear networks.

Pairs have singular values between $e^{-1}$ and $e$, and polar factors turned against each other in every plane by up to
0.8 of half a turn: no closed form applies. Depths 2, 3, 5 and infinity.

| contestant | what it does |
| --- | --- |
| distances | ours, all pairs in one call: batched Gauss collocation |
| distance | ours, one pair at a time |
| solve_bvp | SciPy's collocation of order four with control of the residual, all nodes of a mesh in one call |
| solve_ivp + root | shooting: SciPy's DOP853 from a momentum that its hybrid Powell method corrects |

All solve the same Hamiltonian equations, evaluated by the same NumPy function, from the same first path (shooting from
the momentum at its start): SciPy's rows tell of the method, not of how the equations are written. They run on the first
few pairs and are scaled. The error is the largest relative difference of a length from that of shooting with
tolerances of 1e-13, on the first few pairs; the least accuracy asked of all is 1e-9.

On positive definite matrices depth two is Bures–Wasserstein, in closed form: `distances` against geomstats on the same
stacks of pairs (its distance, times √2). The error there is against SciPy's square roots, pair by pair.

    python benchmarks/distances.py            # all into benchmarks/results/, five minutes or so
    python benchmarks/distances.py --quick    # two cases, few pairs, nothing stored
    python benchmarks/distances.py --show     # tables from the stored numbers
"""

import importlib
import math
import os
import warnings
from collections.abc import Callable
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)
import numpy as np
import scipy.integrate
import scipy.linalg
import scipy.optimize
from common import case, case_table, command, describe, row, timed

from deeplinear.geometry import bures_distance, distance, distances
from deeplinear.geometry._curvature import field, velocities_of
from deeplinear.geometry._logarithm import generator_of, planes_between
from deeplinear.geometry._paths import Paths

DEPTHS = (2, 3, 5, math.inf)
SIZES = {2: 1000, 3: 1000, 4: 100}
"""Pairs for each size of matrix."""

ALONE = {2: 50, 3: 20, 4: 10}
FEW = {2: 3, 3: 2, 4: 1}
"""Pairs done one at a time by us, and by SciPy."""

BVP, SHOT, TIGHT = 1e-7, 1e-9, 1e-13
"""Tolerances of SciPy: of the boundary value problem, of shooting, of the reference."""


def draw(size: int, count: int, *, positive: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Pairs, stacked."""
    rng = np.random.default_rng(size)
    frames = np.linalg.qr(rng.standard_normal((4, count, size, size)))[0]
    generator = np.zeros((count, size, size))
    for k in range(0, size - 1, 2):
        generator[:, k + 1, k] = rng.uniform(0, 0.8, count) * math.pi
    ends = [(frame * np.exp(rng.uniform(-1, 1, (count, 1, size)))) @ np.swapaxes(frame, 1, 2) for frame in frames[2:]]
    if positive:
        return ends[0], ends[1]
    turn = frames[1] @ scipy.linalg.expm(generator - np.swapaxes(generator, 1, 2)) @ np.swapaxes(frames[1], 1, 2)
    return frames[0] @ ends[0], frames[0] @ turn @ ends[1]


def first_path(start: np.ndarray, end: np.ndarray, rate: float) -> np.ndarray:
    """States of the first path at 17 times evenly spaced, times last."""
    generator = generator_of(planes_between(start, end), len(start))
    mesh = Paths(start[None], end[None], generator[None]).mesh(rate, 16)
    return mesh.states[0].reshape(17, -1).T


def length_of(start: np.ndarray, momentum: np.ndarray, depth: float) -> float:
    """Length from the momentum of the normalised metric, in the metric of layers."""
    squared = np.sum(momentum * velocities_of(1 / depth, start[None], momentum[None])[0])
    return math.sqrt(squared) / (1.0 if math.isinf(depth) else math.sqrt(depth))


def boundary(start: np.ndarray, end: np.ndarray, depth: float) -> float:
    """The length by SciPy's boundary value solver."""
    rate, half, shape = 1 / depth, start.size, (2, *start.shape)

    def equations(_: np.ndarray, states: np.ndarray) -> np.ndarray:
        return field(rate, states.T.reshape(-1, *shape)).reshape(-1, 2 * half).T

    def missed(first: np.ndarray, last: np.ndarray) -> np.ndarray:
        return np.append(first[:half] - start.ravel(), last[:half] - end.ravel())

    times = np.linspace(0, 1, 17)
    guess = first_path(start, end, rate)
    found = scipy.integrate.solve_bvp(equations, missed, times, guess, tol=BVP, max_nodes=100_000)
    return length_of(start, found.y[half:, 0].reshape(start.shape), depth) if found.success else math.nan


def shooting(start: np.ndarray, end: np.ndarray, depth: float, tolerance: float, first: Any = None) -> float:
    """The length by integration from the start, with the momentum corrected until the end is met."""
    rate, half, shape = 1 / depth, start.size, (1, 2, *start.shape)

    def missed(momentum: np.ndarray) -> np.ndarray:
        flow = lambda _, state: field(rate, state.reshape(shape)).ravel()  # noqa: E731
        state = np.append(start.ravel(), momentum)
        found = scipy.integrate.solve_ivp(flow, (0, 1), state, method="DOP853", rtol=tolerance, atol=tolerance / 10)
        return found.y[:half, -1] - end.ravel()

    guess = first_path(start, end, rate)[half:, 0] if first is None else np.ravel(first)
    # Differences of the integration are as rough as its tolerance.
    found = scipy.optimize.root(missed, guess, tol=1e-12, options={"eps": 10 * tolerance})
    return length_of(start, found.x.reshape(start.shape), depth) if np.max(np.abs(found.fun)) < 1e-7 else math.nan


def apart(lengths: Any, wanted: np.ndarray) -> float:
    """Largest relative difference."""
    return float(np.max(np.abs(np.asarray(lengths)[: len(wanted)] / wanted - 1)))


def numeric(size: int, depth: float, count: int, few: int, alone: int) -> dict[str, Any]:
    """All contestants on pairs without a closed form."""
    starts, ends = draw(size, count)
    some = list(zip(starts[:few], ends[:few], strict=True))
    from deeplinear.geometry import geodesic_between

    momenta = [geodesic_between(a, b, depth, normalised=True).momentum for a, b in some]
    wanted = np.array([shooting(a, b, depth, TIGHT, p) for (a, b), p in zip(some, momenta, strict=True)])
    ours, timing = timed(lambda: distances(starts, ends, depth).lengths)
    found = distances(starts, ends, depth)
    note = f"{int(found.converged.sum())} of {count} found, {int(found.careful.sum())} with the end approached"
    rows = [
        row("distances", timing, error=apart(ours, wanted), note=f"{note}; residual {float(found.residuals.max()):.1g}")
    ]

    def each(one: Callable[[np.ndarray, np.ndarray], float], pairs: int) -> Callable[[], list[float]]:
        return lambda: [one(a, b) for a, b in zip(starts[:pairs], ends[:pairs], strict=True)]

    lengths, timing = timed(each(lambda a, b: distance(a, b, depth), alone), 3)
    rows.append(
        row(
            "distance, one at a time", timing, scaled=count / alone, error=apart(lengths, wanted), note=f"{alone} pairs"
        )
    )
    for name, one, tolerance in (
        ("solve_bvp", lambda a, b: boundary(a, b, depth), BVP),
        ("solve_ivp + root", lambda a, b: shooting(a, b, depth, SHOT), SHOT),
    ):
        lengths, timing = timed(each(one, few), 2, warm=False, long=5.0)
        missing = int(np.sum(np.isnan(lengths)))
        error = None if missing else apart(lengths, wanted)
        note = f"{few} pairs, tolerance {tolerance:g}" + (f"; {missing} not found" if missing else "")
        rows.append(row(name, timing, scaled=count / few, error=error, note=note))
    word = "infinite depth" if math.isinf(depth) else f"depth {depth}"
    about = f"{count} pairs of matrices with {size} rows."
    measure = f"largest relative difference of the first {few} lengths from shooting with {TIGHT:g}; at most 1e-9."
    return case(f"{size} rows, {word}", about, measure, rows)


def theirs(size: int) -> Any:
    """The Bures–Wasserstein metric of geomstats, whose import asks NumPy for a name it has given up."""
    os.environ.setdefault("GEOMSTATS_BACKEND", "numpy")
    if not hasattr(np, "trapz"):
        setattr(np, "trapz", np.trapezoid)  # noqa: B010
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = importlib.import_module("geomstats.geometry.spd_matrices")
    return module.SPDBuresWassersteinMetric(module.SPDMatrices(size, equip=False))


def positive(size: int, count: int) -> dict[str, Any]:
    """Depth two on positive definite matrices."""
    starts, ends = draw(size, count, positive=True)
    few = min(count, 20)
    roots = [[np.real(scipy.linalg.sqrtm(m)) for m in part[:few]] for part in (starts, ends)]
    wanted = np.array(
        [math.sqrt(2) * np.linalg.norm(a - b @ scipy.linalg.polar(b @ a)[0]) for a, b in zip(*roots, strict=True)]
    )
    ours, timing = timed(lambda: distances(starts, ends, 2).lengths, 5)
    rows = [row("distances", timing, error=apart(ours, wanted), note="all checks included")]
    lengths, timing = timed(
        lambda: [math.sqrt(2) * float(bures_distance(a, b)) for a, b in zip(starts[:few], ends[:few], strict=True)]
    )
    rows.append(
        row(
            "bures_distance, one at a time",
            timing,
            scaled=count / few,
            error=apart(lengths, wanted),
            note=f"{few} pairs",
        )
    )
    try:
        metric = theirs(size)
    except ImportError as error:
        rows.append(row("geomstats", None, note=f"not there: {error}"))
    else:
        lengths, timing = timed(lambda: math.sqrt(2) * np.asarray(metric.dist(starts, ends)), 5)
        rows.append(row("geomstats", timing, error=apart(lengths, wanted), note="the whole stack in one call"))
    measure = f"largest relative difference of the first {few} lengths from SciPy's square roots; at most 1e-9."
    return case(f"positive definite, {size} rows", f"{count} pairs, depth two, in closed form.", measure, rows)


def measure(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All cases, stored one after the other."""
    data: dict[str, Any] = {"title": "Distances of many pairs", "cases": []}
    plans: list[Callable[[], dict[str, Any]]] = []
    for size in (2,) if quick else tuple(SIZES):
        for depth in (3,) if quick else DEPTHS:
            count, few, alone = (50, 1, 5) if quick else (SIZES[size], FEW[size], ALONE[size])
            plans.append(lambda s=size, n=depth, c=count, f=few, o=alone: numeric(s, n, c, f, o))
    for size in (2,) if quick else (2, 3, 4, 10):
        plans.append(lambda s=size: positive(s, 50 if quick else 1000))
    for plan in plans:
        data["cases"].append(plan())
        keep(data)
    return data


def show(data: dict[str, Any]) -> None:
    """Tables of all cases."""
    print(f"{data['title']}: {describe(data['cases'][0]['machine'])}")
    for one in data["cases"]:
        print(f"\n{case_table(one)}")


if __name__ == "__main__":
    command("distances", __doc__, "two cases, few pairs", measure, show)
