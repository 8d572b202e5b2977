"""Rules that end a run before its last time."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Bool, Float

from deeplinear.core import Array, Params, as_array, check_number
from deeplinear.models import Problem
from deeplinear.probes import AbstractProbe, as_probe, gradient_norm


class Until(eqx.Module):
    """Stop when a scalar probe crosses a threshold. Made by `until`."""

    probe: AbstractProbe
    threshold: Float[Array, ""]
    below: bool = eqx.field(static=True)

    @property
    def name(self) -> str:
        """The rule in words."""
        return f"{self.probe.name} {'below' if self.below else 'above'} {float(self.threshold):g}"

    def value(self, t: Float[Array, ""], params: Params, problem: Problem) -> Float[Array, ""]:
        """Current value of the probe."""
        value = jnp.asarray(self.probe(t, params, problem))
        if value.shape != ():
            raise ValueError(f"until: probe '{self.probe.name}' must give one number, but gives shape {value.shape}.")
        return value

    def fired(self, value: Float[Array, ""]) -> Bool[Array, ""]:
        """Whether the rule holds at this value."""
        return value <= self.threshold if self.below else value >= self.threshold


def until(probe: Callable[..., Any], *, below: float | None = None, above: float | None = None) -> Until:
    """Rule that stops a run once a scalar probe is at most `below` or at least `above`.

    A flow steps back so that it ends within one per cent of the threshold.

    Args:
        probe: A probe or a plain function `(t, params, problem) -> number`.
        below: Stop at or below this value.
        above: Stop at or above this value; exactly one of the two must be given.

    Example:
        >>> until(loss, below=1e-6).name
        'loss below 1e-06'
    """
    if (below is None) == (above is None):
        raise ValueError("until: exactly one of below and above must be given.")
    threshold = below if below is not None else above
    check_number("until", "below" if below is not None else "above", threshold)
    return Until(as_probe(probe), as_array(threshold, float), below is not None)


def steady(tolerance: float = 1e-12) -> Until:
    r"""Rule that stops where the flow rests: $\|\nabla\mathcal L\|_F$ at most `tolerance`.

    A saddle's neighbourhood is as quiet as a minimum's: choose the tolerance below the gradient on the plateaus of
    the run.
    """
    check_number("steady", "tolerance", tolerance, above=0)
    return until(gradient_norm, below=tolerance)
