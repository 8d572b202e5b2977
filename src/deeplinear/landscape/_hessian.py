r"""The Hessian of the loss: its form, its matrix and its spectrum."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    check_count,
    check_finite,
    check_number,
    check_result,
    check_x64,
    entry,
    flatten,
    formula,
    inner,
    near_name,
    one_at_a_time,
    over,
    put,
    unflatten,
    xp,
)
from deeplinear.landscape._arguments import check_pair, check_range
from deeplinear.landscape._symmetric import eigenpairs
from deeplinear.models import AbstractLoss, AbstractModel, DeepLinear, Energy, Masked, Problem, checked_problem

LARGEST = 3000
"""Most weights for which a dense Hessian is made unless it is asked for: 72 MB of numbers."""

Which = Literal["smallest", "largest", "both"]


@entry
def hessian_form(problem: Problem, params: Params, direction: Params) -> Float[Array, ""]:
    r"""Hessian form $\mathfrak h(W; V) = \langle V, H V\rangle$: twice the second coefficient of the loss on a line.

    $\mathcal L(W + \epsilon V) = \mathcal L(W) + \epsilon\langle\nabla\mathcal L, V\rangle +
    \tfrac12\epsilon^2\mathfrak h(W; V) + O(\epsilon^3)$. For $\tfrac12\|\Sigma - W_{L:1}\|_F^2$ it is
    $\|\rho_1\|_F^2 - 2\langle\rho_2, \Sigma - W_{L:1}\rangle$, at every $W$. One Hessian product; pure, and may be
    mapped over layers or directions.

    Args:
        problem: Model and loss, any of them.
        params: Layers $W$.
        direction: Layers $V$.

    Returns:
        The number.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(3 * jnp.ones((1, 1))))
        >>> zero, one = jnp.zeros((1, 1)), jnp.ones((1, 1))
        >>> float(hessian_form(problem, (zero, zero), (one, one)))
        -6.0
    """
    checked_size("hessian_form", problem, params)
    check_pair("hessian_form", params, direction)
    return check_result("hessian_form", inner(direction, problem.hessian_product(params, direction)))


@entry
def hessian_matrix(problem: Problem, params: Params, *, largest: int = LARGEST) -> Float[Array, "size size"]:
    r"""Dense Hessian in the coordinates of `flatten` (row-major, layer 1 first).

    With $J$ the derivative of the product, $G = \nabla E$ and $i > j$, the block of layers $i$ and $j$ is that of
    $J^\top\nabla^2\!E\,J$ plus $(W_{L:i+1}^\top G\,W_{j-1:1}^\top)_{ae}\,(W_{i-1:j+1})_{bc}$ for the entries $(a, b)$
    of layer $i$ and $(c, e)$ of layer $j$. Rows and columns of weights that a `Masked` model fixes vanish. May be
    mapped.

    Args:
        problem: Model and loss.
        params: Layers.
        largest: Most weights for which the matrix is made. It takes $8N^2$ bytes: raise this to agree to more.

    Returns:
        Symmetric matrix of as many rows as there are weights.

    Raises:
        ValueError: There are more weights than `largest`.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(3 * jnp.ones((1, 1))))
        >>> hessian_matrix(problem, (jnp.zeros((1, 1)), jnp.zeros((1, 1)))).tolist()
        [[0.0, -3.0], [-3.0, 0.0]]
    """
    where = "hessian_matrix"
    size = checked_size(where, problem, params)
    check_count(where, "largest", largest, at_least=1)
    check_dense(where, size, largest)
    return check_result("hessian_matrix", dense_hessian(problem, params))


def _by_loss(function: Callable[..., Any]) -> Callable[..., Any]:
    """A formula of a problem; a program where the user gives an energy, which JAX differentiates over and over."""
    plain, compiled = formula(function), eqx.filter_jit(function)

    @functools.wraps(function)
    def call(problem: Problem, *rest: Any) -> Any:
        return (compiled if isinstance(problem.loss, Energy) else plain)(problem, *rest)

    return call


@_by_loss
def dense_hessian(problem: Problem, params: Params) -> Float[Array, "size size"]:
    """By blocks for a chain of layers, also one with fixed weights; by Hessian products for other models."""
    model, kept = problem.model, np.ones((), bool)
    while isinstance(model, Masked):
        params, kept = model.complete(params), kept & xp.concatenate([xp.ravel(mask) for mask in model.masks])
        model = model.model
    if not isinstance(model, DeepLinear):
        return problem.hessian(params)
    hessian = _blocks(problem.loss, model, params)
    if model is not problem.model:
        hessian = xp.where(kept[:, None] & kept, hessian, 0.0)
    return hessian + problem.l2 * xp.eye(hessian.shape[0], dtype=hessian.dtype)


def _blocks(loss: AbstractLoss, network: DeepLinear, params: Params) -> Float[Array, "size size"]:
    """The Hessian of a chain of layers, of any loss of its product."""
    depth, dtype = network.depth, params[0].dtype
    product, memo = network.forward(params)
    slope = loss.gradient(product)
    after = network.suffixes(params)
    before = (xp.eye(network.widths[0], dtype=dtype), *memo.prefixes[:-1])
    out, inp = product.shape
    sizes = [rows * columns for rows, columns in network.shapes]
    # Derivative of the product, a column for every weight.
    jacobian = xp.concatenate(
        [
            xp.einsum("oa,bi->oiab", left, right).reshape(out * inp, -1)
            for left, right in zip(after, before, strict=True)
        ],
        axis=1,
    )

    def bend(column: Float[Array, " entries"]) -> Float[Array, " entries"]:
        return loss.curvature(product, column.reshape(out, inp)).ravel()

    blocks = [[xp.zeros((rows, columns), dtype) for columns in sizes] for rows in sizes]
    for j in range(depth):
        between: Matrix = xp.eye(network.widths[j + 1], dtype=dtype)
        for i in range(j + 1, depth):
            pulled = after[i].T @ slope @ before[j].T
            block = xp.einsum("ae,bc->abce", pulled, between)
            blocks[i][j] = block.reshape(sizes[i], sizes[j])
            blocks[j][i] = blocks[i][j].T
            between = params[i] @ between
    bent = jacobian.T @ over(bend)(jacobian.T).T
    return xp.block(blocks) + 0.5 * (bent + bent.T)


def learnt_entries(model: AbstractModel) -> np.ndarray:
    """Which weights are learnt, in the coordinates of `flatten`: all but those that a `Masked` model fixes."""
    if not isinstance(model, Masked):
        return np.ones(sum(rows * columns for rows, columns in model.shapes), dtype=bool)
    own = np.concatenate([np.asarray(mask).ravel() for mask in model.masks])
    return own & learnt_entries(model.model)


@one_at_a_time
@_by_loss
def _eigenpairs(problem: Problem, params: Params, learnt: Int[Array, " learnt"]) -> tuple[Array, Array, Array]:
    """All eigenpairs of the Hessian on the weights that are learnt, and the norms of their residuals."""
    whole = dense_hessian(problem, params)
    matrix = whole[learnt[:, None], learnt[None, :]]
    values, vectors = eigenpairs(matrix)
    residuals = xp.linalg.norm(matrix @ vectors - vectors * values, axis=0)
    return values, put(xp.zeros((len(whole), len(learnt)), whole.dtype), learnt, vectors), residuals


@_by_loss
def _product(problem: Problem, params: Params, vector: Float[Array, " size"]) -> Float[Array, " size"]:
    return flatten(problem.hessian_product(params, unflatten(vector, problem.model.shapes)))


@dataclasses.dataclass(frozen=True)
class HessianSpectrum:
    """Eigenvalues of a Hessian with their eigenvectors. Printed, it is a short report.

    Attributes:
        values: Eigenvalues, smallest first.
        vectors: Eigenvectors of length one, in columns, in the coordinates of `flatten`.
        residuals: Norm of $Hv - \\lambda v$ for each pair.
        method: `dense` for the whole matrix, `lanczos` where only products with it were taken.
        size: Number of weights that are learnt.
        shapes: Shapes of the layers.
        which: Which end of the spectrum was asked for.
    """

    values: np.ndarray
    vectors: np.ndarray
    residuals: np.ndarray
    method: str
    size: int
    shapes: tuple[tuple[int, int], ...]
    which: Which = "smallest"

    @property
    def complete(self) -> bool:
        """Whether these are all eigenvalues."""
        return len(self.values) == self.size

    def direction(self, position: int) -> Params:
        """An eigenvector as a direction of the layers; negative positions count from the largest eigenvalue."""
        return unflatten(xp.asarray(self.vectors[:, position], dtype=float), self.shapes)

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say, as pairs of label and text."""
        how = {"dense": "of the whole matrix", "lanczos": "by products with the Hessian"}[self.method]
        count = len(self.values)
        rows = [("Hessian", f"{self.size} weights; {count} {'eigenvalue' if count == 1 else 'eigenvalues'} {how}")]
        if self.complete:
            rows += [("smallest", f"{self.values[0]:.9g}"), ("largest", f"{self.values[-1]:.9g}")]
        else:
            low = _lowest(count, self.which)
            for end, values in (("lowest", self.values[:low]), ("highest", self.values[low:])):
                if len(values):
                    many = f"{end} {len(values)}" if len(values) > 1 else end
                    reach = f"from {values[0]:.9g} to {values[-1]:.9g}" if len(values) > 1 else f"{values[0]:.9g}"
                    rows.append((many, reach))
        return [*rows, ("residuals", f"at most {self.residuals.max():.1e}")]

    def to_json(self) -> dict[str, Any]:
        """Everything but the eigenvectors as plain values."""
        return {
            "values": self.values.tolist(),
            "residuals": self.residuals.tolist(),
            "method": self.method,
            "size": self.size,
            "complete": self.complete,
        }

    def __str__(self) -> str:
        return report_text(self.rows())


@entry(instead="use hessian_matrix and jax.numpy.linalg.eigh")
def hessian_spectrum(
    problem: Problem,
    params: Params,
    count: int | None = None,
    which: Which = "smallest",
    *,
    method: Literal["auto", "dense", "lanczos"] = "auto",
    largest: int = LARGEST,
    tolerance: float = 1e-10,
    max_iterations: int = 10_000,
) -> HessianSpectrum:
    r"""Eigenvalues and eigenvectors of the Hessian: all of them, or the extreme ones of a large network.

    Up to `largest` weights the dense matrix is decomposed. Above, Lanczos' method takes products with the Hessian,
    each the cost of a few gradients, and finds extreme eigenvalues only. An eigenvalue that occurs many times, as 0
    does at a minimum, may be found fewer times by it. Of a `Masked` model only the weights that are learnt count:
    eigenvectors keep their full length, with zeros where a weight is fixed. Computed on the host.

    Args:
        problem: Model and loss.
        params: Layers.
        count: How many eigenvalues; all by default, which only the dense method can give.
        which: The `"smallest"`, the `"largest"`, or `"both"` ends with half of them each.
        method: `"auto"` chooses by size; the result names what was done.
        largest: Most weights for the dense method.
        tolerance: Largest residual $\|Hv - \lambda v\|$ of Lanczos' method, relative to the size of the Hessian.
        max_iterations: Limit on its restarts.

    Returns:
        Eigenvalues in ascending order, with residuals.

    Raises:
        RuntimeError: Lanczos' method did not converge, the message says how far it came; or it broke down.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(3 * jnp.ones((1, 1))))
        >>> hessian_spectrum(problem, (jnp.zeros((1, 1)), jnp.zeros((1, 1)))).values.tolist()
        [-3.0, 3.0]
    """
    where = "hessian_spectrum"
    weights = checked_size(where, problem, params)
    learnt = np.flatnonzero(learnt_entries(problem.model))
    size = len(learnt)
    if size == 0:
        raise ValueError(f"{where}: problem.model must learn at least one weight, but fixes all of them.")
    for name, value, options in (
        ("which", which, ("smallest", "largest", "both")),
        ("method", method, ("auto", "dense", "lanczos")),
    ):
        if value not in options:
            raise ValueError(f"{where}: {name} is {value!r}. {near_name(str(value), options)}")
    check_count(where, "largest", largest, at_least=1)
    if count is not None:
        check_count(where, "count", count, at_least=1, at_most=size)
    if method == "dense":
        check_dense(where, weights, largest)
    if method == "dense" or (method == "auto" and weights <= largest):
        values, vectors, residuals = map(np.asarray, _eigenpairs(problem, params, xp.asarray(learnt)))
        kept, shapes = _kept(size, count, which), problem.model.shapes
        found = HessianSpectrum(values[kept], vectors[:, kept], residuals[kept], "dense", size, shapes, which)
    else:
        check_number(where, "tolerance", tolerance, above=0)
        check_count(where, "max_iterations", max_iterations, at_least=1)
        if count is None or count >= size:
            raise ValueError(
                f"{where}: Lanczos' method gives fewer than all of the {size} eigenvalues; give count, or raise "
                f"largest (now {largest}) to agree to a dense matrix of {8e-6 * weights**2:.0f} MB."
            )
        found = _lanczos(problem, params, learnt, count, which, tolerance, max_iterations)
    check_range(where, found.values)
    return found


def _kept(size: int, count: int | None, which: str) -> np.ndarray:
    """Positions of the eigenvalues that were asked for, in ascending order."""
    count = size if count is None else count
    low = _lowest(count, which)
    return np.concatenate([np.arange(low), np.arange(size - (count - low), size)])


def _lowest(count: int, which: str) -> int:
    """How many of the eigenvalues that were asked for are those of the lower end."""
    return {"smallest": count, "largest": 0, "both": count // 2}[which]


def _lanczos(
    problem: Problem,
    params: Params,
    learnt: np.ndarray,
    count: int,
    which: Which,
    tolerance: float,
    max_iterations: int,
) -> HessianSpectrum:
    from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigsh

    size, shapes = len(learnt), problem.model.shapes
    weights = sum(rows * columns for rows, columns in shapes)

    def whole(vectors: np.ndarray) -> np.ndarray:
        placed = np.zeros((weights, *vectors.shape[1:]))
        placed[learnt] = vectors
        return placed

    def multiply(vector: np.ndarray) -> np.ndarray:
        return np.asarray(_product(problem, params, xp.asarray(whole(vector.ravel()), dtype=float)))[learnt]

    code = {"smallest": "SA", "largest": "LA", "both": "BE"}[which]
    start = np.random.default_rng(0).standard_normal(size)
    seen = multiply(start)
    check_range("hessian_spectrum", seen)
    if not seen.any():  # the Hessian is zero, as at the origin of three layers or more
        flat = whole(np.eye(size, count))
        return HessianSpectrum(np.zeros(count), flat, np.zeros(count), "lanczos", size, shapes, which)
    # ARPACK can drop the kernel of an operator from its start, and measures residuals by the eigenvalue: both lose the
    # eigenvalue 0 of a minimum. A multiple of the identity, no larger than the spectral norm, keeps it.
    lift = float(np.linalg.norm(multiply(seen)) / np.linalg.norm(seen))

    def lifted(vector: np.ndarray) -> np.ndarray:
        return multiply(vector) + lift * vector.ravel()

    operator = LinearOperator((size, size), matvec=lifted, dtype=np.float64)  # pyright: ignore[reportCallIssue]
    try:
        values, vectors = eigsh(
            operator,
            count,
            which=code,
            v0=start,
            tol=0.1 * tolerance,  # pyright: ignore[reportArgumentType]
            maxiter=max_iterations,
        )
    except ArpackNoConvergence as error:
        raise RuntimeError(
            f"hessian_spectrum: Lanczos' method found {len(error.eigenvalues)} of {count} eigenvalues in "
            f"{max_iterations} restarts. Likely causes: a cluster of eigenvalues at this end of the spectrum, as at a "
            "minimum, where 0 occurs many times; a tolerance below rounding. Ask for fewer or for the other end, allow "
            "more iterations, or raise largest for the dense method."
        ) from None
    except ArpackError as error:
        raise RuntimeError(
            f"hessian_spectrum: Lanczos' method broke down ({error}). Ask for fewer eigenvalues or for the other end, "
            "or raise largest for the dense method."
        ) from None
    order = np.argsort(values)
    values, vectors = values[order] - lift, vectors[:, order]
    residuals = np.array([np.linalg.norm(multiply(v) - s * v) for s, v in zip(values, vectors.T, strict=True)])
    scale = max(float(np.abs(values).max()), lift)
    if residuals.max() > tolerance * scale:
        raise RuntimeError(
            f"hessian_spectrum: Lanczos' method left a residual of {residuals.max():.1e}, above {tolerance:.1e} of the "
            f"size of the Hessian, {scale:.3e}. If this end of the spectrum is far smaller than the other, take "
            "which='both', or allow a larger tolerance."
        )
    return HessianSpectrum(values, whole(vectors), residuals, "lanczos", size, shapes, which)


def checked_size(where: str, problem: Any, params: Params) -> int:
    """Number of weights, after a look at the arguments."""
    check_x64(where)
    checked_problem(where, "problem", problem)
    problem.check(params, where)
    for position, layer in enumerate(params):
        check_finite(where, f"params[{position}]", layer)
    return int(sum(rows * columns for rows, columns in problem.model.shapes))


def check_dense(where: str, size: int, largest: int) -> None:
    """Refuse a dense Hessian that is larger than was agreed to."""
    if size > largest:
        raise ValueError(
            f"{where}: there must be at most {largest} weights for a dense Hessian, but there are {size}, which take "
            f"{8e-6 * size**2:.0f} MB; give largest={size} to agree to that, or take extreme eigenvalues by "
            "hessian_spectrum(..., count=...)."
        )


def report_text(rows: list[tuple[str, str]]) -> str:
    """Pairs of label and text as lines."""
    return "\n".join(f"{label:<15} {text}" for label, text in rows)
