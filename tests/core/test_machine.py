"""What a process may use of its machine, and what it does when little is left."""

import functools
import pathlib
from pathlib import Path

import jax
import numpy as np
import pytest

from deeplinear.core import _machine, make_room, processors, resident_memory

PROGRAMS = 60

linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells the mappings of a process")


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def test_a_share_that_is_no_number_bounds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_machine.SHARE, raising=False)
    everything = processors()
    for share, expected in {"1": 1, "²": everything, "": everything}.items():
        monkeypatch.setenv(_machine.SHARE, share)
        assert processors() == expected


@linux
def test_a_process_with_room_keeps_its_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "FULL", 1.0)  # no process has more, whatever ran before in this one
    assert not make_room()


@linux
def test_a_process_without_room_forgets_what_it_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = [jax.jit(functools.partial(lambda number, x: (x * number).sum(), n)) for n in range(PROGRAMS)]
    before = mappings()
    expected = [3.0 * n for n in range(PROGRAMS)]
    assert [float(program(np.ones(3))) for program in programs] == expected
    grown = mappings() - before
    assert grown > PROGRAMS  # at least one for each
    monkeypatch.setattr(_machine, "FULL", 0.0)
    assert make_room()
    assert mappings() < before + grown / 2
    assert [float(program(np.ones(3))) for program in programs] == expected


def test_systems_that_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_machine, "Path", lambda name: pathlib.Path("/nowhere"))
    assert resident_memory() == 0
    assert not make_room()
