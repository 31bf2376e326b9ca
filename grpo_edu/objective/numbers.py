"""The numbers of one token, put into the formulas of its choices.

A choice carries a function ``numbers(n) -> str`` (see ``axes.formula``). ``n`` holds what its
formula may look at: everything of ``axes.INPUTS`` by name in ``n.inputs``, the settings of the
choice in ``n.s``, and the token's own values, made by ``stepper``.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any


class Numbers(SimpleNamespace):
    """One token's values by name; ``s`` holds the settings of the choice that is written."""


def short(value: Any) -> str:
    """A number with six significant digits."""
    return f"{float(value):.6g}"


def listed(values: Iterable[float]) -> str:
    """Numbers with commas between them."""
    return ", ".join(map(short, values))
