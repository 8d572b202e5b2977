"""What all rooms keep to."""

import ast
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


def test_controls_that_matter_only_sometimes_name_choices() -> None:
    """They name choices of their own view, and matter for its defaults or for another choice."""
    found = set()
    for room in ROOMS:
        for view in room.views:
            fields = view.params.model_json_schema()["properties"]
            for name, field in fields.items():
                for other, values in field.get("only", {}).items():
                    found.add((view.name, name))
                    assert set(values) < set(fields[other]["options"]), (room.name, view.name, name)
    assert {("extrapolation", "states"), ("mask", "m"), ("warm", "rank"), ("training", "low")} <= found
    assert {("training", "rate"), ("cloud", "temperature")} <= found
    assert not {("spectrum", "states"), ("limit", "m")} & found


def test_scripts_import_first_and_only_what_they_use() -> None:
    for room in ROOMS:
        for view in room.views:
            text = view.python(view.params())
            body = ast.parse(text).body
            imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
            assert body[: len(imports)] == imports, (room.name, view.name)
            named = [(one.asname or one.name) for node in imports for one in node.names]
            used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            assert len(named) == len(set(named)) and set(named) <= used, (room.name, view.name)
            assert all(len(line) <= 120 for line in text.splitlines()), (room.name, view.name)


def test_formulas_have_brackets_that_stretch() -> None:
    assert not any(f"\\{size}" in room.mathematics for room in ROOMS for size in ("big", "Big"))


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
