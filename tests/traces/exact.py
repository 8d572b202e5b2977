"""Transformations of the public functions of `exact`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear import exact
from deeplinear.models import Completion, DeepLinear, Glorot, LeCun, Problem, Scaled, SquaredDistance
from traces import ANNOTATED, Row, both, layers, near, normal, outside, passes, positive, refuses

KEY = jax.random.key(0)
NETWORK = DeepLinear((3, 2, 2))
PAIRS = Problem(DeepLinear((2, 2, 2)), Completion(np.diag([4.0, 9.0]), np.eye(2)))
COLUMN = Problem(NETWORK, Completion(np.array([[0, 1.3, 0], [0, 0.7, 0]]), np.array([[0, 1, 0], [0, 1, 0]])))


def blocks(factor: Any) -> tuple[Any, Any, Any]:
    """Blocks of $QQ^T$ for three inputs, of which `exact.Correlations` are made."""
    factor = jnp.asarray(factor, dtype=float)
    upper, lower = factor[:3], factor[3:]
    return upper @ upper.T, lower @ upper.T, lower @ lower.T


def of_correlations(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `exact.Correlations` as one of their blocks."""
    return lambda *arguments: call(*(exact.Correlations(*a) if isinstance(a, tuple) else a for a in arguments))


def balanced(product: Any, lam: Any) -> Any:
    """Layers with a product, balanced."""
    left, values, right = jnp.linalg.svd(product, full_matrices=False)
    both = jnp.sqrt(values**2 + lam**2 / 4)
    return jnp.sqrt(both - lam / 2)[:, None] * right, left * jnp.sqrt(both + lam / 2)


def start(product: Any, lam: Any, *rest: Any) -> tuple[Any, ...]:
    """Balanced layers and the other arguments."""
    return balanced(product, lam), *rest


def start_with(product: Any, lam: Any, target: Any, *rest: Any) -> tuple[Any, ...]:
    """Balanced layers, a target, their imbalance, and the other arguments."""
    return balanced(product, lam), target, lam, *rest


def squared(target: Any) -> Problem:
    return Problem(NETWORK, SquaredDistance(target))


def flow(found: exact.BlockFlow, times: Any) -> Any:
    return found.eigenvalues(times), found.product(times).a, found.loss(times)


def learnt(solution: exact.Continual, times: Any) -> Any:
    return solution.losses(times), solution.forgetting_matrix, solution.products


def parts(system: exact.Eigensystem) -> Any:
    """What has a derivative: two modes of three inputs, so that the complement is one vector."""
    return system.values, system.left, system.right, system.vectors


MOTIONS = near([0.5, 2.0], 0.3, 1.5, 2.0)
BLOCKS = {"blocks": 3, "size": 2}
CHAINS = positive((3, 2), (2,))
CHANNEL = both(normal((3,), (3,)), positive(()))

TABLE: dict[str, Row] = {
    "adapter_lambda": passes(lambda std: exact.adapter_lambda(40, 4, std), positive(())),
    "adapter_layers": passes(
        lambda std: [exact.adapter_layers(KEY, (4, 2), 1, std, balanced=even) for even in (False, True)], positive(())
    ),
    "added_feature": passes(lambda target: exact.added_feature(target, 1, 0, 1), normal((2, 3))),
    "aligned_to": passes(exact.aligned_to, both(layers(3, 2, 2), layers(3, 2, 2))),
    "alpha_m_eigenvalues": passes(lambda a, m: exact.alpha_m_eigenvalues(a, m, width=5), near(0.7, 3.0)),
    "balance_moments": passes(lambda v: exact.balance_moments((4, 3, 2), v), positive((2,))),
    "balance_spread": passes(lambda v: exact.balance_spread((4, 3, 5), v), positive((2,))),
    "balanced_mode": passes(lambda t, a, s: exact.balanced_mode(t, a, s, 3), near([1.0, 2.0], [0.3, 0.4], [1.0, 1.5])),
    "balanced_mode_time": passes(
        lambda a, s, part: exact.balanced_mode_time(a, s, 3, fraction=part), near([0.3, 0.4], [1.0, 1.5], 0.6)
    ),
    "block_constant": passes(lambda d, a, m: exact.block_constant(d, a, m, **BLOCKS), near(3.5, 0.4, 3.0)),
    "block_crossover": passes(lambda d, a, v: exact.block_crossover(d, a, value=v, blocks=5), near(3.0, 0.1, 1.2)),
    "block_equation_1": passes(lambda x, d, v: exact.block_equation_1(x, d, value=v, blocks=2), near(0.8, 3.0, 1.2)),
    "block_equation_2": passes(lambda x, d, v: exact.block_equation_2(x, d, value=v, blocks=2), near(0.8, 3.0, 1.2)),
    "block_flow": passes(
        lambda d, a, m, v, t: flow(exact.block_flow(d, a, m, value=v, **BLOCKS), t),
        near(3.0, 0.4, 3.0, 1.2, [1.0, 2.0]),
        kinds=ANNOTATED,
    ),
    "block_flow_from": passes(
        lambda d, one, two, three, v, t: flow(exact.block_flow_from(d, one, two, three, value=v, **BLOCKS), t),
        near(3.0, 0.4, 0.2, 0.3, 1.2, [1.0, 2.0]),
        kinds=ANNOTATED,
    ),
    "block_form": refuses(
        exact.block_form, both(normal((2, 3)), near(0.6), normal((2, 3)), near(0.7)), through=start_with
    ),
    "block_limit": passes(lambda d, a, m, v: exact.block_limit(d, a, m, value=v, **BLOCKS), near(3.0, 0.4, 3.0, 1.2)),
    "block_limit_from": passes(
        lambda d, one, two, v: exact.block_limit_from(d, one, two, value=v, **BLOCKS), near(3.0, 0.4, 0.3, 1.2)
    ),
    "block_small_scale": passes(lambda d, a, m: exact.block_small_scale(d, a, m, **BLOCKS), near(3.0, 0.4, 3.0)),
    "chain_minimum": passes(exact.chain_minimum, near([3.0, -2.0], 2.0)),
    "column_alignment": passes(
        lambda params, end: exact.column_alignment(COLUMN, params, end), both(layers(3, 2, 2), normal((2,)))
    ),
    "continual": passes(
        lambda params, targets, lengths, times: learnt(exact.continual(params, targets, lengths), times),
        both(normal((2, 3)), near(0.6), normal((2, 2, 3)), near([0.5, 0.7], [0.3, 0.9])),
        through=start,
    ),
    "correlations_of": passes(lambda factor: exact.correlations_of(factor, 3), normal((5, 2))),
    "decaying_form": refuses(
        exact.decaying_form, both(normal((2, 3)), near(0.6), normal((2, 3)), near(0.7)), through=start_with
    ),
    "diagnose": refuses(exact.diagnose, both(normal((2, 3)), near(0.6), normal((2, 3))), through=start_with),
    "diagonal_bracket": passes(exact.diagonal_bracket, positive((3, 2), (2,), (2,))),
    "diagonal_field": passes(exact.diagonal_field, CHAINS),
    "diagonal_flow": passes(exact.diagonal_flow, both(near([0.5, 1.0]), CHAINS)),
    "diagonal_hessian": passes(exact.diagonal_hessian, CHAINS),
    "diagonal_laws_rank": passes(exact.diagonal_laws_rank, positive((3, 2)), grad="none"),
    "diagonal_layers": passes(exact.diagonal_layers, both(layers(2, 3, 2), normal((2, 2)))),
    "diagonal_limit": passes(exact.diagonal_limit, CHAINS),
    "diagonal_weights": passes(
        exact.diagonal_weights,
        positive((2,), (2,)),
        through=lambda one, two: ((jnp.eye(3, 2) * one, jnp.eye(2, 3) * jnp.append(two, 1.0)),),
    ),
    "disconnected": passes(
        lambda params, times: exact.disconnected(PAIRS, params).params(times),
        near([[0.1, 0.02], [0.01, 0.2]], [[0.1, 0.03], [0.02, 0.1]], 0.3),
        through=lambda one, two, times: ((one, two), times),
    ),
    "disconnected_hyperbolic": passes(
        lambda params: exact.disconnected_hyperbolic(PAIRS, params),
        near([[0.1, 0.02], [0.01, 0.2]], [[0.1, 0.03], [0.02, 0.1]]),
        through=lambda one, two: ((one, two),),
    ),
    "eigensystem": passes(lambda target, lam: parts(exact.eigensystem(target, lam)), both(normal((2, 3)), near(0.6))),
    "escape_time": passes(lambda a, s: exact.escape_time(a, s, 3), near(0.1, 2.0)),
    "expected_lambda": passes(lambda k, r: exact.expected_lambda(Glorot(), k, r), near(0.5, 0.75)),
    "fine_tune_losses": passes(
        exact.fine_tune_losses, both(layers(3, 2, 2), normal((2, 3)), near([0.5, 1.0], [0.3, 0.8]))
    ),
    "flow_matrix": passes(exact.flow_matrix, both(normal((2, 3)), near(0.6))),
    "forgetting": passes(exact.forgetting, normal((2, 3), (2, 3), (2, 3))),
    "function_space_field": passes(exact.function_space_field, both(normal((2, 3), (2, 3)), near(0.6))),
    "generalisation_loss": passes(lambda a, b: exact.generalisation_loss(a, b, 0), normal((3,), (3,))),
    "generic_form": refuses(
        exact.generic_form, both(normal((2, 3)), near(0.6), normal((2, 3)), near(0.7)), through=start_with
    ),
    "input_noise_loss": passes(exact.input_noise_loss, near([2.0, 1.0], 0.3, 0.1)),
    "kernel_change": passes(exact.kernel_change, both(normal((2, 3), (2, 3)), near(4.0), normal((3, 2)))),
    "kernel_distance": passes(
        of_correlations(exact.kernel_distance),
        normal((5, 2), (5, 2)),
        through=lambda a, b: (blocks(a), blocks(b)),
    ),
    "kernel_distance_full": passes(exact.kernel_distance_full, normal((3, 3), (3, 3))),
    "lambda_limits": passes(lambda k, r: exact.lambda_limits(Glorot(), k, r)[:5], near(3.0, 1.2)),
    "lambda_range": refuses(lambda gains: exact.lambda_range(Scaled(gains)), positive((2,))),
    "lambda_sign_boundary": passes(
        lambda g, k: exact.lambda_sign_boundary(Scaled(g), k), both(positive((2,)), near(2.0))
    ),
    "lambda_variance": passes(lambda k, r: exact.lambda_variance(LeCun(), k, r), near(2.0, 4.0)),
    "large_lambda_limit": passes(exact.large_lambda_limit, both(normal((2, 3)), near(5.0))),
    "late_rate": passes(exact.late_rate, both(normal((2, 3)), near(0.6))),
    "layer_mode": passes(exact.layer_mode, both(near([0.5, 2.0]), positive((2, 3), (2,)))),
    "layer_mode_time": passes(
        lambda a, s, part: exact.layer_mode_time(a, s, fraction=part),
        near([[0.2, 0.5, 0.3], [0.4, 0.1, 0.3]], [1.0, 2.0], [0.3, 0.6]),
    ),
    "layer_variances": passes(lambda gains: exact.layer_variances(Scaled(gains), (4, 3, 2)), positive((2,))),
    "lazy_certificate": refuses(
        lambda params: exact.lazy_certificate(exact.toeplitz_example(4, 0.01)[0], params),
        near(tuple(np.asarray(layer) for layer in exact.toeplitz_example(4, 0.01)[1])),
    ),
    "learning_time": passes(exact.learning_time, near(0.5, 0.3, 1.5, 2.0)),
    "limit": passes(lambda t, lam: (exact.limit(t, lam), exact.limit(t, lam, 1)), both(normal((2, 3)), near(0.6))),
    "mode_losses": passes(exact.mode_losses, CHAINS),
    "mode_progress": passes(exact.mode_progress, MOTIONS),
    "mode_progress_lazy": passes(exact.mode_progress_lazy, near(0.1, -3.0)),
    "mode_progress_printed": passes(exact.mode_progress_printed, MOTIONS),
    "mode_progress_rich": passes(exact.mode_progress_rich, near(1.0, 0.3, 1.5)),
    "mode_strength": passes(exact.mode_strength, MOTIONS),
    "new_feature_response": passes(
        lambda c: exact.new_feature_response(c, 0), normal((3, 2)), through=lambda x: (x.T @ x,)
    ),
    "noise_optimal_lambda": passes(lambda s: exact.noise_optimal_lambda(s, (2, 2, 4)), near([3.0, 1.0])),
    "noisy_loss": passes(
        lambda target, params, one, two: exact.noisy_loss(squared(target), params, input_std=one, weight_std=two),
        both(normal((2, 3)), layers(3, 2, 2), near(0.3, 0.2)),
    ),
    "overlaps": passes(exact.overlaps, both(normal((2, 3)), near(0.6), normal((2, 3))), through=start_with),
    "phase_map": passes(exact.phase_map, both(normal((2, 3), (2, 3)), near([0.5, 2.0], [0.1, 1.0], [0.5, 1.0]))),
    "product_time": passes(lambda a, s, part: exact.product_time(a, s, 5, part), near(0.2, [4.0, 3.0], 0.5)),
    "propagate": passes(
        lambda q, target, lam, t: exact.correlations_of(exact.propagate(q, exact.eigensystem(target, lam), t), 3),
        both(normal((5, 2), (2, 3)), near(0.6, 0.8)),
    ),
    "rebalance": passes(exact.rebalance, both(layers(3, 2, 2), near(0.7))),
    "recover": passes(exact.recover, both(normal((2, 3)), near(0.6))),
    "recovered_correlations": passes(exact.recovered_correlations, both(normal((2, 3)), near(0.6))),
    "regime": refuses(exact.regime, both(normal((2, 3)), near(0.6), normal((2, 3))), through=start_with),
    "reversal_mode": passes(exact.reversal_mode, near([0.5, 2.0], 1.0, 1.0, 0.5)),
    "reversal_task": passes(lambda target: exact.reversal_task(target, 1), normal((2, 3))),
    "reversal_time": passes(exact.reversal_time, near(2.0, 1e-3, 0.9), step=1e-5),
    "riccati_field": passes(
        of_correlations(exact.riccati_field),
        both(normal((5, 2), (2, 3)), near(0.6)),
        through=lambda q, *rest: (blocks(q), *rest),
    ),
    "scalar_curvature": passes(lambda z, s: exact.scalar_curvature(z, s, 4), near([0.3, 1.2], 1.0)),
    "scalar_equilibria": passes(lambda s: exact.scalar_equilibria(s, 4), positive(())),
    "scalar_speed": passes(lambda z, s: exact.scalar_speed(z, s, 4), near([0.3, 1.2], 1.0)),
    "scalar_state": passes(lambda a, s, t: exact.scalar_state(a, s, 4, t), near(0.3, 2.0, 1.5)),
    "scalar_time": passes(lambda a, b, s: exact.scalar_time(a, b, s, 4), near(0.3, 0.8, 2.0)),
    "similarity_in": passes(
        of_correlations(exact.similarity_in), normal((5, 2), (3, 2)), through=lambda q, x: (blocks(q), x)
    ),
    "similarity_out": passes(
        of_correlations(exact.similarity_out), normal((5, 2), (2, 3)), through=lambda q, y: (blocks(q), y)
    ),
    "single_channel": passes(exact.single_channel, both(near([0.5, 1.0]), CHANNEL)),
    "single_channel_limit": passes(exact.single_channel_limit, CHANNEL),
    "single_channel_rate": passes(exact.single_channel_rate, CHANNEL),
    "single_node_equilibrium": passes(exact.single_node_equilibrium, near(0.5, -1.0, 1.0)),
    "single_node_exponents": passes(exact.single_node_exponents, near(0.5, -1.0, 1.0)),
    "singular_value_speed": passes(
        lambda target, one, two: exact.singular_value_speed(
            Problem(DeepLinear((2, 2, 2)), SquaredDistance(target)), (one, two)
        ),
        both(normal((2, 2)), near([2.0, 1.0]), normal((2, 2), (2, 2))),
        through=lambda target, values, left, right: (
            target,
            jnp.sqrt(values)[:, None] * jnp.linalg.qr(right)[0],
            jnp.linalg.qr(left)[0] * jnp.sqrt(values),
        ),
    ),
    "solve": refuses(
        lambda params, target: exact.solve(squared(target), params).product(0.5),
        both(normal((2, 3)), near(0.6), normal((2, 3))),
        through=start,
        kinds="layers that are rounded are not balanced",
    ),
    "stacked": passes(exact.stacked, layers(3, 2, 2)),
    "tangent_kernel": passes(
        of_correlations(exact.tangent_kernel), normal((5, 2), (3, 2)), through=lambda q, x: (blocks(q), x)
    ),
    "toeplitz_example": refuses(lambda ratio, value: exact.toeplitz_example(3, ratio, value)[1], near(0.1, 1.0)),
    "toeplitz_ratio": outside("a number of rows"),
    "transfer_kernel": passes(exact.transfer_kernel, both(normal((2, 3)), near(3.0))),
    "transfer_target": passes(lambda target: exact.transfer_target(target, 1), normal((4, 3))),
    "transition_width": passes(lambda a, s: exact.transition_width(a, s, 5), near(0.2, 2.0)),
    "unstacked": passes(lambda factor: exact.unstacked(factor, 3), normal((5, 2))),
    "warm_start_bounds": passes(exact.warm_start_bounds, near(1.0, 0.1)),
    "warm_start_field": passes(exact.warm_start_field, both(normal((4,)), near(1.0, 0.5))),
    "warm_start_layers": passes(exact.warm_start_layers, normal((4,))),
    "warm_start_violations": passes(exact.warm_start_violations, both(layers(2, 2, 2), near(1.0, 0.5))),
    "weight_noise_loss": passes(
        lambda s, lam, std, floor: exact.weight_noise_loss(s, lam, (2, 2, 4), std, floor),
        near([2.0, 1.0], 0.5, 0.1, 0.2),
    ),
    "BlockMatrix": passes(
        lambda a, b, c: (
            found := exact.BlockMatrix(a, b, c, blocks=3, size=2),
            found.eigenvalues,
            (found @ found).dense(),
        ),
        positive((), (), ()),
    ),
    "AlignedSolution": outside("made by `solve`"),
    "BlockFlow": outside("made by `block_flow`"),
    "BlockLimit": outside("made by `block_limit`"),
    "ChannelSolution": outside("made by `solve`"),
    "ColumnAlignment": outside("made by `column_alignment`"),
    "Continual": outside("made by `continual`"),
    "Correlations": outside("made by `correlations_of`"),
    "DisconnectedSolution": outside("made by `disconnected`"),
    "Eigensystem": outside("made by `eigensystem`"),
    "LargeLambda": outside("made by `large_lambda_limit`"),
    "Overlaps": outside("made by `overlaps`"),
    "PhaseMap": outside("made by `phase_map`"),
    "ShallowSolution": outside("made by `solve`"),
    "WarmStartBounds": outside("made by `warm_start_bounds`"),
    "WhitenedSolution": outside("made by `solve`"),
}
