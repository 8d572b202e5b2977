"""Closed forms: what training does, known without training."""

from deeplinear.exact._block_algebra import BlockMatrix as BlockMatrix, alpha_m_eigenvalues as alpha_m_eigenvalues
from deeplinear.exact._block_flow import (
    BlockFlow as BlockFlow,
    block_flow as block_flow,
    block_flow_from as block_flow_from,
)
from deeplinear.exact._block_limit import (
    BlockLimit as BlockLimit,
    block_constant as block_constant,
    block_crossover as block_crossover,
    block_equation_1 as block_equation_1,
    block_equation_2 as block_equation_2,
    block_limit as block_limit,
    block_limit_from as block_limit_from,
    block_small_scale as block_small_scale,
)
from deeplinear.exact._column import ColumnAlignment as ColumnAlignment, column_alignment as column_alignment
from deeplinear.exact._disconnected import (
    DisconnectedSolution as DisconnectedSolution,
    disconnected as disconnected,
    disconnected_hyperbolic as disconnected_hyperbolic,
)
from deeplinear.exact._lazy import (
    LazyCertificate as LazyCertificate,
    lazy_certificate as lazy_certificate,
    toeplitz_example as toeplitz_example,
    toeplitz_ratio as toeplitz_ratio,
)
from deeplinear.exact._singular_values import singular_value_speed as singular_value_speed
from deeplinear.exact._warm_start import (
    WarmStartBounds as WarmStartBounds,
    warm_start_bounds as warm_start_bounds,
    warm_start_field as warm_start_field,
    warm_start_layers as warm_start_layers,
    warm_start_violations as warm_start_violations,
)
