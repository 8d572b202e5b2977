"""Whether, how fast and in which regime two layers learn, against integration of the weights by SciPy."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from deeplinear.core import HypothesisError
from deeplinear.exact import diagnose, late_rate, regime
from deeplinear.experiments.catalog.exact._tasks import draw_rotation, draw_task, layers_of
from deeplinear.models import DeepLinear, LambdaBalanced

Layers = tuple[np.ndarray, np.ndarray]


def rotation(rng: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


def draw(rng: np.random.Generator, widths: tuple[int, int, int], lam: float, strengths: tuple[float, ...]) -> tuple:
    """Balanced layers and a target of given singular values, in plain NumPy."""
    inp, hidden, out = widths
    modes = min(widths)
    s = np.pad(rng.uniform(0.3, 1.0, modes), (0, hidden - modes))
    left, right, turn = rotation(rng, out), rotation(rng, inp), rotation(rng, hidden)
    first, second = np.zeros((hidden, inp)), np.zeros((out, hidden))
    np.fill_diagonal(first, np.sqrt(np.hypot(s, lam / 2) - lam / 2))
    np.fill_diagonal(second, np.sqrt(np.hypot(s, lam / 2) + lam / 2))
    k = len(strengths)
    target = (rotation(rng, out)[:, :k] * np.array(strengths)) @ rotation(rng, inp)[:, :k].T
    return (turn @ first @ right.T, left @ second @ turn.T), target


def path(layers: Layers, target: np.ndarray, end: float, points: list[float] | None = None) -> Any:
    """Gradient flow by SciPy: dense output of the two layers."""
    (hidden, inp), out = layers[0].shape, layers[1].shape[0]

    def split(y: np.ndarray) -> Layers:
        return y[: hidden * inp].reshape(hidden, inp), y[hidden * inp :].reshape(out, hidden)

    def field(_: float, y: np.ndarray) -> np.ndarray:
        w1, w2 = split(y)
        error = target - w2 @ w1
        return np.concatenate([(w2.T @ error).ravel(), (error @ w1.T).ravel()])

    y = np.concatenate([layer.ravel() for layer in layers])
    run = solve_ivp(
        field, (0, end), y, method="DOP853", rtol=1e-12, atol=1e-14, dense_output=points is None, t_eval=points
    )
    return (lambda t: split(run.sol(t))) if points is None else [split(column) for column in run.y.T]


def jaxed(layers: Layers) -> tuple:
    return tuple(jnp.asarray(layer) for layer in layers)


@pytest.mark.covers("exact:F10", "exact:S24")
def test_overlap_and_its_bound(seed: int) -> None:
    """B from its definition; where it is guaranteed the bound holds, and it is not idle."""
    rng = np.random.default_rng(seed)
    ratios = []
    for k in range(24):
        widths, sign = [((3, 3, 3), 1), ((3, 3, 3), -1), ((4, 2, 2), 1), ((2, 2, 4), -1), ((4, 2, 2), -1)][k % 5]
        lam = sign * 10 ** rng.uniform(-2, 1)
        layers, target = draw(rng, widths, lam, tuple(rng.uniform(0.1, 3.0, min(widths))))
        report = diagnose(jaxed(layers), target)
        u, s, vt = np.linalg.svd(target, full_matrices=False)
        h = np.sign(lam) * np.sqrt((np.hypot(s, lam / 2) - s) / (np.hypot(s, lam / 2) + s))
        g = 1 / np.sqrt(1 + h**2)
        values = np.linalg.svd(layers[1].T @ u * (g + h * g) + layers[0] @ vt.T * (g - h * g), compute_uv=False)
        assert report.smallest_overlap == pytest.approx(values[-1], rel=1e-9, abs=1e-12)
        assert report.condition == pytest.approx(values[0] / values[-1], rel=1e-9)
        assert report.lam == pytest.approx(lam, abs=1e-12)
        assert report.guaranteed == (k % 5 != 4)
        if report.guaranteed:
            norms = sum(np.linalg.norm(layer, 2) for layer in layers)
            assert report.overlap_bound == pytest.approx(abs(lam) / norms, rel=1e-9)
            ratios.append(report.smallest_overlap / report.overlap_bound)
    assert min(ratios) >= 1 and min(ratios) < 3


@pytest.mark.covers("exact:S25", "exact:F10", "exact:E30")
@pytest.mark.parametrize("widths", [(3, 3, 3), (3, 5, 3)])
def test_determinant_of_the_wrong_sign(widths: tuple[int, int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, target = draw(rng, widths, 0.0, (2.0, 1.7, 0.6))
    if np.linalg.det(target) * np.linalg.det(layers[1] @ layers[0]) > 0:
        target = -target
    stuck, free = diagnose(jaxed(layers), target), diagnose(jaxed(layers), -target)
    assert stuck.obstructed and stuck.missing == 1 and math.isinf(stuck.condition) and math.isnan(stuck.rate)
    assert stuck.limit_loss == pytest.approx(0.18, abs=1e-12) and "wrong sign" in str(stuck)
    assert not free.obstructed and free.converges and free.limit_loss == 0 and "late rate" in str(free)
    for target_now, report in ((target, stuck), (-target, free)):
        # Not later: rounding lets the flow escape from the saddle.
        w1, w2 = path(layers, target_now, 16.0, [16.0])[0]
        assert abs(0.5 * np.sum((w2 @ w1 - target_now) ** 2) - report.limit_loss) < 1e-6


@pytest.mark.covers("exact:S25")
def test_bottleneck_and_exact_reversal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layers, target = draw(rng, (4, 2, 3), 0.0, (2.0, 1.0, 0.5))
    report = diagnose(jaxed(layers), target)
    assert report.bottleneck and report.converges and report.limit_loss == pytest.approx(0.125, abs=1e-12)
    w1, w2 = path(layers, target, 60.0, [60.0])[0]
    u, s, vt = np.linalg.svd(target, full_matrices=False)
    assert np.max(np.abs(w2 @ w1 - (u[:, :2] * s[:2]) @ vt[:2])) < 1e-8
    # A start that holds two modes of the task with the wrong sign: the determinant agrees, and still they are lost.
    mirrored = (u * np.array([-1.0, 1.0, -1.0]) * s) @ vt
    root = np.sqrt(s)
    aligned = (root[:, None] * vt, u * root)
    lost = diagnose(jaxed(aligned), mirrored)
    assert not lost.obstructed and lost.missing == 2
    assert lost.limit_loss == pytest.approx(0.5 * (s[0] ** 2 + s[2] ** 2), rel=1e-9)


@pytest.mark.covers("exact:F23", "exact:S23", "exact:E23")
@pytest.mark.parametrize(
    ("widths", "lam"),
    [((3, 3, 3), 0.0), ((3, 3, 3), 1.0), ((4, 2, 2), -2.0), ((2, 2, 4), -1.0), ((2, 2, 4), 2.0), ((4, 2, 3), 0.5)],
)
def test_late_rate(widths: tuple[int, int, int], lam: float, seed: int) -> None:
    """The slope of the logarithm of the distance over a late window."""
    rng = np.random.default_rng(seed)
    strengths = (2.0, 1.2, 0.6)[: min(widths[0], widths[2])]
    layers, target = draw(rng, widths, lam, strengths)
    if lam == 0 and np.linalg.det(target) * np.linalg.det(layers[1] @ layers[0]) < 0:
        target = -target
    predicted = float(late_rate(target, lam, widths[1]))
    window = [13 / predicted, 16 / predicted]
    u, s, vt = np.linalg.svd(target, full_matrices=False)
    end = (u[:, : widths[1]] * s[: widths[1]]) @ vt[: widths[1]]
    distances = [np.linalg.norm(w2 @ w1 - end) for w1, w2 in path(layers, target, window[1], window)]
    slope = math.log(distances[0] / distances[1]) / (window[1] - window[0])
    assert slope / predicted == pytest.approx(1, abs=0.05)
    assert diagnose(jaxed(layers), target).rate == pytest.approx(predicted)


@pytest.mark.covers("exact:F10", "exact:S23")
def test_rates_and_delays_in_closed_form() -> None:
    """Numbers by hand, with λ/2 and s the sides of a right triangle 3, 4, 5."""
    square, wide, tall = np.diag([9.0, 4.0]), np.eye(2, 3) * 4, np.eye(3, 2) * 4
    assert float(late_rate(square, 6.0)) == pytest.approx(10)
    assert float(late_rate(square, 6.0, 1)) == pytest.approx(math.hypot(9, 3) - 5)
    assert float(late_rate(wide, 6.0)) == float(late_rate(tall, -6.0)) == pytest.approx(8)
    assert float(late_rate(wide, -6.0)) == float(late_rate(tall, 6.0)) == pytest.approx(2)
    assert float(late_rate(tall, 6.0, 3)) == pytest.approx(8)  # the wider side is filled
    assert float(late_rate(np.eye(1, 2) * 1e-3, -1e6)) == pytest.approx(1e-12, rel=1e-9)  # no cancellation
    layers = (jnp.eye(2, 3) * math.sqrt(8), jnp.eye(2) * math.sqrt(2))
    report = diagnose(layers, wide)
    assert report.delay == pytest.approx(6 / 16) and "delayed by" in str(report) and not report.guaranteed


@pytest.mark.covers("exact:F23", "exact:S23")
@pytest.mark.parametrize(
    ("widths", "lam", "strengths", "rate"),
    [
        ((4, 2, 2), -2.0, (2.0,), math.sqrt(5) - 1),  # directions as fast as λ/2 are left over on the wider side
        ((4, 2, 2), -2.0, (), 2.0),
        ((4, 2, 2), 2.0, (2.0,), 2.0),  # the larger layer fills its side
        ((2, 2, 4), 2.0, (5.0,), 2.0),  # the strong mode turns faster than the others fade
        ((3, 2, 3), -2.0, (2.0,), math.sqrt(5) - 1),
        ((3, 3, 3), 1.0, (2.0, 0.7), 1.0),
        ((3, 2, 3), 0.0, (2.0, 0.7), 0.7),  # no hidden unit is left over
        ((3, 1, 3), 0.0, (2.0, 2.0), 2.0),  # two modes for one unit: the start says where between them it ends
    ],
)
def test_late_rate_where_the_target_lacks_rank(
    widths: tuple[int, int, int], lam: float, strengths: tuple[float, ...], rate: float, seed: int
) -> None:
    """The slope of the distance from the end of the integrated flow; targets with rounding for their zeros."""
    rng = np.random.default_rng(seed)
    layers, target = draw(rng, widths, lam, strengths)
    assert float(late_rate(target, lam, widths[1])) == pytest.approx(rate, rel=1e-9)
    assert diagnose(jaxed(layers), target).rate == pytest.approx(rate, rel=1e-9)
    times = [10 / rate, 13 / rate, 26 / rate]
    *late, end = (w2 @ w1 for w1, w2 in path(layers, target, times[-1], times))
    slope = math.log(np.linalg.norm(late[0] - end) / np.linalg.norm(late[1] - end)) * rate / 3
    assert slope == pytest.approx(rate, rel=0.06)


def test_modes_of_strength_zero_are_none(seed: int) -> None:
    """Nothing is missing, delayed or obstructed because of them; at λ = 0 they fade like 1/t."""
    rng = np.random.default_rng(seed)
    layers, target = draw(rng, (3, 3, 3), 0.0, (2.0,))
    for sign in (1.0, -1.0):  # of the determinant of rounding
        flipped = target + sign * 1e-17 * np.eye(3)
        report = diagnose(jaxed(layers), flipped)
        assert report.missing == 0 and not report.obstructed and report.limit_loss == 0 and report.rate == 0
        assert "like 1/t" in str(report) and "never" not in str(report)
    early, late = (np.linalg.norm(w2 @ w1 - target) for w1, w2 in path(layers, target, 4000.0, [2000.0, 4000.0]))
    assert early / late == pytest.approx(2, rel=0.01)
    layers, target = draw(rng, (4, 2, 2), -2.0, (2.0,))
    assert diagnose(jaxed(layers), target).delay == pytest.approx(0.5) and "never" not in str(report)
    assert diagnose(jaxed(layers), 0 * target).delay == 0


def kernel_distance(start: Layers, end: Layers) -> float:
    def kernel(layers: Layers) -> np.ndarray:
        w1, w2 = layers
        return np.kron(np.eye(w2.shape[0]), w1.T @ w1) + np.kron(w2 @ w2.T, np.eye(w1.shape[1]))

    k0, k1 = kernel(start), kernel(end)
    return 0.5 * float(np.sum((k0 / np.linalg.norm(k0) - k1 / np.linalg.norm(k1)) ** 2))


@pytest.mark.covers("exact:F23")
def test_regime_times(seed: int) -> None:
    """Both times against roots of the integrated flow; labels of the two sides of a funnel."""
    rng = np.random.default_rng(seed)
    for lam, label in ((-9.0, "delayed-rich"), (0.0, "rich"), (9.0, "lazy")):
        layers, target = draw(rng, (4, 2, 2), lam, (1.5, 1.0))
        if (
            lam == -9.0
        ):  # most of the target lies in the span of the start, so that the lazy phase does most of the work
            vt = np.linalg.svd(target)[2]
            basis = math.cos(0.6) * vt[:2] + math.sin(0.6) * vt[2:]
            strengths = np.array([0.1, 0.1])
            first, second = (np.sqrt(np.hypot(strengths, lam / 2) - sign * lam / 2) for sign in (1, -1))
            layers = (first[:, None] * basis, rotation(rng, 2) * second)
        found = regime(jaxed(layers), target)
        flow = path(layers, target, 1.5 * max(found.kernel_time, found.loss_time))
        initial = np.sum((layers[1] @ layers[0] - target) ** 2)

        def loss(t: float, flow=flow, initial=initial, target=target) -> float:
            w1, w2 = flow(t)
            return np.sum((w2 @ w1 - target) ** 2) / initial - 0.5

        def moved(t: float, flow=flow, layers=layers, end=found.end) -> float:
            return kernel_distance(layers, flow(t)) / end - 0.5

        grid = np.geomspace(1e-4, 1.49, 400) * max(found.kernel_time, found.loss_time)
        for function, time in ((loss, found.loss_time), (moved, found.kernel_time)):
            signs = np.array([function(t) for t in grid]) > 0
            first_change = int(np.argmax(signs != signs[0]))
            root = brentq(function, grid[first_change - 1], grid[first_change], xtol=1e-12)
            assert time == pytest.approx(root, rel=1e-5)
        assert found.label == label and label in str(found)


@pytest.mark.covers("exact:F23")
def test_labels_of_three_architectures() -> None:
    """Ten seeds of one recipe, three where all agree; an inverted funnel at λ is the mirror image of a funnel at −λ.

    A funnel at λ = −9 is delayed as a rule, and not for every seed: where most of the target lies outside of the span
    of the start, half of the loss waits for the rich phase, too. So the label is that of the median times.
    """

    def found(widths: tuple[int, int, int], lam: float, count: int) -> list:
        inp, hidden, out = widths
        labels = []
        for seed in range(100, 100 + count):
            rng = np.random.default_rng(seed)
            task, start = (draw_task(rng, inp, out, 10, sigma).target for sigma in (math.sqrt(3), 1.0))
            layers = layers_of(start, lam, draw_rotation(rng, hidden), match_det=task if inp == out else None)
            labels.append(regime(layers, task, lam))
        return labels

    delayed = found((4, 2, 2), -9.0, 10)
    assert np.median([r.kernel_time for r in delayed]) > 10 * np.median([r.loss_time for r in delayed])
    assert sum(r.label == "delayed-rich" for r in delayed) > 5 and all(r.end > 0.02 for r in delayed)
    for widths, lam, label in (
        ((4, 2, 2), 9.0, "lazy"),
        ((4, 2, 2), 0.0, "rich"),
        ((4, 4, 4), -9.0, "lazy"),
        ((4, 4, 4), 9.0, "lazy"),
        ((4, 4, 4), 0.0, "rich"),
    ):
        assert {r.label for r in found(widths, lam, 3)} == {label}


def test_refusals() -> None:
    eye = jnp.eye(2)
    with pytest.raises(HypothesisError, match="λ-balanced layers") as caught:
        diagnose((eye, jnp.diag(jnp.array([1.0, 2.0]))), np.eye(2))
    assert caught.value.residual > 0.1
    with pytest.raises(HypothesisError, match="every mode within reach is learned"):
        regime((eye, eye), np.diag([2.0, -1.0]))
    wide = LambdaBalanced(-2.0, 1.0)(DeepLinear((6, 3, 2)), jax.random.key(0))
    with pytest.raises(HypothesisError, match="rank"):  # fewer modes than hidden units leave the limit open
        regime(wide, np.eye(2, 6))
    with pytest.raises(ValueError, match="target must have shape"):
        diagnose((eye, eye), np.eye(3))
    with pytest.raises(ValueError, match="two layers"):
        diagnose((eye,), np.eye(2))
    assert regime((eye, eye), np.eye(2)).label == "lazy"  # it is there already
