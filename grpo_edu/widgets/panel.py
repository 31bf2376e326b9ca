"""A panel: native controls in the browser, a picture made in Python for every change. The base of
the labs.

Native controls, since ipywidgets' sliders do not answer to arrow keys in Notebook 7 and carry no
name for a screen reader.
"""

from __future__ import annotations

import base64
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import traitlets as tr

from ..plots.style import Picture
from .base import Explorer, script

Control = dict[str, Any]


def slider(label: str, low: float, high: float, step: float, value: float) -> Control:
    """A range with its start value."""
    return {"kind": "range", "label": label, "min": low, "max": high, "step": step, "value": value}


def choice(label: str, options: Sequence[str], value: str) -> Control:
    """One of several words."""
    return {
        "kind": "select",
        "label": label,
        "options": [[name, name] for name in options],
        "value": value,
    }


def tick(label: str, value: bool = False) -> Control:
    """Yes or no."""
    return {"kind": "tick", "label": label, "value": value}


class Panel(Explorer):
    """Controls, and what ``draw`` makes of their values. An error takes the place of the picture,
    with its message. From a move of a control until the answer of the kernel the browser says
    "computing" and dims the old picture.

    Args:
        draw: called with one keyword per control whenever a value changes; gives
            one part or a list: a ``Picture``, an object with ``_repr_html_``, a text, or a tuple of
            parts to be set side by side.
        controls: by keyword, of ``slider``, ``choice``, ``tick``.
    """

    SHOWN = ("values",)
    _esm = script("panel")
    controls = tr.List().tag(sync=True)
    values = tr.Dict().tag(sync=True)
    drawn_for = tr.Dict().tag(sync=True)
    content = tr.Unicode().tag(sync=True)
    error = tr.Unicode().tag(sync=True)
    drawn = tr.Int(0).tag(sync=True)

    def __init__(self, draw: Callable[..., Any], controls: Mapping[str, Control]) -> None:
        self._draw = draw
        self._parts = []
        super().__init__(
            controls=[{"key": key, **control} for key, control in controls.items()],
            values={key: control["value"] for key, control in controls.items()},
        )
        self.redraw()
        self.observe(self.redraw, "values")

    def set(self, **values: Any) -> None:
        """Turn controls from Python.

        Raises:
            ValueError: no such control.
        """
        unknown = sorted(set(values) - set(self.values))
        if unknown:
            raise ValueError(
                f"there is no control '{unknown[0]}': expected one of {', '.join(self.values)}."
            )
        self.values = {**self.values, **values}

    def redraw(self, _: Any = None) -> None:
        """Picture or error, from the values as they are."""
        with _no_collection(), self.hold_sync(), self.hold_trait_notifications():
            self._parts, self.error = self._answer()
            self.content = "".join(map(_html, self._parts))
            self.drawn_for = self.values
            self.drawn += 1

    def _answer(self) -> tuple[list[Any], str]:
        """The parts of the picture, and what went wrong: the reader sees it in their place."""
        try:
            parts = self._draw(**self.values)
        except Exception as wrong:
            return [], f"{type(wrong).__name__}: {wrong}"
        return parts if isinstance(parts, list) else [parts], ""

    def figure(self) -> Any:
        """The picture; where there is only text, a picture of it."""
        pictures = [part for part in self._parts if isinstance(part, Picture)]
        return pictures[0] if pictures else text_picture("\n\n".join(_texts(self._parts)))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Garbage is collected after the picture has gone out: with torch loaded one collection takes
    as long as a picture."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _html(part: Any) -> str:
    """One part as HTML; texts are escaped."""
    if isinstance(part, tuple):
        return f'<div class="side">{"".join(f"<div>{_html(inner)}</div>" for inner in part)}</div>'
    if isinstance(part, Picture):
        alt = escape(part.get_suptitle() or "picture")
        png = base64.b64encode(part.png(dpi=95, compress_level=1)).decode()
        return f'<img alt="{alt}" src="data:image/png;base64,{png}">'
    return part._repr_html_() if hasattr(part, "_repr_html_") else f"<p>{escape(str(part))}</p>"


def _texts(parts: Sequence[Any]) -> list[str]:
    """The plain texts among the parts; what is HTML only has none."""
    flat = [inner for part in parts for inner in (part if isinstance(part, tuple) else (part,))]
    return [
        str(part) for part in flat if not (isinstance(part, str) and hasattr(part, "_repr_html_"))
    ]


def text_picture(text: str) -> Picture:
    """A text as a picture, in a typewriter font."""
    lines = text.splitlines()
    if not lines:
        raise ValueError("there is no text to draw.")
    size = (min(16.0, 0.4 + 0.085 * max(map(len, lines))), 0.2 + 0.142 * len(lines))
    figure = Picture(figsize=size)
    figure.text(0.01, 0.99, text, va="top", ha="left", family="monospace", fontsize=8)
    return figure
