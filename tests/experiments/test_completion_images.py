"""Figures 18 to 30: ranks of image classifiers' layers, on data that are not the paper's."""

import dataclasses
import json
import pickle

import numpy as np
import pytest

from architecture.source import ROOT
from deeplinear.experiments import Context, experiment
from deeplinear.experiments.catalog.completion import Folder, _image_networks, interval, read_images, shape_averages
from deeplinear.experiments.catalog.completion._image_networks import EXPERIMENTS, images_of
from deeplinear.experiments.catalog.completion._image_pictures import shape_ratios
from deeplinear.experiments.catalog.completion._image_protocols import departure
from deeplinear.models import Images
from deeplinear.nonlinear import ConvolutionStudy, ReLUStudy, run_relu_study
from deeplinear.plots import paper_style

CONVOLUTIONS = [one for one in EXPERIMENTS if one.id != "completion/fig30"]
STORED = "benchmarks/results/images-nvidia-h200.json"
PROTOCOLS = {"sgd": (0.1, 5e-4), "adam": (1e-3, 1e-5), "rmsprop": (1e-3, 1e-5)}
ALL = {"train_images": 50_000, "test_images": 10_000}


def small(seed: int = 0, count: int = 40, classes: int = 3) -> Images:
    """Noise around one pattern for each class."""
    rng = np.random.default_rng(seed)
    patterns, labels = rng.integers(0, 200, (classes, 4, 4, 1)), np.arange(2 * count) % classes
    pixels = (patterns[labels] + rng.integers(0, 50, (2 * count, 4, 4, 1))).astype(np.uint8)
    return Images(pixels[:count], labels[:count], pixels[count:], labels[count:], classes)


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
            assert spec.measurements == tuple(range(0, 201, 10))
            found.append((spec.family, spec.optimiser, data))
        assert one.presets["large"].data == "fashion" and one.presets["quick"].data == "digits"
    assert len(set(found)) == 12
    spec = experiment("completion/fig30").presets["paper"]
    assert (spec.data, spec.depths, spec.width, spec.epochs, spec.lr) == ("cifar10", (2, 3, 5), 512, 100, 0.01)
    assert not spec.protocol().cosine
    assert spec.measurements == tuple(range(0, 101, 5))


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
    assert dict(dataset.attrs, digest="", layers="") == {
        "data": "scikit-learn's digits",
        "layers": "",
        "train_images": 640,
        "test_images": 355,
        "digest": "",
    }
    assert dataset["measured"].to_numpy().tolist() == [0, 1, 2]
    with paper_style():
        assert len(figure.plot(dataset, spec).axes) == 8


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
        drawn = figure.plot(dataset, spec)
        assert len(drawn.axes) == 6
        each = next(axes for axes in drawn.axes if axes.get_title() == "each layer but the last; thin: at the start")
        assert len(each.lines) == 2 * 2 * 2  # starts, depths, before and after
        shallow = figure.plot(dataset.sel(depth=[2]), dataclasses.replace(spec, depths=(2,)))  # no hidden square layer
    assert [text.get_text() for axes in shallow.axes for text in axes.texts] == ["no such layers"] * 2
    planted = dataset.copy(deep=True)
    planted["averages"][{"start": 0}] *= 100
    on_paper = dataclasses.replace(figure.presets["paper"], depths=(2, 5))
    monkeypatch.setattr(_image_networks, "departure", lambda spec, told: "")
    assert [claim.holds for claim in figure.claims(planted, on_paper)][1] is False
    assert [claim.holds for claim in figure.claims(dataset, on_paper)][1] is True
    alone = dataset.sel(depth=[5]), dataclasses.replace(on_paper, depths=(5,))
    assert [claim.holds for claim in figure.claims(*alone)] == [True, True, None, None]  # one depth tells no trend


def test_only_the_papers_own_protocol_gets_a_verdict() -> None:
    """Fewer epochs, narrower layers or fewer runs on CIFAR confirm as little as other images do."""
    for one in EXPERIMENTS:
        for name, spec in one.presets.items():
            own = name in ("paper", "cifar100")
            assert departure(spec, ALL) == ("" if own else "not the paper's data"), (one.id, name)
        paper = one.presets["paper"]
        assert departure(dataclasses.replace(paper, seed=3, runs=7, measured=2), ALL) == ""
        for changed in ({"epochs": 5}, {"width": 16}, {"runs": 4}, {"lr": 0.02}, {"images": 100}):
            assert departure(dataclasses.replace(paper, **changed), ALL) == "not the paper's protocol"
        for changed in ({"train_images": 49_999}, {"test_images": 9_999}, {"train_images": 10_000}):
            assert departure(paper, {**ALL, **changed}) == "not all of the paper's images"
        assert departure(paper, {}) == "not known to be the paper's images"
    figure = experiment("completion/fig30")
    dataset, spec = read_images(json.loads((ROOT / STORED).read_text(encoding="utf-8"))["studies"][figure.id])
    dataset.attrs.update(ALL)
    told = {
        text: [claim.holds for claim in figure.claims(dataset, one)]
        for text, one in (
            ("large", spec),
            ("short", dataclasses.replace(figure.presets["paper"], epochs=30)),
            ("paper", figure.presets["paper"]),
        )
    }
    assert told == {"large": [True, None, None, None], "short": [True, None, None, None], "paper": [True] + 3 * [False]}


def planted(spec: ConvolutionStudy, averages: np.ndarray, images: tuple[int, int] | None) -> dict:
    """A study with these averages at the end, by depth, as a file would have it; at the start they are the reverse."""
    shape = (len(spec.depths), spec.runs)
    both = np.broadcast_to(np.stack([averages[::-1], averages], 1)[:, None, :, None, None], (*shape, 2, 2, 2))
    found = {
        **{name: np.ones((*shape, spec.epochs)) for name in ("loss", "train_accuracy", "test_accuracy")},
        "averages": both,
        "ranks": np.ones((*shape, 2, 2, 3)),
        "rows": np.full((shape[0], 3), 4),
        "columns": np.full((shape[0], 3), 4),
        "layers": [["a", "b", "c"]] * shape[0],
    }
    seen = {} if images is None else {"images": images, "digest": "0"}
    return {"spec": dataclasses.asdict(spec), "found": found | seen}


@pytest.mark.covers("completion:fig18", "completion:fig20", "completion:fig22", "completion:fig24")
@pytest.mark.covers("completion:fig26", "completion:fig28")
@pytest.mark.parametrize("figure", CONVOLUTIONS, ids=lambda one: one.id)
@pytest.mark.parametrize("preset", ["paper", "cifar100"])
def test_the_papers_own_data_confirm_or_refute(figure, preset: str) -> None:
    """Averages that fall confirm, ones that rise refute, and with other images than the paper's nothing is told."""
    spec = figure.presets[preset]
    falling = np.asarray([9.0, 7.0, 6.0, 5.0])
    for values, images, verdict in (
        (falling, (50_000, 10_000), True),
        (falling[::-1], (50_000, 10_000), False),
        (np.asarray([9.0, 7.0, 7.1, 5.0]), (50_000, 10_000), False),
        (falling, (10_000, 10_000), None),
        (falling, (50_000, 1_000), None),
        (falling, None, None),
    ):
        dataset, read = read_images(planted(spec, values, images))
        assert read == spec
        learned, published, beside = figure.claims(dataset, spec)
        assert (learned.holds, published.holds, beside.holds) == (True, verdict, None)
        assert published.measured == pytest.approx(np.max(np.diff(values)))
        assert ("images, so that nothing is confirmed" in published.note) == (verdict is None)


@pytest.mark.covers("completion:F36")
def test_averages_along_training() -> None:
    """A measurement in the middle of a training is the end of a shorter one, where the rate stays as it is."""
    study = ReLUStudy(data="digits", depths=(2, 3), width=6, epochs=5, batch=20, runs=2, measured=3)
    long, short = (run_relu_study(one, small()) for one in (study, dataclasses.replace(study, epochs=2)))
    assert study.measurements == (0, 2, 4, 5) == tuple(long["measured"])
    assert long["curve"].shape == (4, 2, 2, 2, 4)
    np.testing.assert_array_equal(long["curve"][..., 1], short["averages"][:, :, 1])
    for place, moment in ((0, 0), (-1, 1)):
        np.testing.assert_array_equal(long["curve"][..., place], long["averages"][:, :, moment])
    assert not np.array_equal(long["curve"][..., 2], long["curve"][..., 1])
    assert dataclasses.replace(study, measured=1).measurements == (0, 5)
    assert dataclasses.replace(study, measured=9).measurements == (0, 1, 2, 3, 4, 5)
    for kind in (ReLUStudy, ConvolutionStudy):
        with pytest.raises(ValueError, match="measured must be"):
            kind(measured=0)


@pytest.mark.covers("completion:F36")
def test_trainings_on_other_images_are_not_taken_for_these(tmp_path) -> None:
    """What was kept of other pixels, classes or tests is trained again, once."""
    study = ReLUStudy(data="digits", depths=(2,), width=6, epochs=1, batch=20, runs=2)
    first = small()
    others = {
        "pixels": small(1),
        "labels": first._replace(train_labels=np.roll(first.train_labels, 1)),
        "tests": first._replace(test=first.test[:-1], test_labels=first.test_labels[:-1]),
    }
    digests = {run_relu_study(study, one)["digest"] for one in (first, *others.values())}
    assert len(digests) == 4 and all(len(digest) == 16 for digest in digests)
    names = ("gaussian-2-1", "gaussian-2-2", "identity-2-1", "identity-2-2")
    kept = Folder(tmp_path)
    assert study.missing(first, kept) == names
    run_relu_study(study, first, kept=kept)
    assert study.missing(first, kept) == ()
    for data in others.values():
        assert study.missing(data, kept) == names
    one, heard = others["pixels"], []
    found = run_relu_study(study, one, kept=kept, progress=lambda fraction, text: heard.append(text))
    np.testing.assert_array_equal(found["loss"], run_relu_study(study, one)["loss"])
    assert len(heard) == 4 and (study.missing(one, kept), study.missing(first, kept)) == ((), names)
    cut = dict(kept["gaussian-2-1"])
    del cut["digest"]
    kept["gaussian-2-1"] = cut
    assert study.missing(one, kept) == names[:1]
    assert run_relu_study(dataclasses.replace(study, images=30), one)["images"] == [30, 40]


@pytest.mark.covers("completion:fig18", "completion:fig30")
def test_pictures_show_ranks_along_training() -> None:
    """Lines with bands where there are measurements along training, marks alone where there are only start and end."""
    study = ReLUStudy(data="digits", depths=(2, 3), width=6, epochs=4, batch=20, runs=2, measured=2)
    figure = experiment("completion/fig30")
    for spec, line in ((study, "-"), (dataclasses.replace(study, measured=1), "None")):
        dataset = _image_networks.labelled_relu_study(run_relu_study(spec, small()), spec)
        with paper_style():
            curve = figure.plot(dataset, spec).axes[1]
        assert curve.get_title() == "average stable rank, all layers but the last"
        assert len(curve.lines) >= 4 and len(curve.lines[0].get_xdata()) == len(spec.measurements)
        assert curve.lines[0].get_linestyle() == line
        wanted = dataset["curve"].sel(start="gaussian", depth=2, rank="stable", average="all but last").mean("run")
        np.testing.assert_allclose(curve.lines[0].get_ydata(), wanted)
    stored = json.loads((ROOT / STORED).read_text(encoding="utf-8"))["studies"]["completion/fig20"]
    dataset, spec = read_images(stored)
    with paper_style():
        axes = experiment("completion/fig20").plot(dataset, spec).axes
    curve = next(one for one in axes if one.get_title() == "average effective rank, all layers but the last")
    assert {one.get_linestyle() for one in curve.lines} == {"None"}
    titles = [one.get_title() for one in axes]
    assert len(set(titles)) == 8 and all(titles)


@pytest.mark.covers("completion:fig20", "completion:E15")
def test_shapes_that_change_most_come_first() -> None:
    stored = json.loads((ROOT / STORED).read_text(encoding="utf-8"))["studies"]["completion/fig20"]
    dataset, spec = read_images(stored)
    ratios = shape_ratios(dataset)
    assert next(iter(ratios)) == (64, 576) and min(map(min, ratios)) > 1
    ranks = np.asarray(stored["found"]["ranks"], dtype=float)[-1, :, :, 0]  # VGG-19: runs, moments, layers
    rows, columns = (np.asarray(stored["found"][side][-1]) for side in ("rows", "columns"))
    here = np.flatnonzero((rows == 64) & (columns == 576))
    after, before = (ranks[:, moment, here].mean() for moment in (1, 0))
    assert ratios[64, 576][-1] == pytest.approx(after / before) and after / before < 0.7
    with paper_style():
        axes = experiment("completion/fig20").plot(dataset, spec).axes[-1]
    legend = axes.get_legend()
    assert legend is not None
    words = [text.get_text() for text in legend.get_texts()]
    assert len(words) == 6 and words[0] == "64 × 576" and "1 × 576" not in words


@pytest.mark.covers("completion:fig18", "completion:fig22", "completion:fig24", "completion:fig26")
@pytest.mark.covers("completion:fig28", "completion:fig30", "completion:E15")
@pytest.mark.parametrize("number", [18, 20, 22, 24, 26, 28, 30])
def test_the_stored_run_on_fashion_mnist(number: int) -> None:
    stored = json.loads((ROOT / STORED).read_text(encoding="utf-8"))
    figure = experiment(f"completion/fig{number}")
    dataset, spec = read_images(stored["studies"][figure.id])
    assert spec == dataclasses.replace(figure.presets["large"], runs=2 if number in (22, 26) else 3, measured=1)
    assert dataset["measured"].to_numpy().tolist() == [0, spec.epochs] and "digest" not in dataset.attrs
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
        assert number != 18 or (round(100 - 100 / max(spreads)) == 35 and "35 per cent below" in figure.notes)


def test_cifar_must_be_brought_along(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.delenv("DEEPLINEAR_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"CIFAR-10 has to be brought along.*that contains CIFAR-10's files"):
        images_of("cifar10")
    monkeypatch.setenv("DEEPLINEAR_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"has no train.bin.*cifar-100-binary.tar.gz.*set DEEPLINEAR_DATA to"):
        images_of("cifar100")
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for version, ending in (("cifar-10-batches-py", ""), ("cifar-10-batches-bin", ".bin")):
        folder = tmp_path / version
        folder.mkdir()
        for name in names:
            content = {b"data": np.zeros((2, 3072), np.uint8), b"labels": [0, 1]}
            (folder / f"{name}{ending}").write_bytes(bytes(3073) if ending else pickle.dumps(content, protocol=2))
        for where in (tmp_path, folder):  # the folder itself will do
            monkeypatch.setenv("DEEPLINEAR_DATA", str(where))
            with pytest.warns(UserWarning, match="is not as published"):
                assert len(images_of("cifar10").train) == (5 if ending else 10)


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
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    for where in (str(tmp_path), str(brought), f"~/{tmp_path.name}"):
        monkeypatch.setenv("DEEPLINEAR_DATA", where)
        assert (len(images_of("fashion").train), len(images_of("fashion").test)) == (4, 2)
    monkeypatch.setenv("DEEPLINEAR_DATA", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(_image_networks.fashion_mnist, "__defaults__", (str(tmp_path / "debian"),))
    with pytest.raises(FileNotFoundError, match=r"There is no .*elsewhere/fashion-mnist, and .*debian"):
        images_of("fashion")


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
    with pytest.raises(ValueError, match="pickle"):
        kept["cut"] = {"loss": np.arange(3.0), "names": np.asarray([object()])}
    assert "cut" in kept and {file.name for file in (tmp_path / "a/b").iterdir()} == {"cut.npz", "empty.npz", "x.npz"}
    del kept["x"]
    with pytest.raises(KeyError):
        kept["x"]
