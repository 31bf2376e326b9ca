"""``check.<name>(answer)``: one checker per exercise. Prints a line where the answer is right, else raises ``NotYet`` in words.

>>> from grpo_edu.course import check
>>> check.sequence_mean(my_function)
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from .catalog import EXERCISES
from .engine import examine


def __dir__() -> list[str]:
    return sorted(EXERCISES)


def __getattr__(name: str) -> Callable[[Callable[..., Any]], None]:
    if name.startswith("_"):
        raise AttributeError(name)
    if name not in EXERCISES:
        near = difflib.get_close_matches(name, EXERCISES, n=1)
        hint = f" Did you mean check.{near[0]}?" if near else ""
        raise AttributeError(f"no exercise named '{name}'.{hint} All of them: {', '.join(EXERCISES)}.")
    exercise = EXERCISES[name]

    def checker(function: Callable[..., Any]) -> None:
        print(examine(exercise, function))

    checker.__name__, checker.__doc__ = name, f"{exercise.goal} Expects a function; {exercise.returns}."
    return checker
