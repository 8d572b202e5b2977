"""Images in their published formats: idx, records of bytes, and the pickles of CIFAR's Python version."""

import math

import numpy as np

from deeplinear.readers._source import Source

PUBLISHED = "take the file that its authors publish"


def read_idx(source: Source, axes: int) -> np.ndarray:
    """Return an array of bytes in the format idx: two zeros, 8 for bytes, the number of axes, their lengths, the bytes.

    Example:
        >>> read_idx(Source("load", "labels", bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])), 1)
        array([7, 9], dtype=uint8)
    """
    content = source.unpacked()
    head = 4 + 4 * axes
    if content[:4] != bytes([0, 0, 8, axes]) or len(content) < head:
        raise source.refused(f"it is not in the format idx, which begins with 0, 0, 8, {axes}", PUBLISHED)
    shape = tuple(int(size) for size in np.frombuffer(content, dtype=">u4", count=axes, offset=4))
    if 0 in shape:
        raise source.refused(f"its shape {shape} is empty", PUBLISHED)
    if len(content) - head != math.prod(shape):
        raise source.refused(
            f"it must have {math.prod(shape)} bytes after its head for the shape {shape}, but has "
            f"{len(content) - head}",
            PUBLISHED,
        )
    return np.frombuffer(content, dtype=np.uint8, offset=head).reshape(shape)


def read_records(source: Source, size: int) -> np.ndarray:
    """Return records of `size` bytes each, as rows.

    Example:
        >>> read_records(Source("load", "batch.bin", bytes(range(6))), 3).tolist()
        [[0, 1, 2], [3, 4, 5]]
    """
    content = source.unpacked()
    if not content or len(content) % size:
        raise source.refused(f"it must hold records of {size} bytes, but has {len(content)} bytes", PUBLISHED)
    return np.frombuffer(content, dtype=np.uint8).reshape(-1, size)
