"""The record of a run, whatever made it: a simulation, a closed form, an ensemble."""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from deeplinear._about import near_name
from deeplinear.core._errors import RESULTS, NumericalError
from deeplinear.core._files import replacing
from deeplinear.core._trajectory_file import FORMAT, fields, file_names, netcdf_bytes
from deeplinear.readers import Source, load_content, sealed

if TYPE_CHECKING:
    import xarray

LEADING = ("member", "time", "t")
"""Names of the leading dimensions and of their coordinates."""


@dataclasses.dataclass(frozen=True, eq=False)
class Trajectory:
    """Times, values by probe, final parameters, outcome and statistics of one run or of an ensemble.

    An ensemble has a leading member axis on every array; members that ended early are padded with NaN after `lengths`.

    Attributes:
        times: Recorded times, (time) or (member, time).
        values: For each probe, an array (time, …) or (member, time, …).
        dims: For each probe, the names of the dimensions after time.
        params: Final parameters.
        results: Code of the outcome, a member of `RESULTS`; () or (member).
        fired: Position in `rules` of the stopping rule that fired (meaningful where the outcome is `stopped`).
        rules: The stopping rules in words.
        lengths: Number of recorded times, () or (member).
        stats: Numbers about the run: steps, gradient evaluations, seconds.
        info: What was run, in words and plain values.
        state: Arrays from which the run can be continued.
    """

    times: np.ndarray
    values: Mapping[str, np.ndarray]
    dims: Mapping[str, tuple[str, ...]]
    params: tuple[np.ndarray, ...]
    results: np.ndarray
    fired: np.ndarray
    rules: tuple[str, ...]
    lengths: np.ndarray
    stats: Mapping[str, Any]
    info: Mapping[str, Any]
    state: tuple[np.ndarray, ...] = ()

    @property
    def is_ensemble(self) -> bool:
        """Whether there is a member axis."""
        return self.results.ndim == 1

    @property
    def members(self) -> int:
        """Number of runs."""
        return int(self.results.shape[0]) if self.is_ensemble else 1

    @property
    def result(self) -> RESULTS:
        """Outcome of a single run."""
        if self.is_ensemble:
            raise ValueError("Trajectory.result: this is an ensemble; read `results`, `outcomes` or take one `member`.")
        return RESULTS(int(self.results))

    @property
    def rule(self) -> str | None:
        """The stopping rule that ended a single run, in words."""
        return self.rules[int(self.fired)] if self.result is RESULTS.stopped and self.rules else None

    @property
    def failed(self) -> tuple[int, ...]:
        """Members that broke down."""
        return tuple(i for i, code in enumerate(np.atleast_1d(self.results)) if RESULTS(int(code)).failed)

    @property
    def unfinished(self) -> tuple[int, ...]:
        """Members that neither broke down nor reached what they were asked for."""
        codes = [RESULTS(int(code)) for code in np.atleast_1d(self.results)]
        return tuple(i for i, code in enumerate(codes) if not (code.finished or code.failed))

    def outcomes(self) -> dict[str, tuple[int, ...]]:
        """Members by outcome."""
        codes = np.atleast_1d(self.results)
        return {
            RESULTS(int(code)).name: tuple(int(i) for i in np.flatnonzero(codes == code)) for code in np.unique(codes)
        }

    def __getitem__(self, probe: str) -> np.ndarray:
        """Values of a probe by name."""
        if probe not in self.values:
            raise KeyError(f"Trajectory: there is no probe '{probe}'. {near_name(probe, self.values)}")
        return self.values[probe]

    def final(self, probe: str) -> np.ndarray:
        """Last recorded value of a probe: a number or array, with a leading member axis for an ensemble."""
        values = self[probe]
        if self.is_ensemble:
            return values[np.arange(self.members), self.lengths - 1]
        return np.asarray(values[int(self.lengths) - 1])

    @property
    def final_time(self) -> np.ndarray:
        """Time of the last record, () or (member)."""
        if self.is_ensemble:
            return self.times[np.arange(self.members), self.lengths - 1]
        return np.asarray(self.times[int(self.lengths) - 1])

    def member(self, index: int) -> "Trajectory":
        """One run of an ensemble as a trajectory of its own."""
        if not self.is_ensemble:
            raise ValueError("Trajectory.member: this is a single run.")
        if not -self.members <= index < self.members:
            raise IndexError(f"Trajectory.member: index must lie in 0..{self.members - 1}, but is {index}.")
        stop = int(self.lengths[index])
        return Trajectory(
            times=self.times[index, :stop],
            values={name: value[index, :stop] for name, value in self.values.items()},
            dims=self.dims,
            params=tuple(layer[index] for layer in self.params),
            results=np.asarray(self.results[index]),
            fired=np.asarray(self.fired[index]),
            rules=self.rules,
            lengths=np.asarray(stop),
            stats={k: v[index].item() if np.ndim(v) == 1 else v for k, v in self.stats.items()},
            info=self.info,
            state=tuple(np.asarray(leaf[index]) for leaf in self.state),
        )

    def raise_on_failure(self) -> "Trajectory":
        """This trajectory, or `NumericalError` if a run in it broke down."""
        if self.failed and self.is_ensemble:
            first = self.member(self.failed[0])
            raise NumericalError(first.result, f"Members {list(self.failed)} failed, the first {first._where()}.")
        if self.failed:
            raise NumericalError(self.result, f"The run ended {self._where()}.")
        return self

    def _where(self) -> str:
        """Where a single run ended: its time, and its step size if it has one."""
        step = f" with a step of {self.stats['step_size']:.3g}" if "step_size" in self.stats else ""
        return f"at t = {self.final_time:.9g}{step}"

    def __repr__(self) -> str:
        outcome = ", ".join(f"{len(m)} {name}" for name, m in self.outcomes().items()) if self.is_ensemble else ""
        outcome = outcome or self.result.name
        return f"Trajectory({self.members} run{'s' * (self.members != 1)}, {list(self.values)}, {outcome})"

    def summary(self) -> str:
        """What happened, as a few lines of text."""
        return "\n".join(f"{label:<18} {text}" for label, text in self.rows())

    def rows(self) -> list[tuple[str, str]]:
        """The lines of `summary` as pairs of label and text."""
        rows = [("what", str(self.info.get("problem", "")))] if "problem" in self.info else []
        if "method" in self.info:
            rows.append(("method", str(self.info["method"])))
        if self.is_ensemble:
            for name, who in self.outcomes().items():
                some = ", ".join(map(str, who[:8])) + (", …" if len(who) > 8 else "")
                rows.append(
                    (name, f"{len(who)} of {self.members} members" + (f": {some}" if name != "completed" else ""))
                )
            rows.append(("final time", _spread(self.final_time)))
        else:
            where = self._where() if self.result.failed else f"at t = {self.final_time:.6g}"
            text = f"{self.result.name}" + (f" ({self.rule})" if self.rule else "") + f" {where}"
            rows.append(("outcome", text))
            if not self.result.finished:
                rows.append(("", self.result.message))
        for name, value in self.stats.items():
            rows.append((name.replace("_", " "), _spread(value)))
        for name in self.values:
            rows.append((name, self._line(name)))
        return rows

    def _line(self, name: str) -> str:
        last = self.final(name)
        if self.is_ensemble:
            return f"end {_spread(last)}" if last.ndim == 1 else f"end shape {last.shape[1:]} for each member"
        first = self[name][0]
        if first.ndim == 0:
            return f"{first:.6g} → {last:.6g}"
        if first.size <= 8:
            return f"{_list(first)} → {_list(last)}"
        return f"shape {first.shape}, norm {np.linalg.norm(first):.6g} → {np.linalg.norm(last):.6g}"

    def to_xarray(self) -> "xarray.Dataset":
        """Labelled arrays: dimensions member, time and those of the probes; parameters and statistics included.

        A probe is found under its name. All else has a dot in its name, which no probe has: `params.1`, `run.results`,
        `stats.seconds`, `state.0`; so has a probe that is called like a dimension, `probe.time`.
        """
        import xarray

        lead = ("member", "time") if self.is_ensemble else ("time",)
        variables: dict[str, Any] = {"t": (lead, self.times)}
        taken = {*LEADING, *(dimension for dims in self.dims.values() for dimension in dims)}
        for name, value in self.values.items():
            stored = f"probe.{name}" if name in taken else name
            variables[stored] = (lead + tuple(self.dims[name]), value)
        front = lead[:-1]
        for position, layer in enumerate(self.params, start=1):
            variables[f"params.{position}"] = ((*front, f"width.{position}", f"width.{position - 1}"), layer)
        for position, leaf in enumerate(self.state):
            extra = tuple(f"state.{position}.{axis}" for axis in range(leaf.ndim - len(front)))
            variables[f"state.{position}"] = ((*front, *extra), leaf)
        for name in ("results", "fired", "lengths"):
            variables[f"run.{name}"] = (front, getattr(self, name))
        for name, value in self.stats.items():
            variables[f"stats.{name}"] = (front if np.ndim(value) else (), value)
        dataset = xarray.Dataset(variables)
        coordinates: dict[str, Any] = {"t": dataset["t"]} if self.is_ensemble else {"time": self.times}
        if self.is_ensemble:
            coordinates["member"] = np.arange(self.members)
        dataset = dataset.assign_coords(coordinates)
        dataset.attrs = {
            "deeplinear_format": FORMAT,
            "rules": json.dumps(self.rules),
            "info": json.dumps(dict(self.info)),
        }
        dataset.attrs["dims"] = json.dumps({name: list(dims) for name, dims in self.dims.items()})
        return dataset

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write `path.nc` (all arrays, NetCDF) and `path.json` (the summary for people and programs); atomic.

        A digest stands behind the NetCDF data, where programs that read NetCDF do not look.

        Args:
            path: Path without an ending, or with one of these two; any other dot belongs to the name.

        Returns:
            Path of the NetCDF file.
        """
        data, text = file_names(path)
        with replacing(text) as summary, replacing(data) as arrays:
            arrays.write_bytes(sealed(netcdf_bytes(self.to_xarray())))
            summary.write_text(json.dumps(self.to_json(), indent=2) + "\n")
        return data

    def to_json(self) -> dict[str, Any]:
        """Outcome, statistics and final values of the small probes as plain values.

        `finished` says whether every run reached what it was asked for: its end, a stopping rule or rest.
        """
        finals = {name: _plain(self.final(name)) for name in self.values if self[name][0].size <= 64 * self.members}
        outcome: Any = {k: list(v) for k, v in self.outcomes().items()} if self.is_ensemble else self.result.name
        return {
            "format": FORMAT,
            "outcome": outcome,
            "finished": not (self.failed or self.unfinished),
            "rule": None if self.is_ensemble else self.rule,
            "final_time": _plain(self.final_time),
            "final": finals,
            "stats": {name: _plain(value) for name, value in self.stats.items()},
            "info": dict(self.info),
        }

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Trajectory":
        """Read what `save` wrote, from the same path.

        Files of `save` hold a digest of their bytes, which is compared first. A file that another program has written
        or changed has none, and is read in a process of its own, within limits of time and memory.

        Raises:
            FileError: The file is damaged, or is no trajectory.
        """
        file, _ = file_names(path)
        source = Source.of(file, "Trajectory.load")
        return Trajectory(**fields(source, load_content(source)))


def _plain(value: Any) -> Any:
    """NumPy values as JSON ones; non-finite numbers become null."""
    array = np.asarray(value)
    if array.dtype.kind == "f":
        boxed = array.astype(object)
        boxed[~np.isfinite(array)] = None
        return boxed.tolist()
    return array.tolist()


def _list(array: np.ndarray) -> str:
    return "[" + ", ".join(f"{x:.4g}" for x in np.ravel(array)) + "]"


def _spread(value: Any) -> str:
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{array:,d}" if array.dtype.kind in "iu" else f"{float(array):.4g}"
    finite = array[np.isfinite(array)]
    if finite.size == 0:
        return "none finite"
    low, middle, high = np.percentile(finite, [0, 50, 100])
    return f"median {middle:.4g} (from {low:.4g} to {high:.4g})"
