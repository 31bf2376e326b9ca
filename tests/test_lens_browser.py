"""The push lens in headless Chromium, by mouse and by keyboard."""

from __future__ import annotations

import os
import re
import shutil

import pytest
import torch

pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import expect, sync_playwright
from test_lens import HOSTILE, batch, page_of

from grpo_edu import Rollouts, read_completions, recipe
from grpo_edu.weights import Push

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
CONTRAST = """() => [...document.querySelectorAll("#list [data-t]")].map((span) => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
    const light = (colour) => {
        canvas.fillStyle = colour;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((x) => {
            const part = x / 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const style = getComputedStyle(span);
    const own = style.backgroundColor === "rgba(0, 0, 0, 0)" ? document.body : span;
    const [low, high] = [style.color, getComputedStyle(own).backgroundColor].map(light).sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
}).reduce((least, ratio) => Math.min(least, ratio), 21)"""


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Opens a page; at the end nothing may have failed, asked for an address, or opened a dialog."""
    pages = []
    trouble = []

    def go(text, width=1400, **options):
        (tmp_path / "lens.html").write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900}, **options)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
        page.on("console", lambda line: trouble.append(line.text) if line.type == "error" else None)
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith("file:") else trouble.append(request.url)
            ),
        )
        page.goto((tmp_path / "lens.html").as_uri())
        if options.get("java_script_enabled", True):
            page.locator("#list article").first.wait_for()
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.close()
    assert trouble == []


def token(page, row, t, k=0):
    return page.locator(f'article[data-row="{row}"] [data-recipe="{k}"] [data-t="{t}"]')


def number(text: str) -> float:
    return float(text.replace("−", "-").replace("+", "").removesuffix(" %"))


def ledger(page, factor) -> list[float]:
    return [number(text) for text in page.locator(f'[data-factor="{factor}"]').all_inner_texts()]


def rows(page) -> list[int]:
    return page.evaluate(
        "[...document.querySelectorAll('#list article h3')].map((h) => Number(h.textContent.split(' ')[1]))"
    )


def many(count: int) -> Rollouts:
    """Completions of 40 to 99 tokens, 4 to a prompt."""
    lengths = [40 + (7 * k) % 60 for k in range(count)]
    tokens = [[f"w{k}.{t} " for t in range(length)] for k, length in enumerate(lengths)]
    return Rollouts.from_lengths(
        lengths,
        [k % 3 == 0 for k in range(count)],
        [k // 4 for k in range(count)],
        ratio=[1 + (k % 5) / 10 for k in range(count)],
        max_new_tokens=100,
        tokens=tokens,
    )


def test_pointing_at_a_token_shows_its_ledger_in_every_recipe(opened):
    names = ["grpo", "dr_grpo"]
    page = opened(page_of(names))
    ledgers = [Push.of(recipe(name), batch()).ledger() for name in names]
    for i, t in ((0, 1), (2, 3), (1, 0)):
        token(page, i, t).hover()
        entries = [
            table[(table["completion"] == i) & (table["position"] == t)].iloc[0]
            for table in ledgers
        ]
        for factor in ("advantage", "W", "ratio", "gate", "push"):
            assert ledger(page, factor) == [float(f"{entry[factor]:.4g}") for entry in entries]
        assert ledger(page, "share") == [float(f"{100 * x['share']:.4g}") for x in entries]
    page.mouse.move(5, 5)
    expect(page.locator("#ledger")).to_contain_text("No token chosen yet")


def test_marks_say_up_down_clipped_and_not_trained(opened):
    page = opened(page_of(["grpo"]))
    push = Push.of(recipe("grpo"), batch())
    for i in range(6):
        for t in range(4):
            marks = set(token(page, i, t).get_attribute("class").split())
            assert ("out" in marks) == (not push.rollouts.mask[i, t])
            assert ("up" in marks) == bool(push.token[i, t] > 0)
            assert ("down" in marks) == bool(push.token[i, t] < 0)
            assert ("clipped" in marks) == bool(push.clipped[i, t])
    assert push.clipped.any()


def test_a_hostile_file_is_only_text(opened):
    page = opened(page_of(["grpo"]))
    assert page.locator("#list img, #list script").count() == 0
    assert token(page, 0, 0).text_content() == HOSTILE[0]
    assert token(page, 0, 3).text_content() == "\\u{2028}\\u{1b}[31m\\u{0}\\u{202e}"
    token(page, 0, 1).click()
    expect(page.locator("#ledger code")).to_have_text(HOSTILE[1])
    assert page.locator("#ledger img").count() == 0
    page.locator("#list summary").first.click()
    expect(page.locator("#list .prompt").first).to_have_text("<b>first</b>")


def test_the_keyboard_moves_between_tokens_and_completions(opened):
    page = opened(page_of(["grpo", "dr_grpo"]))
    page.select_option("#order", "file")
    page.uncheck("#descending")
    page.focus("#list")
    for key, place in (
        ("ArrowRight", (0, 0)),
        ("ArrowRight", (0, 1)),
        ("End", (0, 4)),
        ("ArrowRight", (0, 4)),
        ("ArrowDown", (1, 3)),
        ("Home", (1, 0)),
        ("ArrowUp", (0, 0)),
        ("ArrowUp", (0, 0)),
    ):
        page.keyboard.press(key)
        expect(token(page, *place)).to_be_focused()
    assert token(page, 0, 0).evaluate("e => getComputedStyle(e).outlineStyle") == "solid"
    name = token(page, 0, 0).get_attribute("aria-label")
    assert re.search(
        r"token 0\. GRPO: push −[\d.]+, share −[\d.]+ %, clipped\. Dr\. GRPO: push 0", name
    )
    expect(page.locator("#status")).to_have_text(name)
    page.keyboard.press("Shift+Tab")
    expect(page.locator('article[data-row="0"] summary')).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator('article[data-row="0"] .prompt')).to_be_visible()


def test_a_recipe_is_chosen_and_two_stand_side_by_side(opened):
    page = opened(page_of(["grpo", "dr_grpo"]))
    assert page.locator('article[data-row="0"] [data-recipe]').count() == 2
    page.get_by_label("Dr. GRPO", exact=True).check()
    assert page.locator('article[data-row="0"] [data-recipe]').count() == 1
    token(page, 0, 0, k=1).click()
    assert len(ledger(page, "push")) == 1
    page.get_by_label("side by side").check()
    assert len(ledger(page, "push")) == 2


@pytest.mark.parametrize("key", ["size", "share", "mean", "length", "reward", "file"])
def test_completions_are_sorted(opened, key):
    rollouts = read_completions()
    page = opened(page_of(["grpo", "dr_grpo"], rollouts))
    table = Push.of(recipe("grpo"), rollouts).summary()
    values = {
        "size": table["share"].abs(),
        "share": table["share"],
        "mean": table["push_per_token"],
        "length": table["length"],
        "reward": table["reward"],
        "file": table["completion"],
    }[key]
    values = values.map(lambda x: float(f"{x:.4g}"))
    page.select_option("#order", key)
    for descending in (True, False):
        page.set_checked("#descending", descending)
        expected = values.sort_values(ascending=not descending, kind="stable").index.tolist()
        shown = rows(page)
        assert len(shown) >= 5
        assert shown == expected[: len(shown)]


def test_only_what_is_near_the_screen_is_in_the_document_and_all_is_reached(opened):
    page = opened(page_of(["rloo", "dr_grpo"], many(400)))
    page.select_option("#order", "file")
    page.uncheck("#descending")
    seen = set()
    for _ in range(400):
        shown = rows(page)
        assert len(shown) < 25
        assert shown == list(range(shown[0], shown[0] + len(shown)))
        seen |= set(shown)
        if 399 in seen:
            break
        page.mouse.wheel(0, 1000)
        page.wait_for_timeout(30)
    assert seen == set(range(400))
    assert page.locator('article[data-row="399"]').get_attribute("aria-posinset") == "400"
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function("document.querySelector('article[data-row=\"0\"]')")


def test_a_token_stays_in_focus_when_it_is_scrolled_away(opened):
    page = opened(page_of(["rloo"], many(200)))
    page.focus("#list")
    page.keyboard.press("ArrowRight")
    row = page.evaluate("document.activeElement.closest('article').dataset.row")
    page.evaluate("scrollTo(0, 20000)")
    page.wait_for_function(f"!document.querySelector('article[data-row=\"{row}\"]')")
    expect(page.locator("#list")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(token(page, row, 1)).to_be_focused()
    expect(token(page, row, 1)).to_be_in_viewport()


def test_scrolling_up_does_not_jump(opened):
    page = opened(page_of(["rloo"], many(300)))
    page.evaluate("scrollTo(0, 15000)")
    page.wait_for_timeout(100)
    for _ in range(20):
        row, before = page.evaluate(
            """() => { const e = [...document.querySelectorAll("article")].find((e) =>
                 e.getBoundingClientRect().top > 50);
               return [e.dataset.row, e.getBoundingClientRect().top]; }"""
        )
        page.evaluate("scrollBy(0, -200)")
        page.wait_for_timeout(50)
        after = page.locator(f'article[data-row="{row}"]').bounding_box()["y"]
        assert after - before == pytest.approx(200, abs=2)


def test_a_long_completion_is_drawn_in_pieces(opened):
    rollouts = Rollouts.from_lengths(
        [5000, 3], [1, 0], tokens=[[f"w{t} " for t in range(5000)], ["a"] * 3]
    )
    page = opened(page_of(["rloo"], rollouts))
    token(page, 0, 0).click()
    assert page.locator("[data-t]").count() < 2500
    page.keyboard.press("End")
    expect(token(page, 0, 4999)).to_be_focused()
    assert page.locator("[data-t]").count() < 2500


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 700, 1400])
def test_text_can_be_read_and_nothing_is_wider_than_the_page(opened, width, scheme):
    page = opened(
        page_of(["grpo", "dr_grpo", "sapo"], read_completions()), width, color_scheme=scheme
    )
    page.locator('[name="recipe"]').last.check()
    page.locator("details.formulas").evaluate("e => { e.open = true }")
    page.locator("#list summary").first.click()
    page.focus("#list")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(CONTRAST) >= 4.5
    wide = page.evaluate(
        """() => [...document.querySelectorAll("#lens *")].filter((e) =>
             e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []


def test_without_javascript_there_is_a_table(opened):
    page = opened(page_of(["grpo"], read_completions()), java_script_enabled=False)
    expect(page.locator("noscript table tr")).to_have_count(81)
    expect(page.locator("noscript table")).to_be_visible()


def test_a_batch_without_a_trained_token_in_a_row_and_without_push(opened):
    rollouts = Rollouts.from_lengths([2, 2], [1, 1], tokens=[["a", "b"]] * 2)
    page = opened(page_of(["rloo"], rollouts))
    token(page, 1, 1).click()
    assert ledger(page, "push") == [0.0]


def test_a_wide_batch_of_one_recipe_with_a_correction(opened):
    base = batch()
    rollouts = Rollouts(
        **{
            name: getattr(base, name)
            for name in ("logp", "old_logp", "ref_logp", "mask", "reward", "group", "tokens")
        },
        scored=base.scored,
        sampler_logp=base.old_logp - 0.3,
    )
    from functools import partial

    from grpo_edu.objective.corrections import truncated_is

    loss = recipe("dr_grpo").but(
        "mine", correction=partial(truncated_is, cap=2.0), aggregation=recipe("grpo").aggregation
    )
    page = opened(page_of([loss], rollouts))
    token(page, 0, 1).click()
    assert ledger(page, "correction") == [float(f"{torch.tensor(0.3).double().exp():.4g}")]
    expect(page.locator("#ledger")).to_contain_text("ratio · gate · correction")
