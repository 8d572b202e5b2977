"""Probes and the problem they look at, checked before anything is computed."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import Stack
from deeplinear.models import Problem
from deeplinear.probes._base import AbstractProbe, as_probes, dimension_names


def checked_probes(
    where: str, probes: Any, problem: Problem, batched: bool, params: Stack
) -> tuple[AbstractProbe, ...]:
    """Probes that give arrays of real numbers with the dimensions they name; seen without computing anything."""
    found = as_probes(probes)
    shapes = jax.tree.map(lambda leaf: _like(leaf, True), params)
    model = jax.tree.map(lambda leaf: _like(leaf, batched), problem)
    leaves, structure = jax.tree.flatten((jax.tree.map(lambda leaf: _like(leaf, False), found), model, shapes))
    lengths: dict[str, tuple[int, str]] = {}
    for item, output in zip(found, _outputs(structure, tuple(leaves)), strict=True):
        if not isinstance(output, jax.ShapeDtypeStruct):
            kind = type(output).__name__
            raise TypeError(f"{where}: probe '{item.name}' must give one array, but gives {kind}.")
        if jnp.issubdtype(output.dtype, jnp.complexfloating):
            raise TypeError(
                f"{where}: probe '{item.name}' must give real numbers, but gives complex ones; record the real and the "
                "imaginary part by probes of their own."
            )
        for label, length in zip(dimension_names(item, len(output.shape)), output.shape, strict=True):
            known, other = lengths.setdefault(label, (length, item.name))
            if known != length:
                raise ValueError(
                    f"{where}: dimension '{label}' must have one length, but has {known} in probe '{other}' and "
                    f"{length} in probe '{item.name}'; give one of them other dims."
                )
    return found


def _like(leaf: Any, batched: bool) -> Any:
    """Shape and type of an array, without its member axis; other leaves as they are."""
    if not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    return jax.ShapeDtypeStruct(leaf.shape[1:] if batched else leaf.shape, leaf.dtype)


@functools.lru_cache(maxsize=512)
def _outputs(structure: Any, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """What probes give, as shapes and types."""
    probes, problem, params = jax.tree.unflatten(structure, leaves)

    def values(probes: Any, problem: Any, params: Any) -> tuple[Any, ...]:
        return tuple(probe(jnp.zeros(()), params, problem) for probe in probes)

    return eqx.filter_eval_shape(values, probes, problem, params)
