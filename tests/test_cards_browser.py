"""Formula cards in a real browser: every formula is laid out, nothing runs over the page at any width."""

from __future__ import annotations

import os
import shutil

import pytest

pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import sync_playwright

from grpo_edu.cards import card_names, cards_page

CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]
# formulas without a size, with an error node, or wider than a scrolling parent can show
BROKEN = """() => [...document.querySelectorAll("math")].filter((m) => {
    const box = m.getBoundingClientRect();
    return box.width < 2 || box.height < 5 || m.querySelector("merror");
}).map((m) => m.closest("article").id + ": " + m.textContent)"""
OVER = """() => [...document.querySelectorAll("article *")].filter((e) => {
    if (e.closest(".formula, .wide, .symbols li, pre, td, th, svg") && !e.matches(".formula, .wide, .symbols li, pre, td, th"))
        return false;
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.right > window.innerWidth + 1;
}).map((e) => e.closest("article").id + ": " + e.tagName + " " + e.className)"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("cards") / "cards.html"
    path.write_text(cards_page(), encoding="utf-8")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.goto(path.as_uri())
        yield page
        browser.close()


@pytest.mark.parametrize("width", [390, 680, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_formula_is_drawn_and_nothing_overflows(page, width, scheme):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    assert page.locator("article").count() == len(card_names())
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(OVER) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_factor_has_its_colour(page):
    colours = {
        name: page.locator(f"#card-grpo .formula .factor.{name}").first.evaluate(
            "e => getComputedStyle(e).color"
        )
        for name in ("advantage", "W", "ratio", "kl")
    }
    assert len(set(colours.values())) == 4
