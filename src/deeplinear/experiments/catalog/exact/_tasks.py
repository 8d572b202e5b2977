"""Tasks and starts of the figures on two-layer networks, drawn with NumPy in a fixed order so that numbers recur."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from deeplinear.core import Params, check_number, random
from deeplinear.models import DeepLinear, FromSVD, Problem, Regression, whiten

ITEMS = ("goldfish", "salmon", "canary", "robin", "kelp", "sea lettuce", "rose", "daisy")
"""Names of the items of the semantic hierarchy."""


def check_grid(where: str, name: str, values: tuple[float, ...]) -> None:
    """Refuse a list with anything that is no finite number."""
    for value in values:
        check_number(where, name, value)


class Task(NamedTuple):
    """A regression task on whitened inputs, samples in columns."""

    inputs: Float[np.ndarray, "inp samples"]
    outputs: Float[np.ndarray, "out samples"]

    @property
    def target(self) -> Float[np.ndarray, "out inp"]:
        r"""Input-output covariance $\Sigma$, the matrix to learn."""
        return self.outputs @ self.inputs.T / self.inputs.shape[1]

    @property
    def floor(self) -> float:
        """The part of the loss that no linear map can fit."""
        return 0.5 * (float(np.sum(self.outputs**2)) / self.inputs.shape[1] - float(np.sum(self.target**2)))

    def problem(self, hidden: int, *, reduced: bool = True) -> Problem:
        """The task for a network with one hidden layer."""
        widths = (self.inputs.shape[0], hidden, self.outputs.shape[0])
        return Problem(DeepLinear(widths), Regression.from_data(self.inputs, self.outputs, reduced=reduced))


def draw_task(rng: np.random.Generator, inp: int, out: int, samples: int, sigma: float) -> Task:
    r"""White inputs, then independent outputs of standard deviation $\sigma/\sqrt{d_{\mathrm{out}}}$."""
    inputs = np.asarray(whiten(rng.normal(size=(inp, samples))))
    return Task(inputs, rng.normal(size=(out, samples)) * (sigma / math.sqrt(out)))


def draw_rotation(rng: np.random.Generator, size: int) -> Float[np.ndarray, "size size"]:
    """Haar-random orthogonal matrix."""
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return q * np.sign(np.diag(r))


def layers_of(
    matrix: Float[np.ndarray, "out inp"],
    lam: float,
    rotation: Float[np.ndarray, "hidden hidden"],
    *,
    scale: float | None = None,
    match_det: Float[np.ndarray, "out inp"] | None = None,
) -> Params:
    r"""Two $\lambda$-balanced layers whose product has the leading singular modes of a matrix.

    There are as many modes as hidden units, which must be the smaller of the two widths.

    Args:
        matrix: Matrix whose singular vectors and values the product takes.
        lam: $\lambda$.
        rotation: Hidden basis.
        scale: Frobenius norm to rescale the singular values to.
        match_det: Square matrix whose sign of the determinant the product is given, by flipping its last mode.
    """
    left, values, right_t = np.linalg.svd(matrix, full_matrices=False)
    if scale is not None:
        values = values * (scale / np.linalg.norm(values))
    if match_det is not None:
        sign = np.linalg.slogdet(match_det)[0] * np.linalg.slogdet(matrix)[0]
        left = left * np.where(np.arange(len(values)) == len(values) - 1, sign, 1.0)
    hidden = rotation.shape[0]
    model = DeepLinear((matrix.shape[1], hidden, matrix.shape[0]))
    return FromSVD(left[:, :hidden], values[:hidden], right_t[:hidden].T, lam, rotation)(model, random.key(0))
