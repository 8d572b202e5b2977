"""Transformations of the public functions of `recurrent`."""

from traces import Row

TABLE: dict[str, Row] = {}
