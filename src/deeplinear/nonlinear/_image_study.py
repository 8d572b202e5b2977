"""Ranks of the layers of image classifiers against their depth: the studies as plain values, and how they are run.

Images are handed in; where they come from is for others to know.
"""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, MutableMapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from deeplinear.core import check_count, check_number, entry, near_name
from deeplinear.models import Images
from deeplinear.nonlinear._classifier import Protocol, train_classifier
from deeplinear.nonlinear._convolutional import RESNET_BLOCKS, VGG_LAYERS, resnet, vgg
from deeplinear.nonlinear._relu import gaussian_relu, identity_relu
from deeplinear.nonlinear._weight_ranks import AVERAGES, RANKS, layer_tensors, weight_ranks

FAMILIES = {"resnet": RESNET_BLOCKS, "vgg": VGG_LAYERS}
"""Families of networks with the depths they come in."""

STARTS = ("gaussian", "identity")
"""Starts of fully connected networks."""

DATA = ("digits", "mnist", "fashion", "cifar10", "cifar100", "clusters")

MOMENTS = ("start", "end")
"""When the ranks of all layers are told."""

Tell = Callable[[float, str], None]
Kept = MutableMapping[str, dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class ConvolutionStudy:
    """Networks of one family in several depths, each trained several times.

    Attributes:
        data: `"cifar10"`, `"cifar100"`, `"fashion"`, `"mnist"`, `"digits"` or `"clusters"`.
        family: `"resnet"` or `"vgg"`.
        depths: Of the networks.
        width: Channels of the first stage.
        optimiser: `"sgd"`, `"adam"` or `"rmsprop"`.
        lr: Rate at the start of the half cosine.
        weight_decay: Penalty.
        epochs: Times every image is seen.
        batch: Images in a step.
        flips: Whether images are mirrored at random.
        crop: Pixels by which they are shifted at random.
        images: How many of the images for training are taken; 0 for all.
        runs: Trainings of each depth.
        measured: How often the averages of ranks are measured along a training, evenly, besides the start.
        seed: Of all randomness.
    """

    data: str = "cifar10"
    family: str = "resnet"
    depths: tuple[int, ...] = (18, 34, 50, 101)
    width: int = 64
    optimiser: str = "sgd"
    lr: float = 0.1
    weight_decay: float = 5e-4
    epochs: int = 200
    batch: int = 128
    flips: bool = True
    crop: int = 4
    images: int = 0
    runs: int = 5
    measured: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        where = "ConvolutionStudy"
        _check_names(where, data=(self.data, DATA), family=(self.family, FAMILIES))
        _check_counts(where, self, width=1, runs=1, measured=1, images=0, seed=0)
        known = FAMILIES[self.family]
        if not self.depths or list(self.depths) != sorted(set(self.depths)) or not set(self.depths) <= set(known):
            raise ValueError(
                f"{where}: depths must go up and be among {', '.join(map(str, known))} for {self.family}, but are "
                f"{self.depths}."
            )
        self.protocol()

    @property
    def trainings(self) -> dict[str, tuple[str, ...]]:
        """Names of the trainings of each network, by its name."""
        return {f"{self.family}-{depth}": _names(f"{self.family}-{depth}", self.runs) for depth in self.depths}

    @property
    def measurements(self) -> tuple[int, ...]:
        """Epochs after which the averages of ranks are measured; 0 is the start."""
        return _measurements(self.epochs, self.measured)

    def missing(self, data: Images, kept: Kept) -> tuple[str, ...]:
        """Names of the trainings on these images that are still to be done."""
        return _missing(self, data, kept)

    def protocol(self) -> Protocol:
        """How each network is trained."""
        return Protocol(
            optimiser=self.optimiser,
            lr=self.lr,
            weight_decay=self.weight_decay,
            epochs=self.epochs,
            batch=self.batch,
            flips=self.flips,
            crop=self.crop,
        )


@dataclasses.dataclass(frozen=True)
class ReLUStudy:
    r"""Fully connected networks in several depths from Gaussian and from identity-based layers.

    Attributes:
        data: As for `ConvolutionStudy`.
        depths: Numbers of layers.
        width: Of the hidden layers.
        scale: Gaussian entries have variance scale²/fan in.
        identity: Hidden layers of the other start are this multiple of the identity.
        lr: Rate, which stays as it is.
        momentum: Of SGD.
        epochs: Times every image is seen.
        batch: Images in a step.
        images: How many of the images for training are taken; 0 for all.
        runs: Trainings of each depth and start.
        measured: As for `ConvolutionStudy`.
        seed: Of all randomness.
    """

    data: str = "cifar10"
    depths: tuple[int, ...] = (2, 3, 5)
    width: int = 512
    scale: float = 2**0.5
    identity: float = 1.0
    lr: float = 0.01
    momentum: float = 0.9
    epochs: int = 100
    batch: int = 128
    images: int = 0
    runs: int = 5
    measured: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        where = "ReLUStudy"
        _check_names(where, data=(self.data, DATA))
        _check_counts(where, self, width=1, runs=1, measured=1, images=0, seed=0)
        for name in ("scale", "identity"):
            check_number(where, name, getattr(self, name), above=0)
        if not self.depths or list(self.depths) != sorted(set(self.depths)) or self.depths[0] < 2:
            raise ValueError(f"{where}: depths must go up from 2 or more, but are {self.depths}.")
        self.protocol()

    @property
    def trainings(self) -> dict[str, tuple[str, ...]]:
        """Names of the trainings of each network, by its name; networks from Gaussian layers stand first."""
        names = [f"{start}-{depth}" for start in STARTS for depth in self.depths]
        return {name: _names(name, self.runs) for name in names}

    @property
    def measurements(self) -> tuple[int, ...]:
        """Epochs after which the averages of ranks are measured; 0 is the start."""
        return _measurements(self.epochs, self.measured)

    def missing(self, data: Images, kept: Kept) -> tuple[str, ...]:
        """Names of the trainings on these images that are still to be done."""
        return _missing(self, data, kept)

    def protocol(self) -> Protocol:
        """How each network is trained: plain SGD with momentum on the images as they are."""
        return Protocol(
            optimiser="sgd",
            lr=self.lr,
            weight_decay=0.0,
            momentum=self.momentum,
            epochs=self.epochs,
            batch=self.batch,
            cosine=False,
            flips=False,
            crop=0,
        )


def _names(network: str, runs: int) -> tuple[str, ...]:
    return tuple(f"{network}-{run + 1}" for run in range(runs))


def _measurements(epochs: int, measured: int) -> tuple[int, ...]:
    """Every so many epochs, as often as wanted or less, and the last one."""
    return (*range(0, epochs, -(-epochs // measured)), epochs)


def _missing(study: "ConvolutionStudy | ReLUStudy", data: Images, kept: Kept) -> tuple[str, ...]:
    digest = _digest(_taken(study, data))
    labels = [label for labels in study.trainings.values() for label in labels]
    return tuple(label for label in labels if _kept_training(kept, label, digest) is None)


def _taken(study: "ConvolutionStudy | ReLUStudy", data: Images) -> Images:
    """The images that a study takes of those it is given."""
    if study.images > len(data.train):
        raise ValueError(
            f"{type(study).__name__}: images must be at most {len(data.train)}, which the data have, but is "
            f"{study.images}; take 0 for all."
        )
    if not study.images:
        return data
    return data._replace(train=data.train[: study.images], train_labels=data.train_labels[: study.images])


def _digest(data: Images) -> str:
    """The first 16 digits of SHA-256 over shapes, pixels and classes: which images a number comes from."""
    found = hashlib.sha256(str(data.classes).encode())
    for part in (data.train, data.train_labels, data.test, data.test_labels):
        values = np.ascontiguousarray(part, dtype=np.uint8 if part.dtype == np.uint8 else "<i8")
        found.update(f"{values.shape}{values.dtype.str}".encode())
        found.update(values.data)
    return found.hexdigest()[:16]


def _kept_training(kept: Kept, label: str, digest: str) -> dict[str, np.ndarray] | None:
    """The training of that name if it is kept and was on the images of the digest."""
    found = kept.get(label)
    return found if found is not None and str(found.get("digest", "")) == digest else None


def run_convolution_study(
    study: ConvolutionStudy, data: Images, *, progress: Tell | None = None, kept: Kept | None = None
) -> dict[str, Any]:
    """Train every depth as often as the study says, and measure the ranks of all layers before and after.

    Args:
        study: What to do.
        data: Images; tiny ones as `enlarged` makes them.
        progress: Called after each epoch with the fraction done and a few words; may raise to stop.
        kept: Trainings that are done, by name; those found there are not done again, unless they were on other images.
            Others are put there.

    Returns:
        By name: `loss`, `train_accuracy`, `test_accuracy` (depths, runs, epochs); `ranks` (depths, runs, moments,
        kinds of rank, layers), NaN beyond the layers of a depth; `averages` (depths, runs, moments, kinds of rank,
        averages); `curve` (depths, runs, kinds of rank, averages, measurements), the averages along training, and
        `measured`, after how many epochs; `rows` and `columns` (depths, layers) of the measured matrices, 0 beyond;
        `layers`, their names by depth; `images`, how many were for training and for testing, and `digest`, a word that
        tells them from others. Moments are `MOMENTS`, kinds of rank `RANKS`, averages `AVERAGES`.
    """
    make = {"resnet": resnet, "vgg": vgg}[study.family]

    def build(depth: int, key: jax.Array) -> tuple[Any, Any]:
        channels = data.train.shape[-1]
        return make(key, depth, classes=data.classes, channels=channels, width=study.width, dtype=jnp.float32)

    return _trained(study, [functools.partial(build, depth) for depth in study.depths], data, progress, kept)


def run_relu_study(
    study: ReLUStudy, data: Images, *, progress: Tell | None = None, kept: Kept | None = None
) -> dict[str, Any]:
    """Train both starts in every depth, and measure the ranks of all layers before and after.

    Args:
        study: What to do.
        data: Images.
        progress: Called after each epoch with the fraction done and a few words; may raise to stop.
        kept: As for `run_convolution_study`.

    Returns:
        As `run_convolution_study`; the first axis runs over starts (Gaussian, then identity) and, for each, depths.
    """
    inputs = int(np.prod(data.train.shape[1:]))

    def build(start: str, depth: int, key: jax.Array) -> tuple[Any, None]:
        widths = (inputs, *([study.width] * (depth - 1)), data.classes)
        if start == "gaussian":
            return gaussian_relu(key, widths, scale=study.scale, dtype=jnp.float32), None
        return identity_relu(key, widths, identity=study.identity, scale=study.scale, dtype=jnp.float32), None

    starts = [functools.partial(build, start, depth) for start in STARTS for depth in study.depths]
    return _trained(study, starts, data, progress, kept)


def _trained(
    study: ConvolutionStudy | ReLUStudy,
    builders: list[Callable[[jax.Array], tuple[Any, Any]]],
    data: Images,
    progress: Tell | None,
    kept: Kept | None,
) -> dict[str, Any]:
    """Every member as often as the study says. A run has the same images in the same order for every member."""
    data = _taken(study, data)
    digest = _digest(data)
    kept = {} if kept is None else kept
    found: dict[str, dict[str, np.ndarray]] = {}
    trainings = study.trainings.values()
    total, done = len(trainings) * study.runs * study.epochs, 0
    for labels, build in zip(trainings, builders, strict=True):
        start = eqx.filter_jit(build)
        for run, label in enumerate(labels):
            there = _kept_training(kept, label, digest)
            if there is None:

                def tell(epoch: int, loss: float, done: int = done, label: str = label) -> None:
                    if progress is not None:
                        progress((done + epoch) / total, f"{label}, epoch {epoch}: loss {loss:.3g}")

                there = _member(study, start, data, run, tell) | {"digest": np.asarray(digest)}
                kept[label] = there
            found[label] = there
            done += study.epochs
    told = {"measured": np.asarray(study.measurements), "images": [len(data.train), len(data.test)], "digest": digest}
    return _together([[found[label] for label in labels] for labels in trainings]) | told


def _member(
    study: ConvolutionStudy | ReLUStudy,
    start: Callable[[jax.Array], tuple[Any, Any]],
    data: Images,
    run: int,
    tell: Callable[[int, float], None],
) -> dict[str, np.ndarray]:
    """One training: its curves, ranks (moments, kinds, layers), their averages, shapes and names of the layers.

    Of the measurements between start and end only the averages are kept.
    """
    key_start, key_order = jax.random.split(jax.random.fold_in(jax.random.key(study.seed), run))
    network, state = start(key_start)
    measured = {0: weight_ranks(layer_tensors(network))}

    def observe(epoch: int, network: Any) -> None:
        if epoch in study.measurements:
            measured[epoch] = weight_ranks(layer_tensors(network))

    training = train_classifier(network, state, data, study.protocol(), key_order, observe=observe, progress=tell)
    both = measured[0], measured[study.epochs]
    along = measured.values()
    return {
        "loss": training.loss,
        "train_accuracy": training.train_accuracy,
        "test_accuracy": training.test_accuracy,
        "ranks": np.asarray([[[getattr(layer, kind) for layer in one.layers] for kind in RANKS] for one in both]),
        "averages": np.asarray([[[one.average(which, kind) for which in AVERAGES] for kind in RANKS] for one in both]),
        "curve": np.asarray([[[one.average(which, kind) for one in along] for which in AVERAGES] for kind in RANKS]),
        "shapes": np.asarray([layer.shape for layer in both[0].layers]),
        "names": np.asarray([layer.name for layer in both[0].layers]),
    }


def _together(found: list[list[dict[str, np.ndarray]]]) -> dict[str, Any]:
    """The trainings as arrays, padded where networks have different numbers of layers."""
    shapes = [runs[0]["shapes"] for runs in found]
    most = max(map(len, shapes))

    def padded(values: np.ndarray, fill: float) -> np.ndarray:
        gap = [(0, 0)] * (values.ndim - 1) + [(0, most - values.shape[-1])]
        return np.pad(values, gap, constant_values=fill)

    return {
        **{
            name: np.asarray([[one[name] for one in runs] for runs in found])
            for name in ("loss", "train_accuracy", "test_accuracy", "averages", "curve")
        },
        "ranks": np.asarray([[padded(one["ranks"], np.nan) for one in runs] for runs in found]),
        "rows": np.asarray([padded(shape[:, 0], 0) for shape in shapes]),
        "columns": np.asarray([padded(shape[:, 1], 0) for shape in shapes]),
        "layers": [[str(name) for name in runs[0]["names"]] for runs in found],
    }


@entry(instead="use jax.numpy.repeat")
def enlarged(data: Images, least: int = 16) -> Images:
    """Tiny images for networks that halve them four times: each pixel repeated until a side has `least` or more.

    Args:
        data: Images.
        least: Wanted side.

    Example:
        >>> tiny = np.zeros((4, 8, 8, 1), np.uint8)
        >>> enlarged(Images(tiny, np.zeros(4, int), tiny, np.zeros(4, int), 10)).train.shape
        (4, 16, 16, 1)
    """
    factor = -(-least // min(data.train.shape[1:3]))
    return data._replace(
        train=data.train.repeat(factor, axis=1).repeat(factor, axis=2),
        test=data.test.repeat(factor, axis=1).repeat(factor, axis=2),
    )


def _check_names(where: str, **named: tuple[str, Any]) -> None:
    for name, (value, options) in named.items():
        if value not in options:
            raise ValueError(f"{where}: {name} is '{value}'. {near_name(value, options)}")


def _check_counts(where: str, study: Any, **least: int) -> None:
    for name, bound in least.items():
        check_count(where, name, getattr(study, name), at_least=bound)
