"""The explorers by name, and what ``grpo-edu export-html`` writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .advantage import AdvantageExplorer
from .aggregation import AggregationExplorer
from .base import Explorer
from .clip import ClipExplorer
from .dapo import DapoExplorer
from .difficulty import DifficultyExplorer
from .kl import KLExplorer
from .step import StepExplorer
from .stepper import Stepper
from .texts import TokenView

EXPLORERS: dict[str, type[Explorer]] = {
    "aggregation": AggregationExplorer,
    "advantage": AdvantageExplorer,
    "difficulty": DifficultyExplorer,
    "clip": ClipExplorer,
    "step": StepExplorer,
    "kl": KLExplorer,
    "dapo": DapoExplorer,
    "stepper": Stepper,
    "tokens": TokenView,
}


def export(names: Sequence[str], out: Path) -> list[Path]:
    """Write the named explorers (all where none is named) as ``NAME.html`` into a folder; each
    works alone, offline, from disk.

    Raises:
        ValueError: no such explorer.
    """
    unknown = [name for name in names if name not in EXPLORERS]
    if unknown:
        raise ValueError(
            f"there is no explorer '{unknown[0]}': expected one of {', '.join(EXPLORERS)}."
        )
    return [EXPLORERS[name]().save_html(out / f"{name}.html") for name in names or EXPLORERS]
