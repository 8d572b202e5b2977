"""Simulations: progress, partial answers, cancelling, sharing, limits."""

import json
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from deeplinear.lab import Settings
from deeplinear.lab._cache import Cache
from deeplinear.lab._errors import LabError
from deeplinear.lab._gate import Gate
from deeplinear.lab._runs import LONELY, Runs
from lab import toy

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
    for _ in range(500):
        found = client.get(f"/api/runs/{run}").json()
        if found["state"] == wanted:
            return found
        time.sleep(0.01)
    raise AssertionError(f"{found['state']} instead of {wanted}")


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
    for _ in range(300):
        found, seen, last = messages(ticket, seen)
        names += [message.decode().split("\n")[0] for message in found]
        if "event: partial" in names:
            toy.gate.set()
        if last:
            break
        time.sleep(0.01)
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
    runs = Runs(Settings(), Cache(1000), Gate())
    runs.open()
    ticket = runs.submit("key", lambda watch: toy.worked(toy.Work(wait=True), watch))
    for _ in range(200):
        if ticket.task.ended:
            break
        time.sleep(0.01)
    assert ticket.state == "cancelled" and LONELY > 1
    runs.close()


def test_a_simulation_may_not_take_for_ever() -> None:
    toy.gate.clear()
    runs = Runs(Settings(run_seconds=0.05), Cache(1000), Gate())
    runs.open()
    ticket = runs.submit("key", lambda watch: toy.worked(toy.Work(wait=True), watch))
    for _ in range(300):
        if ticket.task.ended:
            break
        time.sleep(0.01)
    assert ticket.task.failure is not None and ticket.task.failure.kind == "time"
    runs.close()


def test_listeners_are_counted() -> None:
    runs = Runs(Settings(streams=1), Cache(1000), Gate())
    runs.open()
    ticket = runs.submit("key", lambda watch: toy.worked(toy.Work(), watch))
    runs.listen(ticket, 1)
    with pytest.raises(LabError, match="listeners"):
        runs.listen(ticket, 1)
    runs.listen(ticket, -1)
    runs.listen(ticket, 1)
    runs.close()
