"""Weights from files, state dicts and modules: what is read is what was written, and what does not fit is named."""

import json
import struct
import sys
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pytest

from deeplinear.diagnosis import Weights, attention_pair, load_weights, lora_pair
from deeplinear.readers import StoredArray

RNG = np.random.default_rng(0)
FIRST, SECOND = RNG.normal(size=(3, 2)), RNG.normal(size=(4, 3))
SQUARE = [np.round(RNG.normal(size=(2, 2)), 1) for _ in range(11)]


def write_safetensors(path: Path, arrays: dict[str, tuple[str, np.ndarray]], **changes: object) -> Path:
    """A file of the format, written here from its description: length, header, numbers."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, (kind, array) in arrays.items():
        raw = array.tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    header |= changes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def test_safetensors_of_every_kind(tmp_path: Path) -> None:
    values = np.array([[1.5, -2.25], [0.0, 1024.0]])  # exact in all four kinds
    brain = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    arrays = {
        "0.weight": ("F64", values),
        "1.weight": ("F32", values.astype("<f4")),
        "2.weight": ("F16", values.astype("<f2")),
        "10.weight": ("BF16", brain),
    }
    found = load_weights(write_safetensors(tmp_path / "w.safetensors", dict(sorted(arrays.items()))))
    assert found.names == ("0.weight", "1.weight", "2.weight", "10.weight") and found.widths == (2,) * 5
    for layer in found.params:
        assert layer.dtype == np.float64
        np.testing.assert_array_equal(layer, values)


def test_safetensors_that_are_not_well_formed(tmp_path: Path) -> None:
    good = {"a": ("F64", np.eye(2))}
    cases = {
        "int": (write_safetensors(tmp_path / "a.safetensors", {"ids": ("I64", np.ones((2, 2), int))}), "'ids'.*I64"),
        "offsets": (
            write_safetensors(
                tmp_path / "b.safetensors", good, a={"dtype": "F64", "shape": [2, 2], "data_offsets": [0, 40]}
            ),
            "bytes 0 to 40 of 'a' do not fit",
        ),
        "keys": (write_safetensors(tmp_path / "c.safetensors", good, a={"dtype": "F64"}), "'a' lacks"),
    }
    (tmp_path / "d.safetensors").write_bytes(b"abc")
    (tmp_path / "e.safetensors").write_bytes(struct.pack("<Q", 10**6) + b"{}")
    (tmp_path / "f.safetensors").write_bytes(struct.pack("<Q", 2) + b"[]")
    (tmp_path / "g.safetensors").write_bytes(struct.pack("<Q", 3) + b"{]}")
    cases |= {
        name: (tmp_path / f"{name}.safetensors", words)
        for name, words in {"d": "3 bytes", "e": "1,000,000 bytes", "f": "no JSON object", "g": "not JSON"}.items()
    }
    for number, shape in enumerate((2.5, [2.0, 2], ["2", 2], [-2, -2], [True, 4], [2**70, 2])):
        entry = {"dtype": "F64", "shape": shape, "data_offsets": [0, 32]}
        cases[f"s{number}"] = (
            write_safetensors(tmp_path / f"s{number}.safetensors", good, a=entry),
            "cannot read",
        )
    (tmp_path / "deep.safetensors").write_bytes(struct.pack("<Q", 10**5) + b"[" * 10**5)
    cases["deep"] = tmp_path / "deep.safetensors", "nested deeper"
    for path, words in cases.values():
        with pytest.raises((ValueError, TypeError), match=words):
            load_weights(path)


def test_only_what_is_chosen_is_read(tmp_path: Path) -> None:
    arrays = {"a.weight": ("F32", np.eye(2, dtype="<f4")), "ids": ("I64", np.ones((2, 2), int))}
    path = write_safetensors(tmp_path / "m.safetensors", arrays, bad={"dtype": "F64"})
    for choice in ({"prefix": "a."}, {"names": ["a.weight"]}):
        found = load_weights(path, **choice)
        assert found.names == ("a.weight",) and found.rounding == 2.0**-23
        np.testing.assert_array_equal(found.params[0], np.eye(2))
    with pytest.raises(TypeError, match=r"'ids'.*I64"):
        load_weights(path, names=["ids"])


def test_arrays_of_an_npz_are_read_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may be of any kind or damaged; what is too large is told before it is read."""
    path = tmp_path / "m.npz"
    np.savez(path, **{"a.weight": FIRST.astype(np.float32), "ids": np.array(["x", "y"]), "b.weight": SECOND})
    read, kept = [], StoredArray.read
    monkeypatch.setattr(StoredArray, "read", lambda array: read.append(array.name) or kept(array))
    for choice in ({"prefix": "a."}, {"names": ["a.weight"]}):
        found = load_weights(path, **choice)
        assert found.names == ("a.weight",) and found.rounding == 2.0**-23
    assert read == ["a.weight"] * 2
    with pytest.raises(ValueError, match=r"'ids' must be a matrix.*\(2,\)"):
        load_weights(path)
    monkeypatch.setattr("deeplinear.diagnosis._readers.MOST_NUMBERS", 17)
    with pytest.raises(ValueError, match=r"at most 17 numbers together, but have 18; the largest is 'b.weight'"):
        load_weights(path, names=["a.weight", "b.weight"])
    assert read == ["a.weight"] * 2
    np.savez(path, a=np.array([[object()]], dtype=object))
    with pytest.raises(TypeError, match=r"'a' must be an array of numbers, but holds.*O.*leave it out"):
        load_weights(path)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".pt"])
def test_damaged_files_are_one_sentence(tmp_path: Path, ending: str) -> None:
    """Files with bytes overwritten or cut off are read as they are or refused, never with another error."""
    if ending == ".pt":
        pytest.importorskip("torch", reason="PyTorch is in the extra `bench` only")
    path = tmp_path / f"w{ending}"
    if ending == ".npz":
        np.savez_compressed(path, a=np.eye(4))
    else:
        np.save(tmp_path / "w.npy", np.eye(4))
    whole = (path if ending == ".npz" else tmp_path / "w.npy").read_bytes()
    rng, refused = np.random.default_rng(0), []
    for _ in range(60):
        raw = bytearray(whole)
        for place in rng.integers(0, len(raw), 3):
            raw[place] = rng.integers(256)
        path.write_bytes(bytes(raw[: rng.integers(1, len(raw) + 1)]))
        try:
            load_weights(path)
        except (ValueError, TypeError) as error:
            refused.append(str(error))
    assert len(refused) > 20
    assert [text for text in refused if not text.startswith("load_weights: ") or "\n" in text] == []


def test_order_of_layers(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", **{f"W{k}": w for k, w in enumerate(SQUARE)})
    for found in (load_weights(tmp_path / "w.npz"), load_weights({f"l.{k}.weight": SQUARE[k] for k in (3, 10, 2)})):
        numbers = [int("".join(c for c in name if c.isdigit())) for name in found.names]
        assert numbers == sorted(numbers)
        for number, layer in zip(numbers, found.params, strict=True):
            np.testing.assert_array_equal(layer, SQUARE[number])
    # Names without numbers: a dictionary has an order, a safetensors file has none.
    named = {"up": FIRST, "down": SECOND}
    assert load_weights(named).names == ("up", "down")
    stored = {name: ("F64", array) for name, array in sorted(named.items())}
    found = load_weights(write_safetensors(tmp_path / "n.safetensors", stored))
    assert found.names == ("up", "down") and "only one that fits" in found.notes[0]
    open_ = write_safetensors(tmp_path / "o.safetensors", {"up": ("F64", SQUARE[0]), "down": ("F64", SQUARE[1])})
    with pytest.raises(ValueError, match="order of the layers must be told"):
        load_weights(open_)
    assert load_weights(open_, names=["down", "up"]).names == ("down", "up")
    with pytest.raises(ValueError, match=r"'up' must take the 4 outputs of 'down'.*transpose=True"):
        load_weights({"down": SECOND, "up": FIRST})
    np.testing.assert_array_equal(load_weights((FIRST.T, SECOND.T), transpose=True).params[0], FIRST)


def test_state_dicts_of_other_libraries() -> None:
    state = {"0.weight": FIRST.astype(np.float32), "0.bias": np.zeros(3), "2.weight": SECOND}
    found = load_weights(state)
    assert found.widths == (2, 3, 4) and found.notes[0] == "The bias '0.bias' is zero and left out."
    assert "taken for granted" in found.notes[1]  # a state dict does not show what acts between its layers
    flax = {"params": {"Dense_0": {"kernel": FIRST.T}, "Dense_1": {"kernel": SECOND.T, "bias": np.zeros(4)}}}
    np.testing.assert_array_equal(load_weights(flax).params[1], SECOND)
    np.testing.assert_array_equal(load_weights({"w": np.eye(2, dtype=jax.numpy.bfloat16)}).params[0], np.eye(2))
    for extra, words in (
        ({"0.bias": np.array([0.0, 0.5, 0.0])}, "bias '0.bias' must be zero, but its largest entry is 0.5"),
        ({"norm.weight": np.ones(3)}, r"'norm.weight' must be a matrix.*\(3,\)"),
        ({"conv.weight": np.ones((2, 2, 3, 3))}, "'conv.weight' must be a matrix"),
        ({"steps": "many"}, "'steps' must be an array of numbers"),
        ({"0.weight": np.full((3, 2), np.nan)}, "'0.weight' must be finite"),
        ({"0.weight": FIRST + 1j}, "must be real"),
    ):
        with pytest.raises((ValueError, TypeError), match=words):
            load_weights(state | extra)
    with pytest.raises(ValueError, match="prefix must begin the name of an array, but is 'x'"):
        load_weights(state, prefix="x")
    with pytest.raises(ValueError, match=r"'9\.weight' is not in"):
        load_weights(state, names=["9.weight"])
    with pytest.raises(TypeError, match="source must be a file"):
        load_weights(3.0)


def test_pairs() -> None:
    query, key = RNG.normal(size=(4, 5)), RNG.normal(size=(4, 5))
    found = attention_pair(query, key, heads=2, head=1)
    np.testing.assert_allclose(found.params[1] @ found.params[0], query[2:].T @ key[2:], rtol=1e-14)
    block = {
        f"h.{k}.attn.{n}.weight": w for k in (0, 1) for n, w in (("q_proj", query), ("k_proj", key), ("v_proj", key))
    }
    chosen = load_weights(block, prefix="h.1.", heads=2, head=1)
    np.testing.assert_array_equal(chosen.params[1], found.params[1])
    assert chosen.names == ("h.1.attn.k_proj.weight", "h.1.attn.q_proj.weight")
    assert any("1 other array beside the pair is left out" in note for note in chosen.notes)
    with pytest.raises(ValueError, match="prefix must leave one pair of matrices, but leaves 2"):
        load_weights(block)
    with pytest.raises(ValueError, match=r"bias 'h.0.attn.q_proj.bias' must be zero"):
        load_weights(block | {"h.0.attn.q_proj.bias": np.ones(4)}, prefix="h.0.")
    packed = load_weights({"attn.in_proj_weight": np.concatenate([query, key, key])})
    np.testing.assert_array_equal(packed.params[0], key)
    lora = load_weights({"q.lora_A.default.weight": FIRST, "q.lora_B.default.weight": SECOND, "q.weight": np.eye(4)})
    np.testing.assert_array_equal(lora.params[1] @ lora.params[0], SECOND @ FIRST)
    assert lora_pair(FIRST, SECOND).widths == lora.widths == (2, 3, 4)
    for call, words in (
        (lambda: attention_pair(query, key[:3]), r"key must have shape \(4, any\)"),
        (lambda: attention_pair(query, key, heads=3), "heads must divide the 4 rows"),
        (lambda: attention_pair(query, key, heads=2, head=2), "head must be at most 1"),
        (lambda: lora_pair(FIRST, FIRST), r"second must have shape \(any, 3\)"),
        (lambda: load_weights({"a": FIRST}, heads=2), "heads and head must be left out"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


class Faint(eqx.Module):
    """A network whose function between the layers hardly bends at its small weights."""

    layers: list

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[1](jax.numpy.tanh(self.layers[0](x)))


class Bent(eqx.Module):
    """Linear layers with a function between them that its tree does not show."""

    layers: list

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers[1](np.abs(self.layers[0](x)))


def test_equinox_modules() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    one, two = eqx.nn.Linear(2, 3, use_bias=False, key=keys[0]), eqx.nn.Linear(3, 2, use_bias=False, key=keys[1])
    found = load_weights(eqx.nn.Sequential([one, eqx.nn.Identity(), two]))
    assert found.names == ("layers.0.weight", "layers.2.weight")
    np.testing.assert_array_equal(found.params[1], np.asarray(two.weight))
    assert load_weights(one).widths == (2, 3)
    assert found.rounding == np.finfo(np.asarray(one.weight).dtype).eps
    biased = eqx.nn.Linear(3, 2, key=keys[2])
    small = eqx.tree_at(lambda layer: layer.weight, one, (1e-3 * one.weight).astype(np.float32))
    for module, words in (
        (eqx.nn.Sequential([one, eqx.nn.Lambda(jax.nn.relu), two]), r"'layers.1' \(relu\) must be a linear layer"),
        (eqx.nn.Sequential([one, biased]), r"bias 'layers.1.bias' must be zero"),
        (eqx.nn.Sequential([two, two]), "'layers.1.weight' must take the 2 outputs"),
        (Bent([one, two]), "module Bent must be the product of its linear layers.*differs"),
        (Faint([small, two]), "module Faint must be the product"),
        (eqx.nn.LayerNorm(3), "must be a linear layer without bias"),
    ):
        with pytest.raises(ValueError, match=words):
            load_weights(module)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.npz").write_text("no numbers")
    (tmp_path / "w.pt").write_bytes(b"")
    with pytest.raises(ValueError, match="it is not a whole archive of arrays"):
        load_weights(tmp_path / "w.npz")
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_weights(tmp_path / "none.npz")
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        load_weights(tmp_path / "w.onnx")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"PyTorch must be installed.*pip install torch"):
        load_weights(tmp_path / "w.pt")


@pytest.mark.filterwarnings("ignore")  # those of PyTorch at its import are its own
def test_torch_modules_and_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is in the extra `bench` only")
    nn = torch.nn
    model = nn.Sequential(nn.Linear(2, 3, bias=False), nn.Identity(), nn.Linear(3, 4, bias=False)).double()
    wanted = model[2].weight.detach().numpy()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    torch.save({"epoch": 3, "state_dict": model.state_dict()}, tmp_path / "c.pth")
    for source in (model, model.state_dict(), tmp_path / "w.pt", tmp_path / "c.pth"):
        found = load_weights(source)
        assert isinstance(found, Weights) and found.names == ("0.weight", "2.weight")
        np.testing.assert_array_equal(found.params[1], wanted)

    class Hidden(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(2, 3, bias=False), nn.Linear(3, 4, bias=False)

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))

    for module, words in (
        (nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU()), r"'1' \(ReLU\) must be a linear layer"),
        (nn.Sequential(nn.Linear(2, 3)), r"bias '0.bias' must be zero"),
        (Hidden(), "module Hidden must be the product"),
    ):
        with pytest.raises(ValueError, match=words):
            load_weights(module)

    class Wide(nn.Module):
        def __init__(self, function: object) -> None:
            super().__init__()
            sizes = ((784, 256), (256, 256), (256, 10))
            self.layers = nn.ModuleList([nn.Linear(*size, bias=False) for size in sizes])
            self.function = function

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = self.function(layer(x))
            return self.layers[-1](x)

    torch.manual_seed(0)
    for function in (torch.relu, torch.tanh):
        with pytest.raises(ValueError, match="module Wide must be the product"):
            load_weights(Wide(function))
    linear = Wide(lambda x: x)
    assert load_weights(linear).rounding == 2.0**-23 and linear.layers[0].weight.dtype == torch.float32
    assert load_weights(linear.half()).rounding == 2.0**-10
    assert load_weights({"w": model[0].weight.to(torch.bfloat16)}).widths == (2, 3)
    torch.save(model, tmp_path / "whole.pt")
    with pytest.raises(ValueError, match="must hold a state dict, saved by"):
        load_weights(tmp_path / "whole.pt")
