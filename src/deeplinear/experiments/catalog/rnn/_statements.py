"""Students without loss that do not extrapolate: balanced ones at twice the order, unbalanced ones at any length."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.models import System
from deeplinear.plots import COLOURS, PANEL, plot_responses
from deeplinear.recurrent import (
    balanced_teacher,
    delay_teacher,
    extrapolation,
    extrapolation_verdict,
    impulse_response,
    non_extrapolating_student,
    sharpness_student,
    spectral_measure,
    unbalanced_teacher,
)

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

ATOMS = (0.9, -0.5, 0.3)
MASSES = (0.4, 0.35, 0.25)
"""Eigenvalues and weights of balanced teachers; one of order n has the first n."""

AGREEMENT = 1e-13
"""Of entries that two responses have in common."""

FORMULA = 1e-12
"""Of the gap against its formula."""


# --- One entry more than twice the order ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sharpness:
    """Balanced students that agree with a teacher of n atoms on 2n entries, for several couplings of the added state.

    The gap at the entry 2n is the square of the coupling times what the teacher gives.
    """

    orders: tuple[int, ...] = (1, 2, 3)
    couplings: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    states: int = 10
    horizon: int = 30

    def __post_init__(self) -> None:
        for order in self.orders:
            check_count("Sharpness", "orders", order, at_least=1, at_most=len(ATOMS))
        for coupling in self.couplings:
            check_number("Sharpness", "couplings", coupling, above=0)
        check_count("Sharpness", "states", self.states, at_least=max(self.orders) + 1)
        check_count("Sharpness", "horizon", self.horizon, at_least=2 * max(self.orders) + 2)


def run_sharpness(spec: Sharpness, context: Context) -> "xarray.Dataset":
    """Responses, gaps, losses at k = 2n and 2n + 1, and what the theorems say of each student."""
    import xarray

    teachers, students, rows = [], [], []
    for done, n in enumerate(spec.orders):
        atoms, masses = np.array(ATOMS[:n]), np.array(MASSES[:n])
        column = np.sqrt(masses)[:, None]
        teacher = (np.diag(atoms), column, column.T)
        w = masses @ atoms[:, None] ** np.arange(spec.horizon)
        teachers.append(w)
        for coupling in spec.couplings:
            student = sharpness_student((atoms, masses), coupling=coupling, states=spec.states)
            h = np.asarray(impulse_response(student.system, spec.horizon).values)
            short, long = (
                extrapolation_verdict(student.system, teacher, k, horizon=spec.horizon) for k in (2 * n, 2 * n + 1)
            )
            students.append(h)
            rows.append(
                [
                    np.abs(h - w)[: 2 * n].max(),
                    h[2 * n] - w[2 * n],
                    float(student.gap),
                    short.observed.training_loss,
                    long.observed.training_loss,
                    short.observed.error,
                    short.observed.reference,
                    float(short.theorem != "none"),
                    long.certified_error or np.nan,
                    long.observed.error,
                ]
            )
        context.progress((done + 1) / len(spec.orders), f"order {n}")
    names = (
        *("agreement", "gap", "predicted_gap", "loss_short", "loss_long", "error"),
        *("reference", "theorem_short", "certified_long", "error_long"),
    )
    grid = (len(spec.orders), len(spec.couplings))
    table = np.array(rows).reshape(*grid, len(names))
    return xarray.Dataset(
        {name: (("order", "coupling"), table[..., i]) for i, name in enumerate(names)}
        | {
            "teacher": (("order", "index"), np.array(teachers)),
            "student": (("order", "coupling", "index"), np.array(students).reshape(*grid, -1)),
        },
        coords={"order": list(spec.orders), "coupling": list(spec.couplings), "index": np.arange(spec.horizon)},
        attrs={"loss": "half the sum of squared residuals", "student form": "symmetric, balanced"},
    )


def plot_sharpness(dataset: "xarray.Dataset", spec: Sharpness) -> "Figure":
    """Responses for each order, and the gaps over the coupling."""
    from matplotlib.figure import Figure

    count = len(spec.orders) + 1
    columns = min(count, 2)
    rows = -(-count // columns)
    figure = Figure(figsize=(1.15 * PANEL[0] * columns, 1.15 * PANEL[1] * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for spare in axes[count:]:
        spare.remove()
    for axis, n in zip(axes, spec.orders, strict=False):
        part = dataset.sel(order=n)
        responses = {"teacher": part["teacher"].to_numpy()} | {
            rf"$\beta = {c:g}$": part["student"].sel(coupling=c).to_numpy() for c in spec.couplings
        }
        plot_responses(responses, lengths=2 * n, ax=axis, legend=n == spec.orders[-1])
        axis.set_title(f"$n = {n}$, trained on $k = 2n = {2 * n}$ entries without loss")
    last = axes[count - 1]
    for place, n in enumerate(spec.orders):
        part = dataset.sel(order=n)
        last.loglog(spec.couplings, part["gap"], "o", color=COLOURS[place], label=f"$n = {n}$")
        last.loglog(spec.couplings, part["predicted_gap"], "-", color=COLOURS[place], linewidth=1.0)
    last.set(
        xlabel=r"coupling $\beta$",
        ylabel="gap $h_{2n} - w_{2n}$",
        title=r"dots: measured; lines: $M\beta^2\beta_1^2\cdots\beta_{n-1}^2$",
    )
    last.set_xticks(spec.couplings, [f"{c:g}" for c in spec.couplings])
    last.minorticks_off()
    last.legend()
    return figure


def claims_sharpness(dataset: "xarray.Dataset", spec: Sharpness) -> list[Claim]:
    """Agreement on 2n entries, the gap at the next, and the theorems on either side."""
    gap, predicted = dataset["gap"].to_numpy(), dataset["predicted_gap"].to_numpy()
    long = dataset["loss_long"].to_numpy()
    certified, error = dataset["certified_long"].to_numpy(), dataset["error_long"].to_numpy()
    return [
        Claim.at_most("Teacher and student agree on the first 2n entries", dataset["agreement"].max(), AGREEMENT),
        Claim.at_most(
            "The gap at 2n is M β² Π β_i²: largest difference", float(np.abs(gap - predicted).max()), FORMULA
        ),
        Claim.at_least("The gap is positive for every coupling", float(gap.min()), float(np.finfo(float).tiny)),
        Claim.at_most("At k = 2n there is no loss", dataset["loss_short"].max(), AGREEMENT**2),
        Claim.at_most("At k = 2n no theorem applies: students of which one does", dataset["theorem_short"].sum(), 0),
        Claim.at_most(
            "At k = 2n + 1 the loss is half the squared gap: largest relative difference",
            float(np.abs(long / (0.5 * predicted**2) - 1).max()),
            1e-9,
        ),
        Claim.at_most(
            "At k = 2n + 1 the tail error is within the certified one: largest ratio",
            float(np.max(error / certified)),
            1.0,
            "From 2n + 1 entries on, errors of balanced students are linear in the root of the loss.",
        ),
    ]


# --- Any length, without balance --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Adversarial:
    """Unbalanced diagonal students with the first k entries of a teacher and a gap at the next.

    Teachers are a delay, balanced ones and random delays, `seeds` of each that is drawn.
    """

    lengths: tuple[int, ...] = (3, 5, 8, 11, 15, 20)
    shown: int = 11
    gap: float = 1.0
    states: int = 50
    delay: int = 10
    order: int = 5
    horizon: int = 60
    seeds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for length in self.lengths:
            check_count("Adversarial", "lengths", length, at_least=1, at_most=self.states - 1)
            check_count("Adversarial", "horizon", self.horizon, at_least=length + 1)
        if self.shown not in self.lengths:
            raise ValueError(f"Adversarial: shown must be one of the lengths {self.lengths}, but is {self.shown}.")
        check_number("Adversarial", "gap", self.gap, above=0)
        for name in ("delay", "order", "seeds"):
            check_count("Adversarial", name, getattr(self, name), at_least=1)

    def teachers(self) -> dict[str, System]:
        """By name; what is drawn depends on the seed and on the name only."""
        found = {"delay": delay_teacher(self.delay)}
        for draw in range(self.seeds):
            rngs = [np.random.default_rng([self.seed, draw, kind]) for kind in (0, 1)]
            found[f"balanced {draw}"] = balanced_teacher(self.order, rngs[0])
            found[f"unbalanced {draw}"] = unbalanced_teacher(self.order, rngs[1])
        return found


def run_adversarial(spec: Adversarial, context: Context) -> "xarray.Dataset":
    """Losses, gaps, tail errors and the share of negative weights, for each teacher and length."""
    import xarray

    teachers, responses, students, rows = spec.teachers(), [], [], []
    for done, teacher in enumerate(teachers.values()):
        w = np.asarray(impulse_response(teacher, spec.horizon).values)
        responses.append(w)
        for length in spec.lengths:
            student = non_extrapolating_student(w[: length + 1], spec.gap, states=spec.states)
            response = impulse_response(student, spec.horizon, path="diagonal")
            seen = extrapolation(response, w, length, horizon=spec.horizon)
            h = np.asarray(response.values)
            weights = np.asarray(spectral_measure(student, signed=True).weights)
            negative = float(-weights[weights < 0].sum() / np.abs(weights).sum())
            rows.append(
                [seen.training_loss, abs(h[length] - w[length] - spec.gap), seen.error, seen.reference, negative]
            )
            if length == spec.shown:
                students.append(h)
        context.progress((done + 1) / len(teachers), f"{done + 1} of {len(teachers)} teachers")
    names = ("loss", "gap_error", "error", "reference", "negative_share")
    table = np.array(rows).reshape(len(teachers), len(spec.lengths), len(names))
    return xarray.Dataset(
        {name: (("teacher", "length"), table[..., i]) for i, name in enumerate(names)}
        | {
            "response": (("teacher", "index"), np.array(responses)),
            "student": (("teacher", "index"), np.array(students), {"long_name": f"student of {spec.shown} entries"}),
        },
        coords={"teacher": list(teachers), "length": list(spec.lengths), "index": np.arange(spec.horizon)},
        attrs={"loss": "half the sum of squared residuals", "student form": "diagonal, unbalanced"},
    )


def plot_adversarial(dataset: "xarray.Dataset", spec: Adversarial) -> "Figure":
    """Responses of a delay and of a balanced teacher with their students; losses and gaps over the length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.3 * PANEL[0], 2.4 * PANEL[1]), layout="constrained")
    delay, balanced, losses, errors = np.ravel(figure.subplots(2, 2))
    end = min(spec.horizon, 3 * spec.shown)
    for axis, name in ((delay, "delay"), (balanced, "balanced 0")):
        part = dataset.sel(teacher=name).isel(index=slice(None, end))
        plot_responses(
            {"teacher": part["response"].to_numpy(), "student": part["student"].to_numpy()},
            lengths=spec.shown,
            ax=axis,
        )
        axis.set_title(f"{name.split()[0]} teacher, $k = {spec.shown}$")
    kinds = ("delay", "balanced", "unbalanced")
    for place, kind in enumerate(kinds):
        chosen = [name for name in dataset["teacher"].to_numpy() if str(name).split()[0] == kind]
        part = dataset.sel(teacher=chosen)
        for axis, field, least in ((losses, "loss", 1e-33), (errors, "gap_error", 1e-17)):
            values = np.maximum(part[field].to_numpy(), least)
            axis.semilogy(spec.lengths, np.median(values, axis=0), "o-", color=COLOURS[place], label=kind)
            axis.fill_between(spec.lengths, values.min(axis=0), values.max(axis=0), color=COLOURS[place], alpha=0.2)
    losses.set(xlabel="length $k$", ylabel="training loss", title="half the sum of squared residuals")
    errors.set(xlabel="length $k$", ylabel="difference", title=f"$|h_k - w_k - {spec.gap:g}|$: the gap is there")
    for axis in (losses, errors):
        axis.set_xticks(spec.lengths)
    losses.legend(title=f"median and range of {spec.seeds}")
    return figure


def claims_adversarial(dataset: "xarray.Dataset", spec: Adversarial) -> list[Claim]:
    """No loss, the gap, and no balance."""
    twice = 2 * dataset["loss"]
    near = [k for k in spec.lengths if k <= 20]
    claims = [
        Claim.at_most("Sum of squared residuals up to 20 entries", twice.sel(length=near).max(), 1e-18),
        Claim.at_most("The gap at k up to 20 is as asked: error", dataset["gap_error"].sel(length=near).max(), 1e-9),
        Claim.at_least(
            "The tail error is at least the gap: least of it over the gap",
            float(dataset["error"].min()) / spec.gap,
            1 - 1e-9,
        ),
        Claim.at_least("No student is balanced: least share of negative weight", dataset["negative_share"].min(), 1e-3),
    ]
    for length, bound in ((25, 1e-16), (30, 1e-12), (40, 1e-6)):
        if length in spec.lengths:
            claims.append(
                Claim.at_most(
                    f"Sum of squared residuals at {length} entries, limited by double precision",
                    twice.sel(length=length).max(),
                    bound,
                    "The weights grow like 2 to the number of entries.",
                )
            )
    return claims


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        id="rnn/sharpness",
        source="Theorem 5, sharpness",
        shows="At k = 2n entries a balanced student without loss need not extrapolate; at 2n + 1 it must.",
        presets={"quick": Sharpness(), "paper": Sharpness(couplings=(0.01, 0.02, 0.05, 0.1, 0.2, 0.4), horizon=50)},
        run=run_sharpness,
        plot=plot_sharpness,
        claims=claims_sharpness,
        notes="Not a figure of the paper: its bound k > 2 d̂ cannot be relaxed to k >= 2 d̂. The construction adds one "
        "state to the Jacobi matrix of the teacher's measure; d̂ may be read as the number n of active eigenvalues.",
    ),
    Experiment(
        id="rnn/adversarial",
        source="Proposition 3",
        shows="Without balance, students of any teacher fit any number of entries below their size and miss the next.",
        presets={
            "quick": Adversarial(lengths=(3, 8, 11, 20), horizon=40),
            "paper": Adversarial(lengths=(3, 5, 8, 11, 15, 20, 25, 30, 40)),
        },
        run=run_adversarial,
        plot=plot_adversarial,
        claims=claims_adversarial,
        notes="The proposition as a construction, at Chebyshev nodes; losses are half sums of squares, and twice that "
        "in the claims.",
    ),
)
