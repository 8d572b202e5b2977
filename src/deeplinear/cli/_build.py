"""From settings to the objects of a run: problem, start, method, probes, times. Imported by commands when they run."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.cli._files import read_array, read_layers
from deeplinear.cli._limits import check_memory
from deeplinear.cli._options import Settings
from deeplinear.cli._refusals import SMALLER, numbers_of, refuse, times_of
from deeplinear.cli._shell import UsageError
from deeplinear.core import (
    AbstractIntegrator,
    Exponential,
    Params,
    Stabilised,
    Trajectory,
    check_finite,
    check_shape,
    dopri8,
    kvaerno5,
    random,
    tsit5,
)
from deeplinear.dynamics import (
    AbstractMethod,
    Adagrad,
    Adam,
    GradientDescent,
    GradientFlow,
    Minibatch,
    Momentum,
    RMSProp,
    Until,
    until,
)
from deeplinear.models import (
    AbstractInit,
    AbstractLoss,
    AlphaM,
    Completion,
    DeepLinear,
    Explicit,
    Gaussian,
    Glorot,
    He,
    LambdaBalanced,
    LeCun,
    MatchedGaussian,
    Orthogonal,
    Problem,
    Regression,
    SampleRegression,
    ScaledIdentity,
    Sensing,
    SquaredDistance,
    TaskAligned,
    low_rank_target,
    random_mask,
    spectral_target,
    whiten,
)
from deeplinear.probes import (
    AbstractProbe,
    Conserved,
    Drift,
    FunctionProbe,
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
from deeplinear.readers import FileError

WINDOW = 64
"""Records of one member that are computed at once."""

INTEGRATOR: Mapping[str, Callable[[], AbstractIntegrator] | None] = {
    "auto": None,
    "tsit5": tsit5,
    "dopri8": dopri8,
    "kvaerno5": kvaerno5,
    "stabilised": Stabilised,
    "exponential": Exponential,
}
"""Integrators by name; `None` is the automatic choice."""

METHOD: Mapping[str, Callable[[Settings], AbstractMethod]] = {
    "flow": lambda s: GradientFlow(s["rtol"], s["atol"], _integrator(s["integrator"])),
    "auto": lambda s: GradientFlow(s["rtol"], s["atol"], _integrator(s["integrator"])),
    "gd": lambda s: GradientDescent(s["lr"] or 0.01),
    "momentum": lambda s: Momentum(s["lr"] or 0.01),
    "adam": lambda s: Adam(s["lr"] or 0.001),
    "rmsprop": lambda s: RMSProp(s["lr"] or 0.01),
    "adagrad": lambda s: Adagrad(s["lr"] or 0.01),
    "sgd": lambda s: Minibatch(GradientDescent(s["lr"] or 0.01), s["batch"]),
}
"""Methods by name."""

INIT: Mapping[str, Callable[[Settings, "Data"], AbstractInit]] = {
    "gaussian": lambda s, d: Gaussian(s["init-scale"]),
    "matched": lambda s, d: MatchedGaussian(s["init-scale"]),
    "lecun": lambda s, d: LeCun(),
    "he": lambda s, d: He(),
    "glorot": lambda s, d: Glorot(),
    "orthogonal": lambda s, d: Orthogonal(s["init-scale"]),
    "identity": lambda s, d: ScaledIdentity(s["init-scale"]),
    "alpha-m": lambda s, d: AlphaM(s["init-scale"], s["m"]),
    "balanced": lambda s, d: LambdaBalanced(0.0, s["init-scale"]),
    "lambda-balanced": lambda s, d: LambdaBalanced(s["lam"], s["init-scale"]),
    "task-aligned": lambda s, d: TaskAligned(d.needed_target("--init task-aligned"), s["init-scale"], s["lam"]),
    "file": lambda s, d: Explicit(_layers(s)),
}
"""Initialisations by name."""

_PLAIN = (
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


@dataclass(frozen=True)
class Data:
    """What probes and initialisations may refer to besides the problem."""

    target: np.ndarray | None
    mask: np.ndarray | None
    starts: tuple[Params, ...] = ()

    def needed_target(self, where: str) -> np.ndarray:
        if self.target is None:
            raise UsageError(f"{where} needs a target matrix, but the data come from --inputs and --outputs.")
        return self.target

    def needed_mask(self, where: str) -> np.ndarray:
        if self.mask is None:
            raise UsageError(f"{where} needs entries that are not observed; take --loss completion.")
        return self.mask

    def needed_start(self, where: str) -> Params:
        if len(self.starts) != 1:
            raise UsageError(f"{where} compares with the start of one run, so it cannot be used with --seeds.")
        return self.starts[0]


PROBES: Mapping[str, Callable[[Data], list[AbstractProbe]]] = {
    **{item.name: lambda d, item=item: [item] for item in _PLAIN if isinstance(item, FunctionProbe)},
    "layer_singular_values": lambda d: [LayerSingularValues(i + 1) for i in range(len(d.starts[0]))],
    "conserved": lambda d: [Conserved(i) for i in range(1, len(d.starts[0]))],
    "drift": lambda d: [Drift(d.needed_start("probe drift"))],
    "kernel_distance": lambda d: [KernelDistance(d.needed_start("probe kernel_distance"))],
    "kernel_movement": lambda d: [KernelMovement(d.needed_start("probe kernel_movement"))],
    "left_alignment": lambda d: [LeftAlignment(d.needed_target("probe left_alignment"))],
    "right_alignment": lambda d: [RightAlignment(d.needed_target("probe right_alignment"))],
    "mode_strengths": lambda d: [ModeStrengths(d.needed_target("probe mode_strengths"))],
    "reconstruction_error": lambda d: [ReconstructionError(d.needed_target("probe reconstruction_error"))],
    "held_out_error": lambda d: [
        HeldOutError(d.needed_target("probe held_out_error"), d.needed_mask("probe held_out_error"))
    ],
}
"""Probes by name; some names stand for one probe per layer."""


@dataclass(frozen=True)
class Run:
    """All arguments of a run."""

    problem: Problem
    starts: tuple[Params, ...]
    method: AbstractMethod
    probes: tuple[AbstractProbe, ...]
    rules: tuple[Until, ...]
    times: np.ndarray | None
    key: Any
    exact_first: bool = False


def build(settings: Settings) -> Run:
    """The objects of a run, or `UsageError` with the reason in one sentence."""
    refuse(settings)
    try:
        return _build(settings)
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None


def _build(settings: Settings) -> Run:
    key_problem, key_start, key_run = random.split(random.key(settings["seed"]), 3)
    model = DeepLinear(settings["widths"])
    energy, data = _loss(settings, key_problem)
    problem = Problem(model, energy, settings["l2"])
    method = METHOD[settings["method"]](settings)
    if isinstance(method, Minibatch):
        method.check(problem)
    seeds = settings["seeds"]
    init = INIT[settings["init"]](settings, data)
    starts = tuple(init(model, random.fold_in(key_start, i)) for i in range(seeds))
    problem.check(starts[0], "--init")
    probes = _probes(settings["probes"], Data(data.target, data.mask, starts))
    # Refuses now what would otherwise fail while the run is compiled.
    shapes = [jax.eval_shape(lambda p, probe=probe: probe(jnp.zeros(()), p, problem), starts[0]) for probe in probes]
    rules = () if settings["until-loss"] is None else (until(loss, below=settings["until-loss"]),)
    times = times_of(settings)
    records = seeds * (WINDOW + (0 if times is None else len(times)))
    check_memory(numbers_of(settings) + records * sum(math.prod(shape.shape) for shape in shapes), SMALLER)
    return Run(problem, starts, method, probes, rules, times, key_run, settings["method"] == "auto")


def _integrator(name: str) -> AbstractIntegrator | None:
    make = INTEGRATOR[name]
    return None if make is None else make()


def _layers(settings: Settings) -> tuple[np.ndarray, ...]:
    path = settings["init-file"]
    if Path(path).suffix.lower() not in (".nc", ".npz"):
        raise UsageError(f"--init-file: file must end in .npz or .nc, but is {path}.")
    if Path(path).suffix.lower() == ".npz":
        return read_layers(path, "init-file")
    try:
        trajectory = Trajectory.load(path)
    except FileError as error:
        raise error.seen_by("--init-file") from None
    if trajectory.is_ensemble:
        raise UsageError(f"--init-file: {path} must be a single run, but is an ensemble.")
    return trajectory.params


def _target(settings: Settings, key: Any) -> np.ndarray:
    """The target matrix, from its file or made from the seed."""
    widths = settings["widths"]
    out, inp = widths[-1], widths[0]
    if settings["target"] is not None:
        target = read_array(settings["target"], "target")
        check_shape("--target", "the matrix", target, (out, inp))
        return target
    values = settings["spectrum"]
    if values is None:
        rank = min(widths) if settings["rank"] is None else settings["rank"]
        return np.asarray(low_rank_target(key, (out, inp), rank, std=settings["scale"]))
    return settings["scale"] * np.asarray(spectral_target(key, (out, inp), values))


def _loss(settings: Settings, key: Any) -> tuple[AbstractLoss, Data]:
    """The loss, with the target and mask it is made from."""
    kind = settings["loss"]
    key_target, key_data = random.split(key)
    if kind in ("regression", "sensing") and (settings["inputs"] is not None or settings["outputs"] is not None):
        return _given(settings, kind), Data(None, None)
    target = _target(settings, key_target)
    out, inp = target.shape
    if kind != "completion":  # A target of completion may be NaN where it is not observed.
        check_finite("--target", "the matrix", target)
    if kind == "squared":
        return SquaredDistance(target), Data(target, None)
    if kind == "completion":
        mask = _mask(settings, key_data, (out, inp))
        return Completion(target, mask), Data(target, mask)
    if kind == "regression":
        samples = settings["samples"] or 10 * inp
        inputs = random.normal(key_data, (inp, samples))
        if settings["whiten"]:
            inputs = whiten(inputs)
        return _regression(settings, inputs, target @ inputs), Data(target, None)
    matrices = random.normal(key_data, (settings["samples"] or out * inp, out, inp))
    return Sensing(matrices, jnp.einsum("kij,ij->k", matrices, target)), Data(target, None)


def _given(settings: Settings, kind: str) -> AbstractLoss:
    """A loss of data from files."""
    inputs, outputs = (read_array(settings[name], name) for name in ("inputs", "outputs"))
    if kind == "sensing":
        return Sensing(inputs, np.ravel(outputs))
    return _regression(settings, whiten(inputs) if settings["whiten"] else inputs, outputs)


def _regression(settings: Settings, inputs: Any, outputs: Any) -> AbstractLoss:
    if settings["method"] == "sgd":
        return SampleRegression(inputs, outputs)
    return Regression.from_data(inputs, outputs)


def _mask(settings: Settings, key: Any, shape: tuple[int, int]) -> np.ndarray:
    if settings["mask"] is None:
        observed = max(1, round(settings["observed"] * shape[0] * shape[1]))
        return np.asarray(random_mask(key, shape, observed))
    mask = read_array(settings["mask"], "mask")
    check_shape("--mask", "the matrix", mask, shape)
    return mask


def _probes(names: tuple[str, ...], data: Data) -> tuple[AbstractProbe, ...]:
    found: list[AbstractProbe] = []
    for name in names:
        found += PROBES[name](data)
    return tuple(found)
