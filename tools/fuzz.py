"""Feed damaged files to a reader: each must give a value or the reader's named error, in bounded time and memory.

    python tools/fuzz.py READER --count 2000000 --seed 0

An input is drawn from the seed and its number alone, so that any run can be repeated. Inputs with another outcome are
kept in build/fuzz and end the program with exit code 1. `tests/readers/test_fuzz.py` runs a few hundred of each reader.
"""

import argparse
import collections
import contextlib
import io
import json
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "src")]

from deeplinear.readers import (  # noqa: E402
    Content,
    FileError,
    Source,
    open_arrays,
    read_idx,
    read_json,
    read_pickle,
    read_records,
    read_toml,
    sealed,
    unsealed,
)
from deeplinear.readers._netcdf import from_parts  # noqa: E402

SECONDS = 5.0
"""Processor time of one input."""

MEMORY = 3 * 2**30
"""Address space of the program."""

LARGEST = 2**16
"""Bytes of an input."""

EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)

WORDS = (
    b"-1",
    b"0",
    b"1e999",
    b"nan",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b"9" * 400,
    b"9" * 5000,
    b"2147483648",
    b"[" * 300,
    b"{" * 300,
    b"(" * 300,
    b'{"a":' * 200,
    b"a." * 200,
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\n",
    b",,",
    b'"',
    b"'",
    b"'''",
    b"../",
    b"[]",
    b"{}",
    b"()",
    b"|O",
    b">f8",
    b"<f2",
    b"<U9",
    b"?",
    b"<M8[ns]",
    b"True",
    b"1979-05-27",
    b"\\u0000",
    b"\\ud800",
    b"r\xff\xff\xff\x0f",
    b"\x8e" + b"\xff" * 8,
    b"c__builtin__\neval\n",
    b"2" * 60,
    b"\xc2\xb2",
)
"""Pieces that readers have stumbled over."""


class Target(NamedTuple):
    """A reader: its seeds, what is done with an input, and how a mutated seed becomes one."""

    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[bytes], Any]
    wrap: Callable[[random.Random, bytes], bytes] = lambda rng, data: data


# ---- Mutations -------------------------------------------------------------------------------------------------------


def mutate(rng: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A seed with one to eight changes: bits, bytes, numbers, words, pieces cut, repeated, moved or of another seed."""
    for _ in range(1 if rng.random() < 0.5 else rng.randint(2, 8)):
        size = len(data)
        place = rng.randrange(size + 1)
        kind = rng.randrange(10)
        if kind == 0 and size:  # a bit
            place = rng.randrange(size)
            data = data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]
        elif kind == 1 and size:  # a byte
            place = rng.randrange(size)
            data = data[:place] + bytes([rng.randrange(256)]) + data[place + 1 :]
        elif kind == 2:  # cut off
            data = data[:place]
        elif kind == 3:  # a piece less
            data = data[:place] + data[place + rng.randint(1, 16) :]
        elif kind == 4:  # a piece repeated
            piece = data[place : place + rng.randint(1, 24)]
            data = data[:place] + piece * rng.choice((2, 3, 100)) + data[place:]
        elif kind == 5:  # a number in place of another
            width = rng.choice((1, 2, 4, 8))
            value = rng.choice(EXTREMES) & (2 ** (8 * width) - 1)
            data = data[:place] + value.to_bytes(width, rng.choice(("little", "big"))) + data[place + width :]
        elif kind == 6:  # a word put in
            data = data[:place] + rng.choice(WORDS) + data[place:]
        elif kind == 7:  # a word in place of digits
            digits = [i for i in range(size) if 48 <= data[i] < 58][:400]
            if digits:
                place = rng.choice(digits)
                data = data[:place] + rng.choice(WORDS) + data[place + 1 :]
        elif kind == 8:  # the rest of another seed
            other = rng.choice(seeds)
            data = data[:place] + other[rng.randrange(len(other) + 1) :]
        else:  # random bytes
            data = data[:place] + rng.randbytes(rng.randint(1, 16)) + data[place:]
        data = data[:LARGEST]
    return data


# ---- Readers ---------------------------------------------------------------------------------------------------------


def saved(array: np.ndarray, **how: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **how)
    return file.getvalue()


def arrays() -> list[np.ndarray]:
    return [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0, dtype=">f4").reshape(2, 3)),
        np.array(2.5),
        np.array([True, False]),
        np.zeros((0, 3)),
        np.array(["a", "bc"]),
        np.arange(4, dtype=np.int8),
        np.zeros(2, dtype=[("a", "<f8"), ("b", "<i4")]),
        np.array([1 + 2j]),
        np.zeros(300, np.float16),
    ]


def npy_seeds() -> list[bytes]:
    return [saved(array) for array in arrays()] + [saved(np.array([{}]), allow_pickle=True)]


def zipped(members: dict[str, bytes], method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as content:
        for name, data in members.items():
            content.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def npz_seeds() -> list[bytes]:
    first, second = saved(np.eye(3)), saved(np.zeros(100))
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
    return [zipped({"W1.npy": first, "W2.npy": second}, method) for method in methods] + [first]


def wrap_npz(rng: random.Random, data: bytes) -> bytes:
    """Half of the inputs are whole archives with a damaged array, whose check sums are right."""
    if rng.random() < 0.5:
        return data
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    return zipped({"W1.npy": mutate(rng, rng.choice(npy_seeds()), npy_seeds()), "W2.npy": data[:200]}, method)


def read_all(ending: str) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        for array in open_arrays(Source("fuzz", f"input.{ending}", data)).values():
            array.read()

    return read


def safetensors_seeds() -> list[bytes]:
    found = []
    for kind, width in (("F64", 8), ("F32", 4), ("BF16", 2), ("I64", 8)):
        header = {"__metadata__": {"format": "pt"}}
        header |= {"a": {"dtype": kind, "shape": [2, 3], "data_offsets": [0, 6 * width]}}
        header |= {"b": {"dtype": kind, "shape": [], "data_offsets": [6 * width, 7 * width]}}
        text = json.dumps(header).encode()
        found.append(struct.pack("<Q", len(text)) + text + bytes(7 * width))
    return found


def wrap_safetensors(rng: random.Random, data: bytes) -> bytes:
    """Half of the inputs say the right length of their header."""
    if rng.random() < 0.5 or len(data) < 8:
        return data
    end = data.find(b"}}", 8) + 2
    return struct.pack("<Q", max(end - 8, 0)) + data[8:]


def idx_seeds() -> list[bytes]:
    images = bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 3, 4) + bytes(range(24))
    return [
        images,
        images[:4] + struct.pack(">3I", 0, 2**32 - 1, 2**32 - 1),
        images[:4] + struct.pack(">3I", 2**31, 2**31, 4),
    ]


def pickle_seeds() -> list[bytes]:
    import pickle

    content = {
        b"data": np.zeros((2, 12), np.uint8),
        b"labels": [1, 300, -5],
        "names": ["a", b"b"],
        3: (None, True, 2**70),
    }
    found = [pickle.dumps(content, protocol) for protocol in (2, 3, 4, 5)]
    hostile = [
        b"\x80\x02Nr\xff\xff\xff\x0f.",
        b"\x80\x02" + b"N\x85" * 2000 + b"\x93.",
        b"\x80\x02]" + b"q\x00h\x00h\x00\x86" * 60 + b"\x93.",
    ]
    return found + hostile


def table_seeds() -> list[bytes]:
    return [
        b"x,y\n1,2\n3,-0.5\n",
        b"1;2\n3;4\n",
        b"\xef\xbb\xbf1\t2\n3\t4\n",
        b"id,a,b\nrow 1,1,\nrow 2,NA,2e3\n",
        b'"a","b"\n"1","2"\n',
        b"1,5;2,5\n3;4\n",
        b"1 2 # comment\n3 4\n",
        b"row,column,value\na,b,1\nc,d,2\n",
        b"1e400,-inf\nnan,1\n",
    ]


def read_tables(data: bytes) -> Any:
    """All ways in which commands read a text file of numbers."""
    from deeplinear.cli._files import read_array
    from deeplinear.cli._shell import UsageError
    from deeplinear.cli._tables import read_entries, read_table

    file = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / f"fuzz-{PROCESS}.csv"
    file.write_bytes(data)
    refused = []
    ways = (
        lambda: read_array(str(file), "A"),
        lambda: read_table(str(file), "DATA", gaps=True, text=True, header=None),
        lambda: read_entries(str(file), "DATA"),
    )
    for way in ways:
        try:
            way()
        except (UsageError, FileError) as error:
            refused.append(error)
    file.unlink()
    if len(refused) == len(ways):
        raise FileError("fuzz", "input.csv", str(refused[0])[-60:], "")


def toml_seeds() -> list[bytes]:
    return [
        b'widths = [3, 4, 2]\nhorizon = 5.0\nloss = "squared"\nseed = 3\n',
        b'method = "gd"\nlr = 1e-2\nprobes = ["loss", "product"]\n',
        b"horizon = inf\nlr = nan\nspectrum = [1, 2.5]\n",
        b"[a]\nb = 1979-05-27T07:32:00Z\n[[c]]\nd = {e = 1, f = [[], {}]}\n",
        b'a.b.c = 0x7f\n\'x\' = """text"""\n',
    ]


def read_settings(data: bytes) -> Any:
    """The settings of a command from a file."""
    from deeplinear.cli import _options
    from deeplinear.cli._shell import UsageError

    known = {option.name: option for option in _options.SIMULATE}
    try:
        for name, value in read_toml(Source("--config", "run.toml", data)).items():
            if name in known:
                _options.read_value(known[name], value, name)
    except UsageError as error:
        raise FileError("fuzz", "run.toml", str(error)[-60:], "") from None


def record_seeds() -> list[bytes]:
    claim = {"statement": "small", "measured": 0.5, "expected": "at most 1", "holds": True, "note": ""}
    both = {
        "format": 1,
        "key": "k1",
        "files": {"data.nc": "0" * 64},
        "timing": {"started": "2026", "seconds": 1.5},
        "environment": {},
    }
    experiment = {
        **both,
        "kind": "experiment",
        "id": "paper/fig1",
        "claims": [claim],
        "spec": {"a": [1, "inf"]},
        "preset": None,
        "version": 1,
    }
    reading = {"name": "r", "residual": 0.1, "tolerance": "inf"}
    check = {
        **both,
        "kind": "check",
        "id": "paper/theorem-1",
        "claim": [reading],
        "violations": [{"name": "v", "caught": True}],
    }
    return [
        json.dumps(content).encode()
        for content in (experiment, check | {"status": "holds", "seed": 0, "printed": reading})
    ]


def read_record(data: bytes) -> Any:
    """What a store does with a record: its digest is right, its content is not."""
    from deeplinear.experiments import Store
    from deeplinear.experiments._base import Claim

    content = read_json(Source("fuzz", "record.json", data))
    if isinstance(content, dict):
        import hashlib

        whole = json.dumps(content, sort_keys=True).encode()
        content["digest"] = hashlib.sha256(whole).hexdigest()
    folder = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / f"fuzz-record-{PROCESS}"
    folder.mkdir(exist_ok=True)
    (folder / "record.json").write_text(json.dumps(content))
    record = Store.open_record(folder)
    assert all(isinstance(claim, Claim) for claim in record.claims)
    assert not any("/" in name or name.startswith("..") for name in record.content["files"])


def dataset_parts() -> bytes:
    """The description of a small run, as JSON."""
    attributes = {
        "deeplinear_format": 2,
        "rules": json.dumps(["loss below 1"]),
        "info": json.dumps({"problem": "p"}),
        "dims": json.dumps({"loss": [], "modes": ["mode"]}),
    }
    arrays = {
        "time": (["time"], "float64", [3]),
        "t": (["time"], "float64", [3]),
        "loss": (["time"], "float64", [3]),
        "modes": (["time", "mode"], "float64", [3, 2]),
        "params.1": (["width.1", "width.0"], "float64", [2, 3]),
        "params.2": (["width.2", "width.1"], "float64", [2, 2]),
        "state.0": (["state.0.0"], "float64", [4]),
        "run.results": ([], "int64", []),
        "run.fired": ([], "int64", []),
        "run.lengths": ([], "int64", []),
        "stats.steps": ([], "int64", []),
    }
    return json.dumps({"arrays": arrays, "attributes": attributes}).encode()


def read_trajectory(data: bytes) -> Any:
    """A file that HDF5 can read, with other arrays and attributes than those of a run."""
    import xarray

    from deeplinear.core import Trajectory
    from deeplinear.core._trajectory_file import fields

    content = read_json(Source("fuzz", "run.nc", data))
    try:
        variables = {}
        for name, (dims, kind, shape) in content["arrays"].items():
            if np.prod(shape, dtype=float) > 1000:
                raise ValueError
            variables[name] = (dims, np.ones(shape, dtype=kind))
        dataset = xarray.Dataset(variables, attrs=content["attributes"])
        parts = Content(
            {str(name): np.asarray(one.to_numpy()) for name, one in dataset.variables.items()}, dataset.attrs
        )
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        OverflowError,
        SyntaxError,
        Warning,
    ):  # of NumPy's types, too
        raise FileError("fuzz", "run.nc", "no dataset", "") from None
    found = Trajectory(**fields(Source("fuzz", "run.nc", b""), parts))
    assert found.summary() and found.to_json() and found.to_xarray() is not None


def netcdf_seeds() -> list[bytes]:
    return [small_netcdf(sizes) for sizes in ((3, 2), (0, 1), (40, 7))]


def small_netcdf(sizes: tuple[int, int]) -> bytes:
    import xarray

    file = io.BytesIO()
    numbers = np.arange(float(np.prod(sizes))).reshape(sizes)
    dataset = xarray.Dataset({"x": (("a", "b"), numbers), "n": ((), 3)}, attrs={"deeplinear_format": 2, "rules": "[]"})
    dataset.to_netcdf(file, engine="h5netcdf")
    return file.getvalue()


def read_sealed(data: bytes) -> Any:
    """A file that `Trajectory.save` wrote, damaged: what is left of it is whole, or is refused before HDF5 sees it."""
    body = unsealed(Source("fuzz", "run.nc", data))
    if body is None:
        raise FileError("fuzz", "run.nc", "it has no seal", "")
    assert sealed(body) in SEEDS["sealed"]


class Reading:
    """A copy of this program that reads files without a seal, one after the other, until one of them ends it."""

    INPUTS = 2000
    """Inputs after which another copy takes over, as HDF5 keeps some memory of each."""

    SECONDS = 3
    """Processor time of one input."""

    LARGEST = 2**24
    """Bytes of what is made of a file, of which more are cut off."""

    def __init__(self) -> None:
        inputs, outputs = os.pipe(), os.pipe()
        self.left = self.INPUTS
        self.process = os.fork()
        if self.process == 0:
            os.close(inputs[1])
            os.close(outputs[0])
            try:
                self.serve(inputs[0], outputs[1])
            finally:
                os._exit(0)
        os.close(inputs[0])
        os.close(outputs[1])
        self.asks, self.answers = open(inputs[1], "wb"), open(outputs[0], "rb")

    def serve(self, asks: int, answers: int) -> None:
        """In the copy: answer each input with a byte, and end by a signal at one that takes too long."""
        from deeplinear.readers import _child

        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        warnings.simplefilter("ignore")
        sys.unraisablehook = lambda _: None  # Objects half made complain when they are thrown away.
        stream, stream_out = open(asks, "rb"), open(answers, "wb")
        while size := stream.read(8):
            data = stream.read(int.from_bytes(size, "little"))
            signal.setitimer(signal.ITIMER_PROF, self.SECONDS)
            try:
                found = _child.convert(data)
            except Exception:
                found = b""
            signal.setitimer(signal.ITIMER_PROF, 0)
            stream_out.write(len(found).to_bytes(8, "little"))
            stream_out.write(found[: self.LARGEST])
            stream_out.flush()

    def ask(self, data: bytes) -> bytes | None:
        """What is made of a file, nothing of one at which an error is raised, `None` of one that ends the copy."""
        self.left -= 1
        try:
            self.asks.write(len(data).to_bytes(8, "little") + data)
            self.asks.flush()
        except BrokenPipeError:
            return None
        size = self.answers.read(8)
        return self.answers.read(min(int.from_bytes(size, "little"), self.LARGEST)) if size else None

    def close(self) -> int:
        """Let the copy end; the signal that ended it, or 0."""
        with contextlib.suppress(BrokenPipeError):
            self.asks.close()
        self.answers.close()
        _, status = os.waitpid(self.process, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0


READING: list[Reading] = []
"""The copy at work, if any."""


def read_foreign(data: bytes) -> Any:
    """A file without a seal, as the process that reads it does, in a copy of this one within limits."""
    if READING and READING[0].left <= 0:
        READING.pop().close()
    if not READING:
        READING.append(Reading())
    parts = READING[0].ask(data)
    if parts:
        if len(parts) < Reading.LARGEST:
            from_parts(Source("fuzz", "run.nc", b""), parts)
        return
    if parts is not None:
        raise FileError("fuzz", "run.nc", "the process that reads it raises an error", "")
    number = READING.pop().close()
    if number == 0:
        raise RuntimeError("the process that reads it ended by itself")
    FATAL[signal.Signals(number).name] += 1
    raise FileError("fuzz", "run.nc", f"the process that reads it ends by signal {number}", "")


FATAL: collections.Counter[str] = collections.Counter()
"""Signals that ended copies which read files without a seal; the reader survives them, as it has a process for each."""


def ended() -> str:
    """Those signals in words."""
    return f", ended by {dict(FATAL)}" if FATAL else ""


def torch_seeds() -> list[bytes]:
    import torch

    found = []
    for content in (
        {"a.weight": torch.ones(2, 3)},
        torch.ones(2),
        {"state_dict": {"w": torch.zeros(1, dtype=torch.bfloat16)}},
    ):
        file = io.BytesIO()
        torch.save(content, file)
        found.append(file.getvalue())
    return found


def wrap_torch(rng: random.Random, data: bytes) -> bytes:
    """Half of the inputs are whole archives with one damaged member, whose check sums are right."""
    if rng.random() < 0.5:
        return data
    file, seed = io.BytesIO(), rng.choice(SEEDS["torch"])
    with zipfile.ZipFile(io.BytesIO(seed)) as old, zipfile.ZipFile(file, "w") as new:
        spoiled = rng.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            new.writestr(
                zipfile.ZipInfo(name),
                mutate(rng, content, [content, b"cposix\nsystem\n"]) if name == spoiled else content,
            )
    return file.getvalue()


def read_state_dict(data: bytes) -> Any:
    from deeplinear.readers import read_torch

    read_torch(Source("fuzz", "w.pt", data))


TARGETS = {
    "npy": Target(npy_seeds, read_all("npy")),
    "npz": Target(npz_seeds, read_all("npz"), wrap_npz),
    "safetensors": Target(safetensors_seeds, read_all("safetensors"), wrap_safetensors),
    "idx": Target(idx_seeds, lambda data: read_idx(Source("fuzz", "images", data), 3)),
    "cifar": Target(lambda: [bytes(3 * 13)], lambda data: read_records(Source("fuzz", "batch.bin", data), 13)),
    "gzip": Target(
        lambda: [__import__("gzip").compress(seed, mtime=0) for seed in idx_seeds()],
        lambda data: read_idx(Source("fuzz", "images.gz", data), 3),
    ),
    "pickle": Target(pickle_seeds, lambda data: read_pickle(Source("fuzz", "batch", data))),
    "table": Target(table_seeds, read_tables),
    "toml": Target(toml_seeds, read_settings),
    "record": Target(record_seeds, read_record),
    "trajectory": Target(lambda: [dataset_parts()], read_trajectory),
    "sealed": Target(lambda: [sealed(seed) for seed in netcdf_seeds()], read_sealed),
    "foreign": Target(netcdf_seeds, read_foreign),
    "torch": Target(torch_seeds, read_state_dict, wrap_torch),
}

SEEDS: dict[str, Sequence[bytes]] = {}
"""Seeds of the readers that have been used."""

PROCESS = random.SystemRandom().randrange(10**9)
"""Number of this program, for the names of its files."""


# ---- Runs ------------------------------------------------------------------------------------------------------------


def nth_input(reader: str, seed: int, number: int) -> bytes:
    """The input of a number: the same for the same seed, whatever is run before it."""
    target = TARGETS[reader]
    if reader not in SEEDS:
        SEEDS[reader] = target.seeds()
    rng = random.Random(f"{reader} {seed} {number}")
    data = mutate(rng, rng.choice(SEEDS[reader]), SEEDS[reader])
    return target.wrap(rng, data)


def outcome(reader: str, data: bytes) -> str:
    """`value`, or `refused`; anything else is raised, lack of memory and of time included."""
    try:
        TARGETS[reader].read(data)
    except FileError as error:
        if "not enough memory" in error.problem:
            raise MemoryError(error.problem) from error
        return "refused"
    return "value"


def too_slow(*_: object) -> None:
    raise TimeoutError(f"it takes more than {SECONDS:g} s of processor time")


def run(
    reader: str, count: int, seed: int, first: int = 0, say: Callable[[str], None] = lambda text: None
) -> tuple[collections.Counter, list]:
    """Outcomes of some inputs, and those inputs that have another one, with the reason."""
    outcomes: collections.Counter[str] = collections.Counter()
    wrong: list[tuple[bytes, str]] = []
    begin = time.monotonic()
    for number in range(first, first + count):
        data = nth_input(reader, seed, number)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            outcomes[outcome(reader, data)] += 1
        except BaseException as error:
            signal.setitimer(signal.ITIMER_PROF, 0)
            if isinstance(error, KeyboardInterrupt):
                break
            outcomes[f"{type(error).__name__}"] += 1
            wrong.append((data, traceback.format_exc()))
            if len(wrong) >= 20:
                break
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if (number + 1) % 100_000 == 0:
            say(
                f"{reader} seed {seed}: {number + 1 - first:,} inputs, {dict(outcomes)}{ended()}, "
                f"{time.monotonic() - begin:.0f} s"
            )
    return outcomes, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reader", choices=sorted(TARGETS))
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    nth_input(given.reader, given.seed, 0)
    if given.reader not in ("torch", "record", "trajectory"):  # JAX and PyTorch reserve more than they use.
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, too_slow)
    warnings.simplefilter("error")
    outcomes, wrong = run(given.reader, given.count, given.seed, given.first, lambda text: print(text, flush=True))
    for reading in READING:
        reading.close()
    folder = Path("build/fuzz")
    for place, (data, reason) in enumerate(wrong):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{given.reader}-{given.seed}-{place}.bin"
        file.write_bytes(data)
        print(f"{file}:\n{reason}", flush=True)
    print(
        f"{given.reader} seed {given.seed}: {sum(outcomes.values()):,} inputs: {dict(outcomes)}; peak "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB{ended()}",
        flush=True,
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
