"""Room 4: the geometry that depth gives to matrices."""

from deeplinear.lab._room import Preset, Room, View
from deeplinear.lab.rooms._geometry_cloud import CloudParams, answer_cloud, cloud_command, cloud_script
from deeplinear.lab.rooms._geometry_entropy import (
    MapParams,
    RelaxParams,
    answer_map,
    answer_relaxation,
    map_script,
    relaxation_script,
)
from deeplinear.lab.rooms._geometry_paths import PathParams, answer_paths, path_command, path_script

TURNED = [[0.4536, -0.8912], [0.8912, 0.4536]]
"""A rotation by 1.1."""

ROOM = Room(
    name="geometry",
    title="Geometry",
    story="""
Many sets of layers have the same product. Seen at the product, gradient descent on the layers is steepest descent in a
**curved** space: large singular values move fast, small ones hardly at all, and the deeper the network the more so.
That is why deep networks that start small find matrices of **low rank**, though nobody asked for it. Here you can see
the shortest ways through that space, how many layers stand behind a matrix (its entropy), and a cloud of random starts
on its way to low rank.
""",
    mathematics=r"""
Balanced layers with product $X = USV^\top$ move it by $\dot X = -A_L[X](\nabla E)$. In the basis $u_kv_l^\top$ the
operator has the eigenvalues

$$\lambda_L(s_k, s_l) = \frac{s_k^2 - s_l^2}{s_k^{2/L} - s_l^{2/L}}, \qquad
\lambda_\infty = \frac{s_k^2 - s_l^2}{2\ln(s_k/s_l)},$$

the latter divided by $L$ first. The metric is $g_X(Z, Z) = \langle Z, A_L[X]^{-1}Z\rangle$; lengths and geodesics are
those of it. No curve is shorter than $\sqrt L\,\|s(A)^{1/L} - s(B)^{1/L}\|$. The layers over one $X$ have the volume
$e^{S_L}$ up to a constant, $S_L = \tfrac12\sum_{j<k}\ln\lambda_L(s_j, s_k)$: the entropy. An energy
$\tfrac1p\sum s_i^p$ less $S_L/\beta$ rests at equal singular values $\left(\tfrac{(d-1)(1-1/L)}{2\beta}\right)^{1/p}$.
""",
    views=(
        View(
            "geodesics",
            "Shortest paths",
            PathParams,
            answer_paths,
            path_script,
            path_command,
            hint="Change an entry of A or B. Each colour is a depth.",
        ),
        View(
            "entropy",
            "Entropy",
            MapParams,
            answer_map,
            map_script,
            None,
            hint="Click or drag in a map: the two singular values follow.",
        ),
        View(
            "relaxation",
            "Towards equilibrium",
            RelaxParams,
            answer_relaxation,
            relaxation_script,
            None,
            hint="Lower the power p below the critical one and watch a singular value split off.",
        ),
        View(
            "cloud",
            "Low rank",
            CloudParams,
            answer_cloud,
            cloud_script,
            cloud_command,
            kind="run",
            hint="Starts many random matrices and lets them complete a matrix of which the diagonal is known.",
        ),
    ),
    presets=(
        Preset(
            "A positive pair, and the printed curve",
            "geodesics",
            {"start": [[4.0, 0.0], [0.0, 1.0]], "end": [[2.5, 1.5], [1.5, 2.5]]},
            "The thesis prints a curve between such matrices as a geodesic; it is not one (Theorem 3.4.2).",
        ),
        Preset(
            "A common frame",
            "geodesics",
            {"start": [[4.0, 0.0], [0.0, 1.0]], "end": [[1.0, 0.0], [0.0, 3.0]]},
            "Closed form at every depth.",
        ),
        Preset(
            "A rotation",
            "geodesics",
            {"start": [[1.0, 0.0], [0.0, 1.0]], "end": TURNED},
            "From the identity to a turn by 1.1.",
        ),
        Preset(
            "Behind the wall",
            "geodesics",
            {"start": [[1.0, 0.2], [-0.3, 0.8]], "end": [[0.3, 0.9], [0.8, 0.5]]},
            "Determinants of opposite signs: no path from depth 2 on.",
        ),
        Preset("Entropy at depth 2", "entropy", {"depth": "2"}, "It depends on the sum of the two values alone."),
        Preset("Two values part (p = 0.6)", "entropy", {"power": 0.6}, "The split state is (0.6458, 0.0868)."),
        Preset(
            "Figure 4.5a",
            "relaxation",
            {"modes": "10", "power": 2.0, "beta": 1.0, "spread": 0.3162, "duration": 4.0},
            "Ten singular values become equal, at √4.5.",
        ),
        Preset(
            "One of five splits off",
            "relaxation",
            {"modes": "5", "power": 0.4, "spread": 0.5, "duration": 30.0},
            "Below the critical power four stay together and one parts from them.",
        ),
        Preset(
            "Figure 4.1a",
            "cloud",
            {"size": 2, "deviation": 0.01, "starts": 100, "horizon": 200.0},
            "Small starts end near the hyperbola. The time is twice the thesis', whose energy has no factor ½.",
        ),
        Preset(
            "Figure 4.2, size 5",
            "cloud",
            {"size": 5, "deviation": 0.4472, "starts": 60, "horizon": 10.0},
            "Entries of standard deviation 1/√5 at the start.",
        ),
        Preset(
            "Figure 4.5b, with entropy",
            "cloud",
            {"size": 2, "deviation": 0.01, "starts": 60, "horizon": 100.0, "temperature": 0.05},
            "β = 20.",
        ),
        Preset(
            "A single layer for comparison",
            "cloud",
            {"layers": "1", "deviation": 0.1, "horizon": 20.0},
            "Its free entries do not move: no low rank.",
        ),
    ),
)
