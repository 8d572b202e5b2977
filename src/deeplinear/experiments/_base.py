"""An experiment as data: a frozen spec in several sizes, a run, a picture, and what the paper says of it."""

import dataclasses
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, SupportsFloat, TypeVar

from deeplinear.core import RESULTS, RandomKey, Trajectory, near_name, processors, random
from deeplinear.experiments._spec import fields, key_of, plain

if TYPE_CHECKING:
    import xarray
    from matplotlib.figure import Figure

A = TypeVar("A")
R = TypeVar("R")
S = TypeVar("S")


IN_PRESETS = " in the presets"
"""Ends the expectation of a claim that is not judged, as the settings of its run are the user's own."""


@dataclasses.dataclass(frozen=True)
class Claim:
    """What a paper says a figure shows, as a measured number with a verdict.

    Attributes:
        statement: What is said, in one sentence.
        measured: The number.
        expected: What it should be, in words: `at most 0.02`.
        holds: Whether it is; `None` where this size of the experiment cannot tell, or nothing is to be decided.
        note: What a reader should know beside it.
        general: Whether the bound holds at all settings, as that of a theorem does. Other bounds were set for the
            presets, and only runs of presets are judged by them.
    """

    statement: str
    measured: float
    expected: str
    holds: bool | None
    note: str = ""
    general: bool = False

    @staticmethod
    def at_most(
        statement: str, measured: SupportsFloat, bound: float, note: str = "", *, general: bool = False
    ) -> "Claim":
        """A number that should not exceed a bound."""
        number = float(measured)
        return Claim(statement, number, f"at most {bound:.6g}", number <= bound, note, general)

    @staticmethod
    def at_least(
        statement: str, measured: SupportsFloat, bound: float, note: str = "", *, general: bool = False
    ) -> "Claim":
        """A number that should reach a bound."""
        number = float(measured)
        return Claim(statement, number, f"at least {bound:.6g}", number >= bound, note, general)

    @staticmethod
    def between(statement: str, measured: SupportsFloat, low: float, high: float, note: str = "") -> "Claim":
        """A number that should lie in an interval."""
        number = float(measured)
        return Claim(statement, number, f"between {low:.6g} and {high:.6g}", low <= number <= high, note)

    @staticmethod
    def untold(statement: str, expected: str, note: str) -> "Claim":
        """A claim that this size of the experiment cannot decide; the note says why."""
        return Claim(statement, float("nan"), expected, None, note)

    def reading(self) -> "Claim":
        """The measured number without a verdict: its bound was set for other settings."""
        return dataclasses.replace(self, expected=f"{self.expected}{IN_PRESETS}", holds=None)

    @property
    def unjudged(self) -> bool:
        """Whether it is such a reading."""
        return self.expected.endswith(IN_PRESETS)

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "fails", None: "not told"}[self.holds]


@dataclasses.dataclass(frozen=True)
class Context:
    """What a run is given besides its spec.

    Attributes:
        progress: Called now and then with the fraction done and a few words.
        scratch: Folder for checkpoints of this very run, kept until it is complete; `None` if there is none.
        stopped: Set when the run is interrupted, for parts of it that are done in other threads.
    """

    progress: Callable[[float, str], None] = lambda fraction, text: None
    scratch: Path | None = None
    stopped: threading.Event = dataclasses.field(default_factory=threading.Event)

    def each(self, function: Callable[[A], R], parts: Sequence[A], what: Callable[[A], str] = str) -> list[R]:
        """Apply a function to independent parts of a run, several at once: while one computes, another compiles.

        Args:
            function: Of one part; its simulations are given `progress=context.watch`, so that they can be stopped.
            parts: The parts.
            what: Words for a part, shown when it is done.
        """
        workers, done = min(len(parts), processors()), []

        def finish(part: A) -> R:
            result = function(part)
            done.append(part)
            self.progress(len(done) / len(parts), what(part))
            return result

        if workers <= 1:
            return [finish(part) for part in parts]
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(finish, part) for part in parts]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self.stopped.set()
                for future in futures:
                    future.cancel()
                raise

    def watch(self, now: Any) -> None:
        """For the argument `progress` of a simulation: stops it when the run was interrupted in another thread."""
        if self.stopped.is_set():
            raise KeyboardInterrupt

    def complete(self, trajectory: Trajectory, *, keep_failed: bool = False) -> Trajectory:
        """The trajectory, unless it was interrupted or broke down: an experiment never goes on from half a run.

        Args:
            trajectory: What was run.
            keep_failed: Whether members that broke down are kept, for experiments that report them.
        """
        if RESULTS.interrupted.name in trajectory.outcomes():
            raise KeyboardInterrupt
        return trajectory if keep_failed else trajectory.raise_on_failure()


def seed_key(seed: int, *names: object) -> RandomKey:
    """Key of randomness that depends on the seed and on names only, not on the order of work.

    Example:
        >>> bool(jax.random.uniform(seed_key(0, "a")) == jax.random.uniform(seed_key(0, "a")))
        True
    """
    digest = hashlib.sha256("\x00".join(map(str, (seed, *names))).encode()).digest()
    return random.key(int.from_bytes(digest[:4], "little") >> 1)


@dataclasses.dataclass(frozen=True)
class Experiment(Generic[S]):
    """A figure or table that can be made again.

    Attributes:
        id: `paper/figure`, such as `completion/fig2`.
        source: What it is in the paper, such as `Figure 2`.
        shows: What it shows, in one sentence.
        presets: Specs by name; `quick` takes seconds, `paper` has the paper's own numbers (see `paper_settings`).
        run: Computes labelled arrays from a spec.
        plot: Draws them; `draw` calls it.
        claims: What the paper says of them, measured, with the bounds of the presets; `judge` applies them.
        notes: What the paper leaves open and how it was settled; deviations.
        version: Raised when the same spec gives other numbers than before.
    """

    id: str
    source: str
    shows: str
    presets: Mapping[str, S]
    run: Callable[[S, Context], "xarray.Dataset"]
    plot: Callable[["xarray.Dataset", S], "Figure"]
    claims: Callable[["xarray.Dataset", S], Sequence[Claim]]
    notes: str = ""
    version: int = 1

    @property
    def paper(self) -> str:
        """Short name of the paper."""
        return self.id.split("/")[0]

    @property
    def kind(self) -> type[S]:
        """Class of the specs."""
        return type(next(iter(self.presets.values())))

    def draw(self, dataset: "xarray.Dataset", spec: S) -> "Figure":
        """Its figure, in the style of this package."""
        from deeplinear.plots import paper_style

        with paper_style():
            return self.plot(dataset, spec)

    @property
    def has_seed(self) -> bool:
        """Whether there is anything random in it."""
        return "seed" in fields(self.kind)

    def preset(self, name: str) -> S:
        """The spec of a preset."""
        if name not in self.presets:
            raise ValueError(f"{self.id}: there is no preset '{name}'. {near_name(name, self.presets)}")
        return self.presets[name]

    def preset_of(self, spec: S) -> str | None:
        """Name of the preset a spec is equal to."""
        return next((name for name, other in self.presets.items() if other == spec), None)

    def judge(self, dataset: "xarray.Dataset", spec: S) -> tuple[Claim, ...]:
        """The claims of a run: with verdicts for a preset; at other settings only general ones are judged.

        A figure that a paper shows at its own settings says nothing of others, so that the number is only a reading
        there. Claims that cannot be evaluated at such settings are replaced by one that says why.
        """
        if self.preset_of(spec) is not None:
            return tuple(self.claims(dataset, spec))
        try:
            found = self.claims(dataset, spec)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            reason = f"They were written for the presets, and cannot be evaluated here: {error!r}"
            return (Claim.untold("The claims of the paper", "the settings of a preset", reason),)
        return tuple(claim if claim.general or claim.holds is None else claim.reading() for claim in found)

    def key(self, spec: S) -> str:
        """Content address of the run of a spec."""
        return key_of(self.id, self.version, spec)

    def describe(self) -> dict[str, Any]:
        """The experiment as plain values, without its functions."""
        return {
            "id": self.id,
            "source": self.source,
            "shows": self.shows,
            "notes": self.notes,
            "version": self.version,
            "presets": {name: plain(spec) for name, spec in self.presets.items()},
        }
