"""Linear regression: `DeepLinearRegressor` at several depths beside least squares and ridge.

Mean R² on rows that no fit has seen, ± its standard error over splits or draws; the mean over outputs where there are
several. Columns are standardised by the rows to learn from. Ridge has its strength chosen by leave-one-out out of 40;
the estimator has its default settings but for the depth, so its stopping time is chosen by five folds of the rows to
learn from. No setting of this script was chosen by the rows of the test.

| data | what is split or drawn |
| --- | --- |
| diabetes | 331 or 40 rows to learn from out of 442, the rest to test; 20 splits |
| linnerud | 15 of 20 rows, 3 outputs; 20 splits |
| simulated | 80 rows, 40 features, 20 outputs, a map of rank 2, noise of 6 beside outputs of spread 3; 10 draws |

    python benchmarks/regression.py            # all into benchmarks/results/, some minutes
    python benchmarks/regression.py --quick    # two splits of each, nothing stored
    python benchmarks/regression.py --show     # the table from the stored numbers
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
import numpy as np
from common import command, describe, machine, table
from sklearn.datasets import load_diabetes, load_linnerud
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from deeplinear.estimators import DeepLinearRegressor

STRENGTHS = np.geomspace(1e-3, 1e4, 40)
NOISE, TESTED = 6.0, 2000


class Split(NamedTuple):
    """Rows to learn from, and rows to test."""

    inputs: np.ndarray
    outputs: np.ndarray
    new_inputs: np.ndarray
    new_outputs: np.ndarray


def splits(load: Callable[..., Any], rows: int, count: int) -> Iterator[Split]:
    """Splits of a set that ships with scikit-learn."""
    X, Y = load(return_X_y=True)
    for fitted, rest in ShuffleSplit(count, train_size=rows, random_state=0).split(X):
        yield Split(X[fitted], Y[fitted], X[rest], Y[rest])


def draws(count: int) -> Iterator[Split]:
    """Outputs that share two directions, under much noise."""
    for seed in range(count):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=(20, 2)) @ rng.normal(size=(2, 40)) / np.sqrt(10)
        X = rng.normal(size=(80 + TESTED, 40))
        Y = X @ truth.T + NOISE * rng.normal(size=(80 + TESTED, 20))
        yield Split(X[:80], Y[:80], X[80:], Y[80:])


CASES: dict[str, tuple[Callable[[int], Iterator[Split]], int]] = {
    "diabetes, 331 rows": (functools.partial(splits, load_diabetes, 331), 20),
    "diabetes, 40 rows": (functools.partial(splits, load_diabetes, 40), 20),
    "linnerud, 15 rows": (functools.partial(splits, load_linnerud, 15), 20),
    "simulated, rank 2": (draws, 10),
}
"""Splits of each set, and how many."""


def deep(**settings: Any) -> DeepLinearRegressor:
    return DeepLinearRegressor(random_state=0, **settings)


METHODS: dict[str, Callable[[], Any]] = {
    "least squares": LinearRegression,
    "ridge": lambda: RidgeCV(STRENGTHS),
    "depth 1": lambda: deep(depth=1),
    "depth 2": lambda: deep(depth=2),
    "depth 3": lambda: deep(depth=3),
    "depth 2, whitened": lambda: deep(depth=2, whiten=True),
    "depth 2, one fold": lambda: deep(depth=2, folds=1),
}


def score(method: Callable[[], Any], split: Split) -> float:
    """R² on the rows of the test."""
    outputs = split.outputs.reshape(len(split.outputs), -1)
    scale = StandardScaler().fit(outputs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = make_pipeline(StandardScaler(), method()).fit(split.inputs, scale.transform(outputs))
    found = scale.inverse_transform(np.reshape(fit.predict(split.new_inputs), (-1, outputs.shape[1])))
    return float(r2_score(split.new_outputs.reshape(len(found), -1), found))


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """All sets and methods on the same splits."""
    data: dict[str, Any] = {"machine": machine(), "scores": {}}
    for name, (make, count) in CASES.items():
        some = list(make(2 if quick else count))
        data["scores"][name] = {method: [score(METHODS[method], one) for one in some] for method in METHODS}
        keep(data)
    return data


def show(data: dict[str, Any]) -> None:
    """Means and standard errors."""
    print(describe(data["machine"]), "\n")
    rows = []
    for name, found in data["scores"].items():
        told = [f"{np.mean(one):.3f} ± {np.std(one, ddof=1) / np.sqrt(len(one)):.3f}" for one in found.values()]
        rows.append([f"{name}, {len(next(iter(found.values())))} times", *told])
    print(table(("data", *METHODS), rows))


if __name__ == "__main__":
    command("regression", __doc__, "two splits of each", measure_all, show)
