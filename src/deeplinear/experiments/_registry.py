"""All experiments, found by id."""

from deeplinear._about import named_figure
from deeplinear.core import near_name
from deeplinear.experiments._base import Experiment
from deeplinear.experiments.catalog import EXPERIMENTS

_ALL: dict[str, Experiment] = {one.id: one for one in EXPERIMENTS}


def experiments(paper: str | None = None) -> tuple[Experiment, ...]:
    """Every experiment, or those of one paper, in the order of the papers."""
    known = tuple(dict.fromkeys(one.paper for one in _ALL.values()))
    if paper is not None and paper not in known:
        raise ValueError(f"experiments: there is no paper '{paper}'. {near_name(paper, known)}")
    return tuple(one for one in _ALL.values() if paper in (None, one.paper))


def experiment(name: str) -> Experiment:
    """The experiment with an id."""
    if name not in _ALL:
        sources = {one.id: one.source for one in _ALL.values()}
        guess = named_figure(name, sources) or near_name(name, _ALL).partition("Known:")[0]
        raise ValueError(
            f"experiment: there is no experiment '{name}'. {guess}"
            "All are listed by `experiments()`, or dln experiment list."
        )
    return _ALL[name]
