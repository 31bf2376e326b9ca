"""Figures on ratio, clip and reward shaping."""

from __future__ import annotations

from functools import partial

import pandas as pd
import torch
from matplotlib.figure import Figure

from ..objective import axes, rewards
from ..objective.aggregation import sequence_sum
from ..objective.catalog import recipe
from ..objective.surrogates import EXAMPLES, cispo, ppo_clip
from ..plots.style import COLOURS, MARKERS, new_figure
from ..rollouts import Rollouts
from ..weights import token_weights
from .registry import figure

SHOWN = {
    "PPO, 0.2 / 0.2": partial(ppo_clip, eps_low=0.2, eps_high=0.2),
    "clip-higher, 0.2 / 0.28": partial(ppo_clip, eps_low=0.2, eps_high=0.28),
    "CISPO, cap 1.28": partial(cispo, low=0.0, high=1.28),
    "SAPO, 1.0 / 1.05": EXAMPLES["SAPO"],
}
LINES = ("-", "--", "-.", ":")


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
    title="Two of six cells lose their gradient: a good token above the band, a bad token below it",
    level="exact",
    caption="exact (autograd); CISPO's objective depends on log π, so only its gradient is drawn",
    alt="Objective and gradient against the importance ratio. PPO's gradient is zero above 1.2 "
    "for a positive advantage and below 0.8 for a negative one; clip-higher moves the first edge "
    "to 1.28; CISPO caps the gradient and never zeroes it; SAPO fades it out.",
    answers="rlhf-book, chapter on policy gradients, figure of the PPO clip; coverage rows 6 and "
    "12",
    data=clip_data,
)
def clip_objective(table: pd.DataFrame) -> Figure:
    """Objective above, gradient below; good token left, bad token right."""
    picture = new_figure(8.0, 5.2)
    panels = picture.subplots(2, 2, sharex=True, sharey="row")
    headings = {1.0: "A = +1, push up", -1.0: "A = −1, push down"}
    for column, (sign, heading) in enumerate(headings.items()):
        part = table.loc[table.advantage == sign]
        for k, (name, choice) in enumerate(SHOWN.items()):
            line = part.loc[part.surrogate == name]
            style = {"color": COLOURS[k], "linestyle": LINES[k], "linewidth": 1.8}
            if axes.function_of(choice) is not cispo:
                panels[0, column].plot(line.ratio, line.objective, label=name, **style)
            panels[1, column].plot(line.ratio, line.gradient, label=name, **style)
        panels[0, column].set_title(heading)
        panels[1, column].set_xlabel("importance ratio ρ")
        for panel in panels[:, column]:
            for kink in (0.8, 1.2, 1.28):
                panel.axvline(kink, color="#bbbbbb", linewidth=0.6, zorder=0)
    panels[0, 0].set_ylabel("objective of the token")
    panels[1, 0].set_ylabel("gradient by log π")
    panels[1, 0].legend(loc="lower left")
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
    title="The overlong penalty leans on the last 4096 tokens before the limit",
    level="exact",
    alt="Penalty against length: zero up to 16384 tokens, minus one half at 18432, minus one from "
    "20480 on.",
    answers="DAPO (arXiv 2503.14476) Eq. 13; the blog of March 2025 says 12k to 16k, the paper "
    "16,384 + 4,096",
    data=overlong_data,
)
def overlong_penalty(table: pd.DataFrame) -> Figure:
    """One line."""
    picture = new_figure(6.0, 3.2)
    panel = picture.subplots()
    panel.plot(table.length, table.penalty, color=COLOURS[0], linewidth=2)
    for x, y, label in (
        (16384, 0, "16384: nothing yet"),
        (18432, -0.5, "18432: −½"),
        (20480, -1, "20480: −1"),
    ):
        panel.plot(x, y, "o", color=COLOURS[2])
        panel.annotate(label, (x, y), xytext=(6, 6), textcoords="offset points", fontsize=8)
    panel.set(xlabel="tokens of the completion", ylabel="added to the reward")
    return picture


# --- sequence ratios on policy

ON_POLICY = Rollouts.from_lengths([3, 12, 6, 24], [1, 0, 0, 1], max_new_tokens=24)
SEQUENCES = {name: recipe(name) for name in ("grpo", "gspo", "gmpo", "luspo")}
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
    title="On policy GSPO and GMPO are GRPO, 1/|o| and all; LUSPO is the sequence sum",
    level="exact",
    alt="Push per token against length for four completions on log axes: GRPO, GSPO and GMPO "
    "coincide and fall like one over the length; LUSPO and the sequence sum coincide and do not "
    "depend on length.",
    answers="GSPO (arXiv 2507.18071) and LUSPO (arXiv 2602.05261); the claim that GSPO prevents "
    "length bias",
    data=equivalence_data,
)
def sequence_ratio_equivalence(table: pd.DataFrame) -> Figure:
    """Push against length, one marker per loss."""
    picture = new_figure(6.6, 3.6)
    panel = picture.subplots()
    for k, (name, part) in enumerate(table.groupby("loss", sort=False)):
        part = part.sort_values("length")
        style = {
            "marker": MARKERS[k],
            "color": COLOURS[k],
            "markersize": 11 - 2 * k,
            "fillstyle": "none",
            "linestyle": "none",
            "markeredgewidth": 1.6,
        }
        panel.plot(part.length, part.push.abs(), label=str(name), **style)
    panel.set(
        xlabel="tokens of the completion", ylabel="|push| on a token", yscale="log", xscale="log"
    )
    panel.set_xticks([3, 6, 12, 24], ["3", "6", "12", "24"])
    panel.minorticks_off()
    panel.legend()
    return picture
