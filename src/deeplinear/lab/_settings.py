"""Limits of the lab, in one table."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a lab allows.

    Attributes:
        hosts: Names under which the server may be asked. Others are refused, which keeps foreign pages from reading
            it through a name of theirs that points here.
        store: Folder of results that the sixth page shows.
        body_bytes: Largest request.
        answer_seconds: Longest time for a closed form, the wait for a free worker included.
        answers: Closed forms that are computed at a time.
        waiting: Requests for closed forms that may wait.
        run_seconds: Longest simulation.
        runs: Simulations computed at a time.
        queued: Simulations that may wait for that.
        streams: Listeners to simulations at a time.
        kept_runs: Ended simulations that are remembered.
        cache_bytes: Memory for answers that are kept.
        points: Numbers in one answer.
    """

    hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    store: str = "results"
    body_bytes: int = 200_000
    answer_seconds: float = 30.0
    answers: int = 2
    waiting: int = 200
    run_seconds: float = 120.0
    runs: int = 2
    queued: int = 20
    streams: int = 100
    kept_runs: int = 100
    cache_bytes: int = 100_000_000
    points: int = 400_000
