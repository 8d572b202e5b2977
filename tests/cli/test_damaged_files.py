"""Whatever is wrong with a file, every command that reads it ends with one line, exit code 2 and a refusal in JSON."""

import io
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from deeplinear.cli._main import app


def saved(array: np.ndarray, archive: bool) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if archive else np.save)(file, array)
    return file.getvalue()


def described(header: str) -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(72)


def spoiled() -> bytes:
    """An archive whose compressed numbers are damaged."""
    whole = bytearray(saved(np.random.default_rng(0).normal(size=(9, 9)), True))
    for place in range(150, 400):
        whole[place] ^= 0x55
    return bytes(whole)


def of_objects() -> bytes:
    file = io.BytesIO()
    np.savez(file, **{"W1": np.array([{}])})
    return file.getvalue()


def of_other_version() -> bytes:
    """An archive that asks for a version of the zip format that nobody knows."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as content:
        content.writestr("W1.npy", saved(np.eye(2), False))
    return file.getvalue().replace(b"PK\x01\x02\x14\x03\x14\x00", b"PK\x01\x02\x14\x03\xff\x00")


WRONG = {
    "bracket.npy": described("{'descr': '<f8', 'fortran_order': False, 'shape': (3, "),
    "token.npy": described("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 3), \"\"\"}"),
    "large.npy": described("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4), }"),
    "cut.npy": saved(np.eye(3), False)[:-1],
    "empty.npy": b"",
    "spoiled.npz": spoiled(),
    "words.npz": b"no archive",
    "objects.npz": of_objects(),
    "version.npz": of_other_version(),
    "latin.csv": b"1,2\n\xff,4\n",
    "run.nc": b"\x89HDF\r\n\x1a\n" + bytes(200),
    "deep.toml": b"a = " + b"[" * 5000,
}

ARRAYS = [name for name in WRONG if name.endswith((".npy", ".npz", ".csv"))]
ARCHIVES = [name for name in WRONG if name.endswith(".npz")]

COMMANDS = [
    *[(f"complete {name}", name) for name in ARRAYS],
    *[(f"regress {name} --targets 1", name) for name in ARRAYS],
    *[(f"identify {name} --outputs 1", name) for name in ARRAYS],
    *[(f"extrapolate {name}", name) for name in ARRAYS],
    *[(f"geodesic {name} good.npy --depth 2 --no-plot", name) for name in ARRAYS],
    *[(f"simulate --widths 3,3 --horizon 1 --target {name}", name) for name in ARRAYS],
    *[(f"landscape {name}", name) for name in (*ARCHIVES, "run.nc")],
    *[(f"simulate --widths 3,3 --horizon 1 --init file --init-file {name}", name) for name in (*ARCHIVES, "run.nc")],
    *[(f"diagnose {name}", name) for name in (*ARCHIVES, "cut.npy") if name != "objects.npz"],
    *[(f"ranks {name}", name) for name in (*ARCHIVES, "cut.npy")],
    *[(f"diagnose good.npy --data {name}", name) for name in ARCHIVES],
    ("simulate --config deep.toml", "deep.toml"),
    ("complete good.npy --depth 100000", ""),
    ("regress good.npy --targets 1 --depth 100000", ""),
    ("geodesic good.npy good.npy --depth 100000000", ""),
    ("identify good.npy --outputs 1 --states 1000000", ""),
    ("identify good.npy --outputs 1 --horizon 1000000000", ""),
    ("extrapolate good.npy --horizon 1000000000000", ""),
    (f"simulate --horizon 1 --widths {','.join('2' * 1200)}", ""),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All damaged files, and a good one."""
    place = tmp_path_factory.mktemp("damaged")
    for name, content in {**WRONG, "good.npy": saved(np.eye(3), False)}.items():
        (place / name).write_bytes(content)
    return place


@pytest.mark.parametrize(("command", "name"), COMMANDS)
def test_damaged_files_are_refused_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    monkeypatch.chdir(folder)
    run = CliRunner().invoke(app, [*command.split(), "--json"], catch_exceptions=False)
    assert run.exit_code == 2, run.output
    assert run.stderr.count("\n") == 1 and name in run.stderr and "Traceback" not in run.stderr
    answer = json.loads(run.stdout)
    assert (answer["ok"], answer["exit_code"], answer["error"]["kind"]) == (False, 2, "usage")
    assert name in answer["error"]["message"]
