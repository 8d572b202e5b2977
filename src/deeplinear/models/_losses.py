r"""Losses: functions of the end-to-end matrix, all with the factor $\tfrac12$.

Matrix completion and sensing are plain sums over their terms; regression is a mean over its samples.
"""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int, Integer

from deeplinear.core import (
    Array,
    Matrix,
    RandomKey,
    as_array,
    check_count,
    check_finite,
    check_key,
    check_shape,
    entry,
    formula,
    is_concrete,
    put,
    random,
    xp,
)
from deeplinear.models._base import AbstractLoss, AbstractSumLoss


def _array(where: str, name: str, value: object) -> Array:
    """`value` as a real floating-point array, or a refusal that names it."""
    try:
        array = as_array(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{where}: {name} must be an array of numbers, but is {type(value).__name__} ({error})."
        ) from None
    if xp.issubdtype(array.dtype, xp.complexfloating):
        raise TypeError(f"{where}: {name} must be real, but is complex.")
    # Converted on the host: a new shape compiles nothing.
    wanted = xp.zeros(()).dtype
    return as_array(np.asarray(array), float) if is_concrete(array) and array.dtype != wanted else array.astype(float)


def checked_matrix(where: str, name: str, value: object) -> Matrix:
    """`value` as a finite matrix, or a refusal that names it."""
    array = _array(where, name, value)
    check_shape(where, name, array, (None, None))
    check_finite(where, name, array)
    return array


def _check_sizes(where: str, name: str, shape: Sequence[int]) -> None:
    """Refuse a matrix without entries."""
    if 0 in shape:
        raise ValueError(f"{where}: {name} must have at least one row and one column, but has shape {tuple(shape)}.")


def _check_batch(where: str, batch: int, terms: int) -> None:
    """Refuse a batch that is no count from 1 to the number of terms."""
    check_count(where, "batch", batch, at_least=1)
    if batch > terms:
        raise ValueError(f"{where}: batch must be at most the number of terms, {terms}, but is {batch}.")


def _draw(where: str, key: RandomKey, terms: int, batch: int) -> Int[Array, " batch"]:
    """Indices of `batch` different terms, all sets equally likely."""
    check_key(where, key)
    _check_batch(where, batch, terms)
    if batch == 1:
        return random.randint(key, (1,), 0, terms)
    return random.permutation(key, terms)[:batch]


class SquaredDistance(AbstractLoss):
    r"""$E(W) = \tfrac12 \|W - W^\star\|_F^2$.

    Args:
        target: $W^\star$, (out, in).

    Example:
        >>> float(SquaredDistance(jnp.eye(2)).value(jnp.zeros((2, 2))))
        1.0
    """

    target: Matrix

    @entry
    def __init__(self, target: object) -> None:
        self.target = checked_matrix("SquaredDistance", "target", target)
        _check_sizes("SquaredDistance", "target", self.target.shape)

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        return 0.5 * xp.sum((product - self.target) ** 2)

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return product - self.target

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return tangent

    @property
    def shape(self) -> tuple[int, int]:
        return (self.target.shape[-2], self.target.shape[-1])

    @property
    def kind(self) -> str:
        return "full"


def _check_covariances(sxx: np.ndarray, syx: np.ndarray, solution: np.ndarray) -> None:
    """Refuse what cannot be the covariances of data."""
    size = np.abs(sxx).max()
    asymmetry = np.abs(sxx - sxx.T).max()
    if asymmetry > 1e-10 * size:
        raise ValueError(f"Regression: sxx must be symmetric, but differs from its transpose by {asymmetry:.1e}.")
    lowest = np.linalg.eigvalsh(sxx)[0]
    if lowest < -1e-10 * size:
        raise ValueError(f"Regression: sxx must be positive semi-definite, but has eigenvalue {lowest:.2e}.")
    gap = np.abs(solution @ sxx - syx).max()
    if gap > 1e-8 * np.abs(syx).max():
        raise ValueError(
            f"Regression: syx must vanish on the null space of sxx (solution @ sxx = syx), but misses it by "
            f"{gap:.1e}. If sxx is that badly scaled, use Regression.from_data or SampleRegression."
        )


def _check_outputs(syy: np.ndarray, syx: np.ndarray, solution: np.ndarray) -> None:
    """Refuse what cannot be the output covariance of data that the inputs explain by `solution`."""
    fitted = solution @ syx.T
    size = max(np.abs(syy).max(), (np.abs(solution) @ np.abs(syx).T).max())  # of all terms: rounding follows these
    asymmetry = np.abs(syy - syy.T).max()
    if asymmetry > 1e-10 * size:
        raise ValueError(f"Regression: syy must be symmetric, but differs from its transpose by {asymmetry:.1e}.")
    lowest = np.linalg.eigvalsh(syy)[0]
    if lowest < -1e-10 * size:
        raise ValueError(f"Regression: syy must be positive semi-definite, but has eigenvalue {lowest:.2e}.")
    rest = np.trace(syy) - np.trace(fitted)
    if rest < -1e-8 * size * len(syy):
        raise ValueError(
            f"Regression: syy must hold at least what the inputs explain, of trace {np.trace(fitted):.6g}, but has "
            f"trace {np.trace(syy):.6g}: the loss would be negative."
        )


@formula
def _solution(sxx: Matrix, syx: Matrix) -> Matrix:
    """The least minimiser."""
    return syx @ xp.linalg.pinv(sxx, hermitian=True)


@formula
def _offset(syy: Matrix, syx: Matrix, solution: Matrix) -> Float[Array, ""]:
    """What no linear map can fit."""
    return 0.5 * (xp.trace(syy) - xp.sum(solution * syx))


@formula
def _moments(x: Matrix, y: Matrix) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Covariances of samples in columns and the least minimiser, which they give to more digits than those do."""
    samples = x.shape[1]
    return x @ x.T / samples, y @ x.T / samples, y @ y.T / samples, xp.linalg.lstsq(x.T, y.T)[0].T


class Regression(AbstractLoss):
    r"""Least squares $E(W) = \tfrac1{2P}\sum_n \|W x_n - y_n\|^2$, written with covariances.

    With $S_{xx} = XX^\top/P$, $S_{yx} = YX^\top/P$, $S_{yy} = YY^\top/P$ this is
    $\tfrac12 \mathrm{tr}(W S_{xx} W^\top) - \mathrm{tr}(W S_{yx}^\top) + \tfrac12\mathrm{tr}\,S_{yy}$. The *reduced*
    loss leaves out the part that no linear map can fit, so that its minimum is zero. Its value is taken as
    $\tfrac12\mathrm{tr}((W - W^\star) S_{xx} (W - W^\star)^\top)$, which keeps its digits near the minimum.

    Args:
        sxx: Input covariance, symmetric positive semi-definite.
        syx: Input-output covariance, (out, in).
        syy: Output covariance; needed for the full loss only.
        reduced: Whether to leave the constant out.
        solution: A minimiser $W^\star$, if it is known to more digits than the covariances give.
    """

    sxx: Matrix
    syx: Matrix
    solution: Matrix
    offset: Float[Array, ""]
    reduced: bool = eqx.field(static=True)

    @entry(bounded=("sxx", "syx", "syy"))
    def __init__(
        self,
        sxx: object,
        syx: object,
        syy: object | None = None,
        *,
        reduced: bool | None = None,
        solution: object | None = None,
    ) -> None:
        self.sxx = checked_matrix("Regression", "sxx", sxx)
        self.syx = checked_matrix("Regression", "syx", syx)
        inp = self.sxx.shape[0]
        check_shape("Regression", "sxx", self.sxx, (inp, inp))
        check_shape("Regression", "syx", self.syx, (None, inp))
        _check_sizes("Regression", "syx", self.syx.shape)
        if syy is None and reduced is False:
            raise ValueError("Regression: the full loss needs syy; give it, or take reduced=True.")
        self.reduced = syy is None if reduced is None else reduced
        if solution is None:
            self.solution = _solution(self.sxx, self.syx)
        else:
            self.solution = checked_matrix("Regression", "solution", solution)
            check_shape("Regression", "solution", self.solution, self.syx.shape)
        if is_concrete(self.sxx) and is_concrete(self.syx) and is_concrete(self.solution):
            _check_covariances(np.asarray(self.sxx), np.asarray(self.syx), np.asarray(self.solution))
        if syy is None:
            self.offset = xp.zeros(())
        else:
            syy = checked_matrix("Regression", "syy", syy)
            check_shape("Regression", "syy", syy, (self.syx.shape[0], self.syx.shape[0]))
            if is_concrete(syy) and is_concrete(self.syx) and is_concrete(self.solution):
                _check_outputs(np.asarray(syy), np.asarray(self.syx), np.asarray(self.solution))
            self.offset = _offset(syy, self.syx, self.solution)

    @staticmethod
    @entry(empty=True)
    def from_data(inputs: object, outputs: object, *, reduced: bool = False) -> "Regression":
        """Loss of samples in columns: `inputs` is (in, samples), `outputs` is (out, samples)."""
        x = checked_matrix("Regression.from_data", "inputs", inputs)
        y = checked_matrix("Regression.from_data", "outputs", outputs)
        samples = x.shape[1]
        if samples == 0:
            raise ValueError("Regression.from_data: inputs must hold at least one sample, but has none.")
        check_shape("Regression.from_data", "outputs", y, (None, samples))
        _check_sizes("Regression.from_data", "inputs", x.shape)
        _check_sizes("Regression.from_data", "outputs", y.shape)
        sxx, syx, syy, solution = _moments(x, y)
        return Regression(sxx, syx, syy, reduced=reduced, solution=solution)

    @entry(bounded=("product",))
    def value(self, product: Matrix) -> Float[Array, ""]:
        gap = product - self.solution
        reduced = 0.5 * xp.sum((gap @ self.sxx) * gap)
        return reduced if self.reduced else reduced + self.offset

    @entry(bounded=("product",))
    def gradient(self, product: Matrix) -> Matrix:
        return product @ self.sxx - self.syx

    @entry(bounded=("product",))
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return tangent @ self.sxx

    @property
    def shape(self) -> tuple[int, int]:
        return (self.syx.shape[-2], self.syx.shape[-1])

    @property
    def kind(self) -> str:
        return "reduced" if self.reduced else "full"


class SampleRegression(AbstractSumLoss):
    r"""Least squares $E(W) = \tfrac1{2P}\sum_n \|W x_n - y_n\|^2$ that keeps its samples.

    The same function as `Regression` with its full loss, at a cost of out $\cdot$ in $\cdot\,P$ per evaluation; for
    random batches of samples, or fewer samples than inputs. A mean, so the part made by a batch is the mean of
    $\tfrac12\|W x_n - y_n\|^2$ over the batch.

    Args:
        inputs: Samples $x_n$ in columns, (in, samples).
        outputs: Samples $y_n$ in columns, (out, samples).

    Example:
        >>> float(SampleRegression(jnp.eye(2), jnp.ones((1, 2))).value(jnp.zeros((1, 2))))
        0.5
    """

    inputs: Float[Array, "inp samples"]
    outputs: Float[Array, "out samples"]

    @entry(empty=True, bounded=("inputs", "outputs"))
    def __init__(self, inputs: object, outputs: object) -> None:
        self.inputs = checked_matrix("SampleRegression", "inputs", inputs)
        self.outputs = checked_matrix("SampleRegression", "outputs", outputs)
        if self.inputs.shape[1] == 0:
            raise ValueError("SampleRegression: inputs must hold at least one sample, but has none.")
        check_shape("SampleRegression", "outputs", self.outputs, (None, self.inputs.shape[1]))
        _check_sizes("SampleRegression", "inputs", self.inputs.shape)
        _check_sizes("SampleRegression", "outputs", self.outputs.shape)

    @entry(bounded=("product",))
    def value(self, product: Matrix) -> Float[Array, ""]:
        return 0.5 * xp.sum((product @ self.inputs - self.outputs) ** 2) / self.terms

    @entry(bounded=("product",))
    def gradient(self, product: Matrix) -> Matrix:
        return (product @ self.inputs - self.outputs) @ self.inputs.T / self.terms

    @entry(bounded=("product",))
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return (tangent @ self.inputs) @ self.inputs.T / self.terms

    @property
    def terms(self) -> int:
        """Number of samples $P$."""
        return self.inputs.shape[-1]

    def batch_gradient(self, product: Matrix, key: RandomKey, batch: int) -> Matrix:
        r"""Mean of $(W x_n - y_n)\,x_n^\top$ over `batch` samples, drawn without replacement."""
        chosen = _draw("SampleRegression.batch_gradient", key, self.terms, batch)
        inputs = self.inputs[:, chosen]
        return (product @ inputs - self.outputs[:, chosen]) @ inputs.T / batch

    def share(self, batch: int) -> Float[Array, ""]:
        """1: a mean over a batch estimates the mean over all samples."""
        return xp.ones(())

    @property
    def shape(self) -> tuple[int, int]:
        return (self.outputs.shape[-2], self.inputs.shape[-2])

    @property
    def kind(self) -> str:
        return "full"


class Completion(AbstractSumLoss):
    r"""Matrix completion $E(W) = \tfrac12 \sum_{(i,j)\in\Omega} (w_{ij} - w^\star_{ij})^2$ with a dense mask.

    A sum, not a mean. Entries of `target` outside the mask are ignored and may be NaN.

    Args:
        target: Observed values (noisy ones are welcome), (out, in).
        mask: True where observed; at least one entry.
    """

    target: Matrix
    mask: Matrix

    @entry
    def __init__(self, target: object, mask: object) -> None:
        values = _array("Completion", "target", target)
        check_shape("Completion", "target", values, (None, None))
        _check_sizes("Completion", "target", values.shape)
        seen = _array("Completion", "mask", mask)
        check_shape("Completion", "mask", seen, values.shape)
        if is_concrete(seen):
            if not np.all(np.isin(np.asarray(seen), (0, 1))):
                raise ValueError("Completion: mask must hold only 0 and 1 (or False and True).")
            if not np.any(np.asarray(seen)):
                raise ValueError("Completion: mask must mark at least one entry as observed, but marks none.")
        self.mask = seen.astype(values.dtype)
        if is_concrete(seen) and is_concrete(values):
            self.target = as_array(np.where(np.asarray(seen) != 0, np.asarray(values), 0.0), float)
        else:
            self.target = xp.where(seen.astype(bool), values, 0.0)
        check_finite("Completion", "target (where observed)", self.target)

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        return 0.5 * xp.sum(self.gradient(product) ** 2)

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return self.mask * (product - self.target)

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return self.mask * tangent

    @property
    def terms(self) -> Int[Array, ""]:
        """Number of observed entries."""
        return xp.sum(self.mask.astype(int))

    def batch_gradient(self, product: Matrix, key: RandomKey, batch: int) -> Matrix:
        r"""$\sum (w_{ij} - w^\star_{ij})\,e_i e_j^\top$ over `batch` observed entries, drawn without replacement.

        The number of observed entries is data. Where it can be seen, a larger batch is refused; under a transformation
        a larger batch takes every observed entry once.
        """
        check_key("Completion.batch_gradient", key)
        terms = self.terms
        _check_batch("Completion.batch_gradient", batch, int(terms) if is_concrete(terms) else self.mask.size)
        seen = self.mask.ravel()
        if batch == 1:  # the k-th observed entry, k uniform: one random number instead of one per entry
            drawn = random.randint(key, (1,), 0, terms)
            chosen = xp.searchsorted(xp.cumsum(seen.astype(int)), drawn, side="right")
        else:  # the observed entries with the highest of independent scores
            scores = xp.where(seen > 0, random.uniform(key, seen.shape, dtype=seen.dtype), -1.0)
            chosen = xp.argsort(-scores, stable=True)[:batch]
        residual = seen[chosen] * (product.ravel()[chosen] - self.target.ravel()[chosen])
        flat = put(xp.zeros_like(product).ravel(), chosen, residual, unique_indices=True)
        return flat.reshape(product.shape)

    def share(self, batch: int) -> Float[Array, ""]:
        """batch / terms, at most 1."""
        return xp.minimum(batch / self.terms.astype(float), 1.0)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.target.shape[-2], self.target.shape[-1])

    @property
    def kind(self) -> str:
        return "full"


class EntryCompletion(AbstractSumLoss):
    r"""Matrix completion from a list of observed entries: $\tfrac12 \sum_k (w_{i_k j_k} - y_k)^2$.

    The same loss as `Completion`, for patterns that are kept as triplets.

    Args:
        rows: Row index of each observation.
        columns: Column index of each observation.
        values: Observed values.
        shape: Shape (out, in) of the matrix.
    """

    rows: Integer[Array, " entries"]
    columns: Integer[Array, " entries"]
    values: Float[Array, " entries"]
    extent: tuple[int, int] = eqx.field(static=True)

    @entry
    def __init__(self, rows: object, columns: object, values: object, shape: Sequence[int]) -> None:
        if not isinstance(shape, Sequence) or isinstance(shape, str) or len(shape) != 2:
            raise TypeError(f"EntryCompletion: shape must be two widths (out, in), but is {shape!r}.")
        for axis in shape:
            check_count("EntryCompletion", "each width in shape", axis, at_least=1)
        self.rows = as_array(rows)
        self.columns = as_array(columns)
        self.values = _array("EntryCompletion", "values", values)
        self.extent = (int(shape[0]), int(shape[1]))
        check_shape("EntryCompletion", "values", self.values, (None,))
        if self.values.shape[0] == 0:
            raise ValueError("EntryCompletion: values must hold at least one observation, but is empty.")
        check_finite("EntryCompletion", "values", self.values)
        for name, index, bound in (("rows", self.rows, shape[0]), ("columns", self.columns, shape[1])):
            check_shape("EntryCompletion", name, index, self.values.shape)
            if not xp.issubdtype(index.dtype, xp.integer):
                raise TypeError(f"EntryCompletion: {name} must hold integers, but holds {index.dtype}.")
            if is_concrete(index) and not np.all((np.asarray(index) >= 0) & (np.asarray(index) < bound)):
                raise ValueError(f"EntryCompletion: {name} must lie in 0..{bound - 1}, but reaches outside.")
        if is_concrete(self.rows) and is_concrete(self.columns):
            flat = np.asarray(self.rows).astype(np.int64) * shape[1] + np.asarray(self.columns)
            if len(np.unique(flat)) < len(flat):
                raise ValueError("EntryCompletion: an entry is observed twice; give each (row, column) once.")

    def _residual(self, product: Matrix) -> Float[Array, " entries"]:
        return product[self.rows, self.columns] - self.values

    def _scatter(self, entries: Float[Array, " entries"]) -> Matrix:
        return put(xp.zeros(self.extent, entries.dtype), (self.rows, self.columns), entries, unique_indices=True)

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        return 0.5 * xp.sum(self._residual(product) ** 2)

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return self._scatter(self._residual(product))

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return self._scatter(tangent[self.rows, self.columns])

    @property
    def terms(self) -> int:
        """Number of observed entries."""
        return self.values.shape[0]

    def batch_gradient(self, product: Matrix, key: RandomKey, batch: int) -> Matrix:
        r"""$\sum (w_{i_k j_k} - y_k)\,e_{i_k} e_{j_k}^\top$ over `batch` observations, drawn without replacement."""
        chosen = _draw("EntryCompletion.batch_gradient", key, self.terms, batch)
        rows, columns = self.rows[chosen], self.columns[chosen]
        residual = product[rows, columns] - self.values[chosen]
        return put(xp.zeros_like(product), (rows, columns), residual, unique_indices=True)

    def share(self, batch: int) -> Float[Array, ""]:
        """batch / terms."""
        return xp.asarray(batch / self.terms, dtype=float)

    @property
    def shape(self) -> tuple[int, int]:
        return self.extent

    @property
    def kind(self) -> str:
        return "full"


class Sensing(AbstractSumLoss):
    r"""Linear measurements $E(W) = \tfrac12 \sum_k (\langle A_k, W\rangle - y_k)^2$.

    Args:
        matrices: $A_k$ stacked, (measurements, out, in).
        values: $y_k$.
    """

    matrices: Float[Array, "measurements out inp"]
    values: Float[Array, " measurements"]

    @entry(empty=True, bounded=("matrices", "values"))
    def __init__(self, matrices: object, values: object) -> None:
        self.matrices = _array("Sensing", "matrices", matrices)
        self.values = _array("Sensing", "values", values)
        check_shape("Sensing", "matrices", self.matrices, (None, None, None))
        check_finite("Sensing", "matrices", self.matrices)
        if self.matrices.shape[0] == 0:
            raise ValueError("Sensing: matrices must hold at least one measurement, but is empty.")
        _check_sizes("Sensing", "each of matrices", self.matrices.shape[1:])
        check_shape("Sensing", "values", self.values, (self.matrices.shape[0],))
        check_finite("Sensing", "values", self.values)

    def _measure(self, product: Matrix) -> Float[Array, " measurements"]:
        return xp.einsum("kij,ij->k", self.matrices, product)

    @entry(bounded=("product",))
    def value(self, product: Matrix) -> Float[Array, ""]:
        return 0.5 * xp.sum((self._measure(product) - self.values) ** 2)

    @entry(bounded=("product",))
    def gradient(self, product: Matrix) -> Matrix:
        return xp.einsum("k,kij->ij", self._measure(product) - self.values, self.matrices)

    @entry(bounded=("product",))
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return xp.einsum("k,kij->ij", self._measure(tangent), self.matrices)

    @property
    def terms(self) -> int:
        """Number of measurements."""
        return self.values.shape[0]

    def batch_gradient(self, product: Matrix, key: RandomKey, batch: int) -> Matrix:
        r"""$\sum (\langle A_k, W\rangle - y_k)\,A_k$ over `batch` measurements, drawn without replacement."""
        chosen = _draw("Sensing.batch_gradient", key, self.terms, batch)
        matrices = self.matrices[chosen]
        residual = xp.einsum("kij,ij->k", matrices, product) - self.values[chosen]
        return xp.einsum("k,kij->ij", residual, matrices)

    def share(self, batch: int) -> Float[Array, ""]:
        """batch / terms."""
        return xp.asarray(batch / self.terms, dtype=float)

    @property
    def shape(self) -> tuple[int, int]:
        return (self.matrices.shape[-2], self.matrices.shape[-1])

    @property
    def kind(self) -> str:
        return "full"


class Energy(AbstractLoss):
    """Any differentiable energy of the product, with derivatives by automatic differentiation.

    Args:
        energy: Function from the product, and `data` if that is given, to a scalar. Pass a named function: a fresh
            lambda per call compiles anew.
        data: Arrays the energy depends on; numbers in here may change without compiling anew.
    """

    energy: Callable[..., Float[Array, ""]] = eqx.field(static=True)
    data: tuple[Array, ...]

    @entry
    def __init__(self, energy: Callable[..., Float[Array, ""]], *data: object) -> None:
        if not callable(energy):
            raise TypeError(f"Energy: energy must be a function of the product, but is {energy!r}.")
        self.energy = energy
        self.data = tuple(as_array(item) for item in data)

    @entry
    def value(self, product: Matrix) -> Float[Array, ""]:
        value = self.energy(product, *self.data)
        value = xp.asarray(value) if isinstance(value, float) else value
        if not isinstance(value, jax.Array):
            raise TypeError(f"Energy: energy must give one real number, but gives {type(value).__name__}.")
        if value.shape != () or not xp.issubdtype(value.dtype, xp.floating):
            raise TypeError(
                f"Energy: energy must give one real number, but gives {value.dtype} of shape {value.shape}."
            )
        return value

    @entry
    def gradient(self, product: Matrix) -> Matrix:
        return jax.grad(self.value)(product)

    @entry
    def curvature(self, product: Matrix, tangent: Matrix) -> Matrix:
        return jax.jvp(self.gradient, (product,), (tangent,))[1]

    @property
    def shape(self) -> None:
        return None

    @property
    def kind(self) -> str:
        return "full"
