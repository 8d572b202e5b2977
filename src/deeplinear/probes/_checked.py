"""Probes and the problem they look at, checked before anything is computed."""

import functools
from typing import Any

import equinox as eqx
import jax
import numpy as np

from deeplinear.core import Params, Stack, as_numbers, is_program, quietly, within_run, xp
from deeplinear.models import Problem
from deeplinear.probes._base import AbstractProbe, as_probes, dimension_names
from deeplinear.probes._plain import gradient_norm, loss

SCALARS = (loss, gradient_norm)
"""Probes that give one real number of every problem: nothing has to be looked at."""


def checked_probes(where: str, probes: Any, problem: Problem, batched: bool, params: Any) -> tuple[AbstractProbe, ...]:
    """Probes that give arrays of real numbers with the dimensions they name; seen without computing anything."""
    found = as_probes(probes)
    if all(item in SCALARS for item in found):
        return found
    shapes = jax.tree.map(lambda leaf: _like(leaf, True), params)
    model = jax.tree.map(lambda leaf: _like(leaf, batched), problem)
    leaves, structure = jax.tree.flatten((jax.tree.map(lambda leaf: _like(leaf, False), found), model, shapes))
    lengths: dict[str, tuple[int, str]] = {}
    plain = all(map(is_own, found)) and not any(map(is_program, (params, problem)))
    outputs = _first(found, problem, batched, params) if plain else _outputs(structure, tuple(leaves))
    for item, output in zip(found, outputs, strict=True):
        if not isinstance(output, jax.ShapeDtypeStruct):
            kind = type(output).__name__
            raise TypeError(f"{where}: probe '{item.name}' must give one array, but gives {kind}.")
        if xp.issubdtype(output.dtype, xp.complexfloating):
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


def is_own(item: AbstractProbe) -> bool:
    """Whether a probe is one of this package, whose formula takes numbers as they are."""
    function = getattr(item, "function", type(item))
    return (getattr(function, "__module__", None) or "").startswith("deeplinear.")


def values_of(found: tuple[AbstractProbe, ...], t: Any, params: Params, problem: Problem) -> list[np.ndarray]:
    """Values of the package's own probes at one state on the way of a run, by their formulas in NumPy."""
    with within_run(), quietly():
        return [np.asarray(item(t, params, problem)) for item in found]


def _first(found: tuple[AbstractProbe, ...], problem: Problem, batched: bool, params: Stack) -> list[Any]:
    """What probes give of the first member, as shapes and types."""
    looks, one = as_numbers((found, problem))
    own = jax.tree.map(lambda leaf: leaf[0], one) if batched else one
    values = values_of(looks, np.zeros(()), tuple(np.asarray(layer)[0] for layer in params), own)
    return [jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values]


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
        return tuple(probe(xp.zeros(()), params, problem) for probe in probes)

    return eqx.filter_eval_shape(values, probes, problem, params)
