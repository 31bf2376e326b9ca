"""One look for every picture: what each colour and marker means, names as people write them, the
order of headline, panel title and foot, light and dark.

A colour has one meaning in all pictures: a recipe, right or wrong, pushed up or down. What has
none of these meanings is drawn in ``SERIES``, grey or a tint. Every colour can be read on white
and on the dark page, so that a theme changes text, lines and background only.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import wraps
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast

import matplotlib
import matplotlib.style
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, TwoSlopeNorm
from matplotlib.figure import Figure
from matplotlib.text import Annotation, Text

P = ParamSpec("P")
R = TypeVar("R")
Theme = Literal["light", "dark"]


class Look(NamedTuple):
    """How a series is named and drawn."""

    label: str
    colour: str
    marker: str


RECIPES = {
    "grpo": Look("GRPO", "#1f77d0", "o"),
    "dr_grpo": Look("Dr. GRPO", "#2e9345", "s"),
    "dapo": Look("DAPO", "#d0408f", "^"),
    "dapo(step)": Look("DAPO (token mean of the step)", "#e377a8", "v"),
    "bnpo": Look("BNPO", "#e377a8", "<"),
    "rloo": Look("RLOO", "#9c6b4a", "D"),
    "maxrl": Look("MaxRL", "#b58900", "*"),
    "gspo": Look("GSPO", "#0d9fb5", "X"),
    "gspo_token": Look("GSPO-token", "#0d9fb5", "x"),
    "gmpo": Look("GMPO", "#5b7fa6", "P"),
    "luspo": Look("LUSPO", "#6f9b2f", "d"),
    "cispo": Look("CISPO", "#7d8f1a", "h"),
    "sapo": Look("SAPO", "#b06f7c", "p"),
    "reinforce": Look("REINFORCE", "#7d7d7d", "."),
    "reinforce++": Look("REINFORCE++", "#7d7d7d", "8"),
    "reinforce++(baseline)": Look("REINFORCE++ (baseline)", "#7d7d7d", "8"),
    "remax": Look("ReMax", "#9c6b4a", "H"),
    "ppo": Look("PPO", "#6f7fae", ">"),
    "ppo(gae)": Look("PPO (GAE)", "#6f7fae", ">"),
    "pass@k": Look("pass@k", "#4f9a94", "p"),
    "opo": Look("OPO", "#9c6b4a", "1"),
    "gpg": Look("GPG", "#8a8a5c", "2"),
    "gdpo": Look("GDPO", "#8a8a5c", "3"),
    "lite_ppo": Look("Lite PPO", "#6f7fae", "4"),
    "balanced": Look("Balanced", "#4f9a94", "+"),
    "vl_norm": Look("VL-norm", "#8a8a5c", "|"),
}
RIGHT = Look("right", "#0e8088", "o")
WRONG = Look("wrong", "#d1495b", "X")
UP = "#d95f02"
DOWN = "#8457b8"
SERIES = ("#5c7186", "#a67c2e", "#2a8c82", "#a2596b", "#7a8450", "#8a8f98")  # without a meaning
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
GREY = "#8c8c8c"  # rules and reference lines
SIGNED = "PuOr_r"  # on a light page: purple pushes down, orange pushes up
TRAINED = "#dba13a"
FROZEN = "#6c9bd2"
WIDTH = 8.5  # inches; at 900 pixels the smallest type is 11 pixels high
SMALLEST = 8.0  # points at this width
COLOURS = (
    {look.colour for look in RECIPES.values()}
    | {RIGHT.colour, WRONG.colour, UP, DOWN, "#f0883e", "#b794f4", TRAINED, FROZEN}
    | set(SERIES)
)
DARK: dict[Any, Any] = {
    "text.color": "#e6edf3",
    "axes.labelcolor": "#e6edf3",
    "axes.titlecolor": "#aab4be",
    "axes.edgecolor": "#8b949e",
    "xtick.color": "#c9d1d9",
    "ytick.color": "#c9d1d9",
    "figure.facecolor": "#0d1117",
    "axes.facecolor": "#0d1117",
    "savefig.facecolor": "#0d1117",
    "hatch.color": "#c9d1d9",
}
NIGHT = LinearSegmentedColormap.from_list(
    "night", ["#c9a6ff", "#8457b8", "#21262d", "#d95f02", "#ffc58a"]
)


def styled(
    theme: Theme = "light", own: Mapping[str, Any] | None = None
) -> AbstractContextManager[Any]:
    """The package's style sheet as a context; the reader's own settings stay as they are.

    Args:
        theme: light or dark pages.
        own: settings of matplotlib that come last.
    """
    sheet = Path(str(resources.files("grpo_edu"))) / "plots" / "grpo_edu.mplstyle"
    return matplotlib.style.context([sheet, DARK if theme == "dark" else {}, dict(own or {})])


def picture(function: Callable[P, R]) -> Callable[P, R]:
    """Draw under the package's style sheet."""

    @wraps(function)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> R:
        with styled():
            return function(*args, **kwargs)

    return drawn


def is_dark() -> bool:
    """Whether the theme in force is the dark one."""
    return rcParams["figure.facecolor"] == DARK["figure.facecolor"]


def ink() -> str:
    """Colour of text."""
    return str(rcParams["text.color"])


def quiet() -> str:
    """Colour of what is read second: panel titles, notes, the foot."""
    return str(rcParams["axes.titlecolor"])


def paper() -> str:
    """Colour of the page."""
    return str(rcParams["axes.facecolor"])


def tint() -> str:
    """Colour of an area behind the data, and of light rules."""
    return "#21262d" if is_dark() else "#ececec"


def signed() -> Colormap:
    """The scale of signed numbers: purple pushes down, orange pushes up."""
    return NIGHT if is_dark() else matplotlib.colormaps[SIGNED]


def pushed(size: float) -> str:
    """Colour of text about a push: up or down."""
    up, down = ("#f0883e", "#b794f4") if is_dark() else (UP, DOWN)
    return up if size > 0 else down


def look(name: str, place: int = 0) -> Look:
    """Name, colour and marker of a recipe; of any other series those of its place."""
    plain = Look(name, SERIES[place % len(SERIES)], MARKERS[place % len(MARKERS)])
    return RECIPES.get(name, plain)


class Picture(Figure):
    """A figure that no pyplot window knows of; a notebook shows it as PNG.

    Headline and foot stand at the left edge of the first axes, and labels of lines move apart,
    once the layout is known.
    """

    line_labels: list[tuple[Axes, Annotation]]

    def draw(self, renderer: Any) -> None:
        """Lay out, then place what depends on the layout, then draw."""
        edge = 0.01
        if engine := self.get_layout_engine():
            engine.execute(self)
            edge = min((axis.get_position().x0 for axis in self.axes[:1]), default=edge)
            if foot := getattr(self, "_supxlabel", None):
                foot.set_text(_foot(self, foot.get_text(), edge))
                engine.execute(self)
        for text in (getattr(self, "_suptitle", None), getattr(self, "_supxlabel", None)):
            if text is not None:
                room = 0.99 - text.get_window_extent(renderer).width / self.bbox.width
                text.set_x(max(0.01, min(edge, room)))
        labels = getattr(self, "line_labels", [])
        for axis in {axis for axis, _ in labels}:
            _move_apart([label for of, label in labels if of is axis], axis, renderer)
        super().draw(renderer)

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


def _move_apart(labels: list[Annotation], axis: Axes, renderer: Any) -> None:
    """Shift labels up or down, in points, until no two overlap; their order stays."""
    points = 72 / axis.figure.dpi
    at = {label: points * axis.transData.transform(label.xy)[1] for label in labels}
    labels = sorted(labels, key=at.__getitem__)
    sizes = [points * label.get_window_extent(renderer).height for label in labels]
    low = points * axis.bbox.y0
    high = points * axis.bbox.y1
    places = []
    for label, size in zip(labels, sizes, strict=True):
        floor = places[-1] + size if places else low
        places.append(max(at[label], floor))
    for i in reversed(range(len(places))):
        top = places[i + 1] - sizes[i] if i + 1 < len(places) else high
        places[i] = min(places[i], top)
    for label, place in zip(labels, places, strict=True):
        label.set_position((label.get_position()[0], place - at[label]))


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
    """Write the sentence to take home above the picture, in place of one that is there, in lines
    of like length."""
    letters = int(figure.get_figwidth() * 72 / (0.65 * rcParams["figure.titlesize"]))
    lines = len(textwrap.wrap(text, letters))
    while letters > 20 and len(textwrap.wrap(text, letters - 1)) == lines:
        letters -= 1
    figure.suptitle("\n".join(textwrap.wrap(text, letters)), x=0.01, ha="left")


def evidence(figure: Figure, text: str) -> None:
    """Write the level of evidence under the picture: "exact", "simulated, 16 seeds, 95 % interval",
    "observed, …"."""
    style: dict[str, Any] = {"fontsize": SMALLEST, "color": quiet(), "fontweight": "normal"}
    figure.supxlabel(_foot(figure, text), x=0.01, ha="left", **style)


def _foot(figure: Figure, text: str, left: float = 0.0) -> str:
    """A text in lines that fit at the right of ``left``, a fraction of the width."""
    letters = int((1 - left) * figure.get_figwidth() * 72 / (0.55 * SMALLEST))
    return "\n".join(textwrap.wrap(text, letters, break_on_hyphens=False))


def name_line(axis: Axes, x: Any, y: Any, text: str, colour: str) -> None:
    """Write the name of a line behind its last point, in its colour; names of one panel move apart
    where they would overlap.

    Args:
        axis: drawn on, of a ``Picture``.
        x, y: the points of the line.
        text: the name.
        colour: of the line.
    """
    picture = cast(Picture, axis.figure)
    label = axis.annotate(
        text,
        (list(x)[-1], list(y)[-1]),
        (7, 0),
        textcoords="offset points",
        va="center",
        color=colour,
        annotation_clip=False,
    )
    picture.line_labels = [*getattr(picture, "line_labels", []), (axis, label)]


def rule(axis: Axes, at: float = 0.0, *, vertical: bool = False) -> None:
    """A thin reference line, behind the data."""
    line = axis.axvline if vertical else axis.axhline
    line(at, color=GREY, linewidth=0.8, zorder=0.5)


def note(axis: Axes, x: float, y: float, text: str, **how: Any) -> Text:
    """A remark inside a panel, at a fraction of its width and height."""
    return axis.text(x, y, text, transform=axis.transAxes, **{"color": quiet(), **how})
