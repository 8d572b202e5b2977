"""Many clients at once, and many sizes: no failure, and memory that does not grow without bound."""

import asyncio
import dataclasses
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

CLIENTS = 50

BOUND = 500
"""Megabytes above which the server drops compiled programs here: some 150 above what it begins with."""

SLACK = 400
"""Megabytes by which it may go beyond: what is compiled until the moment comes, and 100 for answers that are kept."""

PROGRAM = """\
import sys
from deeplinear._about import prepare
prepare()
import uvicorn
from deeplinear.lab import Settings, create_app
uvicorn.run(create_app(Settings(memory_bytes=int(sys.argv[2]), warm=False)), port=int(sys.argv[1]), log_level="warning")
"""

SIZES = [(4, 3, 3), (2, 2, 2), (5, 3, 4), (3, 2, 5), (6, 4, 4)]
"""Inputs, hidden, outputs; no more hidden than others, so that every imbalance is possible."""


def megabytes(process: int) -> float:
    """Memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


@pytest.fixture(scope="module")
def bounded() -> Iterator[tuple[str, int]]:
    """Address and process of a server with a low bound of memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(port), str(BOUND * 1_000_000)]) as found:
        try:
            for _ in range(600):
                assert found.poll() is None, "the server ended"
                try:
                    httpx2.get(f"{address}/api/status", timeout=5)
                    break
                except httpx2.TransportError:
                    time.sleep(0.1)
            yield address, found.pid
        finally:
            found.terminate()
            found.wait(20)


@dataclasses.dataclass
class Crowd:
    """What clients saw."""

    took: list[float] = dataclasses.field(default_factory=list)
    peak: float = 0.0
    dropped: int = 0

    def __str__(self) -> str:
        took = sorted(self.took)
        middle, high = (1e3 * took[int(share * len(took))] for share in (0.5, 0.95))
        return (
            f"{len(took)} answers, median {middle:.0f} ms, 95 % {high:.0f} ms, at most {self.peak:.0f} MB, "
            f"programs dropped {self.dropped} times"
        )


def values(draw: random.Random, sizes: int) -> dict[str, Any]:
    """Other values each time, as of someone who moves sliders, for one of the first sizes."""
    inputs, hidden, outputs = draw.choice(SIZES[:sizes])
    return {
        "lam": draw.uniform(-10, 10),
        "scale": 10 ** draw.uniform(-3, 0.4),
        "horizon": draw.uniform(1, 100),
        "inputs": inputs,
        "hidden": hidden,
        "outputs": outputs,
    }


async def client(address: str, seed: int, end: float, sizes: int, crowd: Crowd) -> None:
    """Ask for closed forms until the end."""
    draw = random.Random(seed)
    async with httpx2.AsyncClient(base_url=address, timeout=60) as session:
        while time.monotonic() < end:
            start = time.monotonic()
            response = await session.post("/api/rooms/lazy-rich/curves", json=values(draw, sizes))
            assert response.status_code == 200, response.text
            crowd.took.append(time.monotonic() - start)
            await asyncio.sleep(draw.uniform(0.0, 0.5))


async def watch(address: str, process: int, end: float, crowd: Crowd) -> None:
    """Look at the memory until the end."""
    async with httpx2.AsyncClient(base_url=address, timeout=60) as session:
        while time.monotonic() < end:
            crowd.peak = max(crowd.peak, megabytes(process))
            crowd.dropped = (await session.get("/api/status")).json()["dropped"]
            await asyncio.sleep(0.2)


async def gather(address: str, process: int, seconds: float, sizes: int) -> Crowd:
    """All clients until the end."""
    crowd, end = Crowd(), time.monotonic() + seconds
    clients = (client(address, seed, end, sizes, crowd) for seed in range(CLIENTS))
    await asyncio.gather(*clients, watch(address, process, end, crowd))
    return crowd


def compile_sizes(address: str, sizes: int) -> None:
    """One after another: a crowd that waits for all of them runs out of time."""
    with httpx2.Client(base_url=address, timeout=60) as session:
        for inputs, hidden, outputs in SIZES[:sizes]:
            size = {"inputs": inputs, "hidden": hidden, "outputs": outputs}
            assert session.post("/api/rooms/lazy-rich/curves", json=size).status_code == 200


@pytest.mark.slow
def test_many_clients(bounded: tuple[str, int], request: pytest.FixtureRequest) -> None:
    seconds = float(request.config.getoption("--load") or 0.0)
    sizes = 1 if seconds < 30 else len(SIZES)
    compile_sizes(bounded[0], sizes)
    crowd = asyncio.run(gather(*bounded, seconds, sizes))
    assert len(crowd.took) >= CLIENTS, crowd
    assert crowd.peak < BOUND + SLACK, crowd


@pytest.mark.slow
def test_many_sizes(bounded: tuple[str, int], request: pytest.FixtureRequest) -> None:
    """Sizes one after another until programs are dropped; then there is less memory, and all is answered as before."""
    address, process = bounded
    long = float(request.config.getoption("--load") or 0.0) >= 30
    peak = dropped = 0
    after = float("inf")
    with httpx2.Client(base_url=address, timeout=60) as session:
        first = session.post("/api/rooms/lazy-rich/curves", json={"seed": 1}).json()
        end = time.monotonic() + (120 if long else 60)
        sizes = (
            (inputs, hidden, outputs) for inputs in range(1, 9) for hidden in range(1, 9) for outputs in range(1, 9)
        )
        for inputs, hidden, outputs in sizes:
            asked = {"inputs": inputs, "hidden": hidden, "outputs": outputs}
            assert session.post("/api/rooms/lazy-rich/map", json=asked).status_code in (200, 409)
            found, peak = session.get("/api/status").json()["dropped"], max(peak, megabytes(process))
            after = min(after, megabytes(process)) if found else after
            dropped = found
            if (dropped and not long) or time.monotonic() > end:
                break
        again = session.post("/api/rooms/lazy-rich/curves", json={"seed": 1, "lam": 1.25}).json()
    assert dropped and peak < BOUND + SLACK, (dropped, peak)
    assert after < peak - 50, (after, peak)
    assert len(again["figures"]) == len(first["figures"])
