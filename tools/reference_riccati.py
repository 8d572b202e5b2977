#!/usr/bin/env python
"""Reference solutions of the Riccati equation of two layers, for tests/exact/test_riccati.py.

    python tools/reference_riccati.py [FILE]          (NumPy and mpmath only, one core, a minute or two)

Every start and task is made of double-precision numbers; the solution for exactly these numbers is computed with
60 + 2 max|L| t digits from

    X(t) = e^{Ft} Q0 (I + Q0' phi(F, t) Q0)^{-1} Q0' e^{Ft},       phi(F, t) = int_0^t e^{2Fs} ds,

F = [[-lam/2, S'], [S, lam/2]], by an eigendecomposition of F (mpmath's own, not the closed one), and rounded to double.
Beyond convergence, t = 1e6/s_max, the number of digits would be in the millions: there the limit is taken, which for a
start that overlaps with all leading directions is  sum_k 2 L_k p_k p_k'  over the leading N_h positive eigenvalues.

One solution, `taylor`, is computed in another way: the weights themselves are integrated in 30 digits by a Taylor
series of order 30 in steps of 1/16.
"""

import json
import sys
from pathlib import Path

import mpmath as mp
import numpy as np

FILE = Path(__file__).parents[1] / "tests" / "exact" / "riccati_reference.json"


def rotation(rng, n):
    q, r = np.linalg.qr(rng.normal(size=(n, n)))
    return q * np.sign(np.diag(r))


def strengths(s, lam):
    big = np.sqrt(np.hypot(s, lam / 2) + abs(lam) / 2)
    small = np.where(big > 0, s / np.where(big > 0, big, 1.0), 0.0)
    return (small, big) if lam >= 0 else (big, small)


def start(rng, widths, lam, scale=1.0):
    """lambda-balanced layers with a random product; hidden units without a mode get sqrt(|lam|)."""
    inp, hidden, out = widths
    modes = min(widths)
    u, s, vt = np.linalg.svd(rng.normal(size=(out, hidden)) @ rng.normal(size=(hidden, inp)) / np.sqrt(hidden))
    s1, s2 = strengths(scale * s[:modes], lam)
    a, b = np.zeros((hidden, inp)), np.zeros((out, hidden))
    a[range(modes), range(modes)], b[range(modes), range(modes)] = s1, s2
    for k in range(modes, hidden):
        if lam > 0:
            b[k, k] = np.sqrt(lam)
        if lam < 0:
            a[k, k] = np.sqrt(-lam)
    r = rotation(rng, hidden)
    return r @ a @ vt, u @ b @ r.T


def matrix(array):
    return mp.matrix([[mp.mpf(float(x)) for x in row] for row in np.asarray(array)])


def problem(first, second, target, lam):
    out, inp = target.shape
    f = mp.zeros(inp + out)
    for i in range(inp + out):
        f[i, i] = (-mp.mpf(lam) if i < inp else mp.mpf(lam)) / 2
    for i in range(out):
        for j in range(inp):
            f[inp + i, j] = f[j, inp + i] = mp.mpf(float(target[i, j]))
    return f, matrix(np.concatenate([first.T, second]))


def solution(first, second, target, lam, t, digits=None):
    top = float(np.hypot(np.linalg.norm(target, 2), lam / 2))
    with mp.workdps(digits or int(60 + 2 * top * t)):
        f, q = problem(first, second, target, lam)
        values, vectors = mp.eigsy(f)
        y = vectors.T * q
        size, hidden = q.rows, q.cols
        time = mp.mpf(t)
        grown, middle = mp.zeros(size, hidden), mp.eye(hidden)
        for k in range(size):
            value = values[k]
            phi = time if abs(value) < mp.mpf(10) ** (-mp.mp.dps // 2) else mp.expm1(2 * value * time) / (2 * value)
            for i in range(hidden):
                grown[k, i] = mp.exp(value * time) * y[k, i]
                for j in range(hidden):
                    middle[i, j] += phi * y[k, i] * y[k, j]
        factor = vectors * grown
        return rounded(factor * mp.inverse(middle) * factor.T)


def limit(target, lam, hidden):
    with mp.workdps(60):
        f, _ = problem(np.zeros((1, target.shape[1])), np.zeros((target.shape[0], 1)), target, lam)
        values, vectors = mp.eigsy(f)
        leading = sorted(range(f.rows), key=lambda k: -values[k])[:hidden]
        x = mp.zeros(f.rows)
        for k in leading:
            if values[k] > mp.mpf(10) ** -30:
                x += 2 * values[k] * vectors[:, k] * vectors[:, k].T
        return rounded(x)


def taylor(first, second, target, t, steps, order=30):
    """The weights by Taylor series: W1' = W2' E, W2' = E W1', E = S - W2 W1, coefficient by coefficient."""
    with mp.workdps(30):
        a, b, s = matrix(first), matrix(second), matrix(target)
        h = mp.mpf(t) / steps
        for _ in range(steps):
            ca, cb, ce = [a], [b], []
            for k in range(order):
                product = sum((cb[i] * ca[k - i] for i in range(1, k + 1)), cb[0] * ca[k])
                ce.append((s if k == 0 else mp.zeros(s.rows, s.cols)) - product)
                ca.append(sum((cb[i].T * ce[k - i] for i in range(1, k + 1)), cb[0].T * ce[k]) / (k + 1))
                cb.append(sum((ce[i] * ca[k - i].T for i in range(1, k + 1)), ce[0] * ca[k].T) / (k + 1))
            a = sum((ca[k] * h**k for k in range(1, order + 1)), ca[0])
            b = sum((cb[k] * h**k for k in range(1, order + 1)), cb[0])
        return rounded(a.T * a), rounded(b * a), rounded(b * b.T)


def rounded(x):
    return [[float(x[i, j]) for j in range(x.cols)] for i in range(x.rows)]


def case(name, kind, first, second, target, lam, times, late=True, digits=None):
    target = np.asarray(target, dtype=float)
    top = float(np.hypot(np.linalg.norm(target, 2), lam / 2))
    strongest = float(np.linalg.norm(target, 2))
    times = [float(t) for t in times]
    solutions = [solution(first, second, target, lam, t, digits) for t in times]
    if late:
        times.append(1e6 / strongest)
        solutions.append(limit(target, lam, first.shape[0]))
    print(f"{name}: max|L| = {top:.3g}, times {times}")
    return {
        "name": name,
        "kind": kind,
        "lam": float(lam),
        "first": first.tolist(),
        "second": second.tolist(),
        "target": target.tolist(),
        "times": times,
        "limit_last": late,
        "solutions": solutions,
    }


def main(path):
    rng = np.random.default_rng(20)
    cases = []
    generic = [((3, 3, 3), -2.0), ((4, 2, 2), 2.0), ((2, 2, 4), 0.5), ((4, 2, 2), -7.0), ((2, 2, 4), 0.0)]
    for widths, lam in generic:
        first, second = start(rng, widths, lam)
        target = rng.normal(size=(widths[2], widths[0]))
        cases.append(
            case(
                f"{widths}, lam {lam:g}",
                "generic",
                first,
                second,
                target,
                lam,
                [1e-15, 1e-3, 0.3, 3.0, 30.0, 100.0],
                late=lam != 0.0,
            )
        )

    def spectrum(widths, values):
        """A task with given singular values and random vectors."""
        inp, _, out = widths
        s = np.zeros((out, inp))
        s[range(len(values)), range(len(values))] = values
        return rotation(rng, out) @ s @ rotation(rng, inp).T

    def hard(name, widths, lam, values, scale, times, late=True, digits=None):
        first, second = start(rng, widths, lam, scale)
        cases.append(case(name, "hard", first, second, spectrum(widths, values), lam, times, late, digits))

    top = 3.0
    hard("product of scale 1e-8", (2, 2, 4), 0.0, [3.0, 1.0], 1e-8, [1e-15, 1.0, 5.0, 12.0, 1e3 / top])
    hard("product of scale 1e-20", (4, 2, 2), 0.0, [3.0, 1.0], 1e-20, [1e-15, 5.0, 12.0, 30.0, 1e3 / top])
    hard("lam = 1e4, lazy side", (4, 2, 2), 1e4, [3.0, 1.0], 1.0, [1e-15, 1e-5, 1e-3, 0.03, 0.2])
    hard("lam = -1e4, delayed side", (4, 2, 2), -1e4, [3.0, 1.0], 1.0, [1e-15, 1e-5, 1e-3, 0.03, 0.2])
    # All growing rates lie within s^2/|lam| = 1e-3 of 5000: exponents are unbounded in mpmath, digits need not be.
    hard("lam = -1e4, on the way", (4, 2, 2), -1e4, [3.0, 1.0], 1.0, [1e3 / top, 3e3, 1e4, 1e5], digits=300)
    hard("slow mode", (4, 2, 2), -3.0, [1.5, 0.03], 1.0, [1.0, 100.0, 1e3 / 1.5], late=False)
    hard("bottleneck", (4, 2, 5), -1.0, [3.0, 2.0, 1.0, 0.5], 1.0, [1e-15, 0.3, 3.0, 1e3 / top])
    hard("wide hidden layer", (3, 6, 4), 0.0, [3.0, 1.0, 0.5], 1.0, [1e-15, 0.3, 3.0, 1e3 / top])
    hard("task of rank 1", (3, 3, 3), 1.0, [3.0, 0.0, 0.0], 1.0, [1e-15, 0.3, 3.0, 1e3 / top])
    hard("equal strengths", (3, 3, 3), 0.5, [3.0, 3.0, 3.0], 1.0, [1e-15, 0.3, 3.0, 1e3 / top])
    hard("no task", (3, 3, 3), 0.0, [0.0, 0.0, 0.0], 1.0, [1e-15, 1.0, 1e3], late=False)
    # Reversal: the first mode starts with the wrong sign. With lam = 0 its overlap with the growing direction is
    # exactly zero in double precision and it never recovers; with lam = 1e-9 it does, late.
    for lam, times in ((0.0, [1.0, 5.0, 15.0]), (1e-9, [1.0, 5.0, 10.0, 12.0, 1e3 / 2])):
        s1, s2 = strengths(np.array([2.0, 1.0, 0.5]), lam)
        cases.append(
            case(
                f"reversal, lam = {lam:g}",
                "hard",
                np.diag(s1),
                np.diag(s2 * np.array([-1.0, 1.0, 1.0])),
                np.diag([2.0, 1.0, 0.5]),
                lam,
                times,
                late=lam != 0.0,
            )
        )

    first, second = start(rng, (3, 2, 2), 1.5)
    target = rng.normal(size=(2, 3))
    blocks = taylor(first, second, target, 2.0, 32)
    independent = {
        "lam": 1.5,
        "first": first.tolist(),
        "second": second.tolist(),
        "target": target.tolist(),
        "time": 2.0,
        "input": blocks[0],
        "product": blocks[1],
        "output": blocks[2],
        "closed": solution(first, second, target, 1.5, 2.0),
    }
    Path(path).write_text(json.dumps({"cases": cases, "taylor": independent}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else FILE)
