"""Figure of the many-arm toy: what a higher upper clip bound does to entropy."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ..plots.dynamics import clip_entropy
from ..toys import arms
from ..toys.training import Training
from .registry import figure

SEEDS = 16  # fixed beforehand: seeds 0 to 15


def clip_data() -> pd.DataFrame:
    """50 arms, 5 right, 16 updates on each rollout, upper bounds .2, .28 and .4."""
    training = Training(steps=60, prompts=8, samples=16, learning_rate=4.0, updates=16)
    table = arms.train(arms.clip_recipes(), arms.Arms(), training, seeds=SEEDS)
    columns = [
        "recipe",
        "seed",
        "step",
        "reward",
        "entropy",
        "pass_rate",
        "clip_up",
        "prob_up_clipped",
        "prob_sampled",
    ]
    return table.filter(items=columns)


@figure(
    title="A higher upper bound does not keep this bandit's entropy up: it is lower early, and "
    "alike in the end",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; at .2 a token of .01 is clipped above .012, "
    "one of .9 never",
    alt="Four panels against rollouts for upper clip bounds .2, .28 and .4: entropy of the "
    "policy, pass rate, share of tokens stopped from rising, and how probable those tokens were "
    "when drawn.",
    answers="DAPO (arXiv 2503.14476) Fig. 2 and 3a, where a bound of .28 kept a language model's "
    "entropy up",
    data=clip_data,
    recorded=True,
)
def clip_higher(table: pd.DataFrame) -> Figure:
    """Entropy, pass rate, up-clipped tokens and how probable they were."""
    bounds = {name: name.replace("eps_high=", "bound ") for name in table["recipe"].unique()}
    return clip_entropy(table.replace({"recipe": bounds}))
