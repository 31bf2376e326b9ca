"""Several updates on one rollout, exactly: what the ratio and the clip do when the same completions
are used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..checks import Cap, Index, Logits, Positive, Probability, checked, one_of
from ..objective.catalog import AnyRecipe
from ..objective.recipe import Plan, Recipe
from ..rollouts import Rollouts
from ..weights import factors

if TYPE_CHECKING:
    import pandas as pd


@checked
def reuse(
    recipe: AnyRecipe,
    logits: Logits,
    actions: Sequence[Index],
    reward: Sequence[float],
    *,
    learning_rate: Positive,
    updates: Cap,
    momentum: Probability = 0.0,
) -> pd.DataFrame:
    r"""Gradient descent on one fixed rollout of a policy with one prompt and one token.

    Nothing is drawn, so nothing is random.

    .. math::
        v_k = \mu v_{k-1} - \nabla\mathcal L(\theta_{k-1}),\qquad \theta_k = \theta_{k-1} + \eta v_k

    Args:
        recipe: the loss; advantages are computed once, as for any rollout.
        logits: ``[K]`` of the policy that sampled, :math:`\pi_{old}`.
        actions: the token of each of the N completions.
        reward: ``[N]``.
        learning_rate, momentum: of heavy-ball gradient descent.
        updates: how often the rollout is used.

    Returns:
        One row per update, as it stands when its gradient is taken: ``update`` (1 is on policy),
        ``loss``, ``gradient_norm``, ``clip_fraction`` (the part of the completions whose gradient
        the clip removed) and ``ratio_0`` … ``ratio_{N-1}``.

    Raises:
        ValueError: an action outside the K tokens, or another number of rewards than of actions.
    """
    import pandas as pd

    rollouts = _one_token_rollouts(logits, actions, reward)
    taken = torch.as_tensor(actions)
    theta = logits.detach().double().clone()
    velocity = torch.zeros_like(theta)
    plan = recipe.plan(rollouts)
    rows = []
    for number in range(1, updates + 1):
        leaf = theta.clone().requires_grad_()
        current = rollouts.with_logp(leaf.log_softmax(0)[taken][:, None])
        loss = recipe.loss(current, plan)
        gradient = torch.autograd.grad(loss, leaf)[0]
        measured = {
            "update": number,
            "loss": loss.item() + 0.0,
            "gradient_norm": gradient.norm().item(),
        }
        rows.append(measured | _clip_and_ratios(recipe, current, plan))
        velocity = momentum * velocity - gradient
        theta = theta + learning_rate * velocity
    return pd.DataFrame(rows)


def _one_token_rollouts(
    logits: Tensor, actions: Sequence[int], reward: Sequence[float]
) -> Rollouts:
    """N completions of one token, all of one prompt, as the policy sampled them."""
    one_of("actions", max(actions), range(len(logits)))
    if len(reward) != len(actions):
        raise ValueError(f"reward has {len(reward)} entries: expected {len(actions)}, as actions.")
    old = logits.detach().double().log_softmax(0)[torch.as_tensor(actions)][:, None]
    return Rollouts(
        logp=old,
        old_logp=old,
        mask=torch.ones_like(old, dtype=torch.bool),
        reward=torch.as_tensor(reward, dtype=torch.float64),
        group=torch.zeros(len(old), dtype=torch.long),
        max_new_tokens=1,
    )


def _clip_and_ratios(recipe: Recipe, current: Rollouts, plan: Plan) -> dict[str, float]:
    """Fraction of completions whose gradient the clip took, and the ratio of each."""
    detached = current.with_logp(current.logp.detach())
    parts = factors(recipe, detached, plan)
    clipped = (parts["gate"] == 0) & (parts["advantage"] != 0)
    assert detached.old_logp is not None
    ratios = (detached.logp - detached.old_logp).exp()[:, 0].tolist()
    named = {f"ratio_{i}": ratio for i, ratio in enumerate(ratios)}
    return {"clip_fraction": clipped.double().mean().item(), **named}
