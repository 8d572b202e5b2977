"""Workload 7: completion of a large sparse matrix in factored form.

A 20,000 x 20,000 matrix of rank 8 with 4 million observed entries and noise of 1 %, networks of depth 2 and 3 and width
64.

* One gradient: ours against SciPy and NumPy, PyTorch, and the masked dense product at a smaller size. All compute the
  same function in 64 bits; the error is that of the gradient along a fixed direction, relative to ours.
* A fit, until the error on 200,000 entries that were not observed is 2 % of the size of an entry.

Every contestant runs in a process of its own, whose peak memory is told; data and preparation (sorting, sparse formats)
are made before the clock starts. Takes about 10 minutes on two idle cores; `--quick` is 2,000 x 2,000 with 400,000
entries.
"""

import itertools
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import common
import numpy as np

RANK, NOISE, WIDTH = 8, 0.01, 64
GOAL = 0.02
"""Held-out error that ends a fit; entries have standard deviation 1."""
CHUNK = 1 << 14
"""Entries that NumPy and PyTorch take at a time where they gather rows."""
DENSE = 5
"""By what the side of the matrix is divided where the dense product is timed."""
RATES = {2: (0.1, 0.1), 3: (0.1, 0.03)}
"""Standard deviation of the start and learning rate of Adam, for each depth."""
MOST_STEPS = 300
MOST_SWEEPS = 12
MOST_IMPUTATIONS = 25
EPOCHS = 30


class Data(NamedTuple):
    """Observed and held-out entries; held-out values are without noise."""

    size: int
    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    test_rows: np.ndarray
    test_columns: np.ndarray
    test_values: np.ndarray

    def held_out(self, predicted: Any) -> float:
        return float(np.sqrt(np.mean((np.asarray(predicted) - self.test_values) ** 2)))


def sample(left: np.ndarray, right: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Entries of `left @ right.T`, a few at a time."""
    values = np.empty(len(rows))
    for at in range(0, len(rows), CHUNK):
        part = slice(at, at + CHUNK)
        values[part] = np.einsum("kr,kr->k", left[rows[part]], right[columns[part]])
    return values


def make(size: int, count: int) -> Data:
    """Different entries in random order, of a product of Gaussian factors."""
    rng = np.random.default_rng(0)
    held = count // 20
    flat = rng.permutation(np.unique(rng.integers(0, size * size, int(1.2 * (count + held)))))[: count + held]
    rows, columns = flat // size, flat % size
    left, right = rng.normal(size=(2, size, RANK)) / RANK**0.25
    values = sample(left, right, rows, columns)
    noisy = values[:count] + NOISE * rng.normal(size=count)
    return Data(size, rows[:count], columns[:count], noisy, rows[count:], columns[count:], values[count:])


def layers(depth: int, size: int) -> list[np.ndarray]:
    """Layers at which gradients are compared, and the direction along which."""
    rng = np.random.default_rng(1)
    widths = (size, *[WIDTH] * (depth - 1), size)
    return [rng.normal(size=(out, inp)) / 8 for inp, out in itertools.pairwise(widths)]


def along(gradient: Any) -> float:
    rng = np.random.default_rng(2)
    return float(sum(np.vdot(rng.normal(size=np.shape(layer)), np.asarray(layer)) for layer in gradient))


# --- One gradient ---------------------------------------------------------------------------------------------------
# Each takes the data and the depth and gives a function without arguments that returns the gradient of every layer.


def ours_gradient(data: Data, depth: int) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    from deeplinear.models import sparse_completion

    jax.config.update("jax_enable_x64", True)
    widths = (data.size, *[WIDTH] * (depth - 1), data.size)
    problem = sparse_completion(data.rows, data.columns, data.values, widths)
    params = tuple(jnp.asarray(layer) for layer in layers(depth, data.size))
    gradient = jax.jit(lambda p, w: p.gradient(w))
    return lambda: gradient(problem, params)


def dense_gradient(data: Data, depth: int) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    from deeplinear.models import Completion, DeepLinear, Problem

    jax.config.update("jax_enable_x64", True)
    size = data.size // DENSE
    kept = (data.rows < size) & (data.columns < size)
    target, mask = np.zeros((size, size)), np.zeros((size, size), bool)
    target[data.rows[kept], data.columns[kept]] = data.values[kept]
    mask[data.rows[kept], data.columns[kept]] = True
    problem = Problem(DeepLinear((size, *[WIDTH] * (depth - 1), size)), Completion(target, mask))
    params = tuple(jnp.asarray(layer) for layer in layers(depth, size))
    gradient = jax.jit(lambda p, w: p.gradient(w))
    return lambda: gradient(problem, params)


def chained(params: list[Any], of_left: Any, of_right: Any) -> list[Any]:
    """Gradients of layers 1, 2 or 1, 2, 3 from those of the factors; with three layers the left factor is W3 W2."""
    if len(params) == 2:
        return [of_right, of_left]
    return [of_right, params[2].T @ of_left, of_left @ params[1].T]


def scipy_gradient(data: Data, depth: int) -> Callable[[], Any]:
    import scipy.sparse

    params = layers(depth, data.size)
    order = np.lexsort((data.columns, data.rows))
    rows, columns, values = data.rows[order], data.columns[order], data.values[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=data.size))])

    def gradient() -> Any:
        left = params[1] if depth == 2 else params[2] @ params[1]
        right = np.ascontiguousarray(params[0].T)
        gap = sample(left, right, rows, columns) - values
        matrix = scipy.sparse.csr_matrix((gap, columns, starts), (data.size, data.size))
        return chained(params, matrix @ right, (matrix.T @ left).T)

    return gradient


def torch_gradient(data: Data, depth: int, fused: bool = True) -> Callable[[], Any]:
    params = [np.asarray(layer) for layer in layers(depth, data.size)]
    compute = torch_kernel(data, fused)
    import torch

    tensors = [torch.tensor(layer) for layer in params]
    return lambda: [layer.numpy() for layer in compute(tensors)]


def torch_kernel(data: Data, fused: bool) -> Callable[[list[Any]], list[Any]]:
    """Gradient by sparse products; the entries by `sampled_addmm`, or by gathering rows."""
    import torch

    warnings.simplefilter("ignore")
    order = np.lexsort((data.columns, data.rows))
    rows, columns, values = (torch.tensor(array[order]) for array in (data.rows, data.columns, data.values))
    across = np.lexsort((data.rows, data.columns))
    turn = torch.tensor(np.argsort(order)[across])  # places of the entries, column by column, in the order by rows
    shape = (data.size, data.size)

    def starts(index: np.ndarray) -> Any:
        return torch.tensor(np.concatenate([[0], np.cumsum(np.bincount(index, minlength=data.size))]))

    by_row, by_column, other = starts(data.rows), starts(data.columns), torch.tensor(data.rows[across])
    pattern = torch.sparse_csr_tensor(by_row, columns, torch.zeros(len(rows), dtype=torch.float64), shape)

    def entries(left: Any, right: Any) -> Any:
        if fused:
            return torch.sparse.sampled_addmm(pattern, left, right, beta=0.0).values()
        turned, predicted = right.T.contiguous(), torch.empty(len(rows), dtype=torch.float64)
        for at in range(0, len(rows), CHUNK):
            part = slice(at, at + CHUNK)
            product = left.index_select(0, rows[part]) * turned.index_select(0, columns[part])
            predicted[part] = product.sum(1)
        return predicted

    def gradient(params: list[Any]) -> list[Any]:
        left = params[1] if len(params) == 2 else params[2] @ params[1]
        gap = entries(left, params[0]) - values
        of_left = torch.sparse_csr_tensor(by_row, columns, gap, shape) @ params[0].T.contiguous()
        of_right = (torch.sparse_csr_tensor(by_column, other, gap[turn], shape) @ left).T
        return chained(params, of_left, of_right)

    return gradient


# --- Fits -----------------------------------------------------------------------------------------------------------
# Each gives (seconds, compile seconds or None, held-out error, what was done).


def ours_fit(data: Data, depth: int) -> tuple[float, float | None, float, str]:
    import jax
    import jax.numpy as jnp

    from deeplinear.dynamics import Adam, simulate, until
    from deeplinear.models import Gaussian, sparse_completion

    jax.config.update("jax_enable_x64", True)
    problem = sparse_completion(data.rows, data.columns, data.values, (data.size, *[WIDTH] * (depth - 1), data.size))
    held, truth = problem.model.at(data.test_rows, data.test_columns), jnp.asarray(data.test_values)

    def held_out(t: Any, params: Any, problem: Any) -> Any:
        return jnp.sqrt(jnp.mean((held.forward(params)[0][0] - truth) ** 2))

    std, rate = RATES[depth]
    start = Gaussian(std)(problem.model, jax.random.key(0))

    def fit(most: int) -> Any:
        return simulate(
            problem,
            start,
            Adam(rate),
            until=until(held_out, below=GOAL),
            horizon=most,
            every=MOST_STEPS,
            probes=held_out,
        )

    begin = time.perf_counter()
    fit(1)
    first = time.perf_counter() - begin
    begin = time.perf_counter()
    run = fit(MOST_STEPS)
    seconds = time.perf_counter() - begin
    steps = int(run.stats["accepted_steps"])
    error = float(run.values["held_out"][-1])
    return seconds, max(0.0, first - seconds / max(steps, 1)), error, f"Adam, {steps} steps, every one checked"


def torch_fit(data: Data, depth: int) -> tuple[float, float | None, float, str]:
    import torch

    gradient = torch_kernel(data, fused=True)
    rows, columns = torch.tensor(data.test_rows), torch.tensor(data.test_columns)
    std, rate = RATES[depth]
    torch.manual_seed(0)
    params = [(std * torch.randn(layer.shape, dtype=torch.float64)) for layer in layers(depth, data.size)]
    optimiser = torch.optim.Adam(params, rate)
    begin, error, step = time.perf_counter(), 1.0, 0
    while error > GOAL and step < MOST_STEPS:
        for layer, slope in zip(params, gradient(params), strict=True):
            layer.grad = slope.contiguous()
        optimiser.step()
        step += 1
        if step % 5 == 0:  # gathering rows is slow here, so it is looked at seldom
            left = params[1] if depth == 2 else params[2] @ params[1]
            predicted = (left[rows] * params[0].T.contiguous()[columns]).sum(1)
            error = data.held_out(predicted)
    return time.perf_counter() - begin, None, error, f"torch.optim.Adam, {step} steps, every fifth checked"


def alternating_fit(data: Data, depth: int) -> tuple[float, float | None, float, str]:
    """Alternating least squares with a ridge, line by line in NumPy."""
    rng = np.random.default_rng(0)
    ridge = 1.0

    def sorted_by(index: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        order = np.argsort(index, kind="stable")
        return (
            np.concatenate([[0], np.cumsum(np.bincount(index, minlength=data.size))]),
            other[order],
            data.values[order],
        )

    sides = sorted_by(data.rows, data.columns), sorted_by(data.columns, data.rows)
    left, right = np.zeros((data.size, WIDTH)), 0.1 * rng.normal(size=(data.size, WIDTH))

    def solve(side: tuple[np.ndarray, np.ndarray, np.ndarray], fixed: np.ndarray, moved: np.ndarray) -> None:
        starts, other, values = side
        penalty = ridge * np.eye(WIDTH)
        for line in range(data.size):
            part = slice(starts[line], starts[line + 1])
            seen = fixed[other[part]]
            moved[line] = np.linalg.solve(seen.T @ seen + penalty, seen.T @ values[part])

    begin, error, sweeps = time.perf_counter(), 1.0, 0
    while error > GOAL and sweeps < MOST_SWEEPS:
        solve(sides[0], right, left)
        solve(sides[1], left, right)
        sweeps += 1
        error = data.held_out(sample(left, right, data.test_rows, data.test_columns))
    return time.perf_counter() - begin, None, error, f"ridge {ridge:g}, {sweeps} sweeps"


def imputing_fit(data: Data, depth: int) -> tuple[float, float | None, float, str]:
    """Soft-Impute with truncated decompositions of a sparse matrix plus one of low rank."""
    import scipy.sparse
    import scipy.sparse.linalg

    order = np.lexsort((data.columns, data.rows))
    rows, columns, values = data.rows[order], data.columns[order], data.values[order]
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=data.size))])
    left, right = np.zeros((data.size, 2 * RANK)), np.zeros((data.size, 2 * RANK))
    shrink = 0.01 * len(values) / data.size
    begin, error, count = time.perf_counter(), 1.0, 0
    while error > GOAL and count < MOST_IMPUTATIONS:
        gap = values - sample(left, right, rows, columns)
        matrix = scipy.sparse.csr_matrix((gap, columns, starts), (data.size, data.size))
        turned = matrix.T.tocsr()
        filled = scipy.sparse.linalg.LinearOperator(
            matrix.shape,
            matvec=lambda x, m=matrix, u=left, v=right: m @ x + u @ (v.T @ x),
            rmatvec=lambda x, m=turned, u=left, v=right: m @ x + v @ (u.T @ x),
            dtype=np.float64,
        )
        u, s, vt = scipy.sparse.linalg.svds(filled, 2 * RANK, rng=np.random.default_rng(0))
        left, right = u * np.maximum(s - shrink, 0), vt.T
        count += 1
        error = data.held_out(sample(left, right, data.test_rows, data.test_columns))
    return time.perf_counter() - begin, None, error, f"own, on scipy svds, rank {2 * RANK}, {count} rounds"


def surprise_fit(data: Data, depth: int) -> tuple[float, float | None, float, str]:
    from collections import defaultdict

    from surprise import SVD, Trainset

    by_user, by_item = defaultdict(list), defaultdict(list)
    users, items = np.unique(data.rows), np.unique(data.columns)
    user_of, item_of = np.searchsorted(users, data.rows), np.searchsorted(items, data.columns)
    for user, item, value in zip(user_of.tolist(), item_of.tolist(), data.values.tolist(), strict=True):
        by_user[user].append((item, value))
        by_item[item].append((user, value))
    ids = {int(u): i for i, u in enumerate(users)}, {int(j): i for i, j in enumerate(items)}
    train = Trainset(by_user, by_item, len(users), len(items), len(data.values), (-10, 10), *ids)
    model = SVD(
        n_factors=WIDTH, n_epochs=EPOCHS, biased=False, init_std_dev=0.1, lr_all=0.05, reg_all=0.002, random_state=0
    )
    begin = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - begin
    where = np.searchsorted(users, data.test_rows), np.searchsorted(items, data.test_columns)
    seen = (np.isin(data.test_rows, users)) & (np.isin(data.test_columns, items))
    predicted = np.zeros(len(seen))
    predicted[seen] = sample(model.pu, model.qi, where[0][seen], where[1][seen])
    return seconds, None, data.held_out(predicted), f"stochastic gradients, {EPOCHS} epochs"


# --- Children -------------------------------------------------------------------------------------------------------

GRADIENTS = {
    "ours": (ours_gradient, "chunked gathers and sums in XLA"),
    "PyTorch": (torch_gradient, "sampled_addmm and sparse CSR products"),
    "SciPy and NumPy": (scipy_gradient, "CSR products, einsum of gathered rows"),
    "PyTorch, gathering": (lambda data, depth: torch_gradient(data, depth, False), "index_select, CSR products"),
    "dense product in JAX": (dense_gradient, f"at a {DENSE}th of the side, scaled by {DENSE**2}"),
}
FITS = {
    "ours": ours_fit,
    "PyTorch": torch_fit,
    "alternating least squares": alternating_fit,
    "Soft-Impute": imputing_fit,
    "Surprise SVD": surprise_fit,
}


def child(what: str, name: str, depth: int, size: int, count: int) -> dict[str, Any]:
    """Run one contestant and say what came out, as plain values."""
    data = make(size, count)
    if what == "fit":
        seconds, first, error, note = FITS[name](data, depth)
        answer = {"seconds": [seconds], "compile": first, "error": error, "note": note}
    else:
        gradient = GRADIENTS[name][0](data, depth)
        value, timing = common.timed(gradient, 5)
        answer = {"seconds": timing.seconds, "first": timing.first, "along": along(value)}
    answer["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return answer


def ask(*arguments: Any) -> dict[str, Any] | str:
    """What a child says; the last line of its complaint if it fails."""
    line = [sys.executable, __file__, "--child", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["ended without a word"])[-1]
    return json.loads(done.stdout.splitlines()[-1])


ANYWHERE = ("ours", "dense")
"""Contestants that run on whatever device JAX has."""
SAME = "Both read the same numbers, row by row; PyTorch's kernels for sampled products are written by hand."


def gradient_case(depth: int, size: int, count: int) -> dict[str, Any]:
    rows, reference = [], None
    for name, (_, note) in GRADIENTS.items():
        if not name.startswith(ANYWHERE) and common.device_name() != "cpu":
            continue  # it would run on the CPU
        answer = ask("gradient", name, depth, size, count)
        if isinstance(answer, str):
            rows.append(common.row(name, None, note=answer))
            continue
        timing = common.Timing(tuple(answer["seconds"]), answer["first"])
        dense = name.startswith("dense")
        reference = answer["along"] if reference is None else reference
        error = None if dense else abs(answer["along"] / reference - 1)
        note = f"{note}; peak {answer['peak']:.2f} GiB"
        rows.append(common.row(name, timing, scaled=float(DENSE**2) if dense else 1.0, error=error, note=note))
    about = f"One gradient, {size:,} x {size:,}, {count:,} observed entries, width {WIDTH}, 64 bits."
    return common.case(
        f"gradient, depth {depth}", about, "relative difference to ours along a direction", rows, why=SAME
    )


def fit_case(size: int, count: int) -> dict[str, Any]:
    rows = []
    for name, depth in [("ours", 2), ("ours", 3), ("PyTorch", 2), *((name, 2) for name in list(FITS)[2:])]:
        answer = ask("fit", name, depth, size, count)
        label = f"{name}, depth {depth}" if name in ("ours", "PyTorch") else name
        if isinstance(answer, str):
            rows.append(common.row(label, None, note=answer))
            continue
        first = None if answer["compile"] is None else answer["compile"] + answer["seconds"][0]
        note = f"{answer['note']}; peak {answer['peak']:.2f} GiB"
        if answer["error"] > GOAL:
            note = f"goal not reached; {note}"
        rows.append(common.row(label, common.Timing((answer["seconds"][0],), first), error=answer["error"], note=note))
    about = f"A fit, {size:,} x {size:,} of rank {RANK}, {count:,} observed entries, noise {NOISE:g}, width {WIDTH}."
    return common.case("fit", about, f"held-out root mean square; the fit ends at {GOAL:g}.", rows, within=GOAL)


def measure(quick: bool, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    size, count = (2_000, 400_000) if quick else (20_000, 4_000_000)
    data: dict[str, Any] = {"title": "Completion of a large sparse matrix", "cases": []}
    for make_case in (
        lambda: gradient_case(2, size, count),
        lambda: gradient_case(3, size, count),
        lambda: fit_case(size, count),
    ):
        data["cases"].append(make_case())
        keep(data)
    return data


def show(data: dict[str, Any]) -> None:
    for case in data["cases"]:
        print(common.case_table(case), end="\n\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        what, name, *numbers = sys.argv[2:]
        print(json.dumps(child(what, name, *map(int, numbers))))
    else:
        common.command("sparse", __doc__, "2,000 x 2,000", measure, show)
