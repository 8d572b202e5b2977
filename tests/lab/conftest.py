"""A client of the server in this process, and a server in one of its own."""

import json
import subprocess
import sys
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
    return create_app(Settings(queued=2, kept_runs=5, body_bytes=20_000), (toy.ROOM,))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url="http://127.0.0.1") as found:
        yield found
    toy.gate.set()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """Address and process of `dln lab` with an empty store."""
    store = tmp_path_factory.mktemp("lab") / "store"
    arguments = ["lab", "--no-browser", "--port", "0", "--store", str(store), "--json"]
    command = [sys.executable, "-m", "deeplinear.cli", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as found:
        assert found.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = found.stdout.readline()
            assert line, "the server ended"
            text += line
        try:
            yield json.loads(text)["address"], found.pid
        finally:
            found.terminate()
            found.wait(300)
