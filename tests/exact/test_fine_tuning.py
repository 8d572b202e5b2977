"""Re-balancing keeps the product and gives another imbalance; losses after fine-tuning."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import polar

from deeplinear.core import HypothesisError
from deeplinear.exact import added_feature, fine_tune_losses, rebalance
from deeplinear.models import semantic_hierarchy

PRODUCT = 1e-14  # relative to the norm of the product
ROUNDING = 1e-12
RECORDED = 0.03  # relative, of numbers given to two digits
CASES = (
    # widths, old and new imbalance
    ((4, 3, 3), 0.0, -4.0),
    ((4, 3, 3), -2.0, 3.0),
    ((3, 4, 5), 1.5, 7.0),
    ((3, 4, 5), 2.0, 0.1),
)


def hierarchy() -> np.ndarray:
    x, y = semantic_hierarchy(perturbed=True)
    return np.asarray(y @ x.T) / 8


def balanced(seed: int, widths: tuple[int, int, int], lam: float) -> tuple[jax.Array, jax.Array]:
    """Layers with a given imbalance, from singular values and random bases."""
    rng, (inp, hidden, out) = np.random.default_rng(seed), widths
    left, right, turn = (np.linalg.qr(rng.normal(size=(size, size)))[0] for size in (out, inp, hidden))
    modes = min(widths)
    values = np.append(rng.uniform(0.3, 2.0, modes), np.zeros(hidden - modes))
    middle = np.sqrt(values**2 + lam**2 / 4)
    first, second = (np.sqrt(np.maximum(middle + sign * lam / 2, 0.0)) for sign in (-1, 1))
    below, above = min(hidden, inp), min(hidden, out)
    return (
        jnp.asarray((turn[:, :below] * first[:below]) @ right[:, :below].T),
        jnp.asarray((left[:, :above] * second[:above]) @ turn[:, :above].T),
    )


def miss(params, lam: float) -> float:
    first, second = (np.asarray(layer) for layer in params)
    return float(np.linalg.norm(second.T @ second - first @ first.T - lam * np.eye(first.shape[0])))


@pytest.mark.parametrize(("widths", "old", "new"), CASES)
@pytest.mark.covers("exact:F30")
def test_product_stays_and_imbalance_is_new(widths, old: float, new: float, seed: int) -> None:
    params = balanced(seed, widths, old)
    found = rebalance(params, new)
    product = np.asarray(params[1] @ params[0])
    assert np.abs(np.asarray(found[1] @ found[0]) - product).max() <= PRODUCT * max(1.0, np.linalg.norm(product))
    assert miss(found, new) <= ROUNDING
    # The hidden basis is kept: going back gives the same layers.
    back = rebalance(found, old)
    for layer, before in zip(back, params, strict=True):
        np.testing.assert_allclose(layer, before, atol=1e-9)


@pytest.mark.covers("exact:F30")
def test_layers_that_are_not_balanced_and_bases_that_are_not_seen(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rough = (jnp.asarray(rng.normal(size=(3, 4))), jnp.asarray(rng.normal(size=(3, 3))))
    found = rebalance(rough, 2.0)
    np.testing.assert_allclose(found[1] @ found[0], rough[1] @ rough[0], atol=1e-13)
    assert miss(found, 2.0) <= ROUNDING
    wide = balanced(seed, (3, 4, 5), 0.0)
    with pytest.raises(HypothesisError, match="rank of the hidden width") as refusal:
        rebalance(wide, 0.0)
    assert refusal.value.residual == 1
    found = rebalance(wide, 0.0, jax.random.key(1))
    np.testing.assert_allclose(found[1] @ found[0], wide[1] @ wide[0], atol=1e-13)
    assert miss(found, 0.0) <= ROUNDING
    # A product that vanishes shows no direction at all; the larger layer shows them.
    silent = (jnp.zeros((4, 3)), jnp.asarray(np.linalg.qr(rng.normal(size=(5, 4)))[0]))
    first, second = rebalance(silent, 9.0)
    np.testing.assert_allclose(second, 3 * np.asarray(silent[1]), atol=ROUNDING)
    assert not np.any(first)


@pytest.mark.covers("exact:F30")
@pytest.mark.parametrize(("sizes", "larger"), [((0.5, 2.0), 1), ((2.0, 0.5), 0)])
def test_the_larger_layer_shows_the_hidden_basis(sizes: tuple[float, float], larger: int, seed: int) -> None:
    """Layers that are not balanced show two bases: the polar factors of W₁V and of W₂ᵀU with normalised columns."""
    rng = np.random.default_rng(seed)
    first, second = (size * rng.normal(size=(3, 3)) for size in sizes)
    left, values, right_t = np.linalg.svd(second @ first)
    bases = []
    for seen in (first @ right_t.T, second.T @ left):
        bases.append(polar(seen / np.linalg.norm(seen, axis=0))[0])
    assert np.linalg.norm(bases[0] - bases[1]) > 1e-3
    lam = 1.5
    middle = np.sqrt(values**2 + lam**2 / 4)
    below, above = np.sqrt(middle - lam / 2), np.sqrt(middle + lam / 2)
    found = rebalance((jnp.asarray(first), jnp.asarray(second)), lam)
    np.testing.assert_allclose(found[0], bases[larger] * below @ right_t, atol=1e-11)
    np.testing.assert_allclose(found[1], left * above @ bases[larger].T, atol=1e-11)


@pytest.mark.covers("exact:F30", "exact:F35")
def test_refusals() -> None:
    params = balanced(0, (3, 4, 5), 0.0)
    with pytest.raises(ValueError, match="lam < 0 needs at least as many inputs as hidden units"):
        rebalance(params, -1.0)
    with pytest.raises(ValueError, match="lam > 0 needs at least as many outputs as hidden units"):
        rebalance(tuple(layer.T for layer in reversed(params)), 1.0)
    with pytest.raises(ValueError, match="feature must be at most 1, but is 2"):
        added_feature(np.eye(2), 2, 0, 1)
    with pytest.raises(ValueError, match="times must be at least 0"):
        fine_tune_losses(params, np.ones((5, 3)), -1.0)
    with pytest.raises(HypothesisError, match="λ-balanced"):
        fine_tune_losses((jnp.ones((2, 2)), jnp.eye(2)), np.ones((2, 2)), 1.0)


@pytest.mark.covers("exact:F30", "exact:fig14")
def test_fine_tuning_has_its_recorded_losses() -> None:
    sigma = hierarchy()
    left, values, right_t = np.linalg.svd(sigma)
    lams = [0.0, 1.0, 2.0, 5.0, 10.0]
    tasks = {
        "add": (added_feature(sigma, 4, 0, 6), [0.11, 0.10, 0.080, 0.027, 0.0029]),
        "reversal": (sigma - 2 * values[3] * np.outer(left[:, 3], right_t[3]), [3.1, 2.8, 2.2, 0.59, 0.049]),
        "scaled": (2 * sigma, [0.91, 0.85, 0.70, 0.26, 0.033]),
    }
    changed = np.argwhere(np.asarray(tasks["add"][0]) != sigma)
    assert changed.tolist() == [[4, 6]] and float(tasks["add"][0][4, 6]) == sigma[4, 0]
    everywhere, times = [*lams, -5.0, -10.0], [0.25, 1.0]
    trained = {}
    for lam in (-10.0, 4.0):
        first, second = (np.sqrt(np.sqrt(values**2 + lam**2 / 4) + sign * lam / 2) for sign in (-1, 1))
        trained[lam] = (jnp.asarray(first[:, None] * right_t), jnp.asarray(left * second))
    for name, (task, wanted) in tasks.items():
        found, other = (np.asarray(fine_tune_losses(p, task, times, everywhere)) for p in trained.values())
        np.testing.assert_allclose(found[:5, 0], wanted, rtol=RECORDED, err_msg=name)
        np.testing.assert_allclose(found, other, rtol=1e-9)  # it does not remember what it was before
        np.testing.assert_allclose(found[5:], found[3:5], rtol=1e-9)  # and is even
        if name == "reversal":
            np.testing.assert_allclose(found[:5, 1], [2.1, 0.26, 0.021, 5.7e-5, 4.7e-9], rtol=RECORDED)


@pytest.mark.covers("exact:F30")
def test_losses_are_those_of_the_weights(seed: int) -> None:
    rng = np.random.default_rng(seed)
    params = balanced(seed, (8, 8, 8), -1.0)
    lams, task, times = [2.0, -0.5, 0.0, 1.0, 3.0, 4.0, 5.0], rng.normal(size=(8, 8)), np.array([0.2, 0.6])
    found = fine_tune_losses(params, task, times, lams)

    def field(t, y):
        first, second = y.reshape(2, 8, 8)
        gap = task - second @ first
        return np.concatenate([(second.T @ gap).ravel(), (gap @ first.T).ravel()])

    for k in (0, 1):
        begun = np.concatenate([np.ravel(layer) for layer in rebalance(params, lams[k])])
        run = solve_ivp(field, (0, times[-1]), begun, "DOP853", t_eval=times, rtol=1e-12, atol=1e-14)
        wanted = [0.5 * np.sum((w2 @ w1 - task) ** 2) for w1, w2 in run.y.T.reshape(-1, 2, 8, 8)]
        np.testing.assert_allclose(found[k], wanted, rtol=1e-9)
