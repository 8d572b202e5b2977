"""What the papers print of the settings of their figures, as data: the value, its place, ours and why it differs."""

import dataclasses
import functools
import importlib.resources
import tomllib
from typing import Any

from deeplinear.core import near_name

FOLDER = "settings"
"""Folder of the tables, one for each paper."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """A printed setting beside ours.

    Attributes:
        name: Field of the spec, or a few words where no field has it.
        where: Place in the paper.
        paper: Printed value; `None` where only a part of a list is printed.
        contains: Part of a list that is printed.
        ours: Ours in words, where no field has it.
        reason: Why ours is another; empty where it is the same.
    """

    name: str
    where: str
    paper: Any = None
    contains: tuple[Any, ...] = ()
    ours: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class FigureSettings:
    """What is printed of the settings of one experiment's figure.

    Attributes:
        experiment: Id of the experiment.
        settings: The printed settings.
        chosen: Fields of the spec of which nothing is printed.
        none: Why the experiment is no figure of the paper; empty where it is one.
    """

    experiment: str
    settings: tuple[Setting, ...] = ()
    chosen: tuple[str, ...] = ()
    none: str = ""


def paper_settings(name: str) -> FigureSettings:
    """Return what the paper prints of the settings of an experiment, beside those of its preset `paper`.

    Example:
        >>> [setting.paper for setting in paper_settings("completion/fig11").settings if setting.name == "draws"]
        [10]
    """
    tables = _tables()
    if name not in tables:
        raise ValueError(f"paper_settings: there is no experiment '{name}'. {near_name(name, tables)}")
    return tables[name]


@functools.cache
def _tables() -> dict[str, FigureSettings]:
    folder = importlib.resources.files("deeplinear.experiments") / FOLDER
    files = [file for file in folder.iterdir() if file.name.endswith(".toml")]
    entries = [entry for file in files for entry in tomllib.loads(file.read_text(encoding="utf-8"))["figure"]]
    found = [
        FigureSettings(
            experiment=entry["experiment"],
            settings=tuple(_setting(one) for one in entry.get("settings", ())),
            chosen=tuple(entry.get("chosen", ())),
            none=entry.get("none", ""),
        )
        for entry in entries
    ]
    return {one.experiment: one for one in found}


def _setting(entry: dict[str, Any]) -> Setting:
    return Setting(**{**entry, "contains": tuple(entry.get("contains", ()))})
