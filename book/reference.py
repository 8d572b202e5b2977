"""Reference pages: one for each sub-package from its `__init__`, one for the commands from their help."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "deeplinear"


def subpackages() -> list[str]:
    """Names of the sub-packages."""
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def package_page(name: str) -> str:
    """Page of a sub-package: its public names, in groups as its files have them."""
    tree = _syntax(PACKAGE / name / "__init__.py")
    parts = [f"# `deeplinear.{name}`", ast.get_docstring(tree) or ""]
    for title, text, names in _groups(tree):
        parts += [f"## {title}", text]
        parts += [f"::: deeplinear.{name}.{one}\n    options:\n      heading_level: 3" for one in names]
    return "\n\n".join(parts) + "\n"


def _groups(tree: ast.Module) -> Iterator[tuple[str, str, list[str]]]:
    """Title, text and names of each file that `__init__` re-exports from."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)):
        names = [alias.name for alias in node.names if alias.asname == alias.name and not alias.name.startswith("_")]
        if names:
            text = ast.get_docstring(_syntax(_file(node.module or ""))) or ""
            title, first = _title(text), text.partition("\n")[0]
            rest = text.removeprefix(first).strip() if title == first.rstrip(".") else text
            yield title, rest, names


def _title(text: str) -> str:
    """The first words of a docstring, up to where its first sentence pauses."""
    line = text.partition("\n")[0]
    ends = [line.find(mark) + (mark == "? ") for mark in (": ", ". ", "? ", "; ") if mark in line]
    return line[: min(ends, default=len(line))].rstrip(".:;")


def _file(module: str) -> Path:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


# ---------------------------------------------------------------------------------------------------------- commands


def commands_page() -> str:
    """Page of the command line: what `--help` says of every command."""
    import typer.main

    from deeplinear.cli._main import app

    parts = ["# The command `dln`", "Every command with its arguments and options, as `--help` tells them."]
    for words, command in _walk(("dln",), typer.main.get_command(app)):
        parts += [f"{'#' * min(len(words), 2)}# `{' '.join(words)}`", f"```text\n{_usage(words, command)}\n```"]
        parts.append(_prose(command.help or ""))
        parts += _tables(command)
    return "\n\n".join(part for part in parts if part) + "\n"


def _walk(words: tuple[str, ...], command: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk((*words, name), child)


def _usage(words: tuple[str, ...], command: Any) -> str:
    arguments = [_name(one) for one in command.params if one.param_type_name == "argument"]
    if getattr(command, "commands", None):
        arguments = ["COMMAND [ARGS]..."]
    return " ".join((*words, "[OPTIONS]", *arguments))


def _name(parameter: Any) -> str:
    """How a parameter is written: an argument by its name, an option by its flags."""
    if parameter.param_type_name == "argument":
        return parameter.metavar or parameter.human_readable_name.upper()
    flags = ", ".join((*parameter.opts, *parameter.secondary_opts))
    return flags if getattr(parameter, "is_flag", False) else f"{flags} {parameter.metavar or ''}".strip()


def _tables(command: Any) -> list[str]:
    """Tables of the arguments and options, one for each panel of the help."""
    panels: dict[str, list[Any]] = {}
    for one in command.params:
        usual = "Arguments" if one.param_type_name == "argument" else "Options"
        if not getattr(one, "hidden", False):
            panels.setdefault(getattr(one, "rich_help_panel", None) or usual, []).append(one)
    tables = []
    for title, members in panels.items():
        rows = [f"| `{_cell(_name(one))}` | {_cell(_prose(_about(one)))} |" for one in members]
        tables.append("\n".join([f"| {title} | |", "| --- | --- |", *rows]))
    return tables


def _about(parameter: Any) -> str:
    """Help of a parameter, and what it is unless it is given."""
    text = getattr(parameter, "help", None) or ""
    value = parameter.default
    shown = getattr(parameter, "show_default", False) and value is not None and not callable(value)
    return f"{text} [default: {value}]" if shown and not isinstance(value, bool) else text


def _prose(text: str) -> str:
    """Help as Markdown: what stands in it is meant as it stands."""
    text = text.replace("\\", "\\\\").replace("\b\n", "")
    for mark in "*_<[":
        text = text.replace(mark, f"\\{mark}" if mark != "<" else "&lt;")
    return text


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
