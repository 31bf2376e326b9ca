"""What a language model is trained on: questions, a reward that a reader can check, and where a completion ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .generate import Environment


@dataclass(frozen=True)
class Question:
    """One prompt, the answer that the reward gets, and the level of difficulty it belongs to."""

    prompt: str
    answer: str
    level: int = 0


@dataclass(frozen=True)
class Task:
    """Questions and their reward.

    Args:
        name: what it is called.
        questions: ``(how many, step, generator)`` -> questions.
        reward: ``(completion, answer)`` -> number; the end token is not part of the completion.
        max_new_tokens: length limit where the user gives none.
        stop: texts that end a completion.
        environment: questions, one per completion -> what may replace a drawn token; None: nothing does.
        chat: prompts are turns of a chat.
    """

    name: str
    questions: Callable[[int, int, torch.Generator], Sequence[Question]]
    reward: Callable[[str, str], float]
    max_new_tokens: int
    stop: Sequence[str] = ()
    environment: Callable[[Sequence[Question]], Environment] | None = None
    chat: bool = False
