r"""Probes: named observables $(t, \text{params}, \text{problem}) \mapsto$ array, computed while a run goes on.

A probe knows its `name` and the names `dims` of the dimensions of its output. Those without parameters are functions
under `@probe(...)`; those with parameters are classes whose numbers are arrays. Either way the same probe used again
never compiles anew. Equal dimension names mean equal lengths within one run: `row`, `column` and `mode` belong to the
product, `layer` runs over layers, `pair` over neighbouring layers; everything else carries the name of its probe.

Probes that compare with a target are in `_target_probes.py`, those of the tangent kernel in `_kernel_probes.py`.
"""

import abc
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, Shaped

from deeplinear.core import (
    Matrix,
    Params,
    check_count,
    check_shape,
    effective_rank,
    is_concrete,
    norm,
    nuclear_norm,
    numerical_rank,
    spectrum,
    stable_rank,
    svd,
)
from deeplinear.models import DeepLinear, Problem, balancedness, conserved, drift, lambda_estimate

Time = Num[Array, ""] | float | int


class AbstractProbe(eqx.Module):
    """Named observable of a run; one array per probe."""

    name: eqx.AbstractVar[str]

    @property
    @abc.abstractmethod
    def dims(self) -> tuple[str, ...] | None:
        """Names of the dimensions of the output; `None` if they are to be made from the name of the probe."""

    @abc.abstractmethod
    def __call__(self, t: Time, params: Params, problem: Problem) -> Shaped[Array, "..."]:
        """Value at time `t`."""


class FunctionProbe(AbstractProbe):
    """A plain function as a probe. Made by `probe` or `as_probe`.

    Two of them with the same function, name and dimensions are equal and share compiled code.
    """

    function: Callable[..., Any] = eqx.field(static=True)
    name: str = eqx.field(static=True)
    labels: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, function: Callable[..., Any], name: str, labels: tuple[str, ...] | None) -> None:
        self.function = function
        self.name = name
        self.labels = labels

    @property
    def dims(self) -> tuple[str, ...] | None:
        return self.labels

    def __call__(self, t: Time, params: Params, problem: Problem) -> Shaped[Array, "..."]:
        value = self.function(t, params, problem)
        if not isinstance(value, jax.Array | np.ndarray | np.generic | int | float | complex):
            raise TypeError(
                f"probe '{self.name}' must give one array, but gives {type(value).__name__}; record the parts of a "
                "result by probes of their own."
            )
        return jnp.asarray(value)


def probe(
    *, dims: tuple[str, ...] | None = None, name: str | None = None
) -> Callable[[Callable[..., Any]], FunctionProbe]:
    """Decorator that makes a function `(t, params, problem) -> array` a probe.

    Args:
        dims: Names of the dimensions of the output; by default made from the name of the probe.
        name: Name of the probe; by default that of the function.

    Example:
        >>> @probe(dims=("column",))
        ... def first_row(t, params, problem):
        ...     return problem.product(params)[0]
        >>> first_row.name, first_row.dims
        ('first_row', ('column',))
    """

    def wrap(function: Callable[..., Any]) -> FunctionProbe:
        label = name if name is not None else getattr(function, "__name__", "")
        if not callable(function):
            raise TypeError(f"probe: a probe must be a function (t, params, problem) -> array, but is {function!r}.")
        if not label.isidentifier():
            raise ValueError(
                f"probe: a probe must have a name, but {function!r} has none. Use a named function, or "
                "probe(name=...)(function); keep the function, as a fresh one compiles anew."
            )
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):  # Some compiled functions do not tell.
            return FunctionProbe(function, label, dims)
        try:
            signature.bind(None, None, None)
        except TypeError:
            raise TypeError(
                f"probe: '{label}' must take three arguments (t, params, problem), but takes {signature}."
            ) from None
        return FunctionProbe(function, label, dims)

    return wrap


def as_probe(function: Callable[..., Any]) -> AbstractProbe:
    """A probe as it is, or a named function `(t, params, problem) -> array` as a probe.

    Example:
        >>> def trace(t, params, problem):
        ...     return jnp.trace(problem.product(params))
        >>> as_probe(trace).name
        'trace'
    """
    return function if isinstance(function, AbstractProbe) else probe()(function)


def as_probes(functions: Callable[..., Any] | Iterable[Any]) -> tuple[AbstractProbe, ...]:
    """Probes and named functions, or a single one, as probes; refused if two share a name.

    Names of probes and of their dimensions are identifiers; the dimensions `time` and `member` belong to the run.

    Example:
        >>> [item.name for item in as_probes([loss, product])]
        ['loss', 'product']
    """
    if callable(functions):
        functions = (functions,)
    if isinstance(functions, str) or not isinstance(functions, Iterable):
        raise TypeError(f"as_probes: probes must be a list of probes such as [loss], but is {functions!r}.")
    found = tuple(as_probe(item) for item in functions)
    for item in found:
        if not item.name.isidentifier():
            raise ValueError(f"as_probes: the name of a probe must be an identifier, but is {item.name!r}.")
        own = item.dims or ()
        good = len(set(own)) == len(own) and all(label.isidentifier() for label in own)
        if not good or {"time", "member"} & set(own):
            raise ValueError(
                f"as_probes: dims of probe '{item.name}' must be different identifiers other than time and member, but "
                f"are {own}."
            )
    names = [item.name for item in found]
    for label in names:
        if names.count(label) > 1:
            raise ValueError(
                f"as_probes: probes must have different names, but {names.count(label)} are called '{label}'. Drop "
                "one, or name it with its argument name=..."
            )
    return found


def dimension_names(item: AbstractProbe, ndim: int) -> tuple[str, ...]:
    """Names of the dimensions of a probe's output of `ndim` dimensions: its `dims`, or its name with a number.

    Example:
        >>> dimension_names(product, 2)
        ('row', 'column')
    """
    if item.dims is None:
        return tuple(f"{item.name}_{position}" for position in range(ndim))
    if len(item.dims) != ndim:
        raise ValueError(
            f"dimension_names: probe '{item.name}' must give {len(item.dims)} dimensions {item.dims}, but gives {ndim}."
        )
    return item.dims


def network_of(problem: Problem, where: str) -> DeepLinear:
    """The model as a feed-forward network, or a refusal that names it."""
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(
            f"{where}: problem.model must be a DeepLinear network, but is {type(problem.model).__name__}; this "
            "probe has no meaning there."
        )
    return problem.model


def check_nonzero(where: str, name: str, value: Array) -> None:
    """Refuse a reference of zero where it can be seen."""
    if is_concrete(value) and not np.any(np.asarray(value)):
        raise ValueError(f"{where}: {name} must not be zero, as the result is relative to it.")


# ---- without parameters


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


@probe(dims=("layer",))
def layer_norms(t: Time, params: Params, problem: Problem) -> Float[Array, " depth"]:
    r"""Frobenius norm $\|W_l\|_F$ of every layer."""
    return jnp.stack([jnp.linalg.norm(layer) for layer in params])


@probe(dims=("pair",))
def layer_balancedness(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Frobenius norms of the conserved quantities $C_l = W_{l+1}^\top W_{l+1} - W_l W_l^\top$."""
    network_of(problem, "layer_balancedness")
    return balancedness(params)


@probe(dims=("pair",))
def layer_lambda(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Multiple of the identity nearest to each conserved quantity, $\hat\lambda_l = \mathrm{tr}(C_l)/d_l$."""
    network_of(problem, "layer_lambda")
    return lambda_estimate(params).lam


@probe(dims=("pair",))
def layer_lambda_residual(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""What `layer_lambda` leaves over in Frobenius norm, $\|C_l - \hat\lambda_l I\|_F$."""
    network_of(problem, "layer_lambda_residual")
    return lambda_estimate(params).frobenius


@probe(dims=("pair",))
def layer_lambda_operator_residual(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""What `layer_lambda` leaves over in operator norm, $\|C_l - \hat\lambda_l I\|_2$."""
    network_of(problem, "layer_lambda_operator_residual")
    return lambda_estimate(params).operator


@probe(dims=("pair",))
def layer_alignment(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Alignment $|u_1(W_l)^\top v_1(W_{l+1})|$ of the leading singular vectors of neighbouring layers.

    One where what the lower layer writes most strongly is what the upper one reads most strongly. It says nothing
    where a leading singular value is repeated or zero, as its vector is then arbitrary.
    """
    network_of(problem, "layer_alignment")
    factors = [svd(layer) for layer in params]
    pairs = itertools.pairwise(factors)
    return jnp.array([jnp.abs(jnp.vdot(u[:, 0], vt[0])) for (u, _, _), (_, _, vt) in pairs], dtype=params[0].dtype)


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

    def __call__(self, t: Time, params: Params, problem: Problem) -> Matrix:
        network_of(problem, "Conserved")
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

    def __init__(self, reference: Sequence[Any], *, name: str = "drift") -> None:
        self.reference = tuple(jnp.asarray(layer, dtype=float) for layer in reference)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("pair",)

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
        network_of(problem, "Drift")
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

    def __init__(self, rows: object, columns: object, *, name: str = "entries") -> None:
        self.rows = jnp.asarray(rows)
        self.columns = jnp.asarray(columns)
        self.name = name
        check_shape("Entries", "rows", self.rows, (None,))
        check_shape("Entries", "columns", self.columns, self.rows.shape)
        for label, index in (("rows", self.rows), ("columns", self.columns)):
            if not jnp.issubdtype(index.dtype, jnp.integer):
                raise TypeError(f"Entries: {label} must hold integers, but holds {index.dtype}.")
            if is_concrete(index) and np.any(np.asarray(index) < 0):
                raise ValueError(f"Entries: {label} must be non-negative, but reaches {np.asarray(index).min()}.")

    @property
    def dims(self) -> tuple[str, ...]:
        return (f"{self.name}_entry",)

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " entries"]:
        matrix = problem.product(params)
        for label, index, bound in (("rows", self.rows, matrix.shape[0]), ("columns", self.columns, matrix.shape[1])):
            if is_concrete(index) and index.size and np.asarray(index).max() >= bound:
                raise ValueError(f"Entries: {label} must lie in 0..{bound - 1}, but reaches {np.asarray(index).max()}.")
        # An index that cannot be seen and lies outside gives NaN, which cannot be taken for an entry.
        return matrix.at[self.rows, self.columns].get(mode="fill", fill_value=jnp.nan)
