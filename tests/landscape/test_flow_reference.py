"""Integrators of the flow against a Taylor series in extended precision, at recorded times and at an event."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Exponential, kvaerno5
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.probes import loss
from deeplinear.theory._flows import weights

START = ([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]], [[1.0, -1.0], [0.5, 0.0]])
TARGET = [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
END = (
    [[1.290851901956, 1.729827064510, 0.396855203453], [-0.532879201872, 1.390996013949, 0.472865395320]],
    [[0.991704019463, -1.175099010547], [0.287432594155, 0.248141395399]],
)
"""Recorded layers at time 1, to twelve digits after the point."""
RECORDED = 6e-13
REFERENCE = 1e-9
"""Agreement asked for at a relative tolerance of 1e-11."""


def _taylor(time: float, order: int = 24, step: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """Layers of the two-layer flow after some time, in extended precision.

    The coefficients follow from each other: those of products are sums of products of coefficients.
    """
    first, second = (np.array(w, dtype=np.longdouble) for w in START)
    target = np.array(TARGET, dtype=np.longdouble)
    count = int(np.ceil(time / step))
    h = np.longdouble(time) / max(count, 1)
    for _ in range(count):
        a, b, m = [first], [second], [target - second @ first]
        for k in range(order):
            a.append(sum(b[i].T @ m[k - i] for i in range(k + 1)) / np.longdouble(k + 1))
            b.append(sum(m[i] @ a[k - i].T for i in range(k + 1)) / np.longdouble(k + 1))
            m.append(-sum(b[i] @ a[k + 1 - i] for i in range(k + 2)))
        first = np.asarray(sum(c * h**k for k, c in enumerate(a)))
        second = np.asarray(sum(c * h**k for k, c in enumerate(b)))
    return first, second


def _problem() -> Problem:
    return Problem(DeepLinear((3, 2, 2)), SquaredDistance(TARGET))


@pytest.mark.covers("network:N2", "network:F5")
def test_flow_follows_the_reference_and_stops_at_an_event() -> None:
    first, second = _taylor(1.0)
    for found, wanted in zip((first, second), END, strict=True):
        np.testing.assert_allclose(found.astype(float), wanted, rtol=0, atol=RECORDED)
    value = 0.5 * np.sum((np.array(TARGET) - second @ first) ** 2)
    assert abs(float(value) - 0.0885106682451) < RECORDED
    times = [0.0, 0.1, 0.37, 1.0]
    run = simulate(
        _problem(), START, GradientFlow(1e-11), times=times, probes=(loss, weights), until=until(loss, below=-1.0)
    )
    for time, state in zip(run.times, run["weights"], strict=True):
        wanted = np.concatenate([w.ravel() for w in _taylor(float(time))]).astype(float)
        np.testing.assert_allclose(state, wanted, rtol=0, atol=REFERENCE)
    # An event: the run ends where the loss has fallen to 0.5, and is on the path there.
    stopped = simulate(
        _problem(), START, GradientFlow(1e-11), times=times, probes=(loss, weights), until=until(loss, below=0.5)
    )
    assert stopped.result.name == "stopped" and 0.495 <= float(stopped["loss"][-1]) <= 0.5
    first, second = _taylor(float(stopped.final_time))
    at_end = 0.5 * float(np.sum((np.array(TARGET) - second @ first) ** 2))
    assert abs(at_end - float(stopped["loss"][-1])) < REFERENCE
    for found, wanted in zip(stopped.params, (first, second), strict=True):
        np.testing.assert_allclose(found, wanted.astype(float), rtol=0, atol=REFERENCE)


@pytest.mark.covers("network:F5")
@pytest.mark.parametrize("integrator", [kvaerno5(), Exponential()], ids=["kvaerno5", "exponential"])
def test_stiff_integrators_follow_the_reference(integrator: object) -> None:
    """Both use the Hessian of the loss: the Jacobian of the flow is its negative."""
    run = simulate(_problem(), START, GradientFlow(1e-11, integrator=integrator), times=[0.0, 0.25])
    for found, wanted in zip(run.params, _taylor(0.25), strict=True):
        np.testing.assert_allclose(found, jnp.asarray(wanted.astype(float)), rtol=0, atol=REFERENCE)
