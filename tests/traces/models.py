"""Transformations of the public functions of `models`."""

import jax
import jax.numpy as jnp
import numpy as np

from deeplinear import models
from deeplinear.core import xp
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from traces import ANNOTATED, Row, Traced, both, layers, normal, outside, passes, positive

NETWORK, KEY = DeepLinear((2, 2, 2)), jax.random.key(0)
MASK = np.array([[1, 0, 1], [1, 1, 0]])


def start(make, free, **options) -> Traced:
    """An initialisation, made from arrays and called at once."""
    return passes(lambda *arrays: make(*arrays)(NETWORK, KEY), free, **options)


def loss(make, free, **options) -> Traced:
    """A loss of arrays, at a product that is the last of them."""

    def everything(*arrays):
        made = make(*arrays[:-1])
        product = arrays[-1]
        return made.value(product), made.gradient(product), made.curvature(product, product)

    return passes(everything, both(free, normal((2, 3))), **options)


def energy(product, weight):
    return jnp.sum(weight * product**3)


def at(row):
    """A method of a problem."""
    return getattr(Problem(NETWORK, SquaredDistance(np.eye(2)), 0.1), row)


def covariances(rng):
    x, y = rng.normal(size=(3, 5)), rng.normal(size=(2, 5))
    return x @ x.T, y @ x.T, y @ y.T


def even(first, middle, last, *rest):
    return (first + first.T) / 2, middle, (last + last.T) / 2, *rest


def turned(angle, *rest):
    return jnp.array([[jnp.cos(angle), -jnp.sin(angle)], [jnp.sin(angle), jnp.cos(angle)]]), *rest


PATTERN = outside("a pattern of observed entries")
SIZES = outside("sizes and a key")

TABLE: dict[str, Row] = {
    "Aligned": start(models.Aligned, normal((2, 2))),
    "AlphaM": start(models.AlphaM, lambda rng: (rng.uniform(0.5, 1.5), rng.uniform(2.0, 3.0))),
    "Balanced": start(models.Balanced, normal((2, 2)), grad="refused"),
    "Completion": loss(lambda target: models.Completion(target, MASK), normal((2, 3))),
    "Cumulative": start(lambda scale: models.Cumulative(1, scale), positive(())),
    "Decoupled": start(models.Decoupled, positive((2,))),
    "DeepLinear": outside("widths"),
    "DeltaBalanced": start(models.DeltaBalanced, positive(())),
    "Diagonal": start(models.Diagonal, normal((2, 2))),
    "Energy": loss(
        lambda weight: models.Energy(energy, weight),
        normal((2, 3)),
        scales="the energy is a function of the user's, and overflows",
    ),
    "EntryCompletion": loss(lambda values: models.EntryCompletion([0, 1], [0, 2], values, (2, 3)), normal((2,))),
    "Explicit": start(models.Explicit, layers(2, 2, 2)),
    "FromSVD": start(
        lambda left, values, lam: models.FromSVD(left, values, np.eye(2), lam),
        both(normal(()), positive((2,)), normal(())),
        through=turned,
    ),
    "Gaussian": start(models.Gaussian, positive(())),
    "Glorot": outside("nothing"),
    "He": outside("nothing"),
    "LambdaBalanced": start(
        lambda lam, std, scale: models.LambdaBalanced(lam, std, absolute_scale=scale), positive((), (), ())
    ),
    "LeCun": outside("nothing"),
    "LinearRNN": outside("sizes"),
    "Masked": passes(
        lambda values, params: models.Masked(NETWORK, (MASK[:, :2], MASK[:, :2]), values).forward(params)[0],
        both(layers(2, 2, 2), layers(2, 2, 2)),
        kinds=ANNOTATED,
    ),
    "MatchedGaussian": start(models.MatchedGaussian, positive(())),
    "NarrowDeepLinear": outside("widths"),
    "NetworkEntries": outside("widths and indices"),
    "Orthogonal": start(models.Orthogonal, positive(())),
    "Problem": outside("a model and a loss"),
    "Problem.gradient": passes(at("gradient"), layers(2, 2, 2)),
    "Problem.hessian": passes(at("hessian"), layers(2, 2, 2)),
    "Problem.product": passes(at("product"), layers(2, 2, 2)),
    "Problem.value": passes(at("value"), layers(2, 2, 2)),
    "Pyramid": start(
        lambda growth, scale: models.Pyramid(1, growth, scale),
        lambda rng: (rng.uniform(3.5, 4.0), rng.uniform(0.5, 1.0)),
    ),
    "Regression": loss(models.Regression, covariances, through=even),
    "SampleRegression": loss(models.SampleRegression, normal((3, 5), (2, 5))),
    "Scaled": start(models.Scaled, positive((2,))),
    "ScaledIdentity": start(models.ScaledIdentity, normal(())),
    "Sensing": loss(models.Sensing, normal((4, 2, 3), (4,))),
    "SkipNetwork": outside("widths"),
    "SquaredDistance": loss(models.SquaredDistance, normal((2, 3))),
    "TaskAligned": start(
        lambda strengths, lam: models.TaskAligned(np.diag([2.0, 1.0]), strengths, lam),
        both(normal((2,)), normal(())),
    ),
    "WarmStart": outside("a finished run"),
    "WhiteInputs": loss(models.WhiteInputs, normal((2, 3))),
    "balancedness": passes(models.balancedness, layers(2, 3, 2)),
    "bipartite_adjacency": PATTERN,
    "block_mask": outside("sizes"),
    "canonical_pattern": PATTERN,
    "checked_problem": outside("checks an argument"),
    "checked_system": outside("checks an argument"),
    "column_mask": outside("sizes"),
    "connected_mask": outside("nothing"),
    "connectivity": PATTERN,
    "conserved": passes(models.conserved, layers(2, 3, 2)),
    "diagonal_mask": outside("sizes"),
    "disconnected_mask": outside("nothing"),
    "drift": passes(models.drift, both(layers(2, 3, 2), layers(2, 3, 2))),
    "entry_connectivity": PATTERN,
    "entry_gradient": passes(lambda params: models.entry_gradient(NETWORK, params, 0, 1), layers(2, 2, 2)),
    "entry_gram": passes(lambda params: models.entry_gram(NETWORK, params, [0, 1], [0, 0]), layers(2, 2, 2)),
    "feasible_lambda": outside("checks an argument"),
    "lambda_estimate": passes(models.lambda_estimate, layers(2, 3, 2)),
    "layer_strengths": passes(models.layer_strengths, both(positive((2,)), normal(()))),
    "low_rank_target": passes(lambda std: models.low_rank_target(KEY, (3, 2), 1, std=std), positive(())),
    "observed_entries": outside("a loss"),
    "random_mask": SIZES,
    "random_regression": passes(lambda sigma: models.random_regression(KEY, 2, 1, 3, sigma=sigma), positive(())),
    "rescale_balance": passes(models.rescale_balance, both(layers(2, 3, 2), positive(()))),
    "semantic_hierarchy": passes(models.semantic_hierarchy, positive(())),
    "skip_network": outside("widths"),
    "sparse_completion": passes(
        lambda values: models.sparse_completion([0, 1], [0, 1], values, (2, 2, 2)).loss, normal((2,))
    ),
    "spectral_target": passes(lambda values: models.spectral_target(KEY, (3, 2), values), positive((2,))),
    "surviving_laws": outside("a model"),
    "two_balanced_layers": passes(
        lambda values, lam: models.two_balanced_layers(
            np.eye(2), xp.asarray(values), np.eye(2), xp.asarray(lam), np.eye(2), (2, 2, 2)
        ),
        both(positive((2,)), normal(())),
        kinds=ANNOTATED,
    ),
    "unique_patterns": outside("sizes"),
    "whiten": passes(models.whiten, normal((2, 4))),
}
