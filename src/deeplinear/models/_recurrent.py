r"""Linear recurrent networks $s_{t+1} = As_t + Bx_t$, $y_t = Cs_t$, $s_0 = 0$.

After $k$ inputs the output is $y_k = \sum_{j<k} h_j x_{k-1-j}$ with the impulse response $h_j = CA^jB$. So the
end-to-end object is the matrix $(h_0, h_1, \dots, h_{k-1})$ that acts on the window of the last $k$ inputs, newest
first; $h_j$ is a deep linear network of depth $j + 2$ whose inner layers are shared. Losses of matrices are then losses
of recurrent networks: `SquaredDistance` to the response of a teacher is half the mean squared error under white inputs,
`Regression` and `SampleRegression` of windows that under given ones, `Completion` with the first entries observed that
of shorter sequences.
"""

from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    Matrix,
    Params,
    check_count,
    check_finite,
    check_shape,
    check_x64,
    checked_layer,
    is_concrete,
    near_name,
    put,
    scan,
    xp,
)
from deeplinear.models._base import AbstractModel

Form = Literal["general", "symmetric", "upper", "diagonal", "tied"]

FORMS: tuple[str, ...] = get_args(Form)

SYMMETRIC = 1e-12
"""Largest asymmetry of a transition matrix that counts as symmetric, relative to its largest entry (at least 1)."""


class System(NamedTuple):
    """The three matrices of a recurrent network.

    Attributes:
        transition: $A$, (states, states).
        input: $B$, (states, inputs).
        output: $C$, (outputs, states).
    """

    transition: Float[Array, "states states"]
    input: Float[Array, "states inputs"]
    output: Float[Array, "outputs states"]


class Krylov(NamedTuple):
    """Memo of a forward pass: $A^iB$ and $(A^\\top)^iC^\\top$ for $i < k$."""

    right: Float[Array, "length states inputs"]
    left: Float[Array, "length states outputs"]


class LinearRNN(AbstractModel[Krylov]):
    r"""Linear recurrent network, read through the first $k$ entries of its impulse response.

    Its parameters come in five forms, which have the same responses and different gradient flows:

    * `"general"`: $B$, $A$, $C$, in the order in which they act;
    * `"symmetric"`: the same with $A = A^\top$, which moves by the symmetric part of the gradient;
    * `"upper"`: the entries of $A$ on and above the diagonal, row by row, in place of $A$: off the diagonal the matrix
      then moves twice as fast;
    * `"diagonal"`: the diagonal $a$ of $A$ as a column in place of $A$;
    * `"tied"`: $B$ and $a$ only, with $C = B^\top$.

    With $g$ the gradient on the response, $\partial B = \sum_i (A^\top)^iC^\top g_i$,
    $\partial C = \sum_i g_i(A^iB)^\top$ and $\partial A = \sum_{q,s} (A^\top)^qC^\top\,g_{q+s+1}\,(A^sB)^\top$, a
    product with a Hankel matrix: $O(kd^2 + k^2d)$ in all.

    Args:
        states: $d$, size of the state.
        length: $k$, entries of the response.
        inputs: Size of an input.
        outputs: Size of an output; that of an input if tied.
        form: One of the five.

    Example:
        >>> model = LinearRNN(2, 4, form="diagonal")
        >>> params = (jnp.array([[1.0], [2.0]]), jnp.array([[0.5], [0.0]]), jnp.array([[1.0, 1.0]]))
        >>> model.forward(params)[0]
        array([[3.   , 0.5  , 0.25 , 0.125]])
    """

    states: int = eqx.field(static=True)
    length: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    form: Form = eqx.field(static=True)

    def __init__(
        self, states: int, length: int, *, inputs: int = 1, outputs: int | None = None, form: Form = "general"
    ) -> None:
        outputs = inputs if form == "tied" and outputs is None else 1 if outputs is None else outputs
        for name, count in (("states", states), ("length", length), ("inputs", inputs), ("outputs", outputs)):
            check_count("LinearRNN", name, count, at_least=1)
        if form not in FORMS:
            raise ValueError(f"LinearRNN: form is '{form}'. {near_name(str(form), FORMS)}")
        if form == "tied" and inputs != outputs:
            raise ValueError(
                f"LinearRNN: outputs must equal inputs, {inputs}, if C is the transpose of B, but is {outputs}."
            )
        self.states, self.length = int(states), int(length)
        self.inputs, self.outputs, self.form = int(inputs), int(outputs), form

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of the parameters, first-acting first."""
        size = self.states
        inner = {"upper": (size * (size + 1) // 2, 1), "diagonal": (size, 1), "tied": (size, 1)}
        shapes = ((size, self.inputs), inner.get(self.form, (size, size)))
        return shapes if self.form == "tied" else (*shapes, (self.outputs, size))

    @property
    def product_shape(self) -> tuple[int, int]:
        """(outputs, length times inputs)."""
        return (self.outputs, self.length * self.inputs)

    def system(self, params: Params) -> System:
        """The matrices that parameters stand for."""
        if len(params) != len(self.shapes):
            raise ValueError(
                f"LinearRNN.system: params of the form '{self.form}' must be {len(self.shapes)} arrays, but are "
                f"{len(params)}."
            )
        first, inner = params[0], params[1]
        output = first.T if self.form == "tied" else params[2]
        if self.form == "general":
            return System(inner, first, output)
        if self.form == "symmetric":
            return System((inner + inner.T) / 2, first, output)
        if self.form == "upper":
            rows, columns = np.triu_indices(self.states)
            upper = put(xp.zeros((self.states, self.states), inner.dtype), (rows, columns), inner[:, 0])
            return System(upper + xp.triu(upper, 1).T, first, output)
        return System(xp.diag(inner[:, 0]), first, output)

    def params(self, system: Any) -> Params:
        """Parameters of this form that stand for a system.

        Args:
            system: $A$, $B$, $C$.

        Raises:
            HypothesisError: The system is not of this form: $A$ not symmetric or not diagonal, or $C \\ne B^\\top$.
        """
        transition, first, output = (np.asarray(matrix) for matrix in checked_system("LinearRNN.params", system))
        size = len(transition)
        if (size, first.shape[1], len(output)) != (self.states, self.inputs, self.outputs):
            raise ValueError(
                f"LinearRNN.params: system must have {self.states} states, {self.inputs} inputs and {self.outputs} "
                f"outputs, but has {size}, {first.shape[1]} and {len(output)}."
            )
        largest = SYMMETRIC * max(1.0, float(np.abs(transition).max()))
        if self.form in ("symmetric", "upper"):
            residual = float(np.abs(transition - transition.T).max())
            _require("LinearRNN.params: a symmetric transition matrix", residual, largest)
        if self.form in ("diagonal", "tied"):
            beside = transition - np.diag(np.diag(transition))
            advice = "Take recurrent.diagonal_equivalent of a symmetric system first, or another form."
            _require("LinearRNN.params: a diagonal transition matrix", float(np.abs(beside).max()), largest, advice)
        if self.form == "tied":
            residual = float(np.abs(output - first.T).max())
            _require("LinearRNN.params: output and input maps that are transposes", residual, largest)
        inner = {
            "upper": transition[np.triu_indices(size)][:, None],
            "diagonal": np.diag(transition)[:, None],
            "tied": np.diag(transition)[:, None],
        }.get(self.form, transition)
        kept = (first, inner) if self.form == "tied" else (first, inner, output)
        return tuple(xp.asarray(matrix, dtype=float) for matrix in kept)

    def forward(self, params: Params) -> tuple[Matrix, Krylov]:
        """Impulse response and the Krylov blocks."""
        transition, first, output = self._parts(params)
        memo = Krylov(self._powers(transition, first), self._powers(_transposed(transition), output.T))
        response = xp.einsum("od,kdi->oki", output, memo.right)
        return response.reshape(self.product_shape), memo

    def pullback(self, params: Params, memo: Krylov, cotangent: Matrix) -> Params:
        """Gradient on the parameters from the gradient on the response."""
        g = xp.moveaxis(cotangent.reshape(self.outputs, self.length, self.inputs), 1, 0)
        if self.form in ("diagonal", "tied"):
            return self._diagonal_pullback(params, g)
        first = xp.einsum("kdo,koi->di", memo.left, g)
        output = xp.einsum("koi,kdi->od", g, memo.right)
        index = np.add.outer(np.arange(self.length), np.arange(self.length)) + 1
        hankel = xp.concatenate([g, xp.zeros_like(g)])[index]  # (q, s): entry q + s + 1, zero beyond the end
        half = xp.einsum("qdo,qsoi->dsi", memo.left, hankel)
        inner = xp.einsum("dsi,sei->de", half, memo.right)
        if self.form == "symmetric":
            inner = (inner + inner.T) / 2
        if self.form == "upper":
            twice = inner + inner.T - xp.diag(xp.diag(inner))
            inner = twice[np.triu_indices(self.states)][:, None]
        return first, inner, output

    def _diagonal_pullback(self, params: Params, g: Float[Array, "length outputs inputs"]) -> Params:
        r"""With $\phi = \sum_j g_ja^j$ for every eigenvalue: $C^\top\phi$, $C^\top\phi'B^\top$, $\phi B$.

        One $\phi$ for both maps, so that those that are transposes of each other move alike to the last digit.
        """
        _, first, output = self._parts(params)
        powers = _powers_of(params[1][:, 0], self.length)
        value = xp.einsum("kd,koi->doi", powers, g)
        orders = xp.arange(1.0, self.length)[:, None, None].astype(g.dtype)
        slope = xp.einsum("kd,koi->doi", powers[:-1], orders * g[1:])
        inner = xp.einsum("od,doi,di->d", output, slope, first)[:, None]
        of_first = xp.sum(output.T[:, :, None] * value, axis=1)
        of_output = xp.sum(value * first[:, None, :], axis=2).T
        return (of_first + of_output.T, inner) if self.form == "tied" else (of_first, inner, of_output)

    def pushforward(self, params: Params, memo: Krylov, tangent: Params) -> tuple[Matrix, Krylov]:
        """Derivative of the response and of the Krylov blocks."""
        return jax.jvp(self.forward, (params,), (tangent,))[1]

    def pullback_derivative(
        self, params: Params, memo: Krylov, cotangent: Matrix, tangent: Params, memo_tangent: Krylov
    ) -> Params:
        """Derivative of the gradient's dependence on the parameters, the cotangent held fixed."""
        return jax.jvp(lambda p, m: self.pullback(p, m, cotangent), (params, memo), (tangent, memo_tangent))[1]

    def check(self, params: Params, where: str) -> None:
        """Refuse parameters of other shapes, or a matrix that should be symmetric and is not."""
        shapes = tuple(tuple(np.shape(layer)) for layer in params)
        if shapes != self.shapes:
            raise ValueError(
                f"{where}: params of the form '{self.form}' must have shapes {self.shapes}, but has {shapes}."
            )
        if self.form == "symmetric" and is_concrete(params[1]):
            inner = np.asarray(params[1])
            largest = SYMMETRIC * max(1.0, float(np.abs(inner).max()))
            _require(f"{where}: a symmetric transition matrix", float(np.abs(inner - inner.T).max()), largest)

    def _parts(self, params: Params) -> System:
        """The system, but with a diagonal transition as a column."""
        if self.form in ("diagonal", "tied"):
            output = params[0].T if self.form == "tied" else params[2]
            return System(params[1], params[0], output)
        return self.system(params)

    def _powers(self, transition: Matrix, start: Matrix) -> Float[Array, "length states columns"]:
        """Images of `start` under the powers of the transition, from the 0th on."""
        if self.form in ("diagonal", "tied"):
            return _powers_of(transition[:, 0], self.length)[:, :, None] * start

        def step(block: Matrix, _: None) -> tuple[Matrix, Matrix]:
            return transition @ block, block

        return scan(step, start, None, length=self.length)[1]


def _powers_of(values: Float[Array, " states"], count: int) -> Float[Array, "count states"]:
    """Powers 0, 1, ..., each made of the last by few long products instead of many short ones."""
    powers, high = xp.ones_like(values)[None], values
    while len(powers) < count:
        powers = xp.concatenate([powers, powers * high])
        high = high * high
    return powers[:count]


def checked_system(where: str, system: Any) -> System:
    """Three matrices that fit together, or a refusal."""
    check_x64(where)
    if not isinstance(system, tuple | list) or len(system) != 3:
        raise ValueError(f"{where}: system must be the three matrices A, B, C, but is {type(system).__name__}.")
    names = ("A", "B", "C")
    matrices = [xp.asarray(checked_layer(where, n, m), dtype=float) for n, m in zip(names, system, strict=True)]
    for name, matrix in zip(names, matrices, strict=True):
        check_shape(where, name, matrix, (None, None))
        check_finite(where, name, matrix)
    size = matrices[0].shape[0]
    for name, matrix, shape in zip(names, matrices, ((size, size), (size, None), (None, size)), strict=True):
        check_shape(where, name, matrix, shape)
    if 0 in matrices[1].shape or 0 in matrices[2].shape:
        raise ValueError(f"{where}: system must have at least one state, input and output.")
    return System(*matrices)


def _transposed(transition: Matrix) -> Matrix:
    return transition if transition.shape[0] != transition.shape[1] else transition.T


def _require(hypothesis: str, residual: float, tolerance: float, advice: str = "Take another form.") -> None:
    if not residual <= tolerance:
        raise HypothesisError(hypothesis, residual, tolerance, advice)
