"""Specs as text and back."""

import dataclasses
import math

import pytest

from deeplinear.experiments import fields, from_plain, grid, override, plain, split_assignments
from deeplinear.experiments._spec import key_of


@dataclasses.dataclass(frozen=True)
class Spec:
    depth: int = 2
    alpha: float = 1e-3
    exact: bool = True
    rule: str = "power"
    depths: tuple[int, ...] = (2, 3)
    scales: tuple[float, ...] = (0.1, math.inf)

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


def test_override_reads_every_type() -> None:
    values = {"depth": "4", "alpha": "1e-2", "exact": "false", "rule": "product", "depths": "2,4..6", "scales": "1,inf"}
    assert override(Spec(), values, "x") == Spec(4, 1e-2, False, "product", (2, 4, 5, 6), (1.0, math.inf))


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
    with pytest.raises(ValueError, match="at least one value"):
        grid(Spec(), {"alpha": ","}, "x")
    with pytest.raises(ValueError, match="a sweep may have"):
        grid(Spec(), {"depth": "1..99999", "alpha": "1,2"}, "x")


def test_assignments() -> None:
    assert split_assignments(["a=1", "b = x=y"], "x") == {"a": "1", "b": "x=y"}
    for bad, message in (["a"], "key=value"), (["=1"], "key=value"), (["a=1", "a=2"], "given twice"):
        with pytest.raises(ValueError, match=message):
            split_assignments(bad, "x")
