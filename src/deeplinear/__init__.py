"""Deep linear networks as a program.

Sub-packages are loaded when they are first asked for, so that importing this package costs nothing and touches no
setting of JAX.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from deeplinear._about import __version__ as __version__, use_64_bit as use_64_bit

if TYPE_CHECKING:
    from deeplinear import (
        core as core,
        datasets as datasets,
        diagnosis as diagnosis,
        dynamics as dynamics,
        engine as engine,
        estimators as estimators,
        exact as exact,
        experiments as experiments,
        following as following,
        geometry as geometry,
        lab as lab,
        landscape as landscape,
        models as models,
        nonlinear as nonlinear,
        plots as plots,
        probes as probes,
        recurrent as recurrent,
        report as report,
        theory as theory,
    )

_SUBPACKAGES = (
    "core",
    "datasets",
    "diagnosis",
    "dynamics",
    "engine",
    "estimators",
    "exact",
    "experiments",
    "following",
    "geometry",
    "lab",
    "landscape",
    "models",
    "nonlinear",
    "plots",
    "probes",
    "recurrent",
    "report",
    "theory",
)


def __getattr__(name: str) -> ModuleType:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'; its sub-packages: {', '.join(_SUBPACKAGES)}.")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBPACKAGES})
