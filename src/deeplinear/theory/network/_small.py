"""Networks that are solved by hand: what is said of them in the order of the paper, then where it errs."""

from deeplinear.theory._check import Check
from deeplinear.theory.network._chain import ERRATUM_CHAIN, SECTION_6_2_2
from deeplinear.theory.network._scalar import EQUATION_61, ERRATUM_EQUILIBRIA, SEQUENTIAL
from deeplinear.theory.network._single_channel import EQUATION_64, EQUATION_66, ERRATUM_64, ERRATUM_TWO_NODES

CHECKS: tuple[Check, ...] = (
    EQUATION_61,
    SEQUENTIAL,
    EQUATION_64,
    EQUATION_66,
    SECTION_6_2_2,
    ERRATUM_64,
    ERRATUM_EQUILIBRIA,
    ERRATUM_TWO_NODES,
    ERRATUM_CHAIN,
)
