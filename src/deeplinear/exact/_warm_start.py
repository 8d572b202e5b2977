r"""The two-by-two warm start: a diagonal that has been fitted, then one more entry.

Two layers $A = W_2$, $B = W_1$, trained from $\alpha I$ until the diagonal of $W = AB$ is $w^\star$, stand at
$\sqrt{w^\star} I$. Then the entry $(1, 2)$ is revealed with value $w_{12}^\star > 0$ and training goes on, for a time
$\tau$. The product of rank one would have $w_{21} = {w^\star}^2 / w_{12}^\star$; gradient flow does not find it.
"""

import equinox as eqx
from jax.typing import ArrayLike
from jaxtyping import Float

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    check_number,
    check_result,
    check_shape,
    check_x64,
    entry,
    formula,
    xp,
)
from deeplinear.exact._block_algebra import checked
from deeplinear.exact._disconnected import real_array


class WarmStartBounds(eqx.Module):
    r"""What is proved of the second phase, from the diagonal value $w^\star$ and the revealed $w_{12}^\star$.

    Attributes:
        value: $w^\star$.
        revealed: $w_{12}^\star$.
    """

    value: Float[Array, ""]
    revealed: Float[Array, ""]

    def loss_envelope(self, times: ArrayLike) -> Float[Array, "*times"]:
        r"""Upper bound $\tfrac12 {w_{12}^\star}^2 e^{-2 w^\star \tau}$ of the loss at times $\tau$ after the reveal."""
        times = checked("WarmStartBounds.loss_envelope", "times", times, at_least=0, finite=False)
        return _envelope(self.revealed, self.value, times)

    @property
    def stable_rank_excess(self) -> Float[Array, ""]:
        r"""$e^{-8 w_{12}^\star/w^\star}$, by which the published bound of the stable rank exceeds 1."""
        return xp.exp(-8 * self.revealed / self.value)

    @property
    def stable_rank(self) -> Float[Array, ""]:
        r"""Published lower bound $1 + e^{-8 w_{12}^\star/w^\star}$ of the stable rank of the limit."""
        return 1 + self.stable_rank_excess

    @property
    def sharper_stable_rank_excess(self) -> Float[Array, ""]:
        r"""$e^{-4\,\mathrm{asinh}(w_{12}^\star/(2w^\star))}$, by which the sharper bound exceeds 1."""
        return xp.exp(-4 * xp.arcsinh(self.revealed / (2 * self.value)))

    @property
    def sharper_stable_rank(self) -> Float[Array, ""]:
        r"""Sharper lower bound $1 + e^{-4\,\mathrm{asinh}(w_{12}^\star/(2w^\star))}$ of the stable rank of the limit.

        For $W = \begin{pmatrix} x & y \\ z & x \end{pmatrix}$ with $x^2 \ge yz$ the singular values have the sum
        $\sqrt{4x^2 + (y-z)^2}$ and the difference $|y+z|$; here $x \ge w^\star$, $y = w_{12}^\star$, $-y \le z \le 0$.
        """
        return 1 + self.sharper_stable_rank_excess

    @property
    def largest_singular_value(self) -> Float[Array, ""]:
        r"""Upper bound $w^\star e^{2 w_{12}^\star/w^\star}$ of $\sigma_1$ of the limit."""
        return self.value * xp.exp(2 * self.revealed / self.value)

    @property
    def smallest_singular_value(self) -> Float[Array, ""]:
        r"""Lower bound $w^\star e^{-2 w_{12}^\star/w^\star}$ of $\sigma_2$ of the limit."""
        return self.value * xp.exp(-2 * self.revealed / self.value)

    @property
    def rank_one_value(self) -> Float[Array, ""]:
        r"""The missing entry ${w^\star}^2/w_{12}^\star$ of the completion of rank one."""
        return self.value**2 / self.revealed

    @property
    def small_revealed_entry(self) -> Float[Array, ""]:
        r"""Leading term $-\tfrac{5}{96} {w_{12}^\star}^3/{w^\star}^2$ of the limit of $w_{21}$, $w_{12}^\star \to 0$.

        A law found by measurement, not a bound.
        """
        return -5 / 96 * self.revealed * (self.revealed / self.value) ** 2


def _numbers(where: str, value: ArrayLike, revealed: ArrayLike) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """$w^\\star$ and $w_{12}^\\star$ as arrays; both must be positive."""
    check_x64(where)
    check_number(where, "value", value, above=0)
    check_number(where, "revealed", revealed, above=0)
    return xp.asarray(value, dtype=float), xp.asarray(revealed, dtype=float)


@entry
def warm_start_bounds(value: ArrayLike, revealed: ArrayLike) -> WarmStartBounds:
    r"""Bounds of the second phase of the two-by-two warm start.

    The start is $A = B = \sqrt{w^\star} I$, the entries (1, 1), (2, 2) with target $w^\star$ and (1, 2) with target
    $w_{12}^\star$ are observed. The loss goes to zero and the product stays of full rank.

    Args:
        value: $w^\star > 0$.
        revealed: $w_{12}^\star > 0$.

    Returns:
        The envelope of the loss and bounds of the limit.

    Example:
        >>> bounds = warm_start_bounds(1.0, 0.1)
        >>> round(float(bounds.stable_rank), 4), round(float(bounds.sharper_stable_rank), 4)
        (1.4493, 1.8188)
    """
    return WarmStartBounds(*_numbers("warm_start_bounds", value, revealed))


@entry
def warm_start_field(entries: Float[Array, "4"], value: ArrayLike, revealed: ArrayLike) -> Float[Array, "4"]:
    r"""Gradient flow of the warm start in its four free numbers $(a_{11}, a_{12}, a_{21}, a_{22})$.

    The flow keeps $B = E A^\top E$, $E$ the exchange of the two units, so $A$ alone tells all. With
    $x = a_{11}a_{22} + a_{12}a_{21}$ and $y = 2a_{11}a_{12}$ the product is
    $\begin{pmatrix} x & y \\ 2a_{21}a_{22} & x \end{pmatrix}$ and

    $$\dot a_{11} = a_{22}(w^\star - x) + a_{12}(w_{12}^\star - y),\quad \dot a_{21} = a_{12}(w^\star - x),$$

    $$\dot a_{12} = a_{21}(w^\star - x) + a_{11}(w_{12}^\star - y),\quad \dot a_{22} = a_{11}(w^\star - x).$$

    Args:
        entries: Entries of $A$, row by row.
        value: $w^\star > 0$.
        revealed: $w_{12}^\star > 0$.

    Returns:
        Their time derivatives, in the same order.

    Example:
        >>> warm_start_field(jnp.array([1.0, 0.0, 0.0, 1.0]), 1.0, 0.5)
        array([0. , 0.5, 0. , 0. ])
    """
    target, new = _numbers("warm_start_field", value, revealed)
    check_shape("warm_start_field", "entries", entries, (4,))
    a11, a12, a21, a22 = real_array("warm_start_field", "entries", entries)
    diagonal = target - (a11 * a22 + a12 * a21)
    corner = new - 2 * a11 * a12
    return check_result(
        "warm_start_field",
        xp.stack([a22 * diagonal + a12 * corner, a21 * diagonal + a11 * corner, a12 * diagonal, a11 * diagonal]),
    )


@entry
def warm_start_layers(entries: Float[Array, "4"]) -> Params:
    r"""Layers $(B, A)$ of the warm start with $B = E A^\top E$, from the entries of $A$ row by row.

    Example:
        >>> warm_start_layers(jnp.array([1.0, 2.0, 3.0, 4.0]))[0]
        array([[4., 2.],
               [3., 1.]])
    """
    check_shape("warm_start_layers", "entries", entries, (4,))
    a = real_array("warm_start_layers", "entries", entries).reshape(2, 2)
    return a.T[::-1, ::-1], a


@entry
def warm_start_violations(params: Params, value: ArrayLike, revealed: ArrayLike) -> dict[str, Float[Array, ""]]:
    r"""By how much layers break each relation that holds along the whole second phase of the warm start.

    Each number is zero where its relation holds and otherwise the amount by which it fails; along the exact flow all
    are zero. Of the relations, with $a_1$, $a_2$ the rows of $A$: $B = EA^\top E$; $w_{11} = w_{22} \ge w^\star$;
    $0 \le w_{12} \le w_{12}^\star$; $-w_{12} \le w_{21} \le 0$; $a_{11}, a_{22}, a_{12}, a_1\cdot a_2 \ge 0$;
    $|a_1|^2 \ge w^\star \ge |a_2|^2$; $\det W \ge {w^\star}^2$; $\det(B)^2 \ge w^\star |a_2|^2$;
    $\|W\|_F \ge \sqrt2\,w^\star$.

    Args:
        params: Layers $(B, A)$, two by two, at some time after the reveal.
        value: $w^\star > 0$.
        revealed: $w_{12}^\star > 0$.

    Returns:
        Violations by the name of the relation; their maximum is the worst.

    Example:
        >>> max(float(v) for v in warm_start_violations((jnp.eye(2), jnp.eye(2)), 1.0, 0.5).values())
        0.0
    """
    where = "warm_start_violations"
    target, new = _numbers(where, value, revealed)
    if len(params) != 2:
        raise ValueError(f"{where}: params must hold two layers, but holds {len(params)}.")
    for position, layer in enumerate(params):
        check_shape(where, f"params[{position}]", layer, (2, 2))
    b, a = (real_array(where, f"params[{position}]", layer) for position, layer in enumerate(params))
    return check_result("warm_start_violations", _violations(a, b, target, new))


@formula
def _envelope(revealed: Float[Array, ""], value: Float[Array, ""], times: Float[Array, "*times"]) -> Array:
    return 0.5 * (revealed * xp.exp(-value * times)) ** 2


@formula
def _violations(a: Matrix, b: Matrix, target: Float[Array, ""], new: Float[Array, ""]) -> dict[str, Float[Array, ""]]:
    w = a @ b
    top, bottom = xp.sum(a**2, axis=1)
    determinant = xp.linalg.det(b)

    def below(small: Float[Array, ""] | float, large: Float[Array, ""] | float) -> Float[Array, ""]:
        return xp.maximum(small - large, 0.0)

    return {
        "reflection": xp.max(xp.abs(b - a.T[::-1, ::-1])),
        "equal diagonal": xp.abs(w[0, 0] - w[1, 1]),
        "diagonal at least its target": below(target, w[0, 0]),
        "revealed entry not negative": below(0.0, w[0, 1]),
        "revealed entry at most its target": below(w[0, 1], new),
        "missing entry not positive": below(w[1, 0], 0.0),
        "missing entry smaller than the revealed one": below(xp.abs(w[1, 0]), w[0, 1]),
        "positive diagonal of A": below(0.0, xp.min(xp.diag(a))),
        "corner of A not negative": below(0.0, a[0, 1]),
        "rows of A at an acute angle": below(0.0, a[0] @ a[1]),
        "first row of A long": below(target, top),
        "second row of A short": below(bottom, target),
        "determinant of the product": below(target**2, xp.linalg.det(w)),
        "determinant of B": below(target * bottom, determinant**2),
        "norm of the product": below(xp.sqrt(2.0) * target, xp.linalg.norm(w)),
    }
