r"""Linear recurrent networks: gradients, gradient flow and batched training, against automatic differentiation.

**Gradients.** Of $\tfrac12\sum_{j<k}(h_j - w_j)^2$ in $B$, $A$, $C$: `LinearRNN`, the same Hankel form in NumPy,
reverse-mode differentiation of a scan (JAX) and of a loop (torch), and what is usual: differentiation through the
recurrence for 100 sequences, which is a gradient of another loss and has no error here. Those of JAX run in a compiled
loop with steps of 1e-9, so that none can be left out. Errors are the largest difference from the Hankel form of the
package, in units of the largest entry; ours is against NumPy's.

**Flow.** 200 states, $k = 20$, general form, from small weights to a balanced teacher of order 3, to the time at which
the loss is 1e-8: `simulate` against diffrax with automatic differentiation of the scan, torchdiffeq and torchode with
`autograd` through the loop, SciPy and CVODE with the Hankel form in NumPy (better than what one would write), and
descent in torch in 32 bits. The error is that of the response at the end, relative; all must be within 1e-6 and take
the loosest tolerance of a ladder that is. What is stopped after `CAP` seconds is scaled at its last pace.

**Training.** 20 lengths, 10 seeds, 15 000 steps of Adam, 40 tied states: `ensemble` against a loop over members in
NumPy, all members at once in NumPy, and in torch. The others are run for fewer steps and scaled; the error is the
largest difference of the responses up to 40 from those of NumPy after 200 steps. About five minutes in all.

    python benchmarks/recurrent.py            # all into benchmarks/results/
    python benchmarks/recurrent.py --quick    # smaller and shorter, nothing stored
    python benchmarks/recurrent.py --show     # tables from the stored numbers

Torch and the solvers come with `pip install 'deeplinear[bench]'`; their rows are empty without them.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
import peers
from common import case, command, device_name, print_cases, row, timed

from deeplinear.core import flatten
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.experiments import Context
from deeplinear.experiments.catalog.rnn._training import adam, grid, population_losses, start, train
from deeplinear.models import LinearRNN, Problem, SquaredDistance
from deeplinear.probes import loss
from deeplinear.recurrent import balanced_teacher, impulse_response

TITLE = "Linear recurrent networks"
HORIZON = 40
EULER = 1e-9
WITHIN, CAP, QUICK_CAP = 1e-6, 15.0, 2.0
TIMED_STEPS = {"NumPy, one by one": 400, "NumPy, all at once": 200, "torch, all at once": 200}
ALIKE = 1e-8
"""Gradients, and responses after 200 steps, may differ by so much."""


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
    """Time of many gradients."""
    rng = np.random.default_rng(0)
    params = tuple(
        rng.standard_normal(shape) * 0.5 / math.sqrt(states) for shape in ((states, 1), (states, states), (1, states))
    )
    target = rng.standard_normal(length)
    problem = Problem(LinearRNN(states, length), SquaredDistance(target[None]))
    layers, wanted = tuple(map(jnp.asarray, params)), jnp.asarray(target)
    inputs = jnp.asarray(rng.standard_normal((length, 100)))
    sequences = (inputs, jnp.asarray(target[::-1] @ np.asarray(inputs)))
    exact, plain = problem.gradient(layers), by_numpy(target, params)
    rows = []
    compiled: list[tuple[str, Callable[..., Any], Any]] = [
        ("LinearRNN", by_model, problem),
        ("JAX, scan", by_scan, wanted),
        ("JAX, 100 sequences", by_sequences, sequences),
    ]
    for name, gradient, fixed in compiled:
        _, timing = timed(functools.partial(repeat, gradient, fixed, layers, count), 3)
        against = plain if name == "LinearRNN" else exact
        error = None if name == "JAX, 100 sequences" else gap(gradient(fixed, layers), against)
        rows.append(row(name, timing, evaluations=count, error=error))
    fewer = max(5, count // 10)

    def loop(gradient: Callable[..., Any], fixed: Any, given: Any) -> Any:
        return [gradient(fixed, given) for _ in range(fewer)][:0]

    _, timing = timed(functools.partial(loop, by_numpy, target, params), 3)
    rows.append(row("NumPy", timing, scaled=count / fewer, evaluations=count, error=gap(plain, exact)))
    if peers.there("torch"):
        import torch

        given = torch.tensor(target), [torch.tensor(layer) for layer in params]
        _, timing = timed(functools.partial(loop, by_torch, *given), 3)
        error = gap(by_torch(*given), exact)
        rows.append(row("torch, loop", timing, scaled=count / fewer, evaluations=count, error=error))
    else:
        rows.append(row("torch, loop", None, note="torch is not installed"))
    about = f"{count} gradients of {states} states, k = {length}."
    return case(f"gradient, {states} states, k = {length}", about, "gradient, relative.", rows, within=ALIKE)


def gap(found: Any, exact: Any) -> float:
    """Largest difference, relative to the largest entry."""
    largest = max(float(np.abs(one).max()) for one in exact)
    pairs = zip(found, exact, strict=True)
    return max(float(np.abs(np.asarray(one) - np.asarray(other)).max()) for one, other in pairs) / largest


def split(y: Any, states: int) -> tuple[Any, Any, Any]:
    """$B$, $A$, $C$ of a flat state."""
    return y[:states].reshape(states, 1), y[states:-states].reshape(states, states), y[-states:].reshape(1, states)


def response_of(y: Any, states: int, length: int) -> list[Any]:
    """Entries of the response of a flat state, in arrays of any kind."""
    state, inner, output = split(y, states)
    entries = []
    for _ in range(length):
        entries.append((output @ state)[0, 0])
        state = inner @ state
    return entries


def response_flow(target: np.ndarray, states: int, y0: np.ndarray) -> peers.Flow:
    """The flow with the gradient by the Hankel form in NumPy and by automatic differentiation elsewhere."""

    def in_numpy(data: Any, y: Any) -> Any:
        return -np.concatenate([part.ravel() for part in by_numpy(data[0], split(y, states))])

    def in_jax(data: Any, y: Any) -> Any:
        return -jnp.concatenate([part.ravel() for part in by_scan(data[0], split(y, states))])

    def value(data: Any, y: Any) -> Any:
        import torch

        return 0.5 * torch.sum((torch.stack(response_of(y, states, len(target))) - data[0]) ** 2)

    def in_torch(data: Any, y: Any) -> Any:
        import torch

        if y.ndim == 2:  # a batch of one
            return in_torch(tuple(one[0] for one in data), y[0])[None]
        with torch.enable_grad():
            y = y.detach().requires_grad_()
            return -torch.autograd.grad(value(data, y), y)[0]

    return peers.Flow(in_numpy, in_jax, in_torch, value, (target,), y0)


def flow(states: int, length: int, below: float, cap: float) -> dict[str, Any]:
    """The run to a stated loss."""
    teacher = balanced_teacher(3, np.random.default_rng(7), low=-0.7, high=0.7)
    target = np.asarray(impulse_response(teacher, length).values)
    problem = Problem(LinearRNN(states, length), SquaredDistance(target[None]))
    params = start(problem.model, 0.2 / math.sqrt(states), np.random.default_rng(8))  # pyright: ignore
    rule = until(loss, below=below)
    end = float(simulate(problem, params, GradientFlow(1e-8), until=rule, every=10**9).final_time)

    def solve(rtol: float, share: float = 1.0) -> Any:
        return simulate(problem, params, GradientFlow(rtol), times=[share * end], probes=[loss])

    def response(run: Any) -> np.ndarray:
        return np.asarray(problem.product(tuple(map(jnp.asarray, run.params))))[0]

    exact = response(solve(1e-11))

    def distance(found: np.ndarray) -> float:
        return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))

    def judge(y: np.ndarray) -> float:
        return distance(np.array(response_of(y, states, length)))

    rows = [peers.ours("simulate", solve, lambda run: distance(response(run)), within=WITHIN, long=cap / 4)[0]]
    theirs = response_flow(target, states, np.asarray(flatten(params)))
    meet = functools.partial(peers.contest, flow=theirs, end=end, judge=judge, within=WITHIN, cap=cap)
    rows.append(peers.fastest(meet(peers.TSIT5), meet(peers.DOPRI8)))
    if device_name() == "cpu":
        rows.append(peers.fastest(meet(peers.RK45), meet(peers.DOP853)))
        rows.append(peers.fastest(meet(peers.BDF), meet(peers.ADAMS)))
        rows += [meet(peers.TORCHDIFFEQ), meet(peers.TORCHODE)]
        rows.append(peers.by_descent(theirs, end, DESCENT_RATE, judge, cap=cap))
    return case(
        f"flow, {states} states, k = {length}, to loss {below:g}",
        f"{len(theirs.y0):,} weights to time {end:.4g}.",
        "response at the end, relative; at most 1e-6.",
        rows,
        within=WITHIN,
        stiff=True,
        why=SMOOTH,
    )


SMOOTH = "The end is long and smooth: a formula of many steps and high order, as in CVODE, keeps the past and needs "
SMOOTH += "few gradients for a step, where a method of one step looks anew."
DESCENT_RATE = 1e-2
"""A rate at which descent is stable on the whole way."""


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


def training(lengths: int, seeds: int, steps: int) -> dict[str, Any]:
    """The whole sweep."""
    ks = tuple(range(3, 3 + lengths))
    members = grid(length=ks, draw=range(seeds))
    model = LinearRNN(40, max(ks), form="tied")
    teachers = [
        np.asarray(impulse_response(balanced_teacher(5, np.random.default_rng([7, i])), HORIZON).values)
        for i in range(seeds)
    ]
    targets = np.stack(teachers)[members["draw"]]
    begins = [start(model, 0.1, np.random.default_rng([8, i])) for i in range(seeds)]
    starts = [begins[i] for i in members["draw"]]
    losses = population_losses(targets, members["length"], max(ks))
    count = len(starts)

    def ours(steps: int) -> Any:
        return train(model, starts, losses, targets, members["length"], adam(1e-3), steps=steps, context=Context())

    check = ours(200)
    _, timing = timed(lambda: ours(steps), 1, warm=False)
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

    def response(state: Any) -> np.ndarray:
        powers = np.asarray(state[1])[:, None, :] ** np.arange(HORIZON)[:, None]
        return np.sum(powers * np.asarray(state[0])[:, None, :] ** 2, axis=2)

    exact = response(plain(np, slice(0, count), 200))
    rows = [row("ensemble", timing, evaluations=steps, error=float(np.abs(exact - check.response).max()))]
    modules: dict[str, tuple[Any, int]] = {"NumPy, one by one": (np, 1), "NumPy, all at once": (np, count)}
    if peers.there("torch"):
        import torch

        modules["torch, all at once"] = (torch, count)
    for name, (module, size) in modules.items():
        fewer = min(TIMED_STEPS[name], steps)
        _, timing = timed(lambda m=module, s=size, n=fewer: plain(m, slice(0, s), n)[:0], 2)
        error = float(np.abs(response(plain(module, slice(0, size), 200)) - exact[:size]).max())
        rows.append(row(name, timing, scaled=steps / fewer * count / size, evaluations=steps, error=error))
    if len(modules) < 3:
        rows.append(row("torch, all at once", None, note="torch is not installed"))
    return case(
        f"training, {count} networks",
        f"{steps:,} steps of Adam of {lengths} lengths and {seeds} seeds, 40 tied states.",
        "responses after 200 steps, from those of NumPy.",
        rows,
        within=ALIKE,
    )


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All three parts."""
    data: dict[str, Any] = {"title": TITLE, "cases": []}
    parts = [functools.partial(gradients, states, length, 20 if quick else 200) for states, length in SIZES]
    parts.append(functools.partial(flow, *((50, 10, 1e-4, QUICK_CAP) if quick else (200, 20, 1e-8, CAP))))
    parts.append(functools.partial(training, *((4, 3, 1000) if quick else (20, 10, 15_000))))
    for part in parts[2:] if quick else parts:
        data["cases"].append(part())
        print(data["cases"][-1]["name"], flush=True)
        keep(data)
    return data


SIZES = ((50, 20), (200, 20), (200, 40))


if __name__ == "__main__":
    command("recurrent", __doc__, "smaller and shorter", measure_all, print_cases)
