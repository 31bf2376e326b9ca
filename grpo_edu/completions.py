"""Completions files: JSONL, one completion per line, read into Rollouts and written.

README describes every column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .checks import checked
from .files import read_text
from .rollouts import Rollouts

REQUIRED = ("group_id", "tokens", "logp", "reward")
OPTIONAL_LOGPS = ("old_logp", "ref_logp", "sampler_logp")
# columns in the order in which they are written; log-probs follow
COLUMNS = (
    "group_id",
    "sample_id",
    "prompt",
    "answer",
    "completion",
    "reward",
    "correct",
    "truncated",
    "max_new_tokens",
    "tokens",
    "token_ids",
)


def shipped() -> Path:
    """The completions that come with the package: SmolLM2-135M-Instruct on small arithmetic, 8 per
    prompt.
    """
    return Path(str(resources.files("grpo_edu"))) / "data" / "smollm2_arithmetic.jsonl"


@checked
def read_completions(
    path: str | Path | None = None, *, dtype: torch.dtype = torch.float64
) -> Rollouts:
    """Rollouts from a completions file; the shipped one where no path is given.

    Each line is a JSON object with ``group_id, tokens, logp, reward`` (``null``: not scored) and
    optionally ``prompt, truncated, mask, old_logp, ref_logp, sampler_logp, max_new_tokens``; other
    columns are ignored. Groups are taken from ``group_id`` alone, never guessed.

    Args:
        path: the file.
        dtype: of the log-probs.

    Raises:
        ValueError: with the line, the column, what was found and what was expected.
        FileNotFoundError: no such file.
    """
    path = shipped() if path is None else Path(path)
    if not path.exists():
        raise FileNotFoundError(
            f"no completions file at {path}: expected a JSONL file. `grpo-edu sample` makes one."
        )
    rows = [
        _row(path, number, line)
        for number, line in enumerate(read_text(path).split("\n"), 1)
        if line.strip()
    ]
    if not rows:
        raise ValueError(f"{path} holds no completions: expected one JSON object per line.")
    try:
        return _rollouts(rows, dtype)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    """One line, checked on its own: columns present, lists as long as the tokens."""
    where = f"{path}, line {number}"
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{where}: not JSON ({error.msg} at column {error.colno}). Expected one object per "
            f"line."
        ) from error
    if not isinstance(row, dict):
        raise ValueError(f"{where}: found a {type(row).__name__}, expected a JSON object.")
    missing = [name for name in REQUIRED if name not in row]
    if missing:
        raise ValueError(
            f"{where}: no column {', '.join(missing)} (found: {', '.join(row)}). Expected "
            f"{', '.join(REQUIRED)}; "
            "`grpo-edu sample` writes them all."
        )
    if not isinstance(row["tokens"], list) or not all(isinstance(t, str) for t in row["tokens"]):
        raise ValueError(f"{where}: tokens must be a list of texts.")
    for name in ("logp", "mask", *OPTIONAL_LOGPS):
        if row.get(name) is not None and (
            not isinstance(row[name], list) or len(row[name]) != len(row["tokens"])
        ):
            count = len(row[name]) if isinstance(row[name], list) else type(row[name]).__name__
            raise ValueError(
                f"{where}: {name} has {count} entries but tokens has {len(row['tokens'])}: one per "
                f"token."
            )
    if row["reward"] is not None and not isinstance(row["reward"], (int, float)):
        raise ValueError(
            f"{where}: reward is {row['reward']!r}, expected a number, or null where it was not "
            f"scored."
        )
    return row


def _rollouts(rows: Sequence[dict[str, Any]], dtype: torch.dtype) -> Rollouts:
    """Pad the rows to one width."""
    width = max(1, *(len(row["tokens"]) for row in rows))
    names = {
        name: index
        for index, name in enumerate(dict.fromkeys(str(row["group_id"]) for row in rows))
    }
    mask = torch.stack(
        [_padded(row.get("mask") or [True] * len(row["tokens"]), width, torch.bool) for row in rows]
    )
    logps = {
        name: torch.stack([_padded(row[name], width, dtype) for row in rows])
        for name in OPTIONAL_LOGPS
        if all(row.get(name) is not None for row in rows)
    }
    limits = {row.get("max_new_tokens") for row in rows}
    return Rollouts(
        logp=torch.stack([_padded(row["logp"], width, dtype) for row in rows]),
        mask=mask,
        reward=[row["reward"] for row in rows],  # type: ignore[arg-type]
        group=torch.tensor([names[str(row["group_id"])] for row in rows]),
        truncated=torch.tensor([bool(row.get("truncated", False)) for row in rows]),
        max_new_tokens=limits.pop() if len(limits) == 1 else None,
        tokens=[row["tokens"] for row in rows],
        prompts=[str(row.get("prompt", "")) for row in rows],
        **logps,
    )


def _padded(values: Sequence[Any], width: int, dtype: torch.dtype) -> Tensor:
    row = torch.zeros(width, dtype=dtype)
    row[: len(values)] = torch.tensor(values, dtype=dtype)
    return row


def completion_row(logps: Mapping[str, Tensor | None], **columns: Any) -> dict[str, Any]:
    """One completion as its line holds it, in the order of ``COLUMNS``.

    ``files.write_json_lines`` writes the rows.

    Args:
        logps: ``logp`` and any of ``OPTIONAL_LOGPS``, each ``[tokens]``; written with 9 digits,
            which is all of float32. None: not written.
        columns: any of ``COLUMNS``.

    Raises:
        ValueError: a column that the format does not have, or a required one that is missing.
    """
    given = {**columns, **{name: value for name, value in logps.items() if value is not None}}
    unknown = set(given) - {*COLUMNS, "logp", *OPTIONAL_LOGPS}
    missing = set(REQUIRED) - set(given)
    if unknown or missing:
        raise ValueError(
            f"columns are {', '.join(given)}: expected {', '.join(REQUIRED)} and any of "
            f"{', '.join((*COLUMNS, *OPTIONAL_LOGPS))}."
        )
    row = {name: columns[name] for name in COLUMNS if name in columns}
    for name in ("logp", "sampler_logp", "ref_logp", "old_logp"):
        if name in given:
            row[name] = [float(f"{value:.9g}") for value in given[name].tolist()]
    return row
