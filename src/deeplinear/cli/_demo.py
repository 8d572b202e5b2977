"""`dln demo`: from saddle to saddle."""

import dataclasses
from typing import Any

import numpy as np

from deeplinear.cli._options import SEED, SIMULATE, read_value, resolve
from deeplinear.cli._shell import Code, numerics, print_json, print_table

SPECTRUM = (4.0, 3.0, 2.0, 1.0)
RUN = {
    "widths": "6,8,8,5",
    "spectrum": ",".join(map(str, SPECTRUM)),
    "init": "matched",
    "init-scale": "1e-6",
    "rtol": "1e-9",
    "until-loss": "1e-10",
    "probes": "loss,singular_values,gradient_norm,drift",
}
"""Settings of the demonstration, as flags of `dln simulate`."""


def half_times(times: np.ndarray, values: np.ndarray) -> list[float]:
    """Times at which the columns of `values` first pass half of their last value, between records by a straight line.

    Example:
        >>> half_times(np.array([0.0, 1.0, 2.0]), np.array([[0.0], [0.0], [4.0]]))
        [1.5]
    """
    found = []
    for column in np.asarray(values).T:
        half = column[-1] / 2
        after = int(np.argmax(column >= half))
        if after == 0:
            found.append(float(times[0]))
            continue
        low, high = column[after - 1], column[after]
        found.append(float(times[after - 1] + (half - low) / (high - low) * (times[after] - times[after - 1])))
    return found


def demo_command(out: str, seed: str | None, as_json: bool) -> Code:
    """Run the demonstration, write its results and say what happened; gives the exit code."""
    number = SEED.default if seed is None else read_value(SEED, seed, "--seed")
    settings = resolve(SIMULATE, {**RUN, "seed": str(number)}, None)
    numerics()
    from deeplinear.cli._build import build
    from deeplinear.cli._output import code_of, complain, execute, folder, payload, write

    place = folder(out)
    trajectory = execute(build(settings), max_steps=settings["max-steps"], wall_limit=None, description="demo")
    trajectory = dataclasses.replace(trajectory, info={**trajectory.info, "settings": settings.plain()})
    title = "From saddle to saddle: three layers learn one mode after another"
    files = write(trajectory, place, "demo", plot=True, title=title)
    modes = len(SPECTRUM)
    learned = half_times(trajectory.times, trajectory["singular_values"][:, :modes])
    ends = trajectory.final("singular_values")[:modes]
    if as_json:
        stages: list[dict[str, Any]] = [
            {"mode": k + 1, "target": SPECTRUM[k], "final": float(ends[k]), "half_time": learned[k]}
            for k in range(modes)
        ]
        print_json(payload("demo", trajectory, files) | {"stages": stages})
    else:
        shown = ("outcome", "accepted steps", "stabilised steps", "gradient evaluations", "seconds", "loss", "drift")
        rows = [("network", "widths " + " → ".join(map(str, settings["widths"])) + ", started near the origin")]
        print_table(rows + [row for row in trajectory.rows() if row[0] in shown])
        print_table(
            [
                (str(k + 1), f"{SPECTRUM[k]:g}", f"{ends[k]:.6f}", f"{learned[k]:.2f}", f"{loss_at(trajectory, t):.3g}")
                for k, t in enumerate(learned)
            ],
            title="Stages: each mode waits on a plateau and is learned in turn",
            header=("mode", "target", "final value", "half of it at t", "loss then"),
        )
        print_table([("written", str(file)) for file in files])
    complain(trajectory, files)
    return code_of(trajectory)


def loss_at(trajectory: Any, time: float) -> float:
    """Loss at a time, between records by a straight line."""
    return float(np.interp(time, trajectory.times, trajectory["loss"]))
