"""`dln doctor`: what is installed, and whether a small run gives the right numbers."""

import importlib.metadata
import os
import platform
import re
from typing import Any

from deeplinear._about import COMPILED, __version__, compiled_folder
from deeplinear.cli._options import SEED, read_value
from deeplinear.cli._shell import Code, numerics, print_json, print_table

PACKAGES = (
    "jax",
    "jaxlib",
    "equinox",
    "diffrax",
    "optax",
    "lineax",
    "optimistix",
    "jaxtyping",
    "numpy",
    "scipy",
    "xarray",
    "h5netcdf",
    "typer",
    "rich",
)
TOLERANCE = 1e-8
"""Largest relative error of the self-check; the run itself asks for 1e-10."""


def version(package: str) -> str | None:
    """Version of an installed distribution, or `None`."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def extras() -> dict[str, dict[str, Any]]:
    """Optional dependencies by extra: what is missing of each, and how to install it."""
    try:
        metadata = importlib.metadata.metadata("deeplinear")
    except importlib.metadata.PackageNotFoundError:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for extra in metadata.get_all("Provides-Extra") or []:
        mark = re.compile(rf"extra == ['\"]{extra}['\"]")
        lines = [line for line in importlib.metadata.requires("deeplinear") or [] if mark.search(line)]
        names = [match[0] for line in lines if (match := re.match(r"[\w.-]+", line)) and match[0] != "deeplinear"]
        missing = [name for name in names if version(name) is None]
        found[extra] = {"installed": not missing, "missing": missing, "install": f"pip install 'deeplinear[{extra}]'"}
    return found


def self_check(seed: int) -> dict[str, Any]:
    r"""Two scalar layers, equal at the start: their product follows $s(t) = a / (1 + (a/s_0 - 1)\,e^{-2at})$.

    The seed draws $a$ from 2 to 4 and $s_0$ from $10^{-4}$ to $10^{-2}$.
    """
    import jax.numpy as jnp
    import numpy as np

    from deeplinear.dynamics import GradientFlow, simulate
    from deeplinear.models import DeepLinear, Problem, SquaredDistance
    from deeplinear.probes import product

    draw = np.random.default_rng(seed)
    a, start, times = draw.uniform(2, 4), 10 ** draw.uniform(-4, -2), np.array([0.0, 0.5, 1.0, 1.5, 2.0, 4.0])
    problem = Problem(DeepLinear((1, 1, 1)), SquaredDistance(jnp.full((1, 1), a)))
    layer = jnp.full((1, 1), start**0.5)
    run = simulate(problem, (layer, layer), GradientFlow(rtol=1e-10), times=times, probes=[product])
    exact = a / (1 + (a / start - 1) * np.exp(-2 * a * times))
    error = float(np.max(np.abs(np.ravel(run["product"]) / exact - 1)))
    passed = bool(error <= TOLERANCE)
    return {
        "relative_error": error,
        "tolerance": TOLERANCE,
        "passed": passed,
        "seed": seed,
        "engine": run.info["engine"],
    }


def engine_state() -> dict[str, Any]:
    """Whether the native engine can be used, the numbers its registers hold, and otherwise why not and what to do."""
    from deeplinear import engine

    why = engine.missing()
    return {"native": why is None, "lanes": engine.lanes(), "missing": why, "advice": engine.ADVICE if why else None}


def doctor_command(seed: str | None, as_json: bool) -> Code:
    """Look around, run the self-check and report; gives the exit code."""
    number = SEED.default if seed is None else read_value(SEED, seed, "--seed")
    numerics()
    import jax
    import jax.numpy as jnp

    from deeplinear.core import processors

    own: dict[str, str | None] = {"deeplinear": __version__, "python": platform.python_version()}
    bits = 8 * jnp.zeros(()).dtype.itemsize
    folder = compiled_folder()
    report: dict[str, Any] = {
        "versions": own | {package: version(package) for package in PACKAGES},
        "platform": platform.platform(),
        "devices": [str(device) for device in jax.devices()],
        "backend": jax.default_backend(),
        "cpus": os.cpu_count(),
        "processors": processors(),
        "bits": int(bits),
        "compiled_programs": None if folder is None else str(folder),
        "engine": engine_state(),
        "extras": extras(),
        "self_check": self_check(number),
    }
    ok = report["self_check"]["passed"] and bits == 64
    code = Code.fine if ok else Code.check_failed
    if as_json:
        print_json({"ok": ok, "command": "doctor", "exit_code": int(code)} | report)
        return code
    check = report["self_check"]
    rows = [(name, text or "not installed") for name, text in report["versions"].items()]
    rows.append(("platform", report["platform"]))
    rows.append(("devices", ", ".join(report["devices"]) + f" ({report['backend']})"))
    used, there = report["processors"], report["cpus"]
    rows.append(("processors", f"{used}" if used == there else f"{used} may be used, of {there} there are"))
    state = report["engine"]
    lacking = f"XLA only, since {state['missing']}. {state['advice']}"
    rows.append(("engine", f"native, registers of {state['lanes']} numbers" if state["native"] else lacking))
    rows.append(("compiled programs", f"not kept ({COMPILED}=off)" if folder is None else f"kept in {folder}"))
    rows.append(("precision", f"{bits}-bit" + ("" if bits == 64 else ", which is too little")))
    for name, extra in report["extras"].items():
        lacking = f"not installed ({', '.join(extra['missing'])}): {extra['install']}"
        rows.append((f"extra {name}", "installed" if extra["installed"] else lacking))
    verdict = "passed" if check["passed"] else "FAILED"
    text = f"{verdict}: a flow agrees with its closed form to {check['relative_error']:.1e} (at most {TOLERANCE:.0e})"
    text += f"; engine: {check['engine']}"
    rows.append(("self-check", text))
    print_table(rows)
    return code
