"""Room 5: linear recurrent networks, and how far they carry beyond the length they were trained on."""

from deeplinear.lab._room import Preset, Room, View
from deeplinear.lab.rooms._recurrent_closed import (
    Extrapolation,
    extrapolation,
    extrapolation_command,
    extrapolation_script,
)
from deeplinear.lab.rooms._recurrent_run import Training, training, training_script
from deeplinear.lab.rooms._recurrent_spectrum import Spectrum, spectrum, spectrum_command, spectrum_script

ROOM = Room(
    name="recurrent",
    title="Recurrent networks",
    story="""
A recurrent network is trained on short sequences and used on long ones. With more states than numbers to fit, many
networks have no loss and go on differently. Yet a **balanced** one that has learnt a teacher with a memory of $n$
states has no choice once it has seen $2n + 1$ numbers: it goes on as the teacher does, forever. Move the training
length across that number and watch what is left open close.
""",
    mathematics=r"""
The state follows $s_{t+1} = As_t + Bx_t$, the output is $y_t = Cs_t$, and all that matters is the impulse response
$h_j = CA^jB$. Training on sequences of length $k$ under white inputs is the loss
$\tfrac12\sum_{j<k}(h_j - w_j)^2$ to the teacher's $w_j$. If $A = A^\top$ and $B = C^\top$
(*balanced*, which gradient flow keeps), the response is a sequence of moments of a positive measure,

$$h_j = \int x^j\,d\mu, \qquad \mu = \sum_i b_i^2\,\delta_{a_i},$$

with weights at the eigenvalues of $A$. A measure of $n$ atoms is the only positive one with its first $2n + 1$ moments.
And nearly having them is nearly being it: $|h_j - w_j| \le K_j\|r\|$ for all $j$, with numbers $K_j$ that depend on the
teacher's eigenvalues and $r$ the residuals of the known entries. That is the certificate.
""",
    views=(
        View(
            "extrapolation",
            "Extrapolation",
            Extrapolation,
            extrapolation,
            extrapolation_script,
            extrapolation_command,
            hint="Move the training length k up to 2n + 1. Then take the student that was built to fail.",
        ),
        View(
            "training",
            "Training",
            Training,
            training,
            training_script,
            None,
            kind="run",
            hint="Start it; then change the training length, or the student to any matrices with a small start.",
        ),
        View(
            "spectrum",
            "Spectrum",
            Spectrum,
            spectrum,
            spectrum_script,
            spectrum_command,
            hint="Take k = 5 and move the steps of the fit up: the student's eigenvalues gather at the teacher's.",
        ),
    ),
    presets=(
        Preset("One number too few", "extrapolation", {"length": 4}, "Two states, four numbers: the fifth is open."),
        Preset("Enough: 2n + 1", "extrapolation", {"length": 5}, "Five numbers: a balanced student has no choice."),
        Preset(
            "No loss, and still wrong",
            "extrapolation",
            {"length": 5, "student": "built"},
            "A student that is not balanced has the five numbers, and goes elsewhere.",
        ),
        Preset(
            "A delay line, least order",
            "extrapolation",
            {"teacher": "delay", "order": 5, "length": 10, "student": "least"},
            "A teacher that is not balanced; the network of least order that fits is the teacher.",
        ),
        Preset(
            "The paper's teacher",
            "extrapolation",
            {"order": 5, "low": 0.6, "high": 1.05, "length": 11, "states": 30},
            "Five states with an eigenvalue above one, and 2n + 1 = 11 numbers.",
        ),
        Preset(
            "The paper's student, by Adam",
            "training",
            {
                "order": 5,
                "low": 0.6,
                "high": 1.05,
                "length": 12,
                "states": 40,
                "method": "adam",
                "horizon": 15000,
                "rate": 0.001,
            },
            "Forty states for a teacher of five, as in the experiments.",
        ),
        Preset(
            "From near zero, any matrices",
            "training",
            {"order": 2, "length": 5, "form": "general", "states": 8, "scale": 0.001, "horizon": 200},
            "A small start is nearly balanced, and stays so.",
        ),
        Preset(
            "Balanced student, a few steps",
            "spectrum",
            {"length": 5, "steps": 5.0},
            "Its eigenvalues are on their way to the teacher's two.",
        ),
    ),
)
