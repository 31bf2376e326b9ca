r"""Reward shaping, before any baseline. Each choice returns the inputs it changes: ``{"reward":
…}`` or ``{"token_reward": …}``.

Shaping is stop-gradient: it changes what is rewarded, not the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .axes import formula


@formula(
    r"R_{length}(|o_i|;\ L_{cache}=<cache>)",
    "overlong penalty (cache <cache>)",
    label="overlong penalty",
)
def overlong_penalty(
    reward: Tensor, mask: Tensor, max_new_tokens: int, *, cache: int
) -> dict[str, Tensor]:
    r"""Soft overlong punishment: nothing up to L_max - L_cache tokens, then linearly down to -1 at
    L_max.

    .. math:: r_i \mathrel{+}= \begin{cases} 0 & |o_i| \le L_{max}-L_{cache} \\
        \frac{(L_{max}-L_{cache})-|o_i|}{L_{cache}} & \text{between} \\
        -1 & |o_i| > L_{max} \end{cases}

    Args:
        reward: ``[N]``.
        mask: ``[N, T]`` bool.
        max_new_tokens: L_max, the hard limit.
        cache: L_cache, length of the slope in tokens.

    Source: DAPO (arXiv 2503.14476), Eq. 13 (L_max 20480, L_cache 4096); TRL
    ``get_soft_overlong_punishment``.
    """
    if not 0 < cache <= max_new_tokens:
        raise ValueError(
            f"cache is {cache}: expected 1 to max_new_tokens = {max_new_tokens}, the length of the "
            "slope in tokens."
        )
    over = mask.sum(dim=1).to(reward.dtype) - (max_new_tokens - cache)
    return {"reward": reward - (over / cache).clamp(0, 1)}


@formula(r"r_i-<beta>\textstyle\sum_t k_1", "r - <beta>·Σ_t k1", label="KL in the reward")
def kl_in_reward(
    reward: Tensor,
    mask: Tensor,
    logp: Tensor,
    ref_logp: Tensor,
    old_logp: Tensor | None = None,
    *,
    beta: float,
) -> dict[str, Tensor]:
    r"""The KL of the whole completion, k1 under the behaviour policy, taken from its reward before
    the baseline.

    .. math:: r_i \mathrel{-}= \beta \sum_t \log\frac{\pi_{old}(o_{it})}{\pi_{ref}(o_{it})}

    On policy its expected gradient is that of the reverse KL. It passes through the group std: KL
    alone can drive a dead group.

    Source: RLOO (arXiv 2402.14740) §3; TRL ``RLOOTrainer`` (``beta=0.05``).
    """
    return {"reward": reward - beta * _k1(mask, logp, old_logp, ref_logp).sum(dim=1)}


@formula(r"r_{it}-<beta>\,k_1", "r_t - <beta>·k1 (per token)", label="KL in the token reward")
def kl_in_token_reward(
    reward: Tensor,
    mask: Tensor,
    logp: Tensor,
    ref_logp: Tensor,
    old_logp: Tensor | None = None,
    token_reward: Tensor | None = None,
    *,
    beta: float,
) -> dict[str, Tensor]:
    r"""The same, each token paying for itself: a reward per token for a baseline that reads them
    (GAE, return to go).

    .. math:: r_{it} \mathrel{-}= \beta \log\frac{\pi_{old}(o_{it})}{\pi_{ref}(o_{it})}

    Source: PPO for RLHF; REINFORCE++ (arXiv 2501.03262), Eq. 8 and 9.
    """
    before = (
        torch.zeros_like(logp, dtype=reward.dtype)
        if token_reward is None
        else token_reward.to(reward.dtype).nan_to_num(0.0)
    )
    return {"token_reward": before - beta * _k1(mask, logp, old_logp, ref_logp)}


def _k1(mask: Tensor, logp: Tensor, old_logp: Tensor | None, ref_logp: Tensor) -> Tensor:
    """``[N, T]`` log(π_old/π_ref), 0 under the mask; on policy π_old is the policy itself."""
    behaviour = logp if old_logp is None else old_logp
    return torch.where(mask, behaviour.double() - ref_logp.double(), 0.0)
