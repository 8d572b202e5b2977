"""`dln exact`."""

import dataclasses
from typing import Any

from deeplinear.cli._options import EXACT, SIMULATE, completed, resolve
from deeplinear.cli._refusals import refuse
from deeplinear.cli._shell import Code, UsageError, numerics, print_json, print_table


def exact_command(flags: dict[str, Any], config: str | None, as_json: bool) -> Code:
    """Solve what the settings say; gives the exit code."""
    settings = resolve(EXACT, flags, config)
    if settings["horizon"] is None:
        raise UsageError("a curve needs an end: give --horizon.")
    whole = completed(settings, SIMULATE, method="auto")
    refuse(whole)
    numerics()
    from deeplinear.cli._build import build
    from deeplinear.cli._output import code_of, payload, place_of, write
    from deeplinear.exact import NoClosedFormError, WhitenedSolution, solve

    run = build(whole)
    out = place_of(settings, config, "exact")
    try:
        solution = solve(run.problem, run.starts[0])
    except NoClosedFormError as error:
        raise UsageError(str(error)) from None
    trajectory = solution.trajectory(run.times, probes=run.probes)
    info: dict[str, Any] = {**trajectory.info, "settings": settings.plain()}
    rows = [("hypothesis", f"{name}: residual {value:.1e}") for name, value in info["hypotheses"].items()]
    if isinstance(solution, WhitenedSolution):
        diagnosis = solution.diagnosis()
        info["diagnosis"] = diagnosis.to_json()
        rows += diagnosis.rows()
    trajectory = dataclasses.replace(trajectory, info=info)
    files = [] if out is None else write(trajectory, out, "exact", plot=not settings["no-plot"])
    if as_json:
        print_json(payload("exact", trajectory, files))
    else:
        print_table([*trajectory.rows(), *rows, *(("written", str(file)) for file in files)])
    return code_of(trajectory)
