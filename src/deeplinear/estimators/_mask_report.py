"""What a pattern of observed entries can say about the matrix."""

import dataclasses

import numpy as np

from deeplinear.estimators._observed import Entries
from deeplinear.models import Connectivity, entry_connectivity


@dataclasses.dataclass(frozen=True)
class MaskReport:
    """What the pattern of observed entries can say.

    Attributes:
        connectivity: Components of the graph whose edges are the observed entries.
        loose_rows: Rows that share no chain of entries with the largest component, or have no entry at all.
        loose_columns: Such columns.
        thin_rows: Rows with fewer entries than the rank that was found: it cannot be seen in them alone.
        thin_columns: Such columns.
    """

    connectivity: Connectivity
    loose_rows: np.ndarray
    loose_columns: np.ndarray
    thin_rows: np.ndarray
    thin_columns: np.ndarray

    def __str__(self) -> str:
        height, width = self.connectivity.shape
        parts = len(self.connectivity.components)
        lines = [f"{height} x {width}, " + ("connected" if parts == 1 else f"{parts} parts that are not joined")]
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
    found = entry_connectivity(entries.rows, entries.columns, entries.shape)
    main = max(found.components, key=lambda one: len(one.entries))
    loose, thin = [], []
    for size, index, part in zip(
        entries.shape, (entries.rows, entries.columns), (main.rows, main.columns), strict=True
    ):
        counts = np.bincount(index, minlength=size)
        loose.append(np.setdiff1d(np.arange(size), part))
        thin.append(np.setdiff1d(np.flatnonzero(counts < rank), loose[-1]))
    return MaskReport(found, *loose, *thin)
