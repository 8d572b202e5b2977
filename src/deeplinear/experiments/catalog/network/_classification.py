"""Several hundred random critical points: what they are told to be, and the smallest eigenvalue of their Hessians."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number, random
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.landscape import KIND, NegativeDirection, Tightened, canonical_form, classify, random_critical_point
from deeplinear.plots import COLOURS, PANEL
from deeplinear.theory.network import Network, dense_hessian, draw_sigma

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

KINDS = (KIND.global_minimum, KIND.strict_saddle, KIND.non_strict_saddle)

ROUNDING = 1e-13
"""Eigenvalues over the largest one below which they are zero."""

GAP, WEAKEST = 6e-3, 5e-4
"""Smallest negative curvature of strict saddles: with the recorded seed 0, and with any other."""

VANISHING = 1e-8
"""Blocks of the normal form below this vanish."""


@dataclasses.dataclass(frozen=True)
class Saddles:
    """How many points, of which widths and depths, in bases of which condition."""

    points: int = 400
    narrowest: int = 2
    widest: int = 6
    deepest: int = 6
    condition: float = 3.0
    seed: int = 0

    def __post_init__(self) -> None:
        check_count("Saddles", "points", self.points, at_least=1)
        check_count("Saddles", "narrowest", self.narrowest, at_least=1)
        check_count("Saddles", "widest", self.widest, at_least=self.narrowest, at_most=12)
        check_count("Saddles", "deepest", self.deepest, at_least=2, at_most=12)
        check_number("Saddles", "condition", self.condition, at_least=1)

    def draw(self, rng: np.random.Generator, place: int) -> Network:
        """Every other point has sparse blocks; half of them have learnt the strongest modes, but not all."""
        depth = int(rng.integers(2, self.deepest + 1))
        widths = tuple(int(width) for width in rng.integers(self.narrowest, self.widest + 1, depth + 1))
        sigma = draw_sigma(rng, min(widths[0], widths[-1]))
        signature = tuple(range(1, 1 + int(rng.integers(0, min(widths))))) if place % 4 < 2 else None
        style = "sparse" if place % 2 else "blocks"
        key = random.key(int(rng.integers(2**31)))
        layers = random_critical_point(key, sigma, widths, signature, fills=style, condition=self.condition)
        return Network(tuple(np.asarray(layer) for layer in layers), sigma)


def run_saddles(spec: Saddles, context: Context) -> "xarray.Dataset":
    """Kind, certificate and extreme eigenvalues of every point."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    columns: dict[str, list[float]] = {
        name: []
        for name in (
            "kind",
            "smallest",
            "largest",
            "certified",
            "order",
            "depth",
            "learnt",
            "weights",
            "blocks",
            "narrow",
        )
    }
    for place in range(spec.points):
        network = spec.draw(rng, place)
        found = classify(network.problem, network.params)
        hessian = dense_hessian(network)
        values = np.linalg.eigvalsh(hessian)
        proof = found.certificate
        certified = np.nan
        if isinstance(proof, NegativeDirection):
            direction = np.concatenate([np.asarray(layer).ravel() for layer in proof.direction])
            certified = float(direction @ hessian @ direction)
        fills = canonical_form(network.params, network.sigma).fills
        row = {
            "kind": KINDS.index(found.kind) if found.kind in KINDS else -1,
            "smallest": values[0],
            "largest": values[-1],
            "certified": certified,
            "order": proof.descent.order if isinstance(proof, Tightened) and proof.descent is not None else 0,
            "depth": network.depth,
            "learnt": len(found.signature or ()),
            "weights": len(values),
            "blocks": sum(fill.size == 0 or np.linalg.norm(fill) < VANISHING for fill in fills),
            "narrow": min(network.widths) < len(network.sigma),
        }
        for name, value in row.items():
            columns[name].append(float(value))
        context.watch(None)
        context.progress((place + 1) / spec.points, f"point {place + 1}")
    names = {
        "kind": "kind told: 0 global minimum, 1 strict saddle, 2 non-strict saddle",
        "smallest": "smallest eigenvalue of the Hessian",
        "largest": "largest eigenvalue of the Hessian",
        "certified": "Hessian form along the certified direction of unit length",
        "order": "order at which the loss falls at a non-strict saddle",
        "depth": "number of layers",
        "learnt": "number of modes learnt",
        "weights": "number of weights",
        "blocks": "vanishing blocks of the normal form",
        "narrow": "whether there is a bottleneck",
    }
    return xarray.Dataset(
        {name: ("point", np.asarray(columns[name]), {"long_name": text}) for name, text in names.items()}
    )


def _relative(dataset: "xarray.Dataset") -> np.ndarray:
    """Smallest eigenvalues over the largest ones, or over 1 where those are smaller."""
    return dataset["smallest"].to_numpy() / np.maximum(1.0, dataset["largest"].to_numpy())


def _confusion(dataset: "xarray.Dataset") -> np.ndarray:
    """Counts by kind (rows) and by the smallest eigenvalue: none negative, or negative."""
    negative = _relative(dataset) < -ROUNDING
    kinds = dataset["kind"].to_numpy()
    return np.array([[np.sum((kinds == k) & (negative == sign)) for sign in (False, True)] for k in range(len(KINDS))])


def plot_saddles(dataset: "xarray.Dataset", spec: Saddles) -> "Figure":
    """Smallest eigenvalues by depth and kind; the counts; certified curvature against the smallest eigenvalue."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.9 * PANEL[0], 1.25 * PANEL[1]), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.5, 0.8, 1.0))
    kinds, relative = dataset["kind"].to_numpy(), _relative(dataset)
    rng = np.random.default_rng(0)
    places = dataset["depth"].to_numpy() + rng.uniform(-0.3, 0.3, len(kinds))
    for k, (kind, colour, marker) in enumerate(zip(KINDS, (COLOURS[2], COLOURS[1], COLOURS[0]), "so^", strict=True)):
        left.scatter(
            places[kinds == k],
            relative[kinds == k],
            s=12,
            color=colour,
            marker=marker,
            alpha=0.7,
            linewidths=0,
            label=kind.value,
        )
    left.set_yscale("symlog", linthresh=1e-15, linscale=1.0)
    left.set_yticks([-1, -1e-4, -1e-8, -1e-12, 0.0])
    left.set_ylim(-3, 3e-14)
    left.axhline(-ROUNDING, color=COLOURS[-1], linestyle=":", linewidth=0.8)
    left.text(spec.deepest + 0.45, -ROUNDING * 1.6, "rounding above", ha="right", va="top", fontsize=7)
    left.set(
        xlabel="layers", ylabel=r"smallest eigenvalue$\,/\,\max(1, \lambda_{\max})$", title="Hessian at critical points"
    )
    left.set_xticks(range(2, spec.deepest + 1))
    left.legend(loc="center left", handletextpad=0.3, markerscale=1.4)
    counts = _confusion(dataset)
    middle.imshow(counts, cmap="Blues", aspect="auto", vmin=0, vmax=1.4 * counts.max())
    for (row, column), count in np.ndenumerate(counts):
        middle.text(column, row, str(count), ha="center", va="center", fontsize=11)
    middle.set_xticks([0, 1], ["none", "some"])
    middle.set_yticks(range(len(KINDS)), ["global\nminimum", "strict\nsaddle", "non-strict\nsaddle"])
    middle.set(xlabel="negative eigenvalue", title="number of points")
    middle.grid(False)
    strict = kinds == KINDS.index(KIND.strict_saddle)
    lowest, certified = -dataset["smallest"].to_numpy()[strict], -dataset["certified"].to_numpy()[strict]
    right.scatter(lowest, certified, s=12, color=COLOURS[1], alpha=0.7, linewidths=0)
    ends = [0.7 * float(min(lowest.min(), certified.min())), 1.4 * float(max(lowest.max(), certified.max()))]
    right.plot(ends, ends, color=COLOURS[-1], linestyle=":", linewidth=0.8)
    right.set(
        xscale="log", yscale="log", xlabel="minus the smallest eigenvalue", ylabel="minus the curvature certified"
    )
    right.set_title("strict saddles")
    return figure


def claims_saddles(dataset: "xarray.Dataset", spec: Saddles) -> list[Claim]:
    """No point is told wrongly, and there is a wide gap between both kinds of saddles."""
    kinds, relative = dataset["kind"].to_numpy(), _relative(dataset)
    strict = kinds == KINDS.index(KIND.strict_saddle)
    counts = _confusion(dataset)
    wrong = int(counts[0, 1] + counts[1, 0] + counts[2, 1] + np.sum(kinds < 0))
    certified, lowest = dataset["certified"].to_numpy()[strict], dataset["smallest"].to_numpy()[strict]
    orders = dataset["order"].to_numpy()[kinds == KINDS.index(KIND.non_strict_saddle)]
    return [
        Claim.at_most(f"Points told wrongly, of {spec.points}", wrong, 0),
        Claim.at_most(
            "Away from strict saddles no eigenvalue is negative: largest negative one, over λ_max",
            max(0.0, float(np.max(-relative[~strict], initial=0.0))),
            ROUNDING,
        ),
        Claim.at_least(
            "Strict saddles have clearly negative eigenvalues: the weakest",
            float(np.min(-lowest)),
            GAP if spec.seed == 0 else WEAKEST,
            "6e-3 is recorded for samples like this one.",
        ),
        Claim.at_most("Certified directions have negative curvature: the largest", float(np.max(certified)), 0.0),
        Claim.at_least("Non-strict saddles lose loss at a higher order: the lowest order", float(np.min(orders)), 3.0),
        Claim.at_least(
            "Saddles none of whose blocks vanishes are among them",
            float(np.sum((dataset["blocks"].to_numpy() == 0) & (kinds > 0))),
            1.0,
        ),
        Claim.at_least("So are bottlenecks", float(np.sum(dataset["narrow"].to_numpy())), 1.0),
    ]


EXPERIMENTS = (
    Experiment(
        id="network/saddles",
        version=2,
        source="Proposition 18",
        shows="The kinds of several hundred random critical points, told from their normal forms, beside the smallest "
        "eigenvalues of their Hessians: the two agree on every point.",
        presets={"quick": Saddles(points=80), "paper": Saddles()},
        run=run_saddles,
        plot=plot_saddles,
        claims=claims_saddles,
        notes="The survey states the classification without an experiment. Points are drawn by their normal form: a "
        "signature, blocks Z (Gaussian with two or more that vanish, or sparse ones that happen to be critical), and "
        "random bases of the hidden layers. Hessians are dense, in NumPy, and know nothing of the normal form.",
    ),
)
