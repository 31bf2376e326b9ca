"""Figures drawn from the framework tables."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ..frameworks.effective import effective_table
from ..plots.style import DOWN, UP, new_figure
from .registry import figure


@figure(
    title='One name, many losses: the advantage and the push per token of "GRPO" by framework and '
    "version",
    level="exact, for the losses that the framework tables state",
    alt="One row for each framework and version. Left, the advantage of the one success among "
    "four: about 1.5 where the group std divides, 1.0 in NeMo-RL, 0.75 in open-instruct, which do "
    "not. Right, the push per token in a completion of 10 and of 100 tokens: ten to one under the "
    "mean of each completion, one point under a token mean.",
    answers="TRL issue 3187, verl issue 957: which loss does a framework run under the name GRPO?",
    data=effective_table,
)
def which_grpo(table: pd.DataFrame) -> Figure:
    """Left: advantages on rewards 1 0 0 0. Right: push per token at 10 and at 100 tokens, joined;
    one point: no length bias."""
    picture = new_figure(9.6, 1.4 + 0.27 * len(table))
    left, right = picture.subplots(1, 2, sharey=True)
    rows = range(len(table))
    left.axvline(0, color="#666666", linewidth=0.6)
    left.plot(table["advantage of a failure"], rows, "v", color=DOWN)
    left.plot(table["advantage of the success"], rows, "^", color=UP)
    right.hlines(
        rows, table["push, 100 tokens"], table["push, 10 tokens"], color="#9c9ca1", linewidth=2
    )
    right.plot(table["push, 10 tokens"], rows, "o", color="#1a1a1a")
    right.plot(
        table["push, 100 tokens"], rows, "s", color="none", markeredgecolor="#1a1a1a", markersize=9
    )
    left.set(
        yticks=list(rows),
        yticklabels=table["framework"],
        xlabel="advantage, rewards 1 0 0 0",
        xlim=(-1, 2),
    )
    left.invert_yaxis()
    right.set(
        xscale="log", xlabel="push per token, advantage ±1 (log scale)", xlim=(1 / 300, 1 / 13)
    )
    right.set_xticks([1 / 200, 1 / 110, 1 / 20], ["1/200", "1/110", "1/20"])
    right.minorticks_off()
    left.set_title("▲ the one success, ▼ each of three failures", fontsize=9)
    right.set_title("● in a completion of 10 tokens, □ of 100", fontsize=9)
    for axis in (left, right):
        axis.grid(axis="y", color="#e6e6e6")
    return picture
