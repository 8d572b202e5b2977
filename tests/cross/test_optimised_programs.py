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

from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.models import LinearRNN, Problem, SquaredDistance
from deeplinear.nonlinear import gaussian_sequences, last_output, normal_gru, sequence_loss

ROUNDING = 1e-11  # flows at a tolerance of 1e-9 repeat the same steps; sums are taken in other orders


def numbers() -> Iterator[tuple[str, np.ndarray]]:
    """Gradients, and the end of a flow."""
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
            flow = simulate(problem, start, GradientFlow(1e-9), times=[2.0])
            yield "flow", np.concatenate([np.ravel(layer) for layer in flow.params])
    for states, batch in ((5, 4),):
        student, teacher = (normal_gru(jax.random.key(i), states, scale=0.5) for i in range(2))
        inputs = gaussian_sequences(jax.random.key(2), batch, 6)
        slope = jax.jit(jax.grad(lambda g, i, t: sequence_loss(g, i, t, last_output(6, 6))))
        gradient = slope(student, inputs, teacher.outputs(inputs))
        yield f"gated gradient, {states} states", np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(gradient)])


@pytest.mark.covers("rnn:F4", "rnn:F28")
def test_optimised_programs_give_the_same_numbers(tmp_path: Path) -> None:
    code = (
        "import jax; jax.config.update('jax_enable_x64', True)\n"
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import numpy as np\nfrom test_optimised_programs import numbers\n"
        "np.savez(sys.argv[1], **dict(numbers()))\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_"))} | {"JAX_PLATFORMS": "cpu"}
    file = tmp_path / "optimised.npz"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(file)], env=environment, stderr=subprocess.PIPE, text=True
    )
    plain = dict(numbers())
    assert child.wait() == 0, child.stderr.read() if child.stderr else ""
    with np.load(file) as optimised:
        assert set(optimised.files) == set(plain)
        for name, values in plain.items():
            np.testing.assert_allclose(optimised[name], values, rtol=0, atol=ROUNDING, err_msg=name)
    if child.stderr is not None:
        child.stderr.close()
