"""Progress bars on the error stream for work that takes a while."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from deeplinear.dynamics import Progress
    from deeplinear.experiments import Tick


@contextmanager
def _bar(description: str, console: "Console | None", *, state: str) -> Iterator[tuple[Any, Any]]:
    """A bar on the error stream that disappears at the end and is drawn on terminals only."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bar, SpinnerColumn, TextColumn, TimeElapsedColumn

    target = Console(stderr=True) if console is None else console
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, TimeElapsedColumn(), console=target, transient=True, disable=not target.is_terminal) as bar:
        yield bar, bar.add_task(description, total=None, state=state)


@contextmanager
def progress_bar(
    description: str = "running", *, console: "Console | None" = None
) -> Iterator[Callable[["Progress"], None]]:
    """Show how far a run is; gives the callback for the argument `progress` of `simulate` and `ensemble`.

    The bar stands on the error stream, disappears at the end and is not drawn where that stream is no terminal. A run
    that ends by a stopping rule only has no known length: the bar then moves to and fro.

    Args:
        description: What is running, in a word or two.
        console: Where to draw; the error stream by default.
    """
    with _bar(description, console, state="compiling") as (bar, task):

        def update(now: "Progress") -> None:
            ended = f"{now.ended}/{now.members} ended, " if now.members > 1 else ""
            state = f"{ended}{now.steps:,} steps, t = {now.t:.4g}"
            known = now.fraction > 0
            bar.update(task, total=1.0 if known else None, completed=now.fraction if known else 0.0, state=state)

        yield update


@contextmanager
def sweep_bar(description: str = "running", *, console: "Console | None" = None) -> Iterator[Callable[["Tick"], None]]:
    """Show how far a sweep is, how fast it goes and how long it will take; gives the callback for `experiments.run`.

    Args:
        description: What is running, in a word or two.
        console: Where to draw; the error stream by default.
    """
    with _bar(description, console, state="starting") as (bar, task):

        def update(now: "Tick") -> None:
            speed = ""
            if now.rate > 0 and math.isfinite(now.left):
                pace = f"{now.rate:.2g}/s" if now.rate >= 1 else f"{1 / now.rate:.3g} s each"
                speed = f", {pace}, {_duration(now.left)} left"
            inside = now.fraction if math.isfinite(now.fraction) else 0.0
            state = f"{now.done}/{now.members}{speed}  {now.text}"
            bar.update(task, total=max(1, now.members), completed=now.done + inside, state=state)

        yield update


@contextmanager
def state_bar(description: str = "running", *, console: "Console | None" = None) -> Iterator[Callable[[str], None]]:
    """Show what work of unknown length is at; gives the function that is told so in a few words.

    Args:
        description: What is running, in a word or two.
        console: Where to draw; the error stream by default.
    """
    with _bar(description, console, state="compiling") as (bar, task):
        yield lambda text: bar.update(task, total=None, state=text)


def _duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
