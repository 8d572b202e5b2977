"""Transformations of the public functions of `landscape`."""

from traces import Row

TABLE: dict[str, Row] = {}
