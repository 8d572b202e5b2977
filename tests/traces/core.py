"""Transformations of the public functions of `core`."""

from deeplinear import core
from traces import Row, both, layers, normal, outside, passes

TABLE: dict[str, Row] = {
    "effective_rank": passes(core.effective_rank, normal((3, 2))),
    "nuclear_norm": passes(core.nuclear_norm, normal((3, 2))),
    "stable_rank": passes(core.stable_rank, normal((3, 2))),
    "numerical_rank": passes(core.numerical_rank, normal((3, 2)), grad="none"),
    "inner": passes(core.inner, both(layers(2, 3, 2), layers(2, 3, 2))),
    "norm": passes(core.norm, layers(2, 3, 2)),
    "near_name": outside("texts"),
}
