"""Figures on advantages, difficulty and KL."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from ..objective import kl
from ..objective.advantages import group_mean, group_std, unscaled
from ..objective.catalog import recipe
from ..objective.recipe import Recipe
from ..plots.style import (
    GREY,
    RECIPES,
    SERIES,
    WIDTH,
    Look,
    ink,
    name_line,
    new_figure,
    rule,
)
from ..rollouts import Rollouts
from ..theory import kl as exact_kl
from ..theory.difficulty import infinite_std_weight, silent_probability, std_weight
from ..theory.difficulty import prompt_weight as weight_at
from .registry import figure

G = 10
ESTIMATORS = {
    "grpo": Recipe(baseline=group_mean, scale=partial(group_std, ddof=0, eps=0.0)),
    "dr_grpo": Recipe(baseline=group_mean, scale=unscaled),
}


def advantage_data() -> pd.DataFrame:
    """Advantage of a right and of a wrong completion when K of G = 10 are right, K = 0 … 10."""
    rows = []
    for name, estimator in ESTIMATORS.items():
        for k in range(G + 1):
            rollouts = Rollouts.from_lengths([1] * G, rewards=[1.0] * k + [0.0] * (G - k))
            advantage = estimator.plan(rollouts).advantage[:, 0]
            right = advantage[0].item() if k else torch.nan
            wrong = advantage[-1].item() if k < G else torch.nan
            rows.append({"estimator": name, "correct": k, "right": right, "wrong": wrong})
    return pd.DataFrame(rows)


@figure(
    title="Division by the std more than triples the advantage of a lone success or failure",
    level="exact",
    caption="exact; rewards 1 and 0; std: standard deviation of the ten rewards (ddof 0); "
    "advantage: what an answer's push is multiplied by",
    alt="Advantage against the number of right completions among ten. With the std a lone success "
    "has advantage 3.0 and a lone failure minus 3.0; without it 0.9 and minus 0.9; at five right "
    "answers 1.0 and 0.5.",
    answers="the 9-wrong-1-right argument in the Interconnects post of 31 March 2025; coverage "
    "row 33",
    data=advantage_data,
)
def advantage_by_correct_count(table: pd.DataFrame) -> Figure:
    """Advantage against K: right completions left, wrong ones right."""
    picture = new_figure(WIDTH, 4.4)
    panels = picture.subplots(1, 2, sharey=True)
    labels = {"grpo": "divided by the std (GRPO)", "dr_grpo": "not divided (Dr. GRPO)"}
    for panel, (column, sign) in zip(panels, {"right": 1, "wrong": -1}.items(), strict=True):
        for name, line in table.dropna(subset=[column]).groupby("estimator", sort=False):
            of = RECIPES[str(name)]
            line = line.set_index("correct")[column]
            panel.plot(line, color=of.colour, marker=of.marker, markersize=6)
            lone = 5 - 4 * sign
            text = f"{line[lone]:.1f}".replace("-", "−")
            how: Any = {"textcoords": "offset points", "va": "center", "color": of.colour}
            side = "right" if sign > 0 else "left"
            at = (lone, line[lone])
            panel.annotate(text, at, (-9 * sign, 0), ha=side, fontweight="bold", **how)
        rule(panel)
        panel.set(
            title=f"advantage of a {column} answer",
            xlabel=f"right answers of {G}",
            xticks=range(0, G + 1),
            xlim=(-0.6, G + 0.6),
        )
    for y, (name, text) in zip((-1.2, -1.8), labels.items(), strict=True):
        panels[0].text(1, y, text, color=RECIPES[name].colour)
    panels[0].set(ylabel="advantage", ylim=(-3.5, 3.5))
    return picture


# --- the weight of a prompt


@dataclass(frozen=True)
class Scheme:
    """A line of the figure: w as a function of the pass rate, and its look; lines of the std are
    paler for small groups."""

    weight: Callable[[float], float]
    look: Look
    alpha: float = 1.0
    linestyle: str = "-"


def _of_recipe(name: str, size: int) -> Scheme:
    return Scheme(partial(weight_at, recipe(name), size=size), RECIPES[name], linestyle="-.")


SCHEMES = {
    **{
        f"std, G = {size}": Scheme(partial(std_weight, size=size), RECIPES["grpo"], 0.4 + 0.1 * k)
        for k, size in enumerate((2, 3, 4, 8, 16, 64))
    },
    "std, G = ∞": Scheme(infinite_std_weight, RECIPES["grpo"], 1.0, "--"),
    "RLOO": _of_recipe("rloo", 8),
    "MaxRL, G = 16": _of_recipe("maxrl", 16),
}


def weight_data() -> pd.DataFrame:
    """w_G(p) of the std at several G, the infinite picture, and RLOO and MaxRL beside it."""
    rows = []
    for logit in range(-26, 27):
        p = 1 / (1 + math.exp(-logit / 5))
        for name, scheme in SCHEMES.items():
            rows.append({"scheme": name, "p": p, "weight": scheme.weight(p)})
    return pd.DataFrame(rows)


@figure(
    title="From groups of 4 on, division by the std favours hard and easy prompts, up to a weight "
    "of √(G−1)",
    level="exact",
    caption="exact; weight: the expected gradient of the prompt, in units of the gradient of its "
    "pass rate; G: answers per prompt; std: of their rewards; short rules at the edges: √(G−1)",
    alt="Expected weight of a prompt against its pass rate. With the std it is 1 at G = 2, root 2 "
    "at G = 3, and U-shaped from G = 4 on, up to root of G minus 1 at both ends, marked; the "
    "infinite-group curve is one over root p(1-p); RLOO is flat; MaxRL falls from left to right.",
    answers="MaxRL (arXiv 2602.02710) Fig. 1; Davis and Recht (arXiv 2510.13651); Dr. GRPO on the "
    "question-level bias",
    data=weight_data,
)
def prompt_weight(table: pd.DataFrame) -> Figure:
    """The weight on a log axis, every line named, the limits of the std marked."""
    picture = new_figure(WIDTH, 4.8)
    panel = picture.subplots()
    for name, scheme in SCHEMES.items():
        line = table[table.scheme == name]
        panel.plot(
            line.p,
            line.weight,
            color=scheme.look.colour,
            linestyle=scheme.linestyle,
            alpha=scheme.alpha,
        )
    blue = RECIPES["grpo"].colour
    for size in (4, 8, 16, 64):
        limit = math.sqrt(size - 1)
        panel.plot([0, 1], [limit, limit], "_", color=ink(), markersize=9)
        place: Any = {"xytext": (9, 0), "textcoords": "offset points", "va": "center"}
        text = f"std, G = {size}: up to √{size - 1}"
        panel.annotate(text, (1, limit), color=blue, annotation_clip=False, **place)
    infinite = table[table.scheme == "std, G = ∞"]
    name_line(panel, infinite.p, infinite.weight, "std, G = ∞: no limit", blue)
    panel.text(0.13, 8.5, "MaxRL, G = 16", color=RECIPES["maxrl"].colour)
    panel.text(0.5, 0.91, "RLOO, and std at G = 2", ha="center", va="center", color=ink())
    panel.text(0.5, 1.31, "std, G = 3", ha="center", va="center", color=blue)
    panel.set(
        yscale="log",
        ylim=(0.8, 20),
        yticks=[1, 2, 5, 10, 20],
        yticklabels=["1", "2", "5", "10", "20"],
        xlabel="pass rate of the prompt (hard left, easy right)",
        ylabel="weight of the prompt (log)",
    )
    panel.minorticks_off()
    return picture


# --- silent groups


def silent_group_data() -> pd.DataFrame:
    """Chance of an all-equal group by pass rate and group size."""
    ps = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]
    return pd.DataFrame(
        [
            {"p": p, "G": g, "silent": silent_probability(p, g)}
            for g in (2, 4, 8, 16, 32, 64)
            for p in ps
        ]
    )


@figure(
    title="Hard and easy prompts need large groups: small ones are often all right or all wrong, "
    "and teach nothing",
    level="exact",
    alt="Heat map of p to the G plus (1-p) to the G. At pass rate 0.5 half of the groups of two "
    "are silent and none of eight; at 0.01 still 53 percent of groups of 64.",
    answers="DAPO (arXiv 2503.14476) Fig. 3b and dynamic sampling; learner question: how many "
    "generations do I need?",
    caption="exact; where all answers of a group get one reward, every advantage is 0; pass rate: "
    "chance that an answer is right",
    data=silent_group_data,
)
def silent_groups(table: pd.DataFrame) -> Figure:
    """Heat map with the number in each cell."""
    grid = 100 * table.pivot(index="G", columns="p", values="silent")
    picture = new_figure(WIDTH, 3.8)
    panel = picture.subplots()
    panel.imshow(grid.values, cmap="Greys", vmin=0, vmax=100, aspect="auto", origin="lower")
    for y, row in enumerate(grid.values):
        for x, value in enumerate(row):
            colour = "white" if value > 62 else "black"
            panel.text(x, y, f"{value:.0f}", ha="center", va="center", color=colour)
    panel.set(
        xticks=range(grid.shape[1]),
        xticklabels=[f"{p:g}" for p in grid.columns],
        yticks=range(grid.shape[0]),
        yticklabels=list(grid.index),
        xlabel="pass rate of the prompt (hard left, easy right)",
        ylabel="answers per prompt, G",
        title="groups that are all right or all wrong, %",
    )
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    return picture


# --- KL estimators


TRUE_KL = {"KL(π‖ref)": exact_kl.reverse, "KL(ref‖π)": exact_kl.forward}


def kl_data() -> pd.DataFrame:
    """Value and gradient of k1, k2, k3 and ratio-corrected k3 against both KL directions, two
    actions, π = (.9, .1), ref even."""
    logits = torch.tensor([0.9, 0.1], dtype=torch.float64).log()
    reference = torch.tensor([0.5, 0.5], dtype=torch.float64).log()
    results = {}
    for name, function in {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3, "ρ·k3": kl.k3_ratio}.items():
        estimator = partial(function, beta=1.0)
        results[f"{name} in the loss"] = exact_kl.in_loss(estimator, logits, reference)
    in_reward = exact_kl.in_reward(partial(kl.k1, beta=1.0), logits, reference)
    results["k1 in the reward"] = (exact_kl.reverse(logits, reference)[0], in_reward)
    results |= {name: exact(logits, reference) for name, exact in TRUE_KL.items()}
    rows = [
        {"estimator": name, "value": value, "gradient": gradient[0].item()}
        for name, (value, gradient) in results.items()
    ]
    return pd.DataFrame(rows)


@figure(
    title="A KL estimator with the right value can have the wrong gradient: that of k1 is 0, that "
    "of k3 belongs to the reversed KL",
    level="exact",
    caption="exact; on policy, two actions, policy π = (0.9, 0.1), reference (0.5, 0.5); dashed: "
    "KL(π‖ref), which is wanted",
    alt="Bars of expected value and gradient. k1 in the loss: value 0.368, gradient 0. k2: value "
    "0.285, gradient 0.198, that of the reverse KL. k3: value 0.368, gradient 0.4, that of the "
    "forward KL. Ratio-corrected k3 and k1 in the reward: 0.198.",
    answers="Comedy of Estimators (arXiv 2512.21852); open-instruct issue 534; coverage row 18",
    data=kl_data,
)
def kl_estimators(table: pd.DataFrame) -> Figure:
    """Bars of value and of gradient."""
    picture = new_figure(WIDTH, 4.0)
    panels = picture.subplots(1, 2, sharey=True)
    colours = [GREY if name in TRUE_KL else SERIES[2] for name in table.estimator]
    truth = table.set_index("estimator").loc["KL(π‖ref)"]
    extra = {"KL(π‖ref)": "KL(π‖ref), wanted", "KL(ref‖π)": "KL(ref‖π), reversed"}
    labels = [extra.get(name, name) for name in table.estimator]
    for panel, column, label in zip(
        panels, ("value", "gradient"), ("value", "gradient by the first logit"), strict=True
    ):
        panel.barh(labels, table[column], color=colours, height=0.65)
        panel.axvline(truth[column], color=GREY, linestyle="--", linewidth=0.9, zorder=0.5)
        for y, x in enumerate(table[column]):
            panel.text(x + 0.012, y, f"{x:.2f}", va="center")
        panel.set(title=f"expected {label}", xlim=(0, 0.6), xlabel="nats")
        panel.tick_params(axis="y", length=0)
    panels[1].set_xlabel("nats per unit of the logit")
    panels[0].invert_yaxis()
    return picture
