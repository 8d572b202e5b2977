r"""How far a balanced network can be off beyond the length it was trained on.

A balanced student has a positive spectral measure $\mu$ with the moments $h_j$, and a teacher with $n$ active
eigenvalues $\lambda_i$ has $\hat\mu$ with the moments $w_j$. Let $P(x) = \prod_i(x - \lambda_i)^2$ and let $q_j$ be the
Hermite interpolant of $x^j$ at the doubled eigenvalues. Then $x^j - q_j$ is $P$ times a divided difference, which is at
most $D_j$ on $[-R, R]$. As $P \ge 0$ vanishes on the teacher's spectrum, residuals $r = h - w$ of the first $2n + 1$
entries bound all others:

$$|h_j - w_j| \le \Big|\sum_{i<2n} q_{j,i}r_i\Big| + D_j\sum_{i\le2n}P_ir_i \le K_j\|r\|,\qquad
K_j = \|q_j\| + D_j\|P\|.$$

The error is linear in the root of the loss. Neither stability nor a distance between eigenvalues enters, except through
the size of $K_j$. Coefficients are computed in exact integer arithmetic, for their sums cancel, and rounded once.

Losses: under `"half_sum_sq"`, the convention of this library, the loss is $\tfrac12\|r\|^2$, under `"sum_sq"` it is
$\|r\|^2$.
"""

import math
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
import numpy as np
from jaxtyping import Float

from deeplinear.core import (
    Array,
    HypothesisError,
    as_array,
    check_count,
    check_finite,
    check_number,
    check_shape,
    check_x64,
    checked_layer,
    entry,
    formula,
    holds_arrays,
    near_name,
    xp,
)
from deeplinear.models import checked_system
from deeplinear.recurrent._measure import NEGATIVE
from deeplinear.recurrent._response import symmetric_transition

LossScale = Literal["half_sum_sq", "sum_sq"]


@holds_arrays
class Certificate(eqx.Module):
    r"""Bounds on the error of balanced students at a teacher's eigenvalues; made by `certificate`.

    Attributes:
        atoms: $\lambda_i$, active eigenvalues of the teacher.
        length: $k$, entries of the response that are known; at least $2n + 1$.
        radius: $R$, bound on the eigenvalues of teacher and student.
        annihilator: Coefficients of $P$, from the constant up.
        interpolants: Coefficients of $q_j$ in row $j$, from the constant up.
        remainders: $D_j$.
        constants: $K_j$; 1 for the known entries $j < k$.
        binomial_constants: The simpler and larger ones with $\binom{j}{2n}R^{j-2n}$ in place of $D_j$.
    """

    atoms: Float[Array, " n"]
    length: int = eqx.field(static=True)
    radius: Float[Array, ""]
    annihilator: Float[Array, " terms"]
    interpolants: Float[Array, "horizon double"]
    remainders: Float[Array, " horizon"]
    constants: Float[Array, " horizon"]
    binomial_constants: Float[Array, " horizon"]

    def leak(self, residuals: Any) -> Float[Array, ""]:
        r"""$\sum_iP_ir_i = \int\prod_i(x - \lambda_i)^2\,d\mu \ge 0$: mass of the student off the teacher's spectrum.

        Args:
            residuals: $h_j - w_j$ for $j < k$ of a balanced student.
        """
        return _leak(self, self._known("Certificate.leak", residuals))

    def bounds(self, residuals: Any) -> Float[Array, " horizon"]:
        r"""Largest errors $|h_j - w_j|$ that the residuals of the first $k$ entries leave possible.

        The residuals themselves for $j < k$. An allowance for rounding of the sums is added.

        Args:
            residuals: $h_j - w_j$ for $j < k$ of a balanced student with eigenvalues in $[-R, R]$.
        """
        return _bounds(self, self._known("Certificate.bounds", residuals))

    def bounds_from_loss(self, loss: Any, *, loss_scale: LossScale = "half_sum_sq") -> Float[Array, " horizon"]:
        r"""$K_j\|r\|$: largest errors that a loss leaves possible.

        Args:
            loss: Value of the loss on the first $k$ entries.
            loss_scale: Whether that is $\tfrac12\|r\|^2$ or $\|r\|^2$.
        """
        where = "Certificate.bounds_from_loss"
        check_number(where, "loss", loss, at_least=0)
        return _prior_bounds(self, loss, _factor(where, loss_scale))

    def sufficient_loss(self, error: Any, *, loss_scale: LossScale = "half_sum_sq") -> Float[Array, ""]:
        r"""$\delta$: losses up to this one have errors of at most $\varepsilon$ at all $j$ below the horizon.

        $\|r\|^2 = (\varepsilon/\max_jK_j)^2$.

        Args:
            error: $\varepsilon$.
            loss_scale: Whether the loss is $\tfrac12\|r\|^2$ or $\|r\|^2$.
        """
        where = "Certificate.sufficient_loss"
        check_number(where, "error", error, above=0)
        return _sufficient(self, error, _factor(where, loss_scale))

    def _known(self, where: str, residuals: Any) -> Float[Array, " length"]:
        array = as_array(checked_layer(where, "residuals", residuals), float)
        check_shape(where, "residuals", array, (self.length,))
        check_finite(where, "residuals", array)
        return array


@formula
def _leak(found: Certificate, residuals: Float[Array, " length"]) -> Float[Array, ""]:
    return residuals[: len(found.annihilator)] @ found.annihilator


@formula
def _bounds(found: Certificate, residuals: Float[Array, " length"]) -> Float[Array, " horizon"]:
    known, double = residuals[: len(found.annihilator)], found.interpolants.shape[1]
    rounding = 2 * (double + 1) * float(np.finfo(float).eps)
    inner = xp.abs(found.interpolants @ known[:double])
    inner += rounding * (xp.abs(found.interpolants) @ xp.abs(known[:double]))
    leak = xp.abs(known @ found.annihilator) + rounding * (xp.abs(known) @ xp.abs(found.annihilator))
    beyond = (inner + found.remainders * leak)[found.length :]
    return xp.concatenate([xp.abs(residuals), beyond])[: len(found.constants)]


@formula
def _prior_bounds(found: Certificate, loss: Any, factor: Any) -> Float[Array, " horizon"]:
    return found.constants * xp.sqrt(factor * xp.asarray(loss, dtype=float))


@formula
def _sufficient(found: Certificate, error: Any, factor: Any) -> Float[Array, ""]:
    return (xp.asarray(error, dtype=float) / xp.max(found.constants)) ** 2 / factor


class Certified(NamedTuple):
    """What a certificate says of one student, beside what it does.

    Attributes:
        certificate: The constants.
        residuals: $h_j - w_j$ of the known entries.
        leak: Mass of the student off the teacher's spectrum.
        bounds: Largest possible error of each entry, from the residuals.
        prior_bounds: The same from the loss alone.
        errors: $|h_j - w_j|$ as they are.
    """

    certificate: Certificate
    residuals: Float[Array, " length"]
    leak: Float[Array, ""]
    bounds: Float[Array, " horizon"]
    prior_bounds: Float[Array, " horizon"]
    errors: Float[Array, " horizon"]


class MomentChain(NamedTuple):
    """Steps from a loss to a moment by way of the Wasserstein distance.

    Attributes:
        gap: Largest difference of the first normalised moments, the spectrum scaled to [-1, 1].
        distance: Bound on the Wasserstein-1 distance of the normalised measures.
        moment: Bound on the difference of one normalised moment.
    """

    gap: Float[Array, ""]
    distance: Float[Array, ""]
    moment: Float[Array, ""]


@entry(instead="call it outside of jit, vmap and grad; the bounds of the certificate take traced residuals")
def certificate(atoms: Any, length: int, horizon: int, *, radius: Any = None) -> Certificate:
    r"""Constants that bound the errors of balanced students beyond the known entries.

    Divided differences of $x^j$ are complete homogeneous symmetric polynomials of the doubled eigenvalues, which give
    $q_j$ in Newton's form and $D_j = \sum_{i\le m}|H_{m-i}|R^i$ with $m = j - 2n$.

    Args:
        atoms: $\lambda_i$, distinct active eigenvalues of the teacher.
        length: $k$, number of entries known, at least $2n + 1$.
        horizon: Entries $j$ below this are bounded.
        radius: $R$, bound on the sizes of all eigenvalues of student and teacher; that of the atoms by default.

    Returns:
        The certificate.

    Raises:
        HypothesisError: $k < 2n + 1$, repeated atoms, or an atom beyond the radius.

    Example:
        >>> found = certificate([0.9, -0.5], 5, 20, radius=1.0)
        >>> round(float(found.constants[5]), 2), round(float(found.sufficient_loss(0.1, loss_scale="sum_sq")), 7)
        (4.26, 6.8e-06)
    """
    where = "certificate"
    check_x64(where)
    nodes = _checked_atoms(where, atoms)
    n = len(nodes)
    check_count(where, "length", length, at_least=1)
    check_count(where, "horizon", horizon, at_least=1)
    if length < 2 * n + 1:
        advice = "One entry less, and some balanced student fits all of them and does not extrapolate."
        raise HypothesisError(f"at least 2n + 1 = {2 * n + 1} known entries", 2 * n + 1 - length, 0, advice)
    if radius is None:
        radius = float(np.abs(nodes).max())
    check_number(where, "radius", radius, at_least=0)
    beyond = float(np.abs(nodes).max()) - float(radius)
    if beyond > 0:
        raise HypothesisError("a radius that holds all eigenvalues of the teacher", beyond, 0, "Make it larger.")
    try:
        exact = _exact_coefficients(nodes, float(radius), int(horizon))
    except OverflowError:
        raise ValueError(
            f"{where}: horizon must be less than {horizon} at radius {float(radius):g}; the constants overflow."
        ) from None
    annihilator, interpolants, remainders, binomial = exact
    slope, size = np.linalg.norm(interpolants, axis=1), np.linalg.norm(annihilator)
    known = np.arange(horizon) < length
    return Certificate(
        atoms=xp.asarray(nodes, dtype=float),
        length=int(length),
        radius=xp.asarray(radius, dtype=float),
        annihilator=xp.asarray(annihilator, dtype=float),
        interpolants=xp.asarray(interpolants, dtype=float),
        remainders=xp.asarray(remainders, dtype=float),
        constants=xp.asarray(np.where(known, 1.0, slope + remainders * size), dtype=float),
        binomial_constants=xp.asarray(np.where(known, 1.0, slope + binomial * size), dtype=float),
    )


@entry(instead="call it outside of jit, vmap and grad, or trace impulse_response of student and teacher")
def certify(student: Any, atoms: Any, weights: Any, length: int, horizon: int, *, radius: Any = None) -> Certified:
    r"""Bounds on the errors of one student, beside the errors themselves.

    Args:
        student: $A$, $B$, $C$ with symmetric $A$, one input, one output and a positive spectral measure, as with
            $C = B^\top$.
        atoms: Active eigenvalues $\lambda_i$ of the teacher.
        weights: Positive weights of the atoms: $w_j = \sum_ip_i\lambda_i^j$.
        length: $k$, number of entries known, at least $2n + 1$.
        horizon: Entries below this are bounded, more than the known ones.
        radius: $R$; by default the largest eigenvalue of student and teacher.

    Raises:
        HypothesisError: A student that is not symmetric or whose measure is not positive; weights that are not
            positive; or what `certificate` refuses.

    Example:
        >>> column = jnp.array([[0.8], [0.6], [0.1]])
        >>> found = certify((jnp.diag(jnp.array([0.9, -0.5, 0.0])), column, column.T), [0.9, -0.5], [0.64, 0.36], 5, 12)
        >>> round(float(found.leak), 9), bool(np.all(found.errors <= found.bounds))
        (0.002025, True)
    """
    where = "certify"
    nodes = _checked_atoms(where, atoms)
    mass = np.asarray(checked_layer(where, "weights", weights), dtype=float)
    check_shape(where, "weights", mass, nodes.shape)
    check_finite(where, "weights", mass)
    if float(mass.min()) <= 0:
        raise HypothesisError("positive weights of the teacher's atoms", float(-mass.min()), 0.0, "Drop idle ones.")
    check_count(where, "length", length, at_least=1)
    check_count(where, "horizon", horizon, at_least=length + 1)
    eigenvalues, spectral = _positive_measure(where, student)
    largest = max(float(np.abs(nodes).max()), float(np.abs(eigenvalues).max()))
    if radius is None:
        radius = largest
    check_number(where, "radius", radius, at_least=0)
    if float(radius) < largest:
        advice = "The bound holds for students within the radius; make it larger."
        raise HypothesisError("a radius that holds all eigenvalues", largest - float(radius), 0.0, advice)
    found = certificate(nodes, length, horizon, radius=radius)
    difference = _powers(eigenvalues, horizon) @ spectral - _powers(nodes, horizon) @ mass
    check_finite(where, "the response up to the horizon", difference)
    residuals = xp.asarray(difference[:length], dtype=float)
    return Certified(
        certificate=found,
        residuals=residuals,
        leak=found.leak(residuals),
        bounds=found.bounds(residuals),
        prior_bounds=found.bounds_from_loss(np.sum(difference[:length] ** 2), loss_scale="sum_sq"),
        errors=xp.asarray(np.abs(difference), dtype=float),
    )


@entry(instead="call it outside of jit, vmap and grad; it refuses losses by their value")
def moment_gap(response: Any, loss: Any, *, loss_scale: LossScale = "half_sum_sq") -> Float[Array, " length"]:
    r"""Bound on the difference of normalised moments $m_j = h_j/h_0$ and $\hat m_j = w_j/w_0$ from the loss.

    $|m_j - \hat m_j| \le \sqrt{1 + \hat m_j^2}\,\frac{\|r\|}{w_0 - \|r\|}$ for $1 \le j < k$, whatever the student.

    Args:
        response: $w_0, \dots, w_{k-1}$ of the teacher, with $w_0 > 0$.
        loss: Value of the loss.
        loss_scale: Whether that is $\tfrac12\|r\|^2$ or $\|r\|^2$.

    Returns:
        One bound for each entry; 0 for the first, which both have in common.

    Raises:
        HypothesisError: $w_0 \le 0$, or a loss so large that $\|r\| \ge w_0$.

    Example:
        >>> moment_gap([1.0, 0.0], 0.01, loss_scale="sum_sq").round(6)
        array([0.      , 0.111111])
    """
    where = "moment_gap"
    check_x64(where)
    w = np.asarray(checked_layer(where, "response", response), dtype=float)
    check_shape(where, "response", w, (None,))
    check_finite(where, "response", w)
    check_number(where, "loss", loss, at_least=0)
    if len(w) == 0:
        raise ValueError(f"{where}: response must have at least one entry, but is empty.")
    if not w[0] > 0:
        raise HypothesisError("a positive first entry w_0 of the response", float(-w[0]), 0.0)
    size = math.sqrt(_factor(where, loss_scale) * float(loss))
    if not size < w[0]:
        advice = "The student's first entry may be zero then; train longer."
        raise HypothesisError("residuals smaller than w_0", size, float(w[0]), advice)
    bound = np.hypot(1.0, w / w[0]) * size / (w[0] - size)
    return xp.asarray(np.where(np.arange(len(w)) == 0, 0.0, bound), dtype=float)


@entry(instead="call it outside of jit, vmap and grad; it refuses losses by their value")
def moment_chain(
    response: Any,
    loss: Any,
    order: int,
    degree: int,
    *,
    radius: Any,
    constant: Any,
    loss_scale: LossScale = "half_sum_sq",
) -> MomentChain:
    r"""From a loss to a moment by way of the Wasserstein distance.

    Moments up to $2n$ that differ by at most $\eta$ on $[-1, 1]$ have $W_1 \le c\,n\,\eta^{1/(2n)}$, and
    $|m_j - \hat m_j| \le jR^{j-1}W_1$. (The Wasserstein distance of order $j$ itself is no such bound: for unit masses
    at 1 and 0.9 it is 0.1, and the fifth moments differ by 0.41.) The constant $c$ is not known; in trials up to
    $n = 3$ none above 1.21 was met. So this is for orientation, and `certificate` for proof.

    Args:
        response: $w_0, \dots, w_{k-1}$ of the teacher, with $w_0 > 0$ and $k \ge 2n + 1$.
        loss: Value of the loss.
        order: $n$, active eigenvalues of the teacher.
        degree: $j$.
        radius: $R$, bound on the eigenvalues of student and teacher.
        constant: $c$.
        loss_scale: Whether the loss is $\tfrac12\|r\|^2$ or $\|r\|^2$.

    Raises:
        HypothesisError: What `moment_gap` refuses, or $k < 2n + 1$.

    Example:
        >>> found = moment_chain([1.0, 0.0, 0.0], 1e-8, 1, 3, radius=1.0, constant=1.0, loss_scale="sum_sq")
        >>> [round(float(value), 5) for value in found]
        [0.0001, 0.01, 0.03]
    """
    where = "moment_chain"
    check_count(where, "order", order, at_least=1)
    check_count(where, "degree", degree, at_least=1)
    check_number(where, "radius", radius, above=0)
    check_number(where, "constant", constant, above=0)
    gaps = moment_gap(response, loss, loss_scale=loss_scale)
    if len(gaps) < 2 * order + 1:
        raise HypothesisError(f"at least 2n + 1 = {2 * order + 1} known entries", 2 * order + 1 - len(gaps), 0)
    scale = xp.asarray(radius, dtype=float)
    gap = xp.max(gaps[: 2 * order + 1] / scale ** xp.arange(2 * order + 1.0))
    distance = scale * xp.asarray(constant, dtype=float) * order * gap ** (1 / (2 * order))
    return MomentChain(gap, distance, degree * scale ** (degree - 1.0) * distance)


def _factor(where: str, loss_scale: str) -> int:
    """The squared norm of the residuals over the loss."""
    options = get_args(LossScale)
    if loss_scale not in options:
        raise ValueError(f"{where}: loss_scale is '{loss_scale}'. {near_name(loss_scale, options)}")
    return 2 if loss_scale == "half_sum_sq" else 1


def _checked_atoms(where: str, atoms: Any) -> np.ndarray:
    nodes = np.asarray(checked_layer(where, "atoms", atoms), dtype=float)
    check_shape(where, "atoms", nodes, (None,))
    check_finite(where, "atoms", nodes)
    if len(nodes) == 0:
        raise ValueError(f"{where}: atoms must hold at least one eigenvalue, but is empty.")
    repeated = len(nodes) - len(np.unique(nodes))
    if repeated:
        raise HypothesisError("distinct atoms", repeated, 0, "Merge those that are equal.")
    return nodes


def _positive_measure(where: str, student: Any) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and spectral weights of a symmetric system with one input and one output."""
    transition, first, output = (np.asarray(matrix) for matrix in checked_system(where, student))
    if first.shape[1] != 1 or output.shape[0] != 1:
        raise ValueError(
            f"{where}: student must have one input and one output, but has {first.shape[1]} and {output.shape[0]}."
        )
    eigenvalues, basis = np.linalg.eigh(symmetric_transition(where, transition))
    spectral = (output @ basis)[0] * (basis.T @ first)[:, 0]
    negative = float(np.maximum(-spectral, 0).max())
    tolerance = NEGATIVE * float(np.abs(spectral).sum())
    if negative > tolerance:
        advice = "Negative spectral weights: the student is not balanced, and may do anything beyond what is known."
        raise HypothesisError("a balanced student", negative, tolerance, advice)
    return eigenvalues, spectral


def _powers(nodes: np.ndarray, count: int) -> np.ndarray:
    """Rows of powers 0 to count - 1."""
    rows = np.ones((count, len(nodes)))
    rows[1:] = nodes
    with np.errstate(over="ignore", invalid="ignore"):
        return np.cumprod(rows, axis=0)


def _exact_coefficients(
    atoms: np.ndarray, radius: float, horizon: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """$P$, the $q_j$, the $D_j$ and their binomial bounds, rounded once.

    All numbers are integers over a power of 2: in units of the smallest place, a quantity of degree $s$ in the
    eigenvalues is an integer over the $s$-th power of the unit's inverse.
    """
    ratios = [float(x).as_integer_ratio() for x in (*atoms, radius)]
    places = max(denominator.bit_length() - 1 for _, denominator in ratios)
    *integers, reach = [numerator << (places - denominator.bit_length() + 1) for numerator, denominator in ratios]
    nodes = [x for x in integers for _ in range(2)]
    double = len(nodes)

    newton = [[1]]  # coefficients of the products of x - node, from the constant up
    for x in nodes:
        last = newton[-1]
        newton.append([b - x * a for a, b in zip([*last, 0], [0, *last], strict=True)])
    symmetric = []  # row i: complete homogeneous polynomials of the nodes up to i
    row = [1] + [0] * (horizon - 1)
    for x in nodes:
        row = row.copy()
        for s in range(1, horizon):
            row[s] += x * row[s - 1]
        symmetric.append(row)

    def rounded(value: int, degree: int) -> float:
        return value / (1 << (places * degree))

    annihilator = np.array([rounded(c, double - power) for power, c in enumerate(newton[double])])
    interpolants = np.zeros((horizon, double))
    remainders, binomial = np.zeros(horizon), np.zeros(horizon)
    remainder, power = 0, 1
    for j in range(horizon):
        for c in range(min(double, j + 1)):
            total = sum(symmetric[i][j - i] * newton[i][c] for i in range(c, min(double, j + 1)))
            interpolants[j, c] = rounded(total, j - c)
        if j >= double:
            m = j - double
            remainder = abs(symmetric[-1][m]) + reach * remainder
            remainders[j] = rounded(remainder, m)
            binomial[j] = rounded(math.comb(j, double) * power, m)
            power *= reach
    return annihilator, interpolants, remainders, binomial
