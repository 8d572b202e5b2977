"""Running with a progress bar, and what is left of a run: tables, JSON, data and pictures."""

from pathlib import Path
from typing import Any

from deeplinear.cli._build import Run
from deeplinear.cli._interrupt import interrupts_raise
from deeplinear.cli._options import Settings
from deeplinear.cli._shell import Code, folder, interrupted, output_kept_pure, pictures, say
from deeplinear.cli._written import Written
from deeplinear.core import RESULTS, Trajectory
from deeplinear.dynamics import GradientFlow, ensemble, simulate
from deeplinear.following import follow
from deeplinear.plots import plot_trajectory, save_figure
from deeplinear.report import progress_bar

READ = ("init-file", "target", "mask", "inputs", "outputs")
"""Settings that name a file."""


def execute(run: Run, *, max_steps: int, wall_limit: float | None, description: str) -> Trajectory:
    """One run, or an ensemble if there are several starts."""
    interrupts_raise()
    many = len(run.starts) > 1
    with output_kept_pure(), progress_bar(description) as bar:
        if many:
            return ensemble(
                run.problem,
                list(run.starts),
                run.method,
                times=run.times,
                probes=run.probes,
                until=run.rules,
                max_steps=max_steps,
                wall_limit=wall_limit,
                key=run.key,
                progress=bar,
            )
        if run.exact_first and isinstance(run.method, GradientFlow):
            return follow(run.problem, run.starts[0], run.times, probes=run.probes, flow=run.method, progress=bar)
        return simulate(
            run.problem,
            run.starts[0],
            run.method,
            times=run.times,
            probes=run.probes,
            until=run.rules,
            max_steps=max_steps,
            wall_limit=wall_limit,
            key=run.key,
            progress=bar,
        )


def place_of(settings: Settings, config: str | None, name: str) -> Written | None:
    """The files to write, if their folder is named; refused where they would replace what is read or foreign."""
    if settings["out"] is None:
        return None
    out = folder(settings["out"])
    read = {f"--{option}": settings.by_name.get(option) for option in READ} | {"--config": config}
    data, drawn = [out / f"{name}.nc", out / f"{name}.json"], pictures(out / name)
    files = data if settings["no-plot"] else [*data, *drawn]
    return Written(name if name == "exact" else "simulate", files, force=settings["force"], read=read, others=drawn)


def write(trajectory: Trajectory, out: Written, name: str, *, plot: bool, title: str | None = None) -> list[Path]:
    """Data and, if wanted and possible, pictures; gives the files."""

    def data(to: Path) -> list[Path]:
        file = trajectory.save(to / name)
        return [file, file.with_suffix(".json")]

    files = out.write(data)
    if plot:
        try:
            files += out.write(lambda to: save_figure(plot_trajectory(trajectory, title=title), to / name))
        except (ImportError, ValueError) as error:
            say(f"dln: the data are written, but there is no picture: {error}")
    out.finish(files)
    return files


def code_of(trajectory: Trajectory) -> Code:
    """Exit code of a run; of an ensemble, that of its worst member."""
    if trajectory.failed:
        return Code.numerical
    return interrupted() if RESULTS.interrupted.name in trajectory.outcomes() else Code.fine


def complain(trajectory: Trajectory, files: list[Path]) -> None:
    """Say on the error stream why a run did not get to its end: a breakdown first, then an interrupt, then a limit."""
    short = [name for name in trajectory.outcomes() if not RESULTS[name].finished]
    if not short:
        return
    name = min(short, key=lambda n: (not RESULTS[n].failed, n != RESULTS.interrupted.name))
    who = f"members {list(trajectory.outcomes()[name])}: " if trajectory.is_ensemble else ""
    kept = " What there is was written." if files else ""
    say(f"dln: {who}{RESULTS[name].message}{kept}")


def payload(command: str, trajectory: Trajectory, files: list[Path]) -> dict[str, Any]:
    """The result of a run for programs."""
    code = code_of(trajectory)
    messages = {name: RESULTS[name].message for name in trajectory.outcomes()}
    head = {"ok": code is Code.fine, "command": command, "exit_code": int(code), "messages": messages}
    return head | trajectory.to_json() | {"files": [str(file) for file in files]}
