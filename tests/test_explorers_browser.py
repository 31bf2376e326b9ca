"""The explorers in a real browser: the saved page in headless Chromium, and a notebook in JupyterLab."""

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("anywidget", reason="the explorer needs anywidget")
pytest.importorskip("playwright", reason="playwright is not installed")

from playwright.sync_api import expect, sync_playwright

from grpo_edu import Rollouts, ledger
from grpo_edu.completions import read_completions, shipped
from grpo_edu.widgets.advantage import AdvantageExplorer
from grpo_edu.widgets.aggregation import AggregationExplorer
from grpo_edu.widgets.clip import ClipExplorer
from grpo_edu.widgets.dapo import PARTS, DapoExplorer
from grpo_edu.widgets.difficulty import DifficultyExplorer
from grpo_edu.widgets.explorers import EXPLORERS
from grpo_edu.widgets.kl import KLExplorer
from grpo_edu.widgets.predict import Predict
from grpo_edu.widgets.step import StepExplorer
from grpo_edu.widgets.texts import RunViewer, TokenView
from grpo_edu.widgets.toy import ToyPlayer

CHROMIUM = (
    os.environ.get("CHROMIUM")
    or shutil.which("chromium")
    or shutil.which("chromium-browser")
    or shutil.which("google-chrome")
)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
LIMIT = 30  # seconds to wait for a state
KERNEL_IDLE = """() => { const w = window.jupyterapp?.shell?.currentWidget;
    return w?.sessionContext?.isReady && w.sessionContext.session?.kernel?.status === "idle" }"""
OVERLAPS = """() => [...document.querySelectorAll("svg")].flatMap((svg) => {
    const boxes = [...svg.querySelectorAll("text")].map((t) => [t.textContent, t.getBoundingClientRect()]);
    const meet = (p, q) => p.left < q.right && q.left < p.right && p.top + 2 < q.bottom && q.top + 2 < p.bottom;
    return boxes.flatMap(([a, p], i) => boxes.slice(i + 1).filter(([b, q]) => meet(p, q)).map(([b]) => a + " | " + b));
})"""
CELLS = {
    "aggregation": """
import ipywidgets
from grpo_edu.widgets.aggregation import AggregationExplorer
explorer = AggregationExplorer(["grpo", "dr_grpo"])
heard = ipywidgets.HTML("nothing yet")
def hear(change):
    ratio = (explorer.rollouts().logp - explorer.rollouts().old_logp).exp()[0]
    heard.value = f"python: {explorer.rollouts().lengths.tolist()} ratio of token 1: {ratio[0]:.4f}"
explorer.observe(hear, ["lengths", "ratio"])
display(explorer, heard)
""",
    "advantage": "from grpo_edu.widgets.advantage import AdvantageExplorer\nAdvantageExplorer()",
    "difficulty": "from grpo_edu.widgets.difficulty import DifficultyExplorer\nDifficultyExplorer()",
    "panels": """
from grpo_edu.widgets import labs
from grpo_edu.widgets.updates import reuse_lab
display(labs.accumulation_lab(), reuse_lab())
""",
    "slow": """
import time
from grpo_edu.widgets.panel import Panel, slider
def draw(n):
    time.sleep(2 * (n > 1))
    return f"<n is {n}>"
Panel(draw, {"n": slider("n", 1, 9, 1, 1)})
""",
    "clip": "from grpo_edu.widgets.clip import ClipExplorer\nClipExplorer()",
}
SERVER = "notebook" if importlib.util.find_spec("notebook") else "jupyterlab"
QUIET = '{"fetchNews": "false", "checkForUpdates": false, "doNotDisturbMode": true}'
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        CHROMIUM is None, reason="chromium is not installed; set CHROMIUM to its path"
    ),
]


@pytest.fixture(scope="module")
def browser():
    expect.set_options(timeout=LIMIT * 1000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser, tmp_path):
    """Opens the saved page of an explorer; at the end of the test nothing may have failed or called the network."""
    pages, trouble = [], []

    def go(explorer, width=1200, height=900):
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(LIMIT * 1000)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("console", lambda line: trouble.append(line.text) if line.type == "error" else None)
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(("file:", "blob:")) else trouble.append(request.url)
            ),
        )
        page.goto(explorer.save_html(tmp_path / "page.html").as_uri())
        page.locator(".grpo-explorer").wait_for()
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.close()
    assert trouble == []


def expect_number(locator, attribute, expected):
    """Waits until an attribute is this number, to 1e-12."""
    end = time.monotonic() + LIMIT
    while (found := float(locator.get_attribute(attribute))) != pytest.approx(expected, rel=1e-12):
        assert time.monotonic() < end, f"{attribute} is {found}; expected {expected}"
        locator.page.wait_for_timeout(20)


def cells(page, recipe, i):
    return row(page, recipe, i).locator(".cells")


def drawn_cells(page, recipe, those=""):
    """The number of cells in a panel, those of one colour are one path."""
    paths = page.locator(f'[data-recipe="{recipe}"] .fills path{those}')
    return sum(path.get_attribute("d").count("M") for path in paths.all())


def row(page, recipe, i):
    return page.locator(f'[data-recipe="{recipe}"] [data-row="{i}"]')


def test_every_completion_has_its_controls(open_page):
    page = open_page(AggregationExplorer())
    controls = page.locator(".grpo-explorer").locator("input, select, button, summary")
    assert controls.count() == 5 + 10 + 4 * 3 + 1
    for picture in page.locator(".panels svg").all():
        assert "of the step" in picture.locator("title").first.text_content()
    expect(page.get_by_role("button", name="reward of completion 2: wrong 0")).to_be_visible()


@pytest.mark.parametrize("kind", EXPLORERS.values(), ids=EXPLORERS)
def test_every_control_of_every_explorer_is_named_and_every_picture_is_described(open_page, kind):
    page = open_page(kind())
    controls = page.locator(".grpo-explorer").locator("input, select, button, summary")
    names = [control.get_attribute("aria-label") for control in controls.all()]
    assert all(names)
    assert len(set(names)) == len(names)
    assert all(
        control.get_attribute("data-lm-suppress-shortcuts") == "true" for control in controls.all()
    )
    for picture in page.locator("svg:not([aria-hidden])").all():
        grips = picture.locator("[tabindex]").count()  # what takes the focus is no part of an image
        assert picture.get_attribute("role") == ("group" if grips else "img")
        assert len(picture.locator("title").first.text_content()) > 20


def test_an_arrow_key_on_a_length_changes_the_cells_and_the_numbers(open_page):
    # grpo, one right of two, lengths 8 and 8: A = ±1/√2 (ddof 1), W = 1/(2·8); one more token: 1/(2·9)
    page = open_page(AggregationExplorer(["grpo", "dr_grpo"], [8, 8], [1, 0]))
    first = row(page, "grpo", 0)
    expect(cells(page, "grpo", 0)).to_have_attribute("data-cells", "8")
    expect_number(first, "data-push", 0.5**0.5 / 16)
    expect(first.locator("text").nth(1)).to_have_text("+0.0442")
    page.get_by_label("length of completion 1").press("ArrowRight")
    expect(cells(page, "grpo", 0)).to_have_attribute("data-cells", "9")
    assert drawn_cells(page, "grpo") == 9 + 8
    expect_number(first, "data-push", 0.5**0.5 / 18)
    expect(first.locator("text").nth(1)).to_have_text("+0.0393")
    expect(page.locator("table tbody tr").first).to_contain_text("+0.0393")
    expect(row(page, "dr_grpo", 0).locator("text").nth(2)).to_have_text(
        "+53 %"
    )  # 9 of 17 tokens, all pushed alike


def test_keyboard_alone_reaches_reward_ratio_recipe_and_the_second_prompt(open_page):
    page = open_page(AggregationExplorer(["grpo"], [4, 4, 4, 4], [1, 0, 1, 0]))
    page.get_by_label("reward of completion 2").press("Enter")
    page.get_by_label("reward of completion 4").press("Space")
    expect(page.locator(".note")).to_have_text("every reward is equal: no signal")
    expect(row(page, "grpo", 0)).to_have_attribute("data-push", "0")
    page.get_by_label("reward of completion 2").press("Enter")
    page.get_by_label("importance ratio of completion 1").press("End")
    expect(page.locator(".note")).to_have_text("clipped, so no gradient: completion 1")
    expect(page.locator(".why")).to_contain_text("ratio 2 · gate 0 = 0")
    assert drawn_cells(page, "grpo", '[fill^="url"]') == 4  # those of completion 1
    page.get_by_label("second prompt").press("Space")
    expect(page.locator(".who").nth(2)).to_have_text("prompt 2 · completion 3")
    expect(page.locator(".note").first).to_have_text("prompt 2: every reward is equal: no signal")
    page.get_by_label("recipe 2").select_option("cispo")
    expect(page.locator("section")).to_have_count(2)
    positive = re.compile(r"^[^-]*[1-9]")  # its cap of 5 leaves a ratio of 2 alone
    expect(row(page, "cispo", 0)).to_have_attribute("data-push", positive)


@pytest.mark.parametrize(
    ("label", "bad", "good", "message"),
    [
        ("completions", "9", "3", "completions is 9: expected a whole number, 1 to 8."),
        (
            "clip low",
            "-1",
            "",
            "clip low is -1: expected 0 or more, or nothing for the recipe's own.",
        ),
        (
            "C = max_new_tokens",
            "10",
            "70",
            "C is 10: expected at least 32, the longest completion.",
        ),
        ("micro-batches", "5", "4", "micro-batches is 5: expected a whole number, 1 to 4."),
        ("completions", "", "2", "completions is not a number: expected a whole number, 1 to 8."),
    ],
)
def test_a_wrong_input_shows_what_is_wrong_and_the_next_right_one_brings_the_picture_back(
    open_page, label, bad, good, message
):
    page = open_page(AggregationExplorer(["grpo", "bnpo"]))
    page.get_by_label(label, exact=True).fill(bad)
    expect(page.locator(".message").first).to_have_text(message)
    expect(page.locator("svg")).to_have_count(0)
    page.get_by_label(label, exact=True).fill(good)
    expect(page.locator("svg")).to_have_count(3)  # the bars of the probabilities, two panels
    expect(page.locator(".message").first).to_be_hidden()


def test_a_group_of_one_is_refused_in_the_panels_that_compare_and_drawn_in_the_one_that_does_not(
    open_page,
):
    page = open_page(AggregationExplorer(["reinforce", "grpo"]))
    page.get_by_label("completions", exact=True).fill("1")
    expect(page.locator('[data-recipe="grpo"] .message')).to_contain_text(
        "group size 1: no relative signal"
    )
    expect(page.locator(".panels svg")).to_have_count(1)
    page.get_by_label("completions", exact=True).fill("2")
    expect(page.locator(".panels svg")).to_have_count(2)


FOUR = ("grpo", "gspo", "cispo", "sapo")
FIVE = (*FOUR, "gmpo")
RIGHT = {"lengths": [8] * 4, "rewards": [1, 0, 1, 0]}


def strip(page, recipe):
    """The pushes of the first answer's tokens as the page gives them, token by token, by keys."""
    tokens = page.locator('[data-grip="bars 0"]')
    tokens.press("Home")
    pushes = []
    for k in range(int(cells(page, recipe, 0).get_attribute("data-cells"))):
        expect(page.locator(".moved")).to_contain_text(f"token {k + 1}:")
        why = page.locator(f'[data-recipe="{recipe}"] .why')
        pushes.append(float(why.get_attribute("data-push")))
        tokens.press("ArrowRight")
    return pushes


def probability(page):
    return float(page.get_by_label("π of the chosen token").input_value())


def assert_five_strips(page, two, four):
    """Five recipes, four at a time, as the library gives them for these new probabilities."""
    moved = [1.0, two / 0.1, 1.0, four / 0.1, 1.0, 1.0, 1.0, 1.0]
    twin = AggregationExplorer(FOUR, **RIGHT, ratio=[moved, 1.0, 1.0, 1.0])
    strips = {name: strip(page, name) for name in FOUR}
    page.get_by_label("recipe 1").select_option("gmpo")
    page.locator('[data-recipe="gmpo"] svg').wait_for()
    strips["gmpo"] = strip(page, "gmpo")
    for name, found in strips.items():
        assert found == pytest.approx(twin.weights(name)[0].tolist(), rel=1e-12, abs=1e-16), name
    assert len({tuple(round(p, 12) for p in found) for found in strips.values()}) == 5
    assert len(set(strips["gspo"])) == 1
    assert all(len(set(strips[name])) > 1 for name in FIVE if name != "gspo")


def pull(page, locator, share, dx=0.0, dy=0.0):
    """Takes a picture's part by the mouse at a share of its width and moves it by pixels."""
    box = locator.bounding_box()
    x = box["x"] + share * box["width"]
    y = box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y + dy, steps=4)
    page.mouse.up()


@pytest.mark.filterwarnings("ignore::grpo_edu.RecipeWarning")
def test_by_mouse_two_tokens_dragged_give_five_recipes_five_strips(open_page):
    page = open_page(AggregationExplorer(FOUR, **RIGHT))
    bars = page.locator('[data-grip="bars 0"]')
    pull(page, bars, 1.5 / 8, dy=42)  # the bar of token 2, down
    expect(page.locator(".moved")).to_contain_text("token 2:")
    two = probability(page)
    assert two < 0.02
    pull(page, cells(page, "cispo", 0), 3.5 / 8, dy=-37)  # the cell of token 4, up
    expect(page.locator(".moved")).to_contain_text("token 4:")
    four = probability(page)
    assert 0.5 < four < 0.65
    assert (two / 0.1) * (four / 0.1) < 1  # so GSPO does not cut the answer
    assert_five_strips(page, two, four)


@pytest.mark.filterwarnings("ignore::grpo_edu.RecipeWarning")
def test_by_keys_two_tokens_moved_and_typed_give_five_recipes_five_strips(open_page):
    page = open_page(AggregationExplorer(FOUR, **RIGHT))
    tokens = page.locator('[data-grip="cells 0"][tabindex]')
    tokens.press("ArrowRight")
    for _ in range(20):
        page.keyboard.press("ArrowDown")  # the focus stays while the picture is drawn anew
    two = probability(page)
    assert 0.01 < two < 0.02
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.matches(':focus-visible')")
    expect(page.locator(".moved")).to_contain_text("token 4:")
    page.get_by_label("π of the chosen token").fill("0.6")
    expect(page.locator(".moved")).to_contain_text("ratio 6")
    assert_five_strips(page, two, 0.6)
    page.get_by_label("π of the chosen token").fill("1.2")
    expect(page.locator(".message").first).to_have_text("π is 1.2: expected 0.01 to 1.")


def test_the_end_of_a_strip_is_dragged_and_moved_by_keys_and_a_mark_changes_the_reward(open_page):
    page = open_page(AggregationExplorer(["grpo", "dr_grpo"], [8, 8], [1, 0], length_limit=10))
    end = page.locator('[data-recipe="dr_grpo"] [data-grip="length 1"]')
    cell = float(page.locator('[data-recipe="dr_grpo"] svg').get_attribute("data-cell"))
    pull(page, end, 0.5, dx=-3 * cell)
    expect(cells(page, "grpo", 1)).to_have_attribute("data-cells", "5")
    expect_number(row(page, "grpo", 1), "data-push", -(0.5**0.5) / 10)
    page.locator('[data-grip="length 1"][tabindex]').press("End")
    expect(cells(page, "grpo", 1)).to_have_attribute("data-cells", "10")  # C, no error
    page.keyboard.press("ArrowLeft")
    expect(cells(page, "grpo", 1)).to_have_attribute("data-cells", "9")
    page.locator('[data-recipe="dr_grpo"] [data-grip="reward 1"]').click()
    expect(page.locator(".note").first).to_have_text("every reward is equal: no signal")
    page.locator('[data-grip="cells 1"][tabindex]').press("Enter")
    expect(page.locator(".note")).to_have_count(0)


def test_take_the_step_moves_the_probabilities_as_the_library_does(open_page):
    explorer = StepExplorer(["grpo", "cispo"], ratio=1.4)
    page = open_page(explorer)
    after = [
        page.locator(f'[data-recipe="{name}"] [data-vocabulary="0"]') for name in explorer.recipes
    ]
    expect_number(after[0], "data-after", 0.3)  # 1.4 is above the clip: no push
    expect(page.locator('[data-recipe="grpo"] .why')).to_contain_text("nothing moves")
    expect_number(after[1], "data-after", explorer.after("cispo")[0].item())
    page.get_by_label("learning rate η").press("ArrowRight")
    explorer.learning_rate = 11
    expect_number(after[1], "data-after", explorer.after("cispo")[0].item())
    page.get_by_label("reward of answer 1").click()
    explorer.rewards = [0, 0, 0, 0]
    expect_number(after[1], "data-after", 0.3)
    page.get_by_label("reward of answer 2").press("Enter")
    explorer.rewards = [0, 1, 0, 0]
    expect_number(after[1], "data-after", explorer.after("cispo")[0].item())
    page.locator('[data-grip="before 0"][tabindex]').press("ArrowUp")
    explorer.policy = [0.31, *[p * 0.69 / 0.7 for p in (0.25, 0.2, 0.15, 0.1)]]
    expect_number(after[0], "data-after", explorer.after("grpo")[0].item())
    pull(page, page.locator('[data-recipe="cispo"] [data-grip="before 4"]'), 0.5, dy=-20)
    expect(page.locator('[data-recipe="grpo"] [data-vocabulary="4"] .soft')).to_have_text("30 %")


def test_clicking_a_reward_changes_every_estimator_and_a_dead_group_says_so(open_page):
    page = open_page(AdvantageExplorer([1, 0]))
    cell = page.locator('[data-estimator="mean/std"] [data-row="0"]')
    expect_number(cell, "data-advantage", 0.5**0.5)
    page.get_by_label("std divides by").select_option("0")
    expect_number(cell, "data-advantage", 1.0)
    page.get_by_label("reward of completion 2").click()
    expect(page.locator(".note")).to_contain_text("every reward is equal")
    expect(cell).to_have_attribute("data-advantage", "0")
    raw = page.locator('[data-estimator="none"] [data-row="0"]')
    expect(raw).to_have_attribute("data-advantage", "1")
    page.get_by_label("k of pass@k").fill("3")
    expect(page.locator('[data-estimator="pass@k"]')).to_contain_text("k is 3: expected at most 2")


def test_group_size_and_pass_rate_by_keyboard_move_the_curve_and_the_dead_group_probability(
    open_page,
):
    page = open_page(DifficultyExplorer(["mean"], 0.5, 2))
    line = page.locator('[data-panel="weight"] [data-line="mean: Dr. GRPO"]')
    expect_number(line, "data-at", 1 / 2)  # (G-1)/G
    expect_number(page.locator("[data-silent]"), "data-silent", 0.5)
    page.get_by_label("group size G").press("ArrowRight")
    expect_number(line, "data-at", 2 / 3)
    page.get_by_label("pass rate p").press("ArrowRight")
    expect_number(page.locator("[data-silent]"), "data-silent", 0.51**3 + 0.49**3)
    page.get_by_label("yardstick").select_option("score")
    expect_number(line, "data-at", 2 / 3 * 0.51 * 0.49)


def test_the_clip_takes_the_gradient_above_the_band_and_for_bad_tokens_below_it(open_page):
    page = open_page(ClipExplorer(["PPO clip", "CISPO"], ratio=1.2, eps_high=0.25, high=2.0))
    push = page.locator('[data-panel="gradient"] [data-line="PPO clip"]')
    expect_number(push, "data-at", 1.2)
    page.get_by_label("importance ratio ρ").press("ArrowRight")  # 1.25: the edge still counts
    page.get_by_label("importance ratio ρ").press("ArrowRight")
    expect(push).to_have_attribute("data-at", "0")
    expect(page.locator('[data-name="PPO clip"]')).to_contain_text("no gradient")
    expect_number(page.locator('[data-panel="gradient"] [data-line="CISPO"]'), "data-at", 1.3)
    page.get_by_label("sign of A").select_option("-1")
    expect_number(push, "data-at", -1.3)
    page.get_by_label("eps high").fill("-1")
    expect(page.locator(".message").first).to_have_text("eps high is -1: expected 0 or more.")
    expect(page.locator("svg")).to_have_count(0)


def ledger_cell(page, recipe, factor):
    return page.locator(f'.ledger [data-of="{recipe}"][data-factor="{factor}"]')


@pytest.mark.parametrize("width", [1200, 390])
def test_a_token_is_chosen_by_mouse_and_arrow_keys_and_its_ledger_is_the_librarys(open_page, width):
    page = open_page(TokenView(completion=48, whole=True), width)
    table = ledger("grpo", read_completions())
    page.locator('[data-recipe="grpo"] [data-token="49,2"]').click()
    expect(page.locator(".picked")).to_have_count(2)  # once under each recipe
    expect(page.get_by_label("token", exact=True)).to_have_value("2")
    row = table[(table["completion"] == 49) & (table["position"] == 2)].iloc[0]
    for name in ("advantage", "W", "push", "share"):
        expect_number(ledger_cell(page, "grpo", name), "data-value", row[name])
    page.locator(".texts").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".ledger h4")).to_contain_text("token 3 of completion 48")
    row = table[(table["completion"] == 48) & (table["position"] == 3)].iloc[0]
    expect_number(ledger_cell(page, "grpo", "push"), "data-value", row["push"])
    assert page.evaluate("document.activeElement.className") == "texts side"
    page.get_by_label("recipe at the right").select_option("rloo")
    expect(page.locator(".texts section")).to_have_count(2)
    expect(ledger_cell(page, "rloo", "ratio")).to_have_text("1")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_hostile_text_stays_text(open_page):
    nasty = "</script><img src=x onerror=alert(1)>"
    rollouts = Rollouts.from_lengths([1, 1], [1, 0], tokens=[[nasty], ["b"]], max_new_tokens=1)
    page = open_page(TokenView(rollouts))
    assert page.locator("img").count() == 0
    expect(page.locator('[data-token="0,0"]').first).to_have_text(nasty)


def test_a_run_is_turned_by_its_slider_and_played_to_its_end(open_page, tmp_path):
    folder = tmp_path / "run" / "rollouts"
    folder.mkdir(parents=True)
    for step in (0, 5, 9):
        shutil.copy(shipped(), folder / f"step-{step:05d}.jsonl")
    lines = [json.dumps({"step": step, "reward": step / 10}) for step in range(10)]
    (folder.parent / "log.jsonl").write_text("\n".join(lines))
    page = open_page(RunViewer(folder.parent))
    curve = page.locator("[data-line=reward]")
    expect_number(curve, "data-at", 0.0)
    page.get_by_label("recorded step").press("ArrowRight")
    expect_number(curve, "data-at", 0.5)
    page.get_by_role("button", name="play: the run").press("Enter")
    expect_number(curve, "data-at", 0.9)
    expect(page.get_by_role("button", name="play: the run")).to_be_visible()
    expect(page.locator(".texts .text")).to_have_count(16)  # eight answers under two recipes


@pytest.mark.parametrize("explorer", [
    AdvantageExplorer([1, 0] * 8, group=[0] * 8 + [1] * 8), DifficultyExplorer(["mean", "maxrl", "mean/std", "pass@k"], size=64), ClipExplorer(advantage=-1), StepExplorer(ratio=1.4), KLExplorer(),
], ids=["advantage", "difficulty", "clip", "step", "kl"])  # fmt: skip
@pytest.mark.parametrize("width", [1200, 700])
def test_the_other_explorers_fit_the_page_and_no_text_overlaps(open_page, explorer, width):
    page = open_page(explorer, width)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OVERLAPS) == []


FRAMED = [
    pytest.param(kind, preset, id=f"{kind.__name__}-{preset}")
    for kind in (
        AggregationExplorer,
        AdvantageExplorer,
        ClipExplorer,
        DifficultyExplorer,
        KLExplorer,
    )
    for preset in kind.PRESETS
    if preset != "all estimators"
]


@pytest.mark.parametrize(("kind", "preset"), FRAMED)
def test_a_preset_fits_a_frame_without_scrolling(open_page, kind, preset):
    page = open_page(kind(preset=preset, compact=True), 680, 520)
    size = "[document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
    assert page.evaluate(size) == [680, 520]
    expect(page.locator(".caption")).to_have_text(kind.PRESETS[preset]["caption"])
    assert page.evaluate(OVERLAPS) == []


def test_a_preset_is_chosen_in_the_page_and_sets_what_it_names(open_page):
    page = open_page(AdvantageExplorer())
    expect(page.locator(".caption")).to_be_hidden()
    page.get_by_label("start from").select_option("every answer right")
    expect(page.locator("[data-estimator]")).to_have_count(5)
    expect(page.locator(".note")).to_contain_text("every reward is equal")
    page.get_by_label("start from").select_option("")
    expect(page.locator(".caption")).to_be_hidden()


def test_the_number_of_an_advantage_stands_at_the_end_of_its_bar_and_the_sum_in_the_page(open_page):
    page = open_page(AdvantageExplorer([1, 0, 0, 0]), 390)
    for i, beyond in ((0, lambda t, b: t["y"] < b["y"]), (1, lambda t, b: t["y"] > b["y"])):
        cell = page.locator(f'[data-estimator="mean/std"] [data-row="{i}"]')
        text = cell.locator("text").bounding_box()
        assert beyond(text, cell.locator("rect").nth(1).bounding_box())
    sums = page.locator("[data-estimator] > text:last-child").all()
    assert all((box := s.bounding_box())["x"] + box["width"] <= 390 for s in sums)
    assert page.locator(".cut").count() == 3  # REINFORCE++ 1.7, MaxRL 3, pass@2 2; middle 1


@pytest.mark.parametrize("part", PARTS)
def test_each_change_of_dapo_shows_its_own_sliders_in_the_frame(open_page, part):
    page = open_page(DapoExplorer(part=part, compact=True), 680, 520)
    assert page.evaluate("document.documentElement.scrollHeight") == 520
    sliders = page.locator("input:visible")
    assert sliders.count() == (2 if part in PARTS[:2] else 1)
    before = page.locator(".note").inner_text()
    sliders.first.press("ArrowRight")
    expect(page.locator(".note")).not_to_have_text(before)
    assert page.evaluate(OVERLAPS) == []
    page.get_by_label("change", exact=True).select_option(PARTS[0])
    expect(page.locator(".note")).to_contain_text("The room grows with the old probability")


@pytest.mark.parametrize("width", [1200, 390])
def test_the_toy_plays_pauses_and_changes_its_recipe(open_page, width):
    page = open_page(ToyPlayer(step=54), width)
    page.get_by_role("button", name="play the training").press("Enter")
    expect(page.locator(".note")).to_contain_text("grpo, step 60:")
    expect(page.get_by_role("button", name="play the training")).to_be_visible()
    page.get_by_label("step", exact=True).press("Home")
    page.get_by_label("recipe", exact=True).select_option("dr_grpo")
    expect(page.locator(".note")).to_contain_text("dr_grpo, step 0: pass rate 0.30")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OVERLAPS) == []


def test_the_policy_moves_by_key_and_at_the_reference_nothing_pulls(open_page):
    page = open_page(KLExplorer(0.45, 0.5), 390)
    pull = page.locator('[data-line="k3 in the loss"]')
    expect_number(pull, "data-at", -0.05)  # forward KL: p - q
    page.get_by_label("policy: probability of action 1").press("ArrowRight")
    expect_number(pull, "data-at", 0.0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("explorer", [ClipExplorer(), DifficultyExplorer()], ids=["clip", "weight"])
@pytest.mark.parametrize("width", [1000, 800])
def test_plots_side_by_side_begin_at_one_height_where_a_heading_wraps(open_page, explorer, width):
    page = open_page(explorer, width)
    boxes = [plot.bounding_box() for plot in page.locator(".plot").all()]
    sections = [section.bounding_box() for section in page.locator("section").all()]
    assert len({box["y"] for box in boxes}) == len({box["y"] for box in sections})


@pytest.mark.parametrize("width", [1400, 700, 390])
def test_no_text_overlaps_another_and_nothing_is_wider_than_the_page(open_page, width):
    page = open_page(
        AggregationExplorer(
            ["grpo", "dapo(step)", "gspo"], [64] * 8, [1, 0, 0.25, 1, 0, 0, 0, 1], [0] * 4 + [1] * 4
        ),
        width,
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OVERLAPS) == []


QUESTIONS = {
    "choice": Predict("Which?", "the third", "Because.", choices=["first", "the third"]),
    "number": Predict("How many?", 87.5, "Because.", unit="tokens"),
    "bar": Predict("How much?", 87.5, "Because.", span=(0, 100), unit="%"),
}


@pytest.mark.parametrize("kind", QUESTIONS)
@pytest.mark.parametrize("width", [1200, 390])
def test_nothing_is_revealed_before_a_guess_or_show_me(open_page, kind, width):
    page = open_page(QUESTIONS[kind], width)
    root = page.locator(".grpo-explorer")
    check, show = (page.get_by_role("button", name=n) for n in ("check my guess", "show me"))
    check.press("Enter")  # without a guess it does nothing
    for hidden in ("87.5", "Because.", "answer is"):
        assert hidden not in root.aria_snapshot()
        assert hidden not in root.inner_html()
    show.press("Enter")
    expect(page.locator(".picture[role=status]")).to_contain_text(
        "You looked without a guess. Because."
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_choice_is_made_and_checked_by_keyboard_and_stays_as_it_was_guessed(open_page):
    page = open_page(QUESTIONS["choice"])
    page.get_by_role("radio", name="first").press("Space")
    page.get_by_role("button", name="check my guess").press("Enter")
    shown = page.locator(".picture[role=status]")
    expect(shown).to_contain_text("The answer is another one. Because.")
    expect(shown.locator("dd")).to_have_text(["first", "the third"])
    page.get_by_role("radio", name="the third").click(force=True)
    expect(page.get_by_role("radio", name="first")).to_be_checked()
    expect(shown.locator("dd")).to_have_text(["first", "the third"])


@pytest.mark.parametrize(
    ("guess", "sentence"),
    [
        ("80", "Your guess is 7.5 tokens too low."),
        ("90", "Your guess is near enough."),
        ("87.5", "Your guess is exactly right."),
        ("-3", "The sign is wrong: the answer is +87.5."),
    ],
)
def test_a_number_is_typed_and_enter_checks_it(open_page, guess, sentence):
    page = open_page(QUESTIONS["number"])
    page.get_by_label("your guess").fill(guess)
    page.get_by_label("your guess").press("Enter")
    expect(page.locator(".picture[role=status]")).to_contain_text(f"{sentence} Because.")


def test_a_bar_is_dragged_and_the_answer_stands_beside_it_on_the_same_scale(open_page):
    page = open_page(QUESTIONS["bar"])
    guess = drag(page, "your guess", 0.25)
    assert 20 <= guess <= 30
    page.get_by_label("your guess").press("ArrowRight")
    page.get_by_role("button", name="check my guess").click()
    bars = page.locator(".picture[role=status]").locator("i")
    sizes = [bar.bounding_box()["width"] for bar in bars.all()]
    assert sizes[0] / sizes[1] == pytest.approx((guess + 1) / 87.5, abs=0.01)
    expect(page.locator(".picture[role=status]")).to_contain_text("too low")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A JupyterLab of its own with a notebook per explorer, and Notebook 7 beside it where it is installed."""
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    folder = tmp_path_factory.mktemp("lab")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    root = folder / "root"
    root.mkdir()
    for name, source in CELLS.items():
        cell = {
            "cell_type": "code",
            "id": "one",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": source,
        }
        text = json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
        (root / f"{name}.ipynb").write_text(text)
    folders = ("CONFIG_DIR", "DATA_DIR", "RUNTIME_DIR", "LAB_SETTINGS_DIR", "LAB_WORKSPACES_DIR")
    env = {
        f"JUPYTER{'' if name.startswith('LAB') else '_'}{name}": str(folder / name)
        for name in folders
    }
    settings = (
        folder
        / "LAB_SETTINGS_DIR"
        / "@jupyterlab"
        / "apputils-extension"
        / "notification.jupyterlab-settings"
    )
    settings.parent.mkdir(parents=True)
    settings.write_text(QUIET)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f"-m {SERVER} --no-browser --allow-root --ip=127.0.0.1 --port={port} --ServerApp.port_retries=0".split()
    command += [
        "--IdentityProvider.token=t",
        f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
    ]
    command += ["--JupyterNotebookApp.expose_app_in_browser=True"] if SERVER == "notebook" else []
    log = folder / "lab.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [sys.executable, *command],
            env={**os.environ, **env, "IPYTHONDIR": str(folder)},
            stdout=out,
            stderr=out,
        )
        try:
            yield _answering(f"http://127.0.0.1:{port}", server, log)
        finally:
            server.terminate()
            server.wait(20)


def _answering(url: str, server: subprocess.Popen, log: Path) -> str:
    for _ in range(LIMIT * 40):  # a busy machine takes its time
        try:
            with urllib.request.urlopen(f"{url}/api/status?token=t", timeout=5):
                return url
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not answer: {log.read_text()}")


@pytest.fixture(
    params=[
        "doc/tree",
        pytest.param(
            "notebooks",
            marks=pytest.mark.skipif(SERVER != "notebook", reason="Notebook 7 is not installed"),
        ),
    ]
)
def run_notebook(lab, browser, request):
    """Opens a notebook in JupyterLab, and in Notebook 7, runs it, and gives its page; no console error may be ours."""
    pages, trouble = [], []

    def go(name):
        page = browser.new_page(viewport={"width": 1200, "height": 1000})
        page.set_default_timeout(LIMIT * 1000)
        page.on(
            "console",
            lambda line: (
                trouble.append(line.text)
                if line.type == "error" and "explorer" in line.text
                else None
            ),
        )
        page.on(
            "pageerror",
            lambda error: trouble.append(str(error)) if "grpo" in str(error.stack) else None,
        )
        page.goto(f"{lab}/{request.param}/{name}.ipynb?token=t&reset")
        page.wait_for_function(KERNEL_IDLE)
        page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
        page.locator(".grpo-explorer .picture > *").last.wait_for()
        pages.append(page)
        return page

    yield go
    for page in pages:
        page.close()
    assert trouble == []


def drag(page, label, share):
    """Takes the slider by the mouse and lets go at a share of its width."""
    slider = page.get_by_label(label, exact=True)
    slider.scroll_into_view_if_needed()
    box, page = slider.bounding_box(), slider.page
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(box["x"] + share * box["width"], y, steps=5)
    page.mouse.up()
    return float(slider.input_value())


def test_live_arrow_keys_and_the_mouse_move_lengths_and_the_trait_in_python(run_notebook):
    page = run_notebook("aggregation")
    slider, first = page.get_by_label("length of completion 1"), cells(page, "grpo", 0)
    expect(first).to_have_attribute("data-cells", "8")
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    expect(first).to_have_attribute("data-cells", "10")
    expect(page.get_by_text("python: [10, 8, 32, 32]")).to_be_visible(timeout=20_000)
    length = int(drag(page, "length of completion 1", 0.8))
    assert length > 40
    expect(first).to_have_attribute("data-cells", str(length))
    expect(page.get_by_text(f"python: [{length}, 8, 32, 32]")).to_be_visible(timeout=20_000)
    page.locator('[data-grip="cells 0"][tabindex]').press("Home")
    page.keyboard.press("ArrowUp")  # the focus is still there, and JupyterLab leaves the key alone
    expect(page.get_by_text("ratio of token 1: 1.1000")).to_be_visible(timeout=20_000)


def test_live_rewards_by_key_and_by_mouse(run_notebook):
    page = run_notebook("advantage")
    cell = page.locator('[data-estimator="mean"] [data-row="0"]')
    expect(cell).to_have_attribute("data-advantage", "0.75")
    page.get_by_label("reward of completion 2").press("Enter")
    expect(cell).to_have_attribute("data-advantage", "0.5")
    page.get_by_label("reward of completion 1").click()
    expect(cell).to_have_attribute("data-advantage", "-0.25")


def test_live_pass_rate_by_key_and_by_mouse(run_notebook):
    page = run_notebook("difficulty")
    page.get_by_label("pass rate p").press("ArrowRight")
    silent = page.locator("[data-silent]")
    expect_number(silent, "data-silent", 0.11**8 + 0.89**8)
    p = drag(page, "pass rate p", 0.7)
    assert 0.6 < p < 0.8
    expect_number(silent, "data-silent", p**8 + (1 - p) ** 8)


def test_live_ratio_by_key_and_by_mouse(run_notebook):
    page = run_notebook("clip")
    push = page.locator('[data-panel="gradient"] [data-line="CISPO"]')
    page.get_by_label("importance ratio ρ").press("ArrowLeft")
    expect_number(push, "data-at", 1.45)
    ratio = drag(page, "importance ratio ρ", 0.2)
    assert 0.5 < ratio < 1.2
    expect_number(push, "data-at", ratio)


def test_live_panels_answer_to_keys_and_mouse_with_the_right_picture(run_notebook):
    page = run_notebook("panels")
    expect(page.locator(".grpo-explorer")).to_have_count(2)
    accumulation, reuse = (page.locator(".grpo-explorer").nth(i) for i in range(2))
    accumulation.get_by_label("micro-batches", exact=True).press("Home")
    expect(accumulation.locator("img")).to_have_attribute(
        "alt", "dapo(step), each micro-batch by itself: the split does not matter"
    )
    before = reuse.locator("img").get_attribute("src")
    reuse.get_by_label("momentum", exact=True).press("ArrowRight")
    expect(reuse.locator("img")).not_to_have_attribute("src", before)


def test_live_a_panel_says_computing_before_a_slow_kernel_answers(run_notebook):
    page = run_notebook("slow")
    root, busy = page.locator(".grpo-explorer"), page.locator(".busy[role=status]")
    expect(busy).to_be_empty()
    page.get_by_label("n", exact=True).press("ArrowRight")
    assert busy.inner_text() == "computing …"  # at once: nothing is waited for
    assert root.locator(".picture").inner_text() == "<n is 1>"
    assert root.locator(".picture").get_attribute("aria-busy") == "true"
    expect(root.locator(".picture")).to_have_text("<n is 2>")
    expect(busy).to_be_empty()
    expect(root.locator(".picture")).to_have_attribute("aria-busy", "false")
    page.get_by_label("n", exact=True).press("ArrowRight")
    page.get_by_label("n", exact=True).press("ArrowRight")
    expect(root.locator(".picture")).to_have_text("<n is 3>")
    assert busy.inner_text() == "computing …"  # the picture is of an earlier value
    expect(root.locator(".picture")).to_have_text("<n is 4>")
    expect(busy).to_be_empty()
