"""A picture with controls: any plotting function of this package, redrawn when a slider moves.

There is one picture, and it is replaced, so nothing piles up below the controls. An error takes the picture away and shows its message;
the next valid input brings it back. Without a kernel a page shows the picture as it was.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Callable
from typing import Any

from ..plots.style import Picture

try:
    import ipywidgets
except ImportError as error:
    raise ImportError('the panel needs ipywidgets, which is missing: pip install "grpo-edu[notebooks]"') from error

LABEL = {"description_width": "11em"}


def slider(label: str, value: float, low: float, high: float, step: float = 0.01) -> ipywidgets.FloatSlider:
    """A labelled slider. Arrow keys move it by one step; the number beside it can be typed."""
    return ipywidgets.FloatSlider(
        value=value,
        min=low,
        max=high,
        step=step,
        description=label,
        style=LABEL,
        layout={"width": "34em"},
        continuous_update=False,
    )


class PicturePanel(ipywidgets.VBox):
    """``PicturePanel(draw, x=slider("x", 1, 0, 2))`` shows ``draw(x=…)`` and draws it again when x changes.

    Args:
        draw: returns a ``Picture``; its arguments are the names of the controls.
        controls: ipywidgets with a ``value``.
    """

    def __init__(self, draw: Callable[..., Picture], **controls: Any) -> None:
        self.draw, self.controls = draw, controls
        self.message, self.image = ipywidgets.HTML(), ipywidgets.Image(format="png")
        super().__init__([*controls.values(), self.message, self.image])
        for control in controls.values():
            control.observe(self.redraw, names="value")
        self.redraw()

    def redraw(self, _: Any = None) -> None:
        """Draw with the values as they stand, or show why that is impossible."""
        try:
            self.image.value = self.draw(**{name: control.value for name, control in self.controls.items()}).png()
            self.message.value, self.image.layout.display = "", ""
        except (ValueError, TypeError, KeyError, RuntimeError) as error:
            self.message.value = f'<p role="alert"><b>No picture.</b> {html.escape(str(error))}</p>'
            self.image.layout.display = "none"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The live view, and the picture for pages that run nothing."""
        bundle = super()._repr_mimebundle_(**kwargs) or {}
        return {**bundle, "image/png": base64.b64encode(self.image.value).decode()}
