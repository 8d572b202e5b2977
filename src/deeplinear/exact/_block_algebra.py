r"""Matrices that see only whether two indices are equal, in one block, or in different blocks.

With $n$ blocks of size $s$ and $d = ns$, they are $M(a,b,c) = I_n \otimes ((a-b) I_s + b J_s) + (J_n - I_n) \otimes c
J_s$: $a$ on the diagonal, $b$ elsewhere in the diagonal blocks, $c$ outside them. They are symmetric, they commute, and
sums, multiples and products are again of this form.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import Array, as_array, check_count, check_x64, entry, formula, is_concrete, xp

SMALLEST, LARGEST = 1e-300, 1e300  # of positive numbers: between them, sizes of a problem cannot overflow unseen
DEEPEST = 1e15  # L - 2 still has its digits
WIDEST = 2**53  # every width up to here is a floating-point number

Numbers: TypeAlias = ArrayLike | Sequence[Any]
"""An array, a number, or numbers in a list."""


def _is_seen(value: Any) -> bool:
    return all(map(is_concrete, jax.tree.leaves(value)))


def checked(
    where: str,
    name: str,
    value: Numbers,
    *,
    above: float | None = None,
    at_least: float | None = None,
    at_most: float | None = None,
    finite: bool = True,
) -> Float[Array, "*batch"]:
    """Numbers as a 64-bit array; a visible number outside its domain is refused, with its index."""
    if _is_seen(value):
        seen = np.asarray(value)
        if seen.dtype.kind not in "iuf":
            raise TypeError(f"{where}: {name} must hold real numbers, but is {value!r}.")
        conditions = [
            (np.isnan(seen), "a number"),
            (~(seen > above) if above is not None else None, f"greater than {above:g}" if above is not None else ""),
            (
                ~(seen >= at_least) if at_least is not None else None,
                f"at least {at_least:g}" if at_least else "at least 0",
            ),
            (np.isinf(seen) if finite else None, "finite"),
            (~(seen <= at_most) if at_most is not None else None, f"at most {at_most:g}" if at_most else ""),
        ]
        for bad, wanted in conditions:
            if bad is not None and np.any(bad):
                index = tuple(int(i) for i in np.argwhere(bad)[0])
                entry = f"entry {index} is" if seen.ndim else "is"
                raise ValueError(f"{where}: {name} must be {wanted}, but {entry} {seen[index]:g}.")
    return as_array(value, float)


def positive(where: str, name: str, value: Numbers) -> Float[Array, "*batch"]:
    """Positive numbers as a 64-bit array; a visible one too small or too large to compute with is refused."""
    checked(where, name, value, above=0)
    return checked(where, name, value, at_least=SMALLEST, at_most=LARGEST)


def spread(array: Float[Array, "..."], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """An array broadcast to a shape."""
    if array.shape == shape:
        return array
    if is_concrete(array):
        return xp.asarray(np.broadcast_to(np.asarray(array), shape), dtype=array.dtype)
    return xp.broadcast_to(array, shape)


def broadcast(where: str, **arrays: Float[Array, "..."]) -> list[Float[Array, "..."]]:
    """Arrays of one shape, or a refusal that names them."""
    try:
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
        return [spread(array, shape) for array in arrays.values()]
    except ValueError:
        shapes = ", ".join(f"{name} {xp.shape(array)}" for name, array in arrays.items())
        raise ValueError(
            f"{where}: {', '.join(arrays)} must have shapes that broadcast against each other, but have {shapes}."
        ) from None


def check_blocks(where: str, blocks: int, size: int) -> None:
    """Refuse fewer than two blocks, blocks of no size, or more rows than numbers can count."""
    check_count(where, "blocks", blocks, at_least=2)
    check_count(where, "size", size, at_least=1)
    if int(blocks) * int(size) > WIDEST:
        raise ValueError(
            f"{where}: blocks times size must be at most 2^53, but is {int(blocks) * int(size)} "
            f"(blocks={blocks}, size={size})."
        )


class BlockMatrix(eqx.Module):
    r"""The matrix $M(a, b, c)$ of $n$ blocks of size $s$, or a batch of them.

    Eigenvalues: $\lambda_1 = a + (s-1)b + s(n-1)c$ on the vector of ones, $\lambda_2 = a + (s-1)b - sc$ on vectors that
    are constant in each block and sum to zero ($n-1$ of them), $\lambda_3 = a - b$ on vectors that sum to zero in each
    block ($n(s-1)$ of them; none if $s = 1$, where $b$ has no entry in the matrix).

    Args:
        a: Diagonal entries.
        b: Other entries of the diagonal blocks.
        c: Entries outside the diagonal blocks; `a`, `b` and `c` are broadcast against each other.
        blocks: $n \ge 2$.
        size: $s \ge 1$.

    Example:
        >>> square = BlockMatrix(2.0, 1.0, 0.5, blocks=2, size=2) @ BlockMatrix(2.0, 1.0, 0.5, blocks=2, size=2)
        >>> square.dense()[0]
        array([5.5, 4.5, 3. , 3. ])
    """

    a: Float[Array, "*batch"]
    b: Float[Array, "*batch"]
    c: Float[Array, "*batch"]
    blocks: int = eqx.field(static=True)
    size: int = eqx.field(static=True)

    @entry
    def __init__(self, a: ArrayLike, b: ArrayLike, c: ArrayLike, *, blocks: int, size: int = 1) -> None:
        check_x64("BlockMatrix")
        check_blocks("BlockMatrix", blocks, size)
        entries = {name: checked("BlockMatrix", name, value) for name, value in (("a", a), ("b", b), ("c", c))}
        self.a, self.b, self.c = broadcast("BlockMatrix", **entries)
        self.blocks = int(blocks)
        self.size = int(size)

    @staticmethod
    def from_eigenvalues(
        lambda1: ArrayLike, lambda2: ArrayLike, lambda3: ArrayLike, *, blocks: int, size: int = 1
    ) -> "BlockMatrix":
        """The matrix with given eigenvalues; for blocks of size 1 the third has no meaning.

        Example:
            >>> float(BlockMatrix.from_eigenvalues(4.0, 1.0, 0.0, blocks=3).c)
            1.0
        """
        check_x64("BlockMatrix.from_eigenvalues")
        check_blocks("BlockMatrix.from_eigenvalues", blocks, size)
        first, second, third = (
            checked("BlockMatrix.from_eigenvalues", name, value)
            for name, value in (("lambda1", lambda1), ("lambda2", lambda2), ("lambda3", lambda3))
        )
        first, second, third = broadcast("BlockMatrix.from_eigenvalues", lambda1=first, lambda2=second, lambda3=third)
        return BlockMatrix(*_entries(first, second, third, float(blocks), float(size)), blocks=blocks, size=size)

    @staticmethod
    def alpha_m(alpha: ArrayLike, m: ArrayLike, *, blocks: int, size: int = 1) -> "BlockMatrix":
        r"""The layer with $\alpha$ on the diagonal and $\alpha/m$ off it, $m \in [1, \infty]$; see `AlphaM`."""
        check_x64("BlockMatrix.alpha_m")
        scale = checked("BlockMatrix.alpha_m", "alpha", alpha, above=0)
        m = checked("BlockMatrix.alpha_m", "m", m, at_least=1, finite=False)
        scale, m = broadcast("BlockMatrix.alpha_m", alpha=scale, m=m)
        off = scale / m
        return BlockMatrix(scale, off, off, blocks=blocks, size=size)

    @property
    def eigenvalues(self) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"], Float[Array, "*batch"]]:
        r"""$\lambda_1, \lambda_2, \lambda_3$."""
        inside = self.a + (self.size - 1) * self.b
        return inside + self.size * (self.blocks - 1) * self.c, inside - self.size * self.c, self.a - self.b

    @property
    def multiplicities(self) -> tuple[int, int, int]:
        """How often each eigenvalue occurs."""
        return 1, self.blocks - 1, self.blocks * (self.size - 1)

    def dense(self) -> Float[Array, "*batch width width"]:
        """The matrix written out."""
        return _dense(self)

    def __add__(self, other: "BlockMatrix") -> "BlockMatrix":
        self._check_like(other, "sum")
        return self._like(self.a + other.a, self.b + other.b, self.c + other.c)

    def __sub__(self, other: "BlockMatrix") -> "BlockMatrix":
        return self + (-1.0) * other

    def __mul__(self, factor: ArrayLike) -> "BlockMatrix":
        factor = checked("BlockMatrix", "factor", factor)
        return self._like(self.a * factor, self.b * factor, self.c * factor)

    def __rmul__(self, factor: ArrayLike) -> "BlockMatrix":
        return self * factor

    def __matmul__(self, other: "BlockMatrix") -> "BlockMatrix":
        self._check_like(other, "product")
        n, s = self.blocks, self.size
        a1, b1, c1, a2, b2, c2 = self.a, self.b, self.c, other.a, other.b, other.c
        between = (n - 1) * s * c1 * c2
        a = a1 * a2 + (s - 1) * b1 * b2 + between
        b = a1 * b2 + a2 * b1 + (s - 2) * b1 * b2 + between
        c = a1 * c2 + a2 * c1 + (s - 1) * (b1 * c2 + b2 * c1) + (n - 2) * s * c1 * c2
        return self._like(a, b if s > 1 else xp.zeros_like(a), c)

    def _like(self, a: Array, b: Array, c: Array) -> "BlockMatrix":
        return BlockMatrix(a, b, c, blocks=self.blocks, size=self.size)

    def _check_like(self, other: "BlockMatrix", operation: str) -> None:
        if (other.blocks, other.size) != (self.blocks, self.size):
            raise ValueError(
                f"BlockMatrix: both terms of a {operation} must have the same blocks and size, but have "
                f"{self.blocks} of size {self.size} and {other.blocks} of size {other.size}."
            )


@formula
def _dense(matrix: BlockMatrix) -> Float[Array, "*batch width width"]:
    member = np.arange(matrix.blocks * matrix.size)
    same = member[:, None] == member
    together = member[:, None] // matrix.size == member // matrix.size
    a, b, c = (entry[..., None, None] for entry in (matrix.a, matrix.b, matrix.c))
    return xp.where(same, a, xp.where(together, b, c))


@formula
def _entries(
    first: Array, second: Array, third: Array, blocks: Array | float, size: Array | float
) -> tuple[Array, Array, Array]:
    """Entries of the matrix with given eigenvalues."""
    width = blocks * size
    shared = first + (blocks - 1) * second
    # One eigenvalue in place of a difference: without the third, nothing cancels.
    a = (shared + blocks * (size - 1) * third) / width
    b = xp.where(size > 1, (shared - blocks * third) / width, 0.0)
    return a, b, (first - second) / width


@formula
def _alpha_m(scale: Array, m: Array, width: ArrayLike) -> tuple[Array, Array]:
    finite = xp.where(xp.isinf(m), 1.0, m)
    return scale * (1 + (width - 1) / m), scale * xp.where(xp.isinf(m), 1.0, (finite - 1) / finite)


@entry
def alpha_m_eigenvalues(
    alpha: ArrayLike, m: ArrayLike, *, width: int
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    r"""Eigenvalues of a layer with $\alpha$ on the diagonal and $\alpha/m$ off it.

    $\lambda_1 = \alpha(1 + (d-1)/m)$, once, and $\lambda_2 = \alpha(m-1)/m$, $d - 1$ times: $d\alpha$ and 0 for
    $m = 1$, both $\alpha$ for $m = \infty$. No digit is lost near $m = 1$.

    Args:
        alpha: $\alpha > 0$.
        m: $m \in [1, \infty]$.
        width: $d$.

    Returns:
        $\lambda_1$ and $\lambda_2$.

    Example:
        >>> [float(x) for x in alpha_m_eigenvalues(1.0, 4.0, width=5)]
        [2.0, 0.75]
    """
    check_x64("alpha_m_eigenvalues")
    check_count("alpha_m_eigenvalues", "width", width, at_least=1, at_most=WIDEST)
    scale = checked("alpha_m_eigenvalues", "alpha", alpha, above=0)
    m = checked("alpha_m_eigenvalues", "m", m, at_least=1, finite=False)
    return _alpha_m(*broadcast("alpha_m_eigenvalues", alpha=scale, m=m), float(width))
