"""How docstrings are read for the reference: their section `Example` is one that the parser calls `Examples`."""

import re
from typing import Any

import griffe


class Examples(griffe.Extension):
    """Names the section of examples as the parser knows it."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
