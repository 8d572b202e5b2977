"""How gradient flow of balanced students ends: losses that fall like 1/t², tails that fall with their roots.

The paper's clock is that of the sum of squares and runs twice as fast as the library's; times and losses here are the
paper's.
"""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from deeplinear.core import Trajectory, check_count, check_number
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.models import LinearRNN, Problem, SquaredDistance, System
from deeplinear.plots import COLOURS, PANEL
from deeplinear.probes import loss, weights
from deeplinear.recurrent import balance_gap, certificate, impulse_response, polish

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

CLOCK = 2.0
"""Our time over the paper's; the paper's loss over ours."""

TEACHERS = {1: ((0.7,), (1.0,)), 2: ((0.9, -0.5), (0.6, 0.4))}
"""Eigenvalues and weights of the teachers, by the size of their state."""

LATE = 8
"""Powers of ten of the time from which on the law of the loss is claimed."""

CASES = ((1, 3, 6), (2, 5, 8))
"""Teacher's states, length of the sequences, student's states."""


@dataclasses.dataclass(frozen=True)
class Convergence:
    """Balanced students of several seeds; modes over a long time, matrices over a shorter one.

    Attributes:
        cases: Teacher's states (1 or 2), length of the sequences, student's states, of students made of modes.
        forms: Forms of students with a transition matrix, `"symmetric"` or `"upper"`.
        decades: Powers of ten of the time of the former.
        matrix_decades: Of the latter.
        per_decade: Recorded times per power of ten.
        states: States of the students with a transition matrix.
        scale: Standard deviation of the entries of $B$; those of a transition matrix have half of it.
        mode_scale: Standard deviation of the modes.
        seeds: Number of starts.
        horizon: Length of the responses that are compared.
        rtol: Tolerance of the flow.
        seed: Seed of the starts.
    """

    cases: tuple[tuple[int, int, int], ...] = CASES
    forms: tuple[str, ...] = ("symmetric", "upper")
    decades: int = 8
    matrix_decades: int = 3
    per_decade: int = 4
    states: int = 7
    scale: float = 0.4
    mode_scale: float = 0.05
    seeds: int = 3
    horizon: int = 40
    rtol: float = 1e-11
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("decades", "matrix_decades", "per_decade", "seeds"):
            check_count("Convergence", name, getattr(self, name), at_least=1)
        for order, length, states in self.cases:
            check_count("Convergence", "the first of each of cases", order, at_least=1, at_most=len(TEACHERS))
            check_count("Convergence", "the second of each of cases", length, at_least=2 * order + 1)
            check_count("Convergence", "the third of each of cases", states, at_least=length + 1)
        for form in self.forms:
            if form not in ("symmetric", "upper"):
                raise ValueError(f"Convergence: each of forms must be 'symmetric' or 'upper', but one is {form!r}.")
        check_count("Convergence", "states", self.states, at_least=6)
        check_count("Convergence", "horizon", self.horizon, at_least=6)
        for name in ("scale", "mode_scale"):
            check_number("Convergence", name, getattr(self, name), above=0, at_most=1)
        check_number("Convergence", "rtol", self.rtol, at_least=1e-14, at_most=1e-10)

    @property
    def runs(self) -> tuple[tuple[str, int, int, int, int], ...]:
        """Form, teacher's states, length, student's states, decades of time."""
        modes = tuple(("tied", *case, self.decades) for case in self.cases)
        return (*modes, *((form, 2, 5, self.states, self.matrix_decades) for form in self.forms))

    def start(self, form: str, states: int, seed: int) -> System:
        """A balanced system of a size at which the flow neither rests nor explodes."""
        rng = np.random.default_rng([self.seed, seed, states, len(form)])
        column = rng.normal(0.0, self.scale, (states, 1))
        if form == "tied":
            transition = np.diag(rng.normal(0.0, self.mode_scale, states))
        else:
            square = rng.normal(0.0, self.scale / 2, (states, states))
            transition = (square + square.T) / 2
        return System(
            jnp.asarray(transition, dtype=float), jnp.asarray(column, dtype=float), jnp.asarray(column.T, dtype=float)
        )


def teacher(order: int, count: int) -> np.ndarray:
    """First entries of the response of a teacher."""
    atoms, weights = (np.array(part) for part in TEACHERS[order])
    return atoms ** np.arange(count)[:, None] @ weights


def _label(form: str, order: int, length: int, states: int) -> str:
    return f"{form}, d̂ = {order}, k = {length}, d = {states}"


def _tail(system: System, order: int, length: int, horizon: int) -> float:
    """Largest error beyond the learned entries; infinite if the student overflows."""
    found = impulse_response(system, horizon)
    if found.diverged_at is not None:
        return float("inf")
    return float(np.max(np.abs(np.asarray(found.values) - teacher(order, horizon))[length:]))


def run_convergence(spec: Convergence, context: Context) -> "xarray.Dataset":
    """Loss, tail and distance from balance along every run, and the tail of its limit."""
    import xarray

    points = max(spec.decades, spec.matrix_decades) * spec.per_decade + 1
    shape = (len(spec.runs), spec.seeds)
    fields = {name: np.full((*shape, points), np.nan) for name in ("loss", "tail", "gap")}
    time = np.full((len(spec.runs), points), np.nan)
    ends = {name: np.full(shape, np.nan) for name in ("limit_loss", "limit_tail", "limit_steps")}

    def flow(index: int) -> list[Trajectory]:
        form, order, length, states, decades = spec.runs[index]
        chosen: Any = form
        model = LinearRNN(states, length, form=chosen)
        problem = Problem(model, SquaredDistance(teacher(order, length)[None]))
        times = CLOCK * np.logspace(0, decades, decades * spec.per_decade + 1)
        found = []
        for seed in range(spec.seeds):
            run = simulate(
                problem,
                model.params(spec.start(form, states, seed)),
                GradientFlow(spec.rtol),
                times=times,
                probes=(loss, weights),
                progress=context.watch,
            )
            found.append(context.complete(run))
        return found

    numbers = list(range(len(spec.runs)))
    runs = context.each(flow, numbers, lambda index: _label(*spec.runs[index][:4]))
    for index, members in enumerate(runs):
        form, order, length, states, _ = spec.runs[index]
        chosen: Any = form
        model = LinearRNN(states, length, form=chosen)
        cuts = np.cumsum([rows * columns for rows, columns in model.shapes])[:-1]
        for seed, run in enumerate(members):
            kept = np.asarray(run.times) > 0
            values = np.asarray(run["weights"])[kept]
            count = len(values)
            time[index, :count] = np.asarray(run.times)[kept] / CLOCK
            fields["loss"][index, seed, :count] = CLOCK * np.asarray(run["loss"])[kept]
            for position, value in enumerate(values):
                parts = [p.reshape(s) for p, s in zip(np.split(value, cuts), model.shapes, strict=True)]
                system = model.system(tuple(jnp.asarray(part, dtype=float) for part in parts))
                fields["tail"][index, seed, position] = _tail(system, order, length, spec.horizon)
                fields["gap"][index, seed, position] = float(balance_gap(system))
            if form == "tied":
                limit = polish(
                    teacher(order, length), model.system(tuple(jnp.asarray(part, dtype=float) for part in run.params))
                )
                ends["limit_loss"][index, seed] = CLOCK * limit.loss
                ends["limit_tail"][index, seed] = _tail(limit.system, order, length, spec.horizon)
                ends["limit_steps"][index, seed] = limit.iterations
    words = {"loss": "L, the sum of squares", "tail": "largest error beyond k", "gap": "largest |B − Cᵀ|"}
    return xarray.Dataset(
        {name: (("run", "member", "point"), v, {"long_name": words[name]}) for name, v in fields.items()}
        | {name: (("run", "member"), v) for name, v in ends.items()}
        | {"time": (("run", "point"), time, {"long_name": "time of the paper's clock"})},
        coords={"run": [_label(*run[:4]) for run in spec.runs]},
        attrs={"optimiser": "gradient flow", "scale": spec.scale, "horizon": spec.horizon},
    )


def plot_convergence(dataset: "xarray.Dataset", spec: Convergence) -> "Figure":
    """Losses and tails over time, with the slopes −2 and −1; median of the seeds and their range."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2 * PANEL[0], 1.5 * PANEL[1]), layout="constrained")
    axes: Any = figure.subplots(1, 2)
    for axis, name, power in ((axes[0], "loss", -2), (axes[1], "tail", -1)):
        for row, label in enumerate(dataset["run"].to_numpy()):
            one = dataset.isel(run=row)
            seen = np.isfinite(one["time"].to_numpy())
            times, values = one["time"].to_numpy()[seen], one[name].to_numpy()[:, seen]
            colour = COLOURS[row]
            axis.loglog(times, np.median(values, axis=0), color=colour, label=label if name == "loss" else None)
            axis.fill_between(times, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2, linewidth=0)
        times = np.array([10.0, 10.0**spec.decades])
        anchor = 10.0 * float(np.median(dataset[name][0, :, spec.per_decade]))  # above the first run, at t = 10
        axis.loglog(
            times,
            anchor * (times / times[0]) ** power,
            color="black",
            linestyle="--",
            linewidth=0.9,
            label="slope −2 (losses), −1 (tails)" if name == "loss" else None,
        )
        axis.set(xlabel="time $t$ (clock of the sum of squares)")
    axes[0].set(ylabel=r"loss $L = \sum_{j<k}(h_j - w_j)^2$")
    axes[1].set(ylabel=f"tail error, $k ≤ j < {spec.horizon}$")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def claims_convergence(dataset: "xarray.Dataset", spec: Convergence) -> list[Claim]:
    """1/t² losses, tails within the certificate, balance, and limits that extrapolate."""
    claims = []
    for row, (form, order, length, states, decades) in enumerate(spec.runs):
        one, label = dataset.isel(run=row), _label(form, order, length, states)
        last = decades * spec.per_decade
        losses, tails = one["loss"].to_numpy()[:, : last + 1], one["tail"].to_numpy()[:, : last + 1]
        slope = np.log10(losses[:, last] / losses[:, last - spec.per_decade])
        atoms = np.array(TEACHERS[order][0])
        if form == "tied":
            law = f"L falls like t⁻²: median slope over the last decade; {label}"
            late = "modes that crowd around one of the teacher's slow it down until later times"
            claims.append(
                Claim.between(law, np.median(slope), -2.1, -1.9)
                if decades >= LATE
                else Claim.untold(law, "between -2.1 and -1.9", f"{np.median(slope):.2f} so far; {late}")
            )
            constant = losses[:, last] * 10.0 ** (2 * decades)
            claims.append(
                Claim.between(
                    f"L t² at the end, median; {label}",
                    np.median(constant),
                    0.1,
                    100.0,
                    note=f"seeds: {', '.join(f'{value:.3g}' for value in constant)}; 6.5 and 6.3 were recorded for "
                    "other starts",
                )
            )
            if decades >= LATE:
                claims.append(
                    Claim.at_most(f"Tail at t = 1e{decades}, median; {label}", np.median(tails[:, last]), 1e-6)
                )
            claims.append(
                Claim.at_most(
                    f"Tail of the limit, reached by the polish, median; {label}",
                    np.median(one["limit_tail"]),
                    1e-9,
                    note=f"losses {', '.join(f'{value:.1e}' for value in one['limit_loss'].to_numpy())}",
                )
            )
        elif decades >= 3:
            claims.append(Claim.at_most(f"Tail at t = 1e{decades}, median; {label}", np.median(tails[:, last]), 2e-3))
        constants = np.asarray(certificate(atoms, length, spec.horizon, radius=1.0).constants)[length:].max()
        start = spec.per_decade  # from t = 10 on the eigenvalues of the student are within 1
        claims += [
            Claim.at_most(
                f"Tail over the certified K√L, from t = 10 on, at worst; {label}",
                np.nanmax(tails[:, start:] / (constants * np.sqrt(losses[:, start:]) + 1e-13)),
                1.0,
            ),
            Claim.at_most(f"Largest |B − Cᵀ| on the way; {label}", np.nanmax(one["gap"]), 1e-12),
            Claim.at_most(f"L never grows: largest ratio; {label}", np.nanmax(losses[:, 1:] / losses[:, :-1]), 1.0),
        ]
    return claims


NOTES = (
    "The paper proves that a limit of zero loss extrapolates; how fast it is reached is not said. A spare mode is "
    "driven out only by the residual it causes, so that its weight falls like 1/t and the loss like 1/t². Teachers, "
    "starts and seeds are ours; times and losses are those of the sum of squares. The diagonal student is run tied: "
    "with B and C apart, rounding ends modes that vanish with b = −c. Its modes start near zero: where they are far, "
    "some crowd around a mode of the teacher, and the law of the loss is reached later (spread evenly over "
    "(−0.8, 0.8): slopes of −1.9 and −1.6 at t = 1e8)."
)

EXPERIMENTS = (
    Experiment(
        id="rnn/convergence",
        source="Theorem 5, Section 4.1",
        shows="Balanced students: losses fall like 1/t², tails with their roots, and limits extrapolate.",
        presets={
            "quick": Convergence(forms=("symmetric",), decades=5, matrix_decades=2, per_decade=2),
            "paper": Convergence(),
        },
        run=run_convergence,
        plot=plot_convergence,
        claims=claims_convergence,
        notes=NOTES,
    ),
)
