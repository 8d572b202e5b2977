"""Many clients at once, and many sizes: no failure, and memory that does not grow without bound.

Answers and bytes are counted, never seconds: how fast the lab answers is measured by benchmarks.
"""

import asyncio
import dataclasses
import itertools
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from lab.answers import HANG, eventually

CLIENTS = 50

MANY = 20
"""Answers for each client from which on the long form of the tests runs: all sizes, and no end at the first drop."""

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
settings = Settings(memory_bytes=int(sys.argv[2]), warm=False, answer_seconds=float(sys.argv[3]))
uvicorn.run(create_app(settings), port=int(sys.argv[1]), log_level="warning")
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
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(port), str(BOUND * 1_000_000), str(HANG)]) as found:

        def answers() -> bool:
            assert found.poll() is None, "the server ended"
            try:
                return httpx2.get(f"{address}/api/status", timeout=HANG).status_code == 200
            except httpx2.TransportError:
                return False

        try:
            eventually(answers, "a first answer of the server")
            yield address, found.pid
        finally:
            found.terminate()
            found.wait(HANG)


@dataclasses.dataclass
class Crowd:
    """What clients saw."""

    answers: int = 0
    peak: float = 0.0
    dropped: int = 0


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


async def client(address: str, seed: int, answers: int, sizes: int, crowd: Crowd) -> None:
    """Ask for closed forms, one after another."""
    draw = random.Random(seed)
    async with httpx2.AsyncClient(base_url=address, timeout=HANG) as session:
        for _ in range(answers):
            response = await session.post("/api/rooms/lazy-rich/curves", json=values(draw, sizes))
            assert response.status_code == 200, response.text
            crowd.answers += 1
            await asyncio.sleep(draw.uniform(0.0, 0.5))


async def watch(address: str, process: int, answers: int, crowd: Crowd) -> None:
    """Look at the memory until all is answered."""
    async with httpx2.AsyncClient(base_url=address, timeout=HANG) as session:
        while crowd.answers < answers:
            crowd.peak = max(crowd.peak, megabytes(process))
            crowd.dropped = (await session.get("/api/status")).json()["dropped"]
            await asyncio.sleep(0.2)


async def gather(address: str, process: int, answers: int, sizes: int) -> Crowd:
    """All clients until the last answer; the failure of one ends the others."""
    crowd = Crowd()
    async with asyncio.TaskGroup() as group:
        for seed in range(CLIENTS):
            group.create_task(client(address, seed, answers, sizes, crowd))
        group.create_task(watch(address, process, CLIENTS * answers, crowd))
    return crowd


def compile_sizes(address: str, sizes: int) -> None:
    """One after another: a crowd that waits for all of them runs out of time."""
    with httpx2.Client(base_url=address, timeout=HANG) as session:
        for inputs, hidden, outputs in SIZES[:sizes]:
            size = {"inputs": inputs, "hidden": hidden, "outputs": outputs}
            assert session.post("/api/rooms/lazy-rich/curves", json=size).status_code == 200


@pytest.mark.slow
def test_many_clients(bounded: tuple[str, int], request: pytest.FixtureRequest) -> None:
    answers = int(request.config.getoption("--load") or 0)
    sizes = len(SIZES) if answers >= MANY else 1
    compile_sizes(bounded[0], sizes)
    crowd = asyncio.run(gather(*bounded, answers, sizes))
    assert crowd.answers == CLIENTS * answers, crowd
    assert crowd.peak < BOUND + SLACK, crowd


@pytest.mark.slow
def test_many_sizes(bounded: tuple[str, int], request: pytest.FixtureRequest) -> None:
    """Sizes one after another until programs are dropped; then there is less memory, and all is answered as before."""
    address, process = bounded
    long = int(request.config.getoption("--load") or 0) >= MANY
    peak = dropped = 0
    after = float("inf")
    with httpx2.Client(base_url=address, timeout=HANG) as session:
        first = session.post("/api/rooms/lazy-rich/curves", json={"seed": 1}).json()
        for inputs, hidden, outputs in itertools.product(range(1, 9), repeat=3):
            asked = {"inputs": inputs, "hidden": hidden, "outputs": outputs}
            assert session.post("/api/rooms/lazy-rich/map", json=asked).status_code in (200, 409)
            found, peak = session.get("/api/status").json()["dropped"], max(peak, megabytes(process))
            after = min(after, megabytes(process)) if found else after
            dropped = found
            if dropped and not long:
                break
        again = session.post("/api/rooms/lazy-rich/curves", json={"seed": 1, "lam": 1.25}).json()
    assert dropped and peak < BOUND + SLACK, (dropped, peak)
    assert after < peak - 50, (after, peak)
    assert len(again["figures"]) == len(first["figures"])
