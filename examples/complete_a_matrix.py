"""Complete a matrix of rank one with a deep network.

Six of nine entries are known. They do not say that the matrix has rank one; a small start of three layers does.
"""

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
from deeplinear.dynamics import simulate, until
from deeplinear.models import Completion, DeepLinear, Gaussian, Problem
from deeplinear.plots import plot_trajectory
from deeplinear.probes import loss, product_effective_rank

# %% The target, and which of its entries are known.
target = jnp.array([[0.5, 1.0, 1.5], [1.0, 2.0, 3.0], [-0.5, -1.0, -1.5]])
mask = jnp.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
problem = Problem(DeepLinear((3, 3, 3, 3)), Completion(target, mask))

# %% Gradient flow from small weights, until the known entries are met.
params = Gaussian(0.1)(problem.model, jax.random.key(0))
run = simulate(problem, params, probes=[loss, product_effective_rank], until=until(loss, below=1e-8))
print(run.result.message)
print("largest error of an entry:", float(jnp.abs(problem.product(run.params) - target).max()))

# %% The rank rises to one, and no further.
figure = plot_trajectory(run, title="Completion of a matrix of rank one")
figure.savefig("complete_a_matrix.png")
