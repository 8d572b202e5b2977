r"""How much longer the path of gradient flow is than it need be."""

import dataclasses
from typing import Any

import numpy as np

from deeplinear.core import HypothesisError, Matrix, check_number, entry, xp
from deeplinear.geometry._flow import matrix_flow
from deeplinear.geometry._logarithm import distance
from deeplinear.models import AbstractLoss


@dataclasses.dataclass(frozen=True)
class Inefficiency:
    """The path of a gradient flow beside the geodesic to its end.

    Attributes:
        ratio: Length of the path over the distance; at least 1, and the same whether the metric is normalised or not.
        length: Length of the path of the flow.
        distance: Distance from its start to its end.
        end: Where it ended.
        status: How: "converged", or "time limit".
    """

    ratio: float
    length: float
    distance: float
    end: Matrix
    status: str


@entry(instead="call it outside of jit, vmap and grad; distance_lower_bound can be traced")
def path_inefficiency(
    energy: AbstractLoss,
    start: Any,
    depth: float,
    *,
    time: float = 1e4,
    gradient: float = 1e-9,
    normalised: bool = False,
    rtol: float = 1e-11,
    atol: float = 1e-13,
) -> Inefficiency:
    r"""Length $\int \|\dot X\|_X\,dt$ of the path of $\dot X = -A_L[X](\nabla E)$ over the distance of its ends.

    Args:
        energy: $E$, a loss of the product.
        start: $X(0)$, square and of full rank.
        depth: $L$, a positive integer or infinity.
        time: When the flow ends, if it has not converged before.
        gradient: Norm of the gradient below which it has.
        normalised: Whether in the normalised metric; infinite depth is always so.
        rtol: Relative tolerance of the flow.
        atol: Absolute tolerance of the flow.

    Raises:
        HypothesisError: The flow does not move.
        RuntimeError: The flow came to a singular matrix or diverged.

    Example:
        >>> from deeplinear.models import SquaredDistance
        >>> target = jnp.array([[0.3, -0.9], [0.8, 0.5]])
        >>> round(path_inefficiency(SquaredDistance(target), [[1.0, 0.2], [-0.3, 0.8]], 2).ratio, 6)
        1.023361
    """
    where = "path_inefficiency"
    check_number(where, "time", time, above=0.0)
    run = matrix_flow(
        energy,
        start,
        depth,
        [time],
        normalised=normalised,
        coordinates="matrix",
        rtol=rtol,
        atol=atol,
        gradient=gradient,
        points=False,
    )
    status = run.status[0]
    if status not in ("converged", "time limit"):
        raise RuntimeError(
            f"{where}: the flow ended with status '{status}' at time {float(np.ravel(run.end_times)[0]):.6g}. Where it "
            "comes to a singular matrix the target may have a determinant of the other sign."
        )
    length = float(np.ravel(run.lengths)[-1])
    apart = distance(start, run.end, depth, normalised=normalised)
    if apart == 0:
        raise HypothesisError(f"{where}: the flow moves", float(np.ravel(run.gradients)[0]), 0.0, "It starts at rest.")
    return Inefficiency(length / apart, length, apart, xp.asarray(run.end, dtype=float), status)
