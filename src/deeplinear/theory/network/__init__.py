"""Statements on the landscape and the flow of deep linear networks, seen as one matrix."""

from deeplinear.theory._check import Check
from deeplinear.theory.network._adjacency import CHECKS as ADJACENCY
from deeplinear.theory.network._aligned import CHECKS as ALIGNED
from deeplinear.theory.network._arcs import CHECKS as ARCS
from deeplinear.theory.network._balance import CHECKS as BALANCE
from deeplinear.theory.network._bounds import CHECKS as BOUNDS
from deeplinear.theory.network._classification import CHECKS as CLASSIFICATION, dense_hessian as dense_hessian
from deeplinear.theory.network._critical import CHECKS as CRITICAL
from deeplinear.theory.network._data import CHECKS as DATA
from deeplinear.theory.network._descent import CHECKS as DESCENT
from deeplinear.theory.network._diagonal import CHECKS as DIAGONAL
from deeplinear.theory.network._expansions import CHECKS as EXPANSIONS
from deeplinear.theory.network._fibres import CHECKS as FIBRES
from deeplinear.theory.network._hessian import CHECKS as HESSIAN
from deeplinear.theory.network._laws import CHECKS as LAWS
from deeplinear.theory.network._networks import Network as Network, draw_sigma as draw_sigma
from deeplinear.theory.network._rates import CHECKS as RATES
from deeplinear.theory.network._small import CHECKS as SMALL
from deeplinear.theory.network._spectra import CHECKS as SPECTRA
from deeplinear.theory.network._trajectories import CHECKS as TRAJECTORIES
from deeplinear.theory.network._variants import CHECKS as VARIANTS

CHECKS: tuple[Check, ...] = (
    *DATA,
    *ADJACENCY,
    *SPECTRA,
    *LAWS,
    *BOUNDS,
    *EXPANSIONS,
    *FIBRES,
    *HESSIAN,
    *CRITICAL,
    *CLASSIFICATION,
    *ARCS,
    *RATES,
    *ALIGNED,
    *DIAGONAL,
    *SMALL,
    *BALANCE,
    *TRAJECTORIES,
    *DESCENT,
    *VARIANTS,
)
