"""The network as a graph and as one matrix, at three moments of a run from near the origin."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.network._recording import WIDTHS, check_network, follow, gaussian
from deeplinear.landscape import adjacency, adjacency_svd, balanced_radius, numerical_radius
from deeplinear.plots import COLOURS, PANEL, REST

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

MOMENTS = ("start", "plateau", "end")


@dataclasses.dataclass(frozen=True)
class Views:
    """One Gaussian start near the origin.

    Attributes:
        widths: Input width first; no layer narrower than the output.
        sigma: Singular values of the target, largest first.
        scale: Standard deviation of the weights.
        horizon: Where the run ends.
        learnt: How many modes are learnt on the plateau that is shown.
        rtol: Relative tolerance of the flow.
        seed: Of the weights.
    """

    widths: tuple[int, ...] = WIDTHS
    sigma: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0)
    scale: float = 0.05
    horizon: float = 330.0
    learnt: int = 2
    rtol: float = 1e-10
    seed: int = 1

    def __post_init__(self) -> None:
        check_network("Views", self.widths, self.sigma, self.rtol, self.seed, self.horizon)
        check_number("Views", "scale", self.scale, above=0)
        check_count("Views", "learnt", self.learnt, at_least=1, at_most=len(self.sigma) - 1)


def run_views(spec: Views, context: Context) -> "xarray.Dataset":
    """The adjacency matrix at the start, on the plateau where its gradient is smallest, and at the end."""
    import xarray

    start = gaussian(spec.widths, spec.scale, spec.seed)
    run = follow(context, spec.widths, spec.sigma, start, spec.horizon, spec.rtol)
    depth, sigma = len(spec.widths) - 1, run.sigma
    strengths = np.linalg.svd(run.product, compute_uv=False)
    resting = np.flatnonzero(np.sum(strengths >= sigma / 2, axis=1) == spec.learnt)
    if not resting.size:
        raise RuntimeError(
            f"network/adjacency: no recorded moment has {spec.learnt} modes learnt; take a smaller scale or a longer "
            "horizon."
        )
    places = (0, int(resting[np.argmin(run.gradient[resting])]), len(run.times) - 1)
    matrices, values, owners, radii, powers, whole, by_layer = [], [], [], [], [], [], []
    most = max(min(pair) for pair in zip(spec.widths, spec.widths[1:], strict=False))
    for place in places:
        params = tuple(layer[place] for layer in run.layers)
        factors = adjacency_svd(params)
        dense = np.asarray(adjacency(params).dense())
        matrices.append(dense)
        values.append(np.asarray(factors.values))
        owners.append(np.asarray(factors.layer))
        radii.append(float(numerical_radius(params)))
        powers.append(float(np.max(np.abs(np.linalg.matrix_power(dense, depth + 1)))))
        whole.append(np.linalg.svd(dense, compute_uv=False))
        single = np.full((depth, most), np.nan)
        for number in range(depth):
            own = np.linalg.svd(params[number], compute_uv=False)
            single[number, : len(own)] = own
        by_layer.append(single)
    level = [0.5 * float(np.sum(sigma[k:] ** 2)) for k in (0, spec.learnt, len(sigma))]
    moment = "moment"
    return xarray.Dataset(
        {
            "time": (moment, run.times[list(places)]),
            "loss": (moment, run.loss[list(places)]),
            "level": (moment, level, {"long_name": "loss of the nearest critical point: half the squares not learnt"}),
            "adjacency": ((moment, "row", "column"), np.stack(matrices)),
            "singular_values": ((moment, "node"), np.stack(values), {"long_name": "assembled from the layers"}),
            "dense_values": ((moment, "node"), np.stack(whole), {"long_name": "of the matrix as a whole"}),
            "owner": ((moment, "node"), np.stack(owners), {"long_name": "layer of a singular value, 0 for none"}),
            "layer_values": ((moment, "layer", "value"), np.stack(by_layer)),
            "radius": (moment, radii, {"long_name": "numerical radius"}),
            "power": (moment, powers, {"long_name": "largest entry of the power L + 1"}),
        },
        coords={moment: list(MOMENTS), "layer": np.arange(1, depth + 1)},
    )


# --- Picture ----------------------------------------------------------------------------------------------------------


def _graph(axis: Any, matrix: np.ndarray, widths: tuple[int, ...], top: float) -> None:
    """Nodes in columns; lines as wide as their weights are large, in the colour of their sign."""
    from matplotlib.collections import LineCollection

    tallest = max(widths)
    places = [  # the first node of a group stands at the top, as in the matrix
        (x, ((count - 1) / 2 - k) * tallest / count) for x, count in enumerate(widths) for k in range(count)
    ]
    rows, columns = np.nonzero(matrix)
    order = np.argsort(np.abs(matrix[rows, columns]))
    rows, columns = rows[order], columns[order]
    shares = np.abs(matrix[rows, columns]) / top
    colours = [COLOURS[0] if matrix[i, j] > 0 else COLOURS[1] for i, j in zip(rows, columns, strict=True)]
    lines = [(places[j], places[i]) for i, j in zip(rows, columns, strict=True)]
    axis.add_collection(
        LineCollection(lines, colors=colours, linewidths=0.1 + 2.6 * shares, alpha=np.clip(0.06 + 0.94 * shares, 0, 1))
    )
    axis.scatter(*zip(*places, strict=True), s=22, color="white", edgecolor="#444444", linewidth=0.8, zorder=3)
    axis.set(xlim=(-0.4, len(widths) - 0.6), ylim=(-0.62 * tallest, 0.62 * tallest))
    axis.grid(visible=False)
    axis.set_yticks([])
    axis.set_xticks(range(len(widths)), [f"$d_{{{k}}}$\n{width}" for k, width in enumerate(widths)])
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)


def plot_views(dataset: "xarray.Dataset", spec: Views) -> "Figure":
    """Rows: moments. Columns: the graph, the matrix with the borders of its blocks, singular values by layer."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    depth = len(spec.widths) - 1
    figure = Figure(figsize=(2.45 * PANEL[0], 1.05 * PANEL[1] * len(MOMENTS) + 0.4), layout="constrained")
    axes = figure.subplots(len(MOMENTS), 3, squeeze=False, width_ratios=(1.25, 1.0, 0.95))
    edges = np.cumsum(spec.widths)[:-1] - 0.5
    shown = dataset["layer_values"].to_numpy()
    floor = 10 ** np.floor(np.log10(max(np.nanmin(shown[shown > 0]), 1e-3)))
    for row, moment in zip(axes, MOMENTS, strict=True):
        now = dataset.sel(moment=moment)
        matrix = now["adjacency"].to_numpy()
        top = float(np.max(np.abs(matrix)))
        _graph(row[0], matrix, spec.widths, top)
        words = {"start": "start", "plateau": f"plateau, {spec.learnt} learnt", "end": "end"}[moment]
        row[0].set_title(f"{words}: $t = {float(now['time']):.4g}$, loss {float(now['loss']):.2g}", loc="left")
        image = row[1].imshow(matrix, cmap="RdBu", vmin=-top, vmax=top, interpolation="nearest")
        for edge in edges:
            row[1].axhline(edge, color="#999999", linewidth=0.5)
            row[1].axvline(edge, color="#999999", linewidth=0.5)
        row[1].grid(visible=False)
        row[1].set(ylabel="to node")
        figure.colorbar(image, ax=row[1], shrink=0.9, label="weight")
        for number in range(1, depth + 1):
            values = now["layer_values"].sel(layer=number).to_numpy()
            row[2].semilogy(np.full(len(values), number), values, "o", color=COLOURS[(number - 1) % len(COLOURS)])
        for value in spec.sigma:
            row[2].axhline(value ** (1 / depth), color=REST, linewidth=0.9, linestyle="--", zorder=0)
        row[2].set(ylabel="singular values of $A$", ylim=(0.6 * floor, 3 * max(spec.sigma) ** (1 / depth)))
        row[2].set_xticks(range(1, depth + 1))
        row[2].set_xlim(0.4, depth + 0.6)
    axes[-1, 1].set(xlabel="from node")
    axes[-1, 2].set(xlabel="layer")
    axes[0, 1].set_title("adjacency matrix $A$", loc="left")
    axes[0, 2].set_title("by layer", loc="left")
    handles = [
        Line2D([], [], color=COLOURS[0], linewidth=2.4, label="positive weight"),
        Line2D([], [], color=COLOURS[1], linewidth=2.4, label="negative weight"),
        Line2D([], [], color=REST, linestyle="--", label=r"$\sigma_k^{1/L}$"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


# --- Claims -----------------------------------------------------------------------------------------------------------


def claims_views(dataset: "xarray.Dataset", spec: Views) -> list[Claim]:
    """What is true of the matrix at every moment, and what the run makes of it."""
    depth, modes = len(spec.widths) - 1, len(spec.sigma)
    apart = abs(dataset["singular_values"] - dataset["dense_values"]).max()
    end, level = dataset.sel(moment="end"), dataset.sel(moment="plateau")
    formula = float(balanced_radius(spec.sigma[0] ** (1 / depth), depth))
    spread = end["layer_values"].isel(value=slice(0, modes)).to_numpy()
    ideal = np.asarray(spec.sigma) ** (1 / depth)
    values = np.sort(end["dense_values"].to_numpy())[::-1]
    return [
        Claim.at_most(
            "A is nilpotent at every moment: largest entry of the power L + 1",
            dataset["power"].max(),
            0.0,
            general=True,
        ),
        Claim.at_most("The singular values of A are those of all layers together: largest difference", apart, 1e-12),
        Claim.at_most(
            f"On the plateau the loss is that of a saddle with {spec.learnt} learnt: difference over the start",
            abs(level["loss"] - level["level"]) / dataset["loss"].sel(moment="start"),
            0.01,
        ),
        Claim.at_most("At the end the task is learnt: loss over the start", end["loss"] / dataset["loss"][0], 1e-6),
        Claim.at_most(
            "Layers share their singular values at the end, as balanced ones do: relative distance from σ^{1/L}",
            np.max(np.abs(spread - ideal) / ideal),
            0.05,
        ),
        Claim.at_most(
            "The numerical radius is that of balanced layers, σ₁^{1/L} cos(π/(L + 2)): relative difference",
            abs(float(end["radius"]) / formula - 1),
            0.01,
        ),
        Claim.at_least(
            "As many singular values of A grow as modes times layers, the others stay small: ratio at the gap",
            values[modes * depth - 1] / values[modes * depth],
            5.0,
        ),
    ]


EXPERIMENTS = (
    Experiment(
        id="network/adjacency",
        source="Sections 3.1, 3.4 and 6.1",
        shows="The network as a graph with weighted connections, as one nilpotent matrix, and by the singular values "
        "of its layers: at the start near the origin, on a plateau, and at the end.",
        presets={
            "quick": Views(widths=(5, 4, 4, 3), sigma=(4.0, 2.5, 1.0), scale=0.05, horizon=120.0, learnt=1, rtol=1e-8),
            "paper": Views(),
        },
        run=run_views,
        plot=plot_views,
        claims=claims_views,
        notes=(
            "The survey draws no graph of its example; the run is that of its Figure 2(a). Widths and colours of "
            "connections are relative to the largest weight of the moment. On the plateau the moment of the smallest "
            "gradient is shown."
        ),
    ),
)
