"""Systems, measures and teachers that statements on recurrent networks are about. In plain NumPy: the independent side.

A response has the shape (length, outputs, inputs) here, also where there is one input and one output.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import scipy.optimize

from deeplinear.core import HypothesisError, Params, xp
from deeplinear.models import Completion, LinearRNN, Problem, Regression, SquaredDistance, WhiteInputs
from deeplinear.recurrent import hankel_order, measure_from_moments

ROUNDING = 1e-12
"""Algebraic identities between numbers of order one."""

POLISHED = 1e-24
"""Sum of squared residuals that counts as zero."""

HORIZON = 50
"""Entries of a response that are compared."""


@dataclasses.dataclass(frozen=True)
class Matrices:
    """The three matrices of a network.

    Attributes:
        transition: A.
        first: B.
        output: C.
    """

    transition: np.ndarray
    first: np.ndarray
    output: np.ndarray

    @property
    def states(self) -> int:
        return len(self.transition)

    @property
    def parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A, B, C."""
        return self.transition, self.first, self.output

    @property
    def params(self) -> Params:
        """B, A, C: parameters of the general form."""
        return tuple(xp.asarray(matrix, dtype=float) for matrix in (self.first, self.transition, self.output))

    def response(self, length: int) -> np.ndarray:
        """CA^jB by repeated products."""
        block, entries = self.first, []
        for _ in range(length):
            entries.append(self.output @ block)
            block = self.transition @ block
        return np.array(entries)

    def turned(self, frame: np.ndarray) -> "Matrices":
        """The same network in another orthonormal basis of the states; a symmetric one stays so to the last digit."""
        inner = frame @ self.transition @ frame.T
        if np.array_equal(self.transition, self.transition.T):
            inner = (inner + inner.T) / 2
        if np.array_equal(self.first, self.output.T):
            first = frame @ self.first
            return Matrices(inner, first, first.T.copy())
        return Matrices(inner, frame @ self.first, self.output @ frame.T)

    def padded(self, states: int) -> "Matrices":
        """With further states that nothing reaches."""
        more = states - self.states
        return Matrices(
            np.pad(self.transition, (0, more)),
            np.pad(self.first, ((0, more), (0, 0))),
            np.pad(self.output, ((0, 0), (0, more))),
        )


@dataclasses.dataclass(frozen=True)
class Pair:
    """A student beside a teacher that is known by its measure.

    Attributes:
        student: The student, with one input and one output.
        atoms: Active eigenvalues of the teacher.
        weights: Their weights.
        length: k, number of samples that are known.
    """

    student: Matrices
    atoms: np.ndarray
    weights: np.ndarray
    length: int

    @property
    def order(self) -> int:
        return len(self.atoms)

    def target(self, length: int) -> np.ndarray:
        """Moments of the teacher's measure."""
        return moments(self.atoms, self.weights, length)

    def residuals(self, length: int) -> np.ndarray:
        """h_j − w_j."""
        return self.student.response(length)[:, 0, 0] - self.target(length)

    @property
    def loss(self) -> float:
        """Sum of squared residuals of the known samples."""
        return float(np.sum(self.residuals(self.length) ** 2))


def powers(points: np.ndarray, count: int) -> np.ndarray:
    """Rows of powers 0, 1, …; 0⁰ is 1."""
    return np.asarray(points)[None, :] ** np.arange(count)[:, None]


def moments(atoms: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """∫x^j dμ for j below a count."""
    return powers(atoms, count) @ weights


def largest(array: np.ndarray) -> float:
    """Largest size of an entry."""
    return float(np.max(np.abs(array), initial=0.0))


def asymmetry(system: Matrices) -> float:
    """How far A is from symmetric."""
    return largest(system.transition - system.transition.T)


def imbalance(system: Matrices) -> float:
    """How far C is from Bᵀ; infinite where they have different shapes."""
    if system.first.shape != system.output.T.shape:
        return float("inf")
    return largest(system.first - system.output.T)


def radius(system: Matrices) -> float:
    """Spectral radius of A."""
    return largest(np.linalg.eigvals(system.transition))


def tail_bounds(
    residuals: np.ndarray, atoms: np.ndarray, reach: float, *, rounding: float = 0.0, count: int = HORIZON
) -> np.ndarray:
    r"""What residuals of the first 2n + 1 moments of n atoms can become later, for another positive measure.

    With $r_j$ the polynomial that has the values and slopes of $x^j$ at the atoms and $q = \prod(x - x_i)^2$,
    $x^j = r_j(x) + q(x)g_j(x)$, where $g_j$ is the sum of all monomials of degree $j - 2n$ in
    $x, x_1, x_1, \dots, x_n, x_n$. As $q = 0$ at the atoms and the other measure is positive,
    $|h_j - w_j| \le \sum_i|r_{ji}||h_i - w_i| + \max|g_j|\sum_i|q_i||h_i - w_i|$.

    Args:
        residuals: Sizes of h_i − w_i that are known, from the first on; those beyond 2n do not count.
        atoms: x_i, distinct.
        reach: Largest size of a point of the other measure.
        rounding: Error of the first entry; that of entry j is (j + 1)·reach^j times as large, where reach exceeds 1.
        count: Number of entries.
    """
    degree = 2 * len(atoms)
    errors = rounding * (np.arange(count) + 1) * max(reach, 1.0) ** np.arange(count)
    known = errors[: degree + 1].copy()
    given = np.abs(residuals[: degree + 1])
    known[: len(given)] += given
    order = np.arange(count)[:, None]
    slopes = order * np.asarray(atoms) ** np.maximum(order - 1, 0)
    values = np.hstack([powers(atoms, count), slopes])
    remainders = np.linalg.solve(values[:degree].T, values.T).T
    square = np.poly(np.concatenate([atoms, atoms]))[::-1]
    # Sums of monomials: those of one variable more are those without it, and the variable times those of a degree less.
    sums = np.eye(1, count - degree)[0]
    for point in (reach, *np.abs(atoms), *np.abs(atoms)):
        for power in range(1, len(sums)):
            sums[power] += point * sums[power - 1]
    beyond = np.concatenate([np.zeros(degree), sums])
    return np.abs(remainders) @ known[:degree] + beyond * float(np.abs(square) @ known) + errors


def spectrum(system: Matrices) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues of the symmetric part of A, and the weights that belong to them."""
    values, vectors = np.linalg.eigh((system.transition + system.transition.T) / 2)
    return values, (system.output @ vectors)[0] * (vectors.T @ system.first)[:, 0]


# --- Draws ------------------------------------------------------------------------------------------------------------


def draw_orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    """An orthogonal matrix, all equally likely."""
    factor, triangle = np.linalg.qr(rng.standard_normal((size, size)))
    return factor * np.sign(np.diag(triangle))


def draw_system(
    rng: np.random.Generator, states: int, inputs: int = 1, outputs: int = 1, radius: float = 1.0
) -> Matrices:
    """Gaussian matrices, the transition with a given spectral radius."""
    transition = rng.standard_normal((states, states))
    transition *= radius / np.abs(np.linalg.eigvals(transition)).max()
    return Matrices(transition, rng.standard_normal((states, inputs)), rng.standard_normal((outputs, states)))


def draw_symmetric(rng: np.random.Generator, states: int, size: int = 1, radius: float = 1.0) -> Matrices:
    """A balanced network with symmetric transition and as many inputs as outputs."""
    square = rng.standard_normal((states, states))
    square = square + square.T
    first = rng.standard_normal((states, size)) / np.sqrt(states)
    return Matrices(square * (radius / np.linalg.norm(square, 2)), first, first.T.copy())


def draw_atoms(rng: np.random.Generator, count: int, low: float = -0.9, high: float = 0.9) -> np.ndarray:
    """Points one in each of equal cells, in the middle two thirds of it: at least a third of a cell apart."""
    cell = (high - low) / count
    return low + cell * (np.arange(count) + rng.uniform(1 / 6, 5 / 6, count))


def draw_weights(rng: np.random.Generator, count: int) -> np.ndarray:
    """Positive weights of mass 1, none of them small."""
    weights = rng.uniform(0.3, 1.0, count)
    return weights / weights.sum()


def diagonal(atoms: np.ndarray, weights: np.ndarray) -> Matrices:
    """The diagonal network of a measure; balanced if it is positive."""
    first = np.sqrt(np.abs(weights))[:, None]
    return Matrices(np.diag(atoms), first, (np.sign(weights)[:, None] * first).T)


def split(rng: np.random.Generator, atoms: np.ndarray, rows: np.ndarray, states: int) -> Matrices:
    """A balanced network with the response of diag(atoms), rows, rowsᵀ, every atom shared by several states.

    Each row is spread over its share of the states by a random unit vector, and the whole is turned at random.
    """
    shares = np.array_split(np.arange(states), len(atoms))
    first, diagonal_of = np.zeros((states, rows.shape[1])), np.zeros(states)
    for share, atom, row in zip(shares, atoms, rows, strict=True):
        unit = rng.standard_normal(len(share))
        first[share] = np.outer(unit / np.linalg.norm(unit), row)
        diagonal_of[share] = atom
    return Matrices(np.diag(diagonal_of), first, first.T.copy()).turned(draw_orthogonal(rng, states))


def annihilator(nodes: np.ndarray) -> np.ndarray:
    """Weights on the nodes whose moments vanish below the last degree, where they are 1: 1/∏(x_i − x_l)."""
    apart = nodes[:, None] - nodes + np.eye(len(nodes))
    return 1 / np.prod(apart, axis=1)


def polish(
    target: np.ndarray, atoms: np.ndarray, first: np.ndarray, output: np.ndarray | None = None, steps: int = 300
) -> Matrices:
    """A diagonal network fitted to the first samples of a response by nonlinear least squares.

    Args:
        target: (length, outputs, inputs).
        atoms: Diagonal of A to start from.
        first: B to start from.
        output: C to start from; tied to Bᵀ if left out.
        steps: Evaluations at most.
    """
    length, outs, ins = target.shape
    states, tied = len(atoms), output is None
    order = np.arange(length)[:, None]

    def parts(flat: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        a, b = flat[:states], flat[states : states * (1 + ins)].reshape(states, ins)
        return a, b, b if tied else flat[states * (1 + ins) :].reshape(states, outs)

    def residual(flat: np.ndarray) -> np.ndarray:
        a, b, c = parts(flat)
        return (np.einsum("ji,io,in->jon", a**order, c, b) - target).ravel()

    def slope(flat: np.ndarray) -> np.ndarray:
        a, b, c = parts(flat)
        power = a**order
        lower = order * a ** np.maximum(order - 1, 0)
        by_a = np.einsum("ji,io,in->joni", lower, c, b).reshape(-1, states)
        by_b = np.einsum("ji,io,nm->jonim", power, c, np.eye(ins))
        by_c = np.einsum("ji,in,om->jonim", power, b, np.eye(outs))
        blocks = [by_a, (by_b + by_c if tied else by_b).reshape(len(by_a), -1)]
        return np.hstack(blocks if tied else [*blocks, by_c.reshape(len(by_a), -1)])

    start = np.concatenate([atoms, first.ravel(), [] if output is None else output.T.ravel()])
    found = scipy.optimize.least_squares(
        residual,
        start,
        slope,  # pyright: ignore[reportArgumentType]
        ftol=1e-15,
        xtol=1e-15,
        gtol=1e-15,
        max_nfev=steps,
    )
    a, b, c = parts(found.x)
    return Matrices(np.diag(a), b, c.T.copy())


def draw_polished(
    rng: np.random.Generator, target: np.ndarray, states: int, *, tied: bool = True, tries: int = 20
) -> Matrices:
    """A fitted network with no loss, turned at random; the best of all starts where none gets there.

    No state is faster than 1: the rounding of the weight of an idle state is multiplied by its eigenvalue at each step.
    """
    _, outs, ins = target.shape
    best: tuple[float, float, Matrices] | None = None
    for _ in range(tries):
        first, output = rng.normal(0, 0.5, (states, ins)), rng.normal(0, 0.5, (outs, states))
        found = polish(target, rng.uniform(-0.8, 0.8, states), first, None if tied else output)
        loss = float(np.sum((found.response(len(target)) - target) ** 2))
        excess = max(radius(found) - 1.0, 0.0)
        if best is None or (excess, loss) < best[:2]:
            best = (excess, loss, found)
        if excess == 0.0 and loss < POLISHED / 4:
            break
    assert best is not None
    return best[2].turned(draw_orthogonal(rng, states))


# --- Given problems ---------------------------------------------------------------------------------------------------


def adopt_system(problem: Problem, params: Params) -> Matrices:
    """The network that given parameters stand for."""
    if not isinstance(problem.model, LinearRNN):
        raise HypothesisError("a recurrent network", 1.0, 0.0, "The model of the problem is another one.")
    return Matrices(*(np.asarray(matrix) for matrix in problem.model.system(params)))


def adopt_target(problem: Problem) -> np.ndarray:
    """Samples of the response that the loss of a recurrent network asks for, (k, outputs, inputs)."""
    model, loss = problem.model, problem.loss
    if not isinstance(model, LinearRNN):
        raise HypothesisError("a recurrent network", 1.0, 0.0, "The model of the problem is another one.")
    if isinstance(loss, Regression):
        target, seen = np.asarray(loss.solution), np.ones(model.product_shape)
    elif isinstance(loss, SquaredDistance | WhiteInputs | Completion):
        target, seen = np.asarray(loss.target), np.ones(model.product_shape)
        if isinstance(loss, WhiteInputs):
            seen = seen * np.asarray(loss.active)
        if isinstance(loss, Completion):
            seen = np.asarray(loss.mask)
    else:
        raise HypothesisError("a loss that asks for a response", 1.0, 0.0, "Of this one the response is not known.")
    shape = (model.outputs, model.length, model.inputs)
    known = np.moveaxis(seen.reshape(shape), 1, 0).reshape(model.length, -1)
    length = int(np.sum(known.all(axis=1)))
    scattered = int(np.sum(known[length:] != 0)) + int(np.sum(known[:length] == 0))
    if scattered or not length:
        raise HypothesisError("samples from the first on, without gaps", float(scattered or 1), 0.0)
    return np.moveaxis(target.reshape(shape), 1, 0)[:length]


def adopt_pair(problem: Problem, params: Params) -> Pair:
    """A student beside the teacher that its target determines: few enough atoms for the number of samples."""
    student, target = adopt_system(problem, params), adopt_target(problem)
    if target.shape[1:] != (1, 1):
        raise HypothesisError("one input and one output", float(max(target.shape[1:])), 1.0)
    numbers = target[:, 0, 0]
    order = hankel_order(numbers) if largest(numbers) > 0 else 0
    if not 0 < 2 * order < len(numbers):
        raise HypothesisError("more samples than twice the order of the teacher", float(2 * order + 1), len(numbers))
    measure = measure_from_moments(numbers, order)
    return Pair(student, np.asarray(measure.atoms), np.asarray(measure.weights), len(numbers))


def worst(values: Sequence[float]) -> float:
    """The largest; what is not a number is infinite."""
    return max((float("inf") if np.isnan(value) else float(value) for value in values), default=0.0)
