"""How parameters move: flows, discrete updates, probes and stopping rules."""

from deeplinear.dynamics._base import AbstractMethod as AbstractMethod, AbstractUpdate as AbstractUpdate
from deeplinear.dynamics._coupling import (
    Coupling as Coupling,
    EntryGram as EntryGram,
    coupling as coupling,
    coupling_examples as coupling_examples,
)
from deeplinear.dynamics._driver import Progress as Progress
from deeplinear.dynamics._flow import GradientFlow as GradientFlow, Switching as Switching
from deeplinear.dynamics._kernel_probes import KernelDistance as KernelDistance, KernelMovement as KernelMovement
from deeplinear.dynamics._plasticity import plasticity as plasticity
from deeplinear.dynamics._plasticity_result import Plasticity as Plasticity
from deeplinear.dynamics._probes import (
    AbstractProbe as AbstractProbe,
    Conserved as Conserved,
    Drift as Drift,
    Entries as Entries,
    FunctionProbe as FunctionProbe,
    LayerSingularValues as LayerSingularValues,
    as_probe as as_probe,
    as_probes as as_probes,
    dimension_names as dimension_names,
    gradient_norm as gradient_norm,
    layer_alignment as layer_alignment,
    layer_balancedness as layer_balancedness,
    layer_lambda as layer_lambda,
    layer_lambda_operator_residual as layer_lambda_operator_residual,
    layer_lambda_residual as layer_lambda_residual,
    layer_norms as layer_norms,
    loss as loss,
    ntk as ntk,
    probe as probe,
    product as product,
    product_effective_rank as product_effective_rank,
    product_nuclear_norm as product_nuclear_norm,
    product_numerical_rank as product_numerical_rank,
    product_stable_rank as product_stable_rank,
    singular_values as singular_values,
)
from deeplinear.dynamics._simulate import ensemble as ensemble, resume as resume, simulate as simulate
from deeplinear.dynamics._stopping import Until as Until, steady as steady, until as until
from deeplinear.dynamics._target_probes import (
    HeldOutError as HeldOutError,
    LeftAlignment as LeftAlignment,
    ModeStrengths as ModeStrengths,
    ReconstructionError as ReconstructionError,
    RightAlignment as RightAlignment,
)
from deeplinear.dynamics._updates import (
    Adagrad as Adagrad,
    Adam as Adam,
    AdamState as AdamState,
    GradientDescent as GradientDescent,
    Momentum as Momentum,
    MomentumState as MomentumState,
    RMSProp as RMSProp,
    StochasticDescent as StochasticDescent,
)
