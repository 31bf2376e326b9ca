"""Figures of the difficulty toy: what the std does over training, and what dynamic sampling buys
and costs."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ..objective.catalog import recipe
from ..plots.dynamics import draw_lines, name_ends
from ..plots.style import GREY, RECIPES, SERIES, WIDTH, Look, name_line, new_figure, note
from ..toys.compare import gradient_sizes, intervals, matched_learning_rate
from ..toys.difficulty import Difficulty, first_reaching, train
from ..toys.training import Training
from .registry import figure

SEEDS = 8  # fixed beforehand: seeds 0 to 7
RUNS = {  # panel: (G, optimiser, learning rate of GRPO)
    "G = 2, SGD": (2, "sgd", 10.0),
    "G = 64, SGD": (64, "sgd", 10.0),
    "G = 64, AdamW": (64, "adamw", 0.05),
}
MEASURES = ("bucket_0", "pass_rate", "pass_at_8")


def training_data() -> pd.DataFrame:
    """GRPO, RLOO and MaxRL on 50 prompts with p from .001 to .999; under SGD all start with equal
    gradient norms."""
    recipes = [recipe("grpo").but("grpo", kl=None), recipe("rloo"), recipe("maxrl")]
    tables = []
    for name, (samples, optimizer, rate) in RUNS.items():
        training = Training(
            steps=300,
            prompts=50,
            samples=samples,
            optimizer=optimizer,
            learning_rate=rate,
            every=10,
        )
        rates = None
        if optimizer == "sgd":
            rates = matched_learning_rate(
                gradient_sizes(train, recipes, Difficulty(), training, seeds=64), rate
            )
        table = train(recipes, Difficulty(), training, seeds=SEEDS, learning_rates=rates)
        tables.append(table.filter(items=["recipe", "seed", "step", *MEASURES]).assign(run=name))
    return pd.concat(tables, ignore_index=True)


@figure(
    title="Large groups and SGD: MaxRL learns hard prompts first, GRPO next, RLOO not yet; groups "
    "of 2 or AdamW leave little of this",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; the hardest ten of 50 prompts; under SGD "
    "equal gradient norms at the first step",
    alt="Three panels: pass rate of the hardest fifth of the prompts against training step. In "
    "groups of two the three curves lie on "
    "each other. In groups of 64 under SGD MaxRL brings the hardest fifth of the prompts to .86, "
    "GRPO to .22, RLOO to .003. Under AdamW, which rescales every prompt's own parameter, all "
    "three end above .96.",
    answers="MaxRL (arXiv 2602.02710) on hard prompts; Dr. GRPO (arXiv 2503.20783) on the "
    "question-level bias; coverage row 33",
    data=training_data,
    recorded=True,
)
def difficulty_training(table: pd.DataFrame) -> Figure:
    """Pass rate of the hardest fifth of the prompts, one panel per group size and optimiser."""
    picture = new_figure(WIDTH, 3.9)
    panels = picture.subplots(1, len(RUNS), sharex=True, sharey=True)
    names = list(dict.fromkeys(table["recipe"]))
    for panel, run in zip(panels, RUNS, strict=True):
        part = table.loc[table.run == run]
        draw_lines(panel, part, "bucket_0", names)
        heading = run.replace("G =", "groups of")
        panel.set(title=heading, xlabel="training step", ylim=(-0.03, 1.03))
        panel.set_xticks([0, 100, 200, 300])
        last = part.loc[part.step == part.step.max()]
        ends = intervals(last, "bucket_0", by=["recipe"])
        for name, mean in zip(ends["recipe"], ends["mean"], strict=True):
            if run != "G = 2, SGD":
                name_line(
                    panel, [300], [mean], f"{RECIPES[name].label} {mean:.2f}", RECIPES[name].colour
                )
    note(panels[0], 0.05, 0.12, "GRPO, RLOO and MaxRL\non one line")
    panels[0].set_ylabel("pass rate, hardest fifth")
    return picture


SAMPLINGS = {
    "plain": Look("plain", SERIES[0], "o"),
    "refill": Look("refill (DAPO)", RECIPES["dapo"].colour, RECIPES["dapo"].marker),
    "reroll": Look("re-roll", SERIES[1], "s"),
}
GOAL = 0.7


def sampling_data() -> pd.DataFrame:
    """GRPO at G = 8 and 16 prompts a step on 50 prompts, under three ways to draw groups; the same
    learning rate."""
    training = Training(steps=300, prompts=16, samples=8, learning_rate=4.0, every=10)
    grpo = recipe("grpo").but("grpo", kl=None)
    tables = []
    for sampling in SAMPLINGS:
        table = train(grpo, Difficulty(sampling=sampling, spacing="logit"), training, seeds=SEEDS)
        columns = [
            "seed",
            "step",
            "rollouts",
            "pass_rate",
            "silent",
            "all_right",
            "all_wrong",
            "reward",
        ]
        tables.append(table[columns].assign(recipe=sampling))
    return pd.concat(tables, ignore_index=True)


@figure(
    title="Dynamic sampling reaches a pass rate of 0.7 in a third of the updates, and draws more "
    "answers for it",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; GRPO, 16 prompts of 8 answers a step; "
    "groups that are all right or all wrong: plain keeps them, refill takes other prompts in their "
    "place, re-roll draws the same prompt again",
    alt="Left, pass rate against updates, with a ring where each way reaches .7; right, bars of "
    "the answers drawn until then. "
    "Refilling dead groups reaches a mean pass rate of .7 after 60 updates and "
    "30 thousand completions, re-rolling the same prompt after 106 and 108 thousand, plain "
    "sampling after 180 and 23 thousand.",
    answers="DAPO (arXiv 2503.14476) Fig. 3b and Fig. 6: score against steps, which leaves out "
    "what the steps cost",
    data=sampling_data,
    recorded=True,
)
def dynamic_sampling(table: pd.DataFrame) -> Figure:
    """Pass rate against updates, and the completions drawn until it reaches the goal."""
    picture = new_figure(WIDTH, 3.9)
    by_step, cost = picture.subplots(1, 2, width_ratios=[3, 2])
    draw_lines(by_step, table, "pass_rate", list(SAMPLINGS), looks=SAMPLINGS)
    name_ends(by_step)
    reached: Any = first_reaching(table, "pass_rate", GOAL)
    costs = reached.groupby("recipe")[["step", "rollouts"]].mean().loc[list(SAMPLINGS)]
    for name, look in SAMPLINGS.items():
        updates = costs.step[name]
        by_step.plot(updates, GOAL, "o", color="none", markeredgecolor=look.colour, markersize=12)
        by_step.text(updates - 3, GOAL + 0.02, f"{updates:.0f}", ha="right", color=look.colour)
    by_step.axhline(GOAL, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    by_step.set(xlabel="updates", title="mean pass rate of all prompts", ylim=(0.45, 1.0))
    looks = list(SAMPLINGS.values())
    bars = cost.barh(
        [look.label for look in looks],
        costs.rollouts / 1000,
        color=[look.colour for look in looks],
        height=0.6,
    )
    cost.bar_label(bars, fmt="%.0f", padding=4)
    cost.set(xlabel="thousands of answers", title=f"answers drawn until {GOAL}", xlim=(0, 125))
    cost.tick_params(axis="y", length=0)
    cost.invert_yaxis()
    return picture
