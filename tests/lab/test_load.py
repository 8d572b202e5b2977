"""Many clients at once: no failure, and memory that does not grow without bound."""

import asyncio
import random
import time
from pathlib import Path

import httpx2
import pytest

CLIENTS = 50


def megabytes(process: int) -> float:
    """Memory of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1e3


async def client(address: str, seed: int, end: float, took: list[float]) -> None:
    """Ask for closed forms with other values each time, as someone who moves sliders does."""
    draw = random.Random(seed)
    async with httpx2.AsyncClient(base_url=address, timeout=60) as session:
        while time.monotonic() < end:
            values = {
                "lam": draw.uniform(-10, 10),
                "scale": 10 ** draw.uniform(-3, 0.4),
                "horizon": draw.uniform(1, 100),
            }
            start = time.monotonic()
            response = await session.post("api/rooms/lazy-rich/curves", json=values)
            assert response.status_code == 200, response.text
            took.append(time.monotonic() - start)
            await asyncio.sleep(draw.uniform(0.0, 0.5))


async def crowd(address: str, seconds: float) -> list[float]:
    """All clients until the end."""
    took: list[float] = []
    end = time.monotonic() + seconds
    await asyncio.gather(*(client(address, seed, end, took) for seed in range(CLIENTS)))
    return took


@pytest.mark.slow
def test_many_clients(server: tuple[str, int], request: pytest.FixtureRequest) -> None:
    address, process = server
    asyncio.run(crowd(address, 1.0))  # compiles
    before = megabytes(process)
    seconds = request.config.getoption("--load")
    took = asyncio.run(crowd(address, seconds))
    grown = megabytes(process) - before
    told = f"{len(took)} answers, median {1e3 * sorted(took)[len(took) // 2]:.0f} ms, {grown:.0f} MB more"
    assert len(took) >= CLIENTS, told
    assert grown < 250, told  # 100 for the cache, the rest for what the allocator keeps
