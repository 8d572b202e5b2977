"""The room of recurrent networks: numbers against closed forms and SciPy; limits, scripts, cancelling."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer
from deeplinear.lab._room import Cancelled, Watch
from deeplinear.lab.rooms._recurrent import ROOM
from deeplinear.lab.rooms._recurrent_closed import (
    Extrapolation,
    extrapolation,
    extrapolation_command,
    extrapolation_script,
)
from deeplinear.lab.rooms._recurrent_run import Training, training, training_script
from deeplinear.lab.rooms._recurrent_setting import HORIZON, REACH, teacher_of
from deeplinear.lab.rooms._recurrent_spectrum import Spectrum, spectrum, spectrum_command, spectrum_script
from deeplinear.recurrent import upper_principal_moment
from lab.answers import answered, executed, fact, note, tone

DRAWN = 1e-6
"""Numbers of an answer have seven digits."""

GRID = 2e-3
"""Ends of intervals are found on 201 points: their square distance, and the sizes of the moments."""

RUN = Training(order=1, high=0.8, length=3, states=3, scale=0.3, horizon=20)


def series(answer: Answer, figure: str, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of one series."""
    found = next(one for one in answer.figures if one.name == figure)
    one = [one for one in found.series if one.name == name][-1]
    return np.array(one.x, dtype=float), np.array(one.y, dtype=float)


def moments(params: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues, weights and response of a balanced teacher."""
    teacher = teacher_of(params)
    atoms, weights = np.diag(np.asarray(teacher.transition)), np.asarray(teacher.input)[:, 0] ** 2
    return atoms, weights, (weights * atoms ** np.arange(HORIZON)[:, None]).sum(axis=1)


@pytest.mark.covers("rnn:F31")
def test_the_interval_closes_at_twice_the_order_and_one() -> None:
    params = Extrapolation(order=2, length=4)
    answer = extrapolation(params, Watch())
    atoms, weights, response = moments(params)
    assert np.allclose(series(answer, "responses", "teacher")[1], response, rtol=DRAWN, atol=1e-9)
    lengths, widths = series(answer, "open", "interval")
    # One moment: [-R, R] times the mass. Two: from the square of the mean to R² times the mass.
    first, second = 2 * REACH * response[0], REACH**2 * response[0] - response[1] ** 2 / response[0]
    assert np.allclose(widths[:2], [first, second], atol=GRID)
    assert np.all(np.diff(widths[:4]) < 0) and np.all(widths[lengths > 4] == 0)
    _, largest = series(answer, "responses", "largest of balanced students")
    assert math.isclose(largest[1], float(upper_principal_moment(atoms, weights, low=-REACH, high=REACH)), abs_tol=GRID)
    _, least = series(answer, "responses", "least of them")
    assert math.isclose(least[1], response[4], abs_tol=1e-7)  # the teacher has the least of all
    # From here on it is decided.
    enough = extrapolation(Extrapolation(order=2, length=5), Watch())
    assert np.array_equal(
        *(series(enough, "responses", n)[1] for n in ("largest of balanced students", "least of them"))
    )


def test_commands_judge_the_same_student(tmp_path: Path) -> None:
    params = Extrapolation(order=2, length=4)
    answer = extrapolation(params, Watch())
    (told,) = answered(extrapolation_command(params), tmp_path, "--no-plot")
    assert told["student"]["outcome"] == fact(answer, "The student")
    assert f"{told['student']['error']:.3g}" == fact(answer, "Largest error beyond")
    _, largest = series(answer, "responses", "largest of balanced students")
    assert np.allclose(told["upper"][4 : 4 + len(largest) - 1], largest[1:], atol=GRID)
    fit = Spectrum(length=5, steps=3.0)
    (told,) = answered(spectrum_command(fit), tmp_path, "--no-plot")
    assert f"{told['student']['error']:.3g}" == fact(spectrum(fit, Watch()), "Largest error beyond")
    assert extrapolation_command(Extrapolation(length=1)) is None


def test_what_students_do() -> None:
    few, enough = (extrapolation(Extrapolation(order=2, length=k), Watch()) for k in (3, 5))
    assert fact(few, "The student") == "does not extrapolate" or float(fact(few, "Largest error beyond")) > 1e-2
    assert fact(few, "Certificate") == "none"
    assert note(few, "Certificate") == "Nothing is proved of it: fewer than 2n + 1 = 5 numbers are known."
    assert fact(enough, "Known numbers") == "5, enough for balanced students"
    assert fact(enough, "The student") == "extrapolates" and float(fact(enough, "Largest error beyond")) < 1e-6
    certified = series(enough, "errors", "certified")
    errors = series(enough, "errors", "error")[1][5:]
    assert np.all(errors <= np.maximum(certified[1], 1e-15))
    built = extrapolation(Extrapolation(order=2, length=5, student="built"), Watch())
    assert (
        fact(built, "The student") == "does not extrapolate" and float(fact(built, "Loss on the known entries")) < 1e-18
    )
    gap = series(built, "responses", "student")[1][5] - series(built, "responses", "teacher")[1][5]
    assert math.isclose(gap, np.abs(moments(Extrapolation(order=2))[2]).max() / 2, rel_tol=1e-5)
    delay = extrapolation(Extrapolation(teacher="delay", order=3, length=6, student="least"), Watch())
    assert fact(delay, "The student") == "extrapolates" and delay.remarks
    assert tone(enough, "Known numbers") == "good" and tone(built, "Known numbers") == "plain"
    assert tone(delay, "Known numbers") == "plain" and "this one is not balanced" in note(delay, "Known numbers")
    assert note(built, "Certificate").startswith("Nothing is proved of it: the student is not balanced")


def test_a_bound_above_the_error_of_the_zero_student_is_called_useless() -> None:
    paper = next(one for one in ROOM.presets if one.title == "The paper's teacher")
    answer = extrapolation(Extrapolation(**paper.values), Watch())
    assert fact(answer, "Certificate") == "of no use" and tone(answer, "Certificate") == "warning"
    _, bounds = series(answer, "errors", "certified")
    zero = np.abs(series(answer, "responses", "teacher")[1][11:]).max()
    assert bounds.max() > zero and f"at most {bounds.max():.3g}" in note(answer, "Certificate")


@pytest.mark.parametrize(
    "values",
    [
        {"length": 1, "student": "least"},
        {"length": 20, "states": 1},
        {"length": 20, "student": "built", "order": 5},
        {"order": 5, "low": 0.6, "high": 1.05, "length": 10},
        {"order": 5, "low": 1.0, "high": 1.05, "length": 9},
        {"teacher": "delay", "order": 5, "length": 2, "student": "least"},
        {"teacher": "unbalanced", "order": 5, "length": 12},
        {"order": 1, "low": 1.0, "high": -1.05},
    ],
)
def test_limits_are_answered(values: dict[str, Any]) -> None:
    answer = extrapolation(Extrapolation(**values), Watch())
    assert np.all(np.isfinite(series(answer, "responses", "teacher")[1]))
    assert len(answer.facts) >= 4


@pytest.mark.parametrize("view", [extrapolation, spectrum, training])
def test_a_spectrum_upside_down_is_refused(view: Any) -> None:
    params = {extrapolation: Extrapolation, spectrum: Spectrum, training: Training}[view](low=0.9, high=-0.5)
    with pytest.raises(LabError, match="below Largest eigenvalue") as caught:
        view(params, Watch())
    assert caught.value.failure.fields == ["low", "high"]


def test_a_start_that_explodes_is_refused() -> None:
    with pytest.raises(LabError, match="smaller scale") as caught:
        training(Training(form="general", states=40, scale=1.0), Watch())
    assert caught.value.failure.fields == ["scale", "states"]


@pytest.mark.covers("rnn:F31")
def test_the_spectrum_has_the_response_as_its_moments() -> None:
    params = Spectrum(order=2, length=5, steps=400)
    answer = spectrum(params, Watch())
    atoms, weights = series(answer, "measure", "student")
    played = (weights * atoms ** np.arange(HORIZON)[:, None]).sum(axis=1)
    assert np.allclose(played, series(answer, "responses", "student")[1], atol=1e-4)
    assert np.allclose(played[:5], moments(params)[2][:5], atol=1e-5)
    values = series(answer, "hankel", "teacher")[1]
    response = moments(params)[2]
    hankel = response[np.add.outer(np.arange(20), np.arange(20))]
    assert np.allclose(values[:2], np.linalg.svd(hankel, compute_uv=False)[:2], rtol=1e-6) and values[2] < 1e-12
    early = spectrum(Spectrum(order=2, length=5, steps=1), Watch())
    residual = (series(early, "responses", "student")[1] - response)[:5]
    x, force = series(early, "force", "φ")
    assert np.allclose(force, np.polyval(residual[::-1], x), atol=1e-5)
    atoms, weights = series(early, "measure", "student")
    leak = np.sum(weights * np.prod((atoms[:, None] - moments(params)[0]) ** 2, axis=1))
    assert math.isclose(float(fact(early, "Leak")), leak, rel_tol=0.1)
    assert float(fact(early, "Loss on the known entries")) > float(fact(answer, "Loss on the known entries"))
    assert spectrum(Spectrum(teacher="delay"), Watch()).remarks


def test_training_is_the_flow_of_its_modes() -> None:
    told: list[Answer | None] = []
    answer = training(RUN, Watch(lambda fraction, text, part: told.append(part)))
    assert sum(part is not None for part in told) > 3
    response = moments(RUN)[2][:3]
    names = executed(training_script(RUN))
    start = np.concatenate([np.asarray(part).ravel() for part in names["start"]])

    def field(t: float, flat: np.ndarray) -> np.ndarray:
        b, a = flat[:3], flat[3:]
        powers = a ** np.arange(3)[:, None]
        residual = powers @ b**2 - response
        return -np.concatenate([2 * b * (residual @ powers), b**2 * (residual[1] + 2 * residual[2] * a)])

    run = solve_ivp(field, (0.0, 20.0), start, rtol=1e-11, atol=1e-14)
    b, a = run.y[:3, -1], run.y[3:, -1]
    loss = 0.5 * np.sum((a ** np.arange(3)[:, None] @ b**2 - response) ** 2)
    assert math.isclose(series(answer, "losses", "loss")[1][-1], loss, rel_tol=1e-4)
    assert math.isclose(float(names["run"]["loss"][-1]), loss, rel_tol=1e-4)
    played = (b**2 * a ** np.arange(HORIZON)[:, None]).sum(axis=1)
    assert np.allclose(series(answer, "responses", "student")[1], played, atol=1e-5)
    assert fact(answer, "The student") == names["verdict"].outcome


def test_training_by_adam_and_cancelling() -> None:
    params = RUN.model_copy(update={"method": "adam", "horizon": 10})
    answer = training(params, Watch())
    assert series(answer, "losses", "loss")[0].tolist() == [float(step) for step in range(1, 11)]
    with pytest.raises(Cancelled):
        training(RUN, Watch(cancelled=lambda: True))


@pytest.mark.parametrize(
    ("params", "script"),
    [
        (Extrapolation(), extrapolation_script),
        (Extrapolation(student="built", teacher="unbalanced"), extrapolation_script),
        (Extrapolation(student="least", teacher="delay", length=6), extrapolation_script),
    ],
)
def test_extrapolation_script_gives_the_same(params: Extrapolation, script: Any) -> None:
    verdict = executed(script(params))["verdict"]
    answer = extrapolation(params, Watch())
    assert verdict.outcome == fact(answer, "The student")
    assert f"{verdict.observed.error:.3g}" == fact(answer, "Largest error beyond")


def test_extrapolation_script_gives_band_and_bars() -> None:
    params = Extrapolation()
    names, answer = executed(extrapolation_script(params)), extrapolation(params, Watch())
    for column, name in enumerate(("least of them", "largest of balanced students")):
        assert np.allclose(names["band"][:, column], series(answer, "responses", name)[1][1:], atol=DRAWN)
    widths = series(answer, "open", "interval")[1]
    assert np.allclose(names["left_open"], widths[: len(names["left_open"])], atol=DRAWN)


def test_spectrum_script_gives_the_same() -> None:
    params = Spectrum(order=2)
    atoms, weights = series(spectrum(params, Watch()), "measure", "student")
    measure = executed(spectrum_script(params))["measure"]
    assert np.allclose(measure.atoms, atoms, atol=DRAWN) and np.allclose(measure.weights, weights, atol=DRAWN)


def test_presets_are_values_of_their_views() -> None:
    for preset in ROOM.presets:
        view = ROOM.view(preset.view)
        params = view.params(**preset.values)
        compile(view.python(params), preset.title, "exec")
        if view.kind == "closed":
            assert view.answer(params, Watch()).figures
