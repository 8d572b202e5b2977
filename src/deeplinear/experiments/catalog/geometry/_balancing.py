"""Balancing flows: random layers lose their imbalance and keep their product."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.geometry import balancing_flow, balancing_rate
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

DESCENTS = ("group", "ambient")
GREY = "#888888"


@dataclasses.dataclass(frozen=True)
class Balance:
    """Gaussian layers, and for how many of the slowest decay times they are followed."""

    size: int = 3
    depth: int = 4
    draws: int = 6
    decays: float = 32.0
    smallest: float = 0.1
    records: int = 161
    rtol: float = 1e-11
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Balance", "size", self.size, at_least=1)
        check_count("Balance", "depth", self.depth, at_least=2)
        check_count("Balance", "draws", self.draws, at_least=1)
        check_count("Balance", "records", self.records, at_least=8)
        check_number("Balance", "decays", self.decays, above=0)
        check_number("Balance", "smallest", self.smallest, above=0, at_most=0.5)
        check_number("Balance", "rtol", self.rtol, above=0)

    def draw(self, rng: np.random.Generator) -> list[np.ndarray]:
        """Layers of unit variance whose product has no smaller singular value than told."""
        while True:
            layers = [rng.standard_normal((self.size, self.size)) for _ in range(self.depth)]
            product = np.linalg.multi_dot(layers[::-1])
            if np.linalg.svd(product, compute_uv=False)[-1] >= self.smallest:
                return layers


def run_balance(spec: Balance, context: Context) -> "xarray.Dataset":
    """Norm, imbalance and drift of the product along both flows from the same starts."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    shape = (len(DESCENTS), spec.draws)
    columns = {name: np.zeros((*shape, spec.records)) for name in ("time", "norm", "imbalance", "drift")}
    rates, least, steps, finished = np.zeros(shape), np.zeros(spec.draws), np.zeros(shape), np.zeros(shape, dtype=bool)
    for draw in range(spec.draws):
        layers = spec.draw(rng)
        product = np.linalg.multi_dot(layers[::-1])
        for way, descent in enumerate(DESCENTS):
            rates[way, draw] = float(balancing_rate(product, spec.depth, descent))
            times = np.linspace(0.0, spec.decays / rates[way, draw], spec.records)
            flow = balancing_flow(layers, times, descent=descent, rtol=spec.rtol, atol=1e-2 * spec.rtol)
            columns["time"][way, draw] = times
            columns["norm"][way, draw] = np.asarray(flow.norms)
            columns["imbalance"][way, draw] = np.max(np.asarray(flow.imbalances), axis=1)
            columns["drift"][way, draw] = np.asarray(flow.drift)
            least[draw] = float(flow.least)
            steps[way, draw], finished[way, draw] = flow.steps, flow.result.finished
            context.watch(None)
        context.progress((draw + 1) / spec.draws, f"start {draw + 1}")
    names = {
        "time": "time",
        "norm": "squared norm of the layers",
        "imbalance": "largest imbalance",
        "drift": "relative change of the product",
    }
    return xarray.Dataset(
        {
            **{name: (("descent", "draw", "record"), columns[name], {"long_name": names[name]}) for name in names},
            "rate": (("descent", "draw"), rates, {"long_name": "slowest rate of the imbalance"}),
            "least": ("draw", least, {"long_name": "least squared norm with this product"}),
            "steps": (("descent", "draw"), steps, {"long_name": "steps of the integrator"}),
            "finished": (("descent", "draw"), finished, {"long_name": "whether the last time was reached"}),
        },
        coords={"descent": list(DESCENTS)},
    )


def plot_balance(dataset: "xarray.Dataset", spec: Balance) -> "Figure":
    """Excess of the norm and imbalance over time, one row for each flow."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * PANEL[0], 2.2 * PANEL[1]), layout="constrained")
    for way, row in zip(DESCENTS, figure.subplots(2, 2, sharex="row"), strict=True):
        part = dataset.sel(descent=way)
        for draw in range(spec.draws):
            colour = COLOURS[draw % len(COLOURS)]
            time = part["time"].isel(draw=draw).to_numpy()
            excess = part["norm"].isel(draw=draw).to_numpy() - float(dataset["least"][draw])
            imbalance = part["imbalance"].isel(draw=draw).to_numpy()
            row[0].semilogy(time, np.where(excess > 1e-12, excess, np.nan), color=colour)
            row[1].semilogy(time, np.where(imbalance > 1e-12, imbalance, np.nan), color=colour)
            last = int(np.argmax(imbalance < 1e-9)) or len(imbalance) - 1
            middle = slice(max(1, last // 3), last)
            guide = imbalance[last] * np.exp(-float(part["rate"][draw]) * (time - time[last]))
            label = "slowest rate predicted" if draw == 0 else None
            row[1].semilogy(time[middle], 3 * guide[middle], color=GREY, linestyle=":", linewidth=1.0, label=label)
        for axis, title in zip(row, ("norm above its least", "imbalance"), strict=True):
            axis.set(xlabel="time", title=f"{way} flow: {title}", ylim=(1e-13, 1e3))
        row[0].set_ylabel(r"$\sum\|W_l\|^2 - L\sum\sigma^{2/L}$")
        row[1].set_ylabel(r"$\max_l \|G_l\|$")
        row[1].legend(loc="upper right")
    return figure


def claims_balance(dataset: "xarray.Dataset", spec: Balance) -> list[Claim]:
    """The product stays, the norm falls to its least, the layers end balanced; how fast."""
    ambient, group = dataset.sel(descent="ambient"), dataset.sel(descent="group")
    norm, final = dataset["norm"].to_numpy(), dataset["imbalance"].isel(record=-1)
    excess = np.abs(norm[..., -1] - dataset["least"].to_numpy())
    rising = float(np.max(np.diff(norm, axis=-1) / norm[..., :1]))
    found = ambient["imbalance"].to_numpy()
    told = found[:, :1] * np.exp(-2 * ambient["time"].to_numpy())
    law = np.abs(found / told - 1)[found > 1e-6]
    return [
        Claim.at_least("All runs reach their last time: share", dataset["finished"].mean(), 1.0),
        Claim.at_most("The product stays: largest relative change", dataset["drift"].max(), 1e-7),
        Claim.at_most("The layers end balanced: largest imbalance", final.max(), 1e-6),
        Claim.at_most("Their norm ends at its least: largest distance", float(excess.max()), 1e-6),
        Claim.at_most("The norm never rises: largest relative rise between records", rising, 1e-9),
        Claim.at_most(
            "Ambient flow: the imbalance is e^(−2t) of the first, largest relative distance",
            float(np.max(law, initial=0.0)),
            1e-4,
            "Where it is above 1e-6.",
        ),
        Claim.at_least(
            "Group flow: it decays no slower than predicted, smallest ratio of rates at the end",
            min(_ratio(group.isel(draw=draw)) for draw in range(spec.draws)),
            0.99,
        ),
    ]


def _ratio(run: "xarray.Dataset") -> float:
    """Rate of the imbalance between 1e-6 and 1e-9 over the slowest one predicted."""
    imbalance, time = run["imbalance"].to_numpy(), run["time"].to_numpy()
    seen = (imbalance < 1e-6) & (imbalance > 1e-9)
    if np.sum(seen) < 2:
        return float("nan")
    slope = np.polyfit(time[seen], np.log(imbalance[seen]), 1)[0]
    return float(-slope / float(run["rate"]))


EXPERIMENTS = (
    Experiment(
        id="geometry/balancing",
        source="Remark 2.1.4",
        shows="Flows within the layers of one product to balanced ones: gradients of the group and of the layers.",
        presets={"quick": Balance(size=2, depth=3, draws=3, records=81), "paper": Balance()},
        run=run_balance,
        plot=plot_balance,
        claims=claims_balance,
        notes="The thesis asks for such a flow. Sizes are ours; starts whose product is nearly singular, for which the "
        "group flow is slow, are drawn again.",
    ),
)
