"""`dln diagnose`: what theory says about a network of one's own."""

from pathlib import Path
from typing import Any

from deeplinear.cli._files import names_in, read_array
from deeplinear.cli._limits import HEADS, STEPS
from deeplinear.cli._lines import TEXT
from deeplinear.cli._options import count, read_kind
from deeplinear.cli._shell import (
    Code,
    UsageError,
    numerics,
    one_line,
    output_kept_pure,
    print_json,
    print_table,
    say,
    to_write,
)
from deeplinear.cli._tables import read_table
from deeplinear.cli._written import Written

DATA = (("target",), ("target", "mask"), ("inputs", "outputs"))
"""Arrays that make a task: a target, a target with what is observed of it, or samples."""


def diagnose_command(
    file: str,
    data: str | None,
    target: str | None,
    mask: str | None,
    inputs: str | None,
    outputs: str | None,
    rows: bool,
    prefix: str,
    names: str | None,
    transpose: bool,
    heads: str,
    head: str,
    simulate: bool,
    claims: bool,
    no_theorems: bool,
    max_steps: str,
    page: str | None,
    force: bool,
    as_json: bool,
) -> Code:
    """Read weights and task, say what holds and what follows, compare with a run if wanted; gives the exit code."""
    number = read_kind(count(at_most=HEADS), heads, "--heads")
    which = read_kind(count(at_least=0, at_most=HEADS), head, "--head")
    steps = read_kind(count(at_most=STEPS), max_steps, "--max-steps")
    if claims and no_theorems:
        raise UsageError("--claims and --no-theorems must not both be given.")
    arrays = _arrays(data, {"target": target, "mask": mask, "inputs": inputs, "outputs": outputs})
    if not arrays and (simulate or claims):
        wanted = "--simulate" if simulate else "--claims"
        raise UsageError(f"{wanted} needs a task: give --target, --inputs and --outputs, or --data.")
    if rows and "inputs" not in arrays:
        raise UsageError("--rows must be given with inputs and outputs only.")
    if rows:
        arrays = {name: array.T for name, array in arrays.items()}
    place = None if page is None else to_write(page, "--html", ".html", ".htm")
    written = None
    if place is not None:
        named = {"--target": target, "--mask": mask, "--inputs": inputs, "--outputs": outputs}
        read = {"WEIGHTS": file, "--data": data, **named}
        written = Written("diagnose", [place], force=force, read=read, flag="--html")
    numerics()
    from deeplinear.core import NumericalError
    from deeplinear.diagnosis import diagnose, load_weights

    chosen = None if names is None else [name.strip() for name in names.split(",")]
    try:
        weights = load_weights(file, prefix=prefix, names=chosen, transpose=transpose, heads=number, head=which)
        problem = _problem(weights.widths, arrays)
        with output_kept_pure():
            found = diagnose(
                problem, weights, simulate=simulate, theorems=not no_theorems, claims=claims, max_steps=steps
            )
    except NumericalError as error:
        say(f"dln: {error}")
        return Code.numerical
    except (ValueError, TypeError, ImportError, OSError) as error:
        raise UsageError(one_line(error)) from None
    files = [] if written is None or place is None else written.write(lambda to: [_page(to / place.name, found)])
    broken = found.trajectory is not None and bool(found.trajectory.failed)
    code = Code.numerical if broken else Code.check_failed if found.disagreements else Code.fine
    if as_json:
        head_of = {"ok": code is Code.fine, "command": "diagnose", "exit_code": int(code), "file": file}
        layers = [{"name": n, "shape": list(w.shape)} for n, w in zip(weights.names, weights.params, strict=True)]
        print_json(head_of | {"layers": layers} | found.to_json() | {"files": [str(item) for item in files]})
    else:
        _tell(found, weights, files)
    if found.disagreements:
        many = len(found.disagreements)
        say(f"dln: {many} prediction{'s differ' if many > 1 else ' differs'} from the run; see the table.")
    return code


def _arrays(data: str | None, files: dict[str, str | None]) -> dict[str, Any]:
    """The arrays of the task by name, from one file or from several."""
    given = {name: path for name, path in files.items() if path is not None}
    if data is not None and given:
        raise UsageError(f"--data must be given alone, but so is --{next(iter(given))}.")
    if data is not None:
        if Path(data).suffix.lower() != ".npz":
            raise UsageError(
                f"--data must be an .npz with target, target and mask, or inputs and outputs, but is {data}."
            )
        held = names_in(data, "data")
        given = {name: data for name in files if name in held}
        if not given:
            raise UsageError(
                f"--data: {data} must hold target, target and mask, or inputs and outputs, but holds {held}."
            )
    if given and tuple(given) not in DATA:
        options = "--target, --target and --mask, or --inputs and --outputs"
        raise UsageError(f"the task must be given by {options}, but is given by {' and '.join(given)}.")
    return {name: _array(path, name) for name, path in given.items()}


def _array(path: str, name: str) -> Any:
    """One array of the task. Text may have a header line, and a target gaps."""
    if Path(path).suffix.lower() in TEXT:
        return read_table(path, f"--{name}", gaps=name == "target").values
    return read_array(path, name)


def _problem(widths: tuple[int, ...], arrays: dict[str, Any]) -> Any:
    """The problem of a task for a network of given widths; none without a task."""
    import numpy as np

    from deeplinear.models import Completion, DeepLinear, Problem, Regression, SquaredDistance

    if not arrays:
        return None
    inp, out = widths[0], widths[-1]
    if "inputs" in arrays:
        x, y = arrays["inputs"], arrays["outputs"]
        _check_shape("inputs", x, (inp, None), "a row for each input, a column for each sample")
        _check_shape("outputs", y, (out, x.shape[1]), "a row for each output, a column for each sample")
        return Problem(DeepLinear(widths), Regression.from_data(x, y))
    target = arrays["target"]
    _check_shape("target", target, (out, inp), "a row for each output of the network, a column for each input")
    mask = arrays.get("mask")
    if mask is None and np.isnan(target).any():
        mask = ~np.isnan(target)
        say("dln: entries of the target that are not numbers count as not observed.")
    if mask is None:
        return Problem(DeepLinear(widths), SquaredDistance(target))
    _check_shape("mask", mask, target.shape, "that of the target")
    return Problem(DeepLinear(widths), Completion(target, mask))


def _check_shape(name: str, array: Any, shape: tuple[int | None, ...], meaning: str) -> None:
    fits = array.ndim == 2 and all(w in (None, n) for w, n in zip(shape, array.shape, strict=True))
    if fits:
        return
    wanted = "(" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
    turned = array.ndim == 2 and all(w in (None, n) for w, n in zip(shape, array.shape[::-1], strict=True))
    advice = "give --rows if samples are rows" if name in ("inputs", "outputs") else "turn it over"
    hint = f"; its transpose would fit, {advice}" if turned else ""
    raise UsageError(f"--{name} must have shape {wanted}, {meaning}, but has shape {array.shape}{hint}.")


def _page(file: Path, found: Any) -> Path:
    """Write the diagnosis as a page."""
    file.write_text(found.to_html(), encoding="utf-8")
    return file


def _tell(found: Any, weights: Any, files: list[Path]) -> None:
    shapes = ", ".join(f"{name} {w.shape}" for name, w in zip(weights.names, weights.params, strict=True))
    print_table([("network", found.title), ("layers", shapes), ("from", weights.source)])
    for section in found.sections():
        rows: list[tuple[str, ...]] = []
        for row, remark in zip(section.rows, section.remarks, strict=True):
            text = row[1] + (f"\n{remark}" if remark else "")
            rows.append((row[0], text, *row[2:]))
        if rows:
            print_table(rows, title=section.title, header=section.header)
        else:
            print_table([("", "none")], title=section.title)
    for note in found.notes:
        print_table([("note", note)])
    if files:
        print_table([("written", str(item)) for item in files])
