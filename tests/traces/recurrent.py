"""Transformations of the public functions of `recurrent`."""

import jax.numpy as jnp
import numpy as np

from deeplinear import recurrent
from deeplinear.models import LinearRNN
from traces import Row, both, normal, outside, passes, positive, refuses


def system(rng):
    """Three matrices of two states with positive weights; the transition is made symmetric by `symmetric`."""
    return (tuple(rng.uniform(0.3, 0.9, size=shape) for shape in ((2, 2), (2, 1), (1, 2))),)


def symmetric(triple, *rest):
    transition, first, output = triple
    return ((transition + transition.T) / 2, first, output), *rest


def diagonal(triple, *rest):
    transition, first, output = triple
    return (transition * jnp.eye(2), first, output), *rest


def balanced(triple, *rest):
    transition, first, _ = triple
    return ((transition + transition.T) / 2, first, first.T), *rest


def response(rng):
    """Moments of two atoms."""
    atoms, weights = np.sort(rng.uniform(0.2, 0.4, size=2) + [0.0, 0.5]), rng.uniform(0.5, 1.0, size=2)
    return (np.array([weights @ atoms**j for j in range(6)]),)


def measure(rng):
    weights = rng.uniform(0.3, 0.7)
    return (np.sort(rng.uniform(0.2, 0.4, size=2) + [0.0, 0.5]), np.array([weights, 1 - weights]))


def pair(rng):
    return (measure(rng),)


SIZES = outside("sizes and a generator of random numbers")

TABLE: dict[str, Row] = {
    "Certificate": outside("made by `certificate`"),
    "atom_dimension": refuses(recurrent.atom_dimension, pair),
    "balance_gap": passes(recurrent.balance_gap, system),
    "balance_ratio": passes(recurrent.balance_ratio, system),
    "balanced_student": refuses(
        lambda scale: recurrent.balanced_student(2, scale, np.random.default_rng(0)), positive(())
    ),
    "balanced_teacher": SIZES,
    "certificate": refuses(lambda atoms: recurrent.certificate(atoms, 5, 7), lambda rng: measure(rng)[:1]),
    "certify": refuses(
        lambda triple, atoms, weights: recurrent.certify(triple, atoms, weights, 5, 7),
        both(system, measure),
        through=balanced,
    ),
    "chebyshev_nodes": SIZES,
    "conserved_matrix": passes(recurrent.conserved_matrix, system),
    "continuation": refuses(lambda values: recurrent.continuation(values, 7, between=False), response),
    "delay_teacher": SIZES,
    "diagonal_equivalent": passes(
        lambda triple: recurrent.diagonal_equivalent(triple).transition, system, through=symmetric
    ),
    "entropy_dimension": refuses(recurrent.entropy_dimension, pair),
    "escape_time": refuses(recurrent.escape_time, lambda rng: (rng.uniform(0.5, 2.0), rng.uniform(0.1, 0.5))),
    "extrapolation": refuses(
        lambda one, other: recurrent.extrapolation(one, other, 2, horizon=4), both(normal((4,)), normal((4,)))
    ),
    "extrapolation_interval": refuses(
        lambda values: recurrent.extrapolation_interval(values[:3], 4, low=0.0, high=1.0, points=41), response
    ),
    "extrapolation_verdict": refuses(
        lambda one, other: recurrent.extrapolation_verdict(one, other, 4, horizon=6),
        both(system, system),
        through=balanced,
    ),
    "hankel_condition": refuses(lambda values: recurrent.hankel_condition(values, 2), response),
    "hankel_order": refuses(recurrent.hankel_order, response),
    "hankel_singular_values": passes(recurrent.hankel_singular_values, normal((5,))),
    "ho_kalman": refuses(lambda values: recurrent.ho_kalman(values, 2), response),
    "impulse_response": passes(lambda triple: recurrent.impulse_response(triple, 5).values, system),
    "jacobi": refuses(recurrent.jacobi, pair),
    "linearised_flow": passes(recurrent.linearised_flow, both(system, positive((), ()))),
    "linearised_ratios": passes(recurrent.linearised_ratios, both(system, positive((), (3,)))),
    "log_response": refuses(lambda triple: recurrent.log_response(triple, 5), system),
    "measure_from_moments": refuses(lambda values: recurrent.measure_from_moments(values, 2), response),
    "measured_exponents": refuses(
        lambda scales, *systems: recurrent.measured_exponents(scales, systems, 1.0),
        both(positive((2,)), system, system),
    ),
    "memoryless_teacher": refuses(recurrent.memoryless_teacher, positive(())),
    "mode_invariants": passes(recurrent.mode_invariants, system, through=diagonal),
    "moment_chain": refuses(
        lambda values, loss: recurrent.moment_chain(values, loss, 2, 6, radius=1.0, constant=1.0),
        lambda rng: (*response(rng), 1e-6),
    ),
    "moment_gap": refuses(recurrent.moment_gap, lambda rng: (*response(rng), 1e-6)),
    "moment_openness": refuses(lambda *pair: recurrent.moment_openness(*pair, low=0.0, high=1.0), measure),
    "near_zero_ratios": passes(recurrent.near_zero_ratios, both(system, positive(()))),
    "near_zero_system": refuses(
        lambda scale: recurrent.near_zero_system(2, scale, np.random.default_rng(0)), positive(())
    ),
    "non_extrapolating_student": refuses(lambda values: recurrent.non_extrapolating_student(values[:3], 0.5), response),
    "non_extrapolating_twin": refuses(
        lambda measure: recurrent.non_extrapolating_twin(measure, 4, 0.5),
        pair,
    ),
    "norm_difference": passes(recurrent.norm_difference, system),
    "norm_event": SIZES,
    "order_growth": refuses(
        lambda weights: recurrent.order_growth(LinearRNN(2, 3), weights, horizon=8),
        lambda rng: (rng.uniform(0.3, 0.9, size=(2, 8)),),
    ),
    "outputs": passes(recurrent.outputs, both(system, normal((4,)))),
    "polish": refuses(
        recurrent.polish,
        lambda rng: (*response(rng), system(rng)[0]),
        through=lambda v, t: (v[:4], diagonal(balanced(t)[0])[0]),
    ),
    "predicted_exponents": SIZES,
    "residual_polynomial": passes(recurrent.residual_polynomial, both(normal((3,)), normal((2,)))),
    "sharpness_student": refuses(recurrent.sharpness_student, pair),
    "spectral_gradient": passes(recurrent.spectral_gradient, both(system, normal((3,))), through=symmetric),
    "spectral_measure": refuses(recurrent.spectral_measure, system, through=balanced),
    "summarise_ratios": refuses(recurrent.summarise_ratios, positive((4,))),
    "unbalanced_teacher": SIZES,
    "upper_principal_moment": refuses(
        lambda *pair: recurrent.upper_principal_moment(*pair, low=0.0, high=1.0), measure
    ),
    "wasserstein": refuses(recurrent.wasserstein, lambda rng: (measure(rng), measure(rng))),
}
