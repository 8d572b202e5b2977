"""Documentation is executed: examples in docstrings, code in the pages; and nothing public is without a docstring."""

import ast
import doctest
import importlib
import math
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from architecture.source import ROOT, exports, modules, subpackages, syntax
from book.run import run_blocks

IN_SCOPE = (
    "core",
    "models",
    "geometry",
    "landscape",
    "nonlinear",
    "recurrent",
    "probes",
    "dynamics",
    "exact",
    "following",
    "estimators",
    "diagnosis",
)
PAGES = (
    "README.md",
    "docs/extending.md",
    *(f"docs/guide/{name}.md" for name in ("data", "exact", "geometry", "landscape", "recurrent")),
    "docs/scale.md",
)


class Checker(doctest.OutputChecker):
    """Output as written, except that the last digits of a number may differ by rounding."""

    ROUNDING = 1e-12
    NUMBER = re.compile(r"(?<![\w.])[-+]?\d+\.\d*(?:e[-+]?\d+)?", flags=re.IGNORECASE)

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        if super().check_output(want, got, optionflags):
            return True
        wanted, given = self.NUMBER.findall(want), self.NUMBER.findall(got)
        return (
            super().check_output(self.NUMBER.sub("#", want), self.NUMBER.sub("#", got), optionflags)
            and len(wanted) == len(given) > 0
            and all(
                math.isclose(float(a), float(b), rel_tol=self.ROUNDING, abs_tol=self.ROUNDING)
                for a, b in zip(wanted, given, strict=True)
            )
        )


def scope() -> dict[str, Any]:
    """Names an example may use without importing: `jax`, `jnp`, `np` and the public names of the numerical layers."""
    names: dict[str, Any] = {"jax": jax, "jnp": jnp, "np": np}
    for name in IN_SCOPE:
        module = importlib.import_module(f"deeplinear.{name}")
        names |= {key: getattr(module, key) for key in dir(module)}
    return names


def examples(module: str) -> list[doctest.DocTest]:
    """Examples of a module, taken from its syntax: decorators and import hooks cannot hide them."""
    path, found, parser = modules()[module], [], doctest.DocTestParser()
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            name = f"{module}.{node.name}" if not isinstance(node, ast.Module) else module
            test = parser.get_doctest(text, {}, name, str(path), node.body[0].lineno)
            found += [test] if test.examples else []
    return found


@pytest.mark.parametrize("module", [name for name, path in modules().items() if ">>> " in path.read_text()])
def test_examples_in_docstrings(module: str) -> None:
    own = {key: value for key, value in vars(importlib.import_module(module)).items() if not key.startswith("__")}
    runner = doctest.DocTestRunner(Checker(), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    for test in examples(module):
        test.globs = scope() | own
        runner.run(test, out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


@pytest.mark.parametrize("page", PAGES)
def test_code_in_pages(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python blocks of a page run one after another, as a reader would run them, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    run_blocks((ROOT / page).read_text(encoding="utf-8"), page, draw=False)


def origin(package: str, name: str) -> ast.AST | str | None:
    """Definition of a name a sub-package re-exports: its node, or the string below an assignment."""
    body = syntax(modules()[exports(f"deeplinear.{package}")[name]]).body
    # What checkers and programs see apart stands in the branch of programs.
    body = [part for item in body for part in (item.orelse if isinstance(item, ast.If) else [item])]
    for position, item in enumerate(body):
        made = isinstance(item, ast.FunctionDef | ast.ClassDef) and item.name == name
        if made and "overload" not in map(ast.unparse, item.decorator_list):
            return item
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        if isinstance(target, ast.Name) and target.id == name and position + 1 < len(body):
            below = body[position + 1]
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                return str(below.value.value)
    return None


def test_public_names_have_docstrings() -> None:
    listed = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").split()
    silent = []
    for full in listed:
        if full in modules():  # a module that is a name of its package
            continue
        _, package, name = full.split(".")
        found = origin(package, name)
        text = ast.get_docstring(found) if isinstance(found, ast.FunctionDef | ast.ClassDef) else found
        if not text:
            silent.append(full)
    assert silent == []


@pytest.mark.parametrize("module", modules())
def test_modules_have_docstrings(module: str) -> None:
    assert ast.get_docstring(syntax(modules()[module]))


def test_every_subpackage_is_in_the_layout() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert [name for name in subpackages() if not re.search(rf"^{name}/ ", text, flags=re.MULTILINE)] == []
