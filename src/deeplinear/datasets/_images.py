"""Readers of labelled images in the formats in which they are published."""

import gzip
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deeplinear.datasets._load import file_of
from deeplinear.models import Images
from deeplinear.readers import Source, read_idx, read_pickle, read_records

FASHION = "/usr/share/datasets/fashion-mnist"
"""Where Debian's package dataset-fashion-mnist puts its files."""

FASHION_SIDE, FASHION_CLASSES = 28, 10

CIFAR_FILES = {
    10: {**{f"data_batch_{number}": 10_000 for number in range(1, 6)}, "test_batch": 10_000},
    100: {"train": 50_000, "test": 10_000},
}
"""By number of classes: names of the files, the one for testing last, and how many images each has as published.

The binary version adds `.bin` to the names.
"""

CIFAR_LABELS = {10: ("labels", 1), 100: ("fine_labels", 2)}
"""What the classes are called in the Python version, and how many labels stand before an image in the binary one."""

CIFAR_FOLDERS = {10: ("cifar-10-batches-bin", "cifar-10-batches-py"), 100: ("cifar-100-binary", "cifar-100-python")}
"""The folders that the archives unpack to."""

SIDE, CHANNELS = 32, 3


def cifar(folder: str | Path, classes: int = 10) -> Images:
    """CIFAR-10 or CIFAR-100 from the files of the binary or of the Python version, as their authors publish them.

    The files tell the version; where both are, the binary one is read. Files of the Python version are pickles, which
    may name any program to be run: nothing is taken from them but arrays of bytes, lists and numbers, and a file that
    asks for more is refused. A warning is given of files with another number of images than the published ones.

    Args:
        folder: With `data_batch_1` to `data_batch_5` and `test_batch`, or with `train` and `test`, the names ending in
            `.bin` in the binary version; any file may be compressed by gzip. In the archives it is called
            `cifar-10-batches-bin`, `cifar-10-batches-py`, `cifar-100-binary` or `cifar-100-python`; a folder that
            contains one of that name will do.
        classes: 10 or 100 (the fine classes).

    Raises:
        FileNotFoundError: Files are missing; the message names them.
        FileError: A file is damaged; a `ValueError` like those for files that hold something else.
    """
    if classes not in CIFAR_FILES:
        raise ValueError(f"cifar: classes must be 10 or 100, but is {classes!r}.")
    published = CIFAR_FILES[classes]
    where, ending = _cifar_folder(Path(folder).expanduser(), classes)
    parts, odd = [], []
    for name, count in published.items():
        path = _present(where / f"{name}{ending}")
        parts.append(_cifar_binary(path, classes) if ending else _cifar_python(path, classes))
        if len(parts[-1][0]) != count:
            odd.append(f"{path.name} has {len(parts[-1][0]):,} images instead of {count:,}")
    if odd:
        warnings.warn(f"cifar: {where} is not as published: {'; '.join(odd)}. Files may be cut off.", stacklevel=2)
    train, train_labels = (np.concatenate(part) for part in zip(*parts[:-1], strict=True))
    test, test_labels = parts[-1]
    return Images(train, train_labels, test, test_labels, classes)


def fashion_mnist(folder: str | Path = FASHION) -> Images:
    """Fashion-MNIST: 60,000 and 10,000 grey pictures of clothes, 28 x 28, in ten classes.

    Args:
        folder: With the four files of the original format, compressed or not. Debian's package
            `dataset-fashion-mnist` brings them.

    Raises:
        FileNotFoundError: Files are missing; the message names them.
        FileError: A file is damaged; a `ValueError` like those for files that hold something else.
    """
    where = Path(folder).expanduser()
    names = [f"{part}-{kind}" for part in ("train", "t10k") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]
    missing = _missing(where, names)
    if missing:
        raise FileNotFoundError(
            f"datasets: {_absence(where, missing)}. Install Debian's package dataset-fashion-mnist, or name the folder "
            "that has them."
        )
    paths = [_present(where / name) for name in names]
    train, train_labels = _fashion_part(paths[0], paths[1])
    test, test_labels = _fashion_part(paths[2], paths[3])
    return Images(train, train_labels, test, test_labels, FASHION_CLASSES)


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


def _cifar_binary(path: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    labels = CIFAR_LABELS[classes][1]
    records = read_records(Source.of(path, "cifar"), labels + SIDE * SIDE * CHANNELS)
    return _cifar_images(path, records[:, labels:], records[:, labels - 1].astype(int), classes)


def _cifar_python(path: Path, classes: int) -> tuple[np.ndarray, np.ndarray]:
    wanted = CIFAR_LABELS[classes][0]
    found = read_pickle(Source.of(path, "cifar"))
    if not isinstance(found, dict) or not {b"data", wanted.encode()} <= found.keys():
        keys = ", ".join(sorted(map(repr, found)))[:200] if isinstance(found, dict) else type(found).__name__
        raise ValueError(
            f"cifar: {path} must hold b'data' and b'{wanted}', but has {keys or 'nothing'}; it is another file."
        )
    labels, data = found[wanted.encode()], found[b"data"]
    pixels: np.ndarray = data if isinstance(data, np.ndarray) else np.empty(0, np.uint8)
    size = SIDE * SIDE * CHANNELS
    if pixels.ndim != 2 or pixels.shape[1] != size or not len(pixels):
        raise ValueError(f"cifar: b'data' of {path} must be rows of {size} bytes, but has shape {pixels.shape}.")
    if not isinstance(labels, list) or any(type(label) is not int for label in labels) or len(labels) != len(pixels):
        raise ValueError(f"cifar: b'{wanted}' of {path} must be a list of {len(pixels)} whole numbers.")
    return _cifar_images(path, pixels, np.asarray(labels), classes)


def _cifar_images(path: Path, pixels: np.ndarray, labels: np.ndarray, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Images (number, rows, columns, channels) from rows of red, green and blue planes, and their classes."""
    for extreme in (labels.min(), labels.max()):
        if not 0 <= extreme < classes:
            raise ValueError(f"cifar: {path} has a label {extreme}, but labels must be below {classes}.")
    return pixels.reshape(-1, CHANNELS, SIDE, SIDE).transpose(0, 2, 3, 1), labels


def _cifar_folder(where: Path, classes: int) -> tuple[Path, str]:
    """The folder that has all files of a version, and what their names end in."""
    places = (where, *(where / name for name in CIFAR_FOLDERS[classes]))
    absent = {
        (place, ending): _missing(place, [f"{name}{ending}" for name in CIFAR_FILES[classes]])
        for place in places
        for ending in (".bin", "")
    }
    best, missing = min(absent.items(), key=lambda item: len(item[1]))
    if missing:
        raise FileNotFoundError(
            f"datasets: {_absence(best[0], missing)}. Unpack the binary version of CIFAR-{classes}, "
            f"cifar-{classes}-binary.tar.gz, or the Python version, cifar-{classes}-python.tar.gz, and name the folder."
        )
    return best


def _fashion_part(pictures: Path, classes: Path) -> tuple[np.ndarray, np.ndarray]:
    images, labels = (read_idx(Source.of(path, "fashion_mnist"), axes) for path, axes in ((pictures, 3), (classes, 1)))
    if images.shape[1:] != (FASHION_SIDE, FASHION_SIDE):
        raise ValueError(
            f"fashion_mnist: {pictures} must hold images of {FASHION_SIDE} x {FASHION_SIDE} bytes, but has shape "
            f"{images.shape}; it is another file."
        )
    if len(labels) != len(images):
        raise ValueError(
            f"fashion_mnist: {pictures} has {len(images)} images and {classes} {len(labels)} labels, which do not "
            "belong together."
        )
    if labels.max() >= FASHION_CLASSES:
        raise ValueError(
            f"fashion_mnist: {classes} has a label {labels.max()}, but labels must be below {FASHION_CLASSES}."
        )
    return images[..., None], labels.astype(int)


def _packed(path: Path) -> Path:
    return path.with_name(f"{path.name}.gz")


def _present(path: Path) -> Path:
    """The file itself, or else the compressed one."""
    return path if path.is_file() else _packed(path)


def _missing(where: Path, files: Sequence[str]) -> list[str]:
    """The files that are not there, compressed or not."""
    return [file for file in files if not _present(where / file).is_file()]


def _absence(where: Path, missing: Sequence[str]) -> str:
    return f"{where} has no {', '.join(missing)}" if where.is_dir() else f"there is no folder {where}"
