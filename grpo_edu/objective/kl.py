r"""KL term in the loss: a penalty per token against the reference policy, already multiplied by β.

With :math:`d_{it} = \log\pi_\theta(o_{it}) - \log\pi_{ref}(o_{it})`, every choice returns ``beta * estimator``, ``[N, T]``,
which the recipe adds to the loss. Its ``slope`` is the derivative by :math:`\log\pi_\theta`, written by hand.
The value of an estimator and its gradient are different matters: each docstring says what the gradient does on average.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from .axes import formula

F = TypeVar("F", bound=Callable[..., Any])
LIMIT = 20.0


def slope(function: Callable[..., Tensor]) -> Callable[[F], F]:
    """Attach the hand-written derivative of a KL estimator."""

    def attach(estimator: F) -> F:
        estimator.slope = function  # type: ignore[attr-defined]
        return estimator

    return attach


def k1_slope(logp: Tensor, *, beta: float) -> Tensor:
    """``beta`` on every token."""
    return torch.full_like(logp, beta)


@formula(r"<beta>\,\log\frac{\pi_\theta}{\pi_{ref}}", "<beta>·k1, k1 = log(π/π_ref)")
@slope(k1_slope)
def k1(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""Unbiased value, no pull: on policy its expected gradient in the loss is zero.

    .. math:: \beta\, d_{it}

    Source: Schulman, "Approximating KL divergence", 2020; open-instruct issue 534.
    """
    return beta * (logp - ref_logp)


def k2_slope(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    """``beta * d``."""
    return beta * (logp - ref_logp)


@formula(r"<beta>\,\tfrac{1}{2}\Big(\log\frac{\pi_\theta}{\pi_{ref}}\Big)^2", "<beta>·k2, k2 = ½·log(π/π_ref)²")
@slope(k2_slope)
def k2(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""Biased value; on policy its gradient is that of the reverse KL(π ‖ π_ref).

    .. math:: \beta\, \tfrac{1}{2} d_{it}^2

    Source: Schulman 2020; verl ``kl_loss_type=mse``.
    """
    return beta * 0.5 * (logp - ref_logp) ** 2


def k3_slope(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    """``beta * (1 - exp(-d))``, 0 beyond the limit."""
    reverse = ref_logp - logp
    inside = (reverse.abs() <= LIMIT).to(reverse.dtype)
    return -beta * torch.expm1(reverse.clamp(-LIMIT, LIMIT)) * inside


@formula(
    r"<beta>\Big(\frac{\pi_{ref}}{\pi_\theta}-\log\frac{\pi_{ref}}{\pi_\theta}-1\Big)",
    "<beta>·k3, k3 = π_ref/π - log(π_ref/π) - 1",
)
@slope(k3_slope)
def k3(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""GRPO's estimator: never negative, unbiased value; on policy its gradient is that of the *forward* KL(π_ref ‖ π).

    .. math:: \beta\,(e^{-d_{it}} + d_{it} - 1)

    ``-d`` is limited to ±20 before ``expm1``: the value keeps its sign near 0, and value and gradient stay finite.

    Source: DeepSeekMath (arXiv 2402.03300), Eq. 4; verl ``low_var_kl``.
    """
    reverse = (ref_logp - logp).clamp(-LIMIT, LIMIT)
    return beta * (torch.expm1(reverse) - reverse)


def k3_ratio_slope(logp: Tensor, old_logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    """``beta * ratio * (k3 + 1 - exp(-d))``: the ratio is differentiated too."""
    ratio = (logp - old_logp).clamp(-LIMIT, LIMIT).exp()
    own = ((logp - old_logp).abs() <= LIMIT).to(logp.dtype)
    return ratio * (own * k3(logp, ref_logp, beta=beta) + k3_slope(logp, ref_logp, beta=beta))


@formula(r"<beta>\,\rho_{it}\,k_3", "<beta>·ρ·k3")
@slope(k3_ratio_slope)
def k3_ratio(logp: Tensor, old_logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""k3 corrected by the ratio: unbiased off policy, and on policy its gradient is that of the *reverse* KL(π ‖ π_ref).

    .. math:: \beta\,\rho_{it}\,(e^{-d_{it}} + d_{it} - 1)

    Source: DeepSeek-V3.2 (arXiv 2512.02556); TRL >= 1.10 ``use_bias_correction_kl=True``.
    """
    return (logp - old_logp).clamp(-LIMIT, LIMIT).exp() * k3(logp, ref_logp, beta=beta)
