"""Files made to hurt: refused by name, before anything is unpacked, allocated or run."""

import gzip
import hashlib
import io
import json
import pickle
import struct
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest

from deeplinear.diagnosis import load_weights
from deeplinear.experiments import CorruptRecord, Store
from deeplinear.readers import (
    FileError,
    MissingFile,
    Source,
    StoredArray,
    open_arrays,
    read_arrays,
    read_idx,
    read_json,
    read_pickle,
    read_toml,
    read_torch,
)

PICKLE_OF_NINE_BYTES = b"\x80\x02Nr\xff\xff\xff\x0f."
"""Names place 2^28 of the memory of the reader; Python's own makes room for 2^29 objects."""


def saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def described(header: str, body: bytes = b"") -> bytes:
    """An .npy file with a header of our own."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + body


def zipped(method: int = zipfile.ZIP_DEFLATED, **members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as content:
        for name, data in members.items():
            content.writestr(f"{name}.npy", data)
    return file.getvalue()


def refusal(name: str, content: bytes) -> str:
    with pytest.raises(FileError) as refused:
        read_arrays(open_arrays(Source("load", name, content)))
    return str(refused.value)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }", "cannot have the shape"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 9999999999999999999), }", "cannot have the shape"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "1, " * 40 + "), }", "cannot have the shape"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (100000, 100000), }", "needs 80,000,000,000 bytes, but 8"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", "needs 16 bytes, but 8 follow"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", "has a damaged header"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1,)", "has a damaged header"),
        ("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), 'descr': '<f4'}", "has a damaged header"),
        ("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,), }", "holds records"),
        ("(" * 5000, "has a damaged header"),
        ("{'descr': '<f3', 'fortran_order': False, 'shape': (1,), }", "unknown type '<f3'"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "holds Python objects"),
    ],
)
def test_headers_of_arrays_are_compared_with_the_file(header: str, words: str) -> None:
    assert words in refusal("a.npy", described(header, bytes(8)))
    assert words in refusal("a.npz", zipped(a=described(header, bytes(8))))


def test_what_is_well_formed_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in ("<f8", ">f8", "<f4", ">i2", "|b1", "<u8", "<c16", "<f2"):
        for shape, order in (((3, 4), "C"), ((3, 4), "F"), ((), "C"), ((0, 2), "C")):
            array = np.asarray(rng.integers(0, 2, shape), dtype=kind, order=order)
            np.save(tmp_path / "a.npy", array)
            np.savez_compressed(tmp_path / "a.npz", a=array)
            for name in ("a.npy", "a.npz"):
                found = open_arrays(Source.of(tmp_path / name, "load"))["a"].read()
                np.testing.assert_array_equal(found, array)
                assert found.dtype == array.dtype.newbyteorder("=") and found.dtype.isnative


def test_archives_are_not_unpacked_before_they_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    monkeypatch.setattr(StoredArray, "_numbers", lambda *_: read.append(1))
    monkeypatch.setattr("deeplinear.readers._arrays.LARGEST_UNPACKED", 10**5)
    bomb = zipped(a=saved(np.zeros(10**5)), b=saved(np.zeros(10**5)))
    assert len(bomb) < 10_000 and "more than 100 times as many; save it with numpy.savez" in refusal("a.npz", bomb)
    monkeypatch.setattr("deeplinear.readers._arrays.MOST_NUMBERS", 150_000)
    assert "have 200,000 numbers, more than 150,000" in refusal(
        "a.npz", zipped(zipfile.ZIP_STORED, a=saved(np.zeros(10**5)), b=saved(np.zeros(10**5)))
    )
    assert read == []


def test_archives_of_other_kinds_are_refused() -> None:
    whole = zipped(a=saved(np.eye(3)))
    damaged = bytearray(whole)
    damaged[whole.index(b"a.npy") + 10] ^= 0xFF  # within the compressed bytes
    assert "it is not a whole archive" in refusal("a.npz", bytes(damaged))
    assert "compressed by an unknown method (14)" in refusal("a.npz", zipped(zipfile.ZIP_LZMA, a=saved(np.eye(3))))
    encrypted = bytearray(zipped(zipfile.ZIP_STORED, a=saved(np.eye(3))))
    encrypted[encrypted.index(b"PK\x01\x02") + 8] |= 1
    assert "'a.npy' is encrypted" in refusal("a.npz", bytes(encrypted))
    twice = zipped(a=saved(np.eye(2)), b=saved(np.eye(2))).replace(b"b.npy", b"a.npy")
    assert "two of its members have the same name" in refusal("a.npz", twice)


def test_pickles_take_no_more_memory_than_they_have_bytes() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_pickle(Source("load", "batch", PICKLE_OF_NINE_BYTES)) is None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes
    tower = b"\x80\x02K\x01" + b"q\x00h\x00\x86" * 200  # 2^200 leaves for whoever walks through them
    for hostile in (b"}" + tower[2:] + b"Ns.", tower + b"K\x00\x93.", tower + b"K\x00R."):
        with pytest.raises(FileError, match=r"load: cannot read batch: .*; take the file that its authors"):
            read_pickle(Source("load", "batch", hostile))
    for value in ([1, -(2**70)], {"a": (None, True)}, {b"x": np.arange(6, dtype=np.uint8).reshape(2, 3)}):
        for protocol in (2, 3, 4):
            found = read_pickle(Source("load", "batch", pickle.dumps(value, protocol)))
            np.testing.assert_equal(found, value)


def test_images_do_not_unpack_beyond_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    for shape in ((0, 2**32 - 1, 2**32 - 1), (2**31, 2**31, 4), (2**32 - 1,) * 3):
        content = bytes([0, 0, 8, 3]) + struct.pack(">3I", *shape)
        with pytest.raises(
            FileError, match=r"load: cannot read images: (its shape .* is empty|it must have \d+ bytes)"
        ):
            read_idx(Source("load", "images", content), 3)
    with pytest.raises(FileError, match="unpacks to more than 1,000 bytes"):
        Source("load", "images.gz", gzip.compress(bytes(10_000))).unpacked(1000)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested deeper"),
        (".".join("a" * 500) + " = 1", "nested deeper"),
        ("a = " + "9" * 5000, "it is not TOML"),
        ("a = 1\na = 2", "it is not TOML"),
        ("a = " + " " * 70_000 + "1", "it has 70,005 bytes, more than 65,536"),
        ("a = \udcff", "not text in UTF-8"),
    ],
)
def test_settings_are_flat_and_small(content: str, words: str) -> None:
    with pytest.raises(FileError, match=words):
        read_toml(Source("--config", "run.toml", content.encode("utf-8", "surrogateescape")))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[" * 100_000, "nested deeper"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("NaN", "NaN is not a number of JSON"),
        ("1e999", "is too large"),
        ("9" * 5000, "it is not JSON"),
    ],
)
def test_json_is_flat_and_finite(content: str, words: str) -> None:
    with pytest.raises(FileError, match=words):
        read_json(Source("load", "a.json", content.encode()))


CLAIM = {"statement": "small", "measured": 0.5, "expected": "at most 1", "holds": True, "note": ""}


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "../../../etc"},
        {"key": "a/b"},
        {"kind": ["experiment"]},
        {"files": {"../record.json": "0" * 64}},
        {"files": {"data.nc": 3}},
        {"files": ["data.nc"]},
        {"claims": [{**CLAIM, "measured": [1]}]},
        {"claims": [{**CLAIM, "more": 1}]},
        {"claims": [{"statement": "small"}]},
        {"claims": {"statement": "small"}},
        {"spec": [1]},
        {"timing": {"seconds": "long"}},
        {"environment": "here"},
        {"version": 1.5},
        {"violations": [{"name": "v"}]},
        {"preset": ["paper"]},
    ],
)
def test_crafted_records_are_refused(tmp_path: Path, changes: dict) -> None:
    """Their digest is right: whoever crafts a record knows how it is made."""
    store = Store(tmp_path)
    path = store.put("experiment", "paper/fig", "k", {"claims": [CLAIM], "spec": {}}, {"data.nc": b"x"}).path
    content = json.loads((path / "record.json").read_text()) | changes
    del content["digest"]
    content["digest"] = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    (path / "record.json").write_text(json.dumps(content))
    with pytest.raises(CorruptRecord, match=rf"'{next(iter(changes))}' is .*; run it again"):
        Store.open_record(path)
    (found,) = store.records("experiment")
    assert isinstance(found, CorruptRecord)


def torch_of(version: str, loaded: list) -> types.ModuleType:
    """A PyTorch of some version that notes what it loads."""
    module = types.ModuleType("torch")
    vars(module).update(__version__=version, load=lambda *given, **how: loaded.append(how) or {"w": np.eye(2)})
    return module


def test_old_versions_of_pytorch_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.pt"
    path.write_bytes(zipped(zipfile.ZIP_STORED, data=b"pickle"))
    loaded: list = []
    for version in ("2.5.1+cu121", "1.13.0", "2.0"):
        monkeypatch.setitem(sys.modules, "torch", torch_of(version, loaded))
        with pytest.raises(FileError, match=r"PyTorch .* may run programs .*install PyTorch 2\.6 or newer"):
            load_weights(path)
    assert loaded == []
    for version in ("2.6.0", "2.13.0+cpu", "10.0"):
        monkeypatch.setitem(sys.modules, "torch", torch_of(version, loaded))
        assert load_weights(path).widths == (2, 2)
    assert [how["weights_only"] for how in loaded] == [True] * 3
    for content, words in (
        (PICKLE_OF_NINE_BYTES, "not an archive of PyTorch 1.6 or newer"),
        (zipped(data=bytes(1000)), "is compressed, which PyTorch never does"),
        (b"", "not an archive"),
    ):
        with pytest.raises(FileError, match=words):
            read_torch(Source("load_weights", "w.pt", content))
    assert len(loaded) == 3


def test_all_refusals_are_of_one_family(tmp_path: Path) -> None:
    with pytest.raises(MissingFile) as missing:
        Source.of(tmp_path / "none.npz", "load")
    assert isinstance(missing.value, FileError) and isinstance(missing.value, FileNotFoundError)
    assert (
        str(missing.value) == f"load: cannot read {tmp_path / 'none.npz'}: no such file; check the name and the folder."
    )
    again = pickle.loads(pickle.dumps(missing.value))
    assert (type(again), str(again)) == (MissingFile, str(missing.value))
    assert str(missing.value.seen_by("--target")).startswith("--target: cannot read")
    for path, words in ((tmp_path, "it is a folder"), (Path("/dev/null"), "it is not a regular file")):
        with pytest.raises(FileError, match=words):
            Source.of(path, "load")
    assert issubclass(CorruptRecord, FileError) and issubclass(FileError, ValueError)
    record = CorruptRecord("store", "record.json", "it is missing")
    assert str(pickle.loads(pickle.dumps(record))) == str(record)
