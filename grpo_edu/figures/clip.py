"""Figures on ratio and clip."""

from __future__ import annotations

from functools import partial

import pandas as pd
import torch
from matplotlib.figure import Figure

from ..objective import axes
from ..objective.surrogates import cispo, ppo_clip
from ..plots.style import COLOURS, evidence, new_figure
from .registry import Figured, register

SHOWN = {
    "PPO, 0.2 / 0.2": partial(ppo_clip, eps_low=0.2, eps_high=0.2),
    "clip-higher, 0.2 / 0.28": partial(ppo_clip, eps_low=0.2, eps_high=0.28),
    "CISPO, cap 1.28": partial(cispo, low=0.0, high=1.28),
}


def clip_data() -> pd.DataFrame:
    """Objective and its derivative by log π (autograd) on a grid of ratios, A = +1 and -1. Old log-prob -1."""
    ratio = torch.linspace(0.4, 1.8, 281, dtype=torch.float64)
    rows = []
    for name, choice in SHOWN.items():
        for sign in (1.0, -1.0):
            old = torch.full((1, len(ratio)), -1.0, dtype=torch.float64)
            logp = (old + ratio.log()).requires_grad_()
            inputs = {"logp": logp, "old_logp": old, "mask": torch.ones_like(old, dtype=torch.bool)}
            value = axes.run(choice, {**inputs, "advantage": torch.full_like(old, sign)})
            slope = torch.autograd.grad(value.sum(), logp)[0]
            rows.append(
                pd.DataFrame(
                    {"surrogate": name, "advantage": sign, "ratio": ratio, "objective": value[0].detach(), "gradient": slope[0]}
                )
            )
    return pd.concat(rows, ignore_index=True).round(12)


def clip_draw(table: pd.DataFrame) -> Figure:
    """Objective above, gradient below; good token left, bad token right."""
    figure = new_figure(8.0, 5.2)
    panels = figure.subplots(2, 2, sharex=True, sharey="row")
    for column, (sign, word) in enumerate([(1.0, "A = +1, push up"), (-1.0, "A = −1, push down")]):
        part = table[table.advantage == sign]
        for k, (name, line) in enumerate(part.groupby("surrogate", sort=False)):
            style = {"color": COLOURS[k], "linestyle": ("-", "--", "-.")[k], "linewidth": 1.8}
            if not str(name).startswith("CISPO"):
                panels[0, column].plot(line.ratio, line.objective, label=name, **style)
            panels[1, column].plot(line.ratio, line.gradient, label=name, **style)
        panels[0, column].set_title(word)
        panels[1, column].set_xlabel("importance ratio ρ")
        for panel in panels[:, column]:
            for kink in (0.8, 1.2, 1.28):
                panel.axvline(kink, color="#bbbbbb", linewidth=0.6, zorder=0)
    panels[0, 0].set_ylabel("objective of the token")
    panels[1, 0].set_ylabel("gradient by log π")
    panels[1, 0].legend(loc="lower left")
    figure.suptitle(
        "Two of six cells lose their gradient: a good token above the band, a bad token below it", x=0.01, ha="left"
    )
    evidence(figure, "exact (autograd); CISPO's objective depends on log π, so only its gradient is drawn")
    return figure


register(
    Figured(
        name="clip_objective",
        title="Two of six cells lose their gradient: a good token above the band, a bad token below it",
        alt="Objective and gradient against the importance ratio. PPO's gradient is zero above 1.2 for a positive advantage "
        "and below 0.8 for a negative one; clip-higher moves the first edge to 1.28; CISPO caps the gradient and never zeroes it.",
        answers="rlhf-book, chapter on policy gradients, figure of the PPO clip; coverage rows 6 and 12",
        level="exact",
        data=clip_data,
        draw=clip_draw,
    )
)
