r"""Correction for a sampler that is not quite the behaviour policy (another engine, another
precision): a detached factor per token.

With :math:`w_{it} = \pi_{old}(o_{it}) / \pi_{sampler}(o_{it})`. Every choice returns ``[N, T]``,
which multiplies the surrogate.
"""

from __future__ import annotations

from torch import Tensor

from .axes import formula
from .numbers import Numbers, short
from .surrogates import bounded_exp, limited


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
