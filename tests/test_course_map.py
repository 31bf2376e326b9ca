"""The map of the course: every sentence of the talk and every question has its cell, and the number in that cell is right.

A cell that settles row n carries the tag ``row-n``; the expected numbers are derived here in plain Python, without the package, and are
looked for, in order, in what the executed cell printed, to the digits printed.
"""

from __future__ import annotations

import csv
import json
import math
import re
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@cache
def tagged() -> dict[str, list[tuple[str, int, str]]]:
    """Tag -> (notebook file, section, printed text) of every cell that carries it."""
    found: dict[str, list[tuple[str, int, str]]] = {}
    for path in NOTEBOOKS:
        section = 0
        for cell in nbformat.read(path, as_version=4).cells:
            headings = (
                re.findall(r"^## (\d+)\.", cell.source, flags=re.MULTILINE)
                if cell.cell_type == "markdown"
                else []
            )
            section = int(headings[-1]) if headings else section
            text = "\n".join(
                o.get("text") or o.get("data", {}).get("text/plain", "")
                for o in cell.get("outputs", [])
            )
            for tag in cell.metadata.get("tags", []):
                if not tag.startswith(("row-", "question-")):
                    continue  # predict and ask fold a cell
                found.setdefault(tag, []).append((path.name, section, text))
    return found


def missing(expected: list[float], text: str) -> list[float]:
    """Those of the expected numbers that do not come in this order; each to half a unit of its last printed digit."""
    left = list(expected)
    for word in NUMBER.findall(text):
        digits = len(word.partition(".")[2].partition("e")[0])
        allowed = (
            max(0.501 * 10.0**-digits, 1e-9) if digits >= 3 else 1e-9
        )  # one or two digits: an exact number
        if left and abs(float(word) - left[0]) <= allowed:
            left.pop(0)
    return left


# --- the numbers, derived without the package -------------------------------------------------------------------------------------


def z(rewards: list[float], eps: float = 0.0) -> list[float]:
    """Group mean and std, ddof 1."""
    return [(r - fmean(rewards)) / (stdev(rewards) + eps) for r in rewards]


def words_with_two_bs(prefix: str) -> float:
    """Chance that a prefix of a three-letter word, continued evenly, ends with exactly two b's."""
    ends = ["".join(x) for x in product("ab", repeat=3 - len(prefix))]
    return fmean([(prefix + end).count("b") == 2 for end in ends])


def gae(word: str, lam: float) -> list[float]:
    v = [words_with_two_bs(word[:k]) for k in range(4)]
    carry, out = 0.0, []
    for k in reversed(range(3)):
        carry = v[k + 1] - v[k] + lam * carry
        out.append(carry)
    return out[::-1]


def cell(ratio: float, advantage: float) -> float:
    """Slope of PPO's objective by log π, by a central difference."""

    def f(x: float) -> float:
        return min(x * advantage, min(max(x, 0.8), 1.2) * advantage)

    return (f(ratio * math.exp(1e-7)) - f(ratio * math.exp(-1e-7))) / 2e-7


def reused(updates: int) -> float:
    """Ratio of the right answer of four after so many steps of .2 on one rollout, advantages 1.5 and three times -.5."""
    logit = [0.0] * 4
    for _ in range(updates - 1):
        chance = [math.exp(x) / sum(map(math.exp, logit)) for x in logit]
        push = [cell(4 * c, a) / 4 for c, a in zip(chance, (1.5, -0.5, -0.5, -0.5), strict=True)]
        logit = [x + 0.2 * (g - c * sum(push)) for x, g, c in zip(logit, push, chance, strict=True)]
    return 4 * math.exp(logit[0]) / sum(map(math.exp, logit))


def completions() -> list[tuple[float, int, int, bool]]:
    """(chance, right, length, stopped): right with .4, stops with .3 after each token, at most 5."""
    out = []
    for right, branch in ((1, 0.4), (0, 0.6)):
        out += [(branch * 0.7 ** (n - 1) * 0.3, right, n, True) for n in range(1, 6)]
        out.append((branch * 0.7**5, right, 5, False))
    return out


def group_gradients(kind: str, size: int) -> list[tuple[float, list[float]]]:
    """Chance and gradient by (mode, stop when right, stop when wrong) of every group, centred advantages."""
    out = []
    for rows in product(completions(), repeat=size):
        mean, tokens = fmean([r for _, r, _, _ in rows]), sum(n for _, _, n, _ in rows)
        g = [0.0, 0.0, 0.0]
        for _, r, n, stopped in rows:
            w = (r - mean) * {
                "sequence": 1 / (size * n),
                "token": 1 / tokens,
                "constant": 1 / (size * 5),
            }[kind]
            g[0] += w * (r - 0.4)
            g[1 if r else 2] += w * (stopped - 0.3 * n)
        out.append((math.prod(c for c, *_ in rows), g))
    return out


def drift(kind: str) -> list[float]:
    return [sum(c * g[k] for c, g in group_gradients(kind, 2)) for k in range(3)]


def relative_variance(kind: str) -> float:
    parts = group_gradients(kind, 3)
    mean = [sum(c * g[k] for c, g in parts) for k in range(3)]
    return sum(c * x * x for c, g in parts for x in g) / sum(m * m for m in mean) - 1


def last_step(name: str, columns: list[str]) -> dict[str, list[float]]:
    """Mean of the columns at the last step of a recorded table, by recipe, read with the csv module."""
    with (ROOT / "figures" / "data" / f"{name}.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    end = max(int(r.get("step", 0)) for r in rows)
    kept = [r for r in rows if int(r.get("step", 0)) == end]
    names = dict.fromkeys(r["recipe"] for r in kept)
    return {
        n: [fmean([float(r[c]) for r in kept if r["recipe"] == n]) for c in columns] for n in names
    }


def shipped_right() -> list[int]:
    """Right answers of 8 per prompt in the shipped completions."""
    lines = (ROOT / "grpo_edu" / "data" / "smollm2_arithmetic.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [
        sum(r["reward"] for r in rows if r["group_id"] == g)
        for g in dict.fromkeys(r["group_id"] for r in rows)
    ]


def pass_rates() -> list[float]:
    right = shipped_right()
    counts = [x for k in sorted(set(right)) for x in (k, right.count(k))]
    silent = fmean([k in (0, 8) for k in right])
    return [
        *counts,
        silent,
        *[
            x
            for g in (2, 4, 8, 16)
            for x in (g, fmean([(k / 8) ** g + (1 - k / 8) ** g for k in right]))
        ],
    ]


ROOT_HALF = z([1.0, 0.0])[0]  # .7071
FOUR = z([1.0, 0.0, 1.0, 0.0])[0]  # .8660
FOUR_LENGTHS = [2, 8, 40, 50]
THREE_RIGHT = [1.0, 1.0, 1.0, 0.0]
BATCH = THREE_RIGHT + [0.0] * 4
UPDATE_LOSS = -(min(1.5 * ROOT_HALF, 1.2 * ROOT_HALF) * 2 - 0.9 * ROOT_HALF * 8) / 10

ROWS: dict[int, tuple[str, list[float]]] = {
    1: ("arXiv numbers of the papers", [2402.033, 2503.14476, 2503.20783, 1707.06347]),
    2: ("group advantage of a wrong and a right answer", [-FOUR, FOUR]),
    3: ("V, Q, A at the start", [words_with_two_bs(x) for x in ("", "a", "b")] + [-0.125, 0.125]),
    4: (
        "right: all alive; swapped: two clipped",
        [1, 1, 1, 1, FOUR / 4, -FOUR / 4, 1.5, 0.6, 1, 0.9, 0, 0, FOUR / 4, -0.9 * FOUR / 4],
    ),
    5: ("ratio 1 first, then it grows", [1, 0, 0, 1, reused(2), reused(17)]),
    6: ("six cells and a seventh", [cell(r, a) for a in (1.0, -1.0) for r in (0.5, 1.0, 1.5, 6.0)]),
    7: (
        "GAE and the group on one answer",
        [*gae("aab", 0.0), *gae("aab", 0.95)[:2], *gae("aab", 1.0)[:2], -FOUR],
    ),
    8: ("with std, without", [1.5, -0.5, z([1.0, 0, 0, 0])[0], 0.75, 1.0]),
    9: ("mean over timesteps, 1/|o|", [1 / 10, 1 / 10, 1 / 4, 1 / 16]),
    10: (
        "product, sum, mean",
        [x * -ROOT_HALF / 2 for x in (1, 1.01**8, 1, 1.01, 1 / 8, 1.01 / 8)],
    ),
    11: ("slope ρA, and 0 beyond the clip", [cell(x, 1.0) for x in (1.0, 1.1, 1.3)]),
    12: (
        "the band in logarithms",
        [math.log(0.8), 0, math.log(1.2), math.exp(-0.4), math.exp(0.4)],
    ),
    13: ("the sum of log-probabilities", [math.log(1 / 2) * 3]),
    14: ("a product, not a sum", [0.5**3, 0.5 * 3]),
    15: ("TRL's lines against the recipe", [UPDATE_LOSS, UPDATE_LOSS]),
    16: ("exp of a difference", [math.exp(0.1), 0.1]),
    17: (
        "per prompt, over the batch",
        [
            z(THREE_RIGHT, 1e-4)[0],
            z(BATCH, 1e-4)[0],
            z(THREE_RIGHT, 1e-4)[3],
            z(BATCH, 1e-4)[3],
            0,
            z(BATCH, 1e-4)[4],
        ],
    ),
    18: (
        "reverse, forward; k1, k2, k3 in the loss",
        [0.09 * math.log(9), 0.4, 0, 0.09 * math.log(9), 0.09 * math.log(9), 0.4],
    ),
    19: (
        "two reductions",
        [ROOT_HALF / 20, -ROOT_HALF / 20, ROOT_HALF / 180, ROOT_HALF / 16, -ROOT_HALF / 24],
    ),
    20: ("local, not global", [20, 20, 180, 180, 100]),
    21: (
        "mean over a row's tokens",
        [ROOT_HALF / 16, -ROOT_HALF / 24, ROOT_HALF / 160, -ROOT_HALF / 200],
    ),
    22: (
        "the example, and its gradient",
        [(14 / 5 + 19 / 10) / 2, 33 / 15, 14 / 10, 19 / 10, 1 / 4, 1 / 7, 1 / 7, 1 / 7, 2 / 11],
    ),
    23: ("share against length", [0.25] * 4 + [n / 100 for n in (4, 6, 40, 50)]),
    24: ("sign by length", [1 / 8, 1 / 32, -1 / 16, -1 / 64]),
    25: ("the bias is PPO's", [1 / 4, 1 / 16]),
    26: ("divided by tokens", [4 * n for n in (4, 6, 40, 50)]),
    27: ("no std, no length in the derivation", [1, 1, 2 / 3 / 3, 1]),
    28: ("packed rows: all alike", [1 / 32] * 4),
    29: ("right shorter, wrong longer", [*drift("sequence"), *drift("token"), *drift("constant")]),
    30: ("a constant is not the token count", [100, 4 * 64]),
    31: ("noise", [relative_variance(kind) for kind in ("sequence", "token", "constant")]),
    32: (
        "equal scores, unequal lengths",
        [
            x
            for v in last_step(
                "length_dynamics", ["pass_rate", "length_right", "length_wrong"]
            ).values()
            for x in v
        ],
    ),
    33: (
        "gain of the std",
        [z([1, 0, 0, 0])[0], 0.75, 2.0, z([1, 1, 0, 0])[0], 0.5, math.sqrt(3), 0, 0],
    ),
    34: ("pass rates and silent groups", pass_rates()),
    35: ("10 and 1000 tokens", [1 / 20, 1 / 2000, 100]),
    36: ("both signs", [1 / 8, 1 / 32, -1 / 16, -1 / 64]),
    37: ("two clips", [0.2, 0.28]),
    38: ("three denominators", [x / n * ROOT_HALF for n, x in ((10, 0.5), (90, 0.5), (100, 1))]),
    39: ("a long good answer", [1 / 20, 1 / 2000, 1 / 2, 1 / 1010, 1 / 1010, 1000 / 1010]),
    40: (
        "the ladder of a toy",
        [
            x
            for v in last_step(
                "dapo_ladder", ["pass_rate", "length_right", "length_wrong"]
            ).values()
            for x in v
        ],
    ),
    41: ("push and share", [1 / 4, 1 / 2, 1, 8 / 10, 4**-0.75, 4**0.25 / (1 + 4**0.25)]),
}


def test_there_are_41_rows_and_15_questions_and_each_has_its_cell():
    assert sorted(ROWS) == list(range(1, 42))
    wanted = {f"row-{n}" for n in ROWS} | {f"question-{n}" for n in range(1, 16)}
    assert wanted == {tag for tag in tagged() if tag.startswith(("row-", "question-"))}


@pytest.mark.parametrize("row", ROWS, ids=lambda n: f"row {n}: {ROWS[n][0]}")
def test_the_number_that_settles_a_row_is_printed_and_right(row):
    text = "\n".join(text for _, _, text in tagged()[f"row-{row}"])
    assert missing(ROWS[row][1], text) == [], text


def test_a_wrong_number_would_be_missed():
    assert missing([0.25, 0.1429], "{'a': [0.25, 0.1429]}") == []
    assert missing([0.25, 0.1429], "{'a': [0.25, 0.0909]}") == [0.1429]
    assert missing([0.1429, 0.25], "{'a': [0.25, 0.1429]}") == [0.25]


@pytest.mark.parametrize("number", range(1, 16))
def test_a_question_is_answered_by_a_cell_that_prints_something(number):
    assert all(re.search(r"\d", text) for _, _, text in tagged()[f"question-{number}"])


def test_the_map_names_notebook_and_section_of_every_row_and_question():
    page = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    for tag, cells in tagged().items():
        kind, _, number = tag.partition("-")
        start = f"| {number} |" if kind == "row" else f"| Q{number} |"
        lines = [line for line in page.splitlines() if line.startswith(start)]
        assert len(lines) == 1, start
        for name, section, _ in cells:
            assert f"[{name[:2]}]({name}) §{section}" in lines[0], (tag, name, section)


def test_the_map_gives_each_notebook_its_minutes_and_prerequisites():
    page = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    for path in NOTEBOOKS:
        first = nbformat.read(path, as_version=4).cells[0].source
        found = re.search(
            r"\*\*(\d+) minutes[^.]*\. Before it: (.*?)\.\*\*", first, flags=re.DOTALL
        )
        assert found is not None, path.name
        line = next(line for line in page.splitlines() if f"({path.name})" in line)
        assert f"| {found[1]} |" in line, path.name
        for number in re.findall(r"\d\d", found[2]):
            assert number in line.split("|")[-2], path.name
