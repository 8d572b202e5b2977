r"""Linear recurrent networks: identification from data against subspace methods, cost of gradients, batched training.

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

Contestants that read windows of $k$ inputs neglect what older inputs still do: for the balanced teacher of the
trajectory an effect of $0.7^{20} = 8\cdot10^{-4}$, which is noise to them and none to N4SID. The tails of the delay and
of the random teacher vanish, exactly or nearly, so that zero beyond is right there; it is no extrapolation.

**Gradients.** Of $\tfrac12\sum_{j<k}(h_j - w_j)^2$ in $B$, $A$, $C$: `LinearRNN`, the same Hankel form in NumPy,
reverse-mode differentiation of a scan (JAX) and of a loop (torch), and what is usual: differentiation through the
recurrence for 100 sequences. Those of JAX run in a compiled loop with steps of 1e-9, so that none can be left out.

**Training.** 20 lengths, 10 seeds, 15 000 steps of Adam, 40 tied states: `ensemble` against a loop over members in
NumPy, all members at once in NumPy, and in torch. The others are run for fewer steps and scaled; the gap is the largest
difference of the responses up to $H$ from those of NumPy after 200 steps.

    python benchmarks/recurrent.py            # all into benchmarks/results/
    python benchmarks/recurrent.py --quick    # few data, one seed, short training, nothing stored
    python benchmarks/recurrent.py --show     # tables from the stored numbers

N4SID and torch come with `pip install 'deeplinear[bench]'`; their rows are empty without them.
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
from common import command, describe, machine, table, timed

from deeplinear.core import HypothesisError
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.experiments import Context
from deeplinear.experiments.catalog.rnn._training import adam, grid, population_losses, start, train
from deeplinear.models import LinearRNN, Problem, Regression, SquaredDistance, System
from deeplinear.probes import loss
from deeplinear.recurrent import balanced_teacher, delay_teacher, ho_kalman, impulse_response, unbalanced_teacher
from deeplinear.recurrent._polish import polish

LENGTH, HORIZON = 20, 40
STATES = 20
ROWS = LENGTH // 2
ENTRY = 0.08
"""Standard deviation of the student's entries: small, and large enough for the delay to be found."""
RATE, STEPS, ENOUGH = 1e-3, 20_000, 1e-13
FLOW_TIME, FLOW_ENTRY = 1e3, 0.01
EULER = 1e-9
NOISES = (0.0, 0.01, 0.1)
AMOUNTS = (100, 400, 1600)
SEEDS = 5
MILESTONES = (15_000, 18_000)
ALIKE, EXACT = 1.1, 1e-12
"""Errors within this factor of the least, or below this, count as the best."""
WARM: set[tuple[str, int]] = set()
TIMED_STEPS = {"numpy loop": 400, "numpy": 200, "torch": 200}


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
    from nfoursid.nfoursid import NFourSID

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


METHODS: dict[str, Callable[[Case, Data, int], np.ndarray | None]] = {
    "N4SID": subspace,
    "least squares": least_squares,
    "Ho–Kalman": first_numbers,
    "Hankel SVD": hankel,
    "RNN, Adam": functools.partial(trained, states=STATES),
    "RNN of order n, Adam": lambda case, data, seed: trained(case, data, seed, states=case.order),
    "RNN tied, flow": functools.partial(flowed, finish=False),
    "… and polish": functools.partial(flowed, finish=True),
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


@functools.partial(jax.jit, static_argnums=(0, 3))
def repeat(gradient: Callable, fixed: Any, params: Any, count: int) -> Any:
    """Many gradients, one after another."""
    step = lambda _, p: jax.tree.map(lambda a, g: a - EULER * g, p, gradient(fixed, p))  # noqa: E731
    return jax.lax.fori_loop(0, count, step, params)


def by_model(problem: Problem, params: Any) -> Any:
    """Gradient of `Problem`."""
    return problem.gradient(params)


def by_scan(target: Any, params: Any) -> Any:
    """Reverse mode through the scan that makes the response."""

    def value(params: Any) -> Any:
        first, inner, output = params
        step = lambda state, _: (inner @ state, (output @ state)[0, 0])  # noqa: E731
        return 0.5 * jnp.sum((jax.lax.scan(step, first, None, length=len(target))[1] - target) ** 2)

    return jax.grad(value)(params)


def by_sequences(data: Any, params: Any) -> Any:
    """Reverse mode through the recurrence, over many sequences at once."""
    inputs, outputs = data

    def value(params: Any) -> Any:
        first, inner, output = params
        step = lambda state, x: (inner @ state + first * x, None)  # noqa: E731
        states = jax.lax.scan(step, jnp.zeros((len(inner), inputs.shape[1])), inputs)[0]
        return 0.5 * jnp.mean((output @ states - outputs) ** 2)

    return jax.grad(value)(params)


def by_numpy(target: np.ndarray, params: Any) -> Any:
    """The Hankel form."""
    first, inner, output = params
    length, size = len(target), len(inner)
    right, left = np.empty((size, length)), np.empty((size, length))
    right[:, 0], left[:, 0] = first[:, 0], output[0]
    for i in range(1, length):
        right[:, i], left[:, i] = inner @ right[:, i - 1], inner.T @ left[:, i - 1]
    g = output[0] @ right - target
    padded = np.concatenate([g[1:], np.zeros(length)])
    square = np.lib.stride_tricks.sliding_window_view(padded, length)[:length]
    return (left @ g)[:, None], (left @ square) @ right.T, (right @ g)[None]


def by_torch(target: Any, params: Any) -> Any:
    """Reverse mode through a loop."""
    import torch

    layers = [layer.detach().requires_grad_() for layer in params]
    first, inner, output = layers
    state, entries = first, []
    for _ in range(len(target)):
        entries.append((output @ state)[0, 0])
        state = inner @ state
    value = 0.5 * torch.sum((torch.stack(entries) - target) ** 2)
    return torch.autograd.grad(value, layers)


def gradients(states: int, length: int, count: int) -> dict[str, Any]:
    """Microseconds of a gradient, and how far the others are from the model's."""
    rng = np.random.default_rng(0)
    params = tuple(
        rng.standard_normal(shape) * 0.5 / math.sqrt(states) for shape in ((states, 1), (states, states), (1, states))
    )
    target = rng.standard_normal(length)
    problem = Problem(LinearRNN(states, length), SquaredDistance(target[None]))
    layers, wanted = tuple(map(jnp.asarray, params)), jnp.asarray(target)
    inputs = jnp.asarray(rng.standard_normal((length, 100)))
    sequences = (inputs, jnp.asarray(target[::-1] @ np.asarray(inputs)))
    exact = problem.gradient(layers)
    compiled = {"LinearRNN": (by_model, problem), "JAX, scan": (by_scan, wanted)}
    compiled["JAX, 100 sequences"] = (by_sequences, sequences)
    micro: dict[str, float | None] = {}
    gaps: dict[str, float] = {}
    for name, (gradient, fixed) in compiled.items():
        _, timing = timed(functools.partial(repeat, gradient, fixed, layers, count), 3)
        micro[name] = 1e6 * timing.median / count
        if name == "JAX, scan":
            gaps[name] = _gap(gradient(fixed, layers), exact)
    plain: dict[str, tuple[Callable, Any, Any]] = {"NumPy": (by_numpy, target, params)}
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_default_dtype(torch.float64)
        plain["torch, loop"] = (by_torch, torch.asarray(target), [torch.asarray(layer) for layer in params])
    fewer = max(5, count // 10)
    for name, (gradient, fixed, given) in plain.items():
        _, timing = timed(lambda g=gradient, f=fixed, p=given: [g(f, p) for _ in range(fewer)][:0], 3)
        micro[name] = 1e6 * timing.median / fewer
        gaps[name] = _gap(gradient(fixed, given), exact)
    return {"states": states, "length": length, "microseconds": micro, "gaps": gaps}


def _gap(found: Any, exact: Any) -> float:
    """Largest difference, relative to the largest entry."""
    largest = max(float(np.abs(one).max()) for one in exact)
    pairs = zip(found, exact, strict=True)
    return max(float(np.abs(np.asarray(one) - np.asarray(other)).max()) for one, other in pairs) / largest


def tied_step(module: Any, state: Any, targets: Any, masks: Any, step: int) -> Any:
    """One step of Adam for tied networks, (members, states), with arrays of NumPy or torch."""
    b, a, moments, squares = state
    length = targets.shape[-1]
    powers = [module.ones_like(a)]
    for _ in range(length - 1):
        powers.append(powers[-1] * a)
    powers = module.stack(powers, -1)  # (members, states, length)
    r = masks * ((b * b)[..., None, :] @ powers)[..., 0, :] - masks * targets
    slopes = r[..., 1:] * module.asarray(np.arange(1.0, length))
    gradient = (2 * b * (powers @ r[..., None])[..., 0], b * b * (powers[..., :-1] @ slopes[..., None])[..., 0])
    moments = tuple(0.9 * m + 0.1 * g for m, g in zip(moments, gradient, strict=True))
    squares = tuple(0.999 * v + 0.001 * g * g for v, g in zip(squares, gradient, strict=True))
    change = [
        1e-3 * (m / (1 - 0.9**step)) / ((v / (1 - 0.999**step)) ** 0.5 + 0.5e-8)
        for m, v in zip(moments, squares, strict=True)
    ]
    return b - change[0], a - change[1], moments, squares


def training(lengths: int, seeds: int, steps: int) -> list[dict[str, Any]]:
    """Seconds of the whole sweep."""
    ks = tuple(range(3, 3 + lengths))
    members = grid(length=ks, draw=range(seeds))
    model = LinearRNN(40, max(ks), form="tied")
    teachers = [extended(balanced_teacher(5, np.random.default_rng([7, i]))) for i in range(seeds)]
    targets = np.stack(teachers)[members["draw"]]
    begins = [start(model, 0.1, np.random.default_rng([8, i])) for i in range(seeds)]
    starts = [begins[i] for i in members["draw"]]
    losses = population_losses(targets, members["length"], max(ks))
    count = len(starts)

    def ours(steps: int) -> Any:
        return train(model, starts, losses, targets, members["length"], adam(1e-3), steps=steps, context=Context())

    check = ours(200)
    _, timing = timed(lambda: ours(steps), 1, warm=False)
    rows = [{"contestant": "ensemble", "seconds": timing.median, "scaled": False}]
    wanted = targets[:, : max(ks)]
    masks = (np.arange(max(ks)) < members["length"][:, None]).astype(float)
    b, a = (np.stack([np.asarray(one[i])[:, 0] for one in starts]) for i in range(2))

    def plain(module: Any, rows: slice, steps: int) -> Any:
        convert = module.asarray
        state: Any = (convert(b[rows]), convert(a[rows]))
        state = (*state, tuple(map(module.zeros_like, state)), tuple(map(module.zeros_like, state)))
        given = convert(wanted[rows]), convert(masks[rows])
        for step in range(1, steps + 1):
            state = tied_step(module, state, *given, step)
        return state

    modules: dict[str, tuple[Any, int]] = {"numpy loop": (np, 1), "numpy": (np, count)}
    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_default_dtype(torch.float64)
        modules["torch"] = (torch, count)
    for name, (module, size) in modules.items():
        fewer = min(TIMED_STEPS[name], steps)
        _, timing = timed(lambda m=module, s=size, n=fewer: plain(m, slice(0, s), n)[:0], 2)
        scale = steps / fewer * count / size
        rows.append({"contestant": name, "seconds": scale * timing.median, "scaled": scale > 1})
    end = plain(np, slice(0, count), 200)
    powers = np.asarray(end[1])[:, None, :] ** np.arange(HORIZON)[:, None]
    gap = float(np.abs(np.sum(powers * end[0][:, None, :] ** 2, axis=2) - check.response).max())
    return [
        row | {"members": count, "steps": steps, "gap": gap if row["contestant"] == "ensemble" else None}
        for row in rows
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
    rows = []
    for one in data["gradients"]:
        mine = one["microseconds"]["LinearRNN"]
        for name, micro in one["microseconds"].items():
            rows.append([one["states"], one["length"], name, micro, micro / mine, one["gaps"].get(name)])
    print(table(("states", "k", "gradient", "µs", "of LinearRNN", "gap"), rows), "\n")
    rows = [
        [
            one["contestant"],
            one["members"],
            one["steps"],
            one["seconds"],
            one["seconds"] / data["training"][0]["seconds"],
        ]
        + ["scaled" if one["scaled"] else "", one["gap"]]
        for one in data["training"]
    ]
    print(table(("training", "members", "steps", "s", "of ensemble", "", "gap"), rows))


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All three parts."""
    data: dict[str, Any] = {"machine": machine(), "has_n4sid": importlib.util.find_spec("nfoursid") is not None}
    amounts, noises, seeds = ((400,), (0.0, 0.1), 1) if quick else (AMOUNTS, NOISES, SEEDS)
    data["identification"] = [
        row
        for case in CASES
        for noise in noises
        for amount in amounts
        for row in identification(case, amount, noise, seeds, tuple(METHODS))
    ]
    keep(data | {"gradients": [], "training": []})
    data["gradients"] = [gradients(50, 20, 200), gradients(200, 50, 20 if quick else 100)]
    data["training"] = training(4, 3, 1000) if quick else training(20, 10, 15_000)
    return data


if __name__ == "__main__":
    command("recurrent", __doc__, "one amount of data, one seed, short training", measure_all, show)
