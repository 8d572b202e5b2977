"""Readers of labelled images, on small files written in the published formats."""

import gzip
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deeplinear.datasets import cifar, digits, fashion_mnist, mnist
from deeplinear.models import Images

Written = dict[str, tuple[np.ndarray, np.ndarray]]

NAMES = {10: [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"], 100: ["train", "test"]}


def drawn(classes: int, seed: int, count: int = 3) -> Written:
    """Images (number, rows, columns, channels) and their classes for each of CIFAR's files."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8), rng.integers(0, classes, count))
        for name in NAMES[classes]
    }


def rows(pixels: np.ndarray) -> np.ndarray:
    """Red, green and blue planes of each image, one after another."""
    return np.stack([np.concatenate([image[:, :, channel].ravel() for channel in range(3)]) for image in pixels])


def write_binary(folder: Path, classes: int, written: Written) -> None:
    for name, (pixels, labels) in written.items():
        records = []
        for row, label in zip(rows(pixels), labels, strict=True):
            head = bytes([label]) if classes == 10 else bytes([label // 5, label])  # the coarse class stands first
            records.append(head + row.tobytes())
        (folder / f"{name}.bin").write_bytes(b"".join(records))


def write_python(folder: Path, classes: int, written: Written, dumps: Callable[[object], bytes]) -> None:
    for name, (pixels, labels) in written.items():
        known = [int(label) for label in labels]
        content: dict[bytes, object] = {b"batch_label": name.encode(), b"data": rows(pixels)}
        content |= {b"labels": known} if classes == 10 else {b"coarse_labels": [0] * len(known), b"fine_labels": known}
        content[b"filenames"] = [f"{number}.png".encode() for number in range(len(known))]
        (folder / name).write_bytes(dumps(content))


def python2(value: object) -> bytes:
    """A pickle as Python 2 and the NumPy of its time wrote it in protocol 2, where text was bytes."""
    return b"\x80\x02" + _opcodes(value) + b"."


def _opcodes(value: object) -> bytes:
    match value:
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return b"J" + struct.pack("<i", value)
        case bytes():
            return b"T" + struct.pack("<i", len(value)) + value
        case dict():
            return b"}(" + b"".join(map(_opcodes, [part for item in value.items() for part in item])) + b"u"
        case list():
            return b"](" + b"".join(map(_opcodes, value)) + b"e"
        case tuple():
            return b"(" + b"".join(map(_opcodes, value)) + b"t"
        case np.ndarray():
            empty = (
                b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _opcodes((0,)) + _opcodes(b"b") + b"tR"
            )
            kind = b"cnumpy\ndtype\n" + _opcodes((value.dtype.str[1:].encode(), 0, 1)) + b"R"
            kind += b"(" + _opcodes(3) + _opcodes(b"|") + b"NNN" + _opcodes(-1) + _opcodes(-1) + _opcodes(0) + b"tb"
            by_columns = not value.flags.c_contiguous
            state = _opcodes(1) + _opcodes(value.shape) + kind + _opcodes(by_columns) + _opcodes(value.tobytes("A"))
            return empty + b"(" + state + b"tb"
        case _:
            raise TypeError(type(value))


def python3(value: object) -> bytes:
    return pickle.dumps(value, protocol=2)


def by_columns(value: object) -> bytes:
    """As Python 2, with arrays that lie in memory column by column."""
    assert isinstance(value, dict)
    return python2({**value, b"data": np.asfortranarray(value[b"data"])})


def read(folder: Path, classes: int = 10) -> Images:
    """CIFAR from small files, of which the reader warns."""
    with pytest.warns(UserWarning, match=r"is not as published: .* has 3 images instead of \d0,000.*may be cut off"):
        return cifar(folder, classes)


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(classes: int, tmp_path: Path, seed: int) -> None:
    written = drawn(classes, seed)
    write_binary(tmp_path, classes, written)
    *train, test = written.values()
    found = read(tmp_path, classes)
    np.testing.assert_array_equal(found.train, np.concatenate([pixels for pixels, _ in train]))
    np.testing.assert_array_equal(found.train_labels, np.concatenate([labels for _, labels in train]))
    np.testing.assert_array_equal(found.test, test[0])
    np.testing.assert_array_equal(found.test_labels, test[1])
    assert found.classes == classes and found.train.dtype == np.uint8
    packed = tmp_path / f"{NAMES[classes][0]}.bin"
    packed.with_name(f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    np.testing.assert_array_equal(read(tmp_path, classes).train, found.train)


@pytest.mark.parametrize("dumps", [python2, python3, by_columns])
@pytest.mark.parametrize("classes", [10, 100])
def test_both_versions_of_cifar_are_one(classes: int, dumps, tmp_path: Path, seed: int) -> None:
    written = drawn(classes, seed)
    names = {10: ("cifar-10-batches-bin", "cifar-10-batches-py"), 100: ("cifar-100-binary", "cifar-100-python")}
    binary, python = (tmp_path / name for name in names[classes])
    python.mkdir()
    write_python(python, classes, written, dumps)
    found = read(python, classes)
    stock = pickle.loads((python / NAMES[classes][0]).read_bytes(), encoding="bytes")[b"data"]  # the file is a real one
    np.testing.assert_array_equal(stock.reshape(3, 3, 32, 32)[:, 1], found.train[:3, :, :, 1])
    np.testing.assert_array_equal(read(tmp_path, classes).train, found.train)  # the folder around it will do
    binary.mkdir()
    write_binary(binary, classes, written)
    for mine, other in zip(found, read(binary, classes), strict=True):
        np.testing.assert_array_equal(mine, other)
        assert np.asarray(mine).dtype == np.asarray(other).dtype
    (binary / f"{NAMES[classes][-1]}.bin").write_bytes(bytes(2 * (3073 + classes // 100)))
    with pytest.warns(UserWarning, match=rf"{names[classes][0]} is not as published: .*; test\w*.bin has 2 images"):
        assert len(cifar(tmp_path, classes).test) == 2  # where both are, the binary one is read


def test_cifar_is_silent_about_files_as_published(tmp_path: Path) -> None:
    """CIFAR-100 in its full size, black pictures all; warnings are errors here."""
    for name, count in (("train", 50_000), ("test", 10_000)):
        with gzip.open(tmp_path / f"{name}.bin.gz", "wb", compresslevel=1) as stream:
            stream.write(bytes(count * 3074))
    assert len(cifar(tmp_path, 100).train) == 50_000


def test_cifar_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no data_batch_1.bin.*Unpack the binary version of CIFAR-10, cif"):
        cifar(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere.*, cifar-100-python.tar.gz, and name"):
        cifar(tmp_path / "nowhere", 100)
    write_binary(tmp_path, 10, drawn(10, 0))
    broken = tmp_path / "data_batch_3.bin"
    broken.write_bytes(broken.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_3.bin: it must hold records of 3073 bytes"):
        cifar(tmp_path)
    broken.write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ValueError, match="label 10, but labels must be below 10"):
        cifar(tmp_path)
    with pytest.raises(ValueError, match="classes must be 10 or 100"):
        cifar(tmp_path, 20)


class Planted:
    """An object whose pickle asks for a program to be run."""

    def __init__(self, program: Callable, *arguments: object) -> None:
        self.called = program, arguments

    def __reduce__(self) -> tuple[Callable, tuple]:
        return self.called


def test_pickles_that_ask_for_more_than_bytes_are_refused(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write_python(tmp_path, 10, drawn(10, 0), python2)
    hostile = tmp_path / "data_batch_2"
    good = {b"data": np.zeros((1, 3072), np.uint8), b"labels": [0]}
    for program, name in (
        (Planted(os.system, f"touch {trace}"), r"\w+\.system"),
        (Planted(eval, f"open({str(trace)!r}, 'w')"), r"\w+\.eval"),
        (Planted(np.fromfile, str(trace)), r"numpy\S*\.fromfile"),
        (Planted(getattr, good, "clear"), r"\w+\.getattr"),
    ):
        for content in (program, {**good, b"more": program}, {**good, b"labels": [program]}):
            hostile.write_bytes(pickle.dumps(content, protocol=2))
            with pytest.raises(ValueError, match=rf"data_batch_2: it asks for {name}, and only arrays of bytes"):
                cifar(tmp_path)
            assert not trace.exists()
    hostile.write_bytes(b"cos\nsystem\n(S'touch " + str(trace).encode() + b"'\ntR.")
    with pytest.raises(ValueError, match=r"data_batch_2: it asks for os\.system"):
        cifar(tmp_path)
    assert not trace.exists()
    pickle.loads(pickle.dumps(Planted(os.system, f"touch {trace}")))  # the plant does work
    assert trace.exists()


def test_the_python_version_says_what_is_wrong(tmp_path: Path) -> None:
    write_python(tmp_path, 100, drawn(100, 0), python2)
    good = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [0, 99]}
    for content, message in (
        ({**good, b"fine_labels": [0, 100]}, "has a label 100, but labels must be below 100"),
        ({**good, b"fine_labels": [-1, 0]}, "has a label -1"),
        ({**good, b"fine_labels": [0]}, "b'fine_labels' of .*test must be a list of 2 whole numbers"),
        ({**good, b"fine_labels": [b"0", b"1"]}, "must be a list of 2 whole numbers"),
        (
            {b"data": good[b"data"], b"labels": [0, 1]},
            "must hold b'data' and b'fine_labels', but has b'data', b'labels'",
        ),
        ([1], "must hold b'data' and b'fine_labels', but has list"),
        ({**good, b"data": np.zeros((2, 3071), np.uint8)}, r"must be rows of 3072 bytes, but has shape \(2, 3071\)"),
        ({**good, b"data": np.zeros((0, 3072), np.uint8)}, r"but has shape \(0, 3072\)"),
        ({**good, b"data": [0, 0]}, "must be rows of 3072 bytes"),
        ({**good, b"data": np.zeros((2, 3072), np.float32)}, "numbers are of the kind b'f4', and only arrays of bytes"),
    ):
        (tmp_path / "test").write_bytes(python2(content))
        with pytest.raises(ValueError, match=message) as caught:
            cifar(tmp_path, 100)
        assert str(tmp_path / "test") in str(caught.value)
    whole = python2(good)
    for cut in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        (tmp_path / "test").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"cannot read .*test: .*take the file that its authors publish"):
            cifar(tmp_path, 100)
    (tmp_path / "test").write_bytes(whole.replace(struct.pack("<ii", 2, 3072)[:4], struct.pack("<i", 7), 1))
    with pytest.raises(ValueError, match=r"cannot read .*test: .*take the file that its authors publish"):
        cifar(tmp_path, 100)
    (tmp_path / "test").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no test\. Unpack"):
        cifar(tmp_path, 100)


def spoiled(content: bytes) -> dict[str, bytes]:
    """Compressed files that cannot be unpacked: cut off, changed within and at the end, and not compressed at all."""
    whole = gzip.compress(content)
    within = whole[:10] + b"\xff" + whole[11:]
    return {"cut": whole[:-20], "within": within, "sum": whole[:-8] + bytes(8), "plain": content}


@pytest.mark.parametrize("how", ["cut", "within", "sum", "plain"])
def test_damaged_compressed_files_are_named(how: str, tmp_path: Path) -> None:
    arrays = write_fashion(tmp_path, 0)
    name = "t10k-images-idx3-ubyte"
    (tmp_path / name).unlink()
    (tmp_path / f"{name}.gz").write_bytes(spoiled(idx(arrays[name]))[how])
    with pytest.raises(ValueError, match=rf"{name}\.gz: it cannot be unpacked \(.*restore the file"):
        fashion_mnist(tmp_path)
    for version in ("python", "binary"):
        folder = tmp_path / version
        folder.mkdir()
        if version == "python":
            write_python(folder, 100, drawn(100, 0), python2)
        else:
            write_binary(folder, 100, drawn(100, 0))
        file = folder / ("train" if version == "python" else "train.bin")
        file.with_name(f"{file.name}.gz").write_bytes(spoiled(file.read_bytes())[how])
        file.unlink()
        with pytest.raises(ValueError, match=rf"^cifar: cannot read {file}\.gz: it cannot be unpacked"):
            cifar(folder, 100)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">2xBB{array.ndim}I", 8, array.ndim, *array.shape) + array.tobytes()


def write_fashion(folder: Path, seed: int) -> dict[str, np.ndarray]:
    """The four files of Fashion-MNIST with a few images, every second compressed."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for part, count in (("train", 5), ("t10k", 2)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, count, dtype=np.uint8)
    for name, array in arrays.items():
        (folder / name).write_bytes(idx(array))
    return arrays


def test_fashion_mnist(tmp_path: Path, seed: int) -> None:
    arrays = write_fashion(tmp_path, seed)
    for part in ("train", "t10k"):
        plain = tmp_path / f"{part}-images-idx3-ubyte"
        plain.with_name(f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
        plain.unlink()
    found = fashion_mnist(tmp_path)
    np.testing.assert_array_equal(found.train[..., 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(found.train_labels, arrays["train-labels-idx1-ubyte"])
    np.testing.assert_array_equal(found.test[..., 0], arrays["t10k-images-idx3-ubyte"])
    np.testing.assert_array_equal(found.test_labels, arrays["t10k-labels-idx1-ubyte"])
    assert found.train.shape == (5, 28, 28, 1) and found.classes == 10
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        fashion_mnist(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t10k-labels-idx1-ubyte", idx(np.zeros(2, np.uint8))[:-1], "must have 2 bytes after its head"),
        ("t10k-labels-idx1-ubyte", b"nothing of the kind", "it is not in the format idx, which begins with 0, 0, 8, 1"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros((2, 1), np.uint8)), "it is not in the format idx"),
        ("t10k-labels-idx1-ubyte", idx(np.zeros(3, np.uint8)), "3 labels, which do not belong together"),
        ("t10k-labels-idx1-ubyte", idx(np.array([3, 10], np.uint8)), "has a label 10, but labels must be below 10"),
        ("train-labels-idx1-ubyte", idx(np.full(5, 200, np.uint8)), "has a label 200"),
        ("t10k-images-idx3-ubyte", idx(np.zeros((2, 20, 20), np.uint8)), r"28 x 28 bytes, but has shape \(2, 20, 20\)"),
        ("train-images-idx3-ubyte", idx(np.zeros((5, 28, 27), np.uint8)), r"but has shape \(5, 28, 27\)"),
        ("train-images-idx3-ubyte", idx(np.zeros((0, 28, 28), np.uint8)), r"its shape \(0, 28, 28\) is empty"),
        ("train-images-idx3-ubyte", idx(np.zeros((5, 784), np.uint8)), "format idx, which begins with 0, 0, 8, 3"),
        ("train-images-idx3-ubyte", bytes([0, 0, 8, 3, 0, 0]), "it is not in the format idx"),
        # Lengths whose product is 0 in 64 bits.
        (
            "train-images-idx3-ubyte",
            bytes([0, 0, 8, 3]) + struct.pack(">3I", 2**31, 2**31, 4),
            "must have 184467440737",
        ),
    ],
)
def test_fashion_mnist_says_what_is_wrong(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    write_fashion(tmp_path, 0)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"^fashion_mnist: .*{name}.*{message}"):
        fashion_mnist(tmp_path)


@pytest.mark.parametrize(("load", "side", "count"), [(digits, 8, 1797), (mnist, 28, 5000)])
def test_packaged_digits(load, side: int, count: int) -> None:
    found = load()
    assert found.train.shape[1:] == found.test.shape[1:] == (side, side, 1)
    assert len(found.train) + len(found.test) == count and found.train.dtype == np.uint8
    shares = np.bincount(found.test_labels) / np.bincount(np.concatenate([found.train_labels, found.test_labels]))
    assert shares.min() > 0.19 and shares.max() <= 0.2  # every fifth of each class
    assert set(found.train_labels[:10]) == set(range(10))  # any first part has all classes
    assert found.train.max() == 255 and found.train.min() == 0
