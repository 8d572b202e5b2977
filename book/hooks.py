"""What MkDocs calls while it builds the book: generated pages come in, blocks run, formulas become MathML."""

import hashlib
import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from book.cache import LOG, ROOT, outputs_of
from book.examples import example_page, notebook_path, scripts
from book.formulas import to_mathml
from book.pictures import tag
from book.reference import commands_page, package_page, subpackages
from book.results import gallery_page, stored_checks, stored_runs, theorems_page
from book.run import FENCE, Output, Picture, blocks
from book.settings import settings_page

STORE = "DOCS_STORE"
"""Environment variable that names the store of the gallery and the theorems."""

PRESET = "DOCS_PRESET"
"""Environment variable that names the size of the experiments that are shown."""

FROM_ROOT = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Pages of the book that stand at the root of the repository."""

_outputs: dict[str, list[Output]] = {}


def on_config(config: Any) -> Any:
    """Every example has its place in the navigation."""
    config.nav.insert(3, {"Examples": [f"examples/{script.stem}.md" for script in scripts()]})
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Add the generated pages, run every page, add the pictures."""
    from deeplinear import use_64_bit

    use_64_bit()
    try:
        pages = _generated()
        sources = {file.src_uri: file.content_string for file in files.documentation_pages()} | {
            name: text for name, text in pages.items() if isinstance(text, str)
        }
        _outputs.update(outputs_of({name: text for name, text in sources.items() if _runs(name, text)}))
    except Exception as error:
        raise PluginError(f"The book: {error}") from error
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    for name, path in FROM_ROOT.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    pictures = {
        _path(picture): picture.data for found in _outputs.values() for one in found for picture in one.pictures
    }
    for name, data in pictures.items():
        files.append(File.generated(config, name, content=data))
    return files


def _runs(name: str, text: str) -> bool:
    """Whether a page has blocks that run; the pages of the reference have none."""
    return not name.startswith("reference/") and bool(blocks(text))


def _generated() -> dict[str, str | bytes]:
    store = Path(os.environ.get(STORE, "results"))
    gallery, pictures = gallery_page(stored_runs(store, os.environ.get(PRESET, "quick")))
    return {
        **{f"reference/{name}.md": package_page(name) for name in subpackages()},
        "reference/commands.md": commands_page(),
        "gallery.md": gallery,
        "settings.md": settings_page(),
        "theorems.md": theorems_page(stored_checks(store)),
        **{f"examples/{script.stem}.md": example_page(script) for script in scripts()},
        **{f"examples/{path.name}": path.read_bytes() for one in scripts() for path in (one, notebook_path(one))},
        **pictures,
    }


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Put what the blocks printed and drew below them; let links to files of the root lead to their pages."""
    name = page.file.src_uri
    found = iter(_outputs.get(name, []))
    up = posixpath.relpath(".", posixpath.dirname(name) or ".")
    if name in _outputs:
        markdown = FENCE.sub(lambda block: f"{block[0]}\n{_below(next(found), up)}", markdown)
    for target, path in FROM_ROOT.items():
        markdown = re.sub(rf"\]\((?:\.\./)+{re.escape(path)}", f"]({posixpath.join(up, target)}", markdown)
    return markdown


def _below(output: Output, up: str) -> str:
    parts = [f"``` {{.text .output}}\n{output.text}\n```"] if output.text else []
    for picture in output.pictures:
        parts.append(tag(posixpath.join(up, _path(picture)), picture.alt, picture.data))
    return "\n" + "\n\n".join(parts) + "\n" if parts else ""


def _path(picture: Picture) -> str:
    return f"pictures/{hashlib.sha256(picture.data).hexdigest()[:16]}.{picture.ending}"


def on_page_content(content: str, *, page: Any, config: Any, files: Files) -> str:
    """Formulas become MathML; one that cannot is a warning, and so an error of the build."""
    content, wrong = to_mathml(content)
    for text in wrong:
        LOG.warning("%s: %s", page.file.src_uri, text)
    return content
