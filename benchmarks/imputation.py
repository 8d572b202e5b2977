"""Completion of real matrices: `DeepMatrixCompletion` with its default settings beside other ways to fill gaps.

Four sets, read from packages that ship them: fertility (219 countries x 54 years, a fifth of what is known hidden),
camera (a photograph of 128 x 128, half of the pixels hidden), expression (700 cells x 765 genes, a fifth hidden),
movielens (100,000 ratings of 943 x 1,682, a fifth hidden). Over `SEEDS` draws of what is hidden. The error is the root
mean square on what was hidden, the mean over draws; the time is that of fit and prediction, the median, after one fit
that compiles. A draw that takes longer than `CAP` seconds is the only one of its contestant.

Peers: means of columns, k nearest neighbours and iterative regression of scikit-learn with their defaults (iterative
regression with 20 neighbours of each column where there are more than 100), Soft-Impute (own, on randomised SVD, its
penalty chosen on a tenth of the entries), SVD of Surprise with its defaults. Own contestants beside the default show
which setting to change. About twenty minutes.

    python benchmarks/imputation.py            # all into benchmarks/results/
    python benchmarks/imputation.py --quick    # fertility and camera, one draw, nothing stored
    python benchmarks/imputation.py --show     # tables from the stored numbers
"""

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from common import Timing, case, command, print_cases, row

from deeplinear import datasets
from deeplinear.estimators import DeepMatrixCompletion

TITLE = "Completion of real matrices"
SEEDS, CAP = 3, 150.0
NEAR = 1.02
"""Who ends within this factor of the best counts as a peer."""


class Draw(NamedTuple):
    """Entries to learn from and entries to predict: rows, columns, values; and the shape."""

    fitted: tuple[np.ndarray, np.ndarray, np.ndarray]
    hidden: tuple[np.ndarray, np.ndarray, np.ndarray]
    shape: tuple[int, int]

    @property
    def matrix(self) -> np.ndarray:
        """What is known, NaN elsewhere."""
        found = np.full(self.shape, np.nan)
        found[self.fitted[0], self.fitted[1]] = self.fitted[2]
        return found


def draw(name: str, seed: int) -> Draw:
    """Hide some entries of a set."""
    if name == "movielens":
        found = datasets.movielens()
        entries, shape, share = (found.users, found.items, found.ratings), found.shape, 0.2
    else:
        matrix = datasets.camera() if name == "camera" else getattr(datasets, name)().values
        rows, columns = np.nonzero(~np.isnan(matrix))
        entries, shape, share = (rows, columns, matrix[rows, columns]), matrix.shape, 0.5 if name == "camera" else 0.2
    hidden = np.random.default_rng(seed).random(len(entries[0])) < share
    return Draw(tuple(one[~hidden] for one in entries), tuple(one[hidden] for one in entries), shape)


def ours(data: Draw, **settings: Any) -> np.ndarray:
    """The estimator, on a list of entries."""
    return (
        DeepMatrixCompletion(random_state=0, **settings)
        .fit_entries(*data.fitted, shape=data.shape)
        .predict_entries(*data.hidden[:2])
    )


def imputed(imputer: Any, data: Draw) -> np.ndarray:
    """An imputer of scikit-learn; columns without an entry get the mean of all."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filled = imputer.fit_transform(data.matrix)
    found = filled[data.hidden[0], data.hidden[1]]
    empty = np.isnan(data.matrix).all(axis=0)[data.hidden[1]]
    return np.where(empty, data.fitted[2].mean(), found)


def means(data: Draw) -> np.ndarray:
    from sklearn.impute import SimpleImputer

    return imputed(SimpleImputer(keep_empty_features=True), data)


def neighbours(data: Draw) -> np.ndarray:
    from sklearn.impute import KNNImputer

    return imputed(KNNImputer(keep_empty_features=True), data)


def iterative(data: Draw) -> np.ndarray:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    nearest = 20 if data.shape[1] > 100 else None
    return imputed(IterativeImputer(n_nearest_features=nearest, random_state=0, keep_empty_features=True), data)


def soft_impute(data: Draw, most: int = 60) -> np.ndarray:
    """Singular values shrunk by a penalty, from strong to weak, until a tenth of the entries gets worse."""
    from sklearn.utils.extmath import randomized_svd

    matrix, rng = data.matrix, np.random.default_rng(0)
    units = np.nanmean(matrix), np.nanstd(matrix)
    columns = np.nan_to_num(np.nanmean((matrix - units[0]) / units[1], axis=0))

    def path(fitted: np.ndarray, judge: Callable[[np.ndarray], float]) -> tuple[float, np.ndarray]:
        known = ~np.isnan(fitted)
        left = np.where(known, (fitted - units[0]) / units[1] - columns, 0.0)
        filled, rank = np.zeros(left.shape), min(*left.shape, most)
        top = np.linalg.norm(left, 2)
        best = (np.inf, filled)
        for penalty in top * 0.8 ** np.arange(1, 40):
            for _ in range(20):
                u, s, v = randomized_svd(np.where(known, left, filled), rank, n_iter=2, random_state=0)
                new = (u * np.maximum(s - penalty, 0)) @ v
                change = np.linalg.norm(new - filled) / max(1e-12, np.linalg.norm(filled))
                filled = new
                if change < 1e-3:
                    break
            error = judge((filled + columns) * units[1] + units[0])
            if error < best[0]:
                best = (error, filled)
            elif error > 1.02 * best[0]:
                break
        return best[0], (best[1] + columns) * units[1] + units[0]

    rows, cols = np.nonzero(~np.isnan(matrix))
    held = rng.random(len(rows)) < 0.1
    fitted = matrix.copy()
    fitted[rows[held], cols[held]] = np.nan
    truth = matrix[rows[held], cols[held]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = path(fitted, lambda one: float(np.sqrt(np.mean((one[rows[held], cols[held]] - truth) ** 2))))[1]
    return found[data.hidden[0], data.hidden[1]]


def surprise(data: Draw) -> np.ndarray:
    import pandas
    from surprise import SVD, Dataset, Reader

    values = data.fitted[2]
    frame = pandas.DataFrame({"user": data.fitted[0], "item": data.fitted[1], "rating": values})
    reader = Reader(rating_scale=(values.min(), values.max()))
    model = SVD(random_state=0).fit(Dataset.load_from_df(frame, reader).build_full_trainset())
    return np.array([model.predict(i, j).est for i, j in zip(data.hidden[0], data.hidden[1], strict=True)])


CONTESTANTS: dict[str, Callable[[Draw], np.ndarray]] = {
    "deeplinear, default": ours,
    "deeplinear, depth 3": lambda data: ours(data, depth=3),
    "deeplinear, 5 restarts": lambda data: ours(data, restarts=5),
    "means of columns": means,
    "k nearest neighbours": neighbours,
    "iterative regression": iterative,
    "Soft-Impute": soft_impute,
    "Surprise SVD": surprise,
}


def measure(name: str, seeds: int) -> dict[str, Any]:
    """One set."""
    rows = []
    for contestant, fill in CONTESTANTS.items():
        if contestant.startswith("deeplinear"):
            fill(draw(name, seeds))  # compiles
        errors, seconds = [], []
        for seed in range(seeds):
            data = draw(name, seed)
            begin = time.perf_counter()
            found = fill(data)
            seconds.append(time.perf_counter() - begin)
            errors.append(float(np.sqrt(np.mean((found - data.hidden[2]) ** 2))))
            if seconds[-1] > CAP:
                break
        half = 0.5 * (max(errors) - min(errors))
        note = f"error {np.mean(errors):.4g} ± {half:.1g} over {len(errors)} draws"
        rows.append(row(contestant, Timing(tuple(seconds), None), error=float(np.mean(errors)), note=note))
        print(name, contestant, f"{np.mean(errors):.4g}", f"{np.median(seconds):.2f} s", flush=True)
    about = f"{data.shape[0]} x {data.shape[1]}, {len(data.fitted[0]):,} entries known, {len(data.hidden[0]):,} hidden."
    best = min(entry["error"] for entry in rows)
    measure = "root mean square on what was hidden, mean over draws; at most 1.02 of the best one's."
    return case(name, about, measure, rows, within=NEAR * best)


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All sets, kept one by one."""
    data: dict[str, Any] = {"title": TITLE, "cases": []}
    for name in ("fertility", "camera") if quick else ("fertility", "camera", "expression", "movielens"):
        data["cases"].append(measure(name, 1 if quick else SEEDS))
        keep(data)
    return data


if __name__ == "__main__":
    command("imputation", __doc__, "fertility and camera, one draw", measure_all, print_cases)
