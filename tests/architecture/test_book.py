"""The book: pages run, formulas are understood, what is generated says what there is, links lead somewhere."""

import ast
import importlib.metadata
import io
import posixpath
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from architecture.source import ROOT, subpackages
from book import cache, pictures, reference, results, settings
from book.formulas import to_mathml
from book.reference import commands_page, package_page
from book.run import blocks, run_blocks
from deeplinear.cli._main import app
from deeplinear.experiments import Store, experiments
from deeplinear.theory import checks

DOCS = ROOT / "docs"
GENERATED = (
    *("gallery.md", "settings.md", "theorems.md", "contributing.md", "changelog.md", "reference/commands.md"),
    *(f"reference/{name}.md" for name in subpackages()),
)

COMPOUND = ast.For | ast.While | ast.If | ast.With | ast.Try | ast.FunctionDef | ast.ClassDef

PAGE = """# A page

```python
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

def drawn(title):
    figure = Figure()
    figure.subplots().set_title(title)
    return figure

print("first")
```

```py
raise RuntimeError("this one does not run")
```

```python
kept = drawn("kept under a name")
figure, axes = plt.subplots()
figure.suptitle("of pyplot, and under a name")
```

```python
# Said by the comment.
drawn("")
```
"""


# ------------------------------------------------------------------------------------------------------------- pages


def test_a_page_shows_what_its_blocks_print_and_draw() -> None:
    first, second, third = run_blocks(PAGE, "page.md")
    assert (first.text, first.pictures) == ("first", ())
    assert sorted(picture.alt for picture in second.pictures) == ["kept under a name", "of pyplot, and under a name"]
    assert [picture.alt for picture in third.pictures] == ["Said by the comment."]
    assert all(picture.ending == "svg" and b"<svg" in picture.data for picture in second.pictures)
    assert all(one.pictures == () for one in run_blocks(PAGE, "page.md", draw=False))


def test_a_picture_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match=r"page\.md, block of line 2: a figure must have a title"):
        run_blocks("```python\nfrom matplotlib.figure import Figure\nFigure()\n```\n", "page.md")


def test_outputs_are_kept_and_errors_name_page_and_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FOLDER", tmp_path)
    monkeypatch.chdir(ROOT)
    page = "Words.\n\n```python\n# A line.\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint(3)\n```\n"
    cache._run_page("page.md", page, tmp_path / f"{cache._key(page)}.json")
    found = cache.outputs_of({"page.md": "Other words. " + page})["page.md"]
    assert found == run_blocks(page, "page.md") and found[0].text == "3" and len(found[0].pictures) == 1
    assert cache._key(page) != cache._key(page.replace("3", "4"))
    with pytest.raises(RuntimeError, match=r"page\.md, line 2: ZeroDivisionError"):
        cache._run_page("page.md", "```python\n1 / 0\n```\n", tmp_path / "none.json")
    assert not (tmp_path / "none.json").exists()


def test_outputs_are_kept_until_any_file_of_the_package_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "src/deeplinear/theory/_errata.py": "print(1)",
        "src/deeplinear/theory/errata.toml": "[[erratum]]",
        "src/deeplinear/core/stabilised.npz": "numbers",
        "src/deeplinear/cli/catalogue.json": "{}",
        "book/run.py": "",
        "pyproject.toml": (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
    }
    monkeypatch.setattr(cache, "ROOT", tmp_path)
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    program = cache._program.__wrapped__
    first = program()
    (tmp_path / "src/deeplinear/__pycache__").mkdir()
    (tmp_path / "src/deeplinear/__pycache__/a.pyc").touch()
    assert program() == first
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{text}\n# changed")
        assert (program() == first) is (name == "pyproject.toml"), name
        (tmp_path / name).write_text(text)
    (tmp_path / "src/deeplinear/cli/catalogue.json").rename(tmp_path / "src/deeplinear/cli/other.json")
    assert program()[0] != first[0]


def test_outputs_are_kept_until_a_dependency_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {*("diffrax", "equinox", "jax", "numpy", "optax", "scipy", "xarray"), *("matplotlib", "scikit-learn")}
    version, first = importlib.metadata.version, cache._program.__wrapped__()
    for name in names:
        monkeypatch.setattr(importlib.metadata, "version", lambda one, name=name: "0" if one == name else version(one))
        assert cache._program.__wrapped__() != first, name


def untypable(page: str) -> list[int]:
    """Lines of a page at which a block of Python breaks off when it is pasted at a prompt: a statement with a body
    ends at an empty line, and only there."""
    found = []
    for before, code in blocks(page):
        lines = code.split("\n")
        for node in ast.parse(code).body:
            if isinstance(node, COMPOUND) and node.end_lineno is not None:
                inside = [place for place in range(node.lineno, node.end_lineno) if not lines[place].strip()]
                follows = [node.end_lineno] if lines[node.end_lineno].strip() else []
                found += [before + place + 1 for place in inside + follows]
    return found


def test_blocks_can_be_typed_at_a_prompt() -> None:
    planted = "```python\nfor i in range(2):\n    i\n\n    i\ni\n```\n```python\nif 1:\n    1\n\n2\n```\n"
    assert untypable(planted) == [4, 6]
    pages = [path for path in DOCS.rglob("*.md") if path.name != "extending.md"]  # its classes go into files
    assert {path.name: lines for path in pages if (lines := untypable(path.read_text(encoding="utf-8")))} == {}


def test_formulas_become_mathml_or_are_told() -> None:
    page = r'<p><span class="arithmatex">\(a &lt; b\)</span></p><div class="arithmatex">\[\sum_i x_i\]</div>'
    converted, wrong = to_mathml(page)
    assert wrong == [] and converted.count("<math") == 2 and 'display="block"' in converted
    planted = (r"\nosuch x", r"\frac{1", r"\frac{1}", r"\left( x", "a$$ $$b", r"a\\[2pt] b")
    _, wrong = to_mathml("".join(rf'<span class="arithmatex">\({latex}\)</span>' for latex in planted))
    assert len(wrong) == len(planted) and "not known: \\nosuch" in wrong[0]
    beside = r'<p>and is $<span class="arithmatex">\(x\)</span>.$</p>'
    assert "a dollar stands beside a formula" in to_mathml(beside.replace(".$", "$"))[1][0]
    assert "a dollar stands beside" in to_mathml(beside)[1][0]
    assert "not recognised" in to_mathml(r"<p>text $$x^2$$ text</p>")[1][0]
    assert to_mathml("<p><code>$x_1$</code> costs 3$ or 4$</p>")[1] == []


def test_the_hook_puts_outputs_below_their_blocks() -> None:
    pytest.importorskip("mkdocs", reason="MkDocs is in the extra `docs` only")
    from book import hooks

    class File:
        src_uri = "guide/page.md"

    class Page:
        file = File

    hooks._outputs["guide/page.md"] = run_blocks(PAGE, "page.md")
    text = hooks.on_page_markdown(f"{PAGE}\nSee [how](../../CONTRIBUTING.md#form).", page=Page, config=None, files=None)
    assert text.index('print("first")') < text.index("``` {.text .output}\nfirst\n```") < text.index("```py\n")
    assert text.count('<img src="../pictures/') == text.count('<a href="../pictures/') == 3
    assert "(../contributing.md#form)" in text


def test_pictures_come_with_their_size() -> None:
    from matplotlib.figure import Figure

    for ending in ("svg", "png"):
        data = io.BytesIO()
        Figure(figsize=(3.0, 2.0), dpi=96).savefig(data, format=ending)
        assert pictures.size(data.getvalue()) == (288, 192)
    Figure(figsize=(3.0, 2.0), dpi=200).savefig(data := io.BytesIO(), format="png")  # as dense as it says
    assert pictures.size(data.getvalue()) == (288, 192)
    assert 'alt="&lt;a&gt;" width="288" height="192"' in pictures.tag("a.png", "<a>", data.getvalue())
    for planted in (b"GIF89a", b'<svg viewBox="0 0 1 1"><rect width="3pt" height="3pt"/></svg>'):
        with pytest.raises(ValueError, match="size: data must be"):
            pictures.size(planted)


# --------------------------------------------------------------------------------------------------------- reference


def test_every_public_name_is_in_the_reference_once() -> None:
    listed = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").split()
    shown = [name for package in subpackages() for name in re.findall(r"^::: (\S+)$", package_page(package), re.M)]
    assert sorted(shown) == listed


def test_groups_are_titled_by_their_files() -> None:
    assert reference._title("Critical points: their values.\n\nMore.") == "Critical points"
    assert reference._title("Is it a minimum? With a certificate.") == "Is it a minimum?"
    assert reference._title("Plain words.") == "Plain words"
    page = package_page("landscape")
    assert "\n## Critical points\n" in page and page.startswith("# `deeplinear.landscape`\n")


def test_every_command_is_in_the_reference_as_its_help_tells_it() -> None:
    page = commands_page()
    sections = dict(re.findall(r"^##+ `(dln[a-z -]*)`\n(.*?)(?=^##+ `dln|\Z)", page, flags=re.M | re.S))
    waiting = [()]
    while waiting:
        words = waiting.pop()
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).stdout
        section = sections.pop(" ".join(("dln", *words)))
        flags = set(re.findall(r"^\W*(--[a-z][a-z-]*)", shown, flags=re.M)) - {"--help"}
        assert [flag for flag in flags if flag not in section] == []
        commands = shown.partition("─ Commands ─")[2]
        waiting += [(*words, name) for name in re.findall(r"^\W{1,3}([a-z]+)  ", commands, flags=re.M)]
    assert sections == {}


# ----------------------------------------------------------------------------------------------- gallery and theorems


DRAWING = b'<svg width="36pt" height="24pt"/>'


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store of one figure and two theorems, written by hand."""
    found = Store(tmp_path)
    fields = {"statement": "the slope of $t$ is `1`", "measured": 1.0, "expected": "1 <= x", "holds": True, "note": ""}
    one = experiments()[0]
    content = {
        "source": "Figure 1",
        "shows": "What [is] shown of $x_1$.",
        "notes": "A *note*.",
        "claims": [fields, {**fields, "holds": False, "statement": "planted"}],
        "spec": {},
    }
    found.put("experiment", one.id, "0" * 20, content, {"figure.svg": DRAWING})
    claim = [
        {"name": "slack", "residual": 1e-12, "tolerance": 1e-3},
        {"name": "tight", "residual": 2e-9, "tolerance": 1e-9},
    ]
    for number, status in enumerate(("fails", "erratum")):
        content = {"source": "Theorem <1>", "statement": "It $x$ holds.", "status": status, "claim": claim}
        found.put("check", checks()[number].id, "0" * 20, content)
    return found


def test_the_gallery_shows_pictures_with_claims_and_verdicts(store: Store) -> None:
    page, files = results.gallery_page(store.records("experiment"))
    ((path, data),) = files.items()
    assert (
        data == DRAWING and f'src="{path}"' in page and 'width="48" height="32"' in page and "holds 1, fails 1" in page
    )
    assert page.count('<span class="verdict yes">holds</span>') == 1
    assert page.count('<span class="verdict no">fails</span>') == 1
    assert (
        r"What \[is\] shown of $x_1$." in page and "1 &lt;= x" in page and r"\(t\)" in page and r"A \*note\*." in page
    )


def test_the_theorems_have_verdicts_and_their_worst_residual(store: Store) -> None:
    page = results.theorems_page(store.records("check"))
    assert page.count('<span class="verdict no">fails</span>') == 1 == page.count('<span class="verdict erratum">')
    assert page.count("2e-09") == 2 and "1e-12" not in page and "Theorem &lt;1&gt;" in page
    assert all(f"<code>{checks()[number].id}</code>" in page for number in (0, 1))


def test_the_page_of_settings_has_every_experiment_and_the_reasons() -> None:
    page = settings.settings_page()
    assert all(f"`{one.id}`" in page for one in experiments())
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows), "five columns"
    assert "`lams` | 21 | Appendix E.7 | the same" in page  # Figure 5C
    assert "contains 30, 60 | Section 5.3 | 10, 20, 30, 40, 50, 60" in page  # Figure 2 of the recurrent paper
    assert "`lengths` | 10, 20 | Figure 5, caption | **6, 10, 20**: k = 6 is added for the contrast" in page


def test_indices_of_plain_formulas_are_set_as_such() -> None:
    for plain, wanted in {
        "W_{l+1}ᵀW_{l+1} - W_lW_lᵀ": "W<sub>l+1</sub>ᵀW<sub>l+1</sub> - W<sub>l</sub>W<sub>l</sub>ᵀ",
        "λ_{1+d_i−d_{i−1}}(C_i)": "λ<sub>1+d<sub>i</sub>−d<sub>i−1</sub></sub>(C<sub>i</sub>)",
        "σ_i^{2(L-1)} at σ^(1/L), w_ij": "σ<sub>i</sub><sup>2(L-1)</sup> at σ<sup>1/L</sup>, w<sub>ij</sub>",
        "as_printed and descent_drift(t) at 2^d": "as_printed and descent_drift(t) at 2<sup>d</sup>",
        "`W_1` of $x_1$ < e^{": r'<code>W_1</code> of <span class="arithmatex">\(x_1\)</span> &lt; e^{',
    }.items():
        assert results._cell(plain) == wanted


def test_what_the_store_lacks_is_named(store: Store) -> None:
    with pytest.raises(LookupError, match=r"must hold every result, but lacks .* run 'dln experiment run --all"):
        results.stored_runs(store.path, "quick")
    with pytest.raises(LookupError, match="dln check run --all --resume"):
        results.stored_checks(store.path)


# -------------------------------------------------------------------------------------------- navigation and links


class Loader(yaml.SafeLoader):
    """Reads the settings of the book; functions named in them are left as they are."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def listed(entries: Any) -> list[str]:
    """Pages of a navigation, at any depth."""
    if isinstance(entries, str):
        return [entries]
    parts = entries if isinstance(entries, list) else entries.values()
    return [page for part in parts for page in listed(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    nav = listed(yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"])
    written = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(nav) == sorted((*written, *GENERATED))


def anchors(text: str) -> set[str]:
    """Anchors of a page: given ones, and those of its headings as GitHub and the book make them."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    given = set(re.findall(r"\{ ?#([\w-]+) ?\}|(?:id|name)=\"([\w-]+)\"", prose))
    slugs = set()
    for heading in re.findall(r"^#+ (.+?)(?: \{.*\})?$", prose, flags=re.MULTILINE):
        slugs.add(re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-"))
    return slugs | {one or other for one, other in given}


WRITTEN = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.relative_to(DOCS)}" for path in sorted(DOCS.rglob("*.md"))))


def commands(text: str) -> Iterator[list[str]]:
    """Words after each `dln` of a page, in its blocks of shell commands and within its sentences."""
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    shell = [block.replace("\\\n", " ") for language, block in fenced if language in ("", "text", "sh")]
    lines = [line for block in shell for line in block.splitlines()]
    for line in (*lines, *re.findall(r"`([^`\n]+)`", prose)):
        words = shlex.split(line, comments=True) if re.match(r"(?:\$ )?(?:\w+=\S+ )*dln(?: |$)", line) else []
        if words:
            yield [word for word in words[words.index("dln") + 1 :] if word != "&"]


def understood(words: list[str]) -> None:
    """Walk to the command that the words name and read its options, as the program does before anything else."""
    command = typer.main.get_command(app)
    context = command.make_context("dln", [], resilient_parsing=True)
    while words and getattr(command, "commands", None):
        name, *words = words
        found = command.get_command(context, name)
        assert found is not None, f"dln has no command {name}"
        command = found
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    context.resilient_parsing = False  # what was made leniently, without values, reads strictly
    command.make_parser(context).parse_args([word for word in words if word != "..."])


def test_commands_that_do_not_exist_are_noticed() -> None:
    page = (
        "```python\nx\n```\n```text\n$ A=1 dln check run --all \\\n  --seed 5  # five\n```\nand `dln demo`, no `dlnx`"
    )
    assert list(commands(page)) == [["check", "run", "--all", "--seed", "5"], ["demo"]]
    with pytest.raises(AssertionError, match="no command"):
        understood(["chek", "run"])
    with pytest.raises(Exception, match="No such option"):
        understood(["check", "run", "--al"])


@pytest.mark.parametrize("page", WRITTEN)
def test_commands_on_pages_are_those_of_the_program(page: str) -> None:
    for words in commands((ROOT / page).read_text(encoding="utf-8")):
        understood(words)


@pytest.mark.parametrize("page", WRITTEN)
def test_links_inside_the_repository_resolve(page: str) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]+`|\$[^$]+\$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        place = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
        generated = place.removeprefix("docs/") in GENERATED or place.startswith("docs/examples/")
        if not generated and not (ROOT / place).is_file():
            broken.append(target)
        elif anchor and not generated and place.endswith(".md"):
            broken += [target] if anchor not in anchors((ROOT / place).read_text(encoding="utf-8")) else []
    assert broken == []
