r"""Gradient flow: the vector field, error control and the switch between explicit and stabilised integration.

The flow has two regimes. While it learns, the step is bound by accuracy and a high-order explicit pair is best. Near a
minimum the step is bound by stability and a Chebyshev-type method wins by $\sqrt{h\rho}$. `advance` moves one run
through both; it is a pure function of its state, so it may be compiled once and mapped over members.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from deeplinear.core import (
    RESULTS,
    AbstractField,
    AbstractIntegrator,
    Array,
    Exponential,
    RungeKutta,
    Stabilised,
    as_array,
    check_number,
    dopri8,
    flatten,
    tsit5,
    unflatten,
)
from deeplinear.dynamics._base import AbstractMethod, Plan, Snapshots
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem

Scalar = Float[Array, ""]
Vector = Float[Array, " size"]

REFRESH = 32
"""Steps between two estimates of the spectral radius."""
STRIKES = 6
"""Steps near the stability limit before the stabilised method takes over."""
FLOOR = 8
"""Smallest relative tolerance in units of the spacing of floating-point numbers at 1."""
DENSE = 200
"""Largest number of weights for dense linear algebra."""
RETURN = 10
"""Stabilised steps that an explicit pair could have taken before it takes over again."""
INSTANT = 1e-9
"""Step, in units of the time scale of the flow, that is short enough to say when a stopping rule was met."""
CRAWL = 1e-3
"""Share of the step that the order of the method is good for, below which a step crawls."""
RETRIES = 20
"""Times in a row that a step is taken back because it jumped past the threshold of a stopping rule."""
AFFORDABLE = 30
"""Steps in units of 1/ρ and of the number of weights from which dense linear algebra costs less than stages."""
MARGIN = 1.1
"""Factor on the estimate of the spectral radius."""
NOISE = 1e3
"""Rounding of the gradient, in units of the spacing of numbers times spectral radius and size of the weights."""
PATIENCE = 1000
"""Crawling steps in a row after which a flow is given up. Where a tiny step has a passing cause, such as a kink or the
start, the ones after it grow fivefold each."""


class Switching(eqx.Module):
    """Integrators for the regimes of a flow, and the rule to change between them.

    The explicit pair runs until $h\\rho$ has been above 0.7 of its stability limit on six steps without falling below
    half of that in between; the stabilised method runs until ten steps in a row would have been within a third of the
    limit. For networks of at most 200 weights a stabilised step with $h\\rho$ above 30 times the number of weights is
    taken by the dense exponential method instead: there its eigen-decomposition costs less, and it has no longest step.
    """

    explicit: AbstractIntegrator
    stabilised: AbstractIntegrator
    dense: AbstractIntegrator


class GradientFlow(AbstractMethod):
    r"""Gradient flow $\dot\theta = -\nabla\mathcal L(\theta)$, solved as an ordinary differential equation.

    The local error of layer $l$ is kept below `atol + rtol` $\|W_l\|_F$, so that weights of any size are followed to
    `rtol`. Near a saddle what matters is far below that: a mode of size $10^{-10}$ hidden beneath learnt ones. There
    the growth of the gradient over one step is bounded too, by what the method follows to `rtol`.

    Args:
        rtol: Relative tolerance.
        atol: Absolute tolerance per layer, in Frobenius norm.
        integrator: A single integrator (`tsit5()`, `dopri8()`, `kvaerno5()`, `Stabilised()`, `Exponential()`), a
            `Switching`, or `None` for the automatic choice: `Switching` with Tsit5 for `rtol` above 1e-7, else Dopri8.
    """

    rtol: Scalar
    atol: Scalar
    integrator: AbstractIntegrator | Switching

    def __init__(
        self,
        rtol: float | Scalar = 1e-8,
        atol: float | Scalar = 0.0,
        integrator: AbstractIntegrator | Switching | None = None,
    ) -> None:
        check_number("GradientFlow", "rtol", rtol, at_least=1e-14, at_most=0.1)
        check_number("GradientFlow", "atol", atol, at_least=0)
        self.rtol = as_array(rtol, float)
        self.atol = as_array(atol, float)
        if integrator is None:
            integrator = Switching(default_pair(float(rtol)), Stabilised(), Exponential())
        if not isinstance(integrator, AbstractIntegrator | Switching):
            raise TypeError(f"GradientFlow: integrator must be an integrator such as tsit5(), but is {integrator!r}.")
        self.integrator = integrator


def default_pair(rtol: float) -> RungeKutta:
    """The explicit pair that costs least at a tolerance."""
    return tsit5() if rtol > 1e-7 else dopri8()


class GradientField(AbstractField):
    r"""$f(y) = -\nabla\mathcal L$ on flattened parameters, with Hessian products as its derivative."""

    problem: Problem

    def __call__(self, y: Vector) -> Vector:
        return -flatten(self.problem.gradient(unflatten(y, self.problem.model.shapes)))

    def linearize(self, y: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        shapes = self.problem.model.shapes
        gradient, product = self.problem.linearize(unflatten(y, shapes))
        return -flatten(gradient), lambda v: -flatten(product(unflatten(v, shapes)))


class FlowState(NamedTuple):
    """Everything a flow needs to go on.

    `age` counts the steps since the spectral radius was estimated, `stalled` the crawling steps in a row.
    """

    t: Scalar
    y: Vector
    f: Vector
    h: Scalar
    rho: Scalar
    direction: Vector
    age: Int[Array, ""]
    stiff: Bool[Array, ""]
    strikes: Int[Array, ""]
    error: Scalar
    loss: Scalar
    values: Float[Array, " rules"]
    retries: Int[Array, ""]
    stalled: Int[Array, ""]
    window: Int[Array, ""]
    accepted: Int[Array, ""]
    rejected: Int[Array, ""]
    stabilised: Int[Array, ""]
    evaluations: Int[Array, ""]
    result: Int[Array, ""]
    rule: Int[Array, ""]


def _norms(vector: Vector, shapes: tuple[tuple[int, int], ...]) -> Float[Array, " layers"]:
    return jnp.stack([jnp.linalg.norm(layer) for layer in unflatten(vector, shapes)])


def start(problem: Problem, rules: tuple[Until, ...], y: Vector, t: Scalar) -> FlowState:
    """State at the beginning: first step from the time scales $\\|f\\|/\\|Jf\\|$ and $\\|y\\|/\\|f\\|$."""
    f, jacobian = GradientField(problem).linearize(y)
    moved = jacobian(f)
    size, speed, bend = jnp.linalg.norm(y), jnp.linalg.norm(f), jnp.linalg.norm(moved)
    tiny = jnp.finfo(y.dtype).tiny
    scales = jnp.stack(
        [0.05 * speed / jnp.maximum(bend, tiny), jnp.where(size > 0, 0.05 * size, 1.0) / jnp.maximum(speed, tiny)]
    )
    params = unflatten(y, problem.model.shapes)
    values = jnp.stack([rule.value(t, params, problem) for rule in rules]) if rules else jnp.zeros(0)
    met = jnp.stack([rule.fired(v) for rule, v in zip(rules, values, strict=True)]) if rules else jnp.zeros(0, bool)
    healthy = jnp.isfinite(size + speed)
    result = jnp.where(speed == 0, RESULTS.steady, RESULTS.running)
    result = jnp.where(jnp.any(met), RESULTS.stopped, result) if rules else result
    result = jnp.where(healthy, result, RESULTS.diverged)
    zero = jnp.zeros((), int)
    return FlowState(
        t=t,
        y=y,
        f=f,
        h=jnp.min(scales),
        rho=bend / jnp.maximum(speed, tiny),
        direction=f / jnp.maximum(speed, tiny),
        age=zero + REFRESH,
        stiff=jnp.zeros((), bool),
        strikes=zero,
        error=jnp.ones((), y.dtype),
        loss=problem.value(params),
        values=values.astype(y.dtype),
        retries=zero,
        stalled=zero,
        window=zero,
        accepted=zero,
        rejected=zero,
        stabilised=zero,
        evaluations=zero + 3,
        result=result.astype(int),
        rule=jnp.argmax(met).astype(int) if rules else zero,
    )


def _growth_limit(integrator: AbstractIntegrator, rtol: Scalar) -> Scalar:
    r"""Growth $\lambda h = ((p+1)!\,\mathrm{rtol})^{1/(p+1)}$ over one step that order $p$ follows to `rtol`."""
    power = integrator.error_order + 1
    return (math.factorial(power) * rtol) ** (1.0 / power)


def refresh(field: GradientField, state: FlowState) -> FlowState:
    """Spectral radius by power iteration from the last direction: Rayleigh quotient plus residual, with a margin."""
    _, jacobian = field.linearize(state.y)

    def iterate(_: Int[Array, ""], carry: tuple[Vector, Scalar]) -> tuple[Vector, Scalar]:
        v, _ = carry
        w = jacobian(v)
        quotient = jnp.vdot(v, w)
        bound = jnp.abs(quotient) + jnp.linalg.norm(w - quotient * v)
        size = jnp.linalg.norm(w)
        return jnp.where(size > 0, w / jnp.where(size > 0, size, 1.0), v), bound

    iterations = 3
    direction, bound = jax.lax.fori_loop(0, iterations, iterate, (state.direction, state.rho))
    return state._replace(
        rho=MARGIN * bound,
        direction=direction,
        age=jnp.zeros_like(state.age),
        evaluations=state.evaluations + 1 + 2 * iterations,
    )


def _locate(
    old: Float[Array, " rules"], new: Float[Array, " rules"], threshold: Float[Array, " rules"]
) -> Float[Array, " rules"]:
    """Fraction of a step at which values on their way from `old` to `new` meet the threshold."""
    positive = (old > 0) & (new > 0) & (threshold > 0)
    safe = [jnp.where(positive, x, 1.0) for x in (old, new, threshold)]
    ratio = jnp.log(safe[0] / safe[1])
    geometric = jnp.log(safe[0] / safe[2]) / jnp.where(ratio == 0, 1.0, ratio)
    linear = (old - threshold) / jnp.where(old == new, 1.0, old - new)
    return jnp.clip(1.005 * jnp.where(positive, geometric, linear), 0.02, 0.98)


def attempt(
    field: GradientField,
    method: GradientFlow,
    rules: tuple[Until, ...],
    plan: Plan,
    mode: str,
    state: FlowState,
) -> tuple[FlowState, Bool[Array, ""]]:
    """Try one step; returns the state after it and whether a snapshot is due."""
    problem, integrator = field.problem, method.integrator
    shapes = problem.model.shapes
    y, f, dtype = state.y, state.f, state.y.dtype
    eps, huge = jnp.finfo(dtype).eps, float(jnp.finfo(dtype).max) ** (1 / 3)

    # Step size: what the controller wants, shortened to land on the next output, in two halves when it is close.
    small = y.shape[0] <= DENSE and mode == "both"
    if isinstance(integrator, Switching):
        explicit, stabilised = integrator.explicit, integrator.stabilised
        longest = explicit.largest_step(state.rho, method.rtol)
        cap = longest if small else jnp.where(state.stiff, stabilised.largest_step(state.rho, method.rtol), longest)
    else:
        explicit = stabilised = integrator
        cap = integrator.largest_step(state.rho, method.rtol)
    wanted = jnp.minimum(state.h, cap)
    listed = state.window < plan.listed
    goal = jnp.where(listed, plan.times[jnp.minimum(state.window, plan.times.shape[0] - 1)], plan.horizon)
    left = goal - state.t
    h = jnp.where(left <= wanted * (1 + 1e-3), left, jnp.where(left < 2 * wanted, 0.5 * left, wanted))
    lands = h >= left

    def run(chosen: AbstractIntegrator) -> Callable[[], tuple[Array, ...]]:
        return lambda: (
            tuple(chosen.step(field, y, f, h, state.rho, method.rtol))
            + (
                jnp.asarray(1.0 / chosen.error_order, dtype),
                _growth_limit(chosen, method.rtol),
            )
        )

    if isinstance(integrator, Switching) and small:
        affordable = AFFORDABLE * y.shape[0] / jnp.maximum(state.rho, jnp.finfo(dtype).tiny)
        long = h > jnp.minimum(affordable, stabilised.largest_step(state.rho, method.rtol))
        which = jnp.where(state.stiff, jnp.where(long, 2, 1), 0)
        outcome = jax.lax.switch(which, [run(explicit), run(stabilised), run(integrator.dense)])
    elif isinstance(integrator, Switching) and mode == "both":
        outcome = jax.lax.cond(state.stiff, run(stabilised), run(explicit))
    elif isinstance(integrator, Switching) and mode == "stabilised":
        outcome = run(stabilised)()
    else:
        outcome = run(explicit)()
    new, slope, error, evaluations, exponent, allowed = outcome

    # Error of each layer against the layer; and while the gradient grows, a bound on its growth over one step.
    sizes = jnp.maximum(_norms(y, shapes), _norms(new, shapes))
    scale = jnp.maximum(method.atol + method.rtol * sizes, FLOOR * eps * sizes)
    ratio = jnp.max(_norms(error, shapes) / jnp.maximum(scale, jnp.finfo(dtype).tiny))
    speed, before, size = jnp.linalg.norm(slope), jnp.linalg.norm(f), jnp.linalg.norm(y)
    noise = NOISE * eps * state.rho * size
    rate = jnp.maximum(state.rho, before / jnp.maximum(size, jnp.finfo(dtype).tiny))
    growth = jnp.log(jnp.maximum(speed / before, 1.0))
    ratio = jnp.maximum(ratio, jnp.where(speed > noise, (growth / allowed) ** (1.0 / exponent), 0.0))
    # The loss falls along a flow: a step that raises it is too long. Where the rise may be rounding of the loss, the
    # gradients decide: they change the loss by their mean along the step, to third order.
    value = problem.value(unflatten(new, shapes))
    gap, worth = value - state.loss, jnp.abs(state.loss)
    rounded = (gap < 16 * eps * (worth + state.rho * size**2)) & (jnp.sum((f + slope) * (new - y)) > 0)
    rises = (gap > 1e-9 * worth) & ~rounded & (before > noise)
    ratio = jnp.where(rises, jnp.maximum(ratio, 2.0 ** (1.0 / exponent)), ratio)
    ratio = jnp.where(jnp.isfinite(ratio) & jnp.all(jnp.isfinite(slope)), ratio, jnp.inf)
    good = ratio <= 1
    safe = jnp.clip(ratio, 1e-10, 1e10)
    grow = 0.9 * safe ** (-0.7 * exponent) * state.error ** (0.4 * exponent)
    shrink = jnp.minimum(0.9 * safe**-exponent, 0.9)
    factor = jnp.where(good, jnp.clip(grow, 0.2, 5.0), jnp.clip(shrink, 0.1, 0.9))
    # A step cut short to land on an output says little about the next one.
    proposed = jnp.where(good & (h < wanted), jnp.maximum(wanted, h * factor), h * factor)

    # Stopping rules; a step that jumps past its threshold is taken back and shortened, down to where a value that is
    # not continuous must be the cause.
    t = jnp.where(lands, goal, state.t + h)
    params = unflatten(new, shapes)
    stop, back, fraction, rule = jnp.zeros((), bool), jnp.zeros((), bool), jnp.ones((), dtype), state.rule
    values = state.values
    if rules:
        values = jnp.stack([r.value(t, params, problem).astype(dtype) for r in rules])
        met = jnp.stack([r.fired(v) for r, v in zip(rules, values, strict=True)])
        thresholds = jnp.stack([r.threshold.astype(dtype) for r in rules])
        far = jnp.abs(values - thresholds) > 0.01 * jnp.maximum(jnp.abs(thresholds), eps * jnp.abs(state.values))
        fractions = jnp.where(met & far, _locate(state.values, values, thresholds), 1.0)
        fraction = jnp.min(fractions)
        back = good & (fraction < 1) & (state.retries < RETRIES) & (h * rate > INSTANT)
        stop = good & ~back & jnp.any(met)
        rule = jnp.where(stop, jnp.argmax(met), rule).astype(int)
    take = good & ~back
    proposed = jnp.where(back, h * fraction, proposed)

    # Stiffness watch.
    stiff, strikes, age = state.stiff, state.strikes, state.age + 1
    if isinstance(integrator, Switching):
        stiffness = h * state.rho
        near = jnp.where(stiff, take & (stiffness < explicit.stability / 3), stiffness > 0.7 * explicit.stability)
        far = take & jnp.where(stiff, ~near, stiffness < 0.35 * explicit.stability)
        strikes = jnp.where(near, strikes + 1, jnp.where(far, 0, strikes))
        turn = strikes >= jnp.where(stiff, RETURN, STRIKES)
        stiff = stiff ^ turn
        strikes = jnp.where(turn, 0, strikes)
        # A stabilised step may have failed because the radius has grown.
        age = jnp.where(turn | (state.stiff & ~good), REFRESH, age)

    # A smooth field allows steps of about `allowed` of its time scales. Far shorter ones again and again mean that
    # errors are rounding or noise. Steps cut short for an output do not count. Nor does it matter whether the clock can
    # tell t + h from t: the field does not depend on time, and after a wait of 1e18 the weights move within one tick.
    crawls = h * rate < CRAWL * allowed
    stalled = jnp.where(h < wanted, state.stalled, jnp.where(crawls, state.stalled + 1, 0))

    accepted = state.accepted + take
    ended = lands & (goal >= plan.horizon)
    result = jnp.select(
        [
            take & stop,
            take & ended,
            take & (speed == 0),
            (~good & (proposed * before <= 1e-3 * eps * size)) | (stalled >= PATIENCE),
            take & (jnp.maximum(jnp.linalg.norm(new), speed) > huge),
            accepted >= plan.max_steps,
        ],
        [
            jnp.asarray(int(r))
            for r in (
                RESULTS.stopped,
                RESULTS.completed,
                RESULTS.steady,
                RESULTS.step_too_small,
                RESULTS.diverged,
                RESULTS.step_limit,
            )
        ],
        jnp.asarray(int(RESULTS.running)),
    )
    due = take & ((lands & listed) | ((plan.every > 0) & (accepted % jnp.maximum(plan.every, 1) == 0)))

    def pick(yes: Array, no: Array) -> Array:
        return jnp.where(take, yes, no)

    return FlowState(
        t=pick(t, state.t),
        y=pick(new, y),
        f=pick(slope, f),
        h=proposed,
        rho=state.rho,
        direction=state.direction,
        age=age,
        stiff=stiff,
        strikes=strikes,
        error=pick(jnp.maximum(safe, 1e-4), state.error),
        loss=pick(value, state.loss),
        values=pick(values, state.values),
        retries=jnp.where(back, state.retries + 1, 0),
        stalled=stalled,
        window=state.window + (take & lands & listed),
        accepted=accepted,
        rejected=state.rejected + ~good,
        stabilised=state.stabilised + (take & state.stiff),
        evaluations=state.evaluations + evaluations.astype(state.evaluations.dtype),
        result=result.astype(state.result.dtype),
        rule=rule,
    ), due


def advance(
    problem: Problem,
    method: GradientFlow,
    rules: tuple[Until, ...],
    plan: Plan,
    state: FlowState,
    budget: Int[Array, ""],
    *,
    room: int,
) -> tuple[FlowState, Snapshots]:
    """Move one flow until it ends, `room` snapshots are taken or `budget` steps are tried.

    The integrator is chosen step by step: a real branch, not to be vectorised; `_lanes.advance` moves many flows.

    Args:
        problem: The problem.
        method: Tolerances and integrator.
        rules: Stopping rules.
        plan: What to record and when to end.
        state: Where to start; a state whose result is not `running` is returned as it is.
        budget: Number of steps to try at the most.
        room: Number of snapshots that fit.
    """
    field = GradientField(problem)

    def goes_on(carry: tuple[FlowState, Snapshots, Array]) -> Array:
        state, shots, tries = carry
        return busy(plan, state, shots.filled, room) & (tries < budget)

    def block(carry: tuple[FlowState, Snapshots, Array]) -> tuple[FlowState, Snapshots, Array]:
        state, shots, tries = carry
        state = jax.lax.cond(state.age >= REFRESH, lambda s: refresh(field, s), lambda s: s, state)

        def one(inner: tuple[FlowState, Snapshots, Array]) -> tuple[FlowState, Snapshots, Array]:
            state, shots, tries = inner
            state, due = attempt(field, method, rules, plan, "both", state)
            row = jnp.minimum(shots.filled, room - 1)
            shots = Snapshots(
                shots.times.at[row].set(jnp.where(due, state.t, shots.times[row])),
                shots.states.at[row].set(jnp.where(due, state.y, shots.states[row])),
                shots.filled + due,
            )
            return state, shots, tries + 1

        return jax.lax.while_loop(lambda c: goes_on(c) & (c[0].age < REFRESH), one, (state, shots, tries))

    shots = Snapshots(
        jnp.zeros(room, state.y.dtype), jnp.zeros((room, state.y.shape[0]), state.y.dtype), jnp.zeros((), int)
    )
    state, shots, _ = jax.lax.while_loop(goes_on, block, (state, shots, jnp.zeros((), int)))
    return state, shots


def busy(plan: Plan, state: FlowState, filled: Array, room: int) -> Array:
    """Whether a flow has something to do and room to record it; for one flow, or for many side by side."""
    running = (state.result == int(RESULTS.running)) & (filled < room)
    return running & ((plan.every > 0) | (state.window < plan.listed))
