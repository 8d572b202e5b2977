"""Exceptions that carry more than a message."""

import copy
import pickle

import pytest

from deeplinear.core import RESULTS, HypothesisError, NumericalError
from deeplinear.exact import NoClosedFormError

BALANCE = HypothesisError("balance", 0.5, 1e-6, "Start from balanced layers.")

ERRORS = {
    "numerical": NumericalError(RESULTS.diverged, "See member 3."),
    "hypothesis": BALANCE,
    "no closed form": NoClosedFormError({"whitened": BALANCE}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_exceptions_travel_between_processes(name: str) -> None:
    """What executors and joblib do with the exception of a worker; the text and all that it carries arrive."""
    error = ERRORS[name]
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is type(error) and str(other) == str(error)
        told, sent = (
            {key: str(value) for key, value in vars(one).items() if key != "reasons"} for one in (other, error)
        )
        assert told == sent and told.keys() == vars(error).keys() - {"reasons"}
    if isinstance(error, NoClosedFormError):
        other = pickle.loads(pickle.dumps(error))
        assert other.reasons["whitened"].residual == 0.5
