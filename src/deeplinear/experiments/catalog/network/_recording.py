"""What the figures of trajectories share: one flow with everything that is watched along it, and its panels."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.dynamics import GradientFlow, simulate, until
from deeplinear.experiments._base import Context
from deeplinear.landscape import diagonal_target, learning_times
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import gradient_norm, loss, weights

if TYPE_CHECKING:
    import xarray
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTHS = (11, 6, 6, 6, 6, 4)
"""The survey's network: 198 weights, 84 conserved numbers."""


FLOOR = 1e-14
"""Smallest loss that is drawn."""

SHOWN = 5e-5
"""Share of the horizon at which logarithmic axes of time begin."""


def check_network(
    where: str, widths: Sequence[int], sigma: Sequence[float], rtol: float, seed: int, horizon: float
) -> None:
    """Refuse what no trajectory of a filling network can be made of."""
    for width in widths:
        check_count(where, "each of widths", width, at_least=1)
    if len(widths) < 3:
        raise ValueError(f"{where}: widths must name at least one hidden layer, but is {tuple(widths)}.")
    if min(widths) < widths[-1]:
        raise ValueError(f"{where}: no layer may be narrower than the output, but widths is {tuple(widths)}.")
    if len(sigma) != widths[-1]:
        raise ValueError(f"{where}: sigma must have one value for each of {widths[-1]} outputs, but has {len(sigma)}.")
    if any(later >= earlier for earlier, later in itertools.pairwise(sigma)) or sigma[-1] <= 0:
        raise ValueError(f"{where}: sigma must be positive and fall from value to value, but is {tuple(sigma)}.")
    check_number(where, "rtol", rtol, at_least=1e-14, at_most=1e-6)
    check_number(where, "horizon", horizon, above=0)
    check_count(where, "seed", seed)


def task(widths: Sequence[int], sigma: Sequence[float]) -> Problem:
    """The network that learns the diagonal target."""
    target = diagonal_target(jnp.asarray(sigma, dtype=float), widths[-1], widths[0])
    return Problem(DeepLinear(tuple(widths)), SquaredDistance(target))


def gaussian(widths: Sequence[int], scale: float, seed: int) -> tuple[np.ndarray, ...]:
    """Gaussian layers, drawn in the order in which they act."""
    rng = np.random.default_rng(seed)
    return tuple(scale * rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(widths))


def imbalances(layers: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The conserved quantities of neighbouring layers; leading axes are those of the layers."""
    return [np.swapaxes(b, -1, -2) @ b - a @ np.swapaxes(a, -1, -2) for a, b in itertools.pairwise(layers)]


def imbalance(layers: Sequence[np.ndarray]) -> float:
    """The largest Frobenius norm of a conserved quantity."""
    return max(float(np.linalg.norm(c)) for c in imbalances(layers))


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One flow, recorded at every step: the layers have a leading axis of times."""

    problem: Problem
    sigma: np.ndarray
    times: np.ndarray
    loss: np.ndarray
    gradient: np.ndarray
    layers: tuple[np.ndarray, ...]

    @property
    def product(self) -> np.ndarray:
        """The product at every time."""
        product = self.layers[0]
        for layer in self.layers[1:]:
            product = layer @ product
        return product

    @property
    def norm(self) -> np.ndarray:
        """Norm of all weights at every time."""
        return np.sqrt(np.sum([np.sum(layer**2, axis=(1, 2)) for layer in self.layers], axis=0))


NEVER = -1.0
"""A loss no flow falls below: the run goes on to its horizon. One rule in every run, so that all share code."""


def follow(
    context: Context,
    widths: Sequence[int],
    sigma: Sequence[float],
    start: Sequence[np.ndarray],
    horizon: float,
    rtol: float,
    below: float = NEVER,
) -> Recorded:
    """Flow from a start to a horizon, or to a loss, recorded at every step: densely where it moves."""
    problem = task(widths, sigma)
    run = simulate(
        problem,
        start,
        GradientFlow(rtol),
        horizon=horizon,
        every=1,
        probes=(loss, gradient_norm, weights),
        until=until(loss, below=below),
        progress=context.watch,
    )
    context.complete(run)
    shapes = [layer.shape for layer in start]
    pieces = np.split(run["weights"], np.cumsum([rows * columns for rows, columns in shapes])[:-1], axis=1)
    layers = tuple(piece.reshape(-1, *shape) for piece, shape in zip(pieces, shapes, strict=True))
    return Recorded(problem, np.asarray(sigma, dtype=float), run.times, run["loss"], run["gradient_norm"], layers)


def observe(run: Recorded) -> "xarray.Dataset":
    """All curves of a run, when its modes are learnt, and what it is like on the plateaus between.

    Plateau k lies between the learning times of the modes k and k + 1, the last one before the horizon. `rest` is where
    the gradient is smallest in it, `middle` the moment halfway.
    """
    import xarray

    product, modes = run.product, len(run.sigma)
    left, values, right = np.linalg.svd(product, full_matrices=False)
    # One decomposition of each layer gives its strengths, the overlaps and every m(q); on the host, as the number of
    # records is another in every run.
    factors = [np.linalg.svd(layer) for layer in run.layers]
    overlaps = [np.abs(above[2] @ below[0])[:, :modes, :modes] for below, above in itertools.pairwise(factors)]
    alignment = np.stack(
        [
            np.stack([np.sum((o[:, :q, :q] - np.eye(q)) ** 2, axis=(1, 2)) for o in overlaps], axis=1)
            for q in range(1, modes + 1)
        ],
        axis=1,
    )
    ranks = max(len(f[1][0]) for f in factors)
    by_layer = np.full((len(run.times), len(factors), ranks), np.nan)
    for place, (_, strengths, _) in enumerate(factors):
        by_layer[:, place, : strengths.shape[1]] = strengths
    laws = imbalances(run.layers)
    learnt = np.asarray(learning_times(run.times, values, run.sigma))
    ends = np.append(learnt[1:], run.times[-1])
    rests, middles = [], []
    for begin, end in zip(learnt, ends, strict=True):
        within = np.flatnonzero((run.times > begin) & (run.times < end))
        rests.append(int(within[np.argmin(run.gradient[within])]) if within.size else -1)
        middles.append(int(within[np.argmin(np.abs(run.times[within] - (begin + end) / 2))]) if within.size else -1)
    curvature = _curvature(run, middles)
    cosines = [np.abs(np.diagonal(vectors[:, :modes, :modes], axis1=1, axis2=2)) for vectors in (left, right)]
    turned = 1 - np.minimum(*cosines)
    later = [slice(middle, None) if middle >= 0 else slice(0, 0) for middle in middles]

    halves, means = (learnt + ends) / 2, alignment.mean(axis=2).T
    quiet = [[later for later in middles[j:] if later >= 0] for j in range(modes)]

    def at(places: Sequence[int], curve: np.ndarray) -> np.ndarray:
        return np.stack([curve[i] if i >= 0 else np.full(curve.shape[1:], np.nan) for i in places])

    plateau, curve = "plateau", ("time", "mode")
    return xarray.Dataset(
        {
            "loss": ("time", run.loss),
            "gradient_norm": ("time", run.gradient),
            "norm": ("time", run.norm),
            "product_norm": ("time", np.linalg.norm(product, axis=(1, 2))),
            "singular_values": (curve, values),
            "layer_singular_values": (("time", "layer", "rank"), by_layer),
            "alignment": (("time", "top", "pair"), alignment),
            "drift": (("time", "pair"), np.stack([np.linalg.norm(c - c[0], axis=(1, 2)) for c in laws], axis=1)),
            "overlap": (("pair", "read", "written"), np.stack([o[-1] for o in overlaps])),
            "imbalance": ((), imbalance([layer[0] for layer in run.layers])),
            "sigma": ("mode", run.sigma),
            "learning_time": ("mode", learnt),
            "level": (plateau, [0.5 * float(np.sum(run.sigma[k:] ** 2)) for k in range(1, modes + 1)]),
            "rest_time": (plateau, at(rests, run.times)),
            "rest_loss": (plateau, at(rests, run.loss)),
            "rest_gradient": (plateau, at(rests, run.gradient)),
            "middle_time": (plateau, halves),
            "middle_loss": (plateau, np.interp(halves, run.times, run.loss)),
            "middle_alignment": ((plateau, "top"), np.stack([np.interp(halves, run.times, m) for m in means], axis=1)),
            "middle_curvature": ((plateau, "end"), curvature),
            "moved_value": ("mode", [_most(np.abs(values[part, j] - run.sigma[j])) for j, part in enumerate(later)]),
            "moved_value_at_rest": (
                "mode",
                [_most(np.abs(values[places, j] - run.sigma[j])) for j, places in enumerate(quiet)],
            ),
            "moved_vector": ("mode", [_most(turned[part, j]) for j, part in enumerate(later)]),
        },
        coords={
            "time": run.times,
            "mode": np.arange(1, modes + 1),
            "layer": np.arange(1, len(factors) + 1),
            "pair": np.arange(1, len(factors)),
            "top": np.arange(1, modes + 1),
            plateau: np.arange(1, modes + 1),
            "end": ["smallest", "largest"],
        },
    )


def _most(values: np.ndarray) -> float:
    return float(values.max()) if values.size else float("nan")


def _curvature(run: Recorded, places: Sequence[int]) -> np.ndarray:
    """Smallest and largest eigenvalue of the Hessian at some records."""
    hessian = jax.jit(type(run.problem).hessian)
    found = np.full((len(places), 2), np.nan)
    for row, place in enumerate(places):
        if place >= 0:
            matrix = np.asarray(
                hessian(run.problem, tuple(jnp.asarray(layer[place], dtype=float) for layer in run.layers))
            )
            found[row] = np.linalg.eigvalsh(matrix)[[0, -1]]
    return found


def read_off(dataset: "xarray.Dataset", records: int) -> np.ndarray:
    """Learning times as they are read from so many records at equal distances up to the horizon."""
    from scipy.interpolate import PchipInterpolator

    times = dataset["time"].to_numpy()
    grid = np.linspace(0.0, times[-1], records)
    values = PchipInterpolator(times, dataset["singular_values"].to_numpy())(grid)
    return np.asarray(learning_times(grid, values, dataset["sigma"].to_numpy()))


# --- Pictures ---------------------------------------------------------------------------------------------------------


def panels(rows: int) -> tuple["Figure", np.ndarray]:
    """A figure of two columns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.3 * PANEL[0], 0.95 * PANEL[1] * rows), layout="constrained")
    return figure, np.ravel(figure.subplots(rows, 2))


def beside(axes: "Axes", **settings: Any) -> None:
    """The legend to the right of a panel, where it hides nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, **settings)


def draw_run(axes: np.ndarray, dataset: "xarray.Dataset", *, logarithmic: bool = False) -> None:
    """The six panels of one trajectory."""
    times = dataset["time"].to_numpy()
    sigma = dataset["sigma"].to_numpy()
    loss_axes, norm_axes, value_axes, layer_axes, align_axes, drift_axes = axes[:6]
    losses = dataset["loss"].to_numpy()
    if logarithmic:
        loss_axes.set_yscale("log")
        loss_axes.set_ylim(FLOOR, 10 * losses.max())
    loss_axes.plot(times, np.where(losses > 0, losses, np.nan), color=COLOURS[0])
    for k, level in enumerate(dataset["level"].to_numpy()[:-1]):
        label = r"$\frac{1}{2}\sum_{i>k}\sigma_i^2$" if k == 0 else "_"
        loss_axes.axhline(level, color="0.55", linestyle=":", linewidth=0.9, label=label, zorder=1)
    loss_axes.set_ylabel("loss")
    beside(loss_axes)
    for name, label, colour in (("norm", r"$\|A\|_F$", 0), ("product_norm", r"$\|A^L\|_F$", 1)):
        norm_axes.plot(times, dataset[name], color=COLOURS[colour], label=label)
    norm_axes.set_ylabel("norms")
    beside(norm_axes)
    for j, strength in enumerate(sigma):
        value_axes.axhline(strength, color="0.55", linestyle=":", linewidth=0.9, zorder=1)
        value_axes.plot(times, dataset["singular_values"][:, j], color=COLOURS[j % 7], label=f"mode {j + 1}")
    value_axes.plot([], [], color="0.55", linestyle=":", linewidth=0.9, label="target")
    value_axes.set_ylabel(r"singular values of $A^L$")
    beside(value_axes)
    for place in range(dataset.sizes["layer"]):
        curves = dataset["layer_singular_values"][:, place]
        for k in range(dataset.sizes["rank"]):
            label = f"layer {place + 1}" if k == 0 else "_"
            layer_axes.plot(times, curves[:, k], color=COLOURS[place % 7], linewidth=0.9, label=label)
    layer_axes.set_ylabel("singular values of layers")
    beside(layer_axes)
    top = dataset["alignment"].isel(top=-1)
    for k in range(dataset.sizes["pair"]):
        label = f"layers {k + 1}, {k + 2}"
        align_axes.plot(times, top[:, k], color=COLOURS[k % 7], label=label)
        drift = dataset["drift"][:, k].to_numpy()
        drift_axes.semilogy(times, np.where(drift > 0, drift, np.nan), color=COLOURS[k % 7], label=label, linewidth=1.0)
    align_axes.set_ylabel(rf"misalignment $m_k({dataset.sizes['top']})$")
    beside(align_axes)
    drift_axes.set_ylabel(r"drift $\|C_k(t) - C_k(0)\|_F$")
    beside(drift_axes)
    for axis in axes[:6]:
        axis.set_xlabel("time")
        if logarithmic:
            axis.set_xscale("log")
            axis.set_xlim(SHOWN * times[-1], times[-1])
        else:
            axis.set_xlim(0, times[-1])
            for moment in dataset["learning_time"].to_numpy():
                if np.isfinite(moment):
                    axis.axvline(moment, color="0.85", linewidth=0.8, zorder=0)
