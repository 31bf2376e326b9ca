"""Figures of the difficulty toy: what the std does over training, and what dynamic sampling buys
and costs."""

from __future__ import annotations

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..objective.catalog import recipe
from ..plots.dynamics import draw_lines
from ..plots.style import COLOURS, MARKERS, new_figure
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
MEASURES = {
    "bucket_0": "pass rate, hardest fifth",
    "pass_rate": "pass rate, all prompts",
    "pass_at_8": "pass@8, all prompts",
}


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
    title="Hard prompts at G = 64 under SGD: MaxRL first, then GRPO, then RLOO; alike at G = 2, "
    "nearly alike under AdamW",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; under SGD equal gradient norms at the "
    "first step",
    alt="Nine panels of pass rate against training step. In groups of two the three curves lie on "
    "each other. In groups of 64 under SGD MaxRL brings the hardest fifth of the prompts to .86, "
    "GRPO to .22, RLOO to .003. Under AdamW, which rescales every prompt's own parameter, all "
    "three end above .96.",
    answers="MaxRL (arXiv 2602.02710) on hard prompts; Dr. GRPO (arXiv 2503.20783) on the "
    "question-level bias; coverage row 33",
    data=training_data,
    recorded=True,
)
def difficulty_training(table: pd.DataFrame) -> Figure:
    """Rows: what is measured; columns: group size and optimiser."""
    picture = new_figure(9.4, 7.2)
    panels = picture.subplots(len(MEASURES), len(RUNS), sharex=True, sharey="row")
    names = list(dict.fromkeys(table["recipe"]))
    for row, (column, label) in zip(panels, MEASURES.items(), strict=True):
        for panel, run in zip(row, RUNS, strict=True):
            draw_lines(panel, table.loc[table.run == run], column, names)
            panel.set_ylim(-0.02, 1.02)
        row[0].set_ylabel(label)
    for panel, run in zip(panels[0], RUNS, strict=True):
        panel.set_title(run)
        ends = intervals(
            table.query("run == @run and step == step.max()"), "bucket_0", by=["recipe"]
        )
        text = "\n".join(f"{n}: {m:.3f}" for n, m in zip(ends["recipe"], ends["mean"], strict=True))
        panel.text(
            0.03, 0.95, f"at the end\n{text}", transform=panel.transAxes, va="top", fontsize=8
        )
    for panel in panels[-1]:
        panel.set_xlabel("training step")
    panels[1][0].legend(loc="upper left")
    return picture


SAMPLINGS = {
    "plain": "plain: dead groups stay",
    "refill": "refill: new prompts for dead groups (DAPO)",
    "reroll": "re-roll the same prompt",
}


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
    title="Dynamic sampling: a third of the updates to a pass rate of .7, and more completions "
    "drawn for it",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; GRPO, G = 8, 16 prompts a step, one "
    "learning rate",
    alt="Three panels. Refilling dead groups reaches a mean pass rate of .7 after 60 updates and "
    "30 thousand completions, re-rolling the same prompt after 106 and 108 thousand, plain "
    "sampling after 180 and 23 thousand. Under plain sampling the share of groups that are all "
    "right grows; refilling keeps every group alive until, late, twenty rounds no longer suffice.",
    answers="DAPO (arXiv 2503.14476) Fig. 3b and Fig. 6: score against steps, which leaves out "
    "what the steps cost",
    data=sampling_data,
    recorded=True,
)
def dynamic_sampling(table: pd.DataFrame) -> Figure:
    """Score against updates, score against completions drawn, and groups without a signal."""
    picture = new_figure(9.6, 3.9)
    by_step, by_cost, silent = picture.subplots(1, 3)
    draw_lines(by_step, table, "pass_rate", list(SAMPLINGS))
    by_step.set(xlabel="updates", ylabel="mean pass rate of the set", title="against updates")
    _against_cost(by_cost, table)
    costs: Any = (
        first_reaching(table, "pass_rate", 0.7).groupby("recipe")[["step", "rollouts"]].mean()
    )
    lines = [
        f"{n}: {costs.step[n]:.0f} updates, {costs.rollouts[n] / 1000:.0f} k" for n in SAMPLINGS
    ]
    by_cost.text(
        0.04,
        0.96,
        "\n".join(["to a pass rate of .7:", *lines]),
        transform=by_cost.transAxes,
        va="top",
        fontsize=7,
    )
    by_cost.set(
        xlabel="completions drawn, thousands",
        title="against what it cost",
        ylim=by_step.get_ylim(),
        xscale="log",
    )
    draw_lines(silent, table, "silent", list(SAMPLINGS))
    draw_lines(silent, table, "all_right", list(SAMPLINGS), linestyle=":", band=False)
    silent.set(
        xlabel="updates", ylabel="share of the step's groups", title="no signal (dotted: all right)"
    )
    silent.set_ylim(-0.02, 1.02)
    by_step.legend(
        by_step.get_legend_handles_labels()[0],
        list(SAMPLINGS.values()),
        loc="lower right",
        fontsize=7,
    )
    by_step.set_ylim(0.4, 1.0)
    return picture


def _against_cost(panel: Axes, table: pd.DataFrame) -> None:
    """Mean pass rate over seeds against the mean number of completions drawn by then."""
    means: Any = table.groupby(["recipe", "step"], sort=False, as_index=False)[
        ["rollouts", "pass_rate"]
    ].mean()
    for i, name in enumerate(SAMPLINGS):
        line = means[(means.recipe == name) & (means.rollouts > 0)]
        panel.plot(
            line.rollouts / 1000,
            line.pass_rate,
            color=COLOURS[i],
            marker=MARKERS[i],
            markevery=6,
            markersize=4,
        )
