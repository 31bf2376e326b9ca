"""Theme, width and style sheet of a picture, and how it is saved."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import matplotlib
from matplotlib.backends.backend_pdf import Op, PdfFile, PdfPages
from matplotlib.figure import Figure

from ..checks import one_of
from ..files import read_text
from ..plots.style import Theme, styled

FORMATS = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
NARROWEST = 3
WIDEST = 40


@dataclass(frozen=True)
class Layout:
    """How a picture looks. ``AS_COMMITTED`` is that of the committed pictures.

    Args:
        theme: for light or dark pages.
        width: in inches, to which the whole picture is scaled, type too; None: its own width.
        settings: settings of matplotlib that come last, as a style sheet of one's own gives them.
    """

    theme: Theme = "light"
    width: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def styled(self) -> AbstractContextManager[Any]:
        """The style sheets, as a context."""
        return styled(self.theme, self.settings)


AS_COMMITTED = Layout()


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
        settings = matplotlib.rc_params_from_file(
            style, fail_on_error=True, use_default_template=False
        )
        return {str(name): value for name, value in settings.items()}
    except ValueError as error:
        raise ValueError(f"{style}: {error}") from error


# --- saving


def save(picture: Figure, target: Path, ending: str, width: float | None) -> None:
    """Write a picture, scaled as a whole to a width in inches where one is given."""
    how: dict[str, Any] = {"format": ending, "metadata": FORMATS[ending]}
    scale = 1.0 if width is None else width / picture.get_figwidth()
    dpi = 72 if ending == "svg" else float(matplotlib.rcParams["savefig.dpi"])  # pixel layers
    if width is None:
        picture.savefig(target, **how, dpi=dpi)
    elif ending == "png":
        picture.savefig(target, **how, dpi=scale * dpi, pil_kwargs={"dpi": (dpi, dpi)})
    elif ending == "svg":
        buffer = io.StringIO()
        picture.savefig(buffer, **how, dpi=dpi)
        size = f'width="{width:.6g}in" height="{scale * picture.get_figheight():.6g}in"'
        text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', size, buffer.getvalue(), count=1)
        target.write_text(text, encoding="utf-8")
    else:
        with _ScaledPages(target, metadata=FORMATS["pdf"]) as pages:
            pages.scale = scale
            pages.savefig(picture)


class _ScaledFile(PdfFile):
    """A PDF file that draws everything at a scale."""

    scale: float

    def newPage(self, width: float, height: float) -> None:
        super().newPage(self.scale * width, self.scale * height)
        self.output(self.scale, 0, 0, self.scale, 0, 0, Op.concat_matrix)


class _ScaledPages(PdfPages):
    scale: float

    def _ensure_file(self) -> PdfFile:
        if self._file is None:
            self._file = _ScaledFile(self._filename, metadata=self._metadata)
            self._file.scale = self.scale
        return self._file
