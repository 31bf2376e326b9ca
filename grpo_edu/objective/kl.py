r"""KL term in the loss: a penalty per token against the reference policy, already multiplied by β.

With :math:`d_{it} = \log\pi_\theta(o_{it}) - \log\pi_{ref}(o_{it})`, every choice returns ``beta *
estimator``, ``[N, T]``, which the recipe adds to the loss. Its ``slope`` is the derivative by
:math:`\log\pi_\theta`, written by hand. The value of an estimator and its gradient are different
matters: each docstring says what the gradient does on average.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from . import axes, groups
from .axes import Choice, formula
from .numbers import Numbers, probability_ratio, short
from .surrogates import LOG_RATIO_LIMIT, bounded_exp, limited, mean_of_tokens

F = TypeVar("F", bound=Callable[..., Any])


def slope(function: Callable[..., Tensor], latex: str) -> Callable[[F], F]:
    """Attach the hand-written derivative of a KL estimator, and its LaTeX."""

    def attach(estimator: F) -> F:
        estimator.slope = function  # type: ignore[attr-defined]
        estimator.slope_latex = latex  # type: ignore[attr-defined]
        return estimator

    return attach


REVERSE = r"\frac{\pi_{ref}}{\pi_\theta}"


def slope_of(choice: Choice) -> Choice:
    """``slope`` of a KL term with the settings of the choice.

    Raises:
        TypeError: a function without a slope (your own): the loss runs, a ledger needs it.
    """
    function = axes.function_of(choice)
    if not hasattr(function, "slope"):
        raise TypeError(
            f"kl {axes.describe(choice)} has no slope: expected a function decorated with "
            "grpo_edu.objective.kl.slope(derivative, latex). token_weights works without it."
        )
    return axes.companion(choice, function.slope)


def k1_slope(logp: Tensor, *, beta: float) -> Tensor:
    """``beta`` on every token."""
    return torch.full_like(logp, beta)


def _pull(n: Numbers, slope: str) -> str:
    """The numbers of a KL term's part of the push: -W·β·slope."""
    return f"-{short(n.kl_W)} · {n.s.beta:g}·{slope}"


def _k3_of(n: Numbers) -> Tensor:
    """``[T]`` k3 of every token of the completion, beta 1."""
    return k3(n.token["logp"], n.token["ref_logp"], beta=1.0)[n.i]


def _reverse(n: Numbers) -> str:
    return f"(1 - {probability_ratio(n.ref, n.logp)})"


@formula(
    r"<beta>\,\log\frac{\pi_\theta}{\pi_{ref}}",
    "<beta>·k1, k1 = log(π/π_ref)",
    label="k1",
    numbers=lambda n: _pull(n, "1"),
)
@slope(k1_slope, "<beta>")
def k1(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""Unbiased value, no pull: on policy its expected gradient in the loss is zero.

    .. math:: \beta\, d_{it}

    Source: Schulman, "Approximating KL divergence", 2020; open-instruct issue 534.
    """
    return beta * (logp - ref_logp)


def k2_slope(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    """``beta * d``."""
    return beta * (logp - ref_logp)


@formula(
    r"<beta>\,\tfrac{1}{2}\Big(\log\frac{\pi_\theta}{\pi_{ref}}\Big)^2",
    "<beta>·k2, k2 = ½·log(π/π_ref)²",
    label="k2",
    numbers=lambda n: _pull(n, f"({short(n.logp)} - {short(n.ref)})"),
)
@slope(k2_slope, r"<beta>\,\log\frac{\pi_\theta}{\pi_{ref}}")
def k2(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""Biased value; on policy its gradient is that of the reverse KL(π ‖ π_ref).

    .. math:: \beta\, \tfrac{1}{2} d_{it}^2

    Source: Schulman 2020; verl ``kl_loss_type=mse``.
    """
    return beta * 0.5 * (logp - ref_logp) ** 2


def k3_slope(logp: Tensor, ref_logp: Tensor, *, beta: float, cap: float | None = None) -> Tensor:
    """``beta * (1 - exp(-d))``, 0 beyond the limit and above the cap."""
    reverse = ref_logp - logp
    inside = (reverse.abs() <= LOG_RATIO_LIMIT).to(reverse.dtype)
    if cap is not None:
        inside = inside * (k3(logp, ref_logp, beta=1.0) <= cap)
    return -beta * torch.expm1(limited(reverse, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)) * inside


@formula(
    r"<beta>\Big(\frac{\pi_{ref}}{\pi_\theta}-\log\frac{\pi_{ref}}{\pi_\theta}-1\Big)",
    "<beta>·k3, k3 = π_ref/π - log(π_ref/π) - 1",
    label="k3",
    numbers=lambda n: _pull(n, _reverse(n)),
)
@slope(k3_slope, rf"<beta>\,\Big(1-{REVERSE}\Big)")
def k3(logp: Tensor, ref_logp: Tensor, *, beta: float, cap: float | None = None) -> Tensor:
    r"""GRPO's estimator: never negative, unbiased value; on policy its gradient is that of the
    *forward* KL(π_ref ‖ π).

    .. math:: \beta\,(e^{-d_{it}} + d_{it} - 1)

    ``-d`` is limited to ±20 before ``expm1``: the value keeps its sign near 0, and value and
    gradient stay finite.

    Args:
        logp, ref_logp: ``[N, T]``.
        beta: coefficient.
        cap: the largest value of the estimator, before beta (verl, SkyRL, NeMo-RL: 10); above
            it the gradient is 0. None: no cap.

    Source: DeepSeekMath (arXiv 2402.03300), Eq. 4; verl ``low_var_kl``.
    """
    reverse = limited(ref_logp - logp, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    value = torch.expm1(reverse) - reverse
    return beta * limited(value, high=cap)


def k3_ratio_slope(logp: Tensor, old_logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    """``beta * ratio * (k3 + 1 - exp(-d))``: the ratio is differentiated too."""
    ratio = bounded_exp(logp - old_logp)
    own = ((logp - old_logp).abs() <= LOG_RATIO_LIMIT).to(logp.dtype)
    return ratio * (own * k3(logp, ref_logp, beta=beta) + k3_slope(logp, ref_logp, beta=beta))


@formula(
    r"<beta>\,\rho_{it}\,k_3",
    "<beta>·ρ·k3",
    label="ratio · k3",
    numbers=lambda n: _pull(
        n, f"{probability_ratio(n.logp, n.old)}·({short(_k3_of(n)[n.t])} + {_reverse(n)})"
    ),
)
@slope(k3_ratio_slope, rf"<beta>\,\rho_{{it}}\Big(k_3+1-{REVERSE}\Big)")
def k3_ratio(logp: Tensor, old_logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""k3 corrected by the ratio: unbiased off policy, and on policy its gradient is that of the
    *reverse* KL(π ‖ π_ref).

    .. math:: \beta\,\rho_{it}\,(e^{-d_{it}} + d_{it} - 1)

    Source: DeepSeek-V3.2 (arXiv 2512.02556); TRL >= 1.10 ``use_bias_correction_kl=True``.
    """
    return bounded_exp(logp - old_logp) * k3(logp, ref_logp, beta=beta)


def k3_sequence_ratio_slope(
    logp: Tensor, old_logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float
) -> Tensor:
    """``beta * s * (mean of k3 over the completion + 1 - exp(-d))``: holds under a W that is
    uniform in a completion.
    """
    log_ratio = mean_of_tokens(logp - old_logp, mask)
    own = (log_ratio.abs() <= LOG_RATIO_LIMIT).to(logp.dtype)
    shared = mean_of_tokens(k3(logp, ref_logp, beta=beta), mask)
    return bounded_exp(log_ratio) * (own * shared + k3_slope(logp, ref_logp, beta=beta))


@formula(
    r"<beta>\,s_i\,k_3",
    "<beta>·s·k3, s = (Π_t ρ)^(1/|o_i|)",
    label="sequence ratio · k3",
    numbers=lambda n: _pull(
        n,
        f"exp({short(n.log_ratios.sum())}/{n.length})·({short(_k3_of(n).sum())}/{n.length} + "
        f"{_reverse(n)})",
    ),
)
@slope(k3_sequence_ratio_slope, rf"<beta>\,s_i\Big(\mathrm{{mean}}_t\,k_3+1-{REVERSE}\Big)")
def k3_sequence_ratio(
    logp: Tensor, old_logp: Tensor, ref_logp: Tensor, mask: Tensor, *, beta: float
) -> Tensor:
    r"""k3 multiplied by the ratio of the whole completion. A token's gradient then holds its
    completion's mean k3.

    .. math::
        \beta\, s_i\,(e^{-d_{it}} + d_{it} - 1),\quad s_i =
        \exp\Big(\tfrac{1}{|o_i|}\sum_t\log\rho_{it}\Big)

    Source: TRL >= 1.10 with ``importance_sampling_level="sequence"`` and
    ``use_bias_correction_kl=True`` (issue 6586).
    """
    return bounded_exp(mean_of_tokens(logp - old_logp, mask)) * k3(logp, ref_logp, beta=beta)


def k_abs_slope(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    """``beta * sign(d)``."""
    return beta * (logp - ref_logp).sign()


@formula(
    r"<beta>\,\Big|\log\frac{\pi_\theta}{\pi_{ref}}\Big|",
    "<beta>·|log(π/π_ref)|",
    label="absolute log-ratio",
    numbers=lambda n: _pull(n, f"sign({short(n.logp - n.ref)})"),
)
@slope(k_abs_slope, r"<beta>\,\mathrm{sign}\log\frac{\pi_\theta}{\pi_{ref}}")
def k_abs(logp: Tensor, ref_logp: Tensor, *, beta: float) -> Tensor:
    r"""The absolute log-ratio: not an estimate of the KL, only a distance.

    .. math:: \beta\,|d_{it}|

    Source: verl, SkyRL, ROLL ``abs``.
    """
    distance = logp - ref_logp
    return beta * distance * distance.sign()


@formula(
    r"<beta>\,k_2\ \text{(its gradient; its value is another's)}",
    "<beta>·k2 (its gradient; the value shown is another estimator's)",
    label="another value with the gradient of k2",
    numbers=lambda n: _pull(n, f"({short(n.logp)} - {short(n.ref)})"),
)
@slope(k2_slope, r"<beta>\,\log\frac{\pi_\theta}{\pi_{ref}}")
def k2_gradient(logp: Tensor, ref_logp: Tensor, *, beta: float, value: Choice) -> Tensor:
    r"""The value of one estimator with the gradient of k2 (straight through): on policy that of the
    reverse KL.

    .. math:: \beta\,\big(k_2 - \mathrm{sg}[k_2] + \mathrm{sg}[\mathrm{value}]\big)

    Source: verl ``kl_loss_type`` with a ``+``, ``k3+`` say.
    """
    pull = k2(logp, ref_logp, beta=beta)
    return (
        pull
        - pull.detach()
        + axes.run(partial(value, beta=beta), {"logp": logp, "ref_logp": ref_logp}).detach()
    )


# --- penalties against the policy before the update -----------------------------------------------


def k2_old_slope(logp: Tensor, old_logp: Tensor, *, beta: float) -> Tensor:
    """``beta * log(π/π_old)``."""
    return beta * (logp - old_logp)


@formula(
    r"<beta>\,\tfrac{1}{2}\Big(\log\frac{\pi_\theta}{\pi_{old}}\Big)^2",
    "<beta>·½·log(π/π_old)²",
    label="k2 to the old policy",
    numbers=lambda n: _pull(n, f"({short(n.logp)} - {short(n.old)})"),
)
@slope(k2_old_slope, r"<beta>\,\log\frac{\pi_\theta}{\pi_{old}}")
def k2_old(logp: Tensor, old_logp: Tensor, *, beta: float) -> Tensor:
    r"""Half the squared log-ratio to the policy before the update, token by token.

    .. math:: \beta\, \tfrac{1}{2} (\log\rho_{it})^2

    No pull on policy: it grows as the updates of one batch move away.

    Source: DRO; read in verl 0.9.1 ``loss_mode=dro``.
    """
    return beta * 0.5 * (logp - old_logp) ** 2


def k2_sequence_slope(logp: Tensor, old_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    """``beta * Σ_t log(π/π_old)`` on every token: holds under a W that is uniform in a
    completion."""
    return beta * (logp - old_logp).sum(dim=1, keepdim=True).expand_as(logp) * mask


@formula(
    r"\frac{<beta>}{2\,|o_i|}\Big(\textstyle\sum_t\log\rho_{it}\Big)^2",
    "<beta>/(2·|o_i|)·(Σ_t log ρ)²",
    label="k2 of the sequence to the old policy",
    numbers=lambda n: _pull(n, f"({short(n.log_ratios.sum())})"),
)
@slope(k2_sequence_slope, r"<beta>\textstyle\sum_t\log\rho_{it}")
def k2_sequence(logp: Tensor, old_logp: Tensor, mask: Tensor, *, beta: float) -> Tensor:
    r"""Half the squared log-ratio of the whole completion, laid on its tokens in equal parts.

    .. math:: \sum_t k_{it} = \tfrac{\beta}{2} \Big(\sum_t \log\rho_{it}\Big)^2

    Source: Kimi k1.5 (arXiv 2501.12599), §2.3.2: the τ-term of its gradient.
    """
    total = (logp - old_logp).sum(dim=1, keepdim=True)
    return (0.5 * beta * total**2 / mask.sum(dim=1, keepdim=True).clamp(min=1)) * mask


def _kl_cov_chosen(logp: Tensor, mask: Tensor, advantage: Tensor, part: float) -> Tensor:
    """The tokens with the largest covariance, at least one; none where it is not positive."""
    count = (mask.sum() * part).floor().clamp(min=1)
    value = groups.covariance(logp, advantage, mask)
    return groups.largest(value, mask & (value > 0), count)


def kl_cov_slope(
    logp: Tensor, old_logp: Tensor, mask: Tensor, advantage: Tensor, *, beta: float, part: float
) -> Tensor:
    """``beta * sign(log π/π_old)`` on the chosen tokens."""
    chosen = _kl_cov_chosen(logp, mask, advantage, part)
    return beta * (logp - old_logp).sign() * chosen


def _kl_cov_numbers(n: Numbers) -> str:
    token = n.token
    chosen = _kl_cov_chosen(token["logp"], token["mask"], token["advantage"], n.s.part)[n.i, n.t]
    return _pull(n, f"sign({short(n.logp - n.old)})·{int(chosen)}")


@formula(
    r"<beta>\,\Big|\log\frac{\pi_\theta}{\pi_{old}}\Big|\ \text{(largest covariance, part }<part>)",
    "<beta>·|log(π/π_old)| on the part <part> of the tokens with the largest covariance of A and "
    "log π",
    label="KL-Cov",
    numbers=_kl_cov_numbers,
)
@slope(
    kl_cov_slope,
    r"<beta>\,\mathrm{sign}\log\frac{\pi_\theta}{\pi_{old}}\ \text{(chosen tokens)}",
)
def kl_cov(
    logp: Tensor, old_logp: Tensor, mask: Tensor, advantage: Tensor, *, beta: float, part: float
) -> Tensor:
    r"""A penalty on the few tokens that make the policy certain fastest.

    .. math:: \beta\,|\log\rho_{it}|\ \text{where}\
        (A_{it}-\bar A)(\log\pi_{it}-\overline{\log\pi})\ \text{is among the largest}

    The tokens are chosen among those that one backward pass sees, so the result depends on the
    split into micro-batches. On policy every log-ratio is 0 and so is the pull.

    Source: KL-Cov (arXiv 2505.22617); read in verl 0.9.1 ``loss_mode=kl_cov``
    (``kl_cov_ratio=0.0002``, ``ppo_kl_coef=1``).
    """
    distance = logp - old_logp
    chosen = _kl_cov_chosen(logp, mask, advantage, part)
    return beta * distance * distance.sign() * chosen
