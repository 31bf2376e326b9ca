r"""Length: what each aggregation does to the decision to stop.

A completion's tokens stop with probability s; its score by the stop logit is :math:`\sum_t
(1\{\text{stop at } t\} - s) = 1\{stopped\} - sL`, with mean 0. A normaliser that knows the
completion's own length L tilts it:

.. math:: E\Big[\frac{1\{stopped\} - sL}{L}\Big] = E\Big[\frac{1\{stopped\}}{L}\Big] - s > 0

so under 1/|o| right answers (A > 0) are pushed to stop earlier and wrong ones (A < 0) later, with
no reward for either. All results here are exact; lengths depend on the branch alone.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..checks import Alpha, Cap, Count, GroupSize, Hazard, Logit, Positive, at_most, checked


@checked
def length_law(stop: Hazard, cap: Cap) -> tuple[Tensor, Tensor]:
    """Chance of length 1 … cap *with a stop*, ``[cap]``, and the chance of running into the cap, a
    scalar.
    """
    n = torch.arange(cap, dtype=torch.float64)
    return stop * (1 - stop) ** n, torch.tensor((1 - stop) ** cap, dtype=torch.float64)


@checked
def sequence_mean_drift(stop: Hazard, cap: Cap | None = None) -> float:
    r"""E[score / L] of the stop logit under 1/|o|, per unit of advantage.

    .. math::
        s\Big(\frac{-\ln s}{1-s} - 1\Big) \text{ without a cap},\qquad
        E\Big[\frac{1\{stopped\}}{L}\Big] - s \text{ with one}

    At s = .1: .1558 without, .1354 with a cap of 10.
    """
    if cap is None:
        return _uncapped_drift(stop)
    law, _ = length_law(stop, cap)
    return (law / torch.arange(1, cap + 1)).sum().item() - stop


@checked
def constant_drift(stop: Hazard, cap: Cap) -> float:
    """E[score] under a constant: 0, with a cap and without, computed from the law of the
    lengths.
    """
    law, ran_out = length_law(stop, cap)
    lengths = torch.arange(1, cap + 1, dtype=torch.float64)
    return ((law * (1 - stop * lengths)).sum() - ran_out * stop * cap).item()


@checked
def token_mean_drift(stop: Hazard, rows: Count, cap: Cap) -> float:
    r"""Drift of a token mean whose denominator is shared by ``rows`` completions of one hazard,
    relative to total weight 1.

    .. math:: n\, E\Big[\frac{1\{stopped\} - s L_1}{L_1 + \dots + L_n}\Big]

    rows = 1 is the sequence mean; rows = G the prompt scope; rows = the micro-batch for that scope;
    rows = P·G the step. Falls like 1/n.
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
    r"""Expected update under 1/|o| without std, ``[3]``, by (mode, right stop logit, wrong stop
    logit); no cap.

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
    r"""∂F_wrong/∂mode - ∂F_mode/∂wrong of that field: not 0, so no objective has it as its
    gradient.

    .. math::
        -\frac{G-1}{G}\, p(1-p)^2\, \frac{\partial E[1/L\,|\,wrong]}{\partial\,\mathrm{stop\ logit}}
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
    r"""Share of the longer of two completions, ``ratio`` times as long, when a token weighs
    :math:`L^{\alpha-1}`.

    .. math:: \frac{r^\alpha}{1 + r^\alpha}

    alpha 0 (1/|o|): 1/2, whatever the lengths. alpha 1 (constant, token mean): r/(1+r). No alpha
    gives both an even share and an even push per token, whose ratio is :math:`r^{\alpha-1}`.
    """
    return ratio**alpha / (1 + ratio**alpha)


@checked
def power_drift(stop: Hazard, alpha: Alpha, cap: Cap) -> float:
    r"""Stop-logit drift when a token weighs :math:`L^{\alpha-1}`, relative to the mean weight of a
    completion.

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
