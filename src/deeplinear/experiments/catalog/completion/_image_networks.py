"""Ranks of the layers of image classifiers against their depth, and from two starts."""

import dataclasses
import json
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import replacing
from deeplinear.datasets import cifar, clusters, digits, fashion_mnist, mnist
from deeplinear.experiments._base import Claim, Context, Experiment
from deeplinear.experiments.catalog.completion._image_pictures import (
    interval,
    plot_convolutions,
    plot_starts,
    shape_averages,
)
from deeplinear.experiments.catalog.completion._image_protocols import (
    DEPTHS,
    NAMES,
    Study,
    convolutions,
    departure,
)
from deeplinear.models import Images
from deeplinear.nonlinear import (
    AVERAGES,
    MOMENTS,
    RANKS,
    STARTS,
    ConvolutionStudy,
    ReLUStudy,
    enlarged,
    run_convolution_study,
    run_relu_study,
)
from deeplinear.readers import FileError, Source, open_arrays, read_arrays

if TYPE_CHECKING:
    import xarray

FOLDER = "DEEPLINEAR_DATA"
"""Variable of the environment that names the folder with the folders of CIFAR and of Fashion-MNIST."""

LEARNED = 0.5
"""Training accuracy that every network must reach for its ranks to mean anything."""

BROUGHT = {"cifar10": "CIFAR-10's files", "cifar100": "CIFAR-100's files", "fashion": "fashion-mnist"}
"""What that folder must contain for data that are not in a package."""


def images_of(data: str) -> Images:
    """The images of a study."""
    if data not in BROUGHT:
        return {"digits": digits, "mnist": mnist, "clusters": clusters}[data]()
    where = os.environ.get(FOLDER)
    try:
        if data == "fashion":
            own = _fashion_inside(Path(where).expanduser()) if where else None
            if own is None or own.exists():
                return fashion_mnist() if own is None else fashion_mnist(own)
            return _installed_fashion(own)
        if not where:
            raise FileNotFoundError(f"{NAMES[data]} has to be brought along, its binary or its Python version.")
        return cifar(where, {"cifar10": 10, "cifar100": 100}[data])
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error} For experiments: set {FOLDER} to the folder that contains {BROUGHT[data]}, or take the preset "
            "quick."
        ) from None


def _installed_fashion(own: Path) -> Images:
    """Debian's Fashion-MNIST, where the user's own folder has none."""
    try:
        return fashion_mnist()
    except FileNotFoundError as error:
        raise FileNotFoundError(f"There is no {own}, and {error}") from None


def _fashion_inside(folder: Path) -> Path:
    """The folder of Fashion-MNIST, whether it is in the given one or is the given one itself."""
    inside = folder / BROUGHT["fashion"]
    return folder if folder.name == inside.name and not inside.exists() else inside


class Folder(MutableMapping[str, dict[str, np.ndarray]]):
    """Trainings kept as files, so that a study goes on where it was interrupted; damaged files count as missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.npz"

    def __getitem__(self, name: str) -> dict[str, np.ndarray]:
        try:
            return read_arrays(open_arrays(Source.of(self._path(name), "Folder")))
        except FileError:  # not there, or damaged
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: dict[str, np.ndarray]) -> None:
        with replacing(self._path(name)) as part, part.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **value)

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._path(name).unlink()

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self._folder.glob("[!.]*.npz")) if path.stem in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _kept(context: Context) -> MutableMapping[str, dict[str, np.ndarray]]:
    return {} if context.scratch is None else Folder(context.scratch)


def labelled_convolution_study(found: dict[str, Any], spec: ConvolutionStudy) -> "xarray.Dataset":
    """What a study gave, with names on its axes; also for a study that was computed elsewhere.

    One that was not measured along training has the curve of its start and end.
    """
    return _labelled(found, ("depth",), {"depth": list(spec.depths)}, spec, lambda values: values)


def labelled_relu_study(found: dict[str, Any], spec: ReLUStudy) -> "xarray.Dataset":
    """What a study gave, with names on its axes; also for a study that was computed elsewhere."""

    def unpacked(values: np.ndarray) -> np.ndarray:
        return values.reshape(len(STARTS), len(spec.depths), *values.shape[1:])

    places = {"start": list(STARTS), "depth": list(spec.depths)}
    return _labelled(found, ("start", "depth"), places, spec, unpacked)


def _labelled(
    found: dict[str, Any], first: tuple[str, ...], places: dict[str, list], spec: Any, unpacked: Any
) -> "xarray.Dataset":
    import xarray

    found = {"curve": np.moveaxis(np.asarray(found["averages"]), -3, -1), "measured": [0, spec.epochs], **found}
    axes = {
        "loss": ("run", "epoch"),
        "train_accuracy": ("run", "epoch"),
        "test_accuracy": ("run", "epoch"),
        "ranks": ("run", "moment", "rank", "layer"),
        "averages": ("run", "moment", "rank", "average"),
        "curve": ("run", "rank", "average", "measured"),
        "rows": ("layer",),
        "columns": ("layer",),
    }
    return xarray.Dataset(
        {name: ((*first, *rest), unpacked(np.asarray(found[name]))) for name, rest in axes.items()},
        coords={
            **places,
            "epoch": np.arange(1, spec.epochs + 1),
            "moment": list(MOMENTS),
            "rank": list(RANKS),
            "average": list(AVERAGES),
            "measured": np.asarray(found["measured"], dtype=int),
        },
        attrs={"data": NAMES[spec.data], "layers": json.dumps(found["layers"])} | _seen(found),
    )


def _seen(found: dict[str, Any]) -> dict[str, Any]:
    """Which images a study had, if it tells."""
    if "digest" not in found:
        return {}
    train, test = found["images"]
    return {"train_images": int(train), "test_images": int(test), "digest": str(found["digest"])}


def read_images(stored: dict[str, Any]) -> tuple["xarray.Dataset", ConvolutionStudy | ReLUStudy]:
    """Data set and spec of a study kept as plain values, such as those of `benchmarks/results/images-*.json`.

    Args:
        stored: With `spec`, the fields of the study, and `found`, what it gave, null where there is nothing. A spec
            that does not say how often was measured is of a study that was measured at its start and end.
    """
    fields: dict[str, Any] = {"measured": 1, **stored["spec"]}
    fields["depths"] = tuple(fields["depths"])
    plain = ("layers", "images", "digest")
    found = {name: value if name in plain else np.asarray(value, float) for name, value in stored["found"].items()}
    found |= {name: found[name].astype(int) for name in ("rows", "columns")}
    if "family" in fields:
        study = ConvolutionStudy(**fields)
        return labelled_convolution_study(found, study), study
    other = ReLUStudy(**fields)
    return labelled_relu_study(found, other), other


def run_convolutions(spec: ConvolutionStudy, context: Context) -> "xarray.Dataset":
    """Train all depths; measure every layer before and after, and the averages in between."""
    data = enlarged(images_of(spec.data))
    found = run_convolution_study(spec, data, progress=context.progress, kept=_kept(context))
    return labelled_convolution_study(found, spec)


def run_starts(spec: ReLUStudy, context: Context) -> "xarray.Dataset":
    """Train both starts in all depths; measure every layer before and after, and the averages in between."""
    found = run_relu_study(spec, images_of(spec.data), progress=context.progress, kept=_kept(context))
    return labelled_relu_study(found, spec)


def _numbers(values: Any) -> str:
    return ", ".join("–" if np.isnan(value) else f"{value:.4g}" for value in np.asarray(values).ravel())


def _doubt(dataset: "xarray.Dataset", spec: Study) -> str:
    """What a reader of a claim must know of a study that is not the paper's own."""
    away = departure(spec, dataset.attrs)
    return f"This is {away}, so that nothing is confirmed or refuted. " if away else ""


def _verdict(dataset: "xarray.Dataset", spec: Study, measured: float, holds: bool) -> bool | None:
    """Whether a claim on ranks holds; nothing is told of a study that is not the paper's own, nor of one depth."""
    return None if departure(spec, dataset.attrs) or np.isnan(measured) else holds


def _shapes(dataset: "xarray.Dataset") -> str:
    """Averages over the layers of one shape that several depths have, at the end and at the start."""
    starts = shape_averages(dataset, moment="start")
    told = [
        f"{shape[0]} x {shape[1]}: {_numbers(ends)} (at the start {_numbers(starts[shape])})"
        for shape, ends in shape_averages(dataset).items()
        if np.sum(~np.isnan(ends)) > 1
    ]
    return f"Layers of one shape: {'; '.join(told)}." if told else ""


def claims_convolutions(dataset: "xarray.Dataset", spec: ConvolutionStudy) -> list[Claim]:
    """Whether all networks learned; whether the average falls with depth, told for the paper's own data only."""
    ends = dataset["averages"].sel(moment="end", rank="effective").mean("run")
    both = dataset["averages"].sel(rank="effective")
    ratios = (both.sel(moment="end") / both.sel(moment="start")).mean("run")
    all_but_last, hidden = (ends.sel(average=which).to_numpy() for which in AVERAGES)
    _, halves = interval(both.sel(moment="end", average="all but last"))
    parts = (
        f"By depth {', '.join(map(str, spec.depths))}: all but last {_numbers(all_but_last)} (95 % intervals ± "
        f"{_numbers(halves)}); hidden layers alone {_numbers(hidden)}; over the value at the start "
        f"{_numbers(ratios.sel(average='all but last'))} and {_numbers(ratios.sel(average='hidden'))}."
    )
    statement = "The average effective rank of all layers but the last falls as depth grows: largest rise"
    hidden_statement = "The same for the hidden layers alone, without the first: largest rise"
    rises = [float(np.max(np.diff(values))) if len(values) > 1 else float("nan") for values in (all_but_last, hidden)]
    published = [
        Claim(
            statement,
            rises[0],
            "at most 0 on CIFAR",
            _verdict(dataset, spec, rises[0], rises[0] <= 0),
            _doubt(dataset, spec) + parts,
        ),
        Claim(
            hidden_statement,
            rises[1],
            "told beside the published average",
            None,
            f"The paper does not measure it. {_shapes(dataset)}",
        ),
    ]
    return [
        Claim.at_least(
            "Every network learns: least training accuracy at the end",
            dataset["train_accuracy"].isel(epoch=-1).min(),
            LEARNED,
            f"Test accuracies, means over runs: {_numbers(dataset['test_accuracy'].isel(epoch=-1).mean('run'))}.",
        ),
        *published,
    ]


def _before_and_after(dataset: "xarray.Dataset", start: str, which: str) -> str:
    """Average stable ranks by depth after training, those before, and their ratios."""
    both = dataset["averages"].sel(start=start, rank="stable", average=which)
    before, after = both.sel(moment="start"), both.sel(moment="end")
    return (
        f"{_numbers(after.mean('run'))} (at the start {_numbers(before.mean('run'))}, ratio "
        f"{_numbers((after / before).mean('run'))})"
    )


def claims_starts(dataset: "xarray.Dataset", spec: ReLUStudy) -> list[Claim]:
    """Whether all networks learned, and the three orderings, told for the paper's own data only."""
    values = dataset["averages"].sel(moment="end", rank="stable", average="all but last").mean("run")
    gaussian, identity = (values.sel(start=start).to_numpy() for start in STARTS)
    deep = np.asarray(spec.depths) > 2
    told = [
        f"{words}: Gaussian {_before_and_after(dataset, 'gaussian', which)}, identity "
        f"{_before_and_after(dataset, 'identity', which)}."
        for words, which in (("All but the last", "all but last"), ("Hidden layers alone", "hidden"))
    ]
    parts = f"By depth ({', '.join(map(str, spec.depths))}): {' '.join(told)}"
    orderings = [
        (
            "From Gaussian layers the average stable rank ends lower than from identities: least gap, depths above 2",
            float(np.min((identity - gaussian)[deep])) if deep.any() else float("nan"),
            f"{_doubt(dataset, spec)}At depth 2 there is no hidden square layer, and the two starts are one.",
        ),
        (
            "From Gaussian layers it falls with depth: least fall",
            float(np.min(-np.diff(gaussian))) if len(gaussian) > 1 else float("nan"),
            parts,
        ),
        (
            "From identities it rises with depth: least rise",
            float(np.min(np.diff(identity))) if len(identity) > 1 else float("nan"),
            "",
        ),
    ]
    return [
        Claim.at_least(
            "Every network learns: least training accuracy at the end",
            dataset["train_accuracy"].isel(epoch=-1).min(),
            LEARNED,
            f"Training losses, means over runs: {_numbers(dataset['loss'].isel(epoch=-1).mean('run'))}.",
        ),
        *(
            Claim(statement, measured, "above 0", _verdict(dataset, spec, measured, measured > 0), note)
            for statement, measured, note in orderings
        ),
    ]


WORDS = {"sgd": "SGD with momentum", "adam": "Adam", "rmsprop": "RMSProp"}

QUICK = {"sgd": 0.05, "adam": 3e-3, "rmsprop": 1e-3}
"""Rates of the quick size."""

FIGURES = {
    ("resnet", "sgd"): (18, 19),
    ("vgg", "sgd"): (20, 21),
    ("resnet", "adam"): (22, 23),
    ("vgg", "adam"): (24, 25),
    ("resnet", "rmsprop"): (26, 27),
    ("vgg", "rmsprop"): (28, 29),
}
"""Figures on CIFAR-10 and on CIFAR-100, by family and optimiser."""

SEEN = (
    "Of a stored run, `train_images`, `test_images` and `digest` in the attributes of its arrays say which images it "
    "had. A store finds a run by its settings alone: with other files in the folder, run it with --again. A training "
    "that was kept when a run was interrupted is done again if it was on other images. Claims on ranks have a verdict "
    "only with all 50,000 and 10,000 images of CIFAR."
)
"""What ties numbers to images."""

NOTES = (
    f"The presets `paper` and `cifar100` are the paper's protocol; they need CIFAR in the folder that {FOLDER} names. "
    "`quick` trains narrow networks on scikit-learn's digits and `large` the published ones on Fashion-MNIST "
    "(Debian's package dataset-fashion-mnist) for a few epochs on a GPU: neither can confirm the paper's figure, and "
    f"claims on ranks have no verdict. {SEEN} The whole protocol is 200 epochs, five runs of four depths. An epoch of "
    "Fashion-MNIST on an H200 takes ResNet-101 13 s and VGG-11 1.2 s, and CIFAR has a tenth more pixels: at that rate "
    "ResNet-101 alone takes 4 hours, a figure of residual networks at most 16, one of VGG more than 1.4, and as much "
    "again on CIFAR-100; without a GPU it cannot be done. An average over layers of different shapes changes with the "
    "mix of shapes alone, so the hidden layers, layers of one shape, and the values before training stand beside it. "
    "Not stated in the paper and settled here: networks for 32 x 32 images (a 3 x 3 convolution at the start; one "
    "linear layer at the end of VGG; batch normalisation in both), PyTorch's starts and constants of optimisers, the "
    "momentum 0.9, penalties on all parameters, shifts by up to 4 pixels with black coming in, a rate that falls at "
    "every step, epochs of whole batches, 1 x 1 convolutions of shortcuts counted as layers, averages of ranks at the "
    "start and after every tenth epoch, ranks of all layers before and after training. Four epochs of Fashion-MNIST "
    "on an H200 are kept in `benchmarks/results/images-nvidia-h200.json`, three runs each, two for figures 22 and 26; "
    "in them the shifts came after the scaling, so that the mean colour came in and not black, and ranks were "
    "measured at the start and the end only. There the averages by depth go with the mix of shapes: wherever two "
    "depths differ by more than their 95 % intervals, their order is that from before training. Of layers of one "
    "shape, the lowest rank among the depths is less than a tenth below the highest with Adam and RMSProp; with SGD "
    "it is up to 35 per cent below, lower in ResNet-50 than in 18, 34 and 101, and the largest ones of VGG lower at "
    "depths 16 and 19 than at 11 and 13."
)


def _convolutions(family: str, optimiser: str) -> Experiment:
    ten, hundred = FIGURES[family, optimiser]
    paper = convolutions(family, optimiser)
    return Experiment(
        id=f"completion/fig{ten}",
        source=f"Figures {ten} and {hundred}",
        shows=f"Effective ranks of the layers of {'residual' if family == 'resnet' else 'VGG'} networks trained by "
        f"{WORDS[optimiser]}. The paper says, of CIFAR: their average falls as depth grows.",
        presets={
            "quick": dataclasses.replace(
                paper,
                data="digits",
                depths=DEPTHS[family][:2],
                width=8,
                lr=QUICK[optimiser],
                epochs=4,
                batch=64,
                images=640,
                flips=False,
                crop=1,
                runs=2,
                measured=4,
            ),
            "paper": paper,
            "cifar100": dataclasses.replace(paper, data="cifar100"),
            "large": dataclasses.replace(paper, data="fashion", epochs=4, runs=3),
        },
        run=run_convolutions,
        plot=plot_convolutions,
        claims=claims_convolutions,
        notes=NOTES,
        version=4,
    )


EXPERIMENTS = (
    *(_convolutions(family, optimiser) for family, optimiser in FIGURES),
    Experiment(
        id="completion/fig30",
        source="Figure 30",
        shows="Stable ranks of the layers of fully connected ReLU networks from Gaussian layers and from identities. "
        "The paper says, of CIFAR-10: they end lower from Gaussian layers; with depth they fall from Gaussian layers "
        "and rise from identities.",
        presets={
            "quick": ReLUStudy(data="digits", width=64, epochs=30, batch=64, runs=2, measured=10),
            "paper": ReLUStudy(),
            "large": ReLUStudy(data="fashion", epochs=30, runs=3),
        },
        run=run_starts,
        plot=plot_starts,
        claims=claims_starts,
        notes=f"The preset `paper` needs CIFAR-10 in the folder that {FOLDER} names; `quick` takes digits, `large` "
        f"Fashion-MNIST, and neither can confirm the figure. {SEEN} The paper does not state the deviation of Gaussian "
        "entries (here He's, √(2/fan in)), the multiple of the identity (1), the batch (128), the momentum (0.9), the "
        "number of runs (5), or when ranks are measured (at the start and after every fifth epoch). Settled here, "
        "too: layers have no biases, images are neither mirrored nor shifted, there is no penalty on weights, the "
        "rate stays as it is, and the average is over all layers but the last, as in the other figures. The value from "
        "identities at the start is the width itself, so much of the difference is there before training: the picture "
        "shows both.",
        version=3,
    ),
)
