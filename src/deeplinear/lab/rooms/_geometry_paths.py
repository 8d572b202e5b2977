"""Geodesics between two matrices at several depths, side by side."""

import dataclasses
import math
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator

from deeplinear.core import HypothesisError
from deeplinear.geometry import (
    Connection,
    curve_length,
    explicit_geodesic,
    geodesic,
    geodesic_between,
    rotation_chord,
)
from deeplinear.lab._figures import Answer, Axis, Curves, Fact, Table, curves, line
from deeplinear.lab._recipes import command, script
from deeplinear.lab._room import Entries, Params, Watch, entries, switch
from deeplinear.lab.rooms._shell import csv_file

DEPTHS: tuple[float, ...] = (1, 2, 3, 5, math.inf)
"""Depths that are compared; each has its place in the palette."""

TIMES = np.linspace(0.0, 1.0, 21)
"""Where a path is drawn; each costs a step of the integrator."""

FINE = np.linspace(0.0, 1.0, 41)
"""Where the straight line is measured."""

WORST = 30.0
"""Largest ratio of singular values of an end: beyond it some paths take many seconds to find."""

NEAR = 0.02
"""A line on which singular values have a smaller ratio than this is too near a singular matrix to be measured here."""


def depth_word(depth: float) -> str:
    """A depth for people."""
    return "∞" if math.isinf(depth) else f"{depth:g}"


def _two_by_two(value: list[list[float]]) -> list[list[float]]:
    if [len(row) for row in value] != [2, 2]:
        raise ValueError("must have two rows of two numbers")
    return value


Square = Annotated[Entries, AfterValidator(_two_by_two)]
"""A matrix of two rows and two columns."""


TELLING = 0.1
"""Bounds below this part of a length are not drawn."""


class PathParams(Params):
    """Two matrices."""

    start: Square = entries([[1.0, 0.2], [-0.3, 0.8]], 2, "From A")
    end: Square = entries([[0.3, -0.9], [0.8, 0.5]], 2, "To B", about="Its determinant needs the sign of A's.")
    normalised: bool = switch(
        True, "Normalised lengths", about="Times √depth, so that they have a limit. The paths are the same."
    )


@dataclasses.dataclass(frozen=True)
class Way:
    """What was found at one depth."""

    depth: float
    found: Connection | None
    points: np.ndarray | None
    refusal: str = ""

    @property
    def label(self) -> str:
        """For legends."""
        return f"depth {depth_word(self.depth)}"


def _way(a: np.ndarray, b: np.ndarray, depth: float, normalised: bool) -> Way:
    try:
        found = geodesic_between(a, b, depth, normalised=normalised)
    except HypothesisError:
        return Way(depth, None, None, _refusal(a, b))
    if not found.converged:
        return Way(depth, found, None, f"At depth {depth_word(depth)} no geodesic was found: {found.message}")
    if found.case == "numeric":
        # As exact as a picture needs, which takes a third of the time.
        path = geodesic(a, depth, TIMES, momentum=found.momentum, normalised=normalised, rtol=1e-8, atol=1e-10)
        points = np.asarray(path.points)
        return Way(depth, found, points) if len(points) == len(TIMES) else Way(depth, found, None, path.status)
    return Way(depth, found, np.asarray(explicit_geodesic(a, b, depth).points(TIMES)))


def _refusal(a: np.ndarray, b: np.ndarray) -> str:
    """Why no path of some depth joins two matrices."""
    one, other = np.linalg.det(a), np.linalg.det(b)
    if one * other < 0:
        return (
            f"From depth 2 on no path joins A and B: det A = {one:.3g} and det B = {other:.3g} have opposite signs. "
            "Between them stand the singular matrices, infinitely far away. Only depth 1 is drawn."
        )
    which = "A" if abs(one) <= abs(other) else "B"
    return (
        f"From depth 2 on paths need invertible matrices, and {which} is singular, or so nearly that rounding cannot "
        "tell. Only depth 1 is drawn."
    )


def _line_length(a: np.ndarray, b: np.ndarray, depth: float, normalised: bool) -> float:
    """Length of the straight line, not a number where it comes too near a singular matrix."""
    points = a + FINE[:, None, None] * (b - a)
    values = np.linalg.svd(points, compute_uv=False)
    if depth > 1 and np.min(values[:, 1]) < NEAR * np.max(values[:, 0]):
        return math.nan
    move = np.broadcast_to(b - a, points.shape)
    return curve_length(points, depth, times=FINE, velocity=move, normalised=normalised)


def _pictures(ways: list[Way], lengths: Curves) -> list[Any]:
    spectra, plane, areas = [], [], []
    for colour, way in enumerate(ways):
        if way.points is None:
            continue
        values = np.linalg.svd(way.points, compute_uv=False)
        look: dict[str, Any] = {"colour": colour, "style": "dash" if way.depth == 1 else "line"}
        for k in range(2):
            drawn = np.where(values[:, k] > 1e-6, values[:, k], math.nan)
            spectra.append(line(way.label, TIMES, drawn, legend=k == 0, **look))
            plane.append(line(way.label, way.points[:, 0, k], way.points[:, 1, k], legend=k == 0, **look))
        areas.append(line(way.label, TIMES, np.linalg.det(way.points), **look))
    ends = ways[0].points
    assert ends is not None  # depth one is flat: it has a path between any two
    for k, name in ((0, "A"), (-1, "B")):
        plane.append(line(name, ends[k, 0], ends[k, 1], colour=7 if k else 6, style="points"))
    return [
        curves(
            "plane",
            "Where the matrix sends the two unit vectors",
            "first coordinate",
            "second coordinate",
            plane,
            caption="The columns of X(t), from A to B: one curve for each column and depth.",
            square=True,
        ),
        curves(
            "spectrum",
            "Singular values along the path",
            "t",
            Axis(label="singular value", log=True),
            spectra,
            caption="Depth 1 is the straight line between the entries.",
        ),
        curves(
            "determinant",
            "Determinant along the path",
            "t",
            "determinant",
            areas,
            caption="From depth 2 on it keeps its sign: singular matrices are a wall.",
        ),
        lengths,
    ]


def _telling(place: float, bound: float, distance: float) -> float:
    """A bound where it says something: below the length that is exact at depth one, and not next to nothing."""
    return bound if place < 1 and bound >= TELLING * distance else math.nan


def _lengths(ways: list[Way], straight: list[float], bounds: list[float], normalised: bool) -> Curves:
    places = [1 / way.depth for way in ways]
    distances = [math.nan if way.points is None or way.found is None else way.found.length for way in ways]
    kind = "normalised" if normalised or math.isinf(ways[-1].depth) else "of the layers"
    # Without the factor the lengths of finite depths tend to zero; that of infinite depth is another quantity.
    kept = [normalised or not math.isinf(way.depth) for way in ways]
    found = []
    drawn: list[tuple[str, list[float], Literal["line", "dash", "dot", "points"], int]] = [
        ("geodesic", distances, "line", 0),
        ("geodesic", distances, "points", 0),
        ("straight line", straight, "dash", 1),
        ("no curve is shorter", [_telling(*one) for one in zip(places, bounds, distances, strict=True)], "dot", 2),
    ]
    for name, values, style, colour in drawn:
        shown = [value if keep else math.nan for value, keep in zip(values, kept, strict=True)]
        if np.all(np.isnan(shown)):
            continue
        found.append(line(name, places, shown, colour=colour, style=style, legend=style != "points"))
    return curves(
        "lengths",
        f"Lengths by depth, {kind}",
        Axis(label="1 / depth (0: infinitely deep)", low=-0.03, high=1.03),
        "length",
        found,
        caption="The straight line has gaps where it comes near singular matrices.",
    )


def _shown(value: float) -> str:
    """Numbers of a table; what is zero but for rounding is zero."""
    return f"{value if abs(value) > 1e-12 else 0.0:.7g}" if math.isfinite(value) else "–"


def _chords(a: np.ndarray, b: np.ndarray, ways: list[Way], normalised: bool) -> tuple[list[Table], list[Fact]]:
    """The curve that was printed as a geodesic, where its hypothesis holds: equal polar factors."""
    found = []
    for way in ways:
        if way.depth == 1 or math.isinf(way.depth) or way.found is None:
            continue
        try:
            found.append((way.found, rotation_chord(a, b, int(way.depth), normalised=normalised)))
        except HypothesisError:
            return [], []
    if not found or found[0][1].is_geodesic:
        return [], []
    table = Table(
        name="printed",
        title="The curve printed as a geodesic (Theorem 3.4.2)",
        columns=["depth", "geodesic", "printed curve", "line above it", "not horizontal by"],
        rows=[
            [depth_word(one.depth), _shown(one.length), *map(_shown, (curve.length, curve.line, curve.defect))]
            for one, curve in found
        ],
        caption="It is longer than the geodesic: the polar factors are equal, but the positive ones do not commute.",
    )
    return [table], [Fact(label="Printed curve", value="not a geodesic here", tone="warning")]


def _facts(a: np.ndarray, b: np.ndarray, ways: list[Way]) -> list[Fact]:
    signs = np.sign([np.linalg.det(a), np.linalg.det(b)])
    reached = [way.found for way in ways if way.points is not None and way.found is not None]
    if signs[0] * signs[1] < 0:
        note = "No path of invertible matrices joins the two: only depth 1 passes the wall."
        return [Fact(label="Determinants", value="opposite signs: infinitely far apart", tone="bad", note=note)]
    if 0 in signs:
        note = "From depth 2 on the metric has no value at singular matrices. Change an entry."
        return [Fact(label="Determinants", value="one end is singular", tone="bad", note=note)]
    facts = [Fact(label="Determinants", value="same sign: a path exists", tone="good")]
    if len(reached) < 2:
        return facts
    known = [one for one in reached if one.case != "numeric" and one.depth > 1]
    cases, depths = dict.fromkeys(one.case for one in known), [depth_word(one.depth) for one in known]
    value = f"{', '.join(cases)} (depth {', '.join(depths)})" if known else "none from depth 2 on"
    facts.append(Fact(label="Closed form", value=value, note="" if known else "The paths are found by collocation."))
    angle = max(one.angle for one in reached)
    warning = next((one.warning for one in reached if one.warning), "")
    tone = "warning" if warning else "plain"
    facts.append(
        Fact(label="Turn of the polar factors", value=f"{round(math.degrees(angle), 6):.4g}°", tone=tone, note=warning)
    )
    missed = max(one.residual for one in reached)
    facts.append(
        Fact(label="Ends missed by at most", value=f"{missed:.1g}", tone="good" if missed < 1e-8 else "warning")
    )
    return facts


def answer_paths(params: PathParams, watch: Watch) -> Answer:
    """Geodesics at all depths."""
    a, b = np.asarray(params.start, dtype=float), np.asarray(params.end, dtype=float)
    values = np.linalg.svd(np.stack([a, b]), compute_uv=False)
    steep = values[:, 1] * WORST < values[:, 0]
    remarks = []
    depths = DEPTHS
    if np.any(steep & (np.abs(np.linalg.det(np.stack([a, b]))) > 0)):
        remarks.append(
            f"{'A' if steep[0] else 'B'} has singular values that differ by more than {WORST:g} times, which may take "
            "many seconds: only depth 1 is shown here. The script takes any matrices."
        )
        depths = DEPTHS[:1]
    ways = [_way(a, b, depth, params.normalised) for depth in depths]
    straight = [_line_length(a, b, way.depth, params.normalised) if way.found else math.nan for way in ways]
    bounds = [float(way.found.lower_bound) if way.found else math.nan for way in ways]
    found = [
        [
            way.label.removeprefix("depth "),
            "–" if way.found is None else way.found.case,
            "–" if way.found is None else _shown(way.found.length),
            _shown(bound),
            _shown(length),
        ]
        for way, length, bound in zip(ways, straight, bounds, strict=True)
    ]
    table = Table(
        name="table",
        title="Lengths, and how they were found",
        columns=["depth", "found by", "geodesic", "no curve is shorter than", "straight line"],
        rows=found,
    )
    printed, facts = _chords(a, b, ways, params.normalised)
    pictures = _pictures(ways, _lengths(ways, straight, bounds, params.normalised))
    # One refusal often holds for all depths; it is said once.
    refusals = dict.fromkeys(way.refusal for way in ways if way.refusal)
    return Answer(
        figures=[*pictures, table, *printed], facts=[*_facts(a, b, ways), *facts], remarks=[*remarks, *refusals]
    )


def path_script(params: PathParams) -> str:
    """The same lengths and paths with the library."""
    return script(
        f"""
from deeplinear.core import HypothesisError
from deeplinear.geometry import geodesic_between

start, end = jnp.array({params.start}), jnp.array({params.end})
for depth in (1, 2, 3, 5, np.inf):
    try:
        found = geodesic_between(start, end, depth, normalised={params.normalised})
    except HypothesisError as error:
        print(depth, error)
        continue
    print(depth, found.case, found.length, found.lower_bound)
    if found.converged:
        path = found.path(np.linspace(0.0, 1.0, {len(TIMES)}))
        print(path.points[len(path.points) // 2], path.spectra[len(path.points) // 2])
"""
    )


def path_command(params: PathParams) -> str:
    """Files of both matrices, and the geodesic of every depth."""
    options = {"normalised": params.normalised, "points": len(TIMES), "out": "depth-$depth"}
    one = command("geodesic a.csv b.csv", depth="$depth", **options)
    depths = " ".join("inf" if math.isinf(depth) else f"{depth:g}" for depth in DEPTHS)
    files = [csv_file("a.csv", params.start), csv_file("b.csv", params.end)]
    return "\n".join([*files, f"for depth in {depths}; do {one}; done"])
