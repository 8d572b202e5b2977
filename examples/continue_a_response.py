"""Say how an impulse response goes on after its first numbers.

A balanced linear recurrent network with n states is known from 2n + 1 numbers of its response. With fewer there is an
interval in which every balanced network with these numbers lies.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from deeplinear.recurrent import balanced_teacher, continuation, impulse_response

# %% A teacher with two states, and what four and five of its numbers say.
teacher = balanced_teacher(2, np.random.default_rng(0))
response = np.ravel(impulse_response(teacher, 12).values)
found = {known: continuation(response[:known], 12) for known in (4, 5)}
for known, told in found.items():
    width = float(told.upper[-1] - told.lower[-1])
    print(f"{known} numbers: order {told.order}, shown {told.shown}, interval of the last number {width:.2g}")

# %% The intervals.
figure, axes = plt.subplots(1, 2, figsize=(7.5, 2.7), layout="constrained", sharey=True)
for axis, (known, told) in zip(axes, found.items(), strict=True):
    axis.fill_between(range(12), told.lower, told.upper, color="C1", alpha=0.3, label="balanced networks")
    axis.plot(response, "ko-", label="teacher")
    axis.axvline(known - 0.5, color="0.5", linestyle=":")
    axis.set(xlabel="index", title=f"{known} numbers known", ylim=(0.3, 1.3))
axes[0].set_ylabel("response")
axes[0].legend()
figure.suptitle("What is decided, and what is left open")
figure.savefig("continue_a_response.png")
