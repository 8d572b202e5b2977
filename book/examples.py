"""Examples as notebooks and as a page. `python -m book.examples` writes the notebooks anew.

A script in `examples/` begins with a docstring, whose first line is its title. Lines `# %% text` part it into cells of
its notebook; the text, if there is any, becomes a cell of its own.
"""

import ast
import hashlib
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples"
NOTEBOOKS = FOLDER / "notebooks"
REGENERATE = ".venv/bin/python -m book.examples"


def scripts() -> list[Path]:
    """The scripts, by name."""
    return sorted(FOLDER.glob("*.py"))


def notebook_path(script: Path) -> Path:
    """Where the notebook of a script stands."""
    return NOTEBOOKS / f"{script.stem}.ipynb"


def parts(script: Path) -> tuple[str, str]:
    """Docstring and code of a script."""
    text = script.read_text(encoding="utf-8")
    tree = ast.parse(text, str(script))
    about = ast.get_docstring(tree)
    if about is None:
        raise ValueError(f"{script}: an example must begin with a docstring, but has none.")
    return about, "\n".join(text.split("\n")[tree.body[0].end_lineno :]).strip() + "\n"


def notebook(script: Path) -> str:
    """The notebook of a script, without outputs."""
    about, code = parts(script)
    title, _, rest = about.partition("\n")
    cells = [("markdown", f"# {title.rstrip('.')}\n{rest}".strip())]
    for words, cell in re.findall(r"(?:\A|^# %%(.*)$)((?:(?!^# %%).*\n?)*)", code, flags=re.MULTILINE):
        cells += [("markdown", words.strip())] if words.strip() else []
        cells += [("code", cell.strip())] if cell.strip() else []
    content = {
        "cells": [_cell(f"{script.stem} {place}", kind, text) for place, (kind, text) in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(name: str, kind: str, text: str) -> dict[str, object]:
    cell = {
        "cell_type": kind,
        "id": hashlib.sha256(name.encode()).hexdigest()[:8],
        "metadata": {},
        "source": text.splitlines(keepends=True),
    }
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def stale() -> list[str]:
    """Notebooks that are not what their scripts say, and those that have no script."""
    wanted = {notebook_path(script): notebook(script) for script in scripts()}
    there = {path: path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb")}
    return sorted(path.name for path in wanted | there if wanted.get(path) != there.get(path))


def example_page(script: Path) -> str:
    """Page of one example: what it is about, and its code as a block that runs."""
    about, code = parts(script)
    title, _, rest = about.partition("\n")
    code = re.sub(r"^# %%[ ]*", "# ", code, flags=re.MULTILINE)
    code = re.sub(r"^#[ ]*\n", "", code, flags=re.MULTILINE)
    where = (
        f"[`examples/{script.name}`]({script.name}), and as a notebook [`{script.stem}.ipynb`]({script.stem}.ipynb)."
    )
    return f"# {title.rstrip('.')}\n\n{rest.strip()}\n\n```python\n{code}```\n\n{where}\n"


if __name__ == "__main__":
    NOTEBOOKS.mkdir(parents=True, exist_ok=True)
    for name in stale():
        (NOTEBOOKS / name).unlink(missing_ok=True)
    for each in scripts():
        notebook_path(each).write_text(notebook(each), encoding="utf-8")
