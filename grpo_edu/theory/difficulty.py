r"""The weight of a prompt by its pass rate, at a finite group size.

For a right/wrong reward every group estimator has an expected gradient along :math:`\nabla p`:

.. math:: E\Big[\frac{1}{G}\sum_i A_i S_i\Big] = w_G(p)\,\nabla p,\qquad
    w_G(p) = \sum_{s=0}^{G-1} \binom{G-1}{s} p^s (1-p)^{G-1-s}\,(b_s - a_s)

where :math:`b_s` (:math:`a_s`) is the advantage of a right (wrong) completion when s of the *other*
G-1 are right. The objective that is climbed is :math:`h` with :math:`h' = w`. Source: Davis and
Recht (arXiv 2510.13651) for h; derived and enumerated here for every scheme.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from torch import Tensor

from ..checks import (
    Ddof,
    GroupSize,
    NonNegative,
    OpenProbability,
    Probability,
    checked,
    tensor,
)
from ..objective.catalog import AnyRecipe
from ..objective.filters import drop_dead_groups
from ..objective.probes import neutral_rollouts
from ..objective.recipe import Recipe

Gap = Annotated[Tensor, partial(tensor, dims="G")]


def advantages_by_count(recipe: Recipe, size: int) -> tuple[Tensor, Tensor]:
    """Advantage of a right and of a wrong completion when K of G are right: two ``[G + 1]``
    tensors, 0 where there is none.

    All K stand in one batch, so that a statistic of the whole batch is one number for every prompt,
    as it is in a large batch.
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
def prompt_weight(recipe: AnyRecipe, p: Probability, size: GroupSize) -> float:
    r"""w_G(p) of a recipe's advantage; 1 for REINFORCE and RLOO, (G-1)/G for Dr. GRPO."""
    return prompt_weight_of(gaps(recipe, size), p)


@checked
def prompt_weight_of(gap: Gap, p: Probability) -> float:
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
    r"""Closed form for the group std: :math:`E[\sigma_K^2 / (c\,\sigma_K + \epsilon)] / (p(1-p))`,
    c the ddof factor.

    Flat at G = 2 (1) and G = 3 (√2): there the std makes no difficulty bias. As p → 0 it tends to
    √(G-1), it does not diverge.
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
def silent_probability(p: Probability, size: GroupSize) -> float:
    r"""Chance that a group gives no signal: :math:`p^G + (1-p)^G`."""
    return p**size + (1 - p) ** size


@checked
def rerolled_weight(recipe: AnyRecipe, p: OpenProbability, size: GroupSize) -> float:
    r"""Dynamic sampling that re-rolls the *same* prompt until its group is mixed: w / (1 - silent),
    silent groups giving nothing.

    (Drawing *new* prompts instead keeps the relative weights, where silent groups give nothing
    anyway: ``refilled_weights``.)
    """
    return prompt_weight(without_silent_groups(recipe), p, size) / (1 - silent_probability(p, size))


@checked
def frames(w: float, p: Probability) -> dict[str, float]:
    r"""One update, three yardsticks: relative to :math:`\nabla p`, to the score gap (and the logit
    of p), and to :math:`\nabla \log p`.

    "The std over-weights the extremes" is true of the first, "it over-weights the middle" of the
    second, "it under-weights hard prompts" of the third: the same w(p).
    """
    return {"probability": w, "score": w * p * (1 - p), "log-probability": w * p}


@checked
def refilled_weights(
    recipe: AnyRecipe, pass_rates: Sequence[OpenProbability], size: GroupSize
) -> list[float]:
    r"""Dynamic sampling that replaces a silent group by one of a *new* prompt: every weight is
    divided by the same number.

    .. math:: w_q \;/\; \mathrm{mean}_{q'}\big(1 - p_{q'}^G - (1-p_{q'})^G\big)

    Args:
        recipe: its advantage.
        pass_rates: one for each prompt; prompts are drawn uniformly, until a group is live.
        size: G.

    Returns:
        The expected weight of each prompt per kept group and per chance of being drawn, silent
        groups giving nothing.

    Source: DAPO (arXiv 2503.14476) §3.2, filter and refill.
    """
    live = sum(1 - silent_probability(p, size) for p in pass_rates) / len(pass_rates)
    return [prompt_weight(without_silent_groups(recipe), p, size) / live for p in pass_rates]


def without_silent_groups(recipe: Recipe) -> Recipe:
    """The recipe on live groups only. It changes nothing where a group of equal rewards has
    advantage 0 anyway.
    """
    return (
        recipe
        if drop_dead_groups in recipe.filters
        else recipe.but(filters=(*recipe.filters, drop_dead_groups))
    )
