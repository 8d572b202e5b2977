"""Transformations of the public functions of `geometry`."""

from traces import Row

TABLE: dict[str, Row] = {}
