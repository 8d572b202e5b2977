"""Checks of the geodesics: they hold, notice what is planted, and speak of given layers."""

import jax.numpy as jnp
import numpy as np
import pytest

from deeplinear.geometry import balanced_lift
from deeplinear.models import DeepLinear, Problem, SquaredDistance
from deeplinear.theory import verify
from deeplinear.theory._check import STATUS, Check, examine
from deeplinear.theory.geometry import _bures, _geodesics, _geodesics_errata, _lines

CHECKS = (*_bures.CHECKS, *_geodesics.CHECKS, *_lines.CHECKS, *_geodesics_errata.CHECKS)


BY_ID: dict[str, Check] = {check.id: check for check in CHECKS}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("geometry/lemma-3.2.2", marks=pytest.mark.covers("geometry:S14")),
        pytest.param("geometry/theorem-3.2.3", marks=pytest.mark.covers("geometry:S15")),
        pytest.param("geometry/bures-distance", marks=pytest.mark.covers("geometry:S16")),
        pytest.param("geometry/theorem-3.1.2", marks=pytest.mark.covers("geometry:S17")),
        pytest.param("geometry/lemma-3.3.1", marks=pytest.mark.covers("geometry:S18")),
        pytest.param("geometry/lemma-3.3.3", marks=pytest.mark.covers("geometry:S19")),
        pytest.param("geometry/theorem-3.3.2", marks=pytest.mark.covers("geometry:S20")),
        pytest.param("geometry/conserved-quantities", marks=pytest.mark.covers("geometry:S21")),
        "geometry/completeness",
        pytest.param("geometry/lemma-3.4.1", marks=pytest.mark.covers("geometry:S22")),
        pytest.param("geometry/theorem-3.4.2-lines", marks=pytest.mark.covers("geometry:S23")),
        pytest.param("geometry/equation-3.37", marks=pytest.mark.covers("geometry:E3")),
        pytest.param("geometry/equation-3.4", marks=pytest.mark.covers("geometry:E4")),
    ],
)
def test_holds_and_notices(name: str) -> None:
    check = BY_ID[name]
    outcome = verify(check, instances=3)
    wanted = STATUS.erratum if check.printed is not None else STATUS.holds
    assert outcome.status is wanted, outcome.message


def test_given_layers() -> None:
    point = np.array([[1.2, 0.3, 0.1], [-0.2, 0.9, 0.4], [0.1, -0.5, 0.8]])
    params = balanced_lift(point, 3)
    problem = Problem(DeepLinear((3, 3, 3, 3)), SquaredDistance(jnp.eye(3)))
    checks = [_geodesics.CONSERVED, _geodesics.THEOREM_332, *_geodesics_errata.CHECKS]
    statuses = {v.check: v.status for v in examine(problem, params, checks)}
    assert statuses == {
        "geometry/conserved-quantities": STATUS.holds,
        "geometry/theorem-3.3.2": STATUS.holds,
        "geometry/equation-3.37": STATUS.erratum,
        "geometry/equation-3.4": STATUS.erratum,
    }
    flat = tuple(np.vstack([0 * layer[:1], layer[1:]]) for layer in params)
    assert {v.status for v in examine(problem, flat, checks)} == {STATUS.unmet}


def test_every_check_is_tried() -> None:
    assert len(CHECKS) == 13
