"""The engine on a graphics card: `source/device.cu`, compiled for a shape by NVRTC and launched where JAX's arrays lie.

NVRTC comes with every CUDA installation of JAX, the driver with the card; both are called through `ctypes`. What is
compiled is kept in a folder of the user's cache, under a name that says what it was compiled from.
"""

import ctypes
import functools
import hashlib
import importlib
import itertools
import os
import sys
import tempfile
from ctypes import byref, c_char_p, c_int, c_int32, c_size_t, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from deeplinear._about import compiled_folder
from deeplinear.engine._build import SOURCES
from deeplinear.engine._library import Holder, Spec

FILES = ("device.h", "law.h", "spec.h")
"""Headers of `device.cu`."""

TRY = "DEEPLINEAR_CARD"
"""Environment variable that lets the kernel be used. On an H200 some stiff members of six of 22 tested cases ended with
"step too small", which the same source does not do on a processor; until it is mended, XLA moves ensembles there."""

MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a block may have, on cards since 2020 that compute in 64 bits at full speed."""

CHUNK = 1 << 22
"""Bytes that are taken of the card's memory at least."""

ALIGNED = 256
"""Bytes that arrays on the card are aligned to."""


class Launch(ctypes.Structure):
    """What a launch needs beside the run; mirrors `device.cu`."""

    _fields_ = [
        *((name, c_void_p) for name in ("f", "saved", "states", "losses", "slopes", "queue")),
        ("slice", c_uint64),
        ("begins", c_int32),
    ]


class Shape(NamedTuple):
    """What a kernel is compiled for.

    Attributes:
        widths: Widths of the layers, multiples of `tile`.
        tile: Side of the tiles of each matrix that a thread has.
        group: Threads that move one network.
        groups: Networks of a block.
        loss: Kind of the loss.
        stages: Stages of the explicit pair.
        crowd: Blocks that a multiprocessor should hold at least: fewer registers for each thread then.
    """

    widths: tuple[int, ...]
    tile: int
    group: int
    groups: int
    loss: int
    stages: int
    crowd: int = 1

    @property
    def options(self) -> list[str]:
        """Numbers that the source is compiled with."""
        numbers = {"WIDTHS": ",".join(map(str, self.widths)), "DEPTH": len(self.widths) - 1, "TILE": self.tile}
        numbers |= {"GROUP": self.group, "GROUPS": self.groups, "LOSS": self.loss, "STAGES": self.stages}
        numbers["CROWD"] = self.crowd
        return [f"-D{name}={value}" for name, value in numbers.items()]

    @property
    def weights(self) -> int:
        """Weights of a network, those included that fill up the widths."""
        return sum(a * b for a, b in itertools.pairwise(self.widths))

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block needs, about."""
        columns, depth = self.widths[0], len(self.widths) - 1
        numbers = self.weights + columns * (sum(self.widths[2:-1]) + sum(self.widths[2:]))
        numbers += columns * self.widths[-1] * (self.loss == 1) + self.group * (2 * depth + 3)
        return 8 * self.groups * (numbers + 3 * depth + 64)

    @property
    def control_bytes(self) -> int:
        """Bytes of what the law of step control knows of a network, at most."""
        return 8 * (len(self.widths) + 40)


def shape_of(widths: tuple[int, ...], loss: int, stages: int) -> Shape:
    """How networks are spread over threads: a tile of the largest layer for each, as far as threads go."""
    tile = 1 if max(widths) < 6 else 2
    padded = tuple(-(-width // tile) * tile for width in widths)
    most = max(a * b for a, b in itertools.pairwise(padded)) // tile**2
    group = min(most, 256)
    crowd = 28 if group <= 16 else 12 if group <= 32 else 1
    return Shape(padded, tile, group, max(1, 32 // group), loss, stages, crowd)


# --- Compiling --------------------------------------------------------------------------------------------------------


def source() -> tuple[str, dict[str, str]]:
    """The source, and its headers by name."""
    return (SOURCES / "device.cu").read_text(), {name: (SOURCES / name).read_text() for name in FILES}


@functools.cache
def compiler() -> ctypes.CDLL | None:
    """NVRTC, from JAX's packages or the system; `None` where there is none."""
    found = [path for place in sys.path for path in Path(place or ".").glob("nvidia/*/lib/libnvrtc.so.*")]
    found += [path for place in sys.path for path in Path(place or ".").glob("nvidia/*/*/lib/libnvrtc.so.*")]
    names = [str(path) for path in found if ".alt." not in path.name]
    for name in (*names, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compile_for(shape: Shape, architecture: str) -> bytes:
    """Machine code for a shape and an architecture such as "sm_90"; assembly for one such as "compute_90"."""
    nvrtc = compiler()
    if nvrtc is None:
        raise RuntimeError("NVRTC is missing. Install jax[cuda13] or jax[cuda12], which bring it.")
    text, headers = source()
    names = (c_char_p * len(headers))(*(name.encode() for name in headers))
    texts = (c_char_p * len(headers))(*(header.encode() for header in headers.values()))
    options = ["-std=c++17", "-default-device", f"-arch={architecture}", *shape.options]
    program = c_void_p()
    _checked(nvrtc.nvrtcCreateProgram(byref(program), text.encode(), b"device.cu", len(names), texts, names), "NVRTC")
    given = (c_char_p * len(options))(*(option.encode() for option in options))
    if nvrtc.nvrtcCompileProgram(program, len(options), given):
        raise RuntimeError("NVRTC cannot compile the kernel: " + _text(nvrtc, program, "ProgramLog")[:2000].decode())
    code = _text(nvrtc, program, "CUBIN" if architecture.startswith("sm_") else "PTX")
    nvrtc.nvrtcDestroyProgram(byref(program))
    return code


def _text(nvrtc: ctypes.CDLL, program: c_void_p, what: str) -> bytes:
    size = c_size_t()
    _checked(getattr(nvrtc, f"nvrtcGet{what}Size")(program, byref(size)), "NVRTC")
    buffer = ctypes.create_string_buffer(size.value)
    _checked(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer), "NVRTC")
    return buffer.raw


def _checked(code: int, who: str) -> None:
    if code:
        raise RuntimeError(f"{who} failed with code {code}.")


def _cubin(shape: Shape, architecture: str) -> bytes:
    """Machine code, from the folder of kernels if it is there."""
    text, headers = source()
    parts = [text, *headers.values(), architecture, *shape.options, str(_version())]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    folder = compiled_folder()
    if folder is None:
        return compile_for(shape, architecture)
    path = folder.parent / "kernels" / f"{name}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        code = compile_for(shape, architecture)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(code)
        Path(file.name).replace(path)
    except OSError:  # without a place to keep it, it is compiled again next time
        pass
    return code


def _version() -> tuple[int, int]:
    nvrtc, major, minor = compiler(), c_int(), c_int()
    if nvrtc is not None:
        nvrtc.nvrtcVersion(byref(major), byref(minor))
    return major.value, minor.value


# --- The card ---------------------------------------------------------------------------------------------------------


class CardHolder(Holder):
    """Copies of arrays on the card. Its memory goes back when it is dropped."""

    def __init__(self, card: "Card") -> None:
        super().__init__()
        self.card, self.chunk, self.used = card, 0, CHUNK
        self.taken: list[int] = []

    def point(self, array: np.ndarray) -> int:
        """Address of a copy of an array on the card."""
        address = self.room(array.nbytes)
        self.card.upload(address, np.ascontiguousarray(array))
        return address

    def room(self, size: int, zeros: bool = False) -> int:
        """Address of so many bytes on the card, of zeros if wanted."""
        size = max(-(-size // ALIGNED) * ALIGNED, ALIGNED)
        if size > CHUNK // 4:
            address = self._take(size)
        else:
            if self.used + size > CHUNK:
                self.chunk, self.used = self._take(CHUNK), 0
            self.used += size
            address = self.chunk + self.used - size
        if zeros:
            self.card.clear(address, size)
        return address

    def _take(self, size: int) -> int:
        self.taken.append(self.card.take(size))
        return self.taken[-1]

    def __del__(self) -> None:
        for address in self.taken:
            self.card.give_back(address)


class Card:
    """A graphics card of this machine, in JAX's own context."""

    def __init__(self) -> None:
        jax = importlib.import_module("jax")
        self.device = jax.devices()[0]
        self.driver = ctypes.CDLL("libcuda.so.1")
        number, context = c_int(), c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGet", byref(number), self.device.local_hardware_id)
        self._call("cuDevicePrimaryCtxRetain", byref(context), number)
        self.context = context
        self.enter()
        self.processors = self._attribute(16, number)
        pool, everything = c_void_p(), c_uint64(2**64 - 1)
        self._call("cuDeviceGetDefaultMemPool", byref(pool), number)
        self._call("cuMemPoolSetAttribute", pool, 4, byref(everything))  # keep what is given back for the next run
        self.architecture = f"sm_{self._attribute(75, number)}{self._attribute(76, number)}"

    def _call(self, name: str, *arguments: Any) -> None:
        _checked(getattr(self.driver, name)(*arguments), name)

    def _attribute(self, which: int, number: c_int) -> int:
        value = c_int()
        self._call("cuDeviceGetAttribute", byref(value), which, number)
        return value.value

    def enter(self) -> None:
        """Let this thread use the card."""
        self._call("cuCtxSetCurrent", self.context)

    def holder(self) -> CardHolder:
        """Room for copies of arrays."""
        return CardHolder(self)

    def take(self, size: int) -> int:
        """Memory of the card."""
        self.enter()
        address = c_uint64()
        if self.driver.cuMemAllocAsync(byref(address), c_size_t(size), None):
            raise MemoryError(
                f"The graphics card has no {size:,} bytes left beside what JAX took. Set the environment variable "
                "XLA_PYTHON_CLIENT_PREALLOCATE=false, or run fewer members at once."
            )
        return address.value

    def give_back(self, address: int) -> None:
        """Free memory of the card."""
        self.driver.cuMemFreeAsync(c_uint64(address), None)

    def clear(self, address: int, size: int) -> None:
        """Fill memory of the card with zeros."""
        self._call("cuMemsetD8_v2", c_uint64(address), 0, c_size_t(size))

    def upload(self, address: int, array: np.ndarray) -> None:
        """Copy an array to the card."""
        if array.nbytes:
            self._call("cuMemcpyHtoD_v2", c_uint64(address), c_void_p(array.ctypes.data), c_size_t(array.nbytes))

    def download(self, address: int, array: np.ndarray) -> None:
        """Copy from the card into an array."""
        if array.nbytes:
            self._call("cuMemcpyDtoH_v2", c_void_p(array.ctypes.data), c_uint64(address), c_size_t(array.nbytes))

    @functools.lru_cache(maxsize=64)  # noqa: B019
    def kernel(self, shape: Shape) -> tuple[c_void_p, int, int, int]:
        """The kernel for a shape: function, threads of a block, bytes that these share, blocks that fill the card."""
        module, function, blocks = c_void_p(), c_void_p(), c_int()
        self._call("cuModuleLoadData", byref(module), _cubin(shape, self.architecture))
        self._call("cuModuleGetFunction", byref(function), module, b"flows")
        where, size = c_uint64(), c_size_t()
        self._call("cuModuleGetGlobal_v2", byref(where), byref(size), module, b"sizes")
        sizes = np.zeros(5, np.int32)
        self.download(where.value, sizes)
        shared, threads, control, spec, launch = map(int, sizes)
        if (spec, launch) != (ctypes.sizeof(Spec), ctypes.sizeof(Launch)) or control > shape.control_bytes:
            raise RuntimeError("The kernel and Python read a run in different ways.")
        self._call("cuFuncSetAttribute", function, 8, shared)
        self._call("cuOccupancyMaxActiveBlocksPerMultiprocessor", byref(blocks), function, threads, c_size_t(shared))
        return function, threads, shared, max(1, blocks.value) * self.processors

    def launch(self, shape: Shape, spec: Spec, launch: Launch) -> None:
        """Move networks until all have ended or the time is up."""
        function, threads, shared, most = self.kernel(shape)
        blocks = min(most, -(-int(spec.members) // shape.groups))
        self.enter()
        arguments = (c_void_p * 2)(ctypes.addressof(spec), ctypes.addressof(launch))
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, None, arguments, None)
        self._call("cuCtxSynchronize")


@functools.cache
def card() -> Card:
    """The card that JAX computes on."""
    return Card()


@functools.cache
def no_card() -> str | None:
    """Why the engine cannot use a graphics card here, in a few words; `None` if it can."""
    if os.environ.get(TRY) != "1":
        return f"the kernel for graphics cards is not finished ({TRY}=1 tries it)"
    jax = importlib.import_module("jax")
    if jax.default_backend() != "gpu":
        return "arrays lie on an accelerator that is no graphics card"
    if compiler() is None:
        return "NVRTC is missing"
    try:
        card()
    except (OSError, RuntimeError) as error:
        return f"the graphics card cannot be used ({error})"
    return None
