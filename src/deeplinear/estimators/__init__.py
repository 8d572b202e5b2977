"""Estimators in the manner of scikit-learn, for people with data."""

import importlib.util
from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if importlib.util.find_spec("sklearn") is None:
    raise ImportError(
        "deeplinear.estimators needs scikit-learn, which is not installed; install the extra: "
        "pip install 'deeplinear[estimators]'"
    )

if TYPE_CHECKING:
    from deeplinear.estimators._completion import (
        DeepMatrixCompletion as DeepMatrixCompletion,
        PlasticityWarning as PlasticityWarning,
    )
    from deeplinear.estimators._completion_fits import CompletionProgress as CompletionProgress
    from deeplinear.estimators._mask_report import MaskReport as MaskReport
    from deeplinear.estimators._regressor import DeepLinearRegressor as DeepLinearRegressor
    from deeplinear.estimators._state_space import LinearStateSpace as LinearStateSpace, Simulation as Simulation
    from deeplinear.estimators._state_space_certificate import StateSpaceCertificate as StateSpaceCertificate
else:
    __getattr__, __dir__, __all__ = attach(__name__)
