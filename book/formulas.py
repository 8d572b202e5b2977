"""Formulas as MathML, which browsers draw by themselves: no script, no font, no request."""

import functools
import html
import re
import xml.etree.ElementTree

FORMULA = re.compile(
    r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>'
    r'|<div class="arithmatex">\s*\\\[(?P<block>.*?)\\\]\s*</div>',
    re.DOTALL,
)
"""What the Markdown extension `arithmatex` leaves of `$...$` and `$$...$$`."""

MARK = "\N{WHITE SQUARE}"
"""Stands for a formula where the text around it is looked at."""

PARTS = {"mfrac": 2, "mover": 2, "mroot": 2, "msub": 2, "msup": 2, "munder": 2, "msubsup": 3, "munderover": 3}
"""How many parts an element of MathML must have."""


def to_mathml(page: str) -> tuple[str, list[str]]:
    """A page with its formulas as MathML, and what is wrong with those that are left as they are."""
    wrong: list[str] = []

    def convert(found: re.Match[str]) -> str:
        block = found["block"]
        latex = html.unescape(found["inline"] if block is None else block).strip()
        try:
            if block is None:
                return _mathml(latex, "inline")
            return f'<div class="formula">{_mathml(latex, "block")}</div>'
        except ValueError as error:
            wrong.append(str(error))
            return f"<code>{html.escape(latex)}</code>"

    converted = FORMULA.sub(convert, page)
    marked = re.sub(r"<math\b.*?</math>", MARK, converted, flags=re.DOTALL)
    prose = re.sub(r"<(pre|code)\b.*?</\1>|<[^>]*>", "", marked, flags=re.DOTALL)
    for left in re.findall(rf"\$\s*{MARK}.{{0,40}}|.{{0,40}}{MARK}\s*\$", prose):
        wrong.append(f"a dollar stands beside a formula ({left}); an empty line must be around $$...$$")
    for left in re.findall(r"\$\$.{0,60}|\$[^$\n]*[\\^_{][^$\n]*\$", prose):
        wrong.append(f"{left} is not recognised as a formula; an empty line must be around $$...$$")
    return converted, wrong


@functools.cache
def _mathml(latex: str, display: str) -> str:
    from latex2mathml.converter import convert

    if "$" in latex:
        raise ValueError(f"the formula ${latex}$ has a dollar in it; an empty line must part two displayed formulas")
    if re.search(r"\\\\\s*\[", latex):
        raise ValueError(f"the formula ${latex}$ has a distance after a line break, which is not known")
    braced = re.sub(r"\\(mathbb|mathcal|mathfrak) +([A-Za-z])", r"\\\1{\2}", latex)  # else the letter is a plain one
    try:
        found = convert(braced, display=display)
    except Exception as error:  # the converter has many, of no common kind
        raise ValueError(f"the formula ${latex}$ is not understood: {type(error).__name__} {error}") from None
    unknown = re.findall(r"\\[A-Za-z]+", html.unescape(found))
    if unknown:
        raise ValueError(f"the formula ${latex}$ has commands that are not known: {', '.join(unknown)}")
    # The converter takes what is left open for closed, and what is missing for empty.
    braces = re.sub(r"\\.", "", latex)
    tree = xml.etree.ElementTree.fromstring(found)
    short = [element.tag for element in tree.iter() if len(element) < PARTS.get(element.tag.rpartition("}")[2], 0)]
    if braces.count("{") != braces.count("}") or short:
        raise ValueError(f"the formula ${latex}$ lacks a brace or an argument")
    return found
