r"""The weight of a prompt by its pass rate, at a finite group size.

For a right/wrong reward every group estimator has an expected gradient along :math:`\nabla p`:

.. math:: E\Big[\frac{1}{G}\sum_i A_i S_i\Big] = w_G(p)\,\nabla p,\qquad
    w_G(p) = \sum_{s=0}^{G-1} \binom{G-1}{s} p^s (1-p)^{G-1-s}\,(b_s - a_s)

where :math:`b_s` (:math:`a_s`) is the advantage of a right (wrong) completion when s of the *other* G-1 are right. The objective that is
climbed is :math:`h` with :math:`h' = w`. Source: Davis and Recht (arXiv 2510.13651) for h; derived and enumerated here for every scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from ..checks import (
    Count,
    Ddof,
    GroupSize,
    NonNegative,
    OpenProbability,
    Positive,
    Probability,
    checked,
    tensor,
)
from ..objective import axes
from ..objective.catalog import AnyRecipe
from ..objective.filters import drop_dead_groups
from ..objective.recipe import Recipe
from ..rollouts import Rollouts

Gap = Annotated[Tensor, partial(tensor, dims="G")]


def neutral_rollouts(
    lengths: list[int], rewards: list[float], group: list[int], recipe: Recipe
) -> Rollouts:
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


@checked
def weight(recipe: AnyRecipe, p: Probability, size: GroupSize) -> float:
    r"""w_G(p) of a recipe's advantage; 1 for REINFORCE and RLOO, (G-1)/G for Dr. GRPO."""
    return weight_of(gaps(recipe, size), p)


@checked
def weight_of(gap: Gap, p: Probability) -> float:
    r"""w_G(p) from the ``[G]`` gaps, for who needs it at many p."""
    size = len(gap)
    chances = [math.comb(size - 1, s) * p**s * (1 - p) ** (size - 1 - s) for s in range(size)]
    return sum(c * g for c, g in zip(chances, gap.tolist(), strict=True))


@checked
def objective(recipe: AnyRecipe, p: Probability, size: GroupSize) -> float:
    r"""h_G(p), what is climbed: h' = w, h(0) = 0.

    .. math:: h_G(p) = \frac{1}{G} \sum_s (b_s - a_s)\, P[\mathrm{Bin}(G, p) \ge s+1]
    """
    return objective_of(gaps(recipe, size), p)


@checked
def objective_of(gap: Gap, p: Probability) -> float:
    r"""h_G(p) from the ``[G]`` gaps."""
    size = len(gap)
    bins = [math.comb(size, k) * p**k * (1 - p) ** (size - k) for k in range(size + 1)]
    return sum(g * sum(bins[s + 1 :]) for s, g in enumerate(gap.tolist())) / size


@checked
def std_weight(
    p: OpenProbability, size: GroupSize, *, ddof: Ddof = 0, eps: NonNegative = 0.0
) -> float:
    r"""Closed form for the group std: :math:`E[\sigma_K^2 / (c\,\sigma_K + \epsilon)] / (p(1-p))`, c the ddof factor.

    Flat at G = 2 (1) and G = 3 (√2): there the std makes no difficulty bias. As p → 0 it tends to √(G-1), it does not diverge.
    """
    bessel = math.sqrt(size / (size - ddof))
    total = 0.0
    for k in range(1, size):
        sigma = math.sqrt(k * (size - k)) / size
        total += (
            math.comb(size, k) * p**k * (1 - p) ** (size - k) * sigma**2 / (bessel * sigma + eps)
        )
    return total / (p * (1 - p))


@checked
def infinite_std_weight(p: OpenProbability) -> float:
    r"""G → ∞: :math:`1/\sqrt{p(1-p)}`, the picture most texts draw."""
    return 1 / math.sqrt(p * (1 - p))


@checked
def maxrl_weight(p: Probability, order: Count) -> float:
    r""":math:`\sum_{k=1}^{T} (1-p)^{k-1}`, the order-T expansion of 1/p; with centred advantages T = G-1."""
    return sum((1 - p) ** (k - 1) for k in range(1, order + 1))


@checked
def pass_at_k_weight(p: Probability, k: Count) -> float:
    r""":math:`k(1-p)^{k-1} = \frac{d}{dp}\,(1-(1-p)^k)`."""
    return k * (1 - p) ** (k - 1)


@checked
def silent_probability(p: Probability, size: GroupSize) -> float:
    r"""Chance that a group gives no signal: :math:`p^G + (1-p)^G`."""
    return p**size + (1 - p) ** size


@checked
def conditional_baseline(p: OpenProbability, size: GroupSize) -> float:
    r"""Mean of the group mean over groups that are not silent: :math:`(p - p^G)/(1 - p^G - (1-p)^G)`; above p iff p < 1/2."""
    return (p - p**size) / (1 - silent_probability(p, size))


@checked
def rerolled_weight(recipe: AnyRecipe, p: OpenProbability, size: GroupSize) -> float:
    r"""Dynamic sampling that re-rolls the *same* prompt until its group is mixed: w / (1 - silent), silent groups giving nothing.

    (Drawing *new* prompts instead keeps the relative weights, where silent groups give nothing anyway: ``refilled_weights``.)
    """
    return weight(without_silent_groups(recipe), p, size) / (1 - silent_probability(p, size))


@checked
def frames(w: float, p: Probability) -> dict[str, float]:
    r"""One update, three yardsticks: relative to :math:`\nabla p`, to the score gap (and the logit of p), and to :math:`\nabla \log p`.

    "The std over-weights the extremes" is true of the first, "it over-weights the middle" of the second, "it under-weights hard
    prompts" of the third: the same w(p).
    """
    return {"probability": w, "score": w * p * (1 - p), "log-probability": w * p}


@checked
def refilled_weights(
    recipe: AnyRecipe, pass_rates: Sequence[OpenProbability], size: GroupSize
) -> list[float]:
    r"""Dynamic sampling that replaces a silent group by one of a *new* prompt: every weight is divided by the same number.

    .. math:: w_q \;/\; \mathrm{mean}_{q'}\big(1 - p_{q'}^G - (1-p_{q'})^G\big)

    Args:
        recipe: its advantage.
        pass_rates: one for each prompt; prompts are drawn uniformly, until a group is live.
        size: G.

    Returns:
        The expected weight of each prompt per kept group and per chance of being drawn, silent groups giving nothing.

    Source: DAPO (arXiv 2503.14476) §3.2, filter and refill.
    """
    live = sum(1 - silent_probability(p, size) for p in pass_rates) / len(pass_rates)
    return [weight(without_silent_groups(recipe), p, size) / live for p in pass_rates]


def without_silent_groups(recipe: Recipe) -> Recipe:
    """The recipe on live groups only. It changes nothing where a group of equal rewards has advantage 0 anyway."""
    return (
        recipe
        if drop_dead_groups in recipe.filters
        else recipe.but(filters=(*recipe.filters, drop_dead_groups))
    )


@checked
def softmax_weight(p: Probability, size: GroupSize, tau: Positive) -> float:
    r"""w of :math:`A_i = G\,\mathrm{softmax}(r/\tau)_i - 1`: MaxRL of order G-1 as τ → 0, (G-1)/(G τ) as τ → ∞.

    .. math:: b_s - a_s = \frac{G}{s+1+(G-1-s)y} - \frac{G\,y}{s+(G-s)y},\qquad y = e^{-1/\tau}

    Source: SoftmaxGRPO (arXiv 2608.09271); the limits are enumerated here.
    """
    y, total = math.exp(-1 / tau), 0.0
    for s in range(size):
        wrong = 1.0 if s == 0 else size * y / (s + (size - s) * y)
        chance = math.comb(size - 1, s) * p**s * (1 - p) ** (size - 1 - s)
        total += chance * (size / (s + 1 + (size - 1 - s) * y) - wrong)
    return total


@checked
def large_group_std_weight(p: OpenProbability, size: GroupSize) -> float:
    r"""The next term behind the infinite picture: :math:`\frac{1}{\sqrt{p(1-p)}}\Big(1 - \frac{1}{8Gp(1-p)}\Big)`, where Gp(1-p) is large."""
    return infinite_std_weight(p) * (1 - 1 / (8 * size * p * (1 - p)))


@checked
def climb_time(
    w: Callable[[float], float], start: OpenProbability, goal: OpenProbability, points: Count = 2000
) -> float:
    r"""Time that the flow of one prompt with its own logit takes from one pass rate to another.

    .. math:: \frac{dz}{dt} = w(p)\,p(1-p),\quad p = \sigma(z)\quad\Rightarrow\quad t = \int \frac{dz}{w(p)\,p(1-p)}

    Args:
        w: weight by pass rate, relative to :math:`\nabla p`.
        start, goal: pass rates, strictly between 0 and 1.
        points: even number of Simpson intervals.
    """
    low, high = math.log(start / (1 - start)), math.log(goal / (1 - goal))
    total = 0.0
    for k in range(points + 1):
        p = 1 / (1 + math.exp(-(low + (high - low) * k / points)))
        total += (1 if k in (0, points) else 4 if k % 2 else 2) / (w(p) * p * (1 - p))
    return total * (high - low) / points / 3
