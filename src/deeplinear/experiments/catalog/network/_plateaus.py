"""Which saddles do runs from near the origin visit? The finder against an oracle that sees the loss alone."""

import dataclasses
import itertools
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from deeplinear.core import RESULTS, Trajectory, check_count, check_number
from deeplinear.dynamics import GradientFlow, ensemble, until
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.landscape import Itinerary, Signature, diagonal_target, itinerary, set_name
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.plots import COLOURS, PANEL, draw_itinerary
from deeplinear.probes import gradient_norm, loss, product

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

LEVEL = 0.01
"""How close, relatively, the loss must come to a critical value for the oracle to name it."""

FALL = 0.3
"""How far the gradient must fall from its neighbouring hills for the oracle to see a valley."""

WIDER = 0.2
"""How close a run comes to a saddle it is said to pass by, in place of the tenth of a visit."""

FITTED = 1e-12
"""Loss at which a run ends."""

LONGEST = 1e6
"""Horizon of runs that would not end."""

MISSING = -1
"""Stands for a plateau whose loss is no critical value, and fills up short sequences."""


@dataclasses.dataclass(frozen=True)
class Plateaus:
    """Depths, with the scale of the start for each; hidden layers all have one width."""

    depths: tuple[int, ...] = (2, 3, 4, 5)
    scales: tuple[float, ...] = (1e-8, 0.02, 0.08, 0.12)
    inp: int = 5
    hidden: int = 4
    out: int = 3
    least_step: float = 0.7
    largest_step: float = 1.5
    runs: int = 25
    rtol: float = 1e-8
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.depths) != len(self.scales):
            raise ValueError(
                f"Plateaus: scales must hold one number for each of the {len(self.depths)} depths, but holds "
                f"{len(self.scales)}."
            )
        for depth, scale in zip(self.depths, self.scales, strict=True):
            check_count("Plateaus", "depths", depth, at_least=2)
            check_number("Plateaus", "scales", scale, above=0)
        check_count("Plateaus", "runs", self.runs, at_least=1)
        check_count("Plateaus", "out", self.out, at_least=1, at_most=min(self.inp, self.hidden))
        check_number("Plateaus", "least_step", self.least_step, above=0, at_most=self.largest_step)

    def widths(self, depth: int) -> tuple[int, ...]:
        """Widths of the network of a depth."""
        return (self.inp, *([self.hidden] * (depth - 1)), self.out)


def run_plateaus(spec: Plateaus, context: Context) -> "xarray.Dataset":
    """Runs of every depth, the signatures found, and those the loss alone names."""
    import xarray

    parts = [_of_depth(spec, place, context) for place in range(len(spec.depths))]
    longest = max(len(names) for part in parts for pair in part["named"] for names in pair)
    codes = np.full((2, len(spec.depths), spec.runs, longest), MISSING)
    for place, part in enumerate(parts):
        for run, pair in enumerate(part["named"]):
            for who, names in enumerate(pair):
                codes[who, place, run, : len(names)] = [_code(name) for name in names]
    example = parts[-1]["example"]
    both = ("depth", "run")
    return xarray.Dataset(
        {
            "found": ((*both, "visit"), codes[0], {"long_name": "signatures found, modes as bits"}),
            "by_loss": ((*both, "visit"), codes[1], {"long_name": "signatures by the loss, modes as bits"}),
            "agree": (both, np.array([part["agree"] for part in parts])),
            "agree_wider": (both, np.array([part["agree_wider"] for part in parts])),
            "shallow": (both, np.array([part["shallow"] for part in parts])),
            "greedy": (both, np.array([part["greedy"] for part in parts])),
            "gap": (both, np.array([part["gap"] for part in parts]), {"long_name": "largest relative |loss - level|"}),
            "example_loss": ("record", example["loss"]),
            "example_product": (("record", "row", "column"), example["product"]),
            "example_gradient": ("record", example["gradient_norm"]),
            "example_sigma": ("mode", example["sigma"]),
        },
        coords={"depth": list(spec.depths), "record": example["times"]},
    )


def _of_depth(spec: Plateaus, place: int, context: Context) -> dict:
    depth, scale = spec.depths[place], spec.scales[place]
    widths = spec.widths(depth)
    sigmas, problems, starts = [], [], []
    for run in range(spec.runs):
        rng = np.random.default_rng([spec.seed, depth, run])
        sigma = np.cumsum(rng.uniform(spec.least_step, spec.largest_step, spec.out))[::-1]
        target = diagonal_target(jnp.asarray(sigma, dtype=float), spec.out, spec.inp)
        sigmas.append(sigma)
        problems.append(Problem(DeepLinear(widths), SquaredDistance(target)))
        shapes = itertools.pairwise(widths)
        starts.append(
            tuple(jnp.asarray(scale * rng.standard_normal((rows, columns)), dtype=float) for columns, rows in shapes)
        )
    many = context.complete(
        ensemble(
            problems,
            starts,
            GradientFlow(spec.rtol),
            horizon=LONGEST,
            every=1,
            probes=(loss, product, gradient_norm),
            until=until(loss, below=FITTED),
            progress=context.watch,
        )
    )
    named, agree_wider, greedy, gaps, shallow = [], [], [], [], []
    for run in range(spec.runs):
        one = many.member(run)
        found = itinerary(problems[run], one)
        by_loss = named_by_loss(one["loss"], one["gradient_norm"], sigmas[run])
        total = 0.5 * float(np.sum(sigmas[run] ** 2))
        levels = [(visit.loss, visit.level) for visit in found.visits]
        gaps.append(max((abs(a - b) / max(b, 1e-3 * total) for a, b in levels if b is not None), default=np.nan))
        ours = _signatures(found)
        named.append((ours, by_loss))
        agree_wider.append(ours == by_loss or _signatures(itinerary(problems[run], one, close=WIDER)) == by_loss)
        greedy.append(found.greedy and found.visits[0].rank == 0 and found.visits[-1].rank == spec.out)
        shallow.append(None in by_loss)
    context.progress((place + 1) / len(spec.depths), f"depth {depth}")
    first = many.member(0)
    return {
        "named": named,
        "agree": [ours == theirs for ours, theirs in named],
        "agree_wider": agree_wider,
        "greedy": greedy,
        "gap": gaps,
        "shallow": shallow,
        "example": {
            "times": first.times,
            "loss": first["loss"],
            "product": first["product"],
            "gradient_norm": first["gradient_norm"],
            "sigma": sigmas[0],
        },
    }


def named_by_loss(losses: np.ndarray, gradients: np.ndarray, sigma: np.ndarray) -> list[Signature | None]:
    """Signatures read off the loss alone, at the deep valleys of the gradient.

    Every set of modes has its own critical value, so a loss within one per cent of one names it; `None` stands for a
    valley whose loss is further from every critical value.
    """
    from scipy.signal import find_peaks

    sets = [s for k in range(len(sigma) + 1) for s in itertools.combinations(range(1, len(sigma) + 1), k)]
    levels = np.array([0.5 * sum(sigma[i] ** 2 for i in range(len(sigma)) if i + 1 not in s) for s in sets])
    depth = -np.log(np.maximum(gradients, np.finfo(float).tiny))
    rim = depth.min() - 10
    peaks, _ = find_peaks(np.concatenate([[rim], depth, [rim]]), prominence=-np.log(FALL))
    named: list[Signature | None] = []
    for position in peaks - 1:
        nearest = int(np.argmin(np.abs(levels - losses[position])))
        close = abs(levels[nearest] - losses[position]) <= LEVEL * max(levels[nearest], 1e-3 * levels.max())
        name = sets[nearest] if close else None
        if not named or named[-1] != name:
            named.append(name)
    return named


def _signatures(found: Itinerary) -> list[Signature]:
    return [signature or () for signature in found.signatures]


def _code(signature: Signature | None) -> int:
    return MISSING if signature is None else sum(1 << (mode - 1) for mode in signature)


def _signature(code: int) -> Signature:
    return tuple(mode + 1 for mode in range(code.bit_length()) if code >> mode & 1)


def plot_plateaus(dataset: "xarray.Dataset", spec: Plateaus) -> "Figure":
    """One run with its saddles, and how many runs of each depth took which way."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.0 * PANEL[0], 2.6 * PANEL[1]), layout="constrained")
    above, below = figure.subplots(2, 1)
    times = np.asarray(dataset["record"])
    draw_itinerary(above, times, np.asarray(dataset["example_loss"]), _example(dataset, spec))
    above.set_xlabel("time")
    above.set_title(f"one run of depth {spec.depths[-1]}")
    ways: dict[str, np.ndarray] = {}
    for place in range(len(spec.depths)):
        for run in range(spec.runs):
            codes = np.asarray(dataset["found"][place, run])
            way = " → ".join(set_name(_signature(int(code))) for code in codes if code != MISSING)
            ways.setdefault(way, np.zeros(len(spec.depths)))[place] += 1
    ordered = sorted(ways.items(), key=lambda item: -item[1].sum())
    shown = [
        *ordered[:5],
        *([("other", sum((c for _, c in ordered[5:]), np.zeros(len(spec.depths))))] * (len(ordered) > 5)),
    ]
    bottom = np.zeros(len(spec.depths))
    for (way, counts), colour in zip(shown, COLOURS, strict=False):
        below.bar([str(depth) for depth in spec.depths], counts, bottom=bottom, color=colour, label=way, width=0.6)
        bottom = bottom + counts
    below.set_xlabel("depth")
    below.set_ylabel("runs")
    below.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize="small")
    below.set_title("saddles visited")
    return figure


def _example(dataset: "xarray.Dataset", spec: Plateaus) -> Itinerary:
    """The itinerary of the stored run."""
    sigma = jnp.asarray(np.asarray(dataset["example_sigma"]), dtype=float)
    problem = Problem(
        DeepLinear(spec.widths(spec.depths[-1])), SquaredDistance(diagonal_target(sigma, spec.out, spec.inp))
    )
    times = np.asarray(dataset["record"])
    values = {
        "loss": np.asarray(dataset["example_loss"]),
        "product": np.asarray(dataset["example_product"]),
        "gradient_norm": np.asarray(dataset["example_gradient"]),
    }
    dims = {"loss": (), "product": ("row", "column"), "gradient_norm": ()}
    done = np.asarray(int(RESULTS.completed))
    run = Trajectory(times, values, dims, (), done, np.asarray(0), (), np.asarray(len(times)), {}, {})
    return itinerary(problem, run)


def claims_plateaus(dataset: "xarray.Dataset", spec: Plateaus) -> list[Claim]:
    """How often the finder is right, and what happens where it is not confirmed."""
    agree = np.asarray(dataset["agree"])
    shallow, wider = np.asarray(dataset["shallow"]), np.asarray(dataset["agree_wider"])
    return [
        Claim.at_least(
            "Share of runs in which the saddles found are those that the loss alone names in valleys of the gradient",
            agree.mean(),
            0.9,
            f"{int(agree.sum())} of {agree.size} runs",
        ),
        Claim.at_most(
            "Runs that differ although the loss of every valley is a critical value to one per cent, and although a "
            "saddle may be passed at twice the distance of a visit",
            (~shallow & ~wider).sum(),
            0,
            "where a visit is so short that the loss does not settle to one per cent, the loss names nothing; "
            f"{int((~agree & ~shallow & wider).sum())} runs pass a saddle between the two distances",
        ),
        Claim.at_least(
            "Share of runs that learn the modes one by one, the strongest first, with a plateau before each",
            np.asarray(dataset["greedy"]).mean(),
            0.8,
        ),
        Claim.at_most(
            "Median over runs of the largest distance of the loss on a plateau from the critical value, relative",
            float(np.median(np.asarray(dataset["gap"]))),
            LEVEL,
        ),
    ]


EXPERIMENTS = (
    Experiment(
        id="network/plateaus",
        source="Section 6.1, the saddles a run from near the origin visits",
        shows="The sequence of saddles that runs from near the origin visit, named by two independent means.",
        presets={
            "quick": Plateaus(depths=(3,), scales=(0.02,), runs=8),
            "paper": Plateaus(),
            "large": Plateaus(runs=250),
        },
        run=run_plateaus,
        plot=plot_plateaus,
        claims=claims_plateaus,
        notes="Runs end at a loss of 1e-12 and are recorded at every step of the integrator.",
        version=2,
    ),
)
