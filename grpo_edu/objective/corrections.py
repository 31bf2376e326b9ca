r"""Correction: a detached factor of each token that multiplies the surrogate, ``[N, T]``.

Two kinds. An importance correction is for completions that another policy sampled (an older one,
another engine or precision), with :math:`w_{it} = \pi_{old}(o_{it}) / \pi_{sampler}(o_{it})`. A
selection leaves tokens or completions out: its factor is 1 or 0. Denominators stay as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from . import groups
from .axes import formula
from .numbers import Numbers, short
from .surrogates import bounded_exp, limited, mean_of_tokens


def _weight(n: Numbers) -> str:
    return f"exp({short(n.log_weights[n.t])})"


def _product(n: Numbers) -> str:
    return f"exp({short(n.log_weights.sum())})"


@formula(
    r"\min(w_{it},\,<cap>)",
    "min(π_old/π_sampler, <cap>)",
    label="truncated importance sampling",
    numbers=lambda n: f"min(max({_weight(n)}, {n.s.low or 0:g}), {n.s.cap:g})",
)
def truncated_is(
    old_logp: Tensor, sampler_logp: Tensor, *, cap: float, low: float | None = None
) -> Tensor:
    r"""Truncated importance sampling (TIS), token by token.

    .. math:: c_{it} = \min(w_{it}, C)

    ``low`` raises small weights to it (OpenRLHF ``tis``, TRL
    ``vllm_importance_sampling_clip_min``); None: no lower bound.

    Source: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training" (C = 2).
    """
    return limited(bounded_exp(old_logp - sampler_logp), low, cap)


@formula(
    r"w_{it}\,1[<low>\le w_{it}\le<high>]",
    "w if <low> ≤ w ≤ <high> else 0, w = π_old/π_sampler",
    label="masked importance sampling",
    numbers=lambda n: f"{_weight(n)}·{int(n.correction != 0)}",
)
def masked_is(old_logp: Tensor, sampler_logp: Tensor, *, low: float, high: float) -> Tensor:
    r"""Tokens whose weight leaves the band are dropped, not capped. Denominators stay as they are.

    .. math:: c_{it} = w_{it}\, 1[low \le w_{it} \le high]

    Source: IcePop; verl ``rollout_is_threshold="0.5_5.0"``, TRL ``token_mask``.
    """
    weight = bounded_exp(old_logp - sampler_logp)
    return weight * ((weight >= low) & (weight <= high))


@formula(
    r"\min\!\big(\textstyle\prod_t w_{it},\,<cap>\big)",
    "min(Π_t π_old/π_sampler, <cap>)",
    label="truncated importance sampling of the sequence",
    numbers=lambda n: f"min({_product(n)}, {n.s.cap:g})",
)
def sequence_truncated_is(old_logp: Tensor, sampler_logp: Tensor, *, cap: float) -> Tensor:
    r"""One weight per completion: the likelihood ratio of the whole sequence, a *product*, capped.

    .. math:: c_i = \min\Big(\prod_t w_{it}, C\Big)

    A different object from GSPO's geometric-mean ratio: no 1/|o_i| belongs here.

    Source: TRL ``vllm_importance_sampling_mode="sequence_truncate"`` (issue 5814).
    """
    weight = bounded_exp((old_logp - sampler_logp).sum(dim=1, keepdim=True))
    return limited(weight, high=cap).expand_as(old_logp)


@formula(
    r"\prod_t w_{it}\,1[\le<cap>]",
    "Π_t π_old/π_sampler if ≤ <cap> else 0",
    label="masked importance sampling of the sequence",
    numbers=lambda n: f"{_product(n)}·{int(n.correction != 0)}",
)
def sequence_masked_is(old_logp: Tensor, sampler_logp: Tensor, *, cap: float) -> Tensor:
    r"""One weight per completion, a product; a completion above the cap is dropped.

    .. math:: c_i = \Big(\prod_t w_{it}\Big)\, 1\Big[\prod_t w_{it} \le C\Big]

    Source: TRL ``vllm_importance_sampling_mode="sequence_mask"`` with ``clip_max=3`` (its default).
    """
    weight = bounded_exp((old_logp - sampler_logp).sum(dim=1, keepdim=True))
    return (weight * (weight <= cap)).expand_as(old_logp)


@formula(
    "w_{it}",
    "w = π_old/π_sampler",
    label="importance sampling",
    numbers=_weight,
)
def importance_sampling(old_logp: Tensor, sampler_logp: Tensor) -> Tensor:
    r"""The importance weight itself, without a cap.

    .. math:: c_{it} = w_{it} = \pi_{old}(o_{it}) / \pi_{sampler}(o_{it})

    With PPO's clip it makes decoupled PPO: the behaviour policy sampled, the proximal policy holds
    the trust region.

    Source: Hilton et al. 2021 (arXiv 2110.00641); AReaL (arXiv 2505.24298), Eq. 5.
    """
    return bounded_exp(old_logp - sampler_logp)


# --- selections -----------------------------------------------------------------------------------


@formula(
    r"1\big[A_i\ge 0\ \text{or}\ \mathrm{mean}_t\log\tfrac{\pi_{old}}{\pi_\theta}\le<delta>\big]",
    "1 if A ≥ 0 or mean_t log(π_old/π) ≤ <delta>, else 0",
    label="off-policy sequence mask",
    numbers=lambda n: f"{n.correction:g}",
)
def off_policy_mask(
    logp: Tensor, old_logp: Tensor, mask: Tensor, advantage: Tensor, *, delta: float
) -> Tensor:
    r"""A bad completion that the policy has moved away from is left out.

    .. math:: c_i = 1\Big[A_i \ge 0\ \text{or}\ \tfrac{1}{|o_i|}\sum_t
        \log\frac{\pi_{old}(o_{it})}{\pi_\theta(o_{it})} \le \delta\Big]

    Source: DeepSeek-V3.2 (arXiv 2512.02556), Eq. 9; read in TRL 1.16 ``off_policy_mask_threshold``
    (which measures from the sampler where there is one).
    """
    moved = mean_of_tokens((old_logp - logp).detach(), mask)
    return ((advantage >= 0) | (moved <= delta)).to(logp.dtype)


@formula(
    r"1\big[H_{it}\ \text{among the highest}\ <part>\big]",
    "1 on the part <part> of the tokens with the highest entropy, else 0",
    label="tokens of high entropy",
    numbers=lambda n: f"{n.correction:g}",
)
def high_entropy(entropy: Tensor, mask: Tensor, *, part: float) -> Tensor:
    r"""Only the tokens at which the policy was uncertain learn.

    .. math:: c_{it} = 1[H_{it} \ge \text{quantile}_{1 - part}(H)]

    The quantile is over the trained tokens that one backward pass sees. The other tokens still
    count in |o|.

    Source: "Beyond the 80/20 rule" (arXiv 2506.01939), part 0.2; read in TRL 1.16
    ``top_entropy_quantile``.
    """
    if not mask.any():
        return torch.zeros_like(entropy)
    least = torch.quantile(entropy[mask], 1 - part)
    return ((entropy >= least) & mask).to(entropy.dtype)


@formula(
    r"1-1\big[\mathrm{cov}_{it}\in(<low>,<high>),\ \text{the largest part }<part>\big]",
    "0 on the part <part> of the tokens with the largest covariance of A and log π between <low> "
    "and <high>, else 1",
    label="Clip-Cov",
    numbers=lambda n: f"{n.correction:g}",
)
def clip_cov(
    logp: Tensor,
    mask: Tensor,
    advantage: Tensor,
    *,
    low: float,
    high: float,
    part: float,
) -> Tensor:
    r"""The few tokens that make the policy certain fastest get no gradient.

    .. math:: c_{it} = 1 - 1[low < (A_{it}-\bar A)(\log\pi_{it}-\overline{\log\pi}) < high]\
        \text{for at most}\ part \cdot \sum|o|\ \text{tokens}

    The paper draws them at random among those between the bounds; here those with the largest
    covariance are taken, so that the loss is a function of its inputs. They are chosen among the
    tokens that one backward pass sees.

    Source: Clip-Cov (arXiv 2505.22617); read in verl 0.9.1 ``loss_mode=clip_cov`` (bounds 1 and 5,
    ``clip_cov_ratio=0.0002``), which also passes over tokens that the clip has cut.
    """
    value = groups.covariance(logp, advantage, mask)
    count = (mask.sum() * part).floor().clamp(min=1)
    chosen = groups.largest(value, mask & (value > low) & (value < high), count)
    return (~chosen).to(logp.dtype)
