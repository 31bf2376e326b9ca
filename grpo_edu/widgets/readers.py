"""A formula with its numbers, for any token of any rollouts."""

from __future__ import annotations

from typing import Any

from ..checks import checked
from ..rollouts import Rollouts
from ..stepper import step_through
from .panel import Panel, choice, slider
from .texts import loaded, offered, readable


@checked
def formula_stepper(rollouts: Rollouts | None = None, recipe: str = "grpo") -> Panel:
    """One token's weight, factor by factor, the numbers put into the formula; recipe, completion
    and token are turned.

    Args:
        rollouts: None: the shipped completions.
        recipe: the one to start with.
    """
    step, last, first = loaded(rollouts)
    recipes = readable(step)
    offered([recipe], recipes)

    def picture(name: str, completion: int, token: int) -> Any:
        return step_through(recipes[name], step, int(completion), int(token))

    controls = {
        "name": choice("recipe", list(recipes), recipe),
        "completion": slider("completion", 0, len(step) - 1, 1, first),
        "token": slider("token", 0, last[first], 1, 0),
    }
    return Panel(picture, controls, lambda values: {"token": last[int(values["completion"])]})
