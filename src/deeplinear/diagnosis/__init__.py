"""What theory says about a network that is given: weights from anywhere, hypotheses measured, predictions compared."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.diagnosis._diagnose import Diagnosis as Diagnosis, diagnose as diagnose
    from deeplinear.diagnosis._finding import (
        STANDING as STANDING,
        Finding as Finding,
        Prediction as Prediction,
    )
    from deeplinear.diagnosis._tensors import load_tensors as load_tensors
    from deeplinear.diagnosis._weights import (
        Weights as Weights,
        attention_pair as attention_pair,
        load_weights as load_weights,
        lora_pair as lora_pair,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
