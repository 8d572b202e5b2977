"""Collections that the laws run through. A new implementation is one file plus one line here."""

import types
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from deeplinear.core import AbstractIntegrator, Exponential, Params, Stabilised, dopri8, kvaerno5, tsit5
from deeplinear.dynamics import Adagrad, Adam, GradientDescent, Milestones, Minibatch, Momentum, RMSProp
from deeplinear.models import (
    AbstractInit,
    AbstractLoss,
    AbstractModel,
    Aligned,
    AlphaM,
    Balanced,
    Completion,
    Cumulative,
    Decoupled,
    DeepLinear,
    DeltaBalanced,
    Diagonal,
    Energy,
    EntryCompletion,
    Explicit,
    FromSVD,
    Gaussian,
    Glorot,
    He,
    LambdaBalanced,
    LeCun,
    LinearRNN,
    Masked,
    MatchedGaussian,
    NarrowDeepLinear,
    NetworkEntries,
    Orthogonal,
    Pyramid,
    Regression,
    SampleRegression,
    Scaled,
    ScaledIdentity,
    Sensing,
    SquaredDistance,
    TaskAligned,
    WarmStart,
    WhiteInputs,
)
from deeplinear.probes import (
    AbstractProbe,
    Conserved,
    Drift,
    Entries,
    HeldOutError,
    KernelDistance,
    KernelMovement,
    LayerSingularValues,
    LeftAlignment,
    ModeStrengths,
    ReconstructionError,
    RightAlignment,
    gradient_norm,
    layer_alignment,
    layer_balancedness,
    layer_lambda,
    layer_lambda_operator_residual,
    layer_lambda_residual,
    layer_norms,
    loss,
    ntk,
    product,
    product_effective_rank,
    product_nuclear_norm,
    product_numerical_rank,
    product_stable_rank,
    singular_values,
    weights,
)

OUT, INP = 2, 3

ALL_MODELS = (DeepLinear((3, 2)), DeepLinear((3, 4, 2)), DeepLinear((3, 4, 3, 2)), DeepLinear((3, 4, 3, 3, 2)))
"""Networks of depth 1 to 4 with products of shape (OUT, INP)."""


class ModelCase(NamedTuple):
    """A model, and its end-to-end object written plainly."""

    model: AbstractModel
    plain: Callable[..., Any]


def _chain(params):
    product = params[0]
    for layer in params[1:]:
        product = layer @ product
    return product


_MASKS = (np.array([[1, 0, 1], [1, 1, 1], [0, 1, 1], [1, 1, 0]]), np.array([[1, 1, 0, 1], [0, 1, 1, 1]]))
_FIXED = (np.full((4, 3), 0.3), np.full((2, 4), -0.7))


def _masked(params):
    return _chain([jnp.where(m == 1, p, v) for p, m, v in zip(params, _MASKS, _FIXED, strict=True)])


_ROWS, _COLUMNS = np.array([0, 1, 3, 3]), np.array([2, 0, 1, 1])


def _response(params, matrix):
    """Entries C B, C A B, … of the impulse response, one after the other."""
    read, state, entries = params[-1], params[0], []
    for _ in range(5):
        entries.append((read @ state)[0, 0])
        state = matrix @ state
    return jnp.stack(entries)[None]


def _triangle(params):
    upper = jnp.zeros((3, 3)).at[jnp.triu_indices(3)].set(params[1].ravel())
    return _response(params, upper + jnp.triu(upper, 1).T)


ALL_KINDS_OF_MODELS = {
    "DeepLinear": ModelCase(ALL_MODELS[2], _chain),
    "NarrowDeepLinear": ModelCase(NarrowDeepLinear((3, 4, 3, 2)), _chain),
    "Masked": ModelCase(Masked(ALL_MODELS[1], _MASKS, _FIXED), _masked),
    "NetworkEntries": ModelCase(
        NetworkEntries((3, 2, 4), _ROWS, _COLUMNS), lambda params: _chain(params)[_ROWS, _COLUMNS][None]
    ),
    "LinearRNN": ModelCase(LinearRNN(3, 5), lambda params: _response(params, params[1])),
    "LinearRNN-upper": ModelCase(LinearRNN(3, 5, form="upper"), _triangle),
    "LinearRNN-diagonal": ModelCase(
        LinearRNN(3, 5, form="diagonal"), lambda params: _response(params, jnp.diag(params[1][:, 0]))
    ),
    "LinearRNN-tied": ModelCase(
        LinearRNN(3, 5, form="tied"),
        lambda params: _response((params[0], params[1], params[0].T), jnp.diag(params[1][:, 0])),
    ),
}
"""Models by name. (Symmetric recurrent networks move by a part of the gradient: `tests/models` has them.)"""


# ------------------------------------------------------------------------------------------------------- losses


class LossCase(NamedTuple):
    """A loss on products of shape (OUT, INP), and the same function written plainly from the raw data."""

    loss: AbstractLoss
    plain: Callable[..., Any]
    data: tuple[np.ndarray, ...]


def squared_distance(rng: np.random.Generator) -> LossCase:
    target = rng.normal(size=(OUT, INP))
    return LossCase(SquaredDistance(target), lambda w, a: 0.5 * jnp.sum((w - a) ** 2), (target,))


def _mean_square(w, x, y):
    """Half the mean over samples, one sample after the other."""
    return sum(0.5 * jnp.sum((w @ x[:, n] - y[:, n]) ** 2) for n in range(x.shape[1])) / x.shape[1]


def _samples(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(INP, 7)), rng.normal(size=(OUT, 7))


def regression(rng: np.random.Generator) -> LossCase:
    x, y = _samples(rng)
    return LossCase(Regression.from_data(x, y), _mean_square, (x, y))


def reduced_regression(rng: np.random.Generator) -> LossCase:
    x, y = _samples(rng)
    best = np.linalg.lstsq(x.T, y.T, rcond=None)[0].T
    least = 0.5 * np.sum((best @ x - y) ** 2) / x.shape[1]
    loss = Regression.from_data(x, y, reduced=True)
    return LossCase(loss, lambda w, x, y, c: _mean_square(w, x, y) - c, (x, y, least))


def sample_regression(rng: np.random.Generator) -> LossCase:
    x, y = _samples(rng)
    return LossCase(SampleRegression(x, y), _mean_square, (x, y))


def white_inputs(rng: np.random.Generator) -> LossCase:
    target = rng.normal(size=(OUT, INP))
    active = np.array([1.0, 0.0, 1.0])
    return LossCase(WhiteInputs(target, active), lambda w, a: 0.5 * jnp.sum((w[:, ::2] - a[:, ::2]) ** 2), (target,))


_SEEN = ((0, 0), (0, 2), (1, 1), (1, 2))


def _entries(w, target):
    """Half the sum of squares over the observed entries, one after the other."""
    return sum(0.5 * (w[i, j] - target[i, j]) ** 2 for i, j in _SEEN)


def completion(rng: np.random.Generator) -> LossCase:
    target = rng.normal(size=(OUT, INP))
    mask = np.zeros((OUT, INP), dtype=bool)
    mask[tuple(np.transpose(_SEEN))] = True
    return LossCase(Completion(np.where(mask, target, np.nan), mask), _entries, (target,))


def entry_completion(rng: np.random.Generator) -> LossCase:
    target = rng.normal(size=(OUT, INP))
    rows, columns = np.transpose(_SEEN)
    return LossCase(EntryCompletion(rows, columns, target[rows, columns], (OUT, INP)), _entries, (target,))


def sensing(rng: np.random.Generator) -> LossCase:
    matrices, values = rng.normal(size=(5, OUT, INP)), rng.normal(size=5)

    def plain(w, a, y):
        return sum(0.5 * (jnp.trace(a[k].T @ w) - y[k]) ** 2 for k in range(5))

    return LossCase(Sensing(matrices, values), plain, (matrices, values))


def _quartic(product, target):
    return 0.25 * jnp.sum((product - target) ** 4)


def energy(rng: np.random.Generator) -> LossCase:
    target = rng.normal(size=(OUT, INP))
    return LossCase(Energy(_quartic, target), lambda w, a: jnp.vdot((w - a) ** 2, (w - a) ** 2) / 4, (target,))


ALL_LOSSES = (
    squared_distance,
    regression,
    reduced_regression,
    sample_regression,
    white_inputs,
    completion,
    entry_completion,
    sensing,
    energy,
)
"""Builders of losses: each takes a NumPy generator for its data and gives a `LossCase`."""


# -------------------------------------------------------------------------------------------------------- inits


class InitCase(NamedTuple):
    """An initialisation with a network it fits and what it promises there."""

    init: AbstractInit
    model: DeepLinear
    random: bool
    lam: float | None = None  # promised: every C_l is lam I
    product: np.ndarray | None = None  # promised: the product of the layers


_TWO, _THREE = ALL_MODELS[1], ALL_MODELS[2]
_SQUARE = DeepLinear((3, 3, 3, 3))
_NARROW = DeepLinear((3, 2, 2))
_TARGET = np.array([[2.0, -1.0, 0.5], [0.3, 1.0, -0.7]])
_TURN = np.array([[0.6, -0.8], [0.8, 0.6]])
_LEFT, _VALUES, _RIGHT_T = np.linalg.svd(_TARGET, full_matrices=False)
_RANK_ONE = np.outer([1.0, -2.0], [0.5, 1.0, 2.0])

ALL_INITS = {
    "Gaussian": InitCase(Gaussian(0.1), _THREE, True),
    "MatchedGaussian-power": InitCase(MatchedGaussian(0.1, "power"), _THREE, True),
    "MatchedGaussian-product": InitCase(MatchedGaussian(0.1, "product"), _THREE, True),
    "LeCun": InitCase(LeCun(), _THREE, True),
    "He": InitCase(He(), _THREE, True),
    "Glorot": InitCase(Glorot(), _THREE, True),
    "Scaled": InitCase(Scaled([0.1, 1.0, 2.0]), _THREE, True),
    "Orthogonal": InitCase(Orthogonal(1.5), _THREE, True),
    "Orthogonal-square": InitCase(Orthogonal(1.5), _SQUARE, True, lam=0.0),
    "ScaledIdentity": InitCase(ScaledIdentity(0.2), _SQUARE, False, lam=0.0, product=0.008 * np.eye(3)),
    "ScaledIdentity-rectangular": InitCase(ScaledIdentity(0.2), _THREE, False, product=0.008 * np.eye(2, 3)),
    "AlphaM": InitCase(AlphaM(0.2, 5.0), _SQUARE, False, lam=0.0),
    "Balanced": InitCase(Balanced(_TARGET), _THREE, False, lam=0.0, product=_TARGET),
    "Balanced-rotated": InitCase(Balanced(_TARGET, rotate=True), _THREE, True, lam=0.0, product=_TARGET),
    "Balanced-low-rank": InitCase(Balanced(_RANK_ONE), DeepLinear((3, 1, 4, 2)), False, lam=0.0, product=_RANK_ONE),
    "Balanced-one-layer": InitCase(Balanced(_TARGET), ALL_MODELS[0], False, product=_TARGET),
    "FromSVD": InitCase(FromSVD(_LEFT, _VALUES, _RIGHT_T.T, -1.5, _TURN), _NARROW, False, lam=-1.5, product=_TARGET),
    "LambdaBalanced-negative": InitCase(LambdaBalanced(-2.0, 0.3), _NARROW, True, lam=-2.0),
    "LambdaBalanced-zero-wide": InitCase(LambdaBalanced(0.0, 0.3), _TWO, True, lam=0.0),
    "LambdaBalanced-deep": InitCase(LambdaBalanced(0.0, 0.3), _THREE, True, lam=0.0),
    "TaskAligned": InitCase(
        TaskAligned(_TARGET, [0.1, -0.2], lam=1.0),
        _NARROW,
        False,
        lam=1.0,
        product=_LEFT @ np.diag([0.1, -0.2]) @ _RIGHT_T,
    ),
    "TaskAligned-deep": InitCase(TaskAligned(_TARGET, 0.1), _THREE, False, lam=0.0, product=0.1 * _LEFT @ _RIGHT_T),
    "DeltaBalanced": InitCase(DeltaBalanced(0.04), _THREE, True),
    "Aligned": InitCase(Aligned([1.5, -0.5]), _THREE, True),
    "Aligned-given-ends": InitCase(
        Aligned([2.0, 0.5], left=_TURN, right=np.eye(3)), _THREE, True, product=_TURN @ np.diag([8.0, 0.125, 0])[:2]
    ),
    "Decoupled": InitCase(Decoupled([2.0, -0.5]), _THREE, True, product=np.diag([8.0, -0.125, 0])[:2]),
    "Diagonal": InitCase(
        Diagonal([[1.0, 2.0], [0.5, 1.0], [3.0, -1.0]]), _THREE, False, product=np.diag([1.5, -2.0, 0])[:2]
    ),
    "Pyramid": InitCase(Pyramid(2), _THREE, True),
    "Cumulative": InitCase(Cumulative(2), _THREE, True),
    "Explicit": InitCase(Explicit((np.eye(4, 3), np.eye(2, 4))), _TWO, False, product=np.eye(2, 3)),
    "WarmStart": InitCase(
        WarmStart(types.SimpleNamespace(params=(np.eye(4, 3), np.eye(2, 4)))), _TWO, False, product=np.eye(2, 3)
    ),
}
"""Initialisations by name."""


# ------------------------------------------------------------------------------------------------------ updates

ALL_UPDATES = {
    "GradientDescent": GradientDescent(0.05),
    "Momentum": Momentum(0.02),
    "Momentum-damped": Momentum(0.02, 0.8, 0.3),
    "Momentum-nesterov": Momentum(0.02, nesterov=True),
    "Adam": Adam(0.01),
    "RMSProp": RMSProp(0.003),
    "Adagrad": Adagrad(0.05),
    "Milestones": Milestones(Adam(0.01), [1, 3]),
    "Minibatch": Minibatch(GradientDescent(0.05), batch=2),
}
"""Discrete updates by name; the last one needs a loss that is made of terms."""


# ------------------------------------------------------------------------------------------------------- probes

_PLAIN_PROBES = (
    loss,
    gradient_norm,
    product,
    singular_values,
    product_effective_rank,
    product_stable_rank,
    product_nuclear_norm,
    product_numerical_rank,
    layer_norms,
    layer_balancedness,
    layer_lambda,
    layer_lambda_residual,
    layer_lambda_operator_residual,
    layer_alignment,
    ntk,
    weights,
)


def all_probes(reference: Params, target: np.ndarray, mask: np.ndarray) -> dict[str, AbstractProbe]:
    """Probes by name, for a network of depth 2 or more with products of shape (OUT, INP)."""
    probes = (
        *_PLAIN_PROBES,
        LayerSingularValues(2),
        Conserved(1),
        Drift(reference),
        Entries([1, 0], [2, 0]),
        LeftAlignment(target),
        RightAlignment(target),
        ModeStrengths(target),
        ReconstructionError(target),
        HeldOutError(target, mask),
        KernelDistance(reference),
        KernelMovement(reference),
    )
    return {probe.name: probe for probe in probes}


ALL_PROBES = tuple(all_probes((np.eye(4, INP), np.eye(OUT, 4)), np.eye(OUT, INP), np.eye(OUT, INP)))
"""Names of all probes; `all_probes` makes them for given data."""


# --------------------------------------------------------------------------------------------------- integrators


class IntegratorCase(NamedTuple):
    """An integrator, its order, and step counts at which its error stands between the start and rounding."""

    name: str
    integrator: AbstractIntegrator
    order: int
    steps: tuple[int, ...]
    stabilised: bool = False


ALL_INTEGRATORS = (
    IntegratorCase("tsit5", tsit5(), 5, (20, 40, 80)),
    IntegratorCase("dopri8", dopri8(), 8, (8, 12, 16)),
    IntegratorCase("kvaerno5", kvaerno5(), 5, (20, 40, 80)),
    IntegratorCase("exponential", Exponential(), 4, (20, 40, 80)),
    IntegratorCase("stabilised", Stabilised(), 4, (40, 80, 160), stabilised=True),
)
