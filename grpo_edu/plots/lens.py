"""The push lens: one page with the text of every completion, each token coloured by its push.

The page works offline. Texts and numbers travel in two compressed blocks, so that nothing from a
file is read as HTML. A number is kept as four significant digits, a mantissa and a power of ten:
the page shows the digits that the ledger prints, and rounds nothing a second time.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from .. import formulas
from ..objective.numbers import short
from ..objective.recipe import Recipe
from ..rollouts import Rollouts
from ..stepper import Context, Step, all_steps, shared_steps
from ..weights import Push
from .style import look

LONGEST = 240  # characters of a line of numbers; a longer one is cut
SMALLEST = 1e-120  # a smaller size is shown as 0
# factor of the push -> the name of its column; log-probabilities follow
FACTORS = ("advantage", "W", "correction", "ratio", "gate", "kl", "push", "share")
LOG_PROBS = {"logp": "log π", "old_logp": "log π_old", "ref_logp": "log π_ref"}
# colours of many tokens: the 0.5 % with the largest share have the last colour
QUANTILE = 0.995


def push_lens(
    pushes: Sequence[Push], table: pd.DataFrame, micro_batch: Tensor | None = None
) -> str:
    """The page for ``grpo-edu weights --out``.

    Args:
        pushes: one per recipe, on the same rollouts, which carry the texts of their tokens.
        table: one row per completion that the page shows, with its number in the column
            ``completion``; the page of a reader without JavaScript is this table.
        micro_batch: ``[N]``, as it was given to ``Push.of``.

    Raises:
        ValueError: the rollouts carry no token texts.
    """
    rollouts = pushes[0].rollouts
    if rollouts.tokens is None:
        raise ValueError(
            "rollouts.tokens is missing: expected the text of each token. "
            "Read a completions file, or give tokens=."
        )
    rows = table["completion"].tolist()
    columns = _Columns(rollouts, rows)
    data = {
        **_texts(rollouts, rows, columns),
        "logp": _log_probs(pushes, columns),
        "recipes": [_recipe(push, columns, micro_batch) for push in pushes],
        "end": _end(pushes, rows),
    }
    names = ", ".join(_name(push.recipe) for push in pushes)
    return Template(_static("lens.html")).substitute(
        title=f"Push on every token: {escape(names)}",
        style=_colours() + _static("lens.css"),
        summary=_summary(rollouts, rows),
        formulas="".join(_formula(push.recipe) for push in pushes),
        table=_table(table, rollouts),
        data=_packed(json.dumps(data).encode()),
        columns=_packed(columns.block()),
        script=_static("lens.js"),
    )


def _static(name: str) -> str:
    folder = resources.files("grpo_edu") / "plots" / "static"
    return (folder / name).read_text(encoding="utf-8")


def _name(recipe: Recipe) -> str:
    """As people write it: ``Dr. GRPO``."""
    return look(recipe.name).label


def _packed(block: bytes) -> str:
    return base64.b64encode(gzip.compress(block, 6, mtime=0)).decode()


# --- numbers


class _Columns:
    """Numbers of the shown completions, as the page reads them.

    A column has one number per completion where the tokens of a completion share it, else one per
    token. Equal columns are kept once.
    """

    def __init__(self, rollouts: Rollouts, rows: Sequence[int]) -> None:
        assert rollouts.tokens is not None
        self.rows = rows
        self.lengths = np.array([len(rollouts.tokens[i]) for i in rows])
        starts = self.lengths.cumsum() - self.lengths
        self.row = np.repeat(np.arange(len(rows)), self.lengths)
        self.position = np.arange(len(self.row)) - starts[self.row]
        self.width = rollouts.mask.shape[1]
        self.trained = np.ones(len(self.row), dtype=bool)
        self.trained = self.flat(rollouts.mask).astype(bool)
        # the first trained token of each completion; without one its first token
        self.first = np.array(
            [part.argmax() if len(part) else 0 for part in np.split(self.trained, starts[1:])]
        )
        self.places: dict[bytes, int] = {}
        self.size = 0

    def flat(self, values: Tensor) -> np.ndarray:
        """``[N, T]`` as one number per token of the shown completions, 0 where none is trained."""
        padded = values.numpy(force=True)[self.rows]
        inside = np.minimum(self.position, self.width - 1)
        shown = padded[self.row, inside]
        return np.where(self.trained & (self.position < self.width), shown, 0)

    def add(self, values: Tensor) -> dict[str, Any]:
        """A column ``[N, T]``; where it is in the block, and what it has one number for."""
        token = self.flat(values.double())
        starts = self.lengths.cumsum() - self.lengths
        row = np.zeros(len(self.rows))
        some = self.lengths > 0
        row[some] = token[(starts + self.first)[some]]
        if (token == row[self.row])[self.trained].all():
            return self.per_row(row)
        return {"each": "token", "count": len(token), "at": self._keep(decimals(token))}

    def per_row(self, values: np.ndarray) -> dict[str, Any]:
        """A column with one number per shown completion."""
        return {"each": "row", "count": len(values), "at": self._keep(decimals(values))}

    def raw(self, values: np.ndarray) -> int:
        """Whole numbers as they are; where they stand in the block."""
        return self._keep(values.tobytes())

    def _keep(self, block: bytes) -> int:
        if block not in self.places:
            self.places[block] = self.size
            self.size += len(block) + -len(block) % 4
        return self.places[block]

    def block(self) -> bytes:
        """All columns, each at a multiple of four bytes."""
        return b"".join(block + bytes(-len(block) % 4) for block in self.places)


def decimals(values: np.ndarray) -> bytes:
    """Four significant digits of each number: the mantissas (Int16), then the powers of ten
    (Int8).

    ``0.012344`` -> 1234 and -5.
    """
    values = np.where(np.abs(values) < SMALLEST, 0.0, values)
    nonzero = values != 0
    power = np.zeros(len(values))
    power[nonzero] = np.floor(np.log10(np.abs(values[nonzero]))) - 3
    scaled = values * 10.0**-power
    mantissa = np.rint(scaled)
    size = np.abs(mantissa)
    near_tie = np.abs(np.abs(scaled - mantissa) - 0.5) < 1e-6
    doubtful = nonzero & (near_tie | (size < 1000) | (size > 9999))
    for k in np.flatnonzero(doubtful):
        digits, ten = f"{values[k]:.3e}".split("e")
        mantissa[k] = int(digits.replace(".", ""))
        power[k] = int(ten) - 3
    return mantissa.astype("<i2").tobytes() + power.astype("i1").tobytes()


# --- what the page shows


def _texts(rollouts: Rollouts, rows: Sequence[int], columns: _Columns) -> dict[str, Any]:
    """Tokens, as numbers of words, and what is known of each completion."""
    assert rollouts.tokens is not None
    assert rollouts.scored is not None
    words: dict[str, int] = {}
    index = [words.setdefault(text, len(words)) for i in rows for text in rollouts.tokens[i]]
    groups = rollouts.group[rows].tolist()
    prompts = rollouts.prompts or [""] * len(rollouts)
    scored = rollouts.scored.tolist()
    reward = rollouts.reward.tolist()
    return {
        "words": list(words),
        "word": columns.raw(np.array(index, dtype="<u4")),
        "trained": columns.raw(columns.trained.astype("u1")),
        "completion": rows,
        "group": groups,
        "prompts": {group: prompts[i] for group, i in zip(groups, rows, strict=True)},
        "reward": [reward[i] if scored[i] else None for i in rows],
        "count": columns.lengths.tolist(),
        "length": rollouts.lengths[rows].tolist(),
    }


def _log_probs(pushes: Sequence[Push], columns: _Columns) -> list[dict[str, Any]]:
    """Log-probabilities of the tokens; those of the reference only where a recipe reads them."""
    rollouts = pushes[0].rollouts
    reads_ref = any(push.recipe.kl is not None for push in pushes)
    return [
        {"name": name, **columns.add(getattr(rollouts, field))}
        for field, name in LOG_PROBS.items()
        if getattr(rollouts, field) is not None and (field != "ref_logp" or reads_ref)
    ]


def _recipe(push: Push, columns: _Columns, micro_batch: Tensor | None) -> dict[str, Any]:
    """One recipe: its factors, its numbers per completion, and their steps."""
    values = {**push.factors, "push": push.token, "share": 100 * push.share}
    formula, written = _steps(push, columns, micro_batch)
    absent = {name for name in ("ratio", "gate") if name not in formula}
    absent |= set() if "KL term" in formula else {"kl"}
    shown = [name for name in FACTORS if name in values and name not in absent]
    return {
        "name": _name(push.recipe),
        "factors": {name: columns.add(values[name]) for name in shown},
        "mean": columns.per_row(push.completion_mean.numpy(force=True)[columns.rows]),
        "share": columns.per_row(100 * push.completion_share.numpy(force=True)[columns.rows]),
        "total": f"{push.token.double().abs().sum().item():.4g}",
        "formula": formula,
        "written": written,
    }


def _steps(
    push: Push, columns: _Columns, micro_batch: Tensor | None
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The formula of every step, and for each completion the numbers in the steps that its tokens
    share."""
    context = Context(push, micro_batch)
    firsts = np.minimum(columns.first, columns.width - 1).tolist()
    numbers = [context.numbers(i, t) for i, t in zip(columns.rows, firsts, strict=True)]
    written = [
        {step.name: _written(step) for step in shared_steps(push.recipe, n)} for n in numbers
    ]
    formula = {step.name: step.formula for step in all_steps(push.recipe, numbers[0])}
    return formula, written


def _written(step: Step) -> str:
    if len(step.numbers) > LONGEST:
        return f"{step.numbers[:LONGEST]} … = {short(step.value)}"
    return " = ".join(step.written)


def _end(pushes: Sequence[Push], rows: Sequence[int]) -> float:
    """The share, in percent, that has the last colour."""
    shares = np.concatenate(
        [
            push.share.abs().numpy(force=True)[rows][push.rollouts.mask.numpy(force=True)[rows]]
            for push in pushes
        ]
    )
    shares = shares[shares > 0]
    return float(100 * np.quantile(shares, QUANTILE)) if len(shares) else 1.0


# --- what stands in the page without JavaScript


def _summary(rollouts: Rollouts, rows: Sequence[int]) -> str:
    prompts = len(set(rollouts.group[rows].tolist()))
    tokens = int(rollouts.lengths[rows].sum())
    of_step = "" if len(rows) == len(rollouts) else f" of the {len(rollouts):,} of the step"
    return (
        f"{len(rows):,} completions{of_step}, {prompts:,} prompts, {tokens:,} trained tokens. "
        "The push is how hard one optimiser step moves the log-probability of a token; the share "
        "is its signed part of the step's total |push|. W is the aggregation weight of a token."
    )


def _colours() -> str:
    """The colour of each factor, light and dark, as CSS."""
    pairs = formulas.COLOURS.items()
    return "".join(
        f".factor.{factor}{{color:light-dark({light},{dark})}}\n" for factor, (light, dark) in pairs
    )


def _formula(recipe: Recipe) -> str:
    """Loss, push and symbols of a recipe, typeset."""
    lines = [formulas.loss_parts(recipe), formulas.push_parts(recipe)]
    symbols = "".join(
        f"<li>{formulas.mathml([formulas.Part(line.factor, line.symbol)])} "
        f"{formulas.mathml('=' + line.latex) if line.latex else ''} "
        f"<span>{escape(line.words)}</span></li>"
        for line in formulas.definitions(recipe)
    )
    typeset = "".join(formulas.mathml(line, display=True) for line in lines)
    head = f"<h3>{escape(_name(recipe))}</h3><p>{escape(recipe.title)}. {escape(recipe.paper)}</p>"
    meaning = f"<details><summary>What each symbol means</summary><ul>{symbols}</ul></details>"
    section = f'<section>{head}<div class="wide">{typeset}</div>{meaning}</section>'
    return section.replace(' xmlns="http://www.w3.org/1998/Math/MathML"', "")


def _table(table: pd.DataFrame, rollouts: Rollouts) -> str:
    """The completions as a plain table, with the start of their text."""
    assert rollouts.tokens is not None
    rows: list[int] = table["completion"].tolist()
    texts = [_printable("".join(rollouts.tokens[i])[:120]) for i in rows]
    return table.assign(text=texts).to_html(
        index=False, float_format="{:.4g}".format, border=0, escape=True
    )


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in text)
