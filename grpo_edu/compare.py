"""Which lines differ: two recipes side by side, axis by axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import torch

from .checks import checked, one_of
from .objective import axes
from .objective.catalog import AnyRecipe
from .objective.recipe import AXES, Recipe, as_tuple
from .rollouts import Rollouts

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """Two recipes, one line per axis. Prints as text, shows as a table in a notebook.

    Args:
        left, right: the recipes.
    """

    left: Recipe
    right: Recipe

    def differing(self) -> list[str]:
        """The axes on which the two make different choices."""
        one, two = self.left.keys(), self.right.keys()
        return [axis for axis in AXES if one[axis] != two[axis]]

    def rows(self) -> list[tuple[str, str, str, bool]]:
        """(axis, left, right, differs) for each axis that either of them uses, choices with their
        formulas.
        """
        differ = self.differing()
        left = _choices(self.left)
        right = _choices(self.right)
        for axis in differ:
            if left[axis] == right[axis]:  # only a setting that the formula does not show
                left[axis] = self.left.describe()[axis]
                right[axis] = self.right.describe()[axis]
        return [
            (a, left[a], right[a], a in differ) for a in AXES if not left[a] == right[a] == "none"
        ]

    def __str__(self) -> str:
        rows = self.rows()
        width = max(len(axis) for axis, *_ in rows)
        lines = [
            f"{self.left.name}  against  {self.right.name}: {len(self.differing())} of {len(rows)} "
            "axes differ"
        ]
        for axis, one, two, differs in rows:
            if differs:
                lines += [
                    f"≠ {axis:<{width}}  {self.left.name}: {one}",
                    f"  {'':<{width}}  {self.right.name}: {two}",
                ]
            else:
                lines.append(f"= {axis:<{width}}  {one}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        mark = {True: "<b>≠ differs</b>", False: "= same"}
        cells = "".join(
            f"<tr><th>{axis}</th><td>{_bold(one, differs)}</td><td>{_bold(two, differs)}</td>"
            f"<td>{mark[differs]}</td></tr>"
            for axis, one, two, differs in self.rows()
        )
        head = (
            f"<tr><th></th><th>{escape(self.left.name)}</th><th>{escape(self.right.name)}</th><th>"
            "</th></tr>"
        )
        return f"<table>{head}{cells}</table>"


@checked
def compare(left: AnyRecipe, right: AnyRecipe, only: str | None = None) -> Comparison:
    """``compare(recipe("grpo"), recipe("dr_grpo"))``: which axes differ, with both formulas.

    Args:
        left, right: the recipes.
        only: an axis; the right side is then the left recipe with this one choice taken from
            ``right``, the single change.

    Raises:
        ValueError: no such axis.
    """
    if only is None:
        return Comparison(left, right)
    one_of("only", only, AXES)
    return Comparison(
        left, left.but(f"{left.name} with {right.name}'s {only}", **{only: getattr(right, only)})
    )


@checked
def axis_table(recipes: Iterable[AnyRecipe]) -> pd.DataFrame:
    """All recipes by axis: one row per recipe, one column per axis that any of them uses."""
    import pandas as pd

    table = pd.DataFrame({entry.name: entry.describe() for entry in recipes}).T
    return table.loc[:, (table != table.iloc[0]).any() | (table.iloc[0] != "none")]


@checked
def advantage_table(recipes: Iterable[AnyRecipe], rollouts: Rollouts) -> pd.DataFrame:
    """One row per completion (``group``, ``reward``, ``length``), one column per recipe: its
    advantage.

    Raises:
        ValueError: a recipe's advantage differs between the tokens of one completion; the
            ledger shows it token by token.
    """
    import pandas as pd

    first = rollouts.mask.int().argmax(dim=1, keepdim=True)
    columns = {
        "group": rollouts.group.tolist(),
        "reward": rollouts.reward.tolist(),
        "length": rollouts.lengths.tolist(),
    }
    for entry in recipes:
        plan = entry.plan(rollouts)
        one = plan.advantage.gather(1, first)
        if not torch.allclose(
            torch.where(plan.mask, plan.advantage, one), one.expand_as(plan.advantage)
        ):
            raise ValueError(
                f"{entry.name} has one advantage per token: expected one per completion. Use "
                "grpo_edu.ledger(recipe, rollouts)."
            )
        columns[entry.name] = (one[:, 0] + 0.0).tolist()
    return pd.DataFrame(columns)


def _choices(recipe: Recipe) -> dict[str, str]:
    """For each axis the formula of the choice, and what people call it."""
    formulas = recipe.formula()
    labels = {a: " and ".join(map(axes.label, as_tuple(getattr(recipe, a)))) for a in AXES}
    return {
        a: formulas[a] if labels[a] in ("", formulas[a]) else f"{formulas[a]}   ({labels[a]})"
        for a in AXES
    }


def _bold(text: str, differs: bool) -> str:
    return f"<b>{escape(text)}</b>" if differs else escape(text)
