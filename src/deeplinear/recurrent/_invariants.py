r"""Balance of input and output maps, and what gradient flow of a recurrent network conserves.

A system is balanced if $B = C^\top$. A change of state coordinates $(GAG^{-1}, GB, CG^{-1})$ leaves the response as it
is, so along gradient flow of any loss of the response the matrix $AA^\top - A^\top A + BB^\top - C^\top C$ is constant
when $A$ is free. If $A$ is kept symmetric or diagonal, what is left of it is its trace, $\|B\|_F^2 - \|C\|_F^2$; if $A$
is diagonal, also its diagonal, one number for each state.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from deeplinear.core import Array, HypothesisError, Matrix, entry, formula, frobenius, is_concrete, xp
from deeplinear.models import System, checked_system

DIAGONAL = 1e-12
"""Largest entry beside the diagonal that counts as none, relative to the largest entry (at least 1)."""


@entry
def balance_gap(system: Any) -> Float[Array, ""]:
    r"""$\max_{ij}|B - C^\top|_{ij}$: zero if and only if the system is balanced.

    Args:
        system: $A$, $B$, $C$ with as many inputs as outputs.

    Example:
        >>> float(balance_gap((jnp.eye(1), jnp.array([[1.0]]), jnp.array([[0.75]]))))
        0.25
    """
    _, first, output = _square("balance_gap", system)
    return _gap(first, output)


@formula
def _gap(first: Matrix, output: Matrix) -> Float[Array, ""]:
    return xp.max(xp.abs(first - output.T))


@entry(sized=("system",))
def balance_ratio(system: Any) -> Float[Array, ""]:
    r"""$\|B - C^\top\|_F / \|B + C^\top\|_F$, the distance from balance in proportion.

    Args:
        system: $A$, $B$, $C$ with as many inputs as outputs.

    Returns:
        0 for a balanced system, infinity for $B = -C^\top$, and NaN where both maps vanish, for there is no proportion.

    Example:
        >>> float(balance_ratio((jnp.eye(1), jnp.array([[3.0]]), jnp.array([[1.0]]))))
        0.5
    """
    _, first, output = _square("balance_ratio", system)
    return _ratio(first, output)


@formula
def _ratio(first: Matrix, output: Matrix) -> Float[Array, ""]:
    return frobenius(first - output.T) / xp.linalg.norm(first + output.T)


@entry(sized=("system",))
def norm_difference(system: Any) -> Float[Array, ""]:
    r"""$\nu = \|B\|_F^2 - \|C\|_F^2$, constant along gradient flow in every form of the transition matrix.

    Only the difference of the squares is constant, not that of the norms. One step of gradient descent of length
    $\eta$ changes it by $\eta^2(\|\partial_B\|_F^2 - \|\partial_C\|_F^2)$.

    Args:
        system: $A$, $B$, $C$.

    Example:
        >>> float(norm_difference((jnp.eye(2), jnp.array([[1.0], [2.0]]), jnp.array([[1.0, 1.0]]))))
        3.0
    """
    _, first, output = checked_system("norm_difference", system)
    return _difference(first, output)


@formula
def _difference(first: Matrix, output: Matrix) -> Float[Array, ""]:
    return xp.sum(first**2) - xp.sum(output**2)


@entry(sized=("system",))
def conserved_matrix(system: Any) -> Float[Array, "states states"]:
    r"""$AA^\top - A^\top A + BB^\top - C^\top C$, constant along gradient flow when $A$ is a free matrix.

    Its trace is `norm_difference`. It vanishes for symmetric balanced systems, and stays as small as the start was: of
    the order $\varepsilon^2$ for parameters of size $\varepsilon$. Not constant if $A$ is kept symmetric or diagonal.

    Args:
        system: $A$, $B$, $C$.

    Returns:
        A symmetric matrix.

    Example:
        >>> conserved_matrix((jnp.array([[0.0, 1.0], [0.0, 0.0]]), jnp.array([[1.0], [0.0]]), jnp.array([[1.0, 0.0]])))
        array([[ 1.,  0.],
               [ 0., -1.]])
    """
    return _conserved(*checked_system("conserved_matrix", system))


@formula
def _conserved(transition: Matrix, first: Matrix, output: Matrix) -> Float[Array, "states states"]:
    return transition @ transition.T - transition.T @ transition + first @ first.T - output.T @ output


@entry(sized=("system",))
def mode_invariants(system: Any) -> Float[Array, " states"]:
    r"""$b_i^2 - c_i^2$ for each state of a diagonal system, constant along gradient flow of the form `"diagonal"`.

    With several inputs or outputs, the squared lengths of the row of $B$ and of the column of $C$.

    Args:
        system: $A$, $B$, $C$ with diagonal $A$.

    Returns:
        One number for each state.

    Raises:
        HypothesisError: $A$ is not diagonal.

    Example:
        >>> mode_invariants((jnp.diag(jnp.array([0.5, 0.9])), jnp.array([[1.0], [2.0]]), jnp.array([[1.0, 1.0]])))
        array([0., 3.])
    """
    transition, first, output = checked_system("mode_invariants", system)
    if is_concrete(transition):
        matrix = np.asarray(transition)
        beside = float(np.abs(matrix - np.diag(np.diag(matrix))).max())
        tolerance = DIAGONAL * max(1.0, float(np.abs(matrix).max()))
        if not beside <= tolerance:
            advice = "Other systems conserve norm_difference, and conserved_matrix if A is free."
            raise HypothesisError("a diagonal transition matrix", beside, tolerance, advice)
    return _differences(first, output)


@formula
def _differences(first: Matrix, output: Matrix) -> Float[Array, " states"]:
    return xp.sum(first**2, axis=1) - xp.sum(output**2, axis=0)


def _square(where: str, system: Any) -> System:
    checked = checked_system(where, system)
    inputs, outputs = checked.input.shape[1], checked.output.shape[0]
    if inputs != outputs:
        raise ValueError(
            f"{where}: system must have as many inputs as outputs, but has {inputs} and {outputs}; balance compares B "
            "with the transpose of C."
        )
    return checked
