r"""The weight of a prompt by its pass rate, at a finite group size.

For a right/wrong reward every group estimator has an expected gradient along :math:`\nabla p`:

.. math:: E\Big[\frac{1}{G}\sum_i A_i S_i\Big] = w_G(p)\,\nabla p,\qquad
    w_G(p) = \sum_{s=0}^{G-1} \binom{G-1}{s} p^s (1-p)^{G-1-s}\,(b_s - a_s)

where :math:`b_s` (:math:`a_s`) is the advantage of a right (wrong) completion when s of the *other* G-1 are right. The objective that is
climbed is :math:`h` with :math:`h' = w`. Source: Davis and Recht (arXiv 2510.13651) for h; derived and enumerated here for every scheme.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ..objective import axes
from ..objective.recipe import Recipe
from ..rollouts import Rollouts


def neutral_rollouts(lengths: list[int], rewards: list[float], group: list[int], recipe: Recipe) -> Rollouts:
    """On-policy rollouts with every optional field that a recipe may ask for, each as neutral as it can be.

    Step rewards are there only where the baseline cannot do without them (process supervision): one step, the last token.
    """
    plain = Rollouts.from_lengths(lengths, rewards, group, max_new_tokens=max(lengths))
    last = plain.mask & (torch.arange(max(lengths)) == plain.lengths[:, None] - 1)
    reward = plain.reward
    needs_steps = "token_reward" in axes.inputs_of(recipe.baseline, required=True)
    return replace(
        plain,
        ref_logp=plain.logp,
        reward_parts=reward[:, None],
        token_reward=torch.where(last, reward[:, None], torch.nan) if needs_steps else None,
        value=torch.full_like(plain.logp, 0.5),
        greedy_reward=torch.full_like(reward, 0.5),
        advantage=reward - 0.5,
    )


def advantages_by_count(recipe: Recipe, size: int) -> tuple[Tensor, Tensor]:
    """Advantage of a right and of a wrong completion when K of G are right: two ``[G + 1]`` tensors, 0 where there is none.

    All K stand in one batch, so that a statistic of the whole batch is one number for every prompt, as it is in a large batch.
    """
    rewards = [1.0 if j < k else 0.0 for k in range(size + 1) for j in range(size)]
    group = [k for k in range(size + 1) for _ in range(size)]
    rollouts = neutral_rollouts([1] * len(rewards), rewards, group, recipe)
    advantage = recipe.plan(rollouts).advantage[:, 0].reshape(size + 1, size)
    right, wrong = advantage[:, 0].clone(), advantage[:, -1].clone()
    right[0], wrong[-1] = 0.0, 0.0
    return right, wrong


def gaps(recipe: Recipe, size: int) -> Tensor:
    """``[G]`` b_s - a_s: what being right is worth when s of the other G-1 are right."""
    right, wrong = advantages_by_count(recipe, size)
    return right[1:] - wrong[:-1]


def weight(recipe: Recipe, p: float, size: int) -> float:
    r"""w_G(p) of a recipe's advantage; 1 for REINFORCE and RLOO, (G-1)/G for Dr. GRPO."""
    chances = [math.comb(size - 1, s) * p**s * (1 - p) ** (size - 1 - s) for s in range(size)]
    return sum(c * g for c, g in zip(chances, gaps(recipe, size).tolist(), strict=True))


def objective(recipe: Recipe, p: float, size: int) -> float:
    r"""h_G(p), what is climbed: h' = w, h(0) = 0.

    .. math:: h_G(p) = \frac{1}{G} \sum_s (b_s - a_s)\, P[\mathrm{Bin}(G, p) \ge s+1]
    """
    bins = [math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)]
    return sum(g * sum(bins[s + 1 :]) for s, g in enumerate(gaps(recipe, size).tolist())) / size


def std_weight(p: float, size: int, *, ddof: int = 0, eps: float = 0.0) -> float:
    r"""Closed form for the group std: :math:`E[\sigma_K^2 / (c\,\sigma_K + \epsilon)] / (p(1-p))`, c the ddof factor.

    Flat at G = 2 (1) and G = 3 (√2): there the std makes no difficulty bias. As p → 0 it tends to √(G-1), it does not diverge.
    """
    bessel = math.sqrt(size / (size - ddof))
    total = 0.0
    for k in range(1, size):
        sigma = math.sqrt(k * (size - k)) / size
        total += math.comb(size, k) * p**k * (1 - p) ** (size - k) * sigma**2 / (bessel * sigma + eps)
    return total / (p * (1 - p))


def infinite_std_weight(p: float) -> float:
    r"""G → ∞: :math:`1/\sqrt{p(1-p)}`, the picture most texts draw."""
    return 1 / math.sqrt(p * (1 - p))


def maxrl_weight(p: float, order: int) -> float:
    r""":math:`\sum_{k=1}^{T} (1-p)^{k-1}`, the order-T expansion of 1/p; with centred advantages T = G-1."""
    return sum((1 - p) ** (k - 1) for k in range(1, order + 1))


def pass_at_k_weight(p: float, k: int) -> float:
    r""":math:`k(1-p)^{k-1} = \frac{d}{dp}\,(1-(1-p)^k)`."""
    return k * (1 - p) ** (k - 1)


def silent_probability(p: float, size: int) -> float:
    r"""Chance that a group gives no signal: :math:`p^G + (1-p)^G`."""
    return p**size + (1 - p) ** size


def conditional_baseline(p: float, size: int) -> float:
    r"""Mean of the group mean over groups that are not silent: :math:`(p - p^G)/(1 - p^G - (1-p)^G)`; above p iff p < 1/2."""
    return (p - p**size) / (1 - silent_probability(p, size))


def rerolled_weight(recipe: Recipe, p: float, size: int) -> float:
    r"""Dynamic sampling that re-rolls the *same* prompt until its group is mixed: w / (1 - silent).

    (Drawing *new* prompts instead leaves every prompt's relative weight w as it was.)
    """
    return weight(recipe, p, size) / (1 - silent_probability(p, size))


def frames(w: float, p: float) -> dict[str, float]:
    r"""One update, three yardsticks: relative to :math:`\nabla p`, to the score gap (and the logit of p), and to :math:`\nabla \log p`.

    "The std over-weights the extremes" is true of the first, "it over-weights the middle" of the second, "it under-weights hard
    prompts" of the third: the same w(p).
    """
    return {"probability": w, "score": w * p * (1 - p), "log-probability": w * p}
