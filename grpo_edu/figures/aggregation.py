"""Figures on aggregation: one token's weight in a short and in a long completion."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure

from ..objective.advantages import given
from ..objective.aggregation import constant, sequence_mean, step_token_mean
from ..objective.catalog import recipe
from ..objective.recipe import Recipe
from ..plots.heatmap import weight_map
from ..plots.style import COLOURS, new_figure
from ..rollouts import Rollouts
from ..weights import ledger, token_weights
from .registry import figure

THREE = Rollouts.from_lengths([2, 2, 8], rewards=[1, 0, 0], max_new_tokens=10)
SHOWN = (recipe("grpo").but("grpo", kl=None), recipe("dr_grpo"), recipe("dapo"))


def three_data() -> pd.DataFrame:
    """The ledger of three completions, one right and two wrong, under GRPO, Dr. GRPO and DAPO."""
    return pd.concat(
        [ledger(one, THREE).assign(recipe=one.name) for one in SHOWN], ignore_index=True
    )


@figure(
    title="Wrong answers: under GRPO a token of the long one is pushed a quarter as hard",
    level="exact",
    alt="Heat maps of gradient weight for completions of 2, 2 and 8 tokens, the first right. GRPO: +0.192, -0.096 and -0.024 per token; "
    "Dr. GRPO and DAPO: the same push on every wrong token, and four times the share for the long one.",
    answers="where the length bias is: Dr. GRPO (arXiv 2503.20783) §3.1; coverage rows 29 and 36",
    data=three_data,
)
def weight_map_three_completions(_: pd.DataFrame) -> Figure:
    """The heat map of the same completions."""
    return weight_map(
        SHOWN,
        THREE,
        title="Wrong answers: under GRPO a token of the long one is pushed a quarter as hard",
    )


STRIPS = {
    "sequence mean (GRPO): 1/N · 1/|o|": sequence_mean,
    "constant (Dr. GRPO), C = 7: 1/N · 1/C": partial(constant, length=7),
    "token mean (DAPO in frameworks): 1/Σ|o|": step_token_mean,
}


def strips_data() -> pd.DataFrame:
    """Weights of two correct completions of 4 and 7 tokens, advantage 2, ratio 1, under three aggregations."""
    rollouts = Rollouts.from_lengths([4, 7], rewards=[1, 1], given_advantage=[2.0, 2.0])
    rows = []
    for name, choice in STRIPS.items():
        weights = token_weights(Recipe(name=name, baseline=given, aggregation=choice), rollouts)
        for i, t in rollouts.mask.nonzero().tolist():
            rows.append(
                {
                    "aggregation": name,
                    "completion": i,
                    "position": t,
                    "weight": weights[i, t].item(),
                }
            )
    return pd.DataFrame(rows)


@figure(
    title="The same two right answers: a token of the long one is pushed less under 1/|o|, alike otherwise",
    level="exact",
    alt="Three strips of bars for completions of 4 and 7 tokens with advantage 2. Sequence mean: 0.25 and 0.1429 per "
    "token; constant 7: 0.1429 on both; token mean: 0.1818 on both.",
    answers="rlhf-book, loss aggregation example (which prints 0.0909 for the token mean, having left the advantage out)",
    data=strips_data,
)
def aggregation_strips(table: pd.DataFrame) -> Figure:
    """One strip per aggregation: bars per token, the number written once per completion, the share beside it."""
    picture = new_figure(8.0, 4.6)
    panels = picture.subplots(3, 2, sharex="col", sharey=True, width_ratios=[4, 7])
    for row, (name, part) in enumerate(table.groupby("aggregation", sort=False)):
        total = part.weight.sum()
        for i, line in part.groupby("completion"):
            panel = panels[row, int(str(i))]
            panel.bar(line.position, line.weight, width=0.85, color=COLOURS[int(str(i))])
            panel.axhline(0, color="#666666", linewidth=0.6)
            label = f"push {line.weight.iloc[0]:.4f} per token, share {100 * line.weight.sum() / total:.0f} %"
            panel.text(0.02, 0.9, label, transform=panel.transAxes, fontsize=8, va="top")
        panels[row, 0].set_title(str(name))
        panels[row, 0].set_ylim(0, 0.33)
        panels[row, 0].set_ylabel("weight")
    for column, length in enumerate((4, 7)):
        panels[2, column].set_xlabel(f"token position ({length} tokens, A = 2)")
    return picture
