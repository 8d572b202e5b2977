"""Simulations: progress, partial answers, cancelling, sharing, limits."""

import asyncio
import contextlib
import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect

from deeplinear.lab import Settings, create_app
from deeplinear.lab._cache import Cache
from deeplinear.lab._errors import LabError
from deeplinear.lab._runs import LONELY, Runs
from lab import toy
from lab.answers import HANG, eventually

WORK = "/api/rooms/toy/work/runs"


def events(client: TestClient, run: str) -> list[tuple[str, Any]]:
    text = client.get(f"/api/runs/{run}/events").text
    parts = [part.split("\n") for part in text.strip().split("\n\n") if not part.startswith(":")]
    return [(part[0].removeprefix("event: "), json.loads(part[1].removeprefix("data: "))) for part in parts]


def start(client: TestClient, **values: Any) -> str:
    response = client.post(WORK, json=values)
    assert response.status_code == 202
    return response.json()["id"]


def state(client: TestClient, run: str, wanted: str) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def reached() -> bool:
        found.update(client.get(f"/api/runs/{run}").json())
        return found["state"] == wanted

    eventually(reached, f"{run} is {wanted}")
    return found


def test_a_simulation_ends_with_its_answer_and_is_kept(client: TestClient) -> None:
    run = start(client, pieces=4)
    name, answer = events(client, run)[-1]
    assert name == "done" and answer["facts"][0]["value"] == "4"
    assert state(client, run, "done")["answer"] == answer
    again = start(client, pieces=4)
    assert again != run and events(client, again) == [("done", answer)]
    assert len(toy.computed) == 1


def test_a_kept_answer_is_found_without_a_run(client: TestClient) -> None:
    path = WORK.replace("/runs", "/kept")
    assert client.post(path, json={"pieces": 2}).status_code == 204
    _, answer = events(client, start(client, pieces=2))[-1]
    found = client.post(path, json={"pieces": 2})
    assert found.status_code == 200 and found.json() == answer
    assert client.post(path, json={"pieces": 3}).content == b"" and len(toy.computed) == 1
    assert client.post(path, json={"pieces": 0}).status_code == 422


def test_progress_and_partial_answers_come_on_the_way(client: TestClient) -> None:
    run = start(client, pieces=2, wait=True)
    found = state(client, run, "running")
    assert found["answer"] is None and found["fraction"] == 0.0
    toy.gate.set()
    told = events(client, run)
    assert told[-1][0] == "done"


def test_a_listener_sees_progress(app: Any) -> None:
    from deeplinear.lab._runs import messages

    service = app.state.service
    service.open()
    view = toy.ROOM.view("work")
    ticket = service.start(toy.ROOM, view, view.params(pieces=2, wait=True))
    seen, names = -1, []

    def ended() -> bool:
        nonlocal seen
        found, seen, last = messages(ticket, seen)
        names.extend(message.decode().split("\n")[0] for message in found)
        if "event: partial" in names:
            toy.gate.set()
        return last

    eventually(ended, "the last message")
    assert names[0] == "event: progress" and "event: partial" in names and names[-1] == "event: done"
    service.close()


def test_cancelling(client: TestClient) -> None:
    run = start(client, pieces=100, wait=True)
    state(client, run, "running")
    client.delete(f"/api/runs/{run}")
    assert state(client, run, "cancelled")["answer"] is None
    assert events(client, run) == [("cancelled", {})]
    toy.gate.set()
    fresh = start(client, pieces=100, wait=True)
    assert events(client, fresh)[-1][0] == "done"


def test_a_shared_simulation_goes_on_for_the_others(client: TestClient) -> None:
    first, second = start(client, pieces=5, wait=True), start(client, pieces=5, wait=True)
    client.delete(f"/api/runs/{first}")
    assert state(client, first, "cancelled") and state(client, second, "running")
    toy.gate.set()
    assert events(client, second)[-1][0] == "done"
    assert len(toy.computed) == 1


def test_failures_are_told(client: TestClient) -> None:
    run = start(client, pieces=1, fails=True)
    name, failure = events(client, run)[-1]
    assert name == "failed" and failure["kind"] == "value" and "must be whole" in failure["message"]
    assert state(client, run, "failed")["failure"] == failure


def test_too_many_simulations_are_refused_for_now(client: TestClient) -> None:
    runs = [start(client, pieces=pieces, wait=True) for pieces in range(1, 5)]
    response = client.post(WORK, json={"pieces": 50, "wait": True})
    assert response.status_code == 503 and response.headers["retry-after"] == "2"
    toy.gate.set()
    assert all(events(client, run)[-1][0] == "done" for run in runs)
    assert client.post(WORK, json={"pieces": 50, "wait": True}).status_code == 202


def test_ended_simulations_are_forgotten_in_time(client: TestClient) -> None:
    toy.gate.set()
    runs = [start(client, pieces=pieces) for pieces in range(1, 9)]
    for run in runs[-3:]:
        state(client, run, "done")
    start(client, pieces=9)
    response = client.get(f"/api/runs/{runs[0]}")
    assert response.status_code == 404 and response.json()["error"]["kind"] == "missing"


@pytest.mark.parametrize("name", ["x", "not-a-run", "a b", "%F0%9F%92%A5", "0" * 200])
def test_what_is_no_name_of_a_simulation_is_not_there(client: TestClient, name: str) -> None:
    for response in (client.get(f"/api/runs/{name}"), client.delete(f"/api/runs/{name}")):
        assert response.status_code == 404 and response.json()["error"]["kind"] == "missing"
    assert client.get(f"/api/runs/{name}/events").status_code == 404


def test_a_simulation_that_nobody_waits_for_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeplinear.lab._runs.LONELY", 0.05)
    toy.gate.clear()
    runs = Runs(Settings(), Cache(1000))
    runs.open()
    ticket = runs.submit("key", lambda watch: toy.worked(toy.Work(wait=True), watch))
    eventually(lambda: ticket.task.ended, "the simulation is ended")
    assert ticket.state == "cancelled" and LONELY > 1
    runs.close()


def test_a_simulation_may_not_take_for_ever() -> None:
    toy.gate.clear()
    runs = Runs(Settings(run_seconds=0.05), Cache(1000))
    runs.open()
    ticket = runs.submit("key", lambda watch: toy.worked(toy.Work(wait=True), watch))
    eventually(lambda: ticket.task.ended, "the simulation is ended")
    assert ticket.task.failure is not None and ticket.task.failure.kind == "time"
    runs.close()


def test_listeners_are_counted() -> None:
    runs = Runs(Settings(streams=1), Cache(1000))
    runs.open()
    ticket = runs.submit("key", lambda watch: toy.worked(toy.Work(), watch))
    with runs.listening(ticket.id):
        assert ticket.listeners == 1
        with pytest.raises(LabError, match="listeners"), runs.listening(ticket.id):
            pass
    assert ticket.listeners == 0
    with pytest.raises(ZeroDivisionError), runs.listening(ticket.id):
        raise ZeroDivisionError
    with runs.listening(ticket.id):
        pass
    runs.close()


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
def test_heads_of_streams_leave_no_listeners(encoding: str) -> None:
    toy.gate.clear()
    app = create_app(Settings(streams=2), (toy.ROOM,))
    with TestClient(app, base_url="http://localhost", headers={"accept-encoding": encoding}) as client:
        run = start(client, pieces=2, wait=True)
        for _ in range(3):
            assert client.head(f"/api/runs/{run}/events").status_code == 200
            assert app.state.service.runs.ticket(run).listeners == 0
        toy.gate.set()
        assert events(client, run)[-1][0] == "done"
        assert app.state.service.runs.ticket(run).listeners == 0


@pytest.mark.parametrize("broken", [0, 1], ids=["head", "first chunk"])
@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_who_goes_away_is_no_listener(app: FastAPI, broken: int, version: str) -> None:
    """The connection ends at a message of the answer; servers tell it in two ways, by version of ASGI."""
    toy.gate.clear()
    service = app.state.service
    service.open()
    view = toy.ROOM.view("work")
    ticket = service.start(toy.ROOM, view, view.params(pieces=2, wait=True))
    gone = asyncio.Event()
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": version},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": f"/api/runs/{ticket.id}/events",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }

    async def receive() -> dict[str, str]:
        await gone.wait()
        return {"type": "http.disconnect"}

    sent: list[int] = []

    async def send(message: Any) -> None:
        sent.append(ticket.listeners)
        if len(sent) > broken:
            gone.set()
            if version == "2.4":
                raise OSError

    async def asked() -> None:
        with contextlib.suppress(ClientDisconnect):
            await asyncio.wait_for(app(scope, receive, send), HANG)

    asyncio.run(asked())
    assert sent[0] == 1 and ticket.listeners == 0
    toy.gate.set()
    service.close()
