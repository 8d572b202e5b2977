"""One call of `simulate`, `ensemble` or `resume`, as both engines take it."""

import dataclasses
from collections.abc import Callable

from deeplinear.dynamics._arguments import Schedule
from deeplinear.dynamics._base import AbstractMethod, Progress
from deeplinear.dynamics._stopping import Until
from deeplinear.models import Problem
from deeplinear.probes import AbstractProbe


@dataclasses.dataclass(frozen=True)
class Run:
    """What to run, and when to record and to end.

    Attributes:
        problem: The problem, stacked along members if `batched[0]`.
        method: The method, stacked along members if `batched[1]`.
        batched: Which of the two differ between members.
        rules: Stopping rules.
        probes: Observables to record.
        schedule: When to record, and the last time.
        max_steps: Limit on steps of each member.
        deadline: Reading of the monotonic clock at which the run ends.
        opens: Whether the first state is recorded.
        first: Position of the first listed time.
        progress: Called now and then.
    """

    problem: Problem
    method: AbstractMethod
    batched: tuple[bool, bool]
    rules: tuple[Until, ...]
    probes: tuple[AbstractProbe, ...]
    schedule: Schedule
    max_steps: int
    deadline: float
    opens: bool
    first: int
    progress: Callable[[Progress], None] | None
