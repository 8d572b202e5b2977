"""Presets named `paper` against what the papers print, a table read by hand; and that presets can be made."""

import math
import tomllib
from typing import Any

import numpy as np
import pytest

from architecture.source import ROOT
from deeplinear.experiments import Experiment, experiment, experiments, fields, paper_settings, plain

SAME = 1e-12
"""Of a printed root, such as √10, against its digits."""


def value(number: Any) -> Any:
    """Values of a table as `plain` writes those of a spec."""
    return [value(one) for one in number] if isinstance(number, list | tuple) else number


def same(printed: Any, ours: Any) -> bool:
    """Whether a printed value is that of a spec."""
    if isinstance(printed, list) and isinstance(ours, list):
        return len(printed) == len(ours) and all(map(same, printed, ours))
    if isinstance(printed, float) and isinstance(ours, float):
        return math.isclose(printed, ours, rel_tol=SAME)
    return type(printed) is type(ours) and printed == ours


def wrong_settings(one: Experiment, spec: Any) -> list[str]:
    """What a spec and the printed settings disagree in without a reason, and reasons that are no longer needed."""
    table, ours, wrong = paper_settings(one.id), plain(spec), []
    for setting in table.settings:
        assert (setting.paper is None) != (not setting.contains), f"{one.id}: {setting.name}: a value or a part of one"
        if setting.name in ours:
            assert not setting.ours, f"{one.id}: {setting.name} is a field; its value is that of the preset"
            if setting.contains:
                agrees = all(any(same(part, has) for has in ours[setting.name]) for part in setting.contains)
            else:
                agrees = same(value(setting.paper), ours[setting.name])
        else:
            assert setting.ours, f"{one.id}: {setting.name} is no field: what do we have there?"
            agrees = setting.paper == setting.ours
        if agrees == bool(setting.reason):
            wrong.append(setting.name)
    return wrong


@pytest.mark.parametrize("one", experiments(), ids=lambda one: one.id)
def test_the_preset_paper_has_the_settings_of_the_paper(one: Experiment) -> None:
    """Every field is printed or chosen; printed ones agree, or there is a reason."""
    assert "paper" in one.presets
    table = paper_settings(one.id)
    named = [setting.name for setting in table.settings]
    if table.none:
        assert not named and not table.chosen
        return
    assert len(set(named)) == len(named) and all(setting.where for setting in table.settings)
    of_fields = [name for name in named if name in fields(one.kind)]
    assert sorted([*of_fields, *table.chosen]) == sorted(fields(one.kind)), "a field is printed, or chosen by us"
    assert wrong_settings(one, one.presets["paper"]) == []


def test_a_preset_of_another_size_is_seen() -> None:
    """Smaller presets of figures whose preset `paper` was one of them."""
    study = experiment("rnn/fig2")
    missed = wrong_settings(study, study.presets["small"])
    assert set(missed) == {"teacher_states", "states", "lengths", "seeds", "steps"}
    delay = experiment("rnn/fig1b")
    assert wrong_settings(delay, delay.presets["short"]) == ["steps"]
    assert set(wrong_settings(experiment("exact/fig5c"), experiment("exact/fig5c").presets["quick"])) == {"lams"}


def test_spacings_of_singular_values_are_those_of_the_caption() -> None:
    """Figure 3 of the survey prints spacings and no values."""
    np.testing.assert_allclose(np.diff(experiment("network/fig3a").presets["paper"].sigma), -1.5)
    np.testing.assert_allclose(np.diff(experiment("network/fig3b").presets["paper"].sigma)[::2], -0.1)


def test_there_is_one_table_for_every_experiment_and_no_other() -> None:
    files = (ROOT / "src" / "deeplinear" / "experiments" / "settings").glob("*.toml")
    tables = {file.stem: tomllib.loads(file.read_text(encoding="utf-8"))["figure"] for file in files}
    named = [(entry["experiment"], paper) for paper, entries in tables.items() for entry in entries]
    assert sorted(named) == sorted((one.id, one.paper) for one in experiments())
    with pytest.raises(ValueError, match=r"there is no experiment 'rnn/fig1'.*rnn/fig1"):
        paper_settings("rnn/fig1")
