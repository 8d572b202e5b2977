r"""The Riccati equation of two layers, and its propagator.

Under whitened inputs and $W_2^\top W_2 - W_1 W_1^\top = \lambda I$ the stacked factor $Q = [W_1^\top; W_2]$ obeys
$\dot Q = FQ - \tfrac12 QQ^\top Q$ with a constant symmetric matrix

$$F = \begin{pmatrix} -\tfrac\lambda2 I & \Sigma^\top \\ \Sigma & \tfrac\lambda2 I \end{pmatrix},$$

so that $QQ^\top$ obeys a Riccati equation. With $\phi(F, t) = \int_0^t e^{2Fs}\,\mathrm ds$ its solution is
$QQ^\top(t) = e^{Ft} Q_0\,(I + Q_0^\top \phi Q_0)^{-1} Q_0^\top e^{Ft}$. Written so it overflows and loses all
digits after a few time constants. Here the middle factor is the Gram matrix of $K = [\phi^{1/2} Q_0; I]$, and an
orthonormal basis of the columns of $K$ gives the solution without an inverse and without a growing exponential. The
rows of $K$ differ by factors of $e^{Lt}$; elimination with complete pivoting, whose factors are kept apart from them,
finds rows that hold all others by coefficients of size one, at any time.
"""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    are_tied,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_shape,
    check_x64,
    differentiable,
    entry,
    fori_loop,
    formula,
    full_svd,
    holds_arrays,
    is_concrete,
    is_program,
    over,
    put,
    refused_derivative,
    scan,
    stop_gradient,
    xp,
)

REACH = 300.0
r"""Largest $\max|L|\,\Delta t$ of one step of derivatives: $e^{300}$ and its square root of a sum of squares are
numbers."""

UNSEEN_STEPS = 64
"""Steps of derivatives where the time is not seen beforehand."""

AT_ONCE = 1 << 16
"""Numbers of the factors that are computed together."""

NARROW = 3
"""Hidden widths up to which columns are made orthonormal one by one, side by side for many networks."""

SERIES = 1e-5
r"""Values of $|2Lt|$ below this take the series of the two functions."""

NEAR = 1e-5
r"""Eigenvalues with $|L_i - L_j|\,t$ below this take the derivative at their mean for a difference quotient."""


def speeds_of(where: str, strengths: Array, half: ArrayLike) -> Array:
    r"""$\sqrt{s^2 + (\lambda/2)^2}$ with derivatives: one-sided where $s$ is 0, refused in $\lambda$ at its kink."""
    message = f"{where}: modes of strength 0 have no derivative in lam at 0; take it in the strengths, or lam beside 0."

    if not is_program(strengths, half):
        return xp.hypot(strengths, half)

    @jax.custom_jvp
    def root(strengths: Array, half: Array) -> Array:
        return xp.hypot(strengths, half)

    @functools.partial(root.defjvp, symbolic_zeros=True)
    def _(primals: tuple[Array, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
        size = xp.hypot(*primals)
        gone = size == 0
        safe, moved = xp.where(gone, 1.0, size), xp.zeros_like(size)
        if not isinstance(tangents[0], SymbolicZero):
            moved = moved + xp.where(gone, 1.0, primals[0] / safe) * tangents[0]
        if not isinstance(tangents[1], SymbolicZero):
            moved = moved + eqx.error_if(primals[1] / safe, xp.any(gone), message) * tangents[1]
        return size, moved

    return root(strengths, half)


@holds_arrays
class Correlations(eqx.Module):
    r"""What the Riccati equation determines of two layers: $QQ^\top$ by its blocks, free of the hidden basis.

    Attributes:
        input: $W_1^\top W_1$, (in, in).
        product: $W_2 W_1$, (out, in).
        output: $W_2 W_2^\top$, (out, out).
    """

    input: Float[Array, "*batch inp inp"]
    product: Float[Array, "*batch out inp"]
    output: Float[Array, "*batch out out"]

    @property
    @formula
    def matrix(self) -> Float[Array, "*batch size size"]:
        r"""The whole $QQ^\top$."""
        upper = xp.concatenate([self.input, xp.swapaxes(self.product, -1, -2)], axis=-1)
        return xp.concatenate([upper, xp.concatenate([self.product, self.output], axis=-1)], axis=-2)


@holds_arrays
class Eigensystem(eqx.Module):
    r"""Eigenvalues and eigenvectors of the matrix $F$ of a task and a relative scale, in closed form from one SVD.

    With $\Sigma = U S V^\top$, $m$ modes, $s_\lambda = \sqrt{s^2 + \lambda^2/4}$, $h = (\lambda/2)/(s_\lambda + s)$ and
    $g = 1/\sqrt{1 + h^2}$: values $+s_\lambda$ with vectors $\tfrac1{\sqrt2}[V(g - hg); U(g + hg)]$, values
    $-s_\lambda$ with $\tfrac1{\sqrt2}[V(g + hg); -U(g - hg)]$, and on the complement of $V$ (or of $U$) the value
    $-\lambda/2$ (or $+\lambda/2$). Repeated and zero singular values need no care, but vectors of repeated ones have no
    derivative, which is refused.

    Attributes:
        target: $\Sigma$, (out, in).
        lam: $\lambda$.
        strengths: Singular values $s$, largest first.
    """

    target: Matrix
    lam: Float[Array, ""]
    _left: Matrix
    strengths: Float[Array, " modes"]
    _right: Matrix

    @property
    def left(self) -> Matrix:
        """$U$ completed to a square orthogonal matrix, (out, out)."""
        return self._vectors(self._left)

    @property
    def right(self) -> Matrix:
        """$V$ completed to a square orthogonal matrix, (in, in)."""
        return self._vectors(self._right)

    def _vectors(self, basis: Matrix) -> Matrix:
        message = (
            "eigensystem: vectors of singular values of target that coincide have no derivative; take derivatives of "
            "values, or of propagate."
        )
        return refused_derivative(basis, are_tied(self.strengths, (self.out, self.inp)), message)

    @property
    def inp(self) -> int:
        """Input width."""
        return self._right.shape[0]

    @property
    def out(self) -> int:
        """Output width."""
        return self._left.shape[0]

    @property
    def modes(self) -> int:
        """Number of singular modes of the task, the smaller of the two widths."""
        return self.strengths.shape[0]

    @property
    @formula
    def speeds(self) -> Float[Array, " modes"]:
        r"""$s_\lambda = \sqrt{s^2 + \lambda^2/4}$."""
        return speeds_of("Eigensystem.speeds", self.strengths, self.lam / 2)

    @property
    def complement(self) -> Float[Array, ""]:
        r"""$\lambda_\perp = \mathrm{sgn}(d_{\mathrm{out}} - d_{\mathrm{in}})\,\lambda/2$; 0 where there is none."""
        return float(np.sign(self.out - self.inp)) * self.lam / 2

    @property
    @formula
    def gains(self) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
        r"""$g$ and $hg$."""
        total = self.speeds + self.strengths
        h = xp.where(total > 0, self.lam / 2, 0.0) / xp.where(total > 0, total, 1.0)
        g = 1 / xp.sqrt(1 + h**2)
        return g, h * g

    @property
    @formula
    def tilts(self) -> tuple[Float[Array, " modes"], Float[Array, " modes"]]:
        r"""$g - hg$ and $g + hg$."""
        g, hg = self.gains
        return g - hg, g + hg

    @property
    @formula
    def values(self) -> Float[Array, " size"]:
        """All eigenvalues, in the order of `vectors`."""
        below = xp.full(self.inp - self.modes, -self.lam / 2)
        above = xp.full(self.out - self.modes, self.lam / 2)
        return xp.concatenate([self.speeds, -self.speeds, below, above])

    @property
    @formula
    def vectors(self) -> Float[Array, "size size"]:
        """Orthonormal eigenvectors as columns."""
        m = self.modes
        u, v = self.left[:, :m], self.right[:, :m]
        less, more = self.tilts
        upper = xp.concatenate([v * less, v * more], axis=1) / math.sqrt(2.0)
        lower = xp.concatenate([u * more, -u * less], axis=1) / math.sqrt(2.0)
        rest = xp.zeros((self.inp + self.out, self.inp + self.out - 2 * m), upper.dtype)
        rest = put(rest, (slice(self.inp), slice(self.inp - m)), self.right[:, m:])
        rest = put(rest, (slice(self.inp, None), slice(self.inp - m, None)), self.left[:, m:])
        return xp.concatenate([xp.concatenate([upper, lower], axis=0), rest], axis=1)

    @property
    @formula
    def growth(self) -> Float[Array, " size"]:
        r"""By how much the growth of each direction, $\max(L, 0)$, exceeds $|\lambda|/2$.

        For $L = s_\lambda$ it is $s^2/(s_\lambda + |\lambda|/2)$: what tells slow modes apart keeps all its digits.
        """
        half = xp.abs(self.lam) / 2
        total = self.speeds + half
        above = self.strengths * (self.strengths / xp.where(total > 0, total, 1.0))
        grows = xp.where(self.complement > 0, 0.0, -half)
        rest = xp.full(self.inp + self.out - 2 * self.modes, grows)
        return xp.concatenate([above, xp.full(self.modes, -half), rest])

    @formula
    def coordinates(self, factor: Float[Array, "*batch size hidden"]) -> Float[Array, "*batch size hidden"]:
        r"""$P^\top Q$, in sums and differences of $V^\top W_1^\top$ and $U^\top W_2$.

        In this form a nearly vanishing overlap with a growing direction keeps the digits that the layers have.
        """
        m = self.modes
        below, above = self._right.T @ factor[..., : self.inp, :], self._left.T @ factor[..., self.inp :, :]
        total, difference = below[..., :m, :] + above[..., :m, :], above[..., :m, :] - below[..., :m, :]
        g, hg = (gain[:, None] / math.sqrt(2.0) for gain in self.gains)
        grown, shrunk = g * total + hg * difference, hg * total - g * difference
        return xp.concatenate([grown, shrunk, below[..., m:, :], above[..., m:, :]], axis=-2)


@entry
def flow_matrix(target: object, lam: ArrayLike) -> Float[Array, "size size"]:
    r"""Matrix $F = [[-\tfrac\lambda2 I, \Sigma^\top], [\Sigma, \tfrac\lambda2 I]]$ of the Riccati equation.

    Args:
        target: $\Sigma$, (out, in).
        lam: $\lambda$.

    Returns:
        $F$, of size in + out.

    Example:
        >>> flow_matrix(jnp.array([[3.0]]), 2.0)
        array([[-1.,  3.],
               [ 3.,  1.]])
    """
    return matrix_of(*_task("flow_matrix", target, lam))


@formula
def matrix_of(sigma: Matrix, lam: Float[Array, ""]) -> Float[Array, "size size"]:
    """`flow_matrix` of arrays."""
    out, inp = sigma.shape
    half = lam / 2
    upper = xp.concatenate([-half * xp.eye(inp), sigma.T], axis=1)
    return xp.concatenate([upper, xp.concatenate([sigma, half * xp.eye(out)], axis=1)], axis=0)


@entry
def riccati_field(correlations: Correlations, target: object, lam: ArrayLike) -> Correlations:
    r"""Time derivative $F X + X F - X^2$ of $X = QQ^\top$ under gradient flow, for $\lambda$-balanced layers.

    Args:
        correlations: $X$ by its blocks.
        target: $\Sigma$, (out, in).
        lam: $\lambda$.

    Returns:
        The derivative, by its blocks.

    Example:
        >>> one = jnp.ones((1, 1))
        >>> riccati_field(Correlations(one, one, one), 3 * one, 0.0).product
        array([[4.]])
    """
    return check_result("riccati_field", _field(correlations, *_task("riccati_field", target, lam)))


@formula
def _field(correlations: Correlations, sigma: Matrix, lam: Float[Array, ""]) -> Correlations:
    matrix, x = matrix_of(sigma, lam), correlations.matrix
    return _blocks(matrix @ x + x @ matrix - x @ x, correlations.input.shape[-1])


@entry
def eigensystem(target: object, lam: ArrayLike) -> Eigensystem:
    r"""Eigenvalues and eigenvectors of `flow_matrix(target, lam)` from the singular value decomposition of the target.

    Args:
        target: $\Sigma$, (out, in).
        lam: $\lambda$.

    Returns:
        The system; `values` and `vectors` give it as arrays.

    Example:
        >>> eigensystem(jnp.array([[3.0]]), 8.0).values
        array([ 5., -5.])
    """
    return _eigensystem(*_task("eigensystem", target, lam))


@formula
def _eigensystem(sigma: Matrix, lam: Float[Array, ""]) -> Eigensystem:
    left, strengths, right_t = full_svd(sigma)
    return Eigensystem(sigma, lam, left, strengths, right_t.T)


@entry
def stacked(params: Params) -> Float[Array, "size hidden"]:
    r"""The factor $Q = [W_1^\top; W_2]$ of two layers.

    Example:
        >>> stacked((jnp.ones((1, 2)), jnp.full((1, 1), 5.0))).ravel()
        array([1., 1., 5.])
    """
    if len(params) != 2:
        raise ValueError(f"stacked: params must be two layers, but has {len(params)}.")
    first, second = (xp.asarray(layer, dtype=float) for layer in params)
    check_shape("stacked", "params[1]", second, (None, first.shape[0]))
    return _stacked(first, second)


@formula
def _stacked(first: Matrix, second: Matrix) -> Float[Array, "size hidden"]:
    return xp.concatenate([first.T, second], axis=0)


@entry
def unstacked(factor: Float[Array, "*batch size hidden"], inp: int) -> tuple[Array, Array]:
    r"""The two layers of a factor $Q = [W_1^\top; W_2]$ with `inp` inputs; inverse of `stacked`."""
    return _unstacked(factor, inp)


@formula(static_argnums=1)
def _unstacked(factor: Float[Array, "*batch size hidden"], inp: int) -> tuple[Array, Array]:
    return xp.swapaxes(factor[..., :inp, :], -1, -2), factor[..., inp:, :]


@entry
def correlations_of(factor: Float[Array, "*batch size hidden"], inp: int) -> Correlations:
    r"""Blocks of $QQ^\top$ of a factor with `inp` inputs."""
    return check_result("correlations_of", _correlations_of(factor, inp))


@formula(static_argnums=1)
def _correlations_of(factor: Float[Array, "*batch size hidden"], inp: int) -> Correlations:
    upper, lower = factor[..., :inp, :], factor[..., inp:, :]
    across = xp.swapaxes(upper, -1, -2)
    return Correlations(upper @ across, lower @ across, lower @ xp.swapaxes(lower, -1, -2))


@entry
def propagate(
    factor: Float[Array, "size hidden"], system: Eigensystem, t: ArrayLike, *, steps: int | None = None
) -> Float[Array, "size hidden"]:
    r"""Factor $Q(t)$ of the Riccati flow from $Q(0)$, up to a rotation of the hidden basis: $QQ^\top(t)$ is exact.

    In the eigenbasis $Y = P^\top Q$; with $r = \phi(L, t)^{1/2}$ and $\rho = e^{Lt}/r$ the solution is
    $\rho\,\hat Q$, where $\hat Q$ are the first rows of an orthonormal basis of the columns of $[rY; I]$. Works for
    every time, hidden width, rank and overlap with the task, at the same cost; relative errors are some $10^{-15}$.

    Differentiable with respect to all arguments, for which time is cut into steps. Derivatives with respect to the
    target and $\lambda$ are taken of the matrix functions of $F$ (divided differences), so repeated singular values do
    no harm. Second derivatives with respect to the target are not available and say so.

    Args:
        factor: $Q(0)$, (in + out, hidden). That it is $\lambda$-balanced is not checked here; `solve` does.
        system: Eigensystem of task and $\lambda$.
        t: Time, at least 0.
        steps: Number of equal steps of derivatives, at most $\max|L|\,t = 300$ each. By default as few as needed, and
            64 under `jax.jit`, where the time is not seen beforehand.

    Returns:
        $Q(t)$; at $t = 0$ the factor itself.

    Example:
        >>> system = eigensystem(jnp.array([[2.0]]), 0.0)
        >>> q = propagate(jnp.full((2, 1), 0.1), system, 100.0)
        >>> float(jnp.round((q @ q.T)[1, 0], 12))
        2.0
    """
    where = "propagate"
    check_number(where, "t", t, at_least=0)
    check_shape(where, "factor", factor, (system.inp + system.out, None))
    time = as_array(t, float)
    if not is_concrete(time):
        time = eqx.error_if(time, ~(time >= 0), "propagate: t must be at least 0, but is not.")
    return check_result(where, propagated(factor, system, time, steps))


def propagated_at(
    factor: Float[Array, "*batch size hidden"], system: Eigensystem, times: Float[Array, "*times"]
) -> Float[Array, "..."]:
    """`propagated` of one factor at each of several times, whose axes come before those of the factor.

    Numbers are taken as many at once as stay close to the processor, and may be several factors; axes of these lead.
    """
    flat = times.ravel()
    if is_program(factor, system, times):
        return over(lambda t: propagated(factor, system, t))(flat).reshape(*times.shape, *factor.shape)
    together = max(1, AT_ONCE // factor.size)
    parts = [flat[k : k + together] for k in range(0, max(flat.size, 1), together)]
    found = xp.concatenate([propagated(factor[..., None, :, :], system, part) for part in parts], axis=-3)
    return found.reshape(*factor.shape[:-2], *times.shape, *factor.shape[-2:])


def propagated(
    factor: Float[Array, "... size hidden"], system: Eigensystem, time: Float[Array, "..."], steps: int | None = None
) -> Float[Array, "... size hidden"]:
    """`propagate` for a time that was looked at; for numbers also several factors and times, broadcast."""
    where = "propagate"
    vectors, matrix, length, *moving = _prepared(factor, system, time)
    if steps is not None:
        check_count(where, "steps", steps, at_least=1)
        message = f"propagate: {steps} steps do not reach that far: max|L| t must be at most {REACH:g} per step."
        if not is_concrete(length):
            time = eqx.error_if(time, length > 1.1 * REACH * steps, message)
        elif float(length) > 1.1 * REACH * steps:
            raise ValueError(message)
    elif is_concrete(length):
        steps = _steps_needed(float(xp.max(length, initial=0.0)))
    return _arrived(_travel(steps, *moving, time), vectors, matrix, factor, time)


@formula
def _prepared(
    factor: Float[Array, "... size hidden"], system: Eigensystem, time: Float[Array, "..."]
) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array]:
    r"""Eigenvectors, $F$, $\max|L|\,t$; and coordinates, eigenvalues, their growth, $\lambda$ and the change of $F$."""
    # The decomposition is one way to write F; derivatives with respect to the target take F itself.
    fixed = stop_gradient(system)
    values, vectors = fixed.values, fixed.vectors
    matrix = matrix_of(system.target, system.lam)
    # Zero, with the derivative of F in the eigenbasis as its derivative.
    change = vectors.T @ (matrix - stop_gradient(matrix)) @ vectors
    length = stop_gradient(xp.max(xp.abs(values)) * time)
    return vectors, matrix, length, fixed.coordinates(factor), values, fixed.growth, fixed.lam, change


@formula
def _arrived(moved: Array, vectors: Array, matrix: Array, factor: Array, time: Float[Array, "..."]) -> Array:
    # At the start itself the flow is known without a formula, and so is its derivative.
    speed = matrix @ factor - 0.5 * factor @ (xp.swapaxes(factor, -1, -2) @ factor)
    time = time[..., None, None]
    return xp.where(time > 0, vectors @ moved, factor + (time - stop_gradient(time)) * speed)


def _steps_needed(length: float) -> int:
    r"""Number of steps of derivatives of `propagate` for $\max|L|\,t$ = `length`, rounded up to a power of two above 4.

    Rounding keeps the number of configurations small that derivatives compile.
    """
    if not math.isfinite(length):
        raise ValueError("propagate: the eigenvalues times t must be finite, but overflow; take other units.")
    count = max(1, math.ceil(length / REACH))
    return count if count <= 4 else 2 ** math.ceil(math.log2(count))


@differentiable(nondiff_argnums=(0,))
def _travel(
    steps: int | None, y: Array, values: Array, growth: Array, lam: Array, change: Array, t: Array
) -> Float[Array, "... size hidden"]:
    """Coordinates at time t, in one piece; derivatives are those of the same in steps."""
    return _jump(y, values, growth, lam, t)


@_travel.defjvp
def _(steps: int | None, primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    y, values, _, _, change, t = primals
    moved, _, _, _, changed, later = tangents
    return jax.jvp(lambda *moving: _stepped(steps, values, *moving), (y, change, t), (moved, changed, later))


@formula
def _jump(y: Array, values: Array, growth: Array, lam: Array, t: Array) -> Array:
    r"""The propagator in the eigenbasis, for any time, or for several that lead the axes.

    Columns of $K = [rY; I]$ are eliminated by complete pivoting. The logarithms of $r$ are kept apart, less a common
    $|\lambda|t/2$: no number leaves its range, and each row is changed by multiples, at most 1, of its own entries.
    What comes out has the columns' span and entries of at most 1.
    """
    size, hidden = y.shape[-2:]
    batch = xp.broadcast_shapes(y.shape[:-2], t.shape)
    t = xp.broadcast_to(t, batch)
    safe = xp.where(t > 0, t, 1.0)[..., None]
    x = 2 * xp.abs(values) * safe
    near = x < SERIES
    share = xp.where(near, 1 - x / 2 + x**2 / 6, -xp.expm1(-x) / xp.where(near, 1.0, x))
    of_basis = xp.broadcast_to(-xp.abs(lam) / 2 * safe, (*batch, hidden))
    logs = xp.concatenate([growth * safe + 0.5 * xp.log(safe * share), of_basis], axis=-1)
    parts = (xp.broadcast_to(part, (*batch, *part.shape[-2:])) for part in (y, xp.eye(hidden, dtype=y.dtype)))
    rows = xp.concatenate(list(parts), axis=-2)

    def eliminate(k: ArrayLike, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        # Rows and columns are picked by sums with indicators, which run side by side for many networks; indices do not.
        rows, columns = carry
        pivot = _indicator(logs + xp.log(xp.max(xp.abs(rows), axis=-1)))
        row = (pivot[..., None, :] @ rows)[..., 0, :]
        column = _indicator(xp.abs(row))
        entries, corner = (rows @ column[..., None])[..., 0], xp.sum(row * column, axis=-1, keepdims=True)
        heights = logs + xp.log(xp.abs(entries))
        highest = xp.max(xp.where(pivot > 0, heights, -xp.inf), axis=-1, keepdims=True)
        lower = xp.sign(entries) * xp.sign(corner) * xp.exp(heights - highest)
        rows = rows - entries[..., None] * (row / corner)[..., None, :]
        rows = xp.where((pivot[..., None] > 0) | (column[..., None, :] > 0), 0.0, rows)
        return rows, put(columns, (..., k), lower)

    _, columns = fori_loop(0, hidden, eliminate, (rows, xp.zeros_like(rows)))
    basis = _orthonormal_narrow(columns) if hidden <= NARROW else _orthonormal(columns)[0]
    return _function("quotient", values, safe)[..., None] * basis[..., :size, :]


def _indicator(values: Float[Array, "*batch items"]) -> Float[Array, "*batch items"]:
    """One at the first largest value, zero elsewhere."""
    largest = xp.argmax(values, axis=-1, keepdims=True)
    return (xp.arange(values.shape[-1]) == largest).astype(values.dtype)


def _orthonormal_narrow(rows: Array) -> Array:
    """Orthonormal columns of the same span, each made so twice; every row is changed by multiples of its own."""
    basis: list[Array] = []
    for position in range(rows.shape[-1]):
        column = rows[..., position]
        for _ in range(2):
            for other in basis:
                column = column - other * xp.sum(other * column, axis=-1, keepdims=True)
        basis.append(column / xp.sqrt(xp.sum(column**2, axis=-1, keepdims=True)))
    return xp.stack(basis, axis=-1)


@formula(static_argnums=0)
def _stepped(steps: int | None, values: Array, y: Array, change: Array, t: Array) -> Array:
    """The propagator in the eigenbasis by equal steps, in which nothing needs to be kept apart."""
    if steps is None:
        steps = UNSEEN_STEPS
        t = eqx.error_if(
            t,
            xp.max(xp.abs(values)) * t > REACH * steps,
            f"propagate: derivatives under a compilation reach max|L| t = {REACH * steps:g}; to go further, "
            "take those of propagate with steps.",
        )
    if steps == 1:
        return _step(y, values, change, t)
    moved, _ = scan(lambda z, _: (_step(z, values, change, t / steps), None), y, None, length=steps)
    return moved


def _step(y: Array, values: Array, change: Array, t: Array) -> Array:
    """One step of the propagator in the eigenbasis."""
    safe = xp.where(t > 0, t, 1.0)
    return _spectral("quotient", values, change, safe) @ _basis(_spectral("shrink", values, change, safe), y)


@differentiable
def _basis(shrink: Float[Array, "size size"], y: Float[Array, "size hidden"]) -> Float[Array, "size hidden"]:
    r"""First rows of an orthonormal basis of the columns of $[u^{-1} Y; I]$ for a diagonal matrix $u = 1/r$."""
    return _decomposed(shrink, y)[0]


@_basis.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> tuple[Array, Array]:
    r"""Derivative $u\,(u^2 + YY^\top)^{-1} (\dot Y R^{-1} - \dot u\,\hat Q)$, up to a turn of the basis.

    That of a QR decomposition would subtract numbers of size $e^{Lt}$ from each other; here nothing grows.
    """
    shrink, y = primals
    basis, triangle = _decomposed(shrink, y)
    moved = jax.scipy.linalg.solve_triangular(triangle, tangents[1].T, trans=1).T - tangents[0] @ basis
    # u^2 + Y Y^T = T^T T, without forming the squares.
    root = xp.linalg.qr(xp.concatenate([shrink, y.T], axis=0), mode="r")
    solved = jax.scipy.linalg.solve_triangular(root, jax.scipy.linalg.solve_triangular(root, moved, trans=1))
    return basis, shrink @ solved


def _decomposed(shrink: Array, y: Array) -> tuple[Array, Array]:
    """First rows of Q, and R, of the QR decomposition behind `_basis`."""
    size, hidden = y.shape
    basis, triangle = _orthonormal(
        xp.concatenate([y / xp.diag(shrink)[:, None], xp.eye(hidden, dtype=y.dtype)], axis=0)
    )
    return basis[:size], triangle


def _orthonormal(rows: Array) -> tuple[Array, Array]:
    """QR decomposition by Householder reflections, rows sorted by size: small rows keep their relative accuracy."""
    order = xp.argsort(-xp.sum(rows**2, axis=-1), axis=-1, stable=True)
    basis, triangle = xp.linalg.qr(xp.take_along_axis(rows, order[..., None], axis=-2), mode="reduced")
    return xp.take_along_axis(basis, xp.argsort(order, axis=-1)[..., None], axis=-2), triangle


def _function(kind: str, values: Array, t: Array) -> Array:
    r"""$u = \phi(L, t)^{-1/2}$, or $\rho = e^{Lt} u$; both for positive $t$ and any sign of $L$."""
    x = 2 * values * t
    near = xp.abs(x) < SERIES
    safe = xp.where(near, 1.0, x)
    if kind == "shrink":
        return xp.sqrt(xp.where(near, 1 - x / 2 + x**2 / 12, safe / xp.expm1(safe))) / xp.sqrt(t)
    return xp.sqrt(xp.where(near, 1 + x / 2 + x**2 / 12, safe / -xp.expm1(-safe))) / xp.sqrt(t)


@differentiable(nondiff_argnums=(0,))
def _spectral(kind: str, values: Array, change: Array, t: Array) -> Array:
    """Function of the matrix diag(values) + change, where `change` is zero and matters through its derivative only."""
    return xp.diag(_function(kind, values, t))


@_spectral.defjvp
def _(kind: str, primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Array, Array]:
    values, change, t = primals
    _, moved, later = tangents
    change = _once(change)
    plain, speed = jax.jvp(lambda time: _function(kind, values, time), (t,), (later,))
    gap = values[:, None] - values[None, :]
    near = xp.abs(gap) * t < NEAR
    middle = (values[:, None] + values[None, :]) / 2
    _, slope = jax.jvp(lambda v: _function(kind, v, t), (middle,), (xp.ones_like(middle),))
    quotient = xp.where(near, slope, (plain[:, None] - plain[None, :]) / xp.where(near, 1.0, gap))
    return xp.diag(plain) + 0 * change, quotient * moved + xp.diag(speed)


@differentiable
def _once(x: Array) -> Array:
    """Identity that refuses to be differentiated."""
    return x


@_once.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    raise NotImplementedError(
        "propagate: second derivatives with respect to target or lam are not available; take differences of first ones."
    )


def _task(where: str, target: object, lam: ArrayLike) -> tuple[Matrix, Float[Array, ""]]:
    """Target and relative scale as arrays, or a refusal."""
    check_x64(where)
    sigma = as_array(target, float)
    check_shape(where, "target", sigma, (None, None))
    check_finite(where, "target", sigma)
    if 0 in sigma.shape:
        raise ValueError(f"{where}: target must have at least one row and one column, but has shape {sigma.shape}.")
    check_number(where, "lam", lam)
    return sigma, as_array(lam, float)


def _blocks(matrix: Float[Array, "*batch size size"], inp: int) -> Correlations:
    return Correlations(matrix[..., :inp, :inp], matrix[..., inp:, :inp], matrix[..., inp:, inp:])
