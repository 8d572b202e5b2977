"""Transformations of the public functions of `nonlinear`."""

from typing import Any

import jax
import jax.numpy as jnp

from deeplinear import nonlinear
from traces import ANNOTATED, Row, both, near, normal, outside, passes, positive, refuses

KEY = jax.random.key(0)
UNIT = normal((6, 1), (6, 2), (6,), (6,), (1, 2))
SIZES = outside("sizes and a key")


def unit(*weights: Any) -> nonlinear.GRU:
    return nonlinear.GRU(*weights)


def trained(lr: Any, weights: Any) -> Any:
    teacher = jax.vmap(lambda key: nonlinear.normal_gru(key, 2, scale=1.0))(KEY[None])
    student = jax.tree.map(lambda leaf: leaf[:, None], teacher)
    return nonlinear.train_gru(student, teacher, weights, KEY[None], steps=2, lr=lr, batch=4).losses


TABLE: dict[str, Row] = {
    "adam_start": outside("shapes alone"),
    "adam_step": passes(
        lambda params, slope, lr: nonlinear.adam_step(params, slope, nonlinear.adam_start(params), jnp.asarray(0), lr),
        both(normal((3,), (3,)), near(0.1)),
        kinds="a list is a tree of numbers",
        scales="training ends at numbers that are not finite",
    ),
    "augmented": passes(
        lambda images: nonlinear.augmented(KEY, images, flips=True, crop=1), normal((2, 1, 3, 3)), kinds=ANNOTATED
    ),
    "enlarged": outside("images of a data set"),
    "every_output": outside("lengths"),
    "gaussian_relu": outside("sizes and a key"),
    "gaussian_sequences": SIZES,
    "gru_from_weights": passes(nonlinear.gru_from_weights, UNIT),
    "gru_response": passes(lambda *weights: nonlinear.gru_response(unit(*weights), 3), UNIT),
    "gru_teacher": passes(
        lambda target: nonlinear.gru_teacher(KEY, target, 1, steps=2), positive((3,)), grad="refused"
    ),
    "identity_relu": SIZES,
    "last_output": outside("lengths"),
    "layer_tensors": refuses(
        lambda first, last: nonlinear.layer_tensors(nonlinear.ReLUNetwork((first, last))),
        normal((4, 3), (2, 4)),
    ),
    "normal_gru": passes(lambda scale: nonlinear.normal_gru(KEY, 3, scale=scale), positive(())),
    "resnet": SIZES,
    "run_convolution_study": outside("a study"),
    "run_gru_study": outside("a study"),
    "run_relu_study": outside("a study"),
    "sequence_extrapolation": passes(
        lambda found, wanted: nonlinear.sequence_extrapolation(found, wanted, 2),
        normal((4, 5, 1), (4, 5, 1)),
    ),
    "sequence_loss": passes(
        lambda inputs, targets, times, *weights: nonlinear.sequence_loss(unit(*weights), inputs, targets, times),
        both(normal((2, 3, 1), (2, 3, 1)), positive((3,)), UNIT),
    ),
    "train_classifier": outside("a network and a data set"),
    "train_gru": refuses(trained, both(near(0.01), positive((1, 3)))),
    "unfolded": refuses(nonlinear.unfolded, normal((2, 3, 1, 2))),
    "uniform_gru": passes(lambda scale: nonlinear.uniform_gru(KEY, 3, scale=scale), positive(())),
    "vgg": SIZES,
    "weight_ranks": refuses(
        lambda first, last: nonlinear.weight_ranks({"first": first, "last": last}).layers[0].effective,
        normal((3, 3), (2, 3)),
    ),
    "GRU": outside("made by `gru_from_weights` and others"),
    "ReLUNetwork": outside("made by `gaussian_relu` and others"),
    "ResNet": outside("made by `resnet`"),
    "VGG": outside("made by `vgg`"),
}
