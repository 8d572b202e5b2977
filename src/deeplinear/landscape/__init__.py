"""The landscape: the network as one matrix, its laws, critical points, paths between them, and rates."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.landscape._adjacency import (
        AdjacencySVD as AdjacencySVD,
        BlockSVD as BlockSVD,
        adjacency_hessian_form as adjacency_hessian_form,
        adjacency_loss as adjacency_loss,
        adjacency_svd as adjacency_svd,
        adjacency_velocity as adjacency_velocity,
        aligned_radius as aligned_radius,
        balanced_radius as balanced_radius,
        block_svd as block_svd,
        imbalance as imbalance,
        imbalance_rate as imbalance_rate,
        numerical_radius as numerical_radius,
        numerical_range_boundary as numerical_range_boundary,
    )
    from deeplinear.landscape._arcs import (
        Arc as Arc,
        ArcCounts as ArcCounts,
        ArcMinimum as ArcMinimum,
        Submanifolds as Submanifolds,
        arc_counts as arc_counts,
        arc_kind as arc_kind,
        arc_loss as arc_loss,
        arc_minimum as arc_minimum,
        arc_point as arc_point,
        chord_loss as chord_loss,
        chord_polynomial as chord_polynomial,
        submanifolds as submanifolds,
    )
    from deeplinear.landscape._arguments import Signature as Signature, set_name as set_name
    from deeplinear.landscape._balance_report import (
        BalanceReport as BalanceReport,
        Interface as Interface,
        alignment_metric as alignment_metric,
        balance_report as balance_report,
        descent_drift as descent_drift,
    )
    from deeplinear.landscape._balanced_minima import (
        balanced_spectrum as balanced_spectrum,
        descent_threshold as descent_threshold,
    )
    from deeplinear.landscape._block_shift import (
        BlockShift as BlockShift,
        adjacency as adjacency,
        embedded as embedded,
        from_dense as from_dense,
    )
    from deeplinear.landscape._bounds import (
        NormBounds as NormBounds,
        PowerBounds as PowerBounds,
        norm_bounds as norm_bounds,
        trace_power_bounds as trace_power_bounds,
        trajectory_radius as trajectory_radius,
    )
    from deeplinear.landscape._canonical import (
        CanonicalForm as CanonicalForm,
        Detection as Detection,
        canonical_form as canonical_form,
        criticality_residual as criticality_residual,
        detect_signature as detect_signature,
    )
    from deeplinear.landscape._certificates import (
        KIND as KIND,
        Classification as Classification,
        Descent as Descent,
        Least as Least,
        NegativeDirection as NegativeDirection,
        PairRanks as PairRanks,
        Remeasured as Remeasured,
        Slope as Slope,
        Tightened as Tightened,
    )
    from deeplinear.landscape._classify import (
        classify as classify,
        is_tightened as is_tightened,
        pair_ranks as pair_ranks,
    )
    from deeplinear.landscape._critical import (
        critical_point as critical_point,
        critical_value as critical_value,
        critical_values as critical_values,
        fill_shapes as fill_shapes,
        normal_form as normal_form,
        random_critical_point as random_critical_point,
    )
    from deeplinear.landscape._curvature import (
        Inertia as Inertia,
        LayerCurvature as LayerCurvature,
        TangentSpaces as TangentSpaces,
        inertia as inertia,
        layer_curvature as layer_curvature,
        tangent_spaces as tangent_spaces,
    )
    from deeplinear.landscape._directions import (
        Direction as Direction,
        pivot_direction as pivot_direction,
        swap_direction as swap_direction,
        zero_direction as zero_direction,
    )
    from deeplinear.landscape._fibres import (
        SameProduct as SameProduct,
        balanced_representative as balanced_representative,
        fibre_move as fibre_move,
        fibre_tangent as fibre_tangent,
        fill_residual as fill_residual,
        minima_dimension as minima_dimension,
        orbit_dimension as orbit_dimension,
        product_jacobian as product_jacobian,
        random_fill as random_fill,
        same_product as same_product,
    )
    from deeplinear.landscape._gauge import (
        gauge as gauge,
        orthogonal_defect as orthogonal_defect,
        random_gauge as random_gauge,
    )
    from deeplinear.landscape._graph import (
        CriticalGraph as CriticalGraph,
        CriticalNode as CriticalNode,
        critical_graph as critical_graph,
    )
    from deeplinear.landscape._hessian import (
        HessianSpectrum as HessianSpectrum,
        hessian_form as hessian_form,
        hessian_matrix as hessian_matrix,
        hessian_spectrum as hessian_spectrum,
    )
    from deeplinear.landscape._laws import (
        LawCounts as LawCounts,
        equal_weights as equal_weights,
        generic_independent_laws as generic_independent_laws,
        law_counts as law_counts,
        law_differentials as law_differentials,
        minimal_norm as minimal_norm,
        norm_rate as norm_rate,
    )
    from deeplinear.landscape._learning import (
        learning_times as learning_times,
    )
    from deeplinear.landscape._nearest import (
        ENDED as ENDED,
        Nearest as Nearest,
        nearest_critical_point as nearest_critical_point,
    )
    from deeplinear.landscape._portrait import (
        Portrait as Portrait,
        portrait as portrait,
    )
    from deeplinear.landscape._rates import (
        CumulativeTerms as CumulativeTerms,
        Rate as Rate,
        RateReport as RateReport,
        cumulative_factors as cumulative_factors,
        cumulative_rate as cumulative_rate,
        envelope_excess as envelope_excess,
        product_rate as product_rate,
        pyramid_factors as pyramid_factors,
        pyramid_rate as pyramid_rate,
        rate_report as rate_report,
    )
    from deeplinear.landscape._reduction import (
        Assumptions as Assumptions,
        Reduction as Reduction,
        check_assumptions as check_assumptions,
        diagonal_target as diagonal_target,
        reduce_data as reduce_data,
        reduction_of as reduction_of,
    )
    from deeplinear.landscape._structure import (
        Structure as Structure,
        alignment_defect as alignment_defect,
        decoupling_defect as decoupling_defect,
        diagonal_defect as diagonal_defect,
        structure as structure,
    )
    from deeplinear.landscape._tangent_kernel import (
        sharp_rate as sharp_rate,
    )
    from deeplinear.landscape._variations import (
        DescentOrder as DescentOrder,
        first_descent_order as first_descent_order,
        line_polynomial as line_polynomial,
        variations as variations,
    )
    from deeplinear.landscape._visits import (
        Itinerary as Itinerary,
        Visit as Visit,
        itinerary as itinerary,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
