"""Teachers, students that are fitted to their first numbers, and pictures that the views share."""

from typing import Any, Literal

import numpy as np

from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Axis, Fact, Mark, Series, curves, line
from deeplinear.lab._recipes import command
from deeplinear.lab._room import Params, choice, slider, whole
from deeplinear.lab.rooms._shell import csv_file, npz_file
from deeplinear.models import System
from deeplinear.recurrent import (
    ExtrapolationVerdict,
    balanced_student,
    balanced_teacher,
    delay_teacher,
    hankel_singular_values,
    impulse_response,
    polish,
    spectral_measure,
    unbalanced_teacher,
)

HORIZON = 40
"""Entries of a response that are shown."""

LONGEST = 20
"""Largest number of known entries."""

REACH = 1.1
"""Eigenvalues of the balanced students that are compared lie between minus and plus this."""

START = 0.3
"""Size of the weights from which a student is fitted."""

HEADROOM = 0.3
"""A picture goes so far beyond the teacher's entries, as a share of the largest; students may leave it."""

TINY = 1e-17
"""Errors below this are drawn as this."""


class Teacher(Params):
    """A system to learn from, and how much of its response is known."""

    teacher: Literal["balanced", "delay", "unbalanced"] = choice(
        "balanced",
        {"balanced": "balanced, A symmetric", "delay": "delay line", "unbalanced": "random delay, not balanced"},
        "Teacher",
    )
    order: int = whole(2, 1, 5, "States of the teacher", about="n: its memory.")
    length: int = whole(4, 1, LONGEST, "Training length k", about="How many numbers of its response are known.")
    low: float = slider(
        -0.5,
        -1.05,
        1.05,
        "Least eigenvalue",
        step=0.05,
        about="Of a balanced teacher.",
        below="high",
        only={"teacher": ["balanced"]},
    )
    high: float = slider(
        0.95,
        -1.05,
        1.05,
        "Largest eigenvalue",
        step=0.05,
        about="The others lie evenly between.",
        above="low",
        only={"teacher": ["balanced"]},
    )
    seed: int = whole(0, 0, 9999, "Seed", seed=True)


def states_of_student(only: dict[str, list[str]] | None = None) -> Any:
    """The control of the size of the student."""
    return whole(12, 1, 40, "States of the student", about="More than k: many students fit the numbers.", only=only)


class Student(Teacher):
    """A teacher, and how large the student is."""

    states: int = states_of_student()


def teacher_of(params: Teacher) -> System:
    """The teacher, or a refusal."""
    if params.teacher == "delay":
        return delay_teacher(params.order)
    rng = np.random.default_rng(params.seed)
    if params.teacher == "unbalanced":
        return unbalanced_teacher(params.order, rng)
    if params.order > 1 and not params.low < params.high:
        text = f"Least eigenvalue must be below Largest eigenvalue, {params.high:g}, but is {params.low:g}."
        raise LabError("value", text, ["low", "high"])
    return balanced_teacher(params.order, rng, low=params.low if params.order > 1 else params.high, high=params.high)


def teacher_lines(params: Teacher) -> str:
    """The teacher in a script."""
    calls = {
        "delay": f"delay_teacher({params.order})",
        "unbalanced": f"unbalanced_teacher({params.order}, np.random.default_rng({params.seed}))",
        "balanced": f"balanced_teacher({params.order}, np.random.default_rng({params.seed}), "
        f"low={params.low if params.order > 1 else params.high!r}, high={params.high!r})",
    }
    call = calls[params.teacher]
    return f"""
from deeplinear.recurrent import {call.split("(")[0]}, impulse_response

teacher = {call}
response = np.asarray(impulse_response(teacher, {HORIZON}).values)
"""


def response_of(system: Any) -> np.ndarray:
    """Response up to the horizon, with gaps where it overflows."""
    found = np.asarray(impulse_response(system, HORIZON).values)
    return np.pad(found, (0, HORIZON - len(found)), constant_values=np.nan)


def fitted(params: Student, response: np.ndarray, steps: int) -> Any:
    """A balanced student after so many steps of a fit to the first entries."""
    rng = np.random.default_rng([params.seed, 1])
    return polish(response[: params.length], balanced_student(params.states, START, rng), max_steps=steps)


def measure_of(teacher: System) -> Any:
    """The positive measure of a balanced teacher, or nothing."""
    if not np.array_equal(teacher.input, teacher.output.T):
        return None
    return spectral_measure(teacher)


def judged_command(params: Teacher, response: np.ndarray, student: System) -> str | None:
    """Files of the response and of the student, and the command that continues the one and judges the other."""
    if params.length < 2 or not np.all(np.isfinite(response)):
        return None
    matrices = {name: np.asarray(one) for name, one in zip("ABC", student, strict=True)}
    judge = command(
        "extrapolate response.csv", known=params.length, horizon=HORIZON, reach=REACH, student="student.npz"
    )
    return "\n".join([csv_file("response.csv", response), npz_file("student.npz", **matrices), judge])


MISSED = {
    "one input": "there is more than one input or output",
    "student: symmetric": "the student's A is not symmetric",
    "student: no negative": "the student is not balanced, some of its eigenvalues have a negative weight",
    "student: balanced": "the student is not balanced",
    "teacher: no negative": "the teacher is not balanced",
    "teacher: Hankel": "the teacher is not balanced",
    "teacher: response": "the teacher's eigenvalues cannot be told from its response",
}
"""Hypotheses that are missed, by the beginning of their statement in the library."""


def _in_words(statement: str) -> str:
    """What is said where a hypothesis fails."""
    if statement.startswith("length at least"):
        return f"fewer than{statement.removeprefix('length at least')} numbers are known"
    return next((words for start, words in MISSED.items() if statement.startswith(start)), statement)


def verdict_facts(found: ExtrapolationVerdict) -> list[Fact]:
    """What the student does, and what is proved of it."""
    seen = found.observed
    tones: Any = {"extrapolates": "good", "does not extrapolate": "bad", "not trained": "warning"}
    error = f"{seen.error:.3g}" if np.isfinite(seen.error) else "beyond all numbers"
    facts = [
        Fact(label="The student", value=found.outcome, tone=tones[found.outcome]),
        Fact(label="Loss on the known entries", value=f"{seen.training_loss:.3g}"),
        Fact(label="Largest error beyond", value=error, note=f"The zero student has {seen.reference:.3g}."),
    ]
    if found.theorem == "none":
        missed = "; ".join(dict.fromkeys(_in_words(condition.statement) for condition in found.failed))
        note = f"Nothing is proved of it: {missed}."
        return [*facts, Fact(label="Certificate", value="none", tone="warning", note=note)]
    bound = float("inf") if found.certified_error is None else found.certified_error
    if not bound < seen.reference:
        size = f"an error of at most {bound:.3g}" if np.isfinite(bound) else "nothing about the error"
        note = f"It proves {size}; the zero student, which has learned nothing, has {seen.reference:.3g}."
        return [*facts, Fact(label="Certificate", value="of no use", tone="warning", note=note)]
    note = "It is the teacher, but for rounding." if found.theorem == "uniqueness" else "From the residuals alone."
    value = f"error at most {bound:.3g}"
    return [*facts, Fact(label="Certificate", value=value, tone="good" if found.certified else "warning", note=note)]


def response_figure(teacher: np.ndarray, students: list[Series], length: int, caption: str = "") -> Any:
    """Responses, with the end of what is known."""
    span = float(np.abs(teacher).max())
    low, high = min(float(teacher.min()), 0.0) - HEADROOM * span, max(float(teacher.max()), 0.0) + HEADROOM * span
    places = np.arange(HORIZON)
    series = [*students, line("teacher", places, teacher, colour=7, style="points", faint=True)]
    marks = [Mark(at=length - 0.5, label="known up to here")]
    return curves(
        "responses", "Impulse responses", "index j", Axis(label="response", low=low, high=high), series, marks, caption
    )


def fit_lines(params: Student, steps: int) -> str:
    """The fit in a script."""
    return f"""
from deeplinear.recurrent import balanced_student, polish

start = balanced_student({params.states}, {START}, np.random.default_rng([{params.seed}, 1]))
student = polish(response[: {params.length}], start, max_steps={steps}).system
"""


def _stems(name: str, measure: Any, colour: int) -> list[Series]:
    """Weights over eigenvalues, as points on stems."""
    atoms, weights = np.asarray(measure.atoms), np.asarray(measure.weights)
    gaps = np.full(len(atoms), np.nan)
    x, y = np.stack([atoms, atoms, gaps], axis=1).ravel(), np.stack([0 * weights, weights, gaps], axis=1).ravel()
    return [
        line(name, x, y, colour=colour, faint=True, legend=False),
        line(name, atoms, weights, colour=colour, style="points"),
    ]


def measure_figure(teacher: Any, student: Any) -> Any:
    """Spectral measures of both."""
    series = [*([] if teacher is None else _stems("teacher", teacher, 7)), *_stems("student", student, 0)]
    return curves("measure", "Spectral measure: weight of every eigenvalue", "eigenvalue", "weight", series)


def hankel_figure(teacher: np.ndarray, student: np.ndarray) -> Any:
    """Hankel singular values of both, relative to the largest of the teacher."""
    series = []
    for name, response, colour, style in (("student", student, 0, "points"), ("teacher", teacher, 7, "line")):
        if np.all(np.isfinite(response)):
            values = np.maximum(np.asarray(hankel_singular_values(response)), TINY)
            series.append(line(name, np.arange(1, len(values) + 1), values, colour=colour, style=style))  # type: ignore[arg-type]
    return curves(
        "hankel",
        "Hankel singular values: how many states are in use",
        "number",
        Axis(label="singular value", log=True),
        series,
    )
