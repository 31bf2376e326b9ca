"""The lab of gradient accumulation: a few controls, a picture from the library's own numbers."""

from __future__ import annotations

import torch

from ..objective.catalog import recipe
from ..objective.recipe import Recipe
from ..plots.style import Picture
from ..rollouts import Rollouts
from ..weights import split
from . import lab_pictures as draw
from .panel import Panel, choice, slider, tick

LENGTHS = (4, 6, 8, 8, 12, 16, 24)


def accumulation_lab() -> Panel:
    """Gradient accumulation: each completion's weight under micro-batches, divided by its weight in
    the whole step.

    ``each normalises itself``: every micro-batch divides by its own tokens or rows and the results
    are averaged over micro-batches, as a trainer does that computes the loss per micro-batch. Level
    of evidence: exact.
    """
    names = ["grpo", "dapo(step)", "dapo", "dr_grpo", "bnpo"]
    return Panel(
        accumulation_picture,
        {
            "name": choice("recipe", names, "dapo(step)"),
            "micro_batches": slider("micro-batches", 1, 8, 1, 2),
            "longest": slider("tokens of the last completion", 4, 128, 4, 64),
            "local": tick("each micro-batch normalises itself", True),
        },
    )


def accumulation_picture(name: str, micro_batches: int, longest: int, local: bool) -> Picture:
    """Eight completions of two prompts."""
    lengths = [*LENGTHS, int(longest)]
    rollouts = Rollouts.from_lengths(lengths, [1, 0] * 4, [0] * 4 + [1] * 4, max_new_tokens=128)
    loss = recipe(name).but(name, kl=None)
    parts = split(8, int(micro_batches))
    whole = loss.plan(rollouts).W[:, 0]
    weight = local_weight(loss, rollouts, parts) if local else loss.plan(rollouts, parts).W[:, 0]
    return draw.factors_of_split((weight / whole).tolist(), lengths, parts.tolist(), name, local)


def local_weight(loss: Recipe, rollouts: Rollouts, parts: torch.Tensor) -> torch.Tensor:
    """``[N]`` aggregation weight per token when each micro-batch is aggregated on its own and the
    losses are averaged."""
    alone = Recipe(aggregation=loss.aggregation)
    weight = torch.zeros(len(rollouts), dtype=torch.float64)
    for part in parts.unique():
        rows = (parts == part).nonzero()[:, 0]
        weight[rows] = alone.plan(rollouts[rows]).W[:, 0] / len(parts.unique())
    return weight
