"""Residual and plain convolutional networks for small images, as they are usual for 32 x 32 pixels.

The residual networks begin with one 3 x 3 convolution instead of the large one and the pooling for photographs, and go
through four stages that halve the image; the plain ones are VGG with batch normalisation and one linear layer at their
end. Both have `width` channels in the first stage and eight times as many in the last (64 and 512 as published).
Convolutions have no biases, since normalisation follows; weights begin uniform on ±1/√(fan in), equinox's and PyTorch's
own rule. Images are (channels, rows, columns), one at a time; batches are made by `jax.vmap` over an axis called
`"batch"`, which the normalisation averages over.
"""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Float

from deeplinear.core import Array, RandomKey, check_count

BATCH = "batch"
"""Name of the axis that normalisation averages over."""

LONG = 10_000
"""Batches that the running averages count as having seen at the start.

Equinox divides them by $1 - 0.9^n$ after $n$ batches, as if they had begun with zero, but the variance begins with one.
In use they are to be as they stand, as in PyTorch.
"""

RESNET_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Blocks in each stage, by depth; from depth 50 on a block has three convolutions instead of two."""

VGG_LAYERS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""Convolutions before each pooling, by depth."""

BOTTLENECK = 50
"""Least depth of residual networks with blocks of three convolutions."""

EXPANSION = 4
"""Channels after such a block over channels within."""


class Normalised(eqx.Module):
    """A convolution with batch normalisation after it."""

    convolution: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm

    def __call__(self, image: Array, state: eqx.nn.State) -> tuple[Array, eqx.nn.State]:
        return self.norm(self.convolution(image), state)


class Block(eqx.Module):
    """Convolutions with a way around them."""

    layers: tuple[Normalised, ...]
    shortcut: Normalised | None

    def __call__(self, image: Array, state: eqx.nn.State) -> tuple[Array, eqx.nn.State]:
        signal = image
        for number, layer in enumerate(self.layers):
            signal, state = layer(jax.nn.relu(signal) if number else signal, state)
        if self.shortcut is not None:
            image, state = self.shortcut(image, state)
        return jax.nn.relu(image + signal), state


class ResNet(eqx.Module):
    """A residual network.

    Attributes:
        stem: First convolution.
        blocks: Convolutions with ways around them.
        head: Linear layer that gives a number for every class.
    """

    stem: Normalised
    blocks: tuple[Block, ...]
    head: eqx.nn.Linear

    def __call__(self, image: Float[Array, "channels rows columns"], state: eqx.nn.State) -> tuple[Array, eqx.nn.State]:
        """A number for every class, and the state of the normalisation after it."""
        signal, state = self.stem(image, state)
        signal = jax.nn.relu(signal)
        for block in self.blocks:
            signal, state = block(signal, state)
        return self.head(jnp.mean(signal, axis=(1, 2))), state


class VGG(eqx.Module):
    """A plain convolutional network.

    Attributes:
        stages: Convolutions; the image is halved after each stage, as long as it has more than one pixel.
        head: Linear layer that gives a number for every class.
    """

    stages: tuple[tuple[Normalised, ...], ...]
    head: eqx.nn.Linear

    def __call__(self, image: Float[Array, "channels rows columns"], state: eqx.nn.State) -> tuple[Array, eqx.nn.State]:
        """A number for every class, and the state of the normalisation after it."""
        pool = eqx.nn.MaxPool2d(2, 2)
        for stage in self.stages:
            for layer in stage:
                image, state = layer(image, state)
                image = jax.nn.relu(image)
            image = pool(image) if min(image.shape[1:]) > 1 else image
        return self.head(jnp.mean(image, axis=(1, 2))), state


def resnet(
    key: RandomKey,
    depth: int,
    *,
    classes: int = 10,
    channels: int = 3,
    width: int = 64,
    dtype: DTypeLike = jnp.float32,
) -> tuple[ResNet, eqx.nn.State]:
    """A residual network and the state of its normalisation.

    Args:
        key: Randomness.
        depth: 18, 34, 50 or 101.
        classes: Numbers of outputs.
        channels: Of an image.
        width: Channels of the first stage.
        dtype: Kind of the numbers.

    Example:
        >>> network, state = resnet(jax.random.key(0), 18, width=4)
        >>> images = jnp.zeros((2, 3, 8, 8), jnp.float32)
        >>> jax.eval_shape(jax.vmap(network, (0, None), (0, None), axis_name="batch"), images, state)[0].shape
        (2, 10)
    """
    _check("resnet", depth, RESNET_BLOCKS, classes=classes, channels=channels, width=width)
    grow = EXPANSION if depth >= BOTTLENECK else 1

    def build(key: Array) -> ResNet:
        keys = iter(jax.random.split(key, 2 + 4 * sum(RESNET_BLOCKS[depth])))
        stem = _normalised(next(keys), channels, width, 3, 1, dtype)
        blocks, before = [], width
        for stage, count in enumerate(RESNET_BLOCKS[depth]):
            within = width * 2**stage
            for number in range(count):
                stride = 2 if stage and not number else 1
                if grow > 1:
                    sizes = ((before, within, 1, 1), (within, within, 3, stride), (within, grow * within, 1, 1))
                else:
                    sizes = ((before, within, 3, stride), (within, within, 3, 1))
                around = stride > 1 or before != grow * within
                shortcut = _normalised(next(keys), before, grow * within, 1, stride, dtype) if around else None
                blocks.append(Block(tuple(_normalised(next(keys), *size, dtype) for size in sizes), shortcut))
                before = grow * within
        return ResNet(stem, tuple(blocks), eqx.nn.Linear(before, classes, key=next(keys), dtype=dtype))

    return eqx.nn.make_with_state(build)(jnp.asarray(key))


def vgg(
    key: RandomKey,
    depth: int,
    *,
    classes: int = 10,
    channels: int = 3,
    width: int = 64,
    dtype: DTypeLike = jnp.float32,
) -> tuple[VGG, eqx.nn.State]:
    """A plain convolutional network and the state of its normalisation.

    Args:
        key: Randomness.
        depth: 11, 13, 16 or 19, counted as published: with three linear layers, of which networks for small images
            keep one.
        classes: Numbers of outputs.
        channels: Of an image.
        width: Channels of the first stage.
        dtype: Kind of the numbers.

    Example:
        >>> network, state = vgg(jax.random.key(0), 11, width=4)
        >>> sum(len(stage) for stage in network.stages)
        8
    """
    _check("vgg", depth, VGG_LAYERS, classes=classes, channels=channels, width=width)

    def build(key: Array) -> VGG:
        keys = iter(jax.random.split(key, 1 + sum(VGG_LAYERS[depth])))
        stages, before = [], channels
        for stage, count in enumerate(VGG_LAYERS[depth]):
            after = width * min(2**stage, 8)
            layers = []
            for _ in range(count):
                layers.append(_normalised(next(keys), before, after, 3, 1, dtype))
                before = after
            stages.append(tuple(layers))
        return VGG(tuple(stages), eqx.nn.Linear(before, classes, key=next(keys), dtype=dtype))

    return eqx.nn.make_with_state(build)(jnp.asarray(key))


def _normalised(key: Array, before: int, after: int, size: int, stride: int, dtype: DTypeLike) -> Normalised:
    convolution = eqx.nn.Conv2d(
        before, after, size, stride, padding=size // 2, use_bias=False, key=key, dtype=jnp.dtype(dtype)
    )
    norm = eqx.nn.BatchNorm(after, BATCH, momentum=0.9, mode="batch", dtype=jnp.dtype(dtype))
    norm = eqx.tree_at(lambda one: one.batch_counter, norm, eqx.nn.StateIndex(jnp.asarray(LONG)))
    return Normalised(convolution, norm)


def _check(where: str, depth: int, known: Mapping[int, Sequence[int]], **counts: int) -> None:
    if depth not in known:
        options = ", ".join(map(str, known))
        raise ValueError(f"{where}: depth must be one of {options}, but is {depth!r}.")
    for name, value in counts.items():
        check_count(where, name, value, at_least=1)
