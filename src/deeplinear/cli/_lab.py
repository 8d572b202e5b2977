"""`dln lab`: the server of the lab, and a browser that opens it."""

import contextlib
import ipaddress
import signal
import socket
import threading
import webbrowser
from pathlib import Path

from deeplinear.cli._interrupt import SIGNALS
from deeplinear.cli._shell import Code, UsageError, numerics, print_json, say

MOST_PORTS = 20
"""Ports that are tried one after another where the first is taken."""


def lab_command(
    host: str, port: int | None, public: bool, names: str | None, store: str, browser: bool, as_json: bool
) -> Code:
    """Serve until interrupted."""
    if not _is_loopback(host) and not public:
        raise UsageError(
            f"--host: {host} can be reached from other machines, and the lab has no passwords; add --public if that is "
            "what you want, or leave --host out."
        )
    if Path(store).exists() and not Path(store).is_dir():
        raise UsageError(f"--store: {store} must be a folder, but is a file.")
    try:
        import uvicorn

        from deeplinear.lab import Settings, create_app
    except ImportError as error:
        raise UsageError(f"the lab needs the extra 'lab': pip install 'deeplinear[lab]' ({error}).") from None
    numerics()
    bound = _bind(host, port)
    asked = tuple(name.strip().lower() for name in (names or "").split(",") if name.strip())
    hosts = tuple(dict.fromkeys([*Settings().hosts, host.lower(), *asked]))
    app = create_app(Settings(hosts=hosts, store=store))
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{bound.getsockname()[1]}/"
    if as_json:
        print_json({"ok": True, "command": "lab", "address": address})
    else:
        say(f"The lab is at {address} (Ctrl-C ends it).")
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, log_level="warning", server_header=False, timeout_graceful_shutdown=2)
    )
    if browser:
        threading.Timer(0.8, webbrowser.open, [address]).start()
    # An interrupt is the way to end the server, which answers SIGINT and SIGTERM itself and raises them again.
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            other = number not in (signal.SIGINT, signal.SIGTERM)
            signal.signal(number, server.handle_exit if other else signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[bound])
    return Code.fine


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bind(host: str, port: int | None) -> socket.socket:
    """A socket at the port that was asked for, or at the first free one from 8137 on."""
    first = 8137 if port is None else port
    last: OSError | None = None
    for number in range(first, first + (MOST_PORTS if port is None else 1)):
        found = None
        try:
            kind, _, _, _, where = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
            found = socket.socket(kind, socket.SOCK_STREAM)
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(where)
            return found
        except OSError as error:
            last = error
            if found is not None:
                found.close()
    flag = "--host" if isinstance(last, socket.gaierror) else "--port"
    raise UsageError(f"{flag}: cannot listen at {host}, port {first} ({last}); take another.")
