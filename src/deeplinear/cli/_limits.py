"""Largest values of numeric options: far above what is of use, below what hangs or takes all memory."""

import os

from deeplinear.cli._shell import UsageError

LAYERS = 256
"""Layers of a network: more than anybody means, and less than a machine holds."""

WIDTH = 1_000_000
"""Units of one layer; the memory of all layers is looked at too."""

SIDE = 10_000
"""Hidden units of an estimator."""

STEPS = 2**62 - 1
"""Limit on steps, the largest whole number that a run counts to."""

COUNTED = 2**53
"""Steps of a discrete method up to a horizon, which is a floating-point number."""

TIME = 1e100
"""Time of a flow. Rates times times must not overflow."""

TRAINED = 10_000_000
"""Steps of a training without a rule that ends it earlier."""

POINTS = 1_000_000
"""Points of a curve."""

ENTRIES = 10_000
"""Entries of an impulse response: each takes linear programmes, or a row of a Hankel matrix."""

STATES = 1_000
"""States of a recurrent network."""

INSTANCES = 100_000
"""Random instances of a check."""

REPEATS = 1_000
"""Fits of the same data, or folds of it."""

WORKERS = 1_000
"""Processes."""

FORMULA_LAYERS = 1_000_000
"""Number of layers in a formula; infinity is another value of its own."""

HEADS = 100_000
"""Attention heads."""


def check_memory(numbers: int, fix: str) -> None:
    """Refuse what this machine cannot hold; the compiler would end the program without a word.

    Args:
        numbers: Floating-point numbers that are held at the same time, roughly.
        fix: What to take instead.
    """
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Not every system tells.
        return
    if 8 * numbers > there:
        raise UsageError(
            f"the run needs about {8 * numbers / 1e9:.3g} GB of memory, but this machine has {there / 1e9:.3g} GB; "
            f"take {fix}."
        )
