"""Named arrays from files: .npz, .npy, .safetensors, and PyTorch's .pt and .pth."""

import importlib
import json
import pickle
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

WHERE = "load_weights"

ENDINGS = (".npz", ".npy", ".safetensors", ".pt", ".pth")

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Numbers of a safetensors file that are read, as NumPy holds them; BF16 is the upper half of an F32."""

LARGEST_HEADER = 100_000_000
"""Bytes; a longer header is a sign of a file of another kind."""

WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Names under which training scripts keep the state dict of a checkpoint."""

TORCH = "install PyTorch (pip install torch), or save the weights as .safetensors or .npz"


def read_file(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Arrays of a file by name, and what there is to say about it."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{WHERE}: a file of weights must end in {', '.join(ENDINGS)}, but is {path}.")
    if not path.is_file():
        raise FileNotFoundError(f"{WHERE}: there must be a file {path}, but there is none.")
    if ending == ".safetensors":
        return read_safetensors(path), []
    if ending in (".pt", ".pth"):
        return _read_torch(path)
    return _read_numpy(path), []


def _read_numpy(path: Path) -> dict[str, Any]:
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {path.stem: content}
        with content:
            return {name: content[name] for name in content.files}
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        text = "it holds Python objects" if "pickle" in str(error) else str(error).rstrip(".")
        raise ValueError(f"{WHERE}: {path} must be a well-formed file of numbers, but: {text}.") from None


# ---- safetensors -----------------------------------------------------------------------------------------------------


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a safetensors file, in the order of its header.

    Eight bytes with the length of the header, the header as JSON, then the numbers, little-endian and row by row. Every
    number of the header is compared with the file before it is used.
    """
    data = path.read_bytes()
    if len(data) < 8:
        raise _malformed(path, f"it has {len(data)} bytes")
    (length,) = struct.unpack("<Q", data[:8])
    if length > min(LARGEST_HEADER, len(data) - 8):
        raise _malformed(path, f"its header would have {length} bytes, and the file has {len(data)}")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
    except ValueError as error:
        raise _malformed(path, f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise _malformed(path, "its header is no JSON object")
    body = memoryview(data)[8 + length :]
    return {name: _tensor(path, name, entry, body) for name, entry in header.items() if name != "__metadata__"}


def _tensor(path: Path, name: str, entry: Any, body: memoryview) -> np.ndarray:
    try:
        kind, shape, (begin, end) = str(entry["dtype"]), [int(n) for n in entry["shape"]], entry["data_offsets"]
        begin, end = int(begin), int(end)
    except (TypeError, KeyError, ValueError):
        raise _malformed(path, f"the entry '{name}' lacks dtype, shape or data_offsets") from None
    if kind not in FLOATS:
        raise TypeError(
            f"{WHERE}: '{name}' of {path} must hold numbers of type {', '.join(FLOATS)}, but holds {kind}; convert it, "
            "or leave it out with prefix or names."
        )
    count = 1
    for size in shape:
        count *= size
    width = np.dtype(FLOATS[kind]).itemsize
    if min([*shape, 0]) < 0 or not 0 <= begin <= end <= len(body) or end - begin != count * width:
        raise _malformed(path, f"the bytes {begin} to {end} of '{name}' do not fit its shape {tuple(shape)}")
    array = np.frombuffer(body[begin:end], dtype=FLOATS[kind]).reshape(shape)
    if kind == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _malformed(path: Path, text: str) -> ValueError:
    return ValueError(f"{WHERE}: {path} must be a well-formed safetensors file, but {text}.")


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def _read_torch(path: Path) -> tuple[dict[str, Any], list[str]]:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        raise ImportError(f"{WHERE}: PyTorch must be installed to read {path}, but is not; {TORCH}.") from None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        text = (
            "holds Python objects, such as a whole model" if "Weights only" in line else f"cannot be read: {line[:160]}"
        )
        raise ValueError(
            f"{WHERE}: {path} must hold a state dict, saved by torch.save(model.state_dict(), …), but {text}."
        ) from None
    notes = []
    if isinstance(content, Mapping):
        for wrapper in WRAPPERS:
            if isinstance(content.get(wrapper), Mapping):
                notes.append(f"The layers are those of the entry '{wrapper}' of the checkpoint.")
                content = content[wrapper]
                break
    if not isinstance(content, Mapping):
        if hasattr(content, "detach"):
            return {path.stem: content}, notes
        raise TypeError(f"{WHERE}: {path} must hold a state dict, but holds a {type(content).__name__}.")
    return dict(content), notes
