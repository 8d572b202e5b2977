"""The page in a real browser: every room, sliders, simulations, links, bad values, keyboard, narrow screens."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeplinear.lab.rooms import ROOMS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT = 60_000
"""Milliseconds for what has to be compiled."""


@pytest.fixture(scope="module")
def address(server: tuple[str, int]) -> str:
    """Where the page is."""
    return server[0]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    playwright = pytest.importorskip("playwright.sync_api")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None and not os.environ.get("CI"):
        pytest.skip("There is no Chromium; 'make test' installs Debian's where it may.")
    assert path is not None, "CI needs Chromium: apt-get install chromium."
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield found
        found.close()


@pytest.fixture
def page(browser, address: str) -> Iterator:
    """A page that fails the test if the browser complains."""
    found = browser.new_page(viewport={"width": 1280, "height": 900})
    complaints: list[str] = []
    found.on(
        "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None
    )
    found.on("pageerror", lambda error: complaints.append(str(error)))
    found.complaints = complaints
    yield found
    found.close()
    assert found.complaints == []


def go(page, address: str, place: str) -> None:
    page.goto(f"{address}{place}")
    page.wait_for_selector("h1", timeout=WAIT)


def curve(page, figure: str) -> list[float]:
    """The first curve of a picture, from what is drawn."""
    return page.evaluate(f"""[...document.querySelector('figure[data-figure="{figure}"] .plot').data[0].y]""")


def until(page, condition: str) -> None:
    """Wait for a condition in JavaScript. (Playwright's own way evaluates text, which the page's policy forbids.)"""
    for _ in range(WAIT // 50):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"{condition} did not come true")


def answered(page, times: int) -> None:
    until(page, f"Number(document.getElementById('main').dataset.answered ?? 0) >= {times}")


@pytest.mark.slow
@pytest.mark.parametrize("room", [room.name for room in ROOMS])
def test_every_room_loads_at_both_widths(page, address: str, room: str) -> None:
    for width in (1280, 390, 360):
        page.set_viewport_size({"width": width, "height": 800})
        go(page, address, f"#{room}")
        page.wait_for_selector("figure .main-svg, figure table", timeout=WAIT)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator("[role=alert]:visible").count() == 0
        page.goto("about:blank")


@pytest.mark.slow
def test_a_slider_changes_the_curve_and_the_address(page, address: str) -> None:
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    before = curve(page, "modes")
    slider = page.get_by_label("Relative scale λ", exact=True)
    slider.focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    until(page, "location.hash.includes('lam=3')")
    answered(page, 2)
    page.wait_for_timeout(300)
    after = curve(page, "modes")
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) > 0.1
    link = page.evaluate("location.href")
    page.goto("about:blank")
    page.goto(link)
    answered(page, 1)
    assert curve(page, "modes") == pytest.approx(after)
    assert page.get_by_label("Relative scale λ, number").input_value() == "3"


@pytest.mark.slow
def test_bad_values_show_the_message_and_the_page_goes_on(page, address: str) -> None:
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    number = page.get_by_label("Relative scale λ, number")
    number.fill("77")
    number.press("Enter")
    alert = page.locator("[role=alert]:visible")
    alert.wait_for(timeout=WAIT)
    assert "less than or equal to 10" in alert.inner_text()
    page.complaints.clear()  # the browser notes the refused request
    number.fill("2")
    number.press("Enter")
    alert.wait_for(state="hidden", timeout=WAIT)


@pytest.mark.slow
def test_a_simulation_runs_and_another_is_cancelled(page, address: str) -> None:
    go(page, address, "#lazy-rich/simulation")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_selector('figure[data-figure="gap"] .main-svg', timeout=WAIT)
    assert max(curve(page, "gap")) < 1e-4
    go(page, address, "#landscape/deep")
    page.wait_for_selector("h1:has-text('landscape')")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("text=cancelled", timeout=WAIT)
    assert page.get_by_role("button", name="Start", exact=True).is_enabled()


@pytest.mark.slow
def test_code_and_downloads(page, address: str, tmp_path: Path) -> None:
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    page.get_by_role("button", name="Copy as Python").click()
    assert "LambdaBalanced(0.0, 1.0, absolute_scale=0.1)" in page.locator("dialog pre").inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Copy as command").click()
    assert page.locator("dialog pre").inner_text().startswith("dln exact --widths 4,3,3")
    page.keyboard.press("Escape")
    for button, ending in (("CSV", "csv"), ("SVG", "svg")):
        with page.expect_download(timeout=WAIT) as found:
            page.locator('figure[data-figure="modes"]').get_by_role("button", name=button).click()
        path = tmp_path / f"modes.{ending}"
        found.value.save_as(path)
        assert path.read_text().startswith("series,time,singular value" if ending == "csv" else "<svg")


@pytest.mark.slow
def test_a_click_and_a_drag_in_the_map_set_both_parameters(page, address: str) -> None:
    go(page, address, "#lazy-rich/map")
    answered(page, 1)
    place = page.locator('figure[data-figure="kernel"]')
    place.evaluate("figure => figure.scrollIntoView({ block: 'center' })")
    box = place.locator(".nsewdrag").bounding_box()
    page.mouse.click(box["x"] + 0.75 * box["width"], box["y"] + 0.25 * box["height"])
    until(page, "location.hash.includes('lam=') && location.hash.includes('scale=')")
    number = page.get_by_label("Relative scale λ, number")
    assert 4.5 < float(number.input_value()) < 5.7
    page.mouse.move(box["x"] + 0.75 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    page.mouse.move(box["x"] + 0.25 * box["width"], box["y"] + 0.5 * box["height"], steps=5)
    page.mouse.up()
    assert -5.7 < float(number.input_value()) < -4.5
    wide = """document.querySelector('figure[data-figure="kernel"] .plot').layout.xaxis.range"""
    assert page.evaluate(f"{wide} === undefined || {wide}[1] - {wide}[0] > 19")  # not zoomed
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + box["height"] + 30)  # below the axis
    assert -5.7 < float(number.input_value()) < -4.5


@pytest.mark.slow
def test_dark_and_light(page, address: str) -> None:
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    theme = "document.documentElement.dataset.theme"
    before = page.evaluate(theme)
    page.get_by_label("Light or dark").click()
    assert page.evaluate(theme) != before
    page.reload()
    page.wait_for_selector("h1")
    assert page.evaluate(theme) != before


@pytest.mark.slow
def test_results_of_an_empty_store_and_the_errata(page, address: str) -> None:
    go(page, address, "#results")
    until(page, "document.getElementById('main').innerText.includes('dln experiment run')")
    page.get_by_role("tab", name="Errata").click()
    page.wait_for_selector(".erratum", timeout=WAIT)
    assert page.locator(".erratum").count() > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


@pytest.mark.slow
@pytest.mark.parametrize("link", ["#completion/mask?mask=5", "#completion/mask?mask=[]", "#%E0%A4%A", "#nowhere/no"])
def test_broken_links_open_a_room(page, address: str, link: str) -> None:
    go(page, address, link)
    page.wait_for_selector("figure .main-svg", timeout=WAIT)
    page.keyboard.press("Tab")
    page.locator(".skip").click()
    assert page.evaluate("document.activeElement.id") == "view"
    assert "main" not in page.evaluate("location.hash")
