"""Figures on aggregation: one token's weight in a short and in a long completion."""

from __future__ import annotations

from functools import partial
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

from ..completions import read_completions
from ..objective.advantages import given
from ..objective.aggregation import constant, sequence_mean, step_token_mean
from ..objective.catalog import recipe
from ..objective.recipe import Recipe
from ..plots.style import UP, WIDTH, ink, look, new_figure, note, symmetric
from ..plots.tokens import draw_answers
from ..rollouts import Rollouts
from ..weights import Push, token_weights
from .registry import figure

# --- two right answers

STRIPS = {
    "sequence mean (GRPO): every token weighs 1/N · 1/|o|": sequence_mean,
    "constant (Dr. GRPO): every token weighs 1/N · 1/C, C = 7": partial(constant, length=7),
    "token mean (DAPO in frameworks): every token weighs 1/Σ|o|": step_token_mean,
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
    title="Two right answers: 1/|o| pushes each token of the longer one less; a constant and a "
    "token mean push all tokens alike",
    level="exact",
    caption="exact; one bar per token; push: how strongly the step raises the token's log "
    "probability; |o|: tokens of the answer; N = 2 answers, advantage 2",
    alt="Three strips of bars for completions of 4 and 7 tokens with advantage 2. Sequence mean: "
    "0.25 and 0.1429 per token; constant 7: 0.1429 on both; token mean: 0.1818 on both.",
    answers="rlhf-book, loss aggregation example (which prints 0.0909 for the token mean, having "
    "left the advantage out)",
    data=strips_data,
)
def aggregation_strips(table: pd.DataFrame) -> Figure:
    """One strip per aggregation: bars per token, push and share written once per answer."""
    picture = new_figure(WIDTH, 4.8)
    panels = picture.subplots(3, 1, sharex=True, sharey=True)
    starts = (0, 6)
    for panel, (name, part) in zip(panels, table.groupby("aggregation", sort=False), strict=True):
        for start, (_, line) in zip(starts, part.groupby("completion"), strict=True):
            panel.bar(start + line.position, line.weight, width=0.86, color=UP)
            share = 100 * line.weight.sum() / part.weight.sum()
            label = f"{line.weight.iloc[0]:.3f} per token, {share:.0f} % of the step"
            panel.text(start - 0.43, line.weight.iloc[0] + 0.015, label)
        panel.set_title(str(name))
        panel.set_ylabel("push")
        panel.tick_params(axis="x", length=0)
    panels[-1].set(
        ylim=(0, 0.33),
        xticks=[1.5, 9],
        xticklabels=["right answer of 4 tokens", "right answer of 7 tokens"],
    )
    return picture


# --- one prompt, four answers, three recipes

ANSWERS = [39, 34, 33, 38]  # of the shipped file, "What is 4 + 4?": right, right, wrong, wrong
LOSSES = {
    "grpo": "each answer averaged over its own tokens",
    "dr_grpo": "every token divided by one constant",
    "dapo": "averaged over all tokens of the prompt",
}


def text_data() -> pd.DataFrame:
    """Push and share of every token of four answers to one prompt under GRPO, Dr. GRPO and
    DAPO, with its text."""
    answers = read_completions()[torch.tensor(ANSWERS)]
    texts: Any = answers.tokens
    rows = []
    for name in LOSSES:
        push = Push.of(recipe(name).but(name, kl=None), answers)
        for i, t in answers.mask.nonzero().tolist():
            place = {"recipe": name, "answer": i, "reward": answers.reward[i].item()}
            token = {"token": texts[i][t].replace("\n", "↵")}
            numbers = {"push": push.token[i, t].item(), "share": push.share[i, t].item()}
            rows.append(place | token | numbers)
    return pd.DataFrame(rows)


@figure(
    title="GRPO pushes the tokens of short answers hardest; Dr. GRPO and DAPO push all tokens "
    "alike",
    level="exact",
    caption="exact, on policy, without KL; four of eight answers sampled from SmolLM2-135M, as a "
    "group of four; push: gradient weight of a token, in % of the step's total |push|",
    alt="Four sampled answers to What is 4 + 4, two right and two wrong, one of each short and one "
    "long, each token coloured by its push, orange up and purple down. Under GRPO every answer "
    "holds 25 percent of the step, so a token of 7 gets 3.6 percent and one of 27 gets 0.9. "
    "Under Dr. GRPO and DAPO every token gets 1.6 percent, and long answers hold most.",
    answers="what GRPO, Dr. GRPO and DAPO do to a token; coverage rows 29 and 36",
    data=text_data,
    dark=True,
)
def push_on_one_prompt(table: pd.DataFrame) -> Figure:
    """The answers as text, once per recipe, coloured by push relative to the recipe's total."""
    picture = new_figure(WIDTH, 4.5)
    panels = picture.subplots(1, 3, sharex=True, sharey=True)
    norm = symmetric(100 * table.share)
    whole = table.groupby("recipe").push.apply(lambda push: push.abs().sum())
    for panel, (name, words) in zip(panels, LOSSES.items(), strict=True):
        part = table[table.recipe == name]
        texts = [(answer.token, 100 * answer.share) for _, answer in part.groupby("answer")]
        tops = draw_answers(panel, texts, norm)
        panel.set_title(look(name).label, pad=28, color=look(name).colour, fontsize=12)
        scale = f"{words}.\nTotal push: {whole[name]:.2f}"
        note(panel, 0, 1.02, scale, va="bottom", fontsize=8)
    note(panels[0], -0.03, 1.02, "“What is\n4 + 4?”", ha="right", va="bottom", color=ink())
    answers = table[table.recipe == "grpo"].groupby("answer")
    labels = [
        f"{'right' if good else 'wrong'},\n{size} tokens"
        for good, size in zip(answers.reward.first() > 0, answers.size(), strict=True)
    ]
    panels[0].set_yticks(tops, labels, va="top")
    return picture
