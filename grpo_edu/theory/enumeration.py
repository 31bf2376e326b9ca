"""Every group that a two-branch stopping policy can produce, with its probability; weights through
the real Recipe.

The policy: a completion is right with probability p = sigmoid(mode); then each token stops with
probability sigmoid(stop) of its branch, up to a length cap. The first token carries the branch as
well as its own stop decision.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import Cap, Count, Hazard, OpenProbability, Probability, at_most_power, checked
from ..objective.catalog import AnyRecipe
from ..objective.recipe import Recipe
from ..rollouts import Rollouts


class Groups(NamedTuple):
    """M groups of G completions: ``chance`` ``[M]``, ``reward``, ``length``, ``stopped`` ``[M,
    G]``, ``mask`` ``[M, G, T]``.
    """

    chance: Tensor
    reward: Tensor
    length: Tensor
    stopped: Tensor
    mask: Tensor


def completions(
    p: float, stop_right: float, stop_wrong: float, cap: int
) -> list[tuple[float, int, int, bool]]:
    """(chance, reward, length, stopped) of every completion."""
    found = []
    for reward, branch, stop in ((1, p, stop_right), (0, 1 - p, stop_wrong)):
        found += [
            (branch * (1 - stop) ** (n - 1) * stop, reward, n, True) for n in range(1, cap + 1)
        ]
        found.append((branch * (1 - stop) ** cap, reward, cap, False))
    return found


@checked
def all_groups(
    p: Probability, stop_right: Hazard, stop_wrong: Hazard, size: Count, cap: Cap
) -> Groups:
    """All (2(cap + 1))^G ordered groups; their chances add to 1."""
    at_most_power("the number of groups (by size and cap)", 2 * (cap + 1), size, 300_000)
    rows = list(product(completions(p, stop_right, stop_wrong, cap), repeat=size))
    chance = torch.tensor([[c[0] for c in row] for row in rows], dtype=torch.float64).prod(dim=1)
    reward = torch.tensor([[float(c[1]) for c in row] for row in rows], dtype=torch.float64)
    length = torch.tensor([[c[2] for c in row] for row in rows])
    stopped = torch.tensor([[c[3] for c in row] for row in rows])
    return Groups(chance, reward, length, stopped, torch.arange(cap) < length[..., None])


def group_weights(recipe: Recipe, groups: Groups, micro_batch: Tensor | None = None) -> Tensor:
    """``[M, G, T]`` on-policy gradient weight of every token, each group its own optimiser step, by
    autograd through the recipe.
    """
    size, cap = groups.mask.shape[1:]
    group = torch.zeros(size, dtype=torch.long)

    def loss(logp: Tensor, mask: Tensor, reward: Tensor) -> Tensor:
        rollouts = Rollouts.unchecked(
            logp=logp, mask=mask, reward=reward, group=group, max_new_tokens=cap
        )
        return recipe.loss(rollouts, micro_batch=micro_batch)

    logp = torch.full(groups.mask.shape, -1.0, dtype=torch.float64)
    return -torch.func.vmap(torch.func.grad(loss))(logp, groups.mask, groups.reward)


def scores(groups: Groups, p: float, stop_right: float, stop_wrong: float) -> Tensor:
    """``[M, G, T, 3]`` derivative of each token's log-probability by (mode, right stop logit, wrong
    stop logit).
    """
    cap = groups.mask.shape[2]
    right = groups.reward[..., None] > 0
    is_stop = groups.stopped[..., None] & (torch.arange(1, cap + 1) == groups.length[..., None])
    mode = (right.double() - p) * (torch.arange(cap) == 0)
    columns = [mode]
    for branch, stop in ((right, stop_right), (~right, stop_wrong)):
        columns.append(branch * (is_stop.double() - stop))
    return torch.stack([column * groups.mask for column in columns], dim=-1)


@checked
def group_gradients(
    recipe: AnyRecipe, p: Probability, stop_right: Hazard, stop_wrong: Hazard, size: Count, cap: Cap
) -> tuple[Tensor, Tensor]:
    """Chances ``[M]`` and gradients ``[M, 3]`` of the objective by (mode, right stop logit, wrong
    stop logit).
    """
    groups = all_groups(p, stop_right, stop_wrong, size, cap)
    weights = group_weights(recipe, groups)
    return groups.chance, (weights[..., None] * scores(groups, p, stop_right, stop_wrong)).sum(
        dim=(1, 2)
    )


@checked
def expected_gradient(
    recipe: AnyRecipe, p: Probability, stop_right: Hazard, stop_wrong: Hazard, size: Count, cap: Cap
) -> Tensor:
    """``[3]`` the mean over all groups."""
    chance, gradients = group_gradients(recipe, p, stop_right, stop_wrong, size, cap)
    return chance @ gradients


@checked
def relative_variance(
    recipe: AnyRecipe,
    p: OpenProbability,
    stop_right: Hazard,
    stop_wrong: Hazard,
    size: Count,
    cap: Cap,
) -> float:
    r"""Noise of one group's gradient: :math:`\mathrm{tr}\,\mathrm{Var}(g) / \|E g\|^2`; a common
    factor cancels.
    """
    chance, gradients = group_gradients(recipe, p, stop_right, stop_wrong, size, cap)
    mean = chance @ gradients
    return ((chance @ gradients**2).sum() / (mean**2).sum() - 1).item()
