"""`dln geodesic`: a geodesic between two matrices in the metric of a depth."""

import csv
import math
from pathlib import Path
from typing import Any

from deeplinear.cli._files import read_array
from deeplinear.cli._limits import FORMULA_LAYERS, POINTS, check_memory
from deeplinear.cli._options import Kind, count, read_kind
from deeplinear.cli._shell import Code, UsageError, numerics, output_kept_pure, print_json, print_table, say
from deeplinear.cli._written import Written

PATHS = 20
"""Arrays of the size of the path that are there at the same time, its text included."""

NAME = "geodesic"
"""Stem of the files that are written."""


CERTAIN = 1e-12
"""Relative difference of length and lower bound that is rounding: the geodesic is then proved to be the shortest."""


def _read_depth(value: str) -> float:
    return math.inf if value.strip().lower() in ("inf", "infinity", "∞") else count(at_most=FORMULA_LAYERS).read(value)


DEPTH = Kind(f"a positive whole number of at most {FORMULA_LAYERS}, or inf", "N", _read_depth)
"""A number of layers."""


def geodesic_command(
    start: str,
    end: str,
    depth: str,
    normalised: bool,
    points: str,
    out: str,
    no_plot: bool,
    force: bool,
    as_json: bool,
) -> Code:
    """Find the geodesic, say how long it is and how exact, write its path and picture; gives the exit code."""
    layers = read_kind(DEPTH, depth, "--depth")
    number = read_kind(count(at_least=2, at_most=POINTS), points, "--points")
    first, last = (_square(read_array(path, name), path, name) for path, name in ((start, "A"), (end, "B")))
    if first.shape != last.shape:
        raise UsageError(f"B: {end} must hold a matrix of the shape of A, {_shape(first)}, but holds {_shape(last)}.")
    check_memory(PATHS * number * first.size, "fewer --points")
    numerics()
    import numpy as np

    from deeplinear.cli._shell import folder, pictures

    place = folder(out)
    table, drawn = place / f"{NAME}.csv", pictures(place / NAME)
    may = [table, *(() if no_plot else drawn)]
    written = Written("geodesic", may, force=force, read={"A": start, "B": end}, others=drawn)
    from deeplinear.geometry import geodesic_between

    try:
        with output_kept_pure():
            found = geodesic_between(first, last, layers, normalised=normalised)
            path = found.path(np.linspace(0.0, 1.0, number)) if found.converged else None
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    files = [] if path is None else written.write(lambda to: [_write(to / table.name, path)])
    if path is not None and not no_plot:
        files += _draw(written, path, f"{Path(start).name} to {Path(end).name}, depth {_word(layers)}")
    written.finish(files)
    code = Code.fine if found.converged else Code.numerical
    told: dict[str, Any] = {
        "length": float(found.length),
        "lower_bound": float(found.lower_bound),
        "residual": float(found.residual),
        "shortest": bool(found.converged and found.length <= found.lower_bound * (1 + CERTAIN)),
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
            ("shortest", "yes: its length is the bound" if told["shortest"] else "not certified"),
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


def _square(matrix: Any, path: str, name: str) -> Any:
    """The matrix of a file, or a refusal that names the file."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.size == 0:
        raise UsageError(f"{name}: {path} must hold a square matrix, but holds {_shape(matrix)}.")
    return matrix


def _shape(matrix: Any) -> str:
    return " x ".join(map(str, matrix.shape)) or "one number"


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


def _draw(written: Written, path: Any, title: str) -> list[Path]:
    from deeplinear.plots import plot_geodesic, save_figure

    try:
        return written.write(lambda to: save_figure(plot_geodesic(path, title=title), to / NAME))
    except (ImportError, ValueError) as error:
        say(f"dln: the path is written, but there is no picture: {error}")
        return []
