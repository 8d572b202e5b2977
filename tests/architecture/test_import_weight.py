"""Importing the package is light and changes nothing. Run in fresh interpreters, without the tests' settings."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = (
    *("dask", "diffrax", "fastapi", "lineax", "matplotlib", "optax", "optimistix", "pandas", "rich", "scipy"),
    *("sklearn", "typer", "xarray"),
)

REPORT = """
import json, sys
{line}
loaded = sorted(name for name in {heavy} if name in sys.modules)
x64 = None
if "jax" in sys.modules:
    import jax
    x64 = bool(jax.config.jax_enable_x64)
own = sorted(name for name in sys.modules if name.startswith("deeplinear."))
print(json.dumps(dict(loaded=loaded, x64=x64, jax="jax" in sys.modules, own=own)))
"""


def report(line: str) -> dict:
    """What a fresh interpreter has loaded after a line of Python."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", "-c", REPORT.format(line=line, heavy=HEAVY)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


EVERY = "core, datasets, diagnosis, dynamics, estimators, exact, experiments, following, geometry, landscape, models"
EVERY += ", nonlinear, plots, probes, recurrent, report, theory"


@pytest.mark.parametrize("line", ["import deeplinear", f"from deeplinear import {EVERY}"])
def test_the_package_and_its_sub_packages_alone_load_not_even_jax(line: str) -> None:
    found = report(line)
    assert (found["loaded"], found["x64"], found["jax"]) == ([], None, False)
    assert not [name for name in found["own"] if name.count(".") > 1], found["own"]


def test_what_a_flow_needs_loads_nothing_heavy_and_leaves_precision_alone() -> None:
    found = report("from deeplinear.dynamics import simulate; from deeplinear import models; models.DeepLinear((2, 2))")
    assert (found["loaded"], found["x64"], found["jax"]) == ([], False, True)
    used = {name.split(".")[1] for name in found["own"]}
    assert used <= {"_about", "_lazy", "core", "dynamics", "engine", "models", "probes", "readers"}, used


def test_a_name_that_is_not_there_is_refused_and_all_names_are_listed() -> None:
    import deeplinear
    from deeplinear import exact

    with pytest.raises(AttributeError, match="has no attribute 'solv'"):
        exact.solv  # noqa: B018
    assert "solve" in dir(exact) and all(hasattr(exact, name) for name in dir(exact))
    assert {"core", "use_64_bit", "keep_programs"} <= set(dir(deeplinear))
    scope: dict = {}
    exec("from deeplinear.probes import *", scope)
    assert scope["loss"].name == "loss"
