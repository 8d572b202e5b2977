"""Convolutional networks in plain NumPy, on the parameters of ours, for `test_image_networks` and `test_convolutional`.

Images are (number, channels, rows, columns). What is known of the networks here is their published form: how many
blocks a stage has, and where images are halved, rectified and averaged.
"""

from collections.abc import Callable

import numpy as np

from deeplinear.nonlinear._convolutional import VGG, Block, Normalised, ResNet

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}
"""Blocks in each stage of the residual networks, by depth."""

Statistics = Callable[[Normalised, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Mean and variance of each channel by which the output of a convolution is normalised."""


def convolved(images: np.ndarray, kernel: np.ndarray, stride: int) -> np.ndarray:
    """Each output pixel as a sum over its window, zeros around the image."""
    size = kernel.shape[-1]
    wide = np.pad(images, ((0, 0), (0, 0), (size // 2, size // 2), (size // 2, size // 2)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nirckl,oikl->norc", windows, kernel, optimize=True)


def of_batch(layer: Normalised, signal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance over the batch and the image, as in training."""
    return signal.mean((0, 2, 3)), signal.var((0, 2, 3))


def normalised(layer: Normalised, images: np.ndarray, stride: int, statistics: Statistics = of_batch) -> np.ndarray:
    """A convolution; mean 0 and variance 1 in each channel; scale and shift of each channel."""
    signal = convolved(images, np.asarray(layer.convolution.weight), stride)
    mean, variance, scale, shift = (
        np.asarray(one)[:, None, None] for one in (*statistics(layer, signal), layer.norm.weight, layer.norm.bias)
    )
    return scale * (signal - mean) / np.sqrt(variance + 1e-5) + shift


def block(ours: Block, images: np.ndarray, strides: tuple[int, ...], statistics: Statistics = of_batch) -> np.ndarray:
    """Convolutions, rectified between them, and the way around them, rectified after the sum."""
    inner = images
    for number, (layer, stride) in enumerate(zip(ours.layers, strides, strict=True)):
        inner = normalised(layer, np.maximum(inner, 0) if number else inner, stride, statistics)
    around = images
    if ours.shortcut is not None:
        around = normalised(ours.shortcut, images, int(np.prod(strides)), statistics)
    return np.maximum(inner + around, 0)


def plain_resnet(ours: ResNet, depth: int, images: np.ndarray, statistics: Statistics = of_batch) -> np.ndarray:
    """A residual network: the first block of each stage but the first halves images, in a 3 x 3 convolution."""
    signal = np.maximum(normalised(ours.stem, images, 1, statistics), 0)
    blocks = iter(ours.blocks)
    for stage, count in enumerate(BLOCKS[depth]):
        for number in range(count):
            stride = 2 if stage and not number else 1
            signal = block(next(blocks), signal, (stride, 1) if depth < 50 else (1, stride, 1), statistics)
    assert next(blocks, None) is None
    return signal.mean((2, 3)) @ np.asarray(ours.head.weight).T + np.asarray(ours.head.bias)


def plain_vgg(ours: VGG, images: np.ndarray, statistics: Statistics = of_batch) -> np.ndarray:
    """A plain network: rectified convolutions, and after each stage the greatest of every 2 x 2 pixels."""
    signal = images
    for stage in ours.stages:
        for layer in stage:
            signal = np.maximum(normalised(layer, signal, 1, statistics), 0)
        count, channels, rows, columns = signal.shape
        if rows > 1:
            signal = signal.reshape(count, channels, rows // 2, 2, columns // 2, 2).max((3, 5))
    return signal.mean((2, 3)) @ np.asarray(ours.head.weight).T + np.asarray(ours.head.bias)
