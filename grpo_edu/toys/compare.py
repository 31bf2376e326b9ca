"""Fair comparison: intervals over seeds, and learning rates under which two losses push equally hard at the start.

A factor common to all tokens is only a learning rate under SGD, so recipes are compared at one *push*, not at one learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from ..checks import NonNegative, Positive, check_of, checked, instance, one_of
from ..objective.catalog import AnyRecipe
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..weights import token_weights
from .training import Training

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

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


def t_quantile(df: int) -> float:
    """97.5 % quantile of Student's t: the table to 30 degrees of freedom, then the normal with two corrections."""
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
    mean, half = x.mean().item(), t_quantile(len(x) - 1) * x.std().item() / len(x) ** 0.5
    return Interval(mean, mean - half, mean + half, len(x))


def intervals(
    table: pd.DataFrame, value: str, by: Sequence[str] = ("recipe", "step")
) -> pd.DataFrame:
    """Mean and 95 % interval of a column over seeds: ``by``, ``mean, low, high, seeds``. One seed has no interval: NaN; NaN are left out."""
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


@checked
def push_sizes(
    recipes: AnyRecipe | Sequence[AnyRecipe], batches: Sequence[Rollouts]
) -> dict[str, float]:
    """Mean total push, the sum of absolute gradient weights over all tokens, of each recipe over the batches (``stopping.rollouts``, say).

    A KL term without ``ref_logp`` is left out, as at step 0, where it has no gradient.
    """
    chosen = [recipes] if isinstance(recipes, Recipe) else recipes
    without_kl = {one.name: one.but(kl=None) for one in chosen}
    return {
        name: sum(token_weights(one, batch).abs().sum().item() for batch in batches) / len(batches)
        for name, one in without_kl.items()
    }


def gradient_sizes(
    train: Callable[..., pd.DataFrame],
    recipes: Recipe | Sequence[Recipe],
    setting: Any,
    training: Training,
    *,
    seeds: int = 64,
) -> dict[str, float]:
    """Mean gradient norm at step 0 per recipe, of any toy: ``gradient_sizes(stopping.train, recipes, Stopping(), Training())``."""
    first = train(recipes, setting, replace(training, steps=1, updates=1), seeds=seeds)
    norms: Any = first.loc[first["step"] == 0].groupby("recipe", sort=False)["gradient_norm"].mean()
    return {str(name): float(norm) for name, norm in norms.items()}


@checked
def matched_learning_rate(
    sizes: Mapping[str, NonNegative], learning_rate: Positive, reference: str | None = None
) -> dict[str, float]:
    """Learning rates under which every recipe's first step has the size that the reference has at ``learning_rate``.

    ``{"grpo": 2.0, "dr_grpo": 0.5}`` at 1.0 -> ``{"grpo": 1.0, "dr_grpo": 4.0}``

    Args:
        sizes: per recipe name, ``gradient_sizes`` or ``push_sizes``.
        learning_rate: of the reference.
        reference: its name; None: the first.

    Raises:
        ValueError: no such reference, or a size that is not positive.
    """
    if not sizes or any(not size > 0 for size in sizes.values()):
        raise ValueError(
            f"sizes are {dict(sizes)}: expected a positive number per recipe. A batch of dead groups pushes nothing."
        )
    base = next(iter(sizes)) if reference is None else reference
    one_of("reference", base, list(sizes))
    return {name: learning_rate * sizes[base] / size for name, size in sizes.items()}


def last_step(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """One row per recipe: mean and 95 % interval of each column at the last step, as text ``mean [low, high]``."""
    import pandas as pd

    instance("table", table, pd.DataFrame)
    check_of(Sequence[str])("columns", columns)
    end = table.loc[table["step"] == table["step"].max()]
    shown = {
        column: intervals(end, column, by=["recipe"]).set_index("recipe") for column in columns
    }
    return pd.DataFrame({column: rows.apply(_as_text, axis=1) for column, rows in shown.items()})


def _as_text(row: Any) -> str:
    mean = f"{row['mean']:.3f}"
    return mean if row["seeds"] < 2 else f"{mean} [{row['low']:.3f}, {row['high']:.3f}]"
