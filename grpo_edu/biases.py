"""The two biases of a recipe, read off its own weights. Nothing here is a list of what recipes are said to do. Level: exact."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from .objective import axes
from .objective.recipe import Recipe
from .rollouts import Rollouts
from .weights import token_weights


@dataclass(frozen=True)
class LengthBias:
    """Push on the last token of a completion four times longer, relative to the short one's: right and wrong answers of one prompt.

    1: no length bias inside a prompt. Below 1: short right answers gain, long wrong ones are spared. NaN: no push at all.
    """

    right: float
    wrong: float

    def __str__(self) -> str:
        known = [x for x in (self.right, self.wrong) if not math.isnan(x)]
        if all(math.isclose(x, 1.0, rel_tol=1e-9) for x in known):
            return (
                "Length: no bias inside a prompt; the last token is pushed alike in short and long completions of equal reward."
            )
        return (
            f"Length: in a completion four times longer the last token is pushed {self.right:.2f} times as hard where it is right (short right "
            f"answers gain) and {self.wrong:.2f} times where it is wrong (long wrong answers are spared)."
        )


@dataclass(frozen=True)
class DifficultyBias:
    """Expected weight of a prompt at pass rates 0.1 and 0.9, relative to 0.5, at a finite group size."""

    size: int
    hard: float
    easy: float

    def __str__(self) -> str:
        if math.isclose(self.hard, 1.0, rel_tol=1e-6) and math.isclose(self.easy, 1.0, rel_tol=1e-6):
            return f"Difficulty: no bias at G = {self.size}; every pass rate has the same expected weight."
        return (
            f"Difficulty: at G = {self.size} a prompt of pass rate 0.1 has {self.hard:.2f} times the expected weight of one of 0.5, "
            f"a prompt of pass rate 0.9 has {self.easy:.2f} times."
        )


def _complete(lengths: list[int], rewards: list[float], group: list[int]) -> Rollouts:
    """On-policy rollouts with every optional field that a recipe may ask for, each as neutral as it can be."""
    plain = Rollouts.from_lengths(lengths, rewards, group, max_new_tokens=max(lengths))
    last = plain.mask & (torch.arange(max(lengths)) == plain.lengths[:, None] - 1)
    reward = plain.reward
    return Rollouts(
        logp=plain.logp,
        mask=plain.mask,
        reward=reward,
        group=plain.group,
        ref_logp=plain.logp,
        reward_parts=reward[:, None],
        token_reward=torch.where(last, reward[:, None], torch.nan),
        value=torch.full_like(plain.logp, 0.5),
        greedy_reward=torch.full_like(reward, 0.5),
        advantage=reward - 0.5,
        max_new_tokens=max(lengths),
    )


def _outcome_only(recipe: Recipe, rollouts: Rollouts) -> Rollouts:
    """Step rewards are for process supervision alone; elsewhere the reward of the completion would be counted twice."""
    needed = "token_reward" in axes.inputs_of(recipe.baseline, required=True)
    return rollouts if needed else replace(rollouts, token_reward=None)


def length_bias(recipe: Recipe) -> LengthBias:
    """Push on the last token of 20 over that on the last of 5, ratio 1, two right and two wrong completions in one prompt.

    The last token, since credit that decays with distance (GAE, lambda < 1) is not a length bias of the aggregation.
    """
    rollouts = _outcome_only(recipe, _complete([5, 20, 5, 20], [1.0, 1.0, 0.0, 0.0], [0, 0, 0, 0]))
    weights = token_weights(recipe, rollouts)[torch.arange(4), rollouts.lengths - 1]
    short_right, long_right, short_wrong, long_wrong = weights.tolist()
    return LengthBias(_ratio(long_right, short_right), _ratio(long_wrong, short_wrong))


def _ratio(a: float, b: float) -> float:
    return a / b if abs(b) > 1e-12 else math.nan


def prompt_weight(recipe: Recipe, p: float, size: int) -> float:
    r"""Expected weight w_G(p) of a prompt of pass rate p, up to a factor common to all p: E[gradient] = w_G(p) ∇p.

    .. math:: w_G(p) = \sum_K \mathrm{Bin}(K; G, p)\,\Big[\frac{K\,w_+(K)}{p} - \frac{(G-K)\,w_-(K)}{1-p}\Big]

    :math:`w_\pm(K)` is the recipe's weight of a right and of a wrong one-token completion when K of G are right. The group stands in a
    batch with one group of every other K, so that a statistic of the whole batch hardly depends on it.
    """
    total = 0.0
    for k, (right, wrong) in enumerate(_by_count(recipe, size)):
        chance = math.comb(size, k) * p**k * (1 - p) ** (size - k)
        total += chance * (k * right / p - (size - k) * wrong / (1 - p))
    return total


def _by_count(recipe: Recipe, size: int) -> list[tuple[float, float]]:
    """Weight of a right and of a wrong completion for K = 0 … G right ones, all K in one batch."""
    rewards = [1.0 if j < k else 0.0 for k in range(size + 1) for j in range(size)]
    group = [k for k in range(size + 1) for _ in range(size)]
    rollouts = _outcome_only(recipe, _complete([1] * len(rewards), rewards, group))
    weights = token_weights(recipe, rollouts)[:, 0].reshape(size + 1, size)
    return [(weights[k, 0].item() if k else 0.0, weights[k, -1].item() if k < size else 0.0) for k in range(size + 1)]


def difficulty_bias(recipe: Recipe, size: int = 8) -> DifficultyBias:
    """Expected weight at pass rates 0.1 and 0.9, relative to 0.5."""
    middle = prompt_weight(recipe, 0.5, size)
    return DifficultyBias(size, prompt_weight(recipe, 0.1, size) / middle, prompt_weight(recipe, 0.9, size) / middle)
