"""Closed forms: what training does, known without training."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.exact._adapters import (
        AdapterLambda as AdapterLambda,
        adapter_lambda as adapter_lambda,
        adapter_layers as adapter_layers,
    )
    from deeplinear.exact._aligned import AlignedSolution as AlignedSolution
    from deeplinear.exact._balance_statistics import (
        BalanceMoments as BalanceMoments,
        BalanceSpread as BalanceSpread,
        LambdaLimits as LambdaLimits,
        balance_moments as balance_moments,
        balance_spread as balance_spread,
        expected_lambda as expected_lambda,
        lambda_limits as lambda_limits,
        lambda_range as lambda_range,
        lambda_sign_boundary as lambda_sign_boundary,
        lambda_variance as lambda_variance,
        layer_variances as layer_variances,
    )
    from deeplinear.exact._base import AbstractSolution as AbstractSolution
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
    from deeplinear.exact._channel import ChannelSolution as ChannelSolution
    from deeplinear.exact._column import ColumnAlignment as ColumnAlignment, column_alignment as column_alignment
    from deeplinear.exact._continual import Continual as Continual, continual as continual, forgetting as forgetting
    from deeplinear.exact._convergence import (
        Diagnosis as Diagnosis,
        Regime as Regime,
        diagnose as diagnose,
        late_rate as late_rate,
        regime as regime,
    )
    from deeplinear.exact._diagonal import (
        DiagonalLimit as DiagonalLimit,
        Ending as Ending,
        chain_minimum as chain_minimum,
        diagonal_bracket as diagonal_bracket,
        diagonal_field as diagonal_field,
        diagonal_flow as diagonal_flow,
        diagonal_hessian as diagonal_hessian,
        diagonal_laws_rank as diagonal_laws_rank,
        diagonal_layers as diagonal_layers,
        diagonal_limit as diagonal_limit,
        diagonal_weights as diagonal_weights,
        mode_losses as mode_losses,
    )
    from deeplinear.exact._disconnected import (
        DisconnectedSolution as DisconnectedSolution,
        disconnected as disconnected,
        disconnected_hyperbolic as disconnected_hyperbolic,
    )
    from deeplinear.exact._fine_tuning import (
        added_feature as added_feature,
        fine_tune_losses as fine_tune_losses,
        rebalance as rebalance,
    )
    from deeplinear.exact._function_space import function_space_field as function_space_field
    from deeplinear.exact._kernel import (
        kernel_change as kernel_change,
        kernel_distance as kernel_distance,
        kernel_distance_full as kernel_distance_full,
        tangent_kernel as tangent_kernel,
    )
    from deeplinear.exact._layer_modes import (
        balanced_mode as balanced_mode,
        balanced_mode_time as balanced_mode_time,
        layer_mode as layer_mode,
        layer_mode_time as layer_mode_time,
    )
    from deeplinear.exact._lazy import (
        LazyCertificate as LazyCertificate,
        lazy_certificate as lazy_certificate,
        toeplitz_example as toeplitz_example,
        toeplitz_ratio as toeplitz_ratio,
    )
    from deeplinear.exact._modes import (
        learning_time as learning_time,
        mode_progress as mode_progress,
        mode_progress_lazy as mode_progress_lazy,
        mode_progress_printed as mode_progress_printed,
        mode_progress_rich as mode_progress_rich,
        mode_strength as mode_strength,
        reversal_mode as reversal_mode,
    )
    from deeplinear.exact._noise import (
        input_noise_loss as input_noise_loss,
        noise_optimal_lambda as noise_optimal_lambda,
        noisy_loss as noisy_loss,
        weight_noise_loss as weight_noise_loss,
    )
    from deeplinear.exact._phase_map import PhaseMap as PhaseMap, phase_map as phase_map
    from deeplinear.exact._printed_forms import (
        Overlaps as Overlaps,
        PrecisionWarning as PrecisionWarning,
        block_form as block_form,
        decaying_form as decaying_form,
        generic_form as generic_form,
        overlaps as overlaps,
    )
    from deeplinear.exact._representations import (
        LargeLambda as LargeLambda,
        aligned_to as aligned_to,
        large_lambda_limit as large_lambda_limit,
        limit as limit,
        recover as recover,
        recovered_correlations as recovered_correlations,
        similarity_in as similarity_in,
        similarity_out as similarity_out,
    )
    from deeplinear.exact._reversal import reversal_task as reversal_task, reversal_time as reversal_time
    from deeplinear.exact._riccati import (
        Correlations as Correlations,
        Eigensystem as Eigensystem,
        correlations_of as correlations_of,
        eigensystem as eigensystem,
        flow_matrix as flow_matrix,
        propagate as propagate,
        riccati_field as riccati_field,
        stacked as stacked,
        unstacked as unstacked,
    )
    from deeplinear.exact._scalar import (
        escape_time as escape_time,
        product_time as product_time,
        scalar_curvature as scalar_curvature,
        scalar_equilibria as scalar_equilibria,
        scalar_speed as scalar_speed,
        scalar_state as scalar_state,
        scalar_time as scalar_time,
        transition_width as transition_width,
    )
    from deeplinear.exact._shallow import ShallowSolution as ShallowSolution
    from deeplinear.exact._single_channel import (
        Channel as Channel,
        single_channel as single_channel,
        single_channel_limit as single_channel_limit,
        single_channel_rate as single_channel_rate,
        single_node_equilibrium as single_node_equilibrium,
        single_node_exponents as single_node_exponents,
    )
    from deeplinear.exact._singular_values import singular_value_speed as singular_value_speed
    from deeplinear.exact._solve import NoClosedFormError as NoClosedFormError, solve as solve
    from deeplinear.exact._transfer import (
        generalisation_loss as generalisation_loss,
        new_feature_response as new_feature_response,
        transfer_kernel as transfer_kernel,
        transfer_target as transfer_target,
    )
    from deeplinear.exact._warm_start import (
        WarmStartBounds as WarmStartBounds,
        warm_start_bounds as warm_start_bounds,
        warm_start_field as warm_start_field,
        warm_start_layers as warm_start_layers,
        warm_start_violations as warm_start_violations,
    )
    from deeplinear.exact._whitened import WhitenedSolution as WhitenedSolution
else:
    __getattr__, __dir__, __all__ = attach(__name__)
