"""Executors: little under way at a time, nothing lost when a worker or a scheduler dies, no call that never ends."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from deeplinear.experiments import _dask, _executors, execute

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


class Counted(Sequence[int]):
    """Numbers that know how many of them were asked for."""

    def __init__(self, count: int) -> None:
        self.numbers, self.asked = range(count), 0

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        self.asked += 1
        return self.numbers[index]


def most_under_way(arguments: Counted, **settings: Any) -> int:
    """Largest number of arguments asked for and not answered; every answer must be right and come once."""
    most, seen = 0, set()
    for position, result in execute(abs, arguments, **settings):
        assert result == position and position not in seen
        most = max(most, arguments.asked - len(seen))
        seen.add(position)
    assert len(seen) == len(arguments)
    return most


# --- Processes --------------------------------------------------------------------------------------------------------


def test_executors_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValueError, match="Did you mean 'processes'"):
        execute(str, [1], executor="process")
    with pytest.raises(ValueError, match="address is for the executor 'dask'"):
        execute(str, [1], address="tcp://x")
    with pytest.raises(ValueError, match="workers must be at least 1"):
        execute(str, [1], executor="processes", workers=0)


def test_processes_have_one_task_at_a_time() -> None:
    # One for each worker, and one more that is handed over before the caller gets the answer.
    assert most_under_way(Counted(200), executor="processes", workers=2) <= 3


def test_what_kills_its_workers_is_given_up_and_the_rest_goes_on() -> None:
    """`os._exit` needs nothing of this package, so that workers are there at once."""
    outcomes = dict(execute(os._exit, [1, 2], executor="processes", workers=2))
    assert set(outcomes) == {0, 1}
    assert all(isinstance(outcome, RuntimeError) and "3 workers died" in str(outcome) for outcome in outcomes.values())


def test_what_cannot_be_sent_or_fails_is_an_outcome() -> None:
    outcomes = dict(execute(int, ["1", "x", lambda: 0, "4"], executor="processes", workers=1))
    assert outcomes[0] == 1 and outcomes[3] == 4
    assert isinstance(outcomes[1], ValueError) and isinstance(outcomes[2], Exception)


def test_a_worker_killed_from_outside_loses_nothing() -> None:
    killed = False
    outcomes: dict[int, Any] = {}
    for position, result in execute(time.sleep, [0.05] * 12, executor="processes", workers=2):
        assert position not in outcomes
        outcomes[position] = result
        if not killed:
            import multiprocessing

            child = multiprocessing.active_children()[0]
            assert child.pid is not None
            os.kill(child.pid, signal.SIGKILL)
            killed = True
    assert outcomes == dict.fromkeys(range(12))


def test_workers_that_cannot_start_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(_executors, "WORKER", str(tmp_path / "broken.py"))
    with pytest.raises(RuntimeError, match="end before their first task"):
        list(execute(abs, range(100), executor="processes", workers=1))


# --- Dask -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def inside() -> Iterator[Any]:
    """A scheduler and a worker with two threads in this process: there at once."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0") as cluster:
        yield cluster


def fail_at_three(number: int) -> int:
    if number == 3:
        raise ValueError("three")
    return number


def test_dask_has_a_window_and_members_travel_together(inside: Any) -> None:
    arguments = Counted(2000)
    # Tasks under way, two for each thread, have 256 members at most.
    most = most_under_way(arguments, executor="dask", address=inside.scheduler_address)
    assert most <= 2 * _dask.AHEAD * _dask.MOST
    assert len(inside.scheduler.tasks) <= 2 * _dask.AHEAD * 2
    outcomes = dict(execute(fail_at_three, range(600), executor="dask", address=inside.scheduler_address))
    assert isinstance(outcomes.pop(3), ValueError) and all(outcomes[k] == k for k in outcomes) and len(outcomes) == 599


def test_a_scheduler_that_stays_away_is_an_error(inside: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dask, "SCHEDULER_AGAIN", 0.5)
    monkeypatch.setattr(_dask, "LOOK", 0.2)
    notices: list[str] = []
    outcomes = execute(
        time.sleep, [0.01] * 400, executor="dask", address=inside.scheduler_address, notice=notices.append
    )
    got = [next(outcomes)[0] for _ in range(3)]
    inside.close()
    monkeypatch.setattr(_dask, "ANSWER", 0.5)
    with pytest.raises(ConnectionError, match="went away and did not come back"):
        got += [position for position, _ in outcomes]
    assert len(set(got)) == len(got) < 400 and any("went away" in text for text in notices)
    with pytest.raises(ConnectionError, match="There is no Dask scheduler"):
        list(execute(abs, [1], executor="dask", address="tcp://127.0.0.1:1"))


def test_an_address_that_cannot_be_parsed_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client is made for it: one that never found a scheduler takes long to close, and fails at that."""
    monkeypatch.setattr("distributed.Client", lambda *_, **__: pytest.fail("a client was made"))
    for address, reason in (("nonsense", "missing port number"), ("foo://x:1", "unknown address scheme")):
        with pytest.raises(ConnectionError, match=f"There is no Dask scheduler at '{address}': {reason}"):
            list(execute(abs, [1], executor="dask", address=address))


def test_waiting_is_told_once_and_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By a clock that moves only while the call sleeps."""
    from distributed import LocalCluster

    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(_dask, "time", clock)
    monkeypatch.setattr(_dask, "WORKERS_WITHIN", 0.9)
    notices: list[str] = []

    def lines(address: str, message: str) -> list[str]:
        caplog.clear()
        with pytest.raises(ConnectionError, match=message):
            list(execute(abs, [1], executor="dask", address=address, notice=notices.append))
        return [record.getMessage() for record in caplog.records if record.name == _dask.__name__]

    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        place = str(cluster.scheduler_address)
        idle = f"no Dask worker is connected; start one: dask worker {place}"
        assert lines(place, "has had no worker") == [idle]
        assert len(notices) == 5 and set(notices) == {idle}  # one in each fifth of a second
        monkeypatch.setattr(_dask, "REPEAT", 0.5)
        assert lines(place, "has had no worker") == [idle, idle]
    away = "waiting for the Dask scheduler at tcp://127.0.0.1:1"
    monkeypatch.setattr(_dask, "REPEAT", 60.0)
    monkeypatch.setattr(_dask, "ANSWER", 0.9)
    monkeypatch.setattr(_dask, "LOOK", 0.01)
    assert lines("tcp://127.0.0.1:1", "There is no Dask scheduler") == [away] and away in notices


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def programs() -> Iterator[Any]:
    """Starts `dask ...` in a process of its own; all are ended at the end."""
    running: list[subprocess.Popen] = []

    def start(*arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running.append(subprocess.Popen(command, **quiet))
        return running[-1]

    try:
        yield start
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_real_cluster_may_lose_workers_and_its_scheduler() -> None:
    """A worker stops for a while, one is killed, then the scheduler is killed and comes back empty."""
    place = port()
    address = f"tcp://127.0.0.1:{place}"
    with programs() as start:

        def scheduler() -> subprocess.Popen:
            return start("scheduler", "--host", "127.0.0.1", "--port", str(place))

        def worker() -> subprocess.Popen:
            return start("worker", address, "--nthreads", "1", "--no-nanny")

        head, first, second = scheduler(), worker(), worker()
        seen: list[int] = []
        for position, result in execute(time.sleep, [0.1] * 60, executor="dask", address=address):
            assert result is None
            seen.append(position)
            if len(seen) == 5:
                os.kill(first.pid, signal.SIGSTOP)
            if len(seen) == 12:  # The other went on meanwhile.
                os.kill(first.pid, signal.SIGCONT)
            if len(seen) == 20:
                second.kill()
            if len(seen) == 30:
                head.kill()
                head.wait()
                scheduler()
                worker()
        assert sorted(seen) == list(range(60))
