"""Damaged files of every kind: each reader gives a value or its named error. `tools/fuzz.py` runs millions."""

import pytest
from tools.fuzz import TARGETS, run

COUNT = 300
"""Inputs of each reader."""

READERS = [reader for reader in TARGETS if reader != "foreign"]
"""All but the one that forks for each input, which programs with threads must not; `test_netcdf_files` covers it."""


@pytest.mark.parametrize("reader", READERS)
def test_damaged_files_are_values_or_named_errors(reader: str, seed: int) -> None:
    if reader == "torch":
        pytest.importorskip("torch", reason="PyTorch is in the extra `bench` only")
    outcomes, wrong = run(reader, COUNT, seed)
    assert [reason for _, reason in wrong] == []
    assert sum(outcomes.values()) == COUNT and set(outcomes) <= {"value", "refused"} and outcomes["refused"]
