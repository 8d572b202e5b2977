"""Data as `dln simulate` and `dln exact` make them, so that a command copied from the page gives the same numbers."""

import ast
from typing import Any

from deeplinear.core import random

WIDEST = 120
"""Longest line of a script."""

SHORT = {"jnp": "import jax.numpy as jnp", "np": "import numpy as np"}
"""What a script may use without asking for it."""


def keys_of(seed: int) -> tuple[Any, Any]:
    """Keys of the target and of the start of a run with that seed."""
    key_problem, key_start, _ = random.split(random.key(seed), 3)
    return random.split(key_problem)[0], random.fold_in(key_start, 0)


def script(*parts: str) -> str:
    """A script of these parts: `from ... import` of all of them first, without what is not used, then double precision.

    `jax`, `jnp` and `np` need not be imported by a part.
    """
    body = "\n\n".join(part.strip("\n") for part in parts)
    tree = ast.parse(body)
    asked = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    modules: dict[str, set[str]] = {}
    for node in asked:
        modules.setdefault(node.module or "", set()).update(one.name for one in node.names if one.name in used)
    taken = {number for node in asked for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    left: list[str] = []
    for number, line in enumerate(body.split("\n"), 1):
        if number not in taken and not (number - 1 in taken and not line):  # nor the empty line behind imports
            left.append(line)
    head = ["import jax", *(text for name, text in SHORT.items() if name in used)]
    head += [_import(module, sorted(names, key=_order)) for module, names in sorted(modules.items()) if names]
    switch = 'jax.config.update("jax_enable_x64", True)'
    return "\n".join([*head, "", switch, "", "\n".join(left).strip("\n"), ""])


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2), name


def _import(module: str, names: list[str]) -> str:
    flat = f"from {module} import {', '.join(names)}"
    if len(flat) <= WIDEST:
        return flat
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


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
