"""Find the geodesic between two matrices, at several depths.

Balanced layers of a depth give end-to-end matrices a metric. Its geodesics bend the more the deeper the network is; the
determinant cannot change its sign on the way.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

jax.config.update("jax_enable_x64", True)
from deeplinear.geometry import geodesic_between

# %% The ends, and a geodesic for each depth.
start = jnp.array([[1.0, 0.2], [-0.3, 0.8]])
end = jnp.array([[0.3, -0.9], [0.8, 0.5]])
times = np.linspace(0.0, 1.0, 40)
ways = {depth: geodesic_between(start, end, depth) for depth in (1, 2, 5)}
for depth, way in ways.items():
    print(f"depth {depth}: length {way.length:.6f}, residual at the end {way.residual:.0e}")

# %% Two of the entries, and the determinant.
figure, (left, right) = plt.subplots(1, 2, figsize=(7.5, 2.8), layout="constrained")
for depth, way in ways.items():
    points = np.asarray(way.path(times).points)
    left.plot(points[:, 0, 0], points[:, 1, 1], label=f"depth {depth}")
    right.plot(times, np.linalg.det(points))
left.set(xlabel="$x_{11}$", ylabel="$x_{22}$", title="Geodesics between two matrices")
right.set(xlabel="place on the geodesic", ylabel="determinant", title="The determinant on the way")
left.legend()
figure.savefig("find_a_geodesic.png")
