"""Structure tests: on constructors, on perturbed copies, and on networks that pass for what they are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.landscape import alignment_defect, decoupling_defect, diagonal_defect, structure
from deeplinear.models import Aligned, Balanced, Decoupled, DeepLinear, Diagonal, Gaussian, LambdaBalanced

ROUNDING = 1e-12  # of defects, which are relative
SEEN = 1e-5  # what a perturbation of one part in a thousand must at least amount to
THREE = DeepLinear((3, 4, 3, 2))
STRENGTHS = np.array([[3.0, -1.0], [0.5, 2.0], [1.5, 4.0]])

CASES = {
    "Gaussian": (Gaussian(1.0), THREE, ()),
    "Aligned": (Aligned(STRENGTHS), THREE, ("aligned",)),
    "Decoupled": (Decoupled(STRENGTHS), THREE, ("aligned", "decoupled")),
    "Diagonal": (Diagonal(STRENGTHS), THREE, ("aligned", "decoupled", "diagonal")),
    "Balanced": (Balanced(np.outer([1.0, -2.0], [0.5, 1.0, 2.0]), rotate=True), THREE, ("aligned", "balanced")),
    "LambdaBalanced": (LambdaBalanced(-2.0, 0.5), DeepLinear((3, 2, 2)), ("aligned",)),
}


@pytest.mark.covers("network:F29")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_constructors_have_their_structure_and_perturbed_copies_have_not(name, scale, seed):
    init, model, wanted = CASES[name]
    key, other = jax.random.split(jax.random.key(seed))
    params = tuple(scale * layer for layer in init(model, key))
    told = structure(params)
    plain = tuple(n for n in told.names if n != "lambda_balanced")
    assert plain == wanted
    assert told.lambda_balanced == ("balanced" in wanted or name == "LambdaBalanced")
    for found, defect in (
        (told.aligned, told.alignment),
        (told.decoupled, told.decoupling),
        (told.diagonal, told.diagonality),
        (told.balanced, told.balance),
        (told.lambda_balanced, told.lambda_balance),
    ):
        assert defect <= ROUNDING if found else defect > SEEN
    keys = jax.random.split(other, model.depth)
    noise = tuple(1e-3 * scale * jax.random.normal(k, shape) for k, shape in zip(keys, model.shapes, strict=True))
    perturbed = structure(tuple(p + n for p, n in zip(params, noise, strict=True)))
    assert perturbed.names == ()
    assert structure(params, tolerance=1e-1).names[: len(told.names)] == told.names


@pytest.mark.covers("network:F29")
def test_a_degenerate_layer_does_not_hide_a_misalignment():
    """Neighbours commute; the first and the last layer do not, once one looks through the identity between."""
    turn = np.array([[0.6, -0.8], [0.8, 0.6]])
    layers = (np.diag([2.0, 1.0]), np.eye(2), np.diag([1.5, 0.5]) @ turn)
    for below, above in ((layers[0], layers[1]), (layers[1], layers[2])):
        x, y = below @ below.T, above.T @ above
        assert np.abs(x @ y - y @ x).max() <= 1e-15
    assert float(alignment_defect(tuple(map(jnp.asarray, layers)))) > 0.1


@pytest.mark.covers("network:F29")
def test_modes_that_do_not_meet_are_not_decoupled():
    """The first layer writes to the unit that the second does not read: aligned, product 0, but mode 1 is in two."""
    e = np.eye(2)
    first, second = np.outer(e[0], e[0]), np.outer(e[0], e[1])
    told = structure((jnp.asarray(first), jnp.asarray(second)))
    assert told.aligned and not told.decoupled
    met = structure((jnp.asarray(first), jnp.asarray(np.outer(e[1], e[1]))))
    assert met.decoupled and met.diagonal
    # A permutation of the hidden units is a change of basis: decoupled, not diagonal.
    swap = jnp.asarray(e[::-1])
    told = structure((swap, swap))
    assert told.decoupled and not told.diagonal


def test_defects_compile_map_and_take_zero_layers(seed):
    rng = np.random.default_rng(seed)
    batch = tuple(jnp.asarray(rng.standard_normal((3, *shape))) for shape in THREE.shapes)

    def defects(params):
        return jnp.stack([alignment_defect(params), decoupling_defect(params), diagonal_defect(params)])

    together = jax.jit(jax.vmap(defects))(batch)
    for member in range(3):
        np.testing.assert_allclose(together[member], defects(tuple(layer[member] for layer in batch)), rtol=1e-9)
    zero = structure(tuple(jnp.zeros(shape) for shape in THREE.shapes))
    assert set(zero.names) == {"aligned", "decoupled", "diagonal", "balanced", "lambda_balanced"}
    one = structure((jnp.asarray(rng.standard_normal((2, 3))),))
    assert one.aligned and one.balanced and not one.decoupled
    assert "no structure" in str(structure(tuple(layer[0] for layer in batch)))
    with pytest.raises(ValueError, match="tolerance must be greater than 0"):
        structure((jnp.eye(2),), tolerance=0.0)
