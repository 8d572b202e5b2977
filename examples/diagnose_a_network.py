"""Ask what theory says about the weights of a network.

Weights may come from anywhere: arrays, PyTorch, safetensors, equinox. Hypotheses are measured, predictions follow where
they hold, and a simulation says whether they come true.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from deeplinear.diagnosis import diagnose, load_weights
from deeplinear.exact import solve
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.probes import singular_values

# %% A state dict of two layers, and the task they are to learn.
state = {"0.weight": 0.1 * np.eye(3), "1.weight": 0.3 * np.eye(3)}
weights = load_weights(state)
problem = Problem(DeepLinear(weights.widths), SquaredDistance(np.diag([3.0, 2.0, 1.0])))

# %% What is predicted, and what became of it.
found = diagnose(problem, weights, simulate=True, theorems=False)
print(found)
print("predictions that did not come true:", len(found.disagreements))

# %% The predicted learning curve.
run = solve(problem, weights.params).trajectory(np.linspace(0.0, 5.0, 200), probes=[singular_values], carry=False)
figure, axis = plt.subplots(figsize=(4.5, 2.6), layout="constrained")
axis.plot(run.times, run["singular_values"])
axis.set(xlabel="time", ylabel="singular values of the product", title="What this network will learn, and when")
figure.savefig("diagnose_a_network.png")
