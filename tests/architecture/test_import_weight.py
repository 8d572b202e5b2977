"""Importing the package is light and changes nothing. Run in fresh interpreters, without the tests' settings."""

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("dask", "fastapi", "matplotlib", "pandas", "rich", "sklearn", "typer", "xarray")

REPORT = """
import json, sys
import {module}
loaded = sorted(name for name in {heavy} if name in sys.modules)
x64 = None
if "jax" in sys.modules:
    import jax
    x64 = bool(jax.config.jax_enable_x64)
print(json.dumps(dict(loaded=loaded, x64=x64, jax="jax" in sys.modules)))
"""


def report(module: str) -> dict:
    """What a fresh interpreter has loaded after importing a module."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_")} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", "-c", REPORT.format(module=module, heavy=HEAVY)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_the_package_alone_loads_not_even_jax() -> None:
    assert report("deeplinear") == {"loaded": [], "x64": None, "jax": False}


@pytest.mark.parametrize("module", ["dynamics.simulate"])
def test_numerical_layers_load_nothing_heavy_and_leave_precision_alone(module: str) -> None:
    """`dynamics` stands above the other numerical layers and loads them all."""
    assert report(module) == {"loaded": [], "x64": False, "jax": True}
