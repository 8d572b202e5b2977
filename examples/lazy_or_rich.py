"""Draw the map of lazy and rich learning without training anything.

Two layers under white inputs are solved in closed form. The relative scale λ and the size of the start decide how far
the tangent kernel moves: lazy where it does not, rich where it does.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from deeplinear.exact import phase_map

# %% A random task, random directions of the start, and a grid of scales.
rng = np.random.default_rng(4)
lams, scales = np.linspace(-6.0, 6.0, 81), np.logspace(-2.0, 0.5, 41)
shapes = {"square 2-2-2": (2, 2), "funnel 6-2-2": (2, 6), "inverted funnel 2-2-6": (6, 2)}
maps = {
    name: phase_map(rng.normal(size=shape), rng.normal(size=shape), lams, scales, [100.0])
    for name, shape in shapes.items()
}
for name, found in maps.items():
    print(f"{name}: kernel distance up to {float(found.kernel_distance.max()):.2f}")

# %% The three maps, one scale of colours.
figure, axes = plt.subplots(1, 3, figsize=(9.0, 2.7), layout="constrained", sharey=True)
for axis, (name, found) in zip(axes, maps.items(), strict=True):
    picture = axis.pcolormesh(lams, scales, found.kernel_distance[0], vmin=0.0, vmax=0.6)
    axis.set(title=name, xlabel="relative scale λ", yscale="log")
axes[0].set_ylabel("absolute scale")
figure.colorbar(picture, ax=axes, label="kernel distance")
figure.suptitle("Lazy (dark) and rich (bright)")
figure.savefig("lazy_or_rich.png")
