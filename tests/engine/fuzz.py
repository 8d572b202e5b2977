"""Random runs of a library of the engine: a program of its own, without JAX, for libraries built with sanitizers.

Called with the library, a file of tables (`tables` in test_library.py) and how many runs to try. Products of wide
networks go to a `dgemm` in NumPy here that refuses what BLAS would.
"""

import ctypes
import sys
from ctypes import POINTER, c_char, c_double, c_int
from pathlib import Path

import numpy as np

import deeplinear.engine as engine
from deeplinear.engine import _library

Fortran = ctypes.CFUNCTYPE(
    None,
    *(POINTER(kind) for kind in (c_char, c_char, c_int, c_int, c_int, c_double, c_double, c_int)),
    *(POINTER(kind) for kind in (c_double, c_int, c_double, c_double, c_int)),
)
refused: list[str] = []


@Fortran
def dgemm(left, right, rows, columns, inner, alpha, a, step_a, b, step_b, beta, c, step_c):
    """C = alpha op(A) op(B) + beta C, column by column."""
    m, n, k, la, lb, lc = (p[0] for p in (rows, columns, inner, step_a, step_b, step_c))
    sizes = {"A": (left[0], m, k, la), "B": (right[0], k, n, lb), "C": (b"N", m, n, lc)}
    for name, (turned, high, broad, step) in sizes.items():
        if turned not in (b"N", b"T") or step < max(1, high if turned == b"N" else broad):
            refused.append(f"{name}: {turned!r} {high} x {broad}, step {step}")
            return
    if m == 0 or n == 0:
        return

    def matrix(p, turned, high, broad, step):
        if turned == b"T":
            high, broad = broad, high
        flat = np.ctypeslib.as_array(p, ((broad - 1) * step + high,))
        found = np.lib.stride_tricks.as_strided(flat, (high, broad), (8, 8 * step))
        return found.T if turned == b"T" else found

    out = matrix(c, *sizes["C"])
    product = alpha[0] * matrix(a, *sizes["A"]) @ matrix(b, *sizes["B"])
    out[...] = product if beta[0] == 0 else product + beta[0] * out


def spec_of(rng: np.random.Generator, tables: dict[str, np.ndarray], holder: engine.Holder) -> engine.Spec:
    """A small random run."""
    spec = engine.Spec()
    members = int(rng.integers(1, 12))
    spec.form = int(rng.choice([0, 0, 0, 1, 2, 3, 4, 5]))
    if spec.form:
        inp, states, out, length = (int(n) for n in rng.integers(1, 6, 4))
        out = inp if spec.form == 5 else out
        widths, columns = (inp, states, out, length), inp * length
        inner = {3: states * (states + 1) // 2, 4: states, 5: states}.get(spec.form, states**2)
        areas = [states * inp, inner, *([out * states] if spec.form < 5 else [])]
    else:
        widths = rng.integers(1, 6, int(rng.integers(2, 8)))
        out, columns, areas = int(widths[-1]), int(widths[0]), widths[1:] * widths[:-1]
    size = int(np.sum(areas))
    spec.depth, spec.members = len(areas), members
    spec.areas, spec.widths = holder.copy(areas, np.int32), holder.copy(widths, np.int32)
    spec.loss, own = int(rng.integers(3)), rng.random() < 0.5
    lead = (members,) if own else ()
    x = rng.standard_normal((*lead, columns, 5)) * 10.0 ** rng.uniform(-1, 2)
    sxx = x @ np.swapaxes(x, -1, -2) / 5
    solution = rng.standard_normal((*lead, out, columns))
    arrays = {"target": solution @ sxx if spec.loss == 1 else solution, "offset": np.zeros(lead)}
    arrays["l2"] = np.full(lead, rng.choice([0.0, 0.1]))
    if spec.loss == 1:
        arrays |= {"sxx": sxx, "solution": solution}
    if spec.loss == 2:
        arrays["mask"] = (rng.random((*lead, out, columns)) < 0.6).astype(float)
    for name, array in arrays.items():
        setattr(spec, name, holder.copy(array, float))
        setattr(spec, f"{name}_step", array.size // members if own else 0)
    spread = rng.random() < 0.5
    spec.rtol, spec.atol = (holder.copy(10.0 ** rng.uniform(-10, -3, members) * f, float) for f in (1.0, 0.0))
    spec.tolerance_step, spec.policy = int(spread), int(rng.choice([0, 0, 1, 2, 3]))
    pair = "tsit5" if rng.random() < 0.5 else "dopri8"
    order, stability = tables[f"{pair}_numbers"]
    lower, error = (holder.copy(tables[f"{pair}_{name}"], float) for name in ("lower", "error"))
    spec.pair = engine.Pair(len(tables[f"{pair}_error"]), int(order), lower, error, stability)
    whole = [holder.copy(tables[name], np.int64) for name in ("stages", "first", "second", "offset")]
    real = [holder.copy(tables[name], float) for name in ("interval", "mixing", "weights")]
    spec.family = engine.Family(len(tables["stages"]), *whole, *real, float(tables["rounding"]))
    spec.law = engine.Law(*(float(x) for x in tables["law"]))
    spec.rules = int(rng.integers(0, 9))
    spec.rule_kind, spec.rule_below = (holder.copy(rng.integers(0, 2, 8), np.int32) for _ in range(2))
    spec.threshold = holder.copy(np.where(rng.random(8) < 0.5, 1e-12, 1e12), float)
    times = np.cumsum(10.0 ** rng.uniform(-3, 2, int(rng.integers(1, 9))))
    times[0] *= rng.random() < 0.5
    begins = times[0] == 0
    listed = rng.random() < 0.7
    spec.listed, spec.times = len(times) * listed, holder.copy(times, float)
    spec.every, spec.horizon = int(rng.integers(1, 4)) * (not listed), float(times[-1])
    spec.max_steps, spec.opens = int(rng.integers(1, 120)), int(bool(begins or not listed))
    spec.wide, spec.keeps = int(rng.random() < 0.4), int(rng.random() < 0.5)
    spec.update = int(rng.integers(1, 7)) if rng.random() < 0.3 else 0
    slots = {0: 0, 1: 0, 4: 2}.get(spec.update, 1)
    spec.rates, spec.rates_step = holder.copy(rng.random((members, 4)), float), int(rng.choice([0, 4]))
    spec.inner = holder.copy(rng.random((members, slots + 1, size)), float)
    y = rng.standard_normal((members, size)) * 10.0 ** rng.choice([-200.0, -8.0, -1.0, 0.0, 2.0, 60.0, 150.0])
    y[rng.random(members) < 0.1] = 0
    spec.y, spec.direction = holder.point(y), holder.point(np.zeros_like(y))
    spec.real = holder.point(np.zeros((members, len(engine.REALS))))
    spec.whole = holder.point(np.zeros((members, len(engine.WHOLES)), np.int64))
    spec.dgemm = ctypes.cast(dgemm, ctypes.c_void_p).value
    spec.least = float(rng.choice([1.0, 30.0, 1e300]))
    spec.stop = holder.point(np.zeros(1, np.int32))
    return spec


def drain(records: engine.Records, last: np.ndarray) -> None:
    """Note when each member was recorded last, and make room again."""
    for member, t in zip(records.member[: records.filled], records.time[: records.filled], strict=True):
        assert t > last[member], (member, t, last[member])
        last[member] = t
    records.clear()


def main(path: str, tables: dict[str, np.ndarray], runs: int) -> None:
    """Move all runs to their ends, a few of them through limits and windows of few records."""
    found = _library.load(Path(path))
    _library.library = lambda: found
    for seed in range(runs):
        rng, holder = np.random.default_rng(seed), engine.Holder()
        spec = spec_of(rng, tables, holder)
        y, whole = holder.kept[-5], holder.kept[-2]
        members, size = y.shape
        counter = np.zeros(1, np.int64)
        crew = [engine.Worker(spec, counter) for _ in range(int(rng.integers(1, 3)))]
        rooms = [engine.Records(int(rng.choice([8, 9, 64])), size, bool(spec.keeps)) for _ in crew]
        last = np.full(members, -1.0)

        for turn in range(int(rng.choice([3, 100_000]))):
            states = [worker.advance(records, 1e-4) for worker, records in zip(crew, rooms, strict=True)]
            for records in rooms:
                drain(records, last)
            if all(state == engine.DONE for state in states):
                break
            if turn == 1 and rng.random() < 0.1:
                holder.kept[-1][0] = 1
                break
        holder.kept[-1][0] = 0
        for worker, records in zip(crew, rooms, strict=True):
            while worker.end(records, 5) == engine.FULL:
                drain(records, last)
            drain(records, last)
        assert np.all(whole[:, engine.WHOLES.index("result")] > 0), seed
        assert np.all(last >= 0), seed
    for n in range(1, 12):
        a = np.random.default_rng(n).standard_normal((n, n))
        a, values = np.ascontiguousarray(a + a.T), np.zeros(n)
        assert found.engine_decompose(n, a.ctypes.data, values.ctypes.data)
    assert not refused, refused[:5]
    print("fine", runs)  # noqa: T201


if __name__ == "__main__":
    with np.load(sys.argv[2]) as stored:
        main(sys.argv[1], dict(stored), int(sys.argv[3]))
