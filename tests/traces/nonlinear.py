"""Transformations of the public functions of `nonlinear`."""

from traces import Row

TABLE: dict[str, Row] = {}
