"""A client of the server, in this process."""

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from deeplinear.lab import Settings, create_app
from lab import toy


@pytest.fixture
def app() -> FastAPI:
    toy.gate.clear()
    toy.computed.clear()
    return create_app(Settings(warm=False, queued=2, kept_runs=5, body_bytes=20_000), (toy.ROOM,))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1") as found:
        yield found
    toy.gate.set()
