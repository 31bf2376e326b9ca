"""Fair comparison: learning rates under which two losses push equally hard at the start.

A factor common to all tokens is only a learning rate under SGD, so recipes are compared at one
*push*, not at one learning rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..checks import NonNegative, Positive, check_of, checked, instance, one_of
from ..objective.catalog import AnyRecipe
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..statistics import intervals
from ..weights import token_weights
from .training import Training

if TYPE_CHECKING:
    import pandas as pd


@checked
def push_sizes(
    recipes: AnyRecipe | Sequence[AnyRecipe], batches: Sequence[Rollouts]
) -> dict[str, float]:
    r"""Mean total push of each recipe over the batches (``stopping.rollouts``, say):
    :math:`\sum_{i,t} |\mathrm{push}_{it}|`.

    A KL term is left out: at step 0 it has no gradient.
    """
    recipes = [recipes] if isinstance(recipes, Recipe) else recipes

    def total(recipe: Recipe, batch: Rollouts) -> float:
        return token_weights(recipe.but(kl=None), batch).abs().sum().item()

    return {
        recipe.name: sum(total(recipe, batch) for batch in batches) / len(batches)
        for recipe in recipes
    }


def gradient_sizes(
    train: Callable[..., pd.DataFrame],
    recipes: Recipe | Sequence[Recipe],
    setting: Any,
    training: Training,
    *,
    seeds: int = 64,
) -> dict[str, float]:
    """Mean gradient norm at step 0 per recipe, of any toy:
    ``gradient_sizes(stopping.train, recipes, Stopping(), Training())``.
    """
    first = train(recipes, setting, replace(training, steps=1, updates=1), seeds=seeds)
    norms: Any = first.loc[first["step"] == 0].groupby("recipe", sort=False)["gradient_norm"].mean()
    return {str(name): float(norm) for name, norm in norms.items()}


@checked
def matched_learning_rate(
    sizes: Mapping[str, NonNegative], learning_rate: Positive, reference: str | None = None
) -> dict[str, float]:
    """Learning rates under which every recipe's first step has the size that the reference has at
    ``learning_rate``.

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
            f"sizes are {dict(sizes)}: expected a positive number per recipe. A batch of dead "
            f"groups pushes nothing."
        )
    base = next(iter(sizes)) if reference is None else reference
    one_of("reference", base, list(sizes))
    return {name: learning_rate * sizes[base] / size for name, size in sizes.items()}


def last_step(table: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """One row per recipe: mean and 95 % interval of each column at the last step, as text
    ``mean [low, high]``.
    """
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
