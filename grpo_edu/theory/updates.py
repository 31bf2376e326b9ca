"""Several updates on one rollout, exactly: what the ratio and the clip do when the same completions
are used again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from ..checks import Cap, Index, Logits, Positive, Probability, checked, one_of
from ..objective.catalog import AnyRecipe
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
    r"""Gradient descent on one fixed rollout of a one-prompt, one-token policy; nothing is drawn,
    so nothing is random.

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
        One row per update, as it stands when its gradient is taken: ``update`` (1 is on
            policy), ``loss``, ``gradient_norm``,
        ``clip_fraction`` (completions whose gradient the clip took) and ``ratio_0`` …
        ``ratio_{N-1}``.
    """
    import pandas as pd

    one_of("actions", max(actions), range(len(logits)))
    if len(reward) != len(actions):
        raise ValueError(f"reward has {len(reward)} entries: expected {len(actions)}, as actions.")
    taken = torch.as_tensor(actions)
    theta = logits.detach().double().clone()
    velocity, old = torch.zeros_like(theta), theta.log_softmax(0)[taken][:, None]
    rows, mask = [], torch.ones_like(old, dtype=torch.bool)
    rewards, group = (
        torch.as_tensor(reward, dtype=torch.float64),
        torch.zeros(len(taken), dtype=torch.long),
    )
    rollouts = Rollouts(
        logp=old, old_logp=old, mask=mask, reward=rewards, group=group, max_new_tokens=1
    )
    plan = recipe.plan(rollouts)
    for number in range(1, updates + 1):
        leaf = theta.clone().requires_grad_()
        current = rollouts.with_logp(leaf.log_softmax(0)[taken][:, None])
        loss = recipe.loss(current, plan)
        gradient = torch.autograd.grad(loss, leaf)[0]
        parts = factors(recipe, current.with_logp(current.logp.detach()), plan)
        lost = ((parts["gate"] == 0) & (parts["advantage"] != 0)).double().mean().item()
        ratios = {
            f"ratio_{i}": x
            for i, x in enumerate((current.logp.detach() - old).exp()[:, 0].tolist())
        }
        rows.append(
            {
                "update": number,
                "loss": loss.item() + 0.0,
                "gradient_norm": gradient.norm().item(),
                "clip_fraction": lost,
                **ratios,
            }
        )
        velocity = momentum * velocity - gradient
        theta = theta + learning_rate * velocity
    return pd.DataFrame(rows)
