"""`dln landscape`: the story of a weights file."""

from pathlib import Path
from typing import Any

from deeplinear.cli._files import read_array, read_layers
from deeplinear.cli._options import SIMULATE, resolve
from deeplinear.cli._shell import Code, UsageError, numerics, output_kept_pure, print_json, print_table, say
from deeplinear.cli._written import Written
from deeplinear.readers import FileError

RUN = "run.nc"
"""The file of a run in its folder."""

OWN = ("widths", "loss", "target", "rank", "spectrum", "scale", "mask", "observed", "samples", "inputs", "outputs")
OWN = (*OWN, "whiten", "l2", "seed")
"""Settings of a run that say what its task was."""


def landscape_command(
    file: str,
    target: str | None,
    inputs: str | None,
    outputs: str | None,
    out: str,
    no_plot: bool,
    force: bool,
    as_json: bool,
) -> Code:
    """Say where the weights of a file stand, and which saddles its run visited; gives the exit code."""
    path = _path(file)
    if (inputs is None) != (outputs is None):
        raise UsageError("--inputs and --outputs belong together; give both.")
    if target is not None and inputs is not None:
        raise UsageError("--target and --inputs both say what is learned; give one of them.")
    numerics()
    from deeplinear.cli._shell import folder, pictures

    written = None
    if not no_plot:
        place = folder(out)
        portraits, saddles = pictures(place / "landscape"), pictures(place / "saddles")
        may = [*portraits, *(saddles if path.suffix.lower() == ".nc" else ())]
        read = {"FILE": str(path), "--target": target, "--inputs": inputs, "--outputs": outputs}
        written = Written("landscape", may, force=force, read=read, others=saddles)
    trajectory = _trajectory(path) if path.suffix.lower() == ".nc" else None
    layers = read_layers(str(path), "FILE") if trajectory is None else trajectory.params
    from deeplinear.landscape import itinerary, portrait

    problem, words = _task(layers, trajectory, target, inputs, outputs)
    try:
        with output_kept_pure():
            found = portrait(layers, problem)
            visited, reason = None, ""
            if trajectory is not None and not {"product", "weights"} & set(trajectory.values):
                reason = (
                    "Which saddles the run visited cannot be told, as it did not record its product: add "
                    "--probes loss,product,gradient_norm to dln simulate."
                )
            elif trajectory is not None and problem is not None:
                try:
                    visited = itinerary(problem, trajectory)
                except ValueError as error:
                    reason = f"Which saddles the run visited cannot be told: {error}"
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    files = [] if written is None else _draw(written, path, found, trajectory, visited)
    if as_json:
        content = {"ok": True, "command": "landscape", "exit_code": 0, "file": str(path), "task": words}
        content |= {"portrait": found.to_json(), "itinerary": None if visited is None else visited.to_json()}
        print_json(content | {"notes": [reason] if reason else [], "files": [str(item) for item in files]})
        return Code.fine
    print_table([("file", str(path)), ("task", words)])
    for title, rows in found.sections():
        print_table(list(rows), title=title)
    if visited is not None:
        header, rows = visited.table()
        if rows:
            print_table(list(rows), title="Saddles visited", header=header)
        else:
            print_table([("", "none: the run was near no critical point while its gradient went through a valley")])
        if visited.notes:
            print_table([("", note) for note in visited.notes])
    if reason:
        print_table([("", reason)])
    if files:
        print_table([("written", str(item)) for item in files])
    return Code.fine


def _path(file: str) -> Path:
    path = Path(file)
    if path.is_dir():
        path = path / RUN
    if path.suffix.lower() not in (".npz", ".nc"):
        raise UsageError(f"FILE must be an .npz of layers W1, W2, …, the .nc of a run, or its folder, but is {file}.")
    if not path.exists():
        raise UsageError(f"FILE: there is no {path}.")
    return path


def _trajectory(path: Path) -> Any:
    from deeplinear.core import Trajectory

    try:
        trajectory = Trajectory.load(path)
    except FileError as error:
        raise error.seen_by("FILE") from None
    if trajectory.is_ensemble:
        raise UsageError(f"FILE: {path} must be a single run, but is an ensemble of {trajectory.members}.")
    return trajectory


def _task(layers: Any, trajectory: Any, target: str | None, inputs: str | None, outputs: str | None) -> tuple[Any, str]:
    """The problem, from files or from the settings of the run, and where it came from."""
    from deeplinear.models import DeepLinear, Problem, Regression, SquaredDistance

    try:
        model = DeepLinear((layers[0].shape[1], *(layer.shape[0] for layer in layers)))
        model.check(layers, "FILE")
        if target is not None:
            return Problem(model, SquaredDistance(read_array(target, "target"))), f"the matrix of {target}"
        if inputs is not None and outputs is not None:
            x, y = read_array(inputs, "inputs"), read_array(outputs, "outputs")
            return Problem(model, Regression.from_data(x, y)), f"least squares on {inputs} and {outputs}"
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None
    settings = {} if trajectory is None else trajectory.info.get("settings", {})
    if not settings:
        return None, "unknown; give --target, or --inputs and --outputs"
    if not isinstance(settings, dict):
        raise UsageError("FILE: the settings of the run must be a table, but are not; give --target.")
    from deeplinear.cli._build import build

    defaults = {option.name: option.default for option in SIMULATE}
    flags = {name: value for name, value in settings.items() if name in OWN and value != _plain(defaults[name])}
    return build(resolve(SIMULATE, {**flags, "horizon": 1.0}, None)).problem, "that of the run"


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _draw(written: Written, path: Path, found: Any, trajectory: Any, visited: Any) -> list[Path]:
    from deeplinear.plots import plot_itinerary, plot_portrait, save_figure

    files: list[Path] = []
    try:
        files += written.write(lambda to: save_figure(plot_portrait(found, title=path.name), to / "landscape"))
        if visited is not None and visited.visits and "loss" in trajectory.values:
            drawn = plot_itinerary(trajectory, visited, title=path.name)
            files += written.write(lambda to: save_figure(drawn, to / "saddles"))
    except ImportError as error:
        say(f"dln: there is no picture: {error}")
    written.finish(files)
    return files
