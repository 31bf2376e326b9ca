"""Figures drawn from the framework tables."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ..frameworks.effective import effective_table
from ..plots.style import DOWN, GREY, UP, WIDTH, ink, new_figure, quiet, tint
from .registry import figure

WRITTEN = {
    "areal": "AReaL",
    "easyr1": "EasyR1",
    "nemo_rl": "NeMo-RL",
    "openrlhf": "OpenRLHF",
    "roll": "ROLL",
    "skyrl": "SkyRL",
    "trl": "TRL",
    "unsloth": "Unsloth",
}


@figure(
    title='Under the one name "GRPO" frameworks run different losses, and one framework changes '
    "its loss from version to version",
    level="exact, for the losses that the framework tables state",
    caption="exact, for the losses that the framework tables state; push: gradient weight of a "
    "token; std: standard deviation of the group's rewards",
    alt="One row for each framework and version. Left, the advantage of the one success among "
    "four: about 1.5 where the group std divides, 1.0 in NeMo-RL, 0.75 in open-instruct, which do "
    "not. Right, the push per token in a completion of 10 and of 100 tokens: ten to one under the "
    "mean of each completion, one point under a token mean.",
    answers="TRL issue 3187, verl issue 957: which loss does a framework run under the name GRPO?",
    data=effective_table,
)
def which_grpo(table: pd.DataFrame) -> Figure:
    """Left: advantages on rewards 1 0 0 0. Right: push per token at 10 and at 100 tokens, joined;
    one point: no length bias. Rows with one result stand together."""
    short, long, success = "push, 10 tokens", "push, 100 tokens", "advantage of the success"
    results = table.assign(bias=(table[short] / table[long]).round(1), gain=table[success].round(1))
    order = results.sort_values(["bias", "gain"], ascending=False, kind="stable")
    picture = new_figure(WIDTH, 1.8 + 0.27 * len(table))
    left, right = picture.subplots(1, 2, sharey=True)
    rows = []
    starts = {}
    for result, part in order.groupby(["bias", "gain"], sort=False):
        starts[result] = rows[-1] + 2 if rows else 0
        rows += [starts[result] + k + 1 for k in range(len(part))]
        edges = [starts[result] + 0.5, rows[-1] + 0.5]
        left.plot([0, 0], edges, color=GREY, linewidth=0.8, zorder=0.5)
    left.plot(order["advantage of a failure"], rows, "v", color=DOWN)
    left.plot(order[success], rows, "^", color=UP)
    right.hlines(rows, order[long], order[short], color=GREY, linewidth=2)
    right.plot(order[short], rows, "o", color=ink())
    right.plot(order[long], rows, "s", color="none", markeredgecolor=ink(), markersize=9)
    for (bias, gain), y in starts.items():
        mean = "mean of each answer" if bias > 1 else "mean of all tokens"
        scale = "divided by the std" if gain > 1.4 else "by the std of the others"
        words = f"{mean}, {scale if gain > 0.9 else 'not divided'}"
        left.text(-0.95, y, words, va="center", fontweight="bold")
    left.set(
        yticks=rows,
        yticklabels=[_named(at) for at in order["framework"]],
        xlabel="advantage where one answer of four is right",
        xlim=(-1, 2),
        title="▲ the right answer, ▼ each wrong one",
    )
    left.set_ylim(rows[-1] + 0.8, -0.9)
    right.set(
        xscale="log",
        xlabel="push on each token at advantage ±1 (log)",
        xlim=(1 / 300, 1 / 13),
        title="● in an answer of 10 tokens, □ of 100",
    )
    right.set_xticks([1 / 200, 1 / 110, 1 / 20], ["1/200", "1/110", "1/20"])
    right.minorticks_off()
    for axis in (left, right):
        axis.tick_params(axis="y", length=0, labelcolor=quiet())
        axis.hlines(rows, *axis.get_xlim(), color=tint(), linewidth=0.8, zorder=0)
    return picture


def _named(at: str) -> str:
    """A framework and version as people write them: "TRL 0.16"."""
    name, _, version = at.replace("@", "==at ").partition("==")
    return f"{WRITTEN.get(name, name.replace('_', '-'))} {version}"
