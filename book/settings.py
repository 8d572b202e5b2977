"""Writes the page that sets what the papers print of their figures' settings beside the presets named `paper`."""

from typing import Any

from book.results import _anchor, _prose, _title
from deeplinear.experiments import Experiment, Setting, experiments, paper_settings, plain

HEAD = """# Settings of the figures

The preset `paper` of an experiment has the settings that its paper prints. This page lists them all, with their places,
and says where ours differ and why. A test compares the list with the presets. What a paper does not print we chose;
`dln experiment show ID` prints the values. Other presets have other sizes: `quick` takes seconds, `small` and `short`
are for figures whose full size needs a GPU or much time, and `large` goes beyond the paper."""

COLUMNS = "| Figure | Setting | Paper | Where | Preset `paper` |\n| --- | --- | --- | --- | --- |"


def settings_page() -> str:
    """Return the page, in Markdown."""
    groups: dict[str, list[Experiment]] = {}
    for one in experiments():
        groups.setdefault(one.paper, []).append(one)
    parts = [HEAD, _summary()]
    for paper, group in groups.items():
        figures = [one for one in group if not paper_settings(one.id).none]
        others = [one for one in group if paper_settings(one.id).none]
        parts.append(f"## {_title(paper)} {{ #{paper} }}")
        if figures:
            parts.append("\n".join([COLUMNS, *(row for one in figures for row in _rows(one))]))
        if others:
            lines = [f"- {link(one)}: {_prose(paper_settings(one.id).none)}" for one in others]
            parts.append("No figures of the paper, so that all settings are ours:\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _summary() -> str:
    tables = [paper_settings(one.id) for one in experiments()]
    settings = [setting for table in tables for setting in table.settings]
    other = sum(bool(setting.reason) for setting in settings)
    figures = sum(not table.none for table in tables)
    return (
        f"Of {len(tables)} experiments {figures} belong to a figure or an example of a paper. {len(settings)} of their "
        f"settings are printed; in {other} of these ours differ."
    )


def link(one: Experiment) -> str:
    """Return a link to an experiment in the gallery."""
    return f"[{_cell(one.source)}](gallery.md#{_anchor(one.id)}) `{one.id}`"


def _rows(one: Experiment) -> list[str]:
    table, ours = paper_settings(one.id), plain(one.presets["paper"])
    rows = [_row(setting, ours) for setting in table.settings]
    if table.chosen:
        rows.append(f"{', '.join(f'`{name}`' for name in table.chosen)} | not printed | | chosen by us")
    return [f"| {link(one) if place == 0 else ''} | {row} |" for place, row in enumerate(rows)]


def _row(setting: Setting, ours: dict[str, Any]) -> str:
    field = setting.name in ours
    printed = f"contains {written(setting.contains)}" if setting.contains else written(setting.paper)
    here = "the same" if not setting.reason and not setting.contains else written(ours.get(setting.name, setting.ours))
    shown = f"**{_cell(here)}**: {_cell(setting.reason)}" if setting.reason else _cell(here)
    name = f"`{setting.name}`" if field else _cell(setting.name)
    return f"{name} | {_cell(printed)} | {_cell(setting.where)} | {shown}"


def written(value: Any) -> str:
    """Return a value as a reader writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(f"({written(one)})" if isinstance(one, list | tuple) else written(one) for one in value)
    return str(value)


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")
