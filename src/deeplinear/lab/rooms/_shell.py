"""Files for commands that are copied from the page, written by the shell."""

from typing import Any

import numpy as np


def csv_file(name: str, matrix: Any) -> str:
    """A command that writes a matrix, or a list of numbers as a column, to a text file with all their digits."""
    table = np.asarray(matrix, dtype=float)
    rows = table[:, None] if table.ndim == 1 else table
    lines = "".join(",".join(repr(float(value)) for value in row) + r"\n" for row in rows)
    return f"printf '{lines}' > {name}"


def npz_file(name: str, **arrays: Any) -> str:
    """A command that writes arrays under their names to one file."""
    given = ", ".join(f"{key}={_written(np.asarray(value, dtype=float))}" for key, value in arrays.items())
    return f"python -c 'import numpy as np; np.savez(\"{name}\", {given})'"


def _written(matrix: np.ndarray) -> str:
    """A matrix in Python; a diagonal one by its diagonal."""
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] > 1
    if square and not np.any(matrix - np.diag(np.diag(matrix))):
        return f"np.diag({np.diag(matrix).tolist()})"
    return str(matrix.tolist())
