r"""Hamilton's equations of many geodesics at once, and their derivatives, in plain arrays: unchecked, on the host.

The normalised metric of rate $r = 1/L$. With $\xi = \ln x$, $x = s^2$, and $\tau = \xi_i - \xi_k$,

$$\lambda_{ik} = e^{(1-r)(\xi_i+\xi_k)/2}\,\frac{\sinh(\tau/2)/(\tau/2)}{\sinh(r\tau/2)/(r\tau/2)}, \qquad
\frac{\partial\ln\lambda_{ik}}{\partial\xi_i} = \frac{1-r}2 + \kappa(\tau) - r\kappa(r\tau), \quad
\kappa(\tau) = \tfrac12\coth\tfrac\tau2 - \tfrac1\tau.$$

In the frame of $X = USV^\top$ let $Z$ be a change of $X$, $E = ZS + SZ^\top$ and $G = SZ + Z^\top S$ those of $XX^\top$
and $X^\top X$. With the divided differences $T_{ijk}$ of $\lambda$ in its first argument, $T_{imjk}$ those of second
order and $M_{ijkl}$ those of first order in both, the second derivative of the Hamiltonian by $X$ is

$$\sum K^1_{ij}(ZZ^\top)_{ij} + K^2_{ij}(Z^\top Z)_{ij} + \sum P_{ik}P_{jk}T_{imjk}E_{im}E_{mj}
+ P_{ki}P_{kj}T_{imjk}G_{im}G_{mj} + P_{ik}P_{jl}M_{ijkl}E_{ij}G_{kl}.$$

Arrays of the frame have the many states as their last axis, which is long where the others are short.
"""

from typing import NamedTuple

import numpy as np

CLOSE = 0.3
"""Squares of singular values are close if the logarithm of their ratio is below this."""

APART = 1e-4
"""For second differences logarithms of squares are taken to be this far apart at least. Newton's method needs the
derivatives to no more digits, and that of the equations is smooth where values meet."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(7)

SERIES = np.array([1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600])
r"""Coefficients $B_{2n}/(2n)!$ of $\kappa(\tau) = \sum_n c_n\tau^{2n-1}$."""

SMALL = 0.7
"""Arguments of the series."""


class Frames(NamedTuple):
    """States in the frames of their singular vectors, and the equations there.

    Attributes:
        found: Velocities and forces, of the shape of the states.
        left: Singular vectors, states first.
        values: Singular values.
        right_t: Singular vectors.
        seen: Momenta in the frame, states last.
        table: Eigenvalues of the operator, states last.
        one: Left part of the gradient, states last.
        two: Right part.
    """

    found: np.ndarray
    left: np.ndarray
    values: np.ndarray
    right_t: np.ndarray
    seen: np.ndarray
    table: np.ndarray
    one: np.ndarray
    two: np.ndarray

    def some(self, rows: np.ndarray) -> "Frames":
        """Those of some rows, the first axis of the states."""
        if rows.all():
            return self
        each = np.repeat(rows, len(self.left) // len(rows))
        first = [part[each] for part in self[1:4]]
        return Frames(self.found[rows], *first, *(part[..., each] for part in self[4:]))


def frames_of(rate: float, states: np.ndarray) -> Frames:
    """Velocities and forces at states (..., 2, size, size): points and momenta; with all that derivatives need."""
    flat = states.reshape(-1, *states.shape[-3:])
    left, values, right_t = decomposed(flat[:, 0])
    seen = np.ascontiguousarray(np.moveaxis(_seen(left, flat[:, 1], right_t), 0, -1))
    table, one, two = _gradient(rate, values.T, seen)
    force = one * values.T + values.T[:, None] * two
    both = np.stack([table * seen, -force]).transpose(3, 0, 1, 2)
    found = (left[:, None] @ both @ right_t[:, None]).reshape(states.shape)
    return Frames(found, left, values, right_t, seen, table, one, two)


def field(rate: float, states: np.ndarray) -> np.ndarray:
    """Velocities and forces at states (..., 2, size, size): points and momenta."""
    return frames_of(rate, states).found


def curvature(rate: float, frames: Frames) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Derivatives of the equations as matrices on entries, states first.

    Returns:
        The inverse of $\partial\dot X/\partial P$, then $\partial\dot X/\partial X$ and
        $\partial\dot P/\partial X$. $\partial\dot P/\partial P$ is the second of them, transposed and negative.
    """
    count, size = frames.values.shape
    cross, force = _second(rate, frames)
    right = np.swapaxes(frames.right_t, 1, 2)
    frame = (frames.left[:, :, None, :, None] * right[:, None, :, None, :]).reshape(count, size**2, size**2)
    back = np.swapaxes(frame, 1, 2)
    inverse = (frame / frames.table.transpose(2, 0, 1).reshape(count, 1, -1)) @ back
    return inverse, frame @ cross @ back, frame @ -force @ back


def momenta_of(rate: float, points: np.ndarray, velocities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Momenta and speeds of velocities at points, of any number of axes before the last two."""
    shape = points.shape
    left, values, right_t = decomposed(points.reshape(-1, *shape[-2:]))
    logs = 2 * np.log(values.T)
    table = np.moveaxis(eigenvalues(rate, logs[:, None], logs[None]), -1, 0)
    seen = _seen(left, velocities.reshape(-1, *shape[-2:]), right_t)
    lowered = left @ (seen / table) @ right_t
    return lowered.reshape(shape), np.sqrt(np.sum(seen**2 / table, axis=(1, 2))).reshape(shape[:-2])


def velocities_of(rate: float, points: np.ndarray, momenta: np.ndarray) -> np.ndarray:
    """Velocities of momenta, normalised."""
    left, values, right_t = decomposed(points)
    logs = 2 * np.log(values.T)
    table = np.moveaxis(eigenvalues(rate, logs[:, None], logs[None]), -1, 0)
    return left @ (table * _seen(left, momenta, right_t)) @ right_t


def decomposed(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular value decompositions of many matrices; those with two rows without a loop."""
    if matrices.shape[-1] != 2:
        finite = np.asarray(np.isfinite(matrices).all(axis=(1, 2)))
        left, values, right_t = np.linalg.svd(np.where(finite[:, None, None], matrices, np.eye(matrices.shape[-1])))
        return left, np.where(finite[:, None], values, np.nan), right_t
    (a, b), (c, d) = matrices.transpose(1, 2, 0)
    same, turned = np.hypot(a + d, c - b), np.hypot(a - d, c + b)
    forth, back = np.arctan2(c + b, a - d), np.arctan2(c - b, a + d)
    left, right = (back + forth) / 2, (back - forth) / 2
    large = (same + turned) / 2
    small = (a * d - b * c) / np.where(large > 0, large, 1.0)
    sign = np.where(small < 0, -1.0, 1.0)
    one, two, three, four = np.cos(left), np.sin(left), np.cos(right), np.sin(right)
    frames = np.array([[one, -two], [two, one]]), np.array([[three, -four], [sign * four, sign * three]])
    return frames[0].transpose(2, 0, 1), np.stack([large, np.abs(small)], axis=1), frames[1].transpose(2, 0, 1)


def eigenvalues(rate: float, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Eigenvalues of the normalised operator from logarithms of squares of singular values."""
    apart = (one - other) / 2
    mean = np.exp((1 - rate) * (one + other) / 2)
    return mean * hyperbolic(apart) / (hyperbolic(rate * apart) if rate > 0 else 1.0)


def hyperbolic(x: np.ndarray) -> np.ndarray:
    r"""$\sinh(x)/x$."""
    some = np.where(x == 0, 1.0, x)
    return np.where(x == 0, 1.0, np.sinh(some) / some)


def _slopes(rate: float, apart: np.ndarray) -> np.ndarray:
    """Derivative of the logarithm of the eigenvalue by that of the square."""
    return (1 - rate) / 2 + _kappa(apart) - (rate * _kappa(rate * apart) if rate > 0 else 0.0)


def _kappa(x: np.ndarray) -> np.ndarray:
    small = np.abs(x) < SMALL
    some = np.where(small, 1.0, x)
    return np.where(small, x * np.polyval(SERIES[::-1], x * x), 0.5 / np.tanh(some / 2) - 1 / some)


def _kappa_slope(x: np.ndarray) -> np.ndarray:
    small = np.abs(x) < SMALL
    some = np.where(small, 1.0, x)
    odd = SERIES * (2 * np.arange(len(SERIES)) + 1)
    return np.where(small, np.polyval(odd[::-1], x * x), 1 / some**2 - 0.25 / np.sinh(some / 2) ** 2)


def _gradient(rate: float, values: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues and the two parts of the gradient of the Hamiltonian, in the frame, states last."""
    size = len(values)
    squares, logs = values**2, 2 * np.log(values)
    table = eigenvalues(rate, logs[:, None], logs[None])
    slopes = _slopes(rate, logs[:, None] - logs[None])
    one, two = np.zeros_like(seen), np.zeros_like(seen)
    for i in range(size):
        for j in range(i, size):
            if i == j:
                difference = table[i] * slopes[i] / squares[i]
            else:
                near = logs[i] - logs[j] < CLOSE
                gap = np.where(near, 1.0, squares[i] - squares[j])
                difference = (table[i] - table[j]) / gap
                if near.any():
                    difference[:, near] = _mean_slope(rate, squares[i, near], squares[j, near], logs[:, near])
            one[i, j] = one[j, i] = np.sum(seen[i] * seen[j] * difference, axis=0)
            two[i, j] = two[j, i] = np.sum(seen[:, i] * seen[:, j] * difference, axis=0)
    return table, one, two


def _mean_slope(rate: float, one: np.ndarray, other: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Mean of the derivative of eigenvalues by the square between two close squares."""
    between = other + (one - other) * (0.5 + 0.5 * NODES[:, None])
    places = np.log(between)[:, None]
    slopes = eigenvalues(rate, places, logs) * _slopes(rate, places - logs) / between[:, None]
    return np.einsum("n,nkm->km", 0.5 * WEIGHTS, slopes)


def _second(rate: float, frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    """In the frame and as matrices on entries: derivatives of velocities by points, and of gradients by points."""
    count, size = frames.values.shape
    s, p, one, two = frames.values.T, frames.seen, frames.one, frames.two
    logs = 2 * np.log(s)
    for k in range(1, size):
        logs[k] = np.minimum(logs[k], logs[k - 1] - APART)
    x = np.exp(logs)
    table = eigenvalues(rate, logs[:, None], logs[None])
    apart = logs[:, None] - logs[None]
    slopes = _slopes(rate, apart)
    bends = _kappa_slope(apart) - (rate**2 * _kappa_slope(rate * apart) if rate > 0 else 0.0)
    first = table * slopes / x[:, None]
    gaps = x[:, None] - x[None]
    diagonal = range(size)
    gaps[diagonal, diagonal] = 1.0
    # T_ijk, then T_imjk and M_ijkl, with the coinciding indices by derivatives.
    t = (table[:, None] - table[None]) / gaps[:, :, None]
    t[diagonal, diagonal] = first
    t2 = np.empty((size, size, size, size, count))
    for i in range(size):
        for m in range(size):
            for j in range(size):
                if i != j:
                    t2[i, m, j] = (t[i, m] - t[m, j]) / gaps[i, j]
                elif m != i:
                    t2[i, m, j] = (t[i, i] - t[i, m]) / gaps[i, m]
                else:
                    t2[i, m, j] = table[i] * (slopes[i] ** 2 + bends[i] - slopes[i]) / (2 * x[i] ** 2)
    both = (t[:, :, :, None] - t[:, :, None, :]) / gaps
    mixed = table * (slopes * slopes.transpose(1, 0, 2) - bends) / (x[:, None] * x[None])
    for k in range(size):
        both[:, :, k, k] = (t[k, k][:, None] - t[k, k][None]) / gaps
        both[diagonal, diagonal, k, k] = mixed[:, k]
    shape = (size, size, size, size, count)
    cross, force = np.zeros(shape), np.zeros(shape)
    r1, r2 = np.einsum("ikn,jkn,imjkn->imjn", p, p, t2), np.einsum("kin,kjn,imjkn->imjn", p, p, t2)
    # Cross: entries (i, k) of the velocity by entries (a, b) of the point.
    for a in range(size):
        for b in range(size):
            # E: rows i = a take T_abk P_bk s_b, rows i = b take T_abk P_ak s_b; G likewise on columns.
            cross[a, :, a, b] += t[a, b] * p[b] * s[b]
            cross[b, :, a, b] += t[a, b] * p[a] * s[b]
            cross[:, a, a, b] += t[a, b] * p[:, b] * s[a]
            cross[:, b, a, b] += t[a, b] * p[:, a] * s[a]
    for a in range(size):
        for b in range(size):
            # δ_be K1_ac, δ_ac K2_be, and the four places where neighbouring changes share an index.
            weight = 2 * both[a, b] * (p[a][:, None] * p[b][None] + p[b][:, None] * p[a][None]) * (s[b] * s)[:, None]
            force[a, b] += weight / 2
            force[:, :, a, b] += weight / 2
            force[a, b, :, b] += one[a] + s[b] * s[b] * r1[a, b] + s[a] * s * r2[a, b]
            force[a, b, a, :] += two[b] + s[b] * s * r1[b, a] + s[a] * s[a] * r2[b, a]
            force[a, b, b, :] += s[b] * s * r1[a, b] + s[a] * s[b] * r2[a, b]
            force[a, b, :, a] += s[b] * s[a] * r1[b, a] + s[a] * s * r2[b, a]
    square = (size**2, size**2, count)
    first, second = (np.ascontiguousarray(part.reshape(square).transpose(2, 0, 1)) for part in (cross, force))
    return first, second


def _seen(left: np.ndarray, matrices: np.ndarray, right_t: np.ndarray) -> np.ndarray:
    return np.swapaxes(left, 1, 2) @ matrices @ np.swapaxes(right_t, 1, 2)
