"""What a pattern of observed entries can say about the matrix."""

import dataclasses

import numpy as np
import scipy.sparse
from scipy.sparse.csgraph import connected_components

from deeplinear.estimators._observed import Entries


@dataclasses.dataclass(frozen=True)
class MaskReport:
    """What the pattern of observed entries can say.

    Attributes:
        shape: Of the matrix.
        observed: Number of observed entries.
        parts: Number of components, each with an entry, of the graph that joins rows and columns by observed entries.
        loose_rows: Rows that share no chain of entries with the component of most entries, or have no entry at all.
        loose_columns: Such columns.
        thin_rows: Rows with fewer entries than the rank that was found: it cannot be seen in them alone.
        thin_columns: Such columns.
    """

    shape: tuple[int, int]
    observed: int
    parts: int
    loose_rows: np.ndarray
    loose_columns: np.ndarray
    thin_rows: np.ndarray
    thin_columns: np.ndarray

    def __str__(self) -> str:
        joined = "connected" if self.parts == 1 else f"{self.parts} parts that are not joined"
        lines = [f"{self.shape[0]} x {self.shape[1]}, {joined}"]
        for name, loose, thin in (
            ("row", self.loose_rows, self.thin_rows),
            ("column", self.loose_columns, self.thin_columns),
        ):
            if len(loose):
                lines.append(f"{_these(name, loose)} cannot be determined from the rest")
            if len(thin):
                lines.append(f"{_these(name, thin)} fewer entries than the rank found: read with care")
        return "\n".join(lines)


def _these(name: str, found: np.ndarray) -> str:
    shown = ", ".join(map(str, found[:8])) + (", …" if len(found) > 8 else "")
    return f"{len(found)} {name}{'s' if len(found) > 1 else ''} ({shown}):"


def mask_report(entries: Entries, rank: int) -> MaskReport:
    """Components, and the rows and columns that are not, or hardly, determined at a rank."""
    height, width = entries.shape
    edges = (np.ones(len(entries), dtype=np.int8), (entries.rows, height + entries.columns))
    labels = connected_components(scipy.sparse.coo_array(edges, shape=(height + width,) * 2), directed=False)[1]
    sizes = np.bincount(labels[entries.rows])
    loose, thin = [], []
    for size, index, label in (
        (height, entries.rows, labels[:height]),
        (width, entries.columns, labels[height:]),
    ):
        apart = label != np.argmax(sizes)
        loose.append(np.flatnonzero(apart))
        thin.append(np.flatnonzero((np.bincount(index, minlength=size) < rank) & ~apart))
    return MaskReport(entries.shape, len(entries), int(np.count_nonzero(sizes)), *loose, *thin)
