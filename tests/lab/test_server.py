"""The server without its rooms: answers, failures, limits, and who may ask."""

import ast
import base64
import hashlib
import re
from typing import Any, Literal

import pytest
from fastapi.testclient import TestClient

from deeplinear.lab import Settings, create_app
from deeplinear.lab._app import _plotly
from deeplinear.lab._cache import Cache
from deeplinear.lab._room import Params, Room, View, choice, slider, switch, whole
from deeplinear.lab._security import EMPTY, MAPS, host_of
from lab import toy
from lab.answers import eventually

LINE = "/api/rooms/toy/line"


def failure(response: Any, status: int, kind: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    body = response.json()
    assert set(body) == {"error"} and set(body["error"]) == {"kind", "message", "fields"}
    assert body["error"]["kind"] == kind and body["error"]["message"].endswith(".")
    return body["error"]


# --- Answers ----------------------------------------------------------------------------------------------------------


def test_a_view_answers_and_is_computed_once(client: TestClient) -> None:
    first = client.post(LINE, json={"size": 2.0, "count": 3})
    assert first.status_code == 200
    assert first.json()["figures"][0]["series"][0]["y"] == [0.0, 2.0, 4.0]
    assert client.post(LINE, json={"count": 3, "size": 2}).json() == first.json()
    assert len(toy.computed) == 1
    assert "compute;dur=" in first.headers["server-timing"]


def test_rooms_tell_all_that_the_page_needs(client: TestClient) -> None:
    (room,) = client.get("/api/rooms").json()
    assert "<math" in room["story"] and 'display="block"' in room["mathematics"]
    line, work = room["views"]
    assert (line["kind"], work["kind"]) == ("closed", "run")
    assert (line["has_command"], work["has_command"]) == (True, False)
    mask = line["parameters"]["properties"]["mask"]
    assert (mask["control"], mask["maxItems"], mask["items"]["maxItems"]) == ("grid", 4, 4)
    size = line["parameters"]["properties"]["size"]
    assert (size["control"], size["minimum"], size["maximum"], size["log"]) == ("slider", 0.1, 10.0, True)
    assert line["defaults"]["mask"] == [[True, False], [False, True]]
    assert room["presets"] == [{"title": "Steep", "view": "line", "values": {"size": 9.0}, "about": ""}]


def test_controls_say_with_which_choices_they_matter() -> None:
    only = {"method": ["adam"]}

    class Some(Params):
        rate: float = slider(0.1, 0.0, 1.0, "Rate", only=only)
        states: int = whole(1, 1, 9, "States", only=only)
        kind: Literal["a", "b"] = choice("a", {"a": "A", "b": "B"}, "Kind", only=only)
        fast: bool = switch(True, "Fast", only=only)
        method: Literal["flow", "adam"] = choice("flow", {"flow": "Flow", "adam": "Adam"}, "Method")

    told = {name: field.get("only") for name, field in Some.model_json_schema()["properties"].items()}
    assert told == {"rate": only, "states": only, "kind": only, "fast": only, "method": None}


def test_code(client: TestClient) -> None:
    found = client.post(f"{LINE}/code", json={"size": 2.5}).json()
    assert found == {"python": "print(2.5)\n", "command": "dln toy --size 2.5"}
    assert client.post("/api/rooms/toy/work/code", json={}).json()["command"] is None


def test_status_counts_what_is_under_way(client: TestClient) -> None:
    def status() -> dict[str, Any]:
        return client.get("/api/status").json()

    assert {name: status()[name] for name in ("answers", "runs", "cached_bytes")} == dict.fromkeys(
        ("answers", "runs", "cached_bytes"), 0
    )
    client.post("/api/rooms/toy/work/runs", json={"wait": True})
    client.post(LINE, json={})
    assert status()["runs"] == 1 and status()["cached_bytes"] > 0
    toy.gate.set()
    eventually(lambda: status()["runs"] == 0, "the simulation has ended")


# --- Failures ---------------------------------------------------------------------------------------------------------


def test_failures_of_the_library_are_told_and_those_of_the_program_are_not(client: TestClient) -> None:
    assert "balance" in failure(client.post(LINE, json={"kind": "hypothesis"}), 409, "hypothesis")["message"]
    assert failure(client.post(LINE, json={"kind": "value"}), 409, "value")["fields"] == ["size"]
    assert "secret" not in failure(client.post(LINE, json={"size": toy.BROKEN}), 500, "internal")["message"]


def test_what_is_not_there(client: TestClient) -> None:
    failure(client.get("/api/nothing"), 404, "missing")
    response = client.get(LINE)
    failure(response, 405, "refused")
    assert response.headers["allow"] == "POST"
    assert client.post("/api/runs/12345678").headers["allow"] == "DELETE, GET, HEAD"
    failure(client.get("/static/../_app.py"), 404, "missing")
    failure(client.get("/static/%2e%2e/_app.py"), 404, "missing")
    failure(client.get("/static/..%2f_app.py"), 404, "missing")


def test_an_answer_with_too_many_numbers_is_refused() -> None:
    app = create_app(Settings(points=10), (toy.ROOM,))
    with TestClient(app, base_url="http://localhost") as client:
        failure(client.post(LINE, json={"count": 20}), 413, "size")


# --- Who may ask ------------------------------------------------------------------------------------------------------


def test_foreign_hosts_and_origins_are_refused(client: TestClient) -> None:
    failure(client.get("/api/status", headers={"host": "evil.example"}), 403, "refused")
    failure(client.get("/api/status", headers={"host": "127.0.0.1.evil.example"}), 403, "refused")
    failure(client.post(LINE, json={}, headers={"origin": "http://evil.example"}), 403, "refused")
    failure(client.post(LINE, json={}, headers={"origin": "null"}), 403, "refused")
    failure(client.post(LINE, json={}, headers={"origin": "http://["}), 403, "refused")
    failure(client.get("/api/status", headers={"host": "[::1"}), 403, "refused")
    failure(client.post(LINE, json={}, headers={"sec-fetch-site": "cross-site"}), 403, "refused")
    assert client.post(LINE, json={}, headers={"origin": "http://127.0.0.1"}).status_code == 200


@pytest.mark.parametrize(
    ("value", "host"),
    [
        ("127.0.0.1:8137", "127.0.0.1"),
        ("[::1]:80", "::1"),
        ("LocalHost", "localhost"),
        ("a@b", "b"),
        ("", ""),
        ("[::1", ""),
    ],
)
def test_names_of_hosts(value: str, host: str) -> None:
    assert host_of(value) == host


def test_large_requests_are_refused_with_and_without_a_stated_length(client: TestClient) -> None:
    failure(client.post(LINE, content=b"x" * 30_000), 413, "size")
    failure(client.post(LINE, content=(b"x" * 1000 for _ in range(30))), 413, "size")


def test_every_answer_has_the_policy(client: TestClient) -> None:
    for response in (client.get("/"), client.get("/api/status"), client.get("/nothing"), client.get("/static/app.js")):
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe-eval" not in policy
        assert "style-src 'self' 'sha256-" in policy and "style-src-attr 'unsafe-inline';" in policy
        assert policy.count("'unsafe-inline'") == 1
        assert response.headers["x-content-type-options"] == "nosniff"


def test_the_style_sheets_that_the_policy_lets_through() -> None:
    found = re.search(r"\.textContent='((?:[^'\\]|\\.)*)'", _plotly(False).decode())
    assert found is not None
    for digest, text in ((EMPTY, ""), (MAPS, ast.literal_eval(f"'{found.group(1)}'"))):
        assert digest == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_page_has_no_inline_script_and_asks_nobody_else(client: TestClient) -> None:
    page = client.get("/").text
    assert "http://" not in page and "https://" not in page
    assert all("src=" in part.split(">")[0] for part in page.split("<script")[1:])
    assert " onclick" not in page and " style=" not in page
    packed, plain = (client.get("/plotly.js", headers={"accept-encoding": word}) for word in ("gzip", "identity"))
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert packed.content == plain.content and packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("gzip", True),
        ("br, GZIP ; q=0.5, *;q=0", True),
        ("gzip;q=1.000", True),
        ("gzip;q=0", False),
        ("deflate, gzip; q=0.000", False),
        ("x-gzip", False),
        ("", False),
    ],
)
def test_gzip_goes_to_those_who_take_it(client: TestClient, accepted: str, takes: bool) -> None:
    for path in ("/plotly.js", "/api/openapi.json"):
        headers = client.get(path, headers={"accept-encoding": accepted}).headers
        assert (headers.get("content-encoding") == "gzip") is takes
        assert headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize("path", ["/", "/plotly.js", "/api/status", "/api/rooms", "/static/app.js", "/nothing"])
def test_the_head_of_an_answer(client: TestClient, path: str) -> None:
    head, whole = client.head(path), client.get(path)
    assert head.content == b"" and head.status_code == whole.status_code
    assert set(head.headers) == set(whole.headers) and head.headers["content-type"] == whole.headers["content-type"]


def test_the_head_of_a_stream_does_not_listen(client: TestClient) -> None:
    run = client.post("/api/rooms/toy/work/runs", json={"wait": True}).json()["id"]
    head = client.head(f"/api/runs/{run}/events")
    assert head.headers["content-type"].startswith("text/event-stream") and head.content == b""
    assert client.head(LINE).status_code == 405
    toy.gate.set()


# --- Cache ------------------------------------------------------------------------------------------------------------


def test_the_cache_keeps_the_latest_used_within_its_bound() -> None:
    cache = Cache(10)
    cache.put("a", b"12345")
    cache.put("b", b"12345")
    assert cache.get("a") == b"12345"
    cache.put("c", b"123")
    assert cache.get("b") is None and cache.get("a") == b"12345" and cache.get("c") == b"123"
    cache.put("large", b"x" * 11)
    assert cache.get("large") is None and cache.size == 8
    cache.put("a", b"1")
    assert cache.size == 4


def test_rooms_have_one_name_each() -> None:
    from deeplinear.lab.rooms import ROOMS

    names = [f"{room.name}/{view.name}" for room in ROOMS for view in room.views]
    assert len(set(names)) == len(names)
    for room in ROOMS:
        shared: dict[str, Any] = {}
        for view in room.views:
            for name, value in view.params().model_dump(mode="json").items():
                assert shared.setdefault(name, value) == value, f"{room.name}: views disagree on the default of {name}"
        for preset in room.presets:
            assert isinstance(room, Room) and isinstance(room.view(preset.view), View)
            assert isinstance(room.view(preset.view).params(**preset.values), Params)
