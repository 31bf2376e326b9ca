r"""Ratio and surrogate: what stands between the advantage and the aggregation.

Each choice is a pair of functions that must agree. The surrogate itself, ``ppo_clip(...)``, gives the differentiable
objective of each token, ``[N, T]``, to be maximised. Its ``factors`` give the derivative, written by hand as ``ratio * gate``:

.. math:: \frac{\partial}{\partial \log\pi_{it}} \sum_{js} W_{js}\, f_{js} = W_{it}\, A_{it}\, \rho_{it}\, g_{it}

The gate is 1 where the token learns at full strength and 0 where the clip took its gradient. A test holds the two together.
Log-ratios are limited to ±20 (as in verl), so that a token the old policy called impossible gives a large number, not inf.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from .axes import formula

LOG_RATIO_LIMIT = 20.0
F = TypeVar("F", bound=Callable[..., Any])


class Factors(NamedTuple):
    """``ratio`` and ``gate``, both ``[N, T]``: the derivative of the surrogate, divided by the advantage."""

    ratio: Tensor
    gate: Tensor


def surrogate(factors: Callable[..., Factors], *, per_sequence: bool = False) -> Callable[[F], F]:
    """Attach the hand-written derivative, and whether one ratio speaks for a whole completion."""

    def attach(function: F) -> F:
        function.factors, function.per_sequence = factors, per_sequence  # type: ignore[attr-defined]
        return function

    return attach


def bounded_exp(log_value: Tensor) -> Tensor:
    """``exp`` of a log-ratio limited to ±20; beyond the limit the gradient is 0."""
    return log_value.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def _within(log_value: Tensor) -> Tensor:
    """1 where the limit of ±20 has left the gradient alone."""
    return (log_value.abs() <= LOG_RATIO_LIMIT).to(log_value.dtype)


def sequence_log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    r"""``[N, 1]`` mean log-ratio of a completion: the logarithm of the geometric-mean ratio :math:`s_i`.

    .. math:: \log s_i = \frac{1}{|o_i|}\sum_t \log\rho_{it}
    """
    return ((logp - old_logp) * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def _clipped(ratio: Tensor, advantage: Tensor, eps_low: float, eps_high: float) -> Tensor:
    """True where the clip is the smaller of the two terms: (A > 0, ratio too high) or (A < 0, ratio too low)."""
    return ((advantage > 0) & (ratio > 1 + eps_high)) | ((advantage < 0) & (ratio < 1 - eps_low))


def reinforce_factors(logp: Tensor) -> Factors:
    """Ratio 1 and gate 1 on every token."""
    return Factors(torch.ones_like(logp), torch.ones_like(logp))


@formula(r"A_{it}\,\log\pi_\theta(o_{it})", "A·log π")
@surrogate(reinforce_factors)
def reinforce(logp: Tensor, advantage: Tensor) -> Tensor:
    r"""Plain policy gradient, no ratio.

    .. math:: f_{it} = A_{it} \log\pi_\theta(o_{it})

    Source: Williams 1992; RLOO (arXiv 2402.14740).
    """
    return advantage * logp


def ppo_clip_factors(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float) -> Factors:
    """Gate 0 where the clip is active, else 1."""
    ratio = bounded_exp(logp - old_logp)
    gate = ~_clipped(ratio, advantage, eps_low, eps_high) * _within(logp - old_logp)
    return Factors(ratio, gate)


@formula(
    r"\min\!\big(\rho_{it}A_{it},\ \mathrm{clip}(\rho_{it},\,1-<eps_low>,\,1+<eps_high>)\,A_{it}\big)",
    "min(ρ·A, clip(ρ, 1-<eps_low>, 1+<eps_high>)·A)",
)
@surrogate(ppo_clip_factors)
def ppo_clip(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float) -> Tensor:
    r"""Token ratio with PPO's clip; the two sides may differ ("clip-higher").

    .. math:: f_{it} = \min(\rho_{it} A_{it},\ \mathrm{clip}(\rho_{it}, 1-\epsilon_{low}, 1+\epsilon_{high}) A_{it})

    The gradient is zero in two cells of six: (A > 0, ρ > 1+ε_high) and (A < 0, ρ < 1-ε_low). For A < 0 it has no upper bound.

    Source: PPO (arXiv 1707.06347), Eq. 7; two-sided ε: DAPO (arXiv 2503.14476), Eq. 8.
    """
    ratio = bounded_exp(logp - old_logp)
    return torch.minimum(ratio * advantage, ratio.clamp(1 - eps_low, 1 + eps_high) * advantage)


def gspo_factors(
    logp: Tensor, old_logp: Tensor, mask: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float
) -> Factors:
    """One ratio and one gate for the whole completion."""
    log_value = sequence_log_ratio(logp, old_logp, mask)
    ratio = bounded_exp(log_value).expand_as(logp)
    return Factors(ratio, ~_clipped(ratio, advantage, eps_low, eps_high) * _within(log_value))


@formula(
    r"\min\!\big(s_i A_i,\ \mathrm{clip}(s_i,\,1-<eps_low>,\,1+<eps_high>)\,A_i\big),\quad"
    r" s_i=\Big(\textstyle\prod_t \rho_{it}\Big)^{1/|o_i|}",
    "min(s·A, clip(s, 1-<eps_low>, 1+<eps_high>)·A), s = (Π_t ρ)^(1/|o_i|)",
)
@surrogate(gspo_factors, per_sequence=True)
def gspo(logp: Tensor, old_logp: Tensor, mask: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float) -> Tensor:
    r"""One ratio per completion, the geometric mean of its token ratios; clipped as a whole.

    .. math:: f_{it} = \min(s_i A_i,\ \mathrm{clip}(s_i, 1-\epsilon_{low}, 1+\epsilon_{high}) A_i),\quad
        s_i = \exp\Big(\tfrac{1}{|o_i|}\sum_t \log\rho_{it}\Big)

    Every token of the completion holds the same value, so the 1/|o_i| of the gradient comes out of :math:`s_i`: with the
    sequence mean the token weight is :math:`A_i s_i / (N |o_i|)`, the length bias of GRPO.

    Source: GSPO (arXiv 2507.18071); TRL ``importance_sampling_level="sequence"``.
    """
    ratio = bounded_exp(sequence_log_ratio(logp, old_logp, mask))
    value = torch.minimum(ratio * advantage, ratio.clamp(1 - eps_low, 1 + eps_high) * advantage)
    return value.expand_as(logp)


def cispo_factors(logp: Tensor, old_logp: Tensor, *, low: float, high: float) -> Factors:
    """Gate = capped ratio / ratio, never 0 while ``low`` or the ratio is positive."""
    ratio = bounded_exp(logp - old_logp)
    return Factors(ratio, ratio.clamp(low, high) / ratio)


@formula(
    r"\mathrm{sg}\big[\mathrm{clip}(\rho_{it},\,<low>,\,<high>)\big]\,A_{it}\,\log\pi_\theta(o_{it})",
    "sg[clip(ρ, <low>, <high>)]·A·log π",
)
@surrogate(cispo_factors)
def cispo(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, low: float, high: float) -> Tensor:
    r"""The ratio is capped and detached: it scales the gradient of a token and never removes it.

    .. math:: f_{it} = \mathrm{sg}[\mathrm{clip}(\rho_{it}, low, high)]\, A_{it} \log\pi_\theta(o_{it})

    ``low`` and ``high`` are absolute bounds of the ratio. (TRL's ``epsilon_high`` is absolute too; verl's are offsets from 1.)

    Source: MiniMax-M1 (arXiv 2506.13585), Eq. 4 and 5.
    """
    return bounded_exp(logp - old_logp).clamp(low, high).detach() * advantage * logp
