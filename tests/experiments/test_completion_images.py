"""Figures 18 to 30: ranks of image classifiers' layers, on data that are not the paper's."""

import dataclasses
import json

import numpy as np
import pytest

from architecture.source import ROOT
from deeplinear.datasets import cifar
from deeplinear.experiments import Context, experiment
from deeplinear.experiments.catalog.completion import Folder, _image_networks, interval, read_images, shape_averages
from deeplinear.experiments.catalog.completion._image_networks import EXPERIMENTS, images_of
from deeplinear.experiments.catalog.completion._image_protocols import departure
from deeplinear.plots import paper_style

CONVOLUTIONS = [one for one in EXPERIMENTS if one.id != "completion/fig30"]
STORED = "benchmarks/results/images-nvidia-h200.json"
PROTOCOLS = {"sgd": (0.1, 5e-4), "adam": (1e-3, 1e-5), "rmsprop": (1e-3, 1e-5)}


@pytest.mark.covers(
    "completion:fig18",
    "completion:fig19",
    "completion:fig20",
    "completion:fig21",
    "completion:fig22",
    "completion:fig23",
    "completion:fig24",
    "completion:fig25",
    "completion:fig26",
    "completion:fig27",
    "completion:fig28",
    "completion:fig29",
)
def test_presets_are_the_papers_protocol() -> None:
    found = []
    for one in CONVOLUTIONS:
        for name, data in (("paper", "cifar10"), ("cifar100", "cifar100")):
            spec = one.presets[name]
            assert (spec.data, spec.epochs, spec.batch, spec.runs, spec.width) == (data, 200, 128, 5, 64)
            assert spec.flips and spec.crop == 4 and spec.protocol().cosine and spec.protocol().momentum == 0.9
            assert (spec.lr, spec.weight_decay) == PROTOCOLS[spec.optimiser]
            assert spec.depths == {"resnet": (18, 34, 50, 101), "vgg": (11, 13, 16, 19)}[spec.family]
            found.append((spec.family, spec.optimiser, data))
        assert one.presets["large"].data == "fashion" and one.presets["quick"].data == "digits"
    assert len(set(found)) == 12
    spec = experiment("completion/fig30").presets["paper"]
    assert (spec.data, spec.depths, spec.width, spec.epochs, spec.lr) == ("cifar10", (2, 3, 5), 512, 100, 0.01)
    assert not spec.protocol().cosine


@pytest.mark.covers("completion:fig20", "completion:F35")
def test_a_convolutional_figure_in_small(tmp_path) -> None:
    figure = experiment("completion/fig20")
    spec = dataclasses.replace(figure.presets["quick"], depths=(11,), width=4, epochs=2)
    dataset = figure.run(spec, Context(scratch=tmp_path / "kept"))
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["vgg-11-1.npz", "vgg-11-2.npz"]
    again = figure.run(spec, Context(scratch=tmp_path / "kept", progress=lambda *told: pytest.fail("trained again")))
    assert dataset.identical(again)
    assert (dataset["train_accuracy"].isel(epoch=-1) > dataset["train_accuracy"].isel(epoch=0)).all()
    claims = figure.claims(dataset, spec)
    assert [claim.holds for claim in claims] == [True, None, None]  # a substitute confirms and refutes nothing
    assert "not the paper's data" in claims[1].note and "does not measure it" in claims[2].note
    means = dataset["averages"].sel(rank="effective", depth=11).mean("run")
    ratios = (dataset["averages"].sel(moment="end") / dataset["averages"].sel(moment="start")).mean("run")
    for which, head in (("all but last", "all but last"), ("hidden", "hidden layers alone")):
        assert f"{head} {float(means.sel(moment='end', average=which)):.4g}" in claims[1].note
        over = float(ratios.sel(rank="effective", depth=11, average=which))
        assert f"{over:.4g}" in claims[1].note.partition("over the value at the start")[2]
    ranks = dataset["ranks"].sel(rank="effective", moment="end", depth=11)
    assert dataset["averages"].sel(rank="effective", moment="end", average="all but last").to_numpy() == pytest.approx(
        ranks.isel(layer=slice(0, -1)).mean("layer").to_numpy()[None], rel=1e-12
    )
    with paper_style():
        assert len(figure.plot(dataset, spec).axes) == 6


@pytest.mark.covers("completion:fig30")
def test_two_starts_on_digits(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the orderings of the paper's figure, on digits; what a claim would say of the paper's own data."""
    figure = experiment("completion/fig30")
    spec = dataclasses.replace(figure.presets["quick"], depths=(2, 5), epochs=10, runs=1, seed=seed)
    dataset = figure.run(spec, Context())
    claims = figure.claims(dataset, spec)
    assert claims[0].holds and [claim.holds for claim in claims[1:]] == [None, None, None]
    assert claims[1].measured > 0 and claims[3].measured > 0  # identities end higher, and higher with depth
    same = dataset.sel(depth=2)
    np.testing.assert_array_equal(same["loss"].sel(start="gaussian"), same["loss"].sel(start="identity"))
    with paper_style():
        assert len(figure.plot(dataset, spec).axes) == 4
        shallow = figure.plot(dataset.sel(depth=[2]), dataclasses.replace(spec, depths=(2,)))  # no hidden square layer
    assert [text.get_text() for axes in shallow.axes for text in axes.texts] == ["no such layers"]
    planted = dataset.copy(deep=True)
    planted["averages"][{"start": 0}] *= 100
    on_paper = dataclasses.replace(figure.presets["paper"], depths=(2, 5))
    monkeypatch.setattr(_image_networks, "departure", lambda spec: "")
    assert [claim.holds for claim in figure.claims(planted, on_paper)][1] is False
    assert [claim.holds for claim in figure.claims(dataset, on_paper)][1] is True
    alone = dataset.sel(depth=[5]), dataclasses.replace(on_paper, depths=(5,))
    assert [claim.holds for claim in figure.claims(*alone)] == [True, True, None, None]  # one depth tells no trend


def test_only_the_papers_own_protocol_gets_a_verdict() -> None:
    """Fewer epochs, narrower layers or fewer runs on CIFAR confirm as little as other images do."""
    for one in EXPERIMENTS:
        for name, spec in one.presets.items():
            assert departure(spec) == ("" if name in ("paper", "cifar100") else "not the paper's data"), (one.id, name)
        paper = one.presets["paper"]
        assert departure(dataclasses.replace(paper, seed=3, runs=7)) == ""
        for changed in ({"epochs": 5}, {"width": 16}, {"runs": 4}, {"lr": 0.02}, {"images": 100}):
            assert departure(dataclasses.replace(paper, **changed)) == "not the paper's protocol"
    figure = experiment("completion/fig30")
    dataset, spec = read_images(json.loads((ROOT / STORED).read_text(encoding="utf-8"))["studies"][figure.id])
    told = {
        text: [claim.holds for claim in figure.claims(dataset, one)]
        for text, one in (
            ("large", spec),
            ("short", dataclasses.replace(figure.presets["paper"], epochs=30)),
            ("paper", figure.presets["paper"]),
        )
    }
    assert told == {"large": [True, None, None, None], "short": [True, None, None, None], "paper": [True] + 3 * [False]}


@pytest.mark.covers("completion:fig18", "completion:fig22", "completion:fig24", "completion:fig26")
@pytest.mark.covers("completion:fig28", "completion:fig30", "completion:E15")
@pytest.mark.parametrize("number", [18, 20, 22, 24, 26, 28, 30])
def test_the_stored_run_on_fashion_mnist(number: int) -> None:
    stored = json.loads((ROOT / STORED).read_text(encoding="utf-8"))
    figure = experiment(f"completion/fig{number}")
    dataset, spec = read_images(stored["studies"][figure.id])
    assert spec == dataclasses.replace(figure.presets["large"], runs=2 if number in (22, 26) else 3)
    claims = figure.claims(dataset, spec)
    assert claims[0].holds and all(claim.holds is None for claim in claims[1:])
    recorded = stored["studies"][figure.id]["claims"]
    words = ("statement", "expected", "verdict", "note")
    assert [[one[word] for word in words] for one in recorded] == [
        [getattr(claim, word) for word in words] for claim in claims
    ]
    assert [one["measured"] for one in recorded] == pytest.approx([float(claim.measured) for claim in claims], rel=1e-5)
    with paper_style():
        assert figure.plot(dataset, spec).axes
    if number != 30:
        averages = shape_averages(dataset)
        assert all(
            1 <= value <= min(shape) for shape, values in averages.items() for value in values[~np.isnan(values)]
        )
        # What the published average would say of depth is there before training: depths that differ are in that order.
        values = dataset["averages"].sel(rank="effective", average="all but last")
        before, (mean, half) = values.sel(moment="start").mean("run").to_numpy(), interval(values.sel(moment="end"))
        differ = [(i, j) for i in range(4) for j in range(i) if abs(mean[i] - mean[j]) > half[i] + half[j]]
        assert len(differ) >= 3 and all((mean[i] > mean[j]) == (before[i] > before[j]) for i, j in differ)
        spreads = [np.nanmax(values) / np.nanmin(values) for values in averages.values()]
        assert number in (18, 20) or max(spreads) < 1.1  # with Adam and RMSProp one shape has one rank


def test_cifar_must_be_brought_along(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.delenv("DEEPLINEAR_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"CIFAR-10 has to be brought along.*cifar-10-batches-bin"):
        images_of("cifar10")
    monkeypatch.setenv("DEEPLINEAR_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*cifar-100-binary.*cifar-100-binary.tar.gz"):
        images_of("cifar100")
    python = tmp_path / "cifar-10-batches-py"
    python.mkdir()
    (python / "batches.meta").touch()
    with pytest.raises(
        FileNotFoundError, match=r"The Python version is there, .* not read. Unpack the binary .* set DEEPLINEAR_DATA"
    ):
        images_of("cifar10")
    with pytest.raises(FileNotFoundError, match=r"The Python version is there, .* not read"):
        cifar(python)
    (tmp_path / "meta").touch()  # says nothing of the other data
    with pytest.raises(FileNotFoundError) as caught:
        images_of("cifar100")
    assert "Python version" not in str(caught.value)
    binary = tmp_path / "cifar-10-batches-bin"
    binary.mkdir()
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        (binary / name).write_bytes(bytes(3073))
    assert len(images_of("cifar10").train) == 5
    monkeypatch.setenv("DEEPLINEAR_DATA", str(binary))  # the folder itself will do
    assert len(images_of("cifar10").train) == 5


def test_fashion_mnist_may_be_brought_along(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("DEEPLINEAR_DATA", str(tmp_path))
    brought = tmp_path / "fashion-mnist"
    brought.mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no train-images-idx3-ubyte.*set DEEPLINEAR_DATA to the folder"):
        images_of("fashion")
    for part, count in (("train", 4), ("t10k", 2)):
        head = bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in (count, 28, 28))
        (brought / f"{part}-images-idx3-ubyte").write_bytes(head + bytes(count * 784))
        (brought / f"{part}-labels-idx1-ubyte").write_bytes(
            bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(count)
        )
    assert (len(images_of("fashion").train), len(images_of("fashion").test)) == (4, 2)


def test_intervals_are_students(seed: int) -> None:
    import scipy.stats
    import xarray

    values = np.random.default_rng(seed).standard_normal((5, 2))
    mean, half = interval(xarray.DataArray(values, dims=("run", "depth")))
    for column in range(2):
        low, high = scipy.stats.ttest_1samp(values[:, column], 0.0).confidence_interval(0.95)
        assert (mean[column] - half[column], mean[column] + half[column]) == pytest.approx((low, high))
    assert np.isnan(interval(xarray.DataArray(values[:1], dims=("run", "depth")))[1]).all()


def test_a_folder_of_trainings(tmp_path) -> None:
    kept = Folder(tmp_path / "a" / "b")
    assert len(kept) == 0 and "x" not in kept
    kept["x"] = {"loss": np.arange(3.0), "names": np.asarray(["one", "two"])}
    assert list(kept) == ["x"] and list(kept["x"]["names"]) == ["one", "two"]
    (tmp_path / "a/b/cut.npz").write_bytes((tmp_path / "a/b/x.npz").read_bytes()[:-30])
    (tmp_path / "a/b/empty.npz").touch()
    assert "cut" not in kept and "empty" not in kept  # damaged ones are trained again
    assert list(kept) == ["x"] and len(kept) == 1
    with pytest.raises(KeyError):
        del kept["none"]
    kept["cut"] = kept["x"]
    assert "cut" in kept
    del kept["x"]
    with pytest.raises(KeyError):
        kept["x"]
