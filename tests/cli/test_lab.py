"""`dln lab`: who may reach it, ports, and what is missing. What it serves is tested in tests/lab."""

import signal
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deeplinear.cli._lab import _bind, _is_loopback
from deeplinear.cli._main import app


def told(*arguments: str) -> str:
    """What a refused command says."""
    result = CliRunner().invoke(app, ["lab", "--no-browser", *arguments])
    assert result.exit_code == 2, result.output
    return result.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_a_public_address_takes_a_flag(host: str) -> None:
    assert "--public" in told("--host", host)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_loopback(host: str, loopback: bool) -> None:
    assert _is_loopback(host) is loopback


def test_a_taken_port_is_told_and_without_a_wish_the_next_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert f"port {port}" in told("--port", str(port))
    with _bind("127.0.0.1", None) as first:
        first.listen()
        with _bind("127.0.0.1", None) as second:
            assert first.getsockname()[1] != second.getsockname()[1]


def test_a_store_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    assert "must be a folder" in told("--store", str(path))


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupt_ends_the_server_cleanly(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    def serve(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
        for bound in sockets:
            bound.close()
        with server.capture_signals():  # as the server does while it runs; the signals are raised again after
            signal.raise_signal(getattr(signal, number))
            ended.append(server.should_exit)

    ended: list[bool] = []
    monkeypatch.setattr(uvicorn.Server, "run", serve)
    result = CliRunner().invoke(app, ["lab", "--no-browser", "--port", "0"])
    assert (result.exit_code, ended) == (0, [True]), result.output
