"""Transformations of the public functions of `following`."""

from deeplinear import following
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from traces import Row, both, layers, near, normal, refuses

TABLE: dict[str, Row] = {
    "follow": refuses(
        lambda target, params, times: (
            following.follow(Problem(DeepLinear((2, 2, 2)), SquaredDistance(target)), params, times).params
        ),
        both(normal((2, 2)), layers(2, 2, 2), near([0.5])),
    ),
}
