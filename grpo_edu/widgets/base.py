"""What every explorer is: a widget that computes in the browser, a picture for where none runs, a
page for where no kernel runs."""

from __future__ import annotations

import base64
import html
import io
import json
import re
import warnings
from pathlib import Path
from string import Template
from typing import Any, ClassVar

from ..files import replacing
from ..objective import axes
from ..objective.recipe import OPTIONAL, Recipe, RecipeWarning

try:
    import anywidget
    import traitlets as tr
except ImportError as error:
    raise ImportError(
        'the explorers need anywidget, which is missing: pip install "grpo-edu[notebooks]"'
    ) from error

STATIC = Path(__file__).parent / "static"


def static(name: str) -> str:
    """The text of a file of ``static/``."""
    return (STATIC / name).read_text(encoding="utf-8")


def script(*names: str) -> str:
    """The JavaScript module of an explorer: the mathematics, what all share, and its own files.

    They stand in one module, so what they import from and export to each other is left out.
    """
    parts = (static(f"{part}.js") for part in ("objective", "shared", *names))
    return re.sub(r"^(import|export) \{[^}]*\}[^\n]*\n", "", "\n".join(parts), flags=re.M)


def choice_spec(choice: axes.Choice) -> dict[str, Any]:
    """A choice as JavaScript reads it: ``{"name": "group_std", "ddof": 1, "eps": 0.0}``; a setting
    that is itself a choice likewise."""
    settings = axes.settings(choice)
    inner = {n: choice_spec(value) for n, value in settings.items() if callable(value)}
    return {"name": axes.function_of(choice).__name__, **settings, **inner}


def spec(recipe: Recipe) -> dict[str, Any]:
    """A recipe in words that JavaScript reads, with its label and the formula of its
    aggregation."""
    return {
        "label": f"{recipe.name} (KL left out)" if recipe.kl else recipe.name,
        "formula": recipe.formula()["aggregation"],
        **{
            axis: choice_spec(getattr(recipe, axis))
            for axis in ("baseline", "scale", "surrogate", "aggregation")
        },
        **{
            axis: None if getattr(recipe, axis) is None else choice_spec(getattr(recipe, axis))
            for axis in OPTIONAL
        },
        **{
            axis: [choice_spec(choice) for choice in getattr(recipe, axis)]
            for axis in ("rewards", "filters")
        },
    }


class Explorer(anywidget.AnyWidget):
    """A picture with its own controls. Every control is a trait that Python can read and set; the
    formula runs in the browser.

    ``SHOWN`` names the traits a reader turns; ``figure()`` draws the same state by matplotlib, from
    the library's own numbers.
    """

    TITLE = ""
    _esm: Any
    _css = static("explorer.css")
    SHOWN: tuple[str, ...] = ()
    specs = tr.Dict().tag(sync=True)

    def checked(self, axis: str, names: list[str]) -> list[str]:
        """The names, where each is in ``specs``."""
        unknown = [name for name in names if name not in self.specs]
        if unknown:
            raise ValueError(
                f"the explorer does not draw {unknown[0]!r}: expected {axis} out of "
                f"{', '.join(self.specs)}."
            )
        return names

    def state(self) -> dict[str, Any]:
        """What the JavaScript sees."""
        return {name: getattr(self, name) for name in ("specs", *self.SHOWN)}

    def figure(self) -> Any:
        """The same picture by matplotlib."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The live widget, and a picture for where no widget runs."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        picture = io.BytesIO()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RecipeWarning)
                self.figure().savefig(picture, format="png", dpi=100)
        except (
            ValueError
        ):  # a state without an answer (a group of one); the live widget shows the message
            return data, metadata
        return {**data, "image/png": base64.b64encode(picture.getvalue()).decode()}, metadata

    def __repr__(self) -> str:
        traits = (f"{name}={getattr(self, name)}" for name in self.SHOWN)
        return f"{type(self).__name__}({', '.join(traits)})"

    def page(self, title: str | None = None) -> str:
        """The explorer as one HTML page that needs neither kernel nor network; the controls are
        live."""
        return Template(static("page.html")).substitute(
            title=html.escape(self.TITLE if title is None else title),
            style=f"{static('page.css')}{self._css}",
            state=json.dumps(self.state()).replace("</", "<\\/"),
            script=str(self._esm).replace("</", "<\\/"),
            page=static("page.js"),
        )

    def save_html(self, path: str | Path, title: str | None = None) -> Path:
        """Write ``page()``. Returns the path."""
        with replacing(Path(path)) as temporary:
            temporary.write_text(self.page(title), encoding="utf-8")
        return Path(path)


class Framed(Explorer):
    """An explorer with starting points, which in compact mode fits a frame of 680 × 520.

    ``PRESETS`` holds, by name, a caption and the traits to start from. ``preset`` is one of those
    names, which sets its traits, or "". ``compact`` hides every control that a first look does not
    need.
    """

    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {}
    presets = tr.Dict().tag(sync=True)
    preset = tr.Unicode().tag(sync=True)
    compact = tr.Bool(False).tag(sync=True)

    @tr.default("presets")
    def _presets(self) -> dict[str, dict[str, Any]]:
        return self.PRESETS

    @tr.validate("preset")
    def _known(self, proposal: Any) -> str:
        if proposal["value"] not in ("", *self.PRESETS):
            raise ValueError(
                f"there is no preset {proposal['value']!r}: expected one of "
                f"{', '.join(self.PRESETS)}."
            )
        return proposal["value"]

    @tr.observe("preset")
    def _started(self, change: Any) -> None:
        with self.hold_sync(), self.hold_trait_notifications():
            for name, value in self.PRESETS.get(change["new"], {}).items():
                if name != "caption":
                    setattr(self, name, value)

    def state(self) -> dict[str, Any]:
        """What the JavaScript sees."""
        own = ("presets", "preset", "compact")
        return {**super().state(), **{name: getattr(self, name) for name in own}}
