r"""Structured networks: aligned, decoupled, diagonal, balanced. Each is told by a defect that vanishes exactly there.

Defects are relative: a layer counts with its size divided out, so that a network and a multiple of it have the same
ones, and what rounding leaves of a product that vanishes does not count.
"""

import dataclasses
import itertools

from jaxtyping import Float

from deeplinear.core import Array, Matrix, Params, as_array, check_number, entry, formula, xp
from deeplinear.landscape._arguments import check_range, network_of
from deeplinear.models import DeepLinear, balancedness, lambda_estimate

TOLERANCE = 1e-8
"""Largest defect that counts as none: far above rounding, far below what one sees in a picture."""


@entry
def alignment_defect(params: Params) -> Float[Array, ""]:
    r"""How far layers are from $W_l = U_l \Lambda_l U_{l-1}^\top$ with orthogonal $U_l$ and diagonal $\Lambda_l$.

    At every hidden layer $l$ the matrices $W_{l:a} W_{l:a}^\top$, $a \le l$, and $W_{b:l+1}^\top W_{b:l+1}$, $b > l$,
    must commute with each other; this is necessary and sufficient. The defect is the largest
    $\|[X, Y]\|_F$ among them, each matrix divided by the squared spectral norms of its layers. Neighbouring layers
    alone do not tell: a multiple of a rotation between two layers that do not fit hides it.

    Args:
        params: Layers, first-acting first.

    Returns:
        A number, 0 for aligned layers and for fewer than two.

    Example:
        >>> turn = jnp.array([[0.6, -0.8], [0.8, 0.6]])
        >>> first, last = jnp.diag(jnp.array([2.0, 1.0])), jnp.diag(jnp.array([1.5, 0.5])) @ turn
        >>> round(float(alignment_defect((first, jnp.eye(2), last))), 3)
        0.453
    """
    network_of("structure", params)
    return _alignment(params)


@formula
def _alignment(params: Params) -> Float[Array, ""]:
    network, unit = _unit(params)
    largest = xp.zeros((), unit[0].dtype)
    for i in range(1, network.depth):
        below = [network.partial_product(unit, i, a) for a in range(1, i + 1)]
        above = [network.partial_product(unit, b, i + 1) for b in range(i + 1, network.depth + 1)]
        family = [w @ w.T for w in below] + [w.T @ w for w in above]
        for x, y in itertools.combinations(family, 2):
            largest = xp.maximum(largest, _length(x @ y - y @ x))
    return largest


@entry
def decoupling_defect(params: Params) -> Float[Array, ""]:
    r"""How far layers are from aligned ones whose outer bases are the coordinates, $U_0 = I$ and $U_L = I$.

    Then input $k$ and output $k$ meet in one direction of every hidden layer and no two of them in the same: with
    $R = W_{l:1}$ and $B = W_{L:l+1}^\top$ the columns $r_k$ and $b_k$ are parallel, and all others orthogonal. The
    defect is the largest of that of `alignment_defect`, of the off-diagonal parts of $R^\top R$, $B^\top B$ and
    $R^\top B$, of $\|r_k b_k^\top - b_k r_k^\top\|_F$, and of the off-diagonal part of the product; layers are divided
    by their spectral norms.

    Args:
        params: Layers, first-acting first.

    Returns:
        A number, 0 for decoupled layers.

    Example:
        >>> swap = jnp.array([[0.0, 1.0], [1.0, 0.0]])
        >>> float(decoupling_defect((swap, swap))), float(decoupling_defect((jnp.eye(2), swap))) > 1
        (0.0, True)
    """
    network_of("structure", params)
    return _decoupling(params)


@formula
def _decoupling(params: Params) -> Float[Array, ""]:
    network, unit = _unit(params)
    parts = [_alignment(unit), _off_diagonal(network.partial_product(unit, network.depth, 1))]
    modes = min(network.widths[0], network.widths[-1])
    for i in range(1, network.depth):
        r = network.partial_product(unit, i, 1)
        b = network.partial_product(unit, network.depth, i + 1).T
        crossed = xp.einsum("ik,jk->kij", r[:, :modes], b[:, :modes])
        turned = _length(crossed - xp.swapaxes(crossed, 1, 2))
        parts += [_off_diagonal(r.T @ r), _off_diagonal(b.T @ b), _off_diagonal(b.T @ r), xp.max(turned)]
    return xp.max(xp.stack(parts))


@entry
def diagonal_defect(params: Params) -> Float[Array, ""]:
    r"""Largest Frobenius norm of the off-diagonal part of a layer, relative to its spectral norm.

    Args:
        params: Layers, first-acting first.

    Returns:
        A number, 0 if every layer is rectangular diagonal.

    Example:
        >>> round(float(diagonal_defect((jnp.eye(2), jnp.array([[2.0, 1.0], [0.0, 0.0]])))), 4)
        0.4472
    """
    network_of("structure", params)
    return _diagonal(params)


@formula
def _diagonal(params: Params) -> Float[Array, ""]:
    return xp.max(xp.stack([_off_diagonal(layer) for layer in _unit(params)[1]]))


@dataclasses.dataclass(frozen=True)
class Structure:
    r"""Which structures the layers of a network have.

    Attributes:
        alignment: `alignment_defect`.
        decoupling: `decoupling_defect`.
        diagonality: `diagonal_defect`.
        balance: Largest $\|C_l\|_F$, relative to the squared norms of its two layers.
        lambda_balance: Largest distance of a $C_l$ from a multiple of the identity, relative to the same.
        tolerance: Largest defect that counts as none.
    """

    alignment: float
    decoupling: float
    diagonality: float
    balance: float
    lambda_balance: float
    tolerance: float = TOLERANCE

    @property
    def aligned(self) -> bool:
        """Whether every layer reads the directions that the one before wrote."""
        return self.alignment <= self.tolerance

    @property
    def decoupled(self) -> bool:
        """Whether inputs and outputs of equal number meet one by one."""
        return self.decoupling <= self.tolerance

    @property
    def diagonal(self) -> bool:
        """Whether every layer is rectangular diagonal."""
        return self.diagonality <= self.tolerance

    @property
    def balanced(self) -> bool:
        """Whether all conserved quantities vanish."""
        return self.balance <= self.tolerance

    @property
    def lambda_balanced(self) -> bool:
        """Whether all conserved quantities are multiples of the identity."""
        return self.lambda_balance <= self.tolerance

    @property
    def names(self) -> tuple[str, ...]:
        """The structures that are there."""
        known = ("aligned", "decoupled", "diagonal", "balanced", "lambda_balanced")
        return tuple(name for name in known if getattr(self, name))

    def __str__(self) -> str:
        return ", ".join(self.names).replace("_", "-") or "no structure"


@entry(instead="use alignment_defect, decoupling_defect and diagonal_defect", bounded=("params",))
def structure(params: Params, *, tolerance: float = TOLERANCE) -> Structure:
    """Which structures the layers of a network have, with the defects they are told by. Host-side.

    Args:
        params: Layers, first-acting first.
        tolerance: Largest defect that counts as none.

    Returns:
        The defects and what they say.

    Example:
        >>> str(structure((jnp.diag(jnp.array([2.0, 1.0])), jnp.eye(2))))
        'aligned, decoupled, diagonal'
    """
    check_number("structure", "tolerance", tolerance, above=0)
    network_of("structure", params)
    defects = _defects(tuple(as_array(layer, float) for layer in params))
    check_range("structure", *defects)
    return Structure(*(float(defect) for defect in defects), tolerance=float(tolerance))


@formula
def _defects(params: Params) -> tuple[Float[Array, ""], ...]:
    """All five, in the order of `Structure`."""
    squares = xp.stack([xp.sum(layer**2) for layer in params])
    sizes = squares[:-1] + squares[1:]
    sizes = xp.where(sizes > 0, sizes, 1.0)
    balances = (balancedness(params), lambda_estimate(params).frobenius)
    return (
        _alignment(params),
        _decoupling(params),
        _diagonal(params),
        *(xp.max(balance / sizes, initial=0.0) for balance in balances),
    )


def _unit(params: Params) -> tuple[DeepLinear, Params]:
    """The network of the layers, and the layers divided by their spectral norms."""
    network = network_of("structure", params)
    norms = [xp.linalg.norm(layer, 2) for layer in params]
    return network, tuple(w / xp.where(size > 0, size, 1.0) for w, size in zip(params, norms, strict=True))


def _off_diagonal(matrix: Matrix) -> Float[Array, ""]:
    """Frobenius norm of the part off the main diagonal of a rectangular matrix."""
    return _length(xp.where(xp.eye(*matrix.shape, dtype=bool), 0.0, matrix))


def _length(matrices: Float[Array, "*batch rows columns"]) -> Float[Array, "*batch"]:
    """Frobenius norms, with derivative 0 where a matrix vanishes: there a defect is smallest."""
    squares = xp.sum(matrices**2, axis=(-2, -1))
    return xp.where(squares > 0, xp.sqrt(xp.where(squares > 0, squares, 1.0)), 0.0)
