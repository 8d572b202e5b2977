"""Flows on block-diagonal observations against SciPy on the full matrices, mpmath quadrature and the simulator."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.exact import BlockFlow, BlockMatrix, alpha_m_eigenvalues, block_flow, block_flow_from, block_limit
from deeplinear.models import AlphaM, Completion, DeepLinear, Problem
from deeplinear.probes import loss, product

AGREEMENT = 1e-9  # relative, with a full flow by DOP853 at rtol 1e-13
FLOOR = 1e-13  # of residuals of a full flow in double precision: a bound is compared above it only
CLOSED = 1e-10  # quadrature against mpmath, and the reference example
ROUNDING = 1e-12


def layers_of(depth: int, alpha: float, m: float, d: int) -> list[np.ndarray]:
    layer = np.full((d, d), alpha / m)
    np.fill_diagonal(layer, alpha)
    return [layer] * depth


def observed(n: int, s: int) -> np.ndarray:
    return np.kron(np.eye(n), np.ones((s, s)))


def full_flow(layers: list[np.ndarray], times: np.ndarray, n: int, s: int, value: float, method="DOP853", rtol=1e-13):
    """Layers at each time, by SciPy restarted at each, with the gradient written out in NumPy."""
    depth, d = len(layers), n * s
    mask = observed(n, s)

    def field(_, y):
        layers = y.reshape(depth, d, d)
        before = [np.eye(d)]
        for layer in layers:
            before.append(layer @ before[-1])
        outer = mask * (before[-1] - value)
        gradients = []
        for layer, right in zip(layers[::-1], before[-2::-1], strict=True):
            gradients.append(-outer @ right.T)
            outer = layer.T @ outer
        return np.array(gradients[::-1]).ravel()

    y, t, states = np.array(layers).ravel(), 0.0, []
    for end in times:
        if end > t:
            y = solve_ivp(field, (t, end), y, method=method, rtol=rtol, atol=1e-16).y[:, -1]
        t = end
        states.append(y.reshape(depth, d, d))
    return np.array(states)


# (depth, alpha, m, blocks, size, value): starts below and above the limit, blocks of size 1 and more, all depths 2 to 4
CASES = [(2, 0.3, 3.0, 2, 2, 1.0), (3, 0.2, 5.0, 4, 2, 1.0), (4, 0.5, 10.0, 3, 1, 2.0), (3, 1.5, 2.0, 2, 2, 0.5)]
TIMES = np.linspace(0, 3, 25)
"""Programs are made for every number of times: here these, one time, or four."""


@pytest.fixture(scope="module", params=CASES, ids=str)
def pair(request: pytest.FixtureRequest) -> tuple[BlockFlow, np.ndarray]:
    """A flow and the layers of the full flow at `TIMES`."""
    depth, alpha, m, n, s, value = request.param
    flow = block_flow(depth, alpha, m, blocks=n, size=s, value=value)
    return flow, full_flow(layers_of(depth, alpha, m, n * s), TIMES, n, s, value)


def products(states: np.ndarray) -> np.ndarray:
    result = states[:, 0]
    for i in range(1, states.shape[1]):
        result = states[:, i] @ result
    return result


@pytest.mark.covers("completion:C9", "completion:C10", "completion:F15")
def test_layers_product_and_loss_of_the_full_flow(pair: tuple[BlockFlow, np.ndarray]) -> None:
    flow, states = pair
    scale = np.abs(states).max()
    ours = np.asarray(flow.params(TIMES).dense())
    np.testing.assert_allclose(states, np.broadcast_to(ours[:, None], states.shape), atol=AGREEMENT * scale)
    full = products(states)
    np.testing.assert_allclose(flow.product(TIMES).dense(), full, atol=AGREEMENT * np.abs(full).max())
    mask = observed(flow.blocks, flow.size)
    losses = np.sum((mask * (full - float(flow.limit.value))) ** 2, axis=(1, 2)) / 2
    np.testing.assert_allclose(flow.loss(TIMES), losses, rtol=AGREEMENT, atol=FLOOR)
    # The eigenvalues one by one, read off the full layers, the small ones to their own size.
    ones, depth = np.ones(flow.blocks * flow.size), float(flow.depth)
    first = np.einsum("i,tij,j->t", ones, states[:, 0], ones) / len(ones)
    contrast = np.kron(np.eye(flow.blocks)[0] - np.eye(flow.blocks)[1], np.ones(flow.size))
    second = np.einsum("i,tij,j->t", contrast, states[:, 0], contrast) / np.sum(contrast**2)
    np.testing.assert_allclose(flow.eigenvalues(TIMES)[0], first, rtol=AGREEMENT)
    np.testing.assert_allclose(flow.eigenvalues(TIMES)[1], second, rtol=AGREEMENT)
    if flow.size > 1:
        third = states[:, 0, 0, 0] - states[:, 0, 0, 1]
        np.testing.assert_allclose(flow.eigenvalues(TIMES)[2], third, rtol=AGREEMENT)
    conserved = first / second if depth == 2 else first ** (2 - depth) - second ** (2 - depth)
    np.testing.assert_allclose(conserved, conserved[0], rtol=AGREEMENT)
    np.testing.assert_allclose(flow.conserved(TIMES), conserved[0], rtol=AGREEMENT)


@pytest.mark.covers("completion:C11", "completion:F16")
def test_bounds_on_error_and_loss(pair: tuple[BlockFlow, np.ndarray]) -> None:
    flow, states = pair
    full = products(states)
    n, s, value, depth = flow.blocks, flow.size, float(flow.limit.value), float(flow.depth)
    gamma = np.trace(observed(n, s) @ full, axis1=1, axis2=2) / (n * s) - s * value
    np.testing.assert_allclose(flow.gamma(TIMES), gamma, rtol=AGREEMENT, atol=FLOOR * 10)
    assert np.all(np.abs(gamma) <= np.asarray(flow.gamma_bound(TIMES)) * (1 + ROUNDING) + 10 * FLOOR)
    losses = np.sum((observed(n, s) * (full - value)) ** 2, axis=(1, 2)) / 2
    assert np.all(losses <= np.asarray(flow.loss_bound(TIMES)) * (1 + AGREEMENT) + FLOOR)
    first, second, _ = (float(x) for x in flow.eigenvalues(0.0))
    power = 2 * depth - 2
    if gamma[0] <= 0:
        expected = depth / n * (first**power + (n - 1) * second**power)
    else:
        expected = depth * (s * value) ** (power / depth)
    np.testing.assert_allclose(flow.rate_bound, expected, rtol=ROUNDING)
    late = np.array([10.0, 30.0, 90.0, np.inf])  # the error vanishes; for s > 1 the loss follows algebraically
    assert np.all(np.abs(flow.gamma(late)) < [1e-6, 1e-15, 1e-15, 1e-300]) and flow.loss(np.inf) == 0


@pytest.mark.covers("completion:C11")
def test_sign_of_the_first_error() -> None:
    for n, s, m, value in [(3, 2, 4.0, 0.7), (4, 1, np.inf, 2.0)]:
        for depth in (2, 3, 5):
            d = n * s
            ratio = 1 / n if np.isinf(m) else m**depth / ((m + d - 1) ** depth + (n - 1) * (m - 1) ** depth)
            threshold = (value * d * ratio) ** (1 / depth)
            below, above = (
                block_flow(depth, threshold * x, m, blocks=n, size=s, value=value).gamma(0.0) for x in (0.999, 1.001)
            )
            assert below < 0 < above


@pytest.mark.covers("completion:X5", "completion:F15", "completion:F17", "completion:F12")
def test_reference_example() -> None:
    flow = block_flow(3, 0.2, 5.0, blocks=4, size=2)
    np.testing.assert_allclose(
        [flow.limit.sigma_1, flow.limit.sigma_2], [7.970492740733, 0.009835753088989], rtol=CLOSED / 100
    )
    np.testing.assert_allclose(flow.time_to(0.5), 0.8234380500722, rtol=CLOSED / 100)
    np.testing.assert_allclose(flow.time_to(sigma_1=flow.limit.sigma_1 / 2), 0.8234380500722, rtol=CLOSED / 100)
    np.testing.assert_allclose(flow.plateau_time, 1.04167, atol=5e-6)
    expected = [1.9975373308649, 0.2142574127343, 0.1597909693041]
    np.testing.assert_allclose(flow.eigenvalues(2.0), expected, rtol=CLOSED / 10)


@pytest.mark.covers("completion:C34", "completion:F17")
@pytest.mark.parametrize("alpha", [0.05, 2.0])
def test_depth_two_is_logistic(alpha: float) -> None:
    n, s, value, m = 3, 2, 0.8, 4.0
    flow = block_flow(2, alpha, m, blocks=n, size=s, value=value)
    first, second = (float(x) for x in alpha_m_eigenvalues(alpha, m, width=n * s))
    c, y0 = s * value, (first**2 + (n - 1) * second**2) / n
    factor = np.sqrt(c / (y0 + (c - y0) * np.exp(-2 * c * TIMES)))
    np.testing.assert_allclose(flow.eigenvalues(TIMES)[0], first * factor, rtol=ROUNDING)
    np.testing.assert_allclose(flow.eigenvalues(TIMES)[1], second * factor, rtol=ROUNDING)
    some = [1, 8, 16, 24]
    levels = np.asarray(flow.eigenvalues(TIMES)[0])[some] ** 2
    np.testing.assert_allclose(flow.time_to(sigma_1=levels), TIMES[some], rtol=1e-9)
    if alpha < 1:
        np.testing.assert_allclose(flow.plateau_time, np.log(c * n / first**2) / (2 * c), rtol=ROUNDING)


def exact_time(depth, first, second, level, n, s, value):
    """Time for lambda_1 to go from `first` to `level`, by quadrature of dt = dlambda / (-gamma lambda^{L-1})."""
    with mpmath.workdps(30):
        depth, first, second, level = (mpmath.mpf(float(x)) for x in (depth, first, second, level))
        constant = first ** (2 - depth) - second ** (2 - depth)

        def slowness(v):
            z = mpmath.exp(v)
            power = depth / (2 - depth)
            gamma = (z**power + (n - 1) * (z - constant) ** power) / n - s * mpmath.mpf(value)
            return z / ((2 - depth) * gamma)

        ends = mpmath.linspace((2 - depth) * mpmath.log(level), (2 - depth) * mpmath.log(first), 12)
        return mpmath.quad(slowness, ends)


@pytest.mark.covers("completion:C34", "completion:F17")
@pytest.mark.parametrize(
    ("depth", "first", "second"), [(3, 0.3, 0.1), (5, 0.01, 0.004), (4, 3.0, 0.5), (3, 0.1, 0.3), (2.5, 1e-6, 9e-7)]
)
def test_time_map(depth: float, first: float, second: float) -> None:
    n, s, value = 4, 2, 0.7
    flow = block_flow_from(depth, first, second, blocks=n, size=s, value=value)
    start, end = first**depth, float(flow.limit.sigma_1)
    levels = start + (end - start) * np.array([0.001, 0.5, 0.99, 1 - 1e-9])
    times = np.asarray(flow.time_to(sigma_1=levels))
    for level, time in zip(levels, times, strict=True):
        exact = exact_time(depth, first, second, level ** (1 / depth), n, s, value)
        # The last level is known to a relative 1e-16 / 1e-9 of its distance from the end.
        np.testing.assert_allclose(
            time, float(exact), rtol=CLOSED if level < 0.995 * end or level > 1.1 * end else 1e-6
        )
    np.testing.assert_allclose(flow.eigenvalues(times)[0][:3], levels[:3] ** (1 / depth), rtol=AGREEMENT)


@pytest.mark.covers("completion:F15", "completion:F17")
@pytest.mark.parametrize(("depth", "alpha"), [(3, 1e-12), (5, 1e-6), (12, 1e-10), (3, 1e-100)])
def test_plateaus_of_any_length(depth: int, alpha: float) -> None:
    # On the plateau gamma is -s w but for a power of the start, so lambda^{2-L} falls along a straight line.
    flow = block_flow(depth, alpha, 5.0, blocks=4, size=2)
    first, second = (float(x) for x in alpha_m_eigenvalues(alpha, 5.0, width=8))
    k, end = depth - 2, float(flow.plateau_time)
    assert end > 1e10
    for part in (0.1, 0.5, 0.99):
        ours = flow.eigenvalues(part * end)
        expected = [first * (1 - part) ** (-1 / k), second * (1 - part * (second / first) ** k) ** (-1 / k)]
        np.testing.assert_allclose(ours[:2], expected, rtol=1e-11)
        np.testing.assert_allclose(ours[2], second, rtol=1e-11)
    np.testing.assert_allclose(flow.time_to(0.5) / end, 1, rtol=1e-2 if depth == 3 and alpha > 1e-3 else 1e-3)
    np.testing.assert_allclose(flow.eigenvalues(1.01 * end)[0] ** depth, flow.limit.sigma_1, rtol=1e-9)


@pytest.mark.covers("completion:F17")
def test_plateau_time_is_the_time_of_half_the_limit_for_small_starts() -> None:
    # Half the limit is reached later and later in units of the estimate, and never after it by more than a little.
    for depth, quoted in ((3, 0.965), (4, 0.995)):
        flow = block_flow(depth, 0.05 if depth == 3 else 0.1, 10.0, blocks=3)
        np.testing.assert_allclose(flow.time_to(0.5) / flow.plateau_time, quoted, atol=1e-3)


def test_late_times_keep_all_digits_of_the_error() -> None:
    # Near the end the error decays at one rate, L (sigma_1^{2-2/L} + (n-1) sigma_2^{2-2/L}) / n, down to underflow.
    flow = block_flow(3, 0.2, 5.0, blocks=4)
    power = 4 / 3
    rate = 3 / 4 * (flow.limit.sigma_1**power + 3 * flow.limit.sigma_2**power)
    gamma = np.asarray(flow.gamma(np.array([10.0, 20.0, 40.0, 50.0])))
    np.testing.assert_allclose(np.log(gamma[1:] / gamma[:-1]), -float(rate) * np.array([10.0, 20.0, 10.0]), rtol=1e-11)
    assert -1e-90 < gamma[-1] < 0


@pytest.mark.covers("completion:F15")
def test_ends_of_m_and_other_starts() -> None:
    one = block_flow(3, 0.1, 1.0, blocks=3)
    times = np.array([0.0, 1.0, 2.0, 4.0])
    states = full_flow(layers_of(3, 0.1, 1.0, 3), times, 3, 1, 1.0)
    np.testing.assert_allclose(one.params(times).dense(), states[:, 0], atol=AGREEMENT)
    never = block_flow(3, 0.3, np.inf, blocks=3)
    first, second, _ = never.eigenvalues(TIMES)
    np.testing.assert_allclose(first, second, rtol=ROUNDING)
    start = BlockMatrix(0.5, 0.2, -0.1, blocks=3, size=2)  # the second eigenvalue the larger one
    flow = block_flow_from(4, *start.eigenvalues, blocks=3, size=2, value=0.6)
    times = np.array([0.0, 0.5, 3.0, 20.0])
    states = full_flow([np.asarray(start.dense())] * 4, times, 3, 2, 0.6)
    np.testing.assert_allclose(flow.params(times).dense(), states[:, 0], atol=AGREEMENT)
    level = (
        states[1, 0].sum(axis=0)[0] ** 4
    )  # early: later the smaller eigenvalue hardly moves, and says little of time
    np.testing.assert_allclose(flow.time_to(sigma_1=level), 0.5, rtol=1e-8)


@pytest.mark.covers("completion:C12")
@pytest.mark.parametrize(
    ("depth", "alpha", "m"),
    [(2, 0.1, 3.0), (3, 0.2, 10.0), (3, 0.2, np.inf), (4, 0.3, 5.0), (5, 0.5, 20.0), (6, 0.6, 4.0)],
)
def test_full_flows_end_at_the_limit(depth: int, alpha: float, m: float) -> None:
    n = 3
    limit = block_limit(depth, alpha, m, blocks=n)
    rate = depth * float(limit.sigma_1) ** (2 - 2 / depth) / n
    end = 2 * float(block_flow(depth, alpha, m, blocks=n).plateau_time) + 25 / rate
    full = products(full_flow(layers_of(depth, alpha, m, n), np.array([end]), n, 1, 1.0))[0]
    assert np.sum((np.diag(full) - 1) ** 2) / 2 < 1e-16
    np.testing.assert_allclose(np.linalg.svd(full, compute_uv=False), limit.spectrum, rtol=AGREEMENT)


@pytest.mark.covers("completion:C13", "completion:C14")
@pytest.mark.parametrize(("depth", "alpha", "m", "end"), [(2, 0.3, 3.0, 1e3), (3, 0.4, 5.0, 1e3), (4, 0.5, 3.0, 1e3)])
def test_blocks_larger_than_one(depth: int, alpha: float, m: float, end: float) -> None:
    n, s = 2, 2
    flow = block_flow(depth, alpha, m, blocks=n, size=s)
    full = products(full_flow(layers_of(depth, alpha, m, 4), np.array([end]), n, s, 1.0, method="LSODA", rtol=1e-12))[0]
    values = np.linalg.svd(full, compute_uv=False)
    np.testing.assert_allclose(values[:n], flow.limit.spectrum[:n], rtol=AGREEMENT)
    power = 2 * depth - 2
    start = alpha * (m - 1) / m
    third = start * (1 + power * end * start**power) ** (-1 / power)
    np.testing.assert_allclose(values[n:], third**depth, rtol=1e-7)  # small beside the others, hence to fewer digits
    np.testing.assert_allclose(flow.eigenvalues(end)[2], third, rtol=ROUNDING)


@pytest.mark.covers("completion:C12", "completion:C13", "completion:C14")
def test_simulated_flows() -> None:
    # One width and depth, two patterns of observations: one compiled simulation.
    times = np.array([0.0, 1.0, 10.0, 300.0])
    for n, s, alpha, m in [(4, 1, 0.2, 10.0), (4, 1, 0.05, 3.0), (2, 2, 0.4, 3.0)]:
        problem = Problem(DeepLinear((4,) * 4), Completion(np.ones((4, 4)), observed(n, s)))
        params = AlphaM(alpha, m)(problem.model, jax.random.key(0))
        run = simulate(
            problem,
            params,
            GradientFlow(rtol=1e-11),
            times=times,
            probes=(loss, product),
            until=until(loss, below=1e-16),
        )
        flow = block_flow(3, alpha, m, blocks=n, size=s)
        if s == 1:
            assert run.rule == "loss below 1e-16"
        else:
            np.testing.assert_allclose(run["loss"], flow.loss(times), rtol=1e-6, atol=1e-14)
            np.testing.assert_allclose(run["product"], flow.product(times).dense(), atol=AGREEMENT * 4)
        values = np.linalg.svd(np.asarray(run["product"])[-1], compute_uv=False)
        # At loss 1e-16 the observed entries, and with them the values, are within 2e-8 of their limit.
        np.testing.assert_allclose(values[:n], flow.limit.spectrum[:n], rtol=2e-8)
        if s > 1:
            np.testing.assert_allclose(values[n:], flow.eigenvalues(300.0)[2] ** 3, rtol=1e-7)


def test_transformations() -> None:
    def first(depth, alpha, time):
        return block_flow(depth, alpha, 5.0, blocks=4).eigenvalues(time)[0]

    point, h = np.array([3.0, 0.3, 0.5]), 1e-5
    gradient = jax.jit(jax.grad(first, argnums=(0, 1, 2)))(*point)
    for i in range(3):
        ahead, behind = (first(*(point + sign * h * (np.arange(3) == i))) for sign in (1, -1))
        np.testing.assert_allclose(gradient[i], (ahead - behind) / (2 * h), rtol=1e-7)
    rows = jax.jit(jax.vmap(lambda alpha: block_flow(3, alpha, 5.0, blocks=4).gamma(TIMES)))(np.array([0.1, 0.3]))
    np.testing.assert_allclose(rows[1], block_flow(3, 0.3, 5.0, blocks=4).gamma(TIMES), rtol=ROUNDING)


@pytest.mark.covers("completion:F39")
def test_flows_refuse_what_has_no_meaning() -> None:
    flow = block_flow(3, 0.2, 5.0, blocks=4)
    with pytest.raises(ValueError, match=r"times must be at least 0, but entry \(1,\) is -1"):
        flow.eigenvalues(np.array([0.0, -1.0]))
    with pytest.raises(ValueError, match="exactly one of fraction and sigma_1"):
        flow.time_to()
    with pytest.raises(ValueError, match="fraction must give a level between the start"):
        flow.time_to(1.5)
    with pytest.raises(ValueError, match="sigma_1 must give a level between the start"):
        flow.time_to(sigma_1=1e-9)
    with pytest.raises(ValueError, match=r"block_flow: alpha must be one number, but has shape \(2,\)"):
        block_flow(3, np.array([0.1, 0.2]), 5.0, blocks=4)
    with pytest.raises(ValueError, match="lambda3 must be at least 0"):
        block_flow_from(3, 0.1, 0.2, -0.1, blocks=4)
    for call in (flow.eigenvalues, flow.gamma, flow.loss, flow.gamma_bound, flow.loss_bound):
        with pytest.raises(ValueError, match="times must be a number, but is nan"):
            call(np.nan)


# ------------------------------------------------------------------------------------------- far outside usual scales

SMALL = [
    (12, 1e-15),
    (20, 1e-9),
    (30, 1e-6),
    (6, 1e-32),
    (3, 1e-80),
    (5, 1e-150),
    (12, 1e-40),
    (20, 1e-20),
    (30, 1e-12),
]
LARGE = [(100, 50.0), (12, 1e14), (5, 1e40), (2, 1e150), (2, 1e3)]


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(("depth", "alpha"), SMALL + LARGE)
def test_first_and_last_times_at_any_scale(depth: int, alpha: float, size: int) -> None:
    """The start itself, the limit itself, and a number in between, where powers of the start leave their range."""
    flow = block_flow(depth, alpha, 5.0, blocks=3, size=size)
    times = np.array([0.0, 1e-3, 1.0, np.inf])
    first, second, third = (np.asarray(x) for x in flow.eigenvalues(times))
    np.testing.assert_allclose([first[0], second[0], third[0]], alpha * np.array([1 + (3 * size - 1) / 5, 0.8, 0.8]))
    # The end by its two equations: the mean of the powers is the target, and the conserved number is that of the start.
    np.testing.assert_allclose((first[-1] ** depth + 2 * second[-1] ** depth) / 3, size, rtol=ROUNDING)
    one, two, end = (mpmath.mpf(float(x)) for x in (first[0], second[0], first[-1]))
    power = 2 - depth
    other = (two**power - one**power + end**power) ** mpmath.mpf(1 / power) if power else end * two / one
    np.testing.assert_allclose(second[-1], float(other), rtol=ROUNDING)
    assert third[-1] == flow.gamma(np.inf) == flow.loss(np.inf) == 0
    assert flow.gamma_bound(np.inf) == flow.loss_bound(np.inf) == 0
    for values in (first, second, third, *(np.asarray(f(times)) for f in (flow.gamma, flow.loss))):
        assert not np.any(np.isnan(values))
    assert np.all(np.asarray(flow.gamma_bound(times)) >= np.abs(np.asarray(flow.gamma(times))) * (1 - 1e-12))
    assert np.isfinite(flow.product(np.inf).dense()).all() and flow.plateau_time >= 0
    assert flow.time_to(0.5 if alpha < 1 else 2.0) > 0


def test_the_bound_on_the_error_of_a_start_whose_powers_leave_the_range_of_numbers() -> None:
    """λ₁³ is above e⁶⁰⁰, the rate 3 w^(4/3): |γ(0)| e^(-Kt), also where the factor e^(-Kt) is no number."""
    flow = block_flow(3, 1e100, 5.0, blocks=3)
    times = np.array([0.0, 100.0, 230.0, 400.0])
    mean = ((mpmath.mpf("1.4e100")) ** 3 + 2 * mpmath.mpf("0.8e100") ** 3) / 3
    expected = [float(mean * mpmath.exp(-3 * t)) for t in times]
    assert expected[2] > 1 > expected[3] > 0
    np.testing.assert_allclose(flow.gamma_bound(times), expected, rtol=1e-11)


def test_blocks_of_one_row_have_no_third_eigenvalue() -> None:
    """What is given for it changes nothing, even where its powers are no numbers."""
    plain, other = (block_flow_from(3, 0.4, 0.3, third, blocks=3) for third in (None, 1e200))
    times = np.array([0.0, 0.5, 1.0, 3.0])
    for read in (BlockFlow.params, BlockFlow.product):
        np.testing.assert_array_equal(read(other, times).dense(), read(plain, times).dense())
    np.testing.assert_array_equal(other.loss(times), plain.loss(times))


@pytest.mark.parametrize(("depth", "alpha"), [*LARGE, (1000, 1e50), (2.5, 1e250)])
def test_early_times_of_large_starts(depth: float, alpha: float) -> None:
    """Far above the limit the target does not count: every eigenvalue falls as the third one does, known by hand."""
    flow = block_flow(depth, alpha, np.inf, blocks=3)
    power = 2 * depth - 2
    for times in np.array([[1e-307, 1e-300, 1e-250, 1e-200], [1e-120, 1e-80, 1e-50, 1e-24]]):
        expected = np.exp(-np.logaddexp(-power * np.log(alpha), np.log(power * times)) / power)
        for values in flow.eigenvalues(times):
            # At the last time sigma = lambda^L is 1e11 or more: the target, which the law leaves out, is 1e-11 of it.
            np.testing.assert_allclose(values, expected, rtol=1e-10)


@pytest.mark.parametrize(("depth", "alpha"), [(5, 1e-102), (5, 1e-103), (12, 1e-31), (1000, 1e-100), (20, 1e-17)])
def test_plateaus_up_to_the_largest_time(depth: int, alpha: float) -> None:
    """On the plateau lambda^(2-L) falls along a straight line, from a start that may be no number any more."""
    flow = block_flow(depth, alpha, np.inf, blocks=3)
    log_start = (2 - depth) * np.log(alpha)
    last = np.exp(min(log_start, 705.0)) / (depth - 2)
    times = last * np.array([1e-5, 0.1, 0.5, 0.9])
    fallen = np.exp(np.log((depth - 2) * times) - log_start)
    expected = np.exp((log_start + np.log1p(-fallen)) / (2 - depth))
    # The logarithm of the plateau is about 700 and rounded: 1e-13 of the time, and ten times that near its end.
    np.testing.assert_allclose(flow.eigenvalues(times)[0], expected, rtol=1e-11)


def test_time_derivatives_at_the_start() -> None:
    """The start is put in by hand; its derivative must still be that of the flow."""
    flow = block_flow(5, 0.1, 3.0, blocks=3, size=2)
    slopes = jax.jit(jax.jacfwd(lambda t: jnp.stack(flow.eigenvalues(t))))(0.0)
    first, second = 0.1 * (1 + 5 / 3), 0.1 * 2 / 3
    error = (first**5 + 2 * second**5) / 3 - 2
    np.testing.assert_allclose(slopes, [-error * first**4, -error * second**4, -(second**9)], rtol=1e-10)


def test_no_plateau_above_the_limit() -> None:
    assert block_flow(2, 1e3, 5.0, blocks=3).plateau_time == 0
    assert block_flow(5, 1e-150, 5.0, blocks=3).plateau_time == np.inf


def test_levels_on_the_way_down_of_the_smaller_value() -> None:
    """Starts above the limit, the first eigenvalue below the second: what falls by less than e, against the flow."""
    flow = block_flow_from(3, 1.2, 1.4, blocks=3)
    end, start = float(flow.limit.sigma_1), 1.2**3
    assert float(flow.limit.log_ratio) < 0 and 1 < start / end < np.e
    levels = np.linspace(end, start, 6)[1:-1]
    times = flow.time_to(sigma_1=levels)
    np.testing.assert_allclose(np.asarray(flow.eigenvalues(times)[0]) ** 3, levels, rtol=1e-11)
