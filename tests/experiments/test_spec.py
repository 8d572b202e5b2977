"""Specs as text and back."""

import dataclasses
import math

import pytest

from deeplinear._about import written
from deeplinear.experiments import experiments, fields, from_plain, grid, override, plain, split_assignments
from deeplinear.experiments._spec import key_of


@dataclasses.dataclass(frozen=True)
class Spec:
    depth: int = 2
    alpha: float = 1e-3
    exact: bool = True
    rule: str = "power"
    depths: tuple[int, ...] = (2, 3)
    scales: tuple[float, ...] = (0.1, math.inf)
    angles: tuple[float, float] = (0.5, 1.3)
    pairs: tuple[tuple[int, int], ...] = ((1, 2), (3, 4))
    wider: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.depth < 1:
            raise ValueError(f"Spec: depth must be at least 1, but is {self.depth}.")


def test_round_trip() -> None:
    assert plain(Spec())["scales"] == [0.1, "inf"]
    assert from_plain(Spec, plain(Spec())) == Spec()
    assert list(fields(Spec)) == [f.name for f in dataclasses.fields(Spec)]
    with pytest.raises(ValueError, match="keys must be"):
        from_plain(Spec, {"depth": 2})


def test_key_depends_on_content_only() -> None:
    key = key_of("a/b", 1, Spec())
    assert key == key_of("a/b", 1, from_plain(Spec, dict(reversed(plain(Spec()).items()))))
    others = {key_of("a/c", 1, Spec()), key_of("a/b", 2, Spec()), key_of("a/b", 1, Spec(alpha=2e-3))}
    assert key not in others and len(others) == 3


def test_equal_numbers_give_one_key() -> None:
    floats, ints = Spec(2, 1.0, True, "power", (2, 3), (2.0, 0.0)), Spec(2, 1, True, "power", (2, 3), (2, -0.0))
    assert floats == ints and key_of("a/b", 1, floats) == key_of("a/b", 1, ints)
    assert key_of("a/b", 1, Spec(2.0)) == key_of("a/b", 1, Spec(2)) != key_of("a/b", 1, Spec(2.5))


def test_presets_keep_their_keys_and_can_be_written() -> None:
    for one in experiments():
        for spec in one.presets.values():
            assert one.key(from_plain(one.kind, plain(spec))) == one.key(spec), one.id
            shown = {name: written(value).replace(",", ", ") for name, value in plain(spec).items()}
            again = override(spec, shown, one.id)
            assert again == spec and one.key(again) == one.key(spec), one.id


def test_override_reads_every_type() -> None:
    values = {"depth": "4", "alpha": "1e-2", "exact": "false", "rule": "product", "depths": "2,4..6", "scales": "1,inf"}
    assert override(Spec(), values, "x") == Spec(4, 1e-2, False, "product", (2, 4, 5, 6), (1.0, math.inf))
    values = {"angles": "1,2", "pairs": "5,6; 7..8;(9,0)", "wider": "3,4"}
    changed = override(Spec(), values, "x")
    assert (changed.angles, changed.pairs, changed.wider) == ((1.0, 2.0), ((5, 6), (7, 8), (9, 0)), (3, 4))
    assert override(changed, {"wider": "none", "pairs": "5,6"}, "x") == Spec(angles=(1.0, 2.0), pairs=((5, 6),))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"detph": "2"}, "no key 'detph'. Did you mean 'depth'"),
        ({"depth": "2.5"}, "depth must be a whole number, but is '2.5'"),
        ({"depth": "0"}, "depth must be at least 1"),
        ({"alpha": "small"}, "alpha must be a number"),
        ({"alpha": "nan"}, "alpha must be a number"),
        ({"exact": "yes"}, "must be true or false"),
        ({"depths": ""}, "must be a list"),
        ({"depths": "5..2"}, "a range must go up"),
        ({"depths": ",".join(["1..99999"] * 1_000)}, "depths must have at most 100,000 values"),
        ({"depths": "none"}, "each of depths must be a whole number, but is 'none'"),
        ({"depths": "1_0,2"}, "each of depths must be a whole number, but is '1_0'"),
        ({"alpha": "1_0"}, "alpha must be a number, but is '1_0'"),
        ({"depth": "\u0663"}, "depth must be a whole number"),
        ({"angles": "1"}, "fig2: angles must be 2 numbers with commas between them, such as 0.5,1.3, but is '1'"),
        ({"angles": "1,2,3"}, "angles must be 2 numbers .* but is '1,2,3'"),
        ({"pairs": "1,2;3"}, "pairs must be lists with semicolons between them, each 2 whole .* as 1,2;3,4, but is"),
        ({"pairs": "1,2;3,x"}, "each of pairs must be a whole number, but is 'x'"),
        ({"wider": ""}, "wider must be a list of whole numbers with commas between them, such as none, but is ''"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        override(Spec(), values, "completion/fig2")


def test_grid_is_every_combination_once() -> None:
    specs = grid(Spec(), {"depth": "2..3,3", "alpha": "0.1,0.2", "depths": "2,3;4"}, "x")
    assert len(specs) == 2 * 2 * 2
    assert specs[1] == Spec(depth=2, alpha=0.1, depths=(4,))
    assert grid(Spec(), {}, "x") == [Spec()]
    nested = grid(Spec(), {"pairs": "1,2;3,4|5,6", "wider": "none;7,8"}, "x")
    assert [(s.pairs, s.wider) for s in nested] == [
        (((1, 2), (3, 4)), ()),
        (((1, 2), (3, 4)), (7, 8)),
        (((5, 6),), ()),
        (((5, 6),), (7, 8)),
    ]
    with pytest.raises(ValueError, match="at least one value"):
        grid(Spec(), {"alpha": ","}, "x")
    with pytest.raises(ValueError, match="depth must have at most 100,000 values"):
        grid(Spec(), {"depth": ",".join(["1..99999"] * 1_000)}, "x")
    with pytest.raises(ValueError, match="a sweep may have"):
        grid(Spec(), {"depth": "1..99999", "alpha": "1,2"}, "x")


def test_assignments() -> None:
    assert split_assignments(["a=1", "b = x=y"], "x") == {"a": "1", "b": "x=y"}
    for bad, message in (["a"], "key=value"), (["=1"], "key=value"), (["a=1", "a=2"], "given twice"):
        with pytest.raises(ValueError, match=message):
            split_assignments(bad, "x")
