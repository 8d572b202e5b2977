"""Loss and gradient at many points at once: layers with a leading axis of points."""

from jaxtyping import Float

from deeplinear.core import Array, Stack, formula, over, xp
from deeplinear.models import DeepLinear, Problem

Points = Float[Array, " points"]


@formula
def losses(problem: Problem, layers: Stack) -> Points:
    """Loss at every point, penalty included."""
    if not isinstance(problem.model, DeepLinear):
        return over(problem.value)(layers)
    return _penalised(problem, layers, over(problem.loss.value)(_prefixes(layers)[-1]))


@formula
def records(problem: Problem, layers: Stack) -> tuple[Float[Array, "points out inp"], Points, Points]:
    """Product, loss and norm of the gradient at every point."""
    if not isinstance(problem.model, DeepLinear):
        values, gradients = over(problem.value_and_gradient)(layers)
        return over(problem.product)(layers), values, _norms(gradients)
    prefixes = _prefixes(layers)
    products = prefixes[-1]
    pulled, gradients = over(problem.loss.gradient)(products), []
    for position in reversed(range(len(layers))):
        own = pulled @ _turned(prefixes[position - 1]) if position else pulled
        gradients.append(own + problem.l2 * layers[position])
        pulled = _turned(layers[position]) @ pulled
    values = _penalised(problem, layers, over(problem.loss.value)(products))
    return products, values, _norms(tuple(gradients))


def _prefixes(layers: Stack) -> list[Array]:
    """Products of the first layers, at every point."""
    found = [layers[0]]
    for layer in layers[1:]:
        found.append(layer @ found[-1])
    return found


def _penalised(problem: Problem, layers: Stack, values: Points) -> Points:
    return values + 0.5 * problem.l2 * _norms(layers) ** 2


def _norms(layers: Stack) -> Points:
    squares = sum((xp.sum(layer**2, axis=(1, 2)) for layer in layers), start=xp.zeros(()))
    return xp.sqrt(squares)


def _turned(stack: Float[Array, "points rows columns"]) -> Float[Array, "points columns rows"]:
    return xp.swapaxes(stack, 1, 2)
