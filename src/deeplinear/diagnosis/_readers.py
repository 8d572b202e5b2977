"""Named arrays from files: .npz, .npy, .safetensors, and PyTorch's .pt and .pth."""

import contextlib
import importlib
import json
import math
import pickle
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

WHERE = "load_weights"

ENDINGS = (".npz", ".npy", ".safetensors", ".pt", ".pth")

FLOATS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Numbers of a safetensors file that are read, as NumPy holds them; BF16 is the upper half of an F32."""

ROUNDINGS = {"F64": 2.0**-52, "F32": 2.0**-23, "F16": 2.0**-10, "BF16": 2.0**-7}
"""Relative distance of neighbouring numbers of these kinds."""

BROKEN = (
    ValueError,
    EOFError,
    OSError,
    OverflowError,
    RecursionError,
    IndexError,
    KeyError,
    TypeError,
    MemoryError,
    NotImplementedError,
    SyntaxError,
    struct.error,
    zlib.error,
    zipfile.BadZipFile,
    tokenize.TokenError,
)
"""What NumPy and the zip reader raise on files that are damaged."""

LARGEST_HEADER = 100_000_000
"""Bytes; a longer header is a sign of a file of another kind."""

MOST_NUMBERS = 2**28
"""Most numbers of the arrays of a network that are read: two gigabytes in 64 bits."""

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
    """Arrays of an .npz or .npy by name, none of them read yet: only their headers are."""
    with told_in_a_sentence(path):
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as content:
                return {name.removesuffix(".npy"): _headed(path, content, name) for name in content.namelist()}
        if path.stat().st_size == 0:
            raise ValueError("it is empty")
        if path.suffix.lower() == ".npz":
            raise ValueError("it is no archive of arrays, or was cut off")
        with path.open("rb") as file:
            return {path.stem: Headed(path, "", *_header(file))}


class Headed(NamedTuple):
    """An array of an .npz, or of an .npy where `member` is empty, that is read when it is asked for."""

    path: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype

    def read(self) -> np.ndarray:
        """The numbers, as they are stored."""
        with told_in_a_sentence(self.path):
            if not self.member:
                return np.load(self.path, allow_pickle=False)
            with zipfile.ZipFile(self.path) as content, content.open(self.member) as file:
                return np.lib.format.read_array(file, allow_pickle=False)


def _headed(path: Path, content: zipfile.ZipFile, member: str) -> Headed:
    with content.open(member) as file:
        return Headed(path, member, *_header(file))


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and kind of an array; of the third version of the format are only records, which are no numbers."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"it has an array of format {version[0]}.{version[1]}, which holds no plain numbers")
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return shape, dtype


@contextlib.contextmanager
def told_in_a_sentence(path: Path) -> Iterator[None]:
    """What is wrong with a file, as one sentence that names it."""
    try:
        yield
    except BROKEN as error:
        raise ValueError(f"{WHERE}: {path} must be a well-formed file of numbers, but: {one_line(error)}.") from None


def check_size(shapes: Mapping[str, Any]) -> None:
    """Refuse arrays that are too large together, before they are read."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    if sum(sizes.values()) > MOST_NUMBERS:
        largest = max(sizes, key=lambda name: sizes[name])
        raise ValueError(
            f"{WHERE}: the arrays must have at most {MOST_NUMBERS:,} numbers together, but have "
            f"{sum(sizes.values()):,}; the largest is '{largest}' with shape {tuple(shapes[largest])}. Choose a part "
            "of them with prefix or names."
        )


def one_line(error: BaseException) -> str:
    """What an error says, on one line, or else its kind."""
    return " ".join(str(error).split())[:160].rstrip(".") or type(error).__name__


# ---- safetensors -----------------------------------------------------------------------------------------------------


class Stored(NamedTuple):
    """An array of a safetensors file that is read when it is asked for."""

    path: Path
    name: str
    entry: Any
    body: int

    @property
    def rounding(self) -> float:
        """Relative distance of neighbouring numbers of its kind."""
        return ROUNDINGS.get(str(self.entry["dtype"]), 0.0) if isinstance(self.entry, dict) else 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, compared with the file."""
        return _layout(self.path, self.name, self.entry, self.body)[1]

    def read(self) -> np.ndarray:
        """The numbers, in 64 bits."""
        return _tensor(self.path, self.name, self.entry, self.body)


def read_safetensors(path: Path) -> dict[str, Stored]:
    """Arrays of a safetensors file, in the order of its header, none of them read yet.

    Eight bytes with the length of the header, the header as JSON, then the numbers, little-endian and row by row. Every
    number of the header is compared with the file before it is used.
    """
    size = path.stat().st_size
    if size < 8:
        raise _malformed(path, f"it has {size} bytes")
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(LARGEST_HEADER, size - 8):
            raise _malformed(path, f"its header would have {length} bytes, and the file has {size}")
        raw = file.read(length)
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _malformed(path, f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise _malformed(path, "its header is no JSON object")
    return {name: Stored(path, name, entry, 8 + length) for name, entry in header.items() if name != "__metadata__"}


def _layout(path: Path, name: str, entry: Any, body: int) -> tuple[str, tuple[int, ...], int, int]:
    """Kind, shape, first and last byte of an array, compared with each other and with the file."""
    try:
        kind, shape, (begin, end) = str(entry["dtype"]), entry["shape"], entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise _malformed(path, f"the entry '{name}' lacks dtype, shape or data_offsets") from None
    if kind not in FLOATS:
        raise TypeError(
            f"{WHERE}: '{name}' of {path} must hold numbers of type {', '.join(FLOATS)}, but holds {kind}; convert it, "
            "or leave it out."
        )
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in (*shape, begin, end)):
        raise _malformed(path, f"shape and data_offsets of '{name}' are not lists of whole numbers")
    width = np.dtype(FLOATS[kind]).itemsize
    if not begin <= end <= path.stat().st_size - body or end - begin != math.prod(shape) * width:
        raise _malformed(path, f"the bytes {begin} to {end} of '{name}' do not fit its shape {tuple(shape)}")
    return kind, tuple(shape), begin, end


def _tensor(path: Path, name: str, entry: Any, body: int) -> np.ndarray:
    kind, shape, begin, end = _layout(path, name, entry, body)
    with path.open("rb") as file:
        file.seek(body + begin)
        raw = file.read(end - begin)
    try:
        array = np.frombuffer(raw, dtype=FLOATS[kind]).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise _malformed(path, f"'{name}' has no array of shape {shape[:8]} ({error})") from None
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
    except (*BROKEN, pickle.UnpicklingError, RuntimeError, AttributeError, AssertionError) as error:
        line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        text = (
            "holds Python objects, such as a whole model, or is no file of PyTorch"
            if "Weights only" in line
            else f"cannot be read: {line[:160]}"
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
