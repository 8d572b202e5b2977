"""Room 3: the loss landscape, from two weights to deep networks."""

from deeplinear.lab._room import Preset, Room, View
from deeplinear.lab.rooms._landscape_critical import Critical, critical, critical_command, critical_script
from deeplinear.lab.rooms._landscape_run import Deep, deep, deep_command, deep_script
from deeplinear.lab.rooms._landscape_surface import Surface, surface, surface_command, surface_script

ROOM = Room(
    name="landscape",
    title="Loss landscape",
    story="""
The loss of a deep linear network has no bad minima, yet training stalls: it comes to **saddles**, one after the other,
and at each of them some modes of the task are learnt and the rest are not. Drop a start on the surface and see where
it rolls, then start a deep network near the origin: its loss falls in steps, and every plateau is a saddle that can be
named.
""",
    mathematics=r"""
Layers $W_1, \dots, W_L$ follow $\dot W_j = W_{L:j+1}^\top(\Sigma - W_{L:1})W_{j-1:1}^\top$, the flow of
$F = \tfrac12\|\Sigma - W_{L:1}\|^2$. On the way $C_i = W_iW_i^\top - W_{i+1}^\top W_{i+1}$ never changes; for two
numbers this is the hyperbola $w_1^2 - w_2^2 = c$. At a critical point the product keeps some modes of $\Sigma$, a set
$S$, and lacks the others:

$$F = \tfrac12\sum_{i\notin S}\sigma_i^2 .$$

A network whose narrowest layer has $r$ units carries $r$ modes at most. The critical points that have learnt the $r$
strongest ones (all, if there are no more) are the global minima; all others are saddles. A saddle that has passed over
a stronger mode is *strict*: some direction falls with the square of the step. One that has learnt $\{1, \dots, k\}$
with $k < r$ may be flat to second order from three layers on. Near the origin a mode of $L$ equal layers $z$ obeys
$\dot z = z^{L-1}(\sigma - z^L)$, and its plateau lasts about $z_0^{2-L}/((L-2)\sigma)$, or
$\ln(\sqrt\sigma/z_0)/\sigma$ for two layers: strong modes leave first.
""",
    views=(
        View(
            "surface",
            "Surface",
            Surface,
            surface,
            surface_script,
            surface_command,
            hint="Click or drag in the map to drop a start. Then add layers: the plateau around the origin grows.",
        ),
        View(
            "deep",
            "Saddle to saddle",
            Deep,
            deep,
            deep_script,
            deep_command,
            kind="run",
            hint="Start, then make the scale ten times larger, and start again: the steps are gone.",
        ),
        View(
            "critical",
            "Critical points",
            Critical,
            critical,
            critical_script,
            critical_command,
            hint="Take another set of modes, then two layers in place of three: the flat saddles become strict.",
        ),
    ),
    presets=(
        Preset(
            "Past the saddle (one hidden unit)",
            "surface",
            {"first": 1.5, "second": -1.48},
            "It comes close to the saddle at the origin, and turns away.",
        ),
        Preset(
            "On the edge of two basins",
            "surface",
            {"first": 1.5, "second": -1.5},
            "Weights of one size and opposite signs end at the saddle itself.",
        ),
        Preset(
            "Plateau of five layers",
            "surface",
            {"first": 0.2, "second": 0.2, "lower": 3, "upper": 2},
            "The more layers, the longer the wait near the origin.",
        ),
        Preset(
            "Stuck: two equal layers",
            "surface",
            {"first": 0.7, "second": -1.5, "lower": 2, "upper": 1},
            "Two equal layers fall to zero together and stay there.",
        ),
        Preset(
            "Five layers near the origin",
            "deep",
            {
                "inputs": 11,
                "hidden": 6,
                "outputs": 4,
                "depth": 5,
                "strongest": 10.0,
                "weakest": 4.0,
                "scale": 0.05,
                "horizon": 600.0,
            },
            "Widths and modes of the survey's example; its start is another draw.",
        ),
        Preset(
            "The same, far from it",
            "deep",
            {
                "inputs": 11,
                "hidden": 6,
                "outputs": 4,
                "depth": 5,
                "strongest": 10.0,
                "weakest": 4.0,
                "scale": 0.6,
                "horizon": 5.0,
            },
            "All modes are learnt at once: no plateaus.",
        ),
        Preset(
            "Bottleneck of two",
            "deep",
            {"hidden": 2, "scale": 0.05},
            "Two hidden units carry the two strongest modes; the minimum keeps the loss of the others.",
        ),
        Preset(
            "A stronger mode was passed over",
            "critical",
            {"learnt": "2"},
            "Mode 2 is learnt and mode 1 is not: a strict saddle.",
        ),
        Preset(
            "Two layers: all saddles are strict",
            "critical",
            {"learnt": "1", "depth": 2},
            "With a third layer the same set of modes belongs to a flat saddle.",
        ),
        Preset(
            "The flat origin of five layers",
            "critical",
            {"learnt": "none", "depth": 5, "hidden": 3},
            "The loss falls with the fifth power of the step.",
        ),
    ),
)
