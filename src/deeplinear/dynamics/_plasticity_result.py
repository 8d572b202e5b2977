"""What warm and cold starts of matrix completion are compared by."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear.core import RESULTS, Array, Trajectory, effective_rank, stable_rank

if TYPE_CHECKING:
    import xarray

PHASES = ("before", "warm", "cold")
"""Learning the first entries; going on from there with more of them; learning these from a fresh start."""


@dataclasses.dataclass(frozen=True, eq=False)
class Plasticity:
    r"""What `plasticity` found: three trajectories, and the numbers that compare where they ended.

    Every derived number is a mapping from phase (`before`, `warm`, `cold`) to one number, or to one for each member of
    an ensemble. A phase that did not begin has NaN there and outcome `running`; `reached` says which phases ended as
    they were asked to. Ranks depend on the loss at which they are read, visibly so for deep networks: `loss` goes with
    them.

    Attributes:
        before: Training on the entries seen first.
        warm: Training on all entries from where `before` ended.
        cold: Training on all entries from an initialisation.
        products: Product at the end of each phase, (out, in) or (member, out, in).
        target: Ground truth, of the same shape.
        masks: Entries seen in each phase, of the same shape.
        rule: When a phase ends, in words.
    """

    before: Trajectory
    warm: Trajectory
    cold: Trajectory
    products: Mapping[str, np.ndarray]
    target: np.ndarray
    masks: Mapping[str, np.ndarray]
    rule: str

    @property
    def phases(self) -> dict[str, Trajectory]:
        """The three trajectories by name."""
        return {"before": self.before, "warm": self.warm, "cold": self.cold}

    @property
    def is_ensemble(self) -> bool:
        """Whether there is a member axis."""
        return self.before.is_ensemble

    @property
    def outcomes(self) -> dict[str, np.ndarray]:
        """Code of how each phase ended, a member of `RESULTS`; `running` where it did not begin."""
        return {name: run.results for name, run in self.phases.items()}

    @property
    def reached(self) -> dict[str, np.ndarray]:
        """Whether each phase ended by its rule: at the threshold, or at the horizon."""
        return {name: np.asarray(reached(run)) for name, run in self.phases.items()}

    @property
    def loaded(self) -> dict[str, tuple[int, ...]]:
        """Members of each phase that came from a checkpoint and were not trained now."""
        return {name: tuple(run.info["loaded"]) for name, run in self.phases.items()}

    @property
    def loss(self) -> dict[str, np.ndarray]:
        """Loss on the entries seen in the phase."""
        return {n: np.asarray(0.5 * np.sum(self.masks[n] * self._misses(n) ** 2, axis=(-2, -1))) for n in PHASES}

    @property
    def effective_rank(self) -> dict[str, np.ndarray]:
        """Effective rank of the product; NaN for a zero product."""
        return {name: _soft(effective_rank, self.products[name]) for name in PHASES}

    @property
    def stable_rank(self) -> dict[str, np.ndarray]:
        """Stable rank of the product; NaN for a zero product."""
        return {name: _soft(stable_rank, self.products[name]) for name in PHASES}

    @property
    def reconstruction_error(self) -> dict[str, np.ndarray]:
        r"""Relative distance $\|W - W^\star\|_F / \|W^\star\|_F$ over all entries."""
        size = np.linalg.norm(self.target, axis=(-2, -1))
        return {name: np.asarray(np.linalg.norm(self._misses(name), axis=(-2, -1)) / size) for name in PHASES}

    @property
    def held_out_error(self) -> dict[str, np.ndarray]:
        """Root mean square error over the entries not seen in the phase; NaN where all are seen."""
        errors = {}
        for name in PHASES:
            hidden = ~self.masks[name]
            count = np.sum(hidden, axis=(-2, -1))
            total = np.sum(hidden * self._misses(name) ** 2, axis=(-2, -1))
            errors[name] = np.where(count > 0, np.sqrt(total / np.maximum(count, 1)), np.nan)
        return errors

    @property
    def steps(self) -> dict[str, np.ndarray]:
        """Accepted steps."""
        return {name: np.asarray(run.stats["accepted_steps"]) for name, run in self.phases.items()}

    @property
    def gradients(self) -> dict[str, np.ndarray]:
        """Gradient evaluations: those of a flow, one for each step of an update; NaN where a method does not count."""
        return {name: _gradients(run) for name, run in self.phases.items()}

    @property
    def seconds(self) -> dict[str, np.ndarray]:
        """Wall-clock time, compilation included, of the training; in an ensemble a member's share, by steps."""
        return {name: np.asarray(run.stats["seconds"]) for name, run in self.phases.items()}

    @property
    def times(self) -> dict[str, np.ndarray]:
        """Time at which each phase ended: of the flow, or steps of an update."""
        return {name: run.final_time for name, run in self.phases.items()}

    @property
    def gap(self) -> np.ndarray:
        """Effective rank after the warm start minus that after the cold one: above zero where plasticity was lost."""
        ranks = self.effective_rank
        return np.asarray(ranks["warm"] - ranks["cold"])

    def _misses(self, name: str) -> np.ndarray:
        return self.products[name] - self.target

    def __repr__(self) -> str:
        count = f"{self.before.members} members" if self.is_ensemble else "1 run"
        return f"Plasticity({count}, {self.rule}, gap {_text(self.gap)})"

    def summary(self) -> str:
        """A table of the three phases as text: medians and ranges for an ensemble."""
        names = ("loss", "effective_rank", "stable_rank", "reconstruction_error", "held_out_error")
        names += ("times", "steps", "gradients", "seconds")
        rows = [("", *PHASES), ("outcome", *(self._outcome(name) for name in PHASES))]
        for name in names:
            values = getattr(self, name)
            rows.append((name.replace("_", " "), *(_text(values[phase]) for phase in PHASES)))
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        info = self.before.info
        head = [f"{info['problem']}", f"{info['method']}, {self.rule}"]
        return "\n".join([*head, *lines, f"gap of effective rank, warm - cold: {_text(self.gap)}"])

    def _outcome(self, name: str) -> str:
        codes = np.atleast_1d(self.phases[name].results)
        words = ["not begun" if code == RESULTS.running else RESULTS(int(code)).name for code in codes]
        if not self.is_ensemble:
            return words[0]
        return ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))

    def to_xarray(self) -> "xarray.Dataset":
        """The numbers as labelled arrays with the dimension `phase`, and `member` for an ensemble."""
        import xarray

        names = ("loss", "effective_rank", "stable_rank", "reconstruction_error", "held_out_error", "times", "steps")
        front = ("phase", "member") if self.is_ensemble else ("phase",)
        numbers = {name: getattr(self, name) for name in (*names, "gradients", "seconds", "reached", "outcomes")}
        variables: dict[str, Any] = {n: (front, np.stack([v[p] for p in PHASES])) for n, v in numbers.items()}
        variables["outcome"] = (front, np.array([RESULTS(int(c)).name for c in variables["outcomes"][1].ravel()]))
        variables["outcome"] = (front, variables["outcome"][1].reshape(variables["outcomes"][1].shape))
        del variables["outcomes"]
        matrix = (*front, "row", "column")
        variables["product"] = (matrix, np.stack([self.products[name] for name in PHASES]))
        variables["mask"] = (matrix, np.stack([self.masks[name] for name in PHASES]))
        variables["target"] = (matrix[1:], self.target)
        variables["gap"] = (front[1:], self.gap)
        coordinates: dict[str, Any] = {"phase": list(PHASES)}
        if self.is_ensemble:
            coordinates["member"] = np.arange(self.before.members)
        info = self.before.info
        attributes = {"rule": self.rule, **{name: info[name] for name in ("problem", "method", "version")}}
        return xarray.Dataset(variables, coordinates, attributes)


def _soft(rank: Callable[[np.ndarray], Array], products: np.ndarray) -> np.ndarray:
    """A soft rank where there is one: of finite products that are not zero."""
    good = np.all(np.isfinite(products), axis=(-2, -1)) & np.any(products != 0, axis=(-2, -1))
    safe = np.where(good[..., None, None], products, 1.0)
    return np.where(good, np.asarray(rank(safe)), np.nan)


def reached(run: Trajectory) -> Any:
    """Whether a phase, or each member of it, ended by its rule. A saddle is a rest, but no small loss."""
    if run.rules:
        return run.results == RESULTS.stopped
    return (run.results == RESULTS.completed) | (run.results == RESULTS.steady)


def _gradients(run: Trajectory) -> np.ndarray:
    counted = run.stats.get("gradient_evaluations")
    if counted is None and run.info["clock"] == "steps":
        counted = run.stats["accepted_steps"]
    return np.full(run.results.shape, np.nan) if counted is None else np.asarray(counted)


def _text(values: np.ndarray) -> str:
    finite = values[np.isfinite(values)] if values.ndim else values
    if values.ndim == 0 or finite.size == 0:
        return f"{float(values):.5g}" if values.ndim == 0 else "none"
    return f"{np.median(finite):.4g} ({finite.min():.4g} to {finite.max():.4g})"
