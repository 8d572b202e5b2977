"""Layers of models made with PyTorch or equinox: chains of linear layers without biases, and nothing else."""

import contextlib
import copy
import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from deeplinear.diagnosis._names import as_array, check_bias, check_chain
from deeplinear.diagnosis._readers import WHERE

Named = tuple[tuple[np.ndarray, ...], tuple[str, ...], list[str], float]
"""Layers first-acting first, their names, notes, and the rounding of their numbers."""

HARMLESS = ("Identity",)
"""Layers that change nothing."""

SCALES = (1.0, 1.0, 1e3, 1e3)
"""Sizes of the random inputs on which a model is compared with the product of its layers; large ones bend more."""

ROUNDINGS = 200.0
"""Largest difference of the two, in roundings of the sums of absolute values that are added up."""


def is_torch_module(value: Any) -> bool:
    """Whether a value is a module of PyTorch, told without importing it."""
    return all(hasattr(value, name) for name in ("state_dict", "named_modules", "children", "parameters"))


def torch_layers(module: Any) -> Named:
    """Layers of a module of PyTorch whose parts are linear layers without biases."""
    layers, names, notes = [], [], []
    for name, part in module.named_modules():
        if next(iter(part.children()), None) is not None:
            continue
        kind = type(part).__name__
        if kind in HARMLESS:
            continue
        if kind != "Linear":
            raise _not_linear(name or kind, kind)
        if getattr(part, "bias", None) is not None:
            notes.append(check_bias(f"{name}.bias" if name else "bias", as_array("bias", part.bias)))
        names.append(f"{name}.weight" if name else "weight")
        layers.append(as_array(names[-1], part.weight))
    if not layers:
        raise ValueError(f"{WHERE}: the module {type(module).__name__} must have linear layers, but has none.")
    check_chain(names, layers)
    torch = importlib.import_module("torch")
    example = next(iter(module.parameters()))

    def call(inputs: np.ndarray, double: bool) -> np.ndarray:
        used = copy.deepcopy(module).double() if double else module
        with torch.no_grad():
            kind = torch.float64 if double else example.dtype
            given = torch.as_tensor(inputs).to(dtype=kind, device=example.device)
            return used(given).double().cpu().numpy()

    rounding = float(torch.finfo(example.dtype).eps)
    _check_call(type(module).__name__, call, layers, rounding)
    return tuple(layers), tuple(names), notes, rounding


def equinox_layers(module: eqx.Module) -> Named:
    """Layers of an equinox module whose parts are linear layers without biases."""
    layers, names, notes = [], [], []
    for name, part in _parts(module):
        if isinstance(part, eqx.nn.Identity):
            continue
        if not isinstance(part, eqx.nn.Linear):
            inside = getattr(part, "fn", None)
            raise _not_linear(name, getattr(inside, "__name__", type(part).__name__))
        if "scalar" in (part.in_features, part.out_features):
            raise ValueError(f"{WHERE}: '{name}' must map vectors to vectors, but is made for scalars; give width 1.")
        if part.bias is not None:
            notes.append(check_bias(f"{name}.bias", as_array("bias", part.bias)))
        names.append(f"{name}.weight")
        layers.append(as_array(names[-1], part.weight))
    if not layers:
        raise ValueError(f"{WHERE}: the module {type(module).__name__} must have linear layers, but has none.")
    check_chain(names, layers)
    kind = _dtype(module)

    def call(inputs: np.ndarray, double: bool) -> np.ndarray:
        with jax.enable_x64(True) if double else contextlib.nullcontext():
            used = jax.tree.map(_doubled, module) if double else module
            given = [jax.device_put(row.astype(float if double else kind)) for row in inputs]
            return np.stack([np.asarray(used(row), dtype=float) for row in given])  # pyright: ignore[reportCallIssue]

    rounding = float(jax.numpy.finfo(kind).eps)
    _check_call(type(module).__name__, call, layers, rounding)
    return tuple(layers), tuple(names), notes, rounding


def _parts(module: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Modules that make up a sequence, in the order in which they act; of another module, those that hold weights."""
    if isinstance(module, eqx.nn.Linear | eqx.nn.Identity | eqx.nn.Lambda):
        yield above or type(module).__name__, module
        return
    if isinstance(module, eqx.nn.Sequential):
        for position, part in enumerate(module.layers):
            yield from _parts(part, f"{above}.{position}" if above else f"layers.{position}")
        return
    found = jax.tree_util.tree_leaves_with_path(module, is_leaf=lambda x: isinstance(x, eqx.nn.Linear))
    for path, part in found:
        name = jax.tree_util.keystr(path).lstrip(".").replace("[", ".").replace("]", "")
        name = f"{above}.{name}" if above else name
        if isinstance(part, eqx.nn.Linear):
            yield name, part
        elif eqx.is_array(part):
            raise _not_linear(name, f"array of shape {part.shape}")


def _doubled(leaf: Any) -> Any:
    return jax.device_put(np.asarray(leaf, dtype=float)) if eqx.is_inexact_array(leaf) else leaf


def _dtype(module: Any) -> Any:
    return next(leaf for leaf in jax.tree.leaves(module) if eqx.is_inexact_array(leaf)).dtype


def _not_linear(name: str, kind: str) -> ValueError:
    return ValueError(
        f"{WHERE}: '{name}' ({kind}) must be a linear layer without bias, but is not; these networks are chains of "
        "linear layers. Give the linear part alone."
    )


def _check_call(
    kind: str, call: Callable[[np.ndarray, bool], np.ndarray], layers: Sequence[np.ndarray], rounding: float
) -> None:
    """Refuse a model that is not the product of its layers, as one that bends its inputs in its own code is.

    It is called in 64 bits, where nothing but rounding may be left; in its own numbers only if it cannot be.
    """
    scales = np.array(SCALES)[:, None]
    inputs = np.random.default_rng(0).standard_normal((len(SCALES), layers[0].shape[1]))
    try:
        inputs, rounding, seen = scales * inputs, float(np.finfo(float).eps), call(scales * inputs, True)
    except Exception:
        seen = _in_own_numbers(kind, call, inputs)
    wanted, sizes = inputs, np.abs(inputs)
    for layer in layers:
        wanted, sizes = wanted @ layer.T, sizes @ np.abs(layer).T
    if seen.shape == wanted.shape:
        gaps = np.linalg.norm(seen - wanted, axis=1)
        fits = bool(np.all(gaps <= ROUNDINGS * rounding * np.linalg.norm(sizes, axis=1)))
        gap = float(np.max(gaps / np.maximum(np.linalg.norm(wanted, axis=1), 1e-300)))
    else:
        fits, gap = False, np.inf
    if not fits:
        raise ValueError(
            f"{WHERE}: the module {kind} must be the product of its linear layers in the order of their definition, "
            f"but differs from it by {gap:.3g} of its size on random inputs. It applies a function of its own, or "
            "another order; give its weights as a tuple, first-acting first, if the linear chain alone is meant."
        )


def _in_own_numbers(kind: str, call: Callable[[np.ndarray, bool], np.ndarray], inputs: np.ndarray) -> np.ndarray:
    try:
        return call(inputs, False)
    except Exception as error:
        line = str(error).strip().splitlines()
        raise ValueError(
            f"{WHERE}: the module {kind} must take vectors of {inputs.shape[1]} numbers, so that it can be compared "
            f"with the product of its layers, but: {line[0][:120] if line else type(error).__name__}. Give its state "
            "dict, or its weights as a tuple."
        ) from None
