"""One rollout used again and again, with the clip, the step size and the momentum on sliders. Level
of evidence: exact."""

from __future__ import annotations

from functools import partial

import torch

from ..objective.catalog import recipe
from ..objective.surrogates import ppo_clip
from ..plots.style import Picture
from ..plots.updates import ratios_by_update
from ..theory.updates import reuse
from .panel import Panel, slider


def reuse_lab() -> Panel:
    """Four answers, each sampled once, the first right: their ratios over the updates, and the
    share that the clip has silenced."""
    return Panel(
        reuse_picture,
        {
            "eps": slider("clip ε, both sides", 0.02, 1.0, 0.02, 0.2),
            "learning_rate": slider("learning rate", 0.05, 1.0, 0.05, 0.2),
            "momentum": slider("momentum", 0.0, 0.95, 0.05, 0.0),
            "updates": slider("updates on the rollout", 1, 200, 1, 24),
        },
    )


def reuse_picture(eps: float, learning_rate: float, momentum: float, updates: float) -> Picture:
    """The picture of the lab."""
    clipped = recipe("grpo").but(
        "grpo", kl=None, surrogate=partial(ppo_clip, eps_low=eps, eps_high=eps)
    )
    even = torch.zeros(4, dtype=torch.float64)
    rewards = [1, 0, 0, 0]
    table = reuse(
        clipped,
        even,
        [0, 1, 2, 3],
        rewards,
        learning_rate=learning_rate,
        updates=int(updates),
        momentum=momentum,
    )
    last = table["ratio_0"].iloc[-1]
    title = f"ε = {eps:g}: at update {int(updates)} the right answer's ratio is {last:.2f}"
    return ratios_by_update(
        table, ["right", "wrong", "wrong", "wrong"], band=(1 - eps, 1 + eps), title=title
    )
