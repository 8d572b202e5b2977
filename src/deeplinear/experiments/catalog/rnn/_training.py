r"""Students trained on sequences of several lengths, and how far they carry: what all training figures share.

Losses are trained as $\tfrac12\sum_{j<k}r_j^2$ and reported as $\sum_{j<k}r_j^2$, the convention of the paper, with
$r_j = h_j - w_j$. One compiled program serves all lengths, seeds and scales: a shorter sequence is a mask on a longer
one. Arrays of a sweep have one row for each member; `grid` lays the members out and `labelled` gives them their names.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from deeplinear.core import RESULTS, Array, HypothesisError, Params, Stack
from deeplinear.dynamics import AbstractMethod, AbstractUpdate, Adam, Milestones, ensemble, until
from deeplinear.experiments._base import Context, seed_key
from deeplinear.models import AbstractLoss, Completion, LinearRNN, Problem, Regression, System, WhiteInputs
from deeplinear.probes import loss
from deeplinear.recurrent import (
    Response,
    balanced_student,
    balanced_teacher,
    extrapolation,
    ho_kalman,
    impulse_response,
    near_zero_system,
    summarise_ratios,
)

if TYPE_CHECKING:
    import xarray

EPSILON = 1e-8
"""Number that Adam adds to the root in the paper's convention."""

SUBSPACE_TOLERANCE = 1e-12
"""Smallest over largest singular value of a Hankel matrix below which the subspace baseline takes it as singular."""

CAP = 1e3
"""Ratio of errors at which one student's contribution to a mean ends."""


class Students(NamedTuple):
    r"""What became of students, one row for each.

    Attributes:
        response: $h_0, \dots, h_{H-1}$; infinite from where it overflows.
        loss: Training loss $\sum_{j<k}(h_j - w_j)^2$, the paper's convention.
        error: $E = \max_{k\le j<H}|h_j - w_j|$.
        reference: $E_0$, that of the zero student (the largest entry of a teacher whose tail vanishes).
        balance: $\|B - C^\top\|/\|B + C^\top\|$.
        steps: Steps of training made; for gradient flow the time.
        broken: Whether the training left the finite numbers.
        order: States of the network.
    """

    response: np.ndarray
    loss: np.ndarray
    error: np.ndarray
    reference: np.ndarray
    balance: np.ndarray
    steps: np.ndarray
    broken: np.ndarray
    order: np.ndarray

    @property
    def ratio(self) -> np.ndarray:
        """$E/E_0$: below 1 for students that do better than the zero student."""
        return self.error / self.reference


WORDS = {
    "response": "impulse response",
    "loss": "training loss, sum of squares",
    "error": "largest error from the training length to the horizon, E",
    "reference": "error of the zero student, E0",
    "ratio": "extrapolation error over that of the zero student, E/E0",
    "balance": "distance from balance, |B − Cᵀ|/|B + Cᵀ|",
    "steps": "steps of training, or time of a flow",
    "broken": "whether the training left the finite numbers",
    "order": "states of the network",
}


def adam(lr: float, milestones: Sequence[int] = (), factor: float = 0.1) -> AbstractUpdate:
    r"""Adam as the paper has it, for a loss that is half of the paper's.

    Adam of $L$ with $\epsilon$ and Adam of $L/2$ with $\epsilon/2$ are the same, step by step.

    Args:
        lr: Learning rate.
        milestones: Steps at which it is multiplied by the factor, if there are any.
        factor: That factor.
    """
    method = Adam(lr, eps=EPSILON / 2)
    return Milestones(method, milestones, factor) if milestones else method


def draw(seed: int, member: int, what: str) -> np.random.Generator:
    """Generator that depends on the seed, on the number of a draw and on what is drawn only."""
    return np.random.default_rng([seed, member, *what.encode()])


def balanced_pair(
    model: LinearRNN, teacher: int, scale: float, rng: np.random.Generator, *, low: float = 0.6, high: float = 1.05
) -> tuple[System, Params]:
    """A balanced teacher and the start of its student, drawn one after the other.

    With generators of the same seed the teacher is the same whatever the scale, and so is the start but for the scale.

    Args:
        model: Form of the student.
        teacher: States of the teacher.
        scale: Of the start.
        rng: Generator of both.
        low: Least eigenvalue of the teacher.
        high: Largest eigenvalue of the teacher.
    """
    system = balanced_teacher(teacher, rng, low=low, high=high)
    return system, start(model, scale, rng)


def grid(**axes: Sequence[Any]) -> dict[str, np.ndarray]:
    """Members of a sweep over all combinations, the last axis fastest: for each axis its value for every member."""
    rows = list(itertools.product(*axes.values()))
    return {name: np.array([row[i] for row in rows]) for i, name in enumerate(axes)}


def teacher_responses(teachers: Sequence[System], horizon: int) -> np.ndarray:
    """Impulse responses of teachers up to a horizon, (teachers, horizon)."""
    return np.stack([np.asarray(impulse_response(teacher, horizon).values) for teacher in teachers])


def start(model: LinearRNN, scale: float, rng: np.random.Generator) -> Params:
    """Gaussian parameters whose entries have the standard deviation `scale`.

    Forms with a diagonal or symmetric transition matrix start balanced, $C = B^\\top$; the general form does not.
    """
    if model.form == "general":
        return model.params(near_zero_system(model.states, scale, rng, size="entry"))
    form = "symmetric" if model.form in ("symmetric", "upper") else "diagonal"
    return model.params(balanced_student(model.states, scale, rng, form=form))


def population_losses(targets: np.ndarray, lengths: np.ndarray, longest: int) -> list[AbstractLoss]:
    """For each member the sum over its first entries: the mean over white inputs of the length given."""
    return [
        Completion(target[None, :longest], (np.arange(longest) < length)[None])
        for target, length in zip(targets, lengths, strict=True)
    ]


def white_losses(targets: np.ndarray, lengths: np.ndarray, longest: int) -> list[AbstractLoss]:
    """The same mean, for `Minibatch`: every step draws fresh white sequences of the member's length."""
    return [
        WhiteInputs(target[None, :longest], active=np.arange(longest) < length)
        for target, length in zip(targets, lengths, strict=True)
    ]


def sample_losses(
    targets: np.ndarray, lengths: np.ndarray, longest: int, samples: int, rngs: Sequence[np.random.Generator]
) -> list[AbstractLoss]:
    """Mean over a fixed set of white sequences, written with their second moments: $r^\\top\\Sigma r/2$.

    Members with the same generator share the sequences; shorter ones are the last inputs of longer ones.
    """
    moments: dict[int, np.ndarray] = {}
    losses: list[AbstractLoss] = []
    for target, length, rng in zip(targets, lengths, rngs, strict=True):
        if id(rng) not in moments:
            inputs = rng.standard_normal((samples, longest))
            moments[id(rng)] = inputs.T @ inputs / samples
        seen = np.arange(longest) < length
        second = moments[id(rng)] * np.outer(seen, seen)
        known = np.where(seen, target[:longest], 0.0)[None]
        losses.append(Regression(second, known @ second, reduced=True, solution=known))
    return losses


def train(
    model: LinearRNN,
    starts: Sequence[Params],
    losses: Sequence[AbstractLoss],
    targets: np.ndarray,
    lengths: np.ndarray,
    method: AbstractMethod,
    *,
    steps: float,
    stop: float | None = None,
    context: Context | None = None,
    seed: int = 0,
) -> Students:
    """Train all members in one ensemble and measure what they do beyond the length they were trained on.

    Args:
        model: Form of the student; its length is the longest of all lengths.
        starts: Parameters at the start, one set for each member.
        losses: One for each member, made by `population_losses`, `white_losses` or `sample_losses`.
        targets: Teacher's responses up to the horizon, (members, horizon).
        lengths: Training length of each member.
        method: Optimiser, or gradient flow.
        steps: Most steps; for gradient flow the last time.
        stop: Loss in the paper's convention (sum of squares) at which a member ends before that, if any.
        context: Of the experiment, so that an interrupt reaches the training.
        seed: Of stochastic methods.
    """
    context = Context() if context is None else context
    problems = [Problem(model, one) for one in losses]
    run = ensemble(
        problems,
        list(starts),
        method,
        times=[steps],
        until=() if stop is None else until(loss, below=stop / 2),
        key=seed_key(seed, "training"),
        progress=context.watch,
    )
    context.complete(run, keep_failed=True)
    params = tuple(jnp.asarray(layer, dtype=float) for layer in run.params)
    responses = np.asarray(_responses(model, params, targets.shape[1]))
    broken = np.asarray(run.results) == int(RESULTS.diverged)
    orders = np.full(len(problems), model.states)
    return measured(responses, targets, lengths, _balance(model, run.params), run.final_time, broken, orders)


def subspace(targets: np.ndarray, lengths: np.ndarray, tolerance: float = SUBSPACE_TOLERANCE) -> Students:
    """Subspace identification from the same numbers: the response that Ho and Kalman continue them by.

    From $w_0, \\dots, w_{k-1}$, with the largest order of at most $k/2$ whose Hankel matrix is not singular; the zero
    network where there is none. Noise and optimisation have no part in it.

    Args:
        targets: Teacher's responses up to the horizon, (members, horizon).
        lengths: Numbers that are seen of each.
        tolerance: Smallest over largest singular value below which a Hankel matrix is singular.
    """
    found = [_identified(target, int(length), tolerance) for target, length in zip(targets, lengths, strict=True)]
    responses = np.stack([response for response, _, _ in found])
    zeros = np.zeros(len(found))
    balance, orders = np.array([b for _, b, _ in found]), np.array([order for _, _, order in found])
    return measured(responses, targets, lengths, balance, zeros, zeros.astype(bool), orders)


def measured(
    responses: np.ndarray,
    targets: np.ndarray,
    lengths: np.ndarray,
    balance: np.ndarray,
    steps: np.ndarray,
    broken: np.ndarray,
    orders: np.ndarray,
) -> Students:
    """Training loss and extrapolation error of responses up to the horizon."""
    horizon = targets.shape[1]
    responses = np.where(np.logical_and.accumulate(np.isfinite(responses), axis=1), responses, np.inf)
    found = []
    for response, target, length in zip(responses, targets, lengths, strict=True):
        finite = max(1, int(np.isfinite(response).sum()))
        values = np.minimum(response[:finite], np.finfo(float).max)
        ended = Response(jnp.asarray(values, dtype=float), None if finite == horizon else finite)
        found.append(extrapolation(ended, target, int(length), horizon=horizon))
    return Students(
        response=responses,
        loss=np.array([2 * one.training_loss for one in found]),
        error=np.array([one.error for one in found]),
        reference=np.array([one.reference for one in found]),
        balance=np.asarray(balance, dtype=float),
        steps=np.asarray(steps, dtype=float),
        broken=np.asarray(broken, dtype=bool),
        order=np.asarray(orders, dtype=int),
    )


def labelled(
    students: Students, axes: Mapping[str, Sequence[Any]], *, prefix: str = "", response: bool = False
) -> "xarray.Dataset":
    """Members of a `grid` as arrays with an axis for each of what was varied.

    Args:
        students: The members, in the order of `grid`.
        axes: The axes of that grid.
        prefix: Put before the names, such as `subspace_`.
        response: Whether to keep the responses.
    """
    import xarray

    shape, dims = tuple(len(values) for values in axes.values()), tuple(axes)
    rows = {**students._asdict(), "ratio": students.ratio}
    if not response:
        rows.pop("response")
    variables = {
        prefix + name: (dims + ("index",) * (name == "response"), column.reshape(*shape, *column.shape[1:]))
        for name, column in rows.items()
    }
    dataset = xarray.Dataset(variables, coords={name: list(values) for name, values in axes.items()})
    for name in rows:
        dataset[prefix + name].attrs["long_name"] = WORDS[name]
    return dataset


def summaries(ratios: "xarray.DataArray", over: str = "draw", cap: float = CAP) -> "xarray.Dataset":
    """Median, mean, spread, extremes and share of failures over one axis, with ratios capped in mean and spread."""
    import xarray

    values = ratios.transpose(..., over).to_numpy()
    dims = tuple(dim for dim in ratios.dims if dim != over)
    rows = [summarise_ratios(row, cap=cap) for row in values.reshape(-1, values.shape[-1])]
    shape = values.shape[:-1]
    numbers = {
        "median": [row.median for row in rows],
        "mean": [row.mean for row in rows],
        "deviation": [row.deviation for row in rows],
        "failed": [row.failed for row in rows],
        "least": [float(np.min(row.capped)) for row in rows],
        "most": [float(np.max(row.capped)) for row in rows],
    }
    coords = {name: ratios.coords[name] for name in dims if name in ratios.coords}
    return xarray.Dataset({name: (dims, np.reshape(column, shape)) for name, column in numbers.items()}, coords=coords)


def _identified(target: np.ndarray, length: int, tolerance: float) -> tuple[np.ndarray, float, int]:
    for order in range(length // 2, 0, -1):
        try:
            system = ho_kalman(target[:length], order, tolerance=tolerance)
        except HypothesisError:
            continue
        response = impulse_response(system, len(target))
        filled = np.full(len(target), np.inf)
        filled[: len(response.values)] = np.asarray(response.values)
        first, output = np.asarray(system.input), np.asarray(system.output)
        return filled, _distance(first[None], output[None])[0], order
    return np.zeros(len(target)), float("nan"), 0


def _distance(first: np.ndarray, output: np.ndarray) -> np.ndarray:
    """Distance from balance of many systems."""
    back = np.swapaxes(output, 1, 2)
    gap, size = (np.sqrt(np.sum(matrix**2, axis=(1, 2))) for matrix in (first - back, first + back))
    return np.divide(gap, size, out=np.full(len(gap), np.nan), where=size > 0)


def _balance(model: LinearRNN, params: Sequence[np.ndarray]) -> np.ndarray:
    first = np.asarray(params[0])
    return np.zeros(len(first)) if model.form == "tied" else _distance(first, np.asarray(params[2]))


@eqx.filter_jit
def _responses(model: LinearRNN, params: Stack, horizon: int) -> Float[Array, "members horizon"]:
    long = LinearRNN(model.states, horizon, form=model.form)
    return jax.vmap(lambda one: long.forward(one)[0][0])(params)
