"""Diffrax's methods as `integrate` uses them. Loads diffrax, so that only traced equations import this file."""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx

SOLVERS = {"tsit5": diffrax.Tsit5, "dopri8": diffrax.Dopri8, "kvaerno5": diffrax.Kvaerno5}
"""By the names that `integrate` takes."""


class Settled(diffrax.AbstractAdaptiveSolver):
    """A method whose state is corrected after each step; outputs within a step are those of the plain method."""

    solver: diffrax.AbstractSolver
    after: Callable[[Any], Any] = eqx.field(static=True)

    @property
    def term_structure(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.term_structure

    @property
    def interpolation_cls(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self.solver.interpolation_cls

    @property
    def term_compatible_contr_kwargs(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.solver.term_compatible_contr_kwargs

    def order(self, terms: Any) -> int | None:
        return self.solver.order(terms)

    def strong_order(self, terms: Any) -> Any:
        return self.solver.strong_order(terms)

    def error_order(self, terms: Any) -> Any:
        return self.solver.error_order(terms)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> Any:
        return self.solver.init(terms, t0, t1, y0, args)

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any) -> Any:
        new, *rest = self.solver.step(terms, t0, t1, y0, args, solver_state, made_jump)
        return self.after(new), *rest

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return self.solver.func(terms, t0, y0, args)
