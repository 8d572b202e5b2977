"""`dln geodesic`: a geodesic between two matrices in the metric of a depth."""

import csv
import math
from pathlib import Path
from typing import Any

from deeplinear.cli._files import read_array
from deeplinear.cli._options import MOST_ENTRIES, MOST_LAYERS, Kind, count, read_kind
from deeplinear.cli._shell import Code, UsageError, numerics, output_kept_pure, print_json, print_table, say

NAME = "geodesic"
"""Stem of the files that are written."""


def _read_depth(value: str) -> float:
    return math.inf if value.strip().lower() in ("inf", "infinity", "∞") else count(at_most=MOST_LAYERS).read(value)


DEPTH = Kind(f"a positive whole number of at most {MOST_LAYERS}, or inf", "N", _read_depth)
"""A number of layers."""


def geodesic_command(
    start: str,
    end: str,
    depth: str,
    normalised: bool,
    points: str,
    out: str,
    no_plot: bool,
    as_json: bool,
) -> Code:
    """Find the geodesic, say how long it is and how exact, write its path and picture; gives the exit code."""
    layers, number = (
        read_kind(DEPTH, depth, "--depth"),
        read_kind(count(at_least=2, at_most=MOST_ENTRIES), points, "--points"),
    )
    first, last = (read_array(path, name) for path, name in ((start, "A"), (end, "B")))
    numerics()
    import numpy as np

    from deeplinear.cli._shell import drop_others, folder, keep_inputs, pictures
    from deeplinear.geometry import geodesic_between

    place = folder(out)
    known = [place / f"{NAME}.csv", *pictures(place / NAME)]
    keep_inputs(known, {"A": start, "B": end})
    try:
        with output_kept_pure():
            found = geodesic_between(first, last, layers, normalised=normalised)
            path = found.path(np.linspace(0.0, 1.0, number)) if found.converged else None
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    files = [] if path is None else [_write(place / f"{NAME}.csv", path)]
    if path is not None and not no_plot:
        files += _draw(place, path, f"{Path(start).name} to {Path(end).name}, depth {_word(layers)}")
    drop_others(known, files)
    code = Code.fine if found.converged else Code.numerical
    told: dict[str, Any] = {
        "length": float(found.length),
        "lower_bound": float(found.lower_bound),
        "residual": float(found.residual),
        "case": found.case,
        "angle": float(found.angle),
    }
    if as_json:
        head = {"ok": found.converged, "command": "geodesic", "exit_code": int(code), "depth": _word(layers)}
        drifts = None if path is None else _drifts(path)
        body = {
            name: value if not isinstance(value, float) or math.isfinite(value) else None
            for name, value in told.items()
        }
        body |= {"normalised": normalised or math.isinf(layers), "momentum": np.asarray(found.momentum).tolist()}
        notes = [text for text in (found.warning, "" if found.converged else found.message) if text]
        print_json(head | body | {"drifts": drifts, "notes": notes, "files": [str(file) for file in files]})
    else:
        rows = [("length", f"{told['length']:.12g}")] if found.converged else []
        rows += [
            ("at least", f"{told['lower_bound']:.12g}   (bound by the singular values)"),
            ("end missed by", f"{told['residual']:.1e}   (largest entry)"),
            ("rotation", f"{told['angle'] / math.pi:.4g} π   (largest angle between the orthogonal factors)"),
        ]
        if path is not None:
            rows.append(("found by", found.message + (" No closed form is known." if found.case == "numeric" else "")))
            worst = max(_drifts(path).values())
            rows.append(("conserved to", f"{worst:.1e}   (largest relative drift along the path)"))
        print_table(rows, title=f"{start} to {end} at depth {_word(layers)}{', normalised' if normalised else ''}")
        if found.warning:
            print_table([("note", found.warning)])
        if files:
            print_table([("written", str(file)) for file in files])
    if not found.converged:
        say(f"dln: {found.message}")
    return code


def _word(depth: float) -> Any:
    return "infinity" if math.isinf(depth) else int(depth)


def _drifts(path: Any) -> dict[str, float]:
    """Largest relative drift of each conserved quantity along the path."""
    found = path.monitors()
    return {name: float(getattr(found, name)) for name in ("energy", "left", "right", "dilation", "cone")}


def _write(file: Path, path: Any) -> Path:
    """Times, entries row by row, singular values, largest first."""
    import numpy as np

    size = path.points.shape[-1]
    names = [f"x{i + 1}_{j + 1}" for i in range(size) for j in range(size)] + [f"s{i + 1}" for i in range(size)]
    values = np.linalg.svd(np.asarray(path.points), compute_uv=False)
    rows = np.column_stack([np.asarray(path.times), np.asarray(path.points).reshape(len(path.times), -1), values])
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["t", *names])
        writer.writerows([[f"{number:.17g}" for number in row] for row in rows])
    return file


def _draw(place: Path, path: Any, title: str) -> list[Path]:
    from deeplinear.plots import plot_geodesic, save_figure

    try:
        return save_figure(plot_geodesic(path, title=title), place / NAME)
    except (ImportError, ValueError) as error:
        say(f"dln: the path is written, but there is no picture: {error}")
        return []
