"""Markdown tables for teachers, made from the exercises themselves."""

from __future__ import annotations

from collections.abc import Sequence

from .catalog import EXERCISES
from .misconceptions import QUESTIONS
from .sheets import KINDS, description

GENERAL = (
    "zero everywhere",
    "the sign is flipped",
    "off by one constant factor",
    "hard-coded for the visible example",
    "the same everywhere, or inverted (True/False)",
    "the graph is cut",
    "a detach in the wrong place",
)


def exercises() -> str:
    """Every exercise: what is done, minutes, points."""
    names = [*EXERCISES, *QUESTIONS, "length_project"]
    return _table(
        ("exercise", "title", "what is done", "minutes", "points"),
        [
            (f"`{name}`", about.title, KINDS[about.kind], str(about.minutes), str(about.difficulty))
            for name, about in zip(names, map(description, names), strict=True)
        ],
    )


def mistakes() -> str:
    """Exercise × mistake: what each checker recognises by name, and what every checker does."""
    rows = [
        (f"`{name}`", mistake)
        for name, exercise in EXERCISES.items()
        for mistake in exercise.mistakes
    ]
    return _table(
        ("exercise", "mistake that is named"), [*rows, *(("every function", m) for m in GENERAL)]
    )


def misconceptions() -> str:
    """The misconception of each question and where it was met."""
    rows = [
        (question.misconception, f"`{name}`", question.source)
        for name, question in QUESTIONS.items()
    ]
    return _table(("misconception", "refuted in", "met in"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )
