"""The page of a store, read with Python's own parser: whole, harmless, and nothing left out."""

import base64
import contextlib
import dataclasses
import hashlib
import html
import os
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from deeplinear.experiments import Experiment, Store, override, plain, split_assignments
from deeplinear.report import _content, _html, build_report

HOSTILE = """<script>alert("1")</script> 'a' "b" & <img src=x onerror=alert(1)>"""
EMPTY = {"meta", "link", "img", "input", "br"}
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="6"><circle r="3"/></svg>'


class Page(HTMLParser):
    """What a page holds; an element closed in the wrong place is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.code: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of {tag} is given twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.code[self.open[-1]] = self.code.get(self.open[-1], "") + data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def values(self, attribute: str, tag: str | None = None) -> list[str]:
        found = [a.get(attribute) for name, a in self.elements if tag in (None, name)]
        return [value for value in found if value is not None]


@dataclasses.dataclass(frozen=True)
class Spec:
    depths: tuple[int, ...] = (2, 3)
    alpha: float = 1e-3
    name: str = "a"
    exact: bool = False
    seed: int = 0
    pairs: tuple[tuple[float, float], ...] = ((1.0, 2.0), (3.0, 4.0))
    wider: tuple[int, ...] = ()


def unused(*_: Any) -> Any:
    raise AssertionError("a report runs nothing")


FIG2 = Experiment(
    "completion/fig2",
    "Figure 2",
    "Rank falls.",
    {"quick": Spec(), "paper": Spec((2, 3, 4), 1e-4)},
    unused,
    unused,
    unused,
)
CLAIMS = (
    {"statement": "First $r_1$", "measured": 0.25, "expected": "at most 0.5", "holds": True, "note": "with a note"},
    {"statement": "Second", "measured": 7.0, "expected": "at most 3", "holds": False, "note": ""},
    {"statement": "Third", "measured": "nan", "expected": "at least 1", "holds": None, "note": "too small to tell"},
)
ENVIRONMENT = {"deeplinear": "0.9", "python": "3.12", "devices": ["cpu:0"], "versions": {"jax": "0.99"}}


def run(spec: Spec, preset: str | None, claims: tuple[dict[str, Any], ...] = CLAIMS, **others: Any) -> dict[str, Any]:
    """Content of the record of an experiment."""
    return {
        "version": 1,
        "source": "Figure 2",
        "shows": "Rank falls.",
        "notes": "One.\n\nTwo.",
        "preset": preset,
        "spec": plain(spec),
        "claims": list(claims),
        "environment": ENVIRONMENT,
        "timing": {"started": "2026-03-01T10:00:00+00:00", "seconds": 90.0, "processor_seconds": 100.0},
        **others,
    }


def outcome(status: str, started: str = "2026-03-01T10:00:00+00:00", **others: Any) -> dict[str, Any]:
    """Content of the record of a check."""
    return {
        "source": "Theorem 1",
        "statement": "It holds.",
        "printed_statement": None,
        "status": status,
        "message": f"message of {status}",
        "instances": 50,
        "seed": 0,
        "claim": [
            {"name": "near", "residual": 1e-3, "tolerance": 2e-3, "holds": True},
            {"name": "far", "residual": 1e-2, "tolerance": 1.0, "holds": True},
        ],
        "printed": None,
        "violations": [
            {"name": "turned", "caught": True, "claim": None, "hypotheses_not_met": []},
            {"name": "shifted", "caught": status != "fails", "claim": None, "hypotheses_not_met": []},
        ],
        "environment": ENVIRONMENT,
        "timing": {"started": started, "seconds": 2.5},
        **others,
    }


@contextlib.contextmanager
def registered(*known: Experiment) -> Iterator[None]:
    """Other experiments in the place of the registered ones."""

    def find(name: str) -> Experiment:
        for one in known:
            if one.id == name:
                return one
        raise ValueError(name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_content, "experiment", find)
        patch.setattr(_content, "experiments", lambda: known)
        yield


def filled(path: Path) -> Store:
    """A store with something of everything."""
    store = Store(path)
    pictures = {"figure.svg": SVG, "figure.png": b"png", "data.nc": bytes(_html.LARGEST_LINK + 1)}
    store.put("experiment", "completion/fig2", "quick", run(Spec(), "quick", CLAIMS[:1]), pictures)
    store.put("experiment", "completion/fig2", "paper", run(FIG2.presets["paper"], "paper"), pictures)
    for seed in (10, 2):
        store.put("experiment", "completion/fig2", f"swept{seed}", run(Spec(seed=seed), None, CLAIMS[:1]), pictures)
    bad = {"statement": HOSTILE, "measured": 1.0, "expected": HOSTILE, "holds": True, "note": HOSTILE}
    texts = dict.fromkeys(("source", "shows", "notes", "no_figure"), HOSTILE)
    gone = run(Spec(name=HOSTILE), "quick", (bad,), **texts, environment={"python": HOSTILE})
    store.put("experiment", "gone/f<g> '\"", "gone", gone)
    store.put(
        "check", "completion/one", "a", outcome("fails", "2026-03-01T10:00:00+00:00", statement="An older outcome.")
    )
    store.put("check", "completion/one", "b", outcome("holds", "2026-03-02T10:00:00+00:00"))
    store.put("check", "completion/two", "a", outcome("fails", instances=7, seed=3))
    printed = {"name": "as printed", "residual": 0.413, "tolerance": 1e-9, "holds": False}
    wrong = outcome("erratum", printed=printed, printed_statement="It was printed so.", statement="It is so.")
    store.put("check", "recurrent/three", "a", wrong)
    store.put("check", "recurrent/four", "a", outcome("holds", statement=HOSTILE, source=HOSTILE))
    store.put("experiment", "completion/fig2", "broken", run(Spec(seed=5), None), pictures)
    (store.folder("experiment", "completion/fig2", "broken") / "figure.svg").write_bytes(b"other")
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return filled(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def text(store: Store, tmp_path_factory: pytest.TempPathFactory) -> str:
    with registered(FIG2):
        out = build_report(store, tmp_path_factory.mktemp("page") / "new" / "report.html", title=f"Title {HOSTILE}")
    return out.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_ids_are_unique_and_links_lead_somewhere(page: Page) -> None:
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    inner = [link[1:] for link in page.values("href") if link.startswith("#")]
    assert len(inner) > 10 and set(inner) <= set(ids)
    assert "experiments/completion/fig2" in inner and "errata" in inner and "damaged" in inner


def test_nothing_comes_from_outside(page: Page) -> None:
    for link in page.values("href") + page.values("src"):
        assert link.startswith(("#", "data:"))
    assert not re.search(r"url\(|@import|https?:", page.code["style"])
    assert not re.search(r"https?:|fetch\(|XMLHttp|import ", page.code["script"])


def test_the_policy_allows_the_script_and_the_style_of_the_page_only(page: Page) -> None:
    (policy,) = (a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    for name in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(page.code[name].encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in str(policy)
    assert str(policy).startswith("default-src 'none'")
    assert page.values("style") == []  # attributes of that name would be refused


def test_hostile_text_is_shown_and_does_nothing(page: Page, text: str) -> None:
    assert [name for name, _ in page.elements].count("script") == 1
    assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]
    assert "<img src=x" not in text and "<script>alert" not in text
    shown = re.sub(r"\s+", " ", HOSTILE)
    assert page.text.count(shown) >= 9  # title, statement, expected, note, shows, notes, picture, parameter, check …
    assert html.escape(HOSTILE, quote=True) in text


def test_all_claims_have_a_verdict_in_sign_and_word(page: Page) -> None:
    shown = re.sub(r"\s+", " ", page.text)
    for statement in ("First r_1", "Second", "Third"):
        assert statement in shown
    for claim in CLAIMS:
        assert claim["expected"] in shown and claim["note"] in shown
    for verdict in ("✓ holds", "✗ fails", "– not told"):
        assert verdict in page.text
    assert "0.25" in page.text and "$" not in page.text
    assert ("em", {"class": "math"}) in page.elements


def test_the_head_counts_what_is_there(page: Page) -> None:
    head = page.text[: page.text.index("Contents")]
    assert "Experiments 2 in 5 runs" in head.replace("  ", " ")
    for words in ("✓ 5 hold", "✗ 1 fails", "– 1 not told", "✓ 2 hold", "≠ 1", "1 record", "7 min 40 s", "jax 0.99"):
        assert words in head, words


def test_presets_come_first_and_sweeps_are_named_by_what_varies(page: Page) -> None:
    order = [page.values("id").index(f"runs/completion/fig2/{key}") for key in ("paper", "quick", "swept2", "swept10")]
    assert order == sorted(order)
    assert "Preset quick with seed = 2" in page.text and "2 runs with other parameters" in page.text


def test_commands_lead_back_to_the_run(page: Page) -> None:
    assert "dln experiment run completion/fig2 --preset paper" in page.text
    assert "dln experiment run completion/fig2 --preset quick seed=10" in page.text
    assert "This experiment is no longer registered" in page.text
    assert "dln check run completion/two --instances 7 --seed 3" in page.text


@pytest.mark.parametrize(
    "spec",
    [
        Spec(),
        Spec((5,)),
        Spec((2, 3, 4), 1e-5),
        Spec(name="two words; rm *", exact=True),
        Spec(alpha=float("inf"), seed=9),
        Spec(pairs=((0.5, 1.0),)),
        Spec(wider=(3,)),
    ],
)
def test_a_command_says_exactly_the_spec(spec: Spec, tmp_path: Path) -> None:
    record = Store(tmp_path).put("experiment", FIG2.id, "k", run(spec, None))
    with registered(FIG2):
        recipe = _content.recipe_of(record)
    words = shlex.split(recipe.command)
    assert words[:5] == ["dln", "experiment", "run", FIG2.id, "--preset"]
    assert override(FIG2.preset(words[5]), split_assignments(words[6:], "test"), "test") == spec
    assert recipe.remark == ""


def test_a_run_of_other_parameters_or_another_version_says_so(tmp_path: Path) -> None:
    store = Store(tmp_path)
    older = store.put("experiment", FIG2.id, "a", run(Spec(), None, version=0))
    other = store.put("experiment", FIG2.id, "b", run(Spec(), None) | {"spec": {"width": 3}})
    spaced = store.put("experiment", FIG2.id, "c", run(Spec(name=" a "), None))
    nothing = store.put("experiment", FIG2.id, "d", run(Spec(depths=()), None))
    with registered(FIG2):
        assert "version 0" in _content.recipe_of(older).remark
        assert "width" in _content.recipe_of(other).remark
        for record in (spaced, nothing):  # a command line cannot say these values
            recipe = _content.recipe_of(record)
            assert recipe.command == "" and "No command" in recipe.remark and recipe.preset == "quick"
        assert 'id="runs/completion/fig2/b"' in build_report(store, tmp_path / "p.html").read_text(encoding="utf-8")


def test_checks_show_the_latest_outcome_and_the_closest_residual(page: Page) -> None:
    rows = {a["id"]: a["data-status"] for name, a in page.elements if name == "tr" and "id" in a}
    assert rows == {
        "check/completion/one": "holds",
        "check/completion/two": "fails",
        "check/recurrent/three": "erratum",
        "check/recurrent/four": "holds",
    }
    assert "An older outcome." not in page.text
    assert "message of fails" in page.text and "missed: shifted" in page.text and "1 of 2" in page.text
    assert re.search(r"0\.001 near 0\.002", page.text)  # half of its tolerance; the larger residual uses a hundredth
    assert page.values("value", "input") == ["all", "fails", "erratum"]


def test_errata_tell_both_forms(page: Page) -> None:
    part = page.text[page.text.rindex("Errata") :]
    assert "It was printed so." in part and "It is so." in part and "0.413" in part


def test_damaged_records_are_named_with_the_reason(page: Page, store: Store) -> None:
    path = store.folder("experiment", "completion/fig2", "broken") / "figure.svg"
    assert f"{path}: it is not what was written: its digest differs from the record's" in page.text
    assert "runs/completion/fig2/broken" not in page.values("id")


def test_pictures_have_words_and_files_can_be_saved(page: Page, store: Store) -> None:
    pictures = [a for name, a in page.elements if name == "img" and a.get("src")]
    uri = "data:image/svg+xml;base64," + base64.b64encode(SVG).decode()
    assert [a["src"] for a in pictures] == [uri] * 4
    assert {a["alt"] for a in pictures} == {"Figure 2 (completion/fig2): Rank falls."}
    assert sorted(page.values("download")) == sorted(
        f"completion-fig2-{key}.{ending}" for key in ("paper", "quick") for ending in ("png", "svg")
    )
    assert f"data.nc: in {store.folder('experiment', 'completion/fig2', 'paper')}" in page.text


def test_large_pictures_and_many_members_are_left_out_by_name(store: Store, tmp_path: Path) -> None:
    with registered(FIG2), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_html, "LARGEST_PICTURE", 1)
        patch.setattr(_html, "MOST_MEMBERS", 1)
        found = Page(build_report(store, tmp_path / "p.html").read_text(encoding="utf-8"))
    assert [a for name, a in found.elements if name == "img" and a.get("src")] == []
    assert "The picture is too large for this page" in found.text and "1 further run in the store" in found.text


def test_every_page_says_its_language_and_can_be_read_without_a_mouse(page: Page) -> None:
    assert ("html", {"lang": "en"}) in page.elements
    first = next(a for name, a in page.elements if name == "a")
    assert first["href"] == "#main" and "main" in page.values("id")
    for _, box in [e for e in page.elements if e[1].get("class") == "box"]:
        assert box["tabindex"] == "0" and box["role"] == "region" and box["aria-label"]


def test_only_some_of_it(store: Store, tmp_path: Path) -> None:
    with registered(FIG2):
        found = Page(build_report(store, tmp_path / "p.html", only=["completion/fig2", "recurrent"]).read_text())
        ids = found.values("id")
        assert "experiments/completion/fig2" in ids and "check/recurrent/three" in ids and "damaged" in ids
        assert not [name for name in ids if "gone" in name or "completion/one" in name]
        with pytest.raises(ValueError, match=r"'completion/fig3', which is not stored. Did you mean 'completion/fig2'"):
            build_report(store, tmp_path / "p.html", only=["completion/fig3"])
        with pytest.raises(ValueError, match="only must name an id or a paper"):
            build_report(store, tmp_path / "p.html", only=[])


def test_the_latest_outcome_is_shown_also_within_a_second(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for key, part in {"a": ".250000", "b": ".250001", "c": ""}.items():  # older records tell whole seconds only
        store.put("check", "completion/one", key, outcome("holds", f"2026-03-01T10:00:00{part}+00:00"))
    assert [record.key for record in _content.read_store(store, None).checks] == ["b"]


def test_checks_alone_make_a_page(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("check", "completion/one", "a", {"status": "holds"})
    found = Page(build_report(store, tmp_path / "p.html").read_text(encoding="utf-8"))
    assert "experiments" not in found.values("id") and "errata" not in found.values("id")


def test_an_empty_store_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must hold results, but holds none; make some with 'dln experiment run ID'"):
        build_report(Store(tmp_path / "nothing"), tmp_path / "p.html")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(store: Store, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="out must be a file"):
        build_report(store, tmp_path)


def test_a_page_is_replaced_as_a_whole_or_not_at_all(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "p.html"
    out.write_text("before")

    def refuse(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        build_report(store, out)
    assert out.read_text() == "before" and list(tmp_path.iterdir()) == [out]


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


READABLE = 4.5
"""Contrast that WCAG AA asks of text."""


@pytest.mark.parametrize("theme", [0, 1])
def test_text_can_be_read_in_both_themes(page: Page, theme: int) -> None:
    pairs = re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", page.code["style"])
    colours = {name: values[theme] for name, *values in pairs}
    grounds = {"ground", "card", "code"}
    for name in ("text", "faint", "link"):
        assert min(contrast(colours[name], colours[ground]) for ground in grounds) >= READABLE, name
    for name in ("holds", "fails", "erratum", "untold"):
        for ground in ("ground", "card", f"{name}-ground"):
            assert contrast(colours[name], colours[ground]) >= READABLE, (name, ground)
