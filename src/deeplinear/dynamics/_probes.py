r"""Probes: named observables $(t, \text{params}, \text{problem}) \mapsto$ array, computed while a run goes on.

A probe knows its `name` and the names `dims` of the dimensions of its output. Those without parameters are functions
under `@probe(...)`; those with parameters are classes whose numbers are arrays. Either way the same probe used again
never compiles anew. Equal dimension names mean equal lengths within one run: `row`, `column` and `mode` belong to the
product, `layer` runs over layers, `pair` over neighbouring layers; everything else carries the name of its probe.
"""

import abc
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num, Shaped

from deeplinear.core import (
    Matrix,
    Params,
    check_count,
    check_finite,
    check_shape,
    effective_rank,
    is_concrete,
    norm,
    nuclear_norm,
    numerical_rank,
    singular_values as spectrum,
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
        return jnp.asarray(self.function(t, params, problem))


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


def as_probes(functions: Iterable[Callable[..., Any]]) -> tuple[AbstractProbe, ...]:
    """Probes and named functions as probes, refused if two share a name.

    Example:
        >>> [item.name for item in as_probes([loss, product])]
        ['loss', 'product']
    """
    found = tuple(as_probe(item) for item in functions)
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


def _network(problem: Problem, where: str) -> DeepLinear:
    """The model as a feed-forward network, or a refusal that names it."""
    if not isinstance(problem.model, DeepLinear):
        raise TypeError(
            f"{where}: problem.model must be a DeepLinear network, but is {type(problem.model).__name__}; this "
            "probe has no meaning there."
        )
    return problem.model


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
    _network(problem, "layer_balancedness")
    return balancedness(params)


@probe(dims=("pair",))
def layer_lambda(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Multiple of the identity nearest to each conserved quantity, $\hat\lambda_l = \mathrm{tr}(C_l)/d_l$."""
    _network(problem, "layer_lambda")
    return lambda_estimate(params).lam


@probe(dims=("pair",))
def layer_lambda_residual(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""What `layer_lambda` leaves over in Frobenius norm, $\|C_l - \hat\lambda_l I\|_F$."""
    _network(problem, "layer_lambda_residual")
    return lambda_estimate(params).frobenius


@probe(dims=("pair",))
def layer_lambda_operator_residual(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""What `layer_lambda` leaves over in operator norm, $\|C_l - \hat\lambda_l I\|_2$."""
    _network(problem, "layer_lambda_operator_residual")
    return lambda_estimate(params).operator


@probe(dims=("pair",))
def layer_alignment(t: Time, params: Params, problem: Problem) -> Float[Array, " pairs"]:
    r"""Alignment $|u_1(W_l)^\top v_1(W_{l+1})|$ of the leading singular vectors of neighbouring layers.

    One where what the lower layer writes most strongly is what the upper one reads most strongly. It says nothing
    where a leading singular value is repeated or zero, as its vector is then arbitrary.
    """
    _network(problem, "layer_alignment")
    factors = [svd(layer) for layer in params]
    pairs = itertools.pairwise(factors)
    return jnp.array([jnp.abs(jnp.vdot(u[:, 0], vt[0])) for (u, _, _), (_, _, vt) in pairs], dtype=params[0].dtype)


@probe(dims=("ntk_row", "ntk_column"))
def ntk(t: Time, params: Params, problem: Problem) -> Float[Array, "entries entries"]:
    """Dense tangent kernel of all entries of the product, row-major; meant for small networks."""
    return _network(problem, "ntk").ntk(params)


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
        _network(problem, "Conserved")
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
        _network(problem, "Drift")
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


def _target(where: str, value: object) -> Matrix:
    target = jnp.asarray(value, dtype=float)
    check_shape(where, "target", target, (None, None))
    check_finite(where, "target", target)
    return target


def _check_nonzero(where: str, name: str, value: Array) -> None:
    if is_concrete(value) and not np.any(np.asarray(value)):
        raise ValueError(f"{where}: {name} must not be zero, as the result is relative to it.")


class LeftAlignment(AbstractProbe):
    r"""Alignment $|u_k^\top u_k^\star|$ of left singular vectors of the product with those of a target.

    Modes are paired by the order of their singular values, largest first. Vectors of repeated or zero singular
    values are arbitrary within their space: compare such modes by `ModeStrengths`.

    Args:
        target: Matrix whose singular vectors are the goal, (out, in).
        name: Name of the probe.
    """

    vectors: Float[Array, "out modes"]
    shape: tuple[int, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(self, target: object, *, name: str = "left_alignment") -> None:
        goal = _target("LeftAlignment", target)
        self.shape = goal.shape
        self.vectors = jnp.linalg.svd(goal, full_matrices=False)[0]
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("mode",)

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
        matrix = problem.product(params)
        check_shape("LeftAlignment", "product", matrix, self.shape)
        u = svd(matrix)[0]
        return jnp.abs(jnp.sum(u * self.vectors, axis=0))


class RightAlignment(AbstractProbe):
    r"""Alignment $|v_k^\top v_k^\star|$ of right singular vectors of the product with those of a target.

    As `LeftAlignment`, on the side of the inputs.

    Args:
        target: Matrix whose singular vectors are the goal, (out, in).
        name: Name of the probe.
    """

    vectors: Float[Array, "modes inp"]
    shape: tuple[int, ...] = eqx.field(static=True)
    name: str = eqx.field(static=True)

    def __init__(self, target: object, *, name: str = "right_alignment") -> None:
        goal = _target("RightAlignment", target)
        self.shape = goal.shape
        self.vectors = jnp.linalg.svd(goal, full_matrices=False)[2]
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("mode",)

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
        matrix = problem.product(params)
        check_shape("RightAlignment", "product", matrix, self.shape)
        vt = svd(matrix)[2]
        return jnp.abs(jnp.sum(vt * self.vectors, axis=1))


class ModeStrengths(AbstractProbe):
    r"""Strengths $u_k^{\star\top} W v_k^\star$ of the product in the singular modes of a target.

    Equal to the target's singular values at the target. Needs no singular vectors of the product; for repeated target
    values only the sum over the repeated modes is meaningful.

    Args:
        target: Matrix that defines the modes, (out, in).
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> ModeStrengths(jnp.diag(jnp.array([2.0, 1.0])))(0.0, (jnp.diag(jnp.array([0.5, 0.1])),), problem).tolist()
        [0.5, 0.1]
    """

    left: Float[Array, "out modes"]
    right: Float[Array, "modes inp"]
    name: str = eqx.field(static=True)

    def __init__(self, target: object, *, name: str = "mode_strengths") -> None:
        self.left, _, self.right = jnp.linalg.svd(_target("ModeStrengths", target), full_matrices=False)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ("mode",)

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, " modes"]:
        matrix = problem.product(params)
        check_shape("ModeStrengths", "product", matrix, (self.left.shape[0], self.right.shape[1]))
        return jnp.sum(self.left * (matrix @ self.right.T), axis=0)


class ReconstructionError(AbstractProbe):
    r"""Relative distance $\|W - W^\star\|_F / \|W^\star\|_F$ of the product to a target.

    Args:
        target: $W^\star$, not zero.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> float(ReconstructionError(jnp.eye(2))(0.0, (jnp.zeros((2, 2)),), problem))
        1.0
    """

    target: Matrix
    name: str = eqx.field(static=True)

    def __init__(self, target: object, *, name: str = "reconstruction_error") -> None:
        self.target = _target("ReconstructionError", target)
        _check_nonzero("ReconstructionError", "target", self.target)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        matrix = problem.product(params)
        check_shape("ReconstructionError", "target", self.target, matrix.shape)
        return jnp.linalg.norm(matrix - self.target) / jnp.linalg.norm(self.target)


class HeldOutError(AbstractProbe):
    r"""Root mean square of $w_{ij} - w^\star_{ij}$ over the entries that were **not** observed.

    Args:
        target: Ground truth, (out, in); ignored, and may be NaN, where observed.
        mask: True where observed, as for `Completion`; at least one entry must be unobserved.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2)), SquaredDistance(jnp.eye(2)))
        >>> float(HeldOutError(3 * jnp.ones((2, 2)), jnp.eye(2))(0.0, (jnp.eye(2),), problem))
        3.0
    """

    target: Matrix
    hidden: Matrix
    name: str = eqx.field(static=True)

    def __init__(self, target: object, mask: object, *, name: str = "held_out_error") -> None:
        values, seen = jnp.asarray(target, dtype=float), jnp.asarray(mask)
        check_shape("HeldOutError", "target", values, (None, None))
        check_shape("HeldOutError", "mask", seen, values.shape)
        if is_concrete(seen):
            if not np.all(np.isin(np.asarray(seen), (0, 1))):
                raise ValueError("HeldOutError: mask must hold only 0 and 1 (or False and True).")
            if np.all(np.asarray(seen)):
                raise ValueError("HeldOutError: mask must leave at least one entry unobserved, but marks them all.")
        self.hidden = 1.0 - seen.astype(values.dtype)
        self.target = jnp.where(seen.astype(bool), 0.0, values)
        check_finite("HeldOutError", "target (where not observed)", self.target)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        matrix = problem.product(params)
        check_shape("HeldOutError", "target", self.target, matrix.shape)
        return jnp.sqrt(jnp.sum(self.hidden * (matrix - self.target) ** 2) / jnp.sum(self.hidden))


# ---- change of the tangent kernel


def _grams(layers: Params, reference: Params) -> tuple[list[Matrix], list[Matrix], list[Matrix]]:
    r"""$P_l^\top P_l$ for $P_0 = I$, $P_l = W_l P_{l-1}$, $l < L$: at the reference, its change since, and now.

    Changes are carried through the products as changes, $\Delta P_l = \Delta W_l P_{l-1} + W_l^{\mathrm{ref}}\Delta
    P_{l-1}$, so a movement of relative size $10^{-14}$ keeps its digits; subtracting the products would leave two.
    """
    old = jnp.eye(layers[0].shape[1], dtype=layers[0].dtype)
    new, moved = old, jnp.zeros_like(old)
    before, change, now = [old], [moved], [new]
    for layer, origin in zip(layers[:-1], reference[:-1], strict=True):
        moved = (layer - origin) @ new + origin @ moved
        old, new = origin @ old, layer @ new
        before.append(old.T @ old)
        change.append(moved.T @ new + old.T @ moved)
        now.append(new.T @ new)
    return before, change, now


def _coordinates(families: Sequence[list[Matrix]]) -> list[Matrix]:
    """Families of matrices as columns of coordinates in one orthonormal basis of all of them."""
    columns = jnp.stack([item.ravel() for family in families for item in family], axis=1)
    return jnp.split(jnp.linalg.qr(columns, mode="r"), len(families), axis=1)


class _Kernels(NamedTuple):
    """Tangent kernel at the reference, its change since, and now, in coordinates that keep Frobenius norms."""

    before: Matrix
    change: Matrix
    now: Matrix


def _kernels(params: Params, reference: Params) -> _Kernels:
    r"""Tangent kernels $K = \sum_l T_l \otimes S_l$ without Kronecker products.

    All $T$ lie in a space of at most $3L$ dimensions, all $S$ in another. In orthonormal bases of the two a sum of
    tensor products is a matrix of at most $3L \times 3L$ entries with the same norm; inner products equal
    $\sum_{lm} \mathrm{tr}(T_l T'_m)\,\mathrm{tr}(S_l S'_m)$ without the cancellation of this sum. The change is
    $\sum_l \Delta T_l \otimes S_l + T_l^{\mathrm{ref}} \otimes \Delta S_l$.
    """
    s_before, s_change, s_now = _coordinates(_grams(params, reference))
    mirrored = _grams(tuple(w.T for w in reversed(params)), tuple(w.T for w in reversed(reference)))
    t_before, t_change, t_now = _coordinates([family[::-1] for family in mirrored])
    return _Kernels(
        before=t_before @ s_before.T,
        change=t_change @ s_now.T + t_before @ s_change.T,
        now=t_now @ s_now.T,
    )


def _kernel_reference(where: str, reference: Sequence[Any]) -> Params:
    layers = tuple(jnp.asarray(layer, dtype=float) for layer in reference)
    if not layers:
        raise ValueError(f"{where}: reference must hold at least one layer, but is empty.")
    for position, layer in enumerate(layers):
        check_shape(where, f"reference[{position}]", layer, (None, layers[position - 1].shape[0] if position else None))
        check_finite(where, f"reference[{position}]", layer)
    if all(is_concrete(layer) for layer in layers):
        _check_nonzero(where, "the tangent kernel of reference", _kernels(layers, layers).before)
    return layers


class KernelDistance(AbstractProbe):
    r"""Distance $1 - \langle K, K_0\rangle_F / (\|K\|_F \|K_0\|_F)$ of the tangent kernel from that of a reference.

    Between 0 and 1, blind to the scale of the kernel. Evaluated without Kronecker products as
    $\tfrac12\|K/\|K\| - K_0/\|K_0\|\,\|^2$, with $K - K_0$ computed from the movement of the layers, so that it keeps
    its digits however small it is. A kernel that vanishes has distance 1.

    Args:
        reference: Layers whose kernel is $K_0$, usually those at the start.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)))
        >>> start = (jnp.eye(2), jnp.eye(2))
        >>> float(KernelDistance(start)(0.0, (2 * jnp.eye(2), 2 * jnp.eye(2)), problem))
        0.0
    """

    reference: Params
    name: str = eqx.field(static=True)

    def __init__(self, reference: Sequence[Any], *, name: str = "kernel_distance") -> None:
        self.reference = _kernel_reference("KernelDistance", reference)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        _network(problem, "KernelDistance").check(self.reference, "KernelDistance (reference)")
        kernels = _kernels(params, self.reference)
        before, now = jnp.linalg.norm(kernels.before), jnp.linalg.norm(kernels.now)
        scale = jnp.where(now == 0, 1.0, now)
        # K/|K| - K0/|K0|, from the change where it is small and from the kernels themselves where it is not.
        growth = jnp.sum(kernels.change * (2 * kernels.before + kernels.change)) / (now + before) / before
        near = (kernels.change - growth * kernels.before) / scale
        far = kernels.now / scale - kernels.before / before
        gap = jnp.where(jnp.linalg.norm(kernels.change) < 0.5 * before, near, far)
        return jnp.where(now == 0, 1.0, 0.5 * jnp.sum(gap**2))


class KernelMovement(AbstractProbe):
    r"""Relative movement $\|K - K_0\|_F / \|K_0\|_F$ of the tangent kernel since a reference.

    Computed as in `KernelDistance`; it sees changes of scale too.

    Args:
        reference: Layers whose kernel is $K_0$, usually those at the start.
        name: Name of the probe.

    Example:
        >>> problem = Problem(DeepLinear((2, 2, 2)), SquaredDistance(jnp.eye(2)))
        >>> start = (jnp.eye(2), jnp.eye(2))
        >>> round(float(KernelMovement(start)(0.0, (2 * jnp.eye(2), 2 * jnp.eye(2)), problem)), 12)
        3.0
    """

    reference: Params
    name: str = eqx.field(static=True)

    def __init__(self, reference: Sequence[Any], *, name: str = "kernel_movement") -> None:
        self.reference = _kernel_reference("KernelMovement", reference)
        self.name = name

    @property
    def dims(self) -> tuple[str, ...]:
        return ()

    def __call__(self, t: Time, params: Params, problem: Problem) -> Float[Array, ""]:
        _network(problem, "KernelMovement").check(self.reference, "KernelMovement (reference)")
        kernels = _kernels(params, self.reference)
        return jnp.linalg.norm(kernels.change) / jnp.linalg.norm(kernels.before)
