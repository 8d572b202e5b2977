"""Transformations of the public functions of `landscape`."""

from typing import Any

import jax
import numpy as np

from deeplinear import landscape
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from traces import ANNOTATED, Row, both, layers, near, normal, outside, passes, positive, refuses

KEY = jax.random.key(0)
WIDTHS = (3, 3, 3, 2)
TARGET, NETWORK = normal((2, 3)), layers(*WIDTHS)
TASK = both(TARGET, NETWORK)
SQUARE = Problem(DeepLinear((2, 2, 2, 2)), SquaredDistance(np.diag([2.0, 1.0])))
POINT = tuple(np.asarray(w) for w in landscape.normal_form([2.0, 1.0], (2, 3, 2), (1,), fills=(None, [[4.0, 3.0]])))
COLUMN = ((np.array([[1.0], [0.0]]), np.array([[1.0, 0.0]])), (np.array([[0.0], [5.0]]), np.zeros((1, 2))))
FORM = "a canonical form, which is on the host"


def problem(target: Any) -> Problem:
    return Problem(DeepLinear(WIDTHS), SquaredDistance(target))


def pair(params: Any, target: Any) -> tuple[landscape.BlockShift, landscape.BlockShift]:
    return landscape.adjacency(params), landscape.embedded(target, WIDTHS)


TABLE: dict[str, Row] = {
    "adjacency": passes(lambda params: landscape.adjacency(params).dense(), NETWORK),
    "adjacency_hessian_form": passes(
        lambda params, target, move: landscape.adjacency_hessian_form(*pair(params, target), landscape.adjacency(move)),
        both(NETWORK, TARGET, NETWORK),
    ),
    "adjacency_loss": passes(
        lambda params, target: landscape.adjacency_loss(*pair(params, target)), both(NETWORK, TARGET)
    ),
    "adjacency_svd": passes(landscape.adjacency_svd, NETWORK),
    "adjacency_velocity": passes(
        lambda params, target: landscape.adjacency_velocity(*pair(params, target)), both(NETWORK, TARGET)
    ),
    "aligned_radius": passes(landscape.aligned_radius, normal((3, 2))),
    "alignment_defect": passes(landscape.alignment_defect, NETWORK),
    "alignment_metric": passes(lambda params: landscape.alignment_metric(params, 2), NETWORK),
    "arc_counts": outside("numbers of modes"),
    "arc_kind": outside("signatures"),
    "arc_loss": passes(lambda s, place: landscape.arc_loss(s, (1, 3), (2,), place), near([10, 8, 6, 4], [0.2, 0.4])),
    "arc_minimum": passes(lambda s: landscape.arc_minimum(s, (1, 3), (2,)), near([10, 8, 6, 4])),
    "arc_point": passes(
        lambda s, place: landscape.arc_point(s, (3, 2, 2, 2), (1,), (2,), place), near([8.0, 1.0], 0.4)
    ),
    "balance_report": refuses(lambda params: landscape.balance_report(params).interfaces[0].written, NETWORK),
    "balanced_radius": passes(lambda z: landscape.balanced_radius(z, 3), positive((2,)), kinds=ANNOTATED),
    "balanced_representative": passes(landscape.balanced_representative, NETWORK),
    "balanced_spectrum": passes(lambda s: landscape.balanced_spectrum(s, 3, 2), near([4.0, 1.0])),
    "block_svd": passes(landscape.block_svd, NETWORK),
    "canonical_form": refuses(
        lambda params, s: landscape.canonical_form(params, s).fills,
        near(1.0),
        through=lambda unit: ((POINT[0] * unit, POINT[1]), np.array([2.0, 1.0]) * unit),
        kinds="layers that are rounded are no critical point",
    ),
    "check_assumptions": refuses(lambda s: landscape.check_assumptions(s, (3, 3, 3)).distinct, near([5.0, 4.0, 3.0])),
    "chord_loss": passes(
        lambda target, start, end, place: landscape.chord_loss(problem(target), start, end, place),
        both(TASK, NETWORK, near([0.2, 0.4])),
    ),
    "chord_polynomial": passes(
        lambda target, start, end: landscape.chord_polynomial(problem(target), start, end), both(TASK, NETWORK)
    ),
    "classify": refuses(
        lambda params: landscape.classify(SQUARE, params).kind.value, near(tuple(np.zeros((2, 2)) for _ in range(3)))
    ),
    "critical_graph": refuses(
        lambda s: landscape.critical_graph(s, (4, 3, 3, 3)).nodes[0].value, near([3.0, 2.0, 1.0])
    ),
    "critical_point": refuses(lambda s: landscape.critical_point(s, (3, 2, 2), (2,)), near([2.0, 1.0])),
    "critical_value": refuses(lambda s: landscape.critical_value(s, (1, 3)), near([3.0, 2.0, 1.0])),
    "critical_values": refuses(landscape.critical_values, near([3.0, 2.0])),
    "criticality_residual": outside(FORM),
    "cumulative_factors": passes(lambda params: landscape.cumulative_factors(params, 1), NETWORK),
    "cumulative_rate": refuses(
        lambda params: landscape.cumulative_rate(params, 1), near((np.eye(2), 2 * np.eye(2), 3 * np.eye(2)))
    ),
    "decoupling_defect": passes(landscape.decoupling_defect, NETWORK),
    "descent_drift": passes(
        lambda target, params, lr: landscape.descent_drift(problem(target), params, lr), both(TASK, near(0.1))
    ),
    "descent_threshold": passes(lambda s: landscape.descent_threshold(s, 2), near([4.0, 1.0])),
    "detect_signature": refuses(
        lambda product, s: landscape.detect_signature(product, s).signature, near(np.diag([0.0, 1.0]), [2.0, 1.0])
    ),
    "diagonal_defect": passes(landscape.diagonal_defect, NETWORK),
    "diagonal_target": passes(lambda s: landscape.diagonal_target(s, 2, 3), positive((2,))),
    "embedded": passes(lambda target: landscape.embedded(target, WIDTHS), TARGET),
    "envelope_excess": passes(
        landscape.envelope_excess, near(np.linspace(0.0, 3.0, 7), 5 * np.exp(-1.5 * np.linspace(0.0, 3.0, 7)), 1.0)
    ),
    "equal_weights": refuses(lambda s: landscape.equal_weights(s, (2, 1, 2)), near([3.0, 1.0])),
    "fibre_move": passes(
        lambda params, factors: landscape.fibre_move(params, None, factors),
        both(NETWORK, normal((3, 3), (3, 3))),
        through=lambda params, *factors: (params, factors),
    ),
    "fibre_tangent": refuses(landscape.fibre_tangent, NETWORK),
    "fill_residual": refuses(landscape.fill_residual, near(*COLUMN)),
    "fill_shapes": outside("widths"),
    "first_descent_order": refuses(
        lambda params, move: landscape.first_descent_order(SQUARE, params, move).coefficient,
        both(layers(2, 2, 2, 2), layers(2, 2, 2, 2)),
    ),
    "from_dense": passes(
        lambda matrix: landscape.from_dense(matrix, (1, 1)),
        near(3.0),
        through=lambda entry: (np.array([[0.0, 0.0], [1.0, 0.0]]) * entry,),
        kinds=ANNOTATED,
    ),
    "gauge": passes(
        landscape.gauge, both(NETWORK, normal((3, 3), (3, 3))), through=lambda params, *factors: (params, factors)
    ),
    "generic_independent_laws": outside("widths"),
    "hessian_form": passes(
        lambda target, params, move: landscape.hessian_form(problem(target), params, move), both(TASK, NETWORK)
    ),
    "hessian_matrix": passes(lambda target, params: landscape.hessian_matrix(problem(target), params), TASK),
    "hessian_spectrum": refuses(
        lambda target, params: landscape.hessian_spectrum(problem(target), params).values, TASK
    ),
    "imbalance": passes(lambda params: landscape.imbalance(landscape.adjacency(params)), NETWORK),
    "imbalance_rate": passes(
        lambda params, target: landscape.imbalance_rate(*pair(params, target)), both(NETWORK, TARGET)
    ),
    "inertia": refuses(lambda target, params: landscape.inertia(problem(target), params).smallest, TASK),
    "is_tightened": outside(FORM),
    "itinerary": outside("a trajectory"),
    "law_counts": refuses(landscape.law_counts, NETWORK),
    "law_differentials": passes(landscape.law_differentials, NETWORK),
    "layer_curvature": refuses(lambda target, params: landscape.layer_curvature(problem(target), params).whole, TASK),
    "learning_times": passes(
        landscape.learning_times, near([1.0, 2.0, 4.0], [[0.1, 0.1], [2.0, 0.5], [4.0, 1.5]], [4.1, 2.0])
    ),
    "line_polynomial": passes(
        lambda target, params, move: landscape.line_polynomial(problem(target), params, move), both(TASK, NETWORK)
    ),
    "minima_dimension": outside("widths"),
    "minimal_norm": passes(lambda product: landscape.minimal_norm(product, 3), TARGET),
    "nearest_critical_point": refuses(
        lambda params: landscape.nearest_critical_point(SQUARE, params).distance,
        near((0.1 * np.eye(2), np.zeros((2, 2)), np.zeros((2, 2)))),
    ),
    "norm_bounds": passes(landscape.norm_bounds, NETWORK),
    "norm_rate": passes(lambda target, params: landscape.norm_rate(problem(target), params), TASK),
    "normal_form": refuses(
        lambda s, fills: landscape.normal_form(s, (2, 2, 2), (1,), fills=fills),
        both(near([2.0, 1.0]), normal((1, 2), (1, 1))),
        through=lambda s, *fills: (s, fills),
    ),
    "numerical_radius": passes(landscape.numerical_radius, NETWORK),
    "numerical_range_boundary": passes(
        lambda params, angles: abs(landscape.numerical_range_boundary(params, angles)), both(NETWORK, near([0.1, 1.0]))
    ),
    "orbit_dimension": refuses(landscape.orbit_dimension, NETWORK),
    "orthogonal_defect": passes(
        landscape.orthogonal_defect, normal((3, 3), (2, 2)), through=lambda *factors: (factors,)
    ),
    "pair_ranks": outside(FORM),
    "pivot_direction": outside(FORM),
    "portrait": refuses(lambda target, params: landscape.portrait(params, problem(target)).inertia, TASK),
    "product_jacobian": passes(landscape.product_jacobian, NETWORK),
    "product_rate": passes(landscape.product_rate, NETWORK),
    "pyramid_factors": passes(lambda params: landscape.pyramid_factors(params, 2), layers(2, 3, 3, 2)),
    "pyramid_rate": refuses(lambda params: landscape.pyramid_rate(params, 2), layers(2, 3, 3, 2)),
    "random_critical_point": refuses(
        lambda s: landscape.random_critical_point(KEY, s, (3, 3, 2), (1,)), near([2.0, 1.0])
    ),
    "random_fill": refuses(lambda params: landscape.random_fill(KEY, params), layers(2, 3, 2)),
    "random_gauge": passes(lambda worst: landscape.random_gauge(KEY, (3, 4, 2, 2), condition=worst), near(10.0)),
    "rate_report": refuses(lambda params: landscape.rate_report(params).sharp, NETWORK),
    "reduce_data": refuses(lambda x, y: landscape.reduce_data(x, y).sigma, normal((3, 5), (2, 5))),
    "reduction_of": refuses(lambda target: landscape.reduction_of(problem(target)).sigma, TARGET),
    "same_product": refuses(lambda a, b: landscape.same_product(a, b).difference, both(NETWORK, NETWORK)),
    "set_name": outside("a signature"),
    "sharp_rate": passes(landscape.sharp_rate, NETWORK),
    "structure": refuses(lambda params: landscape.structure(params).alignment, NETWORK),
    "submanifolds": refuses(lambda s: landscape.submanifolds(s, (2,)).unstable[0].drop, near([3.0, 2.0, 1.0])),
    "swap_direction": outside(FORM),
    "tangent_spaces": refuses(
        lambda params: landscape.tangent_spaces(SQUARE, params).rates, near(tuple(np.zeros((2, 2)) for _ in range(3)))
    ),
    "trace_power_bounds": passes(
        landscape.trace_power_bounds, both(normal((3, 3)), near(2.5)), through=lambda a, power: (a @ a.T, power)
    ),
    "trajectory_radius": refuses(lambda target, params: landscape.trajectory_radius(problem(target), params), TASK),
    "variations": passes(landscape.variations, both(NETWORK, NETWORK)),
    "zero_direction": outside(FORM),
    "BlockShift": passes(
        lambda *blocks: landscape.BlockShift(blocks, WIDTHS, 1).dense(),
        normal((3, 3), (3, 3), (2, 3)),
    ),
    "Assumptions": outside("made by `check_assumptions`"),
    "Reduction": outside("made by `reduce_data`"),
    "Signature": outside("a type"),
}
