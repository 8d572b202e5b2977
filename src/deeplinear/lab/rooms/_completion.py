"""Room 2: matrix completion, coupled and decoupled."""

import numpy as np

from deeplinear.lab._room import Preset, Room, View
from deeplinear.lab.rooms._completion_closed import (
    Blocks,
    answer_limit,
    answer_mask,
    script_limit,
    script_mask,
)
from deeplinear.lab.rooms._completion_flow import FlowParams, answer_flow, command_flow, script_flow
from deeplinear.lab.rooms._completion_setting import Task
from deeplinear.lab.rooms._completion_warm import WarmParams, answer_warm, command_warm, script_warm

PAIR = [[True, False], [False, True]]
"""The diagonal of a 2 × 2 matrix."""

CORNER = {"mask": PAIR, "more": [[False, True], [False, False]], "depth": 2, "scale": 1e-6, "below": 1e-12}
"""The diagonal first, then the entry above it; layers of size 1e-3."""

_PLACES = (5 * np.indices((8, 8))[0] + 3 * np.indices((8, 8))[1]) % 8
SOME = (_PLACES < 3).tolist()
LATER = ((_PLACES == 3) | (_PLACES == 4)).tolist()
"""Three, then two more entries of every row and column of an 8 × 8 matrix."""

ROOM = Room(
    name="completion",
    title="Matrix completion",
    story="""
Some entries of a matrix are known; a deep linear network, trained on them alone, fills in the rest. From a small start
it often finds a matrix of **low rank** although nobody asked for it. Whether it does depends on which entries are seen
and on the depth. If the seen entries never pull at each other, each is fitted on its own and the rank stays high: the
dynamics is **decoupled**. Paint a mask and change the depth from 2 to 3: a third layer couples what two layers cannot.
What was learned decoupled also sticks: see *Warm or cold*.
""",
    mathematics=r"""
The product $W = W_L\cdots W_1$ follows the gradient flow of
$\tfrac12\sum_{(i,j)\in\Omega}(w_{ij} - w^\star_{ij})^2$. The errors of the seen entries obey $\dot r = -Kr$ with

$$K_{(ij),(pq)} = \sum_{l=1}^{L}\left(W_{L:l+1}W_{L:l+1}^\top\right)_{ip}\left(W_{l-1:1}^\top W_{l-1:1}\right)_{jq}.$$

With two layers $K$ vanishes between entries that share neither row nor column, whatever the weights: parts of the graph
of rows and columns never meet. With three or more it vanishes for special starts only, such as $\alpha I$. If $n$
diagonal blocks of size $s$ are seen, all entries $w^\star$, and every layer starts as $\alpha$ on the diagonal and
$\alpha/m$ off it, the limit has one singular value $\sigma_1$ and $n-1$ equal $\sigma_2$, with $d = ns$:

$$\sigma_1 + (n-1)\sigma_2 = w^\star d,$$

$$\sigma_1^{2/L-1} - \sigma_2^{2/L-1} = \left(\frac{\alpha}{m}\right)^{2-L}\left[(m+d-1)^{2-L} - (m-1)^{2-L}\right].$$

For $L = 2$ instead $\sigma_2/\sigma_1 = ((m-1)/(m+d-1))^2$: the scale $\alpha$ does not help. For $L \ge 3$,
$\sigma_2 \to 0$ as $\alpha \to 0$, once $m$ is below $m^\star = (L-2)\,d\,\alpha^{2-L}(sw^\star)^{(L-2)/L}$.
""",
    views=(
        View("mask", "Mask", Task, answer_mask, script_mask, None, hint="Paint; change the depth."),
        View(
            "limit",
            "Limit on blocks",
            Blocks,
            answer_limit,
            script_limit,
            None,
            hint="Click or drag in the map: scale and ratio follow, also in the other views.",
        ),
        View(
            "flow",
            "Flow",
            FlowParams,
            answer_flow,
            script_flow,
            command_flow,
            kind="run",
            hint="Integrates the flow for the painted mask. Deep networks wait long on a plateau.",
        ),
        View(
            "warm",
            "Warm or cold",
            WarmParams,
            answer_warm,
            script_warm,
            command_warm,
            kind="run",
            hint="Learns the first mask, then sees more: going on (warm) against starting again (cold).",
        ),
    ),
    presets=(
        Preset(
            "Diagonal, two layers", "mask", {"mask": PAIR, "depth": 2, "scale": 1e-6}, "Decoupled: nothing joins them."
        ),
        Preset(
            "Diagonal, three layers", "mask", {"mask": PAIR, "depth": 3, "scale": 1e-6}, "Coupled by the middle layer."
        ),
        Preset(
            "Diagonal start",
            "mask",
            {"mask": PAIR, "depth": 3, "scale": 1e-6, "start": "diagonal"},
            "Decoupled again, at any depth.",
        ),
        Preset(
            "One column",
            "mask",
            {"mask": [[True, False], [True, False]], "depth": 2},
            "Connected, so two layers couple it.",
        ),
        Preset(
            "Blocks",
            "mask",
            {"mask": np.kron(np.eye(2), np.ones((2, 2))).astype(bool).tolist(), "depth": 3},
            "Two blocks of two rows and columns.",
        ),
        Preset("Figure 2", "limit", {"blocks": 10, "scale": 1e-2, "m": 10.0}, "Ten diagonal entries."),
        Preset("Figure 5", "limit", {"blocks": 5, "size": 2, "scale": 1e-2, "m": 10.0}, "Five blocks of two."),
        Preset(
            "Figure 10", "limit", {"blocks": 3, "scale": 1e-3, "m": 30.0}, "Three diagonal entries, rank against m."
        ),
        Preset(
            "Figure 1, two layers",
            "flow",
            {"mask": PAIR, "depth": 2, "start": "gaussian", "scale": 1e-5, "target": "random", "seed": 10},
            "One run of those whose mean the figure shows.",
        ),
        Preset(
            "Figure 1, three layers",
            "flow",
            {"mask": PAIR, "depth": 3, "start": "gaussian", "scale": 1e-5, "target": "random", "seed": 10},
            "The same entries, another depth.",
        ),
        Preset("Figure 31", "warm", {**CORNER, "ratio": 0.5}, "Ones on the diagonal, then 0.5 above it."),
        Preset(
            "Figure 31, three layers",
            "warm",
            {**CORNER, "ratio": 0.5, "depth": 3},
            "Deeper networks keep their plasticity.",
        ),
        Preset(
            "Theorem: diagonal start", "warm", {**CORNER, "ratio": 0.1, "start": "diagonal"}, "With the proved bounds."
        ),
        Preset("Figure 32", "warm", {**CORNER, "ratio": 10.0}, "Ones on the diagonal, then 10 above it."),
        Preset(
            "Figure 33", "warm", {**CORNER, "ratio": 0.5, "growth": 2.0}, "1 and 2 on the diagonal, then 0.5 above it."
        ),
        Preset(
            "Figure 3, small",
            "warm",
            {
                "mask": SOME,
                "more": LATER,
                "depth": 2,
                "start": "gaussian",
                "target": "random",
                "rank": 1,
                "below": 1e-4,
            },
            "Random entries of an 8 × 8 matrix of rank one.",
        ),
    ),
)
