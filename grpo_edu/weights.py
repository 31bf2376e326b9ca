r"""Gradient weight per token, and the ledger that explains it factor by factor.

The weight of a token is :math:`-\partial \mathcal{L} / \partial \log\pi_\theta(o_{it})`: how hard one optimiser step pushes its
log-probability, up where positive and down where negative. Every argument about GRPO and its variants is about this number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .checks import Count, checked
from .objective import axes
from .objective.catalog import AnyRecipe
from .objective.recipe import Plan, Recipe
from .rollouts import Rollouts

if TYPE_CHECKING:
    import pandas as pd


@checked
def token_weights(
    recipe: AnyRecipe, rollouts: Rollouts, micro_batch: Tensor | None = None
) -> Tensor:
    r"""The exact push on every token, ``[N, T]``: :math:`-\partial \mathcal{L}/\partial \log\pi_\theta(o_{it})`, by autograd.

    Args:
        recipe: the loss.
        rollouts: every completion of one optimiser step.
        micro_batch: ``[N]`` micro-batch of each completion; only the micro-batch scope looks at it.

    Returns:
        ``[N, T]`` detached, in float32 or wider, 0 under the mask.
    """
    wide = (
        rollouts.logp.dtype
        if rollouts.logp.dtype in (torch.float32, torch.float64)
        else torch.float32
    )
    leaf = rollouts.logp.detach().to(wide).requires_grad_()
    loss = recipe.loss(rollouts.with_logp(leaf), micro_batch=micro_batch)
    return 0.0 - torch.autograd.grad(loss, leaf)[0]


@checked
def split(rows: Count, parts: Count) -> Tensor:
    """``[rows]`` the micro-batch of each row when ``parts`` of nearly equal size are cut in order. ``(5, 2)`` -> 0 0 0 1 1."""
    if not 1 <= parts <= rows:
        raise ValueError(f"parts is {parts}: expected 1 to {rows}, the number of completions.")
    sizes = torch.tensor([len(x) for x in torch.tensor_split(torch.arange(rows), parts)])
    return torch.repeat_interleave(torch.arange(parts), sizes)


def factors(recipe: Recipe, rollouts: Rollouts, plan: Plan) -> dict[str, Tensor]:
    r"""The hand-written factors of the weight, each ``[N, T]``; autograd is not used.

    .. math:: w_{it} = A_{it}\, W_{it}\, \rho_{it}\, g_{it} + \mathrm{KL}_{it}

    Keys: ``advantage``, ``aggregation`` (W), ``ratio``, ``gate``, ``kl`` (the KL term with its sign and its own W), ``weight``;
    with an importance correction also ``correction``, one more factor.
    """
    inputs = {**recipe.token_inputs(rollouts, plan), **axes.settings(recipe.surrogate)}
    inputs["logp"] = inputs["logp"].detach()
    ratio, gate = axes.run(axes.function_of(recipe.surrogate).factors, inputs)  # type: ignore[attr-defined]
    kl_term = torch.zeros_like(ratio)
    kl = recipe.active_kl(rollouts)
    if kl is not None:
        slope = axes.run(axes.function_of(kl).slope, {**inputs, **axes.settings(kl)})  # type: ignore[attr-defined]
        kl_term = -plan.kl_weight.to(ratio.dtype) * slope
    correction = (
        {} if recipe.correction is None else {"correction": axes.run(recipe.correction, inputs)}
    )
    push = inputs["advantage"] * recipe.corrected(plan, inputs) * ratio * gate
    return {
        "advantage": inputs["advantage"],
        "aggregation": plan.weight.to(ratio.dtype),
        **correction,
        "ratio": ratio,
        "gate": gate,
        "kl": kl_term,
        "weight": push + kl_term,
    }


@checked
def ledger(
    recipe: AnyRecipe, rollouts: Rollouts, micro_batch: Tensor | None = None
) -> pd.DataFrame:
    """One row per trained token: why its weight is what it is.

    Columns: ``completion``, ``position``, ``token`` (where texts are known), ``group``, ``reward``, ``advantage``,
    ``aggregation``, ``ratio``, ``gate``, ``kl``, ``weight`` = advantage · aggregation · ratio · gate + kl, and the share of the
    total push: ``share_token``, ``share_completion`` (of |weight| over the batch) and ``share_sign`` (of its own sign's total).
    A token that a filter took out has aggregation 0 and weight 0; an unscored completion has reward NaN.
    """
    import pandas as pd  # costs as much to import as torch

    plan = recipe.plan(rollouts, micro_batch)
    columns = {name: value.double() for name, value in factors(recipe, rollouts, plan).items()}
    where = rollouts.mask.nonzero()
    i, t = where[:, 0], where[:, 1]
    reward = rollouts.reward.double().masked_fill(~rollouts.scored, torch.nan)  # type: ignore[operator]
    table = pd.DataFrame({"completion": i.tolist(), "position": t.tolist()})
    if rollouts.tokens is not None:
        table["token"] = [rollouts.tokens[a][b] for a, b in where.tolist()]
    table["group"] = rollouts.group[i].tolist()
    table["reward"] = reward[i].tolist()
    for name, value in columns.items():
        table[name] = value[i, t].tolist()
    size = table["weight"].abs()
    table["share_token"] = size / (size.sum() or 1.0)
    table["share_completion"] = table.groupby("completion")["share_token"].transform("sum")
    up = table["weight"] > 0
    table["share_sign"] = size / (up * size[up].sum() + ~up * size[~up].sum()).replace(0.0, 1.0)
    return table


@checked
def summary(
    recipe: AnyRecipe, rollouts: Rollouts, micro_batch: Tensor | None = None
) -> pd.DataFrame:
    """One row per completion: ``completion, group, reward, length, advantage, push_per_token, share``.

    ``push_per_token`` is the mean signed weight of its tokens, ``share`` its signed part of the step's total |weight|.
    A completion without a trained token has push 0.
    """
    import pandas as pd

    parts = factors(recipe, rollouts, recipe.plan(rollouts, micro_batch))
    weight = parts["weight"].double()
    total = weight.abs().sum().clamp(min=torch.finfo(torch.float64).tiny)
    length = rollouts.lengths
    return pd.DataFrame(
        {
            "completion": range(len(rollouts)),
            "group": rollouts.group.tolist(),
            "reward": rollouts.reward.double().masked_fill(~rollouts.scored, torch.nan).tolist(),  # type: ignore[operator]
            "length": length.tolist(),
            "advantage": (parts["advantage"].sum(dim=1) / length.clamp(min=1)).tolist(),
            "push_per_token": (weight.sum(dim=1) / length.clamp(min=1)).tolist(),
            "share": (weight.sum(dim=1) / total).tolist(),
        }
    )
