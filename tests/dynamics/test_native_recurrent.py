"""Recurrent networks that the native engine moves, held to automatic differentiation of a plain recurrence."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from deeplinear.core import RESULTS, Exponential, Stabilised, tsit5
from deeplinear.dynamics import Adam, GradientFlow, _native_spec, ensemble, resume, simulate, until
from deeplinear.engine import available
from deeplinear.models import Completion, LinearRNN, Problem, Regression, SquaredDistance
from deeplinear.probes import gradient_norm, loss
from flows import flat

pytestmark = pytest.mark.skipif(not available(), reason="the engine is not compiled on this machine")

FORMS = {
    "general": (3, 4, 2, 3),
    "symmetric": (3, 4, 1, 1),
    "upper": (3, 4, 2, 1),
    "diagonal": (4, 5, 2, 3),
    "tied": (3, 5, 2, 2),
}
"""States, length, inputs, outputs."""


class Case:
    """A recurrent network with a loss, whose slope is made by JAX from the recurrence as one writes it."""

    def __init__(
        self, form: str, kind: str, l2: float, seed: int, sizes: tuple[int, int, int, int] | None = None
    ) -> None:
        states, length, inputs, outputs = self.sizes = sizes or FORMS[form]
        rng = np.random.default_rng(seed)
        self.model, self.form, self.l2 = LinearRNN(states, length, inputs=inputs, outputs=outputs, form=form), form, l2
        target, seen = rng.standard_normal((outputs, length * inputs)), rng.random((outputs, length * inputs)) < 0.7
        x, y = rng.standard_normal((length * inputs, 40)), rng.standard_normal((outputs, 40))
        losses = {"distance": SquaredDistance(target), "completion": Completion(target, seen)}
        self.problem = Problem(self.model, losses.get(kind) or Regression.from_data(x, y), l2)
        energies = {
            "distance": lambda p: 0.5 * jnp.sum((p - target) ** 2),
            "completion": lambda p: 0.5 * jnp.sum(jnp.where(seen, p - target, 0.0) ** 2),
            "regression": lambda p: 0.5 * jnp.sum((p @ x - y) ** 2) / 40,
        }
        self.energy = energies[kind]
        self.start = [rng.standard_normal(shape) * 0.4 for shape in self.model.shapes]
        if form == "symmetric":
            self.start[1] = (self.start[1] + self.start[1].T) / 2
        self.value, self.slope, self.jacobian = map(jax.jit, (self._value, self._slope, self._jacobian))

    def layers(self, y: Any) -> list[Any]:
        ends = np.cumsum([rows * columns for rows, columns in self.model.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(jnp.split(y, ends), self.model.shapes, strict=True)]

    def _value(self, y: Any) -> Any:
        states, length, _, _ = self.sizes
        first, inner, *rest = self.layers(y)
        output = rest[0] if rest else first.T
        if self.form == "symmetric":
            inner = (inner + inner.T) / 2
        if self.form == "upper":
            upper = jnp.zeros((states, states)).at[np.triu_indices(states)].set(inner[:, 0])
            inner = upper + upper.T - jnp.diag(jnp.diag(upper))
        if self.form in ("diagonal", "tied"):
            inner = jnp.diag(inner[:, 0])
        blocks, state = [], first
        for _ in range(length):
            blocks.append(output @ state)
            state = inner @ state
        return self.energy(jnp.concatenate(blocks, axis=1)) + 0.5 * self.l2 * jnp.sum(y * y)

    def _slope(self, y: Any) -> Any:
        return -jax.grad(self._value)(y)

    def _jacobian(self, y: Any, v: Any) -> Any:
        return jax.jvp(self._slope, (y,), (v,))[1]

    def at(self, times: list[float]) -> np.ndarray:
        """State at the last of some times, by SciPy."""
        found = solve_ivp(lambda _, y: np.asarray(self.slope(y)), (0.0, times[-1]), flat(self.start), "DOP853",
                          rtol=1e-10, atol=1e-12)  # fmt: skip
        return found.y[:, -1]


KINDS = [("distance", 0.0), ("completion", 0.1), ("regression", 0.05)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("wide", "least"), [(700, 1e300), (0, 1e300), (0, 1.0)], ids=["lanes", "wide", "BLAS"])
def test_slope_loss_and_curvature_are_those_of_the_recurrence(
    form: str, wide: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The radius is that of three iterations of power, into which every product with the Jacobian enters."""
    monkeypatch.setattr(_native_spec, "WIDE", wide)
    monkeypatch.setattr(_native_spec, "BLAS", least)
    sizes = ((3, 4, 2, 3), (3, 5, 1, 3), (2, 4, 1, 2))  # of the general form: also with square parts of longer rows
    for i, (kind, l2) in enumerate(KINDS):
        case = Case(form, kind, l2, i, sizes[i] if form == "general" else None)
        y = flat(case.start)
        run = simulate(case.problem, case.start, times=[0.0, 1.0], probes=[loss, gradient_norm], max_steps=1,
                       engine="native")  # fmt: skip
        slope = np.asarray(case.slope(y))
        assert run["loss"][0] == pytest.approx(float(case.value(y)), rel=1e-12)
        assert run["gradient_norm"][0] == pytest.approx(np.linalg.norm(slope), rel=1e-12)
        bound, v = radius(case, y)
        np.testing.assert_allclose(run.state[1], 1.1 * bound, rtol=1e-9)
        np.testing.assert_allclose(run.state[2], v, rtol=1e-7, atol=1e-9)


def radius(case: Case, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Bound of the spectral radius after three iterations of power, and the last direction."""
    v, bound = np.asarray(case.slope(y)), 0.0
    v = v / np.linalg.norm(v)
    for _ in range(3):
        w = np.asarray(case.jacobian(y, v))
        quotient = v @ w
        bound = float(abs(quotient) + np.linalg.norm(w - quotient * v))
        v = w / np.linalg.norm(w)
    return bound, v


@pytest.mark.parametrize("form", FORMS)
def test_every_integrator_follows_the_flow(form: str) -> None:
    case = Case(form, "distance", 0.02, 3)
    expected = case.at([2.0])
    for integrator in (None, tsit5(), Stabilised(), Exponential()):
        run = simulate(
            case.problem, case.start, GradientFlow(1e-8, integrator=integrator), times=[2.0], engine="native"
        )
        assert run.result is RESULTS.completed
        assert np.linalg.norm(flat(run.params) - expected) < 1e-6 * np.linalg.norm(expected), integrator


@pytest.mark.parametrize("states", [26, 27, 33])
def test_one_pass_over_a_wide_transition_serves_both_sides(states: int) -> None:
    """One input and one output; widths about the length of registers; symmetric ones keep B = C^T to the last bit."""
    for form in ("general", "symmetric"):
        case = Case(form, "distance", 0.0, states, (states, 6, 1, 1))
        start = [layer / np.sqrt(states) for layer in case.start]
        y, settings = flat(start), {"probes": [loss, gradient_norm], "engine": "native"}
        run = simulate(case.problem, start, times=[0.0, 3.0], max_steps=1, **settings)
        assert ("lanes: 1" in run.info["engine"]) is (states**2 + 2 * states > 700)
        assert run["loss"][0] == pytest.approx(float(case.value(y)), rel=1e-12)
        assert run["gradient_norm"][0] == pytest.approx(np.linalg.norm(case.slope(y)), rel=1e-12)
        np.testing.assert_allclose(run.state[1], 1.1 * radius(case, y)[0], rtol=1e-9)
        if form == "symmetric":
            start[2] = start[0].T.copy()
            run = simulate(case.problem, start, GradientFlow(1e-6), times=[0.0, 3.0], **settings)
            assert run.params[0].tobytes() == run.params[2].T.tobytes()
            assert run.params[1].tobytes() == run.params[1].T.tobytes()


def test_adam_trains_a_network_whose_sequences_are_masks() -> None:
    """Members of different lengths, as in the figures of recurrent networks, each as if it were alone."""
    rng = np.random.default_rng(1)
    model = LinearRNN(4, 6, form="tied")
    problems = [
        Problem(model, Completion(rng.standard_normal((1, 6)), (np.arange(6) < 2 + i % 4)[None])) for i in range(11)
    ]
    params = [tuple(rng.standard_normal(shape) * 0.3 for shape in model.shapes) for _ in range(11)]
    many = ensemble(problems, params, Adam(0.01), times=[50], engine="native")
    for i in (0, 5, 10):
        b, a = (layer[:, 0] for layer in params[i])
        seen, target = np.asarray(problems[i].loss.mask)[0], np.asarray(problems[i].loss.target)[0]
        y, m, v = np.concatenate([b, a]), np.zeros(8), np.zeros(8)
        for step in range(1, 51):
            powers = y[4:, None] ** np.arange(6)
            r = seen * (y[:4] ** 2 @ powers - target)
            falling = np.arange(1, 6) * y[4:, None] ** np.arange(5)
            g = np.concatenate([2 * y[:4] * (powers @ r), y[:4] ** 2 * (falling @ r[1:])])
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            y = y - 0.01 * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
        np.testing.assert_allclose(flat(many.member(i).params), y, rtol=1e-9)
        alone = simulate(problems[i], params[i], Adam(0.01), times=[50], engine="native")
        assert flat(alone.params).tobytes() == flat(many.member(i).params).tobytes()


def test_both_engines_and_continuations() -> None:
    case = Case("general", "regression", 0.02, 5)
    method, rule = GradientFlow(1e-6), until(gradient_norm, below=1e-6)
    native, xla = (
        simulate(case.problem, case.start, method, until=rule, horizon=1e4, engine=engine)
        for engine in ("native", "xla")
    )
    assert native.result is xla.result
    assert abs(native.stats["accepted_steps"] - xla.stats["accepted_steps"]) <= max(
        8, 0.1 * xla.stats["accepted_steps"]
    )
    np.testing.assert_allclose(flat(native.params), flat(xla.params), rtol=1e-4, atol=1e-4)
    whole = simulate(case.problem, case.start, method, times=[0.0, 1.0, 20.0], engine="native")
    part = simulate(case.problem, case.start, method, times=[0.0, 1.0], engine="native")
    part = resume(part, case.problem, method, times=[20.0], engine="native")
    assert [np.asarray(leaf).tobytes() for leaf in part.state] == [np.asarray(leaf).tobytes() for leaf in whole.state]
