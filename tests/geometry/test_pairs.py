"""Distances of many pairs at once, and the derivatives that Newton's method works with."""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg

from deeplinear.geometry import _paths, distance, distances, geodesic_between
from deeplinear.geometry._collocation import solve
from deeplinear.geometry._curvature import curvature, decomposed, field, frames_of
from deeplinear.geometry._logarithm import _speed, _turned

START = np.array([[1.0, 0.2], [-0.3, 0.8]])
END = np.array([[0.3, -0.9], [0.8, 0.5]])

KNOWN = {2: 1.343979019434, 3: 1.122235286352, math.inf: 2.007791976012}
"""Distances of these two, the reference values of `geodesic_between`."""

AGREE = 1e-9
"""What the package promises of lengths, relative."""


def draw(rng: np.random.Generator, size: int, count: int, largest: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    """Pairs with singular values within a factor of e², turned in one plane by up to a share of half a turn."""
    frames = np.linalg.qr(rng.standard_normal((4, count, size, size)))[0]
    generator = np.zeros((count, size, size))
    generator[:, 1, 0] = rng.uniform(0, largest, count) * math.pi
    turn = frames[1] @ scipy.linalg.expm(generator - np.swapaxes(generator, 1, 2)) @ np.swapaxes(frames[1], 1, 2)
    ends = [(frame * np.exp(rng.uniform(-1, 1, (count, 1, size)))) @ np.swapaxes(frame, 1, 2) for frame in frames[2:]]
    return frames[0] @ ends[0], frames[0] @ turn @ ends[1]


def hamilton(states: np.ndarray, depth: int) -> np.ndarray:
    """Velocities and forces (..., 2, d, d) as sums over layers, normalised: powers by divided differences."""
    left, s, right_t = np.linalg.svd(states[..., 0, :, :])
    turned = np.swapaxes(left, -1, -2) @ states[..., 1, :, :] @ np.swapaxes(right_t, -1, -2)
    x = s**2
    columns, rows = x[..., :, None], x[..., None, :]
    velocity, first, second = (np.zeros_like(turned) for _ in range(3))
    for layer in range(1, depth + 1):
        below, above = (layer - 1) / depth, (depth - layer) / depth
        back = np.swapaxes(turned, -1, -2)
        velocity += columns**above * turned * rows**below
        first += differences(x, above) * ((turned * rows**below) @ back)
        second += differences(x, below) * ((back * rows**above) @ turned)
    force = -left @ (first * s[..., None, :] + s[..., :, None] * second) @ right_t
    return np.stack([left @ velocity @ right_t, force], axis=-3) / depth


def differences(x: np.ndarray, exponent: float) -> np.ndarray:
    gaps = x[..., :, None] - x[..., None, :]
    equal = np.abs(gaps) < 1e-9
    powers = x**exponent
    slopes = exponent * x[..., :, None] ** (exponent - 1) + 0 * gaps
    return np.where(equal, slopes, (powers[..., :, None] - powers[..., None, :]) / np.where(equal, 1.0, gaps))


@pytest.mark.covers("geometry:F27")
@pytest.mark.parametrize("depth", [2, 3])
def test_against_the_boundary_value_problem_of_scipy(depth: int, seed: int) -> None:
    """Normalised, with equations written anew; solved to a root mean square of 1e-9 of the derivatives."""
    starts, ends = draw(np.random.default_rng(seed), 2, 3, 0.6)
    found = distances(starts, ends, depth, normalised=True)
    assert bool(found.converged.all()) and not bool(found.careful.any()) and set(found.cases) == {"numeric"}
    for start, end, length in zip(starts, ends, np.asarray(found.lengths), strict=True):

        def equations(_: np.ndarray, y: np.ndarray) -> np.ndarray:
            return hamilton(y.T.reshape(-1, 2, 2, 2), depth).reshape(-1, 8).T

        def missed(first: np.ndarray, last: np.ndarray) -> np.ndarray:
            return np.append(first[:4] - start.ravel(), last[:4] - end.ravel())  # noqa: B023

        times = np.linspace(0, 1, 21)
        points = start + times[:, None, None] * (end - start)
        guess = np.concatenate([points.reshape(-1, 4), np.tile((end - start).ravel(), (21, 1))], axis=1).T
        solution = scipy.integrate.solve_bvp(equations, missed, times, guess, tol=1e-9, max_nodes=20_000)
        assert solution.success
        first = solution.y[:, 0].reshape(2, 2, 2)
        assert length == pytest.approx(math.sqrt(np.sum(first[1] * hamilton(first, depth)[0])), rel=AGREE)


@pytest.mark.covers("geometry:F27")
def test_known_distances_and_one_by_one(seed: int) -> None:
    for depth, wanted in KNOWN.items():
        found = distances([START, END], [END, START], depth)
        np.testing.assert_allclose(found.lengths, wanted, rtol=1e-11)
        assert float(found.residuals.max()) < 1e-10 and found.lengths.shape == (2,)
    starts, ends = draw(np.random.default_rng(seed), 3, 4, 0.99)
    for depth in (5, math.inf):
        found = distances(starts, ends, depth)
        one_by_one = [distance(a, b, depth) for a, b in zip(starts, ends, strict=True)]
        np.testing.assert_allclose(found.lengths, one_by_one, rtol=AGREE)
        np.testing.assert_allclose(found.lengths, distances(ends, starts, depth).lengths, rtol=AGREE)


@pytest.mark.covers("geometry:F24", "geometry:F27")
def test_closed_forms_of_all_pairs(seed: int) -> None:
    """Against SciPy's roots and logarithms; mixed with pairs that have none, in one call."""
    rng = np.random.default_rng(seed)
    size, count = 3, 4
    orthogonal, frame, skew = np.linalg.qr(rng.standard_normal((3, count, size, size)))[0]
    values = np.exp(rng.uniform(-1, 1, (3, count, 1, size)))
    one, other = ((frame * v) @ np.swapaxes(frame, 1, 2) for v in values[:2])
    crossed = (skew * values[2]) @ np.swapaxes(skew, 1, 2)

    def roots(m: np.ndarray, depth: float) -> np.ndarray:
        root = scipy.linalg.logm if math.isinf(depth) else lambda p: scipy.linalg.fractional_matrix_power(p, 1 / depth)
        return np.stack([np.real(root(matrix)) for matrix in m])

    for depth in (2, 5, math.inf):
        found = distances(
            orthogonal @ one,
            np.concatenate([orthogonal @ other, orthogonal @ crossed]).reshape(2, count, size, size),
            depth,
        )
        weight = 1.0 if math.isinf(depth) else math.sqrt(depth)
        wanted = weight * np.linalg.norm(roots(one, depth) - roots(other, depth), axis=(1, 2))
        np.testing.assert_allclose(found.lengths[0], wanted, rtol=AGREE)
        assert set(found.cases[0]) == {"common frame"} and bool(found.converged.all())
        if depth == 2:
            assert set(found.cases[1]) == {"positive pair"}
            halves = roots(one, 2)
            trace = lambda m: np.trace(m, axis1=1, axis2=2)  # noqa: E731
            squared = trace(one) + trace(crossed) - 2 * trace(roots(halves @ crossed @ halves, 2))
            np.testing.assert_allclose(found.lengths[1], math.sqrt(2) * np.sqrt(squared), rtol=1e-7)
        else:
            assert set(found.cases[1]) == {"numeric"}
    turn = scipy.linalg.expm(np.array([[0.0, -2.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    found = distances([np.eye(3), 1.3 * turn], [turn, np.eye(3)], 3, normalised=True)
    assert list(found.cases) == ["from a scaled rotation"] * 2
    apart = np.linalg.norm(np.eye(3) - 1.3 ** (1 / 3) * scipy.linalg.expm(scipy.linalg.logm(turn) / 3))
    np.testing.assert_allclose(found.lengths, [3 * 2 * math.sqrt(2) * math.sin(1 / 3), 3 * apart], rtol=AGREE)
    flat = distances(one, -other, 1)
    np.testing.assert_allclose(flat.lengths, np.linalg.norm(one + other, axis=(1, 2)), rtol=1e-14)
    np.testing.assert_array_equal(distances(START, START, 3).lengths, 0.0)


@pytest.mark.covers("geometry:F24")
def test_a_normal_map_is_seen_at_depth_two() -> None:
    """The case has a length of its own; by collocation it comes out the same."""
    turn = scipy.linalg.expm(0.4 * np.array([[0.0, -1.0], [1.0, 0.0]]))
    start = np.diag([2.0, 1.0])
    end = 1.2**2 * turn @ start @ turn
    found = distances(start, end, 2)
    assert str(found.cases) == "normal map"
    wanted = math.sqrt(2) * np.linalg.norm((1.2 * turn - np.eye(2)) @ np.diag([math.sqrt(2), 1.0]))
    assert float(found.lengths) == pytest.approx(wanted, rel=AGREE)
    assert geodesic_between(start, end, 2, method="collocation").length == pytest.approx(wanted, rel=AGREE)


@pytest.mark.covers("geometry:F27")
def test_all_pairs_of_a_set_are_a_metric(seed: int) -> None:
    """By broadcasting. Points within one turn of a fifth, where the geodesics found are the shortest."""
    rng = np.random.default_rng(seed)
    points = START @ scipy.linalg.expm(0.2 * rng.standard_normal((5, 2, 2)))
    for depth in (3, math.inf):
        table = np.asarray(distances(points[:, None], points, depth).lengths)
        assert table.shape == (5, 5)
        np.testing.assert_allclose(table, table.T, rtol=AGREE, atol=1e-14)
        np.testing.assert_array_equal(np.diag(table), 0.0)
        assert np.all(table[:, None] <= table[:, :, None] + table[None] + 1e-12)
    np.testing.assert_allclose(
        distances(points[0], points, 3, normalised=True).lengths,
        math.sqrt(3) * np.asarray(distances(points[0], points, 3).lengths),
        rtol=1e-12,
    )


@pytest.mark.covers("geometry:F27", "geometry:F47")
def test_pairs_without_a_geodesic_are_told() -> None:
    singular = np.ones((2, 2))
    found = distances([START, START, singular, START], [END, START[::-1], END, singular], 3)
    assert list(found.converged) == [True, False, False, False]
    np.testing.assert_allclose(found.lengths[0], KNOWN[3], rtol=1e-11)
    assert math.isinf(found.lengths[1]) and np.all(np.isnan(found.lengths[2:]))
    assert list(found.cases) == ["numeric", "other component", "singular end", "singular end"]
    assert [bool(text) for text in found.messages] == [False, True, True, True]
    assert "opposite signs" in found.messages[1] and "The end is singular" in found.messages[3]
    with pytest.raises(ValueError, match="read-only"):
        found.cases[0] = ""
    strict = distances(START, END, 3, tolerance=1e-17)
    assert not strict.converged and np.isnan(strict.lengths) and "No geodesic was found" in str(strict.messages)
    assert 0 < float(strict.residuals) < 1e-10 and bool(strict.careful)


@pytest.mark.parametrize("depth", [1, 2, 3, math.inf])
def test_no_pairs_have_no_distances(depth: float) -> None:
    found = distances(np.zeros((3, 0, 2, 2)), np.eye(2), depth)
    assert found.lengths.shape == found.cases.shape == found.messages.shape == (3, 0)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="starts must be square matrices"):
        distances(np.ones((3, 2)), START, 2)
    with pytest.raises(ValueError, match="of the size of starts"):
        distances(START, np.eye(3), 2)
    with pytest.raises(ValueError, match="must go with those of ends"):
        distances(np.stack([START] * 2), np.stack([END] * 3), 2)
    with pytest.raises(ValueError, match="ends must be finite"):
        distances(START, np.full((2, 2), np.nan), 2)
    with pytest.raises(ValueError, match="depth must be"):
        distances(START, END, 1.5)
    assert distances(np.zeros((0, 2, 2)), END, 3).lengths.shape == (0,)


def test_progress_and_stopping(seed: int) -> None:
    starts, ends = draw(np.random.default_rng(seed), 2, 300)
    seen: list[float] = []
    distances(starts, ends, 3, progress=seen.append)
    assert seen == sorted(seen) and seen[-1] == 1 and len(seen) >= 3

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distances(starts, ends, 3, progress=stop)


def test_a_pair_that_is_not_joined_at_once_is_done_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Newton's method is given one step only."""
    monkeypatch.setattr(_paths, "STEPS", 1)
    found = distances([START, START], [END, 1.001 * START], 3)
    assert bool(found.careful[0]) and bool(found.converged.all())
    np.testing.assert_allclose(found.lengths[0], KNOWN[3], rtol=1e-11)


@pytest.mark.parametrize("depth", [2, 5])
def test_derivatives_of_the_equations(depth: int, seed: int) -> None:
    """By central differences of the equations written anew; one point with two equal singular values, one orthogonal.

    Where values are equal the derivatives are taken 1e-4 beside, as good as Newton's method needs them.
    """
    rng = np.random.default_rng(seed)
    size, step = 3, 1e-5
    points = np.eye(size) + 0.3 * rng.standard_normal((4, size, size))
    left, _, right_t = np.linalg.svd(points)
    points[0], points[1] = left[0] @ right_t[0], (left[1] * np.array([1.5, 0.8, 0.8])) @ right_t[1]
    states = np.stack([points, rng.standard_normal(points.shape)], axis=1)
    rate = 1 / depth
    frames = frames_of(rate, states)
    values, (inverse, cross, force) = frames.found, curvature(rate, frames)
    np.testing.assert_allclose(values, hamilton(states, depth), atol=1e-7 * np.abs(values).max())
    half = size * size
    jacobian = np.zeros((4, 2 * half, 2 * half))
    for k in range(2 * half):
        move = (step * np.eye(2 * half)[k]).reshape(2, size, size)
        jacobian[:, :, k] = (field(rate, states + move) - field(rate, states - move)).reshape(4, -1) / (2 * step)
    for row, tolerance in enumerate((1e-2, 1e-2, 1e-4, 1e-4)):
        scale = np.abs(jacobian[row]).max()
        np.testing.assert_allclose(inverse[row] @ jacobian[row, :half, half:], np.eye(half), atol=1e-6)
        np.testing.assert_allclose(cross[row], jacobian[row, :half, :half], atol=tolerance * scale)
        np.testing.assert_allclose(-cross[row].T, jacobian[row, half:, half:], atol=tolerance * scale)
        np.testing.assert_allclose(force[row], jacobian[row, half:, :half], atol=tolerance * scale)


def test_two_rows_are_decomposed_without_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrices = np.concatenate(
        [rng.standard_normal((20, 2, 2)), [np.eye(2), -np.eye(2), np.diag([1.0, -1.0]), np.ones((2, 2))]]
    )
    left, values, right_t = decomposed(matrices)
    np.testing.assert_allclose((left * values[:, None]) @ right_t, matrices, atol=1e-14)
    np.testing.assert_allclose(values, np.linalg.svd(matrices, compute_uv=False), atol=1e-14)
    for frames in (left, right_t):
        np.testing.assert_allclose(
            frames @ np.swapaxes(frames, 1, 2), np.broadcast_to(np.eye(2), frames.shape), atol=1e-14
        )


def test_first_paths_lead_from_start_to_end_at_one_pace(seed: int) -> None:
    starts, ends = draw(np.random.default_rng(seed), 3, 2)
    turns = [scipy.linalg.polar(a)[0].T @ scipy.linalg.polar(b)[0] for a, b in zip(starts, ends, strict=True)]
    paths = _paths.Paths(starts, ends, np.stack([np.real(scipy.linalg.logm(turn)) for turn in turns]))
    mesh = paths.mesh(1 / 3, 8)
    np.testing.assert_allclose(mesh.states[:, 0, 0], starts, atol=1e-10)
    np.testing.assert_allclose(mesh.states[:, -1, 0], ends, atol=1e-10)
    assert distances(starts, ends, 3).iterations.min() >= 1


def test_velocities_of_first_paths(seed: int) -> None:
    """Against differences of their points: the turn and the stretch both move."""
    starts, ends = draw(np.random.default_rng(seed), 3, 2)
    turns = [scipy.linalg.polar(a)[0].T @ scipy.linalg.polar(b)[0] for a, b in zip(starts, ends, strict=True)]
    paths = _paths.Paths(starts, ends, np.stack([np.real(scipy.linalg.logm(turn)) for turn in turns]))
    places, step = np.tile([0.0, 0.3, 0.8], (2, 1)), 1e-5
    difference = (paths.at(places + step)[0] - paths.at(places - step)[0]) / (2 * step)
    velocities = paths.at(places)[1]
    np.testing.assert_allclose(velocities, difference, atol=1e-8 * np.abs(difference).max())


def test_both_ends_of_a_geodesic_have_its_speed(seed: int) -> None:
    """The squared length of what takes the time 1, seen from the start and from the end."""
    starts, ends = draw(np.random.default_rng(seed), 2, 1)
    turn = scipy.linalg.polar(starts[0])[0].T @ scipy.linalg.polar(ends[0])[0]
    paths = _paths.Paths(starts, ends, np.real(scipy.linalg.logm(turn))[None])
    found = solve(1 / 3, paths.mesh(1 / 3, 16), starts, ends, tolerance=1e-12, most=40)
    assert found.converged[0]
    length = distance(starts[0], ends[0], 3, normalised=True)
    for one in (found, _turned(found)):
        assert _speed(1 / 3, one) == pytest.approx(length**2, rel=1e-8)


def test_paths_that_no_step_makes_better_are_left(seed: int) -> None:
    """With nothing allowed to be missed Newton's method stops at rounding, not at the limit of its steps."""
    starts, ends = draw(np.random.default_rng(seed), 2, 2)
    turns = [scipy.linalg.polar(a)[0].T @ scipy.linalg.polar(b)[0] for a, b in zip(starts, ends, strict=True)]
    paths = _paths.Paths(starts, ends, np.stack([np.real(scipy.linalg.logm(turn)) for turn in turns]))
    found = solve(1 / 3, paths.mesh(1 / 3, 4), starts, ends, tolerance=0.0, most=40)
    assert found.iterations.max() < 20 and found.residuals.max() < 1e-12
