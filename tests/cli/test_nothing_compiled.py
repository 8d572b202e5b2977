"""Commands that evaluate formulas of given numbers compile nothing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from deeplinear.core import Trajectory

COMMANDS = (
    "landscape layers.npz --target target.csv --no-plot",
    "landscape layers.npz --inputs inputs.csv --outputs outputs.csv --no-plot",
    "landscape run.nc --target target.csv --no-plot",
    "diagnose layers.npz",
)

COUNTED = """
import json, sys
import jax
found, current = {}, []
jax.monitoring.register_event_duration_secs_listener(
    lambda name, *_, **__: current.append(name) if "/jax/core/compile/" in name else None
)
from deeplinear.cli import main
for line in sys.argv[1:]:
    current.clear()
    sys.argv = ["dln", *line.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (line, end.code)
    found[line] = len(current)
sys.stderr.write("\\n" + json.dumps(found))
"""


def test_commands_compile_nothing(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    first, last = rng.standard_normal((3, 4)), rng.standard_normal((2, 3))
    np.savez(tmp_path / "layers.npz", W1=first, W2=last)
    for name, shape in (("target", (2, 4)), ("inputs", (4, 9)), ("outputs", (2, 9))):
        np.savetxt(tmp_path / f"{name}.csv", rng.standard_normal(shape), delimiter=",")
    times = np.linspace(0.0, 1.0, 5)
    Trajectory(
        times=times,
        values={"product": np.stack([(1 + t) * last @ first for t in times])},
        dims={"product": ("row", "column")},
        params=(first, last),
        results=np.asarray(0),
        fired=np.asarray(-1),
        rules=(),
        lengths=np.asarray(5),
        stats={},
        info={},
    ).save(tmp_path / "run")
    run = subprocess.run(
        [sys.executable, "-c", COUNTED, *COMMANDS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stderr.splitlines()[-1]) == dict.fromkeys(COMMANDS, 0)
