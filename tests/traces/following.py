"""Transformations of the public functions of `following`."""

from traces import Row

TABLE: dict[str, Row] = {}
