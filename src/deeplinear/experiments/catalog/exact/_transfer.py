"""What a network that has learned a task makes of a new feature."""

import dataclasses
import math
from typing import TYPE_CHECKING

import jax
import numpy as np

from deeplinear.core import check_count, check_number, random
from deeplinear.exact import (
    generalisation_loss,
    new_feature_response,
    transfer_kernel,
    transfer_target,
)
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.exact._tasks import ITEMS
from deeplinear.models import DeepLinear, TaskAligned, semantic_hierarchy
from deeplinear.plots import COLOURS, PANEL

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

OTHER_TARGETS = {"overlap": None, "half": (1.0, 0.5), "clade": (1.0, 1.0), "steep": (0.8, 0.4)}
"""What the other fish and the birds are expected to share of a feature of the goldfish; `None`: as the task says."""


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A new feature of one item, taught to networks trained on the semantic task."""

    largest_lam: float = 10.0
    lams: int = 41
    perturbed: bool = False
    std: float = 1e-6
    seed: int = 0

    def __post_init__(self) -> None:
        check_number("Transfer", "largest_lam", self.largest_lam, above=0)
        check_count("Transfer", "lams", self.lams, at_least=3)
        check_number("Transfer", "std", self.std, above=0)


def run_transfer(spec: Transfer, context: Context) -> "xarray.Dataset":
    """Responses of a row trained by gradient descent, the formula for them, and generalisation losses."""
    import xarray

    rng = np.random.default_rng(spec.seed)
    x, y = semantic_hierarchy(perturbed=spec.perturbed)
    target = np.asarray(y @ x.T) / 8
    values = np.linalg.svd(target, compute_uv=False)
    lams = np.linspace(-spec.largest_lam, spec.largest_lam, spec.lams)
    answer = jax.jit(jax.vmap(lambda lam: new_feature_response(transfer_kernel(target, lam), 0)))
    answers = np.asarray(answer(np.array([*lams, -math.inf, math.inf])))
    model, key = DeepLinear((8, 8, 8)), random.key(0)
    layers = jax.jit(jax.vmap(lambda lam: TaskAligned(target, values, lam)(model, key)[0]))(
        np.asarray(lams, dtype=float)
    )
    trained = []
    for first in np.asarray(layers):
        row, seen = spec.std * rng.normal(size=8), first[:, 0]
        for _ in range(200):
            row = row + 0.2 / (seen @ seen) * (1 - row @ seen) * seen
        trained.append(row @ first)
    expected = {
        name: transfer_target(target, 0) if pair is None else np.array([1.0, pair[0], pair[1], pair[1], 0, 0, 0, 0])
        for name, pair in OTHER_TARGETS.items()
    }
    score = jax.jit(jax.vmap(lambda response, wanted: generalisation_loss(response, wanted, 0), in_axes=(0, None)))
    losses = [score(answers[:-2], np.asarray(wanted)) for wanted in expected.values()]
    simulated = score(np.asarray(trained), np.asarray(expected["overlap"]))
    return xarray.Dataset(
        {
            "response": (("lam", "item"), answers[:-2]),
            "trained": (("lam", "item"), np.stack(trained)),
            "limits": (("end", "item"), answers[-2:]),
            "loss": (("expected", "lam"), np.asarray(losses)),
            "trained_loss": ("lam", np.asarray(simulated)),
            "expectation": (("expected", "item"), np.stack(list(expected.values()))),
        },
        coords={"lam": lams, "item": list(ITEMS), "expected": list(expected), "end": ["minus", "plus"]},
    )


def plot_transfer(dataset: "xarray.Dataset", spec: Transfer) -> "Figure":
    """Generalisation loss on the left, responses of all items on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.2 * PANEL[0], 1.3 * PANEL[1]), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(dataset["lam"], dataset["trained_loss"], color=COLOURS[0], label="trained row")
    left.plot(dataset["lam"], dataset["loss"].sel(expected="overlap"), color="black", linestyle=":", label="formula")
    left.set(xlabel=r"relative scale $\lambda$", ylabel="generalisation loss")
    left.legend()
    response = dataset["response"].transpose("item", "lam")
    mesh = right.pcolormesh(dataset["lam"], np.arange(8), response, cmap="viridis", vmin=0, vmax=1, shading="nearest")
    right.grid(False)
    right.set_yticks(np.arange(8), list(ITEMS))
    right.invert_yaxis()
    right.set(xlabel=r"relative scale $\lambda$", ylabel="item")
    figure.colorbar(mesh, ax=right, label="response to the new feature")
    return figure


TRANSFERRED = {
    # perturbed: {λ: (other fish, birds)}
    False: {-10.0: (0.018, 0.009), 0.0: (0.261, 0.108), 10.0: (0.484, 0.236)},
    True: {-10.0: (0.020, 0.010), 0.0: (0.255, 0.105), 10.0: (0.461, 0.221)},
}


def claims_transfer(dataset: "xarray.Dataset", spec: Transfer) -> list[Claim]:
    """What the figure on transfer is said to show."""
    gap = float(abs(dataset["trained"] - dataset["response"]).max())
    claims = [
        Claim.at_most("Trained rows against the formula: largest difference", gap, 100 * spec.std),
        Claim.at_most(
            "The generalisation loss falls with λ, for four hierarchical expectations: largest change of neighbours",
            dataset["loss"].diff("lam").max(),
            0.0,
        ),
        Claim.at_most(
            "As λ → -∞ nothing is transferred: largest response of another item",
            abs(dataset["limits"].sel(end="minus")[1:]).max(),
            1e-12,
        ),
        Claim.at_most(
            "As λ → ∞ the response is what the task suggests: largest difference",
            abs(dataset["limits"].sel(end="plus") - dataset["expectation"].sel(expected="overlap")).max(),
            1e-12,
        ),
    ]
    if 0.0 in dataset["lam"]:
        claims.append(
            Claim.at_least(
                "At λ = 0 the hierarchy is transferred: response of the other fish",
                dataset["response"].sel(lam=0.0, item="salmon"),
                0.2,
                "The text counts λ = 0 as lazy once; it is not.",
            )
        )
    known = {lam: pair for lam, pair in TRANSFERRED[spec.perturbed].items() if lam in dataset["lam"]}
    for lam, (fish, bird) in known.items():
        found = dataset["response"].sel(lam=lam)
        error = max(abs(float(found.sel(item="salmon")) - fish), abs(float(found.sel(item="canary")) - bird))
        claims.append(Claim.at_most(f"Recorded responses at λ = {lam:g}: largest difference", error, 1e-3))
    if not spec.perturbed and len(known) == len(TRANSFERRED[False]):
        found = dataset["loss"].sel(expected="overlap", lam=list(known)).to_numpy()
        error = np.abs(found - [0.1745, 0.0486, 0.0003]).max()
        claims.append(Claim.at_most("Recorded losses at λ = -10, 0, 10: largest difference", error, 1e-4))
    return claims


FIGURE_13 = Experiment[Transfer](
    id="exact/fig13",
    source="Figure 13",
    shows="A new feature of one item is transferred along the hierarchy the better the larger λ is.",
    presets={"quick": Transfer(lams=21), "paper": Transfer()},
    run=run_transfer,
    plot=plot_transfer,
    claims=claims_transfer,
    notes="The expected responses are not given; the default is the overlap of the items in the task, "
    "(ΣᵀΣ)ᵢⱼ/(ΣᵀΣ)ᵢᵢ. Networks are taken at convergence on the semantic task.",
    version=2,
)

EXPERIMENTS = (FIGURE_13,)
