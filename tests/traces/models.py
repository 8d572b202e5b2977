"""Transformations of the public functions of `models`."""

from traces import Row

TABLE: dict[str, Row] = {}
