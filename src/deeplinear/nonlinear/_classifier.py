r"""Training of image classifiers by the usual protocol: batches of shuffled images, flips and crops, a falling rate.

The loss is the mean cross-entropy of a batch. Penalties are added to the gradient, $g + \mu\theta$ for every parameter,
before an optimiser sees it, as PyTorch's optimisers do; the optimisers have PyTorch's constants. An epoch goes through
a fresh permutation of the images; what is left of it after the last whole batch is not used.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, Int, Real, UInt8

from deeplinear.core import RESULTS, Array, NumericalError, RandomKey, check_count, check_number, entry, near_name
from deeplinear.models import Images
from deeplinear.nonlinear._convolutional import BATCH

EVALUATED = 500
"""Images that are classified at a time for a measurement."""


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How a classifier is trained.

    Attributes:
        optimiser: `"sgd"` (with momentum), `"adam"` or `"rmsprop"`.
        lr: Rate at the start.
        weight_decay: Penalty $\\mu$.
        momentum: Of SGD.
        epochs: Times every image is seen.
        batch: Images in a step.
        cosine: Whether the rate falls to zero along a half cosine, over all steps; else it stays.
        flips: Whether images are mirrored at random.
        crop: Pixels by which images are shifted at random, black coming in.
    """

    optimiser: str = "sgd"
    lr: float = 0.1
    weight_decay: float = 5e-4
    momentum: float = 0.9
    epochs: int = 200
    batch: int = 128
    cosine: bool = True
    flips: bool = True
    crop: int = 4

    def __post_init__(self) -> None:
        where = "Protocol"
        if self.optimiser not in RULES:
            raise ValueError(f"{where}: optimiser is '{self.optimiser}'. {near_name(self.optimiser, RULES)}")
        check_number(where, "lr", self.lr, above=0)
        check_number(where, "weight_decay", self.weight_decay, at_least=0)
        check_number(where, "momentum", self.momentum, at_least=0, at_most=1)
        for name in ("epochs", "batch"):
            check_count(where, name, getattr(self, name), at_least=1)
        check_count(where, "crop", self.crop)

    @functools.cache  # noqa: B019 - one object for equal protocols, so that they share a compiled program
    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The optimiser for a training of so many steps."""
        rate = optax.cosine_decay_schedule(self.lr, steps) if self.cosine else self.lr
        return optax.chain(
            optax.add_decayed_weights(self.weight_decay),
            RULES[self.optimiser](self),
            optax.scale_by_learning_rate(rate),
        )


RULES: dict[str, Callable[[Protocol], optax.GradientTransformation]] = {
    "sgd": lambda protocol: optax.trace(protocol.momentum),
    "adam": lambda protocol: optax.scale_by_adam(),
    "rmsprop": lambda protocol: optax.scale_by_rms(decay=0.99, eps=1e-8, eps_in_sqrt=False),
}
"""What the optimisers make of a gradient."""


class ClassifierTraining(NamedTuple):
    """A trained classifier and how it went.

    Attributes:
        network: After training.
        state: Of its normalisation.
        loss: Mean over each epoch, as training sees it: images flipped and shifted.
        train_accuracy: Share of images classified rightly, likewise.
        test_accuracy: After each epoch, with the averages of the normalisation.
    """

    network: Any
    state: eqx.nn.State | None
    loss: Float[np.ndarray, " epochs"]
    train_accuracy: Float[np.ndarray, " epochs"]
    test_accuracy: Float[np.ndarray, " epochs"]


@entry
def augmented(
    key: RandomKey, images: Real[Array, "batch channels rows columns"], *, flips: bool, crop: int
) -> Real[Array, "batch channels rows columns"]:
    """Each image mirrored with probability ½ and shifted by up to `crop` pixels each way, zeros coming in.

    Example:
        >>> augmented(jax.random.key(0), jnp.ones((2, 3, 8, 8)), flips=True, crop=2).shape
        (2, 3, 8, 8)
    """
    key_flip, key_shift = jax.random.split(key)
    if flips:
        mirrored = jax.random.bernoulli(key_flip, 0.5, images.shape[:1])
        images = jnp.where(mirrored[:, None, None, None], images[..., ::-1], images)
    if crop:
        wide = jnp.pad(images, ((0, 0), (0, 0), (crop, crop), (crop, crop)))
        shifts = jax.random.randint(key_shift, (images.shape[0], 2), 0, 2 * crop + 1)

        def cut(image: Array, shift: Array) -> Array:
            return jax.lax.dynamic_slice(image, (0, shift[0], shift[1]), images.shape[1:])

        images = jax.vmap(cut)(wide, shifts)
    return images


@entry(instead="call it outside of the transformation")
def train_classifier(
    network: Any,
    state: eqx.nn.State | None,
    data: Images,
    protocol: Protocol,
    key: RandomKey,
    *,
    observe: Callable[[int, Any], None] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> ClassifierTraining:
    """Train a classifier, such as a `resnet`, a `vgg` or a `ReLUNetwork`. Images are shifted before they are scaled.

    Args:
        network: Called with an image (channels, rows, columns) and a state; gives a number for every class and a state.
        state: Of its normalisation, if any.
        data: Images; each channel is brought to mean 0 and deviation 1 over the images for training.
        protocol: How to train.
        key: Of the permutations, flips and shifts.
        observe: Called after each epoch with its number, from 1 on, and the network as it then is.
        progress: Called after each epoch with its number, from 1 on, and its mean loss; may raise to stop.

    Raises:
        NumericalError: The loss is not finite; the message names the epoch.
    """
    where = "train_classifier"
    count = len(data.train)
    if count < protocol.batch:
        raise ValueError(f"{where}: data must have at least one batch of {protocol.batch} images, but have {count}.")
    kind = jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array))[0].dtype
    mean, spread = _moments(data.train)
    scaling = jnp.asarray(mean, kind), jnp.asarray(1 / spread, kind)
    steps = count // protocol.batch
    rule = protocol.transformation(protocol.epochs * steps)
    moments = rule.init(eqx.filter(network, eqx.is_inexact_array))
    train = _Placed(jnp.asarray(data.train), jnp.asarray(data.train_labels), scaling)
    test = _Placed(jnp.asarray(data.test), jnp.asarray(data.test_labels), scaling)
    convolving = any(leaf.ndim == 4 for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))
    advance = _one_by_one if convolving and jax.default_backend() == "cpu" else _all_at_once
    losses, seen, unseen = [], [], []
    for epoch in range(protocol.epochs):
        order, keys = _order(jax.random.fold_in(key, epoch), count, steps, protocol.batch)
        zero = jnp.zeros((), kind)
        now = _Progress(network, state, moments, zero, zero)
        now = advance(now, train, order, keys, rule, protocol.flips, protocol.crop)
        network, state, moments = now[:3]
        losses.append(float(now.loss) / steps)
        seen.append(float(now.right) / steps)
        if not np.isfinite(losses[-1]):
            raise NumericalError(
                RESULTS.diverged, f"{where}: the loss is not finite in epoch {epoch + 1}; take a smaller lr."
            )
        unseen.append(_accuracy(network, state, test))
        if observe is not None:
            observe(epoch + 1, network)
        if progress is not None:
            progress(epoch + 1, losses[-1])
    return ClassifierTraining(network, state, np.asarray(losses), np.asarray(seen), np.asarray(unseen))


@functools.partial(jax.jit, static_argnums=(1, 2, 3))
def _order(key: RandomKey, count: int, steps: int, batch: int) -> tuple[Array, Array]:
    """The images of each step of an epoch, (steps, batch), and a key for each."""
    key_order, key_steps = jax.random.split(key)
    order = jax.random.permutation(key_order, count)[: steps * batch].reshape(steps, batch)
    return order, jax.random.split(key_steps, steps)


def _moments(images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each channel; a constant channel has deviation 1."""
    levels = np.arange(256.0)
    mean, spread = [], []
    for channel in range(images.shape[-1]):
        share = np.bincount(images[..., channel].ravel(), minlength=256) / images[..., channel].size
        mean.append(share @ levels)
        spread.append(np.sqrt(share @ (levels - mean[-1]) ** 2) or 1.0)
    return np.asarray(mean), np.asarray(spread)


def _planes(images: UInt8[Array, "batch rows columns channels"]) -> UInt8[Array, "batch channels rows columns"]:
    return jnp.moveaxis(images, -1, 1)


def _scaled(planes: UInt8[Array, "batch channels rows columns"], scaling: tuple[Array, Array]) -> Array:
    """Bytes as numbers of mean 0 and deviation 1 in each channel."""
    mean, inverse = (one[:, None, None] for one in scaling)
    return (planes.astype(mean.dtype) - mean) * inverse


class _Progress(NamedTuple):
    """Where a training is: network, state of its normalisation, memory of the optimiser, sums of loss and hits."""

    network: Any
    state: Any
    moments: Any
    loss: Array
    right: Array


class _Placed(NamedTuple):
    """What is trained on: bytes, classes, mean and inverse deviation of each channel."""

    images: Array
    labels: Array
    scaling: tuple[Array, Array]


def _gradient(
    network: Any, state: Any, data: _Placed, chosen: Int[Array, " batch"], key: RandomKey, flips: bool, crop: int
) -> tuple[Any, Any, Array, Array]:
    """Gradient of the loss on the chosen images, the state after it, the loss and the share of hits."""
    shown = augmented(key, _planes(data.images[chosen]), flips=flips, crop=crop)
    images = _scaled(shown, data.scaling)
    labels = data.labels[chosen]

    def objective(network: Any, state: Any) -> tuple[Array, tuple[Any, Array]]:
        scores, state = jax.vmap(network, (0, None), (0, None), axis_name=BATCH)(images, state)
        loss = jnp.mean(optax.softmax_cross_entropy_with_integer_labels(scores, labels))
        return loss, (state, jnp.mean((jnp.argmax(scores, -1) == labels).astype(loss.dtype)))

    (loss, (state, right)), gradient = eqx.filter_value_and_grad(objective, has_aux=True)(network, state)
    return gradient, state, loss, right


def _update(now: _Progress, found: tuple[Any, Any, Array, Array], rule: optax.GradientTransformation) -> _Progress:
    """A step of the optimiser."""
    gradient, state, loss, right = found
    change, moments = rule.update(gradient, now.moments, eqx.filter(now.network, eqx.is_inexact_array))
    return _Progress(eqx.apply_updates(now.network, change), state, moments, now.loss + loss, now.right + right)


_compiled_gradient = eqx.filter_jit(_gradient)
_compiled_update = eqx.filter_jit(_update)


def _one_by_one(
    now: _Progress, data: _Placed, order: Array, keys: Array, rule: optax.GradientTransformation, flips: bool, crop: int
) -> _Progress:
    """As many steps as `order` has rows, each on the images of its row.

    For convolutions on a processor, of which a loop within a program takes XLA's slow ones. Gradient and update are
    programs of their own, so that the long compilation of the first serves all optimisers.
    """
    for chosen, key in zip(order, keys, strict=True):
        found = _compiled_gradient(now.network, now.state, data, chosen, key, flips, crop)
        now = _compiled_update(now, found, rule)
    return now


@eqx.filter_jit
def _all_at_once(
    now: _Progress, data: _Placed, order: Array, keys: Array, rule: optax.GradientTransformation, flips: bool, crop: int
) -> _Progress:
    """The same in one program, for an accelerator, and for networks without convolutions."""
    arrays, rest = eqx.partition(now, eqx.is_array)

    def body(arrays: Any, given: tuple[Array, Array]) -> tuple[Any, None]:
        here = eqx.combine(arrays, rest)
        found = _gradient(here.network, here.state, data, *given, flips, crop)
        return eqx.filter(_update(here, found, rule), eqx.is_array), None

    return eqx.combine(jax.lax.scan(body, arrays, (order, keys))[0], rest)


@eqx.filter_jit
def _hits(network: Any, state: Any, images: Array, labels: Array, scaling: tuple[Array, Array]) -> Array:
    settled = eqx.nn.inference_mode(network)
    scores, _ = jax.vmap(settled, (0, None), (0, None), axis_name=BATCH)(_scaled(_planes(images), scaling), state)
    return jnp.sum(jnp.argmax(scores, -1) == labels)


def _accuracy(network: Any, state: Any, data: _Placed) -> float:
    """Share of images classified rightly."""
    parts = [slice(first, first + EVALUATED) for first in range(0, len(data.images), EVALUATED)]
    hits = [_hits(network, state, data.images[part], data.labels[part], data.scaling) for part in parts]
    return sum(int(hit) for hit in hits) / len(data.images)
