"""Labs: one question each, a few controls, a picture from the library's own numbers. Thin: the
mathematics is elsewhere."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from ..objective.catalog import RECIPES, recipe
from ..objective.recipe import Recipe
from ..plots.style import Picture
from ..rollouts import Rollouts
from ..toys import stopping
from ..toys.compare import matched_learning_rate, push_sizes
from ..toys.flow import expected_gradient
from ..toys.stopping import Stopping
from ..toys.training import Training
from ..weights import split
from . import lab_pictures as draw
from .panel import Panel, choice, player, slider, tick

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


STEPS = 60
SEEDS = 8
TOYS = ["grpo", "dr_grpo", "dapo", "dapo(step)", "bnpo", "rloo", "balanced", "vl_norm"]


def toy_player() -> Panel:
    """The stopping toy, played step by step: where both stop logits go, and what becomes of pass
    rate and lengths.

    Learning rates are matched so that all recipes push equally hard at the start. Changing recipe,
    mode or pass rate trains anew. Level of evidence: paths simulated (8 seeds), arrows exact.
    """
    return Panel(
        toy_picture,
        {
            "name": choice("recipe", TOYS, "grpo"),
            "mode": choice("mode", list(stopping.MODES), "environment"),
            "right": slider("pass rate at the start", 0.1, 0.9, 0.1, 0.3),
            "step": slider("step", 0, STEPS, 2, 0),
            "play": player("the training", of="step"),
        },
    )


def toy_picture(name: str, mode: str, right: float, step: int) -> Picture:
    """Phase portrait and curves up to a step."""
    table, arrows = toy_run(name, mode, round(right, 6))
    return draw.phase_portrait(table, arrows, int(step), name)


@cache
def toy_run(name: str, mode: str, right: float) -> tuple[Any, np.ndarray]:
    """The run of all seeds, and the expected first update on a grid of stop logits: ``[K, 4]``
    right, wrong, and how each moves."""
    policy = Stopping(mode=mode, right=right, cap=32)
    training = Training(steps=STEPS, every=2)
    loss = RECIPES[name].but(name, kl=None)
    base = RECIPES["grpo"].but("grpo", kl=None)
    batches = [stopping.rollouts(policy, training, seed) for seed in range(4)]
    sizes = push_sizes([loss, base] if name != "grpo" else [base], batches)
    rate = matched_learning_rate(sizes, 0.5, "grpo")
    table = stopping.train(loss, policy, training, seeds=SEEDS, learning_rates=rate)
    arrows = []
    attempt = policy.start()[0][2:]
    for a in np.linspace(-4.5, 0, 6):
        for b in np.linspace(-4.5, 0, 6):
            theta = torch.cat([torch.tensor([a, b], dtype=torch.float64), attempt])
            update = expected_gradient(loss, theta, policy, Training(prompts=1))
            arrows.append([a, b, update[0].item(), update[1].item()])
    return table, np.array(arrows)
