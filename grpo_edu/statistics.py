"""Mean and 95 % interval over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

# Student's t, 97.5 % quantile at 1 to 30 degrees of freedom (the standard printed table).
T_975 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


class Interval(NamedTuple):
    """Mean and 95 % interval over ``seeds`` runs."""

    mean: float
    low: float
    high: float
    seeds: int


def t_quantile(df: int) -> float:
    """97.5 % quantile of Student's t: the table to 30 degrees of freedom, then the normal with two
    corrections.
    """
    if df < 1:
        raise ValueError(f"degrees of freedom are {df}: expected at least 1, that is 2 seeds.")
    z = NormalDist().inv_cdf(0.975)
    if df <= len(T_975):
        return T_975[df - 1]
    return z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)


def interval(values: Sequence[float] | Tensor) -> Interval:
    r"""Mean and 95 % t-interval of one number per seed: :math:`\bar x \pm t_{n-1}\, s / \sqrt n`.

    Raises:
        ValueError: fewer than two numbers, or one is not finite.
    """
    x = torch.as_tensor(values, dtype=torch.float64)
    if x.ndim != 1 or len(x) < 2 or not torch.isfinite(x).all():
        raise ValueError(f"got {x.tolist()}: expected at least two finite numbers, one per seed.")
    mean = x.mean().item()
    half = t_quantile(len(x) - 1) * x.std().item() / len(x) ** 0.5
    return Interval(mean, mean - half, mean + half, len(x))


def intervals(
    table: pd.DataFrame, value: str, by: Sequence[str] = ("recipe", "step")
) -> pd.DataFrame:
    """Mean and 95 % interval of a column over seeds.

    Args:
        table: one row per run (and step).
        value: the column.
        by: columns that name what is compared.

    Returns:
        ``by``, ``mean, low, high, seeds``. One seed has no interval (NaN); NaN in the column are
        left out.

    Raises:
        ValueError: there is no such column.
    """
    if value not in table:
        raise ValueError(
            f"value is '{value}': expected a column of the table: {', '.join(table.columns)}."
        )
    grouped = table.groupby(list(by), sort=False)[value]
    out = grouped.agg(mean="mean", std="std", seeds="count").reset_index()
    quantile = [t_quantile(n - 1) if n > 1 else float("nan") for n in out["seeds"]]
    half = out.pop("std") * quantile / out["seeds"] ** 0.5
    out.insert(len(by) + 1, "low", out["mean"] - half)
    out.insert(len(by) + 2, "high", out["mean"] + half)
    return out
