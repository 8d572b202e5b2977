"""Pictures of recurrent networks: what is on them, not how they look."""

import math

import numpy as np
import pytest
from matplotlib.figure import Figure

from deeplinear.plots import (
    COLOURS,
    plot_continuation,
    plot_hankel,
    plot_measure,
    plot_residual_polynomial,
    plot_responses,
)
from deeplinear.recurrent import Continuation, Response

TEACHER = 0.9 ** np.arange(20)
BLACK = COLOURS[-1]


def labels(axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def line(axes, label: str):
    return next(found for found in axes.get_lines() if found.get_label() == label)


def drawn(figure: Figure):
    """The only axes of a figure that can be drawn, with labels."""
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.get_xlabel() and axes.get_ylabel()
    return axes


def test_responses_of_a_teacher_and_students() -> None:
    near = TEACHER + 0.1
    exploding = 0.9 * 1.8 ** np.arange(20)
    axes = drawn(plot_responses({"teacher": TEACHER, "near": near, "far": exploding}, lengths=5, title="responses"))
    assert labels(axes) == ["teacher", "near", "far (leaves the picture)", "tail"]
    assert axes.get_title() == "responses"
    assert line(axes, "teacher").get_color() == BLACK
    assert line(axes, "near").get_color() == COLOURS[0]
    np.testing.assert_array_equal(line(axes, "teacher").get_ydata(), TEACHER)
    np.testing.assert_array_equal(line(axes, "near").get_ydata(), near)
    left = len(np.asarray(line(axes, "far (leaves the picture)").get_ydata()))
    assert exploding[left - 1] > 2.5 >= exploding[left - 2]  # one entry beyond the end of the picture
    assert 2.5 < axes.get_ylim()[1] < 3
    assert [found.get_xdata()[0] for found in axes.get_lines() if len(np.asarray(found.get_xdata())) == 2] == [4.5]


def test_responses_with_lengths_of_their_own_and_one_that_overflows() -> None:
    steep = Response(np.asarray([1.0, 1e100, 1e200]), 3)
    figure = Figure()
    axes = figure.subplots()
    given = plot_responses(
        {"a": 2 * TEACHER, "truth": TEACHER, "b": steep}, lengths={"a": 10, "b": 2}, ax=axes, teacher="truth"
    )
    assert given is figure and figure.axes == [axes]
    axes = drawn(figure)
    assert labels(axes) == ["truth", "a", "b (leaves the picture)"]
    assert line(axes, "truth").get_color() == BLACK
    ends = {f.get_color(): f.get_xdata()[0] for f in axes.get_lines() if f.get_linestyle() == "--"}
    assert ends == {COLOURS[0]: 9.5, COLOURS[1]: 1.5}
    free = drawn(plot_responses({"truth": TEACHER, "b": 100 * TEACHER}, headroom=None, legend=False))
    assert free.get_legend() is None and free.get_ylim()[1] > 100
    flat = drawn(plot_responses({"zero": np.zeros(4), "one": np.ones(4)}, lengths=4))
    assert flat.get_ylim()[1] > 1 and labels(flat) == ["zero", "one"]


def test_measures_as_stems() -> None:
    teacher, student = ([0.5, 0.9], [0.4, 0.6]), ([0.1, 0.5, 0.9], [-0.1, 0.4, 0.7])
    axes = drawn(plot_measure({"teacher": teacher, "student": student}))
    assert labels(axes) == ["student", "teacher"]  # the teacher's rings are above
    assert line(axes, "teacher").get_markerfacecolor() == "none"
    np.testing.assert_array_equal(line(axes, "student").get_ydata(), student[1])
    axes = drawn(plot_measure({"student": student, "other": ([], [])}, teacher="", logarithmic=True))
    assert axes.get_yscale() == "log" and labels(axes) == ["student", "other"]
    triangle = next(found for found in axes.get_lines() if found.get_marker() == "v")
    assert (triangle.get_xdata()[0], triangle.get_ydata()[0]) == (0.1, 0.1)
    np.testing.assert_array_equal(line(axes, "student").get_xdata(), [0.5, 0.9])


def test_the_residual_polynomial() -> None:
    axes = drawn(plot_residual_polynomial([1.0, 0.0, -4.0], student=[0.5, 2.0], teacher=[-0.5, 0.9]))
    curve = line(axes, r"$\varphi(x)$")
    x = np.asarray(curve.get_xdata(), dtype=float)
    np.testing.assert_allclose(np.asarray(curve.get_ydata()), 1 - 4 * x**2, atol=1e-14)
    np.testing.assert_allclose(line(axes, "student").get_ydata(), [0.0], atol=1e-15)  # that beyond the end is not shown
    assert [f.get_xdata()[0] for f in axes.get_lines() if f.get_linestyle() == ":"] == [-0.5, 0.9]
    assert labels(axes) == ["teacher", r"$\varphi(x)$", "student"]


def test_hankel_singular_values() -> None:
    two = 1.0 + 0.5 ** np.arange(9.0)
    axes = drawn(plot_hankel({"teacher": TEACHER[:9], "two": two, "none": np.zeros(5)}, tolerance=1e-8))
    assert labels(axes) == ["teacher", "two", "none (zero)", "tolerance"]
    values = np.asarray(line(axes, "two").get_ydata(), dtype=float)
    expected = np.linalg.svd(two[np.add.outer(np.arange(5), np.arange(5))], compute_uv=False)
    np.testing.assert_allclose(values[:2], expected[:2] / expected[0], rtol=1e-12)
    assert np.all(np.isnan(values[2:]) | (values[2:] < 1e-14))
    assert axes.get_yscale() == "log"
    assert np.asarray(line(drawn(plot_hankel({"a": TEACHER}, size=3)), "a").get_ydata()).shape == (3,)


def test_a_continuation_marks_what_was_known_and_shows_its_band() -> None:
    values = np.array([1.0, 0.5, 0.4, 0.3, 0.2])
    for top, shown in ((2.0, True), (1e6, False)):  # a band that leaves all scales is cut off
        upper = np.array([1.0, 0.5, 0.4, 0.5, top])
        found = Continuation(3, 1, True, 0.0, None, values, None, values, upper, 1.0, 0.0, "")
        (axes,) = plot_continuation(found, given=values).axes
        assert (axes.get_ylim()[1] > top) == shown and axes.get_ylim()[1] < 10
        lines = {line.get_label(): line.get_ydata() for line in axes.get_lines()}
        np.testing.assert_array_equal(lines["known"], values[:3])
        np.testing.assert_array_equal(lines["true"], values)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="responses must map at least one name"):
        plot_responses({})
    with pytest.raises(ValueError, match="'a' must have shape"):
        plot_responses({"a": np.ones((2, 2))})
    with pytest.raises(ValueError, match="'a' must have at least one entry"):
        plot_responses({"a": []})
    with pytest.raises(ValueError, match="'a' must be finite"):
        plot_responses({"a": [1.0, math.inf]})
    with pytest.raises(ValueError, match="teacher 'b' must be among the responses"):
        plot_responses({"a": TEACHER}, teacher="b")
    with pytest.raises(ValueError, match="lengths names 'b', which is no response"):
        plot_responses({"a": TEACHER}, lengths={"b": 3})
    with pytest.raises(ValueError, match="lengths must be at least 1"):
        plot_responses({"a": TEACHER}, lengths=0)
    with pytest.raises(ValueError, match="'a' must be atoms and weights"):
        plot_measure({"a": [1.0]})
    with pytest.raises(ValueError, match="teacher 'b' must be among the measures"):
        plot_measure({"a": ([1.0], [1.0])}, teacher="b")
    with pytest.raises(ValueError, match="residuals must hold at least one number"):
        plot_residual_polynomial([])
    with pytest.raises(ValueError, match="high must be greater than 2"):
        plot_residual_polynomial([1.0], low=2.0, high=1.0)
    with pytest.raises(ValueError, match="tolerance must be"):
        plot_hankel({"a": TEACHER}, tolerance=2.0)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    for plot in (plot_responses, plot_hankel):
        with pytest.raises(ImportError, match=r"deeplinear\[report\]"):
            plot({"a": TEACHER})
