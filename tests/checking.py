"""The check of annotations at run time that the tests put on the whole package."""

import inspect
from collections.abc import Callable

from beartype import BeartypeConf, beartype

# An annotation `float` takes integers too, as it does for type checkers.
annotations = beartype(conf=BeartypeConf(is_pep484_tower=True))


def unchecked(function: Callable) -> Callable:
    """A function as users have it, whose own words answer an argument of a wrong type."""
    return inspect.unwrap(function)
