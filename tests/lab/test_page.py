"""The page in a real browser: every room, sliders, simulations, links, bad values, keyboard, narrow screens."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deeplinear.lab.rooms import ROOMS

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT = 180_000
"""Milliseconds for what a page or an answer takes on a busy machine."""


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
    for width, narrower in ((1280, ()), (390, (360,))):
        page.set_viewport_size({"width": width, "height": 800})
        go(page, address, f"#{room}")
        page.wait_for_selector("figure .main-svg, figure table", timeout=WAIT)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for less in narrower:
            page.set_viewport_size({"width": less, "height": 800})
            until(page, f"document.documentElement.scrollWidth <= {less}")
            page.set_viewport_size({"width": width, "height": 800})
        assert page.locator("figure").first.bounding_box()["y"] < 650
        shown = page.locator("#rooms a[aria-current]").bounding_box()
        assert shown["x"] >= 0 and shown["x"] + shown["width"] <= width
        assert page.locator("[role=alert]:visible").count() == 0
        page.goto("about:blank")


@pytest.mark.slow
def test_a_slider_changes_the_curve_and_the_address(page, address: str) -> None:
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    before = curve(page, "modes")
    labels = page.locator('figure[data-figure="loss"] .ytick').all_inner_texts()
    assert len(labels) > 2 and not {"2", "5"} & set(labels)  # powers of ten
    picture, mathematics = (page.locator(place).first.bounding_box() for place in ("figure", ".mathematics[open] math"))
    assert mathematics["x"] > picture["x"] + picture["width"]  # beside it
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
    for key, end in (("End", "3"), ("Home", "0.001")):  # of a logarithmic slider, exactly
        page.get_by_label("Absolute scale", exact=True).press(key)
        assert page.get_by_label("Absolute scale, number").input_value() == end


@pytest.mark.slow
def test_bad_values_are_refused_with_a_sentence_and_the_page_goes_on(page, address: str) -> None:
    go(page, address, "#lazy-rich/curves?lam=1e999&seed=abc")  # values of a link are made to fit
    answered(page, 1)
    number = page.get_by_label("Relative scale λ, number")
    assert number.input_value() == "10"
    told = page.locator(".adjusted").inner_text()
    assert told == "Relative scale λ: too large for this view, now 10. Seed: not readable, now as at first."

    refusal = {"error": {"kind": "value", "message": "Not with this λ.", "fields": ["lam"]}}  # the server refuses
    page.route("**/lazy-rich/curves", lambda route: route.fulfill(status=409, json=refusal))
    number.fill("2,5")
    number.press("Enter")
    assert number.input_value() == "2.5"
    alert = page.locator("#message")
    alert.wait_for(timeout=WAIT)
    assert "Not with this λ." in alert.inner_text()
    page.complaints.clear()  # the browser notes the refused request
    assert number.get_attribute("aria-invalid") == "true"
    assert "message" in number.get_attribute("aria-describedby")
    page.unroute("**/lazy-rich/curves")
    alert.get_by_role("button", name="Reset all values").click()
    alert.wait_for(state="hidden", timeout=WAIT)
    assert number.get_attribute("aria-invalid") == "false" and number.input_value() == "0"
    until(page, "location.hash === '#lazy-rich/curves'")

    inputs = page.get_by_label("Inputs, number")
    for text, sentence in (
        ("", "must be a number"),
        ("2,7", "whole number"),
        ("1,000", "1000 or 1.000"),
        ("77", "between 1 and 8"),
    ):
        inputs.fill(text)
        inputs.press("Enter")
        fault = page.locator(f"#{inputs.get_attribute('aria-describedby')}")
        assert "Inputs must be" in fault.inner_text() and sentence in fault.inner_text()
        assert inputs.get_attribute("aria-invalid") == "true"
    page.wait_for_timeout(100)
    assert page.evaluate("location.hash") == "#lazy-rich/curves"
    inputs.fill("4")
    inputs.press("Enter")
    assert page.locator(".fault:visible").count() == 0


@pytest.mark.slow
def test_waiting_missing_commands_and_neighbours(page, address: str) -> None:
    """With a server that is slow, knows no command, has a pair of values in order, and one that matters sometimes."""
    held: list = []

    def rooms(route) -> None:
        found = route.fetch().json()
        curves = found[0]["views"][0]
        curves["has_command"] = False
        curves["parameters"]["properties"]["inputs"]["below"] = "hidden"
        curves["parameters"]["properties"]["moment"]["only"] = {"hidden": [5, 7]}
        found[0]["views"][1]["parameters"]["properties"]["hidden"]["maximum"] = 4
        found[0]["presets"][0] = {"title": "Go", "about": "Seen at once.", "view": "simulation", "values": {}}
        route.fulfill(json=found)

    def hold(route) -> None:
        held.append(route)

    page.route("**/api/rooms", rooms)
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    button = page.get_by_role("button", name="Copy as command")
    assert button.get_attribute("aria-disabled") == "true" and "Python" in button.get_attribute("title")
    page.route("**/lazy-rich/curves", hold)
    top = page.locator("figure").first.bounding_box()["y"]
    sometimes = page.get_by_label("Look at (part of the horizon)", exact=True)
    assert sometimes.is_disabled() and page.locator(".only").inner_text() == "Only for Hidden width: 5 or 7"
    inputs, hidden = page.get_by_label("Inputs, number"), page.get_by_label("Hidden width, number")
    inputs.fill("6")
    inputs.press("Enter")
    assert hidden.input_value() == "7" and sometimes.is_enabled()
    hidden.fill("5")
    hidden.press("Enter")
    assert inputs.input_value() == "4"
    wait = page.locator(".wait")
    wait.wait_for(timeout=WAIT)
    assert "Computing" in wait.inner_text() and page.locator("figure").first.bounding_box()["y"] == top
    page.unroute("**/lazy-rich/curves")
    answer = page.request.post(f"{address}api/rooms/lazy-rich/curves", data={}).json()
    page.route("**/lazy-rich/curves", lambda route: route.fulfill(json=answer))
    for route in held:
        route.fulfill(json=answer)
    wait.wait_for(state="hidden", timeout=WAIT)

    page.route("**/lazy-rich/map", lambda route: route.fulfill(json=answer))
    page.get_by_role("tab", name="Phase map").click()  # takes fewer values
    assert page.locator(".adjusted").inner_text() == "Hidden width: too large for this view, now 4."
    assert hidden.input_value() == "4"
    busy = {"error": {"kind": "busy", "message": "Later.", "fields": []}}
    page.route("**/simulation/kept", lambda route: route.fulfill(status=204))
    page.route("**/simulation/runs", lambda route: route.fulfill(status=503, json=busy))
    preset = page.get_by_role("button", name="Go", exact=True)
    preset.click()  # a preset begins by itself
    page.wait_for_selector("#message:has-text('Later.')", timeout=WAIT)
    page.complaints.clear()  # the browser notes the refused request
    assert preset.get_attribute("aria-pressed") == "true" and page.locator(".chosen").inner_text() == "Seen at once."
    page.get_by_label("Relative scale λ", exact=True).press("ArrowRight")
    assert preset.get_attribute("aria-pressed") == "false" and page.locator(".chosen").inner_text() == ""


@pytest.mark.slow
def test_a_simulation_runs_and_another_is_cancelled(page, address: str) -> None:
    go(page, address, "#lazy-rich/simulation")
    page.get_by_role("button", name="Start", exact=True).click()
    page.wait_for_selector('figure[data-figure="gap"] .main-svg', timeout=WAIT)
    assert max(curve(page, "gap")) < 1e-4
    go(page, address, "#geometry/cloud?size=10&starts=200&horizon=2000&temperature=0.1")
    page.wait_for_selector("h1:has-text('geometry')")
    page.wait_for_selector("text=Press Start", timeout=WAIT)
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("text=cancelled", timeout=WAIT)
    assert page.get_by_role("button", name="Start", exact=True).is_enabled()
    go(page, address, "#lazy-rich/simulation")
    page.wait_for_selector("text=Kept from before", timeout=WAIT)
    assert max(curve(page, "gap")) < 1e-4
    go(page, address, "#completion/warm")
    page.wait_for_selector("h1:has-text('completion')")
    row = page.get_by_role("button", name="Add a row", exact=True).first
    assert row.get_attribute("aria-disabled") == "true" and "as many rows" in row.get_attribute("title")
    page.get_by_role("button", name="Add a row and a column").first.click()
    assert page.locator(".cells").first.locator("[aria-pressed=true]").count() == 4  # a larger diagonal


@pytest.mark.slow
def test_code_and_downloads(page, address: str, tmp_path: Path) -> None:
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy as Python").click()
    page.wait_for_selector("#toasts:has-text('Copied.')", timeout=WAIT)
    assert page.evaluate("document.activeElement.textContent") == "Copy"
    assert "LambdaBalanced(0.0, 1.0, absolute_scale=0.1)" in page.evaluate("navigator.clipboard.readText()")
    assert "LambdaBalanced(0.0, 1.0, absolute_scale=0.1)" in page.locator("dialog pre").inner_text()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Copy as command").click()
    assert page.locator("dialog pre").inner_text().startswith("dln exact --widths 4,3,3")
    page.keyboard.press("Escape")
    page.route("**/code", lambda route: route.fulfill(json={"python": "print(1)", "command": None}))
    page.get_by_role("button", name="Copy as command").click()
    assert "for these values" in page.locator("dialog").inner_text()
    page.get_by_role("button", name="Show the script").click()
    assert page.locator("dialog pre").inner_text() == "print(1)"
    page.keyboard.press("Escape")
    for button, ending in (("CSV", "csv"), ("SVG", "svg")):
        with page.expect_download(timeout=WAIT) as found:
            page.locator('figure[data-figure="modes"]').get_by_role("button", name=button).click()
        path = tmp_path / f"modes.{ending}"
        found.value.save_as(path)
        assert path.read_text().startswith("series,time,singular value" if ending == "csv" else "<svg")
    cells = (tmp_path / "modes.csv").read_text().replace("\n", ",").split(",")
    assert max(len(cell) for cell in cells) >= 12  # nearly all digits


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
    before = float(number.input_value())
    plot = place.locator(".plot")
    plot.press("ArrowRight")
    assert float(number.input_value()) == pytest.approx(before + 0.4, abs=0.01)
    plot.press("Shift+ArrowLeft")
    assert float(number.input_value()) == pytest.approx(before - 1.6, abs=0.01)
    assert f"Relative scale λ {number.input_value()}" in page.locator("#spoken").inner_text()


@pytest.mark.slow
def test_on_a_phone_the_pictures_stay_in_view(page, address: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    sheet = page.locator(".controls summary")
    assert "Relative scale λ 0" in sheet.inner_text()
    assert page.locator(".mathematics[open]").count() == 0
    sheet.click()
    page.get_by_label("Relative scale λ", exact=True).press("ArrowRight")
    figure = page.locator("figure").first.bounding_box()
    assert figure["y"] >= 0 and figure["y"] + 300 < page.locator(".controls").bounding_box()["y"]


@pytest.mark.slow
def test_tabs_name_their_panel_and_facts_are_read_out(page, address: str) -> None:
    go(page, address, "#lazy-rich/curves")
    answered(page, 1)
    assert page.locator("[role=tabpanel] [role=tablist]").count() == 0
    panel = page.locator("[role=tabpanel]")
    for key, name in (("End", "simulation"), ("ArrowRight", "curves"), ("ArrowLeft", "simulation"), ("Home", "curves")):
        page.locator("[role=tab][aria-selected=true]").press(key)
        assert panel.get_attribute("aria-labelledby") == f"tab-{name}" == page.evaluate("document.activeElement.id")
    until(page, "document.getElementById('spoken').textContent.includes('Regime: rich.')")


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
    assert page.locator(".fact:has-text('Claims held')").inner_text().endswith("none yet")
    assert page.locator(".fact.good").count() == 0
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
