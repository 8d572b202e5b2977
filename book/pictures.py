"""How a picture stands on a page: as a link to its file, and with its size, so that the page does not jump."""

import html
import re
import struct

POINT = 4 / 3
"""Pixels of a screen in a point of a drawing."""


def tag(path: str, alt: str, data: bytes) -> str:
    """The picture as HTML.

    Args:
        path: Where the file lies, seen from the page.
        alt: What it shows, in words.
        data: The file, a PNG or an SVG of matplotlib.
    """
    width, height = size(data)
    image = f'<img src="{path}" alt="{html.escape(alt, quote=True)}" width="{width}" height="{height}" loading="lazy">'
    return f'<figure class="picture"><a href="{path}">{image}</a></figure>'


def size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG or an SVG, in pixels.

    Raises:
        ValueError: If it is neither, or a drawing without a size in points.
    """
    if data.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", data[16:24])
        return width, height
    head = re.search(rb"<svg\b[^>]*>", data)
    found = dict(re.findall(rb'\b(width|height)="([\d.]+)pt"', head[0])) if head else {}
    if len(found) < 2:
        raise ValueError("size: data must be a PNG, or an SVG with width and height in points.")
    return round(float(found[b"width"]) * POINT), round(float(found[b"height"]) * POINT)
