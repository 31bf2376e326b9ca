"""The stepper in headless Chromium, by mouse and by keyboard."""

import re

import pytest

pytest.importorskip("anywidget", reason="the explorer needs anywidget")
pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import expect
from test_explorers_browser import browser, open_page, pytestmark  # noqa: F401

from grpo_edu import RECIPES
from grpo_edu.widgets.stepper import PRESETS, Stepper

STAGES = [
    "reward",
    "mean",
    "centred",
    "std",
    "advantage",
    "ratio",
    "clip or gate",
    "W",
    "push",
    "share",
]


def gates(page, recipe, row):
    """The texts of the tokens of one answer."""
    return page.locator(f'[data-recipe="{recipe}"] [data-row="{row}"] .cell').all_text_contents()


def current(page):
    return page.locator(".stages [aria-current]").text_content()


def test_the_keys_step_from_reward_to_share_and_back(open_page):  # noqa: F811
    page = open_page(Stepper(["gspo"]))
    assert current(page) == "reward"
    expect(page.locator(".numbers")).to_have_text("r = 1")
    seen = ["reward"]
    for _ in STAGES[1:]:
        page.keyboard.press("ArrowRight")
        seen.append(current(page))
    assert seen == STAGES
    page.keyboard.press("ArrowRight")
    assert current(page) == "share"
    expect(page.get_by_role("button", name="one step forward")).to_be_disabled()
    page.keyboard.press("ArrowLeft")
    assert current(page) == "push"
    page.keyboard.press("Home")
    assert current(page) == "reward"
    page.keyboard.press("End")
    assert current(page) == "share"


def test_buttons_and_the_list_of_stages_step_too(open_page):  # noqa: F811
    page = open_page(Stepper(["grpo"]))
    page.get_by_role("button", name="one step forward").click()
    expect(page.locator(".numbers")).to_have_text("mean = (1 + 0 + 0 + 0)/4 = 1/4")
    page.get_by_role("button", name="stage W").click()
    expect(page.locator(".numbers")).to_have_text("W = 1/4 · 1/4 = 0.0625")
    page.get_by_role("button", name="one step back").press("Enter")
    assert current(page) == "clip or gate"


def test_one_factor_is_lit_those_before_are_reached_and_those_after_are_grey(open_page):  # noqa: F811
    page = open_page(Stepper(["grpo"], stage="ratio"))
    push = page.locator(".formula.push")
    expect(push.locator(".factor.lit")).to_have_class(re.compile("ratio"))
    expect(push.locator(".factor.reached")).to_have_class(re.compile("advantage"))
    ahead = [node.get_attribute("class") for node in push.locator(".factor.ahead").all()]
    assert [name.split()[1] for name in ahead] == ["W", "gate", "kl"]
    page.keyboard.press("Home")
    assert gates(page, "grpo", 0) == [""] * 4


def test_the_screen_says_why_gspo_cuts_an_answer_and_grpo_one_token(open_page):  # noqa: F811
    page = open_page(Stepper(["grpo", "gspo"], stage="gate"))
    assert gates(page, "grpo", 0) == ["0", "1", "1", "1"]
    assert gates(page, "gspo", 0) == ["0"] * 4
    note = page.locator('[data-recipe="gspo"] [data-row="0"] .note')
    expect(note).to_have_text("whole answer cut: s = 1.012 > 1 + 0.0004, A > 0")
    expect(page.locator('[data-recipe="gspo"] .say')).to_contain_text(
        "All 4 tokens share this one ratio"
    )
    expect(page.locator(".spoken")).to_contain_text(
        "Step 7 of 11, clip or gate. grpo: ρ = 1.5 > 1 + 0.2"
    )


def test_a_token_is_chosen_by_a_click_dragged_and_typed(open_page):  # noqa: F811
    page = open_page(Stepper(["gspo"], stage="gate"))
    cell = page.locator('[data-row="2"] .cell').nth(1)
    cell.click()
    expect(page.get_by_label("answer of the token")).to_have_value("3")
    expect(page.get_by_label("place of the token")).to_have_value("2")
    box = cell.bounding_box()
    page.mouse.move(box["x"] + 10, box["y"] + 10)
    page.mouse.down()
    page.mouse.move(box["x"] + 10, box["y"] + 30, steps=4)  # 20 pixels down: 0.1 less
    page.mouse.up()
    expect(page.get_by_label("new probability of the token", exact=True)).to_have_value("0.1")
    assert gates(page, "gspo", 2) == ["0"] * 4  # s < 1, A < 0
    page.get_by_label("new probability of the token", exact=True).fill("0.2")
    assert gates(page, "gspo", 2) == ["1"] * 4
    page.get_by_label("new probability of the token, by slider").press("ArrowLeft")
    expect(page.get_by_label("new probability of the token", exact=True)).to_have_value("0.19")
    assert current(page) == "clip or gate"  # an arrow in a slider does not step


def test_rewards_lengths_answers_and_presets_change_the_batch(open_page):  # noqa: F811
    page = open_page(Stepper(["grpo"], stage="baseline"))
    page.get_by_label("reward of answer 2").fill("1")
    expect(page.locator(".numbers")).to_have_text("mean = (1 + 1 + 0 + 0)/4 = 1/2")
    page.get_by_label("tokens of answer 3").fill("7")
    expect(page.locator('[data-row="2"] .cell')).to_have_count(7)
    page.get_by_label("answers", exact=True).fill("2")
    expect(page.locator(".answer")).to_have_count(2)
    expect(page.locator(".numbers")).to_have_text("mean = (1 + 1)/2 = 1")
    page.get_by_label("start from", exact=True).select_option("two questions")
    expect(page.locator(".caption")).to_have_text(PRESETS["two questions"]["caption"])
    expect(page.locator(".answer")).to_have_count(4)
    page.get_by_label("reward of answer 1").fill("0")
    expect(page.get_by_label("start from", exact=True)).to_have_value("")
    expect(page.locator(".caption")).to_be_hidden()
    page.get_by_label("tokens of answer 1").fill("13")
    expect(page.locator(".message").first).to_have_text(
        "tokens is 13: expected a whole number, 1 to 12."
    )


@pytest.mark.parametrize(
    ("recipe", "shown"),
    [
        ("grpo", ["reference probability of the token"]),
        ("remax", ["greedy reward for answer 1"]),
        ("ppo", ["advantage of the token"]),
        ("ppo(gae)", ["value before the token"]),
        ("grpo(process)", ["step reward of the token", "reference probability of the token"]),
        ("gdpo", ["reward 1 of answer 1", "reward 2 of answer 1"]),
        ("reinforce++", ["reference probability of the token"]),
        ("dr_grpo", []),
    ],
)
def test_a_recipe_has_the_inputs_that_it_needs_and_no_others(open_page, recipe, shown):  # noqa: F811
    page = open_page(Stepper([recipe], preset="two answers of four tokens"))
    own = page.locator("[data-need]:visible input").all()
    names = [control.get_attribute("aria-label") for control in own]
    assert sorted(name for name in names if "answer 2" not in name) == sorted(shown)


def test_the_table_is_written_when_it_is_opened_and_follows_the_batch(open_page):  # noqa: F811
    page = open_page(Stepper(["dr_grpo"], preset="two answers of four tokens"))
    assert page.locator("tbody tr").count() == 0
    page.get_by_label("the numbers as a table").click()
    expect(page.locator("tbody tr")).to_have_count(8)
    page.get_by_label("tokens of answer 2").fill("6")
    expect(page.locator("tbody tr")).to_have_count(10)


def test_every_recipe_steps_through_without_an_error_and_its_formulas_render(open_page):  # noqa: F811
    page = open_page(Stepper(["grpo"]))
    for name in RECIPES:
        page.get_by_label("recipe 1").select_option(name)
        page.keyboard.press("Escape")
        page.locator(".picture").focus()
        page.keyboard.press("Home")
        while True:
            expect(page.locator(".say")).not_to_be_empty()
            assert page.locator("merror, .picture .message").count() == 0, name
            assert "undefined" not in page.locator(".picture").inner_text()
            if page.get_by_role("button", name="one step forward").is_disabled():
                break
            page.keyboard.press("ArrowRight")
        pushes = page.locator(".cell").evaluate_all(
            "cells => cells.map(c => Number(c.dataset.push))"
        )
        want = Stepper([name]).push(name)
        assert pushes == pytest.approx(
            want.token[want.rollouts.mask].tolist(), rel=1e-12, abs=1e-15
        )


@pytest.mark.parametrize(
    "recipes", [["grpo"], ["gspo"], ["ppo(gae)"], ["gdpo"], ["grpo", "gspo"]], ids=" ".join
)
def test_compact_needs_no_scrolling_in_a_frame_of_680_by_520(open_page, recipes):  # noqa: F811
    page = open_page(Stepper(recipes, compact=True))
    page.set_viewport_size({"width": 680, "height": 520})
    page.keyboard.press("Home")
    for _ in range(11):
        size = page.evaluate(
            "[document.documentElement.scrollHeight, document.documentElement.scrollWidth]"
        )
        assert size[0] <= 520, current(page)
        assert size[1] <= 680, current(page)
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("width", [390, 1200])
def test_nothing_is_wider_than_the_page(open_page, width):  # noqa: F811
    page = open_page(Stepper(["grpo", "gdpo"]), width)
    for _ in range(12):
        assert page.evaluate("document.documentElement.scrollWidth") <= width, current(page)
        page.keyboard.press("ArrowRight")


def test_focus_is_visible_and_motion_stays_away_where_it_is_not_wanted(open_page):  # noqa: F811
    page = open_page(Stepper(["grpo"]))
    page.get_by_role("button", name="one step forward").focus()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.emulate_media(reduced_motion="reduce")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.numbers')).animationName")
        == "none"
    )
    page.emulate_media(reduced_motion="no-preference")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.numbers')).animationName")
        == "appear"
    )
