"""Figures on length: the bias as drawn in the Dr. GRPO paper, the field that is no gradient, the
frontier, the silent loss."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from ..objective.advantages import group_mean, group_std
from ..objective.aggregation import (
    constant,
    micro_batch_token_mean,
    prompt_token_mean,
    sequence_mean,
    step_token_mean,
)
from ..objective.catalog import recipe
from ..objective.recipe import Recipe
from ..plots.style import (
    DOWN,
    GREY,
    RECIPES,
    SERIES,
    UP,
    WIDTH,
    ink,
    new_figure,
    paper,
    quiet,
    rule,
)
from ..rollouts import Rollouts
from ..theory import length
from ..weights import split, token_weights
from .registry import figure

# --- two questions, four answers each

QUESTIONS = Rollouts.from_lengths(
    [4, 12, 6, 16, 4, 12, 16, 8], [1, 1, 0, 0, 1, 1, 1, 0], [0] * 4 + [1] * 4, max_new_tokens=16
)
POPULATION = partial(group_std, ddof=0, eps=0.0)


BIASES = {
    "1/|o| and 1/std (GRPO)": Recipe(
        baseline=group_mean, scale=POPULATION, aggregation=sequence_mean
    ),
    "1/|o| alone": Recipe(baseline=group_mean, aggregation=sequence_mean),
    "neither (Dr. GRPO)": recipe("dr_grpo"),
}


def illustration_data() -> pd.DataFrame:
    """Push per token of each completion under 1/|o| and under a constant, and 1/std of its
    question."""
    rows = []
    for name, loss in BIASES.items():
        weights = token_weights(loss, QUESTIONS)
        for i in range(len(QUESTIONS)):
            group = QUESTIONS.group[i]
            spread = QUESTIONS.reward[QUESTIONS.group == group].std(correction=0).item()
            rows.append(
                {
                    "recipe": name,
                    "question": int(group) + 1,
                    "completion": i,
                    "reward": QUESTIONS.reward[i].item(),
                    "length": int(QUESTIONS.lengths[i]),
                    "push": weights[i, 0].item(),
                    "inverse_std": 1 / spread,
                }
            )
    return pd.DataFrame(rows)


@figure(
    title="1/|o| pushes tokens of short answers harder; 1/std gives the question with 3 of 4 "
    "right a larger part of the step",
    level="exact",
    caption="exact; orange: pushed up, purple: pushed down; |o|: tokens of the answer; part: "
    "|push| of all tokens of the question; 1/std is 2.00 with 2 of 4 right, 2.31 with 3 of 4",
    alt="Two questions with four answers each, bars for the push per token. Under GRPO bars shrink "
    "with length and question 2 (3 of 4 right) has 1.155 times the 1/std of question 1; with "
    "1/|o| alone its share falls from 46 to 43 percent; under Dr. GRPO bars of one sign and "
    "question are equal.",
    answers="Dr. GRPO (arXiv 2503.20783), first version, the illustration of both biases; "
    "coverage rows 29 and 33",
    data=illustration_data,
)
def bias_illustration(table: pd.DataFrame) -> Figure:
    """One bar per answer, as long as the push per token; the share of each question above."""
    picture = new_figure(WIDTH, 5.2)
    panels = picture.subplots(1, 3, sharex=True, sharey=True)
    for panel, name in zip(panels, BIASES, strict=True):
        part = table.loc[table.recipe == name].reset_index(drop=True)
        size = part.push.abs() * part.length
        push = 100 * part.push / size.sum()
        y = part.index + 1.2 * (part.question - 1)
        panel.barh(y, push, color=[UP if p > 0 else DOWN for p in push], height=0.6)
        for at, p in zip(y, push, strict=True):
            beside = p + 0.08 * (1 if p > 0 else -1)
            side = "left" if p > 0 else "right"
            panel.text(beside, at, f"{abs(p):.1f}", ha=side, va="center")
        shares = (100 * size / size.sum()).groupby(part.question).sum()
        for question, share in shares.items():
            top = 5.2 * (question - 1)
            text = f"{question + 1} of 4 right: part {share:.0f} %"
            panel.text(-4.1, top - 0.85, text, va="center", color=ink())
            panel.plot([0, 0], [top - 0.5, top + 3.5], color=GREY, linewidth=0.8)
        panel.set(title=name, xlim=(-4.3, 4.3))
        panel.tick_params(axis="y", length=0)
    labels = [
        f"{'right' if reward > 0 else 'wrong'}, {tokens} tokens"
        for reward, tokens in zip(part.reward, part.length, strict=True)
    ]
    panels[1].set_xlabel("push on each token, % of the total |push| of the step")
    panels[0].set_yticks(y, labels)
    panels[0].set_ylim(8.8, -1.4)
    return picture


# --- drift against rows that share a denominator


def drift_data() -> pd.DataFrame:
    """Exact stop-logit drift by the number of completions that share a denominator, hazard .1, cap
    60."""
    rows = [1, 2, 4, 8, 16, 32, 64]
    return pd.DataFrame(
        {
            "rows": rows,
            "token mean": [length.token_mean_drift(0.1, n, 60) for n in rows],
            "constant": [0.0] * len(rows),
        }
    )


@figure(
    title="A token mean has a length bias too; it falls about as 1/n when n answers share the "
    "denominator",
    level="exact",
    caption="exact; length bias: expected push on the logit of stopping, though length tells "
    "nothing of the reward; a stop has chance 0.1 at each token, cap 60; a constant has bias 0",
    alt="Log-log plot of stop-logit drift against the number of completions in the denominator. "
    "0.156 at one (sequence mean), 42 percent of that at two, 8 percent at eight, falling like "
    "one over n; a constant has none.",
    answers="is DAPO's token mean unbiased, and does gradient accumulation matter? "
    "understand-r1-zero issues 10, 11, 25; TRL issue 3021",
    data=drift_data,
)
def drift_by_scope(table: pd.DataFrame) -> Figure:
    """Log-log, in percent of the sequence mean, with the 1/n line."""
    picture = new_figure(WIDTH, 4.2)
    panel = picture.subplots()
    rows = table["rows"]
    drift = 100 * table["token mean"] / table["token mean"].iloc[0]
    panel.loglog(rows, drift, "o-", color=SERIES[2])
    line = 64 * drift.iloc[-1] / rows
    panel.loglog(rows, line, "--", color=GREY, linewidth=1)
    panel.text(2.5, line[1] * 0.5, "1/n", color=quiet())
    labels = {
        1: (": mean of one answer (GRPO)", RECIPES["grpo"]),
        8: (": mean of a prompt's 8 answers (DAPO)", RECIPES["dapo"]),
        64: (": mean of a step of 64", RECIPES["dapo(step)"]),
    }
    for n, percent in zip(rows, drift, strict=True):
        text, of = labels.get(n, ("", None))
        if of is not None:
            panel.plot(n, percent, of.marker, color=of.colour, markersize=10)
        how: dict[str, Any] = {"ha": "right" if n == 64 else "left", "color": ink()}
        offset = (-12, -5) if n == 64 else (9, 4)
        text = f"{percent:.{int(percent < 10)}f} %{text}"
        panel.annotate(text, (n, percent), offset, textcoords="offset points", **how)
    panel.set(
        xlabel="answers n that share one denominator (log)",
        ylabel="length bias, % of GRPO's (log)",
        xticks=rows,
        xticklabels=[str(n) for n in rows],
        ylim=(0.6, 180),
    )
    panel.set_yticks([1, 10, 100], ["1", "10", "100"])
    panel.minorticks_off()
    return picture


# --- the field that is no gradient

BOX = ((-2.0, 2.0), (-3.0, 0.5))
CONSTANT = 3  # tokens; arrows of both panels are then about as long


def field_data() -> pd.DataFrame:
    """The expected update on a grid of (mode logit, wrong stop logit), right stop logit -1, G = 8,
    and its curl; under a constant only the mode moves, by (G-1)/G p(1-p) / constant."""
    rows = []
    for a in np.linspace(*BOX[0], 15):
        for w in np.linspace(*BOX[1], 13):
            f = length.field(a, -1.0, w, 8)
            p = 1 / (1 + np.exp(-a))
            rows.append(
                {
                    "mode": a,
                    "wrong stop": w,
                    "by mode": f[0].item(),
                    "by wrong stop": f[2].item(),
                    "by mode, constant": 7 / 8 * p * (1 - p) / CONSTANT,
                    "curl": length.curl(a, w, 8),
                }
            )
    return pd.DataFrame(rows)


@figure(
    title="The update under 1/|o| is no objective's gradient: around a loop it does work; under a "
    "constant it does none",
    level="exact",
    caption="exact; groups of 8, no std; small arrows: the expected update; numbers: its work "
    "along each side of the frame; the work of a gradient around a loop is 0; curl: work around a "
    "small loop, per area",
    alt="Two panels of arrows of the expected update over mode logit and stop logit of wrong "
    "answers. Under 1/|o|, coloured by curl, which is negative everywhere and largest where right "
    "answers are rare, arrows also point to a lower stop logit, and the work of the four sides of "
    "the frame adds up to minus 0.21. Under a constant arrows are level, the sum is 0.",
    answers="does 1/|o| only rescale the objective? (our own derivation, enumerated)",
    data=field_data,
)
def length_field(table: pd.DataFrame) -> Figure:
    """The update as arrows, its curl as colour, the work along each side of the frame."""
    picture = new_figure(WIDTH, 4.8)
    panels = picture.subplots(1, 2, sharey=True)
    level = table.assign(**{"by mode": table["by mode, constant"], "by wrong stop": 0.0, "curl": 0})
    shades = LinearSegmentedColormap.from_list("curl", [SERIES[1], paper()])
    image: Any = None
    for panel, part, name in zip(panels, (table, level), ("1/|o|", "a constant"), strict=True):
        grid = part.pivot(index="wrong stop", columns="mode", values="curl")
        how: dict[str, Any] = {"cmap": shades, "vmin": table.curl.min(), "vmax": 0}
        drawn = panel.pcolormesh(grid.columns, grid.index, grid.values, shading="gouraud", **how)
        drawn.set_rasterized(True)
        image = image or drawn
        is_inside = part["wrong stop"].between(*BOX[1], inclusive="neither")
        at = part[is_inside & part["mode"].rank(method="dense").isin(range(2, 15, 2))]
        frame_x = [BOX[0][k] for k in (0, 1, 1, 0, 0)]
        frame_y = [BOX[1][k] for k in (0, 0, 1, 1, 0)]
        panel.plot(frame_x, frame_y, color=GREY, linewidth=1)
        panel.quiver(
            at["mode"],
            at["wrong stop"],
            at["by mode"],
            at["by wrong stop"],
            width=0.005,
            scale=1.4,
            pivot="mid",
            color=ink(),
        )
        total = _work_on_frame(panel, part)
        panel.set(
            title=f"{name}: work around the frame {total:.2f}".replace("-", "−"),
            xlabel="more right answers → (logit)",
            xlim=(-3.3, 3.3),
            ylim=(-3.7, 1.2),
        )
    panels[0].set_ylabel("← longer wrong answers (stop logit)")
    picture.colorbar(image, ax=panels, label="curl of the update", location="right", shrink=0.8)
    return picture


def _trapezoid(values: np.ndarray | pd.Series, at: np.ndarray) -> float:
    """The integral of ``values`` over ``at`` by trapezoids (numpy 1 and 2 name theirs apart)."""
    heights = np.asarray(values)
    return float(((heights[1:] + heights[:-1]) / 2 * np.diff(at)).sum())


def _work_on_frame(panel: Axes, part: pd.DataFrame) -> float:
    """Write the work along each side, counter-clockwise, beside the side; returns the sum."""
    by_mode = part.pivot(index="wrong stop", columns="mode", values="by mode")
    by_stop = part.pivot(index="wrong stop", columns="mode", values="by wrong stop")
    modes = by_mode.columns.to_numpy()
    stops = by_mode.index.to_numpy()
    sides = {
        (0.0, -3.35, "→"): _trapezoid(by_mode.iloc[0], modes),
        (2.65, -1.25, "↑"): _trapezoid(by_stop.iloc[:, -1], stops),
        (0.0, 0.8, "←"): -_trapezoid(by_mode.iloc[-1], modes),
        (-2.65, -1.25, "↓"): -_trapezoid(by_stop.iloc[:, 0], stops),
    }
    for (x, y, arrow), work in sides.items():
        text = f"{arrow} {work + 0.0:.2f}".replace("-", "−")
        panel.text(x, y, text, ha="center", va="center")
    return float(sum(sides.values())) + 0.0


# --- the frontier


def frontier_data() -> pd.DataFrame:
    """Drift (hazard .1, cap 60) and share of the ten times longer completion along token weights
    L^(alpha-1)."""
    alphas = np.linspace(0, 1, 11)
    return pd.DataFrame(
        {
            "alpha": alphas,
            "drift": [length.power_drift(0.1, a, 60) for a in alphas],
            "share of the longer": [length.longer_share(10, a) for a in alphas],
        }
    )


@figure(
    title="No power of the length treats short and long answers alike and is also free of length "
    "bias",
    level="exact",
    caption="exact; share: part of the total |push| of a short and a 10 times longer answer; "
    "length bias: expected push on the logit of stopping, though length tells nothing of the "
    "reward; a stop has chance 0.1 at each token, cap 60",
    alt="Share of a ten times longer answer against stop-logit drift for token weights L to the "
    "alpha minus one. Alpha 0: share one half and drift 0.156; alpha 1: drift 0 and share 10/11; "
    "nothing reaches both.",
    answers="arXiv 2607.23364: no length normaliser is both unbiased and neutral",
    data=frontier_data,
)
def impossibility_frontier(table: pd.DataFrame) -> Figure:
    """Share against drift, one point per alpha."""
    picture = new_figure(WIDTH, 4.4)
    panel = picture.subplots()
    panel.plot(table["drift"], 100 * table["share of the longer"], "o-", color=SERIES[2])
    labels = {
        0: "1/|o| (GRPO): equal shares",
        5: r"$1/\sqrt{|o|}$",
        10: "a constant (Dr. GRPO): no bias",
    }
    for place, text in labels.items():
        row = table.iloc[place]
        above: dict[str, Any] = {"ha": "right" if place == 0 else "left"}
        offset = (-12, -6) if place == 0 else (10, 4)
        point = (row["drift"], 100 * row["share of the longer"])
        panel.annotate(text, point, offset, textcoords="offset points", **above)
    panel.plot(0, 50, "*", color="none", markeredgecolor=ink(), markersize=16)
    panel.text(0.004, 51.5, "equal shares and no bias:\nno power comes here", color=ink())
    panel.set(
        title="each token weighs a power of its answer's length, from 1/|o| to a constant",
        xlabel="length bias, relative to the mean push",
        ylabel="share of the 10 times longer answer, %",
        xlim=(-0.008, 0.17),
        ylim=(45, 97),
    )
    return picture


# --- the silent loss


def silent_data() -> pd.DataFrame:
    """Loss values at ratio 1 of 60 random groups under sequence and token mean, and -Cov(A, L)/mean
    L."""
    generator = torch.Generator().manual_seed(0)
    grpo = Recipe(baseline=group_mean, scale=POPULATION, surrogate=recipe("grpo").surrogate)
    rows = []
    for _ in range(60):
        lengths = torch.randint(1, 60, (8,), generator=generator)
        rewards = [1.0, 0.0, *(torch.rand(6, generator=generator) < 0.5).double().tolist()]
        rollouts = Rollouts.from_lengths(lengths.tolist(), rewards)
        advantage = grpo.plan(rollouts).advantage[:, 0]
        covariance = (advantage * lengths).mean() - advantage.mean() * lengths.double().mean()
        losses = {"token mean": step_token_mean, "sequence mean": sequence_mean}
        rows.append(
            {
                "wrong minus right length": (
                    rollouts.lengths[rollouts.reward == 0].double().mean()
                    - rollouts.lengths[rollouts.reward == 1].double().mean()
                ).item(),
                "minus covariance over mean length": (-covariance / lengths.double().mean()).item(),
                **{k: grpo.but(aggregation=a).loss(rollouts).item() for k, a in losses.items()},
            }
        )
    return pd.DataFrame(rows)


@figure(
    title="The value of the loss does not show learning: GRPO's is always 0, a token mean's shows "
    "which answers are longer",
    level="exact",
    caption="exact; one pair of marks per group, 60 random groups of 8 at ratio 1, each with right "
    "and wrong answers, so that every token is pushed",
    alt="Value of the loss at ratio one against how much longer wrong answers are than right "
    "ones: the token mean rises with it, through zero; the sequence mean is exactly zero in every "
    "group.",
    answers="TRL issue 2995; the most asked question: why is my GRPO loss 0?",
    data=silent_data,
)
def silent_loss(table: pd.DataFrame) -> Figure:
    """Loss of each group under both aggregations against its difference in length."""
    picture = new_figure(WIDTH, 4.2)
    panel = picture.subplots()
    rule(panel)
    rule(panel, vertical=True)
    for column, of, place in (
        ("token mean", RECIPES["dapo(step)"], (10, 0.4, "mean of all tokens")),
        ("sequence mean", RECIPES["grpo"], (-33, 0.05, "mean of each answer (GRPO): 0")),
    ):
        x = table["wrong minus right length"]
        panel.scatter(x, table[column], s=28, marker=of.marker, color=of.colour)
        panel.text(*place, color=of.colour)
    panel.set(
        xlabel="by how many tokens wrong answers are longer than right ones, mean",
        ylabel="value of the loss",
    )
    return picture


# --- splits


def _cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a * b).sum() / a.norm() / b.norm()).item()


def split_data() -> pd.DataFrame:
    """Cosine and norm of the weights cut into micro-batches against the whole step, 16 completions
    of random length."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 80, (16,), generator=generator).tolist()
    rewards = [float(k % 3 == 0) for k in range(16)]
    rollouts = Rollouts.from_lengths(
        lengths, rewards, [k // 4 for k in range(16)], max_new_tokens=80
    )
    choices = {
        "sequence mean": sequence_mean,
        "constant": constant,
        "token mean, prompt": prompt_token_mean,
        "token mean, step": step_token_mean,
        "token mean, micro-batch": micro_batch_token_mean,
    }
    rows = []
    for name, choice in choices.items():
        loss = recipe("dr_grpo").but(aggregation=choice)
        whole = token_weights(loss, rollouts)
        per_row = token_weights(loss.but(aggregation=sequence_mean), rollouts)
        for parts in (1, 2, 4, 8, 16):
            cut = token_weights(loss, rollouts, split(16, parts))
            rows.append(
                {
                    "aggregation": name,
                    "micro-batch size": 16 // parts,
                    "cosine": _cosine(cut, whole),
                    "sequence mean's cosine": _cosine(per_row, whole),
                    "norm": (cut.norm() / whole.norm()).item(),
                    "is sequence mean": bool(torch.allclose(cut, per_row)),
                }
            )
    return pd.DataFrame(rows)


@figure(
    title="Only a token mean taken per micro-batch depends on how the step is cut; with one answer "
    "in each it is GRPO's mean of each answer",
    level="exact",
    caption="exact; 4 prompts x 4 answers of 2 to 80 tokens; agreement: cosine of the pushes on "
    "all tokens with those of the step in one piece",
    alt="Cosine of the token weights with those of the whole step, against micro-batch size. Four "
    "aggregations stay at one; the micro-batch token mean falls as micro-batches shrink, to the "
    "level of the sequence mean, drawn as a line, at one completion each.",
    answers="TRL issue 3021, PR 3231; verl issue 3741; open-instruct PR 1161: does gradient "
    "accumulation change the loss?",
    data=split_data,
)
def micro_batch_invariance(table: pd.DataFrame) -> Figure:
    """Cosine against the size of a micro-batch, the level of the sequence mean beside it."""
    picture = new_figure(WIDTH, 4.4)
    panel = picture.subplots()
    moves = table[table.aggregation == "token mean, micro-batch"]
    level: Any = moves["sequence mean's cosine"]
    sizes = moves["micro-batch size"]
    steady = table[table.aggregation == "token mean, step"].cosine
    panel.plot(sizes, steady, "o-", color=SERIES[0])
    text = "mean of each answer, constant, token mean of the prompt or of the step: all at 1"
    panel.text(1, 1.008, text, color=SERIES[0])
    panel.plot(sizes, level, "--", color=RECIPES["grpo"].colour)
    panel.plot(sizes, moves.cosine, "v-", color=RECIPES["bnpo"].colour, markersize=8)
    panel.text(2.2, 0.89, "token mean of each micro-batch", color=RECIPES["bnpo"].colour)
    panel.text(
        16,
        level.max() + 0.008,
        "mean of each answer (GRPO) beside the uncut token mean",
        ha="right",
        color=RECIPES["grpo"].colour,
    )
    panel.set(
        xlabel="answers per micro-batch",
        ylabel="agreement with the uncut step",
        ylim=(0.78, 1.03),
        xscale="log",
        xticks=[1, 2, 4, 8, 16],
        xticklabels=["1", "2", "4", "8", "16: uncut"],
    )
    panel.minorticks_off()
    return picture
