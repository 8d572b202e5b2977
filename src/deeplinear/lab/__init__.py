"""A page to play with the dynamics: `dln lab`.

A room is a theory, a view of it a question with parameters; the server answers with pictures as data, facts and
remarks (`Answer`), the page draws them. Closed forms answer at once; simulations run in the background, tell how far
they are, and can be cancelled. Needs the extra `lab`.
"""

import importlib.util
from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if any(importlib.util.find_spec(name) is None for name in ("fastapi", "latex2mathml", "plotly", "uvicorn")):
    raise ImportError("deeplinear.lab needs the extra 'lab': pip install 'deeplinear[lab]'.")

if TYPE_CHECKING:
    from deeplinear.lab._app import create_app as create_app
    from deeplinear.lab._settings import Settings as Settings
else:
    __getattr__, __dir__, __all__ = attach(__name__)
