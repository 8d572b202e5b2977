"""Plain NumPy re-derivations that several test files compare with."""

import numpy as np


def hessian_of(layers: tuple, target: np.ndarray) -> np.ndarray:
    """Complex steps of a gradient made of plain products."""

    def gradient(matrices: list[np.ndarray]) -> np.ndarray:
        lefts, rights = [np.eye(target.shape[0])], [np.eye(target.shape[1])]
        for above, below in zip(reversed(matrices), matrices, strict=True):
            lefts.append(lefts[-1] @ above)
            rights.append(below @ rights[-1])
        residual, depth = rights[-1] - target, len(matrices)
        return np.concatenate([(lefts[depth - k].T @ residual @ rights[k - 1].T).ravel() for k in range(1, depth + 1)])

    columns = []
    for position, layer in enumerate(layers):
        for entry in np.ndindex(np.shape(layer)):
            moved = [np.array(other, dtype=complex) for other in layers]
            moved[position][entry] += 1e-30j
            columns.append(gradient(moved).imag / 1e-30)
    return np.stack(columns)
