"""Integration of an equation $y' = f(y)$ in one compiled call: adaptive steps, outputs, events. For many small systems.

Diffrax does the work. `dynamics` has its own driver instead, made for gradient flows of weights; this one serves the
equations of geometry, whose states are a few matrices and which are wanted in batches. Diffrax is imported
when an equation is traced, as that takes a third of a second.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, PyTree

from deeplinear.core._entry import forward_only
from deeplinear.core._types import Array

Method = Literal["tsit5", "dopri8", "kvaerno5"]

SMALLEST_STEP = 1e-15
"""Smallest step, relative to the largest time: below it time stands still."""


class Integral(NamedTuple):
    """What an integration gives.

    Attributes:
        states: State at each output time, times first; infinite after the end.
        end: State where the integration ended.
        time: When it ended.
        event: Which event ended it, counted from 0; -1 if none.
        finished: Whether the last output time or an event was reached; it is not where the steps ran out or became
            smaller than rounding, as before a singularity.
        steps: Steps taken, refused ones too.
    """

    states: PyTree[Array]
    end: PyTree[Array]
    time: Float[Array, ""]
    event: Int[Array, ""]
    finished: Bool[Array, ""]
    steps: Int[Array, ""]


def integrate(
    field: Callable[[Any], Any],
    start: PyTree[Array],
    times: Float[Array, " times"],
    *,
    begin: Float[Array, ""] | float = 0.0,
    method: Method = "dopri8",
    rtol: Float[Array, ""] | float = 1e-10,
    atol: Float[Array, ""] | float = 1e-12,
    first: Float[Array, ""] | float | None = None,
    events: tuple[Callable[[Any], Any], ...] = (),
    steps: int = 100_000,
    after: Callable[[Any], Any] | None = None,
) -> Integral:
    r"""Solve $y' = f(y)$ with adaptive steps; to be called inside compiled code.

    Args:
        field: $f$, a function of the state.
        start: State at `begin`, a tree of arrays.
        times: Output times, increasing; the last one is the end. The method of order 8 steps onto each of
            them, since its interpolant is of lower order; outputs of the others are interpolated.
        begin: Time of `start`.
        method: Explicit of order 5 or 8, or implicit of order 5 with dense linear algebra.
        rtol: Relative tolerance of a step.
        atol: Absolute tolerance of a step.
        first: First step; chosen by the method if left out.
        events: Functions of the state; the integration ends after the first step at whose end one of them holds.
        steps: Most steps.
        after: Applied to the state after every step, to put it back onto a manifold that the field is tangent to. It
            must not change the state by more than the error of a step.

    Returns:
        The outputs and how it ended. They have derivatives of forward mode.
    """
    import diffrax

    from deeplinear.core._settled import SOLVERS, Settled

    solver = SOLVERS[method](scan_kind="lax")
    reach = jnp.maximum(jnp.abs(times[-1]), jnp.abs(jnp.asarray(begin, dtype=float)))
    controller = diffrax.PIDController(rtol, atol, dtmin=SMALLEST_STEP * reach, force_dtmin=False, norm=_size)
    if method == "dopri8":
        controller = diffrax.ClipStepSizeController(controller, step_ts=times)
    conditions = [lambda t, y, args, event=event, **_: event(y) for event in events]
    with jax.named_scope("integrate"):
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, args: field(y)),
            solver if after is None else Settled(solver, after),
            begin,
            times[-1],
            first,
            start,
            saveat=diffrax.SaveAt(subs=(diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True))),
            stepsize_controller=controller,
            adjoint=diffrax.ForwardMode(),
            max_steps=steps,
            throw=False,
            event=diffrax.Event(conditions) if conditions else None,
        )
    assert solution.ys is not None and solution.ts is not None
    advice = "use jax.jvp or jax.jacfwd"
    states, end = forward_only("core.integrate", solution.ys, instead=advice)
    held = jnp.asarray(solution.event_mask) if conditions else jnp.zeros(1, dtype=bool)
    ended = (solution.result == diffrax.RESULTS.successful) | (solution.result == diffrax.RESULTS.event_occurred)
    return Integral(
        states,
        jax.tree.map(lambda leaf: leaf[0], end),
        solution.ts[1][0],
        jnp.where(jnp.any(held), jnp.argmax(held), -1),
        jnp.asarray(ended),
        solution.stats["num_steps"],
    )


def _size(tree: PyTree[Array]) -> Float[Array, ""]:
    """Root mean square; infinite where a trial state overflowed, so that its step is refused and made smaller."""
    import optimistix

    value = optimistix.rms_norm(tree)
    return jnp.where(jnp.isnan(value), jnp.inf, value)
