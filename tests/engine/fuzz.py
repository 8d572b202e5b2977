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


def network(spec: engine.Spec, rng: np.random.Generator, holder: engine.Holder) -> tuple[int, int, int]:
    """A deep or a recurrent network: columns and rows of its product, and how many weights it has."""
    if rng.random() < 0.6:
        widths = rng.integers(1, 6, int(rng.integers(2, 8)))
        spec.depth, spec.widths = len(widths) - 1, holder.copy(widths, np.int32)
        return int(widths[0]), int(widths[-1]), int(np.sum(widths[1:] * widths[:-1]))
    states, length, inputs, outputs = (int(count) for count in rng.integers(1, (9, 7, 4, 4)))
    spec.form = int(rng.integers(1, len(engine.FORMS)))
    form = engine.FORMS[spec.form]
    outputs = inputs if form == "tied" else outputs
    inner = {"upper": states * (states + 1) // 2, "diagonal": states, "tied": states}.get(form, states**2)
    spec.depth, spec.widths = 2 if form == "tied" else 3, holder.copy((states, length, inputs, outputs), np.int32)
    return length * inputs, outputs, states * inputs + inner + (0 if form == "tied" else outputs * states)


def update(
    spec: engine.Spec,
    rng: np.random.Generator,
    holder: engine.Holder,
    lead: tuple[int, ...],
    x: np.ndarray,
    rows: int,
    size: int,
) -> None:
    """A discrete update of the run, on batches now and then."""
    found, members = engine.Update(), spec.members
    found.kind, found.nesterov = int(rng.integers(1, len(engine.UPDATES))), int(rng.integers(2))
    found.numbers = holder.copy(rng.choice([1e-3, 0.1, 0.9], (members, 4)), float)
    found.numbers_step = int(rng.choice([0, 4]))
    found.marks, spread = int(rng.integers(3)), int(rng.integers(2))
    found.mark = holder.copy(rng.integers(1, 20, (members, max(1, found.marks))), np.int64)
    found.factor, found.mark_step = holder.copy(np.full(members, 0.5), float), found.marks * spread
    found.factor_step = spread
    found.moments, found.keys = (
        holder.point(np.zeros((members, 2, size))),
        holder.copy(rng.integers(0, 99, (members, 2)), np.uint32),
    )
    own = members if lead else 1
    if rng.random() < 0.6:
        found.batch = int(rng.integers(1, 5))
        how = rng.integers(3)
        if how == 0 and spec.loss == 2:
            pass
        elif how == 1:
            inp = x.shape[-2]
            found.terms, entries = min(rows * inp, int(rng.integers(4, 9))), rows * inp
            found.batch = min(found.batch, found.terms)
            places = np.stack([rng.permutation(entries)[: found.terms] for _ in range(own)])
            found.places, found.observed = holder.copy(places, np.int64), holder.copy(places, float)
            found.places_step = found.observed_step = found.terms if lead else 0
        else:
            found.terms, samples = 5, np.ascontiguousarray(x)
            found.inputs, found.inputs_step = holder.copy(samples, float), 5 * x.shape[-2] if lead else 0
            found.outputs = holder.copy(rng.standard_normal((own, rows, 5)), float)
            found.outputs_step = 5 * rows if lead else 0
    spec.update = found


def spec_of(rng: np.random.Generator, tables: dict[str, np.ndarray], holder: engine.Holder) -> engine.Spec:
    """A small random run."""
    spec, members = engine.Spec(), int(rng.integers(1, 12))
    spec.members, own = members, rng.random() < 0.5
    inp, out, size = network(spec, rng, holder)
    spec.loss = int(rng.integers(3))
    lead = (members,) if own else ()
    x = rng.standard_normal((*lead, inp, 5)) * 10.0 ** rng.uniform(-1, 2)
    sxx = x @ np.swapaxes(x, -1, -2) / 5
    solution = rng.standard_normal((*lead, out, inp))
    arrays = {"target": solution @ sxx if spec.loss == 1 else solution, "offset": np.zeros(lead)}
    arrays["l2"] = np.full(lead, rng.choice([0.0, 0.1]))
    if spec.loss == 1:
        arrays |= {"sxx": sxx, "solution": solution}
    if spec.loss == 2:
        mask = (rng.random((*lead, out, inp)) < 0.6).astype(float)
        mask[..., 0, 0] = 1
        arrays["mask"] = mask
    for name, array in arrays.items():
        setattr(spec, name, holder.copy(array, float))
        setattr(spec, f"{name}_step", array.size // members if own else 0)
    discrete = rng.random() < 0.5
    if discrete:
        update(spec, rng, holder, lead, x, out, size)
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
    if discrete:
        times = np.cumsum(rng.integers(1, 40, len(times))).astype(float)
    times[0] *= rng.random() < 0.5
    begins = times[0] == 0
    listed = rng.random() < 0.7
    spec.listed, spec.times = len(times) * listed, holder.copy(times, float)
    spec.every, spec.horizon = int(rng.integers(1, 4)) * (not listed), float(times[-1])
    spec.max_steps, spec.opens = int(rng.integers(1, 120)), int(bool(begins or not listed))
    spec.wide, spec.keeps = int(rng.random() < 0.4), int(rng.random() < 0.5)
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
