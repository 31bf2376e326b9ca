"""Truncation in the stopping toy: what to do with a completion that ran into the cap.

Four treatments, one base recipe.

``ignored``: it keeps the reward of its branch. ``failure``: it is rewarded 0. ``mask``: it is taken
out, of the loss and of its group's statistics (overlong filtering). ``soft``: the overlong penalty,
up to -1 over the last ``cache`` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ..checks import one_of
from ..objective.catalog import recipe as by_name
from ..objective.filters import truncation_mask
from ..objective.recipe import Recipe
from ..objective.rewards import overlong_penalty
from . import stopping
from .stopping import Stopping
from .training import Training

if TYPE_CHECKING:
    import pandas as pd

TREATMENTS = ("ignored", "failure", "mask", "soft")


def with_treatment(base: Recipe, treatment: str, cache: int) -> Recipe:
    """The base recipe with one treatment of truncated completions, named after it."""
    one_of("treatment", treatment, TREATMENTS)
    if treatment == "mask":
        return base.but(
            treatment, filters=(partial(truncation_mask, in_baseline=False), *base.filters)
        )
    if treatment == "soft":
        return base.but(treatment, rewards=(*base.rewards, partial(overlong_penalty, cache=cache)))
    return base.but(treatment)


def overlong(
    base: Recipe | None = None,
    policy: Stopping | None = None,
    training: Training | None = None,
    *,
    treatments: Sequence[str] = TREATMENTS,
    cache: int | None = None,
    seeds: int | Sequence[int] = 8,
    progress: bool = False,
) -> pd.DataFrame:
    """Train the stopping toy under each treatment. Level of evidence: simulated.

    Args:
        base: the loss; None: ``dr_grpo``, which has no length bias of its own.
        policy: None: right completions are long (hazard .03) and a third of them meets the cap of
            32; the branch is drawn (p = .5).
        training: None: 200 steps at learning rate 2.
        treatments: which.
        cache: length of the soft penalty's slope; None: a quarter of the cap.
        seeds: how many, or which.
        progress: a bar on a terminal.

    Returns:
        As ``stopping.train``, with the treatment in column ``recipe``.
    """
    import pandas as pd

    policy = policy or Stopping(mode="environment", hazard_right=0.03, hazard_wrong=0.1, cap=32)
    base = base or by_name("dr_grpo")
    slope = cache or policy.cap // 4
    training = training or Training(learning_rate=2.0)
    tables = [
        stopping.train(
            with_treatment(base, name, slope),
            replace(policy, truncated_fails=name == "failure"),
            training,
            seeds=seeds,
            progress=progress,
        )
        for name in treatments
    ]
    return pd.concat(tables, ignore_index=True)
