"""Files of prompts: JSON lines with ``prompt``, ``answer`` and, optional, ``group_id``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..files import read_text
from .checkers import Checker


@dataclass(frozen=True)
class Prompt:
    """One line of a prompts file: what is asked, the answer that the checker gets, the name of its
    group.
    """

    prompt: str
    answer: str
    group_id: int | str


def read_prompts(path: str | Path, checker: Checker | None = None) -> list[Prompt]:
    """The prompts of a file of JSON lines, each an object with ``prompt``, ``answer`` and,
    optional, ``group_id``.

    Args:
        path: the file, UTF-8. ``group_id`` is the line's place among the prompts, from 0, where it
            is not given.
        checker: if given, it must be able to read every answer.

    Raises:
        ValueError: names the file, the line, what was found and what was expected.
        FileNotFoundError: there is no such file.
    """
    prompts: list[Prompt] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if line.strip():
            try:
                prompt = _prompt(line, default=len(prompts))
                if prompt.group_id in {earlier.group_id for earlier in prompts}:
                    raise ValueError(
                        f"group_id {prompt.group_id!r} stands on an earlier line too: give each "
                        f"its own."
                    )
                if checker:
                    checker("", prompt.answer)
                prompts.append(prompt)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from error
    if not prompts:
        raise ValueError(
            f'{path} holds no prompt: expected lines such as {{"prompt": "What is 3 + 4?", '
            f'"answer": "7"}}.'
        )
    return prompts


def _prompt(line: str, default: int) -> Prompt:
    """One line of a prompts file; the caller adds where it stands."""
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"not JSON ({error.msg} at column {error.colno}): expected one object per line."
        ) from error
    if not isinstance(row, dict):
        raise ValueError(
            f"found a {type(row).__name__}: expected an object with prompt and answer."
        )
    for key in ("prompt", "answer"):
        if key not in row:
            raise ValueError(
                f"no {key} among {sorted(row)}: expected prompt, answer and, optional, group_id."
            )
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(
                f'{key} is {row[key]!r}: expected a text that is not empty, such as "7" with its '
                f"quotes."
            )
    group_id = row.get("group_id", default)
    if not isinstance(group_id, int | str) or isinstance(group_id, bool):
        raise ValueError(f"group_id is {group_id!r}: expected a whole number or a text.")
    return Prompt(row["prompt"], row["answer"], group_id)
