"""The page in a real browser: search, click, colour, upload, and what it says when something goes wrong."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from web_server import Server, encoded, picture

pytestmark = pytest.mark.browser

QUIET = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
ARGUMENTS = [*QUIET.split(), "--disable-component-update", "--disable-sync"]
PATIENCE = 20_000  # milliseconds


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no chromium on this machine: apt install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    """A new window on the page. Whatever the browser complains of fails the test, unless the test expects it."""
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.complaints = []
    page.on("console", lambda said: page.complaints.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: page.complaints.append(str(error)))
    page.goto(server.url)
    yield page
    context.close()
    own = "willReadFrequently"  # said of these tests, which read canvases back
    assert [said for said in page.complaints if own not in said] == []


def search(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.press("#text", "Enter")
    page.wait_for_selector(f'#grid[data-done="{text}"]')


def ids_of(page: Any, part: str) -> list[str]:
    return [card.get_attribute("data-id") for card in page.locator(f"#{part} .card").all()]


def canvas_sum(page: Any, selector: str) -> int:
    """How opaque a canvas is, all in all."""
    script = """(canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height)
                .data.reduce((sum, value, at) => sum + (at % 4 === 3 ? value : 0), 0)"""
    return int(page.eval_on_selector(selector, script))


def test_searching_shows_ranked_cards_with_heatmaps_and_both_stages(page: Any) -> None:
    search(page, "a red hat")
    assert page.locator("#grid .card").count() == 24
    assert page.locator("#grid .card.mapped").count() == 24
    assert canvas_sum(page, "#grid .card canvas") > 0
    assert "24 found in" in page.inner_text("#status")
    assert page.url.endswith("?q=a%20red%20hat")
    page.click("#as-pair")
    ids = {side: ids_of(page, side) for side in ("first", "second", "grid")}
    assert ids["second"] == ids["grid"]
    assert ids["first"] != ids["second"]
    assert page.is_visible("#first .card >> nth=0")
    assert not page.is_visible("#grid")


def test_typing_is_enough(page: Any) -> None:
    page.locator("#text").press_sequentially("two dogs", delay=10)
    page.wait_for_selector('#grid[data-done="two dogs"]')


def test_clicking_a_card_colours_the_phrases_of_the_sentence(page: Any) -> None:
    search(page, "a red hat beside a small dog")
    page.click("#grid .card >> nth=2")
    page.wait_for_selector(".stage[data-shows=phrases]")
    assert page.locator("#coloured mark").all_inner_texts() == ["red hat", "small dog"]
    colours = [one.evaluate("(m) => m.style.getPropertyValue('--c')") for one in page.locator("#coloured mark").all()]
    assert len(set(colours)) == 2
    assert page.locator("#legend li").count() == 2
    both = canvas_sum(page, ".stage canvas")
    page.hover("#legend li >> nth=1")
    alone = canvas_sum(page, ".stage canvas")
    assert 0 < alone < both
    page.mouse.move(5, 5)
    page.locator("label.switch:has(#sink)").click()
    assert canvas_sum(page, ".stage canvas") > both
    page.keyboard.press("Escape")
    assert not page.is_visible("dialog")


def test_masks_captions_answers_and_boxes(page: Any) -> None:
    search(page, "a hat")
    page.click("#grid .card >> nth=0")
    page.click("#tab-masks")
    page.fill("#classes", "sky\nsea, water\nsand")
    page.click("#masks .go")
    page.wait_for_selector(".stage[data-shows=classes]")
    assert sorted(page.locator("#shares span").all_inner_texts()) == ["sand", "sea", "sky"]
    assert canvas_sum(page, ".stage canvas") > 0
    page.click("#tab-talk")
    page.click("#caption")
    page.wait_for_selector("#said li")
    page.fill("#question input", "what is it?")
    page.press("#question input", "Enter")
    page.wait_for_selector("#said li >> nth=1")
    page.fill("#locate input", "a hat")
    page.press("#locate input", "Enter")
    page.wait_for_selector(".stage[data-shows=box]")
    frame, box = (page.locator(f".stage {one}").bounding_box() for one in ("img", ".box"))
    for corner, length in (("x", "width"), ("y", "height")):
        assert frame[corner] - 1 <= box[corner]
        assert box[corner] + box[length] <= frame[corner] + frame[length] + 1


def test_the_keyboard_reaches_everything(page: Any) -> None:
    search(page, "a hat")
    page.focus("#heat")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    cards = page.locator("#grid .card")
    assert page.evaluate("document.activeElement.dataset.id") == cards.nth(1).get_attribute("data-id")
    page.keyboard.press("Enter")
    page.wait_for_selector(".stage[data-shows=phrases]")
    page.focus("#tab-words")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("#name") == cards.nth(2).get_attribute("data-id")
    page.wait_for_selector(".stage[data-shows=phrases]")
    page.keyboard.press("Escape")
    third = cards.nth(2).get_attribute("data-id")  # a browser says that a dialog was closed a moment later
    page.wait_for_function("id => document.activeElement.dataset.id === id", arg=third)


def drop(page: Any, data: bytes, name: str, kind: str) -> None:
    """What a hand does with a file, as events."""
    script = """([bytes, name, kind]) => {
        const files = new DataTransfer();
        files.items.add(new File([new Uint8Array(bytes)], name, { type: kind }));
        for (const what of ["dragover", "drop"])
          document.body.dispatchEvent(new DragEvent(what, { dataTransfer: files, bubbles: true, cancelable: true }));
    }"""
    page.evaluate(script, [list(data), name, kind])


def test_a_dropped_picture_is_looked_at_and_searched_with(page: Any) -> None:
    drop(page, encoded(picture(11)), "mine.png", "image/png")
    page.wait_for_selector("dialog[open]")
    assert page.inner_text("#name") == "mine.png"
    page.fill("#sentence", "a blue boat")
    page.press("#sentence", "Enter")
    page.wait_for_selector(".stage[data-shows=phrases]")
    page.click("#alike")
    page.wait_for_selector('#grid[data-done=""]')
    assert page.locator("#grid .card").first.get_attribute("data-id") == "11.png"
    page.click("#brought button")
    page.wait_for_selector("#grid .card", state="detached")


def test_a_chosen_picture_joins_the_words(page: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.png").write_bytes(encoded(picture(12)))
    page.set_input_files("#file", tmp_path / "mine.png")
    page.wait_for_selector('#grid[data-done=""]')
    assert page.locator("#grid .card").first.get_attribute("data-id") == "12.png"
    search(page, "a hat")
    assert page.is_visible("#brought")


def test_a_broken_upload_is_said_to_be_broken(page: Any, broken: Path) -> None:
    page.set_input_files("#file", broken)
    page.wait_for_selector("#trouble:not([hidden])")
    assert "broken.jpg" in page.inner_text("#trouble")
    assert "undecodable" in page.inner_text("#trouble")
    page.complaints.clear()  # the browser reports the 422 too


def test_a_cut_text_and_a_busy_server_are_said(page: Any) -> None:
    search(page, " ".join(["word"] * 200))
    assert "cut" in page.inner_text("#trouble")
    busy = {"status": 503, "content_type": "application/json", "body": '{"detail": "busy: try again"}'}
    page.route("**/api/search/stream", lambda route: route.fulfill(**busy))
    page.fill("#text", "anything")
    page.get_by_text("busy: try again").wait_for()
    page.complaints.clear()


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_window(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 780})
    search(page, "a hat")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("#as-pair")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.click("#second .card >> nth=0")
    page.wait_for_selector(".stage[data-shows=phrases]")
    assert page.evaluate("document.querySelector('dialog').scrollWidth") <= width
    sizes = page.evaluate(
        "[...document.querySelectorAll('dialog button')].filter((b) => b.offsetParent).map((b) => b.offsetHeight)"
    )
    assert min(sizes) >= 36


def test_the_dark_page_is_dark_and_can_be_turned(browser: Any, server: Server) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(server.url)

    def brightness() -> int:
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))

    assert brightness() < 150
    page.click("#theme")
    assert brightness() > 600
    page.reload()
    assert brightness() > 600
    context.close()


def test_the_documentation_page_lists_every_call(page: Any, server: Server) -> None:
    page.goto(f"{server.url}/docs")
    page.wait_for_selector("article >> nth=8")
    assert "/api/search/stream" in page.inner_text("#paths")
