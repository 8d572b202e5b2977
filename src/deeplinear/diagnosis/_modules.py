"""Layers of models made with PyTorch or equinox: chains of linear layers without biases, and nothing else."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from deeplinear.diagnosis._names import as_array, check_bias, check_chain
from deeplinear.diagnosis._readers import WHERE

Named = tuple[tuple[np.ndarray, ...], tuple[str, ...], list[str]]
"""Layers first-acting first, their names, notes."""

HARMLESS = ("Identity",)
"""Layers that change nothing."""

SAMPLES = 4
"""Random inputs on which a model is compared with the product of its layers."""

ROUNDINGS = 1e3
"""Largest difference of the two, in roundings of the numbers of the model."""


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

    def call(inputs: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            given = torch.as_tensor(inputs).to(dtype=example.dtype, device=example.device)
            return module(given).double().cpu().numpy()

    _check_call(type(module).__name__, call, layers, float(torch.finfo(example.dtype).eps))
    return tuple(layers), tuple(names), notes


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

    def call(inputs: np.ndarray) -> np.ndarray:
        given = [jax.device_put(row.astype(kind)) for row in inputs]
        return np.stack([np.asarray(module(row), dtype=float) for row in given])  # pyright: ignore[reportCallIssue]

    _check_call(type(module).__name__, call, layers, float(np.finfo(kind).eps))
    return tuple(layers), tuple(names), notes


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


def _dtype(module: Any) -> Any:
    return next(leaf for leaf in jax.tree.leaves(module) if eqx.is_inexact_array(leaf)).dtype


def _not_linear(name: str, kind: str) -> ValueError:
    return ValueError(
        f"{WHERE}: '{name}' ({kind}) must be a linear layer without bias, but is not; these networks are chains of "
        "linear layers. Give the linear part alone."
    )


def _check_call(
    kind: str, call: Callable[[np.ndarray], np.ndarray], layers: Sequence[np.ndarray], rounding: float
) -> None:
    """Refuse a model that is not the product of its layers, as one that bends its inputs in its own code is."""
    inputs = np.random.default_rng(0).standard_normal((SAMPLES, layers[0].shape[1]))
    wanted, size = inputs, np.linalg.norm(inputs)
    for layer in layers:
        wanted, size = wanted @ layer.T, size * np.linalg.norm(layer)
    try:
        seen = call(inputs)
    except Exception as error:
        line = str(error).strip().splitlines()
        raise ValueError(
            f"{WHERE}: the module {kind} must take vectors of {layers[0].shape[1]} numbers, so that it can be compared "
            f"with the product of its layers, but: {line[0][:120] if line else type(error).__name__}. Give its state "
            "dict, or its weights as a tuple."
        ) from None
    gap = float(np.max(np.abs(seen - wanted))) if seen.shape == wanted.shape else np.inf
    if not gap <= ROUNDINGS * rounding * size:
        raise ValueError(
            f"{WHERE}: the module {kind} must be the product of its linear layers in the order of their definition, "
            f"but differs from it by {gap:.3g} on random inputs. It applies a function of its own, or another order; "
            "give its weights as a tuple, first-acting first, if the linear chain alone is meant."
        )
