"""The push lens at 2,000 completions x 300 tokens: how large the page is, how long from an input to
new pixels in headless Chromium.

Time runs from the event's own time stamp to the end of the frame after the next one was asked for.
Targets: at most 20 MB, and at most 100 ms for sorting, choosing a recipe, scrolling and moving
between tokens. Busy neighbours make every number larger, so the machine's load is printed too.

python benchmarks/lens_speed.py [INPUTS] [--smoke]      (--smoke: 20 x 30, one input of each kind)
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from widget_speed import CHROMIUM, FLAGS

from grpo_edu import Rollouts, recipe
from grpo_edu.plots.lens import push_lens
from grpo_edu.weights import Push

if TYPE_CHECKING:
    from playwright.sync_api import Page

RECIPES = ("grpo", "dr_grpo", "dapo")
WATCH = """() => {
  for (const name of ["input", "keydown", "wheel"]) {
    addEventListener(name, (event) => {
      const from = event.timeStamp;
      requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(() => {
        window.took = performance.now() - from;
      })));
    }, { capture: true, passive: true });
  }
}"""


def rollouts(rows: int, width: int) -> Rollouts:
    """Groups of 16 with tokens of 1 to 9 letters and ratios that differ from token to token."""
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(rows, width, generator=generator, dtype=torch.float64) * 5 - 0.3
    new = old + 0.15 * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    ref = old + 0.3 * torch.randn(rows, width, generator=generator, dtype=torch.float64)
    words = [" " + chr(97 + k % 26) * (1 + k % 9) + str(k) for k in range(20_000)]
    chosen = torch.randint(0, len(words), (rows, width), generator=generator)
    return Rollouts(
        logp=new.clamp(max=0),
        old_logp=old,
        ref_logp=ref.clamp(max=0),
        mask=torch.ones(rows, width, dtype=torch.bool),
        reward=torch.rand(rows, generator=generator).round(),
        group=torch.arange(rows) // 16,
        max_new_tokens=width,
        tokens=[[words[k] for k in row] for row in chosen.tolist()],
        prompts=[f"Question {k // 16}: " + "what is it? " * 20 for k in range(rows)],
    )


def write(path: Path, rows: int, width: int) -> None:
    """The page of three recipes, and what it cost."""
    step = rollouts(rows, width)
    pushes = [Push.of(recipe(name), step) for name in RECIPES]
    began = time.process_time()
    path.write_text(push_lens(pushes, pushes[0].summary()), encoding="utf-8")
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    size = path.stat().st_size / 1e6
    print(f"{rows} x {width}, {', '.join(RECIPES)}: {size:.1f} MB, written in {seconds:.1f} CPU s")
    print(f"largest memory of Python {memory:.1f} GB")


def measured(page: Page, inputs: int) -> dict[str, list[float]]:
    """Milliseconds from each input to the pixels."""
    kinds = {
        "sort": lambda k: page.select_option(
            "#order", ["length", "mean", "reward", "share"][k % 4]
        ),
        "recipe": lambda k: page.locator('[name="recipe"]').nth(k % 4).check(),
        "scroll": lambda k: page.mouse.wheel(0, 700 if k % 5 else 40_000),
        "token": lambda k: page.keyboard.press(["ArrowRight", "ArrowDown"][k % 2]),
    }
    took: dict[str, list[float]] = {}
    page.mouse.move(300, 600)
    for kind, act in kinds.items():
        if kind == "token":
            page.focus("#list")
        took[kind] = []
        for k in range(inputs + 2):
            page.evaluate("window.took = null")
            act(k + 1)
            page.wait_for_function("window.took !== null", timeout=30_000)
            took[kind].append(page.evaluate("window.took"))
            page.wait_for_timeout(60)
        took[kind] = took[kind][2:]
    return took


def main(rows: int, width: int, inputs: int) -> None:
    """Write the page, open it, and print one line per kind of input."""
    from playwright.sync_api import sync_playwright

    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "lens.html"
        write(path, rows, width)
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(300_000)
        began = time.monotonic()
        page.goto(path.as_uri())
        page.locator("#list article").first.wait_for()
        print(f"opened in {time.monotonic() - began:.1f} s")
        page.evaluate(WATCH)
        for kind, times in measured(page, inputs).items():
            times.sort()
            high = times[max(0, round(0.95 * len(times)) - 1)]
            print(f"{kind:<8} median {statistics.median(times):6.1f} ms   p95 {high:6.1f} ms")
        tokens = page.locator("#list [data-t]").count()
        print(f"tokens in the document: {tokens}")
        browser.close()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("inputs", nargs="?", type=int, default=20)
    parser.add_argument("--smoke", action="store_true", help="20 x 30, one input of each kind")
    given = parser.parse_args()
    if given.smoke and not (find_spec("playwright") and CHROMIUM):
        print("skipped: needs playwright and chromium")
    elif given.smoke:
        main(20, 30, 1)
    else:
        main(2000, 300, given.inputs)
