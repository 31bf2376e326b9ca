"""One look for every picture: style sheet, colours, the symmetric scale of signed weights, the
level of evidence."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import wraps
from importlib import resources
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import matplotlib
import matplotlib.style
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

P = ParamSpec("P")
R = TypeVar("R")

COLOURS = (
    "#5790fc",
    "#f89c20",
    "#e42536",
    "#964a8b",
    "#9c9ca1",
    "#7a21dd",
)  # petroff6: apart under every colour blindness
MARKERS = ("o", "s", "^", "D", "v", "P")
SIGNED = "PuOr_r"  # purple pushes down, orange pushes up
UP = "#b35806"
DOWN = "#542788"
MASKED = "#ececec"


def _sheet() -> Path:
    return Path(str(resources.files("grpo_edu"))) / "plots" / "grpo_edu.mplstyle"


def styled() -> AbstractContextManager[Any]:
    """The package's style sheet as a context; the reader's own settings stay as they are."""
    return matplotlib.style.context(_sheet())


def picture(function: Callable[P, R]) -> Callable[P, R]:
    """Draw under the package's style sheet."""

    @wraps(function)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with styled():
            return function(*args, **kwargs)

    return drawn


class Picture(Figure):
    """A figure that no pyplot window knows of; a notebook shows it as PNG."""

    def png(self, dpi: int = 110, compress_level: int = 6) -> bytes:
        """PNG bytes, the same for the same picture. A low ``compress_level`` (0 to 9) is faster,
        and the file larger."""
        buffer = io.BytesIO()
        how = {"compress_level": compress_level}
        with styled():
            self.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None}, pil_kwargs=how)
        return buffer.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()


def new_figure(width: float, height: float) -> Picture:
    """An empty picture, in inches."""
    return Picture(figsize=(width, height), layout="constrained")


def symmetric(values: Iterable[float], quantile: float = 1.0) -> TwoSlopeNorm:
    """One colour scale around zero for every panel of a picture; sizes above the quantile share the
    last colour."""
    sizes = sorted(abs(v) for v in values if v != 0)
    largest = sizes[min(len(sizes) - 1, int(quantile * len(sizes)))] if sizes else 1.0
    return TwoSlopeNorm(0.0, -largest, largest)


def headline(figure: Figure, text: str) -> None:
    """Write the sentence to take home above the picture, in place of one that is there."""
    figure.suptitle(text, x=0.01, ha="left")


def evidence(figure: Figure, text: str) -> None:
    """Write the level of evidence under the picture: "exact", "simulated, 16 seeds, 95 % interval",
    "observed, …"."""
    figure.supxlabel(text, x=0.995, ha="right", fontsize=7, color="#666666")
