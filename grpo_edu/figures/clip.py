"""Figures on ratio, clip and reward shaping."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from ..objective import axes, rewards
from ..objective.aggregation import sequence_sum
from ..objective.catalog import recipe
from ..objective.surrogates import EXAMPLES, cispo, ppo_clip
from ..plots.style import (
    DASHES,
    GREY,
    RECIPES,
    SERIES,
    WIDTH,
    Look,
    look,
    name_line,
    new_figure,
    note,
    tint,
)
from ..rollouts import Rollouts
from ..weights import token_weights
from .registry import figure

SHOWN = {
    "PPO, 0.2 / 0.2": partial(ppo_clip, eps_low=0.2, eps_high=0.2),
    "clip-higher, 0.2 / 0.28": partial(ppo_clip, eps_low=0.2, eps_high=0.28),
    "CISPO, cap 1.28": partial(cispo, low=0.0, high=1.28),
    "SAPO, 1.0 / 1.05": EXAMPLES["SAPO"],
}
CURVES = dict(
    zip(
        SHOWN,
        (
            RECIPES["ppo"]._replace(label="PPO and GRPO"),
            RECIPES["dapo"]._replace(label="clip-higher"),
            RECIPES["cispo"],
            RECIPES["sapo"],
        ),
        strict=True,
    )
)


def clip_data() -> pd.DataFrame:
    """Objective and its derivative by log π (autograd) on a grid of ratios, A = +1 and -1. Old
    log-prob -1."""
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
                    {
                        "surrogate": name,
                        "advantage": sign,
                        "ratio": ratio,
                        "objective": value[0].detach(),
                        "gradient": slope[0],
                    }
                )
            )
    return pd.concat(rows, ignore_index=True).round(12)


@figure(
    title="PPO's clip ends the push on a good token above 1.2 and on a bad one below 0.8; CISPO "
    "and SAPO never end it",
    level="exact",
    caption="exact (autograd); push: gradient of the objective by the token's log probability; "
    "clip-higher and CISPO's cap: 1.28",
    alt="Gradient against the importance ratio. PPO's gradient is zero above 1.2 "
    "for a positive advantage and below 0.8 for a negative one; clip-higher moves the first edge "
    "to 1.28; CISPO caps the gradient and never zeroes it; SAPO fades it out.",
    answers="rlhf-book, chapter on policy gradients, figure of the PPO clip; coverage rows 6 and "
    "12",
    data=clip_data,
)
def clip_objective(table: pd.DataFrame) -> Figure:
    """Gradient by log π against the ratio: good token left, bad token right."""
    picture = new_figure(WIDTH, 4.2)
    panels = picture.subplots(1, 2, sharex=True)
    for panel, sign in zip(panels, (1.0, -1.0), strict=True):
        part = table.loc[table.advantage == sign]
        panel.axvspan(0.8, 1.2, color=tint(), zorder=0)
        for k, (name, of) in enumerate(CURVES.items()):
            line = part.loc[part.surrogate == name]
            style: dict[str, Any] = {"color": of.colour, "linestyle": DASHES[k], "linewidth": 2}
            panel.plot(line.ratio, line.gradient, **style)
            name_line(panel, line.ratio, line.gradient, of.label, of.colour)
        panel.plot([0.4, 1.8], [0, 0], color=GREY, linewidth=0.8, zorder=0.5)
        low, high = (-0.15, 1.6) if sign > 0 else (-2.0, 0.2)
        panel.set(
            xlabel="ratio: probability now / when sampled",
            xlim=(0.33, 1.87),
            ylim=(low, high),
            xticks=[0.4, 0.8, 1.2, 1.6],
            yticks=[0, 0.4, 0.8, 1.2, 1.6] if sign > 0 else [-1.6, -1.2, -0.8, -0.4, 0],
        )
        panel.set_title("good token (advantage +1)" if sign > 0 else "bad token (advantage −1)")
        note(panel, 0.435, 0.02 if sign < 0 else 0.94, "band", ha="center")
    panels[0].set_ylabel("push on the token")
    return picture


# --- reward against length: the overlong penalty


def overlong_data() -> pd.DataFrame:
    """The soft penalty of DAPO at L_max 20480, cache 4096, by length."""
    lengths = [*range(14000, 22001, 500), 16384, 18432, 20480]
    mask = torch.arange(22000)[None] < torch.tensor(sorted(lengths))[:, None]
    penalty = rewards.overlong_penalty(
        torch.zeros(len(lengths), dtype=torch.float64), mask, 20480, cache=4096
    )["reward"]
    return pd.DataFrame({"length": sorted(lengths), "penalty": penalty})


@figure(
    title="DAPO's overlong penalty grows from 0 to −1 over the last 4,096 tokens before the limit",
    level="exact",
    caption="exact; limit 20,480 tokens, of which the last 4,096 are penalised",
    alt="Penalty against length: zero up to 16384 tokens, minus one half at 18432, minus one from "
    "20480 on.",
    answers="DAPO (arXiv 2503.14476) Eq. 13; the blog of March 2025 says 12k to 16k, the paper "
    "16,384 + 4,096",
    data=overlong_data,
)
def overlong_penalty(table: pd.DataFrame) -> Figure:
    """One line."""
    picture = new_figure(WIDTH, 3.6)
    panel = picture.subplots()
    panel.axvspan(16384, 20480, color=tint(), zorder=0)
    panel.plot(table.length, table.penalty, color=RECIPES["dapo"].colour, linewidth=2.4)
    for x, y, label in (
        (16384, 0, "16,384 tokens: 0"),
        (18432, -0.5, "18,432 tokens: −½"),
        (20480, -1, "20,480 tokens: −1"),
    ):
        panel.plot(x, y, RECIPES["dapo"].marker, color=RECIPES["dapo"].colour, markersize=7)
        how: dict[str, Any] = {"xytext": (-9, -11), "textcoords": "offset points", "ha": "right"}
        panel.annotate(label, (x, y), **how)
    note(panel, 0.555, 0.96, "the last 4,096 tokens before the limit", ha="center", va="top")
    panel.set(
        xlabel="tokens of the answer",
        ylabel="added to the reward",
        ylim=(-1.15, 0.25),
        xticks=[14000, 16384, 18432, 20480, 22000],
        xticklabels=["14,000", "16,384", "18,432", "20,480", "22,000"],
    )
    return picture


# --- sequence ratios on policy

ON_POLICY = Rollouts.from_lengths([3, 12, 6, 24], [1, 0, 0, 1], max_new_tokens=24)
SEQUENCES = {name: recipe(name) for name in ("grpo", "gspo", "gmpo", "luspo")}
SUMS = {"grpo, sequence sum": Look("sequence sum", SERIES[5], "+")}
SEQUENCES["grpo, sequence sum"] = recipe("grpo").but(aggregation=sequence_sum)


def equivalence_data() -> pd.DataFrame:
    """Push per token on policy under five losses, four completions."""
    rows = []
    for name, loss in SEQUENCES.items():
        weights = token_weights(loss.but(kl=None), ON_POLICY)
        rows += [
            {"loss": name, "completion": i, "length": int(n), "push": weights[i, 0].item()}
            for i, n in enumerate(ON_POLICY.lengths)
        ]
    return pd.DataFrame(rows)


@figure(
    title="At the first update GSPO and GMPO push exactly as GRPO does, 1/|o| included; LUSPO "
    "pushes as a plain sum over tokens",
    level="exact",
    caption="exact, on policy (every ratio is 1), without KL; one bar per answer; push: size of "
    "the gradient weight of each of its tokens",
    alt="Five panels of four bars, push per token for answers of 3, 6, 12 and 24 tokens: the bars "
    "of GRPO, GSPO and GMPO are the same and fall like one over the length; those of LUSPO and of "
    "the sequence sum are the same and do not depend on length.",
    answers="GSPO (arXiv 2507.18071) and LUSPO (arXiv 2602.05261); the claim that GSPO prevents "
    "length bias",
    data=equivalence_data,
)
def sequence_ratio_equivalence(table: pd.DataFrame) -> Figure:
    """One panel per loss, one bar per length."""
    picture = new_figure(WIDTH, 3.8)
    losses = table.assign(push=table.push.abs()).groupby("loss", sort=False)
    panels = picture.subplots(1, losses.ngroups, sharex=True, sharey=True)
    for panel, (name, part) in zip(panels, losses, strict=True):
        of = SUMS.get(str(name)) or look(str(name))
        part = part.sort_values("length")
        bars = panel.bar(part.length.astype(str), part.push, color=of.colour, width=0.7)
        panel.bar_label(bars, fmt="%.3f", fontsize=8)
        panel.set_title(of.label, color=of.colour)
        panel.tick_params(length=0)
    panels[0].set(ylabel="push on each token", yticks=[0, 0.1, 0.2], ylim=(0, 0.25))
    panels[len(panels) // 2].set_xlabel("tokens of the answer")
    return picture
