"""`dln ranks`: soft ranks of the layers of a saved network."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from deeplinear.cli._main import app
from deeplinear.diagnosis import load_tensors

RUNNER = CliRunner()


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Path]:
    """A small convolutional network before and after training; in the second every kernel has lost half its rank."""
    rng = np.random.default_rng(0)
    first = {
        "fc.weight": rng.standard_normal((5, 8)),
        "conv1.weight": rng.standard_normal((8, 4, 3, 3)),
        "norm.weight": np.ones(8),
        "conv2.weight": rng.standard_normal((8, 8, 3, 3)),
    }
    second = dict(first)
    for name in ("conv1.weight", "conv2.weight"):
        matrix = first[name].transpose(1, 0, 2, 3).reshape(first[name].shape[1], -1)
        u, s, v = np.linalg.svd(matrix, full_matrices=False)
        s[len(s) // 2 :] = 0
        low = (u * s) @ v
        second[name] = low.reshape(first[name].shape[1], 8, 3, 3).transpose(1, 0, 2, 3)
    paths = tmp_path / "before.npz", tmp_path / "after.npz"
    np.savez(paths[0], **first)
    np.savez(paths[1], **second)
    return paths


@pytest.mark.covers("completion:F35")
def test_layers_and_averages(saved: tuple[Path, Path]) -> None:
    before, after = map(str, saved)
    found = RUNNER.invoke(app, ["ranks", after, "--initial", before, "--last", "fc.weight", "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert [layer["name"] for layer in told["layers"]] == ["conv1.weight", "conv2.weight", "fc.weight"]
    assert [layer["shape"] for layer in told["layers"]] == [[4, 72], [8, 72], [5, 8]]
    ranks = [layer["effective"] for layer in told["layers"]]
    assert 1.9 < ranks[0] <= 2 and 3.8 < ranks[1] <= 4  # what is left of them
    averages = {one["over"]: one for one in told["averages"]}
    assert list(averages) == ["all but last", "hidden", "layers 4 x 72", "layers 8 x 72"]
    assert averages["all but last"]["effective"] == pytest.approx(np.mean(ranks[:2]))
    assert averages["hidden"]["effective"] == averages["layers 8 x 72"]["effective"] == pytest.approx(ranks[1])
    assert told["layers"][1]["initial_effective"] == averages["layers 8 x 72"]["initial_effective"] > 7
    for one in (*told["layers"], *told["averages"]):
        for rank in ("effective", "stable"):
            assert one[f"{rank}_over_initial"] == pytest.approx(one[rank] / one[f"initial_{rank}"], rel=1e-12)
    assert told["layers"][2]["stable_over_initial"] == 1.0
    table = RUNNER.invoke(app, ["ranks", after, "--initial", before])
    assert table.exit_code == 0 and "all but last" in table.stdout and "conv2.weight" in table.stdout
    assert "The first layer is taken to be fc.weight, the last conv2.weight" in table.stderr
    assert f"{averages['hidden']['effective_over_initial']:.3f}" in table.stdout


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("more", [[], ["--initial"]])
def test_averages_over_no_layer(layers: int, more: list[str], tmp_path: Path) -> None:
    path = str(tmp_path / "small.npz")
    np.savez(path, **{f"w{number}": np.eye(3) + np.ones((3, 3)) for number in range(layers)})
    given = ["ranks", path, *(part for one in more for part in (one, path))]
    found = RUNNER.invoke(app, [*given, "--json"])
    assert found.exit_code == 0, found.output
    averages = {one["over"]: one for one in json.loads(found.stdout)["averages"]}
    assert averages["hidden"]["effective"] is None
    assert (averages["all but last"]["stable"] is None) == (layers == 1)
    table = RUNNER.invoke(app, given)
    assert table.exit_code == 0 and "nan" not in table.stdout and "–" in table.stdout


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> str:
    """The arrays in the order in which they are given."""
    header, body = {}, b""
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values, "<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": values.shape, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    head = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + body)
    return str(path)


@pytest.mark.covers("completion:F35")
def test_layers_of_a_file_with_sorted_names(tmp_path: Path) -> None:
    """Numbers in names are taken by value where a file has its names sorted, and the ends are told."""
    acting = ["features.0.weight", "features.3.weight", "features.10.weight", "classifier.weight"]
    tensors = {name: np.eye(size) + 1 for name, size in zip(acting, (3, 4, 5, 6), strict=True)}
    path = write_safetensors(tmp_path / "w.safetensors", {name: tensors[name] for name in sorted(acting)})
    arguments = ["ranks", path, "--last", "classifier.weight"]
    told = json.loads(RUNNER.invoke(app, [*arguments, "--json"]).stdout)
    assert [layer["name"] for layer in told["layers"]] == acting
    assert (told["first"], told["last"]) == (acting[0], acting[-1])
    assert [one["over"] for one in told["averages"]][2:] == ["layers 3 x 3", "layers 4 x 4", "layers 5 x 5"]
    table = RUNNER.invoke(app, arguments)
    words = " ".join(table.stdout.split())
    assert "Averages, with features.0.weight as the first layer and classifier.weight as the last" in words
    assert "The first layer is taken to be features.0.weight, the last classifier.weight (--first" in table.stderr
    alone = json.loads(RUNNER.invoke(app, ["ranks", path, "--json"]).stdout)
    assert [layer["name"] for layer in alone["layers"]] == [acting[-1], *acting[:-1]]
    assert (alone["first"], alone["last"]) == (acting[-1], acting[-2])
    written = write_safetensors(tmp_path / "o.safetensors", {name: tensors[name] for name in acting[::-1]})
    kept = json.loads(RUNNER.invoke(app, ["ranks", written, "--json"]).stdout)  # not sorted: an order of its own
    assert [layer["name"] for layer in kept["layers"]] == acting[::-1]
    np.savez(tmp_path / "w.npz", **{name: tensors[name] for name in sorted(acting)})
    archive = json.loads(RUNNER.invoke(app, ["ranks", str(tmp_path / "w.npz"), "--json"]).stdout)
    assert [layer["name"] for layer in archive["layers"]] == sorted(acting)


@pytest.mark.covers("completion:F35")
def test_layers_are_chosen_and_ordered_by_name(tmp_path: Path) -> None:
    """Positions and a layer of zeros are left out, the stem is called the first, a start is compared by name."""
    rng = np.random.default_rng(3)
    sizes = {"blocks.0": (4, 6), "blocks.1": (4, 4), "head": (2, 4), "stem": (6, 3)}
    tensors = {name: rng.standard_normal(size) for name, size in sizes.items()}
    extra = {"positions": np.arange(12)[None], "zero": np.zeros((2, 2)), "mask": np.ones((2, 2), bool)}
    path, start = tmp_path / "w.npz", tmp_path / "s.npz"
    np.savez(path, **tensors, **extra)
    np.savez(start, **{name: 1e-310 * tensors[name] for name in sorted(tensors, reverse=True)}, **extra)
    skipped = ["--skip", "positions", "--skip", "zero", "--skip", "mask"]
    ends = ["--first", "stem", "--last", "head"]
    found = RUNNER.invoke(app, ["ranks", str(path), *skipped, *ends, "--initial", str(start), "--json"])
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert [layer["name"] for layer in told["layers"]] == ["stem", "blocks.0", "blocks.1", "head"]
    hidden = [layer["effective"] for layer in told["layers"][1:3]]
    averages = {one["over"]: one for one in told["averages"]}
    assert averages["hidden"]["effective"] == pytest.approx(np.mean(hidden))
    for one in (*told["layers"], *told["averages"]):  # tiny numbers have the ranks of their multiples
        assert one["effective_over_initial"] == pytest.approx(1, rel=1e-9)
    sorted_names = write_safetensors(tmp_path / "w.safetensors", tensors)
    other = json.loads(RUNNER.invoke(app, ["ranks", sorted_names, *ends, "--json"]).stdout)
    assert [layer["name"] for layer in other["layers"]] == ["stem", "blocks.0", "blocks.1", "head"]
    for left in (skipped[2:], skipped[:2] + skipped[4:], skipped[:4]):
        refused = RUNNER.invoke(app, ["ranks", str(path), *left])
        if "positions" in left:
            assert refused.exit_code == 2 and "--skip NAME" in refused.stderr, refused.output
        else:
            assert "positions" in refused.stdout  # whole numbers may be weights: measured, and named in the table


def test_refusals(saved: tuple[Path, Path], tmp_path: Path) -> None:
    before, after = map(str, saved)
    other = tmp_path / "other.npz"
    np.savez(other, **{"conv1.weight": np.ones((2, 2))})
    for arguments, words in (
        (["missing.npz"], "cannot read missing.npz: no such file"),
        ([after, "--last", "head"], "last must name a layer, but is 'head'"),
        ([after, "--layout", "IOHW"], "layout must be one of OIHW, HWIO"),
        (
            [after, "--initial", str(other)],
            "lacks fc.weight, conv2.weight; its conv1.weight is 2 x 2 instead",
        ),
        ([str(other), "--initial", before], "has fc.weight, conv2.weight besides; its conv1.weight is 4 x 72 instead"),
        ([after, "--first", "stem"], "first must name a layer, but is 'stem'"),
        ([after, "--first", "fc.weight", "--last", "fc.weight"], "must be two layers, but both are 'fc.weight'"),
        ([after, "--skip", "conv3.weight"], "skip must name arrays, but 'conv3.weight' is none"),
        ([after, "--prefix", "decoder"], "prefix must begin the name of an array"),
    ):
        found = RUNNER.invoke(app, ["ranks", *arguments])
        assert found.exit_code == 2 and words in found.stderr, found.output
    assert list(load_tensors(before, prefix="conv")) == ["conv1.weight", "conv2.weight"]
