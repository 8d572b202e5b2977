r"""Recurrent networks as pictures: responses, spectral measures, residual polynomials, Hankel singular values.

Every picture goes on given axes, or on a figure of its own. Where there is a teacher it comes first and is black.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from deeplinear.core import check_count, check_finite, check_number, check_shape, near_name
from deeplinear.plots._style import COLOURS, PANEL, REST, need_matplotlib, paper_style
from deeplinear.recurrent import Response, hankel_singular_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK = COLOURS[-1]

HEADROOM = 2.5
"""A student is shown up to so many times the largest entry of the teacher; one that explodes leaves the picture."""

MARKED = 60
"""Up to so many entries of a response are marked one by one."""

FLOOR = 1e-17
"""Singular values below this share of the largest are rounding, and not shown."""


def plot_responses(
    responses: Mapping[str, Any],
    *,
    lengths: int | Mapping[str, int] | None = None,
    ax: "Axes | None" = None,
    teacher: str | None = None,
    headroom: float | None = HEADROOM,
    legend: bool = True,
    title: str | None = None,
) -> "Figure":
    r"""Impulse responses of a teacher and its students, with the lengths that the students were trained on.

    One length for all is a line, with the tail beyond it shaded; one for each student is a broken line of its colour.
    They stand between the last entry trained on, $k - 1$, and the first beyond. A student that leaves the picture says
    so in the legend.

    Args:
        responses: $h_0, h_1, \dots$ by name, numbers or a `Response`, which may end in overflow.
        lengths: $k$, one for all or one for each name; names without one get no line.
        ax: Axes to draw on; a figure of its own if left out.
        teacher: Name of the one that is drawn in black below the others; the first if left out.
        headroom: Where the picture ends, in units of the teacher's largest entry; `None`: nowhere.
        legend: Whether to draw one.
        title: Heading of the axes.

    Returns:
        Figure of matplotlib that the axes are on; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    where = "plot_responses"
    need_matplotlib(where)
    curves = {name: _response(where, name, response) for name, response in _named(where, "responses", responses)}
    first = next(iter(curves)) if teacher is None else teacher
    if first not in curves:
        raise ValueError(f"{where}: teacher '{first}' must be among the responses. {near_name(first, curves)}")
    marks = _lengths(where, lengths, curves)
    if headroom is not None:
        check_number(where, "headroom", headroom, above=0)
    top = float(np.abs(curves[first]).max()) if headroom is not None else 0.0
    bound = headroom * top if headroom is not None and top > 0 else np.inf
    ordered = [first, *(name for name in curves if name != first)]
    with _axes(ax) as axes:
        for place, name in enumerate(ordered):
            _draw_response(axes, name, curves[name], place, bound)
        _mark_lengths(axes, marks, ordered, max(map(len, curves.values())))
        if np.isfinite(bound):
            low, high = _range(list(curves.values()), bound)
            axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
        axes.set_xlim(-0.6, max(map(len, curves.values())) - 0.4)
        axes.set(xlabel="index $j$", ylabel="response $h_j$")
        axes.locator_params(axis="x", integer=True)
        _finish(axes, legend, title)
        return _figure(axes)


def plot_measure(
    measures: Mapping[str, Any],
    *,
    ax: "Axes | None" = None,
    teacher: str | None = None,
    logarithmic: bool = False,
    legend: bool = True,
    title: str | None = None,
) -> "Figure":
    r"""Spectral measures as stems: the weights $p_i$ over the eigenvalues $a_i$, the teacher's as black rings.

    Args:
        measures: Atoms and weights by name, such as of `spectral_measure`; weights may be negative.
        ax: Axes to draw on; a figure of its own if left out.
        teacher: Name of the teacher, the first if left out; an empty name: there is none.
        logarithmic: Sizes of the weights on a logarithmic axis, negative ones as triangles.
        legend: Whether to draw one.
        title: Heading of the axes.

    Returns:
        Figure of matplotlib that the axes are on; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    where = "plot_measure"
    need_matplotlib(where)
    found = {name: _measure(where, name, measure) for name, measure in _named(where, "measures", measures)}
    first = next(iter(found)) if teacher is None else teacher
    if first and first not in found:
        raise ValueError(f"{where}: teacher '{first}' must be among the measures. {near_name(first, found)}")
    students = [name for name in found if name != first]
    with _axes(ax) as axes:
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.axhline(0.0, color=REST, linewidth=0.8, zorder=1)
        for place, name in enumerate(students):
            _stems(axes, name, *found[name], colour=_colour(place), logarithmic=logarithmic)
        if first:
            _stems(axes, first, *found[first], colour=BLACK, logarithmic=logarithmic, ring=True)
        axes.set(xlabel="eigenvalue $a_i$", ylabel="size of the weight $|p_i|$" if logarithmic else "weight $p_i$")
        _finish(axes, legend, title)
        return _figure(axes)


def plot_residual_polynomial(
    residuals: Any,
    *,
    low: float = -1.0,
    high: float = 1.0,
    student: Any = (),
    teacher: Any = (),
    ax: "Axes | None" = None,
    legend: bool = True,
    title: str | None = None,
) -> "Figure":
    r"""The polynomial $\varphi(x) = \sum_{j<k}r_jx^j$ of the residuals $r_j = h_j - w_j$.

    It is a potential for the atoms of a balanced student with a diagonal transition matrix: under gradient flow of
    $\tfrac12\|r\|^2$ they move by $\dot a_i = -p_i\varphi'(a_i)$ and $\dot p_i = -2\varphi(a_i)p_i$, so that mass grows
    where it is negative.

    Args:
        residuals: $r_0, \dots, r_{k-1}$.
        low: Left end of the picture.
        high: Right end of the picture.
        student: Eigenvalues of the student, drawn as dots on the curve.
        teacher: Eigenvalues of the teacher, drawn as dotted lines.
        ax: Axes to draw on; a figure of its own if left out.
        legend: Whether to draw one.
        title: Heading of the axes.

    Returns:
        Figure of matplotlib that the axes are on; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    where = "plot_residual_polynomial"
    need_matplotlib(where)
    check_number(where, "low", low)
    check_number(where, "high", high, above=float(low))
    r = _vector(where, "residuals", residuals)
    if not r.size:
        raise ValueError(f"{where}: residuals must hold at least one number, but is empty.")
    dots, lines = _vector(where, "student", student), _vector(where, "teacher", teacher)
    x = np.linspace(low, high, 801)
    with _axes(ax) as axes:
        axes.axhline(0.0, color=REST, linewidth=0.8, zorder=1)
        for place, eigenvalue in enumerate(lines):
            axes.axvline(
                eigenvalue, color=BLACK, linestyle=":", linewidth=1.0, zorder=1, label=None if place else "teacher"
            )
        axes.plot(x, np.polynomial.polynomial.polyval(x, r), color=COLOURS[0], label=r"$\varphi(x)$")
        inside = dots[(dots >= low) & (dots <= high)]
        if inside.size:
            heights = np.polynomial.polynomial.polyval(inside, r)
            axes.plot(inside, heights, "o", color=COLOURS[1], zorder=4, label="student")
        axes.set_xlim(low, high)
        axes.set(xlabel="$x$", ylabel=r"residual polynomial $\varphi(x)$")
        _finish(axes, legend, title)
        return _figure(axes)


def plot_hankel(
    responses: Mapping[str, Any],
    *,
    size: int | None = None,
    tolerance: float | None = None,
    ax: "Axes | None" = None,
    legend: bool = True,
    title: str | None = None,
) -> "Figure":
    r"""Singular values of the Hankel matrices $[h_{i+j}]$, relative to the largest: how many states responses need.

    Args:
        responses: $h_0, h_1, \dots$ by name; the first is black.
        size: Rows of the matrices; half of the entries of each, rounded up, if left out.
        tolerance: Level to draw, above which singular values count.
        ax: Axes to draw on; a figure of its own if left out.
        legend: Whether to draw one.
        title: Heading of the axes.

    Returns:
        Figure of matplotlib that the axes are on; see `save_figure`.

    Raises:
        ImportError: If matplotlib, of the extra `report`, is not installed.
    """
    where = "plot_hankel"
    need_matplotlib(where)
    if size is not None:
        check_count(where, "size", size, at_least=1)
    if tolerance is not None:
        check_number(where, "tolerance", tolerance, above=0, at_most=1)
    from matplotlib.ticker import MaxNLocator

    with _axes(ax) as axes:
        most = 1
        for place, (name, response) in enumerate(_named(where, "responses", responses)):
            values = np.asarray(hankel_singular_values(_response(where, name, response), size=size))
            relative = values / values[0] if values[0] > 0 else np.zeros_like(values)
            shown = np.where(relative > FLOOR, relative, np.nan)
            order = np.arange(1, len(values) + 1)
            most = max(most, 1 + int(np.sum(relative > FLOOR)))
            colour = BLACK if place == 0 else _colour(place - 1)
            axes.semilogy(order, shown, "o-", color=colour, label=name if np.any(values > 0) else f"{name} (zero)")
        if tolerance is not None:
            axes.axhline(tolerance, color=REST, linestyle="--", linewidth=1.0, zorder=1, label="tolerance")
        axes.set_xlim(0.6, most)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set(xlabel="$i$", ylabel="$s_i / s_1$ of the Hankel matrix")
        _finish(axes, legend, title)
        return _figure(axes)


@contextmanager
def _axes(ax: "Axes | None") -> "Iterator[Axes]":
    """The given axes, in the style that they were made in, or new ones in ours."""
    if ax is not None:
        yield ax
        return
    from matplotlib.figure import Figure

    with paper_style():
        yield Figure(figsize=(1.4 * PANEL[0], 1.3 * PANEL[1]), layout="constrained").subplots()


def _figure(axes: "Axes") -> "Figure":
    return cast("Figure", axes.get_figure(root=True))


def _colour(place: int) -> str:
    """Colour of a student; grey beyond the number of colours."""
    return COLOURS[place] if place < len(COLOURS) - 1 else REST


def _finish(axes: "Axes", legend: bool, title: str | None) -> None:
    if legend:
        axes.legend()
    if title is not None:
        axes.set_title(title)


def _named(where: str, what: str, items: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if not isinstance(items, Mapping) or not items:
        raise ValueError(f"{where}: {what} must map at least one name to what is drawn, but is {items!r}.")
    return list(items.items())


def _vector(where: str, name: str, values: Any) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    check_shape(where, name, array, (None,))
    check_finite(where, name, array)
    return array


def _response(where: str, name: str, response: Any) -> np.ndarray:
    values = _vector(where, f"'{name}'", response.values if isinstance(response, Response) else response)
    if not values.size:
        raise ValueError(f"{where}: '{name}' must have at least one entry, but is empty.")
    return values


def _measure(where: str, name: str, measure: Any) -> tuple[np.ndarray, np.ndarray]:
    if not isinstance(measure, tuple | list) or len(measure) != 2:
        raise ValueError(f"{where}: '{name}' must be atoms and weights, but is {type(measure).__name__}.")
    atoms, weights = (
        _vector(where, f"{part} of '{name}'", v) for part, v in zip(("atoms", "weights"), measure, strict=True)
    )
    check_shape(where, f"weights of '{name}'", weights, atoms.shape)
    return atoms, weights


def _lengths(where: str, lengths: int | Mapping[str, int] | None, curves: Mapping[str, Any]) -> dict[str, int]:
    """Training lengths by name; one for all has the empty name."""
    if lengths is None:
        return {}
    if not isinstance(lengths, Mapping):
        check_count(where, "lengths", lengths, at_least=1)
        return {"": int(lengths)}
    for name, length in lengths.items():
        if name not in curves:
            raise ValueError(f"{where}: lengths names '{name}', which is no response. {near_name(name, curves)}")
        check_count(where, f"lengths of '{name}'", length, at_least=1)
    return {name: int(length) for name, length in lengths.items()}


def _draw_response(axes: "Axes", name: str, values: np.ndarray, place: int, bound: float) -> None:
    index = np.arange(len(values))
    outside = np.abs(values) > bound
    label = f"{name} (leaves the picture)" if outside.any() and place else name
    marker = "o" if len(values) <= MARKED else ""
    if place == 0:
        axes.plot(index, values, marker=marker, color=BLACK, linewidth=2.2, markersize=5.0, label=label, zorder=2)
        return
    # Up to one entry beyond the end, so that the line is seen to leave; not further, where numbers become too large.
    last = int(np.argmax(outside)) + 1 if outside.any() else len(values)
    far = 4 * bound if np.isfinite(bound) else np.inf
    axes.plot(
        index[:last], np.clip(values[:last], -far, far), marker=marker, color=_colour(place - 1), label=label, zorder=3
    )


def _mark_lengths(axes: "Axes", marks: dict[str, int], ordered: list[str], entries: int) -> None:
    for name, length in marks.items():
        if name == "":
            axes.axvline(length - 0.5, color=REST, linewidth=1.0, zorder=1)
            if length < entries:
                axes.axvspan(length - 0.5, entries - 0.4, color=REST, alpha=0.3, linewidth=0, zorder=0, label="tail")
        else:
            place = ordered.index(name)
            colour = BLACK if place == 0 else _colour(place - 1)
            axes.axvline(length - 0.5, color=colour, linestyle="--", linewidth=1.0, alpha=0.8, zorder=1)


def _range(curves: list[np.ndarray], bound: float) -> tuple[float, float]:
    """Least and largest entries, at most as far as the bound."""
    low = max(-bound, min(float(values.min()) for values in curves))
    high = min(bound, max(float(values.max()) for values in curves))
    return (low, high) if high > low else (low - 0.5 * bound, high + 0.5 * bound)


def _stems(
    axes: "Axes",
    name: str,
    atoms: np.ndarray,
    weights: np.ndarray,
    *,
    colour: str,
    logarithmic: bool,
    ring: bool = False,
) -> None:
    heights = np.abs(weights) if logarithmic else weights
    style: dict[str, Any] = {"linestyle": "none", "color": colour, "zorder": 4 if ring else 3}
    if ring:
        style |= {"markerfacecolor": "none", "markersize": 7.0, "markeredgewidth": 1.4}
    else:
        foot = 0.0
        if logarithmic and np.any(heights > 0):
            foot = float(heights[heights > 0].min()) / 10
        axes.vlines(atoms, foot, heights, color=colour, linewidth=1.2, zorder=2)
    below = (weights < 0) & logarithmic
    shown = np.where(heights > 0, heights, np.nan) if logarithmic else heights
    axes.plot(atoms[~below], shown[~below], marker="o", label=name, **style)
    if below.any():
        axes.plot(atoms[below], shown[below], marker="v", **style)
