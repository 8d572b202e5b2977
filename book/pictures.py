"""How a picture stands on a page: as a link to its file, and with its size, so that the page does not jump."""

import html
import re
import struct

POINT = 4 / 3
"""Pixels of a page in a point of a drawing."""

METRE = 96 / 0.0254
"""Pixels of a page in a metre."""


def tag(path: str, alt: str, data: bytes) -> str:
    """The picture as HTML.

    Args:
        path: Where the file lies, seen from the page.
        alt: What it shows, in words.
        data: The file, a PNG or an SVG of matplotlib.
    """
    width, height = size(data)
    sides = f'width="{width}" height="{height}" style="--width: {width}px"'
    image = f'<img src="{path}" alt="{html.escape(alt, quote=True)}" {sides} loading="lazy">'
    return f'<figure class="picture"><a href="{path}">{image}</a></figure>'


def size(data: bytes) -> tuple[int, int]:
    """Width and height of a PNG or an SVG in pixels of a page, of which an inch has 96.

    A PNG that does not tell its density has one for each of its own.

    Raises:
        ValueError: If it is neither, or a drawing without a size in points.
    """
    if data.startswith(b"\x89PNG"):
        width, height = struct.unpack(">II", data[16:24])
        density = data.find(b"pHYs", 0, data.find(b"IDAT"))
        across, down, metric = struct.unpack(">IIB", data[density + 4 : density + 13]) if density > 0 else (1, 1, 0)
        return (round(width * METRE / across), round(height * METRE / down)) if metric else (width, height)
    head = re.search(rb"<svg\b[^>]*>", data)
    found = dict(re.findall(rb'\b(width|height)="([\d.]+)pt"', head[0])) if head else {}
    if len(found) < 2:
        raise ValueError("size: data must be a PNG, or an SVG with width and height in points.")
    return round(float(found[b"width"]) * POINT), round(float(found[b"height"]) * POINT)
