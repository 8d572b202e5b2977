"""What of the machine this process may use."""

import os

SHARE = "DEEPLINEAR_PROCESSORS"
"""Variable of the environment that limits a worker to its share of the processors."""


def processors() -> int:
    """Processors this process may use: those it is bound to, and no more than its share if it was given one."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = os.environ.get(SHARE, "")
    return max(1, min(bound, int(share))) if share.isdigit() else bound
