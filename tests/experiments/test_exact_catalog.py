"""Every figure and table of the paper on exact learning dynamics is registered, in the size of the paper too."""

import pytest

from deeplinear.experiments import experiments

ITEMS = (
    *(f"fig{n}" for n in (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)),
    "fig1b",
    "fig1c",
    "fig4e",
    "tables",
    "lora",
)


@pytest.mark.covers("exact:F33")
@pytest.mark.parametrize("item", ITEMS)
def test_registered_with_its_sizes_and_a_source(item: str) -> None:
    (found,) = (one for one in experiments("exact") if one.id == f"exact/{item}")
    assert {"quick", "paper"} <= set(found.presets) and found.source and found.shows
    assert found.presets["quick"] != found.presets["paper"]
