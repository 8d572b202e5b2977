"""Probes: what one may watch while a network learns."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.probes._base import (
        AbstractProbe as AbstractProbe,
        FunctionProbe as FunctionProbe,
        Time as Time,
        as_probe as as_probe,
        as_probes as as_probes,
        dimension_names as dimension_names,
        network_of as network_of,
        probe as probe,
    )
    from deeplinear.probes._checked import (
        checked_probes as checked_probes,
        is_own as is_own,
        values_of as values_of,
    )
    from deeplinear.probes._kernel import (
        KernelDistance as KernelDistance,
        KernelMovement as KernelMovement,
    )
    from deeplinear.probes._observe import (
        observe as observe,
    )
    from deeplinear.probes._plain import (
        Conserved as Conserved,
        Drift as Drift,
        Entries as Entries,
        LayerSingularValues as LayerSingularValues,
        gradient_norm as gradient_norm,
        layer_alignment as layer_alignment,
        layer_balancedness as layer_balancedness,
        layer_lambda as layer_lambda,
        layer_lambda_operator_residual as layer_lambda_operator_residual,
        layer_lambda_residual as layer_lambda_residual,
        layer_norms as layer_norms,
        loss as loss,
        ntk as ntk,
        product as product,
        product_effective_rank as product_effective_rank,
        product_nuclear_norm as product_nuclear_norm,
        product_numerical_rank as product_numerical_rank,
        product_stable_rank as product_stable_rank,
        singular_values as singular_values,
        weights as weights,
    )
    from deeplinear.probes._target import (
        HeldOutError as HeldOutError,
        LeftAlignment as LeftAlignment,
        ModeStrengths as ModeStrengths,
        ReconstructionError as ReconstructionError,
        RightAlignment as RightAlignment,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
