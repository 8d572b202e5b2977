"""Programs as users have them, with all of the compiler's optimisations, give the numbers of the plain ones.

The other tests switch these off to save time. That the compiler may be wrong with them is not far-fetched: at some
sizes the gradient of a scan over `equinox.nn.GRUCell` is, by order one, on processors with AVX-512.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.core import Exponential, Stabilised, dopri8, flatten
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.dynamics._flow import GradientField
from deeplinear.models import LinearRNN, Problem, SquaredDistance
from deeplinear.nonlinear import gru_from_weights, last_output, sequence_loss

ROUNDING = 1e-11  # flows at a tolerance of 1e-9 repeat the same steps; sums are taken in other orders


def numbers() -> Iterator[tuple[str, np.ndarray]]:
    """Gradients, the end of a flow, and steps of the other integrators."""
    rng = np.random.default_rng(0)
    for form in ("general", "tied"):
        model = LinearRNN(5, 7, form=form)
        problem = Problem(model, SquaredDistance(rng.normal(size=(1, 7))))
        start = tuple(jnp.asarray(0.3 * rng.normal(size=shape)) for shape in model.shapes)
        yield (
            f"{form} gradient",
            np.concatenate([np.ravel(g) for g in jax.jit(lambda p, of=problem: of.gradient(p))(start)]),
        )
        if form == "tied":
            # The automatic choice of an integrator takes these very steps.
            flow = simulate(problem, start, GradientFlow(1e-9, integrator=dopri8()), times=[2.0])
            yield "flow", np.concatenate([np.ravel(layer) for layer in flow.params])
            field, y = GradientField(problem), flatten(start)
            settings = [jnp.asarray(x) for x in (0.5, 40.0, 1e-9)]  # step, spectral radius, tolerance
            for name, integrator in (("stabilised", Stabilised()), ("exponential", Exponential())):
                yield f"{name} step", np.asarray(jax.jit(integrator.step)(field, y, field(y), *settings).y)
    states, batch = 5, 4
    student = gru_from_weights(
        **{
            name: 0.5 * rng.normal(size=shape)
            for name, shape in (
                ("weight_ih", (3 * states, 1)),
                ("weight_hh", (3 * states, states)),
                ("bias_ih", (3 * states,)),
                ("bias_hh", (3 * states,)),
                ("readout", (1, states)),
            )
        }
    )
    slope = jax.jit(jax.grad(lambda g, i, t: sequence_loss(g, i, t, last_output(6, 6))))
    gradient = slope(student, *(jnp.asarray(rng.normal(size=(batch, 6, 1))) for _ in range(2)))
    yield f"gated gradient, {states} states", np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])


CHILD = """
import dataclasses, sys
import jax
jax.config.update("jax_enable_x64", True)
sys.path.insert(0, sys.argv[1])
import numpy as np
from deeplinear.experiments import Context, experiment
from test_optimised_programs import numbers
np.savez(sys.argv[2], **dict(numbers()))
figure = experiment("rnn/fig1a")
spec = dataclasses.replace(figure.preset("quick"), lengths=(7, 10, 20), draws=10)
found = figure.run(spec, Context())["ratio"].isel(setting=0).median("draw")
np.save(sys.argv[3], found.transpose("length").to_numpy())
"""


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """What a process without the tests' settings computes."""
    folder = tmp_path_factory.mktemp("optimised")
    files = [str(folder / name) for name in ("numbers.npz", "ratios.npy")]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))} | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parent), *files]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    with np.load(files[0]) as stored:
        return dict(stored), np.load(files[1])


@pytest.mark.covers("rnn:F4", "rnn:F28")
def test_optimised_programs_give_the_same_numbers(child: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    plain = dict(numbers())
    assert set(child[0]) == set(plain)
    for name, values in plain.items():
        np.testing.assert_allclose(child[0][name], values, rtol=0, atol=ROUNDING, err_msg=name)


@pytest.mark.covers("rnn:F25")
def test_ten_students_of_each_length(child: tuple[dict[str, np.ndarray], np.ndarray]) -> None:
    """15,000 steps of Adam: worse than the zero student with 7 numbers, much better with 10 and 20."""
    assert np.all(child[1][:1] > 1) and np.all(child[1][1:] < 0.5)
