"""The geometry of end-to-end matrices: metric, balanced layers, entropy, Bures–Wasserstein geometry."""

from deeplinear.geometry._bures import (
    bures_distance as bures_distance,
    bures_exit as bures_exit,
    bures_exponential as bures_exponential,
    bures_geodesic as bures_geodesic,
    bures_inner as bures_inner,
    bures_map as bures_map,
    geometric_mean as geometric_mean,
)
from deeplinear.geometry._entropy import (
    entropy as entropy,
    entropy_force as entropy_force,
    entropy_gradient as entropy_gradient,
    entropy_hessian as entropy_hessian,
    langevin as langevin,
    langevin_slope as langevin_slope,
    log_fibre_volume as log_fibre_volume,
    log_orthogonal_volume as log_orthogonal_volume,
)
from deeplinear.geometry._fibres import (
    balanced_layers as balanced_layers,
    balanced_lift as balanced_lift,
    horizontal_basis as horizontal_basis,
    horizontal_lift as horizontal_lift,
    horizontal_part as horizontal_part,
    horizontality_defect as horizontality_defect,
    manifold_dimension as manifold_dimension,
    vertical_basis as vertical_basis,
)
from deeplinear.geometry._metric import Metric as Metric, metric_eigenvalue as metric_eigenvalue
