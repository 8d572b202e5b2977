"""Transformations of the public functions of `geometry`."""

import math

import jax.numpy as jnp
import numpy as np

from deeplinear import geometry
from deeplinear.models import SquaredDistance
from traces import Row, both, layers, normal, outside, passes, positive, refuses

METRIC = geometry.Metric(3)
TARGET = SquaredDistance(jnp.array([[2.0, 0.5], [0.3, 1.0]]))


def point(rng):
    """A matrix with positive determinant and different singular values."""
    return (rng.uniform(-0.3, 0.3, size=(2, 2)) + [[2.0, 0.3], [-0.3, 1.0]],)


def definite(*matrices):
    """Positive definite matrices of free ones."""
    return tuple(matrix @ matrix.T + jnp.eye(2) for matrix in matrices)


def even(matrix):
    return (matrix + matrix.T) / 2


def turn(angle):
    """A turn of the plane."""
    return jnp.array([[jnp.cos(angle), -jnp.sin(angle)], [jnp.sin(angle), jnp.cos(angle)]])


def lift(matrix):
    """Two balanced layers with this product."""
    left, values, right_t = jnp.linalg.svd(matrix)
    root = jnp.sqrt(values)
    return root[:, None] * right_t, left * root


def frames(values, angles):
    return values, [turn(angle) for angle in angles]


def at(make):
    """Value and derivatives of an energy at a matrix."""

    def everything(*arrays):
        energy, matrix = make(*arrays[:-1]), arrays[-1]
        return energy.value(matrix), energy.gradient(matrix), energy.curvature(matrix, matrix)

    return everything


SIZES = outside("sizes")
SPECTRUM = positive((3,))

TABLE: dict[str, Row] = {
    "BalancedGeodesic": outside("made by `balanced_geodesic`"),
    "FreeEnergy": passes(at(lambda beta: geometry.FreeEnergy(TARGET, beta, 2)), both(positive(()), point)),
    "Geodesic": outside("made by `geodesic`"),
    "Metric": outside("a depth"),
    "Metric.apply": passes(METRIC.apply, both(point, normal((2, 2)))),
    "Metric.inner": passes(METRIC.inner, both(point, normal((2, 2), (2, 2)))),
    "Metric.inverse": passes(METRIC.inverse, both(point, normal((2, 2)))),
    "Metric.norm": passes(METRIC.norm, both(point, normal((2, 2)))),
    "Monitors": outside("made by `Geodesic`"),
    "NegativeEntropy": outside("a depth"),
    "PowerEnergy": passes(at(geometry.PowerEnergy), lambda rng: (rng.uniform(1.5, 2.5), *point(rng))),
    "Scaled": passes(at(lambda factor: geometry.Scaled(TARGET, factor)), both(positive(()), point)),
    "SpectralEnergy": outside("functions"),
    "SpectralFreeEnergy": passes(
        at(lambda beta: geometry.SpectralFreeEnergy(geometry.PowerEnergy(2.0), beta, 2)), both(positive(()), point)
    ),
    "balance": refuses(geometry.balance, layers(2, 2, 2)),
    "balanced_geodesic": refuses(
        lambda start, moves: geometry.balanced_geodesic(start, moves, [0.0, 0.1]).layers,
        both(point, normal(())),
        through=lambda matrix, size: (lift(matrix), tuple(size * layer for layer in lift(matrix))),
    ),
    "balanced_layers": passes(geometry.balanced_layers, both(positive((2,)), normal((3,))), through=frames),
    "balanced_lift": passes(lambda matrix: geometry.balanced_lift(matrix, 2), point, grad="refused"),
    "balancing_flow": refuses(lambda params: geometry.balancing_flow(params, [0.0, 0.1]).norms, layers(2, 2, 2)),
    "balancing_rate": passes(lambda matrix: geometry.balancing_rate(matrix, 3), point),
    "balancing_velocity": passes(geometry.balancing_velocity, layers(2, 2, 2)),
    "bures_distance": passes(geometry.bures_distance, normal((2, 2), (2, 2)), through=definite),
    "bures_exit": passes(geometry.bures_exit, normal((2, 2)), through=lambda matrix: (-definite(matrix)[0],)),
    "bures_exponential": passes(
        geometry.bures_exponential,
        normal((2, 2), (2, 2), (2,)),
        through=lambda a, p, t: (*definite(a), even(p), t),
    ),
    "bures_geodesic": passes(
        geometry.bures_geodesic, normal((2, 2), (2, 2), (2,)), through=lambda a, b, t: (*definite(a, b), t)
    ),
    "bures_inner": passes(
        geometry.bures_inner,
        normal((2, 2), (2, 2), (2, 2)),
        through=lambda x, y, z: (*definite(x), even(y), even(z)),
    ),
    "bures_map": passes(geometry.bures_map, normal((2, 2), (2, 2)), through=definite),
    "classify_endpoints": refuses(lambda a, b: len(geometry.classify_endpoints(a, b, 3)), both(point, point)),
    "concavity_spectrum": passes(lambda spectrum: geometry.concavity_spectrum(spectrum, 3), SPECTRUM),
    "critical_power": SIZES,
    "curve_action": refuses(lambda a, b: geometry.curve_action([a, b], 2), both(point, point)),
    "curve_length": refuses(lambda a, b: geometry.curve_length([a, b], 2), both(point, point)),
    "diagonal_dominance": passes(lambda spectrum: geometry.diagonal_dominance(spectrum, 3), SPECTRUM),
    "direction_defect": refuses(
        geometry.direction_defect, both(point, normal((2, 2))), through=lambda matrix, c: (lift(matrix), c)
    ),
    "distance": refuses(lambda a, b: geometry.distance(a, b, 2), both(point, point)),
    "distance_lower_bound": passes(lambda a, b: geometry.distance_lower_bound(a, b, 3), both(point, point)),
    "distances": refuses(lambda a, b: geometry.distances(a, b, 2).lengths, both(point, point)),
    "dominance_threshold": SIZES,
    "entropy": passes(lambda spectrum: geometry.entropy(spectrum, 3), SPECTRUM),
    "entropy_force": passes(lambda matrix: geometry.entropy_force(matrix, 3), point),
    "entropy_gradient": passes(lambda spectrum: geometry.entropy_gradient(spectrum, 3), SPECTRUM),
    "entropy_hessian": passes(lambda spectrum: geometry.entropy_hessian(spectrum, 3), SPECTRUM),
    "equilibrium": outside("an energy"),
    "equilibrium_rates": passes(
        lambda value, curvature: geometry.equilibrium_rates(value, curvature, 3, 2.0, 2), positive((), ())
    ),
    "explicit_geodesic": refuses(
        lambda matrix: geometry.explicit_geodesic(np.eye(2), matrix, 2).length,
        normal((2, 2)),
        through=definite,
    ),
    "frame_line_defect": passes(
        geometry.frame_line_defect,
        both(positive((2,)), normal((3,)), positive((2,)), normal((3,))),
        through=lambda a, b, c, d: (*frames(a, b), *frames(c, d)),
    ),
    "free_energy": passes(at(lambda beta: geometry.free_energy(TARGET, beta, 2)), both(positive(()), point)),
    "gaussian_imbalance": passes(lambda std: geometry.gaussian_imbalance(2, std), positive(())),
    "gaussian_rank_share": SIZES,
    "geodesic": refuses(
        lambda matrix, vector: geometry.geodesic(matrix, 3, [0.0, 0.1], velocity=vector).points,
        both(point, normal((2, 2))),
    ),
    "geodesic_between": refuses(lambda a, b: geometry.geodesic_between(a, b, 2).length, both(point, point)),
    "geodesic_field": passes(
        lambda x, p: geometry.geodesic_field(METRIC, x, p), both(point, normal((2, 2))), scales=False
    ),
    "geodesic_field_sum": passes(
        lambda x, p: geometry.geodesic_field_sum(geometry.layer_exponents(METRIC), x, p),
        both(point, normal((2, 2))),
        scales=False,
    ),
    "geometric_mean": passes(geometry.geometric_mean, normal((2, 2), (2, 2)), through=definite),
    "gram_power_derivative": passes(
        lambda x, z: geometry.gram_power_derivative(x, z, 0.4), both(point, normal((2, 2)))
    ),
    "hamiltonian": passes(lambda x, p: geometry.hamiltonian(METRIC, x, p), both(point, normal((2, 2)))),
    "has_equilibrium": outside("an energy"),
    "horizontal_basis": refuses(geometry.horizontal_basis, point, through=lambda matrix: (lift(matrix),)),
    "horizontal_lift": refuses(
        geometry.horizontal_lift, both(point, normal((2, 2))), through=lambda matrix, z: (lift(matrix), z)
    ),
    "horizontal_part": refuses(
        geometry.horizontal_part, both(point, layers(2, 2, 2)), through=lambda matrix, z: (lift(matrix), z)
    ),
    "horizontality_defect": refuses(
        geometry.horizontality_defect, both(point, layers(2, 2, 2)), through=lambda matrix, z: (lift(matrix), z)
    ),
    "is_balanced": refuses(geometry.is_balanced, layers(2, 2, 2)),
    "langevin": passes(geometry.langevin, normal((3,))),
    "langevin_slope": passes(geometry.langevin_slope, normal((3,))),
    "layer_exponents": outside("a metric"),
    "learning_time": passes(
        lambda start, end, target: geometry.learning_time(start, end, target, 2),
        lambda rng: (rng.uniform(0.1, 0.4), rng.uniform(0.5, 0.9), rng.uniform(1.0, 2.0)),
    ),
    "line_defect": refuses(geometry.line_defect, both(point, point), through=lambda a, b: (lift(a), lift(b))),
    "log_fibre_volume": passes(lambda spectrum: geometry.log_fibre_volume(spectrum, 3), SPECTRUM),
    "log_orthogonal_volume": SIZES,
    "logistic_mode": passes(geometry.logistic_mode, positive((), (), (3,))),
    "manifold_dimension": SIZES,
    "matrix_flow": refuses(lambda start: geometry.matrix_flow(TARGET, start, 2, [0.0, 0.1]).times, point),
    "metric_eigenvalue": passes(lambda a, b: geometry.metric_eigenvalue(a, b, 3), positive((3,), (3,))),
    "minimal_fibre_norm": passes(lambda matrix: geometry.minimal_fibre_norm(matrix, 3), point),
    "multipliers": refuses(
        geometry.multipliers,
        point,
        through=lambda matrix: (lift(matrix), lift(matrix)),
    ),
    "pair_concavity": passes(lambda ratio: geometry.pair_concavity(ratio, 3), normal((3,))),
    "path_inefficiency": refuses(
        lambda start: geometry.path_inefficiency(TARGET, start, 2).length, point, scales=False, kinds=False
    ),
    "power_decay": passes(lambda start, times: geometry.power_decay(start, math.inf, times), positive((), (3,))),
    "power_derivative": passes(
        lambda x, z: geometry.power_derivative(x, z, 0.4),
        normal((2, 2), (2, 2)),
        through=lambda x, z: (*definite(x), even(z)),
    ),
    "power_difference": passes(lambda a, b: geometry.power_difference(a, b, 0.4), positive((3,), (3,))),
    "relative_imbalance": passes(geometry.relative_imbalance, layers(2, 2, 2)),
    "rotation_chord": refuses(
        lambda a, b: geometry.rotation_chord(a, b, 3).length, normal((2, 2), (2, 2)), through=definite
    ),
    "singular_derivative": passes(geometry.singular_derivative, both(point, normal((2, 2)))),
    "split_equilibria": SIZES,
    "split_power": passes(lambda ratio: geometry.split_power(ratio, 3, 2), normal((3,))),
    "straight_line_end": passes(
        geometry.straight_line_end,
        both(positive((2,)), normal((3,)), positive((2,)), normal((), ())),
        through=lambda a, b, c, d, e: (*frames(a, b), c, turn(d), turn(e)),
    ),
    "vertical_basis": refuses(geometry.vertical_basis, point, through=lambda matrix: (lift(matrix),)),
    "vertical_gram": refuses(geometry.vertical_gram, point, through=lambda matrix: (lift(matrix),)),
}
