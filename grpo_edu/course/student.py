"""A student's copy of the questions, and how its answers are marked."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from .engine import NotYet
from .misconceptions import QUESTIONS
from .questions import Posed


@dataclass(frozen=True)
class Sheet:
    """One student's copy of the numbers: the same student and course give the same numbers."""

    student: str
    course: int = 0

    def ask(self, name: str) -> Posed:
        """The question with this student's numbers.

        Raises:
            KeyError: there is no such question; lists all.
        """
        if name not in QUESTIONS:
            raise KeyError(f"no question named '{name}'. All of them: {', '.join(QUESTIONS)}.")
        source = random.Random(f"{self.course}:{self.student.strip().lower()}:{name}")
        return QUESTIONS[name].ask(source)

    def key(self, name: str) -> list[Any]:
        """The answers, for teachers."""
        return [part.key() for part in self.ask(name).parts]


def mark(name: str, answer: Any, sheet: Sheet) -> str:
    """The pass line.

    Raises:
        NotYet: which parts are wrong and why, in words.
    """
    parts = sheet.ask(name).parts
    if (
        answer is None
        or answer is Ellipsis
        or (isinstance(answer, (list, tuple)) and any(a in (..., None) for a in answer))
    ):
        raise NotYet(
            f"✗ {name}: not written yet. Put one answer per part: "
            f"[{', '.join('…' for _ in parts)}]."
        )
    if not isinstance(answer, (list, tuple)) or len(answer) != len(parts):
        raise NotYet(
            f"✗ {name}: expected a list of {len(parts)} answers, one per part, got {answer!r}."
        )
    problems = [
        (n, part.wrong(a)) for n, (part, a) in enumerate(zip(parts, answer, strict=True), 1)
    ]
    wrong_parts = [f"Part {n}: {problem}." for n, problem in problems if problem is not None]
    if wrong_parts:
        raise NotYet("\n".join([f"✗ {name}: not yet.", *wrong_parts]))
    return f"✓ {name}: all {len(parts)} parts are right."
