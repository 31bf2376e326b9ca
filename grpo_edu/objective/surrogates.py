r"""Ratio and surrogate: what stands between the advantage and the aggregation.

Each choice is a pair of functions that must agree. The surrogate itself, ``ppo_clip(...)``, gives
the differentiable objective of each token, ``[N, T]``, to be maximised. Its ``factors`` give the
derivative, written by hand as ``ratio * gate``:

.. math::
    \frac{\partial}{\partial \log\pi_{it}} \sum_{js} W_{js}\, f_{js} = W_{it}\, A_{it}\, \rho_{it}\,
    g_{it}

The gate is 1 where the token learns at full strength and 0 where the clip took its gradient. A test
holds the two together. Log-ratios are limited to ±20 (as in verl), so that a token the old policy
called impossible gives a large number, not inf.

**Ties.** No gradient rests on how torch shares it at a tie of ``clamp`` or ``minimum``, which
changed between releases: each bound is a selection on a stated inequality. A bound belongs to its
band, so a ratio exactly on it (1 with ε = 0, 1 ± ε, the cap, the limit) keeps its gradient. A = 0
pushes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from . import axes
from .axes import Choice, formula
from .numbers import Numbers, probability_ratio, short

LOG_RATIO_LIMIT = 20.0
F = TypeVar("F", bound=Callable[..., Any])


class Factors(NamedTuple):
    """``ratio`` and ``gate``, both ``[N, T]``: the derivative of the surrogate, divided by the
    advantage.
    """

    ratio: Tensor
    gate: Tensor


class Written(NamedTuple):
    """A surrogate's part in the push: LaTeX of its ratio's symbol, of the ratio, of the gate, and
    the ratio as plain text.
    """

    symbol: str
    ratio: str
    gate: str
    text: str = "ρ = π/π_old"


def surrogate(
    factors: Callable[..., Factors],
    band: Callable[[Mapping[str, Any]], str],
    *,
    written: Written | None = None,
    ratio: Callable[[Numbers], str],
    gate: Callable[[Numbers], str] | None = None,
    reason: Callable[[Numbers], str] | None = None,
    concern: Callable[[Mapping[str, Any]], str | None] | None = None,
    per_sequence: bool = False,
) -> Callable[[F], F]:
    """Attach what a surrogate carries beside its value.

    Args:
        factors: the hand-written derivative.
        band: the clip band in ratio space, in words, from the settings of the choice.
        written: LaTeX of ratio and gate; None: there is neither.
        ratio, gate: the numbers of the token in the formulas of both; None: the value alone.
        reason: a sentence that says why the gate is what it is.
        concern: why the settings are known to be unintended, or None.
        per_sequence: True where one ratio speaks for a whole completion.
    """

    def attach(function: F) -> F:
        function.factors = factors  # type: ignore[attr-defined]
        function.band = band  # type: ignore[attr-defined]
        function.written = written  # type: ignore[attr-defined]
        function.ratio = ratio  # type: ignore[attr-defined]
        function.gate = gate  # type: ignore[attr-defined]
        function.reason = reason  # type: ignore[attr-defined]
        function.concern = concern  # type: ignore[attr-defined]
        function.per_sequence = per_sequence  # type: ignore[attr-defined]
        return function

    return attach


def derivative_of(choice: Choice) -> Choice:
    """``factors`` of a surrogate with the settings of the choice.

    Raises:
        TypeError: a function without factors (your own): the loss runs, a ledger needs them.
    """
    function = axes.function_of(choice)
    if not hasattr(function, "factors"):
        raise TypeError(
            f"surrogate {axes.describe(choice)} has no factors: expected a function decorated with "
            "grpo_edu.objective.surrogates.surrogate(factors), which gives its ratio and gate. "
            "token_weights works without them."
        )
    return axes.companion(choice, function.factors)


def limited(value: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """``value`` held within [low, high]: the gradient is 1 inside and on a bound, 0 beyond it."""
    if low is not None:
        value = value.masked_fill(value < low, low)
    return value if high is None else value.masked_fill(value > high, high)


TOKEN_RATIO = r"\frac{\pi_\theta(o_{it})}{\pi_{old}(o_{it})}"
LOW = "1-<eps_low>"
HIGH = "1+<eps_high>"


def _gate(symbol: str, *zeros: str) -> str:
    """LaTeX of a gate: 0 where a condition holds, else 1."""
    rows = "".join(rf"0 & {zero.replace('x', symbol)} \\ " for zero in zeros)
    return rf"\begin{{cases}}{rows}1 & \text{{else}}\end{{cases}}"


def _clip_written(symbol: str, ratio: str, text: str, *more: str) -> Written:
    """PPO's clip on any ratio."""
    above = rf"A_{{it}}>0,\ x>{HIGH}"
    below = rf"A_{{it}}<0,\ x<{LOW}"
    return Written(symbol, ratio, _gate(symbol, above, below, *more), text)


_TOKEN = _clip_written(r"\rho_{it}", TOKEN_RATIO, "ρ = π/π_old")
_GEOMETRIC = _clip_written(
    "s_i", r"\Big(\textstyle\prod_t \rho_{it}\Big)^{1/|o_i|}", "s = (Π_t ρ)^(1/|o_i|)"
)


def _token_ratio(n: Numbers) -> str:
    return probability_ratio(n.logp, n.old)


def _product(n: Numbers) -> str:
    """The product of a completion's ratios; of a long one the exponential of the sum of logs."""
    ratios = n.log_ratios[n.mask[n.i]].exp().tolist()
    if len(ratios) > 8 or not 1e-3 < min(ratios) <= max(ratios) < 1e3:
        return f"exp({short(n.log_ratios.sum())})"
    return "(" + " · ".join(map(short, ratios)) + ")"


def _geometric_mean(n: Numbers) -> str:
    return f"{_product(n)}**(1/{n.length})"


def _reason(what: str, who: str) -> Callable[[Numbers], str]:
    """Why PPO's clip cuts or leaves a token or a completion, in a sentence."""

    def write(n: Numbers) -> str:
        low = 1 - n.s.eps_low
        high = 1 + n.s.eps_high
        ratio = short(n.ratio)
        if n.advantage == 0:
            return "A is 0, so there is nothing to clip."
        if n.advantage > 0 and n.ratio > high:
            return f"A > 0 and the {what} {ratio} is above {high:g}: {who} gets no gradient."
        if n.advantage < 0 and n.ratio < low:
            return f"A < 0 and the {what} {ratio} is below {low:g}: {who} gets no gradient."
        bound = f"not above {high:g}" if n.advantage > 0 else f"not below {low:g}"
        sign = ">" if n.advantage > 0 else "<"
        return f"A {sign} 0 and the {what} {ratio} is {bound}: {who} keeps its gradient."

    return write


_TOKEN_REASON = _reason("ratio", "the token")
_SEQUENCE_REASON = _reason("ratio of the whole completion", "every token of the completion")


def _interval(low: float, high: float) -> str:
    return f"[{low:.6g}, {high:.6g}]"


def _clip_band(settings: Mapping[str, Any]) -> str:
    return _interval(1 - settings["eps_low"], 1 + settings["eps_high"])


def _sequence_band(settings: Mapping[str, Any]) -> str:
    return f"sequence ratio {_clip_band(settings)}"


def _log_band(settings: Mapping[str, Any]) -> str:
    low, high = settings["eps_low"], settings["eps_high"]
    sides = f"±{high:g}" if low == high else f"-{low:g} and +{high:g}"
    return f"{_interval(math.exp(-low), math.exp(high))} in log space {sides}"


def bounded_exp(log_value: Tensor) -> Tensor:
    """``exp`` of a log-ratio limited to ±20; beyond the limit the gradient is 0."""
    return limited(log_value, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()


def _within(log_value: Tensor) -> Tensor:
    """1 where the limit of ±20 has left the gradient alone."""
    return (log_value.abs() <= LOG_RATIO_LIMIT).to(log_value.dtype)


def sequence_log_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor) -> Tensor:
    r"""``[N, 1]`` mean log-ratio of a completion: the logarithm of the geometric-mean ratio
    :math:`s_i`.

    .. math:: \log s_i = \frac{1}{|o_i|}\sum_t \log\rho_{it}
    """
    return mean_of_tokens(logp - old_logp, mask)


def mean_of_tokens(x: Tensor, mask: Tensor) -> Tensor:
    """``[N, 1]`` mean over the trained tokens of each completion, 0 where there is none."""
    return (x * mask).sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)


def _clipped(ratio: Tensor, advantage: Tensor, eps_low: float, eps_high: float) -> Tensor:
    """True where the clip is the smaller of the two terms: (A > 0, ratio too high) or (A < 0, ratio
    too low).
    """
    return ((advantage > 0) & (ratio > 1 + eps_high)) | ((advantage < 0) & (ratio < 1 - eps_low))


def _clip(ratio: Tensor, advantage: Tensor, eps_low: float, eps_high: float) -> Tensor:
    """min(ρ·A, clip(ρ)·A), with the clip selected where it is the smaller of the two."""
    too_high = (advantage > 0) & (ratio > 1 + eps_high)
    too_low = (advantage < 0) & (ratio < 1 - eps_low)
    return ratio.masked_fill(too_high, 1 + eps_high).masked_fill(too_low, 1 - eps_low) * advantage


def _low_below_zero(s: Mapping[str, Any]) -> str | None:
    if s["eps_low"] <= 1:
        return None
    return (
        f"eps_low={s['eps_low']} puts the lower bound below 0, where no ratio is: that side never "
        "clips. eps is an offset from 1, not a bound."
    )


def _too_wide_for_a_sequence(s: Mapping[str, Any]) -> str | None:
    if min(s["eps_low"], s["eps_high"]) < 0.1:
        return None
    return (
        f"a sequence ratio stays very near 1, so eps {s['eps_low']}/{s['eps_high']} practically "
        "never clips. The GSPO paper uses 3e-4 and 4e-4."
    )


def _cap_below_one(s: Mapping[str, Any]) -> str | None:
    if s["high"] >= 1:
        return None
    return (
        f"high={s['high']} is an absolute cap: every ratio, on-policy ones too, is cut to it. "
        "An offset of 0.28 is written high=1.28."
    )


def reinforce_factors(logp: Tensor) -> Factors:
    """Ratio 1 and gate 1 on every token."""
    return Factors(torch.ones_like(logp), torch.ones_like(logp))


@formula(r"A_{it}\,\log\pi_\theta(o_{it})", "A·log π", label="REINFORCE")
@surrogate(reinforce_factors, lambda s: "none (no ratio)", ratio=lambda n: "1")
def reinforce(logp: Tensor, advantage: Tensor) -> Tensor:
    r"""Plain policy gradient, no ratio.

    .. math:: f_{it} = A_{it} \log\pi_\theta(o_{it})

    Source: Williams 1992; RLOO (arXiv 2402.14740).
    """
    return advantage * logp


def ppo_clip_factors(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float
) -> Factors:
    """Gate 0 where the clip is active, else 1."""
    ratio = bounded_exp(logp - old_logp)
    gate = ~_clipped(ratio, advantage, eps_low, eps_high) * _within(logp - old_logp)
    return Factors(ratio, gate)


@formula(
    r"\min\!\big(\rho_{it}A_{it},\ \mathrm{clip}(\rho_{it},\,1-<eps_low>,\,1+<eps_high>)\,"
    r"A_{it}\big)",
    "min(ρ·A, clip(ρ, 1-<eps_low>, 1+<eps_high>)·A)",
    label="PPO clip",
)
@surrogate(
    ppo_clip_factors,
    _clip_band,
    written=_TOKEN,
    ratio=_token_ratio,
    reason=_TOKEN_REASON,
    concern=_low_below_zero,
)
def ppo_clip(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float
) -> Tensor:
    r"""Token ratio with PPO's clip; the two sides may differ ("clip-higher").

    .. math::
        f_{it} = \min(\rho_{it} A_{it},\ \mathrm{clip}(\rho_{it}, 1-\epsilon_{low},
        1+\epsilon_{high}) A_{it})

    The gradient is zero in two cells of six: (A > 0, ρ > 1+ε_high) and (A < 0, ρ < 1-ε_low). For A
    < 0 it has no upper bound.

    Source: PPO (arXiv 1707.06347), Eq. 7; two-sided ε: DAPO (arXiv 2503.14476), Eq. 8.
    """
    return _clip(bounded_exp(logp - old_logp), advantage, eps_low, eps_high)


def gspo_factors(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
    log_cap: float | None = None,
) -> Factors:
    """One ratio and one gate for the whole completion."""
    log_value = sequence_log_ratio(logp, old_logp, mask)
    ratio = bounded_exp(limited(log_value, high=log_cap)).expand_as(logp)
    below = True if log_cap is None else log_value <= log_cap
    return Factors(
        ratio, (~_clipped(ratio, advantage, eps_low, eps_high) & below) * _within(log_value)
    )


@formula(
    r"\min\!\big(s_i A_i,\ \mathrm{clip}(s_i,\,1-<eps_low>,\,1+<eps_high>)\,A_i\big),\quad"
    r" s_i=\Big(\textstyle\prod_t \rho_{it}\Big)^{1/|o_i|}",
    "min(s·A, clip(s, 1-<eps_low>, 1+<eps_high>)·A), s = (Π_t ρ)^(1/|o_i|)",
    label="GSPO",
)
@surrogate(
    gspo_factors,
    _sequence_band,
    written=_GEOMETRIC,
    per_sequence=True,
    ratio=_geometric_mean,
    reason=_SEQUENCE_REASON,
    concern=_too_wide_for_a_sequence,
)
def gspo(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
) -> Tensor:
    r"""One ratio per completion, the geometric mean of its token ratios; clipped as a whole.

    .. math::
        f_{it} = \min(s_i A_i,\ \mathrm{clip}(s_i, 1-\epsilon_{low}, 1+\epsilon_{high}) A_i),\quad
        s_i = \exp\Big(\tfrac{1}{|o_i|}\sum_t \log\rho_{it}\Big)

    Every token of the completion holds the same value, so the 1/|o_i| of the gradient comes out of
    :math:`s_i`: with the
    sequence mean the token weight is :math:`A_i s_i / (N |o_i|)`, the length bias of GRPO.

    Source: GSPO (arXiv 2507.18071); TRL ``importance_sampling_level="sequence"``.
    """
    ratio = bounded_exp(sequence_log_ratio(logp, old_logp, mask))
    value = _clip(ratio, advantage, eps_low, eps_high)
    return value.expand_as(logp)


def cispo_factors(logp: Tensor, old_logp: Tensor, *, low: float, high: float) -> Factors:
    """Gate = capped ratio / ratio, never 0 while ``low`` or the ratio is positive."""
    ratio = bounded_exp(logp - old_logp)
    return Factors(ratio, limited(ratio, low, high) / ratio)


@formula(
    r"\mathrm{sg}\big[\mathrm{clip}(\rho_{it},\,<low>,\,<high>)\big]\,A_{it}\,"
    r"\log\pi_\theta(o_{it})",
    "sg[clip(ρ, <low>, <high>)]·A·log π",
    label="CISPO",
)
@surrogate(
    cispo_factors,
    lambda s: f"ratio capped to {_interval(max(0.0, s['low']), s['high'])} and detached",
    written=Written(
        r"\rho_{it}", TOKEN_RATIO, r"\frac{\mathrm{clip}(\rho_{it},\,<low>,\,<high>)}{\rho_{it}}"
    ),
    ratio=_token_ratio,
    gate=lambda n: f"min(max({short(n.ratio)}, {n.s.low:g}), {n.s.high:g})/{short(n.ratio)}",
    concern=_cap_below_one,
)
def cispo(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, low: float, high: float) -> Tensor:
    r"""The ratio is capped and detached: it scales the gradient of a token and never removes it.

    .. math::
        f_{it} = \mathrm{sg}[\mathrm{clip}(\rho_{it}, low, high)]\, A_{it} \log\pi_\theta(o_{it})

    ``low`` and ``high`` are absolute bounds of the ratio. (TRL's ``epsilon_high`` is absolute too;
    verl's are offsets from 1.)

    Source: MiniMax-M1 (arXiv 2506.13585), Eq. 4 and 5.
    """
    return limited(bounded_exp(logp - old_logp), low, high).detach() * advantage * logp


def dual_clip_factors(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
    cap: float,
) -> Factors:
    """PPO's gate, and 0 too where A < 0 and the ratio is above the cap."""
    ratio, gate = ppo_clip_factors(logp, old_logp, advantage, eps_low=eps_low, eps_high=eps_high)
    return Factors(ratio, gate * ~((advantage < 0) & (ratio > cap)))


@formula(
    r"\max\!\big(\min(\rho A,\ \mathrm{clip}(\rho,\,1-<eps_low>,\,1+<eps_high>)A),\ <cap>\,"
    r"A\big)\ \text{for}\ A<0",
    "min(ρ·A, clip(ρ, 1-<eps_low>, 1+<eps_high>)·A), for A < 0 at least <cap>·A",
    label="dual clip",
)
@surrogate(
    dual_clip_factors,
    lambda s: f"{_clip_band(s)}, dual clip {s['cap']:g} for A < 0",
    written=_clip_written(r"\rho_{it}", TOKEN_RATIO, "ρ = π/π_old", r"A_{it}<0,\ x><cap>"),
    ratio=_token_ratio,
)
def dual_clip(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
    cap: float,
) -> Tensor:
    r"""PPO's clip with a floor for bad tokens: above ``cap`` a negative advantage loses its
    gradient too.

    .. math:: f_{it} = \max(\text{ppo\_clip},\ c\,A_{it}) \quad (A_{it} < 0)

    Source: Ye et al. 2020 (arXiv 1912.09729); verl ``clip_ratio_c=3`` (always on); equals TRL's
    ``delta`` for A < 0.
    """
    ratio = bounded_exp(logp - old_logp)
    capped = ratio.masked_fill((advantage < 0) & (ratio > cap), cap)
    return _clip(capped, advantage, eps_low, eps_high)


@formula(
    r"\min\!\big(s_{it} A_{it},\ \mathrm{clip}(s_{it},\,1-<eps_low>,\,1+<eps_high>)\,"
    r"A_{it}\big),\quad"
    r" s_{it}=\mathrm{sg}[s_i]\,\pi_\theta/\mathrm{sg}[\pi_\theta]",
    "min(s_t·A_t, clip(s_t, 1-<eps_low>, 1+<eps_high>)·A_t), s_t = sg[s]·π/sg[π], s = (Π_t "
    "ρ)^(1/|o_i|)",
    label="GSPO-token",
)
@surrogate(
    gspo_factors,
    _sequence_band,
    written=_GEOMETRIC,
    ratio=_geometric_mean,
    reason=_SEQUENCE_REASON,
)
def gspo_token(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
    log_cap: float | None = None,
) -> Tensor:
    r"""GSPO's ratio with the gradient token by token, so that the advantage may differ between
    tokens.

    .. math:: s_{it} = \mathrm{sg}[s_i]\,\frac{\pi_\theta(o_{it})}{\mathrm{sg}[\pi_\theta(o_{it})]}

    With one advantage per completion it has GSPO's weights exactly. ``log_cap`` limits log s from
    above (verl: 10): beyond it the ratio is e^cap and has no gradient; None: only the limit of ±20.

    Source: GSPO (arXiv 2507.18071) §4.3; verl ``loss_mode=gspo``.
    """
    fixed = sequence_log_ratio(logp, old_logp, mask).detach()
    ratio = bounded_exp(limited(fixed + logp - logp.detach(), high=log_cap))
    return _clip(ratio, advantage, eps_low, eps_high)


def sequence_product_factors(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, *, eps_low: float, eps_high: float
) -> Factors:
    """One ratio, the product, and one gate for the whole completion."""
    log_value = (logp - old_logp).sum(dim=1, keepdim=True)
    ratio = bounded_exp(log_value).expand_as(logp)
    return Factors(ratio, ~_clipped(ratio, advantage, eps_low, eps_high) * _within(log_value))


@formula(
    r"\frac{1}{|o_i|}\min\!\big(\rho_i A_i,\ \mathrm{clip}(\rho_i,\,1-<eps_low>,\,1+<eps_high>)\,"
    r"A_i\big),\quad \rho_i=\textstyle\prod_t\rho_{it}",
    "1/|o_i| · min(ρ_i·A, clip(ρ_i, 1-<eps_low>, 1+<eps_high>)·A), ρ_i = Π_t ρ",
    label="product of ratios",
)
@surrogate(
    sequence_product_factors,
    lambda s: f"product of ratios {_clip_band(s)}",
    written=_clip_written(r"\rho_i", r"\textstyle\prod_t\rho_{it}", "Π_t ρ"),
    per_sequence=True,
    ratio=_product,
    reason=_SEQUENCE_REASON,
)
def sequence_product(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
) -> Tensor:
    r"""The likelihood ratio of the whole completion, not its geometric mean. Laid on the tokens in
    equal parts.

    .. math::
        \sum_t f_{it} = \min(\rho_i A_i,\ \mathrm{clip}(\rho_i, 1-\epsilon, 1+\epsilon) A_i),\quad
        \rho_i = \prod_t \rho_{it}

    With ``sequence_sum`` the loss is the mean over completions of that minimum, and on policy its
    gradient is that of the sum of token terms, not of their mean.

    Source: TRL ``RLOOTrainer``; the sequence-level form of the GRPO objective.
    """
    ratio = bounded_exp((logp - old_logp).sum(dim=1, keepdim=True))
    value = _clip(ratio, advantage, eps_low, eps_high)
    return value / mask.sum(dim=1, keepdim=True).clamp(min=1)


def _clipped_log_ratio(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, eps_low: float, eps_high: float
) -> Tensor:
    """Log-ratio with the side that the clip takes cut off: above for A > 0, below for A < 0."""
    value = logp - old_logp
    return torch.where(advantage > 0, limited(value, high=eps_high), limited(value, low=-eps_low))


def gmpo_factors(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
) -> Factors:
    """One ratio per completion, the geometric mean of clipped token ratios; one gate per token."""
    value = logp - old_logp
    cut = _clipped_log_ratio(logp, old_logp, advantage, eps_low, eps_high)
    mean = mean_of_tokens(cut, mask)
    clipped = ((advantage > 0) & (value > eps_high)) | ((advantage <= 0) & (value < -eps_low))
    return Factors(bounded_exp(mean).expand_as(logp), ~clipped * _within(mean))


def _gmpo_ratio(n: Numbers) -> str:
    bound = {"high": n.s.eps_high} if n.advantage > 0 else {"low": -n.s.eps_low}
    cut = limited(n.log_ratios, **bound)
    return f"exp({short((cut * n.mask[n.i]).sum())}/{n.length})"


@formula(
    r"\Big(\textstyle\prod_t \mathrm{clip}(\rho_{it},\,e^{-<eps_low>},\,"
    r"e^{<eps_high>})\Big)^{1/|o_i|}A_i",
    "(Π_t clip(ρ, e^-<eps_low>, e^<eps_high>))^(1/|o_i|)·A",
    label="GMPO",
)
@surrogate(
    gmpo_factors,
    _log_band,
    written=Written(
        r"\bar{\rho}_i",
        r"\Big(\textstyle\prod_t \mathrm{clip}(\rho_{it},\,e^{-<eps_low>},\,e^{<eps_high>})"
        r"\Big)^{1/|o_i|}",
        _gate(r"\rho_{it}", r"A_i>0,\ x>e^{<eps_high>}", r"A_i\le 0,\ x<e^{-<eps_low>}"),
    ),
    per_sequence=True,
    ratio=_gmpo_ratio,
)
def gmpo(
    logp: Tensor,
    old_logp: Tensor,
    mask: Tensor,
    advantage: Tensor,
    *,
    eps_low: float,
    eps_high: float,
) -> Tensor:
    r"""Geometric mean of the token ratios, each clipped in log space, on the side that its
    advantage would push it to.

    .. math::
        f_{it} = \Big(\prod_t \mathrm{clip}(\rho_{it}, e^{-\epsilon_{low}},
        e^{\epsilon_{high}})\Big)^{1/|o_i|} A_i

    Source: GMPO (arXiv 2507.20673), (e^-0.4, e^0.4); TRL ``GMPOTrainer``; verl
    ``loss_mode=geo_mean``.
    """
    cut = _clipped_log_ratio(logp, old_logp, advantage, eps_low, eps_high)
    mean = mean_of_tokens(cut, mask)
    return bounded_exp(mean) * advantage


def sapo_factors(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, *, tau_pos: float, tau_neg: float
) -> Factors:
    """Gate 4σ(1-σ) at τ(ρ-1): 1 on policy, falling smoothly on both sides."""
    ratio = bounded_exp(logp - old_logp)
    tau = torch.full_like(ratio, tau_neg).masked_fill(advantage > 0, tau_pos)
    soft = torch.sigmoid(tau * (ratio - 1))
    return Factors(ratio, 4 * soft * (1 - soft) * _within(logp - old_logp))


def _soft_gate(n: Numbers) -> str:
    tau = n.s.tau_pos if n.advantage > 0 else n.s.tau_neg
    x = f"{tau:g}·({short(n.ratio)} - 1)"
    return f"4·sigmoid({x})·(1 - sigmoid({x}))"


@formula(
    r"\frac{4}{\tau}\,\sigma\big(\tau(\rho_{it}-1)\big)A_{it},\quad \tau=<tau_pos>\ (A>0),\ "
    r"<tau_neg>",
    "4/τ·sigmoid(τ(ρ-1))·A, τ = <tau_pos> for A > 0 else <tau_neg>",
    label="SAPO",
)
@surrogate(
    sapo_factors,
    lambda s: f"soft gate, tau {s['tau_pos']:g} and {s['tau_neg']:g}",
    written=Written(
        r"\rho_{it}",
        TOKEN_RATIO,
        r"4\,\sigma(y)\,(1-\sigma(y)),\ y=\tau(\rho_{it}-1),\ "
        r"\tau=<tau_pos>\ (A_{it}>0),\ <tau_neg>\ (A_{it}\le 0)",
    ),
    ratio=_token_ratio,
    gate=_soft_gate,
)
def sapo(
    logp: Tensor, old_logp: Tensor, advantage: Tensor, *, tau_pos: float, tau_neg: float
) -> Tensor:
    r"""A soft gate in place of the clip, a little sharper for bad tokens.

    .. math:: f_{it} = \frac{4}{\tau}\,\sigma(\tau(\rho_{it}-1))\, A_{it}

    Source: SAPO (arXiv 2511.20347), tau 1.0 and 1.05; TRL and verl ``sapo``.
    """
    tau = torch.full_like(logp, tau_neg).masked_fill(advantage > 0, tau_pos)
    return 4 / tau * torch.sigmoid(tau * (bounded_exp(logp - old_logp) - 1)) * advantage


def importance_factors(logp: Tensor, old_logp: Tensor) -> Factors:
    """The ratio, gate 1 on every token."""
    return Factors(bounded_exp(logp - old_logp), _within(logp - old_logp))


@formula(r"\rho_{it}A_{it}", "ρ·A", label="importance ratio")
@surrogate(
    importance_factors,
    lambda s: "none: the ratio is never cut",
    written=Written(r"\rho_{it}", TOKEN_RATIO, "1"),
    ratio=_token_ratio,
)
def importance(logp: Tensor, old_logp: Tensor, advantage: Tensor) -> Tensor:
    r"""The token ratio without a clip.

    .. math:: f_{it} = \rho_{it} A_{it}

    Source: the objective that PPO clips (arXiv 1707.06347), Eq. 6; KL-Cov (arXiv 2505.22617).
    """
    return bounded_exp(logp - old_logp) * advantage


# --- trust regions on probabilities ---------------------------------------------------------------


def _divergence_gate(
    logp: Tensor, old_logp: Tensor, outside: Tensor, cap: float
) -> tuple[Tensor, Tensor]:
    """The ratio, and the gate of a detached ratio that is capped: 0 outside the trust region."""
    ratio = bounded_exp(logp - old_logp)
    return ratio, (limited(ratio, high=cap) / ratio).masked_fill(outside, 0.0)


def dppo_tv_factors(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    delta_low: float,
    delta_high: float,
    cap: float,
) -> Factors:
    """Gate = capped ratio / ratio inside the trust region, 0 outside."""
    moved = logp.exp() - old_logp.exp()
    outside = torch.where(advantage > 0, moved > delta_high, moved < -delta_low)
    return Factors(*_divergence_gate(logp, old_logp, outside, cap))


def _capped_gate(n: Numbers) -> str:
    """The gate of a detached, capped ratio, with its numbers."""
    return "0" if n.gate == 0 else f"min({short(n.ratio)}, {n.s.cap:g})/{short(n.ratio)}"


def _tv_reason(n: Numbers) -> str:
    moved = math.exp(n.logp) - math.exp(n.old)
    if n.advantage > 0:
        verb = "above" if moved > n.s.delta_high else "not above"
        bound = f"{n.s.delta_high:g}"
    else:
        verb = "below" if moved < -n.s.delta_low else "not below"
        bound = f"-{n.s.delta_low:g}"
    end = "gets no gradient" if n.gate == 0 else "keeps its gradient"
    return f"Its probability moved by {short(moved)}, {verb} {bound}: the token {end}."


@formula(
    r"\mathrm{sg}\big[\min(\rho_{it},\,<cap>)\,1[\ldots]\big]A_{it}\,\log\pi_\theta(o_{it})",
    "sg[min(ρ, <cap>)·1[π - π_old ≤ <delta_high> if A > 0, else ≥ -<delta_low>]]·A·log π",
    label="DPPO, total variation",
)
@surrogate(
    dppo_tv_factors,
    lambda s: (
        f"probability moved by at most {s['delta_high']:g} up and {s['delta_low']:g} down, "
        f"ratio capped to {s['cap']:g}"
    ),
    written=Written(
        r"\rho_{it}",
        TOKEN_RATIO,
        r"\begin{cases}0 & A_{it}>0,\ \pi_\theta-\pi_{old}><delta_high> \\ "
        r"0 & A_{it}\le 0,\ \pi_\theta-\pi_{old}<-<delta_low> \\ "
        r"\min(\rho_{it},\,<cap>)/\rho_{it} & \text{else}\end{cases}",
    ),
    ratio=_token_ratio,
    gate=_capped_gate,
    reason=_tv_reason,
)
def dppo_tv(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    delta_low: float,
    delta_high: float,
    cap: float,
) -> Tensor:
    r"""A trust region on the token's probability instead of its ratio: its total variation.

    .. math::
        f_{it} = \mathrm{sg}\big[\min(\rho_{it}, c)\,1[\pi - \pi_{old} \le \delta_{high}\ (A > 0),\
        \pi - \pi_{old} \ge -\delta_{low}\ (A \le 0)]\big]\, A_{it} \log\pi_\theta(o_{it})

    A rare token may multiply its probability freely, a common one may not move far: a clip on the
    ratio does the reverse.

    Source: DPPO (arXiv 2602.04879), the binary form; read in verl 0.9.1 ``loss_mode=dppo_tv``
    (``clip_ratio_c=20``).
    """
    ratio, gate = dppo_tv_factors(
        logp, old_logp, advantage, delta_low=delta_low, delta_high=delta_high, cap=cap
    )
    return (ratio * gate).detach() * advantage * logp


def _binary_kl(logp: Tensor, old_logp: Tensor) -> Tensor:
    """KL of the old policy from the new, of the two outcomes "this token" and "another"."""
    old, new = old_logp.exp(), logp.exp()
    others = torch.log((1 - old + 1e-8) / (1 - new + 1e-8))
    return old * (old_logp - logp) + (1 - old) * others


def dppo_kl_factors(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    delta_low: float,
    delta_high: float,
    cap: float,
) -> Factors:
    """Gate = capped ratio / ratio inside the trust region, 0 outside."""
    distance = _binary_kl(logp, old_logp)
    too_high = (distance > delta_high) & (logp > old_logp)
    too_low = (distance > delta_low) & (logp < old_logp)
    outside = torch.where(advantage > 0, too_high, too_low)
    return Factors(*_divergence_gate(logp, old_logp, outside, cap))


@formula(
    r"\mathrm{sg}\big[\min(\rho_{it},\,<cap>)\,1[\ldots]\big]A_{it}\,\log\pi_\theta(o_{it})",
    "sg[min(ρ, <cap>)·1[binary KL ≤ <delta_high> if π rose and A > 0, ≤ <delta_low> if it fell and "
    "A ≤ 0]]·A·log π",
    label="DPPO, KL",
)
@surrogate(
    dppo_kl_factors,
    lambda s: (
        f"binary KL at most {s['delta_high']:g} up and {s['delta_low']:g} down, ratio capped to "
        f"{s['cap']:g}"
    ),
    written=Written(
        r"\rho_{it}",
        TOKEN_RATIO,
        r"\begin{cases}0 & A_{it}>0,\ \rho_{it}>1,\ d_{it}><delta_high> \\ "
        r"0 & A_{it}\le 0,\ \rho_{it}<1,\ d_{it}><delta_low> \\ "
        r"\min(\rho_{it},\,<cap>)/\rho_{it} & \text{else}\end{cases}",
    ),
    ratio=_token_ratio,
    gate=_capped_gate,
)
def dppo_kl(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    delta_low: float,
    delta_high: float,
    cap: float,
) -> Tensor:
    r"""A trust region on the KL of two outcomes, this token or another.

    .. math::
        d_{it} = \pi_{old}\log\frac{\pi_{old}}{\pi} + (1-\pi_{old})\log\frac{1-\pi_{old}}{1-\pi}

    Cut where d exceeds its bound in the direction of the advantage.

    Source: DPPO (arXiv 2602.04879); read in verl 0.9.1 ``loss_mode=dppo_kl``.
    """
    ratio, gate = dppo_kl_factors(
        logp, old_logp, advantage, delta_low=delta_low, delta_high=delta_high, cap=cap
    )
    return (ratio * gate).detach() * advantage * logp


# --- one detached weight for the whole completion -------------------------------------------------


def _product_of_ratios(logp: Tensor, old_logp: Tensor) -> Tensor:
    """``[N, T]`` the likelihood ratio of each completion, detached."""
    total = (logp - old_logp).sum(dim=1, keepdim=True).detach()
    return bounded_exp(total).expand_as(logp)


def vespo_factors(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    k_pos: float,
    lam_pos: float,
    k_neg: float,
    lam_neg: float,
) -> Factors:
    """Ratio w, gate = φ(w)/w = w^(k-1)·exp(λ(1-w))."""
    w = _product_of_ratios(logp, old_logp)
    k = torch.full_like(w, k_neg).masked_fill(advantage >= 0, k_pos)
    lam = torch.full_like(w, lam_neg).masked_fill(advantage >= 0, lam_pos)
    return Factors(w, w ** (k - 1) * (lam * (1 - w)).exp())


def _vespo_gate(n: Numbers) -> str:
    k, lam = (n.s.k_pos, n.s.lam_pos) if n.advantage >= 0 else (n.s.k_neg, n.s.lam_neg)
    return f"{short(n.ratio)}**({k:g} - 1)·exp({lam:g}·(1 - {short(n.ratio)}))"


@formula(
    r"\mathrm{sg}\big[w_i^{k}e^{\lambda(1-w_i)}\big]A_{it}\,\log\pi_\theta(o_{it}),\quad "
    r"w_i=\textstyle\prod_t\rho_{it}",
    "sg[w^k·exp(λ(1-w))]·A·log π, w = Π_t ρ, k = <k_pos>, λ = <lam_pos> for A ≥ 0 else <k_neg>, "
    "<lam_neg>",
    label="VESPO",
)
@surrogate(
    vespo_factors,
    lambda s: (
        f"soft weight of the whole completion, k {s['k_pos']:g} and {s['k_neg']:g}, lambda "
        f"{s['lam_pos']:g} and {s['lam_neg']:g}"
    ),
    written=Written(
        "w_i",
        r"\textstyle\prod_t\rho_{it}",
        r"w_i^{k-1}e^{\lambda(1-w_i)},\ (k,\lambda)=(<k_pos>,<lam_pos>)\ (A_{it}\ge 0),\ "
        r"(<k_neg>,<lam_neg>)\ (A_{it}<0)",
        "w = Π_t ρ",
    ),
    ratio=_product,
    gate=_vespo_gate,
)
def vespo(
    logp: Tensor,
    old_logp: Tensor,
    advantage: Tensor,
    *,
    k_pos: float,
    lam_pos: float,
    k_neg: float,
    lam_neg: float,
) -> Tensor:
    r"""A soft weight of the whole completion's likelihood ratio, 1 on policy, detached.

    .. math::
        f_{it} = \mathrm{sg}\big[w_i^{k} e^{\lambda (1 - w_i)}\big] A_{it} \log\pi_\theta(o_{it}),
        \quad w_i = \prod_t \rho_{it}

    It falls to 0 on both sides of w = k/λ; k and λ depend on the sign of the advantage.

    Source: VESPO (arXiv 2602.10693); read in TRL 1.16 ``loss_type="vespo"`` (k 2 and 3, λ 3 and 2).
    """
    w, gate = vespo_factors(
        logp, old_logp, advantage, k_pos=k_pos, lam_pos=lam_pos, k_neg=k_neg, lam_neg=lam_neg
    )
    return w * gate * advantage * logp


def topr_factors(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, cap: float) -> Factors:
    """Good completions: ratio and gate 1. Bad ones: ratio w, gate = min(w, cap)/w."""
    w = _product_of_ratios(logp, old_logp)
    bad = advantage < 0
    gate = (limited(w, high=cap) / w).masked_fill(~bad, 1.0)
    return Factors(w.masked_fill(~bad, 1.0), gate)


def _topr_ratio(n: Numbers) -> str:
    return _product(n) if n.advantage < 0 else "1"


def _topr_gate(n: Numbers) -> str:
    return f"min({short(n.ratio)}, {n.s.cap:g})/{short(n.ratio)}" if n.advantage < 0 else "1"


@formula(
    r"\mathrm{sg}[c_i]\,A_{it}\,\log\pi_\theta(o_{it}),\quad c_i=1\ (A_{it}\ge 0),\ "
    r"\min(w_i,\,<cap>)\ \text{else},\ w_i=\textstyle\prod_t\rho_{it}",
    "A·log π for A ≥ 0; sg[min(w, <cap>)]·A·log π for A < 0, w = Π_t ρ",
    label="TOPR",
)
@surrogate(
    topr_factors,
    lambda s: f"A ≥ 0: no ratio; A < 0: product of ratios, at most {s['cap']:g}, detached",
    written=Written(
        "w_i",
        r"\begin{cases}\prod_t\rho_{it} & A_{it}<0 \\ 1 & \text{else}\end{cases}",
        r"\min(w_i,\,<cap>)/w_i",
        "w = Π_t ρ for A < 0, else 1",
    ),
    ratio=_topr_ratio,
    gate=_topr_gate,
)
def topr(logp: Tensor, old_logp: Tensor, advantage: Tensor, *, cap: float) -> Tensor:
    r"""Good completions are imitated without a ratio, bad ones with the truncated likelihood ratio.

    .. math::
        f_{it} = A_{it}\log\pi_\theta(o_{it})\ (A \ge 0),\qquad
        f_{it} = \mathrm{sg}[\min(\textstyle\prod_t\rho_{it}, c)]\,A_{it}\log\pi_\theta(o_{it})\
        (A < 0)

    A bad completion that has become unlikely is no longer pushed down.

    Source: TOPR (arXiv 2503.14286), the importance ratio of negatives clipped to [0, 1].
    """
    ratio, gate = topr_factors(logp, old_logp, advantage, cap=cap)
    return ratio * gate * advantage * logp


# Every surrogate by its label, with the settings that its paper or framework prints.
EXAMPLES: dict[str, Choice] = {
    function.label: partial(function, **settings)
    for function, settings in (
        (reinforce, {}),
        (ppo_clip, {"eps_low": 0.2, "eps_high": 0.2}),
        (dual_clip, {"eps_low": 0.2, "eps_high": 0.2, "cap": 3.0}),
        (gspo, {"eps_low": 3e-4, "eps_high": 4e-4}),
        (gspo_token, {"eps_low": 3e-4, "eps_high": 4e-4}),
        (sequence_product, {"eps_low": 0.2, "eps_high": 0.2}),
        (gmpo, {"eps_low": 0.4, "eps_high": 0.4}),
        (cispo, {"low": 0.0, "high": 5.0}),
        (sapo, {"tau_pos": 1.0, "tau_neg": 1.05}),
        (importance, {}),
        (dppo_tv, {"delta_low": 0.15, "delta_high": 0.15, "cap": 20.0}),
        (dppo_kl, {"delta_low": 0.05, "delta_high": 0.05, "cap": 20.0}),
        (vespo, {"k_pos": 2.0, "lam_pos": 3.0, "k_neg": 3.0, "lam_neg": 2.0}),
        (topr, {"cap": 1.0}),
    )
}
