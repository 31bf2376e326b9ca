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
    return table.filter(
        items=["recipe", "seed", "step", "reward", "entropy", "pass_rate", "clip_up"]
    )


@figure(
    title="A higher upper clip bound does not save this bandit's entropy: it falls sooner and "
    "ends as low",
    level=f"simulated, {SEEDS} seeds, 95 % interval",
    caption=f"simulated, {SEEDS} seeds, 95 % interval; bound: by how much a token's probability "
    "may rise, in parts of the sampled one, before its push ends; 16 updates per step",
    alt="Three panels against training steps for upper clip bounds .2, .28 and .4. Entropy of the "
    "policy falls from 3 to 0.1 nats, soonest under .4; pass rates rise to .99, soonest under .4; "
    "the share of tokens stopped from rising is largest under .2 and ends at 0.",
    answers="DAPO (arXiv 2503.14476) Fig. 2 and 3a, where a bound of .28 kept a language model's "
    "entropy up",
    data=clip_data,
    recorded=True,
)
def clip_higher(table: pd.DataFrame) -> Figure:
    """Entropy, pass rate and up-clipped tokens."""
    bounds = {name: name.replace("eps_high=", "bound ") for name in table["recipe"].unique()}
    return clip_entropy(table.replace({"recipe": bounds}))
