"""One name, many losses: what a preset's name runs in every framework, in numbers. Level: exact, for what the tables say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..checks import checked
from ..objective.recipe import Recipe
from ..theory.difficulty import neutral_rollouts
from .explain import band, penalty, push, stripped
from .tables import framework, preset, versions_of

if TYPE_CHECKING:
    import pandas as pd


def success_and_failure(recipe: Recipe) -> tuple[float, float]:
    """Advantage of the success and of a failure in a group with rewards 1 0 0 0."""
    rollouts = neutral_rollouts([1] * 4, [1.0, 0.0, 0.0, 0.0], [0] * 4, recipe)
    right, wrong = stripped(recipe).plan(rollouts).advantage[:2, 0].tolist()
    return right, wrong


@checked
def effective_table(name: str = "grpo") -> pd.DataFrame:
    """One row for every framework that has a preset of this name, and for every version at which it became another loss.

    Columns: ``advantage of the success`` and ``of a failure`` in a group with rewards 1 0 0 0; ``push, 10 tokens`` and
    ``push, 100 tokens``: size of the weight of a token in two completions of 10 and 100 tokens with advantage +1 and -1, constant
    C = 100 where the framework names none; ``clip``; ``KL``; ``evidence``.

    Raises:
        KeyError: no framework has it.
    """
    import pandas as pd

    rows = []
    for at in versions_of(name):
        recipe = preset(name, at)
        right, wrong = success_and_failure(recipe)
        short, long = (abs(w) for w in push(recipe))
        rows.append(
            {
                "framework": at,
                "advantage of the success": right,
                "advantage of a failure": wrong,
                "push, 10 tokens": short,
                "push, 100 tokens": long,
                "clip": band(recipe),
                "KL": penalty(recipe),
                "evidence": framework(re.split("[@=]", at)[0]).evidence,
            }
        )
    if not rows:
        raise KeyError(f"no framework has a preset named '{name}'.")
    return pd.DataFrame(rows)
