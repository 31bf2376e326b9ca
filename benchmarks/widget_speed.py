"""How long from a key press to new pixels, for every explorer and panel, in headless Chromium.

Time runs from the key event's own time stamp to the end of the frame after the picture changed. The
aggregation explorer holds 8 completions x 64 tokens x 3 recipes, once with one ratio for all, once
with a ratio per token. Targets: median <= 30 ms and p95 <= 50 ms for what computes in the browser,
median <= 120 ms for what Python draws. Busy
neighbours make every number larger, so the machine's load is printed too.

python benchmarks/widget_speed.py [PRESSES] [--smoke]      (--smoke: two explorers, one press)
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
IN_BROWSER = {
    "aggregation": (
        "aggregation import AggregationExplorer as f",
        "f(['grpo', 'dr_grpo', 'dapo'], [64] * 8, [1, 0] * 4)",
        "length of completion 1",
    ),
    "ratio per token": (
        "aggregation import AggregationExplorer as f",
        "f(['grpo', 'gspo', 'cispo'], [64] * 8, [1, 0] * 4, ratio=[[0.5 + ((5 * i + t) % 64) / 32"
        " for t in range(64)] for i in range(8)])",
        "probability of the tokens of completion 1",
    ),
    "step": ("step import StepExplorer as f", "f()", "learning rate η"),
    "advantage": (
        "advantage import AdvantageExplorer as f",
        "f([1, 0] * 4)",
        "length of completion 1",
    ),
    "difficulty": (
        "difficulty import DifficultyExplorer as f",
        "f(['mean/std', 'mean', 'maxrl'])",
        "pass rate p",
    ),
    "clip": ("clip import ClipExplorer as f", "f()", "importance ratio ρ"),
    "token view": ("texts import TokenView as f", "f()", "token"),
    "run viewer": ("texts import RunViewer as f", "f('run')", "recorded step"),
    "DAPO": ("dapo import DapoExplorer as f", "f()", "eps high"),
    "toy player": ("toy import ToyPlayer as f", "f()", "step"),
    "KL": ("kl import KLExplorer as f", "f()", "policy: probability of action 1"),
    "stepper": (
        "stepper import Stepper as f",
        "f(['grpo', 'gspo'], stage='ratio')",
        "formula and tokens; the arrow keys step",
    ),
}
IN_PYTHON = {
    "accumulation lab": (
        "labs import accumulation_lab as f",
        "f()",
        "tokens of the last completion",
    ),
}
WATCH = """() => {
  const picture = document.querySelector(".grpo-explorer .picture");
  let start = null;
  const began = (event) => { start = event.timeStamp; window.took = null; };
  document.addEventListener("keydown", began, true);
  new MutationObserver(() => {
    if (start === null) return;
    const from = start;
    start = null;
    requestAnimationFrame(() => setTimeout(() => { window.took = performance.now() - from; }));
  }).observe(picture, { childList: true, subtree: true });
}"""
KERNEL_IDLE = """() => { const w = window.jupyterapp?.shell?.currentWidget;
    return w?.sessionContext?.isReady && w.sessionContext.session?.kernel?.status === "idle" }"""


def make_run(folder: Path) -> None:
    """A run to look at: the shipped completions as four steps."""
    from grpo_edu.completions import shipped

    (folder / "rollouts").mkdir(parents=True)
    for step in range(0, 40, 10):
        shutil.copy(shipped(), folder / "rollouts" / f"step-{step:05d}.jsonl")
    (folder / "log.jsonl").write_text(
        "".join(json.dumps({"step": k, "reward": k / 40}) + "\n" for k in range(40))
    )


@contextmanager
def lab(root: Path) -> Iterator[str]:
    """JupyterLab on a folder; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = f"-m jupyterlab --no-browser --allow-root --ip=127.0.0.1 --port={port}".split()
    command += [
        "--IdentityProvider.token=t",
        f"--ServerApp.root_dir={root}",
        "--LabApp.expose_app_in_browser=True",
    ]
    env = {
        **os.environ,
        "JUPYTERLAB_WORKSPACES_DIR": str(root / ".workspaces"),
        "JUPYTER_RUNTIME_DIR": str(root / ".runtime"),
    }
    server = subprocess.Popen(
        [sys.executable, *command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(
                    f"http://127.0.0.1:{port}/api/status?token=t", timeout=5
                ).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def write_notebook(root: Path, name: str, source: str) -> None:
    """One cell."""
    cell = {
        "cell_type": "code",
        "id": "one",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": source,
    }
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    text = json.dumps({"cells": [cell], "metadata": kernel, "nbformat": 4, "nbformat_minor": 5})
    (root / f"{name}.ipynb").write_text(text)


def press(page: Page, label: str, presses: int) -> list[float]:
    """Milliseconds of each press after two that warm up; each arrow is taken back by the next."""
    control = page.get_by_label(label, exact=True)
    control.focus()
    took = []
    for k in range(presses + 2):
        page.evaluate("window.took = null")
        page.keyboard.press(
            "ArrowLeft" if (k % 2 == 0) == label.startswith("length") else "ArrowRight"
        )
        page.wait_for_function("window.took !== null", timeout=30_000)
        took.append(page.evaluate("window.took"))
        page.wait_for_timeout(60)
    return took[2:]


def main(presses: int, names: list[str]) -> None:
    """Print one line per explorer named."""
    from playwright.sync_api import sync_playwright

    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        root = Path(name)
        make_run(root / "run")
        cases = {name: {**IN_BROWSER, **IN_PYTHON}[name] for name in names}
        for title, (what, call, _) in cases.items():
            write_notebook(root, title, f"from grpo_edu.widgets.{what}\n{call}")
        with lab(root) as url:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            for title, (_, _, label) in cases.items():
                page = browser.new_page(viewport={"width": 1400, "height": 1000})
                page.set_default_timeout(300_000)
                page.goto(f"{url}/doc/tree/{title}.ipynb?token=t&reset")
                page.wait_for_function(KERNEL_IDLE)
                page.evaluate("void jupyterapp.commands.execute('notebook:run-all-cells')")
                page.locator(".grpo-explorer .picture > :visible").first.wait_for()
                page.wait_for_timeout(1000)
                page.evaluate(WATCH)
                took = sorted(press(page, label, presses))
                high = took[max(0, round(0.95 * len(took)) - 1)]
                where = "browser" if title in IN_BROWSER else "Python"
                times = f"median {statistics.median(took):6.1f} ms   p95 {high:6.1f} ms"
                print(f"{title:<18} {where:<8} {times}", flush=True)
                page.close()
            browser.close()
        print(f"load average {os.getloadavg()[0]:.1f}")


def missing() -> list[str]:
    """What this benchmark needs and this machine lacks."""
    packages = [name for name in ("playwright", "jupyterlab", "anywidget") if not find_spec(name)]
    return packages if CHROMIUM else [*packages, "chromium"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("presses", nargs="?", type=int, default=30)
    parser.add_argument("--smoke", action="store_true", help="two explorers, one press")
    given = parser.parse_args()
    if given.smoke and missing():
        print("skipped: needs " + " and ".join(missing()))
    elif given.smoke:
        main(1, ["clip", "stepper"])
    else:
        main(given.presses, [*IN_BROWSER, *IN_PYTHON])
