"""A student with more states than it needs, trained on the first numbers of a teacher."""

from typing import Any, Literal

import numpy as np

from deeplinear.core import Trajectory, quietly, unflatten, xp
from deeplinear.dynamics import Adam, GradientFlow, until
from deeplinear.lab._errors import LabError
from deeplinear.lab._figures import Answer, Axis, Fact, curves, line
from deeplinear.lab._recipes import script
from deeplinear.lab._room import Watch, choice, slider, whole
from deeplinear.lab.rooms._live import pieces, simulate_live
from deeplinear.lab.rooms._recurrent_setting import (
    HORIZON,
    LONGEST,
    TINY,
    Student,
    measure_figure,
    measure_of,
    response_figure,
    response_of,
    teacher_lines,
    teacher_of,
    verdict_facts,
)
from deeplinear.models import Completion, LinearRNN, Problem
from deeplinear.probes import loss, weights
from deeplinear.recurrent import (
    balanced_student,
    extrapolation_verdict,
    near_zero_system,
    order_growth,
    spectral_measure,
)

POINTS = 96
"""Records of a run, evenly spaced on the axis of the logarithm of time."""

PIECES = 12
"""How often a run shows what there is."""

FIRST = 1e-3
"""First record after the start, as a share of the horizon."""

DONE = 1e-20
"""Loss at which a run ends."""


FAR = 1.5
"""Largest eigenvalue at the start."""


class Training(Student):
    """A student, its start, and how it is trained."""

    form: Literal["tied", "symmetric", "general"] = choice(
        "tied",
        {"tied": "diagonal and balanced", "symmetric": "symmetric and balanced", "general": "any matrices"},
        "Student",
    )
    scale: float = slider(0.1, 1e-4, 1.0, "Scale of the start", log=True, about="Size of the entries.")
    method: Literal["flow", "adam"] = choice("flow", {"flow": "gradient flow", "adam": "Adam"}, "Trained by")
    horizon: int = whole(2000, 10, 20000, "Time, or steps of Adam")
    rate: float = slider(0.003, 1e-4, 0.1, "Learning rate of Adam", log=True, only={"method": ["adam"]})


def _times(params: Training) -> np.ndarray:
    """Zero, then records on a logarithmic axis; whole numbers for steps."""
    if params.method == "flow":
        return np.concatenate([[0.0], np.geomspace(FIRST * params.horizon, params.horizon, POINTS - 1)])
    return np.unique(np.round(np.concatenate([[0.0], np.geomspace(1.0, params.horizon, POINTS - 1)])))


def _setting(params: Training, response: np.ndarray) -> tuple[Problem, Any, Any]:
    """The problem, the start and the method: a shorter length is a mask on the longest."""
    model = LinearRNN(params.states, LONGEST, form=params.form)
    rng = np.random.default_rng([params.seed, 2])
    if params.form == "general":
        start = near_zero_system(params.states, params.scale, rng, size="entry")
    else:
        start = balanced_student(
            params.states, params.scale, rng, form="diagonal" if params.form == "tied" else "symmetric"
        )
    radius = float(np.abs(np.linalg.eigvals(np.asarray(start.transition))).max())
    if radius > FAR:
        text = f"The student begins with an eigenvalue of size {radius:.3g}, and its response explodes. "
        raise LabError("value", text + "Take a smaller scale, or fewer states.", ["scale", "states"])
    known = Completion(response[None, :LONGEST], (np.arange(LONGEST) < params.length)[None])
    method = GradientFlow() if params.method == "flow" else Adam(params.rate)
    return Problem(model, known), model.params(start), method


def _responses(model: LinearRNN, flat: np.ndarray) -> np.ndarray:
    """Responses up to the horizon of many states of a run."""
    longer = LinearRNN(model.states, HORIZON, form=model.form)
    with quietly():
        return np.stack([longer.forward(unflatten(row, longer.shapes))[0][0] for row in flat])


def _answer(params: Training, teacher: Any, model: LinearRNN, run: Trajectory) -> Answer:
    response = response_of(teacher)
    times, flat = np.asarray(run.times), np.asarray(run["weights"])
    played = _responses(model, flat)
    tails = np.max(np.abs(played - response)[:, params.length :], axis=1)
    yardstick = float(np.abs(response[params.length :]).max())
    growth = order_growth(model, flat, horizon=HORIZON)
    later, places = slice(1, None), np.arange(HORIZON)
    low = FIRST * params.horizon if params.method == "flow" else 1.0
    clock = Axis(label="time" if params.method == "flow" else "step", log=True, low=low, high=float(params.horizon))
    ends = [clock.low, clock.high]
    system = model.system(tuple(map(xp.asarray, run.params)))
    found = extrapolation_verdict(system, teacher, params.length, horizon=HORIZON)
    hankel = growth.singular_values[:, : min(params.order + 2, growth.singular_values.shape[1])]
    students = [
        line("at the start", places, played[0], colour=5, style="dot", faint=True),
        line("student", places, played[-1], colour=0),
    ]
    figures: list[Any] = [
        response_figure(response, students, params.length),
        curves(
            "losses",
            "Loss on the known numbers, and error beyond them",
            clock,
            Axis(label="loss, error", log=True),
            [
                line("loss", times[later], np.maximum(run["loss"][later], TINY), colour=0),
                line("largest error beyond", times[later], np.maximum(tails[later], TINY), colour=1),
                line("that of the zero student", ends, [yardstick or np.nan] * 2, colour=1, style="dot", faint=True),
            ],
        ),
        curves(
            "hankel",
            "Hankel singular values: states come into use one by one",
            clock,
            Axis(label="singular value", log=True),
            [
                line(f"{i + 1}", times[later], np.maximum(hankel[later, i], TINY), colour=i)
                for i in range(hankel.shape[1])
            ],
            (),
            f"A response of the teacher's {params.order} states has as many that are not zero.",
        ),
    ]
    if params.form == "general":
        ratio = np.maximum(growth.balance[later], TINY)
        figures.append(
            curves(
                "balance",
                "Distance from balance, |B − Cᵀ| / |B + Cᵀ|",
                clock,
                Axis(label="ratio", log=True),
                [line("ratio", times[later], ratio, colour=2)],
            )
        )
    else:
        figures.append(measure_figure(measure_of(teacher), spectral_measure(system, signed=True)))
    facts = verdict_facts(found)
    facts.append(
        Fact(
            label="States in use",
            value=f"{int(growth.order[-1])} of {params.states}",
            note="Hankel singular values above 1 %.",
        )
    )
    facts.append(
        Fact(
            label="Size of the weights",
            value=f"{float(np.linalg.norm(flat[-1])):.3g}",
            note=f"At the start {float(np.linalg.norm(flat[0])):.3g}.",
        )
    )
    remarks = [] if np.all(np.isfinite(tails)) else ["Where the error has gaps, the response of the student overflows."]
    return Answer(figures=figures, facts=facts, remarks=remarks)


def training(params: Training, watch: Watch) -> Answer:
    """Train, and show it while it runs."""
    teacher = teacher_of(params)
    problem, start, method = _setting(params, response_of(teacher))
    assert isinstance(problem.model, LinearRNN)
    model = problem.model
    run = simulate_live(
        watch,
        lambda part: _answer(params, teacher, model, part),
        problem,
        start,
        method,
        pieces(_times(params), PIECES),
        probes=[loss, weights],
        until=until(loss, below=DONE),
    )
    return _answer(params, teacher, model, run)


def training_script(params: Training) -> str:
    """The same run in one piece."""
    start = (
        f'near_zero_system({params.states}, {params.scale!r}, rng, size="entry")'
        if params.form == "general"
        else f"balanced_student({params.states}, {params.scale!r}, rng, "
        f'form="{"diagonal" if params.form == "tied" else "symmetric"}")'
    )
    times = (
        f"np.concatenate([[0.0], np.geomspace({FIRST * params.horizon!r}, {params.horizon}, {POINTS - 1})])"
        if params.method == "flow"
        else f"np.unique(np.round(np.concatenate([[0.0], np.geomspace(1.0, {params.horizon}, {POINTS - 1})])))"
    )
    method = "GradientFlow()" if params.method == "flow" else f"Adam({params.rate!r})"
    return script(
        teacher_lines(params),
        f"""
from deeplinear.dynamics import {method.split("(")[0]}, simulate, until
from deeplinear.models import Completion, LinearRNN, Problem
from deeplinear.probes import loss
from deeplinear.recurrent import {start.split("(")[0]}, extrapolation_verdict

model, rng = LinearRNN({params.states}, {LONGEST}, form="{params.form}"), np.random.default_rng([{params.seed}, 2])
start = model.params({start})
known = Completion(response[None, :{LONGEST}], (np.arange({LONGEST}) < {params.length})[None])
times = {times}
run = simulate(Problem(model, known), start, {method}, times=times, probes=[loss], until=until(loss, below={DONE}))
student = model.system(run.params)
verdict = extrapolation_verdict(student, teacher, {params.length}, horizon={HORIZON})
print(run["loss"][-1])
print(verdict)
""",
    )
