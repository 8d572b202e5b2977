"""Runs at a user's own settings are not judged by bounds that were set for the presets."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from deeplinear.cli._main import app
from deeplinear.experiments import Claim, Experiment, experiment, experiments, fields

WRONG = (
    Claim.at_most("a bound of a preset", 2.0, 1.0),
    Claim.at_most("a bound of a theorem", 2.0, 1.0, general=True),
    Claim.untold("nothing to decide", "at most 1", "too small"),
)


def changed(value: Any) -> list[Any]:
    """Other values of a setting that may be valid."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, 2 * value]
    if isinstance(value, float):
        return [value * 1.01, value * 0.99, value + 0.5]
    if isinstance(value, tuple) and value:
        return [(*value[:-1], last) for last in changed(value[-1])] + [value[:-1], (*value, value[-1])]
    return []


def own_specs(one: Experiment) -> list[Any]:
    """For every field of a spec, one that differs from all presets in that field alone, where such a value is valid."""
    preset, found = next(iter(one.presets.values())), []
    for name in fields(one.kind):
        for value in changed(getattr(preset, name)):
            try:
                spec = dataclasses.replace(preset, **{name: value})
            except (ValueError, TypeError):
                continue
            if one.preset_of(spec) is None:
                found.append(spec)
                break
    return found


@pytest.mark.parametrize("one", experiments(), ids=lambda one: one.id)
def test_no_setting_of_a_user_is_judged_by_the_bounds_of_presets(one: Experiment) -> None:
    """Every field in turn, also the seed; the claims that fail stand in for those of the experiment."""
    failing = dataclasses.replace(one, claims=lambda dataset, spec: WRONG)
    specs = own_specs(one)
    assert specs
    for spec in specs:
        held = [claim.holds for claim in failing.judge(None, spec)]
        assert held == [None, False, None]
    for preset in one.presets.values():
        assert [claim.holds for claim in failing.judge(None, preset)] == [False, False, None]


def test_a_reading_says_where_its_bound_comes_from() -> None:
    reading = WRONG[0].reading()
    assert reading.unjudged and reading.measured == 2.0 and reading.expected == "at most 1 in the presets"
    assert not WRONG[0].unjudged and not WRONG[2].unjudged


def test_claims_that_cannot_be_evaluated_elsewhere_lose_no_run() -> None:
    def broken(dataset: Any, spec: Any) -> list[Claim]:
        raise KeyError("step 20")

    one = dataclasses.replace(experiment("exact/fig8"), claims=broken)
    (claim,) = one.judge(None, dataclasses.replace(one.preset("quick"), steps=(1, 2)))
    assert claim.holds is None and "step 20" in claim.note
    with pytest.raises(KeyError, match="step 20"):
        one.judge(None, one.preset("quick"))


def test_five_short_tasks_do_not_fail(tmp_path: Path) -> None:
    """Figure 11 of the paper shows four long tasks."""
    words = ["exact/fig11", "tasks=5", "steps=40", "every=20", "widths=3,4,2", "--store", str(tmp_path)]
    run = CliRunner().invoke(app, ["experiment", "run", *words], catch_exceptions=False)
    assert run.exit_code == 0 and "FAILS" not in run.stdout
    assert "3 of 3 claims have no verdict" in " ".join(run.stdout.split())
    again = CliRunner().invoke(app, ["experiment", "run", *words, "--json"], catch_exceptions=False)
    (member,) = json.loads(again.stdout)["members"]
    assert [claim["holds"] for claim in member["claims"]] == [None, None, None]
    assert all(claim["expected"].endswith(" in the presets") for claim in member["claims"])
