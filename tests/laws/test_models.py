"""Laws of every model; and that collections are complete."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import deeplinear.dynamics as dynamics
import deeplinear.models as models
import deeplinear.probes as probes
import zoo
from deeplinear.models import Problem, SquaredDistance

ROUNDING = 1e-12  # relative; two orders of summation of a few dozen terms of size one

names = pytest.mark.parametrize("name", zoo.ALL_KINDS_OF_MODELS)


def close(left, right) -> None:
    scale = 1 + max(float(np.max(np.abs(b))) for b in jax.tree.leaves(right))
    for a, b in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING * scale)


@names
def test_derivatives_are_those_of_the_plain_map(name: str, seed: int) -> None:
    model, plain = zoo.ALL_KINDS_OF_MODELS[name]
    rng = np.random.default_rng(seed)
    params, direction = (tuple(jnp.asarray(rng.normal(size=shape)) for shape in model.shapes) for _ in range(2))
    target = jnp.asarray(rng.normal(size=model.product_shape))
    problem = Problem(model, SquaredDistance(target))

    def value(layers):
        return 0.5 * jnp.sum((plain(layers) - target) ** 2)

    close(model.forward(params)[0], plain(params))
    gradient, curved = jax.jvp(jax.grad(value), (params,), (direction,))
    found = (*problem.value_and_gradient(params), problem.hessian_product(params, direction))
    close(found, (value(params), gradient, curved))

    def everything(layers):
        return *problem.value_and_gradient(layers), problem.hessian_product(layers, direction)

    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    together = jax.jit(jax.vmap(everything))(batch)
    close(jax.tree.map(lambda leaf: leaf[0], together), found)


def kinds(module, base: type) -> set[str]:
    """Names of the concrete public classes of a kind."""
    return {
        name
        for name in dir(module)
        if inspect.isclass(found := getattr(module, name))
        and issubclass(found, base)
        and not name.startswith("Abstract")
    }


def test_collections_have_every_public_class() -> None:
    rng = np.random.default_rng(0)
    losses = {type(build(rng).loss).__name__ for build in zoo.ALL_LOSSES}
    assert losses == kinds(models, models.AbstractLoss)
    of_models = {type(case.model).__name__ for case in zoo.ALL_KINDS_OF_MODELS.values()}
    assert of_models == kinds(models, models.AbstractModel)
    assert {type(case.init).__name__ for case in zoo.ALL_INITS.values()} == kinds(models, models.AbstractInit)
    updates = {type(update).__name__ for update in zoo.ALL_UPDATES.values()}
    assert updates == kinds(dynamics, dynamics.AbstractUpdate)
    made = zoo.all_probes((np.eye(4, zoo.INP), np.eye(zoo.OUT, 4)), np.eye(zoo.OUT, zoo.INP), np.eye(zoo.OUT, zoo.INP))
    assert {type(probe).__name__ for probe in made.values()} == kinds(probes, probes.AbstractProbe)
