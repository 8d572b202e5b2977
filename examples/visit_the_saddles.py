"""Name the saddles that a run visits.

From a small start a network learns one mode after another. On each plateau it is close to a saddle, at which some modes
are learnt and the others are not.
"""

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
from deeplinear.dynamics import GradientFlow, simulate
from deeplinear.landscape import diagonal_target, itinerary
from deeplinear.models import DeepLinear, Gaussian, Problem, SquaredDistance
from deeplinear.plots import plot_itinerary
from deeplinear.probes import gradient_norm, loss, product

# %% A task of three modes, three layers, and a start near zero.
task = Problem(DeepLinear((4, 3, 3, 3)), SquaredDistance(diagonal_target(jnp.array([3.0, 2.0, 1.0]), 3, 4)))
start = Gaussian(0.02)(task.model, jax.random.key(0))

# %% The run, recorded at every step, and the saddles it came near.
run = simulate(task, start, GradientFlow(1e-8), horizon=80.0, every=1, probes=[loss, product, gradient_norm])
found = itinerary(task, run)
for visit in found.visits:
    print(visit.name)

# %% Loss and gradient over time, the visits shaded.
figure = plot_itinerary(run, found, title="The saddles on the way")
figure.savefig("visit_the_saddles.png")
