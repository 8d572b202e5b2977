"""Readers of labelled images, on small files written in the published formats."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from deeplinear.datasets import cifar, digits, fashion_mnist, mnist


def write_cifar(folder: Path, classes: int, seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Files of CIFAR's binary version with three images each: labels, then red, green and blue planes."""
    rng = np.random.default_rng(seed)
    names = [f"data_batch_{number}.bin" for number in range(1, 6)] + ["test_batch.bin"]
    names = names if classes == 10 else ["train.bin", "test.bin"]
    written = {}
    for name in names:
        pixels = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
        labels = rng.integers(0, classes, 3)
        records = []
        for image, label in zip(pixels, labels, strict=True):
            head = bytes([label]) if classes == 10 else bytes([label // 5, label])  # the coarse class stands first
            records.append(head + b"".join(image[:, :, channel].tobytes() for channel in range(3)))
        (folder / name).write_bytes(b"".join(records))
        written[name] = (pixels, labels)
    return written


@pytest.mark.parametrize("classes", [10, 100])
def test_cifar(classes: int, tmp_path: Path, seed: int) -> None:
    written = write_cifar(tmp_path, classes, seed)
    *train, test = written.values()
    found = cifar(tmp_path, classes)
    np.testing.assert_array_equal(found.train, np.concatenate([pixels for pixels, _ in train]))
    np.testing.assert_array_equal(found.train_labels, np.concatenate([labels for _, labels in train]))
    np.testing.assert_array_equal(found.test, test[0])
    np.testing.assert_array_equal(found.test_labels, test[1])
    assert found.classes == classes and found.train.dtype == np.uint8
    packed = tmp_path / next(iter(written))
    packed.with_name(f"{packed.name}.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    np.testing.assert_array_equal(cifar(tmp_path, classes).train, found.train)


def test_cifar_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"has no data_batch_1.bin.*Unpack the binary version of CIFAR-10"):
        cifar(tmp_path)
    write_cifar(tmp_path, 10, 0)
    broken = tmp_path / "data_batch_3.bin"
    broken.write_bytes(broken.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_3.bin must hold records of 3073 bytes"):
        cifar(tmp_path)
    broken.write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ValueError, match="label 10, but labels must be below 10"):
        cifar(tmp_path)
    with pytest.raises(ValueError, match="classes must be 10 or 100"):
        cifar(tmp_path, 20)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">2xBB{array.ndim}I", 8, array.ndim, *array.shape) + array.tobytes()


def test_fashion_mnist(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {}
    for part, count in (("train", 5), ("t10k", 2)):
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = rng.integers(0, 10, count, dtype=np.uint8)
    for number, (name, array) in enumerate(arrays.items()):
        if number % 2:
            (tmp_path / name).write_bytes(idx(array))
        else:
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    found = fashion_mnist(tmp_path)
    np.testing.assert_array_equal(found.train[..., 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(found.test_labels, arrays["t10k-labels-idx1-ubyte"])
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(arrays["t10k-labels-idx1-ubyte"])[:-1])
    with pytest.raises(ValueError, match="must have 2 bytes after its head"):
        fashion_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="not an array of bytes in the format idx"):
        fashion_mnist(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.zeros(3, np.uint8)))
    with pytest.raises(ValueError, match="do not belong together"):
        fashion_mnist(tmp_path)
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        fashion_mnist(tmp_path / "nowhere")


@pytest.mark.parametrize(("read", "side", "count"), [(digits, 8, 1797), (mnist, 28, 5000)])
def test_packaged_digits(read, side: int, count: int) -> None:
    found = read()
    assert found.train.shape[1:] == found.test.shape[1:] == (side, side, 1)
    assert len(found.train) + len(found.test) == count and found.train.dtype == np.uint8
    shares = np.bincount(found.test_labels) / np.bincount(np.concatenate([found.train_labels, found.test_labels]))
    assert shares.min() > 0.19 and shares.max() <= 0.2  # every fifth of each class
    assert set(found.train_labels[:10]) == set(range(10))  # any first part has all classes
    assert found.train.max() == 255 and found.train.min() == 0
