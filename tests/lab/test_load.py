"""Many clients at once, and many sizes: no failure, and memory that does not grow.

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

SLACK = 60
"""Megabytes by which memory may grow: what allocators hold, and answers that are kept."""

MANY_SIZES = 200

PROGRAM = """\
import sys
from deeplinear._about import prepare
prepare()
import uvicorn
from deeplinear.lab import Settings, create_app
settings = Settings(answer_seconds=float(sys.argv[2]))
uvicorn.run(create_app(settings), port=int(sys.argv[1]), log_level="warning")
"""

SIZES = [(4, 3, 3), (2, 2, 2), (5, 3, 4), (3, 2, 5), (6, 4, 4)]
"""Inputs, hidden, outputs; no more hidden than others, so that every imbalance is possible."""


def megabytes(process: int) -> float:
    """Memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, int]]:
    """Address and process of a server."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(port), str(HANG)]) as found:

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


def values(draw: random.Random) -> dict[str, Any]:
    """Other values each time, as of someone who moves sliders."""
    inputs, hidden, outputs = draw.choice(SIZES)
    return {
        "lam": draw.uniform(-10, 10),
        "scale": 10 ** draw.uniform(-3, 0.4),
        "horizon": draw.uniform(1, 100),
        "inputs": inputs,
        "hidden": hidden,
        "outputs": outputs,
    }


async def client(address: str, seed: int, answers: int, crowd: Crowd) -> None:
    """Ask for closed forms, one after another."""
    draw = random.Random(seed)
    async with httpx2.AsyncClient(base_url=address, timeout=HANG) as session:
        for _ in range(answers):
            response = await session.post("/api/rooms/lazy-rich/curves", json=values(draw))
            assert response.status_code == 200, response.text
            crowd.answers += 1
            await asyncio.sleep(draw.uniform(0.0, 0.5))


async def watch(process: int, answers: int, crowd: Crowd) -> None:
    """Look at the memory until all is answered."""
    while crowd.answers < answers:
        crowd.peak = max(crowd.peak, megabytes(process))
        await asyncio.sleep(0.2)


async def gather(address: str, process: int, answers: int) -> Crowd:
    """All clients until the last answer; the failure of one ends the others."""
    crowd = Crowd()
    async with asyncio.TaskGroup() as group:
        for seed in range(CLIENTS):
            group.create_task(client(address, seed, answers, crowd))
        group.create_task(watch(process, CLIENTS * answers, crowd))
    return crowd


@pytest.mark.slow
def test_many_clients(served: tuple[str, int], request: pytest.FixtureRequest) -> None:
    answers = int(request.config.getoption("--load") or 0)
    crowd = asyncio.run(gather(*served, answers))
    assert crowd.answers == CLIENTS * answers, crowd


def many_sizes() -> Iterator[tuple[str, dict[str, int]]]:
    """Addresses and sizes of some two hundred closed forms."""
    for blocks, size, depth in itertools.product(range(2, 11), range(1, 5), range(2, 6)):
        yield "completion/limit", {"blocks": blocks, "size": size, "depth": depth}
    for order, length in itertools.product(range(1, 6), range(1, 21, 2)):
        yield "recurrent/extrapolation", {"order": order, "length": length}
    for inputs, outputs in itertools.product(range(3, 6), range(3, 6)):
        yield "lazy-rich/curves", {"inputs": inputs, "hidden": 3, "outputs": outputs}


@pytest.mark.slow
def test_memory_is_flat_over_many_sizes(served: tuple[str, int]) -> None:
    address, process = served
    asked = list(many_sizes())
    assert len(asked) >= MANY_SIZES
    with httpx2.Client(base_url=address, timeout=HANG) as session:
        for room, size in [*asked[:1], asked[150], asked[-1]]:  # what is imported once
            assert session.post(f"/api/rooms/{room}", json=size).status_code == 200
        begin = megabytes(process)
        for room, size in asked:
            assert session.post(f"/api/rooms/{room}", json=size).status_code in (200, 409)
    assert megabytes(process) < begin + SLACK, (begin, megabytes(process))
