"""Runs the Python blocks of a page one after another, as a reader would, and keeps what they print and draw."""

import ast
import contextlib
import dataclasses
import io
import re
import sys
import warnings
from typing import Any

FENCE = re.compile(r"^```python\n(.*?)^```[ ]*$", flags=re.MULTILINE | re.DOTALL)
"""A block that runs; one that must not is marked `py` or `text`."""

LARGEST_DRAWING = 300_000
"""Bytes of a drawing above which a picture is stored as pixels."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """One figure: what it shows in words, and the file."""

    alt: str
    ending: str
    data: bytes


@dataclasses.dataclass(frozen=True)
class Output:
    """What one block printed and drew."""

    text: str
    pictures: tuple[Picture, ...]


def blocks(text: str) -> list[tuple[int, str]]:
    """Blocks that run, each with the number of lines before it."""
    return [(text.count("\n", 0, found.start(1)), found[1]) for found in FENCE.finditer(text)]


def run_blocks(text: str, name: str, *, draw: bool = True) -> list[Output]:
    """Run the blocks of a page in one namespace.

    Figures are those a block leaves: in pyplot, under a name, or as the value of its last line. They are drawn in the
    style of the package.

    Args:
        text: The page, in Markdown.
        name: Its name, for errors.
        draw: Whether the figures are drawn; without, `pictures` is empty.

    Returns:
        One output for each block.
    """
    names: dict[str, Any] = {"__name__": "page"}
    seen: list[Any] = []
    _close(_figures([], []))  # a page begins as a fresh session does
    outputs = []
    with warnings.catch_warnings(), _style() if draw else contextlib.nullcontext():
        warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")  # that of plt.show()
        for line, code in blocks(text):
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                value = _execute("\n" * line + code, name, names)  # lines of errors are those of the page
            new = _figures([*names.values(), value], seen)
            seen += new
            where = f"{name}, block of line {line + 1}"
            pictures = tuple(_picture(figure, code, where) for figure in new) if draw else ()
            outputs.append(Output(printed.getvalue().rstrip(), pictures))
            _close(new)
    return outputs


def _style() -> contextlib.AbstractContextManager[None]:
    from deeplinear.plots import paper_style

    return paper_style()


def _execute(code: str, name: str, names: dict[str, Any]) -> Any:
    """Run a block; its value is that of a last line that is an expression."""
    tree = ast.parse(code, name)
    *first, last = tree.body or [ast.Pass(lineno=1, col_offset=0)]
    if not isinstance(last, ast.Expr):
        exec(compile(tree, name, "exec"), names)
        return None
    tree.body = first
    exec(compile(tree, name, "exec"), names)
    return eval(compile(ast.Expression(last.value), name, "eval"), names)


def _figures(values: list[Any], seen: list[Any]) -> list[Any]:
    """Figures among the values and in pyplot that were not there before."""
    if "matplotlib.figure" not in sys.modules:
        return []
    from matplotlib.figure import Figure

    found: list[Any] = []
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        found += [pyplot.figure(number) for number in pyplot.get_fignums()]
    found += [value for value in values if isinstance(value, Figure)]
    known = {id(figure) for figure in seen}
    return list({id(figure): figure for figure in found if id(figure) not in known}.values())


def _close(figures: list[Any]) -> None:
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        for figure in figures:
            pyplot.close(figure)


def _picture(figure: Any, code: str, where: str) -> Picture:
    import matplotlib

    alt = _words(figure, code)
    if not alt:
        raise ValueError(f"{where}: a figure must have a title, or its block a first comment, that says what it shows.")
    with matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "deeplinear"}):
        for ending, settings in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 200})):
            data = io.BytesIO()
            figure.savefig(data, format=ending, bbox_inches="tight", facecolor="white", **settings)
            if ending == "png" or len(data.getvalue()) <= LARGEST_DRAWING:
                return Picture(alt, ending, data.getvalue())
    raise AssertionError("a picture of pixels is never too large")


def _words(figure: Any, code: str) -> str:
    """What a figure shows: its title, those of its panels, or the first comment of the block."""
    title = figure.get_suptitle()
    panels = [axes.get_title(loc) for axes in figure.axes for loc in ("center", "left", "right")]
    comment = re.search(r"^\s*#\s*(.+)$", code, flags=re.MULTILINE)
    found = title or "; ".join(filter(None, panels)) or (comment[1] if comment else "")
    return found.replace("$", "").strip()
