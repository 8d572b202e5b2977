"""A progress bar on the error stream for runs that take a while."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deeplinear.dynamics import Progress

if TYPE_CHECKING:
    from rich.console import Console


@contextmanager
def progress_bar(
    description: str = "running", *, console: "Console | None" = None
) -> Iterator[Callable[[Progress], None]]:
    """Show how far a run is; gives the callback for the argument `progress` of `simulate` and `ensemble`.

    The bar stands on the error stream, disappears at the end and is not drawn where that stream is no terminal. A run
    that ends by a stopping rule only has no known length: the bar then moves to and fro.

    Args:
        description: What is running, in a word or two.
        console: Where to draw; the error stream by default.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress as Bar, SpinnerColumn, TextColumn, TimeElapsedColumn

    target = Console(stderr=True) if console is None else console
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[state]}"))
    with Bar(*columns, TimeElapsedColumn(), console=target, transient=True, disable=not target.is_terminal) as bar:
        task = bar.add_task(description, total=None, state="compiling")

        def update(now: Progress) -> None:
            ended = f"{now.ended}/{now.members} ended, " if now.members > 1 else ""
            state = f"{ended}{now.steps:,} steps, t = {now.t:.4g}"
            known = now.fraction > 0
            bar.update(task, total=1.0 if known else None, completed=now.fraction if known else 0.0, state=state)

        yield update
