"""Gradient flow against SciPy with an independent right-hand side, for every loss and depth 1 to 6."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Params, dopri8
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.models import (
    Completion,
    DeepLinear,
    Energy,
    EntryCompletion,
    Problem,
    Regression,
    SampleRegression,
    Sensing,
    SquaredDistance,
)
from deeplinear.probes import Drift, loss, product
from systems import scipy_flow

AGREEMENT = 1e-8  # relative to the largest entry; SciPy runs at rtol 1e-12
DRIFT = 1e-9  # of the conserved quantities at rtol 1e-10
RISE = 1e-12  # rounding of the loss, relative to its start

TIMES = np.array([0.0, 0.3, 1.0, 4.0, 12.0])


def quartic(matrix, centre):
    """An energy that is not quadratic."""
    gap = matrix - centre
    return jnp.sum(gap**2) / 2 + jnp.sum(gap**4) / 4


def cases(seed: int) -> dict:
    """For each loss: widths, what makes it, penalty, and the gradient on the product written in NumPy."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.normal(size=(2, 3)) for _ in range(3))
    x, y = rng.normal(size=(3, 9)), rng.normal(size=(2, 9))
    mask = np.array([[1, 0, 1], [0, 1, 1]])
    rows, columns = np.nonzero(mask)
    sensors, readings = rng.normal(size=(5, 2, 3)), rng.normal(size=5)

    def sense(w):
        return np.einsum("k,kij->ij", np.einsum("kij,ij->k", sensors, w) - readings, sensors)

    return {
        "squared, depth 1": ((3, 2), lambda: SquaredDistance(a), 0.0, lambda w: w - a),
        "regression, depth 2": ((3, 4, 2), lambda: Regression.from_data(x, y), 0.0, lambda w: (w @ x - y) @ x.T / 9),
        "completion, depth 3": ((3, 5, 2, 2), lambda: Completion(b, mask), 0.0, lambda w: mask * (w - b)),
        "entries, depth 4": (
            (3, 2, 4, 3, 2),
            lambda: EntryCompletion(rows, columns, b[rows, columns], (2, 3)),
            0.0,
            lambda w: mask * (w - b),
        ),
        "sensing, depth 5": ((3, 4, 3, 3, 4, 2), lambda: Sensing(sensors, readings), 0.0, sense),
        "energy, depth 6": ((3, 3, 4, 3, 2, 3, 2), lambda: Energy(quartic, c), 0.0, lambda w: (w - c) + (w - c) ** 3),
        "samples with penalty, depth 2": (
            (3, 4, 2),
            lambda: SampleRegression(x, y),
            0.05,
            lambda w: (w @ x - y) @ x.T / 9,
        ),
    }


CASES = (
    "squared, depth 1",
    "regression, depth 2",
    "completion, depth 3",
    "entries, depth 4",
    "sensing, depth 5",
    "energy, depth 6",
    "samples with penalty, depth 2",
)
"""By name, so that collecting the tests builds none of them."""


@pytest.mark.parametrize("name", CASES)
@pytest.mark.covers("completion:F4", "completion:F5", "completion:F6")
def test_flow_agrees_with_scipy(name: str, seed: int) -> None:
    widths, energy, l2, gradient = cases(seed)[name]
    rng = np.random.default_rng(1000 + seed)
    model = DeepLinear(widths)
    scale = 0.7 if model.depth < 5 else 0.5  # SciPy takes ten thousands of steps from larger ones
    params: Params = tuple(jnp.asarray(rng.normal(size=s) * scale) for s in model.shapes)
    problem = Problem(model, energy(), l2=l2)
    probes = [loss, product] if model.depth == 1 else [loss, product, Drift(params)]
    # The automatic choice of integrators, but where it takes explicit steps alone.
    method = GradientFlow(rtol=1e-10, integrator=dopri8() if model.depth < 3 else None)
    run = simulate(problem, params, method, times=TIMES, probes=probes)
    assert run.result.finished
    reference = scipy_flow(problem, params, TIMES, gradient)
    for recorded, layers in zip(run["product"], reference, strict=True):
        exact = np.linalg.multi_dot(layers[::-1]) if len(layers) > 1 else layers[0]
        assert np.abs(recorded - exact).max() <= AGREEMENT * max(1.0, np.abs(exact).max())
    for mine, exact in zip(run.params, reference[-1], strict=True):
        assert np.abs(mine - exact).max() <= AGREEMENT * max(1.0, np.abs(exact).max())
    if model.depth > 1 and l2 == 0:
        assert np.max(run["drift"]) < DRIFT
    assert np.all(np.diff(run["loss"]) <= RISE * run["loss"][0])


@pytest.mark.covers("completion:F5")
def test_loss_never_rises_from_step_to_step(seed: int) -> None:
    widths, energy, _, _ = cases(seed)["completion, depth 3"]
    rng = np.random.default_rng(seed)
    model = DeepLinear(widths)
    params = tuple(jnp.asarray(rng.normal(size=s)) for s in model.shapes)
    run = simulate(Problem(model, energy()), params, GradientFlow(rtol=1e-10), horizon=200.0)
    assert len(run.times) > 20
    assert np.all(np.diff(run["loss"]) <= RISE * run["loss"][0])
