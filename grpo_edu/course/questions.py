"""Questions with an answer to give: predict, run, explain; or read a config.

Numbers and the order of options change with the student.

A question is a function of a random source; it makes the text, the numbers it gives, and its parts.
Every wrong option and every foreseen wrong number carries the misconception behind it, which is
what a student is told.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple

from torch import Tensor

TOLERANCE = 5e-3  # relative: three digits are enough


class Number(NamedTuple):
    """A number to give. ``mistakes``: how one gets a wrong one -> that number."""

    ask: str
    right: float
    mistakes: Mapping[str, float]

    def key(self) -> float:
        return float(f"{self.right:.6g}")

    def wrong(self, answer: Any) -> str | None:
        answer = answer.item() if isinstance(answer, Tensor) and answer.numel() == 1 else answer
        if isinstance(answer, bool) or not isinstance(answer, Real):
            return f"expected a number, got {answer!r}"
        answer = float(answer)
        if near(answer, self.right):
            return None
        for mistake, value in self.mistakes.items():
            if near(answer, value):
                return f"likely mistake: {mistake}"
        return "the number does not follow from what is given: work it out again"


class MultipleChoice(NamedTuple):
    """One of several statements.

    ``options``: statement -> what is wrong with it, None for the right one; in shown order.
    """

    ask: str
    options: Mapping[str, str | None]

    def key(self) -> str:
        return "abcdef"[list(self.options.values()).index(None)]

    def wrong(self, answer: Any) -> str | None:
        letters = list("abcdef"[: len(self.options)])
        if not isinstance(answer, str) or answer.strip().lower() not in letters:
            return f"expected one of {', '.join(letters)}, got {answer!r}"
        return list(self.options.values())[letters.index(answer.strip().lower())]


class Name(NamedTuple):
    """The name of a choice on one axis of a recipe. ``mistakes``: name -> what is wrong with it."""

    ask: str
    names: Sequence[str]
    right: str
    mistakes: Mapping[str, str]

    def key(self) -> str:
        return self.right

    def wrong(self, answer: Any) -> str | None:
        if answer not in self.names:
            return f"expected one of {', '.join(self.names)}, got {answer!r}"
        return (
            None
            if answer == self.right
            else self.mistakes.get(answer, f"'{answer}' is not what this file runs")
        )


Part = Number | MultipleChoice | Name


class Posed(NamedTuple):
    """A question with its numbers.

    Shown as Markdown in Jupyter; ``given["name"]`` are the numbers for the run.
    """

    text: str
    given: Mapping[str, Any]
    parts: Sequence[Part]

    def _repr_markdown_(self) -> str:
        lines = [self.text, ""]
        for number, part in enumerate(self.parts, 1):
            lines.append(f"**{number}.** {part.ask}\n")
            if isinstance(part, MultipleChoice):
                lines += [
                    f"- **{letter}** {option}"
                    for letter, option in zip("abcdef", part.options, strict=False)
                ] + [""]
            if isinstance(part, Name):
                lines.append("one of " + ", ".join(f"`{name}`" for name in part.names) + "\n")
        return "\n".join(lines)


@dataclass(frozen=True)
class Question:
    """What a student is asked; ``kind`` is ``predict`` or ``read``."""

    name: str
    title: str
    goal: str
    minutes: int
    difficulty: int
    kind: str
    ask: Callable[[random.Random], Posed]
    misconception: str
    source: str
    why: str


def near(answer: float, right: float) -> bool:
    """Within half a percent; 0 must be 0."""
    return math.isfinite(answer) and abs(answer - right) <= TOLERANCE * abs(right) + 1e-9


def options(source: random.Random, right: str, wrong: Mapping[str, str]) -> dict[str, str | None]:
    """The statements in an order of the student's own."""
    pairs: list[tuple[str, str | None]] = [(right, None), *wrong.items()]
    source.shuffle(pairs)
    return dict(pairs)
