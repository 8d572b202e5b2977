"""All experiments, found by id. The files of a paper are imported when one of its experiments is first asked for."""

import functools
import importlib

from deeplinear._about import named_figure
from deeplinear.core import near_name
from deeplinear.experiments._base import Experiment

PAPERS = ("tour", "completion", "exact", "network", "geometry", "rnn")
"""Short names of the papers, which are also those of their modules in `catalog`, in the order of lists."""

_ALL: dict[str, Experiment] = {}
"""Experiments of the papers that are loaded, by id."""


@functools.cache
def _load(paper: str) -> None:
    """Import the experiments of a paper."""
    found: tuple[Experiment, ...] = importlib.import_module(f"deeplinear.experiments.catalog.{paper}").EXPERIMENTS
    for one in found:
        _ALL.setdefault(one.id, one)


def experiments(paper: str | None = None) -> tuple[Experiment, ...]:
    """Every experiment, or those of one paper, in the order of the papers."""
    if paper is not None and paper not in PAPERS:
        raise ValueError(f"experiments: there is no paper '{paper}'. {near_name(paper, PAPERS)}")
    wanted = PAPERS if paper is None else (paper,)
    for one in wanted:
        _load(one)
    return tuple(experiment for one in wanted for experiment in _ALL.values() if experiment.paper == one)


def experiment(name: str) -> Experiment:
    """The experiment with an id."""
    paper = name.partition("/")[0]
    if paper in PAPERS:
        _load(paper)
    if name not in _ALL:
        sources = {one.id: one.source for one in experiments()}
        guess = named_figure(name, sources) or near_name(name, sources).partition("Known:")[0]
        raise ValueError(
            f"experiment: there is no experiment '{name}'. {guess}"
            "All are listed by `experiments()`, or dln experiment list."
        )
    return _ALL[name]
