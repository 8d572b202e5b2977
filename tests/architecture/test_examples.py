"""The examples run, and their notebooks are what the scripts say."""

import json
import re
from pathlib import Path

import pytest

from book import examples


@pytest.mark.parametrize("script", examples.scripts(), ids=lambda path: path.stem)
def test_a_notebook_runs_and_saves_a_picture(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cell by cell, as Jupyter runs it; the cells in order are the script."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads(examples.notebook_path(script).read_text(encoding="utf-8"))["cells"]
    codes = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    written = re.sub(r"^# %%.*$", "", examples.parts(script)[1], flags=re.MULTILINE)
    assert "".join("".join(codes).split()) == "".join(written.split())
    names = {"__name__": "__main__"}
    for place, code in enumerate(codes):
        exec(compile(code, f"{script.stem}.ipynb, cell {place}", "exec"), names)
    assert [path.name for path in tmp_path.iterdir()] == [f"{script.stem}.png"]


def test_notebooks_are_those_of_the_scripts() -> None:
    assert examples.stale() == [], f"write them anew with\n    {examples.REGENERATE}"


def test_a_notebook_has_the_words_and_the_cells_of_its_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "one.py"
    script.write_text('"""A title.\n\nWords.\n"""\n\nimport math\n\n# %% Two.\nprint(math.pi)\n# %%\nprint(3)\n')
    cells = json.loads(examples.notebook(script))["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [
        ("markdown", "# A title\n\nWords."),
        ("code", "import math"),
        ("markdown", "Two."),
        ("code", "print(math.pi)"),
        ("code", "print(3)"),
    ]
    page = examples.example_page(script)
    assert "```python\nimport math\n\n# Two.\nprint(math.pi)\nprint(3)\n```" in page

    monkeypatch.setattr(examples, "FOLDER", tmp_path)
    monkeypatch.setattr(examples, "NOTEBOOKS", tmp_path)
    assert examples.stale() == ["one.ipynb"]
    (tmp_path / "one.ipynb").write_text(examples.notebook(script), encoding="utf-8")
    assert examples.stale() == []
    script.write_text('"""Another title."""\n\nprint(3)\n')
    (tmp_path / "left.ipynb").write_text("", encoding="utf-8")
    assert examples.stale() == ["left.ipynb", "one.ipynb"]


def test_an_example_without_a_docstring_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "silent.py"
    script.write_text("print(3)\n")
    with pytest.raises(ValueError, match="must begin with a docstring"):
        examples.notebook(script)
