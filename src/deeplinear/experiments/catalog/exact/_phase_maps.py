"""Kernel distance and loss over relative and absolute scale, for square networks, anti-funnels and funnels."""

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from deeplinear.core import check_count, check_number
from deeplinear.exact import phase_map
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import draw_task
from deeplinear.plots import PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

LEAST = 1e-16
"""Where logarithms are cut off."""

RECORDED = 0.05
"""Relative, of values given to one or two digits."""

PROBED_LAMS = (-9.0, -3.0, 0.0, 3.0, 9.0)
PROBED_SCALES = (0.1, 0.4, 1.0, 20.0)
"""Cells whose values are claimed; they need not lie on the grid."""


@dataclasses.dataclass(frozen=True)
class PhaseMaps:
    """Widths, steps at which maps are drawn, and the grid; the last number of steps stands for convergence."""

    widths: tuple[int, int, int]
    steps: tuple[int, ...]
    eta: float = 0.01
    largest_lam: float = 9.0
    lams: int = 51
    largest_scale: float = 20.0
    scales: int = 50
    samples: int = 10
    sigma: float = math.sqrt(3)
    per_cell: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        inp, hidden, out = self.widths
        check_count("PhaseMaps", "widths[1]", hidden, at_least=min(inp, out), at_most=min(inp, out))
        check_number("PhaseMaps", "eta", self.eta, above=0)
        check_number("PhaseMaps", "largest_lam", self.largest_lam, above=0)
        check_number("PhaseMaps", "largest_scale", self.largest_scale, above=0)
        check_count("PhaseMaps", "lams", self.lams, at_least=3)
        check_count("PhaseMaps", "scales", self.scales, at_least=2)
        for steps in self.steps:
            check_count("PhaseMaps", "steps", steps, at_least=1)

    @property
    def kind(self) -> str:
        """What such a network is called."""
        inp, _, out = self.widths
        return "square" if inp == out else "funnel" if inp > out else "anti-funnel"


def run_phase_maps(spec: PhaseMaps, context: Context) -> "xarray.Dataset":
    """Both quantities on the grid, at the cells that are probed, and for the transposed problem there."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    inp, _, out = spec.widths
    target = draw_task(rng, inp, out, spec.samples, spec.sigma).target
    directions = rng.normal(size=(out, inp))
    lams = np.linspace(-spec.largest_lam, spec.largest_lam, spec.lams)
    scales = np.linspace(0.0, spec.largest_scale, spec.scales + 1)[1:]
    times = spec.eta * np.asarray(spec.steps)
    cells = rng.normal(size=(spec.scales, spec.lams, out, inp)) if spec.per_cell else directions
    found = phase_map(target, cells, lams, scales, times)
    context.progress(0.6, "grid")
    probed = phase_map(target, directions, PROBED_LAMS, PROBED_SCALES, times)
    mirror = phase_map(target.T, directions.T, [-lam for lam in PROBED_LAMS], PROBED_SCALES, times)
    grid, few = ("step", "scale", "lam"), ("step", "probed_scale", "probed_lam")
    return xarray.Dataset(
        {
            "kernel_distance": (grid, np.asarray(found.kernel_distance), {"long_name": "kernel distance"}),
            "loss": (grid, np.asarray(found.loss), {"long_name": "reduced loss"}),
            "probed_distance": (few, np.asarray(probed.kernel_distance)),
            "probed_loss": (few, np.asarray(probed.loss)),
            "mirrored_distance": (few, np.asarray(mirror.kernel_distance)),
            "mirrored_loss": (few, np.asarray(mirror.loss)),
            "strengths": ("mode", np.linalg.svd(target, compute_uv=False)),
        },
        coords={
            "step": list(spec.steps),
            "scale": scales,
            "lam": lams,
            "probed_scale": list(PROBED_SCALES),
            "probed_lam": list(PROBED_LAMS),
        },
    )


def plot_phase_maps(dataset: "xarray.Dataset", spec: PhaseMaps) -> "Figure":
    """One row for each time, kernel distance on the left and loss on the right, both as logarithms."""
    from matplotlib.figure import Figure

    rows = len(spec.steps)
    figure = Figure(figsize=(2.0 * PANEL[0], 0.85 * PANEL[1] * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False)
    for row, step in enumerate(spec.steps):
        for axis, name, colours in zip(axes[row], ("kernel_distance", "loss"), ("viridis", "cividis"), strict=True):
            part = dataset[name].sel(step=step)
            shown = np.log10(np.maximum(part, LEAST))
            low, high = float(shown.min()), max(float(shown.max()), float(shown.min()) + 1)  # converged: all the same
            mesh = axis.pcolormesh(
                dataset["lam"], dataset["scale"], shown, cmap=colours, shading="nearest", vmin=low, vmax=high
            )
            mesh.set_rasterized(True)
            axis.grid(False)
            figure.colorbar(mesh, ax=axis, label=rf"$\log_{{10}}$ {part.attrs['long_name']}")
            axis.set_title(rf"step {step:,}: $t = {spec.eta * step:g}$")
    for axis in axes[-1]:
        axis.set_xlabel(r"relative scale $\lambda$")
    for axis in axes[:, 0]:
        axis.set_ylabel("absolute scale")
    return figure


def claims_phase_maps(dataset: "xarray.Dataset", spec: PhaseMaps) -> list[Claim]:
    """What the phase maps are said to show."""
    first, last = spec.steps[0], spec.steps[-1]
    distance, loss = dataset["probed_distance"], dataset["probed_loss"]
    settled = distance.sel(step=last, probed_lam=0.0)
    error = max(
        float(abs(dataset[f"mirrored_{name}"] - dataset[f"probed_{name}"]).max()) for name in ("distance", "loss")
    ) / float(loss.max())
    claims = [
        Claim.at_most(
            "At λ = 0 the kernel distance at convergence does not depend on the absolute scale: its spread",
            float(settled.max() - settled.min()),
            1e-9,
        ),
        Claim.at_most(
            "The transposed task with the sign of λ turned round has the same map: largest difference",
            error,
            1e-10,
            "This makes funnel and anti-funnel mirror images of each other.",
        ),
    ]
    if not spec.per_cell:
        wide = dataset["loss"].sel(step=first, scale=slice(2.0, None))
        claims.append(
            Claim.at_least(
                "At the start the loss grows with the absolute scale: smallest difference between neighbours above 2",
                float(wide.diff("scale").min()) if wide.sizes["scale"] > 1 else float("nan"),
                0.0,
            )
        )
    claims += _square(dataset, spec) if spec.kind == "square" else _rectangular(dataset, spec)
    if spec.seed == 0 and spec.samples == 10 and spec.sigma == math.sqrt(3) and spec.eta == 0.01:
        claims += _recorded(dataset, spec)
    return claims


def _square(dataset: "xarray.Dataset", spec: PhaseMaps) -> list[Claim]:
    distance, loss = dataset["probed_distance"].isel(step=-1), dataset["probed_loss"]
    uneven = float(abs(loss.to_numpy() - loss.to_numpy()[:, :, ::-1]).max()) / float(loss.max())
    least, most = distance.sel(probed_lam=-9.0, probed_scale=[0.1, 20.0]).to_numpy()
    claims = [
        Claim.at_most("The loss does not depend on the sign of λ: largest difference", uneven, 1e-10),
        Claim.at_least(
            "Away from λ = 0 the absolute scale matters at convergence: distance at λ = -9, scale 20, over scale 0.1",
            most / least,
            10.0,
            "The text says that it depends on λ alone.",
        ),
    ]
    if not spec.per_cell and 20 in spec.steps:
        right = dataset["loss"].sel(step=20).where(dataset["lam"] >= 0, drop=True)
        claims.append(
            Claim.at_most("The loss falls with |λ|: largest difference of neighbours", right.diff("lam").max(), 0.0)
        )
    return claims


def _rectangular(dataset: "xarray.Dataset", spec: PhaseMaps) -> list[Claim]:
    """The lazy side is that of negative λ for an anti-funnel, of positive λ for a funnel."""
    lazy = -3.0 if spec.kind == "anti-funnel" else 3.0
    loss = dataset["probed_loss"].isel(step=1).sel(probed_scale=0.4)
    distance = dataset["probed_distance"].isel(step=-1).sel(probed_scale=0.4)
    fast, slow = float(loss.sel(probed_lam=lazy)), float(loss.sel(probed_lam=-lazy))
    still, moved = float(distance.sel(probed_lam=lazy)), float(distance.sel(probed_lam=-lazy))
    return [
        Claim.at_most(
            f"λ = {lazy:g} converges before λ = {-lazy:g}: ratio of losses after {spec.steps[1]} steps",
            fast / slow,
            1e-6,
        ),
        Claim.at_most(
            f"λ = {lazy:g} stays lazy while λ = {-lazy:g} ends rich: ratio of the final kernel distances",
            still / moved,
            0.01,
        ),
    ]


def _recorded(dataset: "xarray.Dataset", spec: PhaseMaps) -> list[Claim]:
    """Values recorded for seed 0."""
    distance, loss = dataset["probed_distance"], dataset["probed_loss"]

    def near(text: str, variable: "xarray.DataArray", step: int, scale: float, lam: float, value: float) -> Claim:
        measured = float(variable.sel(step=step, probed_scale=scale, probed_lam=lam))
        where = f"{text} at step {step}, scale {scale:g}, λ = {lam:g}"
        return Claim.between(where, measured, value * (1 - RECORDED), value * (1 + RECORDED))

    known = set(spec.steps)
    claims = []
    if spec.kind == "square" and {20, 100, 10000} <= known:
        claims += [
            near("Loss", loss, 20, 1.0, 0.0, 0.47),
            near("Loss", loss, 20, 1.0, 9.0, 0.02),
            near("Loss, not converged,", loss, 100, 0.1, 0.0, 0.2),
            near("Kernel distance", distance, 10000, 0.1, 0.0, 0.12),
            near("Kernel distance", distance, 10000, 20.0, 0.0, 0.12),
            near("Kernel distance", distance, 10000, 0.1, -9.0, 1.1e-5),
            near("Kernel distance", distance, 10000, 20.0, -9.0, 4.2e-3),
        ]
    if spec.kind == "anti-funnel" and {400, 400000} <= known:
        tiny = float(loss.sel(step=400, probed_scale=0.1, probed_lam=-3.0))
        claims += [
            Claim.between("Loss at step 400, scale 0.1, λ = -3", tiny, 0.5e-12, 2e-12, "Recorded as 1e-12."),
            near("Loss", loss, 400, 0.4, 3.0, 2.5e-2),
            near("Kernel distance", distance, 400000, 0.4, 3.0, 0.33),
            near("Kernel distance", distance, 400000, 0.4, 0.0, 0.13),
            near("Kernel distance", distance, 400000, 0.4, -3.0, 5e-4),
        ]
    return claims


def _experiment(number: int, widths: tuple[int, int, int], steps: tuple[int, ...], shows: str) -> Experiment[PhaseMaps]:
    return Experiment(
        id=f"exact/fig{number}",
        source=f"Figure {number}",
        shows=shows,
        presets={"quick": PhaseMaps(widths, steps, lams=21, scales=20), "paper": PhaseMaps(widths, steps)},
        run=run_phase_maps,
        plot=plot_phase_maps,
        claims=claims_phase_maps,
        notes="By the closed form. The task, the learning rate behind the steps and the starts are not given in the "
        "paper: a random regression task with ten samples and σ = √3, η = 0.01, and one fixed pair of singular bases "
        "and ratio of singular values for a whole map; `per_cell` draws new ones for each cell, as the paper seems to "
        "do. In the square network the sign of the determinant is that of the task. A last row shows convergence.",
    )


EXPERIMENTS = (
    _experiment(
        8,
        (2, 2, 2),
        (1, 20, 100, 10_000),
        "In a square network the loss falls faster for large |λ|, and the kernel moves most at λ = 0.",
    ),
    _experiment(
        9,
        (2, 2, 4),
        (1, 400, 4_000, 400_000),
        "In an anti-funnel negative λ is lazy and fast, positive λ lazy first and rich late.",
    ),
    _experiment(
        10,
        (4, 2, 2),
        (1, 400, 4_000, 400_000),
        "In a funnel positive λ is lazy and fast, negative λ lazy first and rich late: the mirror image.",
    ),
)
"""Phase maps."""
