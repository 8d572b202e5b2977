"""Pieces of a page: elements that escape what is put into them, and numbers and sentences as a person reads them."""

import html
import re
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence

EMPTY = ("br", "img", "input")
"""Elements without content."""


class Html(str):
    """Text that is markup already; any other text is escaped where it enters an element."""


def escape(text: str) -> str:
    """The one place where text is made harmless, inside elements and inside quotes."""
    return html.escape(text, quote=True)


def safe(text: str) -> Html:
    """Markup as it is, any other text escaped."""
    return text if isinstance(text, Html) else Html(escape(text))


def join(parts: Iterable[str], between: str = "") -> Html:
    """Parts one after another, escaped unless they are markup."""
    return Html(between.join(map(safe, parts)))


def tag(name: str, /, *children: str, **attributes: str | bool) -> Html:
    """An element. Of attributes a trailing underscore is dropped, others become hyphens; `True` has no value."""
    texts = []
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is not False:
            texts.append(f" {key}" if value is True else f' {key}="{escape(value)}"')
    start = f"<{name}{''.join(texts)}>"
    return Html(start if name in EMPTY else f"{start}{join(children)}</{name}>")


def prose(text: str) -> Html:
    """A sentence of a record: `$…$` is shown in italics as it is written, what is in backquotes as code."""

    def mark(match: re.Match[str]) -> str:
        return f'<em class="math">{match[1]}</em>' if match[1] is not None else f"<code>{match[2]}</code>"

    return Html(re.sub(r"\$([^$`\n]+)\$|`([^`\n]+)`", mark, escape(text)))


def paragraphs(text: str) -> Html:
    """Paragraphs of a record's text, which has empty lines between them."""
    return join(tag("p", prose(part.strip())) for part in re.split(r"\n\s*\n", text) if part.strip())


def table(label: str, head: Sequence[str], rows: Iterable[Html], class_: str = "") -> Html:
    """A table in a box of its own, which scrolls where the screen is narrow."""
    titles = join(tag("th", title, scope="col") for title in head)
    body = tag("table", tag("thead", tag("tr", titles)), tag("tbody", *rows), class_=class_)
    return tag("div", body, class_="box", tabindex="0", role="region", aria_label=label)


def row(*cells: str, **attributes: str) -> Html:
    """One row of a table."""
    return tag("tr", *(tag("td", cell) for cell in cells), **attributes)


def badge(kind: tuple[str, str, str]) -> Html:
    """A verdict, from the name of its colour, its symbol and its words."""
    name, symbol, words = kind
    return tag("span", tag("span", symbol, aria_hidden="true"), f" {words}", class_=f"verdict {name}")


def command_line(text: str) -> Html:
    """A command to be copied as a whole."""
    return tag("code", text, class_="command")


def definitions(items: Mapping[str, str]) -> Html:
    """Names with their values."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in items.items()))


def fold(summary: str, *children: str, **attributes: str) -> Html:
    """What is seen when its summary is opened."""
    return tag("details", tag("summary", summary), *children, **attributes)


def anchor(*parts: str) -> str:
    """Id of a part of the page; different parts have different ones, whatever their names hold."""
    return "/".join(urllib.parse.quote(part, safe="/") for part in parts)


def number_text(value: float | int | str | None) -> Html:
    """A number of a record on one line; there, what is not finite is text or missing."""
    missing = value is None or value != value
    return tag("span", "–" if missing else value if isinstance(value, str) else f"{value:.4g}", class_="number")


def duration(seconds: float) -> str:
    """A time as a person says it.

    Example:
        >>> duration(3.25), duration(95.0), duration(7300.0)
        ('3.25 s', '1 min 35 s', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plural(count: int, noun: str) -> str:
    """A number with its noun.

    Example:
        >>> plural(1, "run"), plural(1200, "run")
        ('1 run', '1,200 runs')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
