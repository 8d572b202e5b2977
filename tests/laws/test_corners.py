"""Derivatives at points where a decomposition or a norm has none: equal singular values, balanced layers, zeros."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear import core, geometry, models, probes, recurrent
from deeplinear.models import DeepLinear, Problem, SquaredDistance

STEP, DIFFERENCES = 1e-3, 1e-6  # differences of the fourth order, relative
NETWORK = DeepLinear((2, 2, 2))
PROBLEM = Problem(NETWORK, SquaredDistance(jnp.eye(2)))
EYE, HALF = jnp.eye(2), 0.5 * jnp.eye(2)
COLUMN = jnp.array([[1.0], [2.0]])


def scale_of_layers(lam, std):
    return models.LambdaBalanced(lam, std)(NETWORK, jax.random.key(0))


SMOOTH = {
    "white inputs are whitened": (models.whiten, (jnp.array([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]]),)),
    "layers of lambda zero by their scale": (lambda std: scale_of_layers(0.0, std), (jnp.asarray(0.5),)),
    "equal eigenvalues of a transition": (
        lambda first, residual: recurrent.spectral_gradient((HALF, first, first.T), residual),
        (COLUMN, jnp.array([1.0, -0.5, 2.0])),
    ),
    "equal eigenvalues, moved": (
        lambda size, turn: recurrent.spectral_gradient(
            (HALF + size * EYE + turn * jnp.ones((2, 2)), COLUMN, COLUMN.T), [1.0, -0.5, 2.0]
        ),
        (jnp.asarray(0.0), jnp.asarray(0.0)),
    ),
    "the kernel of the reference itself": (
        lambda params: probes.KernelDistance((EYE, EYE))(0.0, params, PROBLEM),
        ((EYE, EYE),),
    ),
    "kernels of equal singular values": (
        lambda params: probes.KernelMovement((EYE, 3 * EYE))(0.0, params, PROBLEM),
        ((EYE, EYE),),
    ),
    "the force of an energy at equal singular values": (geometry.PowerEnergy(1.5).gradient, (EYE,)),
    "the metric at equal singular values": (geometry.Metric(3).inner, (EYE, HALF, EYE + 1)),
    "the residual of lambda at multiples of the identity": (lambda p: models.lambda_estimate(p).lam, ((EYE, 2 * EYE),)),
}
"""Functions that are smooth there, with their arguments."""

CORNERED = {
    "balancedness": (models.balancedness, (EYE, EYE)),
    "drift": (lambda params: models.drift(params, (EYE, EYE)), (EYE, EYE)),
    "residual of lambda": (lambda params: models.lambda_estimate(params).frobenius, (EYE, EYE)),
    "norm": (core.norm, (jnp.zeros((2, 2)),)),
    "norms of layers": (lambda p: probes.layer_norms(0.0, p, PROBLEM), (jnp.zeros((2, 2)), jnp.zeros((2, 2)))),
    "reconstruction": (lambda p: probes.ReconstructionError(EYE)(0.0, p, PROBLEM), (EYE, EYE)),
    "held-out error": (lambda p: probes.HeldOutError(EYE, [[1, 0], [1, 1]])(0.0, p, PROBLEM), (EYE, EYE)),
    "kernel": (lambda params: probes.KernelMovement((EYE, EYE))(0.0, params, PROBLEM), (EYE, EYE)),
    "balance of a recurrent network": (lambda p: recurrent.balance_ratio((EYE, p[0][:, :1], p[1][:1])), (EYE, EYE)),
    "distance": (lambda p: jnp.asarray(geometry.distance_lower_bound(*p, 2)), (jnp.diag(jnp.array([2.0, 1.0])),) * 2),
}
"""Norms at their zeros, of two matrices."""


def total(call, arguments, weights):
    leaves = jax.tree.leaves(call(*arguments))
    return sum(float(np.sum(np.asarray(leaf) * w)) for leaf, w in zip(leaves, weights, strict=True))


@pytest.mark.parametrize("case", SMOOTH)
def test_smooth_functions_have_their_derivatives(case, seed):
    call, arguments = SMOOTH[case]
    rng = np.random.default_rng(seed)
    direction = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), arguments)
    weights = [rng.normal(size=np.shape(leaf)) for leaf in jax.tree.leaves(call(*arguments))]
    _, back = jax.vjp(lambda *at: jax.tree.leaves(call(*at)), *arguments)
    gradient = back([jnp.asarray(weight) for weight in weights])
    pairs = zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    slope = sum(float(np.sum(np.asarray(g) * v)) for g, v in pairs)

    def at(step):
        return total(call, jax.tree.map(lambda x, v: x + step * v, arguments, direction), weights)

    wanted = (8 * (at(STEP) - at(-STEP)) - at(2 * STEP) + at(-2 * STEP)) / (12 * STEP)
    assert slope == pytest.approx(wanted, rel=DIFFERENCES, abs=DIFFERENCES)


@pytest.mark.parametrize("case", CORNERED)
def test_norms_at_their_zeros_have_derivative_zero(case):
    call, params = CORNERED[case]
    gradient = jax.grad(lambda at: jnp.sum(call(at)))(params)
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_array_equal(leaf, 0.0)
