"""Settings of a run that cannot be, as far as nothing has to be built to see it. Loads no JAX."""

import itertools
import math
from pathlib import Path

import numpy as np

from deeplinear._about import near_name
from deeplinear.cli._files import read_array, read_layers
from deeplinear.cli._limits import COUNTED, check_memory
from deeplinear.cli._options import FLOWS, PROBES, Settings
from deeplinear.cli._shell import UsageError

FIRST_LOG_TIME = 1e-4
"""First record of logarithmic spacing, as a fraction of the horizon."""

COPIES = 15
"""States of the size of the network that a run keeps: the stages of an integrator, moments of an optimiser."""

SMALLER = "smaller widths, fewer samples, points or seeds, or smaller probes"
"""How a run takes less memory."""

DETERMINISTIC = ("identity", "alpha-m", "task-aligned", "file")
"""Initialisations that are the same for every seed."""

SMALL_FILE_BYTES = 10_000_000
"""Files up to this size are read to see that they can be; larger ones are read once, when the run is built."""


def refuse(settings: Settings) -> None:
    """Raise `UsageError` for settings that contradict each other, need too much memory, or name unreadable files."""
    check_memory(numbers_of(settings), SMALLER)
    if settings["method"] not in FLOWS and (settings["horizon"] or 0) > COUNTED:
        raise UsageError(
            f"--horizon counts steps of {settings['method']} and must be at most {COUNTED}, but is "
            f"{settings['horizon']:g}."
        )
    _check_method(settings)
    _check_data(settings)
    _check_probes(settings["probes"])
    times_of(settings)
    _check_files(settings)


def _check_method(settings: Settings) -> None:
    seeds = settings["seeds"]
    if settings["method"] == "auto" and (seeds > 1 or settings["until-loss"] is not None):
        flag = "--seeds" if seeds > 1 else "--until-loss"
        raise UsageError(f"{flag} cannot be used with --method auto, which follows one run to --horizon; take flow.")
    if seeds > 1 and settings["init"] in DETERMINISTIC and settings["method"] != "sgd":
        raise UsageError(f"--seeds must be 1 with --init {settings['init']}, as all runs would be the same.")
    if settings["init"] == "file" and settings["init-file"] is None:
        raise UsageError("--init-file must be given with --init file.")


def _check_data(settings: Settings) -> None:
    """Where the task comes from: files or settings that describe one, not both."""
    given, loss = settings.given, settings["loss"]
    if loss in ("regression", "sensing") and (settings["inputs"] is not None or settings["outputs"] is not None):
        for name in ("inputs", "outputs"):
            if settings[name] is None:
                raise UsageError(f"--{name} must be given, as inputs and outputs belong together.")
        for name in ("target", "rank", "spectrum", "scale", "samples"):
            if name in given:
                raise UsageError(
                    f"--{name} describes generated data; leave it out when --inputs and --outputs are files."
                )
        return
    if settings["target"] is not None:
        for name in ("rank", "spectrum", "scale"):
            if name in given:
                raise UsageError(f"--{name} describes a generated target; leave it out when --target is a file.")
    elif settings["spectrum"] is not None:
        out, inp = settings["widths"][-1], settings["widths"][0]
        if settings["rank"] is not None:
            raise UsageError("--rank and --spectrum both fix the rank of the target; give one of them.")
        if len(settings["spectrum"]) > min(out, inp):
            raise UsageError(
                f"--spectrum must have at most {min(out, inp)} values for a matrix of shape {(out, inp)}, but has "
                f"{len(settings['spectrum'])}."
            )
    if loss == "completion" and settings["mask"] is not None and "observed" in given:
        raise UsageError("--observed describes a random mask; leave it out when --mask is a file.")


def _check_probes(names: tuple[str, ...]) -> None:
    for name in names:
        if name not in PROBES:
            raise UsageError(f"--probes: there is no probe '{name}'. {near_name(name, PROBES)}")
        if names.count(name) > 1:
            raise UsageError(f"--probes: '{name}' must be named once, but is named {names.count(name)} times.")


def _check_files(settings: Settings) -> None:
    def small(path: str | None) -> bool:
        return path is not None and not (Path(path).exists() and Path(path).stat().st_size > SMALL_FILE_BYTES)

    for name in ("target", "mask", "inputs", "outputs"):
        if small(settings[name]):
            read_array(settings[name], name)
    start = str(settings["init-file"])
    if settings["init"] == "file" and start.lower().endswith(".npz") and small(start):
        read_layers(start, "init-file")


def numbers_of(settings: Settings) -> int:
    """Floating-point numbers that the data and the states of a run hold at the same time, roughly."""
    widths = settings["widths"]
    weights, entries = sum(math.prod(pair) for pair in itertools.pairwise(widths)), widths[0] * widths[-1]
    samples = settings["samples"] or 0
    data = {"regression": samples * (widths[0] + widths[-1]), "sensing": (samples or entries) * entries}
    dense = weights**2 if settings["integrator"] in ("kvaerno5", "exponential") else 0
    return settings["seeds"] * (COPIES * weights + dense) + COPIES * entries + data.get(settings["loss"], 0)


def times_of(settings: Settings) -> np.ndarray | None:
    """Times of the records, or `None` for runs that end by a rule only."""
    horizon, points = settings["horizon"], settings["points"]
    if horizon is None:
        if settings["until-loss"] is None:
            raise UsageError("a run needs an end: give --horizon, --until-loss or both.")
        for name in ("points", "spacing"):
            if name in settings.given:
                raise UsageError(f"--{name} divides the time up to --horizon, which must be given too.")
        return None
    whole = settings["method"] not in FLOWS
    if whole and not horizon.is_integer():
        raise UsageError(f"--horizon counts steps and must be a whole number, but is {horizon:g}.")
    if settings["spacing"] == "linear":
        times = np.linspace(0.0, horizon, points)
    else:
        first = 1.0 if whole else FIRST_LOG_TIME * horizon
        times = np.concatenate([[0.0], np.geomspace(first, horizon, points - 1)])
        times[-1] = horizon
    return np.unique(np.round(times)) if whole else times
