"""Two factors of GRPO, one at a time: 1/|o| (aggregation) and 1/std (scale).

What does each do to length and to difficulty?
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ..objective.advantages import group_mean, unscaled
from ..objective.aggregation import constant, sequence_mean
from ..objective.catalog import CLIP, STD
from ..objective.recipe import Recipe
from ..statistics import interval
from . import stopping
from .compare import matched_learning_rate, push_sizes
from .stopping import Stopping
from .training import Training

if TYPE_CHECKING:
    import pandas as pd

AGGREGATIONS = {"sequence_mean": sequence_mean, "constant": constant}
SCALES = {"group_std": STD, "unscaled": unscaled}
OUTCOMES = ("length_gap", "stop_gap", "hard_gain", "medium_gain", "hard_over_medium")
HARD = 0.1  # a prompt is hard up to this initial pass rate
MEDIUM = 0.5  # and medium within a tenth of this one


def cells() -> dict[tuple[str, str], Recipe]:
    """The four recipes by (aggregation, scale).

    ``sequence_mean`` with ``group_std`` is GRPO without KL, the opposite corner Dr. GRPO.
    """
    base = Recipe(baseline=group_mean, surrogate=CLIP)
    return {
        (a, s): base.but(f"{a}, {s}", aggregation=AGGREGATIONS[a], scale=SCALES[s])
        for a in AGGREGATIONS
        for s in SCALES
    }


def ablate(
    policy: Stopping | None = None,
    training: Training | None = None,
    *,
    seeds: int | Sequence[int] = 8,
    match: bool = True,
    progress: bool = False,
) -> pd.DataFrame:
    """The 2 x 2 ablation in one call. Level of evidence: simulated.

    Args:
        policy: None: four hard prompts (pass rate .05) and four medium ones (.5), cap 64.
        training: None: 10 small steps (rate 1 of ``sequence_mean, group_std``), 8 prompts, G = 16.
            Later the length gap feeds back on difficulty: right answers of 2 tokens weigh more
            under 1/|o| than wrong ones of 60, and hard prompts learn from right ones.
        seeds: at least 5.
        match: learning rates under which all four start with the same total push, the sum of
            absolute gradient weights over tokens.
        progress: a bar on a terminal.

    Returns:
        ``aggregation, scale, outcome, mean, low, high, seeds``, 95 % intervals: four cells, and two
        paired differences over the same seeds (``sequence_mean - constant`` and ``group_std -
        unscaled``, each averaged over the other factor). Outcomes at the last step: ``length_gap``
        expected tokens wrong minus right; ``stop_gap`` stop logit right minus wrong; ``hard_gain``
        and ``medium_gain`` mean gain in the logit of the pass rate; ``hard_over_medium`` the first
        over the second, which no learning rate can change.

    Raises:
        ValueError: fewer than 5 seeds, or the prompts are not both hard and medium.
    """
    import pandas as pd

    if len(range(seeds) if isinstance(seeds, int) else seeds) < 5:
        raise ValueError(
            f"seeds is {seeds}: expected at least 5, so that an interval means something."
        )
    policy = policy or Stopping(right=(0.05,) * 4 + (0.5,) * 4)
    training = training or Training(steps=10, prompts=8, samples=16, learning_rate=1.0)
    by_cell = cells()
    recipes = list(by_cell.values())
    rates = _learning_rates(recipes, policy, training, match)
    table = stopping.train(
        recipes, policy, training, seeds=seeds, learning_rates=rates, progress=progress
    )
    ends = {
        cell: outcomes(table.loc[table["recipe"] == recipe.name], policy)
        for cell, recipe in by_cell.items()
    }
    by_aggregation = _mean([ends["sequence_mean", s] - ends["constant", s] for s in SCALES])
    by_scale = _mean([ends[a, "group_std"] - ends[a, "unscaled"] for a in AGGREGATIONS])
    compared = {
        **ends,
        ("sequence_mean - constant", "both"): by_aggregation,
        ("both", "group_std - unscaled"): by_scale,
    }
    return pd.DataFrame(
        {"aggregation": aggregation, "scale": scale, **_row(table, outcome)}
        for (aggregation, scale), table in compared.items()
        for outcome in OUTCOMES
    )


def _learning_rates(
    recipes: Sequence[Recipe], policy: Stopping, training: Training, match: bool
) -> dict[str, float]:
    """The rate of each recipe by name; with ``match``, one under which all start equally hard."""
    if not match:
        return {recipe.name: training.learning_rate for recipe in recipes}
    batches = [stopping.rollouts(policy, training, seed) for seed in range(32)]
    return matched_learning_rate(push_sizes(recipes, batches), training.learning_rate)


def _mean(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return tables[0].add(tables[1]) / 2


def _row(ends: pd.DataFrame, outcome: str) -> dict[str, object]:
    return {"outcome": outcome, **interval(torch.tensor(ends[outcome].to_numpy()))._asdict()}


def outcomes(table: pd.DataFrame, policy: Stopping) -> pd.DataFrame:
    """The outcomes of one recipe's runs, one row per seed."""
    import pandas as pd

    start = torch.tensor(policy.attempts, dtype=torch.float64)
    hard = start <= HARD
    medium = (start - MEDIUM).abs() <= 0.1
    if not hard.any() or not medium.any():
        raise ValueError(
            f"right is {policy.right}: expected hard prompts (up to {HARD}) and medium ones (near "
            f"{MEDIUM})."
        )
    end = table.loc[table["step"] == table["step"].max()].set_index("seed")
    rates = torch.tensor(end[[f"pass_rate_{k}" for k in range(len(start))]].to_numpy())
    at_first = policy.pass_rate(policy.start())
    gain = rates.clamp(1e-12, 1 - 1e-12).logit() - at_first.logit()
    hard_gain = gain[:, hard].mean(1).numpy()
    medium_gain = gain[:, medium].mean(1).numpy()
    columns = {
        "length_gap": end["gap"],
        "stop_gap": end["stop_gap"],
        "hard_gain": hard_gain,
        "medium_gain": medium_gain,
    }
    return pd.DataFrame(columns).assign(hard_over_medium=hard_gain / medium_gain)
