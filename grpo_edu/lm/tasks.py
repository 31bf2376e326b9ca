"""What a language model is trained on: questions, a reward that a reader can check, and where a
completion ends.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch

from ..checks import one_of
from ..files import read_text
from .checkers import CHECKERS, NUMBER
from .generate import Environment
from .prompts import read_prompts


@dataclass(frozen=True)
class Problem:
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
        environment: questions, one per completion -> what may replace a drawn token; None: nothing
            does.
        chat: prompts are turns of a chat.
        pool: every question there is, where they are finitely many.
    """

    name: str
    questions: Callable[[int, int, torch.Generator], Sequence[Problem]]
    reward: Callable[[str, str], float]
    max_new_tokens: int
    stop: Sequence[str] = ()
    environment: Callable[[Sequence[Problem]], Environment] | None = None
    chat: bool = False
    pool: Sequence[Problem] = ()


def drawn_from(
    pool: Sequence[Problem],
) -> Callable[[int, int, torch.Generator], Sequence[Problem]]:
    """Questions of a fixed list, without repetition inside a step as long as the list allows it."""

    def questions(count: int, step: int, generator: torch.Generator) -> list[Problem]:
        order = [
            i
            for _ in range(-(-count // len(pool)))
            for i in torch.randperm(len(pool), generator=generator).tolist()
        ]
        return [pool[i] for i in order[:count]]

    return questions


def from_file(
    path: Path, checker: str, *, chat: bool, stop: Sequence[str] = (), max_new_tokens: int = 256
) -> Task:
    """Any JSON lines of ``prompt`` and ``answer``.

    Raises:
        ValueError: an unknown checker, or a line that cannot be read; says which.
        ImportError: the checker needs a package that is missing.
    """
    one_of("checker", checker, CHECKERS)
    pool = [Problem(p.prompt, p.answer) for p in read_prompts(path, CHECKERS[checker])]
    return Task(
        path.stem,
        drawn_from(pool),
        CHECKERS[checker],
        max_new_tokens,
        stop=stop,
        chat=chat,
        pool=pool,
    )


def gsm8k(path: Path, *, chat: bool, max_new_tokens: int = 256) -> Task:
    """GSM8K from a local file of JSON lines with ``question`` and ``answer``, the number after
    ``####``.

    Raises:
        ValueError: with the line, where there is no such number.
        FileNotFoundError: no such file.
    """
    pool = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            row = json.loads(line)
            question = row.get("question", "")
            gold = row.get("answer", "").rpartition("####")[2]
            if not question or not NUMBER.fullmatch(gold.strip()):
                raise ValueError(
                    f"{path}, line {number}: expected question and answer, with a number after "
                    f"####."
                )
            pool.append(Problem(f"{question}\nEnd with the answer as a number.", gold.strip()))
    if not pool:
        raise ValueError(f"{path} holds no question: expected JSON lines with question and answer.")
    return Task(
        "gsm8k", drawn_from(pool), CHECKERS["last_number"], max_new_tokens, chat=chat, pool=pool
    )


ARITHMETIC = {
    "chain_sum": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
    "products": {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
}
SHOTS = 4
POOL = 1000


def arithmetic(name: str) -> Task:
    """``chain_sum`` or ``products`` of reasoning-gym: two one-digit numbers, four worked examples
    before each question.

    Long instructions defeat a model of this size, so a prompt is plain text that ends in "=", and
    the completion is the rest of the line. Division is left out: reasoning-gym 0.1 gives wrong gold
    answers there.

    Raises:
        ImportError: reasoning-gym is not installed; says how.
    """
    if find_spec("reasoning_gym") is None:
        raise ImportError(
            f"task is '{name}', which needs reasoning-gym. Run: pip install 'grpo-edu[tasks]'"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in a dependency of reasoning-gym
        import reasoning_gym  # pyright: ignore[reportMissingImports]

    made = reasoning_gym.create_dataset(name, size=POOL + SHOTS, seed=0, **ARITHMETIC[name])
    lines = [(item["metadata"]["expression"], item["answer"]) for item in made]
    shots = "".join(f"{expression} = {answer}\n" for expression, answer in lines[:SHOTS])
    pool = [Problem(f"{shots}{expression} =", answer) for expression, answer in lines[SHOTS:]]
    return Task(name, drawn_from(pool), CHECKERS["first_number"], 8, stop=("\n",), pool=pool)
