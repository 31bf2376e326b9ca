"""Tables on the terminal: aligned and short, or JSON and CSV with all digits for programs."""

from __future__ import annotations

import json as json_module
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd

Json = Annotated[bool, typer.Option("--json", help="Print JSON with all digits, for programs.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV with all digits, for programs.")]


def for_programs(table: pd.DataFrame, *, json: bool, csv: bool) -> None:
    """Print the rows as a JSON list of objects (a missing number is null), or as CSV."""
    if json and csv:
        raise ValueError("both --json and --csv are given: expected one of them.")
    if json:
        rows = table.astype(object).where(table.notna(), None).to_dict("records")
        typer.echo(json_module.dumps(rows, indent=2, ensure_ascii=False))
    else:
        typer.echo(table.to_csv(index=False), nl=False)


def aligned(table: pd.DataFrame, numbers: Sequence[str]) -> str:
    """The table as text: three significant digits, decimal points under each other.

    Args:
        table: of numbers.
        numbers: columns that count or measure nothing, such as the number of a completion: these
            are printed as they are.
    """
    columns = {}
    for name in table:
        values = table[name].tolist()
        texts = list(map(str, values)) if name in numbers else list(map(number, values))
        columns[name] = _points_aligned(texts)
    return type(table)(columns).to_string(index=False)


def _points_aligned(texts: Sequence[str]) -> list[str]:
    """Spaces at the right put the decimal points of right-justified texts under each other."""
    decimals = [len(text.partition(".")[2]) + ("." in text) for text in texts]
    widest = max(decimals, default=0)
    return [text + " " * (widest - own) for text, own in zip(texts, decimals, strict=True)]


def number(value: float) -> str:
    """Three significant digits: ``0.00442``, ``-1.23e-05``; whole and with commas from 1,000 on."""
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
