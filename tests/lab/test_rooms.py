"""What all rooms keep to."""

import shlex

from deeplinear.lab.rooms import ROOMS


def test_presets_say_what_they_show() -> None:
    for room in ROOMS:
        for preset in room.presets:
            assert preset.about.endswith("."), (room.name, preset.title)
            room.view(preset.view).params(**preset.values)


def test_neighbours_name_each_other() -> None:
    """A slider that stays below another is the one above which that one stays, and the defaults keep to it."""
    pairs = 0
    for room in ROOMS:
        for view in room.views:
            fields, defaults = view.params.model_json_schema()["properties"], view.params().model_dump()
            for name, field in fields.items():
                if "below" in field:
                    pairs += 1
                    assert fields[field["below"]]["above"] == name
                    assert defaults[name] < defaults[field["below"]]
    assert pairs >= 3


def test_commands_are_commands_of_this_package() -> None:
    """Each line writes a file or calls dln, and the last one calls it."""
    for room in ROOMS:
        for view in room.views:
            text = view.command(view.params()) if view.command else None
            if text is None:
                continue
            *files, last = text.splitlines()
            assert "dln" in shlex.split(last)
            assert all(shlex.split(line)[0] in ("printf", "python", "dln") for line in files), (room.name, view.name)
