"""Figures on advantages and difficulty."""

from __future__ import annotations

from functools import partial

import pandas as pd
import torch
from matplotlib.figure import Figure

from ..objective.advantages import group_mean, group_std, leave_one_out, unscaled
from ..objective.recipe import Recipe
from ..plots.style import COLOURS, MARKERS, evidence, new_figure
from ..rollouts import Rollouts
from .registry import Figured, register

G = 10
ESTIMATORS = {
    "GRPO (std, ddof 0)": Recipe(baseline=group_mean, scale=partial(group_std, ddof=0, eps=0.0)),
    "Dr. GRPO (no std)": Recipe(baseline=group_mean, scale=unscaled),
    "RLOO": Recipe(baseline=leave_one_out, scale=unscaled),
}


def advantage_data() -> pd.DataFrame:
    """Advantage of a right and of a wrong completion when K of G = 10 are right, K = 0 … 10."""
    rows = []
    for name, recipe in ESTIMATORS.items():
        for k in range(G + 1):
            rollouts = Rollouts.from_lengths([1] * G, rewards=[1.0] * k + [0.0] * (G - k))
            advantage = recipe.plan(rollouts).advantage[:, 0]
            right = advantage[0].item() if k else torch.nan
            wrong = advantage[-1].item() if k < G else torch.nan
            rows.append({"estimator": name, "correct": k, "right": right, "wrong": wrong})
    return pd.DataFrame(rows)


def advantage_draw(table: pd.DataFrame) -> Figure:
    """Advantage against K: right completions left, wrong ones right."""
    figure = new_figure(8.0, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for panel, column, word in zip(panels, ("right", "wrong"), ("a right completion", "a wrong completion"), strict=True):
        for k, (name, line) in enumerate(table.groupby("estimator", sort=False)):
            panel.plot(line.correct, line[column], label=name, color=COLOURS[k], marker=MARKERS[k], markersize=4)
        panel.axhline(0, color="#666666", linewidth=0.6)
        panel.set(title=word, xlabel=f"completions of the prompt that are right, of {G}", xticks=range(0, G + 1))
    panels[0].set_ylabel("advantage")
    panels[1].legend(loc="lower left")
    lone = table[(table.estimator.str.startswith("GRPO")) & (table.correct == 1)].right.iloc[0]
    centred = table[(table.estimator.str.startswith("Dr.")) & (table.correct == 1)].right.iloc[0]
    panels[0].annotate(f"lone success: {lone:.1f} against {centred:.1f}", (1, lone), (2.2, lone - 0.1), fontsize=8)
    figure.suptitle("Dividing by the std makes the lone success loud, and the lone failure", x=0.01, ha="left")
    evidence(figure, "exact")
    return figure


register(
    Figured(
        name="advantage_by_correct_count",
        title="Dividing by the std makes the lone success loud, and the lone failure",
        alt="Advantage against the number of right completions among ten. With the std a lone success has advantage 3.0 and a "
        "lone failure minus 3.0; without it 0.9 and minus 0.9; RLOO is ten ninths of that. All-equal groups have 0.",
        answers="the 9-wrong-1-right argument in the Interconnects post of 31 March 2025; coverage row 33",
        level="exact",
        data=advantage_data,
        draw=advantage_draw,
    )
)
