"""The check of annotations at run time that the tests put on the whole package."""

from beartype import BeartypeConf, beartype

# An annotation `float` takes integers too, as it does for type checkers.
annotations = beartype(conf=BeartypeConf(is_pep484_tower=True))
