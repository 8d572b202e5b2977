"""Transformations of the public functions of `exact`."""

from traces import Row

TABLE: dict[str, Row] = {}
