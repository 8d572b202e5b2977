"""The page of results: what it tells of a store, and that names from outside lead nowhere else."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from deeplinear.experiments import Store, experiment, plain
from deeplinear.lab import Settings, _shelf
from deeplinear.lab._errors import install
from deeplinear.lab._store import store_router
from deeplinear.theory import checks

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><circle r="3"/></svg>'
DIGEST = hashlib.sha256(SVG).hexdigest()
KEY, OTHER = "ab" * 10, "cd" * 10
TIMING = {"started": "2026-03-01T10:00:00+00:00", "seconds": 90.0}
CLAIMS = [
    {"statement": "First $r_1$ <b>", "measured": 0.25, "expected": "at most 0.5", "holds": True, "note": ""},
    {"statement": "Second", "measured": 7.0, "expected": "at most 3", "holds": False, "note": "a note"},
    {"statement": "Third", "measured": "nan", "expected": "at least 1", "holds": None, "note": "too small"},
]


def content(**others: Any) -> dict[str, Any]:
    spec = plain(experiment("completion/fig2").presets["quick"])
    texts = {
        "version": experiment("completion/fig2").version,
        "source": "Figure 2",
        "shows": "Rank falls.",
        "notes": "A note.",
    }
    return {
        **texts,
        "preset": "quick",
        "spec": spec,
        "claims": CLAIMS,
        "timing": TIMING,
        "environment": {"python": "3"},
        **others,
    }


def outcome(status: str, printed: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "source": "Theorem 1",
        "statement": "It holds.",
        "status": status,
        "message": f"message of {status}",
        "instances": 50,
        "seed": 3,
        "claim": [
            {"name": "near", "residual": 1e-3, "tolerance": 2e-3, "holds": True},
            {"name": "far", "residual": 1e-2, "tolerance": 1.0, "holds": True},
        ],
        "printed": printed,
        "violations": [{"name": "turned", "caught": True}, {"name": "shifted", "caught": False}],
        "timing": TIMING,
    }


ERRATUM = next(check.id for check in checks() if check.printed is not None)


def fill(path: Path) -> Store:
    store = Store(path)
    store.put("experiment", "completion/fig2", KEY, content(), {"figure.svg": SVG, "data.nc": b"numbers"})
    store.put("check", "exact/one", "1", outcome("fails"))
    wrong = {"name": "as printed", "residual": 0.413, "tolerance": 1e-9, "holds": False}
    store.put("check", ERRATUM, "1", outcome("erratum", wrong))
    return store


def client_of(path: Path) -> TestClient:
    app = FastAPI()
    install(app)
    app.include_router(store_router(Settings(store=str(path))))
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return fill(tmp_path / "store")


@pytest.fixture
def client(store: Store) -> TestClient:
    return client_of(store.path)


def test_what_a_store_holds(client: TestClient) -> None:
    found = client.get("/api/store").json()
    assert found["message"] == "" and found["damaged"] == []
    assert found["counts"] == {
        "experiments": 1,
        "runs": 1,
        "claims": {"holds": 1, "fails": 1, "untold": 1},
        "checks": 2,
        "errata": 1,
        "failing": 1,
        "damaged": 0,
    }
    (run,) = found["runs"]
    assert (run["key"], run["paper"], run["status"], run["preset"]) == (KEY, "completion", "fails", "quick")
    assert run["picture"] == {"digest": DIGEST, "type": "image/svg+xml"}
    row = next(one for one in found["checks"] if one["id"] == "exact/one")
    # The part that uses up most of its tolerance is the one that is told.
    assert (row["part"], row["residual"], row["tolerance"], row["status"]) == ("near", 1e-3, 2e-3, "fails")
    assert (row["caught"], row["violations"], row["seed"]) == (1, 2, 3)
    assert row["command"] == "dln check run exact/one --seed 3"


def test_a_run_in_full(client: TestClient) -> None:
    found = client.get(f"/api/store/runs/{KEY}").json()
    assert found["command"] == "dln experiment run completion/fig2 --preset quick"
    assert [one["verdict"] for one in found["statements"]] == ["holds", "fails", "untold"]
    assert found["statements"][2]["measured"] is None
    # Texts of a store stay text.
    assert found["statements"][0]["statement"] == "First $r_1$ <b>"
    assert found["folder"] == f"experiments/completion/fig2/{KEY}"
    assert found["parameters"] and found["environment"] == {"python": "3"}


def test_pictures_are_found_by_their_digest_only(client: TestClient, store: Store) -> None:
    found = client.get(f"/api/store/pictures/{DIGEST}")
    assert found.status_code == 200 and found.content == SVG and found.headers["content-type"] == "image/svg+xml"
    data = hashlib.sha256(b"numbers").hexdigest()
    assert client.get(f"/api/store/pictures/{data}").status_code == 404  # a file of the store, but no picture
    for name in ("..%2f..%2fetc%2fpasswd", "figure.svg", "%2e%2e", DIGEST.upper(), "0" * 63, "a" * 65):
        assert client.get(f"/api/store/pictures/{name}").status_code == 404, name
        assert client.get(f"/api/store/runs/{name}").status_code == 404, name
    assert client.get(f"/api/store/runs/{'0' * 20}").json()["error"]["kind"] == "missing"


def test_a_changed_picture_is_not_sent(client: TestClient, store: Store) -> None:
    assert client.get("/api/store").status_code == 200
    (store.folder("experiment", "completion/fig2", KEY) / "figure.svg").write_bytes(b"<svg onload='x'/>")
    assert client.get(f"/api/store/pictures/{DIGEST}").status_code == 404
    found = client.get("/api/store").json()
    assert found["runs"] == [] and found["counts"]["damaged"] == 1 and "figure.svg" in found["damaged"][0]


def test_new_results_are_seen(client: TestClient, store: Store) -> None:
    assert len(client.get("/api/store").json()["runs"]) == 1
    store.put("experiment", "completion/fig2", OTHER, content(preset=None), {"figure.svg": SVG})
    assert {run["key"] for run in client.get("/api/store").json()["runs"]} == {KEY, OTHER}


def test_an_empty_or_missing_store_says_what_to_do(tmp_path: Path) -> None:
    for path, word in ((tmp_path / "none", "does not exist"), (tmp_path, "holds no results")):
        found = client_of(path).get("/api/store").json()
        assert word in found["message"] and "dln experiment run" in found["message"] and found["runs"] == []
    assert not (tmp_path / "none").exists()


def test_the_commands_named_for_an_empty_store_exist(tmp_path: Path) -> None:
    message = client_of(tmp_path).get("/api/store").json()["message"]
    names = {check.id for check in checks()}
    assert any(f"dln check run {name} " in message for name in names)
    assert "completion/fig2 --preset quick" in message and "quick" in experiment("completion/fig2").presets


def test_listings_have_a_limit_and_keep_failures(
    client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_shelf, "MOST", 1)
    found = client.get("/api/store").json()
    assert [one["status"] for one in found["checks"]] == ["fails"] and found["counts"]["checks"] == 2
    assert "1 of 2 checks are listed" in found["message"]


@pytest.mark.covers("network:F45")
def test_errata_stand_side_by_side(client: TestClient) -> None:
    found = client.get("/api/errata").json()
    expected = [check for check in checks() if check.printed is not None]
    assert found["total"] == len(expected) == len(found["errata"]) and found["measured"] == 1
    one = next(one for one in found["errata"] if one["id"] == ERRATUM)
    assert (one["missed"], one["allowed"]) == (0.413, 1e-9)
    assert one["command"] == f"dln check run {ERRATUM} --seed 3"
    other = next(one for one in found["errata"] if one["id"] != ERRATUM)
    assert other["missed"] is None and other["command"] == f"dln check run {other['id']}"
    assert [(one["printed"], one["corrected"]) for one in found["errata"]] == [
        (c.printed, c.statement) for c in expected
    ]
