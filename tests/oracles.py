"""Closed forms that tests hold against the package: lengths, difficulty, noise, AdamW.

No part of the package uses them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from grpo_edu.objective.groups import total as group_total
from grpo_edu.objective.recipe import Recipe
from grpo_edu.theory.difficulty import (
    advantages_by_count,
    infinite_std_weight,
    silent_probability,
)
from grpo_edu.theory.length import length_law

# --- length: the expected gradient by the two stop logits --------------------------------------


class Branch(NamedTuple):
    """One branch by length 0 … cap + prefix, each ``[cap + prefix + 1]``: ``chance``, and ``pull``
    = chance times mean score.
    """

    chance: Tensor
    pull: Tensor


def branch(stop: float, cap: int, prefix: int = 0) -> Branch:
    """The lengths of one branch, ``prefix`` tokens that decide nothing in front of up to ``cap``
    that may stop, and their scores.
    """
    law, ran_out = length_law(stop, cap)
    chance = torch.cat([torch.zeros(prefix + 1, dtype=torch.float64), law])
    pull = torch.cat(
        [
            torch.zeros(prefix + 1, dtype=torch.float64),
            law * (1 - stop * torch.arange(1, cap + 1, dtype=torch.float64)),
        ]
    )
    chance[-1] += ran_out
    pull[-1] -= ran_out * stop * cap
    return Branch(chance, pull)


def length_slope(stop: float, cap: int) -> float:
    r"""Change of the mean length by the stop logit, below 0:
    :math:`dE[L]/dz = E[L \cdot \mathrm{score}]`.
    """
    pull = branch(stop, cap).pull
    return (pull * torch.arange(len(pull))).sum().item()


def token_mean_gradient(
    advantages: tuple[Tensor, Tensor],
    p: float,
    hazards: tuple[float, float],
    cap: int,
    *,
    prefix: int = 0,
    rows: int | None = None,
    prompts: int = 1,
) -> tuple[float, float]:
    r"""Expected gradient of a token mean by the right and the wrong stop logit, its denominator
    shared by n = rows · prompts completions.

    .. math:: F_{right} = n\,p\,E\Big[b\,\frac{\mathrm{score}_1}{L_1 + \dots + L_n}\Big],\qquad
        F_{wrong} = n\,(1-p)\,E\Big[a\,\frac{\mathrm{score}_1}{L_1 + \dots + L_n}\Big]

    Args:
        advantages: of a right and of a wrong completion by K right, ``[G + 1]`` each:
            ``difficulty.advantages_by_count``.
        p: pass rate.
        hazards: chance to stop at each token, of the right and of the wrong branch.
        cap: stop decisions of one completion at most.
        prefix: tokens in front of the first stop decision.
        rows: completions of one prompt that share a denominator. 1: sequence mean; between:
            micro-batch; G or None: prompt scope.
        prompts: 1, or the prompts that share one denominator, all alike and whole (``rows`` None):
            step scope.

    Raises:
        ValueError: rows is not between 1 and G, or several prompts share a denominator with a part
            of a group.
    """
    right = branch(hazards[0], cap, prefix)
    wrong = branch(hazards[1], cap, prefix)
    size = len(advantages[0]) - 1
    n = size if rows is None else rows
    if not 1 <= n <= size or (prompts > 1 and n < size):
        raise ValueError(
            f"rows is {n} with {prompts} prompts: expected 1 to {size}, or None where prompts "
            f"share a step."
        )
    others = _power(p * right.chance + (1 - p) * wrong.chance, (prompts - 1) * size)
    gradient = [0.0, 0.0]
    for s in range(n):
        rest = _convolve(
            others, _convolve(_power(right.chance, s), _power(wrong.chance, n - 1 - s))
        )
        for u in range(size - n + 1):
            chance = _binomial(n - 1, s, p) * _binomial(size - n, u, p) * n * prompts
            gradient[0] += (
                chance * p * advantages[0][s + u + 1].item() * _per_token(right.pull, rest)
            )
            gradient[1] += (
                chance * (1 - p) * advantages[1][s + u].item() * _per_token(wrong.pull, rest)
            )
    return gradient[0], gradient[1]


def balanced_gradient(
    advantages: tuple[Tensor, Tensor],
    p: float,
    hazards: tuple[float, float],
    cap: int,
    *,
    prefix: int = 0,
) -> tuple[float, float]:
    r"""The same under balanced aggregation, where each sign of the advantage has its own
    denominator.

    .. math:: F_{right} = \sum_K \mathrm{Bin}(K)\, \frac{K^2}{G}\, A_+(K)\,
        E\Big[\frac{\mathrm{score}_1}{L_1 + \dots + L_K}\Big]

    and alike for the wrong ones. At G = 2 each side is one completion: the sequence mean.

    Raises:
        ValueError: in some group the right and the wrong do not have advantages of opposite sign.
    """
    size = len(advantages[0]) - 1
    if (advantages[0] * advantages[1] > 0).any():
        raise ValueError(
            "right and wrong completions have advantages of one sign: expected a centred advantage."
        )
    gradient = []
    for side, (hazard, advantage) in enumerate(zip(hazards, advantages, strict=True)):
        one = branch(hazard, cap, prefix)
        total = 0.0
        for k in range(1, size + 1):
            right = k if side == 0 else size - k
            drift = _per_token(one.pull, _power(one.chance, k - 1))
            total += _binomial(size, right, p) * k * k / size * advantage[right].item() * drift
        gradient.append(total)
    return gradient[0], gradient[1]


def length_power_gradient(
    advantages: tuple[Tensor, Tensor],
    p: float,
    hazards: tuple[float, float],
    cap: int,
    *,
    alpha: float,
    length: float,
    prefix: int = 0,
) -> tuple[float, float]:
    r"""The same where a completion's weight is a power of its length relative to the group's mean
    power (VL-norm).

    .. math:: F_{right} = \frac{Gp}{C} E\Big[b\,\frac{x_1\,\mathrm{score}_1}{x_1 + \dots +
        x_G}\Big],\qquad x = L^{-\alpha},\qquad \frac{1}{X} = \int_0^\infty e^{-tX}\,dt

    The integral over t = exp(y) is a trapezoid rule, exact to rounding. ``length`` is C; the others
    as ``token_mean_gradient``.
    """
    size = len(advantages[0]) - 1
    lengths = torch.arange(prefix + 1, cap + prefix + 1, dtype=torch.float64)
    x = lengths**-alpha
    y = torch.arange(-40.0, math.log(60 / x.min().item()), 0.05, dtype=torch.float64)
    decay = torch.exp(-y.exp()[:, None] * x)
    sides = [branch(hazard, cap, prefix) for hazard in hazards]
    right, wrong = (decay @ side.chance[prefix + 1 :] for side in sides)
    gradient = []
    for k, (side, advantage) in enumerate(zip(sides, advantages, strict=True)):
        mix = torch.zeros_like(y)
        for s in range(size):
            a = advantage[s + 1 - k].item()
            mix = mix + a * math.comb(size - 1, s) * (p * right) ** s * ((1 - p) * wrong) ** (
                size - 1 - s
            )
        own = decay @ (x * side.pull[prefix + 1 :])
        gradient.append(
            ((1 - p if k else p) * size / length * 0.05 * (own * mix * y.exp()).sum()).item()
        )
    return gradient[0], gradient[1]


def power_push(ratio: float, alpha: float) -> float:
    r"""How hard a token of the ``ratio`` times longer completion is pushed, relative to one of the
    shorter: :math:`r^{\alpha-1}`.
    """
    return ratio ** (alpha - 1)


def _binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


def _convolve(a: Tensor, b: Tensor) -> Tensor:
    """Law of a sum from the laws of its two parts, each from 0 on."""
    return torch.nn.functional.conv1d(
        a.view(1, 1, -1), b.flip(0).view(1, 1, -1), padding=len(b) - 1
    ).view(-1)


def _power(law: Tensor, times: int) -> Tensor:
    """Law of the sum of ``times`` independent parts."""
    total = torch.ones(1, dtype=torch.float64)
    for _ in range(times):
        total = _convolve(total, law)
    return total


def _per_token(pull: Tensor, rest: Tensor) -> float:
    """E[score / (own length + the rest's length)]."""
    own = torch.arange(1, len(pull))
    other = torch.arange(len(rest))
    return ((pull[1:, None] * rest) / (own[:, None] + other)).sum().item()


# --- difficulty ---------------------------------------------------------------------------------


def softmax_weight(p: float, size: int, tau: float) -> float:
    r"""w of :math:`A_i = G\,\mathrm{softmax}(r/\tau)_i - 1`: MaxRL of order G-1 as τ → 0, (G-1)/(G
    τ) as τ → ∞.

    .. math:: b_s - a_s = \frac{G}{s+1+(G-1-s)y} - \frac{G\,y}{s+(G-s)y},\qquad y = e^{-1/\tau}

    Source: SoftmaxGRPO (arXiv 2608.09271); the limits are enumerated here.
    """
    y = math.exp(-1 / tau)
    total = 0.0
    for s in range(size):
        wrong = 1.0 if s == 0 else size * y / (s + (size - s) * y)
        chance = math.comb(size - 1, s) * p**s * (1 - p) ** (size - 1 - s)
        total += chance * (size / (s + 1 + (size - 1 - s) * y) - wrong)
    return total


def climb_time(w: Callable[[float], float], start: float, goal: float, points: int = 2000) -> float:
    r"""Time that the flow of one prompt with its own logit takes from one pass rate to another.

    .. math:: \frac{dz}{dt} = w(p)\,p(1-p),\quad p = \sigma(z)\quad\Rightarrow\quad t = \int
        \frac{dz}{w(p)\,p(1-p)}

    Args:
        w: weight by pass rate, relative to :math:`\nabla p`.
        start, goal: pass rates, strictly between 0 and 1.
        points: even number of Simpson intervals.
    """
    low = math.log(start / (1 - start))
    high = math.log(goal / (1 - goal))
    total = 0.0
    for k in range(points + 1):
        p = 1 / (1 + math.exp(-(low + (high - low) * k / points)))
        total += (1 if k in (0, points) else 4 if k % 2 else 2) / (w(p) * p * (1 - p))
    return total * (high - low) / points / 3


def large_group_std_weight(p: float, size: int) -> float:
    r"""The next term behind the infinite picture:
    :math:`\frac{1}{\sqrt{p(1-p)}}\Big(1 - \frac{1}{8Gp(1-p)}\Big)`, where Gp(1-p) is large.
    """
    return infinite_std_weight(p) * (1 - 1 / (8 * size * p * (1 - p)))


def maxrl_weight(p: float, order: int) -> float:
    r""":math:`\sum_{k=1}^{T} (1-p)^{k-1}`, the order-T expansion of 1/p; with centred advantages T
    = G-1.
    """
    return sum((1 - p) ** (k - 1) for k in range(1, order + 1))


def pass_at_k_weight(p: float, k: int) -> float:
    r""":math:`k(1-p)^{k-1} = \frac{d}{dp}\,(1-(1-p)^k)`."""
    return k * (1 - p) ** (k - 1)


def conditional_baseline(p: float, size: int) -> float:
    r"""Mean of the group mean over groups that are not silent:
    :math:`(p - p^G)/(1 - p^G - (1-p)^G)`; above p iff p < 1/2.
    """
    return (p - p**size) / (1 - silent_probability(p, size))


# --- noise, micro-batches, AdamW ----------------------------------------------------------------


def advantage_noise(recipe: Recipe, p: float, size: int) -> float:
    r"""Relative variance of the gradient of one group by the logit of p, one token per completion;
    a common factor cancels.

    .. math:: \frac{\mathrm{Var}(g_K)}{(E\,g_K)^2},\qquad g_K = \frac{1}{G}\big(K A_+(K)(1-p) -
        (G-K) A_-(K)\,p\big),\quad K \sim \mathrm{Bin}(G, p)
    """
    right, wrong = (side.tolist() for side in advantages_by_count(recipe, size))
    first = second = 0.0
    for k in range(size + 1):
        chance = math.comb(size, k) * p**k * (1 - p) ** (size - k)
        g = (k * right[k] * (1 - p) - (size - k) * wrong[k] * p) / size
        first = first + chance * g
        second = second + chance * g * g
    return second / first**2 - 1


def score_energy(p: float, hazards: tuple[float, float], cap: int) -> float:
    r"""Mean squared score of a completion of the two-branch policy: squares of its tokens add, so
    it grows with the length.

    .. math:: E\|S\|^2 = \sum_t E\|s_t\|^2 = p(1-p) + p\,s_+(1-s_+)E[L|+] + (1-p)\,s_-(1-s_-)E[L|-]

    Args:
        p: chance of the right branch.
        hazards: chance to stop at each token, of the right and of the wrong branch.
        cap: stop decisions of one completion at most.
    """
    total = p * (1 - p)
    for share, stop in ((p, hazards[0]), (1 - p, hazards[1])):
        chance = branch(stop, cap).chance.tolist()
        total += share * stop * (1 - stop) * sum(n * c for n, c in enumerate(chance))
    return total


def mean_of_means_factor(amount: Tensor, micro_batch: Tensor) -> Tensor:
    r"""``[N]`` weight of a row in the mean of micro-batch means, divided by its weight in the mean
    over the step.

    .. math:: \frac{\sum_j a_j}{M \sum_{j \in b(i)} a_j}

    1 for every row exactly where all M micro-batches hold the same amount; else rows of a small
    micro-batch gain.

    Args:
        amount: ``[N]`` what is counted: token counts for a token mean, ones for a mean over
            completions (micro-batches of unequal rows).
        micro_batch: ``[N]`` integer, the micro-batch of each row.
    """
    values = amount.double()
    return values.sum() / (len(micro_batch.unique()) * group_total(values, micro_batch))


def adamw_updates(
    gradients: Tensor, *, lr: float, betas: tuple[float, float], eps: float
) -> Tensor:
    r"""``[K, D]`` changes of the parameters for ``[K, D]`` gradients in a row, without weight
    decay.

    .. math:: \Delta_k = -\eta\,\frac{\hat m_k}{\sqrt{\hat v_k} + \epsilon}

    A common factor c is the same as another ε: ``updates(c·g, eps) == updates(g, eps / c)``. As ε →
    0 it has no effect, so G/(G-1), the constant of a normaliser and a batch std do nothing; the
    first update is -lr · sign(g). With SGD every update has the factor c.
    """
    first = torch.zeros_like(gradients[0])
    second = torch.zeros_like(gradients[0])
    updates = []
    for k, g in enumerate(gradients, start=1):
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * g**2
        updates.append(
            -lr * first / (1 - betas[0] ** k) / ((second / (1 - betas[1] ** k)).sqrt() + eps)
        )
    return torch.stack(updates)
