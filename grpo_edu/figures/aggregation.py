"""Figures on aggregation: one token's weight in a short and in a long completion."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from ..objective.advantages import given
from ..objective.aggregation import constant, sequence_mean, step_token_mean
from ..objective.catalog import recipe
from ..objective.recipe import Recipe
from ..plots.heatmap import draw_map
from ..plots.style import COLOURS, new_figure
from ..rollouts import Rollouts
from ..weights import ledger, token_weights
from .registry import figure

# --- two right answers

STRIPS = {
    "sequence mean (GRPO): 1/N · 1/|o|": sequence_mean,
    "constant (Dr. GRPO), C = 7: 1/N · 1/C": partial(constant, length=7),
    "token mean (DAPO in frameworks): 1/Σ|o|": step_token_mean,
}


def strips_data() -> pd.DataFrame:
    """Weights of two correct completions of 4 and 7 tokens, advantage 2, ratio 1, under three
    aggregations."""
    rollouts = Rollouts.from_lengths([4, 7], rewards=[1, 1], given_advantage=[2.0, 2.0])
    rows = []
    for name, choice in STRIPS.items():
        weights = token_weights(Recipe(name=name, baseline=given, aggregation=choice), rollouts)
        for i, t in rollouts.mask.nonzero().tolist():
            place = {"aggregation": name, "completion": i, "position": t}
            rows.append(place | {"weight": weights[i, t].item()})
    return pd.DataFrame(rows)


@figure(
    title="The same two right answers: a token of the long one is pushed less under 1/|o|, alike "
    "otherwise",
    level="exact",
    alt="Three strips of bars for completions of 4 and 7 tokens with advantage 2. Sequence mean: "
    "0.25 and 0.1429 per token; constant 7: 0.1429 on both; token mean: 0.1818 on both.",
    answers="rlhf-book, loss aggregation example (which prints 0.0909 for the token mean, having "
    "left the advantage out)",
    data=strips_data,
)
def aggregation_strips(table: pd.DataFrame) -> Figure:
    """One strip per aggregation: bars per token, the number written once per completion, the share
    beside it."""
    picture = new_figure(8.0, 4.6)
    panels = picture.subplots(3, 2, sharex="col", sharey=True, width_ratios=[4, 7])
    for row, (name, part) in enumerate(table.groupby("aggregation", sort=False)):
        for i, (_, line) in enumerate(part.groupby("completion")):
            panel = panels[row, i]
            panel.bar(line.position, line.weight, width=0.85, color=COLOURS[i])
            panel.axhline(0, color="#666666", linewidth=0.6)
            share = 100 * line.weight.sum() / part.weight.sum()
            label = f"push {line.weight.iloc[0]:.4f} per token, share {share:.0f} %"
            panel.text(0.02, 0.9, label, transform=panel.transAxes, fontsize=8, va="top")
        panels[row, 0].set_title(str(name))
        panels[row, 0].set_ylim(0, 0.33)
        panels[row, 0].set_ylabel("weight")
    for column, length in enumerate((4, 7)):
        panels[2, column].set_xlabel(f"token position ({length} tokens, A = 2)")
    return picture


# --- three completions under three recipes

THREE = Rollouts.from_lengths([2, 2, 8], rewards=[1, 0, 0], max_new_tokens=10)
SHOWN = (recipe("grpo").but("grpo", kl=None), recipe("dr_grpo"), recipe("dapo"))


def three_data() -> pd.DataFrame:
    """The ledger of three completions, one right and two wrong, under GRPO, Dr. GRPO and DAPO."""
    return pd.concat([ledger(r, THREE).assign(recipe=r.name) for r in SHOWN], ignore_index=True)


def _panel(part: pd.DataFrame) -> dict[str, np.ndarray]:
    """What ``draw_map`` draws of the ledger of one recipe."""
    push = part.pivot(index="completion", columns="position", values="push").to_numpy()
    stopped = part.assign(stopped=(part.gate == 0) & (part.advantage != 0))
    clipped = stopped.pivot(index="completion", columns="position", values="stopped")
    total = np.nansum(push, axis=1)
    return {
        "mask": ~np.isnan(push),
        "push": push,
        "clipped": clipped.eq(True).to_numpy(),
        "mean": total / (~np.isnan(push)).sum(axis=1),
        "share": total / np.nansum(np.abs(push)),
    }


@figure(
    title="Wrong answers: under GRPO a token of the long one is pushed a quarter as hard",
    level="exact",
    alt="Heat maps of gradient weight for completions of 2, 2 and 8 tokens, the first right. "
    "GRPO: +0.192, -0.096 and -0.024 per token; Dr. GRPO and DAPO: the same push on every wrong "
    "token, and four times the share for the long one.",
    answers="where the length bias is: Dr. GRPO (arXiv 2503.20783) §3.1; coverage rows 29 and 36",
    data=three_data,
)
def weight_map_three_completions(table: pd.DataFrame) -> Figure:
    """The ledger as a heat map, one panel per recipe."""
    parts = [part for _, part in table.groupby("recipe", sort=False)]
    rows = parts[0].groupby("completion")
    completions = Rollouts.from_lengths(rows.size().tolist(), rows.reward.first().tolist())
    return draw_map(SHOWN, completions, [_panel(part) for part in parts])
