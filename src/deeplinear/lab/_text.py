"""Stories and formulas: Markdown with `$...$` as HTML with MathML, which browsers draw by themselves."""

import functools
import re

from latex2mathml.converter import convert
from markdown_it import MarkdownIt

FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$", re.DOTALL)


@functools.cache
def to_html(text: str) -> str:
    """HTML of a text that we wrote."""
    formulas: list[str] = []

    def keep(found: re.Match[str]) -> str:
        block, inline = found.groups()
        formulas.append(convert(block or inline, display="block" if block else "inline"))
        return f"\ue000{len(formulas) - 1}\ue001"

    html = MarkdownIt("commonmark").enable("table").render(FORMULA.sub(keep, text))
    return re.sub("\ue000([0-9]+)\ue001", lambda found: formulas[int(found.group(1))], html)
