"""Transformations of the public functions of `core`."""

import numpy as np

from deeplinear import core
from traces import Row, both, layers, normal, outside, passes, positive

CHECK = outside("checks an argument")
RUNTIME = outside("looks at the process")
SOLVER = outside("chooses a solver")

CHOICE = outside("chooses between NumPy and JAX; tested in `core/test_xp.py`")

TABLE: dict[str, Row] = {
    **dict.fromkeys(
        (
            "add_at",
            "as_numbers",
            "cond",
            "differentiable",
            "entries",
            "fori_loop",
            "formula",
            "is_program",
            "over",
            "put",
            "quietly",
            "scan",
            "stop_gradient",
            "while_loop",
            "within_run",
        ),
        CHOICE,
    ),
    "are_tied": outside("a truth value"),
    "check_result": CHECK,
    "full_svd": passes(lambda matrix: core.full_svd(matrix)[1], normal((3, 2)), scales=False, kinds=False),
    "polar": passes(core.polar, normal((3, 2)), scales=False, kinds=False),
    "refused_derivative": outside("refuses a derivative"),
    "stabilised_table": SOLVER,
    "tableau": SOLVER,
    "Exponential": SOLVER,
    "Implicit": SOLVER,
    "Params": outside("an annotation"),
    "RungeKutta": SOLVER,
    "Stabilised": SOLVER,
    "Stack": outside("an annotation"),
    "add_scaled": passes(
        core.add_scaled, both(layers(2, 3, 2), normal(()), layers(2, 3, 2)), scales=False, kinds=False
    ),
    "as_array": passes(lambda value: core.as_array(value, float), normal((3, 2)), kinds=False),
    "check_count": CHECK,
    "check_finite": CHECK,
    "check_key": CHECK,
    "check_number": CHECK,
    "check_shape": CHECK,
    "check_size": CHECK,
    "check_x64": CHECK,
    "checked_layer": CHECK,
    "checked_params": CHECK,
    "concrete": CHECK,
    "describe": outside("any object"),
    "dopri8": SOLVER,
    "drop_programs": RUNTIME,
    "effective_rank": passes(core.effective_rank, normal((3, 2))),
    "entry": outside("decorates a function"),
    "flatten": passes(core.flatten, layers(2, 3, 2), kinds=False),
    "forward_only": outside("the result of a function"),
    "frobenius": passes(core.frobenius, normal((3, 2)), kinds=False),
    "inner": passes(core.inner, both(layers(2, 3, 2), layers(2, 3, 2)), scales=False, kinds=False),
    "integrate": passes(
        lambda start: core.integrate(lambda x: -x, start, np.array([0.5, 1.0])).states,
        normal((2,)),
        grad="forward",
        kinds=False,
        scales=False,
        step=1e-3,
    ),
    "is_concrete": CHECK,
    "kvaerno5": SOLVER,
    "make_room": RUNTIME,
    "near_name": outside("texts"),
    "netcdf_bytes": outside("a dataset"),
    "no_gradient": CHECK,
    "norm": passes(core.norm, layers(2, 3, 2), kinds=False),
    "nuclear_norm": passes(core.nuclear_norm, normal((3, 2))),
    "numerical_rank": passes(core.numerical_rank, normal((3, 2)), grad="none"),
    "one_at_a_time": RUNTIME,
    "phi": passes(lambda z: core.phi(2, z), normal((3,)), kinds=False, scales=False),
    "processors": RUNTIME,
    "random_orthogonal": outside("a key and a size"),
    "replacing": outside("a path"),
    "resident_memory": RUNTIME,
    "spectrum": passes(core.spectrum, normal((3, 2)), kinds=False),
    "spectrum_effective_rank": passes(core.spectrum_effective_rank, positive((3,))),
    "spectrum_stable_rank": passes(core.spectrum_stable_rank, positive((3,))),
    "stable_rank": passes(core.stable_rank, normal((3, 2))),
    "svd": passes(lambda matrix: core.svd(matrix)[1], normal((3, 2)), kinds=False),
    "tsit5": SOLVER,
    "unflatten": passes(
        lambda vector: core.unflatten(vector, ((2, 3), (1, 2))),
        normal((8,)),
        kinds=False,
        scales=False,
    ),
}
