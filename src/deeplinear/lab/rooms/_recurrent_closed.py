"""Students that have the first numbers of a teacher, and what these numbers leave open."""

import functools
from typing import Any, Literal

import numpy as np

from deeplinear.core import HypothesisError, xp
from deeplinear.lab._figures import Answer, Axis, Fact, Mark, curves, line
from deeplinear.lab._recipes import script
from deeplinear.lab._room import Watch, choice
from deeplinear.lab.rooms._recurrent_setting import (
    HORIZON,
    LONGEST,
    REACH,
    TINY,
    Student,
    fit_lines,
    fitted,
    judged_command,
    measure_of,
    response_figure,
    response_of,
    states_of_student,
    teacher_lines,
    teacher_of,
    verdict_facts,
)
from deeplinear.models import System
from deeplinear.recurrent import (
    extrapolation_interval,
    extrapolation_verdict,
    ho_kalman,
    moment_openness,
    non_extrapolating_student,
)

AHEAD = 8
"""Entries beyond the known ones for which the interval is found."""

GRID = 201
"""Points on which the measures of the interval live."""


class Extrapolation(Student):
    """Entries that are known, and a student that has them."""

    states: int = states_of_student(only={"student": ["balanced"]})

    student: Literal["balanced", "built", "least"] = choice(
        "balanced",
        {"balanced": "balanced, fitted to them", "built": "not balanced, built to fail", "least": "of least order"},
        "Student",
    )


def _student(params: Extrapolation, response: np.ndarray) -> System:
    if params.student == "built":
        gap = float(np.abs(response).max()) / 2
        return non_extrapolating_student(response[: params.length + 1], gap)
    if params.student == "least":
        for order in range(params.length // 2, 0, -1):
            try:
                return ho_kalman(response[: params.length], order, tolerance=1e-12)
            except HypothesisError:
                continue
        return System(*(xp.zeros((1, 1)) for _ in range(3)))
    return fitted(params, response, 400).system


@functools.lru_cache(maxsize=256)
def _interval(known: tuple[float, ...], index: int, atoms: tuple[float, ...]) -> tuple[float, float]:
    """Least and largest entry of balanced systems with the known ones; gaps where it cannot be told."""
    try:
        found = extrapolation_interval(known, index, low=-REACH, high=REACH, atoms=atoms, points=GRID)
    except ValueError:
        return float("nan"), float("nan")
    return float(found.lower), float(found.upper)


def _band(params: Extrapolation, response: np.ndarray, measure: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places, least and largest values beyond the known entries; the teacher's own from 2n + 1 on."""
    places = np.arange(params.length, min(params.length + AHEAD, HORIZON))
    if params.length > 2 * measure.order:
        return places, response[places], response[places]
    known, atoms = tuple(response[: params.length].tolist()), tuple(np.asarray(measure.atoms).tolist())
    ends = np.array([_interval(known, int(place), atoms) for place in places])
    return places, ends[:, 0], ends[:, 1]


def _openness(measure: Any) -> tuple[np.ndarray, np.ndarray]:
    """Known entries, and the length of the interval of the next one; from 2n + 1 on it is a point."""
    lengths = np.arange(1, min(2 * measure.order + 4, LONGEST + 1))
    widths = moment_openness(measure.atoms, measure.weights, low=-REACH, high=REACH)
    return lengths, np.pad(widths, (0, max(len(lengths) - len(widths), 0)))[: len(lengths)]


def extrapolation(params: Extrapolation, watch: Watch) -> Answer:
    """Responses, errors, what is open, verdict."""
    teacher = teacher_of(params)
    response = response_of(teacher)
    student = _student(params, response)
    played = response_of(student)
    found = extrapolation_verdict(student, teacher, params.length, horizon=HORIZON)
    measure = measure_of(teacher)
    places = np.arange(HORIZON)
    order = found.order
    series = [line("student", places, played, colour=0)]
    remarks = []
    figures: list[Any] = []
    if measure is not None:
        where, low, high = _band(params, response, measure)
        start = params.length - 1
        ahead = np.append(start, where)
        for name, ends in (("largest of balanced students", high), ("least of them", low)):
            series.append(line(name, ahead, np.append(response[start], ends), colour=1, style="dash"))
        if params.student == "balanced" and found.radius > REACH:
            remarks.append(f"The student has an eigenvalue of size {found.radius:.3g}, so it may leave the interval.")
        if not np.all(np.isfinite(low)):
            remarks.append("Some of the interval is missing: the eigenvalues are too close for double precision.")
    else:
        remarks.append("The interval of balanced students is there for balanced teachers only.")
    between = f"Between the broken lines: balanced students with these numbers and eigenvalues in [−{REACH}, {REACH}]."
    figures.append(response_figure(response, series, params.length, between if measure is not None else ""))
    errors = [line("error", places, np.maximum(np.abs(played - response), TINY), colour=0)]
    if found.bounds is not None:
        beyond = places[params.length :]
        errors.append(line("certified", beyond, np.maximum(np.asarray(found.bounds), TINY), colour=2, style="dash"))
        errors.append(
            line("by the loss alone", beyond, np.maximum(np.asarray(found.prior_bounds), TINY), colour=4, style="dot")
        )
    end = [Mark(at=params.length - 0.5, label="known up to here")]
    figures.append(curves("errors", "Error at every index", "index j", Axis(label="error", log=True), errors, end))
    if measure is not None:
        lengths, widths = _openness(measure)
        marks = [Mark(at=2 * order + 1, label=f"2n + 1 = {2 * order + 1}")]
        figures.append(
            curves(
                "open",
                "What k numbers leave open",
                "known numbers k",
                "interval of the next number",
                [
                    line("interval", lengths, widths, colour=1, style="bars", legend=False),
                    *(
                        [
                            line(
                                "now",
                                [params.length],
                                [widths[params.length - 1]],
                                colour=7,
                                style="points",
                                legend=False,
                            )
                        ]
                        if params.length <= len(widths)
                        else []
                    ),
                ],
                marks,
                f"For balanced systems with eigenvalues in [−{REACH}, {REACH}].",
            )
        )
    facts = verdict_facts(found)
    facts.append(_enough_fact(params, 2 * order + 1, balanced=measure is not None))
    return Answer(figures=figures, facts=facts, remarks=remarks)


def _enough_fact(params: Extrapolation, need: int, *, balanced: bool) -> Fact:
    """Whether a student has no choice any more, which is proved where it and the teacher are balanced."""
    if not balanced:
        note = f"That 2n + 1 = {need} are enough is proved for balanced teachers; this one is not balanced."
        return Fact(label="Known numbers", value=f"{params.length}", note=note)
    enough = params.length >= need
    tone = "warning" if not enough else "good" if params.student == "balanced" else "plain"
    note = f"A balanced student of a teacher of n = {need // 2} states needs 2n + 1 = {need}."
    if params.student != "balanced":
        note += " This student is not bound to be balanced."
    value = f"{params.length}, {'enough' if enough else 'too few'} for balanced students"
    return Fact(label="Known numbers", value=value, tone=tone, note=note)


def _student_lines(params: Extrapolation) -> str:
    if params.student == "built":
        return f"""
from deeplinear.recurrent import non_extrapolating_student

student = non_extrapolating_student(response[: {params.length + 1}], float(np.abs(response).max()) / 2)
"""
    if params.student == "least":
        return f"""
from deeplinear.core import HypothesisError
from deeplinear.recurrent import ho_kalman

student = (jnp.zeros((1, 1)),) * 3  # if there is no other
for order in range({params.length // 2}, 0, -1):
    try:
        student = ho_kalman(response[: {params.length}], order, tolerance=1e-12)
        break
    except HypothesisError:
        pass
"""
    return fit_lines(params, 400)


def extrapolation_command(params: Extrapolation) -> str | None:
    """The interval and the verdict on the command line."""
    response = response_of(teacher_of(params))
    return judged_command(params, response, _student(params, response))


def extrapolation_script(params: Extrapolation) -> str:
    """Teacher, student, verdict and interval."""
    parts = [
        teacher_lines(params),
        _student_lines(params),
        f"""
from deeplinear.recurrent import extrapolation_verdict

verdict = extrapolation_verdict(student, teacher, {params.length}, horizon={HORIZON})
print(verdict)
""",
    ]
    if params.teacher == "balanced":
        parts.append(f"""
from deeplinear.recurrent import extrapolation_interval, moment_openness, spectral_measure

k, reach, measure = {params.length}, {REACH}, spectral_measure(teacher)


def interval(j):  # least and largest h_j of balanced students that have the first k numbers
    if k > 2 * measure.order:
        return response[j], response[j]
    try:
        found = extrapolation_interval(response[:k], j, low=-reach, high=reach, atoms=measure.atoms, points={GRID})
    except ValueError:  # the eigenvalues are too close for double precision
        return np.nan, np.nan
    return float(found.lower), float(found.upper)


band = np.array([interval(j) for j in range(k, min(k + {AHEAD}, {HORIZON}))])
left_open = moment_openness(measure.atoms, measure.weights, low=-reach, high=reach)  # for one known number and more
print(band, left_open, sep="\\n")
""")
    return script(*parts)
