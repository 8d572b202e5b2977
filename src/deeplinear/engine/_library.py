"""The compiled engine as Python sees it: a library, its structures, and workers that move members.

The structures mirror `source/spec.h` field by field.
"""

import ctypes
import functools
import importlib
from ctypes import POINTER, Structure, c_double, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from deeplinear.engine._build import is_current, library_path, variants

WORKING = 0
"""A worker came back since its time was up; members still move."""

DONE = 1
"""A worker came back since no members are left."""

FULL = 2
"""A worker came back since the room for records is full."""

STOPPED = 3
"""A worker came back since it was stopped."""

REALS = ("t", "h", "rho", "error", "loss", "slope")
"""Columns of the real numbers of a state."""

WHOLES = (
    "age",
    "stiff",
    "strikes",
    "accepted",
    "rejected",
    "stabilised",
    "evaluations",
    "result",
    "rule",
)
"""Columns of the whole numbers of a state."""

LAW = (
    "refresh",
    "strikes",
    "floor",
    "dense",
    "back",
    "instant",
    "crawl",
    "patience",
    "retries",
    "affordable",
    "margin",
    "noise",
)
"""Numbers of the law of step control, in the order the engine reads them."""


class Law(Structure):
    """Numbers of the law of step control."""

    _fields_ = [(name, c_double) for name in LAW]


class Pair(Structure):
    """An explicit pair."""

    _fields_ = [
        ("stages", c_int32),
        ("order", c_int32),
        ("lower", c_void_p),
        ("error", c_void_p),
        ("stability", c_double),
    ]


class Family(Structure):
    """The stabilised family."""

    _fields_ = [
        ("rows", c_int32),
        *((name, c_void_p) for name in ("stages", "first", "second", "offset", "interval", "mixing", "weights")),
        ("rounding", c_double),
    ]


NUMBERS = ("target", "mask", "sxx", "solution", "offset", "l2")
"""Numbers of a loss."""

UPDATES = ("", "GradientDescent", "Momentum", "Adam", "RMSProp", "Adagrad")
"""Discrete updates, as the engine numbers them."""

FORMS = ("", "general", "symmetric", "upper", "diagonal", "tied")
"""Forms of recurrent networks, as the engine numbers them."""

BATCH = ("inputs", "outputs", "places", "observed")
"""Terms of a loss that batches are drawn from."""


class Update(Structure):
    """A discrete update; kind 0 is none but a flow."""

    _fields_ = [
        ("kind", c_int32),
        ("nesterov", c_int32),
        ("numbers", c_void_p),
        ("numbers_step", c_int64),
        ("marks", c_int32),
        ("mark", c_void_p),
        ("factor", c_void_p),
        ("mark_step", c_int64),
        ("factor_step", c_int64),
        ("moments", c_void_p),
        ("batch", c_int32),
        ("terms", c_int64),
        ("keys", c_void_p),
        *((name, c_void_p) for name in BATCH),
        *((f"{name}_step", c_int64) for name in BATCH),
    ]


class Spec(Structure):
    """One run, as the engine reads it."""

    _fields_ = [
        ("form", c_int32),
        ("depth", c_int32),
        ("widths", c_void_p),
        ("members", c_int64),
        ("loss", c_int32),
        *((name, c_void_p) for name in NUMBERS),
        *((f"{name}_step", c_int64) for name in NUMBERS),
        ("rtol", c_void_p),
        ("atol", c_void_p),
        ("tolerance_step", c_int64),
        ("policy", c_int32),
        ("pair", Pair),
        ("family", Family),
        ("law", Law),
        ("rules", c_int32),
        ("rule_kind", c_void_p),
        ("rule_below", c_void_p),
        ("threshold", c_void_p),
        ("listed", c_int64),
        ("times", c_void_p),
        ("every", c_int64),
        ("horizon", c_double),
        ("max_steps", c_int64),
        ("opens", c_int32),
        ("resumed", c_int32),
        ("first", c_int64),
        ("wide", c_int32),
        ("keeps", c_int32),
        ("y", c_void_p),
        ("direction", c_void_p),
        ("real", c_void_p),
        ("whole", c_void_p),
        ("update", Update),
        ("dgemm", c_void_p),
        ("least", c_double),
        ("stop", c_void_p),
    ]


class RecordsStruct(Structure):
    """Room for records."""

    _fields_ = [
        ("room", c_int64),
        ("filled", c_int64),
        *((name, c_void_p) for name in ("member", "time", "loss", "slope", "states")),
    ]


class Holder:
    """Keeps the arrays alive that a structure points to."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def point(self, array: np.ndarray) -> int:
        """Address of an array, which is kept."""
        if not array.flags.c_contiguous:
            raise ValueError("the engine reads contiguous arrays only")
        self.kept.append(array)
        return array.ctypes.data

    def room(self, size: int, zeros: bool = False) -> int:
        """Address of so many bytes, all zero."""
        return self.point(np.zeros(size, np.uint8))

    def copy(self, values: Any, dtype: Any) -> int:
        """Address of a contiguous copy of some numbers."""
        return self.point(np.array(values, dtype=dtype, order="C", ndmin=1))


class Records:
    """Room for records of one worker: member, time, loss, norm of the gradient, and the weights if they are wanted."""

    def __init__(self, room: int, size: int, keeps: bool) -> None:
        self.member = np.zeros(room, np.int64)
        self.time, self.loss, self.slope = (np.zeros(room) for _ in range(3))
        self.states = np.zeros((room if keeps else 0, size))
        columns = (self.member, self.time, self.loss, self.slope, self.states)
        self.struct = RecordsStruct(room, 0, *(array.ctypes.data for array in columns))

    @property
    def filled(self) -> int:
        """Number of records."""
        return int(self.struct.filled)

    def clear(self) -> None:
        """Make room again."""
        self.struct.filled = 0


@functools.cache
def missing() -> str | None:
    """Why the engine cannot be used here, in a few words; `None` if it can."""
    if not all(library_path(lanes).exists() for lanes in variants()):
        return "the engine is not compiled on this machine"
    if not is_current():
        return "the engine was compiled from other sources"
    try:
        library()
    except OSError as error:
        return f"the engine cannot be loaded ({error})"
    return None


@functools.cache
def library() -> ctypes.CDLL:
    """The library for this machine's registers."""
    widest = ctypes.CDLL(str(library_path(min(variants())))).engine_widest()
    return load(library_path(widest))


def load(path: Path) -> ctypes.CDLL:
    """A library with the types of its functions."""
    found = ctypes.CDLL(str(path))
    found.worker_new.restype = c_void_p
    found.worker_new.argtypes = [POINTER(Spec), c_void_p]
    found.worker_advance.argtypes = [c_void_p, POINTER(RecordsStruct), c_double]
    found.worker_end.argtypes = [c_void_p, POINTER(RecordsStruct), c_int32]
    found.worker_free.argtypes = [c_void_p]
    found.worker_free.restype = None
    found.engine_decompose.argtypes = [c_int32, c_void_p, c_void_p]
    return found


def available() -> bool:
    """Whether the engine can be used on this machine."""
    return missing() is None


def lanes() -> int:
    """Number of small networks that one processor moves side by side; 0 without the engine."""
    return library().engine_lanes() if available() else 0


@functools.cache
def dgemm() -> int:
    """Address of SciPy's `dgemm`."""
    cython_blas = importlib.import_module("scipy.linalg.cython_blas")
    python = ctypes.pythonapi
    python.PyCapsule_GetName.restype = ctypes.c_char_p
    python.PyCapsule_GetName.argtypes = [ctypes.py_object]
    python.PyCapsule_GetPointer.restype = c_void_p
    python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]

    capsule = cython_blas.__pyx_capi__["dgemm"]
    return python.PyCapsule_GetPointer(capsule, python.PyCapsule_GetName(capsule))


class Worker:
    """Moves members, as many side by side as there are lanes, until none is left."""

    def __init__(self, spec: Spec, counter: np.ndarray) -> None:
        self.library, self.kept = library(), (spec, counter)  # the engine reads them as long as it works
        self.address = self.library.worker_new(ctypes.byref(spec), counter.ctypes.data)

    def advance(self, records: Records, seconds: float) -> int:
        """Move members for some seconds; why it came back."""
        return self.library.worker_advance(self.address, ctypes.byref(records.struct), seconds)

    def end(self, records: Records, result: int) -> int:
        """End all members that still run, with a result for the limit that was reached; why it came back."""
        return self.library.worker_end(self.address, ctypes.byref(records.struct), result)

    def __del__(self) -> None:
        if getattr(self, "address", None):
            self.library.worker_free(self.address)
            self.address = None
