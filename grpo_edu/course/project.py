"""The project: a claim about lengths, held against the runs that should carry it.

Any outcome passes if the runs support it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..statistics import Interval, interval
from .engine import NotYet

if TYPE_CHECKING:
    import pandas as pd

CLAIMS = ("longer", "shorter", "no difference")
SEEDS = 5


def difference(table: pd.DataFrame, column: str, pair: Sequence[str]) -> Interval:
    """Mean and 95 % interval over seeds of ``column`` at the last step, first recipe minus second,
    on the same seeds.
    """
    last = table[table["step"] == table["step"].max()].pivot(
        index="seed", columns="recipe", values=column
    )
    return interval((last[pair[0]] - last[pair[1]]).tolist())


def supported(claim: str, difference: Interval) -> bool:
    """The interval lies on the claimed side of 0, or holds 0 where no difference is claimed."""
    if claim == "no difference":
        return difference.low <= 0 <= difference.high
    return difference.low > 0 if claim == "longer" else difference.high < 0


def length_project(
    table: pd.DataFrame | None, pair: Sequence[str], claim: str | None, column: str = "length_wrong"
) -> str:
    """The pass line.

    Args:
        table: what a toy's ``train`` returns.
        pair: two recipe names, the claim is about the first against the second.
        claim: "longer", "shorter" or "no difference".
        column: what is compared, at the last step.

    Raises:
        NotYet: too few seeds, unmatched seeds, or a claim that the interval does not support.
    """
    if table is None or claim is None:
        raise NotYet("✗ length_project: not written yet. It needs a table of runs and a claim.")
    if claim not in CLAIMS:
        raise NotYet(f"✗ length_project: claim is {claim!r}; expected one of {', '.join(CLAIMS)}.")
    missing = {"recipe", "seed", "step", column} - set(getattr(table, "columns", ()))
    if missing:
        raise NotYet(
            f"✗ length_project: the table has no column {', '.join(sorted(missing))}. Pass what "
            f"train(...) returned."
        )
    runs = {name: set(table.loc[table["recipe"] == name, "seed"]) for name in pair}
    if len(pair) != 2 or pair[0] == pair[1] or not all(runs.values()):
        raise NotYet(
            f"✗ length_project: expected two different recipes, both of them in the table, which "
            f"has {', '.join(dict.fromkeys(table['recipe']))}."
        )
    if runs[pair[0]] != runs[pair[1]] or len(runs[pair[0]]) < SEEDS:
        raise NotYet(
            f"✗ length_project: a claim about training needs at least {SEEDS} seeds, the same for "
            f"both recipes."
        )
    if not supported(claim, difference(table, column, pair)):
        raise NotYet(
            f"✗ length_project: the 95 % interval over seeds does not support '{claim}'. Look at "
            f"it, and claim what it shows: "
            "that no difference can be told is a result too."
        )
    return (
        f"✓ length_project: the runs support '{claim}' ({len(runs[pair[0]])} seeds). Level: "
        f"simulated."
    )
