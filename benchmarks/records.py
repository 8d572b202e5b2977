"""Identification from two records whose inputs are not white, over several draws or splits.

**House.** 500 rows with two inputs, a heater that is on or off and a wandering wind, modes 0.971 and 0.879, which
outlast the lags, noise of 1 % of the output's spread; drawn anew each time. **Robot.** The record of
`deeplinear.datasets.robot`: 5 inputs, 2 outputs, 5 states that noise drives, eigenvalues up to 0.9995. There is one
record only, so the rows are split in several places instead.

Everyone fits the rows before the split and is asked for the 100 rows after it (R², by output), simulated on from the
fit without a look at the outputs. `LinearStateSpace` has its default settings; it chooses its order by the last fifth
of the rows to fit. N4SID (`nfoursid`, means taken off) is told the true order, and both numbers of block rows are
shown. Settings are defaults, not chosen by the rows of the test. `truth` is the true system, simulated from the true
first state.

    python benchmarks/records.py            # all into benchmarks/results/, about a minute
    python benchmarks/records.py --quick    # two draws and two splits, nothing stored
    python benchmarks/records.py --show     # tables from the stored numbers
"""

import importlib.util
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax

jax.config.update("jax_enable_x64", True)
os.environ.setdefault("MPLBACKEND", "Agg")
import numpy as np
from common import command, describe, machine, table

from deeplinear import datasets
from deeplinear.estimators import LinearStateSpace

TESTED = 100
DRAWS = 10
SPLITS = (250, 300, 325, 350, 375, 400)
BLOCK_ROWS = (10, 20)


class Record(NamedTuple):
    """Inputs, outputs, rows to fit, the order of the system, and the outputs that it gives without noise on the way."""

    inputs: np.ndarray
    outputs: np.ndarray
    fitted: int
    order: int
    truth: np.ndarray


def simulated(system: tuple[np.ndarray, ...], inputs: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Outputs of A, B, C."""
    found, state = [], begin
    for row in inputs:
        found.append(system[2] @ state)
        state = system[0] @ state + system[1] @ row
    return np.array(found)


def houses(quick: bool) -> Iterator[tuple[str, Record]]:
    """Draws of inputs and noise."""
    system = (np.array([[0.95, 0.03], [0.05, 0.9]]), np.diag([0.5, -0.3]), np.array([[1.0, 0.0]]))
    for seed in range(2 if quick else DRAWS):
        rng = np.random.default_rng(seed)
        inputs = np.column_stack([2.0 * (rng.random(500) < 0.3), 0.1 * rng.standard_normal(500).cumsum()])
        clean = 20 + simulated(system, inputs, np.zeros(2))
        noisy = clean + 0.01 * clean.std() * rng.standard_normal(clean.shape)
        yield f"draw {seed}", Record(inputs, noisy, 400, 2, clean)


def robots(quick: bool) -> Iterator[tuple[str, Record]]:
    """Places at which the record is split."""
    robot = datasets.robot()
    system = (robot.A, np.eye(len(robot.A)), robot.C)
    clean = simulated(system, robot.inputs, robot.start) + robot.offset
    for rows in SPLITS[:2] if quick else SPLITS:
        end = rows + TESTED
        yield f"{rows} rows", Record(robot.inputs[:end], robot.outputs[:end], rows, 5, clean[:end])


def scores(record: Record, found: np.ndarray) -> list[float]:
    """R² of each output on the rows of the test."""
    truth = record.outputs[record.fitted :]
    spread = np.sum((truth - truth.mean(axis=0)) ** 2, axis=0)
    return (1 - np.sum((truth - found) ** 2, axis=0) / spread).tolist()


def ours(record: Record) -> tuple[int, list[float]]:
    """Order and scores of the estimator."""
    fit = slice(None, record.fitted)
    model = LinearStateSpace(random_state=0).fit(record.inputs[fit], record.outputs[fit])
    return model.order_, scores(record, model.predict(record.inputs[record.fitted :], initial_state=model.final_state_))


def subspace(record: Record, block_rows: int) -> list[float] | None:
    """N4SID of the true order; its state at the first row is fitted by least squares."""
    if importlib.util.find_spec("nfoursid") is None:
        return None
    import pandas
    from nfoursid.nfoursid import NFourSID

    fit = slice(None, record.fitted)
    u, y = record.inputs - record.inputs[fit].mean(axis=0), record.outputs - record.outputs[fit].mean(axis=0)
    names = ([f"u{i}" for i in range(u.shape[1])], [f"y{i}" for i in range(y.shape[1])])
    frame = pandas.DataFrame(np.column_stack([u, y])[fit], columns=[*names[0], *names[1]])
    method = NFourSID(frame, output_columns=names[1], input_columns=names[0], num_block_rows=block_rows)
    method.subspace_identification()
    found, _ = method.system_identification(rank=record.order)
    system = (found.a, found.b, found.c)
    free = simulated(system, u, np.zeros(record.order)) + u @ found.d.T
    powers = np.stack([found.c @ np.linalg.matrix_power(found.a, t) for t in range(len(u))])
    left = (y - free)[fit].reshape(-1)
    begin = np.linalg.lstsq(powers[fit].reshape(-1, record.order), left, rcond=None)[0]
    outputs = free + powers @ begin + record.outputs[fit].mean(axis=0)
    return scores(record, outputs[record.fitted :])


def measure_all(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Both records."""
    data: dict[str, Any] = {"machine": machine(), "records": {}}
    for name, make in (("house", houses), ("robot", robots)):
        rows = []
        for case, record in make(quick):
            order, found = ours(record)
            truth = scores(record, record.truth[record.fitted :])
            n4sid = {str(count): subspace(record, count) for count in BLOCK_ROWS}
            rows.append({"case": case, "order": order, "ours": found, "truth": truth, "n4sid": n4sid})
        data["records"][name] = rows
        keep(data)
    return data


def show(data: dict[str, Any]) -> None:
    """All draws and splits, and the least, the median and the largest of each column."""
    print(describe(data["machine"]), "\n")

    def told(found: Any) -> str:
        return "–" if found is None else ", ".join(f"{value:.3f}" for value in found)

    for name, rows in data["records"].items():
        columns = {"LinearStateSpace": [row["ours"] for row in rows], "truth": [row["truth"] for row in rows]}
        columns |= {f"N4SID, {count} block rows": [row["n4sid"][str(count)] for row in rows] for count in BLOCK_ROWS}
        body = [
            [row["case"], row["order"], *(told(one[place]) for one in columns.values())]
            for place, row in enumerate(rows)
        ]
        for word, pick in (("least", np.min), ("median", np.median), ("largest", np.max)):
            cells = [told(pick(one, axis=0)) if one[0] is not None else "–" for one in columns.values()]
            body.append([word, int(pick([row["order"] for row in rows])), *cells])
        print(name, "\n")
        print(table(("case", "order found", *columns), body), "\n")


if __name__ == "__main__":
    command("records", __doc__, "two draws and two splits", measure_all, show)
