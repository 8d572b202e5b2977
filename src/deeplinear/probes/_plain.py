"""Probes that need nothing but the network: loss, product, ranks, layers, conserved quantities, kernel."""

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from deeplinear.core import (
    Array,
    Matrix,
    Params,
    check_count,
    check_shape,
    effective_rank,
    entries,
    entry,
    flatten,
    frobenius,
    is_concrete,
    norm,
    nuclear_norm,
    numerical_rank,
    spectrum,
    stable_rank,
    svd,
    xp,
)
from deeplinear.models import Problem, balancedness, conserved, drift, lambda_estimate
from deeplinear.probes._base import AbstractProbe, Time, network_of, probe


@probe(dims=())
def loss(t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
    r"""Loss $\mathcal L(\theta)$, penalty included."""
    return problem.value(params)


@probe(dims=())
def gradient_norm(t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
    r"""Frobenius norm $\|\nabla\mathcal L(\theta)\|_F$ over all layers."""
    return norm(problem.gradient(params))


@probe(dims=("row", "column"))
def product(t: Time, params: Params, problem: Problem) -> Matrix:
    """All entries of the product."""
    return problem.product(params)


@probe(dims=("mode",))
def singular_values(t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
    """Singular values of the product, largest first."""
    return spectrum(problem.product(params))


@probe(dims=())
def product_effective_rank(t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
    """Effective rank of the product: exponential of the entropy of its normalised singular values.

    Within a run a zero product has effective rank 0; outside of one it is refused, as by `effective_rank`.
    """
    return effective_rank(problem.product(params))


@probe(dims=())
def product_stable_rank(t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
    r"""Stable rank $\sum_i (s_i/s_1)^2$ of the product.

    Within a run a zero product has stable rank 0; outside of one it is refused, as by `stable_rank`.
    """
    return stable_rank(problem.product(params))


@probe(dims=())
def product_nuclear_norm(t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
    """Sum of the singular values of the product."""
    return nuclear_norm(problem.product(params))


@probe(dims=())
def product_numerical_rank(t: Time, params: Params, problem: Problem) -> Int[Array, ""]:
    """Number of singular values of the product above rounding, relative to the largest."""
    return numerical_rank(problem.product(params))


@probe(dims=("weight",))
def weights(t: Time, params: Params, problem: Problem) -> Float[Array, " size"]:
    """All entries of all layers, as `flatten` orders them: row-major, layer 1 first."""
    return flatten(params)


@probe(dims=("layer",))
def layer_norms(t: Time, params: Params, problem: Problem) -> Float[Array, " depth"]:
    r"""Frobenius norm $\|W_l\|_F$ of every layer."""
    return xp.stack([frobenius(layer) for layer in params])


@probe(dims=("pair",))
def layer_balancedness(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Frobenius norms of the conserved quantities $C_l = W_{l+1}^\top W_{l+1} - W_l W_l^\top$."""
    network_of(problem, "layer_balancedness", entries=True)
    return balancedness(params)


@probe(dims=("pair",))
def layer_lambda(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Multiple of the identity nearest to each conserved quantity, $\hat\lambda_l = \mathrm{tr}(C_l)/d_l$."""
    network_of(problem, "layer_lambda", entries=True)
    return lambda_estimate(params).lam


@probe(dims=("pair",))
def layer_lambda_residual(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""What `layer_lambda` leaves over in Frobenius norm, $\|C_l - \hat\lambda_l I\|_F$."""
    network_of(problem, "layer_lambda_residual", entries=True)
    return lambda_estimate(params).frobenius


@probe(dims=("pair",))
def layer_lambda_operator_residual(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""What `layer_lambda` leaves over in operator norm, $\|C_l - \hat\lambda_l I\|_2$."""
    network_of(problem, "layer_lambda_operator_residual", entries=True)
    return lambda_estimate(params).operator


@probe(dims=("pair",))
def layer_alignment(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Alignment $|u_1(W_l)^\top v_1(W_{l+1})|$ of the leading singular vectors of neighbouring layers.

    One where what the lower layer writes most strongly is what the upper one reads most strongly. It says nothing
    where a leading singular value is repeated or zero, as its vector is then arbitrary.
    """
    network_of(problem, "layer_alignment", entries=True)
    factors = [svd(layer) for layer in params]
    pairs = itertools.pairwise(factors)
    return xp.array([xp.abs(xp.vdot(u[:, 0], vt[0])) for (u, _, _), (_, _, vt) in pairs], dtype=params[0].dtype)


@probe(dims=("ntk_row", "ntk_column"))
def ntk(t: Time, params: Params, problem: Problem) -> Float[Array, "entries entries"]:
    """Dense tangent kernel of all entries of the product, row-major; meant for small networks."""
    return network_of(problem, "ntk").ntk(params)


# ---- with parameters


class LayerSingularValues(AbstractProbe):
    """Singular values of one layer, largest first.

    One probe per layer, as layers of different widths have different numbers of singular values.

    Args:
        layer: Number of the layer from 1, which acts first.
        name: Name of the probe; `layer_<number>_singular_values` by default.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> LayerSingularValues(1)(0.0, (jnp.diag(jnp.array([3.0, 4.0])),), problem).tolist()
        [4.0, 3.0]
    """

    layer: int = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(self, layer: int, *, name: str | None = None) -> None:
        check_count("LayerSingularValues", "layer", layer, at_least=1)
        self.layer = int(layer)
        self.name = f"layer_{layer}_singular_values" if name is None else name

    @property
    def dims(self) -> tuple[str, ...]:
        return (f"layer_{self.layer}_mode",)

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
        if self.layer > len(params):
            raise ValueError(f"LayerSingularValues: layer must be at most {len(params)}, but is {self.layer}.")
        return spectrum(params[self.layer - 1])


class Conserved(AbstractProbe):
    r"""One conserved quantity $C_l = W_{l+1}^\top W_{l+1} - W_l W_l^\top$, all entries.

    Args:
        pair: $l$, from 1 to the depth - 1.
        name: Name of the probe; `conserved_<pair>` by default.

    Example:
        >>> problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.eye(1)))
        >>> float(Conserved(1)(0.0, (jnp.eye(1), 2 * jnp.eye(1)), problem)[0, 0])
        3.0
    """

    pair: int = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(self, pair: int, *, name: str | None = None) -> None:
        check_count("Conserved", "pair", pair, at_least=1)
        self.pair = int(pair)
        self.name = f"conserved_{pair}" if name is None else name

    @property
    def dims(self) -> tuple[str, ...]:
        return (f"hidden_{self.pair}_row", f"hidden_{self.pair}_column")

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Matrix:
        network_of(problem, "Conserved", entries=True)
        if self.pair > len(params) - 1:
            raise ValueError(f"Conserved: pair must be at most the depth - 1, {len(params) - 1}, but is {self.pair}.")
        return conserved(params[self.pair - 1 : self.pair + 1])[0]


class Drift(AbstractProbe):
    r"""Change $\|C_l - C_l^{\mathrm{ref}}\|_F$ of the conserved quantities since a reference state.

    Args:
        reference: Layers to compare with, usually those at the start.
        name: Name of the probe.
    """

    reference: Params
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, reference: Sequence[Any], *, name: str = "drift") -> None:
        self.reference = tuple(xp.asarray(layer, dtype=float) for layer in reference)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("pair",)

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
        network_of(problem, "Drift", entries=True)
        return drift(params, self.reference)


class Entries(AbstractProbe):
    """Chosen entries of the product.

    Args:
        rows: Row indices.
        columns: Column indices, as many.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> Entries([0, 1], [1, 1])(0.0, (jnp.array([[1.0, 2.0], [3.0, 4.0]]),), problem).tolist()
        [2.0, 4.0]
    """

    rows: Int[Array, " entries"]
    columns: Int[Array, " entries"]
    name: str = eqx.field(static=True)

    @entry
    def __init__(self, rows: object, columns: object, *, name: str = "entries") -> None:
        self.rows = xp.asarray(rows)
        self.columns = xp.asarray(columns)
        self.name = name
        check_shape("Entries", "rows", self.rows, (None,))
        check_shape("Entries", "columns", self.columns, self.rows.shape)
        for label, index in (("rows", self.rows), ("columns", self.columns)):
            if not xp.issubdtype(index.dtype, xp.integer):
                raise TypeError(f"Entries: {label} must hold integers, but holds {index.dtype}.")
            if is_concrete(index) and np.any(np.asarray(index) < 0):
                raise ValueError(f"Entries: {label} must be non-negative, but reaches {np.asarray(index).min()}.")

    @property
    def dims(self) -> tuple[str, ...]:
        return (f"{self.name}_entry",)

    @entry
    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " entries"]:
        matrix = problem.product(params)
        for label, index, bound in (("rows", self.rows, matrix.shape[0]), ("columns", self.columns, matrix.shape[1])):
            if is_concrete(index) and index.size and np.asarray(index).max() >= bound:
                raise ValueError(f"Entries: {label} must lie in 0..{bound - 1}, but reaches {np.asarray(index).max()}.")
        # An index that cannot be seen and lies outside gives NaN, which cannot be taken for an entry.
        return entries(matrix, (self.rows, self.columns))
