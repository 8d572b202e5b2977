"""Phase maps against an integration of the weights with the full tangent kernel, and their recorded values."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.exact import _phase_map, phase_map
from deeplinear.experiments.catalog.exact._tasks import draw_task, layers_of

INTEGRATED = 1e-8
SHAPES = {"square": (2, 2), "anti-funnel": (2, 4)}  # the funnel is the transpose of the latter


def setting(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Target and directions, drawn in the order of the recorded numbers."""
    inp, out = SHAPES[name]
    rng = np.random.default_rng(0)
    target = draw_task(rng, inp, out, 10, math.sqrt(3)).target
    return target, rng.normal(size=(out, inp))


def plain(target, directions, lam, scale, t, match=True):
    """Kernel distance and loss of one cell: the weights by DOP853, the kernel with its Kronecker products."""
    square = target.shape[0] == target.shape[1]
    layers = layers_of(directions, lam, np.eye(2), scale=scale, match_det=target if square and match else None)
    first, second = (np.asarray(layer) for layer in layers)

    def field(t, y):
        w1, w2 = y[: first.size].reshape(first.shape), y[first.size :].reshape(second.shape)
        gap = target - w2 @ w1
        return np.concatenate([(w2.T @ gap).ravel(), (gap @ w1.T).ravel()])

    def kernel(w1, w2):
        out, inp = target.shape
        return np.kron(np.eye(out), w1.T @ w1) + np.kron(w2 @ w2.T, np.eye(inp))

    begun = np.concatenate([first.ravel(), second.ravel()])
    y = solve_ivp(field, (0, t), begun, "DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    w1, w2 = y[: first.size].reshape(first.shape), y[first.size :].reshape(second.shape)
    old, new = kernel(first, second), kernel(w1, w2)
    cosine = np.sum(old * new) / np.linalg.norm(old) / np.linalg.norm(new)
    return 1 - cosine, 0.5 * np.sum((w2 @ w1 - target) ** 2)


def plain_three(target, left, values, right_t, lam, scale, t):
    """Loss of a balanced square start with given singular modes, by DOP853."""
    size = len(target)
    middle = np.sqrt((scale * values) ** 2 + lam**2 / 4)
    first, second = np.sqrt(middle - lam / 2)[:, None] * right_t, left * np.sqrt(middle + lam / 2)

    def field(_, y):
        w1, w2 = y.reshape(2, size, size)
        gap = target - w2 @ w1
        return np.concatenate([(w2.T @ gap).ravel(), (gap @ w1.T).ravel()])

    begun = np.concatenate([first.ravel(), second.ravel()])
    w1, w2 = solve_ivp(field, (0, t), begun, "DOP853", rtol=1e-12, atol=1e-14).y[:, -1].reshape(2, size, size)
    return 0.5 * np.sum((w2 @ w1 - target) ** 2)


@pytest.mark.covers("exact:F31", "exact:fig8", "exact:E24")
def test_square_map_has_its_recorded_values_column_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The solution is evaluated once for each of 51 relative scales, not once for each of 7,650 cells."""
    target, directions = setting("square")
    written, propagated_at = [], _phase_map.propagated_at
    monkeypatch.setattr(_phase_map, "propagated_at", lambda *given: written.append(1) or propagated_at(*given))
    lams, scales = np.linspace(-9, 9, 51), np.concatenate([[0.1], np.linspace(0.4, 20, 48), [1.0]])
    times = [0.2, 1.0, 100.0]
    found = phase_map(target, directions, lams, scales, times)
    loss, distance = np.asarray(found.loss), np.asarray(found.kernel_distance)
    assert len(written) == 51
    assert loss.shape == distance.shape == (3, 50, 51)
    zero = 25
    np.testing.assert_allclose(loss[0, -1, [zero, 50]], [0.47, 0.02], rtol=0.05)
    np.testing.assert_allclose(loss[1, 0, zero], 0.2, rtol=0.05)
    np.testing.assert_allclose(distance[2, :, zero], 0.12, rtol=0.05)
    assert np.ptp(distance[2, :, zero]) <= 1e-9
    # Away from λ = 0 the scale of the start matters.
    np.testing.assert_allclose(distance[2, [0, -2], 0], [1.1e-5, 4.2e-3], rtol=0.05)
    # A square network does not see the sign of λ.
    np.testing.assert_allclose(distance, distance[:, :, ::-1], rtol=1e-6)
    assert np.all(np.diff(loss[0][:, zero:], axis=1) < 0)
    for k, j, i in ((0, 3, 20), (1, -1, 30), (1, 0, 25)):
        wanted = plain(target, directions, lams[i], scales[j], times[k])
        np.testing.assert_allclose([distance[k, j, i], loss[k, j, i]], wanted, atol=INTEGRATED)


@pytest.mark.covers("exact:F31", "exact:fig9")
def test_rectangular_map() -> None:
    target, directions = setting("anti-funnel")
    lams, scales, times = [-3.0, 0.0, 3.0], [0.4, 20.0], [4.0, 4000.0]
    found = phase_map(target, directions, lams, scales, times)
    for i in range(3):
        wanted = plain(target, directions, lams[i], 0.4, 4.0)
        np.testing.assert_allclose([found.kernel_distance[0, 0, i], found.loss[0, 0, i]], wanted, atol=INTEGRATED)
    assert 0.5e-12 < float(found.loss[0, 0, 0]) < 2e-12
    assert float(found.loss[0, 0, 2]) == pytest.approx(2.5e-2, rel=0.05)
    np.testing.assert_allclose(found.kernel_distance[1, 0], [5e-4, 0.13, 0.33], rtol=0.05)
    assert np.ptp(found.kernel_distance[1, :, 1]) <= 1e-9


@pytest.mark.covers("exact:F31")
def test_one_start_for_each_cell_with_any_determinant(seed: int) -> None:
    target, _ = setting("square")
    directions = np.random.default_rng(seed).normal(size=(2, 3, 2, 2))
    directions[0, 1] = target @ np.diag([1.0, -1.0])
    lams, scales, times = [-1.0, 0.0, 2.0], [0.3, 2.0], [4.0, 100.0]
    many = phase_map(target, directions, lams, scales, times, match_det=False)
    wanted = plain(target, directions[1, 2], 2.0, 2.0, 4.0, match=False)
    np.testing.assert_allclose([many.kernel_distance[0, 1, 2], many.loss[0, 1, 2]], wanted, atol=INTEGRATED)
    # The wrong sign of the determinant ends at a saddle of height s_min²/2 at λ = 0.
    least = np.linalg.svd(target, compute_uv=False)[-1]
    assert float(many.loss[1, 0, 1]) == pytest.approx(least**2 / 2, rel=1e-6)


@pytest.mark.covers("exact:F31")
def test_the_determinant_is_matched_by_the_weakest_direction() -> None:
    """Of three directions with the wrong sign the last is turned round, and all modes can be learnt."""
    rng = np.random.default_rng(4)
    target, directions = rng.normal(size=(2, 3, 3))
    if np.linalg.det(target) * np.linalg.det(directions) > 0:
        directions[0] *= -1
    found = phase_map(target, directions, [0.5], [0.7], [0.3])
    left, values, right_t = np.linalg.svd(directions)
    left[:, -1] *= -1
    wanted = plain_three(target, left, values / np.linalg.norm(values), right_t, 0.5, 0.7, 0.3)
    assert float(found.loss[0, 0, 0]) == pytest.approx(wanted, abs=INTEGRATED)


@pytest.mark.covers("exact:F35")
def test_refusals() -> None:
    good = np.eye(2)
    with pytest.raises(ValueError, match="scales must be greater than 0"):
        phase_map(good, good, [0.0], [0.0], [1.0])
    with pytest.raises(ValueError, match="times must be at least 0"):
        phase_map(good, good, [0.0], [1.0], [-1.0])
    with pytest.raises(ValueError, match="directions must have shape"):
        phase_map(good, np.eye(3), [0.0], [1.0], [1.0])
    with pytest.raises(ValueError, match="directions must not be zero"):
        phase_map(good, 0 * good, [0.0], [1.0], [1.0])
