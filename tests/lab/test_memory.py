"""Compiled programs are dropped beyond a bound of memory, at a moment when nothing is computed.

That memory is freed by it is tested in `test_load.py`, in a process of its own.
"""

import dataclasses
import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deeplinear.lab import Settings, _service, create_app
from deeplinear.lab._gate import Gate
from deeplinear.lab._room import Preset
from lab import toy
from lab.answers import HANG, eventually


class Memory:
    """Stands in for the memory of the process, and counts how often it was looked at."""

    def __init__(self, size: int) -> None:
        self.size, self.looks = size, 0

    def __call__(self) -> int:
        self.looks += 1
        return self.size

    def look(self, times: int) -> None:
        """Wait until it was looked at so many times more."""
        wanted = self.looks + times
        eventually(lambda: self.looks >= wanted, f"{times} looks at the memory")


def start(function: Any) -> threading.Thread:
    thread = threading.Thread(target=function)
    thread.start()
    return thread


def test_the_gate_waits_for_those_inside_and_holds_up_others() -> None:
    gate, order = Gate(), []
    out = threading.Event()

    def first() -> None:
        with gate.inside():
            order.append("in")
            out.wait(HANG)
            order.append("out")

    def second() -> None:
        with gate.inside():
            order.append("later")

    def alone() -> None:
        with gate.alone(0.0, HANG) as empty:
            assert empty
            time.sleep(0.05)  # in which nobody comes in
            order.append("alone")

    threads = [start(first)]
    eventually(lambda: order, "the first is inside")
    threads.append(start(alone))
    eventually(lambda: gate._shut, "the gate is shut")
    threads.append(start(second))
    time.sleep(0.05)  # in which the second does not come in
    out.set()
    for thread in threads:
        thread.join(HANG)
    assert order == ["in", "out", "alone", "later"]


def test_a_run_steps_aside_between_pieces_and_one_that_does_not_is_not_waited_for() -> None:
    gate, end = Gate(), threading.Event()

    def pieces() -> None:
        with gate.inside():
            while not end.wait(0.01):
                gate.step_aside()

    thread = start(pieces)
    eventually(lambda: not gate._empty(), "the run is inside")
    with gate.alone(0.0, HANG) as empty:
        assert empty
    assert not end.is_set()  # it goes on
    end.set()
    thread.join(HANG)
    with gate.inside(), gate.alone(0.0, 0.05) as empty:  # who waited for it would wait for ever
        assert not empty
    with gate.inside():
        pass


def test_a_server_above_its_bound_drops_programs_and_makes_defaults_ready_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy.gate.clear()
    toy.computed.clear()
    memory, dropped = Memory(1_000), []
    monkeypatch.setattr(_service, "LOOK", 0.01)
    monkeypatch.setattr(_service, "CALM", 0.01)
    monkeypatch.setattr(_service, "WORTH", 500)
    monkeypatch.setattr(_service, "resident_memory", memory)

    def drop() -> None:
        dropped.append(len(toy.computed))
        memory.size = 1_000

    monkeypatch.setattr(_service, "drop_programs", drop)
    app = create_app(Settings(memory_bytes=5_000), (toy.ROOM,))

    def status(client: TestClient, times: int) -> dict[str, Any]:
        found: dict[str, Any] = {}

        def at_rest() -> bool:
            found.update(client.get("/api/status").json())
            return found["dropped"] == times and found["ready"] == found["of"] and not found["now"] + found["note"]

        eventually(at_rest, f"at rest after dropping {times} times")
        return found

    with TestClient(app, base_url="http://localhost") as client:
        assert status(client, 0)["of"] == 2  # the default and a preset
        run = client.post("/api/rooms/toy/work/runs", json={"wait": True}).json()["id"]  # never ends by itself
        assert client.get(f"/api/runs/{run}").json()["state"] in ("waiting", "running")
        memory.size = 6_000
        found = status(client, 1)
        assert (found["dropped"], found["ready"], found["of"]) == (1, 1, 1)
        assert len(dropped) == 1 and toy.computed[-1] == toy.Numbers()  # computed again, though its answer is kept
        assert client.post("/api/rooms/toy/line", json={"size": 3}).status_code == 200
        assert client.get(f"/api/runs/{run}").json()["state"] == "running"
        toy.gate.set()


def test_a_bound_that_cannot_be_kept_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[int] = []
    memory = Memory(10_000)
    monkeypatch.setattr(_service, "LOOK", 0.01)
    monkeypatch.setattr(_service, "resident_memory", memory)
    monkeypatch.setattr(_service, "drop_programs", lambda: dropped.append(1))
    app = create_app(Settings(memory_bytes=1), (toy.ROOM,))
    with TestClient(app, base_url="http://localhost") as client:
        eventually(lambda: dropped, "programs are dropped")
        memory.look(20)
        assert client.get("/api/status").json()["dropped"] == len(dropped) == 1
        assert client.get("/api/status").json()["of"] == 0  # making ready leaves memory to requests


def test_nothing_is_dropped_under_a_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped: list[int] = []
    memory = Memory(10_000)
    monkeypatch.setattr(_service, "LOOK", 0.01)
    monkeypatch.setattr(_service, "CALM", 0.01)
    monkeypatch.setattr(_service, "PATIENCE", (1e-4, 2e-4))
    monkeypatch.setattr(_service, "resident_memory", memory)
    monkeypatch.setattr(_service, "drop_programs", lambda: dropped.append(1))
    app = create_app(Settings(memory_bytes=1, warm=False), (toy.ROOM,))
    service = app.state.service
    with TestClient(app, base_url="http://localhost"):
        with service.gate.inside():
            memory.look(10)  # a try after each of them
            assert dropped == [] and service.note
        eventually(lambda: dropped, "programs are dropped")
    assert dropped == [1] and service.dropped == 1


def test_answers_outlast_the_wait_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_service, "LOOK", 0.01)
    monkeypatch.setattr(_service, "CALM", 0.2)
    monkeypatch.setattr(_service, "PATIENCE", (1 / 500,))
    monkeypatch.setattr(_service, "drop_programs", lambda: None)
    app = create_app(Settings(memory_bytes=1, warm=False, answer_seconds=HANG), (toy.ROOM,))
    gate = app.state.service.gate
    with TestClient(app, base_url="http://localhost") as client, gate.inside():
        eventually(lambda: gate._shut, "the gate is shut")
        assert client.post("/api/rooms/toy/line", json={"size": 7.0}).status_code == 200


def test_presets_are_made_ready_again_only_while_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    toy.gate.set()
    memory = Memory(1_000)
    room = dataclasses.replace(toy.ROOM, presets=(Preset("Long", "line", {"count": 9}),))
    monkeypatch.setattr(_service, "LOOK", 0.01)
    monkeypatch.setattr(_service, "IDLE", 0.0)
    monkeypatch.setattr(_service, "QUIET", 2 * HANG)
    monkeypatch.setattr(_service, "resident_memory", memory)
    monkeypatch.setattr(_service, "drop_programs", lambda: setattr(memory, "size", 1_000))
    app = create_app(Settings(memory_bytes=5_000), (room,))
    long = toy.Numbers(count=9)

    def await_count(number: int) -> None:
        eventually(lambda: toy.computed.count(long) == number, f"computed {number} times")

    toy.computed.clear()
    with TestClient(app, base_url="http://localhost") as client:
        await_count(1)
        client.post("/api/rooms/toy/line", json={"size": 2.0})
        memory.size = 6_000
        service = app.state.service
        eventually(lambda: service.dropped and toy.computed[-1] == toy.Numbers(), "the default is ready again")
        memory.look(3)
        assert toy.computed.count(long) == 1  # somebody asked not long ago
        service._latest -= 2 * HANG
        await_count(2)
