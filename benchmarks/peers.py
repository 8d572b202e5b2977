"""The peers of the flow: one adapter for each solver, all with the same signature.

A `Flow` is the ordinary differential equation as data: right-hand sides for NumPy, JAX and torch, which are written out
here by hand and share nothing with the package, what they depend on, and the start.
An adapter takes the flow, the end time, the relative tolerance (the absolute one is a thousandth of it) and a limit in
seconds, and gives an `Outcome`. Several times in place of the end time ask for the states at all of them, times first.
Where the start has a leading axis of members, diffrax is vmapped over it and torchode batched; the others take one.

`contest` climbs a ladder of tolerances until the end error is reached, repeats short runs and gives a row of a case.
"""

import functools
import importlib.util
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from common import Timing, row, timed

LADDER = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11)
SHORT = 1.0
"""Runs shorter than so many seconds are repeated."""


class Flow(NamedTuple):
    """A differential equation: `numpy(data, y)`, `jax(data, y)`, `torch(data, y)` and the loss for torch."""

    numpy: Callable[[Any, Any], Any]
    jax: Callable[[Any, Any], Any]
    torch: Callable[[Any, Any], Any]
    loss: Callable[[Any, Any], Any]
    data: tuple[np.ndarray, ...]
    y0: np.ndarray

    def member(self, index: int) -> "Flow":
        """One member of a flow of several."""
        return self._replace(data=tuple(one[index] for one in self.data), y0=self.y0[index])

    def members(self, count: int) -> "Flow":
        """The first ones."""
        return self._replace(data=tuple(one[:count] for one in self.data), y0=self.y0[:count])


class Outcome(NamedTuple):
    """Gradient evaluations, seconds and flat state at the end, members first.

    Where a run was stopped there is no state, but the time where that happened, and what its second half
    took for one unit of time: seconds and evaluations. An explicit method held by its stability goes on at that pace.
    """

    evaluations: float | None
    seconds: float
    y: np.ndarray | None
    stopped: float | None = None
    pace: tuple[float, float] | None = None


class OverTime(Exception):
    """The limit on seconds was reached."""


def layers_of(y: Any, shapes: Sequence[tuple[int, int]]) -> list[Any]:
    """Layers of a flat state, members first."""
    cuts = np.cumsum([0, *(rows * columns for rows, columns in shapes)])
    return [y[..., a:b].reshape(*y.shape[:-1], *s) for a, b, s in zip(cuts[:-1], cuts[1:], shapes, strict=True)]


def product_of(y: Any, shapes: Sequence[tuple[int, int]]) -> Any:
    """End-to-end matrix of a flat state."""
    return functools.reduce(lambda below, layer: layer @ below, layers_of(y, shapes))


def _velocity(join: Callable[[list[Any]], Any], shapes: Any, data: Any, y: Any) -> Any:
    target, *mask = data
    layers = layers_of(y, shapes)
    below = [layers[0]]
    for layer in layers[1:]:
        below.append(layer @ below[-1])
    back = target - below[-1]
    if mask:
        back = mask[0] * back
    parts = []
    for position in range(len(layers) - 1, 0, -1):
        parts.append(back @ below[position - 1].mT)
        back = layers[position].mT @ back
    return join([part.reshape(*y.shape[:-1], -1) for part in [*parts, back][::-1]])


def _half_square(shapes: Any, data: Any, y: Any) -> Any:
    target, *mask = data
    gap = product_of(y, shapes) - target
    return 0.5 * ((mask[0] * gap if mask else gap) ** 2).sum()


def _torch_join(parts: list[Any]) -> Any:
    import torch

    return torch.cat(parts, -1)


@functools.cache
def _layer_functions(shapes: Any) -> dict[str, Any]:
    joins = {"numpy": functools.partial(np.concatenate, axis=-1), "jax": functools.partial(jnp.concatenate, axis=-1)}
    joins["torch"] = _torch_join
    fields = {name: functools.partial(_velocity, join, shapes) for name, join in joins.items()}
    return fields | {"loss": functools.partial(_half_square, shapes)}


def layer_flow(shapes: tuple[tuple[int, int], ...], data: tuple[Any, ...], y0: Any) -> Flow:
    """Gradient flow of $\\tfrac12\\|M \\circ (W_L \\cdots W_1 - W^\\star)\\|^2$; `data` is the target, and the mask."""
    return Flow(**_layer_functions(shapes), data=tuple(map(np.asarray, data)), y0=np.asarray(y0))


def _counted(function: Callable[[Any, Any], Any], data: Any, cap: float) -> tuple[Callable[[Any, Any], Any], dict]:
    """`f(t, y)` that counts, remembers the time, and ends a run that takes too long."""
    seen: dict[str, Any] = {"count": 0, "t": 0.0, "begin": time.perf_counter(), "half": None}

    def field(t: Any, y: Any) -> Any:
        seen["count"] += 1
        seen["t"] = t
        spent = time.perf_counter() - seen["begin"]
        if spent > cap / 2 and seen["half"] is None:
            seen["half"] = (_least(t), spent, seen["count"])
        if spent > cap:
            raise OverTime
        return function(data, y)

    return field, seen


def _least(t: Any) -> float:
    return float(np.min(np.asarray(t)))


def _outcome(seen: dict, y: np.ndarray | None) -> Outcome:
    seconds = time.perf_counter() - seen["begin"]
    if y is not None or seen["half"] is None:
        return Outcome(seen["count"], seconds, y)
    stopped, (since, spent, count) = _least(seen["t"]), seen["half"]
    return _stopped(stopped, seconds, seen["count"], since, spent, count)


def _stopped(
    stopped: float, seconds: float, count: float | None, since: float, spent: float, before: float | None
) -> Outcome:
    if stopped <= since:
        return Outcome(count, seconds, None, stopped)
    each = 0.0 if count is None or before is None else (count - before) / (stopped - since)
    return Outcome(count, seconds, None, stopped, ((seconds - spent) / (stopped - since), each))


def _at(end: Any, states: Any) -> np.ndarray:
    """States at all times, or at the end only if one time was asked for."""
    return np.asarray(states) if np.ndim(end) else np.asarray(states)[-1]


def _jacobian(jac: Callable[[np.ndarray], np.ndarray], y: np.ndarray, seen: dict) -> np.ndarray:
    seen["count"] += 2 * len(y)  # a Hessian product for each column
    return jac(y)


def scipy(flow: Flow, end: Any, rtol: float, cap: float, method: str, jac: Any = None) -> Outcome:
    """`solve_ivp`; `jac(y)` is for the implicit methods."""
    from scipy.integrate import solve_ivp

    field, seen = _counted(flow.numpy, flow.data, cap)
    more: dict[str, Any] = {} if jac is None else {"jac": lambda _, y: _jacobian(jac, y, seen)}
    times = np.atleast_1d(end)
    try:
        run = solve_ivp(field, (0.0, times[-1]), flow.y0, method, times, rtol=rtol, atol=1e-3 * rtol, **more)
    except OverTime:
        return _outcome(seen, None)
    return _outcome(seen, _at(end, run.y.T) if run.success else None)


def cvode(flow: Flow, end: Any, rtol: float, cap: float, method: str, jac: Any = None) -> Outcome:
    """CVODE of scikit-sundae: matrix-free GMRES with differences, or dense with `jac(y)`."""
    from sksundae.cvode import CVODE

    field, seen = _counted(flow.numpy, flow.data, cap)
    late: list[bool] = []

    def rhs(t: float, y: Any, out: Any) -> None:
        try:
            out[:] = field(t, y)
        except OverTime:  # an exception cannot pass through the compiled solver: it fails on what is not finite
            late.append(True)
            out[:] = np.nan

    def dense(t: float, y: Any, f: Any, out: Any) -> None:
        out[:] = _jacobian(jac, np.array(y), seen)

    linear = {"linsolver": "gmres", "krylov_dim": 10} if jac is None else {"linsolver": "dense", "jacfn": dense}
    solver = CVODE(rhs, method=method, rtol=rtol, atol=1e-3 * rtol, max_num_steps=10**9, **linear)
    run = solver.solve(np.append(0.0, end), flow.y0)
    return _outcome(seen, _at(end, run.y[1:]) if run.success and not late else None)


@eqx.filter_jit
def _diffeqsolve(function: Any, data: Any, y: Any, times: Any, rtol: Any, solver: Any) -> Any:
    import diffrax as library

    def solve(data: Any, y: Any) -> Any:
        found = library.diffeqsolve(
            library.ODETerm(lambda t, y, data: function(data, y)),
            solver,
            0.0,
            times[-1],
            None,
            y,
            data,
            saveat=library.SaveAt(ts=times) if len(times) > 1 else library.SaveAt(t1=True),
            stepsize_controller=library.PIDController(rtol=rtol, atol=1e-3 * rtol),
            max_steps=None,
            adjoint=library.ForwardMode(),
            throw=False,
        )
        return found.ys, found.stats["num_steps"]

    return (jax.vmap(solve, out_axes=(1, 0)) if y.ndim == 2 else solve)(data, y)


STAGES = {"Tsit5": 6, "Dopri8": 13}
"""Gradients of a step; for implicit solvers they are not counted."""


def diffrax(flow: Flow, end: Any, rtol: float, cap: float, method: str) -> Outcome:
    """`diffeqsolve`, vmapped over members. It cannot be stopped: shorter ends come first, to see what fits."""
    import diffrax as library

    solver = getattr(library, method)()
    data, y, times = jax.tree.map(jnp.asarray, (flow.data, flow.y0, np.atleast_1d(end)))

    def call(share: float) -> tuple[Any, float]:
        begin = time.perf_counter()
        found = _diffeqsolve(flow.jax, data, y, share * times, jnp.asarray(rtol), solver)
        return jax.block_until_ready(found), time.perf_counter() - begin

    part, seconds, count = 2.0**-12, 0.0, 0.0
    call(part)
    while True:
        last, spent, before = part, seconds, count
        part = min(2 * part, 1.0)
        (states, steps), seconds = call(part)
        count = float(np.mean(np.asarray(steps))) * STAGES[method] + 1 if method in STAGES else None
        if part >= 1:
            return Outcome(count, seconds, _at(end, states))
        if 2 * seconds > cap:
            return _stopped(part * float(times[-1]), seconds, count, last * float(times[-1]), spent, before)


def _in_torch(flow: Flow) -> tuple[Any, Any]:
    import torch

    return tuple(torch.tensor(one) for one in flow.data), torch.tensor(flow.y0)


def torchdiffeq(flow: Flow, end: Any, rtol: float, cap: float, method: str = "dopri5") -> Outcome:
    """`odeint` without gradients of the solution."""
    import torch
    import torchdiffeq as library

    data, y = _in_torch(flow)
    field, seen = _counted(flow.torch, data, cap)
    times = torch.tensor(np.append(0.0, end))
    try:
        with torch.no_grad():
            states = library.odeint(field, y, times, rtol=rtol, atol=1e-3 * rtol, method=method)
    except OverTime:
        return _outcome(seen, None)
    return _outcome(seen, _at(end, states[1:]))


def torchode(flow: Flow, end: Any, rtol: float, cap: float, method: str = "Tsit5") -> Outcome:
    """`AutoDiffAdjoint` with step sizes of each member's own; evaluations are those of the whole batch."""
    import torch
    import torchode as library  # pyright: ignore[reportMissingImports]

    if flow.y0.ndim == 1:
        flow = flow._replace(data=tuple(one[None] for one in flow.data), y0=flow.y0[None])
        inner = torchode(flow, end, rtol, cap, method)
        return inner._replace(y=None if inner.y is None else inner.y[..., 0, :])
    data, y = _in_torch(flow)
    field, seen = _counted(flow.torch, data, cap)
    term = library.ODETerm(field)
    controller = library.IntegralController(atol=1e-3 * rtol, rtol=rtol, term=term)
    solver = library.AutoDiffAdjoint(getattr(library, method)(term), controller)
    times = torch.tensor(np.append(0.0, end)).repeat(len(y), 1)
    try:
        with torch.no_grad():
            found = solver.solve(library.InitialValueProblem(y0=y, t_eval=times))
    except OverTime:
        return _outcome(seen, None)
    return _outcome(seen, _at(end, found.ys[:, 1:].transpose(0, 1)))


def descent(flow: Flow, end: float, rate: float, cap: float) -> Outcome:
    """Gradient descent as one writes it: torch, 32 bits, `backward`, a fixed rate, as many steps as the time holds."""
    import torch

    data = tuple(torch.tensor(one, dtype=torch.float32) for one in flow.data)
    y = torch.tensor(flow.y0, dtype=torch.float32, requires_grad=True)
    optimiser = torch.optim.SGD([y], lr=rate)
    steps, begin = int(np.ceil(end / rate)), time.perf_counter()
    for done in range(steps):
        if done % 16 == 0 and time.perf_counter() - begin > cap:
            return _stopped(done * rate, time.perf_counter() - begin, done, 0.0, 0.0, 0)
        optimiser.zero_grad()
        flow.loss(data, y).backward()
        optimiser.step()
    return Outcome(steps, time.perf_counter() - begin, y.detach().double().numpy())


def there(*modules: str) -> bool:
    """Whether modules can be imported."""
    return all(importlib.util.find_spec(name) is not None for name in modules)


class Peer(NamedTuple):
    """A contestant: its name, its adapter as `(flow, end, rtol, cap)`, its modules and its kind."""

    name: str
    solve: Callable[[Flow, Any, float, float], Outcome]
    modules: tuple[str, ...]
    kind: str = "explicit"


def _peer(name: str, adapter: Callable[..., Outcome], method: str, modules: str, kind: str = "explicit") -> Peer:
    return Peer(name, functools.partial(adapter, method=method), tuple(modules.split()), kind)


RK45, DOP853 = (_peer(f"SciPy {method}", scipy, method, "scipy") for method in ("RK45", "DOP853"))
TSIT5, DOPRI8 = (_peer(f"diffrax {method}", diffrax, method, "diffrax") for method in ("Tsit5", "Dopri8"))
TORCHDIFFEQ = _peer("torchdiffeq dopri5", torchdiffeq, "dopri5", "torch torchdiffeq")
TORCHODE = _peer("torchode Tsit5", torchode, "Tsit5", "torch torchode")
BDF = _peer("CVODE BDF, GMRES", cvode, "BDF", "sksundae", "implicit")
ADAMS = _peer("CVODE Adams, GMRES", cvode, "Adams", "sksundae", "implicit")


def contest(
    peer: Peer,
    flow: Flow,
    end: Any,
    judge: Callable[[np.ndarray], float],
    *,
    within: float,
    cap: float,
    members: float = 1,
    repeats: int = 3,
    ladder: Sequence[float] = LADDER,
) -> dict[str, Any]:
    """A row: the loosest tolerance of the ladder whose end is good enough.

    A run of an explicit method that was stopped is scaled to the end time at the pace of its second half, that of an
    implicit one, whose steps may grow, is a lower bound.

    Args:
        peer: Who.
        flow: What it solves: one member, or all of them at once.
        end: To which time; where several times are given, states are asked for at all of them.
        judge: Error of the flat state at the end, or of the states, times first.
        within: What that may be.
        cap: Seconds of one run.
        members: By what seconds are multiplied, where the flow is one part in so many.
        repeats: Runs at the tolerance that was found, if they are short.
        ladder: Tolerances.
    """
    if not there(*peer.modules):
        return row(peer.name, None, note=f"{' or '.join(peer.modules)} is not installed", kind=peer.kind)
    outcome, error, rtol = None, None, ladder[0]
    for rtol in ladder:
        outcome = peer.solve(flow, end, rtol, cap)
        error = None if outcome.y is None else judge(outcome.y)
        if error is None or error <= within:
            break
    assert outcome is not None
    seconds = [outcome.seconds]
    while outcome.y is not None and seconds[0] < SHORT and len(seconds) < repeats:
        seconds.append(peer.solve(flow, end, rtol, cap).seconds)
    return told(peer.name, outcome, seconds, end, error, members=members, kind=peer.kind, note=f"rtol {rtol:.0e}")


def told(
    name: str,
    outcome: Outcome,
    seconds: Sequence[float],
    end: Any,
    error: float | None,
    *,
    members: float = 1,
    kind: str = "explicit",
    note: str = "",
) -> dict[str, Any]:
    """An outcome as a row; what was stopped is scaled to the end, or a lower bound if the solver is implicit."""
    scaled, at_least, evaluations = float(members), outcome.y is None, outcome.evaluations
    end, estimated = float(np.max(end)), False
    if members != 1:
        note += f"; one part in {members:g}"
    if outcome.stopped is not None:
        note += f"; stopped at time {outcome.stopped:.3g} of {end:.3g}"
        if kind != "implicit" and outcome.pace is not None:
            at_least, estimated, left = False, True, end - outcome.stopped
            scaled *= 1 + left * outcome.pace[0] / outcome.seconds
            evaluations = None if evaluations is None else evaluations + left * outcome.pace[1]
    elif outcome.y is None:
        note += "; broke down"
    return row(
        name,
        Timing(tuple(seconds), None),
        scaled=scaled,
        evaluations=evaluations,
        error=error,
        note=note,
        at_least=at_least,
        estimated=estimated,
        kind=kind,
    )


def ours(
    name: str,
    solve: Callable[[float, float], Any],
    judge: Callable[[Any], float],
    *,
    within: float,
    long: float,
    members: float = 1,
) -> tuple[dict[str, Any], float]:
    """The row of a run of the package, on the same ladder, and its tolerance.

    Args:
        name: As whom it is shown.
        solve: Takes the tolerance and the share of the time to go, of which a tiny one compiles.
        judge: Error of what `solve` gives.
        within: What that may be.
        long: Seconds above which a run is not repeated.
        members: By what seconds are multiplied.
    """
    for rtol in LADDER:
        solve(rtol, 1e-9)
        run, timing = timed(functools.partial(solve, rtol, 1.0), 3, warm=False, long=long)
        error = judge(run)
        if error <= within or rtol == LADDER[-1]:
            count, note = float(run.stats["gradient_evaluations"]), f"rtol {rtol:.0e}"
            note += f"; one part in {members:g}" if members != 1 else ""
            found = row(name, timing, scaled=float(members), evaluations=count, error=error, note=note)
            return found, rtol
    raise AssertionError


def by_descent(
    flow: Flow, end: float, rate: float, judge: Callable[[np.ndarray], float], *, cap: float, members: float = 1
) -> dict[str, Any]:
    """The row of gradient descent."""
    name = "descent, torch, 32 bit"
    if not there("torch"):
        return row(name, None, note="torch is not installed", kind="descent")
    outcome = descent(flow, end, rate, cap)
    error = None if outcome.y is None else judge(outcome.y)
    return told(name, outcome, [outcome.seconds], end, error, members=members, kind="descent", note=f"rate {rate:.2g}")


def fastest(*rows: dict[str, Any]) -> dict[str, Any]:
    """The best of several methods of one library: the least time of those that ended, or of all."""
    ran = [one for one in rows if one["seconds"] is not None]
    if not ran:
        return rows[0]
    ended = [one for one in ran if "at_least" not in one] or ran
    best = min(ended, key=lambda one: one["seconds"])
    others = ", ".join(one["contestant"].split()[1].strip(",") for one in rows if one is not best)
    return best | {"note": f"{best['note']}; not slower than {others}"}
