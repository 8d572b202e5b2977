"""Transformations of the public functions of `probes`."""

from traces import Row

TABLE: dict[str, Row] = {}
