"""Linear recurrent networks: responses, spectral measures and moments, certificates, constructions, teachers."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.recurrent._ambiguity import (
        ExtrapolationInterval as ExtrapolationInterval,
        extrapolation_interval as extrapolation_interval,
        moment_openness as moment_openness,
        upper_principal_moment as upper_principal_moment,
    )
    from deeplinear.recurrent._certificate import (
        Certificate as Certificate,
        Certified as Certified,
        MomentChain as MomentChain,
        certificate as certificate,
        certify as certify,
        moment_chain as moment_chain,
        moment_gap as moment_gap,
    )
    from deeplinear.recurrent._constructions import (
        SharpnessStudent as SharpnessStudent,
        chebyshev_nodes as chebyshev_nodes,
        non_extrapolating_student as non_extrapolating_student,
        non_extrapolating_twin as non_extrapolating_twin,
        sharpness_student as sharpness_student,
    )
    from deeplinear.recurrent._continuation import Continuation as Continuation, continuation as continuation
    from deeplinear.recurrent._growth import OrderGrowth as OrderGrowth, order_growth as order_growth
    from deeplinear.recurrent._invariants import (
        balance_gap as balance_gap,
        balance_ratio as balance_ratio,
        conserved_matrix as conserved_matrix,
        mode_invariants as mode_invariants,
        norm_difference as norm_difference,
    )
    from deeplinear.recurrent._measure import (
        Jacobi as Jacobi,
        SpectralMeasure as SpectralMeasure,
        atom_dimension as atom_dimension,
        diagonal_equivalent as diagonal_equivalent,
        entropy_dimension as entropy_dimension,
        hankel_condition as hankel_condition,
        ho_kalman as ho_kalman,
        jacobi as jacobi,
        measure_from_moments as measure_from_moments,
        spectral_measure as spectral_measure,
        wasserstein as wasserstein,
    )
    from deeplinear.recurrent._near_zero import (
        NearZeroExponents as NearZeroExponents,
        NearZeroRatios as NearZeroRatios,
        NormEvent as NormEvent,
        escape_time as escape_time,
        linearised_flow as linearised_flow,
        linearised_ratios as linearised_ratios,
        measured_exponents as measured_exponents,
        near_zero_ratios as near_zero_ratios,
        near_zero_system as near_zero_system,
        norm_event as norm_event,
        predicted_exponents as predicted_exponents,
    )
    from deeplinear.recurrent._polish import Polished as Polished, polish as polish
    from deeplinear.recurrent._response import (
        Extrapolation as Extrapolation,
        LogResponse as LogResponse,
        RatioSummary as RatioSummary,
        Response as Response,
        extrapolation as extrapolation,
        hankel_order as hankel_order,
        hankel_singular_values as hankel_singular_values,
        impulse_response as impulse_response,
        log_response as log_response,
        outputs as outputs,
        summarise_ratios as summarise_ratios,
    )
    from deeplinear.recurrent._spectral import (
        ResidualPolynomial as ResidualPolynomial,
        residual_polynomial as residual_polynomial,
        spectral_gradient as spectral_gradient,
    )
    from deeplinear.recurrent._teachers import (
        balanced_student as balanced_student,
        balanced_teacher as balanced_teacher,
        delay_teacher as delay_teacher,
        memoryless_teacher as memoryless_teacher,
        unbalanced_teacher as unbalanced_teacher,
    )
    from deeplinear.recurrent._verdict import (
        Condition as Condition,
        ExtrapolationVerdict as ExtrapolationVerdict,
        extrapolation_verdict as extrapolation_verdict,
    )
else:
    __getattr__, __dir__, __all__ = attach(__name__)
