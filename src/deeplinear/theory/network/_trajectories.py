"""Statements on runs that start near the origin: plateaus, modes that stay learnt, and the norm of the product."""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from deeplinear.core import formula, xp
from deeplinear.models import Problem
from deeplinear.theory._check import Check, Hypothesis, Measured, Violation
from deeplinear.theory._flows import Run, flows
from deeplinear.theory.network._networks import CHAIN, Network

LAST = 40.0
"""About when the smallest mode is learnt, by the choice of the start."""

TIMES = np.linspace(0.0, 4 * LAST, 321)
"""Records, close enough to find the plateaus."""

EARLY = np.concatenate([[0.0], np.geomspace(1e-2, LAST, 300)])
"""Records of a start far from the origin, where all happens at once."""

SMALLEST, RATIO = 1.2, 2.5
"""Least singular value of a target, and least ratio of neighbouring ones: learning times lie that far apart."""

NOISE = 0.1
"""Size of what couples the modes, relative to the start."""


@dataclasses.dataclass(frozen=True)
class Path:
    """A start, and the singular values of the target that the statement is told."""

    network: Network
    told: np.ndarray


def _singular_values(rng: np.random.Generator, modes: int) -> np.ndarray:
    steps = np.append(rng.uniform(RATIO, 1.2 * RATIO, modes - 1), SMALLEST * rng.uniform(1.0, 1.2))
    return np.cumprod(steps[::-1])[::-1].copy()


def _orthogonal(rng: np.random.Generator, size: int) -> np.ndarray:
    q, r = np.linalg.qr(rng.standard_normal((size, size)))
    return q * np.sign(np.diag(r))


def _aligned(rng: np.random.Generator, widths: Sequence[int], strengths: np.ndarray) -> tuple[np.ndarray, ...]:
    """Layers in random hidden bases with given strengths (layer, mode) in the modes of the target."""
    bases = [np.eye(widths[0]), *(_orthogonal(rng, width) for width in widths[1:-1]), np.eye(widths[-1])]
    layers = []
    for (inner, outer), amounts in zip(itertools.pairwise(bases), strengths, strict=True):
        diagonal = np.zeros((len(outer), len(inner)))
        np.fill_diagonal(diagonal[: len(amounts), : len(amounts)], amounts)
        layers.append(outer @ diagonal @ inner.T)
    return tuple(layers)


def _checked(widths: Sequence[int], least: int) -> None:
    if len(widths) - 1 < least:
        raise ValueError(f"The statement is about networks of at least {least} layers, but widths is {tuple(widths)}.")
    if min(widths) < widths[-1]:
        raise ValueError(f"No layer may be narrower than the output, but widths is {tuple(widths)}.")


def _near(rng: np.random.Generator, widths: Sequence[int] = CHAIN) -> Path:
    r"""All modes alike at the start, coupled by noise; small enough for the last to be learnt at `LAST`.

    A mode of size z in all layers is learnt at about $z^{2-L}/((L-2)\sigma)$.
    """
    _checked(widths, 3)
    depth, modes = len(widths) - 1, widths[-1]
    sigma = _singular_values(rng, modes)
    size = ((depth - 2) * sigma[-1] * LAST) ** (-1 / (depth - 2))
    layers = _aligned(rng, widths, np.full((depth, modes), size))
    noisy = tuple(layer + NOISE * size * rng.standard_normal(layer.shape) / np.sqrt(layer.size) for layer in layers)
    return Path(Network(noisy, sigma), sigma)


def _without_first(rng: np.random.Generator) -> Path:
    """The first mode is exactly absent: it is never learnt, and the plateau is that of the second."""
    path = _near(rng)
    size = ((path.network.depth - 2) * path.told[-1] * LAST) ** (-1 / (path.network.depth - 2))
    strengths = np.full((path.network.depth, len(path.told)), size)
    strengths[:, 0] = 0
    return dataclasses.replace(path, network=Network(_aligned(rng, path.network.widths, strengths), path.told))


def _far(rng: np.random.Generator) -> Path:
    """A start far from the origin."""
    sigma = _singular_values(rng, CHAIN[-1])
    layers = tuple(1.5 * rng.standard_normal((out, inp)) for inp, out in itertools.pairwise(CHAIN))
    return Path(Network(layers, sigma), sigma)


def _run(instances: Sequence[Path], times: np.ndarray) -> list[Run]:
    return flows([p.network.problem for p in instances], [p.network.params for p in instances], times)


def _speeds(run: Run, target: np.ndarray) -> list[np.ndarray]:
    """Speeds of all layers at all times, by one pass forward and one back."""
    below = [np.broadcast_to(np.eye(target.shape[1]), (len(run.times), target.shape[1], target.shape[1]))]
    for layer in run.layers:
        below.append(layer @ below[-1])
    back, speeds = target - below.pop(), []
    for layer, read in zip(reversed(run.layers), reversed(below), strict=True):
        speeds.append(back @ np.swapaxes(read, 1, 2))
        back = np.swapaxes(layer, 1, 2) @ back
    return speeds[::-1]


def _learnt(times: np.ndarray, values: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Record from which on each mode has at least half of its target, the last one if it never has."""
    above = values >= 0.5 * sigma
    return np.where(above.any(axis=0), above.argmax(axis=0), len(times) - 1)


def _spans(run: Run, sigma: np.ndarray) -> list[np.ndarray]:
    """Records of the plateaus: between the learning of two neighbouring modes; the last goes to the end."""
    values = np.linalg.svd(run.product, compute_uv=False)
    marks = np.append(_learnt(run.times, values, sigma), len(run.times) - 1)
    return [np.arange(begin, max(end, begin + 1)) for begin, end in itertools.pairwise(marks)]


# --- Plateaus ---------------------------------------------------------------------------------------------------------

PLATEAUS = {
    "loss where the gradient is smallest against ½∑σᵢ² of the modes to come, relative": 5e-3,
    "most negative Hessian eigenvalue there over the largest": 1e-2,
    "loss at the end over that at the start": 1e-12,
}


_hessian = formula(Problem.hessian)


def _measure_plateaus(instances: Sequence[Path]) -> list[Measured]:
    measured = []
    for path, run in zip(instances, _run(instances, TIMES), strict=True):
        speeds = _speeds(run, path.network.target)
        gradient = np.sqrt(sum(np.sum(speed**2, axis=(1, 2)) for speed in speeds))
        gaps, curvatures = [0.0], [0.0]
        for k, span in enumerate(_spans(run, path.told)[:-1], start=1):
            place = span[np.argmin(gradient[span])]
            level = 0.5 * float(np.sum(path.told[k:] ** 2))
            gaps.append(abs(float(run.loss[place]) - level) / level)
            layers = tuple(xp.asarray(layer[place], dtype=float) for layer in run.layers)
            values = np.linalg.eigvalsh(np.asarray(_hessian(path.network.problem, layers)))
            curvatures.append(float(-values[0] / values[-1]))
        numbers = (max(gaps), max(curvatures), float(run.loss[-1] / run.loss[0]))
        measured.append(Measured(dict(zip(PLATEAUS, numbers, strict=True))))
    return measured


SMALL = Hypothesis[Path](
    "small start: spectral norm of the largest layer, to the power L - 2, over what the last mode allows",
    lambda p: (
        max(float(np.linalg.norm(layer, 2)) for layer in p.network.layers) ** (p.network.depth - 2)
        * (p.network.depth - 2)
        * p.told[-1]
        * LAST
        - (1 + 3 * NOISE) ** (p.network.depth - 2)
    ),
)

ALIKE = Hypothesis[Path](
    "all modes are present alike: how far the smallest strength of a mode in the product falls short",
    lambda p: 0.3 - float(np.min(np.diag(p.network.product)) / np.max(np.abs(p.network.product))),
)

SEPARATE = Hypothesis[Path](
    "separate singular values: by how much a ratio falls short",
    lambda p: RATIO - float(np.min(p.told[:-1] / p.told[1:], initial=np.inf)),
    1e-9,
)

DEEP = Hypothesis[Path]("at least three layers", lambda p: 3.0 - p.network.depth)

TOLD = Hypothesis[Path]("the target is the one told", lambda p: float(np.max(np.abs(p.told - p.network.sigma))))

NEAR = (DEEP, SMALL, ALIKE, SEPARATE, TOLD)

PLATEAU_LEVELS = Check(
    id="network/plateaus",
    source="Section 5.3.1",
    statement=(
        "From a small start with all modes alike the loss rests at ½∑σᵢ² of the modes to come before each of them is "
        "learnt, in a landscape that is nearly flat or convex there, and ends at zero."
    ),
    hypotheses=NEAR,
    tolerances=PLATEAUS,
    measure=_measure_plateaus,
    draw=_near,
    sized=_near,
    violations=(
        Violation("a start without the first mode", _without_first),
        Violation("a start far from the origin", _far),
        Violation(
            "another target",
            lambda rng: dataclasses.replace(_near(rng), told=_singular_values(rng, CHAIN[-1])),
        ),
    ),
)

# --- Modes that stay --------------------------------------------------------------------------------------------------

STAY = {
    "distance of a learnt singular value from its target, from the middle of its plateau on, relative": 1e-6,
    "1 - |cos| of its singular vectors": 1e-6,
}


def _measure_staying(instances: Sequence[Path]) -> list[Measured]:
    measured = []
    for path, run in zip(instances, _run(instances, TIMES), strict=True):
        left, values, right = np.linalg.svd(run.product, full_matrices=False)
        moved, turned = 0.0, 0.0
        for k, span in enumerate(_spans(run, path.told)):
            later = slice(span[len(span) // 2], None)
            moved = max(moved, float(np.max(np.abs(values[later, k] / path.told[k] - 1))))
            cosines = np.minimum(np.abs(left[later, k, k]), np.abs(right[later, k, k]))
            turned = max(turned, float(np.max(1 - cosines)))
        measured.append(Measured(dict(zip(STAY, (moved, turned), strict=True))))
    return measured


LEARNT_STAYS = Check(
    id="network/learnt-modes-stay",
    source="Section 6.1",
    statement=(
        "From a small start with all modes alike a singular value of the product that is learnt is no longer modified, "
        "and neither are its singular vectors."
    ),
    hypotheses=NEAR,
    tolerances=STAY,
    measure=_measure_staying,
    draw=_near,
    sized=_near,
    violations=(
        Violation("a start far from the origin", _far),
        Violation("a start without the first mode", _without_first),
    ),
)

# --- Norm of the product ----------------------------------------------------------------------------------------------

FALLS = {
    "largest rise of the loss, relative": 1e-12,
    "rate of ½‖W_{L:1}‖² against ⟨W_{L:1}, ∑ LⱼLⱼᵀ M RⱼᵀRⱼ⟩, relative": 1e-10,
}


def _measure_norm(instances: Sequence[Path]) -> list[Measured]:
    measured = []
    for path, run in zip(instances, _run(instances, EARLY), strict=True):
        sizes = np.linalg.norm(run.product, axis=(1, 2))
        lowest = int(np.argmin(sizes))
        dip = min(sizes[0], sizes[-1]) - sizes[lowest]
        residuals = (float(np.max(np.diff(run.loss)) / run.loss[0]), _rate_gap(path, run))
        facts = {"norm at the start": sizes[0], "smallest norm": sizes[lowest], "norm at the end": sizes[-1]}
        numbers = dict(zip(FALLS, residuals, strict=True))
        measured.append(Measured(numbers, printed=float(dip / sizes[-1]), facts=facts))
    return measured


def _rate_gap(path: Path, run: Run) -> float:
    """The derivative of ½‖W_{L:1}‖² along the speeds, by a complex step, against the formula."""
    told = np.zeros_like(path.network.target)
    np.fill_diagonal(told, path.told)
    speeds = [speed[0] for speed in _speeds(run, path.network.target)]
    layers = [layer[0] for layer in run.layers]

    def size(step: complex) -> complex:
        product = np.eye(layers[0].shape[1], dtype=complex)
        for layer, speed in zip(layers, speeds, strict=True):
            product = (layer + step * speed) @ product
        return 0.5 * complex(np.sum(product**2))

    found = size(1e-30j).imag / 1e-30
    network, product = path.network, path.network.product
    moved = np.zeros_like(product)
    for j in range(1, network.depth + 1):
        above, below = network.partial(network.depth, j + 1), network.partial(j - 1, 1)
        moved += above @ above.T @ (told - product) @ below.T @ below
    wanted = float(np.sum(product * moved))
    return abs(found - wanted) / float(np.linalg.norm(product) * np.linalg.norm(moved))


def _against(rng: np.random.Generator, widths: Sequence[int] = CHAIN) -> Path:
    """All modes at the start against the target, in layers of different strengths: they turn round through zero."""
    _checked(widths, 2)
    depth, modes = len(widths) - 1, widths[-1]
    strengths = rng.uniform(0.9, 1.3, (depth, modes))
    strengths[0] *= -0.5
    sigma = _singular_values(rng, modes)
    return Path(Network(_aligned(rng, widths, strengths), sigma), sigma)


NORM_OF_PRODUCT = Check(
    id="network/erratum-product-norm",
    source="Section 6.1",
    statement=(
        "The loss falls along every trajectory; ½‖W_{L:1}‖² moves at the rate ⟨W_{L:1}, ∑ LⱼLⱼᵀ M RⱼᵀRⱼ⟩, and need not "
        "be monotone."
    ),
    hypotheses=(
        Hypothesis(
            "every mode at the start is against its target",
            lambda p: float(np.max(np.diag(p.network.product))),
        ),
        TOLD,
    ),
    tolerances=FALLS,
    measure=_measure_norm,
    draw=_against,
    sized=_against,
    violations=(
        Violation(
            "another target",
            lambda rng: dataclasses.replace(_against(rng), told=_singular_values(rng, CHAIN[-1])),
        ),
    ),
    printed="‖A(t)ʰ‖_F is monotone since the loss is.",
    printed_tolerance=1e-6,
)

CHECKS = (PLATEAU_LEVELS, LEARNT_STAYS, NORM_OF_PRODUCT)
"""Statements on trajectories."""
