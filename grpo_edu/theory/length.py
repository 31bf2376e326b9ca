r"""Length: what each aggregation does to the decision to stop.

A completion's tokens stop with probability s; its score by the stop logit is :math:`\sum_t (1\{\text{stop at } t\} - s) = 1\{stopped\} - sL`,
with mean 0. A normaliser that knows the completion's own length L tilts it:

.. math:: E\Big[\frac{1\{stopped\} - sL}{L}\Big] = E\Big[\frac{1\{stopped\}}{L}\Big] - s > 0

so under 1/|o| right answers (A > 0) are pushed to stop earlier and wrong ones (A < 0) later, with no reward for either.
All results here are exact; lengths depend on the branch alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ..checks import (
    Alpha,
    Cap,
    Count,
    GroupSize,
    Hazard,
    Index,
    Logit,
    Positive,
    Probability,
    at_most,
    checked,
)


@checked
def length_law(stop: Hazard, cap: Cap) -> tuple[Tensor, Tensor]:
    """Chance of length 1 … cap *with a stop*, ``[cap]``, and the chance of running into the cap, a scalar."""
    n = torch.arange(cap, dtype=torch.float64)
    return stop * (1 - stop) ** n, torch.tensor((1 - stop) ** cap, dtype=torch.float64)


@checked
def sequence_mean_drift(stop: Hazard, cap: Cap | None = None) -> float:
    r"""E[score / L] of the stop logit under 1/|o|, per unit of advantage.

    .. math:: s\Big(\frac{-\ln s}{1-s} - 1\Big) \text{ without a cap},\qquad E\Big[\frac{1\{stopped\}}{L}\Big] - s \text{ with one}

    At s = .1: .1558 without, .1354 with a cap of 10.
    """
    if cap is None:
        return _uncapped_drift(stop)
    law, _ = length_law(stop, cap)
    return (law / torch.arange(1, cap + 1)).sum().item() - stop


@checked
def constant_drift(stop: Hazard, cap: Cap) -> float:
    """E[score] under a constant: 0, with a cap and without, computed from the law of the lengths."""
    law, ran_out = length_law(stop, cap)
    lengths = torch.arange(1, cap + 1, dtype=torch.float64)
    return ((law * (1 - stop * lengths)).sum() - ran_out * stop * cap).item()


@checked
def token_mean_drift(stop: Hazard, rows: Count, cap: Cap) -> float:
    r"""Drift of a token mean whose denominator is shared by ``rows`` completions of one hazard, relative to total weight 1.

    .. math:: n\, E\Big[\frac{1\{stopped\} - s L_1}{L_1 + \dots + L_n}\Big]

    rows = 1 is the sequence mean; rows = G the prompt scope; rows = the micro-batch for that scope; rows = P·G the step. Falls like 1/n.
    """
    at_most("rows times cap", rows * cap, 65_536)
    law, ran_out = length_law(stop, cap)
    lengths = torch.arange(1, cap + 1, dtype=torch.float64)
    total = law.clone()
    total[-1] = total[-1] + ran_out
    others = torch.ones(
        1, dtype=torch.float64
    )  # law of the sum of the other lengths, from its smallest value on
    for _ in range(rows - 1):
        others = torch.nn.functional.conv1d(
            others.view(1, 1, -1), total.flip(0).view(1, 1, -1), padding=cap - 1
        ).view(-1)
    rest = torch.arange(len(others), dtype=torch.float64) + (rows - 1)
    inverse = (others / (lengths[:, None] + rest)).sum(dim=1)
    stopped = (law * (1 - stop * lengths) * inverse).sum()
    return rows * (stopped - ran_out * stop * cap * inverse[-1]).item()


@checked
def field(mode: Logit, right: Logit, wrong: Logit, size: GroupSize) -> Tensor:
    r"""Expected update under 1/|o| without std, ``[3]``, by (mode, right stop logit, wrong stop logit); no cap.

    .. math:: F = \frac{G-1}{G}\,(\nabla u - p\,\nabla m),\qquad u = E[r/L],\ m = E[1/L]
    """
    return _field(mode, right, wrong, size)


def _field(mode: float, right: float, wrong: float, size: int) -> Tensor:
    p, e_right, e_wrong = (
        _sigmoid(mode),
        _inverse_length(_sigmoid(right)),
        _inverse_length(_sigmoid(wrong)),
    )
    slope = p * (1 - p)
    parts = [
        slope * (p * e_wrong + (1 - p) * e_right),
        slope * _uncapped_drift(_sigmoid(right)),
        -slope * _uncapped_drift(_sigmoid(wrong)),
    ]
    return torch.tensor(parts, dtype=torch.float64) * (size - 1) / size


def _uncapped_drift(stop: float) -> float:
    return stop * (-math.log(stop) / (1 - stop) - 1)


@checked
def curl(mode: Logit, wrong: Logit, size: GroupSize) -> float:
    r"""∂F_wrong/∂mode - ∂F_mode/∂wrong of that field: not 0, so no objective has it as its gradient.

    .. math:: -\frac{G-1}{G}\, p(1-p)^2\, \frac{\partial E[1/L\,|\,wrong]}{\partial\,\mathrm{stop\ logit}}
    """
    p = _sigmoid(mode)
    return -(size - 1) / size * p * (1 - p) ** 2 * sequence_mean_drift(_sigmoid(wrong))


@checked
def loop_integral(
    size: GroupSize,
    mode: tuple[Logit, Logit],
    wrong: tuple[Logit, Logit],
    right: Logit,
    points: Count = 2000,
) -> float:
    """Work of the field around the rectangle mode × wrong, counter-clockwise; 0 for a gradient."""
    at_most("points", points, 20_000)
    total = 0.0
    corners = [(mode[0], wrong[0]), (mode[1], wrong[0]), (mode[1], wrong[1]), (mode[0], wrong[1])]
    for (a0, w0), (a1, w1) in zip(corners, [*corners[1:], corners[0]], strict=True):
        for k in range(points):
            t = (k + 0.5) / points
            f = _field(a0 + t * (a1 - a0), right, w0 + t * (w1 - w0), size)
            total += (f[0].item() * (a1 - a0) + f[2].item() * (w1 - w0)) / points
    return total


@checked
def longer_share(ratio: Positive, alpha: Alpha = 1.0) -> float:
    r"""Share of the longer of two completions, ``ratio`` times as long, when a token weighs :math:`L^{\alpha-1}`.

    .. math:: \frac{r^\alpha}{1 + r^\alpha}

    alpha 0 (1/|o|): 1/2, whatever the lengths. alpha 1 (constant, token mean): r/(1+r). No alpha gives both an even share and an even
    push per token, whose ratio is :math:`r^{\alpha-1}`.
    """
    return ratio**alpha / (1 + ratio**alpha)


@checked
def power_drift(stop: Hazard, alpha: Alpha, cap: Cap) -> float:
    r"""Stop-logit drift when a token weighs :math:`L^{\alpha-1}`, relative to the mean weight of a completion.

    .. math:: E[L^{\alpha-1}(1\{stopped\} - sL)] \,/\, E[L^\alpha]
    """
    law, ran_out = length_law(stop, cap)
    lengths = torch.arange(1, cap + 1, dtype=torch.float64)
    tilted = (law * lengths ** (alpha - 1) * (1 - stop * lengths)).sum() - ran_out * cap ** (
        alpha - 1
    ) * stop * cap
    return (tilted / ((law * lengths**alpha).sum() + ran_out * cap**alpha)).item()


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _inverse_length(stop: float) -> float:
    """E[1/L] of a geometric length."""
    return -stop * math.log(stop) / (1 - stop)


# --- any advantage, any two hazards: the exact expected gradient by the two stop logits --------------------------------------


class Branch(NamedTuple):
    """One branch by length 0 … cap + prefix, each ``[cap + prefix + 1]``: ``chance``, and ``pull`` = chance times mean score."""

    chance: Tensor
    pull: Tensor


@checked
def branch(stop: Hazard, cap: Cap, prefix: Index = 0) -> Branch:
    """The lengths of one branch, ``prefix`` tokens that decide nothing in front of up to ``cap`` that may stop, and their scores."""
    law, ran_out = length_law(stop, cap)
    chance = torch.cat([torch.zeros(prefix + 1, dtype=torch.float64), law])
    pull = torch.cat(
        [
            torch.zeros(prefix + 1, dtype=torch.float64),
            law * (1 - stop * torch.arange(1, cap + 1, dtype=torch.float64)),
        ]
    )
    chance[-1] += ran_out
    pull[-1] -= ran_out * stop * cap
    return Branch(chance, pull)


@checked
def length_slope(stop: Hazard, cap: Cap) -> float:
    r"""Change of the mean length by the stop logit, below 0: :math:`dE[L]/dz = E[L \cdot \mathrm{score}]`."""
    pull = branch(stop, cap).pull
    return (pull * torch.arange(len(pull))).sum().item()


@checked
def token_mean_gradient(
    advantages: tuple[Tensor, Tensor],
    p: Probability,
    hazards: tuple[Hazard, Hazard],
    cap: Cap,
    *,
    prefix: Index = 0,
    rows: Count | None = None,
    prompts: Count = 1,
) -> tuple[float, float]:
    r"""Expected gradient of a token mean by the right and the wrong stop logit, its denominator shared by n = rows · prompts completions.

    .. math:: F_{right} = n\,p\,E\Big[b\,\frac{\mathrm{score}_1}{L_1 + \dots + L_n}\Big],\qquad
        F_{wrong} = n\,(1-p)\,E\Big[a\,\frac{\mathrm{score}_1}{L_1 + \dots + L_n}\Big]

    Args:
        advantages: of a right and of a wrong completion by K right, ``[G + 1]`` each: ``difficulty.advantages_by_count``.
        p: pass rate.
        hazards: chance to stop at each token, of the right and of the wrong branch.
        cap: stop decisions of one completion at most.
        prefix: tokens in front of the first stop decision.
        rows: completions of one prompt that share a denominator. 1: sequence mean; between: micro-batch; G or None: prompt scope.
        prompts: 1, or the prompts that share one denominator, all alike and whole (``rows`` None): step scope.

    Raises:
        ValueError: rows is not between 1 and G, or several prompts share a denominator with a part of a group.
    """
    right, wrong = branch(hazards[0], cap, prefix), branch(hazards[1], cap, prefix)
    size = len(advantages[0]) - 1
    n = size if rows is None else rows
    if not 1 <= n <= size or (prompts > 1 and n < size):
        raise ValueError(
            f"rows is {n} with {prompts} prompts: expected 1 to {size}, or None where prompts share a step."
        )
    others = _power(p * right.chance + (1 - p) * wrong.chance, (prompts - 1) * size)
    gradient = [0.0, 0.0]
    for s in range(n):
        rest = _convolve(
            others, _convolve(_power(right.chance, s), _power(wrong.chance, n - 1 - s))
        )
        for u in range(size - n + 1):
            chance = _binomial(n - 1, s, p) * _binomial(size - n, u, p) * n * prompts
            gradient[0] += (
                chance * p * advantages[0][s + u + 1].item() * _per_token(right.pull, rest)
            )
            gradient[1] += (
                chance * (1 - p) * advantages[1][s + u].item() * _per_token(wrong.pull, rest)
            )
    return gradient[0], gradient[1]


def balanced_gradient(
    advantages: tuple[Tensor, Tensor],
    p: float,
    hazards: tuple[float, float],
    cap: int,
    *,
    prefix: int = 0,
) -> tuple[float, float]:
    r"""The same under balanced aggregation, where each sign of the advantage has its own denominator.

    .. math:: F_{right} = \sum_K \mathrm{Bin}(K)\, \frac{K^2}{G}\, A_+(K)\, E\Big[\frac{\mathrm{score}_1}{L_1 + \dots + L_K}\Big]

    and alike for the wrong ones. At G = 2 each side is one completion: the sequence mean.

    Raises:
        ValueError: in some group the right and the wrong do not have advantages of opposite sign.
    """
    size = len(advantages[0]) - 1
    if (advantages[0] * advantages[1] > 0).any():
        raise ValueError(
            "right and wrong completions have advantages of one sign: expected a centred advantage."
        )
    gradient = []
    for side, (hazard, advantage) in enumerate(zip(hazards, advantages, strict=True)):
        one, total = branch(hazard, cap, prefix), 0.0
        for k in range(1, size + 1):
            right = k if side == 0 else size - k
            drift = _per_token(one.pull, _power(one.chance, k - 1))
            total += _binomial(size, right, p) * k * k / size * advantage[right].item() * drift
        gradient.append(total)
    return gradient[0], gradient[1]


def length_power_gradient(
    advantages: tuple[Tensor, Tensor],
    p: float,
    hazards: tuple[float, float],
    cap: int,
    *,
    alpha: float,
    length: float,
    prefix: int = 0,
) -> tuple[float, float]:
    r"""The same where a completion's weight is a power of its length relative to the group's mean power (VL-norm).

    .. math:: F_{right} = \frac{Gp}{C} E\Big[b\,\frac{x_1\,\mathrm{score}_1}{x_1 + \dots + x_G}\Big],\qquad x = L^{-\alpha},\qquad
        \frac{1}{X} = \int_0^\infty e^{-tX}\,dt

    The integral over t = exp(y) is a trapezoid rule, exact to rounding. ``length`` is C; the others as ``token_mean_gradient``.
    """
    size = len(advantages[0]) - 1
    lengths = torch.arange(prefix + 1, cap + prefix + 1, dtype=torch.float64)
    x = lengths**-alpha
    y = torch.arange(-40.0, math.log(60 / x.min().item()), 0.05, dtype=torch.float64)
    decay = torch.exp(-y.exp()[:, None] * x)
    sides = [branch(hazard, cap, prefix) for hazard in hazards]
    right, wrong = (decay @ side.chance[prefix + 1 :] for side in sides)
    gradient = []
    for k, (side, advantage) in enumerate(zip(sides, advantages, strict=True)):
        mix = torch.zeros_like(y)
        for s in range(size):
            a = advantage[s + 1 - k].item()
            mix = mix + a * math.comb(size - 1, s) * (p * right) ** s * ((1 - p) * wrong) ** (
                size - 1 - s
            )
        own = decay @ (x * side.pull[prefix + 1 :])
        gradient.append(
            ((1 - p if k else p) * size / length * 0.05 * (own * mix * y.exp()).sum()).item()
        )
    return gradient[0], gradient[1]


@checked
def power_push(ratio: Positive, alpha: Alpha) -> float:
    r"""How hard a token of the ``ratio`` times longer completion is pushed, relative to one of the shorter: :math:`r^{\alpha-1}`."""
    return ratio ** (alpha - 1)


def _binomial(n: int, k: int, p: float) -> float:
    return math.comb(n, k) * p**k * (1 - p) ** (n - k)


def _convolve(a: Tensor, b: Tensor) -> Tensor:
    """Law of a sum from the laws of its two parts, each from 0 on."""
    return torch.nn.functional.conv1d(
        a.view(1, 1, -1), b.flip(0).view(1, 1, -1), padding=len(b) - 1
    ).view(-1)


def _power(law: Tensor, times: int) -> Tensor:
    """Law of the sum of ``times`` independent parts."""
    total = torch.ones(1, dtype=torch.float64)
    for _ in range(times):
        total = _convolve(total, law)
    return total


def _per_token(pull: Tensor, rest: Tensor) -> float:
    """E[score / (own length + the rest's length)]."""
    own, other = torch.arange(1, len(pull)), torch.arange(len(rest))
    return ((pull[1:, None] * rest) / (own[:, None] + other)).sum().item()
