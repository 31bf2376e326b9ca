"""Answers that people write: for every exercise at least five wrong ones, with the mistake each must be told, and three right ones.

They are written as a student would, without the library, and not with the code of the signatures that recognise them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Answer(NamedTuple):
    exercise: str
    function: Callable[..., Any]
    mistake: str | None  # part of the message; None: a right answer


ANSWERS: list[Answer] = []


def right(exercise: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A right answer, written in another way."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        ANSWERS.append(Answer(exercise, function, None))
        return function

    return add


def wrong(exercise: str, mistake: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrong answer and a part of the message it must get."""

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        ANSWERS.append(Answer(exercise, function, mistake))
        return function

    return add
