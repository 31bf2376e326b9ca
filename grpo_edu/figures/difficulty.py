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
from ..objective.advantages import (
    group_mean,
    group_mean_scale,
    group_std,
    leave_one_out,
    pass_at_k,
    unscaled,
)
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
    note,
    rule,
)
from ..rollouts import Rollouts
from ..theory import kl as exact_kl
from ..theory.difficulty import (
    infinite_std_weight,
    objective,
    silent_probability,
    std_weight,
)
from ..theory.difficulty import (
    prompt_weight as weight_at,
)
from .registry import figure

G = 10
ESTIMATORS = {
    "GRPO (std, ddof 0)": Recipe(baseline=group_mean, scale=partial(group_std, ddof=0, eps=0.0)),
    "Dr. GRPO (no std)": Recipe(baseline=group_mean, scale=unscaled),
    "RLOO": Recipe(baseline=leave_one_out, scale=unscaled),
    "MaxRL": Recipe(baseline=group_mean, scale=group_mean_scale),
    "pass@2": Recipe(baseline=partial(pass_at_k, k=2)),
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
    caption="exact; std with ddof 0; MaxRL leaves the left panel: 9 at one right answer, 4 at two",
    alt="Advantage against the number of right completions among ten. With the std a lone success "
    "has advantage 3.0 and a lone failure minus 3.0; without it 0.9 and minus 0.9; RLOO is ten "
    "ninths of that; MaxRL gives it 9 (off the picture); pass@2 is not centred.",
    answers="the 9-wrong-1-right argument in the Interconnects post of 31 March 2025; coverage "
    "row 33",
    data=advantage_data,
)
def advantage_by_correct_count(table: pd.DataFrame) -> Figure:
    """Advantage against K: right completions left, wrong ones right."""
    picture = new_figure(WIDTH, 4.8)
    panels = picture.subplots(1, 2, sharey=True)
    looks = dict(zip(ESTIMATORS, ("grpo", "dr_grpo", "rloo", "maxrl", "pass@k"), strict=True))
    names = list(ESTIMATORS)
    lone = {"right": 1, "wrong": G - 1}
    for panel, column in zip(panels, lone, strict=True):
        for name, line in table.dropna(subset=[column]).groupby("estimator", sort=False):
            style = RECIPES[looks[str(name)]]
            is_std = name in names[:2]
            of: dict[str, Any] = {
                "color": style.colour,
                "marker": style.marker,
                "markersize": 6 if is_std else 4,
                "linewidth": 2.2 if is_std else 1.2,
                "zorder": 3 if is_std else 2,
            }
            panel.plot(line.correct, line[column], label=str(name), **of)
        rule(panel)
        at_lone = table[table.correct == lone[column]].set_index("estimator")[column]
        for name in names[:2]:
            sign = 1 if column == "right" else -1
            panel.annotate(
                f"{at_lone[name]:.1f}".replace("-", "−"),
                (lone[column], at_lone[name]),
                (-9 * sign, 5 * sign if name == names[0] else 0),
                textcoords="offset points",
                ha="right" if sign > 0 else "left",
                va="center",
                color=RECIPES[looks[name]].colour,
                fontweight="bold",
            )
        panel.set(
            title=f"advantage of a {column} answer",
            xlabel=f"right answers of {G}",
            xticks=range(0, G + 1),
            xlim=(-0.6, G + 0.6),
        )
    panels[0].set(ylabel="advantage", ylim=(-3.6, 3.6))
    panels[0].legend(loc="lower left")
    return picture


# --- the weight of a prompt

STD = Recipe(baseline=group_mean, scale=partial(group_std, ddof=0, eps=0.0))


@dataclass(frozen=True)
class Scheme:
    """A line of the figure: w and h as functions of the pass rate, and its look; lines of the
    std are paler for small groups."""

    weight: Callable[[float], float]
    objective: Callable[[float], float]
    look: Look
    alpha: float = 1.0
    linestyle: str = "-"


def _of_recipe(name: str, size: int) -> Scheme:
    w, h = (partial(f, recipe(name), size=size) for f in (weight_at, objective))
    return Scheme(w, h, RECIPES[name], linestyle="-.")


def _of_std(size: int, k: int) -> Scheme:
    w = partial(std_weight, size=size)
    h = partial(objective, STD, size=size)
    return Scheme(w, h, RECIPES["grpo"], 0.4 + 0.1 * k)


SCHEMES = {
    **{f"std, G = {size}": _of_std(size, k) for k, size in enumerate((2, 3, 4, 8, 16, 64))},
    "std, G = ∞": Scheme(
        infinite_std_weight, lambda p: 2 * math.asin(math.sqrt(p)), RECIPES["grpo"], 1.0, "--"
    ),
    "RLOO": _of_recipe("rloo", 8),
    "MaxRL, G = 16": _of_recipe("maxrl", 16),
}


def weight_data() -> pd.DataFrame:
    """w_G(p) and h_G(p) of the std at several G, the infinite picture, and RLOO and MaxRL beside
    it."""
    rows = []
    for logit in range(-26, 27):
        p = 1 / (1 + math.exp(-logit / 5))
        for name, scheme in SCHEMES.items():
            values = {"weight": scheme.weight(p), "objective": scheme.objective(p)}
            rows.append({"scheme": name, "p": p, **values})
    return pd.DataFrame(rows)


@figure(
    title="From G = 4 on, division by the std favours hard and easy prompts: their weight "
    "rises to √(G−1)",
    level="exact",
    caption="exact; the weight is the slope h′(p) of the objective h; ticks at both edges: √(G−1)",
    alt="Expected weight of a prompt against its pass rate. With the std it is 1 at G = 2, root 2 "
    "at G = 3, and U-shaped from G = 4 on, up to root of G minus 1 at both ends, marked; the "
    "infinite-group curve is one over root p(1-p); RLOO is flat; MaxRL falls from left to right. "
    "Right: the objectives climbed.",
    answers="MaxRL (arXiv 2602.02710) Fig. 1; Davis and Recht (arXiv 2510.13651); Dr. GRPO on the "
    "question-level bias",
    data=weight_data,
)
def prompt_weight(table: pd.DataFrame) -> Figure:
    """w left, on log axes, with its limits; h right, where the lines are named."""
    picture = new_figure(WIDTH, 4.8)
    left, right = picture.subplots(1, 2)
    for name, scheme in SCHEMES.items():
        line = table[table.scheme == name]
        style: dict[str, Any] = {
            "color": scheme.look.colour,
            "linestyle": scheme.linestyle,
            "alpha": scheme.alpha,
        }
        left.plot(line.p, line.weight, **style)
        right.plot(line.p, line.objective, **style)
        if name != "RLOO":  # its line is that of G = 2
            text = f"{name}; RLOO" if name == "std, G = 2" else name
            name_line(right, line.p, line.objective, text, scheme.look.colour)
    for size in (4, 8, 16, 64):
        limit = math.sqrt(size - 1)
        left.plot([0, 1], [limit, limit], "_", color=ink(), markersize=9)
        left.annotate(
            f"√{size - 1} (G = {size})",
            (1, limit),
            (7, 0),
            textcoords="offset points",
            va="center",
            color=RECIPES["grpo"].colour,
        )
    infinite = table[table.scheme == "std, G = ∞"]
    name_line(left, infinite.p, infinite.weight, "no limit (G = ∞)", RECIPES["grpo"].colour)
    left.text(0.16, 7.2, "MaxRL", color=RECIPES["maxrl"].colour)
    left.text(0.5, 0.91, "RLOO, and std at G = 2", ha="center", va="center", color=ink())
    left.text(0.5, 1.29, "std at G = 3", ha="center", va="center", color=RECIPES["grpo"].colour)
    left.set(
        yscale="log",
        ylim=(0.8, 20),
        yticks=[1, 2, 5, 10, 20],
        yticklabels=["1", "2", "5", "10", "20"],
        xlabel="pass rate p of the prompt",
        title="expected weight of the prompt (log)",
    )
    left.minorticks_off()
    right.set(xlabel="pass rate p of the prompt", title="the objective h(p) that is climbed")
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
    title="Hard and easy prompts need large groups: in small ones all answers are often equal",
    level="exact",
    alt="Heat map of p to the G plus (1-p) to the G. At pass rate 0.5 half of the groups of two "
    "are silent and none of eight; at 0.01 still 53 percent of groups of 64.",
    answers="DAPO (arXiv 2503.14476) Fig. 3b and dynamic sampling; learner question: how many "
    "generations do I need?",
    caption="exact; a group without a signal: all its answers are right, or all are wrong",
    data=silent_group_data,
)
def silent_groups(table: pd.DataFrame) -> Figure:
    """Heat map with the number in each cell."""
    grid = 100 * table.pivot(index="G", columns="p", values="silent")
    picture = new_figure(WIDTH, 3.8)
    panel = picture.subplots()
    image = panel.imshow(grid.values, cmap="Greys", vmin=0, vmax=100, aspect="auto", origin="lower")
    for y, row in enumerate(grid.values):
        for x, value in enumerate(row):
            colour = "white" if value > 62 else "black"
            panel.text(x, y, f"{value:.0f}", ha="center", va="center", color=colour)
    panel.set(
        xticks=range(grid.shape[1]),
        xticklabels=[f"{p:g}" for p in grid.columns],
        yticks=range(grid.shape[0]),
        yticklabels=list(grid.index),
        xlabel="pass rate of the prompt",
        ylabel="group size G",
    )
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    picture.colorbar(image, ax=panel, label="groups without a signal, %")
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
    title="An estimator's value and its pull are different things: k1 has the right value and no "
    "pull, k3 pulls by the other KL",
    level="exact",
    caption="exact; on policy, two actions, π = (0.9, 0.1), reference even",
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
    for panel, column, label in zip(
        panels, ("value", "gradient"), ("value", "gradient by the first logit"), strict=True
    ):
        panel.barh(table.estimator, table[column], color=colours, height=0.65)
        for y, x in enumerate(table[column]):
            panel.text(x + 0.008, y, f"{x:.3f}", va="center")
        panel.set(title=f"expected {label}", xlim=(0, 0.6), xlabel="nats")
        panel.tick_params(axis="y", length=0)
    panels[1].set_xlabel("nats per unit of the logit")
    panels[0].invert_yaxis()
    note(panels[1], 0.99, 0.9, "grey: the two KLs themselves", ha="right")
    return picture
