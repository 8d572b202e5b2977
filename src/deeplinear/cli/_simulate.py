"""`dln simulate`."""

import dataclasses
from typing import Any

from deeplinear.cli._options import SIMULATE, resolve
from deeplinear.cli._refusals import refuse
from deeplinear.cli._shell import Code, numerics, print_json, print_table


def simulate_command(flags: dict[str, Any], config: str | None, as_json: bool) -> Code:
    """Run what the settings say; gives the exit code."""
    settings = resolve(SIMULATE, flags, config)
    refuse(settings)
    numerics()
    from deeplinear.cli._build import build
    from deeplinear.cli._output import code_of, complain, execute, payload, place_of, write

    run = build(settings)
    out = place_of(settings, config, "run")
    trajectory = execute(
        run, max_steps=settings["max-steps"], wall_limit=settings["wall-limit"], description="simulate"
    )
    trajectory = dataclasses.replace(trajectory, info={**trajectory.info, "settings": settings.plain()})
    files = [] if out is None else write(trajectory, out, "run", plot=not settings["no-plot"])
    if as_json:
        print_json(payload("simulate", trajectory, files))
    else:
        refused = trajectory.info.get("closed_form", {}).items()
        reasons = [("no closed form", f"{form}: {reason}") for form, reason in refused]
        print_table([*trajectory.rows(), *reasons, *(("written", str(file)) for file in files)])
    complain(trajectory, files)
    return code_of(trajectory)
