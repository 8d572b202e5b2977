"""Gradient flow by whatever knows it best: a closed form where one applies, integration where none does."""

from typing import TYPE_CHECKING

from deeplinear._lazy import attach

if TYPE_CHECKING:
    from deeplinear.following._follow import follow as follow
else:
    __getattr__, __dir__, __all__ = attach(__name__)
