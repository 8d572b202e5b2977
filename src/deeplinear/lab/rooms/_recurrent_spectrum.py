"""The spectrum of a balanced student on its way to the first numbers of a teacher."""

import numpy as np

from deeplinear.lab._figures import Answer, Fact, Mark, curves, line
from deeplinear.lab._recipes import script
from deeplinear.lab._room import Watch, slider
from deeplinear.lab.rooms._recurrent_setting import (
    HORIZON,
    Student,
    fit_lines,
    fitted,
    hankel_figure,
    judged_command,
    measure_figure,
    measure_of,
    response_figure,
    response_of,
    teacher_lines,
    teacher_of,
    verdict_facts,
)
from deeplinear.recurrent import extrapolation_verdict, residual_polynomial, spectral_measure


class Spectrum(Student):
    """A balanced student on its way to the known entries."""

    steps: float = slider(
        6.0, 1.0, 1000.0, "Steps of the fit", log=True, about="From left to right: the spectrum of the student moves."
    )


def spectrum(params: Spectrum, watch: Watch) -> Answer:
    """Measures, residual polynomial, Hankel singular values."""
    teacher = teacher_of(params)
    response = response_of(teacher)
    fit = fitted(params, response, round(params.steps))
    played = response_of(fit.system)
    measure = measure_of(teacher)
    mine = spectral_measure(fit.system)
    found = extrapolation_verdict(fit.system, teacher, params.length, horizon=HORIZON)
    reach = 1.05 * max(1.0, float(np.abs(np.asarray(mine.atoms)).max(initial=0.0)), params.high, -params.low)
    points = np.linspace(-reach, reach, 201)
    residual = (played - response)[: params.length]
    force = residual_polynomial(residual, points)
    at_atoms = residual_polynomial(residual, np.asarray(mine.atoms)).value
    heavy = np.asarray(mine.weights) > 1e-2 * float(mine.mass)
    facts = verdict_facts(found)
    facts.append(
        Fact(label="Eigenvalues in use", value=f"{int(heavy.sum())} of {params.states}", note="Above 1 % of the mass.")
    )
    if found.leak is not None:
        facts.append(
            Fact(label="Leak", value=f"{found.leak:.2g}", note="Mass of the student off the teacher's spectrum.")
        )
    return Answer(
        figures=[
            measure_figure(measure, mine),
            curves(
                "force",
                "Residual polynomial φ(x) = Σ rⱼ xʲ",
                "eigenvalue x",
                "φ",
                [
                    line("φ", points, force.value, colour=4, legend=False),
                    line("at the student's eigenvalues", mine.atoms, at_atoms, colour=0, style="points"),
                ],
                [Mark(at=0.0, axis="y")],
                "In gradient flow an eigenvalue loses weight where φ is positive, gains elsewhere, and moves downhill.",
            ),
            hankel_figure(response, played),
            response_figure(response, [line("student", np.arange(HORIZON), played, colour=0)], params.length),
        ],
        facts=facts,
        remarks=[]
        if measure is not None
        else ["This teacher is not balanced: it has no positive spectral measure to reach."],
    )


def spectrum_command(params: Spectrum) -> str | None:
    """The verdict on the command line."""
    response = response_of(teacher_of(params))
    return judged_command(params, response, fitted(params, response, round(params.steps)).system)


def spectrum_script(params: Spectrum) -> str:
    """Fit, measures, Hankel singular values."""
    return script(
        teacher_lines(params),
        fit_lines(params, round(params.steps)),
        f"""
from deeplinear.recurrent import hankel_singular_values, residual_polynomial, spectral_measure

measure = spectral_measure(student)
played = np.asarray(impulse_response(student, {HORIZON}).values)
residual = played[: {params.length}] - response[: {params.length}]
print(measure.atoms, measure.weights, residual_polynomial(residual, measure.atoms).value, sep="\\n")
print(hankel_singular_values(response))
""",
    )
