"""Readers of labelled images in the formats in which they are published."""

import gzip
from pathlib import Path

import numpy as np

from deeplinear.datasets._load import file_of
from deeplinear.models import Images

FASHION = "/usr/share/datasets/fashion-mnist"
"""Where Debian's package dataset-fashion-mnist puts its files."""

CIFAR_FILES = {
    10: ((*(f"data_batch_{number}.bin" for number in range(1, 6)),), "test_batch.bin", 1),
    100: (("train.bin",), "test.bin", 2),
}
"""By number of classes: files for training, the file for testing, and how many labels stand before an image."""

PICKLED = {"cifar-10": ("cifar-10-batches-py", "batches.meta"), "cifar-100": ("cifar-100-python", "meta")}
"""The folder that the Python version unpacks to, and a file only that version has."""

SIDE, CHANNELS = 32, 3


def cifar(folder: str | Path, classes: int = 10) -> Images:
    """CIFAR-10 or CIFAR-100 from the files of the binary version, as their authors publish it.

    Args:
        folder: With `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`, or with `train.bin` and `test.bin`;
            it is called `cifar-10-batches-bin` or `cifar-100-binary` in the archive.
        classes: 10 or 100 (the fine classes).
    """
    if classes not in CIFAR_FILES:
        raise ValueError(f"cifar: classes must be 10 or 100, but is {classes!r}.")
    files, test, labels = CIFAR_FILES[classes]
    where = _folder(folder, f"cifar-{classes}", (*files, test))
    parts = [_cifar_file(where / name, labels, classes) for name in files]
    images, known = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Images(images, known, *_cifar_file(where / test, labels, classes), classes)


def fashion_mnist(folder: str | Path = FASHION) -> Images:
    """Fashion-MNIST: 60,000 and 10,000 grey pictures of clothes, 28 x 28, in ten classes.

    Args:
        folder: With the four files of the original format, compressed or not. Debian's package
            `dataset-fashion-mnist` brings them.
    """
    names = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    where = _folder(folder, "fashion-mnist", names)
    found = [_idx(where / name) for name in names]
    for images, labels in (found[:2], found[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"fashion_mnist: {where} has {images.shape} images and {labels.shape} labels, which do not belong "
                "together."
            )
    train, train_labels, test, test_labels = found
    return Images(train[..., None], train_labels.astype(int), test[..., None], test_labels.astype(int), 10)


def mnist() -> Images:
    """5,000 handwritten digits of MNIST, 28 x 28, of which every fifth of each class is for testing."""
    with gzip.open(file_of("mnist"), "rt", encoding="ascii") as stream:
        table = np.loadtxt(stream, delimiter=",", dtype=np.int64)
    pixels, labels = table[:, :-1].astype(np.uint8).reshape(-1, 28, 28, 1), table[:, -1]
    return _split(pixels, labels)


def digits() -> Images:
    """1,797 handwritten digits of scikit-learn, 8 x 8, of which every fifth of each class is for testing."""
    from sklearn.datasets import load_digits

    grey, labels = load_digits(return_X_y=True)
    pixels = np.round(np.asarray(grey) * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
    return _split(pixels, np.asarray(labels, dtype=int))


def clusters(seed: int = 0) -> Images:
    """2,000 points of 30 Gaussian clusters in 256 dimensions, three to each of ten classes, as grey pictures, 16 x 16.

    The centres have the deviation ¼, the points 1 around them; 500 more are for testing.

    Args:
        seed: Of the draw.

    Example:
        >>> clusters().train.shape, clusters().test_labels.max()
        ((2000, 16, 16, 1), np.int64(9))
    """
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((30, 256)) / 4
    chosen = rng.integers(0, 30, 2500)
    points = centres[chosen] + rng.standard_normal((2500, 256))
    pixels = np.clip(np.round(127.5 + 25 * points), 0, 255).astype(np.uint8).reshape(-1, 16, 16, 1)
    labels = chosen % 10
    return Images(pixels[:2000], labels[:2000], pixels[2000:], labels[2000:], 10)


def _split(pixels: np.ndarray, labels: np.ndarray) -> Images:
    """Every fifth image of each class for testing; the others in an order that mixes the classes."""
    place = np.zeros(len(labels), dtype=int)
    for label in np.unique(labels):
        place[labels == label] = np.arange(np.sum(labels == label))
    tested = place % 5 == 4
    order = np.argsort(place[~tested], kind="stable")
    return Images(pixels[~tested][order], labels[~tested][order], pixels[tested], labels[tested], 10)


def _cifar_file(path: Path, labels: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    size = labels + SIDE * SIDE * CHANNELS
    content = np.frombuffer(_content(path), dtype=np.uint8)
    if not len(content) or len(content) % size:
        raise ValueError(
            f"cifar: {path} must hold records of {size} bytes, but has {len(content)}; it is cut off, or another file."
        )
    records = content.reshape(-1, size)
    known = records[:, labels - 1].astype(int)
    if known.max() >= classes:
        raise ValueError(f"cifar: {path} has a label {known.max()}, but labels must be below {classes}.")
    return records[:, labels:].reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1), known


def _idx(path: Path) -> np.ndarray:
    """An array of bytes in the format idx: two zeros, 8 for bytes, the number of axes, their lengths, the bytes."""
    content = _content(path)
    axes = content[3] if len(content) > 3 else 0
    if content[:3] != b"\x00\x00\x08" or len(content) < 4 + 4 * axes:
        raise ValueError(f"fashion_mnist: {path} is not an array of bytes in the format idx.")
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=axes, offset=4))
    if len(content) - 4 - 4 * axes != int(np.prod(shape)):
        raise ValueError(
            f"fashion_mnist: {path} must have {int(np.prod(shape))} bytes after its head for the shape {shape}, but "
            f"has {len(content) - 4 - 4 * axes}."
        )
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def _content(path: Path) -> bytes:
    """The bytes of a file, which may be compressed."""
    return path.read_bytes() if path.is_file() else gzip.decompress(path.with_name(f"{path.name}.gz").read_bytes())


def _folder(folder: str | Path, name: str, files: tuple[str, ...] | list[str]) -> Path:
    """The folder, if all files are there, compressed or not."""
    where = Path(folder).expanduser()
    missing = [file for file in files if not (where / file).is_file() and not (where / f"{file}.gz").is_file()]
    if missing:
        what = f"{where} has no {', '.join(missing)}" if where.is_dir() else f"there is no folder {where}"
        hint = {
            "fashion-mnist": "Install Debian's package dataset-fashion-mnist, or name the folder that has them.",
        }.get(name, f"Unpack the binary version of {name.upper()}, {name}-binary.tar.gz, and name the folder.")
        if name in PICKLED:
            beside, meta = PICKLED[name]
            if any((other / meta).exists() for other in (where, where.parent / beside)):
                hint = f"The Python version is there, but its files, which may run programs, are not read. {hint}"
        raise FileNotFoundError(f"datasets: {what}. {hint}")
    return where
