"""Transformations of the public functions of `probes`."""

import numpy as np

from deeplinear import probes
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from traces import Row, Traced, both, layers, normal, outside, passes

PROBLEM = Problem(DeepLinear((2, 2, 2)), SquaredDistance(np.eye(2)))
MASK = np.array([[1, 0], [1, 1]])
NETWORK = layers(2, 2, 2)


def watched(probe, **options) -> Traced:
    """A probe of the layers."""
    return passes(lambda params: probe(0.0, params, PROBLEM), NETWORK, **options)


def compared(make, free, **options) -> Traced:
    """A probe made from arrays, of the layers."""
    return passes(lambda reference, params: make(reference)(0.0, params, PROBLEM), both(free, NETWORK), **options)


MAKES = outside("functions")

TABLE: dict[str, Row] = {
    "is_own": outside("a probe"),
    "values_of": outside("states on the way of a run"),
    "Conserved": watched(probes.Conserved(1)),
    "Drift": compared(probes.Drift, NETWORK),
    "Entries": watched(probes.Entries([0, 1], [1, 1])),
    "FunctionProbe": MAKES,
    "HeldOutError": compared(lambda target: probes.HeldOutError(target, MASK), normal((2, 2))),
    "KernelDistance": compared(probes.KernelDistance, NETWORK),
    "KernelMovement": compared(probes.KernelMovement, NETWORK),
    "LayerSingularValues": watched(probes.LayerSingularValues(1)),
    "LeftAlignment": compared(probes.LeftAlignment, normal((2, 2))),
    "ModeStrengths": compared(probes.ModeStrengths, normal((2, 2))),
    "ReconstructionError": compared(probes.ReconstructionError, normal((2, 2))),
    "RightAlignment": compared(probes.RightAlignment, normal((2, 2))),
    "as_probe": MAKES,
    "as_probes": MAKES,
    "checked_probes": MAKES,
    "dimension_names": MAKES,
    "gradient_norm": watched(probes.gradient_norm),
    "layer_alignment": watched(probes.layer_alignment),
    "layer_balancedness": watched(probes.layer_balancedness),
    "layer_lambda": watched(probes.layer_lambda),
    "layer_lambda_operator_residual": watched(probes.layer_lambda_operator_residual),
    "layer_lambda_residual": watched(probes.layer_lambda_residual),
    "layer_norms": watched(probes.layer_norms),
    "loss": watched(probes.loss),
    "network_of": outside("a problem"),
    "ntk": watched(probes.ntk),
    "observe": outside("states of a run; use its probes inside a transformation"),
    "probe": MAKES,
    "product": watched(probes.product),
    "product_effective_rank": watched(probes.product_effective_rank),
    "product_nuclear_norm": watched(probes.product_nuclear_norm),
    "product_numerical_rank": watched(probes.product_numerical_rank, grad="none"),
    "product_stable_rank": watched(probes.product_stable_rank),
    "singular_values": watched(probes.singular_values),
    "weights": watched(probes.weights),
}
