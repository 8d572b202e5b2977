r"""Ensembles of gradient flows: `deeplinear.dynamics.ensemble` against vmapped diffrax, SciPy and gradient descent.

Every member is a square network of `depth` layers of `width`, with the loss $\tfrac12\|W - W^\star\|_F^2$ to a target
of its own, whose singular values are spread evenly on a logarithmic scale over [0.3, 3]. Layers start as independent
Gaussians of standard deviation `SCALES[depth]` / sqrt(width), small enough for plateaus and large enough that nearly
all members converge in time. A member runs until its loss is below 1e-10, or to time 1000. All in 64 bit, with relative
tolerance 1e-6.

| contestant | what it is |
| --- | --- |
| ensemble | `ensemble(...)` as it is called without thinking |
| ensemble tight | the same with relative tolerance 1e-7, for where the drift of the first is above that of diffrax |
| diffrax | `jit(vmap(diffeqsolve))`: Tsit5, PI control, rtol 1e-6, atol 1e-9, event on the loss, the faster adjoint |
| torchode | all members at once in torch, each with steps of its own, Tsit5, to the times at which ours stopped |
| scipy | loop of `solve_ivp` with a NumPy right-hand side: the fastest of RK45, DOP853, LSODA; CPU only |
| descent | `jit(vmap(while_loop))` of plain gradient descent, rate 0.5 / (largest curvature at the member's minimum) |

Notes on fairness. Everything is warm and timed until ready; compile time is told apart (the
strategy that the ensemble chose by default is compiled by then, and reads zero). Diffrax and descent use the same
hand-written gradient as the ensemble. Diffrax controls the root mean square of each weight's error relative to
that weight, the ensemble the error of each layer relative to that layer: what both reach is told by the drift of the
conserved quantities, $\max_l \|C_l - C_l(0)\|_F / \max_l \|W_l\|_F^2$, which is zero for the exact flow. Descent does
not follow the flow at all; it stands here because it is the simplest way to the minimum alone. The ensemble ends within
one per cent of the threshold, SciPy on it, the others after the first step below it. A Hessian product of the ensemble
counts as two gradient evaluations; the values of the event that diffrax and SciPy compute are not counted.

A run that would take longer than `--limit` seconds is measured on a part and scaled, and its row says so: diffrax and
descent, which move in lock-step, from the first steps of all members to the number of steps that the slowest members
need; SciPy over members, of which it runs 30 at the most. No end values are given for what did not reach the end.

Conclusion: not typed here but made from the stored numbers, together with machine, versions and all tables, by

    python benchmarks/ensemble.py --show

Usage, from the repository root:

    python benchmarks/ensemble.py --quick                         # one small case, nothing stored
    python benchmarks/ensemble.py                                 # all cases into benchmarks/results/
    python benchmarks/ensemble.py --cases '1000x*x3,300x20x2'     # members x width x depth
"""

import argparse
import fnmatch
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from common import RESULTS, describe, device_name, load, machine, results_path, save, table, timed
from jax import Array

from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.probes import loss

MEMBERS, WIDTHS, DEPTHS = (1000, 30000), (3, 10), (3,)
SCALES = {2: 0.1, 3: 0.7, 4: 1.0}
"""Standard deviation of the weights at the start, times sqrt(width): what lets members of each depth converge."""
RTOL, ATOL, THRESHOLD, HORIZON = 1e-6, 1e-9, 1e-10, 1000.0
PILOT = 10.0
"""Time up to which all members of diffrax and descent are run first, to learn what one step of all takes."""
SLOWEST = 8
"""Number of slow members that diffrax and descent move to their ends first, to learn how many steps there are."""
CONTESTANTS = ("ensemble", "ensemble tight", "diffrax", "torchode", "scipy", "descent")
OURS = CONTESTANTS[0]


class Case(NamedTuple):
    """Size of an ensemble."""

    members: int
    width: int
    depth: int

    @property
    def name(self) -> str:
        """As `--cases` takes it."""
        return f"{self.members}x{self.width}x{self.depth}"


class Setup(NamedTuple):
    """What all contestants are given: targets (member, width, width), layers at the start, learning rates."""

    case: Case
    targets: np.ndarray
    params: tuple[np.ndarray, ...]
    rates: np.ndarray
    limit: float
    repeats: int


def prepare(case: Case, limit: float, repeats: int) -> Setup:
    """Targets and starts of all members; the first members of a larger ensemble are not those of a smaller one."""
    members, width, depth = case
    rng = np.random.default_rng([members, width, depth])
    shape = (members, width, width)
    left, right = (np.linalg.qr(rng.standard_normal(shape))[0] for _ in range(2))
    values = np.exp(rng.uniform(math.log(0.3), math.log(3.0), (members, 1, width)))
    scale = SCALES[depth] / math.sqrt(width)
    params = tuple(scale * rng.standard_normal(shape) for _ in range(depth))
    # Largest curvature at a balanced minimum: depth * s^(2 - 2/depth) for the largest singular value s.
    rates = 0.5 / (depth * values.max(axis=(1, 2)) ** (2 - 2 / depth))
    return Setup(case, (left * values) @ right, params, rates, limit, repeats)


def accuracy(setup: Setup, params: Sequence[np.ndarray]) -> dict[str, Any]:
    """How the given members (the first ones) ended: loss, distance to the target, drift of what is conserved."""
    layers = [np.asarray(layer) for layer in params]
    count = len(layers[0])
    targets, starts = setup.targets[:count], [layer[:count] for layer in setup.params]
    product = layers[0]
    for layer in layers[1:]:
        product = layer @ product

    def norm(matrices: np.ndarray) -> np.ndarray:
        return np.linalg.norm(matrices, axis=(1, 2))

    def conserved(layers: Sequence[np.ndarray], at: int) -> np.ndarray:
        return layers[at + 1].mT @ layers[at + 1] - layers[at] @ layers[at].mT

    distance = norm(product - targets)
    ends = 0.5 * distance**2
    changes = [norm(conserved(layers, at) - conserved(starts, at)) for at in range(len(layers) - 1)]
    drift = np.max(changes, axis=0) / np.max([norm(layer) ** 2 for layer in layers], axis=0)
    values = {"loss": ends, "product_error": distance / norm(targets), "drift": drift}
    stats = {f"{name}_{how}": float(f(value)) for name, value in values.items() for how, f in SUMMARIES.items()}
    return {"ended": count, "converged": int(np.sum(ends <= 1.01 * THRESHOLD)), **stats}


SUMMARIES: dict[str, Callable[[np.ndarray], Any]] = {"median": np.median, "max": np.max}


def evaluations(counts: Any) -> dict[str, float]:
    """Gradient evaluations of a member."""
    return {f"evaluations_{how}": float(f(np.asarray(counts))) for how, f in SUMMARIES.items()}


# --- Contestants ----------------------------------------------------------------------------------------------------


def run_ensemble(setup: Setup, rtol: float = RTOL) -> tuple[dict[str, Any], np.ndarray]:
    """Our ensemble; also returns the times at which its members stopped."""
    _, width, depth = setup.case
    model = DeepLinear((width,) * (depth + 1))
    problems = jax.vmap(lambda target: Problem(model, SquaredDistance(target)))(jnp.asarray(setup.targets))
    params = tuple(jnp.asarray(layer) for layer in setup.params)

    def solve() -> Any:
        return ensemble(
            problems,
            params,
            GradientFlow(rtol=rtol),
            times=[HORIZON],
            until=until(loss, below=THRESHOLD),
            wall_limit=10 * setup.limit,
        )

    run, timing = timed(solve, setup.repeats)
    outcomes = {name: len(who) for name, who in run.outcomes().items()}
    odd = {name: count for name, count in outcomes.items() if name not in ("stopped", "completed")}
    note = ", ".join(f"{count} {name}" for name, count in odd.items())
    record = {**timing.to_json(), **accuracy(setup, run.params), **evaluations(run.stats["gradient_evaluations"])}
    return {**record, "note": note}, run.final_time


class LockStep(NamedTuple):
    """Compiled solves up to a bound on time, of all members and of the slowest few.

    Each returns the layers, the steps and the gradient evaluations of its members.
    """

    everyone: Callable[[float], tuple[tuple[Array, ...], Array, Array]]
    slowest: Callable[[float], tuple[tuple[Array, ...], Array, Array]]
    compile: float
    note: str


def compiled(function: Callable[..., Any], arrays: Any) -> tuple[Callable[[float], Any], float]:
    """A function of arrays and a bound, compiled ahead for these arrays; also the seconds that took."""
    begin = time.perf_counter()
    ready = jax.jit(function).lower(arrays, jnp.asarray(0.0)).compile()
    seconds = time.perf_counter() - begin
    return lambda bound: ready(arrays, jnp.asarray(bound)), seconds


def slow_members(setup: Setup, stops: np.ndarray) -> np.ndarray:
    """Members with the largest product of stopping time and curvature: those with the most steps, nearly."""
    return np.argsort(stops / setup.rates)[-SLOWEST:]


def member_problem(setup: Setup, target: Array) -> Problem:
    """Problem of one member inside a compiled function."""
    return Problem(DeepLinear((setup.case.width,) * (setup.case.depth + 1)), SquaredDistance(target))


def make_diffrax(setup: Setup, stops: np.ndarray) -> LockStep:
    """Vmapped diffrax with whichever adjoint is faster for the first steps."""
    adjoints = {"default": diffrax.RecursiveCheckpointAdjoint()}
    if hasattr(diffrax, "ForwardMode"):
        adjoints["forward"] = diffrax.ForwardMode()

    def field(t: Any, y: tuple[Array, ...], args: Array) -> tuple[Array, ...]:
        return tuple(-g for g in member_problem(setup, args).gradient(y))

    def low(t: Any, y: tuple[Array, ...], args: Array, **kwargs: Any) -> Array:
        return member_problem(setup, args).value(y) <= THRESHOLD

    def solver(adjoint: diffrax.AbstractAdjoint) -> Callable[..., Any]:
        def member(start: tuple[tuple[Array, ...], Array], bound: Array) -> tuple[tuple[Array, ...], Array, Array]:
            params, target = start
            solution = diffrax.diffeqsolve(
                diffrax.ODETerm(field),
                diffrax.Tsit5(),
                t0=0.0,
                t1=bound,
                dt0=None,
                y0=params,
                args=target,
                stepsize_controller=diffrax.PIDController(rtol=RTOL, atol=ATOL),
                event=diffrax.Event(low),
                saveat=diffrax.SaveAt(t1=True),
                adjoint=adjoint,
                max_steps=None,
                throw=False,
            )
            steps = solution.stats["num_steps"]
            # First same as last: six evaluations a step, three more to choose the first step and to begin.
            return tuple(layer[0] for layer in solution.ys), steps, 6 * steps + 3

        return jax.vmap(member, in_axes=(0, None))

    arrays = (tuple(map(jnp.asarray, setup.params)), jnp.asarray(setup.targets))
    built = {name: compiled(solver(adjoint), arrays) for name, adjoint in adjoints.items()}
    pace = {name: timed(lambda solve=solve: solve(PILOT / 4), 2)[1].median for name, (solve, _) in built.items()}
    best = min(pace, key=lambda name: pace[name])
    slow = jax.tree.map(lambda leaf: leaf[slow_members(setup, stops)], arrays)
    return LockStep(built[best][0], compiled(solver(adjoints[best]), slow)[0], built[best][1], f"adjoint {best}")


def make_descent(setup: Setup, stops: np.ndarray) -> LockStep:
    """Gradient descent; a bound on time is a bound on the sum of the steps' rates."""

    def member(start: tuple[tuple[Array, ...], Array, Array], bound: Array) -> tuple[tuple[Array, ...], Array, Array]:
        params, target, rate = start
        problem = member_problem(setup, target)

        def goes_on(carry: tuple[Any, Array, Array]) -> Array:
            _, value, count = carry
            return (value > THRESHOLD) & (count * rate < bound)

        def step(carry: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
            (params, gradient), _, count = carry
            params = tuple(w - rate * g for w, g in zip(params, gradient, strict=True))
            value, gradient = problem.value_and_gradient(params)
            return (params, gradient), value, count + 1

        value, gradient = problem.value_and_gradient(params)
        (params, _), _, steps = jax.lax.while_loop(goes_on, step, ((params, gradient), value, jnp.zeros((), int)))
        return params, steps, steps + 1

    batched = jax.vmap(member, in_axes=(0, None))
    arrays = (tuple(map(jnp.asarray, setup.params)), jnp.asarray(setup.targets), jnp.asarray(setup.rates))
    slow = jax.tree.map(lambda leaf: leaf[slow_members(setup, stops)], arrays)
    everyone, seconds = compiled(batched, arrays)
    return LockStep(everyone, compiled(batched, slow)[0], seconds, "")


def run_lockstep(setup: Setup, contestant: LockStep) -> dict[str, Any]:
    """Time a whole run if it fits the limit, otherwise its first steps, scaled to the number of steps of a whole run.

    All members are moved by every step, whether they have ended or not, so that all steps take the same time.
    """

    def steps_of(outcome: tuple[Any, Array, Array]) -> int:
        return int(np.max(np.asarray(outcome[1])))

    def part(bound: float) -> tuple[float, int]:
        outcome, timing = timed(lambda: contestant.everyone(bound), 1, warm=False)
        return timing.median, steps_of(outcome)

    whole = steps_of(contestant.slowest(HORIZON))
    seconds, steps = part(PILOT)
    if seconds * whole / steps <= setup.limit:
        (params, _, counts), timing = timed(lambda: contestant.everyone(HORIZON), setup.repeats, warm=False)
        record = {**timing.to_json(), **accuracy(setup, params), **evaluations(counts), "note": contestant.note}
    else:
        if seconds < setup.limit / 2:
            seconds, steps = part(PILOT * setup.limit / seconds)
        factor = whole / steps
        note = "; ".join(filter(None, [contestant.note, f"{steps} of {whole} steps, scaled by {factor:.3g}"]))
        record = {"seconds": factor * seconds, "spread": 0.0, "repeats": 1, "scaled": factor, "note": note}
    return {**record, "compile": contestant.compile}


def run_torchode(setup: Setup, stops: np.ndarray) -> dict[str, Any]:
    """`torchode` on all members at once, each to the time at which our ensemble stopped it."""
    try:
        import torch
        import torchode
    except ImportError as error:
        return {"seconds": None, "note": str(error)}
    members, width, depth = setup.case
    targets = torch.tensor(setup.targets)
    begin, calls = time.perf_counter(), 0

    def field(t: Any, y: Any) -> Any:
        nonlocal calls
        calls += 1
        if time.perf_counter() - begin > setup.limit:
            raise TimeoutError
        layers = y.reshape(members, depth, width, width).unbind(1)
        below = [layers[0]]
        for layer in layers[1:]:
            below.append(layer @ below[-1])
        back, out = targets - below[-1], []
        for at in range(depth - 1, 0, -1):
            out.append(back @ below[at - 1].mT)
            back = layers[at].mT @ back
        return torch.stack([*out, back][::-1], dim=1).reshape(members, -1)

    term = torchode.ODETerm(field)
    controller = torchode.IntegralController(atol=ATOL, rtol=RTOL, term=term)
    solver = torchode.AutoDiffAdjoint(torchode.Tsit5(term), controller)
    start = torch.tensor(np.stack(setup.params, axis=1).reshape(members, -1))
    times = torch.tensor(np.stack([np.zeros(members), stops], axis=1))
    try:
        with torch.no_grad():
            found = solver.solve(torchode.InitialValueProblem(y0=start, t_eval=times))
    except TimeoutError:
        return {"seconds": None, "note": f"not there after {setup.limit:g} s, {calls} evaluations of all members"}
    seconds = time.perf_counter() - begin
    ends = found.ys[:, -1].reshape(members, depth, width, width).numpy()
    return {
        "seconds": seconds,
        "spread": 0.0,
        "repeats": 1,
        "compile": None,
        "note": "first run; nothing is compiled",
        **accuracy(setup, [ends[:, at] for at in range(depth)]),
        **evaluations([calls]),
    }


def run_scipy(setup: Setup) -> dict[str, Any]:
    """A loop of `solve_ivp` over some members, with the method that is fastest on the first two."""
    from scipy.integrate import solve_ivp

    _, width, depth = setup.case

    def unpack(y: np.ndarray) -> np.ndarray:
        return y.reshape(depth, width, width)

    def solve(member: int, method: str, deadline: float) -> Any:
        target = setup.targets[member]

        def field(t: float, y: np.ndarray) -> np.ndarray:
            if time.perf_counter() > deadline:
                raise TimeoutError
            layers = unpack(y)
            below = [layers[0]]
            for layer in layers[1:]:
                below.append(layer @ below[-1])
            back = target - below[-1]
            out = np.empty_like(layers)
            for at in range(depth - 1, 0, -1):
                out[at] = back @ below[at - 1].T
                back = layers[at].T @ back
            out[0] = back
            return out.ravel()

        def low(t: float, y: np.ndarray) -> float:
            layers = unpack(y)
            product = layers[0]
            for layer in layers[1:]:
                product = layer @ product
            return 0.5 * float(np.sum((product - target) ** 2)) - THRESHOLD

        low.terminal, low.direction = True, -1
        start = np.stack([layer[member] for layer in setup.params]).ravel()
        run = solve_ivp(field, (0.0, HORIZON), start, method, rtol=RTOL, atol=ATOL, events=low, t_eval=[HORIZON])
        if run.status < 0:
            raise ArithmeticError(run.message)
        return run

    def some(count: int, method: str, limit: float) -> tuple[list[Any], float]:
        begin = time.perf_counter()
        runs = [solve(member, method, begin + limit) for member in range(count)]
        return runs, time.perf_counter() - begin

    pace = {}
    for method in ("RK45", "DOP853", "LSODA"):
        try:
            pace[method] = some(2, method, setup.limit / 2)[1] / 2
        except (TimeoutError, ArithmeticError):
            pace[method] = math.inf
    best = min(pace, key=lambda method: pace[method])
    if not math.isfinite(pace[best]):
        return {"seconds": None, "note": f"no method solves two members within {setup.limit / 2:g} s"}
    count = int(np.clip(setup.limit / pace[best], 2, min(30, setup.case.members)))
    runs, seconds = some(count, best, math.inf)
    factor = setup.case.members / count
    ends = [unpack(run.y_events[0][0] if len(run.y_events[0]) else run.y[:, -1]) for run in runs]
    params = [np.stack([end[at] for end in ends]) for at in range(depth)]
    return {
        "seconds": factor * seconds,
        "spread": 0.0,
        "repeats": 1,
        "compile": None,
        **({"scaled": factor} if factor > 1 else {}),
        "note": best + (f"; {count} members, scaled by {factor:.3g}" if factor > 1 else ""),
        **accuracy(setup, params),
        **evaluations([run.nfev for run in runs]),
    }


def run_case(setup: Setup, contestants: Sequence[str], report: Callable[[str], None]) -> dict[str, Any]:
    """All contestants on one case. Our ensemble always runs: its stopping times tell which members are slow."""
    described = machine()
    report(f"{setup.case.name}: {OURS}")
    record, stops = run_ensemble(setup)
    records = {OURS: record}
    tasks: dict[str, Callable[[], dict[str, Any]]] = {
        "ensemble tight": lambda: run_ensemble(setup, RTOL / 10)[0],
        "diffrax": lambda: run_lockstep(setup, make_diffrax(setup, stops)),
        "torchode": lambda: run_torchode(setup, stops),
        "scipy": lambda: run_scipy(setup),
        "descent": lambda: run_lockstep(setup, make_descent(setup, stops)),
    }
    for name, task in tasks.items():
        if name in contestants:
            report(f"{setup.case.name}: {name}")
            records[name] = task()
    stop_times = {how: float(f(stops)) for how, f in SUMMARIES.items()}
    return {**setup.case._asdict(), "machine": described, "stop_time": stop_times, "contestants": records}


# --- Tables ---------------------------------------------------------------------------------------------------------


def ratio(record: dict[str, Any], name: str) -> float | None:
    """Seconds of a contestant over seconds of our ensemble."""
    seconds = record["contestants"].get(name, {}).get("seconds")
    return None if seconds is None else seconds / record["contestants"][OURS]["seconds"]


def case_table(record: dict[str, Any]) -> str:
    """One case as a table."""
    head = ["contestant", "seconds", "spread", "compile", "/ ours", "gradients", "most", "ended low", "loss", "largest"]
    head += ["product error", "largest", "drift", "largest", "note"]
    keys = ["loss_median", "loss_max", "product_error_median", "product_error_max", "drift_median", "drift_max"]
    rows = []
    for name, entry in record["contestants"].items():
        counts = [entry.get(f"evaluations_{how}") for how in SUMMARIES]
        row = [name, entry["seconds"], entry.get("spread"), entry.get("compile"), ratio(record, name)]
        row += [None if count is None else f"{count:.0f}" for count in counts]
        row += [f"{entry['converged']} of {entry['ended']}" if "ended" in entry else None]
        rows.append([*row, *(entry.get(key) for key in keys), entry.get("note", "")])
    title = f"{record['members']} members, width {record['width']}, depth {record['depth']}"
    stop = record["stop_time"]
    title += f"; members stop at time {stop['median']:.3g} (median), {stop['max']:.4g} (latest)"
    return f"{title}\n\n{table(head, rows)}"


def conclusion(records: Sequence[dict[str, Any]]) -> str:
    """What the stored numbers say, as a paragraph."""
    device = records[0]["machine"]["device"]
    cases = "1 case" if len(records) == 1 else f"{len(records)} cases"
    sentences = [f"Over {cases} on {device}, in the time of `ensemble` (warm, default strategy):"]
    for name in CONTESTANTS[1:]:
        found = {Case(r["members"], r["width"], r["depth"]): value for r in records if (value := ratio(r, name))}
        if not found:
            continue
        low, high = min(found, key=lambda c: found[c]), max(found, key=lambda c: found[c])
        scaled = sum("scaled" in r["contestants"].get(name, {}) for r in records)
        told = f"{name} takes {np.median(list(found.values())):.3g} times that in the median"
        if len(found) > 1:
            told += f", from {found[low]:.3g} ({low.name}) to {found[high]:.3g} ({high.name})"
        sentences.append(told + (f", {scaled} of {len(found)} scaled from a part;" if scaled else ";"))
    entries = [r["contestants"] for r in records]
    for name in (OURS, "ensemble tight"):
        both = [(c[name], c["diffrax"]) for c in entries if name in c and "drift_max" in c.get("diffrax", {})]
        if both:
            ratios = [ours["drift_max"] / theirs["drift_max"] for ours, theirs in both]
            sentences.append(
                f"the largest drift of {name} is {min(ratios):.2g} to {max(ratios):.2g} times that of diffrax;"
            )
    missing = sum(c[OURS]["ended"] - c[OURS]["converged"] for c in entries)
    total = sum(r["members"] for r in records)
    sentences.append(f"{total - missing} of {total} members of `ensemble` ended with a loss below {THRESHOLD:g}.")
    return " ".join(sentences)


def show(path: Path) -> None:
    """Print a file of results: conclusion, machine, ratios, cases."""
    records = load(path)
    if not records:
        print(f"There are no results in {path}.")
        return
    print(f"# {path.name}\n\nConclusion (made from the stored numbers). {conclusion(records)}\n")
    for line in dict.fromkeys(describe(record["machine"]) for record in records):
        print(f"- {line}")
    head = ["members x width x depth", "ours, s", *(f"{name} / ours" for name in CONTESTANTS[1:])]
    rows = []
    for record in records:
        case = Case(record["members"], record["width"], record["depth"])
        ours = record["contestants"][OURS]["seconds"]
        cells = []
        for name in CONTESTANTS[1:]:
            value = ratio(record, name)
            mark = "~" if "scaled" in record["contestants"].get(name, {}) else ""
            cells.append(None if value is None else f"{mark}{value:.3g}")
        rows.append([case.name, ours, *cells])
    print(f"\n{table(head, rows)}\n\n~ scaled from a part.\n")
    for record in records:
        print(f"## {case_table(record)}\n")


# --- Command line ---------------------------------------------------------------------------------------------------


def chosen(patterns: str) -> list[Case]:
    """Cases whose name fits one of the patterns; a name without stars need not be in the list."""
    known = [Case(m, d, depth) for d in WIDTHS for depth in DEPTHS for m in MEMBERS]
    cases: list[Case] = []
    for pattern in patterns.split(","):
        found = [case for case in known if fnmatch.fnmatch(case.name, pattern)]
        if not found:
            try:
                members, width, depth = map(int, pattern.split("x"))
            except ValueError:
                raise SystemExit(f"--cases: '{pattern}' must be like 300x10x3 or 300x*x2.") from None
            if depth not in SCALES:
                raise SystemExit(f"--cases: depth must be one of {sorted(SCALES)}, but is {depth}.")
            found = [Case(members, width, depth)]
        cases += [case for case in found if case not in cases]
    return cases


def main() -> None:
    """Parse, run, store, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small case; stored only with --json")
    parser.add_argument("--cases", default="*", help="members x width x depth, comma-separated, stars allowed")
    parser.add_argument("--contestants", help=f"comma-separated, of: {', '.join(CONTESTANTS)}")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds above which a run is scaled (60)")
    parser.add_argument("--repeats", type=int, default=3, help="timed runs (3); one if it takes above 20 s")
    parser.add_argument("--json", type=Path, help="file of results, instead of the one in benchmarks/results")
    parser.add_argument("--device", action="store_true", help="print the machine and end")
    parser.add_argument("--show", action="store_true", help="print stored results and end")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.show:
        stored = sorted(RESULTS.glob("ensemble-*.json")) or [results_path("ensemble")]
        for path in [options.json] if options.json else stored:
            show(path)
        return
    print(describe(machine()), flush=True)
    if options.device:
        return

    # On an accelerator what runs on the host measures the wrong machine.
    unfit = () if device_name() == "cpu" else ("scipy", "torchode")
    names = options.contestants.split(",") if options.contestants else [c for c in CONTESTANTS if c not in unfit]
    if unknown := [name for name in names if name not in CONTESTANTS]:
        raise SystemExit(f"--contestants: there is no {unknown}; there are {list(CONTESTANTS)}.")
    path = options.json or (None if options.quick else results_path("ensemble"))
    records = (load(path) or []) if path else []
    for case in [Case(12, 3, 2)] if options.quick else chosen(options.cases):
        setup = prepare(case, options.limit, options.repeats)
        record = run_case(setup, names, lambda text: print(f"  {text}", flush=True))
        print(f"\n{case_table(record)}\n", flush=True)
        key = Case(*(record[field] for field in Case._fields))
        records = [r for r in records if Case(*(r[field] for field in Case._fields)) != key] + [record]
        if path:
            save(path, sorted(records, key=lambda r: (r["width"], r["depth"], r["members"])))
    print(f"Conclusion (made from the numbers above). {conclusion(records)}")


if __name__ == "__main__":
    main()
