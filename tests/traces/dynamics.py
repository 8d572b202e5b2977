"""Transformations of the public functions of `dynamics`."""

from traces import Row

TABLE: dict[str, Row] = {}
