"""With concrete numbers no public function traces or compiles anything, and its answers are numbers of NumPy.

Every row of `traces` is called on arrays of NumPy, in a process that counts what JAX traces and compiles. The few
functions that run a program even then stand in a table, each with the reason.
"""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRAWS = "draws random numbers"
ENERGY = "differentiates an energy of the user's"

PROGRAMS: dict[str, dict[str, str]] = {
    "core": {},
    "exact": {},
    "geometry": {},
    "recurrent": {},
    "landscape": {},
    "models": {"Energy": ENERGY},
    "probes": {},
}
"""By package, the functions that run a program of JAX with concrete numbers too, and why."""

TESTS = Path(__file__).parents[1]


def called(package: str) -> dict[str, list[str]]:
    """For each function of a package that compiles something or answers with arrays of JAX, how much and which."""
    import jax
    import numpy as np

    from traces import Traced

    jax.config.update("jax_enable_x64", True)
    events: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: events.append(name.split("/")[-1]) if "/jax/core/compile/" in name else None
    )
    found: dict[str, list[str]] = {}
    for name, row in importlib.import_module(f"traces.{package}").TABLE.items():
        if not isinstance(row, Traced):
            continue
        arguments = jax.tree.map(np.asarray, row.through(*row.free(np.random.default_rng(0))))
        jax.clear_caches()  # nothing that another call has compiled
        events.clear()
        answer = row.call(*arguments)
        traced = [f"{len(events)} times: {', '.join(sorted(set(events)))}"] if events else []
        kinds = {type(leaf).__name__ for leaf in jax.tree.leaves(answer) if isinstance(leaf, jax.Array)}
        if traced or kinds:
            found[name] = [*traced, *sorted(kinds)]
    return found


@pytest.mark.parametrize("package", PROGRAMS)
def test_numbers_are_answered_without_programs(package: str) -> None:
    code = f"import json, sys; sys.path.insert(0, {str(TESTS)!r})\n" + (
        f"from laws.test_no_compilation import called\nprint(json.dumps(called({package!r})))"
    )
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    assert {name: what for name, what in found.items() if name not in PROGRAMS[package]} == {}
    assert set(PROGRAMS[package]) <= set(found), "these are formulas now: take them out of the table"
