"""``check.<name>(answer)``: one checker per exercise.

Prints a line where the answer is right, else raises ``NotYet`` in words.

Functions: ``check.sequence_mean(my_function)``. Questions:
``check.longer_answers([0.25, "b"], sheet)``, where the sheet says which student's numbers. The
project: ``check.length_project(table, ("grpo", "dr_grpo"), "longer")``.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from . import project
from .catalog import EXERCISES
from .engine import Exercise, examine
from .misconceptions import QUESTIONS
from .questions import Question
from .student import Sheet, mark

NAMES = (*EXERCISES, *QUESTIONS, "length_project")


def __dir__() -> list[str]:
    return sorted(NAMES)


def __getattr__(name: str) -> Callable[..., None]:
    if name.startswith("_"):
        raise AttributeError(name)
    if name in EXERCISES:
        return _of_function(EXERCISES[name])
    if name in QUESTIONS:
        return _of_question(QUESTIONS[name])
    near = difflib.get_close_matches(name, NAMES, n=1)
    hint = f" Did you mean check.{near[0]}?" if near else ""
    raise AttributeError(f"no exercise named '{name}'.{hint} All of them: {', '.join(NAMES)}.")


def length_project(*answer: Any, **named: Any) -> None:
    """See ``project.length_project``."""
    print(project.length_project(*answer, **named))


def _of_function(exercise: Exercise) -> Callable[..., None]:
    def checker(function: Callable[..., Any]) -> None:
        print(examine(exercise, function))

    checker.__name__ = exercise.name
    checker.__doc__ = f"{exercise.goal} Expects a function; {exercise.returns}."
    return checker


def _of_question(question: Question) -> Callable[..., None]:
    def checker(answer: Any, sheet: Sheet) -> None:
        print(mark(question.name, answer, sheet))

    checker.__name__ = question.name
    checker.__doc__ = f"{question.goal} Expects one answer per part, in a list."
    return checker
