"""Sums over prompt groups, free of branches on the data so that many runs can be batched with
``torch.vmap``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def index_of(group: Tensor) -> tuple[Tensor, int]:
    """Group numbers as 0 … P-1, ``[N]``, and P. ``[7, 7, 3]`` -> ``([1, 1, 0], 2)``."""
    values, index = torch.unique(group, return_inverse=True)
    return index, len(values)


def total(x: Tensor, group: Tensor) -> Tensor:
    """``[N]`` sum of ``x`` over the group of each row. ``x = [1, 2, 5], group = [0, 0, 1]`` ->
    ``[3, 3, 5]``.
    """
    index, count = index_of(group)
    return torch.zeros(count, dtype=x.dtype, device=x.device).index_add(0, index, x)[index]


def mean(x: Tensor, group: Tensor, keep: Tensor) -> Tensor:
    """``[N]`` mean of ``x`` over the kept rows of each row's group; 0 where a group keeps none."""
    return total(torch.where(keep, x, 0.0), group) / total(keep.to(x.dtype), group).clamp(min=1)


def std(x: Tensor, group: Tensor, keep: Tensor, ddof: int) -> Tensor:
    """``[N]`` standard deviation over the kept rows of each row's group; exactly 0 where they are
    all equal.

    Rounding must not turn seven times 0.7 into a std of 6e-8, so equality is judged by max - min.
    Deviations are divided by the largest one before they are squared, so that a tiny spread
    (1e-170) does not vanish.
    """
    deviation = torch.where(keep, x - mean(x, group, keep), 0.0)
    index, count = index_of(group)
    largest = torch.zeros(count, dtype=x.dtype, device=x.device)
    largest = largest.scatter_reduce(0, index, deviation.abs(), "amax")[index]
    unit = torch.where(largest > 0, largest, 1.0)
    squares = total((deviation / unit) ** 2, group)
    value = unit * (squares / (total(keep.to(x.dtype), group) - ddof).clamp(min=1)).sqrt()
    return torch.where(is_dead(x, group, keep), torch.zeros_like(value), value)


def is_dead(x: Tensor, group: Tensor, keep: Tensor) -> Tensor:
    """``[N]`` bool, True where the kept rows of the group are all equal: max - min is rounding at
    most.
    """
    index, count = index_of(group)
    lowest = torch.full((count,), torch.inf, dtype=x.dtype, device=x.device)
    low = lowest.scatter_reduce(0, index, x.masked_fill(~keep, torch.inf), "amin")[index]
    high = (-lowest).scatter_reduce(0, index, x.masked_fill(~keep, -torch.inf), "amax")[index]
    return ~((high - low) > 8 * torch.finfo(x.dtype).eps * torch.maximum(high.abs(), low.abs()))


def size(group: Tensor, keep: Tensor) -> Tensor:
    """``[N]`` number of kept rows in each row's group."""
    return total(keep.to(torch.float64), group)


def covariance(logp: Tensor, advantage: Tensor, mask: Tensor) -> Tensor:
    r"""``[N, T]`` what a token adds to the covariance of advantage and log-probability.

    .. math:: (A_{it} - \bar A)(\log\pi_{it} - \overline{\log\pi})

    The means are over the trained tokens given; 0 under the mask. A large value: a push here makes
    the policy more certain.
    """
    count = mask.sum().clamp(min=1)
    lp = logp.detach()
    deviation = [torch.where(mask, x - (x * mask).sum() / count, 0.0) for x in (advantage, lp)]
    return deviation[0] * deviation[1]


def largest(value: Tensor, among: Tensor, count: Tensor) -> Tensor:
    """``[N, T]`` bool: the ``count`` largest entries of ``value`` among those where ``among`` is
    True; of those that are equal to 12 decimals the earlier.
    """
    flat = torch.where(among, value.round(decimals=12), -torch.inf).reshape(-1)
    rank = torch.argsort(torch.argsort(flat, descending=True, stable=True))
    return (rank.reshape(value.shape) < count) & among
