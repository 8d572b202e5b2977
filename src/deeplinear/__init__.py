"""Deep linear networks as a program.

Sub-packages are loaded when they are first asked for, so that importing this package costs nothing and touches no
setting of JAX.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from deeplinear import (
        core as core,
        dynamics as dynamics,
        exact as exact,
        experiments as experiments,
        models as models,
        plots as plots,
        report as report,
        theory as theory,
    )

__version__ = "0.2.0"

_SUBPACKAGES = ("core", "dynamics", "exact", "experiments", "models", "plots", "report", "theory")


def use_64_bit() -> None:
    """Switch JAX to 64-bit numbers, for this process; call it at the start of a program, before anything is computed.

    The package never does so by itself. The command line and the workers of an experiment call it.
    """
    import jax

    jax.config.update("jax_enable_x64", True)


def __getattr__(name: str) -> ModuleType:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'; its sub-packages: {', '.join(_SUBPACKAGES)}.")


def __dir__() -> list[str]:
    return sorted({*globals(), *_SUBPACKAGES})
