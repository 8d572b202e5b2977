"""The geometry of end-to-end matrices: metric, flows, geodesics and distances, balanced layers, entropy."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.geometry._balancing import (
        Balancing as Balancing,
        balance as balance,
        balancing_flow as balancing_flow,
        balancing_rate as balancing_rate,
        balancing_velocity as balancing_velocity,
    )
    from deeplinear.geometry._bures import (
        bures_distance as bures_distance,
        bures_exit as bures_exit,
        bures_exponential as bures_exponential,
        bures_geodesic as bures_geodesic,
        bures_inner as bures_inner,
        bures_map as bures_map,
        geometric_mean as geometric_mean,
    )
    from deeplinear.geometry._closed_flows import (
        learning_time as learning_time,
        logistic_mode as logistic_mode,
        power_decay as power_decay,
    )
    from deeplinear.geometry._concavity import (
        concavity_spectrum as concavity_spectrum,
        diagonal_dominance as diagonal_dominance,
        dominance_threshold as dominance_threshold,
        pair_concavity as pair_concavity,
    )
    from deeplinear.geometry._energies import (
        AbstractSpectralEnergy as AbstractSpectralEnergy,
        FreeEnergy as FreeEnergy,
        NegativeEntropy as NegativeEntropy,
        PowerEnergy as PowerEnergy,
        Scaled as Scaled,
        SpectralEnergy as SpectralEnergy,
        SpectralFreeEnergy as SpectralFreeEnergy,
        free_energy as free_energy,
    )
    from deeplinear.geometry._entropy import (
        entropy as entropy,
        entropy_force as entropy_force,
        entropy_gradient as entropy_gradient,
        entropy_hessian as entropy_hessian,
        gaussian_rank_share as gaussian_rank_share,
        log_fibre_volume as log_fibre_volume,
        log_orthogonal_volume as log_orthogonal_volume,
    )
    from deeplinear.geometry._equilibria import (
        Equilibrium as Equilibrium,
        critical_power as critical_power,
        equilibrium as equilibrium,
        equilibrium_rates as equilibrium_rates,
        has_equilibrium as has_equilibrium,
        split_equilibria as split_equilibria,
        split_power as split_power,
    )
    from deeplinear.geometry._explicit import (
        ExplicitGeodesic as ExplicitGeodesic,
        RotationChord as RotationChord,
        classify_endpoints as classify_endpoints,
        explicit_geodesic as explicit_geodesic,
        rotation_chord as rotation_chord,
    )
    from deeplinear.geometry._exponential import (
        Geodesic as Geodesic,
        Monitors as Monitors,
        geodesic as geodesic,
    )
    from deeplinear.geometry._fibres import (
        balanced_layers as balanced_layers,
        balanced_lift as balanced_lift,
        horizontal_basis as horizontal_basis,
        horizontal_lift as horizontal_lift,
        horizontal_part as horizontal_part,
        horizontality_defect as horizontality_defect,
        manifold_dimension as manifold_dimension,
        minimal_fibre_norm as minimal_fibre_norm,
        vertical_basis as vertical_basis,
        vertical_gram as vertical_gram,
    )
    from deeplinear.geometry._flow import (
        MatrixFlow as MatrixFlow,
        matrix_flow as matrix_flow,
    )
    from deeplinear.geometry._hamiltonian import (
        geodesic_field as geodesic_field,
        geodesic_field_sum as geodesic_field_sum,
        hamiltonian as hamiltonian,
        layer_exponents as layer_exponents,
    )
    from deeplinear.geometry._imbalance import (
        GaussianImbalance as GaussianImbalance,
        gaussian_imbalance as gaussian_imbalance,
        is_balanced as is_balanced,
        relative_imbalance as relative_imbalance,
    )
    from deeplinear.geometry._inefficiency import (
        Inefficiency as Inefficiency,
        path_inefficiency as path_inefficiency,
    )
    from deeplinear.geometry._langevin import langevin as langevin, langevin_slope as langevin_slope
    from deeplinear.geometry._length import (
        curve_action as curve_action,
        curve_length as curve_length,
        distance_lower_bound as distance_lower_bound,
    )
    from deeplinear.geometry._logarithm import (
        Connection as Connection,
        distance as distance,
        geodesic_between as geodesic_between,
    )
    from deeplinear.geometry._metric import (
        Metric as Metric,
        metric_eigenvalue as metric_eigenvalue,
    )
    from deeplinear.geometry._pairs import Distances as Distances, distances as distances
    from deeplinear.geometry._powers import (
        gram_power_derivative as gram_power_derivative,
        power_derivative as power_derivative,
        power_difference as power_difference,
    )
    from deeplinear.geometry._singular import (
        SingularDerivative as SingularDerivative,
        singular_derivative as singular_derivative,
    )
    from deeplinear.geometry._upstairs import (
        BalancedGeodesic as BalancedGeodesic,
        balanced_geodesic as balanced_geodesic,
        direction_defect as direction_defect,
        frame_line_defect as frame_line_defect,
        line_defect as line_defect,
        multipliers as multipliers,
        straight_line_end as straight_line_end,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
