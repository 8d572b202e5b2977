"""Data as `dln simulate` and `dln exact` make them, so that a command copied from the page gives the same numbers."""

from typing import Any

import jax

HEADER = """\
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
"""
"""What every script begins with."""


def keys_of(seed: int) -> tuple[Any, Any]:
    """Keys of the target and of the start of a run with that seed."""
    key_problem, key_start, _ = jax.random.split(jax.random.key(seed), 3)
    return jax.random.split(key_problem)[0], jax.random.fold_in(key_start, 0)


def script(*parts: str) -> str:
    """A script of the header and these parts."""
    return "\n".join([HEADER.rstrip("\n"), *(part.strip("\n") for part in parts)]) + "\n"


def command(name: str, **options: Any) -> str:
    """A command line; underscores in names become dashes, lists are joined by commas."""

    def shown(value: Any) -> str:
        if isinstance(value, (list, tuple)):
            return ",".join(shown(one) for one in value)
        return f"{value:.12g}" if isinstance(value, float) else str(value)

    flags = []
    for key, value in options.items():
        if value is None or value is False:
            continue
        flags.append(f"--{key.replace('_', '-')}" + ("" if value is True else f" {shown(value)}"))
    return " ".join(["dln", name, *flags])
