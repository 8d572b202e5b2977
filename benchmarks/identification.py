r"""Linear recurrent networks: identification from data, against subspace methods.

**Identification.** All contestants get the same inputs and outputs and are asked for the impulse response $h_j$ of the
teacher: inside, $j < k$, and beyond, $k \le j < H$, with $k = 20$ and $H = 40$; errors are the largest over $j$, in
units of the teacher's largest entry up to the horizon, medians over seeds. Inputs are white. Data are either one
trajectory from rest (stable teachers), or, for the balanced teacher whose response grows, many sequences of $k$ inputs
from rest with the last output of each. Noise is added to the outputs, in units of their standard deviation.

| contestant | what it is | knows the order |
| --- | --- | --- |
| N4SID | `nfoursid`, ten block rows; reads one trajectory | yes |
| least squares | the $k$ entries themselves, zero beyond | no |
| Ho–Kalman | of the first $2n$ of these, `ho_kalman` | yes |
| Hankel SVD | of all $k$ of these: Hankel matrix of ten rows, cut to rank $n$ | yes |
| RNN, Adam | general, 20 states, `Adam` with milestones on windows of $k$ inputs: fits what least squares fits | no |
| RNN of order n, Adam | the same with $n$ states | yes |
| RNN tied, flow | diagonal with $C = B^\top$, 20 states, from entries of 0.01; if balanced | no, but the form |
| … and polish | then Gauss–Newton to the entries of least squares | no, but the form |
| LinearStateSpace | the estimator: general network, order by held-out error, Gauss–Newton on the trajectory | no |
| … of order n | the same with the order given | yes |
| … network only | without Gauss–Newton (`refine=False`) | no |

Contestants that read windows of $k$ inputs neglect what older inputs still do: for the balanced teacher of the
trajectory an effect of $0.7^{20} = 8\cdot10^{-4}$, which is noise to them and none to N4SID. The tails of the delay and
of the random teacher vanish, exactly or nearly, so that zero beyond is right there; it is no extrapolation.

    python benchmarks/identification.py            # all into benchmarks/results/
    python benchmarks/identification.py --quick    # few data, one seed, nothing stored
    python benchmarks/identification.py --show     # tables from the stored numbers

N4SID comes with `pip install 'deeplinear[bench]'`; its rows are empty without it.
"""

import functools
import importlib.util
import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
os.environ.setdefault("MPLBACKEND", "Agg")
import jax.numpy as jnp
import numpy as np
from common import command, describe, machine, table

from deeplinear.core import HypothesisError
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.estimators import LinearStateSpace
from deeplinear.experiments.catalog.rnn._training import adam, start
from deeplinear.models import LinearRNN, Problem, Regression, System
from deeplinear.probes import loss
from deeplinear.recurrent import (
    balanced_teacher,
    delay_teacher,
    ho_kalman,
    impulse_response,
    polish,
    unbalanced_teacher,
)

LENGTH, HORIZON = 20, 40
STATES = 20
ROWS = LENGTH // 2
ENTRY = 0.08
"""Standard deviation of the student's entries: small, and large enough for the delay to be found."""
RATE, STEPS, ENOUGH = 1e-3, 20_000, 1e-13
FLOW_TIME, FLOW_ENTRY = 1e3, 0.01
NOISES = (0.0, 0.01, 0.1)
AMOUNTS = (100, 400, 1600)
SEEDS = 5
MILESTONES = (15_000, 18_000)
ALIKE, EXACT = 1.1, 1e-12
"""Errors within this factor of the least, or below this, count as the best."""
WARM: set[tuple[str, int]] = set()


class Data(NamedTuple):
    """Windows of the last inputs, newest first, the outputs they lead to, and the trajectory where there is one."""

    windows: np.ndarray
    outputs: np.ndarray
    trajectory: tuple[np.ndarray, np.ndarray] | None


class Case(NamedTuple):
    """A teacher, its order, whether it is balanced, and whether its data are one trajectory."""

    name: str
    order: int
    balanced: bool
    trajectory: bool
    teacher: Callable[[np.random.Generator], System]


CASES = (
    Case("balanced, modes within 0.7", 3, True, True, lambda rng: balanced_teacher(3, rng, low=-0.7, high=0.7)),
    Case("balanced, modes 0.6 to 1.05", 5, True, False, lambda rng: balanced_teacher(5, rng)),
    Case("delay", 5, False, True, lambda rng: delay_teacher(5)),
    Case("random, unbalanced", 5, False, True, lambda rng: unbalanced_teacher(5, rng)),
)


def make(case: Case, target: np.ndarray, amount: int, noise: float, rng: np.random.Generator) -> Data:
    """Inputs and noisy outputs."""
    if case.trajectory:
        inputs = rng.standard_normal(amount)
        clean = np.convolve(inputs, target)[:amount]  # y_1, y_2, …
        padded = np.concatenate([np.zeros(LENGTH - 1), inputs])
        windows = np.lib.stride_tricks.sliding_window_view(padded, LENGTH)[:, ::-1]
        outputs = clean + noise * clean.std() * rng.standard_normal(amount)
        # y_t beside x_t, where y_t has seen the inputs before x_t only.
        return Data(windows, outputs, (inputs[1:], outputs[:-1]))
    windows = rng.standard_normal((amount, LENGTH))
    clean = windows @ target[:LENGTH]
    return Data(windows, clean + noise * clean.std() * rng.standard_normal(amount), None)


def extended(system: Any) -> np.ndarray:
    """Response of a system up to the horizon, infinite from where it overflows."""
    found = np.full(HORIZON, np.inf)
    values = np.asarray(impulse_response(system, HORIZON).values)
    found[: len(values)] = values
    return found


def least_squares(case: Case, data: Data, seed: int) -> np.ndarray:
    """Entries of the response by themselves."""
    found = np.zeros(HORIZON)
    found[:LENGTH] = np.linalg.lstsq(data.windows, data.outputs, rcond=None)[0]
    return found


def subspace(case: Case, data: Data, seed: int) -> np.ndarray | None:
    """N4SID by nfoursid."""
    if data.trajectory is None or importlib.util.find_spec("nfoursid") is None:
        return None
    import pandas
    from nfoursid.nfoursid import NFourSID  # pyright: ignore[reportMissingImports]

    frame = pandas.DataFrame(dict(zip(("u", "y"), data.trajectory, strict=True)))
    method = NFourSID(frame, output_columns=["y"], input_columns=["u"], num_block_rows=ROWS)
    method.subspace_identification()
    found, _ = method.system_identification(rank=case.order)
    return extended((found.a, found.b, found.c))


def first_numbers(case: Case, data: Data, seed: int) -> np.ndarray | None:
    """Ho–Kalman of the first 2n entries of least squares."""
    try:
        return extended(ho_kalman(least_squares(case, data, seed)[:LENGTH], case.order))
    except HypothesisError:
        return None


def hankel(case: Case, data: Data, seed: int) -> np.ndarray:
    """All entries of least squares in one Hankel matrix, cut to the rank of the teacher."""
    entries = least_squares(case, data, seed)
    index = np.add.outer(np.arange(ROWS), np.arange(ROWS))
    left, values, right = np.linalg.svd(entries[index])
    left, roots, right = left[:, : case.order], np.sqrt(values[: case.order]), right[: case.order]
    inner = (left / roots).T @ entries[index + 1] @ (right.T / roots)
    return extended((inner, (roots * right[:, 0])[:, None], (left[0] * roots)[None]))


def trained(case: Case, data: Data, seed: int, *, states: int, steps: int = STEPS) -> np.ndarray:
    """General network, Adam on the windows."""
    model = LinearRNN(states, LENGTH)
    problem = Problem(model, Regression.from_data(data.windows.T, data.outputs[None], reduced=True))
    scale = ENTRY * math.sqrt(STATES / states)
    begin = start(model, scale, np.random.default_rng([seed, states]))
    run = simulate(problem, begin, adam(RATE, MILESTONES), times=[steps], until=until(loss, below=ENOUGH))
    return extended(model.system(tuple(jnp.asarray(layer) for layer in run.params)))


def flowed(case: Case, data: Data, seed: int, *, finish: bool) -> np.ndarray | None:
    """Tied network, gradient flow on the windows, and polish to what least squares finds."""
    if not case.balanced:
        return None
    model = LinearRNN(STATES, LENGTH, form="tied")
    problem = Problem(model, Regression.from_data(data.windows.T, data.outputs[None], reduced=True))
    begin = start(model, FLOW_ENTRY, np.random.default_rng([seed, 1]))
    run = simulate(problem, begin, GradientFlow(1e-8), times=[FLOW_TIME], until=until(loss, below=ENOUGH))
    system = model.system(tuple(jnp.asarray(layer) for layer in run.params))
    return extended(polish(least_squares(case, data, seed)[:LENGTH], system).system if finish else system)


def estimated(case: Case, data: Data, seed: int, *, known: bool = False, refine: bool = True) -> np.ndarray | None:
    """The estimator on the trajectory."""
    if data.trajectory is None:
        return None
    inputs, outputs = data.trajectory
    order = case.order if known else None
    model = LinearStateSpace(STATES, LENGTH, order, refine=refine, random_state=seed).fit(inputs[:, None], outputs)
    return extended((model.A_, model.B_, model.C_)) if model.order_ else np.zeros(HORIZON)


METHODS: dict[str, Callable[[Case, Data, int], np.ndarray | None]] = {
    "N4SID": subspace,
    "least squares": least_squares,
    "Ho–Kalman": first_numbers,
    "Hankel SVD": hankel,
    "RNN, Adam": functools.partial(trained, states=STATES),
    "RNN of order n, Adam": lambda case, data, seed: trained(case, data, seed, states=case.order),
    "RNN tied, flow": functools.partial(flowed, finish=False),
    "… and polish": functools.partial(flowed, finish=True),
    "LinearStateSpace": estimated,
    "… of order n": functools.partial(estimated, known=True),
    "… network only": functools.partial(estimated, refine=False),
}


def identification(case: Case, amount: int, noise: float, seeds: int, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Errors and seconds of all contestants on the same data."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    for seed in range(seeds):
        rng = np.random.default_rng([seed, amount, round(1e6 * noise)])
        target = extended(case.teacher(np.random.default_rng([seed, 7])))
        data = make(case, np.asarray(target), amount, noise, rng)
        for name in names:
            if (name, case.order) not in WARM:
                METHODS[name](case, data, seed)  # imports and compiles
                WARM.add((name, case.order))
            begin = time.perf_counter()
            response = METHODS[name](case, data, seed)
            seconds = time.perf_counter() - begin
            if response is not None:
                gaps = np.abs(response - target) / np.abs(target).max()
                found[name].append((float(gaps[:LENGTH].max()), float(gaps[LENGTH:].max()), seconds))
    return [
        {
            "teacher": case.name,
            "data": "trajectory" if case.trajectory else "sequences",
            "amount": amount,
            "noise": noise,
            "contestant": name,
            **{
                key: float(np.median([row[i] for row in rows])) if rows else None
                for i, key in enumerate(("inside", "beyond", "seconds"))
            },
        }
        for name, rows in found.items()
    ]


def show(data: dict[str, Any]) -> None:
    """Tables of stored numbers, with the best of each line in words."""
    print(describe(data["machine"]), "\n")
    if not data["has_n4sid"]:
        print("nfoursid is not installed: no rows of N4SID.\n")
    groups: dict[tuple, dict[str, Any]] = {}
    for one in data["identification"]:
        key = (one["teacher"], one["data"], one["noise"], one["amount"])
        groups.setdefault(key, {})[one["contestant"]] = one
    names = list(dict.fromkeys(one["contestant"] for one in data["identification"]))
    for column in ("inside", "beyond", "seconds"):
        rows = []
        for key, found in groups.items():
            numbers = {name: found[name][column] for name in names if name in found}
            told = {name: value for name, value in numbers.items() if value is not None}
            least = max(ALIKE * min(told.values()), 0.0 if column == "seconds" else EXACT)
            best = " · ".join(name for name, value in told.items() if value <= least)
            rows.append([*key, *(numbers.get(name) for name in names), best])
        print({"inside": "error, j < k", "beyond": "error, k ≤ j < H", "seconds": "seconds"}[column], "\n")
        print(table(("teacher", "data", "noise", "amount", *names, "best"), rows), "\n")


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All teachers, amounts of data and noises."""
    data: dict[str, Any] = {"machine": machine(), "has_n4sid": importlib.util.find_spec("nfoursid") is not None}
    amounts, noises, seeds = ((400,), (0.0, 0.1), 1) if quick else (AMOUNTS, NOISES, SEEDS)
    data["identification"] = [
        row
        for case in CASES
        for noise in noises
        for amount in amounts
        for row in identification(case, amount, noise, seeds, tuple(METHODS))
    ]
    return data


if __name__ == "__main__":
    command("identification", __doc__, "one amount of data, one seed", measure_all, show)
