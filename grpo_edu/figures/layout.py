"""Theme, width and style sheet of a picture, as the command line gives them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import matplotlib

from ..checks import one_of
from ..files import read_text
from ..plots.style import Theme
from .registry import Layout

INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
NARROWEST = 3
WIDEST = 40


def layout_of(width: str | None, theme: str, style: Path | None) -> Layout:
    """A layout.

    Args:
        width: a number with its unit, ``6.5in``, ``16cm``, ``160mm`` or ``468pt`` (of TeX); None:
            the picture's own.
        theme: ``light`` or ``dark``.
        style: a matplotlib style sheet.

    Raises:
        ValueError: with the option, what was found, and what was expected.
        FileNotFoundError: no such style sheet.
    """
    one_of("theme", theme, get_args(Theme))
    inches = None if width is None else _inches(width)
    settings = {} if style is None else _settings(style)
    return Layout("dark" if theme == "dark" else "light", inches, settings)


def _inches(width: str) -> float:
    match = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(in|cm|mm|pt)", width)
    inches = float(match[1]) * INCHES[match[2]] if match else 0.0
    if not NARROWEST <= inches <= WIDEST:
        raise ValueError(
            f"width is {width!r}: expected {NARROWEST}in to {WIDEST}in, as a number with in, cm, "
            "mm or pt, such as 6.5in or 16cm."
        )
    return inches


def _settings(style: Path) -> dict[str, Any]:
    """The settings of a style sheet; a name or value that matplotlib does not know is an error."""
    if not style.is_file():
        raise FileNotFoundError(f"no style sheet at {style}: expected a .mplstyle file.")
    for place, line in enumerate(read_text(style).splitlines(), 1):
        name = line.split("#")[0].partition(":")[0].strip()
        if name and name not in matplotlib.rcParams:
            raise ValueError(
                f"{style}, line {place}: matplotlib has no setting {name!r}. "
                "Expected lines such as `font.size: 11`."
            )
    try:
        return dict(
            matplotlib.rc_params_from_file(style, fail_on_error=True, use_default_template=False)
        )
    except ValueError as error:
        raise ValueError(f"{style}: {error}") from error
