"""One name, many losses: what a preset's name runs in every framework, in numbers.

Level: exact, for what the tables say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objective.probes import neutral_rollouts
from ..objective.recipe import Recipe
from .tables import framework, preset, split_version, versions_of
from .verdict import band, core_of, kl_line, push

if TYPE_CHECKING:
    import pandas as pd


def success_and_failure(recipe: Recipe) -> tuple[float, float]:
    """Advantage of the success and of a failure in a group with rewards 1 0 0 0."""
    rollouts = neutral_rollouts([1] * 4, [1.0, 0.0, 0.0, 0.0], [0] * 4, recipe)
    success, failure = core_of(recipe).plan(rollouts).advantage[:2, 0].tolist()
    return success, failure


def effective_table(name: str = "grpo") -> pd.DataFrame:
    """One row for every framework with a preset of this name, and every version that changed it.

    Columns: ``advantage of the success`` and ``of a failure`` in a group with rewards 1 0 0 0;
    ``push, 10 tokens`` and ``push, 100 tokens``: size of the push of a token in two completions of
    10 and 100 tokens with advantage +1 and -1, constant C = 100 where the framework names none;
    ``clip``; ``KL``; ``evidence``.

    Raises:
        KeyError: no framework has it.
    """
    import pandas as pd

    rows = []
    for at in versions_of(name):
        recipe = preset(name, at)
        success, failure = success_and_failure(recipe)
        short, long = push(recipe)
        rows.append(
            {
                "framework": at,
                "advantage of the success": success,
                "advantage of a failure": failure,
                "push, 10 tokens": abs(short),
                "push, 100 tokens": abs(long),
                "clip": band(recipe),
                "KL": kl_line(recipe, set()),
                "evidence": framework(split_version(at)[0]).evidence,
            }
        )
    if not rows:
        raise KeyError(f"no framework has a preset named '{name}'.")
    return pd.DataFrame(rows)
