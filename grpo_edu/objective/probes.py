"""Rollouts on which a recipe is probed: every field it may ask for is there, at a neutral value."""

from __future__ import annotations

from dataclasses import replace

import torch

from ..rollouts import Rollouts
from . import axes
from .recipe import Recipe


def neutral_rollouts(
    lengths: list[int], rewards: list[float], group: list[int], recipe: Recipe
) -> Rollouts:
    """On-policy rollouts with every optional field that a recipe may ask for.

    Step rewards are there only where the baseline cannot do without them (process supervision):
    one step, its reward on the last token.

    Args:
        lengths, rewards, group: one number per completion.
        recipe: its baseline decides whether there are step rewards.

    Returns:
        ``[N, T]`` rollouts, T the longest length; ``ref_logp = sampler_logp = logp``,
        entropy, value and greedy reward 0.5, given advantage ``reward - 0.5``.
    """
    plain = Rollouts.from_lengths(lengths, rewards, group, max_new_tokens=max(lengths))
    last = plain.mask & (torch.arange(max(lengths)) == plain.lengths[:, None] - 1)
    reward = plain.reward
    needs_steps = "token_reward" in axes.inputs_of(recipe.baseline, required=True)
    return replace(
        plain,
        ref_logp=plain.logp,
        sampler_logp=plain.logp,
        entropy=torch.full_like(plain.logp, 0.5),
        reward_parts=reward[:, None],
        token_reward=torch.where(last, reward[:, None], torch.nan) if needs_steps else None,
        value=torch.full_like(plain.logp, 0.5),
        greedy_reward=torch.full_like(reward, 0.5),
        given_advantage=reward - 0.5,
    )
